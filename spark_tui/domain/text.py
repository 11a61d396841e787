"""Text from outside is hostile: control codes are removed before it is stored, searched or shown.

Sequences recognised: ECMA-48 CSI and two-byte escapes, OSC/DCS/SOS/PM/APC strings (ended by BEL or ST, or
cut at the end of the text), C1 controls, and the Unicode marks that reorder or hide text.
"""

from __future__ import annotations

import re

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"  # other escapes
    r"|\x9b[0-?]*[ -/]*[@-~]?"
    r"|[\x90\x98\x9d-\x9f][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
)
# Left: tab and newline (the caller decides about them). Gone: C0, DEL, C1, bidi overrides and isolates,
# zero-width no-break space, line and paragraph separators.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def clean(text: str) -> str:
    """`text` without escape sequences and control characters; tabs and newlines stay."""
    if not _CONTROL.search(text):
        return text
    return _CONTROL.sub("", _SEQUENCE.sub("", text))


def clean_line(text: str) -> str:
    """One line for the screen: cleaned, tabs and newlines as single spaces."""
    return clean(text).replace("\t", " ").replace("\n", " ")


def last_overwrite(line: str) -> str:
    """What a terminal would show of a line with carriage returns: the text after the last one that has any.

    tqdm writes `\\rbar` repeatedly; a plain `\\r\\n` end leaves the text before it.
    """
    if "\r" not in line:
        return line
    for part in reversed(line.split("\r")):
        if part.strip():
            return part
    return ""


def truncate(text: str, cells: int, ellipsis: str = "…") -> str:
    """`text` cut to at most `cells` characters, the last one an ellipsis when something was cut."""
    if len(text) <= cells:
        return text
    return text[: max(0, cells - len(ellipsis))] + ellipsis[:cells]
