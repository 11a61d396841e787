"""memory: what holds unified memory. drop-caches: frees the page cache. guard: the watchdog that keeps some free."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from spark_tui.base.context import Context
from spark_tui.base.engine.units import Unit
from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.base.finding import Severity, reason_of, value_of
from spark_tui.base.host.guard import GuardEntry
from spark_tui.base.host.memory import (
    GRANT_FILE,
    RULE_FILE,
    UNIT_FILE,
    DropResult,
    MemInfo,
    MemoryBreakdown,
    SystemFile,
    sudoers_grant,
    unit_files,
)
from spark_tui.base.page import Object, moment
from spark_tui.base.quantities import gib
from spark_tui.base.store import World
from spark_tui.cli.command import command, yes_option
from spark_tui.cli.session import Session, confirm
from spark_tui.machine.engines import EngineFinder
from spark_tui.observe.engines.use.collectors import BreakdownReader, Collectors
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.memory import show
from spark_tui.observe.memory.use.guard import Guard, guard_policy
from spark_tui.observe.memory.use.memory import CacheControl, DropPlan

HEADING_EVERY: Final = 20
"""Lines of `--watch` between two headings."""
UNIT_NAME: Final = "spark-tui-guard.service"
GUARD_SERVICE: Final = (
    "Restart=always",
    "RestartSec=2",
    "LimitMEMLOCK=infinity",
    "OOMScoreAdjust=-900",
    "CPUWeight=1000",
)
"""Limits are raised as far as the person's go: the guard needs the person's permission for Docker."""

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
    session.out.answer({"id": "memory", **show.memory_object(found, mem, world)}, show.memory_page(found, mem, world))


async def _look(context: Context) -> tuple[MemInfo, MemoryBreakdown, World]:
    """Memory and its breakdown, with the names of containers where Docker answers. Raises SparkError."""
    await context[Collectors].collect_once()
    world = context.store.world
    mem = value_of(world.memory)
    if mem is None:
        raise SparkError(f"Memory cannot be read: {reason_of(world.memory)}.", "Is /proc mounted? Only Linux has it.")
    found = value_of(context[BreakdownReader].read(world))
    if found is not None and any(share.name in ("", share.container[:12]) for share in found.engines or ()):
        try:
            names = {each.id: each.name for each in await context[EngineFinder].all()}
        except SparkError:  # then their ids have to do
            names = {}
        found = value_of(context[BreakdownReader].read(world, names))
    if found is None:
        raise SparkError("The memory breakdown is not available.", "Try again.")
    return mem, found, world


async def _watch(session: Session, context: Context) -> None:
    """One line, or one object, per reading until Ctrl-C. It scrolls, as a log does: nothing is painted over."""
    count = 0
    while True:
        mem, found, world = await _look(context)
        now = context.clock.now()
        session.out.json_line({"id": "memory", "at": moment(now), **show.memory_object(found, mem, world)})
        if count % HEADING_EVERY == 0:
            session.out.line(_cells(_COLUMNS))
        sizes = (mem.available, found.engine_memory, found.apps, found.driver, mem.cache, mem.free, mem.swap_used)
        pressure, state = value_of(world.pressure), world.memory_state
        at, level = datetime.fromtimestamp(now).astimezone().strftime("%H:%M:%S"), show.LEVELS[state.severity]
        figures = ["n/a" if size is None else gib(size) for size in sizes]
        figures.append("n/a" if pressure is None else f"{pressure:.1f}")
        figures.append(level if state.severity is Severity.OK else f"{level}: {state.summary}")
        session.out.line(_cells((at, *figures)))
        count += 1
        await context.clock.sleep(context.settings.refresh_seconds)


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
        _install(session, polkit=polkit, yes=yes)
    elif uninstall:
        _uninstall(session, polkit=polkit)
    else:
        _drop(session, image, yes=yes)


def _drop(session: Session, image: str, *, yes: bool) -> None:
    """Drops the cache by the best way that is permitted, asking where a person has to decide."""

    async def look(context: Context) -> DropPlan:
        try:
            await context[EngineSupervisor].look()
        except SparkError as error:
            session.err.note(f"Cannot check for starting engines: {error.summary}")
        return await context[CacheControl].plan(image)

    plan = session.run(look, changes=True)
    if plan.warning:
        session.err.note(plan.warning)
        if not confirm(session, "Drop the cache now?", yes=yes):
            raise RefusedError("Nothing was dropped.", "Skip the question with --yes.")
    terminal = session.stdin is not None and session.stdin.isatty() and not session.as_json
    consent = False
    if plan.route is None and plan.consent is not None and (yes or terminal):
        # A container that acts on the kernel is root in all but name: a person agrees each time.
        session.err.note(
            f"No permission without a password. A container of {plan.consent.image} can do it, with write access to "
            "one file of the kernel, or with all privileges if that is refused. It runs one command."
        )
        consent = confirm(session, "Run it?", yes=yes)

    async def drop(context: Context) -> DropResult:
        async def on_terminal(argv: Sequence[str]) -> int:
            """sudo asks by itself where a person sits at the keyboard."""
            session.err.say(f"$ {' '.join(argv[:2])} ...")
            return context[CacheControl].dropper.on_terminal(argv)

        context[CacheControl].warned()
        return await context[CacheControl].drop(
            image=image, consent=consent, on_terminal=on_terminal if terminal else None
        )

    result = session.run(drop)
    session.out.answer(show.drop_object(result), result.sentence)


async def _core(context: Context) -> Context:
    return context


def _show_files(session: Session, files: Sequence[tuple[str, str]], question: str, *, yes: bool) -> None:
    """Heading and text of what is to be written. Raises RefusedError for a no."""
    for heading, text in files:
        session.err.say(f"{heading}:")
        for line in text.splitlines():
            session.err.say(f"    {line}")
    if not confirm(session, question, yes=yes):
        raise RefusedError("Nothing was written.", "Skip the question with --yes.")


def _install(session: Session, *, polkit: bool, yes: bool) -> None:
    """Shows the sudo rule, or the systemd unit and the polkit rule, and writes them through sudo."""

    async def prepare(context: Context) -> tuple[Context, tuple[SystemFile, ...]]:
        dropper = context[CacheControl].dropper
        name, uid = dropper.user()
        if uid == 0:
            raise UsageError("root needs no grant.", "Run it as the user who needs it; sudo asks when it must.")
        if polkit:
            try:
                return context, unit_files(name)
            except ValueError as error:
                raise UsageError(
                    f"A polkit rule cannot name this user: {error}.",
                    "Use the sudo rule: spark-tui drop-caches --install",
                ) from error
        grant = sudoers_grant(name, uid)
        problem = await dropper.check_grant(grant.text)
        if problem:
            raise SparkError("visudo refuses the grant.", "Nothing was written.", detail=problem)
        return context, (grant,)

    context, files = session.run(prepare, changes=True)
    shown = [(f"{file.path}, {file.mode}, owner root", file.text) for file in files]
    _show_files(session, shown, "Write both?" if polkit else "Write it?", yes=yes)
    if code := context[CacheControl].dropper.write_files(files):
        undo = ". Undo: spark-tui drop-caches --uninstall --polkit" if polkit else ""
        raise SparkError(
            f"The {'unit' if polkit else 'grant'} was not written: sudo exited {code}.",
            f"Check your permission: sudo -v{undo}",
        )
    session.out.json(_grant_object(polkit=polkit, installed=True))
    now = "start that unit now, without sudo" if polkit else "need no password now"
    session.err.say(f"Written. `spark-tui drop-caches` and the key D {now}.")


def _uninstall(session: Session, *, polkit: bool) -> None:
    """Removes the sudo rule, or unit and polkit rule, through sudo."""

    paths = (RULE_FILE, UNIT_FILE) if polkit else (GRANT_FILE,)
    if code := session.run(_core, changes=True)[CacheControl].dropper.remove_files(paths):
        what = "unit" if polkit else "grant"
        raise SparkError(f"The {what} was not removed: sudo exited {code}.", f"By hand: sudo rm {' '.join(paths)}")
    session.done(_grant_object(polkit=polkit, installed=False), f"Removed: {' and '.join(paths)}")


def _grant_object(*, polkit: bool, installed: bool) -> Object:
    if polkit:
        return {"id": "drop-caches-unit", "files": [UNIT_FILE, RULE_FILE], "installed": installed}
    return {"id": "drop-caches-grant", "file": GRANT_FILE, "installed": installed}


# --- guard ------------------------------------------------------------------------------------------------

_GUARD_EXAMPLES = """\
  spark-tui guard                               in the foreground, until Ctrl-C
  spark-tui guard --install                     as a systemd user unit
  spark-tui guard --status                      is it running, and what it did
