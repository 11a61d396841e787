"""What a log means, for both front ends: verdicts, cause, findings, places in the log, and the JSON of `explain`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final

from msgspec import Struct

from spark_tui.base.context import Context
from spark_tui.base.finding import Change, Finding, Severity, pairs_text, set_options
from spark_tui.base.page import TONES, Row, Section, Tone
from spark_tui.base.quantities import human_duration
from spark_tui.base.text import clean_line, truncate
from spark_tui.observe.explain.feature import EXPLANATIONS
from spark_tui.observe.explain.model.causes.cause import CauseId
from spark_tui.observe.explain.model.causes.table import label_of
from spark_tui.observe.explain.model.explain import Explanation, explain_view
from spark_tui.observe.explain.model.kernels import Fp4
from spark_tui.observe.explain.model.sizing import GraphState, concurrency_of, equivalent_utilization, kv_summary
from spark_tui.observe.explain.model.timeline import LABELS, EarlierStart, Phase, PhaseState, StartOutcome, Topic
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.explain.use import Judge

LEVELS: Final = {Severity.ERROR: "critical", Severity.WARNING: "warning", Severity.INFO: "info"}
"""Words for a finding's severity, in JSON and on the terminal."""
OUTCOMES: Final = {
    StartOutcome.READY: "ready",
    StartOutcome.FAILED: "failed",
    StartOutcome.STOPPED: "stopped",
    StartOutcome.STARTING: "starting",
    StartOutcome.UNKNOWN: None,
}
"""Null: no engine's log."""
_FP4_TONES: Final = {
    Fp4.NATIVE: Tone.GOOD,
    Fp4.WEIGHT_ONLY_INTENDED: Tone.PLAIN,
    Fp4.WEIGHT_ONLY_FALLBACK: Tone.WARNING,
    Fp4.EMULATION: Tone.BAD,
    Fp4.NOT_FP4: Tone.QUIET,
    Fp4.UNKNOWN: Tone.QUIET,
}
_GRAPH_TONES: Final = {
    GraphState.OVERCOMMITTED: Tone.BAD,
    GraphState.WASTEFUL: Tone.WARNING,
    GraphState.NONE: Tone.QUIET,
}


# --- verdicts ---------------------------------------------------------------------------------------------


def verdict_rows(explanation: Explanation) -> tuple[Row, ...]:
    """One row per verdict that can be given; nothing about what is not known."""
    return tuple(_verdicts(explanation))


def _verdicts(explanation: Explanation) -> Iterator[Row]:
    facts, fp4, graphs = explanation.timeline.facts, explanation.fp4, explanation.graphs
    if fp4.verdict is not Fp4.UNKNOWN or facts.kernels or facts.quantization:
        proof = next(iter(fp4.evidence), None)
        doubt = " (from the log alone)" if fp4.guess and fp4.verdict is Fp4.WEIGHT_ONLY_FALLBACK else ""
        yield Row(fp4.summary + doubt, "FP4", _FP4_TONES[fp4.verdict], proof.line if proof else None)
    others = [kernel for kernel in facts.kernels if kernel.format not in ("NVFP4", "MXFP4")]
    if others:
        names = (f"{k.format} {'MoE' if k.part == 'moe' else k.part} {k.name}" for k in others)
        yield Row(", ".join(names), "kernels", line=others[0].line)
    attentions = facts.attentions or ((facts.attention,) if facts.attention else ())
    if attentions:
        yield Row(", ".join(attentions), "attention")
    if kv := kv_summary(facts):
        usage = "" if explanation.kv_percent is None else f"; {explanation.kv_percent:.3g} % used"
        yield Row(kv + usage, "KV cache", line=_line(explanation, Topic.KV_SIZE))
    if facts.kv_cache_dtype not in ("", "auto"):
        yield Row(facts.kv_cache_dtype, "KV dtype")
    if facts.prefix_caching is not None:
        hits = explanation.prefix_hit_percent
        rate = "" if hits is None or not facts.prefix_caching else f", {hits:.3g} % hits"
        tone = Tone.PLAIN if facts.prefix_caching else Tone.QUIET
        yield Row(f"prefix caching {'on' if facts.prefix_caching else 'off'}{rate}", "prefix", tone)
    yield from _speculation(explanation)
    mode = "" if facts.cudagraph_mode in ("", "NONE") else facts.cudagraph_mode
    if graphs.state is not GraphState.UNKNOWN:
        line = _line(explanation, Topic.GRAPH_ESTIMATE, Topic.GRAPH_MEMORY, Topic.UTILIZATION, Topic.EAGER)
        text = graphs.summary + (f" ({mode})" if mode else "")
        yield Row(text, "graphs", _GRAPH_TONES.get(graphs.state, Tone.PLAIN), line)
    elif mode:
        yield Row(mode, "graphs")
    yield from (Row(kept.text, "mode", Tone.QUIET, kept.line) for kept in facts.proof(Topic.GRAPH_MODE)[:1])
    schedule = []
    if facts.chunked_prefill is not None:
        tokens = f" of {facts.max_num_batched_tokens:,} tokens" if facts.max_num_batched_tokens else ""
        schedule.append(f"chunked prefill{tokens}" if facts.chunked_prefill else "no chunked prefill")
    if facts.async_scheduling is not None:
        schedule.append("asynchronous" if facts.async_scheduling else "not asynchronous")
    if schedule:
        yield Row(", ".join(schedule), "schedule", Tone.QUIET)
    if share := equivalent_utilization(facts):
        yield Row(share.text, "share", Tone.QUIET, _line(explanation, Topic.UTILIZATION))
    for topic, text in _HARMLESS.items():
        yield from (Row(text, "harmless", Tone.QUIET, kept.line) for kept in facts.proof(topic)[:1])


