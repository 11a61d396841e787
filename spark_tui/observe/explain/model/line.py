"""One line of a log: its parts, its moment, and lines that say the same."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Final, NamedTuple

from spark_tui.base.errors import UsageError
from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean, clean_line, last_overwrite, lazy_pattern, strip_sequences
from spark_tui.base.untrusted import load_json

LEVELS: Final = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
_STAMP = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_SLASHED = r"\d{4}/\d\d/\d\d(?: -)? \d\d:\d\d:\d\d"

_FOREIGN: Final = (
    # torch and glog: `[rank0]:W0521 21:08:35.966000 199 site-packages/torch/x.py:1731] message`
    (
        "[a",
        r"(?:\[rank\d+\]:)?\[?(?P<level>[VIWEFC])(?P<time>\d{3,4} [\d:]{8}\.\d{1,9})(?: \d+)? "
        r"(?P<source>\S{1,200}:\d+)\] ?",
    ),
    # FlashInfer: `2026-05-21 21:10:15,615 - INFO - autotuner.py:457 - flashinfer.jit: message`
    (
        "0",
        rf"(?P<time>{_STAMP}) - (?P<level>{LEVELS}) - (?P<source>\S{{1,100}}:\d+) - (?:[\w.]{{1,60}}: )?",
    ),
    # Ray, logging's and loguru's usual shapes: `2026-05-21 21:02:57,123 INFO worker.py:1821 -- message`
    (
        "0",
        rf"(?P<time>{_STAMP})[ \t|\-]{{1,4}}\[?(?P<level>{LEVELS})\]?[ \t|:\-]{{1,10}}"
        r"(?:(?P<source>[\w./:<>]{1,100}:\d+) (?:-- |- )?)?",
    ),
    # NCCL: `host:199:412 [0] misc/ibvwrap.cc:94 NCCL WARN message`, since 2.24 with a time in front
    (
        "[0a",
        rf"(?:\[(?P<time>{_STAMP})\] )?(?P<source>[\w.\-]{{1,64}}:\d+:\d+ \[\d+\]) (?:[\w./]{{1,80}}:\d+ )?"
        r"NCCL (?P<level>INFO|WARN|TRACE|ERROR) ",
    ),
    # Ray's C++: `[2025-12-12 15:10:48,697 C 42791 42791] (raylet) provider.cc:153:  message`
    (
        "[a",
        rf"(?:\(raylet, ip=[^()]{{1,60}}\) )?\[(?P<time>{_STAMP}) (?P<level>[DIWEC]) \d{{1,9}} \d{{1,9}}\] "
        r"(?:\((?P<process>\w{1,40})\) )?(?P<source>[\w./]{1,120}\.(?:cc|h):\d+): +",
    ),
    # vLLM's head without level and time, as people cut it: `[parallel_state.py:1158] message`
    ("[", r"\[(?P<source>[\w./]{1,80}\.py:\d{1,6})\] "),
    # SGLang: `[2026-03-11 13:53:21 TP0] message`
    (
        "[",
        rf"\[(?P<time>(?:{_STAMP}|"
        rf"\d\d-\d\d \d\d:\d\d:\d\d))(?: (?P<process>[A-Z]\w{{0,20}}(?: \w{{1,10}}){{0,5}}))?\] "
        rf"(?:(?P<level>{LEVELS}):? +)?",
    ),
    # TensorRT-LLM, C++ and Python: `[TensorRT-LLM][INFO] message`, `[05/21/2026-21:03:22] [TRT-LLM] [I] message`
    ("[", r"\[(?P<source>TensorRT-LLM)\](?:\[(?P<level>[A-Z]{4,8})\])? ?"),
    (
        "[",
        r"\[(?P<time>\d\d/\d\d/\d{4}-[\d:]{8})\] \[(?P<source>TRT(?:-LLM)?)\](?: \[(?P<process>RANK \d{1,4})\])? "
        r"\[(?P<level>[VDIWEF])\] ?",
    ),
    # llama.cpp with --log-timestamps, a router's child with its port: `[53871] 0.06.903.542 I srv  init: message`
    ("[0", r"(?:\[(?P<process>\d{2,5})\] )?(?P<time>\d{1,5}\.\d\d\.\d{3}\.\d{3}) (?P<level>[DIWE]) "),
    # Go, as Ollama writes it: slog, the old log package, and gin's access lines
    (
        "a",
        rf"time=(?P<time>{_STAMP}\S{{0,8}}) level=(?P<level>[A-Z]{{4,8}})(?: source=(?P<source>\S{{1,100}}))? msg=",
    ),
    ("0", rf"(?P<time>{_SLASHED}) (?P<source>[\w.]{{1,60}}\.go:\d+): (?:(?P<level>[A-Z]{{4,7}}) )?"),
    ("[", rf"\[(?P<source>GIN)\] (?P<time>{_SLASHED}) \| +"),
    # Rust's tracing: ` INFO vllm_server::http: message`, its time taken off as a stamp
    (
        " a",
        r" {0,3}(?P<level>TRACE|DEBUG|INFO|WARN|"
        r"ERROR) {1,2}(?P<source>[a-z]\w{0,60}(?:::\w{1,60}){0,8})(?:\{[^{}]{0,200}\})?: ",
    ),
    # UCX: `[1716325200.123456] [spark:199  :0] ucp_context.c:1205 UCX  WARN  message`
    (
        "[",
        r"\[(?P<time>\d{10}\.\d{1,9})\] \[[^\]]{1,100}\] +(?P<source>\S{1,100}:\d+) +UCX +(?P<level>[A-Z]{4,5}) +",
    ),
    # logging without a format: `WARNING:root:message`
    ("a", rf"(?P<level>{LEVELS}):(?P<source>[\w.]{{1,80}}):"),
    # Python warnings: `/path/x.py:138: FutureWarning: message`
    (
        "0a/<",
        r"(?P<source>[^\s:]{1,300}\.py:\d+|<frozen [\w.]{1,80}>:\d+): (?=(?P<level>\w{0,60}Warning): )",
    ),
    ("a", r"(?=(?P<level>Warning): )"),
    ("[", r"\[(?P<source>transformers|huggingface_hub|accelerate|ray|Gloo)\] "),
    ("a", r"(?P<source>nanobind): "),
    # argparse: `vllm serve: error: unrecognized arguments: --x`
    ("a0", r"(?=(?:[\w.\-]{1,40} ){0,2}[\w.\-]{1,40}: (?P<level>error): )"),
)
"""With what such a line may begin: `[`, `0` a digit, a space, another sign as itself, `a` anything else."""
_KINDS: Final = {**dict.fromkeys("0123456789", "0"), "[": "[", " ": " ", "/": "/", "<": "<"}


@functools.cache
def _by_first(kind: str) -> tuple[re.Pattern[str], ...]:
    """The patterns of lines that begin so, compiled with the first such line."""
    return tuple(re.compile(pattern) for kinds, pattern in _FOREIGN if kind in kinds)


_WORDS = {"WARN": "WARNING", "FATAL": "CRITICAL", "TRACE": "DEBUG", "VERBOSE": "DEBUG", "error": "ERROR"}
_INITIALS = {"V": "DEBUG", "D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL", "C": "CRITICAL"}
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"?')
_ESCAPED = re.compile(r'\\(["\\])')


# vLLM's `05-21 21:02:50`, with a year, without its hyphen (torch), with slashes (Go), TensorRT-LLM's `05/21/2026-...`.
_LOG_TIME = re.compile(r"(?:\d{4}[-/])?(\d\d)[-/]?(\d\d)(?:[ T]|/\d{4}-| - )(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_SINCE_START = re.compile(r"(\d{1,5})\.(\d\d)\.(\d{3})\.(\d{3})$")
"""llama.cpp's own: minutes, seconds, milli- and microseconds since it began."""
_YEAR = 2000  # vLLM writes no year; a leap year has every date
_YEAR_SECONDS = timedelta(days=366).total_seconds()


