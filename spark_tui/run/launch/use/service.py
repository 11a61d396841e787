"""The service that brings an engine up with the machine and stays with it; what its schedule asks for then."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

from spark_tui.base.errors import ContainerNotFound, EngineExited, UnreachableError
from spark_tui.base.executors import in_thread
from spark_tui.base.ports import Clock, ContainerEngine, Units
from spark_tui.observe.engines.use.engines import EngineSupervisor

DOCKER_SECONDS: Final = 2.0
"""Between two looks for Docker, while the machine boots."""
GONE_SECONDS: Final = 20.0
"""Docker ends its containers before it ends itself: for this long after an engine's end it may go away."""


async def due_now(port: Units, supervisor: EngineSupervisor, clock: Clock, name: str) -> tuple[str, bool]:
    """What its schedule asks for now (`Schedule.due`), and whether it runs. Raises SparkError."""
    status = next((each for each in await in_thread(port.schedules) if each.name == name), None)
    if status is None:
        return "", False
    runs = any(view.name == name and view.container.running for view in await supervisor.look())
    return status.schedule.due(datetime.fromtimestamp(clock.now())), runs


async def await_docker(docker: ContainerEngine, clock: Clock) -> None:
    """Returns when Docker answers: at boot it may take a while."""
    while True:
        try:
            await docker.daemon()
        except UnreachableError:
            await clock.sleep(DOCKER_SECONDS)
        else:
            return


async def stay(docker: ContainerEngine, clock: Clock, name: str) -> None:
    """Returns when the engine was stopped. Raises UnreachableError when Docker went away, and took the engine with
    it; EngineExited when the engine ended by itself."""
    actions: list[tuple[str, str]] = []
    moved = asyncio.Event()

    async def follow() -> None:
        async with aclosing(docker.events()) as events:
            async for event in events:
                actions.append((event.container_id, event.action))
                moved.set()

    following = asyncio.create_task(follow())  # ends by an error only: Docker has gone
    try:
        while True:
            container = await docker.inspect(name)
            if not container.running:
                break
            actions.clear()
            await _first(following, moved.wait())
            moved.clear()
            if any(action == "die" for id_, action in actions if id_ == container.id):
                await _first(following, clock.sleep(GONE_SECONDS))
    except ContainerNotFound:
        return
    finally:
        following.cancel()
    asked = any(action in ("kill", "stop") for id_, action in actions if id_ == container.id)
    if container.exit_code and not asked:
        raise EngineExited(f"{name} ended with exit code {container.exit_code}.", f"See why: spark-tui explain {name}")


async def _first(following: asyncio.Task[None], other: Coroutine[Any, Any, object]) -> None:
    """Waits for either; raises what ended `following`."""
    task = asyncio.ensure_future(other)
    try:
        await asyncio.wait({following, task}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
    if following.done():
        following.result()
        raise UnreachableError("Docker has closed its event stream.", "systemd starts this service again.")
