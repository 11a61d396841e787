"""Standard error: narration and errors, and the exit code that an error means. No other module writes there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TextIO

from spark_tui.cli.output import Terminal
from spark_tui.domain.errors import ExitCode, PresetError, SparkError
from spark_tui.domain.secret import mask_secrets
from spark_tui.domain.text import clean, clean_line, truncate

MAX_DETAIL_LINES: Final = 20
_ERASE: Final = "\r\x1b[K"


class Interrupted(SparkError):
    """The person pressed Ctrl-C. An empty summary says nothing: the exit code says it all."""

    id = "interrupted"
    exit_code = ExitCode.INTERRUPTED


class Diagnostics:
    """The only writer of standard error.

    With `as_json` an error is one JSON object on one line, `{"error": {"id", "summary", "remedy", "detail"}}`, and
    narration is left out: what happens is then told as data, on standard output.
    """

    def __init__(self, stream: TextIO | None, environment: Mapping[str, str]) -> None:
        self.terminal = Terminal(stream, environment)
        self.as_json = False
        self._standing = ""

    @property
    def interactive(self) -> bool:
        """A person watches: a line may be written over."""
        return self.terminal.interactive and not self.as_json

    # --- narration ------------------------------------------------------------------------------------

    def say(self, text: str = "", style: str = "") -> None:
        """One line of narration, cleaned."""
        if not self.as_json:
            self._line(self.terminal.paint(clean_line(text), style))

    def columns(self, text: str, word: str, style: str) -> None:
        """One line of narration, cut to the window, with its first `word` in a style."""
        if not self.as_json:
            width = self.terminal.width
            shown = clean_line(text) if width is None else truncate(clean_line(text), width)
            self._line(shown.replace(f" {word}", f" {self.terminal.paint(word, style)}", 1))

    def note(self, text: str) -> None:
        """Something that the person should know, wrapped to the window."""
        if not self.as_json:
            first, *rest = _wrapped(clean_line(text), self._room(6))
            self._line(f"{self.terminal.paint('note:', 'yellow')} {first}")
            for line in rest:
                self._line(f"      {line}")

    def stream(self, text: str, style: str = "") -> None:
        """Narration without an end of line, cleaned by the caller."""
        if not self.as_json:
            self.settle()
            self._write(self.terminal.paint(text, style))

    def standing(self, text: str) -> None:
        """A line that the next one overwrites; only where a person watches."""
        if not self.interactive:
            return
        shown = truncate(clean_line(text), (self.terminal.width or 80) - 1)
        if shown != self._standing:
            self._write(f"{_ERASE}{shown}")
            self._standing = shown

    def settle(self) -> None:
        """Takes the standing line away."""
        if self._standing:
            self._write(_ERASE)
            self._standing = ""

    # --- errors ---------------------------------------------------------------------------------------

    def problem(self, error: SparkError) -> None:
        """Something that was passed over; the command goes on."""
        self._error(error, "Skipped:", "yellow")

    def error(self, error: SparkError) -> None:
        """What happened, what to do, and the evidence."""
        if isinstance(error, Interrupted):
            self._error(error, "Interrupted:", "yellow")
        else:
            self._error(error, "Error:", "bold red")

    def _error(self, error: SparkError, word: str, style: str) -> None:
        self.settle()
        if not error.summary:
            return
        if self.as_json:
            import json

            self._write(json.dumps({"error": error_object(error)}) + "\n")
            return
        place = f"{error.where}: " if isinstance(error, PresetError) and error.file else ""
        self._write(f"{self.terminal.paint(word, style)} {mask_secrets(clean_line(place + error.summary))}\n")
        for line in clean(error.remedy).splitlines():
            for part in _wrapped(line, self._room(2)):
                self._write(f"  {part}\n")
        self._detail(error)

    def _detail(self, error: SparkError) -> None:
        lines = [line for line in mask_secrets(clean(error.detail)).splitlines() if line.strip()]
        lines = [line for line in lines if line.strip() not in error.summary]
        for line in lines[:MAX_DETAIL_LINES]:
            self._write(self.terminal.paint(f"  | {line}", "dim") + "\n")
        if len(lines) > MAX_DETAIL_LINES:
            self._write(f"  | ({len(lines) - MAX_DETAIL_LINES} more lines)\n")

    # --- inside ---------------------------------------------------------------------------------------

    def _room(self, indent: int) -> int | None:
        width = self.terminal.width
        return None if width is None else max(20, width - indent)

    def _line(self, text: str) -> None:
        self.settle()
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        try:
            self.terminal.write(text)
        except OSError:
            # Nobody reads it, and there is no other place to say so; the exit code still tells.
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


def _wrapped(text: str, width: int | None) -> list[str]:
    """See `tables.wrapped`, which most runs have no use for."""
    from spark_tui.cli.output import wrapped

    return wrapped(text, width)
