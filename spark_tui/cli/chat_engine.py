"""The engine that one talks to on the command line: found, known to serve, or why not."""

from __future__ import annotations

from spark_tui.cli.engines import find_container
from spark_tui.core.chat_target import ChatTarget, advised, target_of
from spark_tui.core.context import Context
from spark_tui.domain.chat_settings import Defaults
from spark_tui.domain.engine.endpoint import Endpoint, Health
from spark_tui.domain.errors import ApiKeyRejected, EngineDead, EngineUnreachable


async def find_target(context: Context, name: str, model: str = "") -> tuple[ChatTarget, Defaults]:
    """The engine, and what its preset's chats begin with. Raises the error that says why it cannot be talked to."""
    container = await find_container(context, name)
    watch = await context.supervisor.watch(container.id)
    endpoint = watch.endpoint
    if not container.running:
        raise EngineUnreachable(
            f"{container.name} does not run ({container.status.value}).",
            f"Start it: spark-tui restart {container.name}",
        )
    if endpoint is None:
        raise EngineUnreachable(
            f"{container.name} publishes no port.", "Launch it from a preset, or publish its port: docker run -p ..."
        )
    health = await watch.check_health()
    if health is Health.DEAD:
        raise EngineDead(
            f"The engine of {container.name} is dead, only its web server answers.",
            f"Read why: spark-tui logs {container.name}\nStart it again: spark-tui restart {container.name}",
        )
    served = watch.view().served_name
    if not served and health is Health.OK:
        served = await _first_model(context, endpoint, container.name)
    if not served or health is not Health.OK:
        raise EngineUnreachable(
            f"{container.name} is not ready yet: its port {watch.view().port} says {health.value}.",
            f"Follow its start: spark-tui logs {container.name} -f",
        )
    defaults = await context.conversations.defaults(container.preset, served)
    view = watch.view()
    target = target_of(view, endpoint, model=model or ("" if view.served_name else served))
    return ChatTarget(target.engine, endpoint, target.model, target.limit, defaults.modalities), defaults


async def _first_model(context: Context, endpoint: Endpoint, name: str) -> str:
    try:
        models = await context.api.models(endpoint)
    except ApiKeyRejected as error:
        target = ChatTarget(name, endpoint, "")
        raise advised(error, target, context.secrets.path(name)) from error
    return models[0].id if models else ""
