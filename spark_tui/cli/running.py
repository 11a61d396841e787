"""Commands on engines that exist: down, restart, logs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from spark_tui.cli import shapes
from spark_tui.cli.diagnostics import Interrupted
from spark_tui.cli.engines import ago, find_container
from spark_tui.cli.narrator import keeps_starting, narrated, supervised
from spark_tui.cli.session import Session, interrupted
from spark_tui.core.context import Context
from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.engine.secrets import mask_secrets
from spark_tui.domain.errors import ContainerNotFound, RefusedError
from spark_tui.domain.text import clean, last_overwrite

# --- down ---------------------------------------------------------------------------------------------


def down(session: Session, name: str, *, remove: bool, grace_seconds: int) -> None:
    """Stops an engine, and removes it when asked. One that has ended is no error."""

    async def work(context: Context) -> tuple[ContainerFacts, bool]:
        session.refuse_if_read_only(context)
        container = await find_container(context, name)
        if remove and not container.ours:
            raise RefusedError(
                f"{container.name} was not made by spark-tui: with it, its settings would be gone.",
                f"Stop it without --remove, or remove it yourself: docker rm {container.name}",
            )
        if container.running:
            session.err.say(f"Stopping {container.name} (at most {grace_seconds} s, then it is killed) ...")
            await context.supervisor.stop(container.name, grace_seconds)
        if remove:
            await context.supervisor.remove(container.name)
        return container, container.running

    container, ran = session.run(work)
    if session.as_json:
        session.out.json(
            {"id": container.name, "container_id": container.id, "was_running": ran, "stopped": True, "removed": remove}
        )
        return
    done = "stopped" if ran else "was not running"
    session.err.say(f"{container.name} {done}{' and is removed, its log too' if remove else ''}.")
    if not remove:
        session.err.say(f"Its log is kept: spark-tui logs {container.name}")


# --- restart ------------------------------------------------------------------------------------------


def restart(session: Session, name: str, *, wait: bool, grace_seconds: int) -> None:
    """Stops and starts an engine with the settings that it has."""

    begun: list[str] = []
    between: list[str] = []

    async def work(context: Context) -> None:
        session.refuse_if_read_only(context)
        container = await find_container(context, name)
        session.err.say(f"Restarting {container.name} ...")

        async def settle() -> None:
            between.append(container.name)
            came_back = await context.budget.await_return()
            if came_back:
                session.err.say(came_back)

        await context.supervisor.restart(container.name, grace_seconds, settle=settle)
        begun.append(container.name)
        if wait:
            view = await supervised(context, narrated(session, context, container.name))
        else:
            view = (await context.supervisor.watch(container.name)).view()
        if session.as_json:
            session.out.json_line({"type": "result", **shapes.engine(view, context.clock.now())})
        elif wait:
            session.out.line(view.base_url)
        else:
            session.err.say(f"{container.name} is starting. Follow it: spark-tui logs {container.name} -f")

    def left() -> Interrupted:
        if begun:
            return keeps_starting(begun[0])
        if between:
            return Interrupted(f"{between[0]} was stopped.", f"Start it: spark-tui restart {between[0]}")
        return interrupted()

    session.run(work, on_interrupt=left)


# --- logs ---------------------------------------------------------------------------------------------


def logs(session: Session, name: str, *, follow: bool, tail: int | None, stamps: bool, raw: bool) -> None:
    """A container's log, secrets masked; control codes removed unless `raw`."""

    async def work(context: Context) -> None:
        container = await find_container(context, name, engines_only=False)
        batches = context.docker.logs(container.id, tail=tail, follow=follow and container.running)
        async with aclosing(batches):
            async for batch in batches:
                _write(session, batch, stamps=stamps, raw=raw)
        if follow:
            session.err.say(await _end_of(context, container))

    session.run(work)


def _write(session: Session, batch: Sequence[tuple[str, str]], *, stamps: bool, raw: bool) -> None:
    if session.as_json:
        session.out.json_lines(
            ({"stamp": stamp, "text": mask_secrets(text if raw else _shown(text))} for stamp, text in batch), raw=raw
        )
    elif stamps:
        session.out.lines(f"{stamp} {mask_secrets(text if raw else _shown(text))}" for stamp, text in batch)
    else:
        session.out.lines(mask_secrets(text if raw else _shown(text)) for _, text in batch)


def _shown(text: str) -> str:
    return clean(last_overwrite(text))


async def _end_of(context: Context, container: ContainerFacts) -> str:
    """Why there are no more lines."""
    name = container.name
    try:
        ended = await context.docker.inspect(container.id) if container.running else container
    except ContainerNotFound:
        return f"{name} has been removed."
    if ended.running:
        return f"The log of {name} has ended; the container runs."
    when = "" if ended.finished_at is None else f" {ago(context.clock.now() - ended.finished_at)}"
    return f"{name} ended{when} with exit code {ended.exit_code}."
