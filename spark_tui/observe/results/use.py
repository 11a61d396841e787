"""Benchmark results: kept, found, compared, deleted."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from statistics import median
from typing import Protocol

from msgspec import Struct

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.engine.invocation import parse
from spark_tui.base.engine.runtimes import published_facts
from spark_tui.base.engine.state import runtime_of
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.ports import Clock, StateFiles, port_named
from spark_tui.base.text import clean_line
from spark_tui.observe.explain.model.starts import StartRecord
from spark_tui.observe.explain.model.view import Baseline
from spark_tui.observe.results.feature import PROOFS
from spark_tui.observe.results.model.compare import (
    Comparison,
    PublishedComparison,
    beside,
    compare,
)
from spark_tui.observe.results.model.plan import Conditions, flags_of
from spark_tui.observe.results.model.proof import Proof
from spark_tui.observe.results.model.run import BenchRun, Result, Status, result_of

LEAST_ID = 3


@port_named("results")
class ResultStore(Protocol):
    """Benchmarks and verdicts, kept across runs. Written by one, read by many. Raises SparkError."""

    def add(self, result: Result) -> None:
        """Keeps it. Of too many the oldest go."""

    def remove(self, ids: Collection[str]) -> int:
        """Deletes the results with these ids, and returns how many there were."""

    def all(self) -> tuple[Result, ...]:
        """All that are kept, oldest first. Unreadable ones are skipped and listed in `problems`."""

    def problems(self) -> tuple[str, ...]:
        """What the last `all` could not read, in words."""


@port_named("proofs")
class ProofStore(Protocol):
    """Proofs, kept across runs as results are. Raises SparkError."""

    def add(self, result: Proof) -> None: ...

    def all(self) -> tuple[Proof, ...]:
        """All that are kept, oldest first."""

    def problems(self) -> tuple[str, ...]: ...


class Results:
    """Both front ends' way to the results."""

    @classmethod
    def from_context(cls, context: Context) -> Results:
        return cls(context[ResultStore], context.clock)

    def __init__(self, store: ResultStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._baselines: dict[tuple[str, float | None], Baseline | None] = {}

    def baseline(self, container: ContainerFacts) -> Baseline | None:
        """How fast one stream was here before this start, with the same preset, image and options: the slowest level of
        each run, and the median of the runs. Reads the results once for each start."""
        key = container.id, container.started_at
        if key not in self._baselines:
            same = (container.preset, container.image_id, flags_of(parse(container.argv, runtime_of(container)).words))
            rates = []
            with suppress(SparkError):  # unreadable results show on Bench
                for run in (each.run for each in self.all()):
                    found = [
                        level.decode_rate.p50
                        for level in (run.levels if run is not None else ())
                        if level.streams == 1 and level.decode_rate is not None
                    ]
                    if run is None or not found or run.at >= (container.started_at or 0.0) or run.conditions.simulated:
                        continue
                    if same == (run.conditions.preset, run.conditions.image_id, run.conditions.flags):
                        rates.append(min(found))
            self._baselines[key] = Baseline(median(rates), len(rates)) if rates else None
        return self._baselines[key]

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
        reason: str = "",
    ) -> Result:
        """Keeps a verdict without a measurement. Raises UsageError for a failure without a reason."""
        if status is Status.BENCHMARKED:
            raise UsageError("Benchmarked is what was measured.", "Measure it: spark-tui bench NAME")
        if status is Status.FAILED and not reason.strip():
            raise UsageError("A failure needs its reason.", "Say in a few words what went wrong.")
        result = Result(
            uuid.uuid4().hex[:10], self._clock.now(), status, model, quantization, runtime, platform, reason=reason
        )
        self._store.add(result)
        return result

    def delete(self, results: Sequence[Result]) -> int:
        """Deletes results for good, and returns how many there were. Of two runs of an A/B, the other one stays.
        Raises SparkError."""
        return self._store.remove({result.id for result in results})

    def all(self) -> tuple[Result, ...]:
        """Every result, the newest first. Raises SparkError when the store cannot be read."""
        return tuple(sorted(self._store.all(), key=lambda result: -result.at))

    def problems(self) -> tuple[str, ...]:
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
            raise UsageError(f"There is no result {key}.", "List them: spark-tui results list")
        return found

    def measured(self, key: str) -> BenchRun:
        """The run of a result. Raises UsageError for a verdict without one."""
        named = [result for result in self.all() if key in (result.engine, result.model) and result.run is not None]
        result = named[0] if named else self.find(key)
        if result.run is None:
            raise UsageError(f"{result.id} was not measured: it is {result.status.value}.", "Name a benchmark.")
        return result.run

    def compare(self, first: str, second: str = "") -> Comparison:
        """Two results, the second beside the first; of one alone, with the last one of the same model and load. Raises
        UsageError where one cannot be found."""
        run = self.measured(first)
        if second:
            return compare(run, self.measured(second))
        like = next((found for found in earlier_runs(run, self.all()) if found.comparable), None)
        if like is None:
            raise UsageError(
                f"There is no earlier result of {run.conditions.model} with this load.", "Name two results."
            )
        return like

    def published(self, run: BenchRun) -> tuple[PublishedComparison, ...]:
        """Published figures that are comparable with this run, the most alike first."""
        return beside(run, published_facts().figure, published_facts().source)


