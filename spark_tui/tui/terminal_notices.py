"""Signals for the terminal itself: a bell, a desktop notice, the window's title. A start takes minutes, and the person
looks at another window meanwhile. Works over SSH: all of it are bytes of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from spark_tui.base.finding import WORTH_A_BELL, Event
from spark_tui.base.text import clean_line, truncate

DEAF_TERMINALS: Final = ("", "dumb", "linux", "vt100", "vt102", "vt220", "unknown")
"""Values of TERM whose terminals show such sequences as text, or beep through the machine's speaker."""
MOST_CELLS: Final = 120
SAME_SECONDS: Final = 10.0
"""Of one engine, one notice in this time: a failed launch is the engine's event and the launch's."""


class TerminalNotices:
    """`wanted` are words of the setting `notify`; `write` sends to the terminal."""

    def __init__(self, wanted: Iterable[str], environ: Mapping[str, str], write: Callable[[str], None]) -> None:
        deaf = environ.get("TERM", "") in DEAF_TERMINALS
        self._wanted = () if deaf else tuple(wanted)
        self._environ = environ
        self._write = write
        self._since = float("inf")
        self._last: dict[str, float] = {}
        self._title = ""

    def begin(self, now: float) -> None:
        """From now on. The terminal keeps the title that it has, where it can."""
        self._since = now
        if "title" in self._wanted:
            self._write("\x1b[22;2t")

    def end(self) -> None:
        """Gives the title back."""
        if self._title:
            self._write("\x1b]2;\x1b\\\x1b[23;2t")

    def title(self, text: str) -> None:
        if "title" in self._wanted and text != self._title:
            self._title = text
            self._write(f"\x1b]2;{_harmless(text)}\x1b\\")

    def events(self, events: tuple[Event, ...]) -> None:
        """Notices for the new ones that end something long."""
        new = [event for event in events if event.at > self._since and event.kind in WORTH_A_BELL]
        if not new:
            return
        self._since = max(event.at for event in new)
        for event in new:
            last = self._last.get(event.subject, float("-inf"))
            self._last[event.subject] = event.at
            if event.at - last >= SAME_SECONDS:
                self._notify(_harmless(event.text))

    def _notify(self, text: str) -> None:
        if "bell" in self._wanted:
            self._write("\a")
        if "osc9" in self._wanted:
            self._write(self._passed(f"\x1b]9;{text}\x1b\\"))
        if "osc777" in self._wanted:
            self._write(self._passed(f"\x1b]777;notify;spark-tui;{text}\x1b\\"))

    def _passed(self, sequence: str) -> str:
        """Through tmux (`allow-passthrough on`) and screen to the terminal around them."""
        if self._environ.get("TMUX"):
            return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
        if self._environ.get("STY"):
            return f"\x1bP{sequence}\x1b\\"
        return sequence


def _harmless(text: str) -> str:
    """Text from outside ends no sequence, and is no parameter of one: `9;4;1` is a progress bar to some terminals."""
    return truncate(clean_line(text).replace(";", ","), MOST_CELLS)
