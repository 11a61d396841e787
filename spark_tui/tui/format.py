"""The only place where values become styled text. Styles are theme tokens; every state also has a word."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from rich.segment import Segment
from textual.color import Color
from textual.content import Content
from textual.filter import LineFilter
from textual.style import Style

from spark_tui.base.actions import key_written
from spark_tui.base.finding import Event, Severity
from spark_tui.base.page import Cell, Table, Tone
from spark_tui.base.quantities import human_duration
from spark_tui.base.text import cells_left, clean_line

SEVERITY_STYLE = {Severity.INFO: "$dim", Severity.WARNING: "$warning", Severity.ERROR: "$error"}


TONE_STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "$success",
    Tone.QUIET: "$dim",
    Tone.STRONG: "bold",
    Tone.WARNING: "$warning",
    Tone.BAD: "$error",
}
LOUD = (Tone.WARNING, Tone.BAD)
"""Tones whose labels are coloured too."""
MAX_CELL = 200
"""Cells of a table's cell that are looked at: a text from outside may have any length."""


def cell(value: Cell, width: int, *, right: bool = False) -> Content:
    """A table's cell, cut and filled to `width` cells."""
    text = safe(value.within(width)[: 4 * MAX_CELL], TONE_STYLES[value.tone]).truncate(width, ellipsis=True)
    filler = " " * cells_left(width, text.cell_length)
    return Content.assemble(filler, text) if right else Content.assemble(text, filler)


def column_titles(table: Table) -> tuple[str, ...]:
    """The titles of a table's columns: small letters, as on all screens, where the command line has capitals."""
    titles = tuple(column.title for column in table.columns)
    return tuple(map(str.lower, titles)) if all(title.isupper() for title in titles if title) else titles


def safe(text: str, style: str = "") -> Content:
    """Text from outside as plain content: never markup, control codes removed."""
    return Content.styled(clean_line(text), style) if style else Content(clean_line(text))


def pressable(content: Content, action: str) -> Content:
    """The same words; a click on them runs that action: `app.show_home`."""
    return content.stylize(Style.from_meta({"@click": action}))


def presses(key: str) -> str:
    """The action of a click that does what that key does now."""
    return f"app.simulate_key({key!r})"


def key_hints(text: str) -> Content:
    """`Enter choose  Esc cancel`: a click on a part that begins with a key does what the key does."""
    parts = (part for part in text.split("  ") if part.strip())
    found = ((part.strip(), key_written(part.split()[0])) for part in parts)
    return Content("  ").join([pressable(Content(part), presses(key)) if key else Content(part) for part, key in found])


def styled(value: Cell) -> Content:
    """A text of present/ in its colour."""
    return safe(value.text, TONE_STYLES[value.tone])


def ago(seconds: float) -> str:
    """`12s ago`, `3h12m ago`, `2d ago`: one unit fewer than a duration, it is only a hint."""
    if seconds < 86400:
        return f"{human_duration(max(seconds, 1))} ago"
    return f"{int(seconds // 86400)}d ago"


def event_text(event: Event) -> Content:
    """What happened, and what to do."""
    text = safe(event.text, SEVERITY_STYLE[event.severity])
    return Content.assemble(text, "  ", safe(event.remedy, "$dim")) if event.remedy else text


class Glyphs(Struct, frozen=True):
    """One set. The five bar characters differ in shape, so that colour is never the only sign."""

    name: str
    engine: str
    apps: str
    kept: str
    cache: str
    free: str
    full: str
    empty: str
    cursor: str
    bullet: str
    separator: str
    ellipsis: str
    rule: str
    running: str
    done: str
    failed: str
    pending: str
    warning: str
    edge: str
    """The last cell of a filled part, so that the next one is seen to begin."""
    tick: str


UNICODE = Glyphs(
    "unicode", "█", "▓", "▒", "░", "·", "━", "─", "▌", "•", "│", "…", "─", "▶", "✓", "✗", "·", "!", "▊", "┃"
)
CONSOLE = Glyphs(
    "console", "█", "■", "▒", "░", ".", "█", "░", ">", "•", "│", "…", "─", "►", "+", "x", ".", "!", "│", "│"
)
ASCII = Glyphs("ascii", "#", "=", "%", ":", ".", "#", "-", ">", "*", "|", "~", "-", ">", "+", "x", ".", "!", "|", "!")


def locale_of(env: Mapping[str, str]) -> str:
    """The locale that the person has, by name; empty where none is set.

    In the C locale Python itself writes LC_CTYPE=C.UTF-8 into its environment (PEP 538): the terminal knows nothing
    of that.
    """
    lang, ctype = env.get("LANG", ""), env.get("LC_CTYPE", "")
    if ctype == "C.UTF-8" and lang in ("", "C", "POSIX"):
        ctype = ""
    return env.get("LC_ALL") or ctype or lang


def choose(wanted: str = "", environ: dict[str, str] | None = None) -> Glyphs:
    """The set asked for by name, else by TERM and the locale's encoding."""
    env = os.environ if environ is None else environ
    for glyphs in (UNICODE, CONSOLE, ASCII):
        if glyphs.name == wanted:
            return glyphs
    if env.get("TEXTUAL_DRIVER", "").endswith(":WebDriver"):
        return UNICODE  # a browser has every character, whatever this machine's locale is
    if env.get("TERM") in ("dumb", "vt100", "vt220") or "utf" not in locale_of(env).lower():
        return ASCII
    return CONSOLE if env.get("TERM") == "linux" else UNICODE


def _table(*pairs: tuple[str, str]) -> dict[int, str]:
    return {ord(char): plain for chars, plain in pairs for char in chars}


_BOTH: Final = (("✓✔", "+"), ("✗✘", "x"), ("‘’", "'"), ("“”„", '"'), ("–—‑", "-"), ("\u00a0\u202f", " "), ("🔎", "/ "))
_TO_CONSOLE: Final = _table(
    *_BOTH,
    ("╭", "┌"),
    ("╮", "┐"),
    ("╰", "└"),
    ("╯", "┘"),
    ("━╸╺", "═"),
    ("▔▁┄┅╌", "─"),
    ("▊▎▏┃╎┊", "│"),
    ("▂▃", " "),
    ("▅▆▇", "▄"),
    ("▶", "►"),
    ("●", "•"),
    ("○", "o"),
)
_TO_ASCII: Final = _table(
    *_BOTH,
    ("╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛╔╗╚╝", "+"),
    ("━╸╺═", "="),
    ("─▔▁┄┅╌", "-"),
    ("│┃║╎┊▏▎▊▌▐", "|"),
    ("▂▃▄▅▆▇▀", " "),
    ("█▓", "#"),
    ("▒", "%"),
    ("░", ":"),
    ("…≈±", "~"),
    ("•●", "*"),
    ("·", "."),
    ("▶►→", ">"),
    ("○", "o"),
    ("←", "<"),
    ("×", "x"),
)
_TABLES: Final[Mapping[str, Mapping[int, str]]] = {CONSOLE.name: _TO_CONSOLE, ASCII.name: _TO_ASCII}


def plain(text: str, glyphs: Glyphs) -> str:
    """The text in as many cells, without what those glyphs' terminal cannot show; letters stay as they are."""
    table = _TABLES.get(glyphs.name)
    return text if table is None or text.isascii() else text.translate(table)


class PlainCharacters(LineFilter):
    """Does it to every line that is drawn."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(enabled=glyphs.name in _TABLES)
        self._glyphs = glyphs

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(plain(text, self._glyphs), style, control) for text, style, control in segments]
