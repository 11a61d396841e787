"""What is shown of a launch before it happens: its fit, the findings of the rules, the model that it downloads."""

from __future__ import annotations

from typing import Final

from spark_tui.base.finding import Severity, pairs_text
from spark_tui.base.page import SEVERITIES, Cell, Object, Page, Row, Section, Tone, finding_fix, maybe
from spark_tui.base.quantities import short_tokens
from spark_tui.catalog.fit.model.fit import Fit, FitChange, FitWord
from spark_tui.catalog.fit.model.verdict import LaunchVerdict, fit_lines
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.rules.check import deviations

FIT_TONES: Final = {
    FitWord.FITS: Tone.GOOD,
    FitWord.FITS_WITH: Tone.GOOD,
    FitWord.FITS_WHEN_STOPPED: Tone.WARNING,
    FitWord.DOES_NOT_FIT: Tone.BAD,
    FitWord.UNKNOWN: Tone.QUIET,
}


def fit_word(fit: Fit | None) -> Cell:
    """`fits`, `fits with 0.24`, `fits when NAME stops`, `does not fit`, `unknown`; empty before it is worked out."""
    if fit is None:
        return Cell("")
    tone = FIT_TONES[fit.word]
    return Cell(fit.text, Tone.WARNING if tone is Tone.GOOD and (fit.blocked or fit.slow) else tone)


def fit_verdict(fit: Fit | None) -> Page:
    """The word with its reasons, what would help, and what the machine can give."""
    if fit is None:
        return (Section(rows=(Row("Not worked out yet.", tone=Tone.QUIET),)),)
    rows = [*_word_rows(fit), *(Row(reason, "-") for reason in fit.reasons[1:]), *reach_rows(fit)]
    helps = tuple(Row(fit_change(change), "-") for change in fit.changes)
    return (Section(rows=tuple(rows)), *((Section("What would help", helps),) if helps else ()))


def _word_rows(fit: Fit) -> list[Row]:
    """The word, and why."""
    word = fit_word(fit)
    return [Row(word.text, tone=word.tone), *(Row(reason, "-") for reason in fit.reasons[:1])]


def reach_rows(fit: Fit) -> list[Row]:
    """What a launch can get: the longest context for its users, and the most users at its context; then the same with
    all other engines stopped."""
    reach = fit.reach
    if reach is None or fit.context is None:
        return []

    def row(label: str, context: int, users: int) -> Row:
        longest = f"{short_tokens(context)} context for {_users(reach.users)}; " if context else ""
        length = short_tokens(fit.context or 0)
        most = f"{_users(users)} at {length}" if users else f"too little memory for {length}"
        return Row(longest + most, label, Tone.QUIET)

    others = any(each.holds for each in fit.neighbours)
    alone = row("alone", reach.context_alone, reach.users_alone)
    return [row("now", reach.context_now, reach.users_now), *([alone] if others else ())]


def _users(count: int) -> str:
    return f"{count:,} user{'' if count == 1 else 's'}"


def fit_change(change: FitChange) -> str:
    return f"{change.summary} ({pairs_text(change.pairs)})" if change.pairs else change.summary


def fit_figures(fit: Fit) -> Page:
    """What it takes and what the machine has, line by line."""
    lines = tuple(fit_lines(fit))
    widest = max((len(line.value) for line in lines), default=0)
    rows = tuple(Row(f"{line.label.strip()}  {line.note}".rstrip(), f"{line.value:>{widest}}") for line in lines)
    notes = tuple(Section(rows=(Row(note, tone=Tone.QUIET),)) for note in fit.notes)
    return (Section(rows=rows), *notes)


def verdict_object(found: Fit) -> Object:
    """`change` and `stops` are ways to make it launchable; `memory_share` is what the launch uses."""
    return {
        "verdict": found.word.value,
        "text": found.text,
        "launchable": not found.blocked,
        "memory_share": found.utilization,
        "memory_share_auto": found.auto,
        "change": dict(found.change),
        "stops": list(found.stops),
    }


def fit_object(name: str, found: Fit) -> Object:
    """Sizes in bytes; null is not known, and `unknown` says which parts are not."""
    kv, decode = found.kv, found.decode
    return {
        "id": name,
        **verdict_object(found),
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
        "memory_share_least": found.utilization_least,
        "memory_share_needed": found.utilization_needed,
        "memory_share_most": found.utilization_most,
        "reach": None
        if found.reach is None
        else {
            "users": found.reach.users,
            "longest_context_tokens_now": found.reach.context_now,
            "longest_context_tokens_others_stopped": found.reach.context_alone,
            "most_users_now": found.reach.users_now,
            "most_users_others_stopped": found.reach.users_alone,
        },
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
        "decode": None
        if decode is None
        else {
            "read_bytes_per_token": decode.reads,
            "low_tokens_per_second": round(decode.span()[0], 1),
            "high_tokens_per_second": round(decode.span(found.published)[1], 1),
        },
    }


# --- what differs from the recipe ---------------------------------------------------------------------------


def deviations_page(plan: LaunchPlan | None) -> Page:
    """What the launch does otherwise than its recipe, each with the reason; nothing where it cannot be planned."""
    rows = tuple(Row(each.text, "-") for each in (deviations(plan) if plan is not None else ()))
    return (Section("Other than the recipe", rows),) if rows else ()


def deviations_object(plan: LaunchPlan) -> list[Object]:
    """As `deviations_page`, by id; `source` is null where the recipe does not say."""
    return [
        {
            "id": each.id,
            **maybe("source", each.source or None, "the recipe does not say"),
            "launch": each.launch,
            "reason": each.why,
        }
        for each in deviations(plan)
    ]


# --- the values of the form ---------------------------------------------------------------------------------


def judgement_page(judgement: LaunchVerdict | None) -> Page:
    """The verdict with its reason and what would help, then errors and warnings, each with its fix."""
    if judgement is None:
        return (Section(rows=(Row("Checking fit and rules ...", tone=Tone.QUIET),)),)
    fit = judgement.fit
    rows = _word_rows(fit)
    rows += [Row(text, "-") for text in fit.reasons[1:] if fit.blocked]
    rows += [Row(fit_change(change), ">") for change in fit.changes]
    rows += reach_rows(fit)
    for finding in judgement.findings:
        if finding.severity is not Severity.INFO:
            word, tone = SEVERITIES[finding.severity]
            rows += [Row(finding.summary, word, tone), Row(finding_fix(finding), "fix")]
    notes = sum(finding.severity is Severity.INFO for finding in judgement.findings)
    if notes:
        rows.append(Row(f"{notes} more note{'s' * (notes > 1)}: see Checks of the preset.", tone=Tone.QUIET))
    return (Section(rows=tuple(rows)),)
