"""Turns an engine's log into the story of its start, line by line.

Most lines cost one regular expression match and one look into a table: only lines whose first word has a rule are
taken apart.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from spark_tui.domain.engine.boot_failure import MAX_KEPT, FailureReader, is_exception
from spark_tui.domain.engine.boot_phases import PhaseRecorder
from spark_tui.domain.engine.boot_rules import RULES
from spark_tui.domain.engine.log_clock import LogClock
from spark_tui.domain.engine.log_line import EXCEPTION_ENDS, LineKind, LogRecord, parse_line
from spark_tui.domain.engine.log_outer import OUTER, OWN_BEGINNINGS
from spark_tui.domain.engine.secrets import mask_secrets
from spark_tui.domain.engine.timeline import (
    EMPTY_TIMELINE,
    LABELS,
    BootTimeline,
    EngineFacts,
    Failure,
    Outcome,
    Phase,
    PhaseId,
    PhaseState,
)
from spark_tui.domain.engine.transfer import Transfer
from spark_tui.domain.text import clean_line, last_overwrite, strip_sequences, truncate

__all__ = [
    "EMPTY_TIMELINE",
    "LABELS",
    "BootTimeline",
    "BootTracker",
    "EngineFacts",
    "Failure",
    "Outcome",
    "Phase",
    "PhaseId",
    "PhaseState",
]

MAX_TELLING = 200
MAX_SILENCE_SECONDS = 600.0
"""A container that writes nothing for longer has lost the head of its log."""
_NOTHING = parse_line("")
_BEFORE_WEIGHTS = (PhaseId.CONTAINER, PhaseId.CONFIG, PhaseId.ENGINE_INIT)

# Process prefixes, `[tags]`, llama.cpp's own time, the level, more tags (`[backbone]`), and the message's first word.
_TAG = r"\[[^\[\]]{1,60}\](?: |(?=\[)|(?<=\d\]): )"
_HEAD = re.compile(
    rf"\s*(?:\([^()]{{1,200}}\) ?)*(?:(?:{_TAG})+)?(?:\d{{1,5}}\.\d\d\.\d{{3}}\.\d{{3}} [DIWE] )?"
    r"(?:([DIWEC])[A-Z]{3,7}(?: \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]{1,200}\] ?|: {1,5}))?"
    rf"(?:(?:{_TAG})+)?\s*(\S{{0,60}})"
)
_MESSAGE_TAGS = re.compile(r"(?:\[[^\[\]]{1,60}\] )+")
_EXCEPTION_WORDS = (*EXCEPTION_ENDS, *(f"{end}:" for end in EXCEPTION_ENDS), "):")
_MAX_WORD = 200
_USAGE = re.compile(r"(?:[\w.\-]{1,40} ){0,2}[\w.\-]{1,40}: error: ")
_DULL = frozenset(("", "Route:", "█", "▀▀", "▄▄", "█▄█▀", "non-default", "Found", "Engine", "Available"))


class BootTracker:
    """Feed it every line of a log, from the container's first one; `timeline()` is what they say so far.

    `started_at` is when the container started, seconds since the epoch, where it is known. A second banner in the
    same log begins a new story.
    """

    def __init__(self, started_at: float | None = None) -> None:
        self._started_at = started_at
        self._clock = LogClock()
        self.line = -1
        """Number of the line being read, from 0."""
        self._begin()
        self._timeline = EMPTY_TIMELINE

    def _begin(self) -> None:
        self.phases = PhaseRecorder()
        self.failures = FailureReader()
        self._keep = self.failures.recent.append
        self.facts = EngineFacts()
        self.drafter = self.from_cache = self.shards_begun = False
        self._transfer = Transfer()
        self.compiler = ""
        """The process whose compile times count."""
        self.own_ready_line = False
        """The engine has a line of its own for being ready: uvicorn's is not it."""
        self.record = _NOTHING
        """The line that a rule looks at."""
        self._begun = self._seen_banner = self._ready = self._stopped = False
        self._talk: deque[str] = deque(maxlen=8)
        self._telling = ""
        self._dirty = True

    # --- lines in -------------------------------------------------------------------------------------

    def feed(self, stamp: float | None, text: str) -> None:
        """One line; `stamp` in seconds since the epoch, None where Docker gave none."""
        self._line(stamp, text)

    def feed_many(self, lines: Iterable[tuple[str, str]]) -> None:
        """Lines as `(stamp, text)`; the stamp is RFC 3339 or empty and read only when it is needed."""
        line = self._line
        for stamp, text in lines:
            line(stamp, text)

    def _line(self, stamp: str | float | None, text: str) -> None:
        self.line += 1
        if "\x1b" in text:
            text = strip_sequences(text)
        self._keep(text if len(text) < MAX_KEPT else text[:MAX_KEPT])
        if self.failures.room:
            self.failures.below(text)
            self._dirty = True
        if text[:1] == "{" or (not text.startswith(OWN_BEGINNINGS) and OUTER.match(text)):
            self._apply(stamp, text, parse_line(text))
            return
        head = _HEAD.match(text if "\r" not in text else last_overwrite(text.rstrip("\r")))
        if head is None:
            return
        level, word = head[1], head[2]
        if word in RULES or word.endswith(_EXCEPTION_WORDS):
            if word != "File" or ", in <module>" in text:  # of a traceback's frames only the outermost tells
                self._apply(stamp, text, parse_line(text))
        elif level is not None:
            if level != "D" and not self._ready and word not in _DULL:
                self._talk.append(text)
                self._dirty = True
        elif word[:2] == "20" or "=" in word or ": error: " in text or (not self._seen_banner and '" 200' in text):
            self._apply(stamp, text, parse_line(text))
        if not self._begun:
            self._first(stamp, text)

    def _first(self, stamp: str | float | None, text: str) -> None:
        """The first line that a container writes, whatever it says."""
        record = parse_line(text)
        if record.kind is LineKind.BLANK:
            return
        self._begun = True
        self.phases.tick(self._clock.read(stamp, record.time))
        if record.kind is LineKind.ACCESS:
            self.answers()
            return
        silent = (self.phases.now or 0.0) - (self._started_at or 0.0)
        if self._started_at is not None and self._clock.real and 0 <= silent < MAX_SILENCE_SECONDS:
            self.phases.begin_at(self._started_at)
        self.phases.enter(PhaseId.CONTAINER)
        self._dirty = True

    def _apply(self, stamp: str | float | None, text: str, record: LogRecord) -> None:
        """Runs the rules on a line that has been taken apart."""
        message = record.message.lstrip()
        if not self._begun:
            self._first(stamp, text)
        self.phases.tick(self._clock.read(stamp, record.time))
        if record.kind is LineKind.ACCESS:
            if " 200" in message[-12:] and '"POST /v1' in message:
                self.answers()
            return
        if record.kind is LineKind.EXCEPTION:
            if not self._stopped:
                self.failed(lambda r: self.failures.exception(r, serving=self._ready), record)
            return
        if _USAGE.match(message):
            if self._ready:
                self.new_start(record)
            self.failed(self.failures.usage, record)
            return
        message = message[tags.end() :] if (tags := _MESSAGE_TAGS.match(message)) else message
        word = next(iter(message[:_MAX_WORD].split(maxsplit=1)), "")
        rule = RULES.get(word) or ("=" in word and RULES.get(word[: word.index("=") + 1])) or None
        if rule is not None:
            self.record = record
            rule(self, message)
            self._dirty = True
            if "\n" in record.message:
                self._inner_lines(record)
        if not self._ready and word not in _DULL and record.kind is LineKind.RECORD and record.level != "DEBUG":
            self._talk.append(text)
            self._dirty = True

    def _inner_lines(self, record: LogRecord) -> None:
        """A JSON record holds its traceback in one line."""
        for inner in record.message.split("\n")[1:]:
            part = record._replace(message=inner, kind=parse_line(inner).kind)
            if is_exception(part) and not self._stopped:
                self.failed(lambda r: self.failures.exception(r, serving=self._ready), part)

    # --- what rules say -------------------------------------------------------------------------------

    def learn(self, **facts: Any) -> None:
        """Facts of EngineFacts, replacing what was known."""
        if facts.get("eager"):
            self.phases.rule_out(PhaseId.COMPILE, PhaseId.CAPTURE)
        for name, value in facts.items():
            object.__setattr__(self.facts, name, value)  # our own copy: a timeline gets another one

    def new_start(self, record: LogRecord) -> None:
        """A banner. Not the first one: the container was started again. Several API servers print one each."""
        if self._seen_banner and not record.process.startswith("ApiServer_"):
            now = self.phases.now
            self._started_at = None
            self._begin()
            self._begun = True
            self.phases.tick(now)
            self.phases.enter(PhaseId.CONTAINER)
        self._seen_banner = True

    def compile_finished(self) -> None:
        """torch.compile or the run that measures after it is over; with a drafter there may be more of it."""
        if self.facts.eager:
            return
        seconds = self.facts.compile_seconds
        detail = "from cache" if self.from_cache else f"torch.compile {seconds:.0f}s" if seconds else ""
        self.phases.finish(PhaseId.COMPILE, PhaseId.KV_CACHE, detail)

    def autotune(self) -> None:
        """Kernels are tuned or warmed up. Before the KV cache has its size that is part of measuring memory."""
        self.phases.enter(PhaseId.KV_CACHE if self.facts.kv_tokens is None else PhaseId.AUTOTUNE)

    def ready_now(self) -> None:
        """The server says that it is ready."""
        if not self._ready and not self.phases.over:
            self._ready = True
            self.failures.survived()
            self.phases.mark(PhaseId.READY)

    def answers(self) -> None:
        """It serves requests, although its word that it is ready was not seen: the log was rotated, or is late."""
        if self.phases.current is PhaseId.SERVER:
            self.ready_now()
        elif not self._seen_banner and not self._ready and not self.phases.over:
            self._ready = self._dirty = True
            self.failures.survived()
            self.phases = PhaseRecorder()
            self.phases.mark(PhaseId.READY)

    def failed(self, read: Callable[[LogRecord], None], record: LogRecord) -> None:
        """Lets the failure reader read a line; one that ends the start ends the running phase."""
        if self._stopped:
            return
        self.failures.phase = self.phases.current
        read(record)
        if self.failures.certain or self.failures.hopeless:
            self.phases.fail()
        self._dirty = True

    def stopped(self) -> None:
        """Somebody asked it to stop; what breaks now breaks because of that."""
        if not self._stopped and self.failures.failure is None:
            self._stopped = True
            self.phases.stop()

    # --- what others know -----------------------------------------------------------------------------

    def download(self, done: int, total: int | None, at: float | None = None) -> None:
        """What somebody who looks at the cache folder has seen there: bytes of the weights, and how many they will be
        (None: not known). `at` is when, in seconds since the epoch.

        The log itself is silent while weights download. Before shards are read, missing bytes mean that the engine
        waits for them; in other phases only growing ones do.
        """
        if self._ready or self.phases.over or self.shards_begun or self.phases.current is None:
            return
        if self._clock.real:
            self.phases.tick(at)
        grown = self._transfer.note(done, total, at)
        if total is not None and done >= total:
            self.phases.release()
        elif self.phases.current is not PhaseId.DOWNLOAD and not (
            self.phases.current is PhaseId.WEIGHTS or (grown and self.phases.current in _BEFORE_WEIGHTS)
        ):
            return
        else:
            self.downloading(self._transfer.detail, self._transfer.progress, self._transfer.left)
        self._dirty = True

    def downloading(self, detail: str, progress: float | None, left: float | None) -> None:
        """Weights are on their way; the phase that needs them waits."""
        if self.phases.current in (*_BEFORE_WEIGHTS, PhaseId.WEIGHTS):
            self.phases.hold(PhaseId.DOWNLOAD)
        self.phases.report(PhaseId.DOWNLOAD, detail=detail, progress=progress, left=left)

    def serves(self) -> None:
        """Its API answers, whatever the log said or did not say: one that is not read to its end, or an engine that
        has no word for it."""
        if not self._ready and self.phases.current is not None:
            self._dirty = True
            self.ready_now()

    def mark_warm(self, seconds: float | None = None) -> None:
        """The first request was answered, after `seconds`."""
        self.phases.mark(PhaseId.WARM, seconds)
        self._dirty = True

    def container_ended(self, exit_code: int | None) -> None:
        """The container has ended; without a reason in the log the failure is a guess, and says so."""
        if self._stopped or self.failures.certain:
            return
        self._dirty = True
        if exit_code in (None, 0, 130, 143):
            self.stopped()
            return
        self.failures.phase = self.phases.current
        self.failures.ended(exit_code)
        self.phases.fail()

    # --- the story ------------------------------------------------------------------------------------

    def timeline(self) -> BootTimeline:
        """What is known now. The same object until something changes, an equal one if it only seemed to."""
        if self._dirty:
            self._dirty = False
            self._timeline = BootTimeline(
                phases=self.phases.phases(real_clock=bool(self._clock.real)),
                facts=replace(self.facts),
                outcome=self._outcome(),
                ready=self._ready,
                failure=self.failures.failure,
                telling=self._tell(),
                seconds=self.phases.since_start(PhaseId.READY) if self._ready else None,
            )
        return self._timeline

    def _outcome(self) -> Outcome:
        if self.failures.certain or (self.failures.failure is not None and self.phases.over):
            return Outcome.FAILED
        if self._stopped:
            return Outcome.STOPPED
        if self._ready:
            return Outcome.READY
        return Outcome.UNKNOWN if self.phases.current is None else Outcome.STARTING

    def _tell(self) -> str:
        while self._talk:
            record = parse_line(self._talk.pop())
            message = clean_line(record.message).strip().partition(" with config: ")[0]
            if record.kind is LineKind.RECORD and message:
                self._telling = truncate(mask_secrets(message), MAX_TELLING)
                self._talk.clear()
        return self._telling
