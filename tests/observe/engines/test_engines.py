"""The supervisor: what runs is found, followed, and told; what fails is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_PRESET, ContainerStatus, PublishedPort
from spark_tui.base.engine.state import EngineState, Health, bare_engine
from spark_tui.base.errors import ApiKeyRejected, ContainerNotFound, RefusedError
from spark_tui.base.finding import Event, EventKind, Missing, Ok, Severity, Stale, value_of
from spark_tui.base.host.vitals import GpuProcess, GpuReading
from spark_tui.base.jobs import StepState
from spark_tui.base.quantities import GIB
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.observe.engines.use.collectors import Collectors
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.feature import ENGINES, EXPLANATIONS
from spark_tui.observe.explain.model.timeline import StartOutcome
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.memory.use.memory import MemoryInspector
from spark_tui.observe.metrics.use.history import remember
from spark_tui.observe.results.use import Results
from spark_tui.run.launch.use.launch import LaunchRequest
from spark_tui.run.launch.use.runner import JobRunner
from tests.bench_kit import SPARK, a_run
from tests.engine_logs import stats
from tests.fakes_docker import EPOCH
from tests.kit import PRESET, Kit
from tests.log_fixtures import read_log

PORT = (PublishedPort(8000, 8000),)


def engines(kit: Kit) -> dict[str, EngineView]:
    return {view.name: view for view in value_of(kit.context.store.world[ENGINES]) or ()}


@asynccontextmanager
async def serving(name: str = "one", **facts: object) -> AsyncIterator[Kit]:
    """A supervised kit with one engine that serves."""
    kit = Kit()
    kit.docker.add_container(name, ports=PORT, **facts)
    kit.api.serve()
    async with kit.supervised():
        await kit.until(lambda: name in engines(kit) and engines(kit)[name].state is EngineState.SERVING)
        yield kit


async def test_engines_are_found_and_other_containers_are_not() -> None:
    kit = Kit()
    kit.docker.add_container("foreign", ports=PORT)
    kit.docker.add_container("database", image="postgres:17")
    async with kit.supervised():
        await kit.until(lambda: bool(engines(kit)))
        assert set(engines(kit)) == {"foreign"}
        assert not engines(kit)["foreign"].container.ours


async def test_one_look_follows_no_log_and_what_is_watched_later_is_followed() -> None:
    kit = Kit()
    kit.docker.add_container("one", ports=PORT)
    kit.api.serve()
    look = asyncio.create_task(kit.context[EngineSupervisor].look())
    await kit.until(look.done)
    assert [view.state for view in look.result()] == [EngineState.SERVING]
    watch = kit.context[EngineSupervisor].get("one")
    kit.docker.write("one", "a later line")
    await kit.clock.advance(1)
    assert "a later line" not in watch.buffer.unmasked(0, watch.buffer.end)
    await kit.context[EngineSupervisor].watch("one")
    await kit.until(lambda: "a later line" in watch.buffer.unmasked(0, watch.buffer.end))
    await kit.context[EngineSupervisor].close()


async def test_a_box_without_engines_is_known_to_have_none() -> None:
    kit = Kit()
    async with kit.supervised():
        await kit.clock.advance(1)
        assert kit.context.store.world[ENGINES] == Ok(())


async def test_without_docker_the_engines_are_unknown_and_not_none() -> None:
    kit = Kit()
    kit.docker.go_down()
    async with kit.supervised():
        await kit.clock.advance(1)
        assert isinstance(kit.context.store.world[ENGINES], Missing)


async def test_of_a_docker_that_is_silent_the_engines_are_stale_after_five_seconds_and_fresh_once_it_answers() -> None:
    async with serving() as kit:
        kit.docker.hold("containers")
        kit.context[EngineSupervisor].wake()
        await kit.clock.advance(4.0)
        assert isinstance(kit.context.store.world[ENGINES], Ok)
        await kit.clock.advance(2.0)
        found = kit.context.store.world[ENGINES]
        assert isinstance(found, Stale)
        assert "5 s" in found.error
        kit.docker.release()
        await kit.until(lambda: isinstance(kit.context.store.world[ENGINES], Ok))


async def test_when_docker_goes_away_the_last_engines_are_stale_and_when_it_comes_back_fresh() -> None:
    kit = Kit()
    kit.docker.add_container("one", ports=PORT)
    async with kit.supervised():
        await kit.until(lambda: bool(engines(kit)))
        kit.docker.go_down()
        await kit.until(lambda: isinstance(kit.context.store.world[ENGINES], Stale))
        assert set(engines(kit)) == {"one"}
        kit.docker.come_back()
        await kit.until(lambda: isinstance(kit.context.store.world[ENGINES], Ok))


async def test_the_boot_history_of_an_engine_that_serves_already_is_read_from_its_log() -> None:
    kit = Kit()
    lines = read_log("gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp")
    kit.docker.add_container("old", ports=PORT, lines=[*lines, *("a later line" for _ in range(100))])
    kit.api.serve()
    async with kit.supervised():
        await kit.until(lambda: "old" in engines(kit) and engines(kit)["old"].state is EngineState.SERVING)
        facts = engines(kit)["old"].timeline.facts
        assert facts.kv_tokens == 5_463_232
        watch = kit.context[EngineSupervisor].get("old")
        await kit.until(lambda: watch.buffer.end >= len(lines) + 100)
        texts = [line.text for line in watch.buffer.slice(watch.buffer.first, watch.buffer.end)]
        assert texts[-1] == "a later line"
        assert len(texts) == len(lines) + 100, "no line is lost, none comes twice"


async def test_a_start_and_an_end_are_events_and_what_was_there_before_is_not() -> None:
    kit = Kit()
    kit.docker.add_container("old", ports=PORT)
    async with kit.supervised():
        await kit.until(lambda: "old" in engines(kit))
        assert kit.context.store.world.events == ()
        kit.docker.end("old", 1)
        await kit.until(lambda: engines(kit)["old"].state is EngineState.FAILED)
        assert "old failed (exit 1)" in kit.context.store.world.events[-1].text


@pytest.mark.parametrize(("seconds", "count"), [(-600, 2), (5, 1)])
async def test_that_a_start_is_ready_is_told_once_however_often_the_program_opens(seconds: float, count: int) -> None:
    """`seconds`: when it was told in an earlier run of the program, from the engine's start."""
    kit = Kit()
    started = kit.clock.now()
    kit.docker.add_container("qwen", ports=PORT, lines=(CORE_DIED[0],), started_at=started)
    told = Event(started + seconds, Severity.INFO, "qwen ready", kind=EventKind.READY, subject="qwen")
    kit.context.store.add_event(told)
    async with kit.supervised():
        await kit.until(lambda: bool(engines(kit)))
        kit.api.serve()
        await kit.until(lambda: engines(kit)["qwen"].state is EngineState.SERVING)
        assert [event.kind for event in kit.context.store.world.events] == [EventKind.READY] * count


