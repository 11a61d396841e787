"""guard: the memory watchdog in the foreground, its state, and its systemd unit."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from types import FrameType

from spark_tui.cli import shapes
from spark_tui.cli.asking import confirm
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.core.guard import Guard
from spark_tui.domain.errors import RefusedError
from spark_tui.domain.host.guard import UNIT_NAME, GuardEntry, Policy, unit_text
from spark_tui.domain.quantities import gib

_ENDING = (signal.SIGINT, signal.SIGTERM)

# --- in the foreground --------------------------------------------------------------------------------


def guard(session: Session, *, every_engine: bool, while_engines_run: bool = False) -> None:
    """Guards until it is told to end (Ctrl-C, SIGTERM). What it does is written to standard output, line by line."""
    context = session.opened()
    try:
        session.refuse_if_read_only(context)
        journal = context.guarding.journal
        if not journal.claim():
            raise RefusedError("A guard runs already.", "See what it did: spark-tui guard --status")
        try:
            watch = context.new_guard(
                lambda entry: _tell(session, entry), only_ours=not every_engine, while_engines_run=while_engines_run
            )
            _run(session, context, watch, every_engine=every_engine)
        finally:
            journal.release()
    finally:
        asyncio.run(context.close())


def _run(session: Session, context: Context, watch: Guard, *, every_engine: bool) -> None:
    session.err.say(_intent(context.guard_policy, every_engine))
    lacking = context.guarding.hands.prepare()
    if lacking:
        session.err.note(f"Not as well prepared as could be: {lacking}. As a system service or as root it is.")
    with _told_to_end() as stop:
        watch.run(stop)
    if watch.problem:
        session.err.note(watch.problem)
    session.err.say("The guard has ended.")


def _intent(policy: Policy, every_engine: bool) -> str:
    whose = "any engine" if every_engine else "an engine of spark-tui"
    return (
        f"Guarding: stops {whose} below {gib(policy.serving_floor)} GiB of usable memory "
        f"({gib(policy.loading_floor)} while one loads), or before a fall gets there. Ctrl-C ends it."
    )


@contextlib.contextmanager
def _told_to_end() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(session: Session, entry: GuardEntry) -> None:
    if session.as_json:
        session.out.json_line(_entry(entry))
    else:
        session.out.line(_text(entry))


def _entry(entry: GuardEntry) -> shapes.Object:
    return {
        "at": shapes.moment(entry.at),
        "at_seconds": round(entry.at, 3),
        "act": entry.act,
        **shapes.maybe("engine", entry.engine, "it concerns no engine"),
        "reason": entry.reason,
        **shapes.maybe("how", entry.how, "nothing to tell"),
    }


def _text(entry: GuardEntry) -> str:
    when = datetime.fromtimestamp(entry.at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    how = f" ({entry.how})" if entry.how else ""
    return f"{when}  {entry.act}{f': {entry.engine}' if entry.engine else ''}: {entry.reason}{how}"


# --- its state ----------------------------------------------------------------------------------------


def guard_status(session: Session) -> None:
    """Whether a guard runs, and what it did."""

    async def look(context: Context) -> tuple[bool, tuple[GuardEntry, ...], bool, Policy]:
        ports = context.guarding
        unit = ports.units.path(UNIT_NAME).exists()
        return ports.journal.running(), ports.journal.entries(), unit, context.guard_policy

    running, entries, unit, policy = session.run(look)
    if session.as_json:
        session.out.json(
            {
                "id": "guard",
                "running": running,
                "unit_installed": unit,
                "serving_floor_bytes": policy.serving_floor,
                "loading_floor_bytes": policy.loading_floor,
                "entries": [_entry(entry) for entry in entries],
            }
        )
        return
    state = "runs" if running else "does not run; start it: spark-tui guard, or for good: spark-tui guard --install"
    session.out.line(f"guard  {state}")
    session.out.lines(_text(entry) for entry in entries)


# --- its unit -----------------------------------------------------------------------------------------


def install_unit(session: Session, *, every_engine: bool, yes: bool) -> None:
    """Shows the unit, then writes, enables and starts it."""

    async def prepare(context: Context) -> Context:
        session.refuse_if_read_only(context)
        return context

    context = session.run(prepare)
    units = context.guarding.units
    text = unit_text(_command(session, every_engine), _environment(session, context))
    session.err.say(f"{units.path(UNIT_NAME)}:")
    for line in text.splitlines():
        session.err.say(f"    {line}")
    if not confirm(session, "Write, enable and start it?", yes=yes):
        raise RefusedError("Nothing was written.", "With --yes it is done without asking.")
    units.install(UNIT_NAME, text)
    if session.as_json:
        session.out.json({"id": "guard-unit", "file": str(units.path(UNIT_NAME)), "installed": True})
    else:
        session.err.say("The guard runs. So that it also does while nobody is logged in: loginctl enable-linger")


def uninstall_unit(session: Session) -> None:
    """Stops and removes the unit."""

    async def work(context: Context) -> tuple[bool, str]:
        session.refuse_if_read_only(context)
        units = context.guarding.units
        return units.uninstall(UNIT_NAME), str(units.path(UNIT_NAME))

    was, path = session.run(work)
    if session.as_json:
        session.out.json({"id": "guard-unit", "file": path, "installed": False, "was_installed": was})
    else:
        session.err.say("The guard's unit is gone." if was else "There was no unit of the guard.")


def _command(session: Session, every_engine: bool) -> list[str]:
    # -P: the unit's working folder is no place to import from.
    words = [sys.executable, "-P", "-m", "spark_tui", "guard"]
    if session.options.config:
        words += ["--config", session.options.config]
    return [*words, "--every-engine"] if every_engine else words


def _environment(session: Session, context: Context) -> list[tuple[str, str]]:
    """A unit knows nothing of the shell that it was installed from: Docker's address goes along."""
    address = context.settings.docker_host or session.environment.get("DOCKER_HOST", "")
    return [("DOCKER_HOST", address)] if address else []
