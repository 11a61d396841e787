"""history: earlier starts of engines: how long they took, what they measured, why some failed."""

from __future__ import annotations

import click

from spark_tui.cli.command import command, complete
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.domain.errors import UsageError
from spark_tui.domain.history import HistoryOff
from spark_tui.domain.logs.starts import StartRecord
from spark_tui.domain.reading import Missing
from spark_tui.present import history as show

_EXAMPLES = """\
  spark-tui history                             the latest starts
  spark-tui history gpt-oss-120b       one engine or preset, the newest in full
  spark-tui history --failed --json | jq -r '.[].failure'
"""


@command("history", _EXAMPLES)
@click.argument("name", required=False, shell_complete=complete("engines"))
@click.option("--failed", is_flag=True, help="Only failed starts.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 5000), default=20, metavar="N", help="Maximum number of entries.  [20]"
)
def history(session: Session, name: str | None, failed: bool, limit: int) -> None:
    """Show earlier starts: duration, measurements, failures.

    Recorded while spark-tui is open, and by `up`: ~/.local/share/spark-tui/history.
    """

    async def look(context: Context) -> tuple[tuple[StartRecord, ...], tuple[str, ...]]:
        return await _find(context, name, failed=failed, limit=limit), context.history.state.notes

    starts, notes = session.run(look)
    for note in notes:
        session.err.note(note)
    if session.as_json:
        session.out.json([show.start_object(start) for start in starts])
    elif starts:
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
        session.err.say("No starts yet. They are recorded while spark-tui is open, and by spark-tui up.")


async def _find(context: Context, name: str | None, *, failed: bool, limit: int) -> tuple[StartRecord, ...]:
    """The latest starts; of one engine or preset where a name is given. Raises UsageError for an unknown name."""
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
    context: Context, *, engine: str = "", preset: str = "", failed: bool, limit: int
) -> tuple[StartRecord, ...]:
    reading = await context.history.find_starts(engine=engine, preset=preset, failed=failed, limit=limit)
    if isinstance(reading, Missing):
        remedy = context.history.state.remedy or "Engines serve without it."
        raise HistoryOff(f"The history is off: {reading.reason}.", remedy)
    return reading.value