async def test_our_own_stop_is_not_a_failure_even_when_it_took_a_kill() -> None:
    kit = Kit()
    kit.docker.add_container("slow", ports=PORT)
    kit.docker.exit_code_on_stop = 137
    async with kit.supervised():
        await kit.until(lambda: "slow" in engines(kit))
        await kit.context[EngineSupervisor].stop("slow")
        assert engines(kit)["slow"].state is EngineState.STOPPED


@pytest.mark.parametrize(
    ("exit_code", "signal", "state"),
    [
        (137, 9, EngineState.STOPPED),
        (1, 15, EngineState.STOPPED),
        (1, 1, EngineState.FAILED),  # SIGHUP asks for no end
        (137, None, EngineState.FAILED),
        (1, None, EngineState.FAILED),
    ],
)
async def test_who_was_told_to_end_through_docker_has_not_failed(
    exit_code: int, signal: int | None, state: EngineState
) -> None:
    """`signal`: what another program had Docker send; None where nobody did."""
    async with serving() as kit:
        if signal is None:
            kit.docker.end("one", exit_code)
        else:
            kit.docker.kill("one", exit_code, signal)
        await kit.until(lambda: not engines(kit)["one"].container.running)
        await kit.until(lambda: engines(kit)["one"].state is state)
        kinds = {event.kind for event in kit.context.store.world.events}
        assert (EventKind.FAILED in kinds) is (state is EngineState.FAILED)


