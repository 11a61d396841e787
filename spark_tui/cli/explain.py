"""explain: what a start-up log means, of a container, of a file, or of standard input."""

from __future__ import annotations

import codecs
import gzip
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Final, cast

from spark_tui.cli.engines import find_container
from spark_tui.cli.output import bulleted, labelled, wrapped
from spark_tui.cli.presets import set_words
from spark_tui.cli.session import Session
from spark_tui.cli.shapes import Object
from spark_tui.core.context import Context
from spark_tui.domain.errors import ContainerNotFound, UnreachableError, UsageError
from spark_tui.domain.logs.explain import Explanation, LogExplainer
from spark_tui.domain.logs.findings import Finding
from spark_tui.domain.logs.kernels import Fp4
from spark_tui.domain.logs.timeline import Outcome, Phase, PhaseState
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.text import clean_line, truncate

CHUNK: Final = 256 * 1024
BATCH_LINES: Final = 500
MAX_LINE: Final = 1024 * 1024
"""Bytes of a line that are looked at; the rest of a longer one is passed over."""
_LOG_NAMES: Final = (".log", ".txt", ".gz", ".out", ".json", ".jsonl")
_WORDS: Final = {
    Outcome.READY: "ready",
    Outcome.FAILED: "failed",
    Outcome.STOPPED: "stopped",
    Outcome.STARTING: "starting",
}


def explain(session: Session, what: str) -> None:
    """Explains a container's log, a file's, or standard input's (`-`)."""
    told = _explanation(session, what)
    if session.as_json:
        session.out.json(explanation_object(told))
    else:
        session.out.lines(explanation_lines(told, session.out.terminal.width))
        if not told.engine and told.cause is None:
            session.err.note("No engine is recognised in it. Is it an engine's log, from its first line on?")


# --- where the log is -------------------------------------------------------------------------------------


def _explanation(session: Session, what: str) -> Explanation:
    if what == "-":
        return _from_standard_input(session)
    if os.sep in what or what.lower().endswith(_LOG_NAMES):
        return _from_file(what)
    try:
        return _from_container(session, what)
    except (ContainerNotFound, UnreachableError):
        if not Path(what).is_file():
            raise
        return _from_file(what)


def _from_container(session: Session, name: str) -> Explanation:
    async def work(context: Context) -> Explanation:
        from spark_tui.core.engines import explain_container

        container = await find_container(context, name, engines_only=False)
        return await explain_container(
            container, context.docker, context.api, context.host, context.clock, context.checkpoints
        )

    return session.run(work)


def _from_standard_input(session: Session) -> Explanation:
    if session.stdin is None:
        raise UsageError("Standard input is closed.", "Pipe a log in: docker logs NAME 2>&1 | spark-tui explain -")
    binary = getattr(session.stdin, "buffer", None)
    if binary is None:  # a stream of text, which is already decoded
        return _read(line.rstrip("\n") for line in session.stdin)
    return _read(lines_of(cast("IO[bytes]", binary)))


def _from_file(path: str) -> Explanation:
    shown = truncate(clean_line(path), 200)
    try:
        with Path(path).open("rb") as raw:
            zipped = raw.peek(2)[:2] == b"\x1f\x8b"
            return _read(lines_of(cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if zipped else raw))
    except IsADirectoryError:
        raise UsageError(f"{shown} is a folder.", "Name a file with an engine's log in it.") from None
    except FileNotFoundError:
        raise UsageError(f"There is no file {shown}.", "Name a container, a file, or - for standard input.") from None
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{shown} cannot be read: {clean_line(reason)}.", "See its permissions.") from error


def _read(lines: Iterator[str]) -> Explanation:
    reader = LogExplainer()
    while batch := list(islice(lines, BATCH_LINES)):
        reader.feed_many([("", line) for line in batch])
    if not reader.lines:
        raise UsageError("The log is empty.", "If it comes from `docker logs`, join both streams: 2>&1")
    return reader.explanation()


def lines_of(stream: IO[bytes]) -> Iterator[str]:
    """Lines of any bytes, without their newline. At most `MAX_LINE` of one are kept; UTF-16 by its mark."""
    head = stream.read(CHUNK)
    utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16" if utf16 else "utf-8-sig")(errors="replace")
    rest, chunk = "", head
    while chunk:
        *whole, rest = (rest + decoder.decode(chunk)).split("\n")
        yield from (line[:MAX_LINE] for line in whole)
        rest = rest[:MAX_LINE]
        chunk = stream.read(CHUNK)
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest[:MAX_LINE]


# --- for scripts ------------------------------------------------------------------------------------------


