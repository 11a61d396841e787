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


_LEVELS = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
# `(Worker pid=7)`, Ray's `(RayWorker pid=7, ip=10.0.0.2)`, nested ones, and vllm-omni's `[Stage-0]` behind them.
_PREFIX = re.compile(r"(?:\(([A-Za-z_][\w.\-]{0,60}) pid=(\d{1,10})[^()]{0,60}\) ?)+(?:\[Stage-\d+\] )?")
_HEAD = re.compile(rf"({_LEVELS}) (\d\d-\d\d \d\d:\d\d:\d\d) \[([^\]]{{1,200}}:\d+)\] ?")
# journald, docker compose, Docker's and Kubernetes' own stamps: what stood in front when somebody saved the log.
_OUTER = re.compile(
    rf"(?:[A-Z][a-z]{{2}} +\d+ [\d:]{{8}} \S{{1,80}} \S{{1,80}}\[\d+\]: "
    rf"|[\w.\-]{{1,80}} +\| (?=[({{{{]|(?:{_LEVELS})\b|[\w.\-]{{1,80}} +\|)"
    r"|(?P<stamp>\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d))(?: std(?:out|err) [FP])? )+"
)
_COLON = re.compile(rf"({_LEVELS}): {{1,5}}")
_UVICORN_INDENT = 10
_ACCESS = re.compile(r'[\w.:\[\]\-]{3,60} - "[A-Z]{3,7} \S{1,2000} HTTP/[\d.]{1,3}" \d{3}')
_BAR = re.compile(r"[^|]{0,200}: +\d{1,3}% Completed \| \d+/\d+ \[|[^|]{0,200}?\d{1,3}%\|[^|]{0,2000}\| *[\d.]+\w?/")
_COUNTER = re.compile(r"[^|]{0,200}: \d+\w* \[\d\d:\d\d[,\]]")
_EXCEPTION = re.compile(
    r"(?:[|+ ]*\| )?([A-Za-z_][\w.]{0,150}(?:Error|Exception|Interrupt|Exit|ExceptionGroup|NotFound))"
    r"(?:\([\w.]{1,100}\))?(?::(?: |$)|$)"
)
_FRAME = re.compile(r' {2,4}File "[^"]*", line \d+|  \[Previous line repeated|\s+[~^]+\s*$')
_TRACEBACK_HEADS = (
    "Traceback (most recent call last)",
    "During handling of the above exception",
    "The above exception was the direct cause",
    "  + Exception Group Traceback",
)

# Foreign loggers, tried in turn on what is left. Groups: time, level (a word or its initial), source, message.
_STAMP = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_FOREIGN = (
    # torch and glog: `[rank0]:W0521 21:08:35.966000 199 site-packages/torch/x.py:1731] message`
    re.compile(
        r"(?:\[rank\d+\]:)?\[?(?P<level>[VIWEFC])(?P<time>\d{4} [\d:]{8}\.\d{1,9})(?: \d+)? "
        r"(?P<source>\S{1,200}:\d+)\] ?"
    ),
    # FlashInfer: `2026-05-21 21:10:15,615 - INFO - autotuner.py:457 - flashinfer.jit: message`
    re.compile(rf"(?P<time>{_STAMP}) - (?P<level>{_LEVELS}) - (?P<source>\S{{1,100}}:\d+) - (?:[\w.]{{1,60}}: )?"),
    # Ray and logging's usual shapes: `2026-05-21 21:02:57,123 INFO worker.py:1821 -- message`
    re.compile(
        rf"(?P<time>{_STAMP})[ \t|\-]{{1,4}}\[?(?P<level>{_LEVELS})\]?[ \t|:\-]{{1,10}}"
        r"(?:(?P<source>[\w./]{1,100}:\d+) (?:-- |- )?)?"
    ),
    # SGLang: `[2026-03-11 13:53:21 TP0] message`
    re.compile(
        rf"\[(?P<time>{_STAMP})(?: (?P<process>[A-Z]\w{{0,20}}(?: \w{{1,10}}){{0,5}}))?\] (?:(?P<level>{_LEVELS}):? +)?"
    ),
    # TensorRT-LLM, C++ and Python: `[TensorRT-LLM][INFO] message`, `[05/21/2026-21:03:22] [TRT-LLM] [I] message`
    re.compile(r"\[(?P<source>TensorRT-LLM)\]\[(?P<level>[A-Z]{4,8})\] ?"),
    re.compile(r"\[(?P<time>\d\d/\d\d/\d{4}-[\d:]{8})\] \[(?P<source>TRT-LLM)\] \[(?P<level>[VDIWEF])\] ?"),
    # NCCL: `host:199:412 [0] NCCL INFO message`
    re.compile(
        r"(?P<source>[\w.\-]{1,64}:\d+:\d+ \[\d+\]) (?:[\w./]{1,80}:\d+ )?NCCL (?P<level>INFO|WARN|TRACE|ERROR) "
    ),
    # Go's slog, as Ollama writes it: `time=2026-05-21T21:02:57Z level=INFO source=server.go:12 msg="message"`
    re.compile(
        rf"time=(?P<time>{_STAMP}\S{{0,8}}) level=(?P<level>[A-Z]{{4,8}})(?: source=(?P<source>\S{{1,100}}))? msg="
    ),
    # Python warnings: `/path/x.py:138: FutureWarning: message`
    re.compile(r"(?P<source>[^\s:]{1,300}\.py:\d+): (?=(?P<level>\w{0,60}Warning): )"),
    re.compile(r"(?=(?P<level>Warning): )"),
    re.compile(r"\[(?P<source>transformers|huggingface_hub|accelerate|ray)\] "),
    # argparse: `vllm serve: error: unrecognized arguments: --x`
    re.compile(r"(?=(?:[\w.\-]{1,40} ){0,2}[\w.\-]{1,40}: (?P<level>error): )"),
)
_WORDS = {"WARN": "WARNING", "FATAL": "CRITICAL", "TRACE": "DEBUG", "VERBOSE": "DEBUG", "error": "ERROR"}
_INITIALS = {"V": "DEBUG", "D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL", "C": "CRITICAL"}


def parse_line(text: str) -> LogRecord:
    """Takes a line apart. Any text gives a record; what is not understood is the message. Never raises."""
    if "\x1b" in text:
        text = strip_sequences(text)
    text = text.rstrip("\r\n")
    process, pid, rest, time = "", None, text, ""
    if not text.startswith("("):
        outer = _OUTER.match(text)
        if outer:
            time, rest = outer["stamp"] or "", text[outer.end() :]
    prefix = _PREFIX.match(rest)
    if prefix:
        process, pid, rest = prefix[1], int(prefix[2]), rest[prefix.end() :]
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
    for pattern in _FOREIGN:
        match = pattern.match(message)
        if match:
            found = match.groupdict()
            said = message[match.end() :].strip('"') or message
            kind = LineKind.ACCESS if _ACCESS.match(said) else LineKind.RECORD
            return LogRecord(
                process or found.get("process") or "",
                pid,
                _level(found.get("level") or ""),
                found.get("time") or time,
                found.get("source") or "",
                said,
                kind,
            )
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


def _level(word: str) -> str:
    if word.endswith("Warning"):
        return "WARNING"
    word = _INITIALS.get(word) or _WORDS.get(word, word)
    return word if word in SEVERITIES else ""


def _from_json(text: str, process: str, pid: int | None) -> LogRecord | None:
    """python-json-logger's and the usual other shapes; None when it is no such record."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
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
        _level(_text(found, "levelname", "level", "severity").upper()),
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