async def test_a_failed_engine_that_is_stopped_has_failed_all_the_same() -> None:
    kit = Kit()
    kit.docker.add_container("one", ports=PORT, status=ContainerStatus.EXITED, exit_code=1)
    async with kit.supervised():
        await kit.until(lambda: "one" in engines(kit))
        await kit.context[EngineSupervisor].stop("one")
        assert engines(kit)["one"].state is EngineState.FAILED


async def test_a_signal_that_was_ignored_long_ago_does_not_excuse_a_failure() -> None:
    async with serving() as kit:
        kit.docker.signal("one", ago=3_600)
        await kit.clock.advance(1)
        kit.docker.end("one", 1)
        await kit.until(lambda: not engines(kit)["one"].container.running)
        assert engines(kit)["one"].state is EngineState.FAILED


CORE_DIED = (  # vLLM 0.32.0 on a CPU, in the middle of an answer; the container's exit code was 0
    "INFO:     Application startup complete.",
    "(Worker pid=39) ERROR 11-21 19:15:56 [multiproc_executor.py:1063] WorkerProc hit an exception.",
    "(Worker pid=39) ERROR 11-21 19:15:56 [multiproc_executor.py:1063] Traceback (most recent call last):",
    "(Worker pid=39) ERROR 11-21 19:15:56 [multiproc_executor.py:1063]     raise exc.InvalidCxxCompiler",
    "(Worker pid=39) ERROR 11-21 19:15:56 [multiproc_executor.py:1063] torch._inductor.exc.InductorError: "
    "InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')",
    "(EngineCore pid=26) ERROR 11-21 19:15:56 [core.py:1512] EngineCore encountered a fatal error.",
    "(EngineCore pid=26) ERROR 11-21 19:15:56 [core.py:1512] Traceback (most recent call last):",
    "(EngineCore pid=26) ERROR 11-21 19:15:56 [core.py:1512] RuntimeError: Worker failed with error "
    "'InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')",
    "INFO:     Shutting down",
    "INFO:     Application shutdown complete.",
)
STOPPED_BY_SOMEBODY = (CORE_DIED[0], *CORE_DIED[-2:])


@pytest.mark.parametrize(
    ("lines", "state"), [(CORE_DIED, EngineState.FAILED), (STOPPED_BY_SOMEBODY, EngineState.STOPPED)]
)
async def test_an_engine_whose_core_died_has_failed_although_its_server_ended_well(
    lines: tuple[str, ...], state: EngineState
) -> None:
    kit = Kit()
    kit.docker.add_container("qwen", ports=PORT, status=ContainerStatus.EXITED, exit_code=0, lines=lines)
    async with kit.supervised():
        await kit.until(lambda: "qwen" in engines(kit) and engines(kit)["qwen"].timeline.ready)
        assert engines(kit)["qwen"].state is state
        why = kit.context.store.world[EXPLANATIONS]["qwen"].cause
        words = "" if why is None else " ".join((why.summary, *why.evidence))
        assert ("compiler" in words) is (state is EngineState.FAILED)


async def test_the_last_lines_say_why_although_docker_told_the_end_before_them() -> None:
    kit = Kit()
    kit.docker.add_container("qwen", ports=PORT, lines=CORE_DIED)
    kit.docker.hold("logs")
    async with kit.supervised():
        await kit.until(lambda: "qwen" in engines(kit))
        kit.docker.end("qwen", 0)
        await kit.until(lambda: not engines(kit)["qwen"].container.running)
        kit.docker.release()
        await kit.until(lambda: engines(kit)["qwen"].timeline.outcome is StartOutcome.FAILED)
        assert engines(kit)["qwen"].state is EngineState.FAILED


async def test_explanations_are_renewed_by_the_clock_without_a_new_line() -> None:
    kit = Kit()
    kit.api.serve()
    kit.docker.add_container("qwen", ports=PORT, lines=[stats(0, running=1), stats(10, running=1)])

    def stuck() -> str:
        (hang,) = kit.context.store.world[EXPLANATIONS]["qwen"].findings
        assert hang.id == "hang"
        return hang.summary

    async with kit.supervised():
        await kit.until(lambda: "qwen" in engines(kit) and engines(kit)["qwen"].state is EngineState.SERVING)
        view, first = engines(kit)["qwen"], stuck()
        await kit.until(lambda: stuck() != first)
        assert engines(kit)["qwen"] == view


