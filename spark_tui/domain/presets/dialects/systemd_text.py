"""Words in systemd units, by systemd.syntax(7) and systemd.service(5)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from spark_tui.domain.errors import UsageError

_BARE = re.compile(r"[A-Za-z0-9_./:=@,+-]+")
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def word(text: str) -> str:
    """One word of a command line: quoted where needed, `%` (specifiers) and `$` (variables) doubled."""
    return _quoted(text.replace("%", "%%").replace("$", "$$"))


def command_line(words: Iterable[Iterable[str]]) -> str:
    """Groups of words, one group a line."""
    return " \\\n  ".join(" ".join(word(each) for each in group) for group in words)


def plain(text: str) -> str:
    """A value that is read as it stands: a description. Specifiers are doubled, lines joined."""
    return " ".join(text.replace("%", "%%").replace("\\", "/").split())


def _quoted(text: str) -> str:
    if "\0" in text:
        raise UsageError("A word of the command has a NUL character.", "Remove it: no unit can carry it.")
    if _BARE.fullmatch(text):
        return text
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return f"\\x{ord(char):02x}" if ord(char) < 0x20 or ord(char) == 0x7F else char
