"""The guilty rank of a launch over several machines, by the logs and containers of all ranks. Pure.

Each rank is read first: its phases, its own first error, and what it reports of others. The earliest error that is no
consequence of another rank's failure wins, over all ranks. Where every error is a consequence, the ranks are compared:
which one is missing, late, stale, unreachable or silent.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.finding import Change, Finding, Missing, Reading, Severity, value_of
from spark_tui.base.protocol import RankState
from spark_tui.base.remote import Cluster, ClusterNode, Topology
from spark_tui.base.text import clean_line, truncate
from spark_tui.observe.explain.model.causes import network
from spark_tui.observe.explain.model.causes.cause import CauseId
from spark_tui.observe.explain.model.causes.diagnosis import explain_failure
from spark_tui.observe.explain.model.causes.network import FIXED_NCCL
from spark_tui.observe.explain.model.explain import Explanation, LogExplainer
from spark_tui.observe.explain.model.failure import MAX_KEPT
from spark_tui.observe.explain.model.line import LineKind, LogClock, LogRecord, by_time, parse_line, shown
from spark_tui.observe.explain.model.timeline import (
    EMPTY_TIMELINE,
    BootTimeline,
    PhaseId,
    PhaseState,
    StartFailure,
    StartOutcome,
)
from spark_tui.observe.explain.model.view import LogContext

# --- lines that explain a launch over several machines ------------------------------------------------


class ClusterCauseId(StrEnum):
    """Stable ids of findings about several ranks. A rank's own failure keeps its `CauseId`."""

    NODE_UNREACHABLE = "node_unreachable"
    RANK_MISSING = "rank_missing"
    RANK_LATE = "rank_late"
    RANK_LOST = "rank_lost"
    RANK_LEFT_RUNNING = "rank_left_running"
    STALE_RANK = "stale_rank"
    FABRIC_BLOCKED = "fabric_blocked"
    LINK_LOST = "link_lost"
    CONNECTION_LOST = "connection_lost"
    WRONG_MASTER = "wrong_master"
    WRONG_INTERFACE = "wrong_interface"
    MASTER_PORT_IN_USE = "master_port_in_use"
    NO_COMPILER = "no_compiler"
    NO_RAY = "no_ray"
    RAY_REFUSED = "ray_refused"
    RAY_NODE_IP = "ray_node_ip"
    PINNED_GID = "pinned_gid"
    RDMA_MEMORY = "rdma_memory"
    RDMA_RETRY = "rdma_retry"
    COLLECTIVE_TIMEOUT = "collective_timeout"
    NO_RDMA = "no_rdma"
    ONE_HCA = "one_hca"
    BOOTSTRAP_WIFI = "bootstrap_wifi"


class Signature(NamedTuple):
    """A line that names a fault of the rank that wrote it. Texts may hold `{0}` (the first group), `{host}` (for ssh)
    and `{refresh}` (the command that reads the nodes' addresses again)."""

    id: ClusterCauseId
    pattern: re.Pattern[str]
    summary: str
    remedy: str
    change: Change = ()


Id: TypeAlias = ClusterCauseId


_REFRESH: Final = "Read the interfaces of all nodes again: {refresh}"


def _shared(id_: ClusterCauseId, fault: network.Fault, remedy: str = "") -> Signature:
    """A fault that one log alone shows too, with the remedy for a launch over several nodes where there is a better."""
    return Signature(id_, re.compile(fault.pattern), fault.summary, remedy or fault.remedy, fault.change)