def earlier_runs(run: BenchRun, results: Sequence[Result]) -> list[Comparison]:
    """This machine's earlier runs of the same model, each compared with this one, in the order of the results."""
    before = [result.run for result in results if result.run is not None]
    return [
        compare(each, run)
        for each in before
        if each.at <= run.at and each.id not in (run.id, run.pair) and each.conditions.model == run.conditions.model
    ]


async def read_proofs(context: Context) -> None:
    """Reads the kept proofs, in a thread: the command line may have added one."""

    def read() -> tuple[Proof, ...]:
        return context[ProofStore].all()  # its modules are imported in the thread too

    kept = await context.in_thread(read)
    known = {proof.id: proof for proof in (*kept, *context.store.world[PROOFS])}  # one may be new since
    context.store.put(PROOFS, tuple(sorted(known.values(), key=lambda proof: -proof.at)))


def keep_bandwidth(state: StateFiles, nodes: Sequence[str], found: Sequence[str]) -> None:
    """Remembers what was measured between those nodes, for the conditions of a benchmark."""
    if found:
        state.write(_bandwidth_file(nodes), "; ".join(dict.fromkeys(found)).encode())


def measured_bandwidth(state: StateFiles, nodes: Sequence[str]) -> str:
    """What was measured between those nodes last; empty where nothing was."""
    try:
        data = state.read(_bandwidth_file(nodes)) if nodes else None
    except SparkError:
        return ""
    return clean_line((data or b"").decode(errors="replace"))


def _bandwidth_file(nodes: Sequence[str]) -> str:
    return f"bandwidth-{'+'.join(sorted(nodes))}"


# --- what was measured of a start -----------------------------------------------------------------------


class GoodStart(Struct, frozen=True):
    """A start that served well. `results` and `proofs` are ids of what was measured with the same image and flags."""

    start: StartRecord
    results: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ()


def measured_starts(
    starts: Sequence[StartRecord], results: Sequence[Result], proofs: Sequence[Proof]
) -> tuple[GoodStart, ...]:
    """Each with those of the same image and flags."""
    ran = [(each.id, each.run.conditions) for each in results if each.run is not None]
    proved = [(each.id, each.conditions) for each in proofs]
    return tuple(GoodStart(start, _alike(start, ran), _alike(start, proved)) for start in starts)


def _alike(start: StartRecord, found: Sequence[tuple[str, Conditions]]) -> tuple[str, ...]:
    """Of what was measured, the ids of those of the same preset, image and flags."""
    return tuple(
        id_
        for id_, then in found
        if (then.preset, then.image_id, then.flags) == (start.preset, start.image_id, start.flags)
        and not then.simulated
        and start.flags
    )
