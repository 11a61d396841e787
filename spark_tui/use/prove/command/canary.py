"""canary: measures what serves each night, and shows when it has changed."""

from __future__ import annotations

import re
from functools import partial

import click

from spark_tui.base.context import Context
from spark_tui.base.engine.units import Unit
from spark_tui.base.errors import ExitCode, RefusedError, UsageError
from spark_tui.base.page import Cell, Column, Object, Table, Tone, cells, maybe, moment, rounded
from spark_tui.cli.command import command, yes_option
from spark_tui.cli.session import Session, confirm
from spark_tui.observe.metrics.show.history import when
from spark_tui.observe.metrics.use.history import HistoryStore, keep_void, supervised
from spark_tui.use.prove.model.canary import CanaryVerdict
from spark_tui.use.prove.use.canary import UNIT, CanaryRunner, verdicts_of

_EXAMPLES = """\
  spark-tui canary --install --at 03:30   each night, when the engine is idle
  spark-tui canary --status               the last night beside the weeks before
  spark-tui canary                        measure now
"""
_TIMER = f"{UNIT}.timer"


@command("canary", _EXAMPLES)
@click.option("--install", is_flag=True, help="Measure each night, by a systemd timer of this user.")
@click.option("--at", "at", default="03:30", metavar="HH:MM", help="When, for --install.  [03:30]")
@click.option("--status", "status", is_flag=True, help="Show the last night; measures nothing.")
@click.option("--remove", is_flag=True, help="Remove the timer. Figures stay.")
@yes_option
def canary(session: Session, install: bool, at: str, status: bool, remove: bool, yes: bool) -> int:
    """Measure idle engines each night, and show when their figures change.

    One short bench and a proof of each engine that serves and is idle, kept in the history. Cases of the proof that
    may make an engine compile are left out.

    Home shows when the last night differs from the four weeks before beyond their noise, with what changed meanwhile:
    image, driver, kernel, preset. Exit code 1: something differs for the worse, or an engine ended or was restarted
    meanwhile: void, not kept, and it is started again.
    """
    if install + status + remove > 1:
        raise UsageError("--install, --status and --remove exclude one another.", "Use one of them.")
    if install:
        return _install(session, at, yes=yes)
    if remove:
        was = session.run(lambda context: context.in_thread(context.ports.boot.remove, _TIMER), changes=True)
        session.done(
            {"id": UNIT, "installed": False, "was_installed": was},
            "The timer is removed." if was else "No timer is installed.",
        )
        return ExitCode.DONE
    return _status(session) if status else _measure(session)


def _install(session: Session, at: str, *, yes: bool) -> int:
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", at):
        raise UsageError(f"{at!r} is no time of day.", "For example: --at 03:30")
    if not confirm(session, f"Measure idle engines each night at {at}?", yes=yes):
        raise RefusedError("Nothing was written.", "Skip the question with --yes.")

    unit = Unit(
        _TIMER,
        "Measures what spark-tui serves, each night",
        "canary --remove",
        ("canary",),
        ("Nice=10",),
        calendar=(f"*-*-* {at}:00",),
        no_systemd="Use cron (crontab -e): spark-tui canary",
    )
    session.run(lambda context: context.in_thread(context.ports.boot.install, unit), changes=True)
    session.done({"id": UNIT, "installed": True, "at": at}, "Installed. See the last night: spark-tui canary --status")
    return ExitCode.DONE


def _status(session: Session) -> int:
    async def look(context: Context) -> tuple[tuple[CanaryVerdict, ...], bool]:
        found = await verdicts_of(context[HistoryStore], context.clock.now())
        boot = context.ports.get("boot")
        return found, boot is not None and await context.in_thread(boot.path(_TIMER).exists)

    found, installed = session.run(look)
    session.out.json({"installed": installed, "engines": [_object(each) for each in found]})
    if found:
        _show(session, found)
    else:
        session.err.say("No nights yet. Measure now: spark-tui canary")
    if not installed:
        session.err.say("Not installed. Each night: spark-tui canary --install")
    return ExitCode.DONE


def _measure(session: Session) -> int:
    results = session.run(
        lambda context: supervised(
            context, context[CanaryRunner].run(lambda name: session.err.say(f"Measuring {name}...", "dim"))
        ),
        changes=True,
    )
    found = tuple(each.verdict for each in results if each.verdict is not None)
    skipped = [{"id": each.engine, "reason": each.skipped} for each in results if each.skipped]
    void = {each.engine: each.void for each in results if each.void is not None}
    session.out.json(
        {
            "engines": [_object(each) for each in found],
            "skipped": skipped,
            "void": [{"id": engine, "reason": error.summary} for engine, error in void.items()],
        }
    )
    for error in void.values():
        session.run(partial(keep_void, error))
        session.err.error(error)
    session.err.note(*(f"{each['id']}: not measured. {each['reason']}" for each in skipped))
    if found:
        _show(session, found)
    elif not results:
        session.err.say("No engine serves.")
    return ExitCode.FAILED if void or any(each.slower or each.broken for each in found) else ExitCode.DONE


def _show(session: Session, found: tuple[CanaryVerdict, ...]) -> None:
    words = {True: Cell("differs", Tone.WARNING), False: Cell("as before", Tone.GOOD)}
    rows = tuple(
        cells(
            when(each.last.at),
            each.last.engine,
            words[each.differs] if each.interval or each.broken else Cell("too few nights", Tone.QUIET),
            each.sentence,
        )
        for each in found
    )
    session.out.table(Table((Column("MEASURED"), Column("ENGINE"), Column("STATE"), Column("FIGURES", least=30)), rows))


def _object(found: CanaryVerdict) -> Object:
    few = "too few nights"
    low_high = None if found.interval is None else [rounded(found.interval.low), rounded(found.interval.high)]
    return {
        "id": found.last.engine,
        "measured_at": moment(found.last.at),
        "nights": found.nights,
        "differs": found.differs,
        **maybe("tokens_per_second", rounded(found.last.rate), "not measured"),
        **maybe("expected_tokens_per_second", low_high, few),
        "failed": list(found.last.failed),
        "newly_failing": list(found.broken),
        "changed": [{"id": what, "usual": before, "now": now} for what, before, now in found.changed],
    }
