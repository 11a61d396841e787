"""Start at boot: the launch that a unit runs, and the service that stays with its engine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from spark_tui.base.engine.container import (
    LABEL_LAUNCH,
    LABEL_OVERRIDES,
    LABEL_PRESET,
    LABEL_RANK,
    ContainerStatus,
    PublishedPort,
)
from spark_tui.base.engine.units import (
    BootState,
    BootStatus,
    ScheduleStatus,
    Unit,
    engine_of,
    read_timer,
    schedule_of,
    scheduled_engine,
    unit_texts,
)
from spark_tui.base.errors import ContainerNotFound, DaemonNotRunning, EngineExited, RefusedError, UnreachableError
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.run.launch.use.service import GONE_SECONDS, await_docker, due_now, stay
from spark_tui.run.service.use import BootUnits
from tests.kit import Kit

NEXT = "Fri 2027-01-15 23:00:00 CET"
OURS = ((LABEL_PRESET, "qwen"), (LABEL_OVERRIDES, '{"max_model_len": "8192"}'))


class FakeBoot:
    """A Units that notes what it was asked."""

    def __init__(self) -> None:
        self.units: dict[str, tuple[str, ...]] = {}
        self.timers: dict[str, tuple[tuple[str, ...], str]] = {}

    def all(self) -> tuple[BootStatus, ...]:
        return tuple(BootStatus(name, BootState.ENABLED) for name in self.units)

    def path(self, name: str) -> Path:
        return Path("/nowhere") / name

    def files(self, unit: Unit, *, system: bool = False) -> Mapping[str, str]:
        return unit_texts(unit, unit.words, ())

    def install(self, unit: Unit, *, system: bool = False) -> None:
        if engine := engine_of(unit.name):
            self.units[engine] = unit.words
        else:
            self.timers[unit.name] = (unit.words, unit.data)

    def remove(self, name: str, *, machine: bool = True) -> bool:
        return (self.units.pop(engine_of(name), None) or self.timers.pop(name, None)) is not None

    def schedules(self) -> tuple[ScheduleStatus, ...]:
        shown = {name: {"UnitFileState": "enabled", "NextElapseUSecRealtime": NEXT} for name in self.timers}
        found = (
            read_timer(scheduled_engine(name), data, shown, system=False, lingers=True)
            for name, (_, data) in self.timers.items()
        )
        return tuple(filter(None, found))


@pytest.fixture
def kit() -> Kit:
    return Kit()


@pytest.fixture
def port() -> FakeBoot:
    return FakeBoot()


@pytest.fixture
def boot(kit: Kit, port: FakeBoot) -> BootUnits:
    return BootUnits(port, kit.context[EngineSupervisor], kit.clock)


async def test_an_engine_is_enabled_with_its_settings_and_disabled_again(
    kit: Kit, port: FakeBoot, boot: BootUnits
) -> None:
    kit.docker.add_container("qwen", labels=OURS, ports=(PublishedPort(8000, 8001),))
    assert (await boot.enable("qwen")).state is BootState.ENABLED
    words = port.units["qwen"]
    assert words[:3] == ("up", "qwen", "--service")
    assert {"max_model_len=8192", "name=qwen", "port=8001", "exposure=local", "api_key=no"} <= set(words)
    assert boot.known["qwen"].on
    assert (await boot.disable("qwen")).state is BootState.OFF
    with pytest.raises(RefusedError):
        await boot.disable("qwen")


async def test_a_foreign_engine_is_refused(kit: Kit, boot: BootUnits) -> None:
    kit.docker.add_container("foreign", argv=("vllm", "serve", "org/model"))
    with pytest.raises(RefusedError):
        await boot.enable("foreign")


async def test_an_engine_on_several_nodes_is_refused(kit: Kit, port: FakeBoot, boot: BootUnits) -> None:
    kit.docker.add_container("big-rank0", labels=(*OURS, (LABEL_LAUNCH, "l"), (LABEL_RANK, "0/2")))
    with pytest.raises(RefusedError):
        await boot.enable("big-rank0")
    with pytest.raises(RefusedError):
        await boot.schedule("big-rank0", schedule_of("23:00-"))
    assert not port.timers


async def test_the_service_waits_for_docker(kit: Kit) -> None:
    kit.docker.go_down()
    waiting = asyncio.create_task(await_docker(kit.docker, kit.clock))
    await kit.clock.advance(60)
    assert not waiting.done()
    kit.docker.come_back()
    await kit.clock.advance(60)
    assert waiting.done()


ENDS = {
    "stopped by a person": (("stop",), None),
    "ended well": (("end 0",), None),
    "crashed": (("end 1",), EngineExited),
    "docker went away": (("end 137", "down"), UnreachableError),
    "docker broke": (("down",), UnreachableError),
    "restarted, then crashed": (("end 0", "start", "wait", "end 3"), EngineExited),
}


@pytest.mark.parametrize("case", ENDS)
async def test_the_service_stays_until_its_engine_ends(case: str, kit: Kit) -> None:
    acts, error = ENDS[case]
    kit.docker.add_container("qwen", labels=OURS)
    staying = asyncio.create_task(stay(kit.docker, kit.clock, "qwen"))
    await kit.clock.advance(1)
    for act in acts:
        assert not staying.done()
        match act.split():
            case ["stop"]:
                await kit.docker.stop("qwen")
            case ["end", code]:
                kit.docker.end("qwen", int(code))
            case ["start"]:
                await kit.docker.start("qwen")
            case ["down"]:
                kit.docker.go_down(DaemonNotRunning("Docker is gone.", "Start it."))
            case ["wait"]:
                await kit.clock.advance(GONE_SECONDS + 1)
        await kit.clock.advance(1)
    await kit.clock.advance(GONE_SECONDS + 1)
    assert staying.done()
    if error is None:
        staying.result()
    else:
        with pytest.raises(error):
            staying.result()


async def test_an_engine_that_does_not_run_is_not_stayed_with(kit: Kit) -> None:
    kit.docker.add_container("qwen", labels=OURS, status=ContainerStatus.EXITED, exit_code=0)
    await stay(kit.docker, kit.clock, "qwen")


# --- schedules --------------------------------------------------------------------------------------------


async def set_times(kit: Kit, boot: BootUnits, *, stop: int, start: int) -> None:
    """A schedule of the engine `qwen`, in hours from now; an hour later it is that much less."""
    now = datetime.fromtimestamp(kit.clock.now())
    await boot.schedule("qwen", schedule_of("-".join(f"{now + timedelta(hours=each):%H:%M}" for each in (stop, start))))


async def test_a_schedule_runs_one_command_and_is_removed(kit: Kit, port: FakeBoot, boot: BootUnits) -> None:
    kit.docker.add_container("qwen", labels=OURS, ports=(PublishedPort(8000, 8001),))
    made = await boot.schedule("qwen", schedule_of("23:00-07:00 mon-fri"))
    assert (made.schedule.since, made.next) == (kit.clock.now(), datetime(2027, 1, 15, 23))
    [(words, _)] = port.timers.values()
    assert words == ("schedule", "qwen", "--apply")
    assert list(boot.schedules) == ["qwen"]
    await boot.unschedule("qwen")
    assert (port.timers, boot.schedules) == ({}, {})
    with pytest.raises(RefusedError):
        await boot.unschedule("../qwen")


async def test_a_foreign_engine_has_no_schedule(kit: Kit, port: FakeBoot, boot: BootUnits) -> None:
    kit.docker.add_container("foreign", argv=("vllm", "serve", "org/model"))
    with pytest.raises(RefusedError):
        await boot.schedule("foreign", schedule_of("23:00-"))
    with pytest.raises(ContainerNotFound):
        await boot.schedule("gone", schedule_of("23:00-"))
    assert not port.timers


async def test_what_is_due_stops_what_runs_and_starts_what_does_not(kit: Kit, port: FakeBoot, boot: BootUnits) -> None:
    kit.docker.add_container("qwen", labels=OURS, ports=(PublishedPort(8000, 8001),))
    await set_times(kit, boot, stop=1, start=3)
    assert await boot.due_command("qwen") == (), "no time has passed since it was set"
    await kit.clock.advance(3600)
    assert await boot.due_command("qwen") == ("down", "qwen")
    assert await due_now(port, kit.context[EngineSupervisor], kit.clock, "qwen") == ("stop", True)
    await kit.docker.stop("qwen")
    assert await boot.due_command("qwen") == ()
    assert await due_now(port, kit.context[EngineSupervisor], kit.clock, "qwen") == ("stop", False), (
        "a start of the machine leaves it stopped"
    )
    await kit.clock.advance(7200)
    words = await boot.due_command("qwen")
    assert words[:2] == ("up", "qwen")
    assert {"max_model_len=8192", "name=qwen", "port=8001"} <= set(words)
    assert "--service" not in words
    assert await due_now(port, kit.context[EngineSupervisor], kit.clock, "qwen") == ("start", False)
    await kit.docker.start("qwen")
    assert await boot.due_command("qwen") == ()


async def test_an_engine_that_was_removed_is_named_when_it_should_start(kit: Kit, boot: BootUnits) -> None:
    kit.docker.add_container("qwen", labels=OURS)
    await set_times(kit, boot, stop=2, start=1)
    await kit.docker.stop("qwen")
    await kit.docker.remove("qwen")
    await kit.clock.advance(3600)
    with pytest.raises(ContainerNotFound):
        await boot.due_command("qwen")
    await kit.clock.advance(3600)
    assert await boot.due_command("qwen") == ()
    assert await boot.due_command("other") == (), "without a schedule"
