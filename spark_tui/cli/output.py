"""The two streams of a command: data on stdout, messages and errors on stderr. No other module writes there."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from msgspec.structs import replace

from spark_tui.base.errors import ExitCode, PresetError, RefusedError, SparkError
from spark_tui.base.page import Cell, Page, Row, Section, Table, Tone, column_widths
from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import cell_width, cells_left, clean, clean_line, truncate

DEFAULT_WIDTH: Final = 80
MAX_DETAIL_LINES: Final = 20
GAP: Final = "  "
PRIVATE, ORDINARY = 0o600, 0o666
"""Modes of a written file, less what the person's umask takes away."""
_ERASE: Final = "\r\x1b[K"
_SGR: Final = {"": "", "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "bold red": "1;31"}
STYLES: Final = {
    Tone.PLAIN: "", Tone.GOOD: "green", Tone.QUIET: "dim", Tone.STRONG: "bold", Tone.WARNING: "yellow",
    Tone.BAD: "bold red",
}  # fmt: skip

Paint = Callable[[str, str], str]


class ReaderGone(Exception):
    """The reader of our output has stopped reading (`| head`). Not an error."""


class OutputFailed(SparkError, id="output_failed"):
    """Standard output cannot be written: a full disk, mostly."""


class Interrupted(SparkError, id="interrupted", exit_code=ExitCode.INTERRUPTED):
    """The person pressed Ctrl-C. With an empty summary nothing is printed: the exit code says it."""


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
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        return encoding.lower().replace("_", "-") in ("utf-8", "utf8")

    @property
    def descriptor(self) -> int | None:
        try:
            return None if self._stream is None else self._stream.fileno()
        except OSError:  # in memory
            return None

    @property
    def width(self) -> int | None:
        """Columns of the window, by `COLUMNS` first; None in a pipe or a file, where nothing must be cut."""
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


class Output:
    """Standard output: data, and nothing else.

    A command gives both its forms, texts and `json`; the one that was not asked for is left out.
    """

    def __init__(self, stream: TextIO | None, environment: Mapping[str, str]) -> None:
        self.terminal = Terminal(stream, environment)
        self.as_json = False

    def write(self, text: str) -> None:
        """Text as it is, at once. Raises ReaderGone or OutputFailed."""
        if not self.as_json:
            self._write(text)

    def _write(self, text: str) -> None:
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
        self._write("")

    def ask(self, prompt: str) -> str:
        """A person's next line, edited with readline. Raises EOFError at the end of input.

        The prompt is for a person: where standard output is a file or a pipe, it is left out.
        """
        import readline  # noqa: F401 - gives input() history and editing

        return input(prompt if self.terminal.interactive else "")

    def line(self, text: str = "") -> None:
        self.lines((text,))

    def lines(self, texts: Iterable[str]) -> None:
        if text := "".join(f"{line}\n" for line in texts):
            self.write(text)

    def table(self, table: Table) -> None:
        """A table, cut to the window on a terminal; in a pipe nothing is cut."""
        self.lines(table_lines(table, self.terminal.width, self.terminal.paint))

    def page(self, sections: Page) -> None:
        self.lines(page_lines(sections, self.terminal.width, self.terminal.paint))

    def json(self, value: Any) -> None:
        """One JSON document, indented. Control codes are removed from every text in it."""
        if self.as_json:
            self._write(json.dumps(cleaned(value), ensure_ascii=not self.terminal.unicode, indent=2) + "\n")

    def answer(self, value: Any, shown: Page | Table | str) -> None:
        """A command's answer: one JSON document as data; for a person a page, a table or a line."""
        self.json(value)
        match shown:
            case Table():
                self.table(shown)
            case str():
                self.line(shown)
            case _:
                self.page(shown)

    def json_line(self, value: Any) -> None:
        self.json_lines((value,))

    def json_lines(self, values: Iterable[Any], *, raw: bool = False) -> None:
        """Many in one write. `raw` keeps control codes, escaped."""
        if self.as_json:
            ascii_only = raw or not self.terminal.unicode
            shown = (json.dumps(value if raw else cleaned(value), ensure_ascii=ascii_only) for value in values)
            self._write("".join(f"{line}\n" for line in shown))


def cleaned(value: Any) -> Any:
    """A JSON value with control codes removed from its texts: JSON escapes some of them and not all."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    return value


# --- messages ---------------------------------------------------------------------------------------------


class Diagnostics:
    """Standard error: messages and errors.

    With `as_json` an error is one JSON object on one line, `{"error": {"id", "summary", "remedy", "detail"}}`, and
    messages are left out: progress is then data, on standard output.
    """

    def __init__(self, stream: TextIO | None, environment: Mapping[str, str]) -> None:
        self.terminal = Terminal(stream, environment)
        self.as_json = False
        self._standing = ""

    @property
    def interactive(self) -> bool:
        """A person watches: a line may be written over."""
        return self.terminal.interactive and not self.as_json

    def say(self, text: str = "", style: str = "") -> None:
        """One line, cleaned."""
        if not self.as_json:
            self._line(self.terminal.paint(clean_line(text), style))

    def page(self, sections: Page) -> None:
        if not self.as_json:
            for line in page_lines(sections, self._room(0), self.terminal.paint):
                self._line(line)

    def columns(self, text: str, word: str, style: str) -> None:
        """One line, cut to the window, with its first `word` in a style."""
        if not self.as_json:
            width = self.terminal.width
            shown = clean_line(text) if width is None else truncate(clean_line(text), width)
            self._line(shown.replace(f" {word}", f" {self.terminal.paint(word, style)}", 1))

    def note(self, *texts: str) -> None:
        """What the person should know, each wrapped to the window."""
        for text in () if self.as_json else texts:
            first, *rest = wrapped(clean_line(text), self._room(6))
            self._line(f"{self.terminal.paint('note:', 'yellow')} {first}")
            for line in rest:
                self._line(f"      {line}")

    def stream(self, text: str, style: str = "") -> None:
        """A message without an end of line, cleaned by the caller."""
        if not self.as_json:
            self.settle()
            self._write(self.terminal.paint(text, style))

    def standing(self, text: str) -> None:
        """A line that the next one overwrites; only where a person watches."""
        if not self.interactive:
            return
        shown = truncate(clean_line(text), (self.terminal.width or DEFAULT_WIDTH) - 1)
        if shown != self._standing:
            self._write(f"{_ERASE}{shown}")
            self._standing = shown

    def settle(self) -> None:
        """Takes the standing line away."""
        if self._standing:
            self._write(_ERASE)
            self._standing = ""

    def problem(self, *errors: SparkError) -> None:
        """What was skipped; the command continues."""
        for error in errors:
            self.error(error, "Skipped:")

    def error(self, error: SparkError, word: str = "") -> None:
        word = word or ("Interrupted:" if isinstance(error, Interrupted) else "Error:")
        style = "bold red" if word == "Error:" else "yellow"
        self.settle()
        if not error.summary:
            return
        if self.as_json:
            self._write(json.dumps({"error": error_object(error)}) + "\n")
            return
        place = f"{error.where}: " if isinstance(error, PresetError) and error.file else ""
        self._write(f"{self.terminal.paint(word, style)} {mask_secrets(clean_line(place + error.summary))}\n")
        for line in clean(error.remedy).splitlines():
            for part in wrapped(line, self._room(2)):
                self._write(f"  {part}\n")
        detail = [line for line in mask_secrets(clean(error.detail)).splitlines() if line.strip()]
        detail = [line for line in detail if line.strip() not in error.summary]
        for line in detail[:MAX_DETAIL_LINES]:
            self._write(self.terminal.paint(f"  | {line}", "dim") + "\n")
        if len(detail) > MAX_DETAIL_LINES:
            self._write(f"  | ({len(detail) - MAX_DETAIL_LINES} more lines)\n")

    def _room(self, indent: int) -> int | None:
        width = self.terminal.width
        return None if width is None else max(20, width - indent)

    def _line(self, text: str) -> None:
        self.settle()
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        try:
            self.terminal.write(text)
        except OSError:  # it has no reader, and there is no other place to say so; the exit code remains
            return


def error_object(error: SparkError) -> dict[str, Any]:
    """An error as data. `file` and `line` (1-based) where a file is to blame."""
    found: dict[str, Any] = {
        "id": error.id,
        "summary": mask_secrets(clean(error.summary)),
        "remedy": clean(error.remedy),
        "detail": mask_secrets(clean(error.detail)),
        "exit_code": int(error.exit_code),
    }
    if isinstance(error, PresetError) and error.file:
        found["file"] = clean(error.file)
        if error.line:
            found["line"] = error.line
    return found


def write_new(path: str, text: str, option: str, *, mode: int = ORDINARY) -> Path:
    """Writes `text` into a new file and returns its path; `~` is the person's home.

    Raises RefusedError where there is a file already, SparkError where none can be; both name `option`.
    """
    place = Path(path).expanduser()
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RefusedError(f"{place} exists already.", f"Remove it, or name another file: {option} FILE") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise SparkError(f"{place} cannot be written: {reason}.", f"Name another place: {option} FILE") from error
    return place


# --- tables and pages -------------------------------------------------------------------------------------


def table_lines(table: Table, width: int | None, paint: Paint) -> list[str]:
    """The lines of a table, heading first; within `width` cells where that can be, whole where it is None. Without
    rows: what the table says then, if anything."""
    if not table.rows and table.empty:
        return wrapped(table.empty, width)
    heading = tuple(Cell(column.title, Tone.STRONG) for column in table.columns)
    rows = [heading, *(tuple(replace(cell, text=clean_line(cell.text)) for cell in row) for row in table.rows)]
    sizes = column_widths(Table(table.columns, tuple(rows[1:])), width, len(GAP))
    lines = []
    for row in rows:
        parts = []
        for at, size in sizes.items():
            text = truncate(row[at].within(size), size)
            space = " " * cells_left(size, cell_width(text))
            painted = paint(text, STYLES[row[at].tone])
            parts.append(space + painted if table.columns[at].right else painted + space)
        lines.append(GAP.join(parts).rstrip(" "))
    return lines


def page_lines(sections: Page, width: int | None, paint: Paint) -> list[str]:
    """The lines of a page: labels aligned over all of it, commands whole."""
    labels = [cell_width(row.label) for section in sections for row in section.rows if len(row.label) > 1]
    indent = max(labels, default=0) + len(GAP)
    lines: list[str] = []
    for section in sections:
        lines += [""] * bool(lines)
        lines += [paint(clean_line(section.title), "bold")] if section.title else []
        for row in section.rows:
            bullet, style = len(row.label) == 1, STYLES[row.tone]
            inset = 4 if bullet else indent if row.label else 0
            head = f"  {row.label} " if bullet else f"{row.label:<{inset}}"
            first, *rest = wrapped(clean_line(row.text), None if width is None else max(20, width - inset))
            lines += [head + paint(first, style), *(" " * inset + paint(line, style) for line in rest)]
        if section.table is not None:
            lines += table_lines(section.table, width, paint)
        lines += [f"  {clean(line)}" for line in section.command.splitlines()]
    return lines


def capitals(table: Table) -> Table:
    """With titles as the other tables of the command line have them."""
    return replace(table, columns=tuple(replace(column, title=column.title.upper()) for column in table.columns))


def labelled(pairs: Iterable[tuple[str, str]], width: int | None = None) -> list[str]:
    """`label  value` lines, the values aligned; pairs without a value are left out, long values are wrapped."""
    return page_lines((Section(rows=tuple(Row(text, label) for label, text in pairs if text)),), width, plain)


def bulleted(items: Iterable[str], width: int | None = None) -> list[str]:
    """`  - item` lines, long items wrapped."""
    return page_lines((Section(rows=tuple(Row(item, "-") for item in items)),), width, plain)


def plain(text: str, _: str) -> str:
    """A paint that leaves texts as they are."""
    return text


def bar(fraction: float, cells: int, *, unicode: bool) -> str:
    """`████░░░░`, or `####....` for an old locale."""
    full, empty = ("█", "░") if unicode else ("#", ".")
    done = int(fraction * cells)
    return full * done + empty * (cells - done)


def wrapped(text: str, width: int | None) -> list[str]:
    """`text` at word boundaries; addresses and paths are never broken. One line where there is no width."""
    if width is None:
        return [text]
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
