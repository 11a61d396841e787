"""Why an engine failed: from the deciding lines, the exit code, Docker and the kernel to one finding.

The `FailureReader` chooses the deciding line; the rules give it its meaning. An exit code explains what no line does.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from spark_tui.base.finding import Finding, Severity
from spark_tui.base.host.guard import END_LOOP, GuardEntry
from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean_line, lazy_pattern, truncate
from spark_tui.observe.explain.model.causes.cause import OF_VLLM, CauseId, FailureContext, fix
from spark_tui.observe.explain.model.causes.memory import while_loading
from spark_tui.observe.explain.model.causes.table import (
    DEEP,
    INTERPRETER,
    PARSERS,
    CauseRule,
    advised,
    component_of,
    placed,
    rules,
    tried,
)
from spark_tui.observe.explain.model.line import shown
from spark_tui.observe.explain.model.timeline import BootTimeline, PhaseId, StartFailure, StartOutcome
from spark_tui.observe.explain.model.view import LogContext


@functools.lru_cache(maxsize=128)
def recognise(line: str) -> tuple[CauseRule, re.Match[str]] | None:
    """The first rule that knows the line, with its match. The line that decides is asked for again and again."""
    for pattern, known in rules():
        if match := pattern.search(line):
            return known, match
    return None


MAX_NOTES: Final = 5
_STOP_CODES: Final = (130, 143)
"""SIGINT and SIGTERM: it was asked to end."""
_STOPPED: Final = Finding(
    CauseId.STOPPED, Severity.INFO, "The engine was stopped.", remedy="Start it again when needed."
)
_KERNEL: Final = lazy_pattern(r"NVRM: |\bXid \(|oom-killer|Out of memory: Killed|oom_reaper|oom-kill:")
_VICTIM: Final = lazy_pattern(r"(?:Killed process \d+ \(|task=)(?:VLLM|vllm|python|sglang|trtllm|llama|ollama)")

_MEMORY: Final = (
    "Free the page cache (key D, or `spark-tui drop-caches`), stop other processes that use memory, and lower "
    "{memory} or {context}."
)
_DROPS_CACHE: Final = lazy_pattern(r"Free the page cache \([^)]{1,60}\)(?:,| and) (\w)")
"""Only CUDA counts it as used."""
_ABORTED: Final = "Start once with {eager}; if it happens again, use {other}."
_CODES: Final = {
    125: (
        CauseId.UNKNOWN,
        "Docker could not run the container (exit code 125).",
        "Run `docker start NAME` for its message.",
    ),
    126: (
        CauseId.MISSING_FILE,
        "The container's command cannot be executed (exit code 126).",
        "Check the preset's command, and that the image is built for arm64.",
    ),
    127: (
        CauseId.MISSING_FILE,
        "Command not found in the image (exit code 127).",
        "Check the preset's image and command: vllm-openai images run `vllm serve` themselves, NGC images need it.",
    ),
    132: (
        CauseId.ARCH_NOT_COMPILED,
        "Illegal instruction for this processor (exit code 132, SIGILL).",
        "Use an image built for arm64 and GB10.",
    ),
    134: (CauseId.ENGINE_DIED, "The engine aborted in native code (exit code 134, SIGABRT).", _ABORTED),
    135: (
        CauseId.ENGINE_DIED,
        "Bus error (exit code 135, SIGBUS).",
        "Often /dev/shm was full: start the container with `--ipc=host` or a larger shm_size.",
    ),
    139: (
        CauseId.ENGINE_DIED,
        "The engine crashed in native code (exit code 139, SIGSEGV).",
        _ABORTED,
    ),
    255: (
        CauseId.UNKNOWN,
        "The container ended with code 255 and no message: machine or Docker went down, or out of memory.",
        "Check the kernel log (`journalctl -k`), and free the page cache (key D) before the next start.",
    ),
}


def explain_failure(timeline: BootTimeline, around: LogContext | None = None) -> Finding | None:
    """The cause of a failure or a stop; None for an engine that neither failed nor was stopped. Never raises.

    The kernel's lines are further evidence, and decide only where the log does not and the out-of-memory killer names
    an engine's process.
    """
    around = around or LogContext()
    if around.guard is not None:
        return _by_guard(around.guard, around.engine)
    exit_code, error = around.exit_code, around.error
    failure = timeline.failure
    code = exit_code if exit_code is not None else failure.exit_code if failure else None
    proven = failure is not None and not failure.guess
    if not proven and not error:
        if timeline.stop or code in _STOP_CODES:
            return replace(_STOPPED, evidence=(timeline.stop,) if timeline.stop else ())
        if timeline.outcome is StartOutcome.STOPPED:
            return replace(_STOPPED, summary="The engine ended without an error.")
        if timeline.outcome is not StartOutcome.FAILED and code in (None, 0):
            return None
    phase = failure.phase if failure is not None else None
    context = FailureContext(
        text="\n".join(_lines(failure)),
        engine=around.engine,
        phase=phase or (timeline.failed.id if timeline.failed is not None else None),
        facts=timeline.facts,
        asked=dict(failure.asked) if failure else {},
        ready=timeline.ready,
        exit_code=code,
        pool_gib=around.pool_gib,
        taken_ports=frozenset(around.taken_ports),
        module=failure.module if failure else "",
        frames=failure.frames if failure else (),
    )
    kernel = around.kernel_lines
    cause = _cause(failure, context, shown(error), around.oom_killed or any(_VICTIM.search(line) for line in kernel))
    remedy = cause.remedy
    if timeline.facts.device == "cpu":
        remedy = _DROPS_CACHE.sub(lambda match: match[1].upper(), remedy)
    return replace(cause, evidence=(*cause.evidence, *_kernel_notes(kernel)), remedy=remedy)


def _by_guard(act: GuardEntry, engine: str) -> Finding:
    names = FailureContext(engine=engine).names._asdict()
    if act.act == END_LOOP:
        summary, remedy = f"The guard ended its crash loop: {shown(act.reason)}", "Fix that cause, then start it again."
    else:
        summary, remedy = f"The memory guard stopped the engine: {shown(act.reason)}", _MEMORY.format(**names)
    return Finding(CauseId.STOPPED_BY_GUARD, Severity.ERROR, summary, (clean_line(f"{act.act}: {act.how}"),), remedy)


def _cause(failure: StartFailure | None, context: FailureContext, error: str, oom_killed: bool) -> Finding:
    if failure is not None and not failure.guess:
        return _from_lines(failure, context) or _placed(failure, context) or _unknown(failure, context)
    if error:
        docker = fix(f"Docker could not start it: {error}", "Correct what the message names.")
        known = recognise(error)
        return replace(docker, evidence=(error,)) if known is None else _told(known, context, (error,))
    written = failure if failure is not None and not _is_made_up(failure) else None
    if written is not None and context.exit_code != 137:
        found = _from_lines(written, context) or _placed(written, context)
        if found is not None:
            return replace(found, guess=True)
    by_code = _by_exit_code(context, oom_killed)
    return _unknown(failure, context) if by_code is None else replace(by_code, evidence=_lines(written))


def _from_lines(failure: StartFailure, context: FailureContext) -> Finding | None:
    """By the deciding line, or else by the nearest of those around it that says more."""
    lines = _lines(failure)
    found = recognise(failure.ended or failure.line)
    if found is not None and not found[0].sure and _INTERPRETER.search(failure.line):
        return None
    if _PARSERS.search(context.module) and (found is None or found[0].id in _SAID_BY_PARSERS):
        return _placed(failure, context)
    if found is None or found[0].vague:
        for line in (failure.line, *reversed(lines)):
            other = None if line == (failure.ended or failure.line) else recognise(line)
            if other is not None and (not other[0].vague or (failure.ended and line == failure.line)):
                told = _told(other, context, lines)
                return replace(told, guess=told.guess or found is None or found[0].id is not other[0].id)
    return None if found is None else _told(found, context, lines)


def _told(known: tuple[CauseRule, re.Match[str]], context: FailureContext, lines: tuple[str, ...]) -> Finding:
    rule, words = known
    told = _with_option(rule.told(words, context), words.string, context)
    of_vllm = context.engine in ("", "vllm")
    change = told.change if of_vllm else tuple(each for each in told.change if each[0] not in OF_VLLM)
    told = _located(replace(told, id=_id(rule, context, words.string), change=change), rule, context)
    return replace(told, evidence=lines, guess=not rule.sure)


def _located(told: Finding, rule: CauseRule, context: FailureContext) -> Finding:
    """With the component that failed, and the advice for it; without a change that is made already."""
    told = replace(told, subject=component_of(told.id, context))
    told = advised(told, context) if rule.by_component else told
    return replace(told, change=() if tried(told.change, context) else told.change)


_OPTION: Final = lazy_pattern(
    r"--([a-z][\w\-]{2,60})|(?<![\w.'\"/=:\-])([a-z]{2,20}(?:_[a-z0-9]{1,20}){1,6})(?![\w./(])|"
    r"^([a-z]\w{1,40})(?=: (?:Input|Field|Extra|Unexpected))|\b([A-Z]{2,20}(?:_[A-Z0-9]{1,20}){1,6}(?:=[\w.:]{1,60})?)|"
    r"\b([a-z]{2,20}(?:[A-Z][a-z]{1,20}){2,6})\b"
)
_CAPITAL: Final = lazy_pattern(r"(?<=[a-z])(?=[A-Z])")
_MAX_OPTIONS: Final = 3


def named_options(text: str) -> str:
    """The options that a sentence names, in the settings' spelling: those with a value (`Got
    attention_backend=flashinfer`) first; empty where it names none."""
    found = sorted(_OPTION.finditer(text), key=lambda each: text[each.end() : each.end() + 1] != "=")
    names = dict.fromkeys(
        (each[4] or "").rstrip(".:")
        or _CAPITAL.sub("_", each[1] or each[2] or each[3] or each[5]).replace("-", "_").rstrip("_").lower()
        for each in found
    )
    return _either([*names][:_MAX_OPTIONS])


def _either(names: list[str]) -> str:
    return " or ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


_FEATURES: Final = ("enable_", "speculative_", "kv_", "attention_backend", "moe_", "compilation")
"""How the names of options begin that a start can do without."""


def _tried(context: FailureContext) -> list[str]:
    return [name for name in context.asked if name.startswith(_FEATURES)][:2]


def _with_option(told: Finding, line: str, context: FailureContext) -> Finding:
    """With the options' names, in a remedy for a named setting."""
    options = (named_options(line) or _either(_tried(context))) if "the named " in told.remedy else ""
    if not options:
        return told
    remedy = told.remedy.replace("Correct the named setting", f"Correct {options}").replace(
        "Remove the named feature", f"Change or remove {options}"
    )
    return replace(told, remedy=remedy)


def _id(rule: CauseRule, context: FailureContext, line: str) -> CauseId:
    """Want of memory has two names, by when it happened: while weights loaded, or after."""
    deep = _DEEP.search(context.module) or "/mem_cache/" in context.module
    if rule.id is CauseId.BAD_ARGUMENT and not rule.sure and deep and not _TURN.search(line):
        return CauseId.UNSUPPORTED_MODEL_FEATURE
    if not rule.by_phase:
        return rule.id
    loading = not context.ready and while_loading(context)
    return CauseId.OUT_OF_MEMORY_LOADING if loading else CauseId.OUT_OF_MEMORY_WARMUP


def _by_exit_code(context: FailureContext, oom_killed: bool) -> Finding | None:
    """The cause that an exit code stands for; None for a code that says nothing.

    On a Spark Docker reports OOMKilled=false also when the kernel killed the engine: 137 alone stays a guess.
    """
    names = context.names._asdict()
    memory = _MEMORY.format(**names)
    if oom_killed:
        return replace(fix("The kernel killed the engine: out of memory.", memory), id=CauseId.KILLED)
    if context.exit_code == 137:
        when = "serving" if context.ready else "starting"
        summary = f"The engine was killed while {when} (exit code 137): out of memory, or stopped by force."
        return replace(fix(summary, memory), id=CauseId.KILLED, guess=True)
    known = _CODES.get(context.exit_code or 0)
    return None if known is None else replace(fix(known[1], known[2].format(**names)), id=known[0], guess=True)


_TURN: Final = lazy_pattern(r"(?:increase|raise|reduce|lower|decrease) `?(?:--|[a-z]+_)[a-z]|than max_lora_rank")
"""A limit that an option sets."""
_DEEP: Final = lazy_pattern(DEEP)
_INTERPRETER: Final = lazy_pattern(INTERPRETER)
_PARSERS: Final = lazy_pattern(PARSERS)
_SAID_BY_PARSERS: Final = (CauseId.UNKNOWN_ARCHITECTURE, CauseId.BAD_ARGUMENT, CauseId.UNSUPPORTED_MODEL_FEATURE)
"""`Unsupported model type: ...` means a parser's there."""


