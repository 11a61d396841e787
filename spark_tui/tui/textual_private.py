"""Every private name of Textual that this program uses, each with the reason why no public one will do.

`tests/tui/test_textual_private.py` proves that each of them still does what it is used for.
"""

from __future__ import annotations

import os
import signal
import sys
from codecs import getincrementaldecoder
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from select import select
from shutil import get_terminal_size
from typing import Any, Final, NamedTuple, TypeVar

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console, RenderableType
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
from textual._context import NoActiveAppError
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.cache import LRUCache
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Mount, Paste, Resize, ScreenResume, ScreenSuspend
from textual.geometry import Region, Size
from textual.keys import Keys
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widgets import Input

Answer = TypeVar("Answer")


class Codes(NamedTuple):
    """A style as parameters of SGR: bold and the like, colour, background. Empty is the terminal's own."""

    attributes: str = ""
    color: str = ""
    background: str = ""


PLAIN: Final = Codes()
INVISIBLE: Final = frozenset(("", "1", "2"))
"""Attributes that do not show on a blank: none, bold, dim."""

ENDING_SIGNALS: Final = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGTERM, signal.SIGXCPU, signal.SIGVTALRM, signal.SIGPROF,
)  # fmt: skip
"""Every signal that ends a program unless it is handled, but those that its own faults raise."""
END_SECONDS: Final = 10
POLL_SECONDS: Final = 0.1


@lru_cache(4096)
def codes_of(style: Style | None, system: ColorSystem) -> Codes:
    """The parts of a style for a terminal with that palette."""
    if style is None:
        return PLAIN

    def parameters(part: Style) -> str:
        return part.render("m", color_system=system).removeprefix("\x1b[").partition("m")[0]

    return Codes(
        parameters(style.without_color.update_link(None)),
        parameters(Style(color=style.color)),
        parameters(Style(bgcolor=style.bgcolor)),
    )


@lru_cache(4096)
def change(before: Codes, after: Codes) -> str:
    """The escape sequence that leads from one style to another; empty where they are the same."""
    if before == after:
        return ""
    if before.attributes not in ("", after.attributes):
        return f"\x1b[{';'.join(filter(None, ('0', *after)))}m"
    parts = [after.attributes] if after.attributes != before.attributes else []
    parts += [after.color or "39"] if after.color != before.color else []
    parts += [after.background or "49"] if after.background != before.background else []
    return f"\x1b[{';'.join(parts)}m"


def written(pieces: Iterable[tuple[int, int, Strip]], console: Console) -> str:
    """Strips at their columns and rows as terminal sequences. A colour that stays is not named again: Textual names
    both for every piece of text, which is two thirds of what it sends."""
    system = COLOR_SYSTEMS[console.color_system or "truecolor"]
    found, now, at = [], PLAIN, (-1, -1)
    for x, y, strip in pieces:
        if (x, y) != at:
            found.append(f"\x1b[{y + 1};{x + 1}H")
        at = x + strip.cell_length, y
        for text, style, control in strip:
            if control or not text:
                continue
            if style is not None and style.link:
                found += (change(now, PLAIN), style.render(text, color_system=system))
                now = PLAIN
                continue
            wanted = codes_of(style, system)
            if wanted != now:
                if text.isspace() and wanted.attributes in INVISIBLE and now.attributes in INVISIBLE:
                    wanted = Codes(now.attributes, now.color, wanted.background)
                found.append(change(now, wanted))
                now = wanted
            found.append(text)
    found.append("\x1b[0m" if now != PLAIN else "")
    return "".join(found)


class WholeUpdate(LayoutUpdate):
    """Every cell of the screen."""

    def render_segments(self, console: Console) -> str:
        lines = enumerate(self.strips, self.region.y)
        return written(((self.region.x, y, Strip.join(line)) for y, line in lines), console)


class ChangedUpdate(ChopsUpdate):
    """The cells that widgets call changed: Textual's begins at the left edge of the widget."""

    def render_segments(self, console: Console) -> str:
        return written(self._pieces(), console)

    def _pieces(self) -> Iterator[tuple[int, int, Strip]]:
        for y, begin, end in self.spans:
            for (x, strip), chop_end in zip(self.chops[y].items(), self.chop_ends[y], strict=False):
                if strip is None or x >= end or chop_end <= begin:
                    continue
                first = max(0, begin - x)
                if first and any(cell_len(char) != 1 for char in set(strip.text)):
                    first = 0  # the cell may be in the middle of a wide character
                yield x + first, y, strip.crop(first, min(end, chop_end) - x)


