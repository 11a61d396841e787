"""What the rules and the fit say about a preset, in words: on the Presets screen, and as a launch is filled in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from textual.content import Content

from spark_tui.domain.errors import SparkError
from spark_tui.domain.presets.fit import Change, Fit
from spark_tui.domain.presets.fit_types import Verdict as FitVerdict
from spark_tui.domain.presets.fit_words import fit_lines
from spark_tui.domain.presets.rules import Finding, Severity
from spark_tui.tui.widgets.page import BLANK, Part, sentence, told

LABEL_WIDTH = 10
Checked: TypeAlias = tuple[Finding, ...] | SparkError
"""What the rules say of a preset, or why it cannot be planned at all."""


def field(label: str, value: str) -> Part:
    """A label and its value."""
    return Content.styled(f"{label:<{LABEL_WIDTH}}", "$dim"), told(value)


def failure_parts(error: SparkError) -> list[Part]:
    """Why a preset cannot be launched."""
    return [
        sentence("This preset cannot be launched.", "bold $error"),
        sentence(error.summary, "$error"),
        sentence(error.remedy),
    ]


# --- checks -----------------------------------------------------------------------------------------------

_SIGNS = {Severity.ERROR: ("error", "$error"), Severity.WARNING: ("warn", "$warning"), Severity.NOTE: ("note", "$dim")}


def verdict(checked: Checked | None) -> Content:
    """One word for the list: the worst that the rules found."""
    if checked is None:
        return Content.styled("...", "$dim")
    if isinstance(checked, SparkError):
        return Content.styled("error", "$error")
    worst = next((level for level in Severity for finding in checked if finding.severity is level), None)
    if worst in (None, Severity.NOTE):
        return Content.styled("ok", "$success")
    return Content.styled(*_SIGNS[worst])


def severity_word(severity: Severity) -> Content:
    """`error`, `warn` or `note` in its colour, as wide as a label."""
    word, style = _SIGNS[severity]
    return Content.styled(f"{word:<{LABEL_WIDTH}}", f"bold {style}")


def fixes_of(findings: tuple[Finding, ...]) -> Iterable[tuple[str, str]]:
    """What ends the findings: of two that change the same setting, the worse one's, which come first."""
    chosen: dict[str, str] = {}
    for finding in findings:
        for key, value in finding.fix:
            chosen.setdefault(key, value)
    return chosen.items()


ABOUT_NOW = frozenset(("engines_exceed_machine", "gated_without_token"))
"""Rules about this machine at this moment: the list, which speaks of the recipe, leaves them out."""


def check_parts(checked: Checked | None) -> list[Part]:
    """Each finding with its remedy, what was seen, and the change that ends it."""
    if checked is None:
        return [sentence("Not checked yet.", "$dim")]
    if isinstance(checked, SparkError):
        return failure_parts(checked)
    if not checked:
        return [sentence("Nothing to say against this preset as it is.", "$success")]
    parts: list[Part] = []
    for finding in checked:
        parts += [
            (severity_word(finding.severity), told(finding.summary, "bold")),
            field("do", finding.remedy),
            *([field("seen", finding.evidence)] if finding.evidence else []),
            *([field("fix", finding.fix_text)] if finding.fix else []),
            *([field("now", "about this machine as it is now: not in the list's word")] if _is_now(finding) else []),
            field("rule", finding.id),
            BLANK,
        ]
    return parts[:-1]


def _is_now(finding: Finding) -> bool:
    return finding.id in ABOUT_NOW


# --- fit --------------------------------------------------------------------------------------------------

FIT_LABEL_WIDTH = 12
_FIT_STYLES = {
    FitVerdict.READY: "$success",
    FitVerdict.SLOW: "$warning",
    FitVerdict.BLOCKED: "$error",
    FitVerdict.UNKNOWN: "$dim",
}


def fit_word(fit: Fit | None) -> Content:
    """READY, SLOW, BLOCKED, BUSY where only other engines are in the way, or that it cannot be told."""
    if fit is None:
        return Content("")
    if fit.only_neighbours:
        return Content.styled("BUSY", "$warning")
    return Content.styled(fit.verdict.value, _FIT_STYLES[fit.verdict])


def fit_verdict_parts(fit: Fit | None) -> list[Part]:
    """The verdict with its reasons, and what would help."""
    if fit is None:
        return [sentence("Not worked out yet, or this preset cannot be launched: see Checks.", "$dim")]
    head = fit.reasons[0] if fit.reasons else ""
    parts: list[Part] = [
        (Content(""), Content.assemble(fit_word(fit).stylize("bold"), "  ", told(head))),
        *(sentence(reason, bullet="- ") for reason in fit.reasons[1:]),
    ]
    if fit.only_neighbours:
        parts.append(sentence("BUSY: blocked by the engines that run now alone; without them it fits.", "$dim"))
    if fit.changes:
        parts += [BLANK, sentence("What would help", "bold")]
        parts += [sentence(change_text(change), bullet="- ") for change in fit.changes]
    return [*parts, BLANK]


def fit_figure_parts(fit: Fit | None) -> list[Part]:
    """What it takes and what the machine has, line by line."""
    if fit is None:
        return []
    parts: list[Part] = [
        (
            told(f"{row.value:>{FIT_LABEL_WIDTH - 2}}  ", "$error" if row.value.startswith("-") else ""),
            Content.assemble(told(row.label.strip(), "bold"), "  ", told(row.note, "$dim")),
        )
        for row in fit_lines(fit)
    ]
    parts += [part for note in fit.notes for part in (BLANK, sentence(note, "$dim"))]
    return parts


def change_text(change: Change) -> str:
    """What would help, with the setting that does it."""
    pairs = " ".join(f"{key}={value}" for key, value in change.pairs)
    return f"{change.summary} ({pairs})" if pairs else change.summary