SIGNATURES: Final = (
    _shared(Id.WRONG_INTERFACE, network.NO_ADDRESS, f"{_REFRESH}. Remove *_SOCKET_IFNAME from the preset."),
    Signature(Id.MASTER_PORT_IN_USE,
              re.compile(r"server socket has failed to \w+ on .{0,60}port: (\d{1,5}).{1,80}EADDRINUSE"),
              "master port {0} is already in use.",
              "Find the older engine and stop it: spark-tui --host {host} ps. Other programs: ssh {host} ss -ltnp"),
    Signature(Id.NO_COMPILER, re.compile(r"InvalidCxxCompiler|No working C\+\+ compiler found"),
              "the image has no C++ compiler: the engine fails at its first request.",
              "Use an image with g++, or disable torch.compile.", (("env.TORCHDYNAMO_DISABLE", "1"),)),
    _shared(Id.RAY_REFUSED, network.RAY_REFUSED),
    Signature(Id.NO_RAY,
              re.compile(r"Error: (?:No module named 'ray'|Ray is not installed)|\bray\"?: .{0,40}not found"),
              "Ray is not installed in this image.",
              "Use an image with Ray, or the engine's own multi-node mode.", (("distributed_executor_backend", "mp"),)),
    _shared(Id.PINNED_GID, network.NO_QUEUE_PAIR),
    _shared(Id.RDMA_MEMORY, network.NO_RDMA_MEMORY),
)  # fmt: skip
"""The first line of a rank that matches one is a cause, whatever followed on other ranks."""
NOTES: Final = (
    Signature(
        Id.NO_RDMA,
        re.compile(r"NET/Socket : Using|Using network Socket"),
        "NCCL uses sockets instead of RDMA: about an eighth of the bandwidth.",
        f"Start the container with --device=/dev/infiniband. {_REFRESH}",
    ),
    Signature(
        Id.ONE_HCA,
        re.compile(r"NET/IB : Using \[0\](\w{1,40}):\d+/\w+(?! ?\[1\])\b"),
        "NCCL uses one RDMA device ({0}): half the bandwidth.",
        f"Configure both of the cage. {_REFRESH}",
    ),
    Signature(
        Id.BOOTSTRAP_WIFI, re.compile(r"Bootstrap ?: Using (wl\w{1,20})"), "NCCL starts over Wi-Fi ({0}).", _REFRESH
    ),
)
"""Warnings: what NCCL says about its choice with NCCL_DEBUG=INFO, at the beginning of a message."""


class Consequence(StrEnum):
    """What a rank reports when another rank, or the way to it, fails."""

    STORE = "store"
    """The head waited in vain for ranks."""
    CONNECT = "connect"
    """The head's store could not be reached."""
    RETRY = "retry"
    RPC = "rpc"
    COLLECTIVE = "collective"
    PEER_GONE = "peer_gone"
    DP_WAIT = "dp_wait"
    RAY_WAIT = "ray_wait"
    REPEAT = "repeat"
    """Another process of the rank repeats an error."""


CONSEQUENCES: Final[Mapping[Consequence, re.Pattern[str]]] = {
    Consequence.STORE: re.compile(r"DistStoreError|\d/\d+ clients joined"),
    Consequence.CONNECT: re.compile(network.CLIENT_SOCKET + "|TCP client failed to connect|connect to GCS"),
    Consequence.RETRY: re.compile(r"IBV_WC_RETRY_EXC_ERR|[Gg]ot completion .{0,120}?(?:error |status=)12\b"),
    Consequence.RPC: re.compile(r"RPC call to \w{1,60} timed out"),
    Consequence.COLLECTIVE: re.compile(network.COLLECTIVE + r"|OpType=\w{1,60},.{0,300}Timeout\(ms\)"),
    Consequence.REPEAT: re.compile(
        r"(?:WorkerProc|Engine core) initialization failed|EngineCore encountered an issue|Worker failed with error"
    ),
    Consequence.PEER_GONE: re.compile(
        r"[Cc]onnection (?:was likely )?(?:closed|reset|refused)|[Bb]roken pipe|Socket Timeout|"
        rf"{network.MESH}|remote process exited|nccl(?:Remote|System)Error|unhandled system error|DistNetworkError"
    ),
    Consequence.DP_WAIT: re.compile(r"Waiting for READY message from DP Coordinator"),
    Consequence.RAY_WAIT: re.compile(r"Waiting for creating a placement group of specs"),
}
WAITS: Final = (Consequence.DP_WAIT, Consequence.RAY_WAIT)
"""Not errors: the rank still waits."""

WORKER_FAILED: Final = ("WorkerProc failed to start", "WorkerProc hit an exception")
"""A worker's exception follows, in records with the same time and source."""
RENDEZVOUS: Final = re.compile(r"world_size=\d+ .*distributed_init_method=tcp://\[?([\w.:\-]{1,60}?)\]?:\d{1,5}\b")
PORT: Final = re.compile(r"(?:\(|to host |GCS at )[\[\]\w.:\-]{1,60}?(?:, |:)(\d{2,5})\b")
PEER: Final = re.compile(r"\[(\d{1,3}(?:\.\d{1,3}){3})\]:\d+")
NCCL_VERSION: Final = re.compile(r"(?:nccl==|NCCL version )(\d{1,3})\.(\d{1,3})\.(\d{1,3})")
WORDS: Final = ("rror", "ERR", "xception", "imed out", "imeout", "by peer", "NCCL", "nccl==", "IBV_", "init_method",
                "READY message", "placement group", "not found", "roken pipe", "clients joined")  # fmt: skip