async def test_an_engine_that_stops_answering_is_not_called_serving() -> None:
    async with serving() as kit:
        kit.api.state = Health.DEAD
        await kit.until(lambda: engines(kit)["one"].state is EngineState.NOT_ANSWERING)


async def test_an_engine_with_a_key_that_we_do_not_have_serves_all_the_same() -> None:
    kit = Kit()
    kit.docker.add_container("locked", ports=PORT)
    kit.api.serve()
    kit.api.models_error = ApiKeyRejected("Another key.", "Set it.")
    async with kit.supervised():
        await kit.until(lambda: "locked" in engines(kit) and engines(kit)["locked"].state is EngineState.SERVING)


async def test_a_serving_engine_is_asked_seldom_because_every_question_is_a_line_in_its_log() -> None:
    async with serving() as kit:
        before = kit.api.health_calls
        await kit.clock.advance(60)
        assert kit.api.health_calls - before <= 5


async def test_a_container_that_is_started_again_begins_a_new_history() -> None:
    async with serving(lines=read_log("gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp")) as kit:
        kit.docker.on_start = None
        kit.api.state = Health.NOT_LISTENING
        await kit.context[EngineSupervisor].restart("one")
        await kit.clock.advance(2)
        view = engines(kit)["one"]
        assert view.state is EngineState.STARTING
        assert not view.timeline.ready


