"""Benchmarks over real HTTP against a scripted server: figures, failures, stops, two in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest
from msgspec.structs import replace

from spark_tui.base.context import Context, GuardPorts
from spark_tui.base.engine.container import (
    LABEL_API_KEY_FILE,
    LABEL_MODEL,
    LABEL_PORT,
    LABEL_PRESET,
    LABEL_RUNTIME,
    LABEL_SERVED_NAME,
    ContainerStatus,
)
from spark_tui.base.engine.state import Endpoint, Health, ServedModel
from spark_tui.base.errors import (
    ApiKeyRejected,
    ContextOverflow,
    EngineFailed,
    EngineUnreachable,
    MeasurementVoid,
    MetricsUnavailable,
    RefusedError,
    SparkError,
    UsageError,
)  # fmt: skip
from spark_tui.base.executors import SystemClock
from spark_tui.base.finding import Ok
from spark_tui.base.host.guard import GuardAction, GuardEntry
from spark_tui.base.host.vitals import GpuReading, HostPaths
from spark_tui.base.ports import MEASURES
from spark_tui.base.quantities import GIB
from spark_tui.base.secret import Secret
from spark_tui.base.settings import Settings
from spark_tui.machine.engine_api import HttpMetrics
from spark_tui.observe.results.model.plan import BenchPlan, Conditions, PromptCache, PromptForm
from spark_tui.observe.results.model.run import BenchRun, RunOutcome, Status
from spark_tui.observe.results.use import Results
from spark_tui.use.bench.adapter.driver import HttpLoadDriver
from spark_tui.use.bench.use.ab import Variant
from spark_tui.use.bench.use.bench import Benchmark, BenchProgress, BenchSession, BenchStep
from tests import metric_fixtures as pages
from tests.bench_kit import FakeLoad
from tests.bench_server import BenchServer
from tests.fakes_api import FakeEngineApi
from tests.fakes_docker import FakeDocker
from tests.fakes_files import MemoryResults
from tests.fakes_host import IDLE_MEMORY, FakeArchive, FakeGpu, FakeHost, FakeSecrets
from tests.fakes_metrics import FakeMetrics
from tests.fakes_ports import Ports
from tests.kit import IMAGE, FixedPresets
from tests.observe.memory.test_guard_use import FakeActuator, FakeJournal

PLAN = BenchPlan(input_tokens=32, output_tokens=8, concurrency=(1, 2), passes=2, rounds=1, warmup=1)


class Lab:
    """A core whose load is real and whose engines are scripted servers."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.docker = FakeDocker()
        self.api = FakeEngineApi(self.clock, Health.OK, (ServedModel("tiny", "acme/tiny", 4096),))
        self.host = FakeHost()
        self.gpu = FakeGpu(Ok(GpuReading("NVIDIA GB10", 96, 50.0, 60, 2400, unified=True, driver="580.142"), 0.0))
        self.secrets = FakeSecrets()
        self.driver = HttpLoadDriver()
        self.docker.add_image(IMAGE)
        ports = Ports(
            self.clock, self.docker, self.api, self.host, self.gpu, FixedPresets(), self.secrets, FakeArchive(),
            load=self.driver, metrics=HttpMetrics(), results=MemoryResults(),
        )  # fmt: skip
        self.context = Context(Settings(), ports, HostPaths("/store", "/caches", "/home/test"))
        self.seen: list[BenchProgress] = []

    def engine(self, server: BenchServer, name: str = "tiny", *, key: str = "", **changes: object) -> None:
        """A container whose API is that server."""
        labels = [
            (LABEL_PRESET, name), (LABEL_MODEL, "acme/tiny"), (LABEL_SERVED_NAME, "tiny"), (LABEL_RUNTIME, "vllm"),
            (LABEL_PORT, str(server.port)),
        ]  # fmt: skip
        if key:
            path = self.secrets.env_file(name, {"VLLM_API_KEY": Secret(key)})
            labels.append((LABEL_API_KEY_FILE, str(path)))
        argv = ("vllm", "serve", "acme/tiny", "--max-num-seqs", "4", "--port", "8000")
        self.docker.add_container(name, image=IMAGE, labels=tuple(labels), argv=argv, **changes)  # type: ignore[arg-type]

    async def run(self, plan: BenchPlan, *names: str, stop: asyncio.Event | None = None) -> tuple[BenchRun, ...]:
        """Measures these engines, or the one that is always there."""
        variants = tuple(map(Variant, names or ("tiny",)))
        return await self.context[Benchmark].run(variants, plan, self.seen.append, stop=stop)

    async def until(self, condition: object) -> None:
        """Until what was seen fulfils it."""
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.01)