def _placed(failure: StartFailure, context: FailureContext) -> Finding | None:
    """By when or where it was raised: a guess."""
    known = placed(failure.line, context)
    if known is None:
        return None
    told = _located(replace(known[1], id=known[0].id), known[0], context)
    return replace(_with_option(told, failure.line, context), evidence=_lines(failure), guess=True)


def _unknown(failure: StartFailure | None, context: FailureContext) -> Finding:
    where = f" in phase {context.phase}" if context.phase not in (None, PhaseId.CONTAINER) else ""
    line = f": {failure.line}" if failure is not None and failure.line else " without a message."
    tried = _tried(context)
    without = f"Start once without {' and '.join(tried)}. Else use" if tried else "Use"
    remedy = f"{without} {context.names.newer}, or the version that worked last: see `spark-tui history`."
    return replace(fix(truncate(f"Failed{where}{line}", 400), remedy), evidence=_lines(failure), guess=True)


def _lines(failure: StartFailure | None) -> tuple[str, ...]:
    return () if failure is None else failure.lines or (failure.line,)


def _is_made_up(failure: StartFailure) -> bool:
    """The reader's own words for an exit code, in place of a line."""
    return re.match(r"killed \(exit code \d+\)|exited with code -?\d+$", failure.line) is not None


def _kernel_notes(lines: Sequence[str]) -> tuple[str, ...]:
    """The kernel's words about the GPU and memory, the latest few. NVRM lines also come with healthy starts."""
    notes = [mask_secrets(clean_line(line).strip())[:300] for line in lines if _KERNEL.search(line)]
    return tuple(notes[-MAX_NOTES:])