_HARMLESS: Final = {
    Topic.TILES: "tiles that need more shared memory (SMEM) than GB10 has are skipped; the kernel uses smaller ones",
    Topic.TACTICS: "the autotuner skips tactics that this GPU cannot run, and chooses among the others",
    Topic.BLOCKS: "num_gpu_blocks is overridden with a few blocks while memory is measured; the cache is sized later",
}
"""Lines of a healthy start that look like trouble: what they mean."""


def _speculation(explanation: Explanation) -> Iterator[Row]:
    method, drafts = explanation.timeline.facts.speculation, explanation.drafting
    if not method and drafts is None:
        return
    parts = [method or "drafting"]
    if drafts is not None and drafts.rate is not None:
        parts.append(f"{drafts.rate:.0%} accepted")
    if drafts is not None and drafts.tokens_per_step is not None:
        parts.append(f"{drafts.tokens_per_step:.2g} tokens per step")
    if len(parts) == 1:
        parts.append("no acceptance data yet")
    yield Row(", ".join(parts), "drafting", line=drafts.line if drafts else None)


def _line(explanation: Explanation, *topics: Topic) -> int | None:
    return next((kept.line for kept in explanation.timeline.facts.proof(*topics)), None)


# --- findings ---------------------------------------------------------------------------------------------


def finding_rows(findings: Sequence[Finding], proposed: Change = (), key: str = "a") -> list[Row]:
    """What is the matter, and the fix; `proposed` are the changes that `key` would make."""
    rows = []
    for finding in findings:
        rows.append(Row(finding.summary, LEVELS[finding.severity], TONES[finding.severity], finding.line))
        if finding.remedy:
            rows.append(Row(finding.remedy, "fix"))
        if finding.change and finding.change == proposed:
            rows.append(Row(pairs_text(finding.change), f"{key} applies"))
    return rows


def cause_rows(cause: Finding, *, preset: bool, key: str = "a") -> list[Row]:
    """Why it failed, the fix, and the change that a key makes where there is a preset to make it in."""
    rows = [Row(cause.summary, "likely" if cause.guess else "cause", Tone.BAD), Row(cause.remedy, "fix")]
    if cause.change:
        pairs = pairs_text(cause.change)
        rows.append(Row(pairs if preset else f"{pairs}, in a preset made of this engine", f"{key} applies"))
    return rows


def explanation_rows(explanation: Explanation, *, preset: bool, key: str = "a") -> list[Row]:
    """The cause of a failure with its fix and its deciding line; else what is wrong, the verdicts, and advice.

    `preset`: it was launched from a preset that is here, so that `key` can make the proposed change."""
    cause = explanation.cause
    if cause is not None:
        evidence = [Row(cause.evidence[-1], "evidence", Tone.QUIET)] if cause.evidence else []
        return [*cause_rows(cause, preset=preset, key=key), *evidence]
    found = explanation.proposal
    proposed = found.change if found is not None and preset else ()
    wrong = [finding for finding in explanation.findings if finding.severity is not Severity.INFO]
    advice = [finding for finding in explanation.findings if finding.severity is Severity.INFO]
    return [*finding_rows(wrong, proposed, key), *verdict_rows(explanation), *finding_rows(advice, proposed, key)]


