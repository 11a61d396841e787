"""memory: what holds unified memory. drop-caches: frees the page cache, and the grant that allows it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from spark_tui.cli.command import command, yes_option
from spark_tui.cli.session import Session, confirm
from spark_tui.core.cache import DropPlan, OnTerminal
from spark_tui.core.context import Context
from spark_tui.core.store import World
from spark_tui.domain.errors import RefusedError, SparkError, UsageError
from spark_tui.domain.finding import Severity
from spark_tui.domain.host.breakdown import MemoryBreakdown
from spark_tui.domain.host.drop_caches import (
    GRANT_FILE,
    RULE_FILE,
    UNIT_FILE,
    DropResult,
    SystemFile,
    sudoers_grant,
    unit_files,
)
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.quantities import gib
from spark_tui.domain.reading import reason_of, value_of
from spark_tui.present import memory as show
from spark_tui.present.json import moment

HEADING_EVERY: Final = 20
"""Lines of `--watch` between two headings."""
_COLUMNS: Final = ("time", "avail", "engines", "apps", "driver", "cache", "free", "swap", "PSI", "level")

_MEMORY_EXAMPLES = """\
  spark-tui memory
  spark-tui memory --watch                      a line a second, until Ctrl-C
  spark-tui memory --json | jq .available_bytes