class LogClock:
    """Docker's stamps or the log's own times: the first line with a time decides, the two are never mixed."""

    def __init__(self) -> None:
        self.real: bool | None = None
        """Times are seconds since the epoch; otherwise they are good for durations only."""
        self._latest: float | None = None
        self._read: tuple[str, float | None] = ("", None)

    def read(self, stamp: str | float | None, log_time: str) -> float | None:
        """Seconds, None for a line without a time. `stamp` is RFC 3339, or already in seconds."""
        at = stamp if isinstance(stamp, (float, int)) else None
        if isinstance(stamp, str) and stamp:
            with suppress(ValueError):
                at = datetime.fromisoformat(stamp).timestamp()
        if self.real is None and (at is not None or log_time):
            self.real = at is not None
        if not self.real:
            if self._read[0] != log_time:  # most lines have the second of the line before them
                self._read = (log_time, self._seconds(log_time))
            at = self._read[1]
        if at is not None:
            self._latest = at
        return at

    def _seconds(self, text: str) -> float | None:
        match = _LOG_TIME.search(text)
        if match is None:
            since = _SINCE_START.match(text)
            return None if since is None else int(since[1]) * 60 + int(since[2]) + int(since[3] + since[4]) / 1e6
        month, day, hour, minute, second = (int(part) for part in match.groups()[:5])
        try:
            at = datetime(_YEAR, month, day, hour, minute, second) - datetime(_YEAR, 1, 1)
        except ValueError:
            return None
        seconds = at.total_seconds() + float(f"0.{match[6] or 0}")
        while self._latest is not None and self._latest - seconds > _YEAR_SECONDS / 2:
            seconds += _YEAR_SECONDS
        return seconds


