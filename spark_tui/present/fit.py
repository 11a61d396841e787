"""What is shown of a fit: the verdict, what would help, the figures."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from spark_tui.domain.presets.fit import Fit, FitChange, Verdict, fit_lines
from spark_tui.present.json import Object
from spark_tui.present.logs import pairs_text
from spark_tui.present.page import Cell, Page, Row, Section, Tone

FIT_TONES: Final = {
    Verdict.READY: Tone.GOOD,
    Verdict.SLOW: Tone.WARNING,
    Verdict.BLOCKED: Tone.BAD,
    Verdict.UNKNOWN: Tone.QUIET,
}


def fit_word(fit: Fit | None) -> Cell:
    """READY, SLOW, BLOCKED, BUSY where it fits once other engines are stopped, or UNKNOWN."""
    if fit is None:
        return Cell("")
    if fit.only_neighbours:
        return Cell("BUSY", Tone.WARNING)
    return Cell(fit.verdict.value, FIT_TONES[fit.verdict])


def fit_verdict(fit: Fit | None) -> Page:
    """The verdict with its reasons, and what would help."""
    if fit is None:
        return (
            Section(rows=(Row("Not worked out yet, or this preset cannot be launched: see Checks.", tone=Tone.QUIET),)),
        )
    word = fit_word(fit)
    rows = [Row(fit.reasons[0] if fit.reasons else "", word.text, word.tone)]
    rows += [Row(reason, "-") for reason in fit.reasons[1:]]
    if fit.only_neighbours:
        rows.append(Row("Fits once other engines are stopped.", tone=Tone.QUIET))
    helps = tuple(Row(fit_change(change), "-") for change in fit.changes)
    return (Section(rows=tuple(rows)), *((Section("What would help", helps),) if helps else ()))


def fit_change(change: FitChange) -> str:
    """What would help, with the setting that does it."""
    return f"{change.summary} ({pairs_text(change.pairs)})" if change.pairs else change.summary


def fit_figures(fit: Fit) -> Page:
    """What it takes and what the machine has, line by line."""
    lines = tuple(fit_lines(fit))
    widest = max((len(line.value) for line in lines), default=0)
    rows = tuple(Row(f"{line.label.strip()}  {line.note}".rstrip(), f"{line.value:>{widest}}") for line in lines)
    notes = tuple(Section(rows=(Row(note, tone=Tone.QUIET),)) for note in fit.notes)
    return (Section(rows=rows), *notes)


def fit_object(name: str, found: Fit) -> Object:
    """Sizes in bytes; null is not known, and `unknown` says which parts are not."""
    kv, decode = found.kv, found.decode
    return {
        "id": name,
        "verdict": found.verdict.value,
        "reasons": list(found.reasons),
        "notes": list(found.notes),
        "changes": [
            {"summary": each.summary, "set": dict(each.pairs), "gains_bytes": each.gains} for each in found.changes
        ],
        "parts": [
            {"id": part.id.value, "bytes": part.size, "basis": part.basis.value, "note": part.note}
            for part in (*found.parts, *found.outside)
        ],
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
