"""One rank of a launch over several machines, read: its phases, its own first error, and what it reports of others."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.finding import Finding, Reading, Severity, value_of
from spark_tui.base.protocol import RankState
from spark_tui.base.remote import Cluster, ClusterNode, Topology
from spark_tui.base.text import clean_line, truncate
from spark_tui.manage.cluster.model import signatures as s
from spark_tui.manage.cluster.model.signatures import Consequence, Signature
from spark_tui.observe.explain.model.causes.cause import CauseId
from spark_tui.observe.explain.model.causes.diagnosis import explain_failure
from spark_tui.observe.explain.model.explain import Explanation, LogExplainer
from spark_tui.observe.explain.model.failure import MAX_KEPT
from spark_tui.observe.explain.model.line import LineKind, LogClock, LogRecord, parse_line, shown
from spark_tui.observe.explain.model.timeline import (
    EMPTY_TIMELINE,
    BootTimeline,
    PhaseId,
    PhaseState,
    StartFailure,
    StartOutcome,
)
from spark_tui.observe.explain.model.view import LogContext

_COPIES: Final = (CauseId.WEIGHTS_MISSING, CauseId.WEIGHTS_CORRUPT, CauseId.REPO_NOT_FOUND, CauseId.HUB_OFFLINE)
_LOADING: Final = (PhaseId.WEIGHTS, PhaseId.COMPILE, PhaseId.KV_CACHE, PhaseId.AUTOTUNE, PhaseId.CAPTURE)


class RankView(Struct, frozen=True):
    """One rank as its node shows it. `container` has the value None where the node has none, and is Missing where the
    node could not be asked. `lines` are `(stamp, text)` of the current start; stamps are RFC 3339 or empty."""

    number: int
    node: ClusterNode
    container: Reading[RankState | None]
    lines: Sequence[tuple[str, str]] = ()

    @property
    def state(self) -> RankState | None:
        return value_of(self.container)

    @property
    def running(self) -> bool:
        return self.state is not None and self.state.running

    @property
    def launch(self) -> str:
        """The id of the launch that its container belongs to; empty where that is unknown."""
        return self.state.launch if self.state is not None else ""

    def command(self, verb: str) -> str:
        """What acts on its container from here; NAME stands for one that is not there."""
        name = shlex.quote(shown(self.state.name)) if self.state is not None else "NAME"
        return f"spark-tui --host {self.node.host} {verb} {name}"


class RankLine(NamedTuple):
    """A line of a rank: its number from 0, its time in seconds (None: unknown), its message."""

    number: int
    at: float | None
    text: str


class RankFault(NamedTuple):
    """A rank's own first error. `by_worker`: of the process that computes, and no echo of it. `by_exit`: only the exit
    code shows it."""

    finding: Finding
    at: float | None
    by_worker: bool = False
    by_exit: bool = False


class RankReport(Struct):
    """What one rank says. `consequences` have the first line of each kind; `notes` are warnings that stop nothing.
    `rendezvous` is when it went to meet the others, at `master`. `epoch`: times are seconds since the epoch."""

    rank: RankView
    timeline: BootTimeline = EMPTY_TIMELINE
    fault: RankFault | None = None
    consequences: dict[Consequence, RankLine] = field(default_factory=dict)
    notes: dict[str, Finding] = field(default_factory=dict)
    rendezvous: RankLine | None = None
    master: str = ""
    nccl: tuple[int, ...] = ()
    epoch: bool = True

    @property
    def loaded(self) -> bool:
        """It was in a group with the other ranks once: weights are loaded only after that."""
        return any(self.timeline.phase(each).state in (PhaseState.RUNNING, PhaseState.DONE) for each in _LOADING)

    @property
    def first_sign(self) -> tuple[str, ...]:
        """The first consequence that it reports, as evidence."""
        return tuple(line.text for line in sorted(self.consequences.values())[:1])


def read_rank(rank: RankView, cluster: Cluster) -> RankReport:
    """What one rank's log and container say. Linear in the number of lines. Never raises."""
    context, explainer = LogContext(), LogExplainer()
    if state := rank.state:
        context = LogContext(ended=not state.running, exit_code=state.exit_code, oom_killed=state.oom_killed)
        explainer = LogExplainer(state.started_at)
    explainer.feed_many(rank.lines)
    scan = _Scan(RankReport(rank), refresh_command(cluster))
    for number, (stamp, text) in enumerate(rank.lines):
        for word in s.WORDS:  # plain searches: an alternation is tried at every character
            if word in text:
                scan.read(number, stamp, text[:MAX_KEPT])
                break
    return scan.report_with(explainer.explanation(context), context)


def refresh_command(cluster: Cluster) -> str:
    """The command that reads addresses and interfaces of all nodes again."""
    nodes = " ".join(f"--node {shlex.quote(node.host)}" for node in cluster.nodes)
    return f"spark-tui cluster add {cluster.name} {nodes}{' --topology ring' * (cluster.topology is Topology.RING)}"