_CLOCK = r"\d\d:\d\d:\d\d(?:\.\d{1,9})?"
_FROM = r"\S{1,80} [^\s:\[\]]{1,120}"
"""Host and program, as syslog names them."""

OUTER: Final = re.compile(
    # journald and syslog: `Nov 21 02:16:18 spark docker[812]: `, with a priority in front, or with a full date
    rf"(?:(?:<\d{{1,3}}>)?(?:[^\W\d_]{{3,4}}\.?|\d{{1,2}}月) +\d{{1,2}} {_CLOCK} {_FROM}(?:\[\d+\])?: |"
    rf"[A-Z][a-z]{{2}} \d{{4}}-\d\d-\d\d {_CLOCK} \S{{1,6}} {_FROM}\[\d+\]: "
    # RFC 5424: `<30>1 2026-11-21T02:16:18.123Z spark docker 812 - - `
    r"|<\d{1,3}>1 \S{20,40} \S{1,80} \S{1,120} \S{1,20} \S{1,80} (?:-|\[[^\]]{0,200}\]) "
    # compose `vllm-1  | `, a swarm's `vllm.1.k2j@spark    | `; other names only before what an engine begins with
    r"|[\w.@\-]{0,120}?(?:[\-_]\d{1,3}|\.\d{1,3}\.\w{1,40}(?:@[\w.\-]{1,80})?) +\| "
    r"|[\w.@\-]{0,60}(?:vllm|sglang|llama|trtllm)[\w.@\-]{0,60} +\| "
    rf"|"
    rf"[\w.@\-]{{1,80}} +\| (?=[({{\[]|(?:{LEVELS})\b|Traceback |  File |(?:exec )?/[\w./]{{1,60}}: |"
    rf"[\w.]{{1,80}}(?:Error|Exception): "
    r"|[\w.\-]{1,80} +\|)"
    # Docker's stamps, journald's ISO form
    r"|(?P<stamp>\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:?\d\d)) "
    rf"(?:(?:{_FROM}|[a-z][\w.\-]{{1,60}})\[\d+\]: )?)+"
)
"""`stamp` is an RFC 3339 time among what it takes, if there is one."""
OWN_BEGINNINGS: Final = ("(", "INFO", "WARN", "ERRO", "DEBU", "CRIT", " ", "[0", "[1", "[2", "[T", "[r")
"""How nearly every line of an engine begins: no need to try `OUTER` on such a line."""


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
        return SEVERITIES[self.level] if self.level else _BARE.get(self.kind, 0)


