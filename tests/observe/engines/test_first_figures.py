"""What is asked first when the program opens, and what does not wait for what."""

from __future__ import annotations

import asyncio
from typing import Any

from spark_tui.app.first import first_figures, run, start_early
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Ok, reason_of, value_of
from spark_tui.base.host.vitals import GpuReading
from spark_tui.catalog.presets.model.preset import PRESETS
from spark_tui.observe.engines.use.collectors import Collectors
from spark_tui.observe.explain.feature import ENGINES
from tests.kit import Kit, running

PORTS = ("host", "gpu", "docker", "api", "presets", "secrets", "archive")


class Noted:
    """A port that notes when it is first used."""

    def __init__(self, name: str, port: Any, order: list[str]) -> None:
        self._name, self._port, self._order = name, port, order

    def __getattr__(self, attribute: str) -> Any:
        if self._name not in self._order:
            self._order.append(self._name)
        return getattr(self._port, attribute)


def noted(kit: Kit) -> list[str]:
    """From here on, the ports in the order in which they are used."""
    order: list[str] = []
    ports = vars(kit.context.ports)
    ports.update({name: Noted(name, ports[name], order) for name in PORTS})
    return order


async def test_the_first_frame_has_the_machine_its_memory_and_its_gpu_and_asks_for_nothing_else() -> None:
    kit = Kit()
    order = noted(kit)
    await first_figures(kit.context)
    world = kit.context.store.world
    assert (order, world.identity) == (["host", "gpu"], kit.host.identity())
    assert isinstance(world.memory, Ok)
    assert value_of(world.breakdown) is not None  # the bar, not only its figures


async def test_memory_comes_first_then_the_gpu_then_docker_and_presets_after_the_engines() -> None:
    kit = Kit()
    kit.docker.add_container("qwen", argv=("vllm", "serve", "m"))
    order = noted(kit)
    async with kit.whole():
        await kit.until(lambda: bool(kit.context.store.world[PRESETS].presets))
        assert order[:3] == ["host", "gpu", "docker"]
        assert [view.name for view in value_of(kit.context.store.world[ENGINES]) or ()] == ["qwen"]


async def test_a_gpu_that_has_answered_is_in_the_first_frame() -> None:
    kit = Kit()
    kit.gpu.value = Ok(GpuReading("NVIDIA GB10", unified=True, processes=()))
    start_early(kit.context)
    assert kit.gpu.started
    await first_figures(kit.context)
    assert kit.context.store.world.gpu == kit.gpu.value
    breakdown = value_of(kit.context.store.world.breakdown)
    assert breakdown is not None and breakdown.engines == ()


async def test_a_late_gpu_does_not_hold_the_first_frame_and_splits_the_memory_at_once() -> None:
    kit = Kit()
    kit.gpu.value, kit.gpu.late = Ok(GpuReading("NVIDIA GB10", unified=True, processes=())), True
    async with asyncio.timeout(2):
        await first_figures(kit.context)
    before = value_of(kit.context.store.world.breakdown)
    await kit.context[Collectors].collect_once()
    after = value_of(kit.context.store.world.breakdown)
    assert before is not None
    assert after is not None
    assert (before.engines, after.engines) == (None, ())


async def test_presets_do_not_wait_for_a_docker_that_is_not_there() -> None:
    kit = Kit()
    kit.docker.go_down()
    opened_at = kit.clock.now()
    async with running(run(kit.context)):
        async with asyncio.timeout(20):
            while not kit.context.store.world[PRESETS].presets:
                await asyncio.sleep(0)
        assert kit.clock.now() == opened_at
        assert reason_of(kit.context.store.world[ENGINES]) != "not read yet"


async def test_units_that_cannot_be_read_are_an_event_and_end_nothing() -> None:
    class NoSystemd:
        def all(self) -> tuple[object, ...]:
            raise SparkError("systemd does not answer.", "See: systemctl --user status")

    kit = Kit()
    kit.context.ports.boot = NoSystemd()  # type: ignore[assignment]
    async with kit.whole():
        await kit.until(lambda: any("systemd" in event.text for event in kit.context.store.world.events))
        assert kit.context.store.world.boot == {}
