"""A start as its log tells it: a list of phases while it loads, one line when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from textual.content import Content
from textual.events import Hide, Resize, Show
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.timer import Timer
from textual.visual import Visual
from textual.widget import Widget

from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.seen import is_seen

if TYPE_CHECKING:
    from spark_tui.domain.engine.eta import PastStart
    from spark_tui.domain.engine.timeline import BootTimeline
    from spark_tui.services.ports import Clock
    from spark_tui.tui.widgets.boot_words import BootWords


class BootTimelineView(Widget):
    """Two shapes. The elapsed time of the running phase moves once a second, only while somebody looks, and only its
    own line is repainted."""

    DEFAULT_CSS = """
    BootTimelineView { height: auto; }
    """

    def __init__(self, clock: Clock, glyphs: Glyphs, *, fold_lines: int = 3, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._fold_lines = fold_lines
        self._clock = clock
        self._glyphs = glyphs
        self._timeline: BootTimeline | None = None
        self._folded = True
        self._lines: list[Content] = []
        self._timer: Timer | None = None
        self._past: Sequence[PastStart] = ()

    # --- life -----------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Ticks only when something runs and somebody looks."""
        self._timer = self.set_interval(1.0, self.renew, pause=True)
        self.app.screen_change_signal.subscribe(self, lambda _: self._look())

    def on_show(self, _: Show) -> None:
        """It is on screen."""
        self._look()

    def on_hide(self, _: Hide) -> None:
        """It is not."""
        self._look()

    def on_resize(self, _: Resize) -> None:
        """Another width may need other words."""
        self.renew()

    def show(self, timeline: BootTimeline, *, folded: bool, past: Sequence[PastStart] = ()) -> None:
        """Another timeline, or the same one moved on. `past` are earlier starts like it, latest last."""
        self._timeline, self._folded, self._past = timeline, folded, past
        self._look()

    def _look(self) -> None:
        runs = self._timeline is not None and self._timeline.current is not None
        if self._timer is not None:
            if runs and is_seen(self):
                self._timer.resume()
            else:
                self._timer.pause()
        self.renew()

    # --- paint ----------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Repaints the lines that differ."""
        old, self._lines = self._lines, self._say(self.size.width or 80)
        if len(old) != len(self._lines):
            self.refresh(layout=True)
            return
        for y, (was, now) in enumerate(zip(old, self._lines, strict=True)):
            if not was.is_same(now):
                self.refresh(Region(0, y, self.size.width, 1))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as there is to say."""
        return len(self._say(width)) if width else len(self._lines)

    def render_line(self, y: int) -> Strip:
        """One line."""
        width = self.size.width
        if y >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        strip = Visual.to_strips(self, self._lines[y], width, 1, self.visual_style)[0]
        return strip.extend_cell_length(width, self.rich_style)

    def say(self, width: int) -> Content:
        """What stands there at a width, newlines between lines."""
        return Content("\n").join(self._say(width))

    def _say(self, width: int) -> list[Content]:
        if self._timeline is None:
            return []
        if self._folded:
            return self._words.fold(self._timeline, width)
        return self._words.phases(self._timeline, width, self._past, rows=self.app.size.height)

    @cached_property
    def _words(self) -> BootWords:
        from spark_tui.tui.widgets.boot_words import BootWords  # the first frame shows no start

        return BootWords(self._clock, self._glyphs, self._fold_lines)