@pytest.fixture
async def server() -> AsyncIterator[BenchServer]:
    async with BenchServer().running() as found:
        yield found


@pytest.fixture
async def lab(server: BenchServer) -> AsyncIterator[Lab]:
    made = Lab()
    made.engine(server)
    yield made
    await made.context.close()


async def test_a_sweep_with_depths_measures_what_the_server_does(lab: Lab, server: BenchServer) -> None:
    server.first, server.step = 0.05, 0.02
    (run,) = await lab.run(replace(PLAN, depths=(64,)))
    assert run.ending is RunOutcome.COMPLETED
    assert [(level.streams, level.input_tokens, level.passes) for level in run.levels] == [
        (1, 32, 2), (2, 32, 2), (1, 64, 2)
    ]  # fmt: skip
    one = run.sweep[0]
    assert one.ttft is not None and one.tpot is not None and one.itl is not None
    assert 0.05 <= one.ttft.least < 0.15
    assert 0.02 <= one.tpot.p50 < 0.06
    assert one.itl.count == 2 * 7
    assert run.counts.complete == 2 + 4 + 2
    assert run.counts.bad == 0
    assert {check.what: check.agrees for check in run.checks if "tokens" in check.what} == {
        "output tokens": True, "prompt tokens": True
    }  # fmt: skip
    assert run.host.power_watts_mean == 50.0
    assert run.host.joules_per_token is not None
    assert run.lateness is not None and run.lateness.count > 5
    assert run.conditions.flags == ("--max-num-seqs 4",)
    assert (run.conditions.driver, run.conditions.context_tokens) == ("580.142", 4096)
    assert lab.context[Results].all()[0].run == run


async def test_other_programs_see_that_an_engine_is_measured(lab: Lab, server: BenchServer) -> None:
    state, seen = lab.context[Benchmark].state, set[tuple[str, ...]]()
    await lab.context[Benchmark].run((Variant("tiny"),), PLAN, lambda _: seen.add(state.claimed(MEASURES)))
    assert (seen, state.claimed(MEASURES)) == ({(f"{MEASURES}tiny",)}, ())


async def test_every_stream_is_kept_busy_and_no_more(lab: Lab, server: BenchServer) -> None:
    await lab.run(replace(PLAN, concurrency=(3,), warmup=0, rounds=3))
    assert server.most_open == 3
    assert len(server.bodies) == 2 * 9


async def test_what_is_sent_is_what_was_planned(lab: Lab, server: BenchServer) -> None:
    await lab.run(replace(PLAN, warmup=0))
    for body in server.bodies:
        assert len(body["prompt"]) == 32
        assert (body["max_tokens"], body["ignore_eos"], body["temperature"]) == (8, True, 0.0)
        assert body["stream_options"] == {"include_usage": True}
    prompts = [tuple(body["prompt"]) for body in server.bodies]
    assert len(set(prompts)) == len(prompts)
    first = set(prompts)
    await lab.run(replace(PLAN, warmup=0))
    assert not first & {tuple(body["prompt"]) for body in server.bodies[len(prompts) :]}, "a run of its own"


async def test_the_same_prompt_each_time_only_when_asked_for(lab: Lab, server: BenchServer) -> None:
    (run,) = await lab.run(replace(PLAN, prompt_cache=PromptCache.WARM))
    assert len({tuple(body["prompt"]) for body in server.bodies}) == 1
    assert "prefix cache" in " ".join(run.caveats)


async def test_prompts_as_text_have_the_length_that_the_server_counts(lab: Lab, server: BenchServer) -> None:
    (run,) = await lab.run(replace(PLAN, form=PromptForm.TEXT))
    assert all(isinstance(body["prompt"], str) for body in server.bodies)
    assert sum(level.wrong_lengths for level in run.levels) == 0


