"""What the launch form says of the values as they are typed: whether they fit, and what the rules find."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content

from spark_tui.core.context import Context
from spark_tui.domain.engine.container import ImageFacts
from spark_tui.domain.errors import SparkError
from spark_tui.domain.presets.fit import Fit, Verdict
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.presets.rules import Finding, Severity
from spark_tui.tui.screens.preset_verdicts import change_text, fit_word, severity_word
from spark_tui.tui.widgets.page import BLANK, Part, sentence, told

JUDGE_SECONDS = 0.3
"""Typing may rest so long before the checkpoint's files and Docker are asked."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The fit and the findings of one set of values. None: it could not be worked out."""

    overrides: Overrides
    fit: Fit | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def blocked(self) -> bool:
        """It cannot fit: a launch needs the preset's name typed."""
        return self.fit is not None and self.fit.verdict is Verdict.BLOCKED


async def judge(core: Context, preset: Preset, overrides: Overrides, image: ImageFacts | None) -> Judgement:
    """Works it out. Never raises for a launch that cannot be planned: the form says so at the field."""
    try:
        fit = await core.fitting.fit(preset, overrides)
        findings = await core.checks.check_with(image, preset, overrides)
    except SparkError:
        return Judgement(overrides)
    return Judgement(overrides, fit, findings)


def judgement_parts(judgement: Judgement | None) -> list[Part]:
    """The verdict with its reason and what would help, then errors and warnings, each with its remedy."""
    if judgement is None:
        return [sentence("Fit and checks follow when typing rests.", "$dim"), BLANK]
    parts = [*_fit_parts(judgement.fit), *_finding_parts(judgement.findings)]
    return [*parts, BLANK] if parts else []


def _fit_parts(fit: Fit | None) -> list[Part]:
    if fit is None:
        return []
    reason = fit.reasons[0] if fit.reasons else ""
    head = Content.assemble(fit_word(fit).stylize("bold"), "  ", told(reason))
    more = [sentence(text, bullet="- ") for text in fit.reasons[1:]] if fit.verdict is Verdict.BLOCKED else []
    return [(Content(""), head), *more, *(sentence(change_text(change), bullet="> ") for change in fit.changes)]


def _finding_parts(findings: tuple[Finding, ...]) -> list[Part]:
    parts: list[Part] = []
    for finding in findings:
        if finding.severity is Severity.NOTE:
            continue
        fix = f"  Set {finding.fix_text}" if finding.fix and finding.fix_text not in finding.remedy else ""
        text = Content.assemble(told(finding.summary), "  ", told(f"{finding.remedy}{fix}", "$dim"))
        parts.append((severity_word(finding.severity), text))
    notes = sum(finding.severity is Severity.NOTE for finding in findings)
    if notes:
        parts.append(sentence(f"{notes} note{'s' if notes > 1 else ''} more: the preset's page Checks.", "$dim"))
    return parts
