"""What one of our streams can do: whether a person looks at it, how wide it is, whether it takes colour."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, TextIO

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