async def test_a_server_that_cannot_tokenize_is_measured_all_the_same(lab: Lab, server: BenchServer) -> None:
    server.tokenizes = False
    (run,) = await lab.run(PLAN)
    assert run.counts.complete == 6
    assert any("cannot tokenize" in caveat for caveat in run.caveats)


async def test_a_key_goes_into_its_header_and_nowhere_else(server: BenchServer) -> None:
    lab = Lab()
    lab.engine(server, key="planted-key")
    (run,) = await lab.run(PLAN)
    assert {headers["authorization"] for headers in server.headers} == {"Bearer planted-key"}
    assert "planted-key" not in repr((run, lab.seen))
    await lab.context.close()


# --- what goes wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "count", "words"),
    [
        ("refuse", "failed", "engine is busy"),
        ("break", "truncated", "broke"),
        ("error", "truncated", ""),
        ("short", "short", ""),
    ],
)
async def test_bad_requests_are_reported_beside_the_figures(
    lab: Lab, server: BenchServer, how: str, count: str, words: str
) -> None:
    server.fail = lambda number, body: how if number % 3 == 2 else ""
    (run,) = await lab.run(replace(PLAN, warmup=0))
    assert run.ending is RunOutcome.COMPLETED
    assert getattr(run.counts, count) == 2
    assert run.counts.complete == 4
    assert any("2 of 6 requests" in caveat for caveat in run.caveats)
    errors = " ".join(text for level in run.levels for text, _ in level.errors)
    assert words in errors.lower()
    assert sum(level.ttft.count for level in run.levels if level.ttft) == 4


async def test_an_engine_that_answers_nothing_any_more_ends_the_run_and_voids_it(lab: Lab, server: BenchServer) -> None:
    server.fail = lambda number, body: "refuse" if number >= 4 else ""
    with pytest.raises(MeasurementVoid):
        await lab.run(replace(PLAN, warmup=0, passes=9))
    assert len(server.bodies) < 12, "it did not go on for all nine passes"
    assert lab.context[Results].all() == ()


CORE_DIED = (
    "(APIServer pid=1) INFO:     Application startup complete.",
    "(EngineCore_DP0 pid=99) ERROR 01-15 07:10:00 [core.py:1] EngineCore encountered a fatal error.",
    "(EngineCore_DP0 pid=99) ERROR 01-15 07:10:00 [core.py:1] torch.OutOfMemoryError: CUDA out of memory.",
)


async def replaced(docker: FakeDocker) -> None:
    """By another container of its name and address."""
    facts = docker.named("tiny")
    assert facts is not None
    await docker.remove("tiny", force=True)
    docker.add_container("tiny", image=IMAGE, labels=facts.labels, argv=facts.argv)


async def ended(docker: FakeDocker, exit_code: int, **changes: object) -> None:
    docker.end("tiny", exit_code, **changes)


async def core_died(docker: FakeDocker) -> None:
    """vLLM's server then ends as if it had been asked to."""
    docker.write("tiny", *CORE_DIED)
    docker.end("tiny", 0)


async def restarted(docker: FakeDocker) -> None:
    docker.restart_by_policy("tiny")


ENDS: dict[str, tuple[Callable[[FakeDocker], Awaitable[None]], bool]] = {
    "killed": (partial(ended, exit_code=137), True),
    "out of memory": (partial(ended, exit_code=137, oom_killed=True), True),
    "failed": (partial(ended, exit_code=1), True),
    "its core is dead": (core_died, True),
    "restarted by Docker": (restarted, True),
    "restarted by a person": (lambda docker: docker.restart("tiny"), True),
    "replaced": (replaced, True),
    "stopped": (partial(ended, exit_code=143), False),
    "removed": (lambda docker: docker.remove("tiny", force=True), False),
}
"""What may become of an engine while it is measured, its server answering on as if nothing had been; and whether one
runs afterwards: who stopped it meant to."""


@pytest.mark.parametrize("end", ENDS)
async def test_an_engine_that_is_not_the_same_voids_its_figures_and_one_that_ended_runs_again(
    lab: Lab, server: BenchServer, end: str
) -> None:
    happens, runs = ENDS[end]
    happened: list[asyncio.Future[None]] = []

    def fail(number: int, body: object) -> str:
        if number == 4:
            happened.append(asyncio.ensure_future(happens(lab.docker)))
        return ""

    server.fail = fail
    with pytest.raises(MeasurementVoid) as void:
        await lab.run(PLAN)
    await happened[0]
    assert (void.value.engine, void.value.exit_code, bool(void.value.remedy)) == ("tiny", 1, True)
    assert lab.context[Results].all() == ()
    now = lab.docker.named("tiny")
    assert (now is not None and now.running) is runs


