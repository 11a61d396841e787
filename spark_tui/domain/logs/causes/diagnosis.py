"""Why an engine failed: from the lines that decide to a cause with its remedy."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from spark_tui.domain.logs.causes.cause import Advice, Cause, CauseId, Evidence, Rule
from spark_tui.domain.logs.causes.memory import while_loading
from spark_tui.domain.logs.causes.table import recognise
from spark_tui.domain.logs.failure import shown
from spark_tui.domain.logs.timeline import BootTimeline, Failure, Outcome, PhaseId
from spark_tui.domain.secret import mask_secrets
from spark_tui.domain.text import clean_line, truncate

__all__ = ["Cause", "CauseId", "explain_failure"]


MAX_NOTES: Final = 5

_KERNEL = re.compile(r"NVRM: |\bXid \(|oom-killer|Out of memory: Killed|oom_reaper|oom-kill:")
_VICTIM = re.compile(r"(?:Killed process \d+ \(|task=)(?:VLLM|vllm|python|sglang|trtllm|llama|ollama)")

_MEMORY: Final = (
    "Free the page cache (key D, or `spark-tui drop-caches`), stop what else holds memory, and start with a lower "
    "gpu_memory_utilization or a shorter max_model_len."
)
_KILLED_BY_KERNEL: Final = Advice("The kernel killed the engine because memory ran out.", _MEMORY)
_CODES: Final = {
    125: (
        CauseId.UNKNOWN,
        Advice("Docker itself could not run the container (exit code 125).", "Read Docker's message."),
    ),
    126: (
        CauseId.MISSING_FILE,
        Advice(
            "The container's command cannot be executed (exit code 126).",
            "Check the preset's command, and that the image is built for arm64.",
        ),
    ),
    127: (
        CauseId.MISSING_FILE,
        Advice(
            "The image has no such command (exit code 127).",
            "Check the preset's image and command: vllm-openai images run `vllm serve` themselves, NGC images want it.",
        ),
    ),
    132: (
        CauseId.ARCH_NOT_COMPILED,
        Advice(
            "The engine met an instruction that this processor does not have (exit code 132, SIGILL).",
            "Use an image built for arm64 and GB10.",
        ),
    ),
    134: (
        CauseId.ENGINE_DIED,
        Advice("The engine aborted in native code (exit code 134, SIGABRT).", "Look at its last lines in the log."),
    ),
    135: (
        CauseId.ENGINE_DIED,
        Advice(
            "The engine met a bus error (exit code 135, SIGBUS).",
            "Often /dev/shm was full: start the container with `--ipc=host` or a larger shm_size.",
        ),
    ),
    139: (
        CauseId.ENGINE_DIED,
        Advice(
            "The engine crashed in native code (exit code 139, SIGSEGV).",
            "Start once with enforce_eager=true; if it happens again, use another tag of the image.",
        ),
    ),
    255: (
        CauseId.UNKNOWN,
        Advice(
            "The container ended with code 255 and said nothing: the machine or Docker went down, or memory ran out.",
            "Look into the kernel log (`journalctl -k`), and free the page cache (key D) before the next start.",
        ),
    ),
}


def by_exit_code(code: int | None, oom_killed: bool, *, ready: bool) -> tuple[CauseId, Advice, bool] | None:
    """The cause that an exit code stands for, with whether it is sure; None for a code that says nothing.

    On a Spark Docker reports OOMKilled=false also when the kernel killed the engine: 137 alone stays a guess.
    """
    if oom_killed:
        return CauseId.KILLED, _KILLED_BY_KERNEL, True
    if code == 137:
        when = "while it served" if ready else "while it started"
        summary = f"The engine was killed {when} (exit code 137): memory ran out, or somebody stopped it by force."
        return CauseId.KILLED, Advice(summary, _MEMORY), False
    if code in _CODES:
        return (*_CODES[code], False)
    return None


def kernel_notes(lines: Sequence[str]) -> tuple[str, ...]:
    """The kernel's words about the GPU and memory, the latest few. NVRM lines also come with healthy starts."""
    notes = [mask_secrets(clean_line(line).strip())[:300] for line in lines if _KERNEL.search(line)]
    return tuple(notes[-MAX_NOTES:])


def kernel_victim(lines: Sequence[str]) -> bool:
    """The kernel's out-of-memory killer names an engine's process."""
    return any(_VICTIM.search(line) for line in lines)


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
