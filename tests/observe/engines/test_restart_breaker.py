"""A container that Docker starts again and again: stopped when no start can succeed, told when it is not ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from spark_tui.base.engine.container import LABEL_PRESET, ContainerFacts, ContainerStatus
from spark_tui.base.errors import DaemonNotRunning
from spark_tui.base.finding import AlarmId, Finding, Severity
from spark_tui.base.host.guard import GuardEntry
from spark_tui.observe.engines.use.crash_loops import MOST_RESTARTS, RestartBreaker
from spark_tui.observe.engines.use.engines import EngineSupervisor
from tests.failure_logs import cases
from tests.kit import Kit

PROOF = tuple(next(case.log for case in cases() if case.cause == "no_kv_room" and not case.guess))
CRASH = "(EngineCore pid=9) ERROR 05-21 21:02:50 [core.py:1] RuntimeError: something that nobody has seen before"


def engine(kit: Kit, *, ours: bool = True, **changes: object) -> ContainerFacts:
    labels = ((LABEL_PRESET, "qwen"),) if ours else ()
    given = {"argv": ("vllm", "serve", "m"), "labels": labels, "restart_policy": "always", **changes}
    return kit.docker.add_container("qwen", **given)  # type: ignore[arg-type]


@asynccontextmanager
async def watching(kit: Kit, entries: tuple[GuardEntry, ...] = (), *, acting: bool = True) -> AsyncIterator[None]:
    context = kit.context
    breaker = RestartBreaker(
        kit.docker,
        context[EngineSupervisor],
        context.store,
        kit.clock,
        context.alarms,
        lambda: entries,
        acting=acting,
    )
    async with kit.supervised():
        task = asyncio.create_task(breaker.run())
        await kit.clock.advance(2)
        yield
        assert not task.done(), "it never breaks"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def crash(kit: Kit, *lines: str) -> None:
    """It writes these lines, ends, and is Docker restarted it."""
    kit.docker.restart_by_policy("qwen", *lines)
    await kit.clock.advance(5)


def alarms(kit: Kit) -> tuple[Finding, ...]:
    return tuple(alarm for alarm in kit.context.store.world.alarms if alarm.id is AlarmId.CRASH_LOOP)


def status(kit: Kit) -> ContainerStatus:
    facts = kit.docker.named("qwen")
    assert facts is not None
    return facts.status


async def test_what_no_restart_heals_is_stopped_at_once_with_its_cause() -> None:
    kit = Kit()
    engine(kit)
    async with watching(kit):
        await crash(kit, *PROOF)
    assert status(kit) is ContainerStatus.EXITED
    [alarm] = alarms(kit)
    assert alarm.severity is Severity.ERROR
    assert "restarting does not help" in alarm.summary
    assert "spark-tui explain qwen" in alarm.remedy


async def test_what_may_heal_is_given_a_few_starts() -> None:
    kit = Kit()
    engine(kit)
    async with watching(kit):
        for _ in range(MOST_RESTARTS):
            await crash(kit, CRASH)
            assert status(kit) is ContainerStatus.RUNNING
        told = [event for event in kit.context.store.world.events if "Docker restarted it" in event.text]
        assert len(told) == MOST_RESTARTS
        await crash(kit, CRASH)
        assert status(kit) is ContainerStatus.EXITED
    assert "ended 4 times" in alarms(kit)[0].summary


@pytest.mark.parametrize(("ours", "acting", "severity"), [(False, True, "warning"), (True, False, "warning")])
async def test_an_engine_of_others_or_a_read_only_program_gets_an_alarm_and_no_stop(
    ours: bool, acting: bool, severity: str
) -> None:
    kit = Kit()
    engine(kit, ours=ours)
    async with watching(kit, acting=acting):
        await crash(kit, *PROOF)
        await crash(kit, *PROOF)
    assert status(kit) is ContainerStatus.RUNNING
    [alarm] = alarms(kit)
    assert alarm.severity == severity


async def test_an_engine_that_the_guard_ended_does_not_come_back() -> None:
    kit = Kit()
    engine(kit)
    entry = GuardEntry(kit.clock.now(), "stop the engine", "qwen", "1.0 GiB usable")
    async with watching(kit, (entry,)):
        await crash(kit)
    assert status(kit) is ContainerStatus.EXITED
    assert "stopped by the memory guard" in alarms(kit)[0].summary


async def test_only_the_start_that_ended_is_blamed() -> None:
    """The log holds every start: what an earlier one said is not the cause of a later end."""
    kit = Kit()
    engine(kit)
    kit.docker.write("qwen", *PROOF)
    kit.docker.restart_by_policy("qwen")
    async with watching(kit):
        await crash(kit, CRASH)
        assert status(kit) is ContainerStatus.RUNNING


async def test_a_person_who_starts_it_again_begins_a_new_count() -> None:
    kit = Kit()
    engine(kit)
    async with watching(kit):
        await crash(kit, *PROOF)
        assert alarms(kit)
        box = kit.docker.find("qwen")
        kit.docker._change(box, restart_count=0)
        await kit.docker.start("qwen")
        await kit.clock.advance(5)
        assert alarms(kit) == ()
        assert status(kit) is ContainerStatus.RUNNING


async def test_a_container_without_a_restart_policy_is_none_of_its_business() -> None:
    kit = Kit()
    engine(kit, restart_policy="")
    async with watching(kit):
        await crash(kit, *PROOF)
    assert alarms(kit) == ()


async def test_a_stop_that_fails_is_told_and_tried_again() -> None:
    kit = Kit()
    engine(kit)
    async with watching(kit):
        kit.docker.fail("stop", DaemonNotRunning("Docker does not answer.", "Start it."))
        await crash(kit, *PROOF)
        assert "stopping failed" in alarms(kit)[0].summary
        await crash(kit, *PROOF)
    assert status(kit) is ContainerStatus.EXITED