async def test_what_the_memory_guard_killed_is_not_started_into_the_same_end(lab: Lab, server: BenchServer) -> None:
    journal = FakeJournal()
    vars(lab.context.ports)["guarding"] = GuardPorts(FakeActuator(), journal, None)  # type: ignore[arg-type]

    def fail(number: int, body: object) -> str:
        if number == 4:
            lab.docker.end("tiny", 137)
            now = lab.docker.named("tiny")
            assert now is not None and now.finished_at is not None
            journal.kept.append(GuardEntry(now.finished_at, GuardAction.KILL.value, "tiny", "0.9 GiB usable"))
        return ""

    server.fail = fail
    with pytest.raises(MeasurementVoid):
        await lab.run(PLAN)
    now = lab.docker.named("tiny")
    assert now is not None and not now.running


async def test_of_two_engines_that_end_both_run_again(lab: Lab, server: BenchServer) -> None:
    async with BenchServer().running() as other:
        lab.engine(other, "other")

        def fail(number: int, body: object) -> str:
            if number == 4:
                lab.docker.end("tiny", 137)
                lab.docker.end("other", 137)
            return ""

        server.fail = fail
        with pytest.raises(MeasurementVoid):
            await lab.run(PLAN, "tiny", "other")
    found = [lab.docker.named(name) for name in ("tiny", "other")]
    assert [each is not None and each.running for each in found] == [True, True]
    assert lab.context[Results].all() == ()


async def test_an_engine_that_ends_is_not_measured_to_the_end_of_the_plan(lab: Lab, server: BenchServer) -> None:
    server.fail = lambda number, body: lab.docker.end("tiny", 137) or "" if number == 0 else ""  # type: ignore[func-returns-value]
    server.step = 0.05
    with pytest.raises(MeasurementVoid):
        await lab.run(replace(PLAN, warmup=0, passes=50))
    assert len(server.bodies) < 50 * 3


async def test_counters_that_began_again_are_those_of_another_process(lab: Lab, server: BenchServer) -> None:
    server.tokens = 1_000_000

    def fail(number: int, body: object) -> str:
        server.tokens = 0 if number == 4 else server.tokens
        return ""

    server.fail = fail
    with pytest.raises(MeasurementVoid):
        await lab.run(PLAN)
    assert lab.context[Results].all() == ()
    assert not lab.docker.asked("stop") and not lab.docker.asked("restart"), "it runs"


async def test_a_docker_that_is_silent_voids_nothing_while_the_engine_answers(lab: Lab, server: BenchServer) -> None:
    server.fail = lambda number, body: lab.docker.go_down() or "" if number == 4 else ""  # type: ignore[func-returns-value]
    (run,) = await lab.run(PLAN)
    assert run.ending is RunOutcome.COMPLETED


async def test_an_engine_that_answers_nothing_is_an_error_and_no_result(lab: Lab, server: BenchServer) -> None:
    server.fail = lambda number, body: "refuse"
    with pytest.raises(EngineFailed, match="none of 1 warm-up requests"):
        await lab.run(PLAN)
    assert lab.context[Results].all() == ()


async def test_requests_of_others_are_told(lab: Lab, server: BenchServer) -> None:
    server.fail = lambda number, body: _count(server)
    (run,) = await lab.run(PLAN)
    assert any("requests of others" in caveat for caveat in run.caveats)


def _count(server: BenchServer) -> str:
    server.others += 1
    return ""


async def test_the_context_is_never_exceeded(lab: Lab, server: BenchServer) -> None:
    with pytest.raises(ContextOverflow):
        await lab.run(replace(PLAN, depths=(4090,)))
    lab.api.served = (ServedModel("tiny", "acme/tiny", None),)
    with pytest.raises(ContextOverflow):  # here only /tokenize tells
        await lab.run(replace(PLAN, depths=(4090,)))
    assert server.bodies == []


