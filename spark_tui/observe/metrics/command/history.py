"""history and events: earlier starts of engines, and what happened on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.finding import Event, Missing
from spark_tui.base.host.series import HistoryOff
from spark_tui.cli.command import command, complete
from spark_tui.cli.session import Session
from spark_tui.observe.explain.model.starts import StartRecord
from spark_tui.observe.metrics.show import history as show
from spark_tui.observe.metrics.show.events import event_object, events_table
from spark_tui.observe.metrics.use.history import History, HistoryStore
from spark_tui.observe.results.model.proof import Proof
from spark_tui.observe.results.model.run import Result
from spark_tui.observe.results.use import GoodStart, ProofStore, Results, measured_starts

_EXAMPLES = """\
  spark-tui history                             the latest starts
  spark-tui history gpt-oss-120b       one engine or preset, the newest in full
  spark-tui history --failed --json | jq -r '.[].failure'
  spark-tui history --good gpt-oss-120b         the image digests that served well
"""


@command("history", _EXAMPLES)
@click.argument("name", required=False, shell_complete=complete("engines"))
@click.option("--failed", is_flag=True, help="Only failed starts.")
@click.option("--good", is_flag=True, help="Only launches that served well, with image digest and options.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 5000), default=20, metavar="N", help="Maximum number of entries.  [20]"
)
def history(session: Session, name: str | None, failed: bool, good: bool, limit: int) -> None:
    """Show earlier starts: duration, measurements, failures.

    Recorded while spark-tui is open, and by `up`: ~/.local/share/spark-tui/history.
    """
    if good and failed:
        raise UsageError("--good and --failed exclude each other.", "Leave one of them out.")

    async def look(context: Context) -> tuple[tuple[StartRecord, ...], tuple[GoodStart, ...]]:
        starts = await _find(context, name, failed=failed, good=good, limit=limit)
        return starts, _measured(context, starts) if good else ()

    starts, measured = session.run(look)
    if good:
        session.out.json([show.good_object(each) for each in measured])
        if not measured:
            session.err.say(f"No good starts of {name}." if name else "No good starts yet.")
            return
        session.out.table(show.good_table(measured))
        if name is not None:
            session.out.line()
            session.out.page(show.good_page(measured[0]))
            session.err.say(f"Pin the image of the newest: spark-tui presets pin {measured[0].start.preset}")
        return
    session.out.json([show.start_object(start) for start in starts])
    if starts:
        session.out.table(show.starts_table(starts))
        for start in starts:
            if start.failure:
                session.err.say(f"{start.engine} {show.when(start.at)}: {start.failure}")
        if name is not None:
            session.out.line()
            session.out.page(show.start_page(starts[0]))
    elif failed:
        session.err.say(f"No failed starts of {name}." if name else "No failed starts.")
    else:
        session.err.say("No starts yet. They are recorded while spark-tui is open, and by spark-tui up PRESET.")


_EVENT_EXAMPLES = """\
  spark-tui events                              the latest events
  spark-tui events -n 100 --json | jq -r '.[] | select(.kind == "failed").text'
"""


@command("events", _EVENT_EXAMPLES)
@click.option(
    "-n", "--limit", type=click.IntRange(1, 5000), default=20, metavar="N", help="Maximum number of entries.  [20]"
)
def events(session: Session, limit: int) -> None:
    """Show what happened on this machine.

    Launches, downloads, failures, benchmarks, what the memory guard did.

    Recorded while spark-tui is open: ~/.local/share/spark-tui/history.
    """

    async def look(context: Context) -> tuple[tuple[Event, ...], float]:
        reading = await context[History].events(limit)
        if isinstance(reading, Missing):
            raise _off(context, reading.reason)
        return reading.value, context.clock.now()

    found, now = session.run(look)
    session.out.json([event_object(event) for event in reversed(found)])
    if found:
        session.out.table(events_table(found, now))
    else:
        session.err.say("No events yet. They are recorded while spark-tui is open.")


def _measured(context: Context, starts: Sequence[StartRecord]) -> tuple[GoodStart, ...]:
    """With results and proofs, as far as these can be read."""
    results: Sequence[Result] = ()
    proofs: Sequence[Proof] = ()
    with suppress(SparkError):  # Bench shows why
        results = context[Results].all() if context.ports.has("results") else ()
    with suppress(SparkError):
        proofs = context[ProofStore].all() if context.ports.has("proofs") else ()
    return measured_starts(starts, results, proofs)


async def _find(context: Context, name: str | None, *, failed: bool, good: bool, limit: int) -> tuple[StartRecord, ...]:
    """The latest starts; of one engine or preset where a name is given. Raises UsageError for an unknown name."""
    if good:
        ready = (
            *await _starts(context, engine=name or "", ready=True, limit=5000),
            *(await _starts(context, preset=name, ready=True, limit=5000) if name else ()),
        )
        found = {start.key: start for start in ready if start.good}
        return tuple(sorted(found.values(), key=lambda start: start.at, reverse=True)[:limit])
    if name is None:
        return await _starts(context, failed=failed, limit=limit)
    by_engine = await _starts(context, engine=name, failed=failed, limit=limit)
    by_preset = await _starts(context, preset=name, failed=failed, limit=limit)
    found = {start.key: start for start in (*by_engine, *by_preset)}
    if not found and not failed:
        known = sorted({start.engine for start in await _starts(context, failed=False, limit=1000)})
        raise UsageError(f"No start of {name} is known.", f"Known: {', '.join(known) if known else 'none yet'}.")
    return tuple(sorted(found.values(), key=lambda start: start.at, reverse=True)[:limit])


async def _starts(
    context: Context, *, engine: str = "", preset: str = "", failed: bool = False, ready: bool = False, limit: int
) -> tuple[StartRecord, ...]:
    reading = await context[HistoryStore].starts(engine=engine, preset=preset, failed=failed, ready=ready, limit=limit)
    if isinstance(reading, Missing):
        raise _off(context, reading.reason)
    return reading.value


def _off(context: Context, reason: str) -> HistoryOff:
    return HistoryOff(f"The history is off: {reason}.", context[History].state.remedy or "Engines serve without it.")
