"""A preset with what is known of launching it here."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Finding, Severity
from spark_tui.catalog.fit.model.fit import FitWord
from spark_tui.catalog.fit.model.verdict import LaunchVerdict
from spark_tui.catalog.presets.model.command import ToolCalls
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.model.rules.image import needs_gpu

if TYPE_CHECKING:
    from spark_tui.observe.results.model.proof import Badge


class Disk(StrEnum):
    """Whether the model is in the store."""

    YES = "yes"
    PARTIAL = "partial"
    CORRUPT = "corrupt"
    NO = "no"
    UNKNOWN = "?"


_CAN_FIT: Final = (FitWord.FITS, FitWord.FITS_WITH)

NO_TOOLS: Final = ToolCalls()


class Candidate(Struct, frozen=True):
    """A preset with what is known of a launch here. `judged` None: not worked out yet; an error: it cannot be launched.

    `own_speed` was measured here with one stream, tokens per second. `served`: an earlier start came to serve.
    `running`: an engine of this preset runs. `drift`: it is a copy, and its registry has another recipe now.
    `proof`: what was proved when it last ran, None: never.
    """

    preset: Preset
    judged: LaunchVerdict | SparkError | None = None
    tools: ToolCalls = NO_TOOLS
    disk: Disk = Disk.UNKNOWN
    running: bool = False
    served: bool = False
    own_speed: float | None = None
    drift: Finding | None = None
    proof: Badge | None = None

    @property
    def verdict(self) -> LaunchVerdict | None:
        return self.judged if isinstance(self.judged, LaunchVerdict) else None

    @property
    def checked(self) -> tuple[Finding, ...] | SparkError | None:
        """What the rules find, or why it cannot be planned."""
        return self.judged.findings if isinstance(self.judged, LaunchVerdict) else self.judged

    @property
    def worst(self) -> Severity | None:
        """The worst of what the rules find, errors and warnings; ERROR where it cannot be launched."""
        if isinstance(self.judged, SparkError):
            return Severity.ERROR
        found = {each.severity for each in self.judged.findings} if self.judged is not None else set()
        return next((each for each in (Severity.ERROR, Severity.WARNING) if each in found), None)

    @property
    def fits(self) -> bool:
        """It can be launched now, maybe with the change that its verdict names."""
        found = self.verdict is not None and self.verdict.word in _CAN_FIT and self.worst is not Severity.ERROR
        return found and not self.lacks_gpu

    @property
    def lacks_gpu(self) -> bool:
        """The machine has none, and the preset needs one."""
        return self.verdict is not None and any(each.id == needs_gpu.__name__ for each in self.verdict.findings)

    @property
    def context(self) -> int | None:
        """Tokens of context of this launch; before it is judged, what the recipe says."""
        if self.verdict is not None and self.verdict.fit.context:
            return self.verdict.fit.context
        own = self.preset.default("max_model_len")
        return own if isinstance(own, int) else self.preset.facts.context_tokens

    @property
    def need(self) -> int | None:
        """Bytes that the launch needs for its users, four at most; None where a part of it is unknown."""
        fit = self.verdict.fit if self.verdict is not None else None
        if fit is None or fit.utilization_needed is None or fit.total is None:
            return fit.need if fit is not None else None
        return int(fit.utilization_needed * fit.total)

    @property
    def published_speed(self) -> float | None:
        """The highest published one, tokens per second."""
        return max((each.tokens_per_second for each in self.preset.facts.published), default=None)

    @property
    def speed(self) -> float | None:
        return self.published_speed if self.own_speed is None else self.own_speed


def on_cpu(preset: Preset) -> bool:
    return preset.facts.category == "cpu" or preset.cpu_only