"""


@command("guard", _GUARD_EXAMPLES)
@click.option("--every-engine", is_flag=True, help="May also stop engines that spark-tui did not launch.")
@click.option("--while-engines-run", is_flag=True, help="Exit two minutes after the last engine.")
@click.option("--status", is_flag=True, help="Print whether it is running and what it did.")
@click.option("--install", is_flag=True, help="Install a systemd user unit, which is shown first.")
@click.option("--uninstall", is_flag=True, help="Stop and remove that unit.")
@yes_option
def guard(
    session: Session,
    every_engine: bool,
    while_engines_run: bool,
    status: bool,
    install: bool,
    uninstall: bool,
    yes: bool,
) -> None:
    """Stop an engine before the machine runs out of memory and freezes.

    Checks memory ten times a second when it is short. First a graceful stop, then a kill; the reason is recorded.
    A launch starts one by itself (setting guard_auto), which exits some time after the last engine.
    """
    if install + uninstall + status > 1:
        raise click.UsageError("Use one of --status, --install and --uninstall.")
    if status:
        session.run(lambda context: _guard_status(session, context))
    elif install:
        _install_unit(session, every_engine=every_engine, yes=yes)
    elif uninstall:
        units = session.run(_core, changes=True).guarding.units
        was, path = units.remove(UNIT_NAME, machine=False), str(units.path(UNIT_NAME))
        session.done(
            {"id": "guard-unit", "file": path, "installed": False, "was_installed": was},
            f"Removed: {path}" if was else "No guard unit is installed.",
        )
    else:
        _guard(session, every_engine=every_engine, while_engines_run=while_engines_run)


def _guard(session: Session, *, every_engine: bool, while_engines_run: bool) -> None:
    """Guards until Ctrl-C or SIGTERM. What it does is written to standard output, line by line."""

    def write(entry: GuardEntry) -> None:
        session.out.json_line(show.guard_entry_object(entry))
        session.out.line(show.guard_text(entry))

    stop = threading.Event()
    context = session.opened()
    try:
        session.refuse_if_read_only(context)
        journal = context.guarding.journal
        if not journal.claim():
            raise RefusedError("A guard is already running.", "See what it did: spark-tui guard --status")
        before = {each: signal.signal(each, lambda *_: stop.set()) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            watch = Guard.from_context(
                context, on_entry=write, only_ours=not every_engine, while_engines_run=while_engines_run
            )
            policy, engine = guard_policy(context), "any engine" if every_engine else "an engine of spark-tui"
            session.err.say(
                f"Guarding: stops {engine} below {gib(policy.serving_floor)} GiB of available memory "
                f"({gib(policy.loading_floor)} while one loads), or earlier if memory falls fast. "
                "Ctrl-C stops the guard."
            )
            missing = context.guarding.actuator.prepare()
            if missing:
                session.err.note(f"Reduced protection: {missing}. Complete as root or as a system service.")
            watch.run(stop)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
            journal.release()
        if watch.problem:
            session.err.note(watch.problem)
        session.err.say("The guard has stopped.")
    finally:
        asyncio.run(context.close())


async def _guard_status(session: Session, context: Context) -> None:
    guarding, policy = context.guarding, guard_policy(context)
    running, entries = guarding.journal.running(), guarding.journal.entries()
    session.out.json(
        {
            "id": "guard",
            "running": running,
            "unit_installed": guarding.units.path(UNIT_NAME).exists(),
            "serving_floor_bytes": policy.serving_floor,
            "loading_floor_bytes": policy.loading_floor,
            "entries": [show.guard_entry_object(entry) for entry in entries],
        }
    )
    start = "start it: spark-tui guard, or as a unit: spark-tui guard --install"
    session.out.line(f"guard  {'running' if running else f'not running; {start}'}")
    session.out.lines(show.guard_text(entry) for entry in entries)


def _install_unit(session: Session, *, every_engine: bool, yes: bool) -> None:
    """Shows the unit, then writes, enables and starts it."""
    context = session.run(_core, changes=True)
    # A unit knows nothing of the shell that it was installed from.
    address = context.settings.docker_host or session.environment.get("DOCKER_HOST", "")
    otherwise = "start the guard in a shell: spark-tui guard"
    unit = Unit(
        UNIT_NAME,
        "Stops an engine before this machine runs out of unified memory",
        "guard --uninstall",
        ("guard", *["--every-engine"] * every_engine),
        GUARD_SERVICE,
        (("DOCKER_HOST", address),) if address else (),
        lingers=False,
        no_systemd=otherwise.capitalize(),
        no_manager=otherwise,
    )
    units, path = context.guarding.units, str(context.guarding.units.path(UNIT_NAME))
    _show_files(session, [(path, units.files(unit)[UNIT_NAME])], "Write, enable and start it?", yes=yes)
    units.install(unit)
    session.done(
        {"id": "guard-unit", "file": path, "installed": True},
        "The guard is running. To keep it running after logout: loginctl enable-linger",
    )
