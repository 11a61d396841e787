"""What is shown of a launch before it happens: its fit, the findings of the rules, the model that it downloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from spark_tui.core.downloads import MissingFiles
from spark_tui.domain.errors import SparkError
from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.models.download import DownloadRequest
from spark_tui.domain.presets.fit import Fit, FitChange, Verdict, fit_lines
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.present.json import Object
from spark_tui.present.logs import pairs_text, set_options
from spark_tui.present.page import Cell, Page, Row, Section, Tone, labelled

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


# --- findings of the rules ---------------------------------------------------------------------------------

ABOUT_NOW: Final = frozenset(("engines_exceed_machine", "gated_without_token"))
"""Rules about this machine at this moment: the list, which describes the recipe, leaves them out."""
SEVERITIES: Final = {
    Severity.ERROR: ("error", Tone.BAD),
    Severity.WARNING: ("warning", Tone.WARNING),
    Severity.INFO: ("note", Tone.PLAIN),
}


def finding_fix(finding: Finding, *, flags: bool = False) -> str:
    """The remedy, with the setting that it means unless it names it."""
    if pairs_text(finding.change) in finding.remedy:
        return finding.remedy
    return f"{finding.remedy} Set {set_options(finding.change) if flags else pairs_text(finding.change)}"


def finding_section(finding: Finding, *, flags: bool = False) -> Section:
    """A finding with its remedy, its evidence, and the change that ends it."""
    word, tone = SEVERITIES[finding.severity]
    now = "current machine state only" if finding.id in ABOUT_NOW else ""
    more = (
        ("fix", finding.remedy),
        ("evidence", "; ".join(finding.evidence)),
        ("setting", set_options(finding.change) if flags else pairs_text(finding.change)),
        ("now", now),
        ("rule", finding.id),
    )
    return Section(rows=(Row(finding.summary, word, tone), *labelled(more)))


def finding_count(findings: Sequence[Finding]) -> str:
    """`1 error, 2 warnings`."""
    counts = [(word, sum(each.severity is level for each in findings)) for level, (word, _) in SEVERITIES.items()]
    return ", ".join(f"{count} {word}{'s' * (count > 1)}" for word, count in counts if count) or "no findings"


def finding_object(finding: Finding) -> Object:
    return {
        "id": finding.id,
        "severity": SEVERITIES[finding.severity][0],
        "summary": finding.summary,
        "evidence": "; ".join(finding.evidence),
        "remedy": finding.remedy,
        "fix": dict(finding.change),
    }


# --- the values of the form ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaunchVerdict:
    """The fit and the findings of one set of values. None: it could not be worked out."""

    overrides: Overrides
    fit: Fit | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def blocked(self) -> bool:
        """It cannot fit: a launch needs the preset's name typed."""
        return self.fit is not None and self.fit.verdict is Verdict.BLOCKED


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """What a launch would download, of all that it `needs`. `wanted` None: unknown, or there is no Hub."""

    needs: tuple[DownloadRequest, ...]
    wanted: MissingFiles | None = None
    problem: SparkError | None = None


def judgement_page(judgement: LaunchVerdict | None) -> Page:
    """The verdict with its reason and what would help, then errors and warnings, each with its fix."""
    if judgement is None:
        return (Section(rows=(Row("Checking fit and rules ...", tone=Tone.QUIET),)),)
    rows: list[Row] = []
    fit = judgement.fit
    if fit is not None:
        verdict = fit_word(fit)
        rows.append(Row(fit.reasons[0] if fit.reasons else "", verdict.text, verdict.tone))
        rows += [Row(text, "-") for text in fit.reasons[1:] if fit.verdict is Verdict.BLOCKED]
        rows += [Row(fit_change(change), ">") for change in fit.changes]
    for finding in judgement.findings:
        if finding.severity is not Severity.INFO:
            word, tone = SEVERITIES[finding.severity]
            rows += [Row(finding.summary, word, tone), Row(finding_fix(finding), "fix")]
    notes = sum(finding.severity is Severity.INFO for finding in judgement.findings)
    if notes:
        rows.append(Row(f"{notes} more note{'s' * (notes > 1)}: see Checks of the preset.", tone=Tone.QUIET))
    return (Section(rows=tuple(rows)),) if rows else ()


def model_page(status: ModelStatus | None, *, fetch: bool, key: str) -> Page:
    """One line where something is missing, none where all of it is downloaded. `fetch`: the launch downloads it;
    `key` changes that."""
    if status is None or (status.problem is None and (status.wanted is None or not status.wanted.plans)):
        return ()
    wanted = status.wanted
    if not fetch:
        row = Row(f"left to the engine  {key} download first", "model", Tone.QUIET)
    elif status.problem is not None or wanted is None:
        problem = status.problem
        row = Row(f"{problem.summary} {problem.remedy}" if problem else "", "model", Tone.BAD)
    else:
        row = Row(f"{wanted.words}; downloaded first  {key} skip", "model", Tone.WARNING)
    return (Section(rows=(row,)),)