BRIEF: Final = ("FP4", "KV cache", "drafting", "graphs")
"""Verdicts that are shown where there is room for few."""


def health_rows(explanation: Explanation, *, preset: bool, key: str = "a", brief: bool = False) -> list[Row]:
    """Of an engine that lives: what is wrong with its fix, then each verdict and advice in one line behind a sign."""
    found = explanation.proposal
    proposed = found.change if found is not None and preset else ()
    wrong = [finding for finding in explanation.findings if finding.severity is not Severity.INFO]
    advice = [finding for finding in explanation.findings if finding.severity is Severity.INFO]
    signs = {Tone.WARNING: "!", Tone.BAD: "!", Tone.QUIET: "○"}
    verdicts = [
        Row(
            row.text if row.text.startswith(row.label) else f"{row.label} {row.text}",
            signs.get(row.tone, "●"),
            row.tone,
        )
        for row in sorted(verdict_rows(explanation), key=lambda row: row.tone is Tone.QUIET)
        if row.label in BRIEF or not brief
    ]
    return [*finding_rows(wrong, proposed, key), *verdicts, *(Row(each.summary, "○", Tone.QUIET) for each in advice)]


# --- places in the log ------------------------------------------------------------------------------------


class LandmarkKind(StrEnum):
    """Why a line is worth a jump."""

    CAUSE = "cause"
    FINDING = "finding"
    VERDICT = "verdict"


class Landmark(Struct, frozen=True):
    """A line of an engine's log that proves something. `line` is its number in the log buffer."""

    line: int
    kind: LandmarkKind
    text: str
    tone: Tone = Tone.PLAIN


def landmarks(explanation: Explanation, first_line: int, cause_line: int | None = None) -> tuple[Landmark, ...]:
    """The lines that prove cause, findings and verdicts, in the log's order; one for each line, the gravest.

    `first_line` is the buffer's number of the line that evidence calls 0, `cause_line` that of the deciding one.
    """
    marks = []
    if explanation.cause is not None and cause_line is not None:
        marks.append(Landmark(cause_line, LandmarkKind.CAUSE, explanation.cause.summary, Tone.BAD))
    for finding in explanation.findings:
        if finding.line is not None:
            tone = TONES[finding.severity]
            marks.append(Landmark(first_line + finding.line, LandmarkKind.FINDING, finding.summary, tone))
    for row in verdict_rows(explanation):
        if row.line is not None:
            marks.append(Landmark(first_line + row.line, LandmarkKind.VERDICT, f"{row.label}: {row.text}", row.tone))
    by_line = {mark.line: mark for mark in reversed(marks)}
    return tuple(by_line[line] for line in sorted(by_line))


# --- the whole explanation --------------------------------------------------------------------------------


def explanation_of(context: Context, view: EngineView) -> Explanation:
    """What the engine's log means now, as it is known; an engine that is not watched is explained here. What it
    suggests has passed the check of the launch."""
    known = context.store.world[EXPLANATIONS].get(view.name)
    told = known or explain_view(view, now=context.clock.now())
    return told.judged(partial(context.find, Judge), view.container)


def explanation_page(explanation: Explanation) -> tuple[Section, ...]:
    """Engine and outcome, how the start went, why it failed, how it computes, and what could be better."""
    facts, fp4, cause = explanation.timeline.facts, explanation.fp4, explanation.cause
    outcome, took, current = (
        OUTCOMES[explanation.outcome] or "unknown",
        explanation.timeline.seconds,
        explanation.timeline.current,
    )
    if explanation.outcome is StartOutcome.READY and took is not None:
        outcome += f" after {human_duration(took)}"
    elif explanation.outcome is StartOutcome.STARTING and current is not None:
        outcome += f": {current.label}{f', {current.detail}' if current.detail else ''}"
    text = "none: the kernel's log" if explanation.kernel else "not recognised"
    engine = " ".join(filter(None, (explanation.engine or text, facts.version)))
    earlier = [Row(_earlier(each), "earlier") for each in explanation.timeline.earlier]
    sections = [[Row(engine, "engine"), Row(facts.model, "model"), Row(outcome, "outcome"), *earlier]]
    if cause is not None:
        sections.append(
            [
                Row(f"{cause.id}{' (likely, not proven by the log)' if cause.guess else ''}", "cause"),
                Row(cause.summary, " "),
                Row(label_of(cause.subject), "part"),
                Row(cause.remedy, "fix"),
                Row(set_options(cause.change), "setting"),
                *(Row(clean_line(text), "|") for text in cause.evidence),
            ]
        )
    phases = (
        [each for each in explanation.timeline.phases if each.state not in (PhaseState.PENDING, PhaseState.SKIPPED)]
        if explanation.outcome is not StartOutcome.UNKNOWN and cause not in explanation.kernel
        else []
    )
    sections.append([Row(_progress(phase), phase.label) for phase in phases])
    sections.append([_numbered(row) for row in verdict_rows(explanation)])
    if fp4.verdict is Fp4.WEIGHT_ONLY_INTENDED:
        sections.append([Row(fp4.cost, "-"), Row(fp4.advice, "-")])
    elif fp4.verdict is Fp4.NATIVE:
        sections.append([Row(_CHOSEN, "-")])
    for found in (*explanation.findings, *(each for each in explanation.kernel if each != cause)):
        first = _numbered(Row(found.summary, LEVELS[found.severity], TONES[found.severity], found.line))
        sections.append([first, Row(found.remedy, "fix"), Row(set_options(found.change), "setting")])
    shown = (tuple(row for row in rows if row.text) for rows in sections)
    return tuple(Section(rows=rows) for rows in shown if rows)


