"""guard: the memory watchdog in the foreground, its state, and its systemd unit."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import click

from spark_tui.cli.command import command, yes_option
from spark_tui.cli.session import Session, confirm
from spark_tui.core.context import Context
from spark_tui.domain.errors import RefusedError
from spark_tui.domain.host.guard import UNIT_NAME, GuardEntry, unit_text
from spark_tui.domain.quantities import gib
from spark_tui.present.memory import guard_entry_object, guard_text

_EXAMPLES = """\
  spark-tui guard                               in the foreground, until Ctrl-C
  spark-tui guard --install                     as a systemd user unit
  spark-tui guard --status                      is it running, and what it did
"""


@command("guard", _EXAMPLES)
@click.option("--every-engine", is_flag=True, help="May also stop engines that spark-tui did not launch.")
@click.option("--while-engines-run", is_flag=True, help="Exit two minutes after the last engine.")
@click.option("--status", "show", is_flag=True, help="Print whether it is running and what it did.")
@click.option("--install", is_flag=True, help="Install a systemd user unit, which is shown first.")
@click.option("--uninstall", is_flag=True, help="Stop and remove that unit.")
@yes_option
def guard(
    session: Session,
    every_engine: bool,
    while_engines_run: bool,
    show: bool,
    install: bool,
    uninstall: bool,
    yes: bool,
) -> None:
    """Stop an engine before the machine runs out of memory and freezes.

    Checks memory ten times a second when it is short. First a graceful stop, then a kill; the reason is recorded.
    A launch starts one by itself (setting guard_auto), which exits some time after the last engine.
    """
    if install + uninstall + show > 1:
        raise click.UsageError("Use one of --status, --install and --uninstall.")
    if show:
        _status(session)
    elif install:
        _install(session, every_engine=every_engine, yes=yes)
    elif uninstall:
        _uninstall(session)
    else:
        _guard(session, every_engine=every_engine, while_engines_run=while_engines_run)


def _guard(session: Session, *, every_engine: bool, while_engines_run: bool) -> None:
    """Guards until Ctrl-C or SIGTERM. What it does is written to standard output, line by line."""
    context = session.opened()
    try:
        session.refuse_if_read_only(context)
        journal = context.guarding.journal
        if not journal.claim():
            raise RefusedError("A guard is already running.", "See what it did: spark-tui guard --status")
        try:
            _watch(session, context, every_engine=every_engine, while_engines_run=while_engines_run)
        finally:
            journal.release()
    finally:
        asyncio.run(context.close())


def _watch(session: Session, context: Context, *, every_engine: bool, while_engines_run: bool) -> None:
    def write(entry: GuardEntry) -> None:
        if session.as_json:
            session.out.json_line(guard_entry_object(entry))
        else:
            session.out.line(guard_text(entry))

    watch = context.new_guard(write, only_ours=not every_engine, while_engines_run=while_engines_run)
    policy, engine = context.guard_policy, "any engine" if every_engine else "an engine of spark-tui"
    session.err.say(
        f"Guarding: stops {engine} below {gib(policy.serving_floor)} GiB of available memory "
        f"({gib(policy.loading_floor)} while one loads), or earlier if memory falls fast. Ctrl-C stops the guard."
    )
    missing = context.guarding.actuator.prepare()
    if missing:
        session.err.note(f"Reduced protection: {missing}. Complete as root or as a system service.")
    with _stop_signals() as stop:
        watch.run(stop)
    if watch.problem:
        session.err.note(watch.problem)
    session.err.say("The guard has stopped.")


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _status(session: Session) -> None:
    async def look(context: Context) -> None:
        journal, policy = context.guarding.journal, context.guard_policy
        running, entries = journal.running(), journal.entries()
        if session.as_json:
            session.out.json(
                {
                    "id": "guard",
                    "running": running,
                    "unit_installed": context.guarding.units.path(UNIT_NAME).exists(),
                    "serving_floor_bytes": policy.serving_floor,
                    "loading_floor_bytes": policy.loading_floor,
                    "entries": [guard_entry_object(entry) for entry in entries],
                }
            )
            return
        start = "start it: spark-tui guard, or as a unit: spark-tui guard --install"
        session.out.line(f"guard  {'running' if running else f'not running; {start}'}")
        session.out.lines(guard_text(entry) for entry in entries)

    session.run(look)


def _install(session: Session, *, every_engine: bool, yes: bool) -> None:
    """Shows the unit, then writes, enables and starts it."""

    async def prepare(context: Context) -> Context:
        session.refuse_if_read_only(context)
        return context

    context = session.run(prepare)
    units = context.guarding.units
    words = [sys.executable, "-P", "-m", "spark_tui", "guard"]  # -P: never import from the unit's working folder
    words += ["--config", session.options.config] if session.options.config else []
    words += ["--every-engine"] if every_engine else []
    # A unit knows nothing of the shell that it was installed from.
    address = context.settings.docker_host or session.environment.get("DOCKER_HOST", "")
    text = unit_text(words, [("DOCKER_HOST", address)] if address else [])
    session.err.say(f"{units.path(UNIT_NAME)}:")
    for line in text.splitlines():
        session.err.say(f"    {line}")
    if not confirm(session, "Write, enable and start it?", yes=yes):
        raise RefusedError("Nothing was written.", "Skip the question with --yes.")
    units.install(UNIT_NAME, text)
    if session.as_json:
        session.out.json({"id": "guard-unit", "file": str(units.path(UNIT_NAME)), "installed": True})
    else:
        session.err.say("The guard is running. To keep it running after logout: loginctl enable-linger")


def _uninstall(session: Session) -> None:
    """Stops and removes the unit."""

    async def work(context: Context) -> tuple[bool, str]:
        session.refuse_if_read_only(context)
        units = context.guarding.units
        return units.uninstall(UNIT_NAME), str(units.path(UNIT_NAME))

    was, path = session.run(work)
    if session.as_json:
        session.out.json({"id": "guard-unit", "file": path, "installed": False, "was_installed": was})
    else:
        session.err.say(f"Removed: {path}" if was else "No guard unit is installed.")
