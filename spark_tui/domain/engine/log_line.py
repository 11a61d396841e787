"""One line of an engine's log, taken apart: who says it, when, how loud, and what.

vLLM's own lines are `(EngineCore pid=199) INFO 05-21 21:03:31 [core.py:109] message`. Up to 0.29 every line carries
the process prefix, progress bars, tracebacks and uvicorn's lines included; from 0.31 on only logger lines do. Between
them stand lines of uvicorn, torch, FlashInfer, NCCL, TensorRT-LLM, SGLang and Python itself.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Final, NamedTuple

from spark_tui.domain.engine.log_foreign import LEVELS, level_of, parse_foreign
from spark_tui.domain.engine.log_outer import OUTER, OWN_BEGINNINGS
from spark_tui.domain.text import clean, clean_line, last_overwrite, strip_sequences


class LineKind(StrEnum):
    """What sort of line it is."""

    RECORD = "record"
    """A logger's line, vLLM's or a foreign one's."""
    CONTINUATION = "continuation"
    """Belongs to the line before it."""
    TRACEBACK = "traceback"
    """A frame of a traceback, or its head."""
    EXCEPTION = "exception"
    """The line that names the exception."""
    PROGRESS = "progress"
    ACCESS = "access"
    """One HTTP request."""
    PLAIN = "plain"
    BLANK = "blank"


class LogRecord(NamedTuple):
    """`process`, `pid`, `level`, `time` and `source` are as written, empty (pid None) where the line has none.

    `level` is one of DEBUG INFO WARNING ERROR CRITICAL or empty. `message` has no control codes; a JSON record's
    may have newlines.
    """

    process: str
    pid: int | None
    level: str
    time: str
    source: str
    message: str
    kind: LineKind

    @property
    def severity(self) -> int:
        """10 DEBUG, 20 INFO, 30 WARNING, 40 ERROR, 50 CRITICAL; a bare traceback counts as an error, 0 is unknown."""
        return severity_of(self.level, self.kind)


SEVERITIES: Final = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
_BARE = {LineKind.TRACEBACK: 40, LineKind.EXCEPTION: 40, LineKind.ACCESS: 20, LineKind.PROGRESS: 20}


def severity_of(level: str, kind: LineKind) -> int:
    """See `LogRecord.severity`."""
    return SEVERITIES[level] if level else _BARE.get(kind, 0)


# `(Worker pid=7)`, Ray's `(RayWorker pid=7, ip=10.0.0.2)` and `(pid=7)`, Ray Serve's long names, nested ones, and
# vllm-omni's `[Stage-0]` behind them.
_PREFIX = re.compile(
    r"(?:\((?:([A-Za-z_][\w.\-:/]{0,160})(?: rank=\d{1,6})? )?pid=(\d{1,10})[^()]{0,60}\) ?)+(?:\[Stage-\d+\] )?"
)
_RANK = re.compile(r"\[(rank\d{1,4})\]: ")
_HEAD = re.compile(rf"({LEVELS}) (\d\d-\d\d \d\d:\d\d:\d\d) \[([^\]]{{1,200}}:\d+)\] ?")
_COLON = re.compile(rf"({LEVELS}): {{1,5}}")
_UVICORN_INDENT = 10
_ACCESS = re.compile(r'[\w.:\[\]\-]{3,60} - "[A-Z]{3,7} \S{1,2000} HTTP/[\d.]{1,3}" \d{3}')
_BAR = re.compile(r"[^|]{0,200}: +\d{1,3}% Completed \| \d+/\d+ \[|[^|]{0,200}?\d{1,3}%\|[^|]{0,2000}\| *[\d.]+\w?/")
_COUNTER = re.compile(r"[^|]{0,200}: \d+\w* \[\d\d:\d\d[,\]]")
EXCEPTION_ENDS: Final = (
    "Error",
    "Exception",
    "Interrupt",
    "Exit",
    "ExceptionGroup",
    "NotFound",
    "OutOfResources",
    "Timeout",
    "TimeoutExpired",
    "InvalidComponent",
)
"""How the names of exceptions end; most of Python's do in one of the first two."""
_EXCEPTION = re.compile(
    rf"(?:[|+ ]*\| )?(Exception|[A-Za-z_][\w.]{{0,150}}(?:{'|'.join(EXCEPTION_ENDS)}))"
    r"(?:\([\w.]{1,100}\))?(?::(?: |$)|$)"
)
_FRAME = re.compile(r' {2,4}File "[^"]*", line \d+|  \[Previous line repeated|\s+[~^]+\s*$')
_TRACEBACK_HEADS = (
    "Traceback (most recent call last)",
    "During handling of the above exception",
    "The above exception was the direct cause",
    "  + Exception Group Traceback",
)


def parse_line(text: str) -> LogRecord:
    """Takes a line apart. Any text gives a record; what is not understood is the message. Never raises.

    Of a line with carriage returns, what a terminal would show counts: a progress bar's last state, also when its
    line has not ended yet.
    """
    if "\x1b" in text:
        text = strip_sequences(text)
    text = text.rstrip("\r\n")
    process, pid, rest, time = "", None, text, ""
    if not text.startswith(OWN_BEGINNINGS):
        outer = OUTER.match(text)
        if outer:
            time, rest = outer["stamp"] or "", text[outer.end() :]
    if rest.startswith("("):
        prefix = _PREFIX.match(rest)
        if prefix:
            process, pid, rest = prefix[1] or "", int(prefix[2]), rest[prefix.end() :]
    elif rest.startswith("[rank"):
        rank = _RANK.match(rest)
        if rank:
            process, rest = rank[1], rest[rank.end() :]
    head = _HEAD.match(rest)
    if head is None and "\r" in rest:
        rest = last_overwrite(rest)
        head = _HEAD.match(rest)
    if head:
        return _record(process, pid, head[1], head[2], head[3], rest[head.end() :])
    return _bare(process, pid, time, rest)


