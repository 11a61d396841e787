"""What `y` copies: an entry of a screen's menu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

LAST_COPY: Final = "last-copy"
"""The file in the state folder with what was copied last."""


class Yank(Struct, frozen=True):
    """One thing to copy. A function as `text` is called when the entry is chosen, and may raise SparkError. A `secret`
    is shown nowhere and kept in no file."""

    label: str
    letter: str
    text: str | Callable[[], str]
    secret: bool = False

    def read(self) -> str:
        return self.text if isinstance(self.text, str) else self.text()

    @property
    def preview(self) -> str:
        """The first line, where it is known before it is chosen."""
        return "" if self.secret or not isinstance(self.text, str) else self.text.strip().partition("\n")[0]
