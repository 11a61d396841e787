"""What earlier starts measured, for the fit of the next one: better than any rule where it is the same launch again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from spark_tui.domain.history import StartRecord, StartSizes
from spark_tui.domain.presets.container_spec import LABEL_SPEC_HASH
from spark_tui.domain.presets.fit_types import Measured
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.rules_case import Case, Situation, case_of
from spark_tui.domain.quantities import GIB

OWN_LOG: Final = "this engine's own log"
SOURCE: Final = "an earlier start"


def measured_by(sizes: StartSizes, total: int, source: str) -> Measured | None:
    """A start's figures; None when it did not come as far as its weights. `total` is the pool in bytes, 0 when that is
    not known."""
    if sizes.weights_gib is None:
        return None
    weights, cache, graphs = (_bytes(size) for size in (sizes.weights_gib, sizes.kv_gib, sizes.graphs_gib))
    overhead = None
    if weights is not None and cache is not None and total and sizes.utilization:
        counted = max(0, _bytes(sizes.graphs_estimated_gib) or 0)
        overhead = max(0, int(total * sizes.utilization) - weights - cache - counted)
    return Measured(
        weights,
        cache,
        graphs,
        overhead,
        sizes.batched_tokens,
        source,
        sizes.kv_tokens,
        sizes.context,
        sizes.cache_dtype,
    )


def _bytes(size: float | None) -> int | None:
    return None if size is None else int(size * GIB)


def measured_before(starts: Iterable[StartRecord], plan: LaunchPlan, total: int) -> Measured | None:
    """The latest start of the same preset, model and image that measured its weights, those with the very same
    settings first. What depends on a setting that differs is left out."""
    names = (plan.preset.name, plan.model, plan.spec.image)
    kin = [
        start
        for start in starts
        if (start.preset, start.model, start.image) == names and start.sizes.weights_gib is not None
    ]
    if not kin:
        return None
    fingerprint = plan.spec.label(LABEL_SPEC_HASH)
    same = [start for start in kin if fingerprint and start.settings == fingerprint]
    if same:
        return measured_by(_latest(same).sizes, total, SOURCE)
    case = case_of(Situation(plan))
    alike = [start for start in kin if _same_weights(start.sizes, case)]
    found = measured_by(_latest(alike).sizes, total, SOURCE) if alike else None
    if found is None or _same_graphs(_latest(alike).sizes, case):
        return found
    return replace(found, graphs=None, overhead=None)  # the overhead is what the graphs and the rest have left over


def _latest(starts: Sequence[StartRecord]) -> StartRecord:
    return max(starts, key=lambda start: start.at)


def _same_weights(sizes: StartSizes, case: Case) -> bool:
    """A drafter's weights are among them."""
    asked = case.option("--quantization") or sizes.quantization
    return asked == sizes.quantization and bool(sizes.speculation) == (case.speculation is not None)


def _same_graphs(sizes: StartSizes, case: Case) -> bool:
    """There are as many as there are batch sizes."""
    return sizes.eager == bool(case.switch("--enforce-eager")) and sizes.sequences == case.integer("--max-num-seqs")