"""


@command("memory", _MEMORY_EXAMPLES)
@click.option("-w", "--watch", is_flag=True, help="A line for each reading, until Ctrl-C.")
def memory(session: Session, watch: bool) -> None:
    """Show unified memory: engines, applications, driver, cache, free, available.

    CPU and GPU share it. All parts up to `free` add up to the total.
    """
    if watch:
        session.run(lambda context: _watch(session, context))
        return
    mem, found, world = session.run(_look)
    if session.as_json:
        session.out.json({"id": "memory", **show.memory_object(found, mem, world)})
    else:
        session.out.page(show.memory_page(found, mem, world))


async def _look(context: Context) -> tuple[MemInfo, MemoryBreakdown, World]:
    """Memory and its breakdown, with the names of containers as far as Docker tells them. Raises SparkError."""
    await context.collectors.collect_once()
    world = context.store.world
    mem = value_of(world.memory)
    if mem is None:
        raise SparkError(f"Memory cannot be read: {reason_of(world.memory)}.", "Is /proc mounted? Only Linux has it.")
    found = value_of(context.breakdown.read(world))
    if found is not None and any(share.container for share in found.engines or ()):
        try:
            names = {each.id: each.name for each in await context.docker.containers()}
        except SparkError:  # then their ids have to do
            names = {}
        found = value_of(context.breakdown.read(world, names))
    if found is None:
        raise SparkError("The memory breakdown is not available.", "Try again.")
    return mem, found, world


async def _watch(session: Session, context: Context) -> None:
    """One line, or one object, per reading until Ctrl-C. It scrolls, as a log does: nothing is painted over."""
    count = 0
    while True:
        mem, found, world = await _look(context)
        now = context.clock.now()
        if session.as_json:
            session.out.json_line({"id": "memory", "at": moment(now), **show.memory_object(found, mem, world)})
        else:
            if count % HEADING_EVERY == 0:
                session.out.line(_cells(_COLUMNS))
            session.out.line(_watched(world, mem, found, now))
        count += 1
        await context.clock.sleep(context.settings.refresh_seconds)


def _watched(world: World, mem: MemInfo, found: MemoryBreakdown, now: float) -> str:
    pressure, state = value_of(world.pressure), world.memory_state
    sizes = (mem.available, found.engine_memory, found.apps, found.driver, mem.cache, mem.free, mem.swap_used)
    figures = ["n/a" if size is None else gib(size) for size in sizes]
    psi = "n/a" if pressure is None else f"{pressure:.1f}"
    level = show.LEVELS[state.severity]
    if state.severity is not Severity.OK:
        level = f"{level}: {state.summary}"
    return _cells((datetime.fromtimestamp(now).astimezone().strftime("%H:%M:%S"), *figures, psi, level))


def _cells(words: tuple[str, ...]) -> str:
    first, *middle, last = words
    return f"{first:<8}" + "".join(f"{word:>9}" for word in middle) + f"  {last}"


# --- drop-caches ------------------------------------------------------------------------------------------


@command("drop-caches", "  spark-tui drop-caches\n  spark-tui drop-caches --install     no password from then on")
@click.option("--image", default="", metavar="IMAGE", help="Drop it in a container of this local image.")
@click.option("--install", is_flag=True, help="Allow it without a password, by a sudo rule that is shown first.")
@click.option("--uninstall", is_flag=True, help="Remove that rule.")
@click.option("--polkit", is_flag=True, help="With these: a systemd unit started through polkit, not sudo.")
@yes_option
def drop_caches(session: Session, image: str, install: bool, uninstall: bool, polkit: bool, yes: bool) -> None:
    """Free the page cache, which CUDA counts as used.

    Available memory stays the same; free memory rises. Needs root; asks for sudo if not already permitted.
    """
    if install and uninstall:
        raise click.UsageError("Use either --install or --uninstall.")
    if polkit and not (install or uninstall):
        raise click.UsageError("--polkit needs --install or --uninstall.")
    if image and (install or uninstall):
        raise click.UsageError("--image cannot be combined with --install or --uninstall.")
    if install:
        _install_unit(session, yes=yes) if polkit else _install_grant(session, yes=yes)
    elif uninstall:
        _uninstall(session, polkit=polkit)
    else:
        _drop(session, image, yes=yes)


def _drop(session: Session, image: str, *, yes: bool) -> None:
    """Drops the cache by the best way that is permitted, asking where a person has to decide."""

    async def look(context: Context) -> DropPlan:
        session.refuse_if_read_only(context)
        try:
            await context.supervisor.look()
        except SparkError as error:
            session.err.note(f"Cannot check for starting engines: {error.summary}")
        return await context.cache.plan(image)

    plan = session.run(look)
    if plan.warning:
        session.err.note(plan.warning)
        if not confirm(session, "Drop the cache now?", yes=yes):
            raise RefusedError("Nothing was dropped.", "Skip the question with --yes.")
    consent = plan.route is None and _consents(session, plan, yes=yes)
    terminal = _at_terminal(session)

    async def drop(context: Context) -> DropResult:
        async def on_terminal(argv: Sequence[str]) -> int:
            """sudo asks by itself where a person sits at the keyboard."""
            session.err.say(f"$ {' '.join(argv[:2])} ...")
            return context.cache.dropper.on_terminal(argv)

        context.cache.warned()
        asking: OnTerminal | None = on_terminal if terminal else None
        return await context.cache.drop(image=image, consent=consent, on_terminal=asking)

    result = session.run(drop)
    if session.as_json:
        session.out.json(show.drop_object(result))
    else:
        session.out.line(result.sentence)


def _consents(session: Session, plan: DropPlan, *, yes: bool) -> bool:
    """A container that acts on the kernel is root in all but name: a person agrees each time."""
    route = plan.consent
    if route is None or (not yes and not _at_terminal(session)):
        return False
    session.err.note(
        f"No permission without a password. A container of {route.image} can do it, with write access to one file of "
        "the kernel, or with all privileges if that is refused. It runs one command."
    )
    return confirm(session, "Run it?", yes=yes)


def _at_terminal(session: Session) -> bool:
    return session.stdin is not None and session.stdin.isatty() and not session.as_json


# --- the permission to drop it ----------------------------------------------------------------------------


def _user(session: Session, context: Context) -> tuple[str, int]:
    session.refuse_if_read_only(context)
    name, uid = context.cache.dropper.user()
    if uid == 0:
        raise UsageError("root needs no grant.", "Run it as the user who needs it; sudo asks when it must.")
    return name, uid


def _show_files(session: Session, files: Sequence[tuple[str, str, str]], question: str, *, yes: bool) -> None:
    """Path, mode and text of what is to be written. Raises RefusedError for a no."""
    for path, mode, text in files:
        session.err.say(f"{path}, {mode}, root's:")
        for line in text.splitlines():
            session.err.say(f"    {line}")
    if not confirm(session, question, yes=yes):
        raise RefusedError("Nothing was written.", "Skip the question with --yes.")


def _install_grant(session: Session, *, yes: bool) -> None:
    """Shows the sudo rule, has it checked, and writes it through sudo."""

    async def prepare(context: Context) -> tuple[Context, str]:
        text = sudoers_grant(*_user(session, context))
        problem = await context.cache.dropper.check_grant(text)
        if problem:
            raise SparkError("visudo refuses the grant.", "Nothing was written.", detail=problem)
        return context, text

    context, text = session.run(prepare)
    _show_files(session, [(GRANT_FILE, "0440", text)], "Write it?", yes=yes)
    code = context.cache.dropper.write_grant(text)
    if code != 0:
        raise SparkError(f"The grant was not written: sudo exited {code}.", "Check your permission: sudo -v")
    if session.as_json:
        session.out.json({"id": "drop-caches-grant", "file": GRANT_FILE, "installed": True})
    else:
        session.err.say("Written. `spark-tui drop-caches` and the key D need no password now.")


def _install_unit(session: Session, *, yes: bool) -> None:
    """Shows the systemd unit and the polkit rule for this user, and writes both through sudo."""

    async def prepare(context: Context) -> tuple[Context, tuple[SystemFile, ...]]:
        name, _ = _user(session, context)
        try:
            return context, unit_files(name)
        except ValueError as error:
            raise UsageError(
                f"A polkit rule cannot name this user: {error}.", "Use the sudo rule: spark-tui drop-caches --install"
            ) from error

    context, files = session.run(prepare)
    _show_files(session, [(file.path, "0644", file.text) for file in files], "Write both?", yes=yes)
    code = context.cache.dropper.write_files(files)
    if code != 0:
        raise SparkError(
            f"The unit was not written: sudo exited {code}.",
            "Check your permission: sudo -v. Undo: spark-tui drop-caches --uninstall --polkit",
        )
    if session.as_json:
        session.out.json({"id": "drop-caches-unit", "files": [UNIT_FILE, RULE_FILE], "installed": True})
    else:
        session.err.say("Written. `spark-tui drop-caches` and the key D start that unit now, without sudo.")


def _uninstall(session: Session, *, polkit: bool) -> None:
    """Removes the sudo rule, or unit and polkit rule, through sudo."""

    async def open_(context: Context) -> Context:
        session.refuse_if_read_only(context)
        return context

    dropper = session.run(open_).cache.dropper
    paths = (RULE_FILE, UNIT_FILE) if polkit else (GRANT_FILE,)
    code = dropper.remove_files(paths) if polkit else dropper.remove_grant()
    what = "unit" if polkit else "grant"
    if code != 0:
        raise SparkError(f"The {what} was not removed: sudo exited {code}.", f"By hand: sudo rm {' '.join(paths)}")
    if session.as_json:
        files = {"files": [UNIT_FILE, RULE_FILE]} if polkit else {"file": GRANT_FILE}
        session.out.json({"id": f"drop-caches-{what}", **files, "installed": False})
    else:
        session.err.say(f"Removed: {' and '.join(paths)}")
