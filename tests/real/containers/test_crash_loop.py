"""A container that a real Docker starts again and again: the breaker stops it, and Docker leaves it stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spark_tui.app.wiring import build
from spark_tui.base.context import Context
from spark_tui.base.engine.container import LABEL_PRESET, LABEL_RUNTIME, ContainerFacts, ContainerSpec, RestartPolicy
from spark_tui.base.finding import AlarmId
from spark_tui.base.settings import Settings, folders_of
from spark_tui.observe.engines.use.crash_loops import MOST_RESTARTS, RestartBreaker
from spark_tui.observe.engines.use.engines import EngineSupervisor
from tests.failure_logs import cases
from tests.real.lab import PrivateEngine
from tests.real.lab.images import BUSYBOX

NAME = "crasher"
PROOF = "\n".join(next(case.log for case in cases() if case.cause == "no_kv_room" and not case.guess))


@pytest.fixture
async def context(make_engine: Callable[..., PrivateEngine], tmp_path: Path) -> AsyncIterator[Context]:
    """The core on an engine of this test's own."""
    environ = {**make_engine().environ(), "HOME": str(tmp_path)}
    made = build(Settings(store=tmp_path).resolved(tmp_path), folders_of(environ, tmp_path), environ)
    yield made
    await made.close()


@asynccontextmanager
async def crashing(context: Context, script: str, text: str = "", *, ours: bool = True) -> AsyncIterator[None]:
    """A container with that script under the breaker's eyes."""
    labels = ((LABEL_RUNTIME, "vllm"), *(((LABEL_PRESET, NAME),) if ours else ()))
    spec = ContainerSpec(
        NAME, BUSYBOX, ("-c", script, "sh", text), entrypoint=("sh",), labels=labels, network="none",
        restart=RestartPolicy("always"),
    )  # fmt: skip
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(context[EngineSupervisor].run()), group.create_task(context[RestartBreaker].run())]
        await context.docker.start(await context.docker.create(spec))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await context.docker.remove(NAME, force=True)


async def ended(context: Context, patience: float = 60.0) -> ContainerFacts:
    """The container once it is stopped, and has stayed so for a while."""
    async with asyncio.timeout(patience):
        while not context.alarms.current(AlarmId.CRASH_LOOP):
            await asyncio.sleep(0.2)
        await asyncio.sleep(3.0)
    return await context.docker.inspect(NAME)


async def test_a_cause_that_no_restart_heals_ends_the_loop_at_once(context: Context) -> None:
    async with crashing(context, 'sleep 2; printf "%s\\n" "$1"; exit 1', PROOF):
        facts = await ended(context)
        assert not facts.running
        assert facts.restart_policy == "always"
        assert facts.restart_count <= 2
        [alarm] = context.alarms.current(AlarmId.CRASH_LOOP)
        assert "restarting does not help" in alarm.summary


async def test_an_unknown_cause_is_given_its_few_starts(context: Context) -> None:
    async with crashing(context, "sleep 2; echo odd; exit 1"):
        facts = await ended(context)
        assert not facts.running
        assert facts.restart_count >= MOST_RESTARTS
        assert "times within" in context.alarms.current(AlarmId.CRASH_LOOP)[0].summary


async def test_an_engine_of_somebody_else_goes_on(context: Context) -> None:
    async with crashing(context, 'sleep 2; printf "%s\\n" "$1"; exit 1', PROOF, ours=False):
        assert (await ended(context)).running
