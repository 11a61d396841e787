"""The history's use: every start is kept once it has ended, and tells what the next one will take."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_PRESET, ContainerStatus, PublishedPort
from spark_tui.base.engine.state import EngineState, Health
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import EventKind, Missing, Ok, Severity
from spark_tui.base.host.guard import GuardEntry
from spark_tui.base.host.series import HistoryOff, MetricId, Record, Sample, SeriesKey, SeriesSlice
from spark_tui.base.quantities import GIB
from spark_tui.catalog.fit.model.fit import Basis as FitBasis
from spark_tui.catalog.fit.model.fit import PartId
from spark_tui.catalog.fit.use.fit import LaunchChecks
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.starts import EtaBasis, StartRecord, StartSizes
from spark_tui.observe.explain.model.timeline import PhaseId, StartOutcome
from spark_tui.observe.metrics.use.history import EVENT, History, HistoryStore, remember
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest
from tests.fakes_history import FakeHistory
from tests.fakes_host import EPOCH
from tests.kit import IMAGE, PRESET, Kit, running
from tests.log_fixtures import read_log

PORT = (PublishedPort(8000, 8000),)
GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"
READY = (*read_log(GB10), "INFO:     Application startup complete.")
FAILING = (*read_log(GB10)[:40], "ValueError: No available memory for the cache blocks.")


def remembered() -> tuple[Kit, FakeHistory]:
    kit = Kit()
    kit.history = history = FakeHistory()
    kit.context = kit.opened()
    return kit, history


async def test_a_start_is_kept_when_it_serves_with_its_phases_and_what_it_measured() -> None:
    kit, history = remembered()
    kit.docker.add_container("one", ports=PORT, lines=READY, labels=((LABEL_PRESET, "qwen"),))
    kit.api.serve()
    async with kit.whole():
        await kit.until(lambda: bool(history.kept))
        [start] = history.known.values()
        assert (start.engine, start.preset, start.image, start.ready) == ("one", "qwen", IMAGE, True)
        assert start.image_id == f"sha256:{IMAGE}"
        assert start.outcome is StartOutcome.READY
        assert start.sizes.weights_gib == 21.42
        assert start.sizes.kv_tokens == 5_463_232
        assert PhaseId.WEIGHTS in dict(start.phases)
        assert PhaseId.DOWNLOAD not in dict(start.phases), "a download happens once"


async def test_an_engine_that_serves_already_is_kept_with_its_image_however_late_that_is_read() -> None:
    kit, history = remembered()
    kit.docker.add_image(IMAGE, digests=("registry/vllm@sha256:" + "1" * 64,))
    kit.docker.add_container("one", ports=PORT, lines=READY, labels=((LABEL_PRESET, "qwen"),))
    kit.api.serve()
    kit.docker.hold("image")
    async with kit.whole():
        await kit.until(lambda: bool(history.kept))
        assert history.kept[-1].image_digest == ""
        kit.docker.release()
        await kit.until(lambda: bool(history.kept[-1].image_digest))
        assert len(history.known) == 1


async def test_a_start_that_fails_is_kept_with_its_cause() -> None:
    kit, history = remembered()
    kit.docker.add_container("one", ports=PORT, lines=FAILING)
    kit.api.state = Health.NOT_LISTENING
    async with kit.whole():
        await kit.until(lambda: bool(kit.context[EngineSupervisor].views()))
        await kit.clock.advance(1)
        assert history.kept == [], "it is still starting"
        kit.docker.end("one", 1)
        await kit.until(lambda: bool(history.kept))
        start = history.kept[-1]
        assert (start.failed, start.cause, start.exit_code) == (True, "no_kv_room", 1)
        assert "No available memory" in start.line
        assert start.failure
        assert start.sizes.weights_gib is None or start.sizes.weights_gib > 0


async def test_a_start_that_a_person_stops_has_not_failed() -> None:
    kit, history = remembered()
    kit.docker.exit_code_on_stop = 137
    kit.docker.add_container("one", ports=PORT, lines=FAILING[:20])
    kit.api.state = Health.NOT_LISTENING
    async with kit.whole():
        await kit.until(lambda: bool(kit.context[EngineSupervisor].views()))
        await kit.context[EngineSupervisor].stop("one")
        await kit.until(lambda: bool(history.kept))
        assert history.kept[-1].outcome is StartOutcome.STOPPED
        assert (history.kept[-1].failed, history.kept[-1].failure) == (False, "")


async def test_an_engine_that_dies_after_it_served_keeps_that_it_did() -> None:
    kit, history = remembered()
    kit.docker.add_container("one", ports=PORT, lines=READY)
    kit.api.serve()
    async with kit.whole():
        await kit.until(lambda: bool(history.kept))
        kit.docker.end("one", 1)
        await kit.until(lambda: history.kept[-1].outcome is StartOutcome.FAILED)
        start = history.kept[-1]
        assert start.ready
        assert not start.failed
        assert start.ended_at is not None
        assert len(history.known) == 1, "it is one start"


async def test_the_start_of_an_engine_that_is_replaced_keeps_its_name() -> None:
    kit, history = remembered()
    made = kit.docker.add_container("one", ports=PORT, lines=READY)
    kit.api.serve()
    async with kit.whole():
        await kit.until(lambda: bool(history.kept))
        await kit.docker.stop(made.id)
        await kit.docker.rename(made.id, "one-former")
        await kit.until(lambda: history.kept[-1].outcome is StartOutcome.STOPPED)
        assert history.kept[-1].engine == "one"


async def test_what_serves_for_days_is_written_once() -> None:
    kit, history = remembered()
    kit.docker.add_container("one", ports=PORT, lines=READY)
    kit.api.serve()
    async with kit.whole():
        await kit.until(lambda: bool(history.kept))
        written = len(history.kept)
        kit.docker.write("one", *(f"INFO 05-21 21:{n:02}:00 [x.py:1] Something" for n in range(60)))
        await kit.clock.advance(300)
        assert len(history.kept) == written
    kit.context = kit.opened()
    async with kit.whole():
        await kit.until(lambda: bool(kit.context[EngineSupervisor].views()))
        await kit.clock.advance(60)
        assert len(history.kept) == written, "the next start of the program knows it already"


async def test_a_log_that_was_rotated_away_takes_nothing_from_what_was_known() -> None:
    kit, history = remembered()
    facts = kit.docker.add_container("one", ports=PORT, status=ContainerStatus.EXITED, exit_code=1, finished_at=9.0)
    assert facts.started_at is not None
    known = StartRecord(
        facts.id, facts.started_at, "one", ready=True, outcome=StartOutcome.READY, seconds=90.0,
        phases=((PhaseId.WEIGHTS, 60.0),), sizes=StartSizes(weights_gib=20.0),
    )  # fmt: skip
    history.known[known.key] = known
    async with kit.whole():
        await kit.until(lambda: bool(history.kept))
        start = history.kept[-1]
        assert start.outcome is StartOutcome.FAILED
        assert (start.ready, start.seconds, start.sizes) == (True, 90.0, known.sizes)


async def test_a_launch_from_the_command_line_leaves_its_start_behind() -> None:
    kit, history = remembered()
    kit.docker.script(IMAGE, READY)
    await remember(kit.context)
    await kit.context[Launcher].launch(LaunchRequest(PRESET, Overrides(), warm=False), kit.report)
    await kit.context.close()
    assert [start.preset for start in history.known.values()] == ["qwen"]
    assert history.closed


async def test_without_a_history_everything_else_works() -> None:
    kit = Kit()
    kit.docker.add_container("one", ports=PORT, lines=READY)
    kit.api.serve()
    async with kit.whole():
        await kit.until(lambda: bool(kit.context[EngineSupervisor].views()))
        await kit.clock.advance(30)
        assert kit.context[History].starts == ()
        assert isinstance(await kit.context[HistoryStore].starts(), Missing)
        with pytest.raises(HistoryOff):
            await kit.context[HistoryStore].add_record(Record("bench", "k", 0.0, 1))


# --- the next start -------------------------------------------------------------------------------------------


def past(kit: Kit, seconds: float, at: float, **changes: object) -> StartRecord:
    start = StartRecord(
        f"old{at}", at, "one", preset="qwen", image=IMAGE, image_id=f"sha256:{IMAGE}", model="org/qwen", ready=True,
        phases=((PhaseId.CONFIG, 10.0), (PhaseId.ENGINE_INIT, 5.0), (PhaseId.WEIGHTS, seconds)),
    )  # fmt: skip
    return replace(start, **changes)  # type: ignore[arg-type]


async def starting(kit: Kit, history: FakeHistory) -> tuple[EtaBasis, int, float | None]:
    """The estimate for an engine that has just begun to load its weights."""
    kit.history = history
    kit.context = kit.opened()
    kit.api.state = Health.NOT_LISTENING
    kit.docker.add_container("one", ports=PORT, labels=((LABEL_PRESET, "qwen"),))
    kit.docker.write("one", "(EngineCore pid=1) INFO 05-21 21:00:00 [x.py:1] Starting to load model x...")
    async with kit.whole():
        await kit.until(lambda: any(v.timeline.current for v in kit.context[EngineSupervisor].views()))
        await kit.context[History].load()
        [view] = kit.context[EngineSupervisor].views()
        assert view.state is EngineState.STARTING
        found = kit.context[History].eta(view)
    return found.basis, found.starts, found.seconds


async def test_earlier_starts_of_the_same_preset_and_image_tell_how_long_it_takes() -> None:
    kit = Kit()
    history = FakeHistory(*(past(kit, 9000.0 + n, float(n)) for n in range(3)))
    basis, starts, seconds = await starting(kit, history)
    assert (basis, starts) == (EtaBasis.HISTORY, 3)
    assert seconds is not None
    assert seconds > 1000


@pytest.mark.parametrize(
    "changes",
    [{"image_id": "sha256:newer", "image": "other"}, {"preset": "gemma"}, {"ready": False}, {"phases": ()}],
    ids=["another-image", "another-preset", "never-served", "no-times"],
)
async def test_other_starts_tell_nothing(changes: dict[str, object]) -> None:
    kit = Kit()
    assert (await starting(kit, FakeHistory(past(kit, 100.0, 1.0, **changes))))[0] is not EtaBasis.HISTORY


async def test_a_fit_uses_what_an_earlier_start_measured() -> None:
    kit = Kit()
    start = past(kit, 1.0, 1.0, sizes=StartSizes(weights_gib=21.5, kv_gib=30.0, graphs_gib=0.4))
    kit.history = FakeHistory(start)
    kit.context = kit.opened()
    before = (await kit.context[LaunchChecks].judge(PRESET, Overrides())).fit
    assert before.part(PartId.WEIGHTS).size is None  # type: ignore[union-attr]
    await kit.context[History].load()
    found = (await kit.context[LaunchChecks].judge(PRESET, Overrides())).fit
    weights = found.part(PartId.WEIGHTS)
    assert weights is not None
    assert (weights.size, weights.basis) == (int(21.5 * GIB), FitBasis.MEASURED)


# --- samples, records, events ---------------------------------------------------------------------------------


async def test_what_the_collectors_see_is_kept() -> None:
    kit, history = remembered()
    async with kit.whole():
        await kit.until(lambda: any(sample.values for sample in history.samples))
        assert {sample.engine for sample in history.samples} == {""}
        kit.context[HistoryStore].add_sample(Sample("one", 5.0, {MetricId.RUNNING: 1.0}))
        assert history.samples[-1].engine == "one"


async def test_a_series_of_the_box_is_the_same_whichever_engine_it_is_asked_for() -> None:
    kit, history = remembered()
    key = SeriesKey("", MetricId.GPU_POWER)
    history.stretches[key] = SeriesSlice(key, 10.0, (0.0,), (1.0,), (2.0,), (3.0,))
    history.stretches[SeriesKey("one", MetricId.RUNNING)] = SeriesSlice(SeriesKey("one", MetricId.RUNNING), 10.0)
    reading = await kit.context[History].series("one", [MetricId.GPU_POWER, MetricId.RUNNING], 0.0, 10.0, 10)
    assert isinstance(reading, Ok)
    assert reading.value[0].mean == (2.0,)
    assert reading.value[1].key == SeriesKey("one", "running_requests")


async def test_the_event_feed_is_kept_each_event_once_and_later_where_it_could_not_be() -> None:
    kit, history = remembered()
    async with kit.whole():
        await kit.clock.advance(2)
        kit.context[EngineSupervisor].say("the cache was dropped", Severity.WARNING, "Nothing.")
        history.switch_off("the disk of /data is full")
        await kit.until(lambda: kit.context.store.world.events[-1].text.startswith("The history is off"))
        assert [r.key for r in history.noted] == []
        assert kit.context.store.world.events[-1].text == "The history is off: the disk of /data is full."
        kit.context[EngineSupervisor].say("the cache was dropped")
        history.switch_on()
        await kit.until(lambda: "The history is on again." in [record.key for record in history.noted])
        told = [record.key for record in history.noted]
        assert told.count("the cache was dropped") == 2
        assert "The history is on again." in told
        assert history.noted[0] == Record(
            EVENT, "the cache was dropped", history.noted[0].at,
            {"severity": "warning", "remedy": "Nothing.", "kind": "note"},
        )  # fmt: skip


async def test_a_file_that_was_set_aside_is_told_once() -> None:
    kit, history = remembered()
    history.note("The history could not be used. It is kept as x.")
    async with kit.whole():
        await kit.until(lambda: kit.context.store.world.events)
        await kit.clock.advance(60)
        texts = [event.text for event in kit.context.store.world.events]
        assert texts == ["The history could not be used. It is kept as x."]


async def test_a_record_that_cannot_be_kept_is_an_error_with_a_remedy() -> None:
    kit, history = remembered()
    history.switch_off("the disk is full")
    with pytest.raises(SparkError) as caught:
        await kit.context[HistoryStore].add_record(Record("bench", "k", 0.0, {}))
    assert caught.value.remedy == "Make room."


async def test_the_feed_of_an_earlier_run_is_there_again_and_the_guard_speaks_in_it() -> None:
    history, earlier = FakeHistory(), EPOCH - 600
    history.noted = [
        Record(EVENT, "qwen ready", earlier, {"severity": "info", "kind": "ready", "subject": "qwen"}),
        Record(EVENT, "of another version", earlier + 1, {"severity": "dire", "kind": "new", "colour": 1}),
        Record(EVENT, "no body", earlier + 2, None),
    ]
    kit = Kit()
    kit.history = history
    context = kit.opened()
    acts = [GuardEntry(EPOCH - 900, "stop", "old", "before"), GuardEntry(EPOCH + 1, "stop", "qwen", "1.2 GiB usable")]
    watch = History(history, kit.clock, context.store, lambda: acts)
    context.store.say("new", kind=EventKind.NOTE)
    async with running(watch.run()):
        await kit.clock.until(lambda: any(event.kind is EventKind.GUARD for event in context.store.world.events))
        await kit.clock.advance(20)
    events = context.store.world.events
    assert [(event.text, event.kind) for event in events] == [
        ("qwen ready", EventKind.READY), ("of another version", EventKind.NOTE), ("no body", EventKind.NOTE),
        ("new", EventKind.NOTE), ("qwen: guard: stop (1.2 GiB usable)", EventKind.GUARD),
    ]  # fmt: skip
    assert events[0].subject == "qwen"
    assert [record.key for record in history.noted[3:]] == ["new", "qwen: guard: stop (1.2 GiB usable)"], "each once"