SEVERITIES: Final = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
_BARE = {LineKind.TRACEBACK: 40, LineKind.EXCEPTION: 40, LineKind.ACCESS: 20, LineKind.PROGRESS: 20}

# `(Worker pid=7)`, Ray's `(RayWorker pid=7, ip=10.0.0.2)` and `(pid=7)`, Ray Serve's long names, nested ones, and
# vllm-omni's `[Stage-0]` behind them.
_PREFIX = re.compile(
    r"(?:\((?:([A-Za-z_][\w.\-:/]{0,160})(?: rank=\d{1,6})?,? )?pid=(\d{1,10})[^()]{0,60}\) ?)+(?:\[Stage-\d+\] )?"
)
_RANK = re.compile(r"\[(rank\d{1,4})\]: ")
_HEAD = re.compile(
    rf"({LEVELS}) (\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d{{1,6}})? \[?([^\]]{{1,200}}:\d+)\] ?"
)  # up to 0.7 without `[`
_COLON = re.compile(rf"({LEVELS}): {{1,5}}")
_UVICORN_INDENT = 10
_ACCESS = re.compile(r'[\w.:\[\]\-]{3,60} - "[A-Z]{3,7} \S{1,2000} HTTP/[\d.]{1,3}" \d{3}')
_BAR = re.compile(r"[^|]{0,200}: +\d{1,3}% Completed \| \d+/\d+ \[|[^|]{0,200}?\d{1,3}%\|[^|]{0,2000}\| *[\d.]+\w?/")
_COUNTER = re.compile(r"[^|]{0,200}: \d{1,12}\w{0,8} \[\d\d:\d\d[,\]]")
EXCEPTION_ENDS: Final = (
    "Error", "Exception", "Interrupt", "Exit", "ExceptionGroup", "NotFound", "OutOfResources", "Timeout",
    "TimeoutExpired", "InvalidComponent", "exc.Unsupported", "queue.Empty",
)  # fmt: skip
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
    """Parses a line. Any text gives a record; what is not understood is the message. Never raises.

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
        return _record(process, pid, head, rest[head.end() :])
    return _bare(process, pid, time, rest)


def _record(process: str, pid: int | None, head: re.Match[str], message: str) -> LogRecord:
    """A line behind vLLM's head."""
    level, message, kind = head[1], clean_line(last_overwrite(message)).rstrip(), LineKind.RECORD
    if not message:
        kind = LineKind.BLANK
    elif message[0] in " T" or level in ("ERROR", "CRITICAL"):
        kind = _shape(message) or (LineKind.CONTINUATION if message[0] == " " else LineKind.RECORD)
        if kind is LineKind.CONTINUATION and level in ("ERROR", "CRITICAL"):
            kind = LineKind.TRACEBACK  # the code below a `File` line
    return LogRecord(process, pid, level, head[2], head[3], message, kind)