def explanation_object(told: Explanation) -> Object:
    """The shape of `--json`. What is not known is null; line numbers count from 1."""
    facts, kv = told.timeline.facts, told.kv
    return {
        "engine": told.engine or None,
        "version": facts.version or None,
        "model": facts.model or None,
        "outcome": _WORDS[told.outcome],
        "phases": [
            {"id": phase.id.value, "seconds": phase.seconds, "state": phase.state.value}
            for phase in told.timeline.phases
        ],
        "kernels": {
            "fp4_linear": told.fp4.linear or None,
            "fp4_moe": told.fp4.moe or None,
            "attention": facts.attention or None,
            "verdict": told.fp4.verdict.value,
        },
        "kv_cache": {"gib": kv.gib, "tokens": kv.tokens, "max_concurrency": kv.concurrency},
        "cuda_graph": {"estimated_gib": facts.graph_estimated_gib, "actual_gib": facts.graph_actual_gib},
        "speculation": _speculation(told),
        "failure": _failure(told),
        "findings": [_finding(finding) for finding in told.findings],
    }


def _speculation(told: Explanation) -> str | None:
    """`mtp 3`, and the share accepted where it is known: `mtp 3, 74% accepted`."""
    rate = told.drafting.rate if told.drafting else None
    words = (told.timeline.facts.speculation, "" if rate is None else f"{rate:.0%} accepted")
    return ", ".join(filter(None, words)) or None


def _failure(told: Explanation) -> Object | None:
    cause = told.cause
    if cause is None or told.outcome is not Outcome.FAILED:
        return None
    return {
        "cause": cause.id.value,
        "summary": cause.summary,
        "guess": cause.guess,
        "lines": list(cause.lines),
        "remedy": cause.remedy,
        "override": dict(cause.override) or None,
    }


def _finding(finding: Finding) -> Object:
    return {
        "id": finding.id.value,
        "severity": finding.level.value,
        "summary": finding.summary,
        "remedy": finding.remedy or None,
        "override": dict(finding.override) or None,
        "evidence": finding.evidence or None,
        "line": None if finding.line is None else finding.line + 1,
    }


# --- for a person -----------------------------------------------------------------------------------------


def explanation_lines(told: Explanation, width: int | None) -> list[str]:
    """What it is, how the start went, why it failed, how it computes, and what could be better."""
    lines = labelled(_head(told), width)
    if told.cause is not None:
        lines += ["", *_why(told, width)]
    phases = [_phase_words(phase) for phase in told.timeline.phases if _worth_a_line(phase)]
    if phases:
        lines += ["", *labelled(phases, width)]
    if told.rows:
        lines += ["", *labelled(((row.label, row.text + _at(row.line)) for row in told.rows), width)]
    about_fp4 = [text for text in (told.fp4.cost, told.fp4.advice) if text]
    if about_fp4 and told.fp4.verdict is Fp4.WEIGHT_ONLY_INTENDED:
        lines += ["", *bulleted(about_fp4, width)]
    for finding in told.findings:
        lines += ["", *_finding_words(finding, width)]
    return lines


def _head(told: Explanation) -> list[tuple[str, str]]:
    facts = told.timeline.facts
    took = told.timeline.seconds
    outcome = _WORDS[told.outcome]
    current = told.timeline.current
    if told.outcome is Outcome.READY and took is not None:
        outcome += f" after {human_duration(took)}"
    elif told.outcome is Outcome.STARTING and current is not None:
        outcome += f": {current.label}{f', {current.detail}' if current.detail else ''}"
    return [
        ("engine", " ".join(filter(None, (told.engine or "not recognised", facts.version)))),
        ("model", facts.model),
        ("outcome", outcome),
    ]


def _why(told: Explanation, width: int | None) -> list[str]:
    cause = told.cause
    if cause is None:
        return []
    doubt = " (a guess: the log does not prove it)" if cause.guess else ""
    pairs = (
        ("cause", f"{cause.id.value}{doubt}"),
        ("", cause.summary),
        ("do", cause.remedy),
        ("set", set_words(cause.override)),
    )
    lines = labelled(pairs, width)
    lines += [f"  | {line}" for text in cause.lines for line in wrapped(clean_line(text), _room(width))]
    return lines + bulleted(cause.notes, width)


def _room(width: int | None) -> int | None:
    return None if width is None else max(20, width - 4)


def _worth_a_line(phase: Phase) -> bool:
    return phase.state not in (PhaseState.PENDING, PhaseState.SKIPPED)


def _phase_words(phase: Phase) -> tuple[str, str]:
    took = "" if phase.seconds is None else human_duration(phase.seconds)
    state = "" if phase.state is PhaseState.DONE else phase.state.value
    return phase.label, "  ".join(filter(None, (took, state, phase.detail))) or "done"


def _at(line: int | None) -> str:
    return "" if line is None else f"  [line {line + 1}]"


def _finding_words(finding: Finding, width: int | None) -> list[str]:
    pairs = (
        (finding.level.value, finding.summary + _at(finding.line)),
        ("do", finding.remedy),
        ("set", set_words(finding.override)),
    )
    return labelled(pairs, width)
