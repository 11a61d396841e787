"""What is shown of a launch: the judgement of its settings, the model that it needs, its steps."""

from __future__ import annotations

from dataclasses import dataclass

from spark_tui.core.downloads import Wanted
from spark_tui.domain.errors import SparkError
from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.models.download import DownloadRequest
from spark_tui.domain.presets.fit import Fit, Verdict
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.present.fit import fit_change, fit_word
from spark_tui.present.logs import pairs_text, set_options
from spark_tui.present.page import Page, Row, Section, Tone
from spark_tui.present.presets import SEVERITIES

# --- before it ----------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """What a launch would download, of all that it `needs`. `wanted` None: unknown, or there is no Hub."""

    needs: tuple[DownloadRequest, ...]
    wanted: Wanted | None = None
    problem: SparkError | None = None


def judgement_page(judgement: Judgement | None) -> Page:
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


def finding_fix(finding: Finding, *, flags: bool = False) -> str:
    """The remedy, with the setting that it means unless it names it."""
    if pairs_text(finding.change) in finding.remedy:
        return finding.remedy
    return f"{finding.remedy} Set {set_options(finding.change) if flags else pairs_text(finding.change)}"


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
