"""The ledger of results: kept, found again, compared, set beside what others published, exported."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from spark_tui.domain.bench.compare import Comparison, compare
from spark_tui.domain.bench.references import Beside, beside
from spark_tui.domain.bench.result import Result, Status, result_of
from spark_tui.domain.bench.run import BenchRun
from spark_tui.domain.errors import UsageError
from spark_tui.services.ports import Clock
from spark_tui.services.ports_bench import ResultStore

LEAST_ID = 3


class Results:
    """Every front end's way to the results."""

    def __init__(self, store: ResultStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def keep(self, run: BenchRun) -> Result:
        """Keeps a run. Raises SparkError when it cannot be written."""
        result = result_of(run)
        self._store.add(result)
        return result

    def mark(
        self,
        model: str,
        status: Status,
        *,
        quantization: str = "",
        runtime: str = "",
        platform: str = "",
        engine: str = "",
        reason: str = "",
    ) -> Result:
        """Keeps a verdict without a measurement: it works, it failed and why, it is still to be tried.

        Raises UsageError for a failure without a reason: it would help nobody.
        """
        if status is Status.BENCHMARKED:
            raise UsageError("Benchmarked is what was measured.", "Measure it: spark-tui bench NAME")
        if status is Status.FAILED and not reason.strip():
            raise UsageError("A failure needs its reason.", "Say in a few words what went wrong.")
        result = Result(
            uuid.uuid4().hex[:10], self._clock.now(), status, model, quantization, runtime, platform, engine, reason
        )
        self._store.add(result)
        return result

    def delete(self, results: Sequence[Result]) -> int:
        """Deletes results for good, and returns how many were there. Of two that were measured in turn, the other one
        stays. Raises SparkError."""
        return self._store.remove({result.id for result in results})

    def all(self) -> tuple[Result, ...]:
        """Every result, the newest first. Raises SparkError when the store cannot be read."""
        return tuple(sorted(self._store.all(), key=lambda result: -result.at))

    def problems(self) -> tuple[str, ...]:
        """What the last reading had to leave out, in words."""
        return self._store.problems()

    def find(self, key: str) -> Result:
        """A result by its id or the beginning of it, or the newest one of an engine or model by that name.

        `last` is the newest of all. Raises UsageError when there is none, or when several ids begin so.
        """
        kept = self.all()
        if not kept:
            which = "" if key == "last" else f" {key}: nothing was measured"
            raise UsageError(f"There is no result{which} yet.", "Measure an engine: spark-tui bench NAME")
        if key == "last":
            return kept[0]
        exact = [result for result in kept if result.id == key]
        begun = [result for result in kept if len(key) >= LEAST_ID and result.id.startswith(key)]
        if len(begun) > 1 and not exact:
            raise UsageError(f"{len(begun)} results begin with {key}.", "Give more of the id: spark-tui results list")
        named = [result for result in kept if key in (result.engine, result.model)]
        found = next(iter((*exact, *begun, *named)), None)
        if found is None:
            raise UsageError(f"There is no result {key}.", "spark-tui results list shows what there is.")
        return found

    def measured(self, key: str) -> BenchRun:
        """The run of a result. Raises UsageError for a verdict without one."""
        named = [result for result in self.all() if key in (result.engine, result.model) and result.run is not None]
        result = named[0] if named else self.find(key)
        if result.run is None:
            raise UsageError(f"{result.id} was not measured: it is {result.status.value}.", "Name a benchmark.")
        return result.run

    def history(self, run: BenchRun) -> tuple[BenchRun, ...]:
        """This box's earlier runs of the same model and the same load, the newest first."""
        earlier = [result.run for result in self.all() if result.run is not None and result.run.at < run.at]
        return tuple(
            before
            for before in earlier
            if before.conditions.model == run.conditions.model and compare(before, run).comparable
        )

    def compare(self, first: str, second: str) -> Comparison:
        """Two results, the second beside the first. Raises UsageError where one cannot be found."""
        return compare(self.measured(first), self.measured(second))

    def published(self, run: BenchRun) -> tuple[Beside, ...]:
        """What others published that is like this run, the most alike first."""
        from spark_tui.domain.bench.published import SOURCES, references

        return beside(run, references(), SOURCES)
