"""A stalled engine, a GPU stuck at low power, leaked shared memory: what is proved, raised, and cleared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_PORT, LABEL_SERVED_NAME
from spark_tui.base.engine.message import ContentDelta
from spark_tui.base.engine.state import EngineState
from spark_tui.base.errors import BadRequest, EngineUnreachable, SparkError
from spark_tui.base.finding import AlarmId, Finding, Missing, Ok, Severity
from spark_tui.base.host.detectors import FROZEN_SECONDS, PROBE_SECONDS, SharedFile, TokenSample
from spark_tui.base.host.vitals import GpuReading
from spark_tui.base.quantities import GIB, MIB
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.memory.use.health import HealthWatch, Tokens
from tests.kit import Kit

LINE = (
    "INFO 01-15 07:{:02d}:{:02d} [loggers.py:1] Engine 000: Avg prompt throughput: {} tokens/s, Avg generation "
    "throughput: {} tokens/s, Running: {} reqs, Waiting: 0 reqs, GPU KV cache usage: 3.0%"
)


async def serving(kit: Kit) -> None:
    """An engine that serves, under watch."""
    labels = ((LABEL_PORT, "8000"), (LABEL_SERVED_NAME, "qwen"))
    kit.docker.add_container("qwen", argv=("vllm", "serve", "m"), labels=labels)
    kit.api.serve()
    await kit.context[EngineSupervisor].look()
    assert kit.context[EngineSupervisor].views()[0].state is EngineState.SERVING


def watch(kit: Kit, tokens: Tokens = lambda _: None, *, read_only: bool = False) -> HealthWatch:
    context = kit.context
    return HealthWatch(
        context.store,
        kit.clock,
        kit.host,
        kit.api,
        context[EngineSupervisor],
        context.alarms,
        tokens,
        read_only=read_only,
    )


def alarms(kit: Kit) -> tuple[Finding, ...]:
    return kit.context.store.world.alarms


class Counters:
    """Counters that a test moves."""

    def __init__(self, kit: Kit) -> None:
        self.kit, self.running, self.generated = kit, 2.0, 1000.0

    def __call__(self, name: str) -> TokenSample:
        return TokenSample(self.kit.clock.monotonic(), self.running, self.generated, 50.0)


async def freeze(kit: Kit, health: HealthWatch, seconds: float = FROZEN_SECONDS + 10) -> None:
    """Nothing moves for so long; looks every five seconds."""
    for _ in range(int(seconds // 5)):
        kit.clock.tick(5.0)
        look = asyncio.create_task(health.look_at_engines())
        await kit.until(look.done)
        look.result()


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    kit = Kit()
    await serving(kit)
    yield kit
    await kit.context.close()


async def test_tokens_that_stand_still_while_requests_run_are_put_to_the_proof(kit: Kit) -> None:
    kit.api.answer = (1e6,)
    await freeze(kit, watch(kit, Counters(kit)), FROZEN_SECONDS + PROBE_SECONDS)
    [alarm] = alarms(kit)
    assert (alarm.id, alarm.severity, alarm.subject) == (AlarmId.STALL, Severity.ERROR, "qwen")
    assert "no answer to a one-token request" in alarm.summary
    assert "Restart" in alarm.remedy
    [(_, request)] = kit.api.requests
    assert request.parameters.max_tokens == 1
    assert kit.api.open_streams == 0, "the probe is not left behind"
    assert [event.severity for event in kit.context.store.world.events if "one-token" in event.text] == [Severity.ERROR]


@pytest.mark.parametrize(
    ("answer", "stalled"),
    [
        pytest.param(ContentDelta("x"), False, id="answer"),
        pytest.param(BadRequest("No.", "Ask otherwise."), False, id="refusal"),
        pytest.param(EngineUnreachable("It stopped answering.", "Look."), True, id="broken"),
    ],
)
async def test_an_answer_or_a_refusal_clears_and_a_broken_connection_confirms(
    kit: Kit, answer: ContentDelta | SparkError, stalled: bool
) -> None:
    kit.api.answer = (answer,)
    counters = Counters(kit)
    health = watch(kit, counters)
    await freeze(kit, health)
    assert bool(alarms(kit)) is stalled
    assert kit.api.requests
    counters.generated += 5
    await freeze(kit, health, 5)
    assert alarms(kit) == (), "progress ends the alarm"
    events = [event.text for event in kit.context.store.world.events]
    assert any("generating tokens again" in text for text in events) is stalled


@pytest.mark.parametrize(("running", "read_only", "severities"), [(0, False, []), (2, True, [Severity.WARNING])])
async def test_an_idle_engine_is_never_suspected_and_read_only_asks_nothing(
    kit: Kit, running: int, read_only: bool, severities: list[Severity]
) -> None:
    counters = Counters(kit)
    counters.running = running
    await freeze(kit, watch(kit, counters, read_only=read_only), 600)
    assert [alarm.severity for alarm in alarms(kit)] == severities
    assert kit.api.requests == []


async def test_without_metrics_the_lines_of_the_log_count(kit: Kit) -> None:
    kit.api.answer = (EngineUnreachable("Gone.", "Look."),)
    health = watch(kit)
    async with kit.supervised():
        for minute in range(14):
            kit.docker.write("qwen", LINE.format(10 + minute // 6, minute % 6 * 10, "0.0", "0.0", 3))
            await kit.clock.advance(10)
            look = asyncio.create_task(health.look_at_engines())
            await kit.until(look.done)
    assert [alarm.id for alarm in alarms(kit)] == [AlarmId.STALL]


# --- the GPU --------------------------------------------------------------------------------------------

STUCK = GpuReading("NVIDIA GB10", 96, 19.5, 45, 799)
HEALTHY = GpuReading("NVIDIA GB10", 96, 47.0, 70, 2411)


def test_a_gpu_that_crawls_under_full_load_is_reported_with_the_unplugging() -> None:
    kit = Kit()
    health = watch(kit)
    for _ in range(9):
        health.gpu_read(Ok(STUCK))
        kit.clock.tick(2.0)
    [alarm] = alarms(kit)
    assert alarm.id is AlarmId.LOW_POWER
    assert "799 MHz" in alarm.summary
    assert "unplug" in alarm.remedy
    health.gpu_read(Ok(HEALTHY))
    assert alarms(kit) == ()


@pytest.mark.parametrize("reading", [Ok(HEALTHY), Missing("no GPU"), Ok(replace(STUCK, utilization_percent=5))])
def test_load_rest_and_ignorance_are_no_stuck_state(reading: Ok[GpuReading] | Missing) -> None:
    kit = Kit()
    health = watch(kit)
    for _ in range(20):
        health.gpu_read(reading)
        kit.clock.tick(2.0)
    assert alarms(kit) == ()


# --- shared memory --------------------------------------------------------------------------------------


async def test_files_that_a_killed_engine_left_are_an_alarm_with_the_command_that_removes_them() -> None:
    kit = Kit()
    health = watch(kit)
    kit.host.shared = Ok((SharedFile("psm_1a2b3c", 2 * GIB, 600.0, open=False), SharedFile("mine", GIB, 600.0)))
    await health.look_at_shared_memory()
    [alarm] = alarms(kit)
    assert "2.0 GiB" in alarm.summary
    assert "/dev/shm/psm_1a2b3c" in alarm.remedy
    assert "mine" not in alarm.remedy
    kit.host.shared = Ok((SharedFile("psm_1a2b3c", MIB, 600.0, open=False),))
    await health.look_at_shared_memory()
    assert alarms(kit) == (), "crumbs are not worth an alarm"
