"""fit: does a preset fit into the memory that is free now."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from spark_tui.cli.recipes import find_preset
from spark_tui.cli.session import Session
from spark_tui.cli.tables import bulleted, wrapped
from spark_tui.cli.typing_words import set_words
from spark_tui.core.context import Context
from spark_tui.domain.errors import UnreachableError
from spark_tui.domain.presets.fit import Change, Fit, Part
from spark_tui.domain.presets.fit_words import FitLine, fit_lines
from spark_tui.domain.presets.overrides import overrides_from_pairs, pairs_from
from spark_tui.domain.text import clean_line


def fit(session: Session, name: str, settings: tuple[str, ...]) -> None:
    """Prints the verdict, its reasons, the figures and what would help. The verdict is data, not an exit code."""
    typed = pairs_from(settings)
    overrides = overrides_from_pairs(typed)

    async def work(context: Context) -> Fit:
        preset = find_preset(context, name)
        await context.history.load()
        await context.collectors.collect_once()
        try:
            await context.supervisor.look()
        except UnreachableError as error:
            session.err.note(f"{error.summary} Other engines are not known.")
        return await context.fitting.fit(preset, overrides)

    found = session.run(work)
    if session.as_json:
        session.out.json(_shape(name, found))
        return
    session.out.lines(clean_line(line) for line in _text(found, session.out.terminal.width))
    for change in found.changes:
        if change.pairs:
            words = set_words((typed | dict(change.pairs)).items())
            session.err.say(f"{change.summary.rstrip('.')}: spark-tui fit {name} {words}")
    for note in found.notes:
        session.err.note(note)


def _text(found: Fit, width: int | None) -> list[str]:
    lines = [f"{found.verdict.value}  {wrapped(found.reasons[0], None)[0] if found.reasons else ''}".rstrip()]
    lines += [f"  {reason}" for reason in found.reasons[1:]]
    lines += ["", *_figures(fit_lines(found))]
    if found.changes:
        lines += ["", "what would help", *bulleted([change.summary for change in found.changes], width)]
    return lines


def _figures(rows: tuple[FitLine, ...]) -> list[str]:
    label = max((len(row.label) for row in rows), default=0)
    value = max((len(row.value) for row in rows), default=0)
    return [f"{row.label:<{label}}  {row.value:>{value}}  {row.note}".rstrip() for row in rows]


def _shape(name: str, found: Fit) -> dict[str, Any]:
    """Sizes in bytes; null is not known, and `unknown` says which parts are not."""
    kv, decode = found.kv, found.decode
    return {
        "id": name,
        "verdict": found.verdict.value,
        "reasons": list(found.reasons),
        "notes": list(found.notes),
        "changes": [_change(change) for change in found.changes],
        "parts": [_part(part) for part in (*found.parts, *found.outside)],
        "unknown": [part.id.value for part in found.unknown],
        "context_tokens": found.context,
        "sequences": found.sequences,
        "total_bytes": found.total,
        "available_bytes": found.available,
        "claim_bytes": found.claim,
        "at_least_bytes": found.at_least,
        "need_bytes": found.need,
        "need_all_bytes": found.need_all,
        "left_bytes": found.left,
        "cache_to_drop_bytes": found.cache_to_drop,
        "utilization": found.utilization,
        "utilization_needed": found.utilization_needed,
        "utilization_most": found.utilization_most,
        "neighbours": [
            {"id": other.name, "holds_bytes": other.holds, "will_take_bytes": other.will_take}
            for other in found.neighbours
        ],
        "kv": None
        if kv is None
        else {
            "room_bytes": kv.room,
            "sequence_bytes": kv.each,
            "concurrency": round(kv.concurrency, 2),
            "tokens": kv.tokens,
            "longest_context_tokens": kv.longest,
            "bytes_per_token": kv.bytes_per_token,
            "state_bytes": kv.state_bytes,
            "dtype": kv.dtype,
        },
        "decode": None if decode is None else asdict(decode),
    }


def _part(part: Part) -> dict[str, Any]:
    return {"id": part.id.value, "bytes": part.size, "basis": part.basis.value, "note": part.note}


def _change(change: Change) -> dict[str, Any]:
    return {"summary": change.summary, "set": dict(change.pairs), "gains_bytes": change.gains}