"""One of them is in every line that matters."""


# --- what one rank says -------------------------------------------------------------------------------

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
        for word in WORDS:  # plain searches: an alternation is tried at every character
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
        if match := NCCL_VERSION.search(record.message, 0, 200):
            self._report.nccl = tuple(map(int, match.groups()))
        elif record.level in ("INFO", "DEBUG"):
            self._learn(line)
        elif record.level != "WARNING" or "NCCL" in text:  # others are of a rank that tries again
            self._judge(record, line)

    def _learn(self, line: RankLine) -> None:
        """What a rank says while nothing is wrong; only words of the engine's own, at the beginning."""
        report, message = self._report, line.text
        if report.rendezvous is None and (match := RENDEZVOUS.match(message)):
            report.rendezvous, report.master = line, match[1]
        elif message.startswith("Waiting for "):
            self._consequence(line)
        self._rdma = self._rdma or message.startswith(("NET/IB : Using", "Using network IB"))
        for note in NOTES:
            if (match := note.pattern.match(message)) and not (self._rdma and note.id is Id.NO_RDMA):
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
        for signature in SIGNATURES:
            if match := signature.pattern.search(line.text):
                self._named = self._named or (line, self._finding(signature, match, line))
                return
        block = (record.process, record.time, record.source)
        if line.text.startswith(WORKER_FAILED):
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
    return next((kind for kind, pattern in CONSEQUENCES.items() if pattern.search(message)), None)


# --- the guilty rank, by the logs and containers of all ------------------------------------------------


CLOCK_SKEW: Final = 2.0
"""Seconds by which two nodes' clocks may differ: within them an error of a worker process comes first."""


def merged_lines(ranks: Sequence[RankView]) -> list[tuple[str, str, str]]:
    """The lines of all ranks by time: node, stamp, text as it came."""
    return [(ranks[log].node.name, *ranks[log].lines[at]) for log, at in by_time([rank.lines for rank in ranks])]


def blame(cluster: Cluster, reports: Sequence[RankReport]) -> tuple[Finding, ...]:
    """The root cause first, then ranks to stop and warnings; empty where nothing is wrong. `subject` is the node to
    look at, `line` the number of the line in its log. `reports` are of all ranks, once every one was started."""
    reports = sorted(reports, key=lambda report: report.rank.number)
    started = [each for each in reports if each.rank.state is not None]
    return _Launch(cluster, reports, started).findings() if started else ()


