"""One container's log explained: read once from its last start to its end, with what Docker and the engine say now."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from spark_tui.core.engine_watch import stamp_of_start
from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.engine.endpoint import Endpoint, Health
from spark_tui.domain.engine.explain import Explanation, LogExplainer, Surroundings
from spark_tui.domain.engine.view import api_port, runtime_of
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import value_of
from spark_tui.services.ports import CheckpointSource, Clock, ContainerEngine, EngineApi, HostProbe


async def explain_container(
    container: ContainerFacts,
    docker: ContainerEngine,
    api: EngineApi,
    host: HostProbe,
    clock: Clock,
    checkpoints: CheckpointSource,
) -> Explanation:
    """Reads the log of the container's last start and explains it. Raises Docker's errors.

    Memory is bounded however long the log is: no line is kept but those that prove something.
    """
    reader = LogExplainer(container.started_at)
    async with aclosing(docker.logs(container.id, follow=False, since=stamp_of_start(container))) as batches:
        async for batch in batches:
            reader.feed_many(batch)
    memory = value_of(host.memory())
    model = container.model or reader.model
    checkpoint = value_of(await asyncio.to_thread(checkpoints.read, model)) if model else None
    others = await docker.containers()
    return reader.explanation(
        Surroundings(
            engine=runtime_of(container),
            argv=container.argv,
            environment=dict.fromkeys(container.environment, ""),
            checkpoint=checkpoint,
            ended=not container.running and container.started_at is not None,
            exit_code=None if container.running else container.exit_code,
            oom_killed=container.oom_killed,
            error=container.error,
            health=await _health(container, api),
            now=clock.now() if container.running else None,
            pool_gib=None if memory is None else memory.total / GIB,
            taken_ports=tuple({port for other in others if other.running and (port := api_port(other)) is not None}),
        )
    )


async def _health(container: ContainerFacts, api: EngineApi) -> Health:
    """`/health` needs no key."""
    port = api_port(container)
    if port is None or not container.running:
        return Health.UNKNOWN
    return await api.health(Endpoint(f"http://127.0.0.1:{port}"))
