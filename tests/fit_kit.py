"""The fit of a launch: measured, then judged."""

from __future__ import annotations

from typing import Any

from spark_tui.domain.presets.fit import Fit, measure
from spark_tui.domain.presets.fit_verdict import judged


def fit(*launch: Any, **beside: Any) -> Fit:
    """Arguments as those of `measure`."""
    return judged(*measure(*launch, **beside))
