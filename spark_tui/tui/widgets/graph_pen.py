"""What graphs are made of: rows of characters, and what each of them belongs to."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Pen(StrEnum):
    """What a cell belongs to, one letter each; the widget knows their colours. Capitals stand under the cursor."""

    NOTHING = " "
    FIRST = "p"
    SECOND = "s"
    THRESHOLD = "t"
    QUIET = "q"
    TITLE = "b"
    WARNING = "w"
    CURSOR = "C"
    FIRST_AT_CURSOR = "P"
    SECOND_AT_CURSOR = "S"


class Row(NamedTuple):
    """One line of a picture: its characters, and the pen of each."""

    text: str
    pens: str
