"""Turns an engine's log into the story of its start, line by line."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from spark_tui.domain.logs.eta import Transfer
from spark_tui.domain.logs.failure import MAX_KEPT, FailureReader, is_exception
from spark_tui.domain.logs.line import EXCEPTION_ENDS, OUTER, OWN_BEGINNINGS, LineKind, LogClock, LogRecord, parse_line
from spark_tui.domain.logs.rules.table import RULES
from spark_tui.domain.logs.timeline import (
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
from spark_tui.domain.secret import mask_secrets
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


_ORDER = tuple(PhaseId)


@dataclass(slots=True)
class _Slot:
    started: float | None = None
    seconds: float | None = None
    progress: float | None = None
    detail: str = ""
    done: bool = False
    proven: bool = False
    ruled_out: bool = False
    elsewhere: float = 0.0
    begun: float | None = None
    """When it last took over from a phase that waits for it."""
    measured: float = 0.0
    """Seconds of it that were measured so, and that its own word afterwards replaces."""
    left: float | None = None
    told_at: float | None = None


class PhaseRecorder:
    """One phase runs at a time, and time is never counted twice.

    A phase may be entered on suspicion (`proven=False`): it is the likely one after the last marker. When the next
    marker speaks for another phase, that one takes over the time, also when it comes earlier in the order. A proven
    phase is never left backwards: a slower rank's lines do not turn the clock back. Once it is ready nothing begins
    again.
    """

    def __init__(self) -> None:
        self._slots = {phase_id: _Slot() for phase_id in _ORDER}
        self._current: PhaseId | None = None
        self._held: PhaseId | None = None
        self._failed = self._stopped = False
        self.now: float | None = None
        """The time of the latest line that had one, in seconds."""

    @property
    def current(self) -> PhaseId | None:
        """The phase that runs."""
        return self._current

    @property
    def over(self) -> bool:
        """It has failed or was stopped: no marker counts any more."""
        return self._failed or self._stopped

    def tick(self, at: float | None) -> None:
        """Takes the time of a line; order between stdout and stderr is only approximate, so it never goes back."""
        if at is not None and (self.now is None or at > self.now):
            self.now = at

    def enter(self, phase_id: PhaseId, *, proven: bool = True) -> None:
        """A marker says that this phase runs now."""
        if phase_id is not self._current:
            self.release()
        slot = self._slots[phase_id]
        if self.over or self._slots[PhaseId.READY].done or phase_id is self._current:
            slot.proven = slot.proven or (proven and not self.over)
            return
        started = self.now
        if self._current is not None:
            running = self._slots[self._current]
            backwards = _ORDER.index(phase_id) < _ORDER.index(self._current)
            if running.proven and (backwards or (slot.done and not proven)):
                return
            if running.proven:
                self._close(self._current)
            else:
                started = running.started
                self._slots[self._current] = _Slot(ruled_out=running.ruled_out)
        if slot.started is None:
            slot.started = started
        slot.done, slot.seconds, slot.proven, slot.ruled_out = False, None, proven, False
        self._current = phase_id

    def finish(self, phase_id: PhaseId, then: PhaseId, detail: str = "") -> None:
        """A marker says that this phase has ended; `then` is the likely next one."""
        self.enter(phase_id)
        if self._current is not phase_id:
            return
        self._slots[phase_id].detail = detail
        self.enter(then, proven=False)

    def prove(self, phase_id: PhaseId) -> bool:
        """Whether this phase runs now; if so it is proven from now on."""
        if self._current is phase_id:
            self._slots[phase_id].proven = True
        return self._current is phase_id

    def report(
        self, phase_id: PhaseId, *, detail: str | None = None, progress: float | None = None, left: float | None = None
    ) -> None:
        """How far the running phase is; `left` is what its own bar or rate says it still takes, in seconds."""
        if self._current is phase_id:
            slot = self._slots[phase_id]
            slot.progress, slot.left = progress, left
            slot.told_at = None if left is None else self.now
            slot.detail = slot.detail if detail is None else detail

    def describe(self, phase_id: PhaseId, detail: str) -> None:
        """Another word on a phase that has been, when a later line knows better."""
        if not self.over:
            self._slots[phase_id].detail = detail

    def hold(self, phase_id: PhaseId) -> None:
        """The running phase waits for an earlier one: weights for their download. The time is the other one's."""
        if self.over or self._held is not None or self._current in (None, phase_id):
            return
        slot = self._slots[phase_id]
        slot.started = slot.started if slot.started is not None else self.now
        slot.begun, slot.done, slot.proven, slot.ruled_out = self.now, False, True, False
        self._held, self._current = self._current, phase_id

    def release(self) -> None:
        """What the held phase waited for is over; nothing when none is held."""
        if self._held is None or self._current is None:
            return
        slot = self._slots[self._current]
        took = max(0.0, self.now - slot.begun) if self.now is not None and slot.begun is not None else 0.0
        slot.measured += took
        slot.seconds = (slot.seconds or 0.0) + took
        slot.done, slot.progress, slot.left, slot.told_at = True, None, None, None
        self._slots[self._held].elsewhere += took
        self._current, self._held = self._held, None

    def rule_out(self, *phase_ids: PhaseId) -> None:
        """These phases will not happen."""
        for phase_id in phase_ids:
            self._slots[phase_id].ruled_out = True

    def note_past(self, phase_id: PhaseId, seconds: float, within: PhaseId) -> None:
        """A phase was silent while it ran: it took `seconds` of the time counted for `within` so far. Its own word
        counts, not what was measured from outside meanwhile."""
        slot = self._slots[phase_id]
        seconds -= slot.measured
        slot.seconds, slot.measured = (slot.seconds or 0.0) + seconds, 0.0
        slot.done = slot.proven = True
        if slot.started is None and self.now is not None:
            slot.started = self.now - seconds
        self._slots[within].elsewhere += seconds

    def mark(self, phase_id: PhaseId, seconds: float | None = None) -> None:
        """The phase is done, an instant rather than a span unless `seconds` says otherwise."""
        self.release()
        if self._current is not None and self._current is not phase_id:
            self._close(self._current)
        slot = self._slots[phase_id]
        slot.started = slot.started if slot.started is not None else self.now
        slot.seconds, slot.done, slot.proven = seconds, True, True
        self._current = None

    def fail(self) -> None:
        """The running phase has failed."""
        self._end()
        self._failed = True

    def stop(self) -> None:
        """Somebody stopped it."""
        self._end()
        self._stopped = True

    def since_start(self, phase_id: PhaseId) -> float | None:
        """Seconds from the first phase's start to this one's."""
        first = next((s.started for s in self._slots.values() if s.started is not None), None)
        end = self._slots[phase_id].started
        return None if first is None or end is None else round(end - first, 3)

    def begin_at(self, at: float) -> None:
        """The container started at `at`, before its first line."""
        slot = self._slots[PhaseId.CONTAINER]
        if slot.started is None or at < slot.started:
            slot.started = at

    def phases(self, *, real_clock: bool) -> tuple[Phase, ...]:
        """The phases as values; without a real clock there are durations but no times."""
        reached = self._reached()
        return tuple(
            Phase(
                phase_id,
                self._state(phase_id, slot, index < reached),
                self._shown_start(phase_id, slot) if real_clock else None,
                None if slot.seconds is None else round(slot.seconds, 3),
                slot.progress,
                slot.detail,
                slot.left,
                slot.told_at if real_clock else None,
            )
            for index, (phase_id, slot) in enumerate(self._slots.items())
        )

    def _shown_start(self, phase_id: PhaseId, slot: _Slot) -> float | None:
        """Of the running phase, so that what it spent waiting for others does not count as its own time."""
        if slot.started is None or phase_id is not self._current or phase_id is PhaseId.DOWNLOAD:
            return slot.started
        return slot.started + slot.elsewhere

    def _reached(self) -> int:
        """Index of the latest phase that is certain: what stands before it and never ran was skipped."""
        proven = [index for index, slot in enumerate(self._slots.values()) if slot.proven]
        return max(proven, default=0)

    def _state(self, phase_id: PhaseId, slot: _Slot, passed: bool) -> PhaseState:
        if phase_id is self._current:
            if self._failed:
                return PhaseState.FAILED
            return PhaseState.SKIPPED if self._stopped else PhaseState.RUNNING
        if slot.done:
            return PhaseState.DONE
        return PhaseState.SKIPPED if passed or slot.ruled_out else PhaseState.PENDING

    def _close(self, phase_id: PhaseId) -> None:
        slot = self._slots[phase_id]
        slot.done, slot.progress, slot.left, slot.told_at = True, None, None, None
        if slot.started is not None and self.now is not None:
            slot.seconds = max(0.0, self.now - slot.started - slot.elsewhere)

    def _end(self) -> None:
        self._held = None
        if self._current is not None:
            detail, progress = self._slots[self._current].detail, self._slots[self._current].progress
            self._close(self._current)
            slot = self._slots[self._current]
            slot.done, slot.detail, slot.progress = False, detail, progress


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
