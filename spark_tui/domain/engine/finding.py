"""One piece of advice about an engine, and all that such advice is made from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_tui.domain.engine.endpoint import Health
from spark_tui.domain.engine.kernels import Fp4Verdict
from spark_tui.domain.engine.serving_lines import Drafting, ServingSample
from spark_tui.domain.engine.sizing import Pairs
from spark_tui.domain.engine.timeline import EngineFacts, Kernel, LogEvidence


class Level(StrEnum):
    """How much it matters, the worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class FindingId(StrEnum):
    """Stable names: scripts may rely on them."""

    HANG = "hang"
    GRAPH_ESTIMATE = "graph_estimate"
    FP4_FALLBACK = "fp4_fallback"
    FP4_EMULATION = "fp4_emulation"
    BACKEND_REFUSED = "backend_refused"
    CAPTURE_SIZES_CAPPED = "capture_sizes_capped"
    ACCEPTANCE_NEAR_ZERO = "acceptance_near_zero"
    DRAFTS_TOO_LONG = "drafts_too_long"
    PREEMPTIONS = "preemptions"
    KV_NEARLY_FULL = "kv_nearly_full"
    WAITING = "waiting"
    BELOW_BASELINE = "below_baseline"
    UNKNOWN_VARIABLE = "unknown_variable"
    PREFIX_CACHE_NEVER_HIT = "prefix_cache_never_hit"
    PADDING_WASTE = "padding_waste"
    EAGER = "eager"


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of advice. `evidence` is the line that proves it, cleaned and masked, and `line` its number from 0;
    both may be missing. `override` are pairs as `overrides_from_pairs` takes them, empty where no setting helps."""

    id: FindingId
    level: Level
    summary: str
    remedy: str = ""
    override: Pairs = ()
    evidence: str = ""
    line: int | None = None

    @classmethod
    def proven(
        cls,
        proof: LogEvidence | Kernel | ServingSample | Drafting | None,
        finding_id: FindingId,
        level: Level,
        summary: str,
        remedy: str,
        override: Pairs = (),
    ) -> Finding:
        """With the line that proves it, where there is one."""
        text, line = (proof.text, proof.line) if proof is not None else ("", None)
        return cls(finding_id, level, summary, remedy, override, text, line)


@dataclass(frozen=True, slots=True)
class Baseline:
    """How fast this box has served the same preset and image before: tokens per second of one stream, over `runs`."""

    decode_rate: float
    runs: int = 1


@dataclass(frozen=True, slots=True)
class Observation:
    """All that findings look at. `now` is on the clock of the samples' `at`; None for a log of another time.
    `pool_gib` is the machine's memory in GiB where it is known, `fp4` the verdict."""

    facts: EngineFacts
    fp4: Fp4Verdict
    samples: tuple[ServingSample, ...] = ()
    health: Health = Health.UNKNOWN
    now: float | None = None
    baseline: Baseline | None = None
    pool_gib: float | None = None
