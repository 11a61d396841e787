"""presets check: what the rules say of a launch before it happens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_tui.cli.recipes import find_preset
from spark_tui.cli.session import Session
from spark_tui.cli.shapes import Object
from spark_tui.cli.tables import wrapped
from spark_tui.cli.typing_words import set_words
from spark_tui.core.context import Context
from spark_tui.domain.errors import ExitCode, SparkError, UsageError
from spark_tui.domain.presets.overrides import Overrides, overrides_from_pairs, pairs_from
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.presets.rules import Finding, Severity

_INDENT: Final = 10
"""Cells before a finding's words: its severity stands there."""


def check_presets(session: Session, name: str | None, settings: tuple[str, ...], *, everything: bool) -> int:
    """Checks one preset with the person's settings, or all of them; the exit code is 4 when one has an error.

    Notes are left out of the list of all presets unless `everything` is asked for. Raises UsageError for settings that
    a named preset does not take.
    """
    overrides = overrides_from_pairs(pairs_from(settings))

    async def work(context: Context) -> list[tuple[Preset, tuple[Finding, ...] | SparkError]]:
        context.collectors.sample_identity()
        presets = (find_preset(context, name),) if name else context.presets.load().presets
        return [(preset, await _checked(context, preset, overrides)) for preset in presets]

    checked = session.run(work)
    wrong = next((outcome for _, outcome in checked if name and isinstance(outcome, UsageError)), None)
    if wrong is not None:
        raise wrong
    if session.as_json:
        session.out.json([_shape(preset, outcome) for preset, outcome in checked])
    else:
        for preset, outcome in checked:
            _tell(session, preset, outcome, notes=everything or name is not None)
    bad = any(isinstance(o, SparkError) or any(f.severity is Severity.ERROR for f in o) for _, o in checked)
    return ExitCode.REFUSED if bad else ExitCode.DONE


async def _checked(context: Context, preset: Preset, overrides: Overrides) -> tuple[Finding, ...] | SparkError:
    try:
        return await context.checks.check(preset, overrides)
    except SparkError as error:
        return error


def _tell(session: Session, preset: Preset, outcome: tuple[Finding, ...] | SparkError, *, notes: bool) -> None:
    if isinstance(outcome, SparkError):
        session.out.line(f"{preset.name}: cannot be launched: {outcome.summary}")
        session.out.line(f"  {outcome.remedy}")
        return
    shown = [finding for finding in outcome if notes or finding.severity is not Severity.NOTE]
    session.out.line(f"{preset.name}: {_count(outcome)}")
    for finding in shown:
        session.out.lines(_lines(finding, session.out.terminal.width))


def _lines(finding: Finding, width: int | None) -> Iterable[str]:
    parts = [f"{finding.summary}  [{finding.id}]", finding.remedy]
    parts += [f"seen: {finding.evidence}"] if finding.evidence else []
    room = None if width is None else max(30, width - _INDENT)
    lines = [line for part in parts for line in wrapped(part, room)]
    lines += [f"fix:  {set_words(finding.fix)}"] if finding.fix else []  # in one line: it is to be copied
    yield f"  {finding.severity.value:<{_INDENT - 2}}{lines[0]}"
    yield from (f"{'':{_INDENT}}{line}" for line in lines[1:])


def _count(findings: tuple[Finding, ...]) -> str:
    counts = [(level, sum(finding.severity is level for finding in findings)) for level in Severity]
    words = [f"{count} {level.value}{'s' if count > 1 else ''}" for level, count in counts if count]
    return ", ".join(words) or "nothing to say"


def _shape(preset: Preset, outcome: tuple[Finding, ...] | SparkError) -> Object:
    if isinstance(outcome, SparkError):
        refused = {"id": outcome.id, "summary": outcome.summary, "remedy": outcome.remedy}
        return {"id": preset.name, "refused": refused, "findings": []}
    return {
        "id": preset.name,
        "refused": None,
        "findings": [finding_object(finding) for finding in outcome],
    }


def finding_object(finding: Finding) -> Object:
    """A finding as data."""
    return {
        "id": finding.id,
        "severity": finding.severity.value,
        "summary": finding.summary,
        "evidence": finding.evidence,
        "remedy": finding.remedy,
        "fix": dict(finding.fix),
    }
