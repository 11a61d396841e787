"""The fit of a launch: measured, then judged."""

from __future__ import annotations

from typing import Any

from spark_tui.catalog.fit.model.fit import Fit, measure
from spark_tui.catalog.fit.model.verdict import judged


def fit(plan: Any, checkpoint: Any, memory: Any, *, neighbours: Any = (), returns: int = 0, **beside: Any) -> Fit:
    """Arguments as those of `measure` and `judged`."""
    return judged(measure(plan, checkpoint, **beside), memory, neighbours, returns)
