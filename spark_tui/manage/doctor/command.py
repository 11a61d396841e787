"""doctor: what is wrong with this machine, and a report of it to hand on."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from itertools import groupby
from typing import Final

import click

from spark_tui import __version__
from spark_tui.base.context import Context
from spark_tui.base.errors import ExitCode, SparkError
from spark_tui.base.finding import VERDICTS, Finding, Severity, counts, worst
from spark_tui.base.page import TONES
from spark_tui.base.secret import MASK, mask_secrets
from spark_tui.base.text import clean, clean_line
from spark_tui.cli.command import command
from spark_tui.cli.output import PRIVATE, STYLES, wrapped, write_new
from spark_tui.cli.session import Session
from spark_tui.manage.doctor.model import CHECK_BY_ID
from spark_tui.manage.doctor.show import report_object
from spark_tui.manage.doctor.use import Doctor, terminal_state
from spark_tui.observe.engines.show.engines import engine_status

LABEL_WIDTH: Final = 20
LEAST_ROOM: Final = 40
"""Cells for sentences beside the titles."""
REPORT_LOG_LINES: Final = 200

_EXAMPLES = """\
  spark-tui doctor
  spark-tui doctor --gpu-container --report report.txt
"""


@command("doctor", _EXAMPLES)
@click.option("--gpu-container", is_flag=True, help="Also start a container with the GPU; it is removed afterwards.")
@click.option("--report", default="", metavar="FILE", help="Write everything to a file, keys and tokens masked.")
def doctor(session: Session, gpu_container: bool, report: str) -> int:
    """Check this machine: what is wrong and how to fix it. Exit code 1: a check fails."""

    async def work(context: Context) -> tuple[tuple[Finding, ...], str]:
        terminal = session.out.terminal
        try:
            size = os.get_terminal_size()
        except OSError:
            size = os.terminal_size((0, 0))
        state = terminal_state(
            session.environment,
            (size.columns, size.lines),
            "utf-8" if terminal.unicode else "ascii",
            interactive=terminal.interactive and size.columns > 0,
        )
        results = await context[Doctor].examine(state, gpu_container=gpu_container)
        return results, await _report(context, results) if report else ""

    results, text = session.run(work, changes=gpu_container)
    session.out.json(report_object(results))
    paint, width = session.out.terminal.paint, session.out.terminal.width
    for group, members in groupby(results, key=lambda result: CHECK_BY_ID[result.id].group):
        session.out.line(paint(group.value, "bold"))
        for result in members:
            verdict = paint(f"{VERDICTS[result.severity]:<5}", STYLES[TONES[result.severity]])
            session.out.lines(_lines(result, verdict, width))
    session.out.line("")
    session.out.line(counts(results))
    if report:
        written = write_new(report, text, "--report", mode=PRIVATE)
        session.err.say(f"Report written to {written}. Keys and tokens are masked; read it before you share it.")
    return ExitCode.FAILED if worst(results) is Severity.ERROR else ExitCode.DONE


def _lines(result: Finding, verdict: str, width: int | None = None) -> Iterator[str]:
    """`verdict  title  summary`, the rest below the summary; below the title where the window is narrow.

    The fix may be a command, and stays on one line: it is to be copied.
    """
    more = [f"fix:  {result.remedy}"] if result.remedy else []
    if result.evidence and result.severity in (Severity.ERROR, Severity.WARNING):
        more.append(f"evidence: {', '.join(result.evidence)}")
    indent = LABEL_WIDTH + 9
    head = f"  {verdict} {CHECK_BY_ID[result.id].title:<{LABEL_WIDTH}} "
    if width is not None and width - indent < LEAST_ROOM:
        yield head.rstrip()
        indent, head = 8, " " * 8
    room = None if width is None else max(LEAST_ROOM, width - indent)
    lines = [*wrapped(clean_line(result.summary), room), *map(clean_line, more)]
    yield f"{head}{lines[0]}"
    yield from (f"{'':{indent}}{line}" for line in lines[1:])


async def _report(context: Context, results: tuple[Finding, ...]) -> str:
    """Everything that a helper would ask for. Masked by shape, and by the very tokens that this person has."""
    parts = [
        f"spark-tui {__version__}, Python {platform.python_version()}, {platform.platform()}",
        "",
        *(line for result in results for line in _lines(result, f"{VERDICTS[result.severity]:<5}")),
    ]
    from spark_tui.observe.engines.use.engines import EngineSupervisor

    try:
        for view in await context[EngineSupervisor].look():
            facts, watch = view.container, context[EngineSupervisor].find(view.container.name)
            parts += [
                "",
                f"== {facts.name}: {engine_status(view).text}, {facts.image}, runtime {view.runtime}",
                "argv: " + " ".join(facts.argv),
                "environment: " + " ".join(facts.environment),
            ]
            if watch is not None:
                log = watch.buffer
                parts += [line.text for line in log.slice(max(log.first, log.end - REPORT_LOG_LINES), log.end)]
    except SparkError as error:
        parts += ["", f"Cannot list engines: {error.summary}"]
    text = "\n".join(mask_secrets(clean(part)) for part in parts) + "\n"
    token = context.secrets.hf_token()
    return text.replace(token.reveal(), MASK) if token is not None and token.reveal() else text
