"""Engines on the command line: the one that a name means, and the table of all."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

import click

from spark_tui.cli.command import command, engine_argument, yes_option
from spark_tui.cli.output import Interrupted
from spark_tui.cli.progress import LaunchProgress, keeps_starting, resumed, shown, supervised
from spark_tui.cli.session import Session, confirm, interrupted
from spark_tui.core.context import Context
from spark_tui.core.jobs import StepState
from spark_tui.core.secure import Secured
from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.engine.state import runtime_of
from spark_tui.domain.errors import ContainerNotFound, RefusedError
from spark_tui.domain.secret import mask_secrets
from spark_tui.domain.text import clean, clean_line, last_overwrite, truncate
from spark_tui.present.engines import ago, engine_object

SHORT_ID: Final = 12
_MAX_NAMED: Final = 8


def suggestion(wanted: str, known: Iterable[str], what: str) -> str:
    """`Did you mean qwen36?`, else what there is, else that there is none."""
    names = sorted(clean_line(name) for name in known)
    near = difflib.get_close_matches(wanted.lower(), [name.lower() for name in names], n=3, cutoff=0.5)
    meant = [name for name in names if name.lower() in near] or [
        name for name in names if wanted.lower() in name.lower()
    ]
    if meant:
        return f"Did you mean {' or '.join(meant[:3])}?"
    if not names:
        return f"No {what} found."
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"Known {what}: {', '.join(names[:_MAX_NAMED])}{more}."


async def find_container(context: Context, name: str, *, engines_only: bool = True) -> ContainerFacts:
    """The container that a name or an id means. Raises ContainerNotFound with near names.

    With `engines_only` a container that serves no model is not found: stopping a database by a slip of the finger is
    not what this program is for.
    """
    containers = await context.docker.containers()
    by_id = [c for c in containers if len(name) >= SHORT_ID and c.id.startswith(name)]
    found = next((c for c in containers if c.name == name), by_id[0] if len(by_id) == 1 else None)
    shown = truncate(clean_line(name), 60)
    engines = [c.name for c in containers if runtime_of(c)]
    if found is None:
        what = "engine" if engines_only else "container"
        raise ContainerNotFound(f"There is no {what} named {shown}.", suggestion(name, engines, "engines"))
    if engines_only and not runtime_of(found):
        raise ContainerNotFound(
            f"{shown} is a container ({clean_line(found.image)}), and not one that serves a model.",
            f"{suggestion(name, engines, 'engines')} For other containers use docker itself.",
        )
    return found


# --- down ---------------------------------------------------------------------------------------------


_grace = click.option(
    "--timeout", "grace_seconds", type=click.IntRange(0, 3600), default=30, metavar="SECONDS",
    help="Time to stop before it is killed.  [30]",
)  # fmt: skip


@command("down", "  spark-tui down gpt-oss-120b\n  spark-tui down gpt-oss-120b --remove")
@engine_argument
@click.option("--remove", is_flag=True, help="Remove the container too, with its log.")
@_grace
def down(session: Session, name: str, remove: bool, grace_seconds: int) -> None:
    """Stop an engine. Its container and log stay, unless --remove."""

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


@command("restart", "  spark-tui restart gpt-oss-120b --wait")
@engine_argument
@click.option("--wait/--no-wait", default=False, help="Wait until it serves again.  [--no-wait]")
@_grace
def restart(session: Session, name: str, wait: bool, grace_seconds: int) -> None:
    """Stop and start an engine with its current settings."""

    begun: list[str] = []
    between: list[str] = []

    async def work(context: Context) -> None:
        session.refuse_if_read_only(context)
        container = await find_container(context, name)
        session.err.say(f"Restarting {container.name} ...")

        async def settle() -> None:
            between.append(container.name)
            came_back = await context.memory_gate.await_return()
            if came_back:
                session.err.say(came_back)

        await context.supervisor.restart(container.name, grace_seconds, settle=settle)
        begun.append(container.name)
        if wait:
            view = await supervised(context, resumed(session, context, container.name))
        else:
            view = (await context.supervisor.watch(container.name)).view()
        if session.as_json:
            session.out.json_line({"type": "result", **engine_object(view, context.clock.now())})
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


@command("logs", "  spark-tui logs gpt-oss-120b -f\n  spark-tui logs gpt-oss-120b --tail 50 > boot.log")
@engine_argument
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the engine ends.")
@click.option("-n", "--tail", type=click.IntRange(0), metavar="N", help="The last N lines only.")
@click.option("-t", "--timestamps", "stamps", is_flag=True, help="Docker's time before each line.")
@click.option("--raw", is_flag=True, help="Keep colours and other control codes.")
def logs(session: Session, name: str, follow: bool, tail: int | None, stamps: bool, raw: bool) -> None:
    """Print a container's log. Keys and tokens are always masked."""

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
    lines = [(stamp, mask_secrets(text if raw else clean(last_overwrite(text)))) for stamp, text in batch]
    if session.as_json:
        session.out.json_lines(({"stamp": stamp, "text": text} for stamp, text in lines), raw=raw)
    else:
        session.out.lines(f"{stamp} {text}" if stamps else text for stamp, text in lines)


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


@command("secure", "  spark-tui secure gpt-oss-120b")
@engine_argument
@click.option("--wait/--no-wait", default=True, help="Wait until it serves again.  [--wait]")
@yes_option
def secure(session: Session, name: str, wait: bool, yes: bool) -> None:
    """Give an engine that is open to the network an API key.

    Restarts it with its current settings. The key is kept in a private file; its path is printed.
    """

    async def look(context: Context) -> tuple[str, Secured]:
        session.refuse_if_read_only(context)
        container = await find_container(context, name)
        views = await context.supervisor.look()
        view = next((each for each in views if each.name == container.name), None)
        if view is None:
            raise ContainerNotFound(f"{container.name} has just gone.", "See: spark-tui ps -a")
        return view.name, await context.securing.plan(view)

    engine, secured = session.run(look)
    session.err.note(secured.what)
    if not confirm(session, f"Make a key for {engine}?", yes=yes):
        session.err.say("Nothing was changed.")
        return
    moved: dict[str, StepState] = {}

    async def work(context: Context) -> None:
        progress = LaunchProgress(session, context, engine, moved)
        request = replace(secured.request, wait=wait)
        launched = await supervised(context, shown(progress, context.launcher.launch(request, progress.step)))
        if session.as_json:
            session.out.json_line(
                {
                    "type": "result",
                    **engine_object(launched.view, context.clock.now()),
                    "key_file": secured.key_file,
                    "key_variable": secured.key_variable,
                }
            )
            return
        session.out.line(secured.key_file)
        session.err.say(f"The API key is in that file, as {secured.key_variable}.")

    session.run(work, on_interrupt=lambda: _interrupted(engine, moved))


def _interrupted(engine: str, moved: dict[str, StepState]) -> Interrupted:
    if moved.get("start") is StepState.DONE:
        return keeps_starting(engine)
    return Interrupted(f"{engine} was not started with a key.", "See whether it runs: spark-tui ps")
