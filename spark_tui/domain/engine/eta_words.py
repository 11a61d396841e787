"""How long it still takes, in words that do not change with every second."""

from __future__ import annotations

from typing import Final

from spark_tui.domain.engine.eta import Basis, Eta
from spark_tui.domain.engine.timeline import LABELS

_STEPS: Final = ((60.0, 5), (600.0, 10), (float("inf"), 60))
"""Up to so many seconds, in steps of so many."""
_FEW_SECONDS: Final = 7.5
"""Where the step above begins: a text stands for five seconds at least."""


def eta_words(found: Eta) -> str:
    """`about 2 min 10 s left (from 3 earlier starts)`; empty when nothing is known."""
    if found.seconds is None or found.basis is Basis.UNKNOWN:
        return ""
    if found.basis is Basis.PROGRESS:
        return f"{LABELS[found.until][0]}: {rough_duration(found.seconds)} left, by its own progress"
    source = f"from {found.starts} earlier start{'' if found.starts == 1 else 's'}"
    if not found.overdue:
        return f"{rough_duration(found.seconds)} left ({source})"
    if found.seconds < _FEW_SECONDS:
        return f"takes longer than usual ({source})"
    return f"takes longer than usual; then {rough_duration(found.seconds)} ({source})"


def rough_duration(seconds: float) -> str:
    """`a few seconds`, `about 45 s`, `about 2 min 10 s`, `about 14 min`."""
    if seconds < _FEW_SECONDS:
        return "a few seconds"
    step = next(step for most, step in _STEPS if seconds < most)
    whole = round(seconds / step) * step
    minutes, rest = divmod(whole, 60)
    if not minutes:
        return f"about {rest} s"
    return f"about {minutes} min {rest} s" if rest else f"about {minutes} min"