async def test_nothing_begins_when_memory_is_short_already(lab: Lab, server: BenchServer) -> None:
    lab.host.memory_value = Ok(replace(IDLE_MEMORY, available=GIB, free=GIB), 0.0)
    with pytest.raises(RefusedError, match=r"1\.0 GiB"):
        await lab.run(PLAN)
    assert server.bodies == []


@pytest.mark.parametrize(
    ("arrange", "error"),
    [
        (lambda lab: setattr(lab.api, "state", Health.NOT_LISTENING), EngineUnreachable),
        (lambda lab: setattr(lab.api, "state", Health.DEAD), EngineUnreachable.__mro__[1]),
    ],
)
async def test_an_engine_that_does_not_serve_is_not_asked(lab: Lab, arrange: object, error: type[Exception]) -> None:
    arrange(lab)  # type: ignore[operator]
    with pytest.raises(error):
        await lab.run(PLAN)


async def test_a_stopped_container_is_told_how_to_start(lab: Lab, server: BenchServer) -> None:
    lab.engine(server, "ended", status=ContainerStatus.EXITED, exit_code=0)
    with pytest.raises(EngineUnreachable, match=r"ended is not running \(exited\)"):
        await lab.run(PLAN, "ended")


# --- stopping ------------------------------------------------------------------------------------------


async def test_a_stop_keeps_what_was_measured_and_frees_the_server(lab: Lab, server: BenchServer) -> None:
    server.step = 0.05
    stop = asyncio.Event()
    plan = replace(PLAN, output_tokens=20, passes=5)
    work = asyncio.create_task(lab.run(plan, stop=stop))
    await lab.until(lambda: any(seen.done >= 1 and seen.requests_running for seen in lab.seen))
    stop.set()
    (run,) = await work
    assert run.ending is RunOutcome.CANCELLED
    assert run.counts.complete >= 1
    assert run.counts.cancelled >= 1
    assert run.sweep[0].passes == 1
    await lab.until(lambda: server.open == 0)
    assert [result.id for result in lab.context[Results].all()] == [run.id]


async def test_a_cancelled_task_keeps_what_was_measured(lab: Lab, server: BenchServer) -> None:
    server.step = 0.05
    plan = replace(PLAN, output_tokens=20, passes=5)
    work = asyncio.create_task(lab.run(plan))
    await lab.until(lambda: any(seen.done >= 1 and seen.requests_running for seen in lab.seen))
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    (kept,) = lab.context[Results].all()
    assert kept.run is not None and kept.run.ending is RunOutcome.CANCELLED
    assert kept.run.counts.complete >= 1


async def test_falling_memory_ends_a_run_and_says_so(lab: Lab, server: BenchServer) -> None:
    server.step = 0.05
    plan = replace(PLAN, output_tokens=40, passes=5)
    work = asyncio.create_task(lab.run(plan))
    await lab.until(lambda: any(seen.step is BenchStep.MEASURING and seen.done for seen in lab.seen))
    lab.host.memory_value = Ok(replace(IDLE_MEMORY, available=GIB, free=GIB), 0.0)
    (run,) = await work
    assert run.ending is RunOutcome.STOPPED
    assert run.reason == "available memory fell to 1.0 GiB, below the guard's floor of 2.0 GiB"
    assert run.counts.complete >= 1


async def test_a_stop_before_anything_was_measured_keeps_nothing(lab: Lab) -> None:
    stop = asyncio.Event()
    stop.set()
    (run,) = await lab.run(PLAN, stop=stop)
    assert (run.ending, run.levels) == (RunOutcome.CANCELLED, ())
    assert lab.context[Results].all() == ()


# --- two in turn ---------------------------------------------------------------------------------------


async def test_two_engines_are_measured_in_turn_and_never_at_once(lab: Lab, server: BenchServer) -> None:
    async with BenchServer().running() as other:
        other.step = server.step * 6
        lab.engine(other, "slower")
        order: list[str] = []
        server.fail = lambda number, body: order.append("tiny") or ""
        other.fail = lambda number, body: order.append("slower") or ""
        plan = replace(PLAN, concurrency=(1,), warmup=0, passes=4, output_tokens=30)
        one, two = await lab.run(plan, "tiny", "slower")
    assert order == ["tiny", "slower", "slower", "tiny", "tiny", "slower", "slower", "tiny"]
    assert (one.pair, two.pair) == (two.id, one.id)
    assert [body["prompt"] for body in server.bodies] == [body["prompt"] for body in other.bodies], "the same prompts"
    found = lab.context[Results].compare(one.id, two.id)
    assert found.paired
    assert found.rows[0].ratio is not None and found.rows[0].ratio < 0.9
    with pytest.raises(UsageError, match="one and the same"):
        await lab.run(PLAN, "tiny", "tiny")


