"""Turns an engine's log into the timeline of its start and the statistics of its serving, line by line.

Most lines cost one regular expression match and one table lookup: only lines whose first word has a rule are parsed,
once.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Final

from msgspec.structs import force_setattr, replace

from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean_line, last_overwrite, lazy_pattern, strip_sequences, truncate
from spark_tui.observe.explain.model.failure import MAX_KEPT, FailureReader
from spark_tui.observe.explain.model.line import (
    EXCEPTION_ENDS,
    OUTER,
    OWN_BEGINNINGS,
    LineKind,
    LogClock,
    LogRecord,
    exception_name,
    parse_line,
)
from spark_tui.observe.explain.model.rules import rule as r
from spark_tui.observe.explain.model.rules.others import LLAMA_CPP, OLLAMA, SGLANG, TRTLLM
from spark_tui.observe.explain.model.rules.vllm import VLLM
from spark_tui.observe.explain.model.serving import ServingHistory, ServingSample
from spark_tui.observe.explain.model.starts import FROM_CACHE, DownloadReadings
from spark_tui.observe.explain.model.timeline import (
    EMPTY_TIMELINE,
    BootTimeline,
    EarlierStart,
    EngineFacts,
    LogEvidence,
    PhaseId,
    PhaseRecorder,
    PhaseState,
    StartFailure,
    StartOutcome,
    Topic,
)
from spark_tui.observe.explain.model.whose import CONSEQUENCES, INTERRUPTED, request_failed, under_way

TABLES: Final[dict[str, r.Table]] = {
    "vllm": r.joined(r.COMMON, r.PYTHON_ENGINE, VLLM),
    "sglang": r.joined(r.COMMON, r.PYTHON_ENGINE, SGLANG),
    "trtllm": r.joined(r.COMMON, r.PYTHON_ENGINE, TRTLLM),
    "llama-cpp": r.joined(r.COMMON, LLAMA_CPP),
    "ollama": r.joined(r.COMMON, OLLAMA, LLAMA_CPP),
}
"""Rules by the id of a runtime."""
UNKNOWN: Final = r.joined(r.COMMON, r.PYTHON_ENGINE, VLLM, SGLANG, TRTLLM, LLAMA_CPP, OLLAMA)
"""For a log of an unknown runtime, until a line that an engine prints once per start names it."""
MAX_NEWS: Final = 200
MAX_EARLIER: Final = 5
MAX_SILENCE_SECONDS: Final = 600.0
"""A container that writes nothing for longer has lost the head of its log."""
_BEFORE_WEIGHTS: Final = (PhaseId.CONTAINER, PhaseId.CONFIG, PhaseId.ENGINE_INIT)

# Process prefixes, `[tags]`, llama.cpp's own time, the level, more tags (`[backbone]`), and the message's first word.
_TAG: Final = r"\[[^\[\]]{1,60}\](?: |(?=\[)|(?<=\d\]): )"
_HEAD: Final = re.compile(
    rf"\s*(?:\([^()]{{1,200}}\) ?)*(?:(?:{_TAG})+)?(?:\d{{1,5}}\.\d\d\.\d{{3}}\.\d{{3}} [DIWE] )?"
    r"(?:([DIWEC])[A-Z]{3,7}(?: \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})? \[?[^\]]{1,200}\] ?|: {1,5}))?"
    rf"(?:(?:{_TAG})+)?\s*(\S{{0,60}})"
)
_MESSAGE_TAGS: Final = re.compile(r"(?:\[[^\[\]]{1,60}\] )+")
_EXCEPTION_WORDS: Final = (*EXCEPTION_ENDS, *(f"{end}:" for end in EXCEPTION_ENDS), "):")
_BESIDE_FAILURE: Final = (r.Broken.TRACEBACK, r.Broken.FRAME, r.Broken.DETAIL, r.Broken.WORKER_FAILED)
"""Lines that help to read a failure, and are none themselves."""
_ANSWERED: Final = lazy_pattern(r'HTTP/1\.[01]" (?:200|400|422)\b')
_CORE: Final = re.compile(r"(\(EngineCore\w{0,20} pid=)\d+\)")
_MAX_WORD: Final = 200
_USAGE: Final = re.compile(r"([\w.\-]{1,40})(?: [\w.\-]{1,40}){0,2}: error: ")
_ENGINES: Final = (
    "vllm",
    "api_server.py",
    "sglang",
    "launch_server.py",
    "trtllm-serve",
    "trtllm-build",
    "llama-server",
)
"""Programs whose word on their command line is taken without their `usage:` block."""
_PARTS: Final = lazy_pattern(r"[0-9a-f]{12} part \d|(?:down|up)loading [0-9a-f]{12} in \d")
_AT_WORK: Final = ("download.go:", "upload.go:")
"""Of Ollama: it moves the parts of a model, because someone asked for it."""
_DULL: Final = frozenset(("", "Route:", "█", "▀▀", "▄▄", "█▄█▀", "non-default", "Found", "Engine", "Available"))


_CONNECTED: Final = lazy_pattern(r"Init COMPLETE|Connected all (?:rings|trees)")
"""NCCL has joined the ranks."""


class LogTracker:
    """Feed it every line of a log, from the container's first one; `timeline()` and `samples` are what they say so far.

    `started_at` is when the container started, seconds since the epoch, where it is known; `runtime` chooses the
    rules, all of them until a line names it. A second banner in the same log begins a new timeline.
    """

    def __init__(self, started_at: float | None = None, runtime: str = "") -> None:
        self._started_at = started_at
        self._rules = TABLES.get(runtime, UNKNOWN)
        self._clock = LogClock()
        self._line_number = -1
        self._earlier: deque[tuple[StartOutcome, FailureReader]] = deque(maxlen=MAX_EARLIER)
        self._begin()
        self._timeline = EMPTY_TIMELINE

    def _begin(self) -> None:
        self.phases = PhaseRecorder()
        self.failures = FailureReader()
        self._keep = self.failures.recent.append
        self._known = r.RuleContext(line=self._line_number)
        self._transfer = DownloadReadings()
        self._serving = ServingHistory()
        self._compiler = ""
        """The process whose compile times count."""
        self._from_cache = False
        self._begun = self._seen_banner = self._ready = self._stopped = False
        self._joined = False
        """NCCL has joined a group of ranks."""
        self._childless = False
        """It is said to serve only by its own words about a child that ended."""
        self._usage = self._stop_line = self._signalled = self._wound_down = ""
        """The program whose `usage:` block was seen."""
        self._unread_news: deque[str] = deque(maxlen=8)
        self._news = ""
        self._dirty = True

    # --- lines in -------------------------------------------------------------------------------------

    def feed_many(self, lines: Iterable[tuple[str, str]]) -> None:
        feed = self.feed
        for stamp, text in lines:
            feed(stamp, text)

    def feed(self, stamp: str | float | None, text: str) -> None:
        """One line; `stamp` is seconds since the epoch, or RFC 3339 and read only when it is needed; None or empty
        where Docker gave none."""
        self._line_number += 1
        if self._ready and (text[:4] == "    " or "HTTP/1." in text[-24:]) and not self.failures.room:
            self._keep(text if len(text) < MAX_KEPT else text[:MAX_KEPT])  # code of a traceback, or a request
            return
        if "\x1b" in text:
            text = strip_sequences(text)
        if not self._ready and (self.failures.hopeless or self.phases.over) and self._starts_again(text):
            self._begin_again(parse_line(text))
        self._keep(text if len(text) < MAX_KEPT else text[:MAX_KEPT])
        if self.failures.room:
            self.failures.below(text)
            self._dirty = True
        if text[:1] == "{" or (not text.startswith(OWN_BEGINNINGS) and OUTER.match(text)):
            self._read(stamp, text)
            return
        if not self._ready and "NET/Socket : Using [" in text:
            self._known.line = self._line_number
            for fact in r.keep(Topic.NCCL_SOCKET, text[text.index("NET/Socket") :], self._known):
                self._take(fact, self._known.record, None)
        head = _HEAD.match(text if "\r" not in text else last_overwrite(text.rstrip("\r")))
        if head is None:
            return
        level, word = head[1], head[2]
        if word in self._rules or word.endswith(_EXCEPTION_WORDS) or word.isdigit():
            if word != "File" or ", in <module>" in text:  # of a traceback's frames only the outermost counts
                self._read(stamp, text)
        elif not self._ready and 'HTTP/1.1" ' in text:
            self._read(stamp, text)
        elif level is not None:
            if level != "D" and not self._ready and word not in _DULL:
                self._unread_news.append(text)
                self._dirty = True
        elif "NCCL " in text and ("NCCL WARN" in text or (not self._ready and self._connects(text))):
            record = parse_line(text)
            self._known.line = self._line_number
            self._known.at = self._clock.read(stamp, record.time) or self.phases.now
            said = record.message if "NCCL WARN" in text else text[text.index("NCCL INFO") :]
            self._joins()
            self._learn(**r.wait(Topic.NCCL_WAIT, said, self._known).fields)
            self._dirty = True
        elif "NCCL INFO" in text and not self._ready and _CONNECTED.search(text):
            self._joined = True
            self._joins()
            self._progress()
            self._dirty = True
        elif word == "usage:":
            self._usage = next(iter(text.partition("usage:")[2].split(maxsplit=1)), "")
        elif word[:2] == "20" or "=" in word or ": error: " in text:
            self._read(stamp, text)
        if not self._begun:
            self._first(stamp, parse_line(text))

    def _first(self, stamp: str | float | None, record: LogRecord) -> None:
        if record.kind is LineKind.BLANK:
            return
        self._begun = True
        self.phases.tick(self._clock.read(stamp, record.time))
        if record.kind is LineKind.ACCESS:
            self._answers()
            return
        silent = (self.phases.now or 0.0) - (self._started_at or 0.0)
        if self._started_at is not None and self._clock.real and 0 <= silent < MAX_SILENCE_SECONDS:
            self.phases.begin_at(self._started_at)
        self.phases.enter(PhaseId.CONTAINER)
        self._dirty = True

    def _read(self, stamp: str | float | None, text: str) -> None:
        """Parses a line and takes in the facts of its rules."""
        record = parse_line(text)
        message = record.message.lstrip()
        if not self._begun:
            self._first(stamp, record)
        at = self._clock.read(stamp, record.time)
        self.phases.tick(at)
        if record.kind is LineKind.ACCESS:
            if record.source == "GIN" and not self._ready and (line := self.failures.outlived()):
                if not line.startswith("Error: "):  # a client's
                    self._learn(evidence=(*self._known.facts.evidence, LogEvidence(Topic.RUNNER_FAILED, line)))
                self.phases = PhaseRecorder()
            if record.source == "GIN" or (
                ('"POST /v1' in message or record.process.startswith("APIServer")) and _ANSWERED.search(message)
            ):
                self._answers()
                if self._seen_banner and record.process.startswith("APIServer"):
                    self._ready_now()
            return
        if (self._childless or not self._ready) and record.source.startswith(_AT_WORK) and _PARTS.match(message):
            self._answers()
        if record.kind is LineKind.EXCEPTION:
            if record.source.startswith(("serving_", "serving.py:")):  # it refuses a request
                self._answers()
            self._broken(r.Broken.EXCEPTION, record)
            return
        if usage := _USAGE.match(message):
            if self._stopped:
                self._new_start(record)
                self._seen_banner = False
            if not self._seen_banner and not self._ready and usage[1] in (*_ENGINES, self._usage):
                self._broken(r.Broken.USAGE, record)
            return
        message = message[tags.end() :] if (tags := _MESSAGE_TAGS.match(message)) else message
        word = next(iter(message[:_MAX_WORD].split(maxsplit=1)), "")
        rules = self._rules.get(word) or self._rules.get("#" if word.isdigit() else word[: word.find("=") + 1])
        if rules:
            self._apply(rules, message, record, at)
            if "\n" in record.message:  # a JSON record holds its traceback in one line
                for inner in record.message.split("\n")[1:]:
                    if (kind := parse_line(inner).kind) is LineKind.EXCEPTION:
                        self._broken(r.Broken.EXCEPTION, record._replace(message=inner, kind=kind))
        if not self._ready and word not in _DULL and record.kind is LineKind.RECORD and record.level != "DEBUG":
            self._unread_news.append(text)
            self._dirty = True

    # --- facts ----------------------------------------------------------------------------------------

    def _apply(self, rules: Iterable[r.Rule], message: str, record: LogRecord, at: float | None) -> None:
        """Takes in what the rules of a word say about the line."""
        for rule in rules:
            known = self._known
            known.record, known.line, known.at, known.phase = record, self._line_number, at, self.phases.current
            for fact in tuple(rule(message, known)):
                self._take(fact, record, at)
        self._dirty = True

    def _take(self, fact: r.Fact, record: LogRecord, at: float | None) -> None:
        phases = self.phases  # `isinstance` in the order of frequency: `match` takes three times as long
        if isinstance(fact, r.UpdateFacts):
            if fact.fields.get("eager"):
                phases.rule_out(PhaseId.COMPILE, PhaseId.CAPTURE)
            self._learn(**fact.fields)
        elif isinstance(fact, r.EnterPhase):
            phases.enter(fact.phase)
            self._progress()
        elif isinstance(fact, r.Report):
            phases.report(*fact)
        elif isinstance(fact, r.Signal):
            self._sign(fact)
        elif isinstance(fact, r.Interval):
            self._serving.add(at, self._line_number, fact.message)
            if "generation throughput: 0.0 " not in fact.message:
                self._progress()
        elif isinstance(fact, r.FinishPhase):
            phases.finish(fact.phase, fact.then, fact.detail, proven=fact.proven)
            self._progress()
        elif isinstance(fact, r.KeepEvidence):
            self._learn(evidence=(*self._known.facts.evidence, fact.evidence))
        elif isinstance(fact, r.Broken):
            self._broken(fact, record)
        elif isinstance(fact, r.Compiled):
            self._compiled(fact.seconds, record.process)
        elif isinstance(fact, r.Downloading):
            if fact.progress is not None and fact.progress >= 1:
                phases.release()
            else:
                self._downloading(fact.detail, fact.progress, fact.left)
        elif isinstance(fact, r.StartSettings):
            self.failures.asked.update(fact.settings)
        elif isinstance(fact, r.NewStart):
            if fact.runtime and self._rules is UNKNOWN:
                self._rules = TABLES[fact.runtime]
            if fact.first:
                self._new_start(record)
        elif isinstance(fact, r.DescribePhase):
            phases.describe(*fact)
        elif isinstance(fact, r.SilentPhase):
            phases.note_past(*fact)
        elif isinstance(fact, r.SkipPhase):
            phases.rule_out(fact.phase)
        else:
            self.mark_warm(fact.seconds)

    def _learn(self, **fields: object) -> None:
        for name, value in fields.items():
            force_setattr(self._known.facts, name, value)  # our own copy: a timeline gets another one

    def _connects(self, text: str) -> bool:
        """The first line by which NCCL joins the ranks; after one group only the start of another."""
        begun = any(each.topic is Topic.NCCL_WAIT for each in self._known.facts.waits)
        if "NCCL INFO" not in text or begun or self.phases.current not in _BEFORE_WEIGHTS or _CONNECTED.search(text):
            return False
        return not self._joined or "Init START" in text

    def _joins(self) -> None:
        if self.phases.current in (None, PhaseId.CONTAINER):  # the log's head is missing
            self.phases.enter(PhaseId.ENGINE_INIT)

    def _progress(self) -> None:
        """What was waited for is there."""
        if self._known.facts.waits:
            self._learn(waits=())

    def _sign(self, sign: r.Signal) -> None:
        known = self._known
        if sign is r.Signal.ANSWERS:
            self._answers()
        elif sign is r.Signal.RUNNER_ENDED:
            alone = self._childless or not self._ready
            self._answers()
            self._childless = alone and self._ready
        elif sign is r.Signal.SHARDS:
            known.shards_begun = True
        elif sign is r.Signal.READY:
            self._ready_now()
        elif sign is r.Signal.OWN_READY_LINE:
            known.own_ready_line = True
        elif sign is r.Signal.DRAFTER:
            known.drafter, known.shards_begun = True, False
        elif sign is r.Signal.WOUND_DOWN:
            self._wound_down = r.shown(known.record.message)
        elif sign is r.Signal.SIGNALLED:
            if not self._stopped and not self.failures.decided:
                self._signalled = self._signalled or r.shown(known.record.message)
        elif sign is r.Signal.STOPPED:
            self._stop(known.record.message)
        else:
            self._from_cache = sign is r.Signal.COMPILED_BEFORE

    def _compiled(self, seconds: float | None, process: str) -> None:
        """With a drafter there may be more of it; engines that compile at the same time do not add up."""
        if seconds is not None:
            self._compiler = self._compiler or process
            if self._compiler != process:
                return
            self._learn(compile_seconds=round((self._known.facts.compile_seconds or 0.0) + seconds, 2))
        facts = self._known.facts
        if not facts.eager:
            own = f"torch.compile {facts.compile_seconds:.0f}s" if facts.compile_seconds else ""
            self.phases.finish(PhaseId.COMPILE, PhaseId.KV_CACHE, FROM_CACHE if self._from_cache else own)

    def _new_start(self, record: LogRecord) -> None:
        """A banner. Not the first one: the container was started again. Several API servers print one each."""
        if self._seen_banner and not record.process.startswith("ApiServer_"):
            self._started_at = None
            self._begin_again(record)
        self._seen_banner = True

    def _begin_again(self, record: LogRecord) -> None:
        """What follows is another start: the last one of a log counts."""
        now = self.phases.now
        self._earlier.append((self._outcome, self.failures))
        self._begin()
        self._known.record, self._begun = record, True
        self.phases.tick(now)
        self.phases.enter(PhaseId.CONTAINER)

    def _starts_again(self, text: str) -> bool:
        """Whether a line shows life after a start that failed: an engine core of the same name is another process, or
        the server answers."""
        core = _CORE.match(text)
        if core is None:
            return text.startswith("(APIServer pid=") and _ANSWERED.search(text) is not None
        last = next((each for each in reversed(self.failures.recent) if core[1] in each), core[0])
        return core[0] not in last

    def _ready_now(self) -> None:
        if not self._ready and not self.phases.over:
            self._serves()
            self.phases.mark(PhaseId.READY)

    def _answers(self) -> None:
        """It serves requests, although its ready line was not seen: the log was rotated, or is late."""
        self._childless = False
        if self.phases.current is PhaseId.SERVER:
            self._ready_now()
        elif not self._seen_banner and not self._ready and not self.phases.over:
            self._serves()
            self.phases = PhaseRecorder()
            self.phases.mark(PhaseId.READY)

    def _serves(self) -> None:
        self._ready = self._known.serving = self._dirty = True
        self.failures.survived()

    # --- failures -------------------------------------------------------------------------------------

    def _broken(self, sign: r.Broken, record: LogRecord) -> None:
        """Lets the failure reader read a line; one that ends the start ends the running phase."""
        if sign in _BESIDE_FAILURE:
            self.failures.read(sign, record)
        elif not self._stopped and (not self._signalled or self._ends_by_itself(sign, record)):
            self.failures.phase = self.phases.current
            self.failures.read(sign, record)
            if self.failures.certain or self.failures.hopeless:
                self.phases.end(PhaseState.FAILED)
            self._dirty = True

    def _ends_by_itself(self, sign: r.Broken, record: LogRecord) -> bool:
        """Whether the exception by which its main process ends is the reason for the signal to the others; that of
        Ctrl-C and SIGTERM says that it was asked to stop."""
        if sign is not r.Broken.EXCEPTION or not self.failures.ending:
            return False
        if exception_name(record.message).endswith(INTERRUPTED):
            self._stop()
        elif not any(words in record.message for words in CONSEQUENCES):
            self._signalled = ""
        return not self._signalled

    def _stop(self, line: str = "") -> None:
        """It was asked to stop; later failures follow from that."""
        if not self._stopped and not self.failures.decided:
            self._stopped, self._stop_line = True, self._signalled or r.shown(line)
            self.phases.end(PhaseState.SKIPPED)

    # --- from outside -------------------------------------------------------------------------------

    def download(self, done: int, total: int | None, at: float | None = None) -> None:
        """The cache folder: bytes of the weights, and how many they will be (None: not known), `at` epoch seconds.

        The log itself is silent while weights download. Before shards are read, missing bytes mean that the engine
        waits for them; in other phases only growing ones do.
        """
        current = self.phases.current
        if self._ready or self.phases.over or self._known.shards_begun or current is None:
            return
        if self._clock.real:
            self.phases.tick(at)
        grown = self._transfer.note(done, total, at)
        if total is not None and done >= total:
            self.phases.release()
        elif current in (PhaseId.DOWNLOAD, PhaseId.WEIGHTS) or (grown and current in _BEFORE_WEIGHTS):
            self._downloading(self._transfer.detail, self._transfer.progress, self._transfer.left)
        else:
            return
        self._dirty = True

    def _downloading(self, detail: str, progress: float | None, left: float | None) -> None:
        """Weights are downloading; the phase that needs them waits."""
        if self.phases.current in (*_BEFORE_WEIGHTS, PhaseId.WEIGHTS):
            self.phases.hold(PhaseId.DOWNLOAD)
        self.phases.report(PhaseId.DOWNLOAD, detail=detail, progress=progress, left=left)

    def serves(self) -> None:
        """Its API answers, whatever the log said or did not say."""
        if not self._ready and self.phases.current is not None:
            self._dirty = True
            self._ready_now()

    def mark_warm(self, seconds: float | None = None) -> None:
        self.phases.mark(PhaseId.WARM, seconds)
        self._dirty = True

    def container_ended(self, exit_code: int | None) -> None:
        """The container has ended; without a reason in the log the failure is a guess, and says so."""
        if self._stopped or self.failures.certain:
            return
        self._dirty = True
        recent = self.failures.recent
        went_on = exit_code == 0 and recent and recent[-1].endswith(": command not found")  # else 127
        if exit_code in (130, 143) or went_on or (exit_code in (None, 0) and not self.text_ended()):
            self._stop()
            return
        if exit_code in (None, 0):
            return
        self._signalled = ""  # the signal was its own
        self.failures.phase = self.phases.current
        self.failures.ended(exit_code)
        self.phases.end(PhaseState.FAILED)

    def text_ended(self, *, engine: bool = True) -> bool:
        """The log is over, and nothing beside it says how: it may end in a failure that no line proves. Returns
        whether it does. `engine`: the text shows one."""
        if self._signalled:
            self._stop()
            self._dirty = True
        if self._stopped or self.failures.certain:
            return not self._stopped
        self.failures.phase = self.phases.current
        serving = self._ready and not self._childless
        if serving and self._rules is TABLES["ollama"]:  # its runners end, it does not
            return False
        begun = self._ready or self.phases.current not in (None, PhaseId.CONTAINER)
        engine = engine or begun or self._known.facts != EngineFacts()
        if self.failures.stopped(engine=engine, serving=serving):
            self.phases.end(PhaseState.FAILED)
            self._dirty = True
        elif not self._ready and (request_failed(recent := tuple(self.failures.recent)) or under_way(recent)):
            self._answers()
        elif self._ready and self._wound_down and not self.failures.decided:
            self._stop(self._wound_down)
            self._dirty = True
        elif line := self.failures.interrupted:
            self._stop(line)
            self._dirty = True
        return self.phases.over

    # --- results --------------------------------------------------------------------------------------

    @property
    def samples(self) -> tuple[ServingSample, ...]:
        """The last hour of serving statistics, oldest first; the same object until there is a new one."""
        return self._serving.samples

    @property
    def _outcome(self) -> StartOutcome:
        if self.failures.certain or (self.failures.decided and self.phases.over):
            return StartOutcome.FAILED
        if self._stopped or self._ready:
            return StartOutcome.STOPPED if self._stopped else StartOutcome.READY
        return StartOutcome.UNKNOWN if self.phases.current is None else StartOutcome.STARTING

    def timeline(self) -> BootTimeline:
        """What is known now. The same object until something changes, an equal one if it only seemed to."""
        if self._dirty:
            self._dirty = False
            self._timeline = BootTimeline(
                phases=self.phases.phases(real_clock=bool(self._clock.real)),
                facts=replace(self._known.facts),
                outcome=self._outcome,
                ready=self._ready,
                failure=self.failures.failure,
                news=self._latest_news(),
                seconds=self.phases.since_start(PhaseId.READY) if self._ready else None,
                stop=self._stop_line,
                earlier=tuple(
                    EarlierStart(outcome, failed.phase, failed.line)
                    for outcome, reader in self._earlier
                    for failed in (reader.failure or StartFailure(""),)
                ),
            )
        return self._timeline

    def _latest_news(self) -> str:
        """The last line worth showing while it loads."""
        while self._unread_news:
            record = parse_line(self._unread_news.pop())
            message = clean_line(record.message).strip().partition(" with config: ")[0]
            if record.kind is LineKind.RECORD and message:
                self._news = truncate(mask_secrets(message), MAX_NEWS)
                self._unread_news.clear()
        return self._news
