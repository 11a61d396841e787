"""The ledger's entries: what is known of a model on a box, whether it was measured or not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_tui.domain.bench.run import BenchRun, Ending


class Status(StrEnum):
    """How far a model came. A `working` one answers and was not measured; a `pending` one is still to be tried."""

    BENCHMARKED = "benchmarked"
    WORKING = "working"
    PENDING = "pending"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Result:
    """One entry. `at` is seconds since the epoch, `reason` why it failed or what was noted. A benchmark has its `run`;
    a verdict without one has only what was said of it."""

    id: str
    at: float
    status: Status
    model: str
    quantization: str = ""
    runtime: str = ""
    platform: str = ""
    engine: str = ""
    reason: str = ""
    run: BenchRun | None = None

    @property
    def simulated(self) -> bool:
        """It comes from the demo."""
        return self.run is not None and self.run.conditions.simulated


def result_of(run: BenchRun) -> Result:
    """A run as an entry: benchmarked when one level at least has complete requests, else failed with its reason."""
    measured = run.counts.complete > 0
    conditions = run.conditions
    reason = run.reason
    if not measured and not reason:
        errors = [text for level in run.levels for text, _ in level.errors]
        reason = errors[0] if errors else "no request was answered"
    return Result(
        id=run.id,
        at=run.at,
        status=Status.BENCHMARKED if measured else _without(run.ending),
        model=conditions.model,
        quantization=conditions.quantization,
        runtime=conditions.runtime,
        platform=conditions.platform or conditions.hostname,
        engine=conditions.engine,
        reason=reason,
        run=run,
    )


def _without(ending: Ending) -> Status:
    return Status.PENDING if ending is Ending.CANCELLED else Status.FAILED