async def test_an_engine_that_starts_and_fails_between_two_looks_has_its_cause() -> None:
    kit = Kit()
    kit.docker.add_container("brief", status=ContainerStatus.CREATED)
    async with kit.supervised():
        await kit.until(lambda: "brief" in engines(kit))
        await kit.clock.advance(1)
        kit.docker.write("brief", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
        kit.docker.end("brief", 1, started_at=EPOCH)
        await kit.until(lambda: engines(kit)["brief"].timeline.failure is not None)
        failure = engines(kit)["brief"].timeline.failure
        assert failure is not None and "OutOfMemoryError" in failure.line, failure


async def test_an_unknown_name_says_what_there_is() -> None:
    kit = Kit()
    kit.docker.add_container("one", ports=PORT)
    async with kit.supervised():
        await kit.until(lambda: bool(engines(kit)))
        with pytest.raises(ContainerNotFound) as caught:
            kit.context[EngineSupervisor].get("two")
        assert "one" in caught.value.remedy


# --- jobs ---------------------------------------------------------------------------------------------------


async def test_a_job_shows_its_steps_and_its_failure_with_the_remedy() -> None:
    kit = Kit()
    kit.host.ports[8000] = "nginx (pid 7)"
    kit.context[JobRunner].launch(LaunchRequest(PRESET, Overrides()))
    await kit.until(lambda: kit.context.store.world.jobs[0].state is not StepState.RUNNING)
    [job] = kit.context.store.world.jobs
    assert job.state is StepState.FAILED
    assert "nginx" in job.error
    assert "8001" in job.remedy
    assert "nginx" in kit.context.store.world.events[-1].text


async def test_one_engine_is_not_launched_twice_at_once() -> None:
    kit = Kit()
    kit.docker.on_start = None
    kit.context[JobRunner].launch(LaunchRequest(PRESET, Overrides()))
    await kit.clock.advance(1)
    with pytest.raises(RefusedError):
        kit.context[JobRunner].launch(LaunchRequest(PRESET, Overrides()))
    await kit.context[JobRunner].close()


async def test_a_cancelled_launch_stops_what_it_started_and_keeps_the_container() -> None:
    kit = Kit()
    kit.docker.on_start = None
    async with kit.supervised():
        kit.context[JobRunner].launch(LaunchRequest(PRESET, Overrides()))
        await kit.until(lambda: kit.docker.named("qwen") is not None and kit.docker.named("qwen").running)
        await kit.context[JobRunner].cancel("qwen")
        facts = kit.docker.named("qwen")
        assert facts is not None
        assert facts.status is ContainerStatus.EXITED
        [job] = kit.context.store.world.jobs
        assert job.state is StepState.CANCELLED


async def test_closing_the_program_leaves_the_container_running_and_the_next_start_follows_it_to_ready() -> None:
    kit = Kit()
    kit.docker.on_start = None
    kit.context[JobRunner].launch(LaunchRequest(PRESET, Overrides()))
    await kit.until(lambda: kit.docker.named("qwen") is not None and kit.docker.named("qwen").running)
    await kit.context[JobRunner].close()
    await kit.context[EngineSupervisor].close()

    supervisor, jobs = kit.context[EngineSupervisor], kit.context[JobRunner]
    async with kit.supervised():
        await kit.until(lambda: "qwen" in engines(kit))
        await jobs.resume_starting()
        kit.api.serve()
        await kit.until(lambda: kit.context.store.world.jobs[-1].state is StepState.DONE)
        assert supervisor.get("qwen").state is EngineState.SERVING
        assert len(kit.api.requests) == 1, "it was warmed once"
        await jobs.resume_starting()
        assert jobs.running("qwen") is None, "an engine that serves needs no follow-up"


async def test_an_engine_that_serves_when_the_program_opens_is_left_alone() -> None:
    kit = Kit()
    kit.context[JobRunner].launch(LaunchRequest(PRESET, Overrides(), warm=False))
    await kit.until(lambda: not kit.context[JobRunner].running("qwen"))
    await kit.context.close()

    kit.context = kit.opened()
    async with kit.whole():
        await kit.until(lambda: "qwen" in engines(kit) and engines(kit)["qwen"].state is EngineState.SERVING)
        await kit.clock.advance(5)
        assert kit.context.store.world.jobs == ()
        assert not kit.api.requests


async def test_a_launch_under_way_when_the_program_was_closed_goes_on_when_it_opens() -> None:
    kit = Kit()
    kit.docker.on_start = None
    kit.context[JobRunner].launch(LaunchRequest(PRESET, Overrides()))
    await kit.until(lambda: kit.docker.named("qwen") is not None and kit.docker.named("qwen").running)
    await kit.context.close()

    kit.context = kit.opened()
    async with kit.whole():
        await kit.until(lambda: bool(kit.context.store.world.jobs))
        kit.api.serve()
        await kit.until(lambda: kit.context.store.world.jobs[-1].state is StepState.DONE)
        assert len(kit.api.requests) == 1, "it was warmed once"


OOM = "2027-01-15T06:59:59+0000 spark kernel: Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:1kB"


@pytest.mark.parametrize("watched", [False, True])
async def test_the_kernels_lines_decide_where_the_log_does_not(watched: bool) -> None:
    kit = Kit()
    kit.host.kernel = (OOM, "usb 1-1: new device")
    ended = {} if watched else {"status": ContainerStatus.EXITED, "exit_code": 137, "finished_at": EPOCH}
    kit.docker.add_container("qwen", ports=PORT, lines=["loading"], **ended)

    def evidence() -> tuple[str, ...]:
        found = kit.context.store.world[EXPLANATIONS].get("qwen")
        return found.cause.evidence if found is not None and found.cause is not None else ()

    async with kit.supervised():
        await kit.until(lambda: "qwen" in engines(kit))
        if watched:
            kit.docker.end("qwen", 137)
        await kit.until(lambda: OOM in evidence())
        cause = kit.context.store.world[EXPLANATIONS]["qwen"].cause
        assert cause is not None
        assert "memory" in cause.summary
        assert not any("usb" in line for line in evidence())


async def test_an_engine_slower_than_it_was_before_this_start_is_a_finding() -> None:
    kit = Kit()
    kit.api.serve()
    lines = [stats(at, generation=13.0, running=1) for at in range(0, 60, 10)]
    labels = ((LABEL_PRESET, "qwen"),)
    made = kit.docker.add_container("qwen", ports=PORT, lines=lines, labels=labels, image_id="sha256:one")
    same = replace(SPARK, preset="qwen", image_id="sha256:one", flags=())
    began = made.started_at or 0.0
    for run in (
        a_run("before", conditions=same, at=began - 10),
        a_run("since", (1, (90.0,)), conditions=same, at=began + 1),
        a_run("other image", (1, (90.0,)), conditions=replace(same, image_id="sha256:two"), at=began - 10),
        a_run("other options", (1, (90.0,)), conditions=replace(same, flags=("--seed 7",)), at=began - 10),
    ):
        kit.context[Results].keep(run)
    await remember(kit.context)
    baseline = kit.context[Results].baseline(made)
    assert baseline is not None
    assert (round(baseline.decode_rate), baseline.runs) == (42, 1)
    async with kit.supervised():
        await kit.until(lambda: "qwen" in engines(kit) and engines(kit)["qwen"].state is EngineState.SERVING)
        await kit.until(lambda: "qwen" in kit.context.store.world[EXPLANATIONS])
        assert "below_baseline" in [each.id for each in kit.context.store.world[EXPLANATIONS]["qwen"].findings]


# --- outside Docker -----------------------------------------------------------------------------------------

BARE = bare_engine(4711, ("vllm", "serve", "org/qwen", "--port", "8011"), (), EPOCH)
assert BARE is not None


async def test_a_server_outside_docker_serves_with_docker_or_without_and_goes_when_it_ends() -> None:
    kit = Kit()
    kit.host.processes = (BARE,)
    kit.docker.add_container("one", ports=PORT)
    kit.api.serve()
    async with kit.supervised():
        await kit.until(lambda: len(engines(kit)) == 2 and engines(kit)["vllm-8011"].state is EngineState.SERVING)
        watch = kit.context[EngineSupervisor].get("vllm-8011")
        await watch.settled()
        assert watch.buffer.reason.startswith("it runs outside Docker")
        assert watch.endpoint is not None
        assert watch.endpoint.base_url == "http://127.0.0.1:8011"
        kit.docker.go_down()
        await kit.context[EngineSupervisor].refresh()
        assert set(engines(kit)) == {"one", "vllm-8011"}
        kit.host.processes = ()
        await kit.context[EngineSupervisor].refresh()
        assert set(engines(kit)) == {"one"}
        assert isinstance(kit.context.store.world[ENGINES], Stale)


async def test_without_docker_a_server_outside_it_is_shown_and_why_nothing_else_is() -> None:
    kit = Kit()
    kit.host.processes = (BARE,)
    kit.docker.go_down()
    kit.api.serve()
    async with kit.supervised():
        await kit.until(lambda: bool(engines(kit)))
        found = kit.context.store.world[ENGINES]
        assert isinstance(found, Stale)
        assert "Docker" in found.error


@pytest.mark.parametrize("verb", ["stop", "restart", "remove"])
async def test_a_server_outside_docker_is_left_alone_and_the_refusal_names_its_process(verb: str) -> None:
    kit = Kit()
    kit.host.processes = (BARE,)
    kit.api.serve()
    async with kit.supervised():
        await kit.until(lambda: bool(engines(kit)))
        with pytest.raises(RefusedError, match="kill 4711"):
            await getattr(kit.context[EngineSupervisor], verb)("vllm-8011")
        assert engines(kit)["vllm-8011"].state is EngineState.SERVING
        assert not engines(kit)["vllm-8011"].stopping


@pytest.mark.parametrize("unified", [True, False], ids=["unified memory", "a GPU with memory of its own"])
async def test_the_gpu_memory_of_a_server_outside_docker_is_its_processes(unified: bool) -> None:
    kit = Kit()
    kit.host.processes, kit.host.parents = (BARE,), {4712: 4711}
    kit.gpu.value = Ok(GpuReading("NVIDIA", unified=unified, processes=(GpuProcess(4712, 2 * GIB),)), 0.0)
    kit.docker.go_down()
    kit.api.serve()
    async with kit.supervised():
        await kit.until(lambda: bool(engines(kit)))
        await kit.context[Collectors].collect_once()
        detail = await kit.context[MemoryInspector].look()
        assert [(each.name, each.gpu) for each in value_of(detail.containers) or ()] == [("vllm-8011", 2 * GIB)]
