"""doctor: what is wrong with this box, and a report of it that can be handed on."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from spark_tui import __version__
from spark_tui.cli.files import PRIVATE, write_new
from spark_tui.cli.output import wrapped
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.core.doctor import terminal_state
from spark_tui.domain.doctor.check import Result, TerminalState, Verdict
from spark_tui.domain.doctor.checks import summary, worst
from spark_tui.domain.errors import ExitCode, SparkError
from spark_tui.domain.secret import SECRET_MASK, mask_secrets
from spark_tui.domain.text import clean, clean_line

LABEL_WIDTH: Final = 20
LEAST_ROOM: Final = 40
"""Cells for sentences beside the titles."""
REPORT_LOG_LINES: Final = 200
_TOLD: Final = (Verdict.FAIL, Verdict.WARN)
_STYLES: Final = {Verdict.FAIL: "bold red", Verdict.WARN: "yellow", Verdict.PASS: "green", Verdict.SKIP: "dim"}


def doctor(session: Session, *, gpu_container: bool, report: str) -> int:
    """Prints every check; the exit code is 1 when one fails."""

    async def work(context: Context) -> tuple[tuple[Result, ...], str]:
        if gpu_container:
            session.refuse_if_read_only(context)
        results = await context.doctor.examine(_terminal(session), gpu_container=gpu_container)
        return results, await _report(context, results) if report else ""

    results, text = session.run(work)
    if session.as_json:
        session.out.json({"worst": worst(results).value, "checks": [_shape(result) for result in results]})
    else:
        _tell(session, results)
    if report:
        written = write_new(report, text, "--report", mode=PRIVATE)
        session.err.say(f"Report written to {written}. Keys and tokens are masked; read it before you hand it on.")
    return ExitCode.FAILED if worst(results) is Verdict.FAIL else ExitCode.DONE


def _terminal(session: Session) -> TerminalState:
    out = session.out.terminal
    try:
        size = os.get_terminal_size()
    except OSError:
        size = os.terminal_size((0, 0))
    encoding = "utf-8" if out.unicode else "ascii"
    return terminal_state(
        session.environment, (size.columns, size.lines), encoding, interactive=out.interactive and size.columns > 0
    )


def _tell(session: Session, results: tuple[Result, ...]) -> None:
    paint = session.out.terminal.paint
    for group, members in groupby(results, key=lambda result: result.group):
        session.out.line(paint(group.value, "bold"))
        for result in members:
            verdict = paint(f"{result.outcome.verdict.value:<5}", _STYLES[result.outcome.verdict])
            session.out.lines(_lines(result, verdict, session.out.terminal.width))
    session.out.line("")
    session.out.line(summary(results))


def _lines(result: Result, verdict: str, width: int | None = None) -> Iterator[str]:
    """`verdict  title  summary`, the rest below the summary; below the title where the window is narrow.

    What to do may be a command, and is in one line: it is to be copied.
    """
    outcome = result.outcome
    more = [f"do:   {outcome.remedy}"] if outcome.remedy else []
    more += [f"seen: {outcome.evidence}"] if outcome.evidence and outcome.verdict in _TOLD else []
    indent = LABEL_WIDTH + 9
    head = f"  {verdict} {result.title:<{LABEL_WIDTH}} "
    if width is not None and width - indent < LEAST_ROOM:
        yield head.rstrip()
        indent, head = 8, " " * 8
    room = None if width is None else max(LEAST_ROOM, width - indent)
    lines = [*wrapped(clean_line(outcome.summary), room), *map(clean_line, more)]
    yield f"{head}{lines[0]}"
    yield from (f"{'':{indent}}{line}" for line in lines[1:])


def _shape(result: Result) -> dict[str, Any]:
    outcome = result.outcome
    return {
        "id": result.id,
        "group": result.group.value,
        "title": result.title,
        "verdict": outcome.verdict.value,
        "summary": outcome.summary,
        "evidence": outcome.evidence or None,
        "remedy": outcome.remedy or None,
    }


# --- the report -----------------------------------------------------------------------------------------------


async def _report(context: Context, results: tuple[Result, ...]) -> str:
    """Everything that a helper would ask for. Masked by shape, and by the very tokens that this person has."""
    parts = [
        f"spark-tui {__version__}, Python {platform.python_version()}, {platform.platform()}",
        "",
        *(line for result in results for line in _lines(result, f"{result.outcome.verdict.value:<5}")),
    ]
    try:
        parts += await _engines(context)
    except SparkError as error:
        parts += ["", f"Engines are not known: {error.summary}"]
    text = "\n".join(mask_secrets(clean(part)) for part in parts) + "\n"
    token = context.secrets.hf_token()
    return text.replace(token.reveal(), SECRET_MASK) if token is not None and token.reveal() else text


async def _engines(context: Context) -> list[str]:
    parts = []
    for view in await context.supervisor.look():
        facts = view.container
        parts += [
            "",
            f"== {facts.name}: {view.state.value}, {facts.image}, exit {facts.exit_code}, runtime {view.runtime}",
            "argv: " + " ".join(facts.argv),
            "environment: " + " ".join(facts.environment),
        ]
        watch = context.supervisor.find(facts.name)
        if watch is not None:
            buffer = watch.buffer
            parts += [line.text for line in buffer.slice(max(buffer.first, buffer.end - REPORT_LOG_LINES), buffer.end)]
    return parts