class QuietCompositor(Compositor):
    """Renders and writes what has changed, and no more."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: dict[int, list[tuple[int, int]]] | None = None

    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        update = super().render_full_update(simplify)
        return WholeUpdate(update.strips, update.region)

    def render_partial_update(self) -> ChopsUpdate | None:
        self._changed = defaultdict(list)
        for y, begin, end in self._regions_to_spans(self._dirty_regions):
            self._changed[y].append((begin, end))
        try:
            update = super().render_partial_update()
        finally:
            self._changed = None
        return None if update is None else ChangedUpdate(update.chops, update.spans, update.chop_ends)

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Of every widget the rows that have changed: Textual's are all widgets between the first and the last
        change, and all their rows."""
        if self._changed is None:
            yield from super()._get_renders(crop)
            return
        changed = self._changed
        for widget, (region, clip) in self.visible_widgets.items():
            x, y, width, height = region.intersection(clip)
            rows = [
                row
                for row in range(y, y + height)
                if row in changed and any(begin < x + width and x < end for begin, end in changed[row])
            ]
            if rows and width:
                shown = Region(x, rows[0], width, rows[-1] + 1 - rows[0])
                yield shown, shown, widget.render_lines(shown.translate(-region.offset))


class QuietScreen(Screen[Answer]):
    """A screen that is styled once and painted once when it is first shown."""

    _was_shown = False
    _is_shown = False

    def __init__(
        self,
        name: str | None = None,
        id: str | None = None,  # noqa: A002 - Textual's name
        classes: str | None = None,
    ) -> None:
        super().__init__(name, id, classes)
        self._compositor = QuietCompositor()
        with suppress(NoActiveAppError):  # a dialog that is made before its app is styled as Textual does it
            # Textual parses all style sheets again for a screen whose count is not the app's.
            self._css_update_count = self.app._css_update_count
            # Breakpoint classes that are set on the first Resize have the whole screen styled a second time.
            width, height = self.app.size
            across = self._get_breakpoint_classes(width, self.HORIZONTAL_BREAKPOINTS or [])
            down = self._get_breakpoint_classes(height, self.VERTICAL_BREAKPOINTS or [])
            self.add_class(*across, *down, update=False)

    def _compositor_refresh(self) -> None:
        """Nothing while the app batches changes: Textual would draw the picture, discard it, and take its widgets for
        painted. The first picture comes whole once the screen is mounted."""
        if not self.app._batch_count:
            super()._compositor_refresh()

    async def _dispatch_message(self, message: Message) -> None:
        """A screen that is opened while the app ends gets no widgets: what mounting it does would not find them. One
        that is opened as a mode gets two `ScreenResume`: the second would do all of the first again."""
        if isinstance(message, ScreenResume | ScreenSuspend):
            shown, self._is_shown = self._is_shown, isinstance(message, ScreenResume)
            if shown and self._is_shown:
                return
        if self.app._running or not isinstance(message, Mount):
            await super()._dispatch_message(message)

    async def _on_resize(self, event: Resize) -> None:
        """Not laid out for a size that is past. The layout of an earlier size reported it after the window had changed
        again: a Resize in the queue is replaced by the next, and the window's would be lost. Laid out, it would report
        itself once more."""
        if event.size != self.app.size:
            event.prevent_default()
            self.post_message(Resize(self.app.size, self.app.size))

    def _screen_resized(self, size: Size) -> None:
        """Once for each size: a start brings three Resize of one size, and each would lay the whole screen out."""
        if size != self._compositor.size:
            super()._screen_resized(size)

    def _on_screen_resume(self, event: ScreenResume) -> None:
        """A screen that is shown for the first time was styled just now: Textual would do it again."""
        event.refresh_styles = event.refresh_styles and self._was_shown
        self._was_shown = True
        self.resumed()

    def resumed(self) -> None:
        """The screen is shown again, or for the first time."""


class QuietModal(ModalScreen[Answer], QuietScreen[Answer]):
    """One that is shown over others. Textual looks for the names of types in style sheets along the first base only."""

    def action_cancel(self) -> None:
        """Goes back without an answer."""
        self.dismiss(None)


_PARSED: Final[dict[tuple[tuple[str, str], ...], LRUCache[tuple[object, ...], list[RuleSet]]]] = {}
_MOST_SOURCES: Final = 512


