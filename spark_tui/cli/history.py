"""history: the starts of this box's engines, what they took, what they measured, and why some failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from spark_tui.cli import shapes
from spark_tui.cli.output import Cell, Column, Table, labelled
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.domain.errors import UsageError
from spark_tui.domain.history import HistoryOff
from spark_tui.domain.logs.starts import StartRecord
from spark_tui.domain.logs.timeline import LABELS, Outcome
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.reading import Missing

_STYLES: Final = {"ready": "green", "failed": "red", "crashed": "red", "stopped": "dim"}


def history(session: Session, name: str | None, *, failed: bool, limit: int) -> None:
    """The latest starts, newest first; of one engine or preset where a name is given. Raises HistoryOff, and
    UsageError for a name that has none."""

    async def look(context: Context) -> tuple[tuple[StartRecord, ...], tuple[str, ...]]:
        starts = await _find(context, name, failed=failed, limit=limit)
        return starts, context.history.state.notes

    starts, notes = session.run(look)
    for note in notes:
        session.err.note(note)
    if session.as_json:
        session.out.json([_shape(start) for start in starts])
        return
    if not starts:
        session.err.say(_nothing(name, failed=failed))
        return
    session.out.table(_table(starts))
    for start in starts:
        if start.failure:
            session.err.say(f"{start.engine} {_when(start.at)}: {start.failure}")
    if name is not None:
        session.out.line()
        session.out.lines(_details(starts[0], session.out.terminal.width))


async def _find(context: Context, name: str | None, *, failed: bool, limit: int) -> tuple[StartRecord, ...]:
    if name is None:
        return await _starts(context, failed=failed, limit=limit)
    by_engine = await _starts(context, engine=name, failed=failed, limit=limit)
    by_preset = await _starts(context, preset=name, failed=failed, limit=limit)
    found = {start.key: start for start in (*by_engine, *by_preset)}
    if not found and not failed:
        known = sorted({start.engine for start in await _starts(context, failed=False, limit=1000)})
        raise UsageError(
            f"No start of {name} is known here.", f"Known: {', '.join(known)}." if known else "No start is known yet."
        )
    return tuple(sorted(found.values(), key=lambda start: start.at, reverse=True)[:limit])


async def _starts(
    context: Context, *, engine: str = "", preset: str = "", failed: bool, limit: int
) -> tuple[StartRecord, ...]:
    reading = await context.history.find_starts(engine=engine, preset=preset, failed=failed, limit=limit)
    if isinstance(reading, Missing):
        state = context.history.state
        raise HistoryOff(f"The history is off: {reading.reason}.", state.remedy or "Engines serve without it.")
    return reading.value


def _nothing(name: str | None, *, failed: bool) -> str:
    if failed:
        return f"No start of {name} has failed here." if name else "No start has failed here."
    return "No start is known yet: they are kept while spark-tui is open, and by spark-tui up."


# --- text ---------------------------------------------------------------------------------------------


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def outcome_word(start: StartRecord) -> str:
    """ready, stopped, failed (before it served), crashed (after)."""
    if start.outcome is Outcome.FAILED:
        return "crashed" if start.ready else "failed"
    if start.outcome is Outcome.STOPPED and not start.ready:
        return "stopped"
    return "ready" if start.ready else start.outcome.value


def _table(starts: Sequence[StartRecord]) -> Table:
    """The preset has a column only where it is not the engine's name."""
    others = any(start.preset not in ("", start.engine) for start in starts)
    columns = (
        Column("STARTED"),
        Column("ENGINE", flexible=True, name=True),
        *((Column("PRESET", flexible=True, spare=2),) if others else ()),
        Column("OUTCOME"),
        Column("TOOK", right=True),
        Column("CACHES", spare=1),
        Column("WEIGHTS + KV + GRAPHS GiB", spare=3),
    )
    return Table(columns, tuple(_cells(start, others) for start in starts))


def _cells(start: StartRecord, others: bool) -> tuple[Cell | str, ...]:
    word, sizes = outcome_word(start), start.sizes
    measured = [sizes.weights_gib, sizes.kv_gib, sizes.graphs_gib]
    known = any(size is not None for size in measured)
    return (
        _when(start.at),
        start.engine,
        *((start.preset,) if others else ()),
        Cell(word, _STYLES.get(word, "")),
        "" if start.seconds is None else human_duration(start.seconds),
        "" if start.warm is None else "warm" if start.warm else "cold",
        " + ".join("?" if size is None else f"{size:.1f}" for size in measured) if known else "",
    )


def _details(start: StartRecord, width: int | None) -> list[str]:
    """The newest one, in full."""
    phases = ", ".join(f"{LABELS[phase][1]} {human_duration(seconds)}" for phase, seconds in start.phases)
    where = f"in the phase {LABELS[start.failed_in][0]}" if start.failed_in else ""
    tokens = "" if start.sizes.kv_tokens is None else f"{start.sizes.kv_tokens:,} tokens"
    return labelled(
        (
            ("latest", f"{_when(start.at)}  {outcome_word(start)} {where}".rstrip()),
            ("model", start.model),
            ("image", start.image),
            ("phases", phases),
            ("KV cache", tokens),
            ("because", start.failure),
            ("log", start.line),
        ),
        width,
    )


# --- data ---------------------------------------------------------------------------------------------


def _shape(start: StartRecord) -> shapes.Object:
    sizes, silent, fine = start.sizes, "its log does not tell", "it has not failed"
    return {
        "id": start.container,
        "engine": start.engine,
        **shapes.maybe("preset", start.preset, "spark-tui did not launch it"),
        "model": start.model,
        "image": start.image,
        "image_id": start.image_id,
        "settings": start.settings,
        "runtime": start.runtime,
        **shapes.maybe("version", start.version, silent),
        "started_at": shapes.moment(start.at),
        "started_at_seconds": round(start.at, 3),
        **shapes.maybe("ended_at", shapes.moment(start.ended_at), "it was serving when it was last seen"),
        "outcome": outcome_word(start),
        "ready": start.ready,
        **shapes.maybe("boot_seconds", start.seconds, "it did not come to serve" if not start.ready else silent),
        **shapes.maybe("caches_warm", start.warm, silent),
        "phases": [{"id": phase.value, "seconds": round(seconds, 3)} for phase, seconds in start.phases],
        **shapes.maybe("weights_gib", sizes.weights_gib, silent),
        **shapes.maybe("kv_cache_gib", sizes.kv_gib, silent),
        **shapes.maybe("kv_cache_tokens", sizes.kv_tokens, silent),
        **shapes.maybe("cuda_graphs_gib", sizes.graphs_gib, silent),
        **shapes.maybe("cuda_graphs_estimated_gib", sizes.graphs_estimated_gib, silent),
        **shapes.maybe("gpu_memory_utilization", sizes.utilization, silent),
        **shapes.maybe("context_tokens", sizes.context, silent),
        **shapes.maybe("cause", start.cause, fine),
        **shapes.maybe("failure", start.failure, fine),
        **shapes.maybe("failed_in", start.failed_in.value if start.failed_in else None, fine),
        **shapes.maybe("line", start.line, fine),
        **shapes.maybe("exit_code", start.exit_code, "it was serving when it was last seen"),
    }