def _bare(process: str, pid: int | None, time: str, rest: str) -> LogRecord:
    """A line without vLLM's head in front: JSON, uvicorn's, another logger's, or plain text."""
    record = _from_json(rest, process, pid) if rest.startswith("{") else None
    if record:
        return record
    message = clean_line(rest).rstrip()
    if not message:
        return LogRecord(process, pid, "", time, "", "", LineKind.BLANK)
    colon = _COLON.match(message)
    if colon:
        text = message[colon.end() :]
        kind = LineKind.ACCESS if _ACCESS.match(text) else LineKind.RECORD
        source = "uvicorn" if colon.end() == _UVICORN_INDENT else ""
        return LogRecord(process, pid, colon[1], time, source, text, kind)
    inner = _HEAD.search(message, 0, 400) if ".py:" in message or ".rs:" in message else None
    if inner:  # VLLM_LOGGING_PREFIX, or a line glued to the bar before it
        before, text = message[: inner.start()], message[inner.end() :]
        glued = _PREFIX.search(before)
        if glued and not process:
            process, pid, before = glued[1], int(glued[2]), before[: glued.start()]
        return _record(process, pid, inner, text if "%|" in before else before + text)
    plain = LogRecord(process, pid, "", time, "", message, LineKind.PLAIN)
    if "%" in message and _BAR.match(message):
        return plain._replace(kind=LineKind.PROGRESS)
    if shape := _shape(message):
        return plain._replace(kind=shape)
    if message.startswith("    "):
        return plain._replace(kind=LineKind.CONTINUATION)
    first = message[0]
    for pattern in _by_first(_KINDS.get(first, "a")):
        match = pattern.match(message)
        if match:
            return _foreign(plain, match)
    if _COUNTER.match(message):
        return plain._replace(kind=LineKind.PROGRESS)
    return plain._replace(kind=LineKind.CONTINUATION) if first == " " else plain


def _foreign(plain: LogRecord, match: re.Match[str]) -> LogRecord:
    """A line of one of the known loggers."""
    found, text = match.groupdict(""), plain.message[match.end() :]
    quoted = _QUOTED.match(text) if text[:1] == '"' else None
    if quoted:  # `"model weights" device=CUDA0` -> `model weights device=CUDA0`
        text = _ESCAPED.sub(r"\1", quoted[1]) + text[quoted.end() :]
    source, message = found.get("source", ""), text or plain.message
    access = source == "GIN" or _ACCESS.match(message)
    return LogRecord(
        plain.process or found.get("process", "").replace("RANK ", "rank"),
        plain.pid,
        level_of(found.get("level", "")),
        found.get("time", "") or plain.time,
        source,
        message,
        LineKind.ACCESS if access else _shape(message) or LineKind.RECORD,
    )


def level_of(word: str) -> str:
    """A level in any spelling as one of DEBUG INFO WARNING ERROR CRITICAL; empty for what is none."""
    if word.endswith("Warning"):
        return "WARNING"
    word = _INITIALS.get(word) or _WORDS.get(word, word)
    return word if word in SEVERITIES else ""


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


