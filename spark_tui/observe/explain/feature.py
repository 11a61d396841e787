"""What the log of an engine means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_tui.base.feature import Feature, Slice
from spark_tui.base.finding import NOT_READ_YET, Reading

if TYPE_CHECKING:
    from spark_tui.observe.explain.model.explain import Explanation
    from spark_tui.observe.explain.model.view import EngineView

ENGINES: Slice[Reading[tuple[EngineView, ...]]] = Slice(NOT_READ_YET)
EXPLANATIONS: Slice[Mapping[str, Explanation]] = Slice({})
"""What each engine's log means now, by the engine's name."""

FEATURE = Feature()
