"""What was typed at the chat's prompt with a slash in front."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark_tui.cli.talking import Talk

SHOWN_CELLS: Final = 70


class Leave(Exception):
    """The person is done."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A command as it was typed: in which talk, the rest of the line, and how to ask for another line."""

    talk: Talk
    rest: str
    ask: Callable[[str], str]