def _record(process: str, pid: int | None, level: str, time: str, source: str, message: str) -> LogRecord:
    message = clean_line(last_overwrite(message)).rstrip()
    kind = LineKind.RECORD
    if not message:
        kind = LineKind.BLANK
    elif message[0] in " T" or level in ("ERROR", "CRITICAL"):
        kind = _shape(message) or (LineKind.CONTINUATION if message[0] == " " else LineKind.RECORD)
        if kind is LineKind.CONTINUATION and level in ("ERROR", "CRITICAL"):
            kind = LineKind.TRACEBACK  # the code below a `File` line
    return LogRecord(process, pid, level, time, source, message, kind)


def _bare(process: str, pid: int | None, time: str, rest: str) -> LogRecord:
    """A line without vLLM's head."""
    if rest.startswith("{"):
        record = _from_json(rest, process, pid)
        if record:
            return record
    message = clean_line(rest).rstrip()
    if not message:
        return LogRecord(process, pid, "", time, "", "", LineKind.BLANK)
    colon = _COLON.match(message)
    if colon:
        said = message[colon.end() :]
        kind = LineKind.ACCESS if _ACCESS.match(said) else LineKind.RECORD
        source = "uvicorn" if colon.end() == _UVICORN_INDENT else ""
        return LogRecord(process, pid, colon[1], time, source, said, kind)
    inner = _HEAD.search(message, 0, 400) if ".py:" in message or ".rs:" in message else None
    if inner:  # VLLM_LOGGING_PREFIX, or a line glued to the bar before it
        before = message[: inner.start()]
        glued = _PREFIX.search(before)
        if glued and not process:
            process, pid, before = glued[1], int(glued[2]), before[: glued.start()]
        said = message[inner.end() :]
        said = said if "%|" in before else before + said
        return _record(process, pid, inner[1], inner[2], inner[3], said)
    if "%" in message and _BAR.match(message):
        return LogRecord(process, pid, "", time, "", message, LineKind.PROGRESS)
    return _foreign(process, pid, time, message)


def _foreign(process: str, pid: int | None, time: str, message: str) -> LogRecord:
    kind = _shape(message)
    if kind:
        return LogRecord(process, pid, "", time, "", message, kind)
    if message.startswith("    "):
        return LogRecord(process, pid, "", time, "", message, LineKind.CONTINUATION)
    found = parse_foreign(message)
    if found:
        access = found.access or _ACCESS.match(found.message)
        kind = LineKind.ACCESS if access else _shape(found.message) or LineKind.RECORD
        name = process or found.process
        return LogRecord(name, pid, found.level, found.time or time, found.source, found.message, kind)
    if _COUNTER.match(message):
        return LogRecord(process, pid, "", time, "", message, LineKind.PROGRESS)
    kind = LineKind.CONTINUATION if message[0] == " " else LineKind.PLAIN
    return LogRecord(process, pid, "", time, "", message, kind)


def _shape(message: str) -> LineKind | None:
    """TRACEBACK or EXCEPTION where the message is part of one."""
    if message.startswith(_TRACEBACK_HEADS) or _FRAME.match(message):
        return LineKind.TRACEBACK
    if _EXCEPTION.match(message):
        return LineKind.EXCEPTION
    return None


def exception_name(message: str) -> str:
    """`ValueError` of `ValueError: no`, dotted as written; empty when the message does not name an exception."""
    match = _EXCEPTION.match(message)
    return match[1] if match else ""


_CARRIED = ("log", "MESSAGE")
"""Where Docker's json-file driver and journald's JSON put a line that they carry."""


def _from_json(text: str, process: str, pid: int | None) -> LogRecord | None:
    """python-json-logger's and the usual other shapes; None when it is no such record."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    carried = next((found[key] for key in _CARRIED if isinstance(found.get(key), str)), None)
    if carried is not None and "message" not in found:
        inner = parse_line(carried)
        return inner if inner.time else inner._replace(time=clean_line(_text(found, "time")))
    message = next((found[key] for key in ("message", "msg", "event") if isinstance(found.get(key), str)), None)
    if message is None:
        return None
    if isinstance(found.get("exc_info"), str):
        message += "\n" + found["exc_info"]
    number = found.get("process", pid)
    logger = _text(found, "name", "logger")
    message = clean(message).rstrip()
    kind = LineKind.ACCESS if logger == "uvicorn.access" else LineKind.RECORD
    return LogRecord(
        clean_line(_text(found, "vllm_process_name", "processName") or process),
        number if isinstance(number, int) else pid,
        level_of(_text(found, "levelname", "level", "severity").upper()),
        clean_line(_text(found, "asctime", "timestamp", "time", "ts")),
        clean_line(logger),
        message,
        kind if message else LineKind.BLANK,
    )


def _text(found: dict[str, object], *keys: str) -> str:
    for key in keys:
        value = found.get(key)
        if isinstance(value, str):
            return value
    return ""