class _Scan:
    """Reads the lines that matter to other ranks."""

    def __init__(self, report: RankReport, refresh: str) -> None:
        self._report, self._refresh, self._clock = report, refresh, LogClock()
        self._at: float | None = None
        self._named: tuple[RankLine, Finding] | None = None
        self._raised: RankLine | None = None
        self._code = self._raised_by = ""
        self._rdma = False
        self._block = self._raised_in = ("", "", "")

    def read(self, number: int, stamp: str, text: str) -> None:
        record = parse_line(text)
        if (at := self._clock.read(stamp, record.time)) is not None:
            self._at = at
        line = RankLine(number, self._at, record.message)
        if match := s.NCCL_VERSION.search(record.message, 0, 200):
            self._report.nccl = tuple(map(int, match.groups()))
        elif record.level in ("INFO", "DEBUG"):
            self._learn(line)
        elif record.level != "WARNING" or "NCCL" in text:  # others are of a rank that tries again
            self._judge(record, line)

    def _learn(self, line: RankLine) -> None:
        """What a rank says while nothing is wrong; only words of the engine's own, at the beginning."""
        report, message = self._report, line.text
        if report.rendezvous is None and (match := s.RENDEZVOUS.match(message)):
            report.rendezvous, report.master = line, match[1]
        elif message.startswith("Waiting for "):
            self._consequence(line)
        self._rdma = self._rdma or message.startswith(("NET/IB : Using", "Using network IB"))
        for note in s.NOTES:
            if (match := note.pattern.match(message)) and not (self._rdma and note.id is s.Id.NO_RDMA):
                report.notes.setdefault(note.id, replace(self._finding(note, match, line), severity=Severity.WARNING))

    def _consequence(self, line: RankLine) -> bool:
        kind = consequence_in(line.text)
        if kind is not None and kind not in (Consequence.REPEAT, *self._report.consequences):
            self._report.consequences[kind] = line._replace(text=shown(line.text))
        return kind is not None

    def _judge(self, record: LogRecord, line: RankLine) -> None:
        """A line of no level, a warning or an error: a known fault, a consequence, or a worker's exception."""
        if record.kind is LineKind.TRACEBACK and (code := line.text.strip(" ^~")):
            self._code = "" if code.startswith(("File ", "raise ")) else code
        if record.kind in (LineKind.TRACEBACK, LineKind.BLANK, LineKind.ACCESS, LineKind.PROGRESS):
            return
        for signature in s.SIGNATURES:
            if match := signature.pattern.search(line.text):
                self._named = self._named or (line, self._finding(signature, match, line))
                return
        block = (record.process, record.time, record.source)
        if line.text.startswith(s.WORKER_FAILED):
            self._block = block
        elif self._consequence(line) or record.kind is not LineKind.EXCEPTION or block != self._block:
            return
        elif self._raised is None or (block == self._raised_in and line.text != self._raised.text):  # a chain: the last
            self._raised, self._raised_in, self._raised_by = line, block, self._code

    def _finding(self, known: Signature, match: re.Match[str], line: RankLine) -> Finding:
        rank, groups = self._report.rank, [truncate(shown(group or "?"), 60) for group in match.groups()]
        words = {"host": rank.node.host, "refresh": self._refresh}
        summary, remedy = (text.format(*groups, **words) for text in (known.summary, known.remedy))
        title, proof, name = titled(rank, summary), (shown(line.text),), rank.node.name
        return Finding(known.id, Severity.ERROR, title, proof, remedy, known.change, line.number, subject=name)

    def report_with(self, explained: Explanation, context: LogContext) -> RankReport:
        """The report, with the timeline and the earliest error that is the rank's own: a known fault, a worker's
        exception, or the cause that the log reader found; else what the exit code says."""
        report = self._report
        report.timeline, report.epoch = explained.timeline, self._clock.real is not False
        found = [(*self._named, True)] if self._named else []
        if self._raised is not None:
            lines = tuple(shown(text) for text in (self._raised_by, self._raised.text) if text)
            failure = StartFailure(lines[-1], lines=lines)
            failed = replace(explained.timeline, outcome=StartOutcome.FAILED, failure=failure)
            if raised := explain_failure(failed, context):
                found.append((self._raised, self._owned(raised, self._raised), True))
        if report.loaded:  # they met after all
            report.consequences.pop(Consequence.CONNECT, None)
        cause, chosen = explained.cause, explained.timeline.failure
        only_guess = bool(report.consequences) and (chosen is None or chosen.guess)
        if cause and cause.id != CauseId.STOPPED and not only_guess and not (chosen and consequence_in(chosen.line)):
            if chosen and (line := self._place(chosen.line)):
                found.append((line, self._owned(cause, line), "Worker" in chosen.process))
            elif state := report.rank.state:
                signs = (*cause.evidence, f"{state.status}, exit code {state.exit_code}")
                own = replace(self._owned(cause, None), evidence=signs)
                report.fault = RankFault(own, state.finished_at if report.epoch else None, by_worker=True, by_exit=True)
        if found:
            line, finding, by_worker = min(found, key=lambda each: each[0].number)
            report.fault = RankFault(finding, line.at, by_worker)
        return report

    def _place(self, text: str) -> RankLine | None:
        """Where the log has the text that the log reader decided upon; None for words of the reader's own."""
        clock, start = LogClock(), text[:60]
        for number, (stamp, line) in enumerate(self._report.rank.lines):
            if start and start in clean_line(line):
                return RankLine(number, clock.read(stamp, parse_line(line[:MAX_KEPT]).time), text)
        return None

    def _owned(self, cause: Finding, line: RankLine | None) -> Finding:
        """A cause of the log reader, with the rank that it is about."""
        rank = self._report.rank
        summary = cause.summary.replace(" while starting", "") if rank.number else cause.summary  # never ready
        copy = f" Each node needs its own copy: spark-tui --host {rank.node.host} models" * (cause.id in _COPIES)
        remedy, number = f"On {rank.node.name}: {cause.remedy}{copy}", line.number if line is not None else None
        return replace(cause, summary=titled(rank, summary), remedy=remedy, subject=rank.node.name, line=number)


def titled(rank: RankView, summary: str) -> str:
    """A summary that names its rank."""
    return f"{rank.node.name} (rank {rank.number}): {summary}"


def consequence_in(message: str) -> Consequence | None:
    """What a message reports of another rank."""
    return next((kind for kind, pattern in s.CONSEQUENCES.items() if pattern.search(message)), None)
