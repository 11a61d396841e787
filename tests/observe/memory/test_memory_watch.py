"""Memory second by second: when an alarm stands, when it is over, and what the feed says of it."""

from __future__ import annotations

from msgspec.structs import replace

from spark_tui.base.finding import AlarmId, Missing, Ok, Severity, value_of
from spark_tui.base.host.vitals import GpuProcess, GpuReading
from spark_tui.base.quantities import GIB
from spark_tui.observe.engines.use.collectors import CALM_SECONDS, Collectors
from spark_tui.observe.engines.use.engines import EngineSupervisor
from tests.fakes_host import IDLE_MEMORY
from tests.kit import Kit


def seconds(kit: Kit, *available: float, pressure: float = 0.0) -> None:
    """One reading a second with so many GiB available."""
    kit.host.pressure_value = Ok(pressure)
    for size in available:
        mem = replace(IDLE_MEMORY, available=int(size * GIB), free=int(min(size, 1.5) * GIB))
        kit.host.memory_value = Ok(mem, kit.clock.now())
        kit.context[Collectors].sample_host()
        kit.clock.tick(1.0)


def test_a_healthy_machine_at_four_per_cent_raises_nothing() -> None:
    kit = Kit()
    seconds(kit, *[5.0, 4.9, 5.1] * 20)
    world = kit.context.store.world
    assert (world.memory_state.severity, world.alarms, world.events) == (Severity.OK, (), ())


def test_a_fall_is_an_alarm_before_the_floor_is_reached_and_reported_once() -> None:
    kit = Kit()
    seconds(kit, 20, 17, 14, 11, 8, 5)
    world = kit.context.store.world
    assert world.memory_state.severity is Severity.ERROR
    [alarm] = world.alarms
    assert (alarm.id, alarm.severity) == (AlarmId.MEMORY, Severity.ERROR)
    assert "gone in" in alarm.summary
    seconds(kit, 4.0, 3.5, 3.2, 3.1)
    assert len([event for event in kit.context.store.world.events if event.severity is Severity.ERROR]) == 1


def test_it_is_over_only_when_memory_has_been_back_for_a_while() -> None:
    kit = Kit()
    seconds(kit, 1.5, 1.5)
    seconds(kit, *[30.0] * int(CALM_SECONDS - 2))
    assert kit.context.store.world.alarms
    seconds(kit, 30.0, 30.0, 30.0, 30.0)
    world = kit.context.store.world
    assert (world.memory_state.severity, world.alarms) == (Severity.OK, ())
    assert "fine again" in world.events[-1].text


def test_memory_that_cannot_be_read_keeps_what_was_known() -> None:
    kit = Kit()
    seconds(kit, 1.5)
    kit.host.memory_value = Missing("no /proc")
    kit.context[Collectors].sample_host()
    assert kit.context.store.world.memory_state.severity is Severity.ERROR
    assert kit.context.store.world.breakdown == Missing("no /proc")


async def test_the_breakdown_knows_which_engine_holds_what() -> None:
    kit = Kit()
    facts = kit.docker.add_container("qwen", argv=("vllm", "serve", "m"))
    kit.host.containers[77] = facts.id
    used = replace(IDLE_MEMORY, free=30 * GIB, available=40 * GIB)
    kit.host.memory_value = Ok(used)
    kit.gpu.value = Ok(GpuReading("NVIDIA GB10", unified=True, processes=(GpuProcess(77, 60 * GIB),)))
    await kit.context[EngineSupervisor].refresh()
    await kit.context[Collectors].collect_once()
    kit.context[Collectors].sample_host()
    found = value_of(kit.context.store.world.breakdown)
    assert found is not None
    assert [(share.name, share.memory) for share in found.engines or ()] == [("qwen", 60 * GIB)]
    assert sum(found.sizes) == used.total
    await kit.context.close()


def test_a_quiet_machine_changes_nothing_in_the_world() -> None:
    kit = Kit()
    seconds(kit, 60.0)
    before = kit.context.store.world
    seconds(kit, 60.001, 60.002, 59.999)
    assert kit.context.store.world == before