def _from_json(text: str, process: str, pid: int | None) -> LogRecord | None:
    """python-json-logger's and the usual other shapes; None when it is no such record."""
    try:
        found = load_json(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None

    def text_of(*keys: str) -> str | None:
        return next((found[key] for key in keys if isinstance(found.get(key), str)), None)

    carried = text_of("log", "MESSAGE", "line", "@message")  # a line in the JSON of Docker, journald, Loki, CloudWatch
    if carried is not None and "message" not in found:
        inner = parse_line(carried)
        return inner if inner.time else inner._replace(time=clean_line(text_of("time") or ""))
    message = text_of("message", "msg", "event")
    if message is None:
        return None
    if isinstance(found.get("exc_info"), str):
        message += "\n" + found["exc_info"]
    number = found.get("process", pid)
    logger = text_of("name", "logger") or ""
    message = clean(message).rstrip()
    if (
        not logger
        and message[:1] != "{"
        and "\n" not in message
        and (message[:5].isupper() or message[:1] in " (T[0123456789" or message[:5] == "time=" or "rror: " in message)
    ):
        inner = parse_line(message)  # a platform's wrapping of lines that the engine formed itself
        if inner.level or inner.process or inner.kind in (LineKind.EXCEPTION, LineKind.TRACEBACK, LineKind.ACCESS):
            return inner
    plain = _shape(message) or LineKind.RECORD if "rror: " in message[:160] else LineKind.RECORD
    kind = LineKind.ACCESS if logger == "uvicorn.access" else plain
    return LogRecord(
        clean_line(text_of("vllm_process_name", "processName") or process),
        number if isinstance(number, int) else pid,
        level_of((text_of("levelname", "level", "severity") or "").upper()),
        clean_line(text_of("asctime", "timestamp", "time", "ts") or ""),
        clean_line(logger),
        message,
        kind if message else LineKind.BLANK,
    )


NUMBER: Final = r"(-?\d{1,12}(?:\.\d{1,12})?)"
COUNT: Final = r"(\d[\d,]{0,20})"
GIB: Final = re.compile(rf"{NUMBER} GiB")
BAR: Final = re.compile(r"(.{1,200}?):\s+(\d{1,3})%(?: Completed \| |\|[^|]*\| *)(\d{1,9})/(\d{1,9})")
"""A progress bar: description, per cent, done, total."""
_LEFT: Final = re.compile(r"\[[\d:]{4,12}<(?:(?:(\d{1,3}) days?, )?(\d{1,3}):)?(\d\d):(\d\d)[,\]]")


def number(text: str) -> float:
    """A figure as the patterns above let it through."""
    return float(text.replace(",", ""))


def share(done: int, total: int) -> float | None:
    """0..1, None when the total is not known."""
    return min(1.0, done / total) if total else None


def bar_left(message: str, at: int = 0) -> float | None:
    """Seconds that a progress bar of tqdm says are left (`[01:42<03:05, 34.81s/it]`), None where it does not know."""
    match = _LEFT.search(message, at)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


MAX_SHOWN = 2_000


def shown(line: str) -> str:
    """A line as a person may see it: no control codes, no secrets."""
    return mask_secrets(clean_line(line).strip())[:MAX_SHOWN]


# --- moments ---------------------------------------------------------------------------------------------


MOMENTS: Final = "14:05, 14:05:30, -10m"
"""What is taken for a moment."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def by_time(logs: Sequence[Sequence[tuple[str, str]]]) -> list[tuple[int, int]]:
    """The lines of several logs, `(stamp, text)` each, ordered by their RFC 3339 stamps in UTC: which log, and which of
    its lines, both from 0. Lines of one log keep their order, also where a stamp is missing or earlier than the one
    before; of lines at the same time those of the earlier log come first.
    """
    keyed = []
    for log, lines in enumerate(logs):
        latest = ""
        for at, (stamp, _) in enumerate(lines):
            latest = max(latest, stamp.rstrip("Z"))  # without it, a stamp of fewer decimals is the smaller text
            keyed.append((latest, log, at))
    keyed.sort()
    return [(log, at) for _, log, at in keyed]


def moment_of(text: str, now: float, zone: tzinfo | None = None) -> float:
    """`14:05`, `14:05:30`, `-10m` (s, m, h, d) or RFC 3339 as seconds since the epoch; a time of day that is still to
    come was yesterday's. `zone` None is the local one. Raises UsageError."""
    text = text.strip()
    if ago := re.fullmatch(r"-(\d{1,6})([smhd])", text):
        return now - int(ago[1]) * _UNITS[ago[2]]
    today = datetime.fromtimestamp(now, zone)
    try:
        if clock := re.fullmatch(r"(\d\d?):(\d\d)(?::(\d\d))?", text):
            hour, minute, second = (int(part or 0) for part in clock.groups())
            at = today.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return (at if at <= today else at - timedelta(days=1)).timestamp()
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} is not a time.", f"Write it as one of: {MOMENTS}.") from error


# --- groups ----------------------------------------------------------------------------------------------


MAX_APART: Final = 400
"""Maximum number of other lines between two lines of a traceback."""
REACH: Final = 2_000
"""Lines of a traceback; one through a recursion has more."""
MAX_TAIL: Final = 30
"""Lines without a form of their own that may follow the line that names an exception."""
_CHAINED: Final = ("During handling of the above exception", "The above exception was the direct cause")
_PLAIN: Final = (LineKind.PLAIN, LineKind.CONTINUATION)
_WITHIN: Final = (LineKind.TRACEBACK, LineKind.CONTINUATION)