_CHOSEN: Final = (
    "The line is intent, not behaviour: it says which kernel was chosen, not what it does on this GPU. Measure it with "
    "`spark-tui bench NAME`."
)


def _earlier(start: EarlierStart) -> str:
    where = f" in {LABELS[start.phase][0]}" if start.phase is not None else ""
    return f"{OUTCOMES[start.outcome] or 'unknown'}{where}{': ' if start.line else ''}{truncate(start.line, 160)}"


def _progress(phase: Phase) -> str:
    took = "" if phase.seconds is None else human_duration(phase.seconds)
    state = "" if phase.state is PhaseState.DONE else phase.state.value
    return "  ".join(filter(None, (took, state, phase.detail))) or "done"


def _numbered(row: Row) -> Row:
    """With the number of its line in the text, from 1."""
    return row if row.line is None else Row(f"{row.text}  [line {row.line + 1}]", row.label, row.tone, row.line)


# --- JSON -------------------------------------------------------------------------------------------------


def explanation_object(explanation: Explanation) -> dict[str, Any]:
    """The shape of `explain --json`. What is not known is null; line numbers count from 1."""
    facts, fp4, cause = explanation.timeline.facts, explanation.fp4, explanation.cause
    rate = explanation.drafting.rate if explanation.drafting else None
    speculation = (facts.speculation, "" if rate is None else f"{rate:.0%} accepted")
    failed = cause is not None and (explanation.outcome is StartOutcome.FAILED or cause.id == CauseId.STOPPED_BY_GUARD)
    return {
        "engine": explanation.engine or None,
        "version": facts.version or None,
        "model": facts.model or None,
        "outcome": OUTCOMES[explanation.outcome],
        "earlier": [
            {"outcome": OUTCOMES[each.outcome], "phase": each.phase, "line": each.line or None}
            for each in explanation.timeline.earlier
        ],
        "phases": [
            {"id": phase.id.value, "seconds": phase.seconds, "state": phase.state.value}
            for phase in explanation.timeline.phases
        ],
        "kernels": {
            "fp4_linear": fp4.linear or None,
            "fp4_moe": fp4.moe or None,
            "attention": facts.attention or None,
            "verdict": fp4.verdict.value,
        },
        "kv_cache": {"gib": facts.kv_gib, "tokens": facts.kv_tokens, "max_concurrency": concurrency_of(facts)},
        "cuda_graph": {"estimated_gib": facts.graph_estimated_gib, "actual_gib": facts.graph_actual_gib},
        "speculation": ", ".join(filter(None, speculation)) or None,
        "failure": cause_object(cause) if cause is not None and failed else None,
        "findings": [
            {
                "id": str(finding.id),
                "severity": LEVELS[finding.severity],
                "summary": finding.summary,
                "remedy": finding.remedy or None,
                "override": dict(finding.change) or None,
                "evidence": next(iter(finding.evidence), None),
                "line": None if finding.line is None else finding.line + 1,
            }
            for finding in (*explanation.findings, *explanation.kernel)
        ],
    }


def cause_object(cause: Finding) -> dict[str, Any]:
    return {
        "cause": str(cause.id),
        "component": cause.subject or None,
        "summary": cause.summary,
        "guess": cause.guess,
        "lines": list(cause.evidence),
        "remedy": cause.remedy,
        "override": dict(cause.change) or None,
    }
