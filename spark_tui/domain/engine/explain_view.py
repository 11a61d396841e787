"""What an engine's log means, for an engine that is under watch: explanation, rows, and places in its log."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from spark_tui.domain.engine.explain import Explanation, Surroundings, explain
from spark_tui.domain.engine.finding import Baseline, Finding, Level
from spark_tui.domain.engine.sizing import Pairs
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.engine.verdict_lines import Tone, VerdictLine
from spark_tui.domain.engine.view import EngineView

FINDING_TONES: Final = {Level.CRITICAL: Tone.BAD, Level.WARNING: Tone.WARNING, Level.INFO: Tone.PLAIN}
FINDING_LABELS: Final = {Level.CRITICAL: "urgent", Level.WARNING: "warning", Level.INFO: "advice"}


def explain_view(
    view: EngineView,
    *,
    now: float | None = None,
    pool_gib: float | None = None,
    baseline: Baseline | None = None,
    taken_ports: Collection[int] = (),
) -> Explanation:
    """Everything that can be said about an engine now. `now` is epoch seconds, `pool_gib` the machine's memory in GiB,
    `taken_ports` are not proposed in place of one in use. An engine that serves has no cause; nor has one that a
    person stopped."""
    container = view.container
    well = view.state in (EngineState.SERVING, EngineState.STOPPED)
    explanation = explain(
        view.timeline,
        view.samples,
        Surroundings(
            engine=view.runtime,
            argv=container.argv,
            environment=dict.fromkeys(container.environment, ""),
            checkpoint=view.checkpoint,
            ended=not container.running and container.started_at is not None,
            exit_code=None if container.running or well else container.exit_code,
            oom_killed=container.oom_killed,
            error="" if well else container.error,
            health=view.health,
            now=now if container.running else None,
            baseline=baseline,
            pool_gib=pool_gib,
            taken_ports=tuple(taken_ports),
        ),
    )
    return replace(explanation, cause=None) if well else explanation


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that would help, as `overrides_from_pairs` takes it, and what it is for."""

    why: str
    changes: Pairs


def proposal(explanation: Explanation) -> Proposal | None:
    """The change that the cause proposes, else the worst finding that has one."""
    cause = explanation.cause
    if cause is not None:
        return Proposal(cause.summary, cause.override) if cause.override else None
    return next((Proposal(found.summary, found.override) for found in explanation.findings if found.override), None)


def finding_rows(findings: Sequence[Finding], applied: Pairs = (), key: str = "a") -> list[VerdictLine]:
    """A row for what is found, and one for what to do; `applied` are the changes that `key` would make."""
    rows = []
    for found in findings:
        rows.append(VerdictLine(FINDING_LABELS[found.level], found.summary, FINDING_TONES[found.level], found.line))
        if found.remedy:
            rows.append(VerdictLine("do", found.remedy))
        if found.override and found.override == applied:
            rows.append(VerdictLine(f"{key} applies", pairs_text(found.override)))
    return rows


def pairs_text(pairs: Pairs) -> str:
    """`max_model_len=90112 kv_cache_dtype=fp8`."""
    return " ".join(f"{key}={value}" for key, value in pairs)


class LandmarkKind(StrEnum):
    """Why a line is worth a jump."""

    CAUSE = "cause"
    FINDING = "finding"
    VERDICT = "verdict"


@dataclass(frozen=True, slots=True)
class Landmark:
    """A line of an engine's log that proves something. `line` is its number in the log buffer."""

    line: int
    kind: LandmarkKind
    text: str
    tone: Tone = Tone.PLAIN


def landmarks(explanation: Explanation, first_line: int, cause_line: int | None = None) -> tuple[Landmark, ...]:
    """The lines that prove cause, findings and verdicts, in the log's order; of several on a line the gravest is told.

    `first_line` is the buffer's number of the line that evidence calls 0, `cause_line` that of the deciding one.
    """
    found: dict[int, Landmark] = {}

    def mark(line: int, kind: LandmarkKind, text: str, tone: Tone) -> None:
        found.setdefault(line, Landmark(line, kind, text, tone))

    if explanation.cause is not None and cause_line is not None:
        mark(cause_line, LandmarkKind.CAUSE, explanation.cause.summary, Tone.BAD)
    for advice in explanation.findings:
        if advice.line is not None:
            mark(first_line + advice.line, LandmarkKind.FINDING, advice.summary, FINDING_TONES[advice.level])
    for row in explanation.rows:
        if row.line is not None:
            mark(first_line + row.line, LandmarkKind.VERDICT, f"{row.label}: {row.text}", row.tone)
    return tuple(sorted(found.values(), key=lambda landmark: landmark.line))
