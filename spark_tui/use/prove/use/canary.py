"""The canary: measures what serves while nothing uses it, keeps the figures, and shows when they have changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from msgspec import Struct

from spark_tui.base.actions import by_front_end, key_of
from spark_tui.base.context import Context
from spark_tui.base.engine.state import EngineState
from spark_tui.base.errors import MeasurementVoid, SparkError
from spark_tui.base.finding import AlarmId, Finding, Severity, value_of
from spark_tui.base.host.series import Record
from spark_tui.base.journal import is_claimed
from spark_tui.base.ports import MEASURES, Clock, StateFiles
from spark_tui.base.store import AlarmBoard
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.metrics.use.history import HistoryStore
from spark_tui.observe.metrics.use.metrics import in_flight
from spark_tui.observe.results.model.plan import BenchPlan
from spark_tui.observe.results.model.proof import Verdict
from spark_tui.observe.results.model.run import RunOutcome
from spark_tui.use.bench.use.ab import Variant
from spark_tui.use.bench.use.bench import Benchmark
from spark_tui.use.prove.model.canary import KIND, CanaryVerdict, conditions_of_night, night_of, verdicts
from spark_tui.use.prove.use.prove import Prover

UNIT: Final = "spark-tui-canary"
LOAD: Final = BenchPlan(input_tokens=512, output_tokens=96, concurrency=(1,), passes=3, rounds=2, warmup=1)
_MOST_RECORDS: Final = 500


class CanaryResult(Struct, frozen=True):
    """One engine: `verdict` beside the weeks before, or why it was not measured; `void`: it ended or was restarted
    meanwhile."""

    engine: str
    verdict: CanaryVerdict | None = None
    skipped: str = ""
    void: MeasurementVoid | None = None


class CanaryRunner(Struct, eq=False):
    """Measures and keeps. `in_flight` asks an engine how many requests it answers."""

    _benchmark: Benchmark
    _prover: Prover
    _supervisor: EngineSupervisor
    _history: HistoryStore
    _state: StateFiles
    _clock: Clock
    _in_flight: Callable[[str], Awaitable[int | None]]

    @classmethod
    def from_context(cls, context: Context) -> CanaryRunner:
        return cls(
            context[Benchmark],
            context[Prover],
            context[EngineSupervisor],
            context[HistoryStore],
            context.ports.state,
            context.clock,
            partial(in_flight, context),
        )

    async def run(self, say: Callable[[str], None]) -> tuple[CanaryResult, ...]:
        """One short bench and a proof of every engine that serves and is idle, without what may make it compile. The
        first void measurement ends the night. Raises HistoryOff where the figures cannot be kept."""
        found: list[CanaryResult] = []
        lost = ""
        for view in await self._supervisor.look():
            if view.state is EngineState.SERVING:
                say(view.name)
                try:
                    why = lost or await self._busy(view.name) or await self._measure(view.name)
                    found.append(CanaryResult(view.name, skipped=why))
                except MeasurementVoid as error:
                    lost = f"the measurement of {view.name} was void"
                    found.append(CanaryResult(view.name, void=error))
        latest = {each.last.engine: each for each in await verdicts_of(self._history, self._clock.now())}
        return tuple(
            each if each.skipped or each.void else CanaryResult(each.engine, latest.get(each.engine)) for each in found
        )

    async def _busy(self, name: str) -> str:
        requests = await self._in_flight(name)
        if requests is None:
            return "unknown whether it is busy: it publishes no metrics"
        if requests:
            return f"busy with {requests} request{'s' * (requests > 1)}"
        return "a benchmark runs" if is_claimed(self._state, MEASURES + name) else ""

    async def _measure(self, name: str) -> str:
        """Keeps one night; why it has none, else empty. Raises MeasurementVoid."""
        try:
            [run] = await self._benchmark.run([Variant(name)], LOAD, lambda _: None)
            proof = await self._prover.run(name, lambda _: None, compiles=False)
        except MeasurementVoid:
            raise
        except SparkError as error:
            return error.summary
        if run.ending is not RunOutcome.COMPLETED:
            return run.reason
        if run.conditions.simulated:
            return "simulated figures are not kept"
        body = {
            "rate": run.levels[0].output_rate if run.levels else None,
            "failed": list(proof.ids(Verdict.FAIL)),
            "model": run.conditions.model,
            "conditions": conditions_of_night(run.conditions),
            "bench": run.id,
        }
        await self._history.add_record(Record(KIND, name, self._clock.now(), body))
        return ""


async def verdicts_of(history: HistoryStore, now: float) -> tuple[CanaryVerdict, ...]:
    """The last night of each engine; none where nothing was measured, or the history is off."""
    records: tuple[Record, ...] = value_of(await history.records(KIND, limit=_MOST_RECORDS)) or ()
    return verdicts(filter(None, map(night_of, records)), now)


async def show_changes(history: HistoryStore, clock: Clock, alarms: AlarmBoard) -> None:
    """Raises an alarm for what differs from the weeks before, and ends it for what does not any more."""
    for verdict in await verdicts_of(history, clock.now()):
        engine = verdict.last.engine
        if not verdict.differs:
            alarms.clear(AlarmId.CANARY, engine)
            continue
        severity = Severity.INFO if verdict.faster and not verdict.broken else Severity.WARNING
        remedy = by_front_end(
            f"Measure it again on Bench. After an update: {key_of('update_preset')} on Presets goes back.",
            f"Measure it again: spark-tui canary. After an update: spark-tui update {engine} --back",
        )
        alarms.raise_(Finding(AlarmId.CANARY, severity, verdict.sentence, remedy=remedy, subject=engine))
