"""The guilty rank of a launch over several machines, by the logs and containers of all ranks. Pure.

The earliest error that is no consequence of another rank's failure wins, over all ranks. Where every error is a
consequence, the ranks are compared: which one is missing, late, stale, unreachable or silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from spark_tui.base.finding import Finding, Missing, Severity
from spark_tui.base.remote import Cluster, Topology
from spark_tui.manage.cluster.model import signatures as s
from spark_tui.manage.cluster.model.rank_report import (
    RankFault,
    RankLine,
    RankReport,
    RankView,
    refresh_command,
    titled,
)
from spark_tui.manage.cluster.model.signatures import Consequence, Id
from spark_tui.observe.explain.model.causes.network import FIXED_NCCL
from spark_tui.observe.explain.model.line import by_time, shown
from spark_tui.observe.explain.model.timeline import StartOutcome

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
                match = s.PORT.search(failed.text) if failed else None
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
            state, waits = other.rank.state, report.rank.running or not set(lines) <= set(s.WAITS)
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
                address, summary = s.PEER.search(line.text), f"{node.name} lost the connection to this rank."
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
