"""explain: what a start-up log means, of a container, of a file, or of standard input."""

from __future__ import annotations

import codecs
import gzip
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Final, cast

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import ContainerNotFound, UnreachableError, UsageError
from spark_tui.base.text import clean_line, truncate
from spark_tui.cli.command import command, complete
from spark_tui.cli.names import engine_name, find_container
from spark_tui.cli.output import bulleted, labelled, wrapped
from spark_tui.cli.session import Session
from spark_tui.observe.engines.use.engines import explain_container
from spark_tui.observe.explain.model.explain import Explanation, LogExplainer
from spark_tui.observe.explain.show import explanation_object, explanation_page
from spark_tui.observe.results.use import Results

CHUNK: Final = 256 * 1024
BATCH_LINES: Final = 500
MAX_LINE: Final = 1024 * 1024
"""Bytes of a line that are read; the rest of a longer one is skipped."""
_LOG_NAMES: Final = (".log", ".txt", ".gz", ".out", ".json", ".jsonl")


_EXPLAIN_EXAMPLES = """\
  spark-tui explain gpt-oss-120b                a container's last start
  spark-tui explain boot.log                    a file (also .gz, and Docker's own JSON)
  docker logs vllm 2>&1 | spark-tui explain
"""


@command("explain", _EXPLAIN_EXAMPLES)
@click.argument("what", required=False, default="", metavar="[NAME|FILE|-]", shell_complete=complete("engines"))
def explain(session: Session, what: str) -> None:
    """Explain a start-up log: phases, kernels, memory, root cause, fix.

    Shows where the time went, whether FP4 runs natively, why it failed, and which setting helps. Without a name: what
    is piped in, else the engine that runs, if it is the only one.
    """
    what = what or ("-" if _is_piped(session) else engine_name(session, ""))
    if what == "-":
        found = _from_standard_input(session)
    elif "://" not in what and (os.sep in what or what.lower().endswith(_LOG_NAMES)):
        found = _from_file(session, what)
    else:
        try:
            found = _from_container(session, what)
        except (ContainerNotFound, UnreachableError):
            if not Path(what).is_file():
                raise
            found = _from_file(session, what)
    session.out.json(explanation_object(found))
    session.out.lines(explanation_lines(found, session.out.terminal.width))
    if found.outcome == "unknown":
        read = "It does not say what became of the engine." if found.engine else "No engine's log is recognised in it."
        session.err.note(f"{read} Give the log itself, from its first line on.")


def _is_piped(session: Session) -> bool:
    """Whether a pipe or a file is standard input. A terminal is none, nor is what cron and sshd give a command."""
    try:
        mode = 0 if session.stdin is None else os.fstat(session.stdin.fileno()).st_mode
    except (OSError, ValueError):  # closed, or no file
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _from_container(session: Session, name: str) -> Explanation:
    async def work(context: Context) -> Explanation:
        container = await find_container(context, name, engines_only=False)
        told = await explain_container(
            container,
            context.docker,
            context.api,
            context.host,
            context.clock,
            context.checkpoints,
            context[Results].baseline(container),
            context.guarding.journal if context.ports.has("guarding") else None,
        )
        return told.judged(session.find_judge, container)

    return session.run(work)


def _from_standard_input(session: Session) -> Explanation:
    if session.stdin is None:
        raise UsageError("Standard input is closed.", "Pipe a log in: docker logs NAME 2>&1 | spark-tui explain -")
    binary = getattr(session.stdin, "buffer", None)
    if binary is None:  # a stream of text, which is already decoded
        return _read(session, (line.rstrip("\n") for line in session.stdin))
    return _read(session, lines_of(cast("IO[bytes]", binary)))


def _from_file(session: Session, path: str) -> Explanation:
    shown = truncate(clean_line(path), 200)
    try:
        # A pipe without a writer ends at once, and one of `<(...)` is read to its end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as raw:
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                raise UsageError(f"{shown} is a device.", "Name a file with an engine's log in it, or - for input.")
            os.set_blocking(descriptor, True)
            zipped = raw.peek(2)[:2] == b"\x1f\x8b"
            return _read(session, lines_of(cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if zipped else raw))
    except IsADirectoryError:
        raise UsageError(f"{shown} is a folder.", "Name a file with an engine's log in it.") from None
    except FileNotFoundError:
        raise UsageError(f"There is no file {shown}.", "Name a container, a file, or - for standard input.") from None
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{shown} cannot be read: {clean_line(reason)}.", "See its permissions.") from error


def _read(session: Session, lines: Iterator[str]) -> Explanation:
    reader = LogExplainer()
    while batch := list(islice(lines, BATCH_LINES)):
        reader.feed_many([("", line) for line in batch])
    if not reader.lines:
        raise UsageError("The log is empty.", "If it comes from `docker logs`, join both streams: 2>&1")
    return reader.explanation().judged(session.find_judge)


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


def explanation_lines(found: Explanation, width: int | None) -> list[str]:
    """The sections of an explanation, one below the other; evidence is behind a bar, as it was logged."""
    lines: list[str] = []
    room = None if width is None else max(20, width - 4)
    for section in explanation_page(found):
        beside = [(row.label, row.text) for row in section.rows if row.label not in ("|", "-")]
        lines += ["", *labelled(beside, width), *bulleted((r.text for r in section.rows if r.label == "-"), width)]
        lines += [f"  | {line}" for row in section.rows if row.label == "|" for line in wrapped(row.text, room)]
    return lines[1:]
