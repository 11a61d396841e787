"""Start at boot: the launch that a unit runs, and the service that stays with its engine."""

from __future__ import annotations

import asyncio

import pytest

from spark_tui.core.boot import GONE_SECONDS, BootUnits
from spark_tui.domain.engine.boot import BootState, BootStatus
from spark_tui.domain.engine.container import LABEL_OVERRIDES, LABEL_PRESET, ContainerStatus, PublishedPort
from spark_tui.domain.errors import DaemonNotRunning, EngineExited, RefusedError, UnreachableError
from tests.core.kit import Kit

OURS = ((LABEL_PRESET, "qwen"), (LABEL_OVERRIDES, '{"max_model_len": "8192"}'))


class FakeBoot:
    """A BootPort that notes what it was asked."""

    def __init__(self) -> None:
        self.units: dict[str, tuple[str, ...]] = {}

    def all(self) -> tuple[BootStatus, ...]:
        return tuple(BootStatus(name, BootState.ENABLED) for name in self.units)

    def enable(self, engine: str, words: tuple[str, ...], *, system: bool = False) -> None:
        self.units[engine] = tuple(words)

    def disable(self, engine: str) -> bool:
        return self.units.pop(engine, None) is not None


@pytest.fixture
def kit() -> Kit:
    return Kit()


@pytest.fixture
def port() -> FakeBoot:
    return FakeBoot()


@pytest.fixture
def boot(kit: Kit, port: FakeBoot) -> BootUnits:
    return BootUnits(port, kit.context.supervisor, kit.docker, kit.clock)


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


async def test_the_service_waits_for_docker(kit: Kit, boot: BootUnits) -> None:
    kit.docker.go_down()
    waiting = asyncio.create_task(boot.await_docker())
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
async def test_the_service_stays_until_its_engine_ends(case: str, kit: Kit, boot: BootUnits) -> None:
    acts, error = ENDS[case]
    kit.docker.add_container("qwen", labels=OURS)
    staying = asyncio.create_task(boot.stay("qwen"))
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


async def test_an_engine_that_does_not_run_is_not_stayed_with(kit: Kit, boot: BootUnits) -> None:
    kit.docker.add_container("qwen", labels=OURS, status=ContainerStatus.EXITED, exit_code=0)
    await boot.stay("qwen")
