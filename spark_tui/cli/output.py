"""Standard output: data, and nothing else. No other module writes there."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

from spark_tui.domain.errors import SparkError
from spark_tui.domain.text import cell_width, clean, clean_line, truncate

GAP: Final = "  "
MIN_FLEXIBLE: Final = 12
"""A column that may be cut keeps at least so many cells unless it says otherwise, even if the line is too long."""

Paint = Callable[[str, str], str]


@dataclass(frozen=True, slots=True)
class Column:
    """A heading. `right` aligns figures; `flexible` columns are cut where the window is too narrow.

    Columns that are `spare` are left out there, the highest number first; a `name`, which a person types into the next
    command, is cut only when all of them are gone. What is cut keeps `least` cells: with fewer it would say nothing.
    """

    title: str
    right: bool = False
    flexible: bool = False
    spare: int = 0
    name: bool = False
    least: int = MIN_FLEXIBLE


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with its colour. Text from outside is cleaned here."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows; every row has a cell for each column."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell | str, ...], ...]

    def render(self, width: int | None, paint: Paint) -> list[str]:
        """The lines, heading first; within `width` cells where that can be."""
        rows = [tuple(_cell(cell) for cell in row) for row in self.rows]
        heading = tuple(Cell(column.title, "bold") for column in self.columns)
        widths = [max(cell_width(row[at].text) for row in (heading, *rows)) for at in range(len(self.columns))]
        shown = self._shown(widths, width)
        widths = self._cut(widths, shown, width)
        return [self._line(row, widths, shown, paint) for row in (heading, *rows)]

    def _shown(self, widths: Sequence[int], width: int | None) -> list[int]:
        """The columns that there is room for."""
        shown = list(range(len(self.columns)))
        spare = sorted((at for at in shown if self.columns[at].spare), key=lambda at: -self.columns[at].spare)
        for at in spare:
            if width is None or _total([self._least(at, widths[at]) for at in shown]) <= width:
                break
            shown.remove(at)
        return shown

    def _least(self, at: int, width: int) -> int:
        column = self.columns[at]
        return min(width, column.least) if column.flexible and not column.name else width

    def _cut(self, widths: list[int], shown: Sequence[int], width: int | None) -> list[int]:
        cut = list(widths)
        for at in reversed([at for at in shown if self.columns[at].flexible and width is not None]):
            over = _total([cut[each] for each in shown]) - (width or 0)
            if over > 0:
                cut[at] = min(cut[at], max(self.columns[at].least, cut[at] - over))
        return cut

    def _line(self, row: tuple[Cell, ...], widths: list[int], shown: Sequence[int], paint: Paint) -> str:
        parts = []
        for at in shown:
            column, cell = self.columns[at], row[at]
            text = truncate(cell.text, widths[at])
            space = " " * (widths[at] - cell_width(text))
            if column.right:
                parts.append(space + paint(text, cell.style))
            else:
                last = at == shown[-1]
                parts.append(paint(text, cell.style) + ("" if last else space))
        return GAP.join(parts).rstrip(" ")


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _cell(cell: Cell | str) -> Cell:
    given = cell if isinstance(cell, Cell) else Cell(cell)
    return Cell(clean_line(given.text), given.style)


def bar(fraction: float, cells: int, *, unicode: bool) -> str:
    """`████░░░░`, or `####....` for an old locale."""
    full, empty = ("█", "░") if unicode else ("#", ".")
    done = int(fraction * cells)
    return full * done + empty * (cells - done)


def labelled(pairs: Iterable[tuple[str, str]], width: int | None = None) -> list[str]:
    """`label  value` lines, the values aligned; pairs without a value are left out, long values are wrapped."""
    given = [(label, clean_line(value)) for label, value in pairs if value]
    indent = max((len(label) for label, _ in given), default=0) + len(GAP)
    lines = []
    for label, value in given:
        room = None if width is None else max(20, width - indent)
        first, *rest = wrapped(value, room)
        lines.append(f"{label:<{indent}}{first}".rstrip())
        lines += [" " * indent + line for line in rest]
    return lines


def bulleted(items: Iterable[str], width: int | None = None) -> list[str]:
    """`  - item` lines, long items wrapped."""
    lines = []
    for item in items:
        first, *rest = wrapped(clean_line(item), None if width is None else max(20, width - 4))
        lines += [f"  - {first}", *(f"    {line}" for line in rest)]
    return lines


def wrapped(text: str, width: int | None) -> list[str]:
    """`text` at word boundaries; addresses and paths are never broken. One line where there is no width."""
    if width is None:
        return [text]
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


_SGR: Final = {"": "", "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "bold red": "1;31"}

DEFAULT_WIDTH: Final = 80


class Terminal:
    """A text stream. Without a stream (closed by the caller) everything is dropped."""

    def __init__(self, stream: TextIO | None, environment: Mapping[str, str]) -> None:
        self._stream = stream
        self._columns = environment.get("COLUMNS", "")
        self.interactive = stream is not None and stream.isatty() and environment.get("TERM") != "dumb"
        self.colour = self.interactive and not environment.get("NO_COLOR")
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and not self.unicode:
            reconfigure(errors="replace")  # `?` for what an old locale cannot write, rather than a traceback

    @property
    def unicode(self) -> bool:
        """Every character can be written."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        return encoding.lower().replace("_", "-") in ("utf-8", "utf8")

    @property
    def width(self) -> int | None:
        """Columns of the window, by `COLUMNS` first; None where nobody looks and nothing must be cut."""
        if not self.interactive or self._stream is None:
            return None
        if self._columns.isdigit() and int(self._columns) > 0:
            return int(self._columns)
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or DEFAULT_WIDTH
        except OSError:  # a terminal that does not know its size
            return DEFAULT_WIDTH

    def write(self, text: str) -> None:
        """Writes and flushes. Raises OSError (BrokenPipeError among them)."""
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()

    def paint(self, text: str, style: str) -> str:
        """`text` in a style (`red`, `dim`, `bold red` ...), plain where colour is not wanted."""
        return f"\x1b[{_SGR[style]}m{text}\x1b[0m" if self.colour and style and text else text


