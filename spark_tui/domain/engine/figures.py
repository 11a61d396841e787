"""Figures in log lines, as patterns that cannot match more than they can convert."""

from __future__ import annotations

import re
from typing import Final

NUMBER: Final = r"(-?\d{1,12}(?:\.\d{1,12})?)"
COUNT: Final = r"(\d[\d,]{0,20})"
GIB: Final = re.compile(rf"{NUMBER} GiB")
BAR: Final = re.compile(r"(.{1,200}?):\s+(\d{1,3})%(?: Completed \| |\|[^|]*\| *)(\d{1,9})/(\d{1,9})")
"""A progress bar: description, per cent, done, total."""
_LEFT: Final = re.compile(r"\[[\d:]{4,12}<(?:(?:(\d{1,3}) days?, )?(\d{1,3}):)?(\d\d):(\d\d)[,\]]")


def number(text: str) -> float:
    """A figure as the patterns above let it through."""
    return float(text.replace(",", ""))


def share(done: int, total: int) -> float | None:
    """0..1, None when the total is not known."""
    return min(1.0, done / total) if total else None


def bar_left(message: str, at: int = 0) -> float | None:
    """Seconds that a progress bar of tqdm says are left (`[01:42<03:05, 34.81s/it]`), None where it does not know."""
    match = _LEFT.search(message, at)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