class _Launch:
    """All ranks of one launch; the first is the head."""

    def __init__(self, cluster: Cluster, reports: Sequence[RankReport], started: Sequence[RankReport]) -> None:
        self.cluster, self.started, self.head = cluster, started, reports[0]
        launch = max(started, key=lambda each: (each.rank.state and each.rank.state.started_at) or 0.0).rank.launch
        self.stale = [each for each in started if launch and each.rank.launch not in ("", launch)]
        self.ranks = [each for each in reports if each not in self.stale]

    def findings(self) -> tuple[Finding, ...]:
        root = self._own(by_exit=False) or self._absent() or self._stale() or self._own(by_exit=True)
        root = root or self._apart() or self._lost() or self._waiting()
        notes = [note for report in self.ranks for note in report.notes.values()]
        return tuple(notes) if root is None else (root, *self._left_running(root), *notes)

    def _own(self, *, by_exit: bool) -> Finding | None:
        """The earliest error that is a rank's own; `by_exit`: where no log has one. Without comparable times a worker's
        comes first: a head mostly repeats what happened elsewhere."""
        faults = [(each, each.fault) for each in self.ranks if each.fault]
        if not faults or all(fault.by_exit for _, fault in faults) is not by_exit:
            return None
        times = [fault.at for _, fault in faults if fault.at is not None]
        comparable = len(times) == len(faults) and len({report.epoch for report, _ in faults}) == 1

        def order(pair: tuple[RankReport, RankFault]) -> tuple[float, bool, bool, float, int]:
            at = (pair[1].at or 0.0) if comparable else 0.0
            late = max(0.0, at - min(times) - CLOCK_SKEW) if comparable else 0.0
            return late, pair[1].by_exit and not comparable, not pair[1].by_worker, at, -pair[0].rank.number

        report, fault = min(faults, key=order)
        found, summary = fault.finding, fault.finding.summary
        same = [each.rank.node.name for each, other in faults if each is not report and other.finding.id == found.id]
        if fault.by_exit and report is not self.head and self.head.rank.running and self.head.timeline.ready:
            found, summary = replace(found, id=Id.RANK_LOST), f"{summary} The head still answers; requests hang."
        elif same:
            summary = f"{summary.rstrip('.')} (same on {', '.join(same)})."
        return replace(found, summary=summary, guess=found.guess or (len(faults) > 1 and not comparable))

    def _absent(self) -> Finding | None:
        for report in self.ranks:
            rank = report.rank
            if isinstance(rank.container, Missing):
                why, check = (shown(rank.container.reason),), f"Check power and network: ssh {rank.node.host}"
                return _finding(report, Id.NODE_UNREACHABLE, "node unreachable.", check, why)
            if rank.state is None:
                check = f"Check the node, then launch again: spark-tui --host {rank.node.host} doctor"
                sign = next((each.first_sign for each in self.started if each.consequences), ())
                return _finding(report, Id.RANK_MISSING, "no container.", check, sign)
        return None

    def _stale(self) -> Finding | None:
        """A container of another launch: by its label, or because its rank was in a group when this head had none."""
        head = self.head
        for report in self.started:
            orphan = Consequence.STORE in head.consequences and report.rank.running and report.loaded
            if report in self.stale or (orphan and not report.fault):
                label = (f"launch {shown(report.rank.launch)}",) if report in self.stale else ()
                remedy = f"Stop it, then launch again: {report.rank.command('down')}"
                summary, signs = "the container is of an earlier launch.", (*label, *head.first_sign)
                found = _finding(report, Id.STALE_RANK, summary, remedy, signs)
                return (
                    replace(found, severity=Severity.WARNING) if head.timeline.outcome is StartOutcome.READY else found
                )
        return None

    def _apart(self) -> Finding | None:
        """The ranks did not find each other."""
        head, store = self.head, self.head.consequences.get(Consequence.STORE)
        for report in self.ranks:
            failed, joined = report.consequences.get(Consequence.CONNECT), report.rendezvous
            if (failed and report is head) or (report.master and head.master and report.master != head.master):
                summary = f"master address {report.master or 'given'} is not an address of {head.rank.node.name}."
                remedy = f"Read the addresses again, then launch again: {refresh_command(self.cluster)}"
                return _finding(report, Id.WRONG_MASTER, summary, remedy, failed or joined or ())
            if failed and (head.rendezvous is None or _after(head.rendezvous, failed)):
                return _late(head, report, failed)
            if report is not head and store and (joined is None or _after(joined, store)):
                return _late(report, head, store)
            if failed or (report is not head and store and report.rank.running):
                match = PORT.search(failed.text) if failed else None
                port = match[1] if match else "29501"
                check = f"Check: ssh {report.rank.node.host} nc -zv {_fabric(head)} {port}"
                remedy = f"Allow TCP on {head.rank.node.name}: sudo ufw allow from {_fabric(report)}. {check}"
                summary = f"cannot reach {head.rank.node.name} over the fabric: firewall or link."
                return _finding(report, Id.FABRIC_BLOCKED, summary, remedy, failed or head.first_sign, guess=not failed)
        return None

    def _lost(self) -> Finding | None:
        """Ranks that were joined lost each other."""
        for report in self.ranks:
            lines, other = report.consequences, self._other(report)
            node, name = report.rank.node, other.rank.node.name
            ping = f"ssh {node.host} ping -c 3 {_fabric(other)}"
            state, waits = other.rank.state, report.rank.running or not set(lines) <= set(WAITS)
            if lines and waits and state and not state.running and not other.consequences:
                signs = (f"exit code {state.exit_code}", *report.first_sign)
                return _finding(other, Id.RANK_LOST, "ended without a message.", _read(other), signs)
            if line := lines.get(Consequence.COLLECTIVE):
                leak = f" NCCL {'.'.join(map(str, report.nccl))} leaks on aarch64." * (() < report.nccl < FIXED_NCCL)
                remedy = f"Use an image with NCCL 2.29.3 or newer. Check the link: {ping}"
                summary = f"a collective operation timed out.{leak}"
                return _finding(report, Id.COLLECTIVE_TIMEOUT, summary, remedy, line, guess=True)
            if line := lines.get(Consequence.RETRY):
                ring = self.cluster.topology is Topology.RING and len(self.cluster.nodes) > 3
                remedy = f"{'Set env.NCCL_ALGO=Ring. ' * ring}Check cable and MTU of all nodes: {ping} -M do -s 8972"
                return _finding(report, Id.RDMA_RETRY, f"no RDMA answer from {name}.", remedy, line, guess=True)
            if line := lines.get(Consequence.RPC):
                summary = f"stopped answering {node.name}: link lost, or rank stuck."
                remedy = f"Check the link, then stop all ranks and launch again: {ping}"
                return _finding(other, Id.LINK_LOST, summary, remedy, (line.text,), guess=True)
            if line := lines.get(Consequence.PEER_GONE):
                address, summary = PEER.search(line.text), f"{node.name} lost the connection to this rank."
                peer = next((each for each in self.ranks if address and address[1] in each.rank.node.fabric), other)
                remedy = f"Set env.NCCL_DEBUG=INFO for the reason. Check the link: {ping}"
                return _finding(peer, Id.CONNECTION_LOST, summary, remedy, (line.text,), guess=True)
        return None

    def _waiting(self) -> Finding | None:
        """The head waits; every container runs."""
        lines = {} if self.head.timeline.ready else self.head.consequences
        if line := lines.get(Consequence.RAY_WAIT):
            summary = "Ray has no node with the address that vLLM asks for."
            remedy = "Start Ray with --node-ip-address and set VLLM_HOST_IP, both to the fabric address of each node."
            return _finding(self.head, Id.RAY_NODE_IP, summary, remedy, line, guess=True)
        if line := lines.get(Consequence.DP_WAIT):
            return replace(_late(self._other(self.head), self.head, line), severity=Severity.WARNING)
        return None

    def _left_running(self, root: Finding) -> list[Finding]:
        """Ranks that hold their memory although another one has ended."""
        summary, remedy = "still running and holding memory.", "Stop it before the next launch: "
        running = [each for each in self.started if each.rank.running]
        left = [each for each in running if (root.id, root.subject) != (Id.STALE_RANK, each.rank.node.name)]
        found = [_finding(each, Id.RANK_LEFT_RUNNING, summary, remedy + each.rank.command("down")) for each in left]
        return [replace(each, severity=Severity.WARNING) for each in found if running != self.started]

    def _other(self, report: RankReport) -> RankReport:
        """The rank that `report` most likely complains about: one that has ended, else one that is silent."""
        others = [each for each in self.ranks if each is not report]
        return min(others, key=lambda each: (each.rank.running, len(each.consequences)), default=report)


def _finding(
    report: RankReport,
    cause: Id,
    summary: str,
    remedy: str,
    proof: RankLine | tuple[str, ...] = (),
    *,
    guess: bool = False,
) -> Finding:
    """A finding about a rank. `proof` is a line of its own log, else texts."""
    evidence, number = ((shown(proof.text),), proof.number) if isinstance(proof, RankLine) else (proof, None)
    title, node = titled(report.rank, summary), report.rank.node.name
    return Finding(cause, Severity.ERROR, title, evidence, remedy, line=number, guess=guess, subject=node)


def _late(late: RankReport, waiting: RankReport, line: RankLine) -> Finding:
    summary = f"not ready while {waiting.rank.node.name} waited."
    return _finding(late, Id.RANK_LATE, summary, _read(late), (line.text,), guess=True)


def _read(report: RankReport) -> str:
    return f"See its log: {report.rank.command('logs')}"


def _fabric(report: RankReport) -> str:
    return report.rank.node.fabric[0] if report.rank.node.fabric else report.rank.node.name


def _after(first: RankLine, second: RankLine) -> bool:
    """Whether it was surely later, the difference of clocks allowed for."""
    return first.at is not None and second.at is not None and first.at > second.at + CLOCK_SKEW
