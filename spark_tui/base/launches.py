"""A launch over several nodes as it is written down: what must be finished, undone or started again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.container import (
    LABEL_LAUNCH,
)
from spark_tui.base.protocol import CanaryRequest, FabricLink, NodeLook, RouteRequest, StartRequest
from spark_tui.base.remote import Cluster, ClusterNode, Topology

RELAUNCHES_AN_HOUR: Final = 3
HOUR: Final = 3600.0


class Stage(StrEnum):
    """What is being done with the containers of a launch."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    BROKEN = "broken"
    """Stopped for good: it was started again too often."""


UNFINISHED: Final = (Stage.STARTING, Stage.STOPPING)
"""What a program that was killed leaves behind."""


class RankRecord(Struct, frozen=True):
    """One rank: where it runs, and how it is started there."""

    node: ClusterNode
    start: StartRequest

    @property
    def name(self) -> str:
        return self.start.spec.name


class ClusterRecord(Struct, frozen=True):
    """A launch over several nodes. `ranks` are in the order of their numbers, the head first; `alone`: each serves for
    itself, behind `router` on the head where there is one. `canary` is what proves that it answers. `relaunches` are
    times, seconds since the epoch. `uncleared` are nodes that are not proven to be clean, `problem` is why it was
    stopped last."""

    name: str
    launch: str
    stage: Stage
    preset: str
    cluster: str
    ranks: tuple[RankRecord, ...]
    canary: CanaryRequest
    topology: Topology = Topology.DIRECT
    alone: bool = False
    router: RouteRequest | None = None
    patience: float = HOUR
    relaunches: tuple[float, ...] = ()
    uncleared: tuple[str, ...] = ()
    problem: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names, the head first."""
        return tuple(each.node.name for each in self.ranks)

    @property
    def head(self) -> RankRecord:
        return self.ranks[0]

    @property
    def as_cluster(self) -> Cluster:
        """The nodes that it runs on."""
        return Cluster(self.cluster, tuple(rank.node for rank in self.ranks), self.topology)

    @property
    def servers(self) -> tuple[RankRecord, ...]:
        """The ranks with an API: the head, or each that serves for itself."""
        return self.ranks if self.alone else self.ranks[:1]

    @property
    def answers(self) -> int:
        """How many completions prove that all of it serves."""
        return self.canary.answers * len(self.servers)

    def lost_link(self, looks: Sequence[NodeLook | None]) -> str:
        """The interfaces without a link of the first rail that has one; empty where none is known. `looks` are in the
        order of the ranks."""
        rails = ([f"{link.name} of {node}" for node, link in rail if link.up is False] for rail in self._rails(looks))
        return next((f"no link at {' and '.join(ends)}" for ends in rails if ends), "")

    def smaller_mtu(self, looks: Sequence[NodeLook | None]) -> str:
        """The two ends of the first rail that differ; empty where none are known to."""
        for rail in self._rails(looks):
            sizes = sorted((link.mtu, f"{link.name} of {node}") for node, link in rail if link.mtu)
            if sizes and sizes[0][0] < sizes[-1][0]:
                return f"MTU {sizes[0][0]} at {sizes[0][1]}, {sizes[-1][0]} at {sizes[-1][1]}: large packets are lost"
        return ""

    def _rails(self, looks: Sequence[NodeLook | None]) -> Iterator[list[tuple[str, FabricLink]]]:
        """What each node uses of a rail, with its name."""
        known = [{link.name: link for link in look.links} if look else {} for look in looks]
        for names in zip(*(rank.node.interfaces for rank in self.ranks), strict=False):
            ends = zip(self.ranks, names, known, strict=True)
            yield [(rank.node.name, links[name]) for rank, name, links in ends if name in links]

    def replica(self, rank: RankRecord) -> ClusterRecord:
        """Of replicas, that one as if it were all."""
        return replace(self, ranks=(rank,))

    def counted(self, now: float, problem: str) -> ClusterRecord | None:
        """With one more start because of that problem; None after too many within the last hour."""
        recent = tuple(at for at in self.relaunches if now - at < HOUR)
        if len(recent) >= RELAUNCHES_AN_HOUR:
            return None
        return replace(self, relaunches=(*recent, now), problem=problem)

    def again(self, now: float, problem: str) -> ClusterRecord | None:
        """The same launch under a new id because of that problem; None as `counted`."""
        counted = self.counted(now, problem)
        return counted and replace(new_launch(counted), stage=Stage.STARTING)


def new_launch(record: ClusterRecord) -> ClusterRecord:
    """With a launch id of its own on every container."""
    launch = uuid.uuid4().hex[:12]
    ranks = []
    for rank in record.ranks:
        labels = tuple((key, launch if key == LABEL_LAUNCH else text) for key, text in rank.start.spec.labels)
        ranks.append(replace(rank, start=replace(rank.start, spec=replace(rank.start.spec, labels=labels))))
    router = record.router and replace(record.router, launch=launch)
    return replace(record, launch=launch, ranks=tuple(ranks), router=router)
