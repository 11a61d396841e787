"""The fit of a launch: measured, then judged."""

from __future__ import annotations

from typing import Any

from spark_tui.catalog.fit.model.fit import Fit, measure
from spark_tui.catalog.fit.model.verdict import judged


def fit(*launch: Any, **beside: Any) -> Fit:
    """Arguments as those of `measure`."""
    return judged(*measure(*launch, **beside))
