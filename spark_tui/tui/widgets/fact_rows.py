"""An explanation as rows beside their labels: why an engine failed, what is wrong, what its log proved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from spark_tui.core.key_words import key_of
from spark_tui.domain.engine.explain_view import finding_rows, pairs_text, proposal
from spark_tui.domain.engine.finding import Level
from spark_tui.domain.engine.verdict_lines import Tone, VerdictLine
from spark_tui.tui import format as fmt
from spark_tui.tui.widgets.engine_detail import LABEL_WIDTH
from spark_tui.tui.widgets.line import hanging

if TYPE_CHECKING:
    from spark_tui.domain.engine.explain import Explanation
    from spark_tui.domain.engine.failures_cause import Cause

MAX_ROW_LINES = 3
MAX_ACT_LINES = 6
"""What has happened and what to do is told whole."""
ACT_LABELS = ("because", "perhaps", "do")
TONE_STYLE = {
    Tone.GOOD: "$success",
    Tone.PLAIN: "",
    Tone.QUIET: "$dim",
    Tone.WARNING: "$warning",
    Tone.BAD: "$error",
}


def fact_lines(rows: Sequence[VerdictLine], width: int, limit: int | None = None) -> list[Content]:
    """Each row beside its label, in `limit` lines at most, else in a few; a sign tells where one goes on."""
    lines: list[Content] = []
    for row in rows:
        most = limit or (MAX_ACT_LINES if row.label in ACT_LABELS else MAX_ROW_LINES)
        label = Content.styled(_label(row.label), TONE_STYLE[row.tone] if row.tone is Tone.BAD else "$dim")
        found = hanging(label, fmt.safe(row.text, TONE_STYLE[row.tone]), LABEL_WIDTH, max(1, width))
        if len(found) > most:
            found = [*found[: most - 1], Content.assemble(found[most - 1].truncate(max(1, width - 1)), "…")]
        lines += found
    return lines


def _label(label: str) -> str:
    """Small letters, as the labels above have them; `FP4` and `KV cache` stay."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def explanation_rows(explanation: Explanation, *, preset: bool) -> list[VerdictLine]:
    """The cause of a failure with its deciding line and its remedy; else what is wrong, the verdicts, and advice."""
    proposed = proposal(explanation)
    changes, key = proposed.changes if proposed is not None and preset else (), key_of("apply_remedy")
    cause = explanation.cause
    if cause is None:
        wrong = [found for found in explanation.findings if found.level is not Level.INFO]
        advice = [found for found in explanation.findings if found.level is Level.INFO]
        return [*finding_rows(wrong, changes, key), *explanation.rows, *finding_rows(advice, changes, key)]
    log = [VerdictLine("log", cause.lines[-1], Tone.QUIET)] if cause.lines else []
    return [*cause_rows(cause, preset=preset), *log]


def cause_rows(cause: Cause, *, preset: bool) -> list[VerdictLine]:
    """Why it failed, what to do, and the change that a key makes where there is a preset to make it in."""
    word = "perhaps" if cause.guess else "because"
    rows = [VerdictLine(word, cause.summary, Tone.BAD), VerdictLine("do", cause.remedy)]
    if cause.override:
        pairs = pairs_text(cause.override)
        said = (f"{key_of('apply_remedy')} applies", pairs) if preset else ("change", f"{pairs} in its own command")
        rows.append(VerdictLine(*said))
    return rows
