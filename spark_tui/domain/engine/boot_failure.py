"""Which line decides why an engine failed.

The useful line is seldom the last one: a worker's exception comes first, then the engine core reports that it could
not start, then the API server that the engine core could not. The last exception of the worker, or else of the engine
core, is the cause; what follows from it never replaces it.
"""

from __future__ import annotations

import re
from enum import IntEnum

from spark_tui.domain.engine.log_line import LineKind, LogRecord, exception_name
from spark_tui.domain.engine.secrets import mask_secrets
from spark_tui.domain.engine.timeline import Failure
from spark_tui.domain.text import clean_line

MAX_LINE = 2_000


class _Weight(IntEnum):
    """How well a line decides; a heavier one replaces a lighter one."""

    CONSEQUENCE = 5
    STRAY_EXCEPTION = 10
    ENGINE_GONE = 30
    API_SERVER = 40
    FATAL_ERROR = 50
    PROCESS_DIED = 60
    WORKER_AT_RUN_TIME = 65
    START_FAILED = 80
    USAGE = 90


_CONSEQUENCES = (
    "WorkerProc initialization failed",
    "Engine core initialization failed",
    "EngineCore encountered an issue",
    "Worker failed with error",
)
_DETAIL = re.compile(r"(?:Value error|Assertion failed), .+")
_PYDANTIC_TAIL = re.compile(r" \[type=\w+, input_value=.*$")


class FailureReader:
    """Reads exceptions and the words around them; `failure` is the best answer so far."""

    def __init__(self) -> None:
        self.failure: Failure | None = None
        self._weight = 0
        self._worker: LogRecord | None = None
        self._block = ""
        self._main_traceback = False
        self._wants_detail = False
        self.hopeless = False
        """The start is over, also where the reason is only a guess."""

    @property
    def certain(self) -> bool:
        """There is a failure, and the log proves it."""
        return self.failure is not None and not self.failure.guess

    def exception(self, record: LogRecord, *, serving: bool) -> None:
        """A line that names an exception."""
        if any(words in record.message for words in _CONSEQUENCES):
            self.hopeless = self.hopeless or "Engine core initialization failed" in record.message
            self._decide(record, _Weight.CONSEQUENCE, guess=True)
            return
        if is_worker(record.process):
            self._worker = record
            if self._block == "start" and self._weight < _Weight.START_FAILED:
                self._decide(record, _Weight.START_FAILED)
        elif is_core(record.process):
            if self._block == "start":
                self._decide(record, _Weight.START_FAILED, last_wins=self._from_core())
            elif self._block == "fatal":
                self._decide(record, _Weight.FATAL_ERROR, last_wins=True)
        elif not serving and not record.source:
            weight = _Weight.API_SERVER if self._main_traceback else _Weight.STRAY_EXCEPTION
            self._decide(record, weight, guess=not self._main_traceback, last_wins=True)

    def detail(self, message: str) -> None:
        """`  Value error, ...` below pydantic's ValidationError says what its first line does not."""
        if self._wants_detail and _DETAIL.match(message) and self.failure is not None:
            self._wants_detail = False
            line = _PYDANTIC_TAIL.sub("", message)
            self.failure = Failure(_shown(line), self.failure.process, self.failure.guess)

    def traceback(self, record: LogRecord) -> None:
        """The head of a traceback."""
        if not is_core(record.process) and not is_worker(record.process):
            self._main_traceback = False

    def frame(self, message: str) -> None:
        """A frame: one of vllm's own script means that its main process is ending."""
        if ", in <module>" in message and ("/vllm" in message or "api_server" in message):
            self._main_traceback = True

    def start_failed(self, _record: LogRecord) -> None:
        """`EngineCore failed to start.`: a worker's exception stands above it, the core's own below."""
        self._block = "start"
        if self._worker is not None:
            self._decide(self._worker, _Weight.START_FAILED)

    def fatal(self, _record: LogRecord) -> None:
        """`EngineCore encountered a fatal error.`: its exception follows."""
        self._block = "fatal"
        if self._worker is not None:
            self._decide(self._worker, _Weight.WORKER_AT_RUN_TIME)

    def worker_failed(self) -> None:
        """`WorkerProc failed to start.` or `hit an exception`: its traceback follows."""
        self._worker = None

    def process_died(self, record: LogRecord) -> None:
        """`Worker proc X died unexpectedly (exit code: -9)`."""
        if self._worker is not None:
            self._decide(self._worker, _Weight.WORKER_AT_RUN_TIME)
        else:
            self._decide(record, _Weight.PROCESS_DIED)

    def engine_gone(self, record: LogRecord) -> None:
        """The engine core is no longer there, and said nothing."""
        self._decide(record, _Weight.ENGINE_GONE)

    def usage(self, record: LogRecord) -> None:
        """argparse refused the arguments."""
        self._decide(record, _Weight.USAGE)

    def ended(self, exit_code: int, last_words: LogRecord | None) -> None:
        """The container has ended although the log gave no reason."""
        if self.failure is not None:
            return
        if exit_code == 137:  # SIGKILL: GB10 reports OOMKilled=false even when memory was the reason
            line = "killed (exit code 137): out of memory, or stopped by force"
        elif last_words is not None:
            line = last_words.message
        else:
            line = f"exited with code {exit_code}"
        self.failure = Failure(_shown(line), last_words.process if last_words and exit_code != 137 else "", guess=True)

    def _from_core(self) -> bool:
        return self.failure is not None and is_core(self.failure.process)

    def _decide(self, record: LogRecord, weight: _Weight, *, guess: bool = False, last_wins: bool = False) -> None:
        if weight < self._weight or (weight == self._weight and not last_wins):
            return
        self._weight = weight
        self._wants_detail = exception_name(record.message).endswith("ValidationError")
        self.failure = Failure(_shown(record.message), record.process, guess)


def is_worker(process: str) -> bool:
    """`Worker`, `Worker_TP0`, `VllmWorker-0`, `RayWorkerProc`."""
    return "Worker" in process


def is_core(process: str) -> bool:
    """`EngineCore`, `EngineCore_DP0`."""
    return process.startswith("EngineCore")


def is_exception(record: LogRecord) -> bool:
    """The line names an exception."""
    return record.kind is LineKind.EXCEPTION


def _shown(line: str) -> str:
    return mask_secrets(clean_line(line).strip())[:MAX_LINE]
