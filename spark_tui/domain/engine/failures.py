"""Why an engine failed: from the lines that decide to a cause with its remedy.

The line that decides was chosen by the boot tracker (`FailureReader`); here it gets its meaning. Rules stand in the
tables of `failures_*.py`; an exit code explains what no line does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from spark_tui.domain.engine.boot_failure_lines import shown
from spark_tui.domain.engine.failures_cause import Cause, CauseId, Evidence, Rule
from spark_tui.domain.engine.failures_exit import by_exit_code, kernel_notes, kernel_victim
from spark_tui.domain.engine.failures_memory import while_loading
from spark_tui.domain.engine.failures_rules import recognise
from spark_tui.domain.engine.timeline import BootTimeline, Failure, Outcome, PhaseId
from spark_tui.domain.text import truncate

__all__ = ["Cause", "CauseId", "explain_failure"]

_STOP_CODES: Final = (130, 143)
"""SIGINT and SIGTERM: somebody asked it to end."""
_STOPPED: Final = Cause(CauseId.STOPPED, "The engine was stopped.", "Start it again when you need it.")


def explain_failure(
    timeline: BootTimeline,
    *,
    exit_code: int | None = None,
    oom_killed: bool = False,
    error: str = "",
    kernel_lines: Iterable[str] = (),
    pool_gib: float | None = None,
    taken_ports: Collection[int] = (),
) -> Cause | None:
    """The cause of a failure or a stop; None for an engine that neither failed nor was stopped.

    `exit_code`, `oom_killed` and `error` (`State.Error`) are Docker's. `kernel_lines` become notes, and decide only
    where the log does not and the out-of-memory killer names an engine's process. `pool_gib` is the machine's memory
    in GiB; `taken_ports` are not proposed instead of one in use. Never raises.
    """
    failure = timeline.failure
    code = exit_code if exit_code is not None else failure.exit_code if failure else None
    proven = failure is not None and not failure.guess
    if not proven and not error and (timeline.outcome is Outcome.STOPPED or code in _STOP_CODES):
        return _STOPPED
    if not proven and not error and timeline.outcome is not Outcome.FAILED and code in (None, 0):
        return None
    notes = tuple(kernel_lines)
    evidence = Evidence(
        text="\n".join(_lines(failure)),
        phase=_phase(timeline),
        facts=timeline.facts,
        asked=dict(failure.asked) if failure else {},
        ready=timeline.ready,
        exit_code=code,
        pool_gib=pool_gib,
        taken_ports=frozenset(taken_ports),
    )
    cause = _cause(failure, evidence, shown(error), oom_killed or kernel_victim(notes))
    return replace(cause, notes=kernel_notes(notes))


def _cause(failure: Failure | None, evidence: Evidence, error: str, oom_killed: bool) -> Cause:
    proven = failure is not None and not failure.guess
    if failure is not None and proven:
        return _from_lines(failure, evidence) or _unknown(failure, evidence)
    if error:
        known = _known(error, evidence, (error,))
        return known or Cause(
            CauseId.UNKNOWN, f"Docker could not start it: {error}", "Correct what it names.", (error,)
        )
    told = failure is not None and not _is_made_up(failure)
    if failure is not None and told and evidence.exit_code != 137:
        found = _from_lines(failure, evidence)
        if found is not None:
            return replace(found, guess=True)
    advice = by_exit_code(evidence.exit_code, oom_killed, ready=evidence.ready)
    lines = _lines(failure) if failure is not None and told else ()
    if advice is not None:
        cause_id, said, sure = advice
        return Cause(cause_id, said.summary, said.remedy, lines, said.override, guess=not sure)
    return _unknown(failure, evidence)


def _from_lines(failure: Failure, evidence: Evidence) -> Cause | None:
    """By the deciding line, or else by the nearest of those around it."""
    lines = _lines(failure)
    found = _known(failure.line, evidence, lines)
    if found is not None and found.id is not CauseId.ENGINE_DIED:
        return found
    for line in reversed(lines):
        other = None if line == failure.line else _known(line, evidence, lines)
        if other is not None and other.id is not CauseId.ENGINE_DIED:
            return replace(other, guess=True)
    return found


def _known(line: str, evidence: Evidence, lines: tuple[str, ...]) -> Cause | None:
    match = recognise(line)
    if match is None:
        return None
    rule, words = match
    said = rule.advise(words, evidence)
    return Cause(_id(rule, evidence), said.summary, said.remedy, lines, said.override, guess=not rule.sure)


def _id(rule: Rule, evidence: Evidence) -> CauseId:
    """Want of memory has three names, by when it happened."""
    if not rule.by_phase:
        return rule.id
    if evidence.ready:
        return CauseId.ENGINE_DIED
    return CauseId.OUT_OF_MEMORY_LOADING if while_loading(evidence) else CauseId.OUT_OF_MEMORY_WARMUP


def _unknown(failure: Failure | None, evidence: Evidence) -> Cause:
    lines = _lines(failure)
    line = failure.line if failure is not None else ""
    where = f" in the phase {evidence.phase}" if evidence.phase else ""
    summary = f"It failed{where}; this line says most about it: {line}" if line else f"It failed{where} without a word."
    remedy = "Read the log around that line (screen Logs); a newer image may not have the fault."
    return Cause(CauseId.UNKNOWN, truncate(summary, 400), remedy, lines, guess=True)


def _phase(timeline: BootTimeline) -> PhaseId | None:
    if timeline.failure is not None and timeline.failure.phase is not None:
        return timeline.failure.phase
    return timeline.failed.id if timeline.failed is not None else None


def _lines(failure: Failure | None) -> tuple[str, ...]:
    if failure is None:
        return ()
    return failure.lines or (failure.line,)


def _is_made_up(failure: Failure) -> bool:
    """The reader's own words for an exit code, in place of a line."""
    return re.match(r"killed \(exit code \d+\)|exited with code -?\d+$", failure.line) is not None
