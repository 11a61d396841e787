"""Standard output: data, and nothing else. No other module writes there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from spark_tui.cli.terminal import Terminal
from spark_tui.domain.errors import SparkError
from spark_tui.domain.text import clean

if TYPE_CHECKING:
    from spark_tui.cli.tables import Table


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
