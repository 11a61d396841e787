"""A search on a machine that holds one engine: what it launches and measures, what ends it, and what comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.errors import EngineExited, MeasurementVoid, RefusedError, SparkError
from spark_tui.base.finding import Ok
from spark_tui.base.quantities import GIB
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import Origin
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.manage.tune.model import Trial, TrialOutcome, TuneGoal, best_settings, gain_of
from spark_tui.manage.tune.use import NOTHING_LEFT, TIME_OVER, Tuner, TuneRecord
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.use.bench.use.bench import BenchStep
from tests.fakes_host import EPOCH, IDLE_MEMORY
from tests.manage.tune.kit import TUNED, TuneKit


def only_sequences(record: TuneRecord) -> TuneRecord:
    return replace(record, takes=("max_num_seqs",))


def outcomes(record: TuneRecord) -> list[tuple[str, TrialOutcome]]:
    return [(trial.value, trial.outcome) for trial in record.trials]


async def test_the_planted_setting_is_found_and_the_engine_of_before_comes_back() -> None:
    kit = TuneKit()
    await kit.launched()
    found = await kit.tuned(only_sequences(await kit.planned()))
    assert best_settings(found.trials) == {"max_num_seqs": "16"}
    assert outcomes(found) == [
        ("8", TrialOutcome.BETTER), ("16", TrialOutcome.BETTER), ("32", TrialOutcome.WORSE)
    ]  # fmt: skip
    assert (found.finished, found.ended) == (True, NOTHING_LEFT)
    gain = gain_of(found.trials)
    assert gain is not None and gain.low is not None and gain.ratio == pytest.approx(1.5, rel=0.1)
    assert "--max-num-seqs 4" in kit.command()
    assert [trial.base for trial in found.trials] == [
        (), (("max_num_seqs", "8"),), (("max_num_seqs", "16"),)
    ]  # fmt: skip
    assert {result.id for result in kit.results.all()} == {id_ for trial in found.trials for id_ in trial.runs}
    assert kit.context[Tuner].record("qwen") == found, "the record stays for --save"


async def test_a_trial_alternates_and_takes_two_launches() -> None:
    kit = TuneKit()
    await kit.launched()
    kit.speed = lambda _: 1.0  # type: ignore[method-assign]
    before = len(kit.docker.created)
    found = await kit.tuned(only_sequences(await kit.planned()))
    assert outcomes(found) == [("8", TrialOutcome.SAME), ("2", TrialOutcome.SAME)]
    assert len(kit.docker.created) - before == 4


async def test_what_is_clearly_worse_ends_early() -> None:
    kit = TuneKit()
    await kit.launched()
    kit.speed = lambda words: 1.0 if "--max-num-seqs 4" in words else 0.4  # type: ignore[method-assign]
    found = await kit.tuned(only_sequences(await kit.planned()))
    assert outcomes(found) == [("8", TrialOutcome.WORSE), ("2", TrialOutcome.WORSE)]
    passes = [len(result.run.levels[0].pass_rates) for result in kit.results.all() if result.run is not None]
    assert sorted(passes) == [1, 1, 2, 2]


async def test_a_trial_that_dies_at_its_start_is_a_result() -> None:
    kit = TuneKit()
    await kit.launched()
    kit.docker.on_start = lambda facts: (
        kit.docker.end(facts.id, 137) if "--max-num-seqs 16" in " ".join(facts.argv) else kit.api.serve()
    )
    found = await kit.tuned(only_sequences(await kit.planned()))
    assert outcomes(found) == [("8", TrialOutcome.BETTER), ("16", TrialOutcome.FAILED)]
    assert found.finished and "ended before it was ready" in found.trials[-1].reason
    assert "--max-num-seqs 4" in kit.command()


async def test_a_trial_that_dies_under_its_load_is_a_result_without_figures() -> None:
    kit = TuneKit()
    await kit.launched()

    def die() -> None:
        if "--max-num-seqs 16" in kit.load.asked and kit.running():
            kit.load.asked = ""
            kit.docker.end("qwen", 137)

    found = await kit.tuned(only_sequences(await kit.planned()), meanwhile=die)
    assert outcomes(found) == [("8", TrialOutcome.BETTER), ("16", TrialOutcome.FAILED)]
    assert (found.finished, found.trials[-1].ratio, found.trials[-1].runs) == (True, None, ())
    assert {result.id for result in kit.results.all()} == set(found.trials[0].runs)
    assert "--max-num-seqs 4" in kit.command()


async def test_a_baseline_that_dies_under_its_load_voids_the_trial_and_ends_the_search() -> None:
    kit = TuneKit()
    await kit.launched()
    killed = []

    def die_in_the_second_trial() -> None:
        if (
            kit.seen
            and kit.seen[-1].trial == ("max_num_seqs", "16")
            and "--max-num-seqs 8" in kit.load.asked
            and not killed
        ):
            killed.append(kit.load.asked)
            kit.docker.end("qwen", 137)

    with pytest.raises(MeasurementVoid):
        await kit.tuned(only_sequences(await kit.planned()), meanwhile=die_in_the_second_trial)
    assert "--max-num-seqs 4" in kit.command(), "as before"
    left = kit.context[Tuner].record("qwen")
    assert left is not None and killed
    assert (outcomes(left), left.under_way, left.finished) == ([("8", TrialOutcome.BETTER)], None, False)
    assert {result.id for result in kit.results.all()} == set(left.trials[0].runs)


async def test_a_trial_that_never_answers_is_a_result() -> None:
    kit = TuneKit()
    await kit.launched()
    kit.load.hangs = "--max-num-seqs 16"
    found = await kit.tuned(only_sequences(await kit.planned()))
    assert outcomes(found) == [("8", TrialOutcome.BETTER), ("16", TrialOutcome.FAILED)]
    assert kit.hung and BenchStep.WARM_UP.value in found.trials[-1].reason


async def test_a_trial_that_never_comes_up_is_a_result() -> None:
    kit = TuneKit()
    await kit.launched()
    kit.docker.on_start = lambda facts: (
        kit.api.refuse() if "--max-num-seqs 16" in " ".join(facts.argv) else kit.api.serve()
    )
    found = await kit.tuned(only_sequences(await kit.planned(minutes=600.0)))
    assert outcomes(found)[-1] == ("16", TrialOutcome.FAILED)
    assert BenchStep.LAUNCHING.value in found.trials[-1].reason


async def test_short_memory_during_a_trial_is_a_result() -> None:
    kit = TuneKit()
    await kit.launched()

    def squeeze() -> None:
        short = "--max-num-seqs 16" in kit.load.asked
        kit.host.memory_value = Ok(replace(IDLE_MEMORY, available=GIB, free=GIB) if short else IDLE_MEMORY, EPOCH)

    found = await kit.tuned(only_sequences(await kit.planned()), meanwhile=squeeze)
    assert outcomes(found)[-1] == ("16", TrialOutcome.FAILED)


async def test_the_time_is_a_bound_and_not_a_hope() -> None:
    kit = TuneKit()
    await kit.launched()
    record = only_sequences(await kit.planned(minutes=0.5))
    begun = kit.clock.monotonic()
    found = await kit.tuned(record)
    assert (found.finished, found.ended) == (True, TIME_OVER)
    assert len(found.trials) < 3
    assert kit.clock.monotonic() - begun < 60
    assert "--max-num-seqs 4" in kit.command()


async def test_stopped_it_is_resumed_where_it_was() -> None:
    kit, stop = TuneKit(), asyncio.Event()
    await kit.launched()

    def stop_in_the_second_trial() -> None:
        if any(progress.trial == ("max_num_seqs", "16") for progress in kit.seen):
            stop.set()

    found = await kit.tuned(only_sequences(await kit.planned()), stop=stop, meanwhile=stop_in_the_second_trial)
    assert (outcomes(found), found.finished) == ([("8", TrialOutcome.BETTER)], False)
    assert "--max-num-seqs 4" in kit.command()
    with pytest.raises(RefusedError, match="cut off"):
        await kit.planned()
    left = kit.context[Tuner].record("qwen")
    assert left is not None
    found = await kit.tuned(left)
    assert outcomes(found) == [
        ("8", TrialOutcome.BETTER), ("16", TrialOutcome.BETTER), ("32", TrialOutcome.WORSE)
    ]  # fmt: skip
    assert "--max-num-seqs 4" in kit.command()


async def test_a_trial_under_which_the_program_died_is_not_repeated() -> None:
    kit = TuneKit()
    await kit.launched()
    record = only_sequences(await kit.planned())
    kit.context[Tuner].journal.write(replace(record, under_way=("max_num_seqs", "8"), spent=30.0))
    await kit.launched(overrides=None)
    kit.context = kit.opened()
    await kit.context[EngineSupervisor].look()
    left = kit.context[Tuner].record("qwen")
    assert left is not None
    found = await kit.tuned(left)
    assert outcomes(found) == [("8", TrialOutcome.FAILED), ("2", TrialOutcome.WORSE)]


async def test_discard_brings_the_engine_back_and_forgets() -> None:
    kit = TuneKit()
    await kit.launched(overrides=Overrides(max_num_seqs=16))
    trial = Trial("max_num_seqs", "16", (), TrialOutcome.BETTER, ratio=1.5, low=1.4, high=1.6)
    record = replace(await kit.planned(), settings={"max_num_seqs": "4"}, trials=(trial,))
    kit.context[Tuner].journal.write(record)
    async with kit.supervised():
        task = asyncio.create_task(kit.context[Tuner].discard(record, kit.seen.append))
        await kit.until(task.done)
    assert "--max-num-seqs 4" in kit.command()
    assert kit.context[Tuner].record() is None


async def test_a_preset_that_did_not_run_is_stopped_again() -> None:
    kit = TuneKit()
    record = only_sequences(await kit.planned())
    assert (record.ran, record.stopped) == (False, ())
    found = await kit.tuned(record)
    assert best_settings(found.trials) == {"max_num_seqs": "16"}
    assert kit.running() == []


async def test_what_made_room_starts_again() -> None:
    kit = TuneKit()
    await kit.launched("other")
    record = replace(only_sequences(await kit.planned()), stopped=("other",))
    await kit.tuned(record)
    assert [each.name for each in kit.running()] == ["other"]


async def test_a_baseline_that_cannot_be_measured_is_an_error_and_leaves_nothing_behind() -> None:
    kit = TuneKit()
    await kit.launched()
    kit.load.broken = EngineExited("It is gone.", "Look at its log.")
    with pytest.raises(SparkError):
        await kit.tuned(only_sequences(await kit.planned()))
    assert "--max-num-seqs 4" in kit.command()
    assert kit.context[Tuner].record() is None


async def test_a_cancelled_search_brings_the_engine_back() -> None:
    kit = TuneKit()
    await kit.launched()
    record = only_sequences(await kit.planned())
    async with kit.supervised():
        task = asyncio.create_task(kit.context[Tuner].run(record, kit.seen.append))
        await kit.until(lambda: any("--max-num-seqs 8" in " ".join(each.argv) for each in kit.running()))
        task.cancel()
        await kit.until(task.done)
    assert task.cancelled()
    assert "--max-num-seqs 4" in kit.command()


async def test_a_record_of_another_program_is_refused_with_its_file() -> None:
    kit = TuneKit()
    kit.state.write("tune", b"{broken")
    with pytest.raises(RefusedError) as caught:
        kit.context[Tuner].record()
    assert "tune" in caught.value.remedy


async def test_one_search_at_a_time() -> None:
    kit = TuneKit()
    record = await kit.planned()
    kit.state.claim("tune")
    with pytest.raises(RefusedError, match="Another spark-tui"):
        await kit.context[Tuner].run(record, kit.seen.append)


async def test_nothing_to_tune_is_said_before_anything_starts() -> None:
    kit = TuneKit()
    as_is = replace(TUNED, command="", facts=replace(TUNED.facts, runs_as_is=True), defaults=(("port", 8000),))
    with pytest.raises(RefusedError, match="Nothing to tune"):
        await kit.context[Tuner].plan(as_is, TuneGoal.LATENCY)


async def test_the_winner_is_saved_as_a_preset_that_launches_so(tmp_path: Path) -> None:
    kit = TuneKit(tmp_path)
    await kit.launched()
    found = await kit.tuned(only_sequences(await kit.planned()))
    saved = await kit.context[Tuner].save(found, "qwen-fast", "Tuned.")
    assert (saved.origin, saved.default("max_num_seqs"), saved.default("max_model_len")) == (Origin.USER, 16, 4096)
    [before, after] = [
        kit.context[Preflight].dry_plan(preset, overrides).spec.command
        for preset, overrides in ((TUNED, Overrides(max_num_seqs=16)), (saved, Overrides()))
    ]
    assert after == before
    with pytest.raises(RefusedError):
        await kit.context[Tuner].save(found, "qwen-fast", "Tuned.")


async def test_a_setting_without_a_place_in_the_command_is_saved_too(tmp_path: Path) -> None:
    kit = TuneKit(tmp_path)
    record = await kit.planned()
    won = Trial("kv_cache_dtype", "fp8", (), TrialOutcome.BETTER, ratio=1.2, low=1.1, high=1.3)
    saved = await kit.context[Tuner].save(replace(record, trials=(won,)), "qwen-fp8", "Tuned.")
    words = " ".join(kit.context[Preflight].dry_plan(saved, Overrides()).spec.command)
    assert "--kv-cache-dtype fp8" in words


async def test_nothing_is_saved_where_nothing_won(tmp_path: Path) -> None:
    kit = TuneKit(tmp_path)
    record = await kit.planned()
    with pytest.raises(RefusedError, match="nothing to save"):
        await kit.context[Tuner].save(record, "qwen-same", "Tuned.")
