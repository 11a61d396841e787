"""Figures in log lines, as patterns that cannot match more than they can convert."""

from __future__ import annotations

import re
from typing import Final

NUMBER: Final = r"(-?\d{1,12}(?:\.\d{1,12})?)"
COUNT: Final = r"(\d[\d,]{0,20})"
GIB: Final = re.compile(rf"{NUMBER} GiB")
BAR: Final = re.compile(r"(.{1,200}?):\s+(\d{1,3})%(?: Completed \| |\|[^|]*\| *)(\d{1,9})/(\d{1,9})")
"""A progress bar: description, per cent, done, total."""


def number(text: str) -> float:
    """A figure as the patterns above let it through."""
    return float(text.replace(",", ""))


def share(done: int, total: int) -> float | None:
    """0..1, None when the total is not known."""
    return min(1.0, done / total) if total else None
