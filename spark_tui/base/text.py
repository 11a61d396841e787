"""Text from outside is hostile: control codes are removed before it is stored, searched or shown.

Sequences recognised: ECMA-48 CSI and two-byte escapes, and OSC/DCS/SOS/PM/APC strings up to their end (BEL or ST).
A string that never ends loses only its introducer: text is shown, never swallowed.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable
from typing import Final, cast

# No part can take what a later part needs, and a string's body stops at every introducer: one pass, never quadratic.
_SEQUENCE = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]?"  # CSI
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])(?:[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\\\|\x9c))?"  # strings
    "|\x1b[ -/]*[0-~]?"  # other escapes
    "|\x9b[0-?]*[ -/]*[@-~]?"
)
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
# Left: tab and newline (the caller decides about them). Gone: C0, DEL, C1, every mark that reorders or hides text
# (bidi, invisible operators, tags, byte order mark), line and paragraph separators.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
# Half a surrogate pair cannot be written to a terminal: JSON can smuggle one in (`"\ud800"`).
_SURROGATE = re.compile("[\ud800-\udfff]")
MOST_NAMED: Final = 8
"""Names that one message has at most."""


def quoted(word: object) -> str:
    """One word of a command that is shown to be run: cleaned, and quoted for the shell where it needs quotes."""
    return shlex.quote(clean_line(str(word)))


def same_name(wanted: str, names: Iterable[str]) -> str:
    """The name that is meant: the same one, else the only one that differs in its case alone; empty without one."""
    known = tuple(names)
    alike = (wanted,) if wanted in known else tuple(name for name in known if name.lower() == wanted.lower())
    return alike[0] if len(alike) == 1 else ""


def spelled_like(word: str, known: Iterable[str]) -> list[str]:
    """At most three of them, which are in lower case, the likest first."""
    import difflib  # most words are spelled right, and `--help` needs none of it

    return difflib.get_close_matches(word.lower(), list(known), 3, 0.5)


def known_names(wanted: str, known: Iterable[str], what: str) -> str:
    """`Did you mean qwen36?`, else what there is, else that there is none."""
    names = sorted(clean_line(name) for name in known)
    near = spelled_like(wanted, (name.lower() for name in names))
    meant = [name for name in names if name.lower() in near] or [
        name for name in names if wanted.lower() in name.lower()
    ]
    if meant:
        return f"Did you mean {' or '.join(meant[:3])}?"
    if not names:
        return f"No {what} found."
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"Known {what}: {', '.join(names[:MOST_NAMED])}{more}."


def strip_sequences(text: str) -> str:
    """`text` without escape sequences; carriage returns and other control characters stay."""
    text = _COLOUR.sub("", text)  # nearly all there is, in half the time
    return _SEQUENCE.sub("", text) if not text.isprintable() else text


def clean(text: str) -> str:
    """`text` without escape sequences and control characters; tabs and newlines stay."""
    if text.isprintable():
        return text
    if _CONTROL.search(text):
        text = _CONTROL.sub("", _SEQUENCE.sub("", text))
    return _SURROGATE.sub("\ufffd", text)


def clean_line(text: str) -> str:
    """One line for the screen: cleaned, tabs and newlines as single spaces."""
    if text.isprintable():
        return text
    return clean(text).replace("\t", " ").replace("\n", " ")


def last_overwrite(line: str) -> str:
    """What a terminal would show of a line with carriage returns: the text after the last one that has any.

    tqdm writes `\\rbar` repeatedly; a plain `\\r\\n` end leaves the text before it.
    """
    if "\r" not in line:
        return line
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


def cell_width(text: str) -> int:
    """Terminal cells that `text` takes: wide glyphs two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.combining(char) else 1


def cells_left(cells: int, *taken: int) -> int:
    """What is left of a line of `cells` beside parts of those widths; none where they are wider. A width that is
    computed comes from here: a window may be of any size, and for a moment smaller than what is in it."""
    return max(0, cells - sum(taken))


def truncate(text: str, cells: int, ellipsis: str = "…") -> str:
    """`text` cut to at most `cells` terminal cells, the last one an ellipsis when something was cut."""
    if len(text) * 2 <= cells or cell_width(text) <= cells:
        return text
    ellipsis = ellipsis[: max(cells, 0)]
    room = max(0, cells - len(ellipsis))
    if text.isascii():
        return text[:room] + ellipsis
    used = 0
    for index, char in enumerate(text):
        used += _cells(char)
        if used > room:
            return text[:index] + ellipsis
    return text


class _LazyPattern:
    """Compiled with the first use of a method."""

    def __init__(self, text: str, flags: int) -> None:
        self._given = text, flags

    def __getattr__(self, name: str) -> object:
        if name not in _PATTERN_METHODS:
            raise AttributeError(name)
        compiled = re.compile(*self._given)
        self.__dict__.update({each: getattr(compiled, each) for each in _PATTERN_METHODS})
        return self.__dict__[name]


_PATTERN_METHODS: Final = ("match", "search", "fullmatch", "findall", "finditer", "sub", "split", "pattern")


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern that is compiled when it is needed: most starts of the program read no log."""
    return cast("re.Pattern[str]", _LazyPattern(text, flags))