# --- progress ----------------------------------------------------------------------------------------------


async def test_progress_only_moves_forward_and_shows_the_figures_so_far(lab: Lab) -> None:
    await lab.run(PLAN)
    steps = [seen.step for seen in lab.seen]
    assert steps[0] is BenchStep.PREPARING and steps[-1] is BenchStep.DONE
    assert sorted(steps, key=list(BenchStep).index) == steps
    done = [seen.done for seen in lab.seen]
    assert done == sorted(done) and done[-1] == lab.seen[-1].total == 4
    halfway = next(seen for seen in lab.seen if seen.done == 2)
    assert halfway.seconds_left is not None
    assert [level.streams for level in halfway.runs[0].levels] == [1, 2]


# --- the ledger ----------------------------------------------------------------------------------------


async def test_results_are_found_by_id_by_engine_and_as_the_last(lab: Lab) -> None:
    results = lab.context[Results]
    for key, said in (("last", "no result yet"), ("nope", "no result nope: nothing was measured yet")):
        with pytest.raises(UsageError, match=said) as none:
            results.find(key)
        assert "spark-tui bench" in none.value.remedy
    (first,) = await lab.run(PLAN)
    (second,) = await lab.run(PLAN)
    assert results.find(first.id[:5]).run == first
    assert results.find("last").run == results.find("tiny").run == second
    assert results.compare(second.id).first == first
    with pytest.raises(UsageError, match="no result nope"):
        results.find("nope")


async def test_a_verdict_needs_its_reason(lab: Lab) -> None:
    results = lab.context[Results]
    kept = results.mark("acme/big", Status.FAILED, reason="error 35")
    assert results.find("acme/big") == kept
    with pytest.raises(UsageError, match="needs its reason"):
        results.mark("acme/big", Status.FAILED, reason=" ")
    with pytest.raises(UsageError):
        results.mark("acme/big", Status.BENCHMARKED)
    with pytest.raises(UsageError, match="not measured"):
        results.measured(kept.id)


# --- the server's own page ------------------------------------------------------------------------------


PAGE = pages.vllm(generation_tokens_total=1000)
REFUSED = (
    MetricsUnavailable("None.", "Ask for one."),
    ApiKeyRejected("No.", "Set it."),
    EngineUnreachable("Gone.", "Start it."),
    EngineFailed("No page.", "Look."),
)


async def page_of(source: FakeMetrics, runtime: str = "vllm", *, simulated: bool = False) -> BenchRun:
    """A run whose metrics come from that source: the page is read before and after it."""
    clock = SystemClock()
    driver = FakeLoad(clock, simulated=simulated)
    conditions = Conditions(engine="tiny", model="acme/tiny", served_name="tiny")
    session = BenchSession(driver, source, Endpoint("http://x", runtime=runtime), PLAN, conditions, at=0.0, salt=1)
    await session.begin()
    await session.end()
    return session.run(1.0)


async def test_the_page_of_a_server_that_counts_as_we_do_is_read_before_and_after() -> None:
    source = FakeMetrics(SystemClock(), page=lambda _: PAGE)
    assert (await page_of(source)).checks
    assert len(source.asked) == 2


@pytest.mark.parametrize(("runtime", "simulated"), [("sglang", False), ("llama-cpp", False), ("vllm", True)])
async def test_a_page_that_counts_something_else_is_not_held_against_ours(runtime: str, simulated: bool) -> None:
    source = FakeMetrics(SystemClock(), page=lambda _: PAGE)
    assert (await page_of(source, runtime, simulated=simulated)).checks == ()
    assert source.asked == []


@pytest.mark.parametrize("error", REFUSED, ids=lambda error: error.id)
async def test_without_a_page_the_figures_stand_alone(error: SparkError) -> None:
    assert (await page_of(FakeMetrics(SystemClock(), error=error))).checks == ()