def traceback_at(number: int, lines: Sequence[str], first: int = 0) -> tuple[int, ...]:
    """The numbers of the lines of the traceback that line `number` is part of, ascending; empty where it is of none.
    The record that reports it is one of them.

    `lines` are those around it, the first of them has the number `first`; `REACH` of them on each side are enough.
    """
    records = {at: parse_line(text) for at, text in enumerate(lines, first)}
    own = records[number]
    records = {at: each for at, each in records.items() if (each.process, each.pid) == (own.process, own.pid)}
    bare = _is_bare(own)
    if not bare and _reports(number, records):
        return traceback_at(number + 1, lines, first)
    group: list[int] = []
    blanks: list[int] = []
    traced, raised, tail, last = False, False, 0, own
    for at, record in records.items():
        if _is_bare(record) is not bare:  # bare tracebacks come by another stream than the records around them
            continue
        if not group or at - group[-1] >= MAX_APART:
            joins = False
        elif not bare:  # vLLM gives every line of a message the head of the first
            alike = (record.level, record.time, record.source) == (last.level, last.time, last.source)
            joins = alike and (traced or record.kind in _WITHIN)
        elif raised and record.kind is not LineKind.BLANK and not record.message.startswith(_CHAINED):
            joins = record.kind in _PLAIN and not blanks and tail < MAX_TAIL  # the rest of an exception's text
        else:
            joins = traced
        if joins and bare and record.kind is LineKind.BLANK:
            blanks.append(at)
            continue
        if not joins:
            if number in group:
                break
            group, blanks, traced, raised = [], [], False, False
        group += [*blanks, at]
        blanks, last = [], record
        tail = tail + 1 if raised else 0
        traced = traced or record.kind is LineKind.TRACEBACK
        raised = (raised or record.kind is LineKind.EXCEPTION) and record.kind is not LineKind.TRACEBACK
    if not traced or number not in group:
        return ()
    return (group[0] - 1, *group) if bare and _reports(group[0] - 1, records) else tuple(group)


def _is_bare(record: LogRecord) -> bool:
    return not (record.level or record.source) and record.kind is not LineKind.PROGRESS


def _reports(number: int, records: dict[int, LogRecord]) -> bool:
    """Whether a record stands right above a traceback without heads: uvicorn's, of an error."""
    above, below = records.get(number), records.get(number + 1)
    if above is None or below is None or _is_bare(above) or not _is_bare(below):
        return False
    return above.severity >= 40 and above.kind is LineKind.RECORD and below.kind is LineKind.TRACEBACK


_STATISTICS: Final = (
    "Avg prompt throughput",  # vLLM, every ten seconds
    "SpecDecoding metrics",
    "Decode batch",  # SGLang
    "Prefill batch",
    "iter = ",  # TensorRT-LLM, with its iteration log on
    "slot print_timing",  # llama.cpp
    "slot launch_slot_",
    "slot update_slots",
    "srv  update_slots",
)
_REQUEST: Final = lazy_pattern(r'"[A-Z]{3,7} [^"]{1,500} HTTP/[\d.]+" [1-3]\d\d\b|\[GIN\] .{1,60}\| [1-3]\d\d \|')
_GROUPS_BAR: Final = lazy_pattern(r"\d{1,3}%\|")


STATISTICS: Final = "statistics"
REQUESTS: Final = "requests"


class Repeat(NamedTuple):
    """What a line repeats with other figures. Lines of one `series` may be folded into the latest one; a bar whose
    `percent` falls is another bar."""

    series: str
    percent: int = 0


def repeat_of(text: str) -> Repeat | None:
    """The series of a line of which only the latest one matters: a progress bar, answered requests, statistics. None
    for every other line, among them requests that failed."""
    if "%|" in text and (bar := _GROUPS_BAR.search(text, 0, 400)):
        record = parse_line(text)
        label = record.message.partition("%")[0].rstrip("0123456789").rstrip()
        return Repeat(f"bar {record.process} {label[:60]}", int(bar[0].rstrip("%|")))
    head = text[:400]
    for word in _STATISTICS:  # plain searches: an alternation is tried at every character
        if word in head:
            return Repeat(STATISTICS)
    return Repeat(REQUESTS) if ("HTTP/" in text or "[GIN]" in head) and _REQUEST.search(text, 0, 700) else None