class OnceParsed(Stylesheet):
    """Style sheets that are parsed once for each theme: Textual's parses all of them again for a screen that brings
    one more, and for a theme that is chosen again."""

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._remember()

    def _remember(self) -> None:
        self._parse_cache = _PARSED.setdefault(tuple(self._variables.items()), LRUCache(_MOST_SOURCES))

    def set_variables(self, variables: dict[str, str]) -> None:
        self._parse_cache = LRUCache(1)  # Textual's clears it
        super().set_variables(variables)
        self._remember()

    def reparse(self) -> None:
        self.parse()


class TerminalParser(XTermParser):
    """Takes any text for keys, clicks and reports: Textual's ends with an error for a key or a size that cannot be."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[Key]:
        try:
            events = list(super()._sequence_to_key_events(sequence, alt))
            "".join(f"{event.key}{event.character}" for event in events).encode()  # half a surrogate pair is no key
        except (ValueError, OverflowError):
            return [Key(Keys.Ignore, sequence)]
        return events

    def parse_mouse_code(self, code: str) -> Message | None:
        with suppress(ArithmeticError):  # a click in pixels, in a window of none
            return super().parse_mouse_code(code)
        return None


class TerminalDriver(LinuxDriver):
    """The terminal, left as it was found whatever it sends and whichever signal ends the program."""

    def start_application_mode(self) -> None:
        for number in ENDING_SIGNALS:
            self._loop.add_signal_handler(number, self.end_by, number)
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._loop.add_signal_handler(signal.SIGWINCH, self.resized)

    def resized(self) -> None:
        """Textual's goes by reports alone once one of them, or noise that looks like one, has said that they come."""
        size = Size(*get_terminal_size())
        self.send_message(Resize(size, size))

    def end_by(self, number: signal.Signals) -> None:
        """Ends the app in its order, exit code 128 and the signal's number. Where that takes too long, the alarm ends
        the program; so does a second signal."""
        for each in ENDING_SIGNALS:
            self._loop.remove_signal_handler(each)
        if not os.isatty(self.fileno):  # a connection that was lost; the next program restores what was promised
            os.kill(os.getpid(), number)
        signal.alarm(self._app.end_seconds if isinstance(self._app, PlainCrashApp) else END_SECONDS)
        self._app.exit(return_code=128 + number)

    def run_input_thread(self) -> None:
        """Textual's decodes strictly: one byte of another encoding ended the program."""
        decode, parser = getincrementaldecoder("utf-8")("replace").decode, TerminalParser(self._debug)
        while not self.exit_event.is_set():
            if select([self.fileno], [], [], POLL_SECONDS)[0] and (text := decode(os.read(self.fileno, 4096))):
                for event in parser.feed(text):
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)


class PlainCrashApp(App[Answer]):
    """An app that no input ends, and whose crash report is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stylesheet = OnceParsed(variables=self.get_css_variables())

    @property
    def end_seconds(self) -> int:
        """So long a signal waits for an orderly end."""
        return END_SECONDS

    def get_driver_class(self) -> type[Driver]:
        """Ours at a terminal; in a browser Textual's, which would hear no key after one that its parser fails at."""
        driver = super().get_driver_class()
        if driver is LinuxDriver:
            return TerminalDriver
        setattr(sys.modules[driver.__module__], XTermParser.__name__, TerminalParser)
        return driver

    def panic(self, *renderables: RenderableType) -> None:
        """Textual's leaves the exit code at 0."""
        super().panic(*renderables)
        self.exit(return_code=1)

    def crash_report(self, error: BaseException) -> RenderableType:
        """What is left on the terminal when the app crashes."""
        raise NotImplementedError

    async def _close_all(self) -> None:
        """A screen that a key opens meanwhile is closed too: Textual's loop over all screens ends with an error."""
        try:
            await super()._close_all()
        except RuntimeError:
            await super()._close_all()

    def _fatal_error(self) -> None:
        """In place of Textual's traceback, which shows the values of variables: keys, prompts, answers among them."""
        self.bell()
        if self._exception is not None:
            self._exit_renderables.append(self.crash_report(self._exception))
        self._close_messages_no_wait()


class PasteInput(Input):
    """An input that decides itself what becomes of a paste: Textual's keeps the first line and drops the rest."""

    def pasted(self, text: str) -> str | None:
        """What is inserted instead; None where the paste has been dealt with."""
        raise NotImplementedError

    def _on_paste(self, event: Paste) -> None:
        text = self.pasted(event.text)
        if text is not None:
            super()._on_paste(Paste(text))
        event.prevent_default()
        event.stop()


def write_to_terminal(app: App[Any], text: str) -> None:
    """Bytes that are no picture: a bell, a title. Textual has a public way for the bell alone."""
    if app._driver is not None and not app.is_web:
        app._driver.write(text)
