"""A launch against the memory there is: what cannot fit is refused, what comes back is awaited, nothing is guessed."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerStatus
from spark_tui.base.errors import ExitCode
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.jobs import StepState
from spark_tui.base.quantities import GIB
from spark_tui.catalog.fit.use.fit import (
    CALM_SECONDS,
    RETURN_SECONDS,
    STILL_SECONDS,
    LaunchChecks,
    MemoryGate,
    WillNotFit,
)
from spark_tui.catalog.presets.model.overrides import Overrides, settings_text
from spark_tui.catalog.presets.model.preset import PresetFacts
from spark_tui.observe.engines.use.collectors import Collectors
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest
from tests.fakes_api import FakeEngineApi
from tests.fakes_docker import EPOCH as DOCKER_EPOCH
from tests.fakes_host import IDLE_MEMORY, FakeClock
from tests.kit import PRESET, Kit
from tests.shipped import SHIPPED_FILES

BIG = replace(
    PRESET,
    command="vllm serve {model} --port {port} --gpu-memory-utilization {gpu_memory_utilization}",
    defaults=(("port", 8000), ("gpu_memory_utilization", 0.85)),
    facts=PresetFacts(weights_bytes=40 * GIB),
)

YARN = next(each for each in SHIPPED_FILES.load().presets if each.name == "qwen3.6-27b-nvfp4-yarn-1m")


def available(kit: Kit, size: float) -> None:
    """So much memory is available, and free."""
    memory = replace(IDLE_MEMORY, available=int(size * GIB), free=int(size * GIB), cached=0)
    kit.host.memory_value = Ok(replace(memory, active_file=0, inactive_file=0), kit.clock.now())


def kit_on_dockers_clock() -> Kit:
    """A core whose clock is the fake engine's: what ends now has ended now."""
    kit = Kit()
    kit.clock = FakeClock(now=DOCKER_EPOCH + 60)
    kit.api = FakeEngineApi(kit.clock)
    kit.context = kit.opened()
    return kit


async def launched(kit: Kit, **changes: object) -> asyncio.Task[object]:
    request = LaunchRequest(BIG, Overrides(), **changes)  # type: ignore[arg-type]
    task: asyncio.Task[object] = asyncio.create_task(kit.context[Launcher].launch(request, kit.report))
    await kit.until(task.done)
    return task


def told(kit: Kit, words: str) -> bool:
    """Whether the memory step has said so."""
    return any(step.id == "memory" and words in step.detail for step in kit.reports)


def ended(kit: Kit, ago: float, name: str = "old") -> None:
    """An engine that has ended so many seconds ago."""
    kit.docker.add_container(
        name, status=ContainerStatus.EXITED, exit_code=0, finished_at=kit.clock.now() - ago, argv=("vllm", "serve")
    )


async def test_what_would_make_it_fit_is_named_with_what_a_rule_asks_for_beside_it() -> None:
    """A shorter context needs no YaRN: the list and the refusal say the same."""
    kit = Kit(YARN)
    kit.docker.add_image(YARN.reference)
    available(kit, 60)
    await kit.context[Collectors].collect_once()
    wanted = (await kit.context[LaunchChecks].judge(YARN, Overrides())).fit.change
    assert [key for key, _ in wanted] == ["max_model_len", "without"]
    task: asyncio.Task[object] = asyncio.create_task(
        kit.context[Launcher].launch(LaunchRequest(YARN, Overrides()), kit.report)
    )
    await kit.until(task.done)
    error = task.exception()
    assert isinstance(error, WillNotFit)
    assert error.fit.change == wanted and settings_text(wanted) in error.remedy


async def test_a_launch_that_cannot_fit_is_refused_with_the_numbers_and_the_ways_out() -> None:
    kit = Kit()
    available(kit, 40)
    kit.docker._images.clear()
    kit.docker.add_remote_image(BIG.image)
    task = await launched(kit)
    error = task.exception()
    assert isinstance(error, WillNotFit)
    assert error.exit_code is ExitCode.REFUSED
    assert "102.9 GiB" in error.summary
    assert "40.0 GiB" in error.summary
    assert "--force" in error.remedy
    assert "Available now" in error.detail
    assert kit.step("preflight").state is StepState.FAILED
    assert not kit.docker.asked("pull"), "refused before 20 GB are fetched"
    assert not kit.docker.created


