"""Two launches in turn on a machine that holds one: what runs when, what is kept, and that the first one comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise

import pytest
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.state import Endpoint, Health
from spark_tui.base.errors import EngineExited, MeasurementVoid, RefusedError, SparkError, UsageError
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.settings import Settings
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.results.model.compare import SpeedVerdict, compare
from spark_tui.observe.results.model.plan import BenchPlan
from spark_tui.observe.results.model.run import BenchRun, RunOutcome
from spark_tui.run.launch.use.edit import Editor
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.use.bench.model.load import Load, LoadEvent, LoadResult
from spark_tui.use.bench.use.ab import ABPlanner, Variant, running_engine, starts_of
from spark_tui.use.bench.use.bench import Benchmark, BenchProgress, BenchStep, finish_when_cancelled
from tests.bench_kit import FakeLoad
from tests.fakes_files import MemoryResults
from tests.fakes_ports import Ports
from tests.kit import PRESET, Kit

PLAN = BenchPlan(input_tokens=32, output_tokens=8, concurrency=(1, 2), passes=3, rounds=1, warmup=1)
OTHER = replace(PRESET, name="other", defaults=(("port", 8005), ("max_model_len", 2048)))


class LoadByEngine(FakeLoad):
    """A load that is as fast as the engine that runs: `speeds` by the context length that it was launched with."""

    kit: ABKit

    async def drive(self, endpoint: Endpoint, load: Load, stop: asyncio.Event) -> AsyncGenerator[LoadEvent, None]:
        if not any(each.facts.running for each in self.kit.docker.all_containers.values()):
            await self.clock.sleep(1.0)
            yield LoadResult(())
            return
        running = self.kit.running()
        self.kit.asked.append(running)
        self.step = self.kit.speeds[running]
        async for told in super().drive(endpoint, load, stop):
            yield told


class ABKit(Kit):
    """A core with a preset's engine that serves, and a load that depends on what runs."""

    def __init__(self) -> None:
        self.results = MemoryResults()
        self.asked: list[str] = []
        self.speeds = {"qwen 4096": 0.02, "qwen 8192": 0.01, "other 2048": 0.04}
        self.seen: list[BenchProgress] = []
        super().__init__(PRESET, OTHER)

    def opened(self) -> Context:
        self.load = LoadByEngine(self.clock)
        self.load.kit = self
        ports = Ports(
            self.clock, self.docker, self.api, self.host, self.gpu, self.presets, self.secrets, self.archive,
            load=self.load, results=self.results, state=self.state,
        )  # fmt: skip
        return Context(Settings(), ports, HostPaths("/store", "/caches", "/home/test"))

    def running(self) -> str:
        """The one container that runs, and its context length."""
        found = [each.facts for each in self.docker.all_containers.values() if each.facts.running]
        [only] = found
        words = " ".join(only.argv).split()
        return f"{only.name} {words[words.index('--max-model-len') + 1]}"

    async def launched(self, overrides: Overrides | None = None) -> None:
        task = asyncio.create_task(
            self.context[Launcher].launch(LaunchRequest(PRESET, overrides or Overrides()), self.report)
        )
        await self.until(task.done)
        task.result()

    async def variants(self, other: str) -> tuple[Variant, Variant]:
        view = (await self.context[EngineSupervisor].watch("qwen")).view()
        return self.context[ABPlanner].plan(view, other)

    async def ab(
        self, other: str, plan: BenchPlan = PLAN, *, stop: asyncio.Event | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> tuple[BenchRun, ...]:  # fmt: skip
        variants = await self.variants(other)
        task = asyncio.create_task(self.context[Benchmark].run(variants, plan, self.seen.append, stop=stop))

        def done() -> bool:
            meanwhile()
            return task.done()

        await self.until(done)
        return task.result()


async def test_a_flag_is_measured_in_turn_with_the_engine_as_it_is() -> None:
    kit = ABKit()
    await kit.launched()
    one, two = await kit.ab("max_model_len=8192")
    turns = [name for index, name in enumerate(kit.asked) if index == 0 or kit.asked[index - 1] != name]
    assert turns == ["qwen 4096", "qwen 8192", "qwen 4096", "qwen 8192"], "A, B B, A A, B"
    assert kit.running() == "qwen 4096", "as it was before"
    assert len(kit.docker.created) == 1 + starts_of(PLAN)
    assert (one.ending, two.ending) == (RunOutcome.COMPLETED, RunOutcome.COMPLETED)
    assert (one.pair, two.pair) == (two.id, one.id)
    assert [level.passes for level in (*one.levels, *two.levels)] == [3] * 4
    assert {result.id for result in kit.results.all()} == {one.id, two.id}
    found = compare(one, two)
    assert found.paired
    assert {row.verdict for row in found.rows} == {SpeedVerdict.FASTER}
    assert [(each.what, each.first, each.second) for each in found.differences if "len" in each.what] == [
        ("--max-model-len", "4096", "8192")
    ]
    assert "current settings" in one.caveats[0]
    assert "max_model_len=8192" in two.caveats[0]
    assert one.server is None, "its counters began again with each start"
    launching = [progress for progress in kit.seen if progress.step is BenchStep.LAUNCHING]
    assert {"max_model_len=8192", "current settings"} <= {progress.detail for progress in launching}
    assert {progress.total for progress in kit.seen} == {2 * 2 * 3}
    assert kit.seen[-1].step is BenchStep.DONE
    ended = [now for before, now in pairwise(kit.seen) if now.done > before.done]
    shown = [run.id for progress in ended if (run := progress.run_of("qwen")) is not None]
    assert shown == [each.id for each in (one, one, two, two, two, two, one, one, one, one, two, two)]
    sent = [[request.prompt for request in load.requests] for load in kit.load.loads]
    assert sent[:4] == sent[4:8], "the same prompts on both"


async def test_two_presets_are_never_up_at_once() -> None:
    kit = ABKit()
    await kit.launched()
    one, two = await kit.ab("other")  # `running` fails where two containers run
    assert {"qwen 4096", "other 2048"} == set(kit.asked)
    assert kit.running() == "qwen 4096"
    assert (one.conditions.engine, two.conditions.engine) == ("qwen", "other")
    assert {row.verdict for row in compare(one, two).rows} == {SpeedVerdict.SLOWER}


async def test_a_side_that_does_not_come_up_is_told_and_the_engine_of_before_comes_back() -> None:
    kit = ABKit()
    await kit.launched()
    kit.docker.on_start = lambda facts: (
        kit.docker.end(facts.id, 1) if "8192" in " ".join(facts.argv) else kit.api.serve()
    )
    (one,) = await kit.ab("max_model_len=8192")
    assert one.ending is RunOutcome.FAILED
    assert "ended before it was ready" in one.reason
    assert one.levels, "what was measured is kept"
    assert kit.running() == "qwen 4096"


@pytest.mark.parametrize(("dies", "variant"), [("qwen 4096", 0), ("qwen 8192", 1)])
async def test_a_side_that_dies_under_its_load_voids_both_and_the_engine_of_before_comes_back(
    dies: str, variant: int
) -> None:
    kit = ABKit()
    await kit.launched()
    killed = []

    def kill_in_its_second_turn() -> None:
        if kit.asked.count(dies) > 4 and not killed:
            killed.append(dies)
            kit.docker.end("qwen", 137)

    with pytest.raises(MeasurementVoid) as void:
        await kit.ab("max_model_len=8192", meanwhile=kill_in_its_second_turn)
    assert (killed, void.value.variant) == ([dies], variant)
    assert kit.results.all() == ()
    assert kit.running() == "qwen 4096"


@pytest.mark.parametrize("health", [Health.NOT_LISTENING, Health.DEAD])
async def test_a_container_whose_server_is_gone_is_restarted(health: Health) -> None:
    kit = ABKit()
    await kit.launched()
    before = kit.docker.named("qwen")
    kit.docker.on_start = lambda facts: kit.api.serve()
    task = asyncio.create_task(kit.context[Benchmark].run((Variant("qwen"),), PLAN, kit.seen.append))

    def lose_it() -> bool:
        if len(kit.asked) == 5:
            kit.api.state = health
        return task.done()

    await kit.until(lose_it)
    with pytest.raises(MeasurementVoid):
        task.result()
    after = kit.docker.named("qwen")
    assert before is not None and after is not None
    assert after.running and (after.id, after.started_at) > (before.id, before.started_at)
    assert kit.results.all() == ()


async def test_nothing_is_kept_where_nothing_was_measured() -> None:
    kit = ABKit()
    await kit.launched()
    kit.load.broken = EngineExited("It is gone.", "Look at its log.")
    with pytest.raises(SparkError):
        await kit.ab("max_model_len=8192")
    assert kit.results.all() == ()
    assert kit.running() == "qwen 4096"


async def test_cancel_keeps_what_was_measured_and_brings_the_engine_back() -> None:
    kit, stop = ABKit(), asyncio.Event()
    await kit.launched()

    def stop_in_the_second_pass() -> None:
        if any(progress.segment is not None and progress.segment.number == 2 for progress in kit.seen):
            stop.set()

    one, two = await kit.ab("max_model_len=8192", stop=stop, meanwhile=stop_in_the_second_pass)
    assert (one.ending, two.ending) == (RunOutcome.CANCELLED, RunOutcome.CANCELLED)
    assert one.levels and two.levels
    assert kit.running() == "qwen 4096"


@pytest.mark.parametrize(("other", "second"), [("max_model_len=8192", "qwen 8192"), ("other", "other 2048")])
async def test_a_program_that_ends_within_an_ab_leaves_the_engine_of_before_to_the_next_one(
    other: str, second: str
) -> None:
    kit = ABKit()
    await kit.launched()
    task = asyncio.create_task(kit.context[Benchmark].run(await kit.variants(other), PLAN, kit.seen.append))
    await kit.until(lambda: second in kit.asked)
    stops = len(kit.docker.asked("stop"))
    kit.docker.hold("stop")
    task.cancel()
    await kit.until(lambda: len(kit.docker.asked("stop")) > stops)  # it goes back
    task.cancel()  # and is not let
    await asyncio.gather(task, return_exceptions=True)
    kit.docker.release()
    assert kit.running() == second
    await kit.context.close()
    kit.context = kit.opened()
    assert [entry.name for entry in kit.context[Editor].interrupted()] == ["qwen"]
    async with kit.whole():
        await kit.until(lambda: not kit.context[Editor].interrupted() and not kit.context[JobRunner].running("qwen"))
    assert kit.running() == "qwen 4096"


async def test_an_ab_that_comes_to_its_end_leaves_nothing_to_the_next_program() -> None:
    kit = ABKit()
    await kit.launched()
    await kit.ab("max_model_len=8192", meanwhile=lambda: None)
    assert kit.state.names("edit-") == ()
    assert kit.state.claimed("edit-") == ()


async def test_a_launch_is_not_waited_for_once_it_is_cancelled() -> None:
    kit, stop = ABKit(), asyncio.Event()
    await kit.launched()
    kit.docker.on_start = lambda facts: kit.api.serve() if "4096" in " ".join(facts.argv) else kit.api.refuse()

    def stop_while_it_starts() -> None:
        if any(progress.step is BenchStep.LAUNCHING and "Boot" in progress.detail for progress in kit.seen):
            stop.set()

    begun = kit.clock.now()
    (one,) = await kit.ab("max_model_len=8192", stop=stop, meanwhile=stop_while_it_starts)
    assert one.ending is RunOutcome.CANCELLED
    assert kit.clock.now() - begun < 600
    assert kit.running() == "qwen 4096"


@pytest.mark.parametrize(
    ("other", "kind", "words"),
    [
        ("max_model_len=4096", UsageError, "already uses"),
        ("nobody", UsageError, "nor a preset"),
        ("max_model_len=many", UsageError, "max_model_len"),
        ("port=9000", UsageError, "does not affect"),
        ("max_modl_len=1", UsageError, "max_modl_len"),
        ("extra_args='--x", UsageError, "not closed"),
    ],
)
async def test_what_cannot_be_compared_says_why(other: str, kind: type[SparkError], words: str) -> None:
    kit = ABKit()
    await kit.launched()
    with pytest.raises(kind, match=words) as caught:
        await kit.variants(other)
    assert caught.value.remedy
    assert kit.running() == "qwen 4096"


async def test_two_images_are_compared() -> None:
    kit = ABKit()
    await kit.launched()
    first, second = await kit.variants("image=vllm/vllm-openai:nightly max_model_len=8192")
    assert first.request.preset.image == PRESET.image
    assert second.request.preset.image == "vllm/vllm-openai:nightly"
    assert (second.name, second.request.overrides.max_model_len) == (first.name, 8192)
    with pytest.raises(UsageError, match="already uses"):
        await kit.variants(f"image={PRESET.image}")


def test_a_running_container_is_named_by_its_prefix() -> None:
    assert [running_engine(other) for other in ("container=qwen-b", "image=x", "qwen-b")] == ["qwen-b", "", ""]


async def test_a_caller_that_is_cancelled_twice_leaves_no_task_behind() -> None:
    async def work() -> tuple[BenchRun, ...]:
        await asyncio.Event().wait()
        return ()

    stop, before = asyncio.Event(), asyncio.all_tasks()
    caller = asyncio.create_task(finish_when_cancelled(work(), stop, 3600.0))
    for _ in range(2):
        await asyncio.sleep(0.01)
        caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await asyncio.sleep(0)
    assert stop.is_set()
    assert asyncio.all_tasks() == before


async def test_an_engine_that_others_started_is_left_alone() -> None:
    kit = ABKit()
    kit.docker.add_container("qwen", argv=("vllm", "serve", "org/model", "--port", "8000"))
    kit.api.serve()
    with pytest.raises(RefusedError, match="Not started by spark-tui"):
        await kit.variants("max_model_len=8192")


async def test_earlier_changes_stay_on_both_sides() -> None:
    kit = ABKit()
    await kit.launched(Overrides(max_num_seqs=7, extra_args=("--enforce-eager",)))
    first, second = await kit.variants("max_model_len=8192")
    assert first.request.overrides.max_num_seqs == second.request.overrides.max_num_seqs == 7
    assert second.request.overrides.extra_args == ("--enforce-eager",)
    assert second.request.overrides.max_model_len == 8192