class ReaderGone(Exception):
    """Whoever read our output has stopped reading (`| head`). Not an error: there is just nobody to write for."""


class OutputFailed(SparkError):
    """Standard output cannot be written: a full disk, mostly."""

    id = "output_failed"


class Output:
    """The only writer of standard output."""

    def __init__(self, stream: TextIO | None, environment: Mapping[str, str]) -> None:
        self.terminal = Terminal(stream, environment)

    def write(self, text: str) -> None:
        """Text as it is, at once. Raises ReaderGone or OutputFailed."""
        try:
            self.terminal.write(text)
        except BrokenPipeError:
            raise ReaderGone from None
        except OSError as error:
            raise OutputFailed(
                f"Standard output cannot be written: {error.strerror or error}.",
                "See where it goes, and make room there.",
            ) from error

    def flush(self) -> None:
        """Nothing is left behind. Raises like `write`."""
        self.write("")

    def ask(self, prompt: str) -> str:
        """A person's next line, edited with readline. Raises EOFError at the end of input.

        The prompt is for a person: where standard output is a file or a pipe, it is left out.
        """
        import readline  # noqa: F401 - gives input() history and editing

        return input(prompt if self.terminal.interactive else "")

    def line(self, text: str = "") -> None:
        """One line."""
        self.write(f"{text}\n")

    def lines(self, texts: Iterable[str]) -> None:
        """Many lines in one write."""
        text = "".join(f"{line}\n" for line in texts)
        if text:
            self.write(text)

    def table(self, table: Table) -> None:
        """A table, cut to the window where somebody looks at one; in a pipe nothing is cut."""
        self.lines(table.render(self.terminal.width, self.terminal.paint))

    def json(self, value: Any) -> None:
        """One JSON document, indented. Control codes are removed from every text in it."""
        self.line(self._json(cleaned(value), indent=2))

    def json_line(self, value: Any) -> None:
        """One JSON document on one line."""
        self.line(self._json(cleaned(value)))

    def json_lines(self, values: Iterable[Any], *, raw: bool = False) -> None:
        """Many in one write. `raw` keeps control codes, escaped."""
        if raw:
            self.lines(_dumped(value) for value in values)
        else:
            self.lines(self._json(cleaned(value)) for value in values)

    def _json(self, value: Any, indent: int | None = None) -> str:
        return _dumped(value, ascii_only=not self.terminal.unicode, indent=indent)


def _dumped(value: Any, *, ascii_only: bool = True, indent: int | None = None) -> str:
    import json  # most runs write none

    return json.dumps(value, ensure_ascii=ascii_only, indent=indent)


def cleaned(value: Any) -> Any:
    """A JSON value with control codes removed from its texts: JSON escapes some of them and not all."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    return value