async def test_a_person_who_insists_launches_it_all_the_same() -> None:
    kit = Kit()
    available(kit, 40)
    task = await launched(kit, force=True)
    assert task.exception() is None
    assert kit.step("memory").detail.startswith("does not fit")


async def test_a_fit_that_is_not_known_never_refuses() -> None:
    kit = Kit()
    request = LaunchRequest(PRESET, Overrides())
    task = asyncio.create_task(kit.context[Launcher].launch(request, kit.report))
    await kit.until(task.done)
    assert task.exception() is None
    assert kit.step("memory").detail == "fit unknown"


async def test_where_memory_cannot_be_read_nothing_is_refused() -> None:
    kit = Kit()
    kit.host.memory_value = Missing("no /proc")
    task = await launched(kit)
    assert task.exception() is None


async def test_memory_of_an_engine_that_has_just_ended_is_awaited_and_told() -> None:
    kit = Kit()
    available(kit, 40)
    ended(kit, ago=5)
    task = asyncio.create_task(kit.context[Launcher].launch(LaunchRequest(BIG, Overrides()), kit.report))
    await kit.until(lambda: told(kit, "waiting for old to release memory"))
    available(kit, 80)
    await kit.until(lambda: told(kit, "80.0 GiB available"))
    assert not task.done(), "it still lacks some"
    available(kit, 116)
    await kit.until(lambda: told(kit, "116.0 GiB available"))
    assert not kit.docker.created, "memory that still moves fails the engine's own measurement"
    await kit.until(task.done)
    assert task.exception() is None
    assert "old released 76.0 GiB" in kit.step("memory").detail


async def test_memory_that_does_not_come_back_is_awaited_no_longer_than_it_may_take() -> None:
    kit = Kit()
    available(kit, 40)
    ended(kit, ago=5)
    before = kit.clock.monotonic()
    task = await launched(kit)
    assert isinstance(task.exception(), WillNotFit)
    assert STILL_SECONDS <= kit.clock.monotonic() - before < STILL_SECONDS + 10
    assert not kit.docker.created


async def test_memory_that_creeps_back_for_ever_is_given_up() -> None:
    kit = Kit()
    available(kit, 10)
    ended(kit, ago=1)
    task = asyncio.create_task(kit.context[Launcher].launch(LaunchRequest(BIG, Overrides()), kit.report))
    await kit.until(lambda: told(kit, "waiting"))
    before = kit.clock.monotonic()
    for step in range(400):
        available(kit, 10 + step * 0.2)
        await kit.clock.advance(1)
        if task.done():
            break
    assert isinstance(task.exception(), WillNotFit)
    assert kit.clock.monotonic() - before <= RETURN_SECONDS + 5


async def test_an_engine_that_ended_long_ago_is_not_waited_for() -> None:
    kit = Kit()
    available(kit, 40)
    ended(kit, ago=RETURN_SECONDS + 1)
    before = kit.clock.monotonic()
    task = await launched(kit)
    assert isinstance(task.exception(), WillNotFit)
    assert kit.clock.monotonic() - before < 5


async def test_an_engine_that_is_replaced_is_stopped_and_its_memory_awaited_before_the_new_one_is_made() -> None:
    kit = kit_on_dockers_clock()
    first = await launched(kit)
    assert first.exception() is None
    changed = LaunchRequest(BIG, Overrides(max_model_len=8192), replace_running=True)
    task = asyncio.create_task(kit.context[Launcher].launch(changed, kit.report))
    await kit.until(lambda: bool(kit.docker.asked("stop")))
    available(kit, 40)
    await kit.until(lambda: any("GiB available" in step.detail for step in kit.reports))
    assert len(kit.docker.created) == 1, "nothing is made while memory is missing"
    available(kit, 116)
    await kit.until(task.done)
    assert task.exception() is None
    assert len(kit.docker.created) == 2


async def test_a_restart_starts_again_only_when_memory_stands_still() -> None:
    kit = kit_on_dockers_clock()
    await launched(kit)
    available(kit, 40)
    supervisor = kit.context[EngineSupervisor]
    task = asyncio.create_task(supervisor.restart("qwen", settle=kit.context[MemoryGate].await_return))
    await kit.clock.advance(1)
    available(kit, 100)
    await kit.clock.advance(CALM_SECONDS)
    assert not task.done()
    await kit.until(task.done)
    facts = kit.docker.named("qwen")
    assert facts is not None
    assert facts.running
