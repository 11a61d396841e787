"""The doctor of a cluster: what each node reads of itself, and how this machine asks all of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spark_tui import __version__
from spark_tui.base.context import Context
from spark_tui.base.engine.state import runtime_of
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import Missing, Reading, reason_of, value_of
from spark_tui.base.host.detectors import leaked
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.jobs import Report, Step, StepReporter
from spark_tui.base.ports import Clock, ContainerEngine, DoctorProbe, HostProbe, StateFiles
from spark_tui.base.protocol import NodeFailed, NodeVersion, rank_of
from spark_tui.base.remote import Cluster, ClusterNode, Topology
from spark_tui.catalog.models.use.ports import ModelStore
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.machine.nodes import Nodes
from spark_tui.manage.cluster.model.facts import (
    ABSENT,
    ALL_GATHER,
    API_PORT,
    NO_END,
    NOT_INSTALLED,
    PORTS,
    ClusterReadings,
    Dial,
    FactsRequest,
    Measure,
    MeasureKind,
    NodeFacts,
    NodeProbe,
    NodeReadings,
    Ping,
    ProbeRequest,
    Transfer,
    completed,
)
from spark_tui.manage.cluster.model.plan import all_gather_words
from spark_tui.manage.cluster.model.variables import MASTER_PORT, Backend, Rank
from spark_tui.manage.cluster.use.node import FabricProbe
from spark_tui.observe.results.use import keep_bandwidth

T = TypeVar("T")

DOCKER_SECONDS: Final = 10.0
FACTS_SECONDS: Final = 60.0
"""A large model store takes a while to read."""
ANSWER_SECONDS: Final = 30.0
"""For a probe beyond the time that it tries: ssh, pings, and a Python that starts."""
MEASURE_SECONDS: Final = 20.0
GATHER_SECONDS: Final = 120.0
"""For an image to start, NCCL to find its peers, and the bounded work itself; the program ends by itself before."""
RDMA_PORT, TCP_PORT = 12000, 12100
STEPS: Final = (
    Step("nodes", "Read nodes"),
    Step("paths", "Test paths"),
    Step("bandwidth", "Measure bandwidth"),
)
_HEADERS: Final = 28
"""Bytes of IPv4 and ICMP before the data of a ping."""


class NodeExaminer(Struct, eq=False):
    """This machine as a node under examination. Reads only."""

    _docker: ContainerEngine
    _host: HostProbe
    _doctor: DoctorProbe
    _fabric: FabricProbe
    _models: ModelStore
    _clock: Clock
    _paths: HostPaths

    @classmethod
    def from_context(cls, context: Context) -> NodeExaminer:
        return cls(
            context.docker,
            context.host,
            context.ports.doctor_probe,
            context[FabricProbe],
            context[ModelStore],
            context.clock,
            context.paths,
        )

    def verbs(self) -> dict[str, tuple[type[Any], Callable[[Any], Awaitable[object]]]]:
        """What it does by name: the type of the request, and the work."""
        return {"facts": (FactsRequest, self.facts), "probe": (ProbeRequest, self.probe)}

    async def facts(self, request: FactsRequest) -> NodeFacts:
        """What it has. Never raises: what cannot be read is None with a reason."""
        began, missing = self._clock.now(), dict[str, str]()

        def read(field: str, reading: Reading[T]) -> T | None:
            if isinstance(reading, Missing):
                missing[field] = reason_of(reading)
            return value_of(reading)

        def files() -> NodeFacts:
            identity, memory = self._host.identity(), read("available", self._host.memory())
            free = read("free", self._host.free_disk(Path(self._paths.store)))
            owners = ((port, self._host.port_owner(port)) for port in request.ports)
            return NodeFacts(
                identity.hostname,
                __version__,
                (began, began),
                self._doctor.user()[0],
                identity.kernel,
                read("driver", self._doctor.driver()),
                read("links", self._fabric.links()),
                read("devices", self._fabric.devices()),
                available=memory.available if memory else None,
                total=memory.total if memory else None,
                free=free,
                taken=tuple((port, owner) for port, owner in owners if owner is not None),
                missing=missing,
            )

        found, docker, model = await asyncio.gather(
            in_thread(files), self._with_docker(request, missing), self._with_model(request.model, missing)
        )
        shared, running = await in_thread(self._host.shared_files), docker.pop("running")
        leak = read("leaked", shared)
        names = None if leak is None else tuple(each.name for each in leaked(leak, engines_run=running).files)
        facts: NodeFacts = replace(found, **docker, files=model, leaked=names, clock=(began, self._clock.now()))
        return facts

    async def _with_docker(self, request: FactsRequest, missing: dict[str, str]) -> dict[str, Any]:
        """The fields of the facts that Docker gives, and whether an engine is `running`."""
        fields: dict[str, Any] = {"running": True}
        try:
            async with asyncio.timeout(DOCKER_SECONDS):
                fields["docker"] = (await self._docker.daemon()).version
                containers = await self._docker.containers()
                image = await self._docker.image(request.image) if request.image else None
        except (TimeoutError, SparkError) as error:
            why = error.summary if isinstance(error, SparkError) else f"no answer within {DOCKER_SECONDS:g} s"
            missing.update(dict.fromkeys(("docker", "image", "ranks"), why))
            return fields | {"docker": None}
        fields["running"] = any(each.running and runtime_of(each) for each in containers)
        fields["ranks"] = tuple(filter(None, map(rank_of, containers)))
        if image is not None:
            fields["image"] = image
        elif request.image:
            missing["image"] = ABSENT
        return fields

    async def _with_model(self, model: str, missing: dict[str, str]) -> tuple[tuple[str, int, str], ...] | None:
        try:
            stored = await self._models.files(model, anywhere=True) if model else None
        except SparkError as error:
            missing["files"] = ABSENT if isinstance(error, UsageError) else error.summary
            return None
        return tuple((each.name, each.size or 0, each.blob) for each in stored) if stored is not None else None

    async def probe(self, request: ProbeRequest) -> NodeProbe:
        """What it reaches. Never raises."""
        peers = dict.fromkeys(each.peer for each in request.pings)
        pings, routes, logins, (dials, deaf), transfers = await asyncio.gather(
            asyncio.gather(*map(self._fabric.ping, request.pings)),
            asyncio.gather(*map(self._fabric.route, peers)),
            asyncio.gather(*map(self._fabric.ssh, request.ssh)),
            self._fabric.meet(request),
            asyncio.gather(*(self._fabric.transfer(each, request.seconds) for each in request.transfers)),
        )
        known = {peer: used for peer, used in zip(peers, routes, strict=True) if used is not None}
        ssh = dict(zip(request.ssh, logins, strict=True))
        return NodeProbe(tuple(pings), known, ssh, dials, deaf, tuple(transfers))


class ClusterDoctor(Struct, eq=False):
    """Examines clusters from this machine: every node by its own spark-tui, all at once."""

    _nodes: Nodes
    _state: StateFiles
    _clock: Clock

    @classmethod
    def from_context(cls, context: Context) -> ClusterDoctor:
        return cls(context[Nodes], context.ports.state, context.clock)

    async def readings(
        self,
        cluster: Cluster,
        image: str = "",
        model: str = "",
        *,
        preset: Preset | None = None,
        bandwidth: bool = False,
        report: Report = lambda _: None,
    ) -> ClusterReadings:
        """What the checks look at. Takes a quarter of a minute, with `bandwidth` longer. Compares image and model of
        `preset` where no others are named. A node that does not answer has its problem in place of readings."""
        steps = StepReporter(STEPS, report, self._clock)
        port = preset.default("port") if preset is not None else None
        if preset is not None:
            image, model = image or preset.reference, model or preset.model
        ports = tuple(sorted({*PORTS, port if isinstance(port, int) else API_PORT}))
        request = FactsRequest(ports, image, model)
        nodes = await _counted(steps, "nodes", [self._facts(node, request) for node in cluster.nodes])
        seen = ClusterReadings(cluster, tuple(nodes), ports, image, model, bandwidth)
        tried = [self._probe(node, _probe_request(seen, at)) for at, node in enumerate(nodes)]
        probes = await _counted(steps, "paths", tried)
        seen = replace(seen, nodes=tuple(replace(node, probe=probe) for node, probe in zip(nodes, probes, strict=True)))
        if bandwidth:
            async with steps.running("bandwidth"):
                seen = await self._with_bandwidth(seen, partial(steps.detail, "bandwidth"))
            found = [each.text for node in seen.nodes for each in node.measures if each.value is not None]
            keep_bandwidth(self._state, [node.node.name for node in seen.nodes], found)
        return seen

    async def _with_bandwidth(self, seen: ClusterReadings, detail: Callable[[str], None]) -> ClusterReadings:
        """One pair at a time, then all nodes together."""
        head, measured = seen.nodes[0], []
        for node in seen.nodes:
            if node is not head:
                detail(f"{head.node.name} to {node.node.name}")
            measured.append(await self._measures(seen, node))
        detail("NCCL between all nodes")
        measured[0] += await self._all_gather(seen)
        nodes = zip(seen.nodes, measured, strict=True)
        return replace(seen, nodes=tuple(replace(node, measures=own) for node, own in nodes))

    async def _facts(self, node: ClusterNode, request: FactsRequest) -> NodeReadings:
        began = self._clock.now()
        try:
            facts = await self._nodes.ask(node, "facts", request, NodeFacts, seconds=FACTS_SECONDS)
        except NodeFailed as error:  # only a spark-tui that does not know the question refuses it
            problem = NodeVersion(error.summary, f"spark-tui cluster install {node.name}", detail=error.detail)
            return NodeReadings(node, problem=problem)
        except SparkError as error:
            return NodeReadings(node, problem=error)
        before, after = facts.clock[0] - began, facts.clock[1] - self._clock.now()
        return NodeReadings(
            completed(node, facts), facts, offset=(before + after) / 2, tolerance=max(0.0, before - after) / 2
        )

    async def _probe(self, node: NodeReadings, request: ProbeRequest) -> NodeProbe:
        if node.facts is None:
            return NodeProbe()
        seconds = request.seconds + ANSWER_SECONDS
        try:
            return await self._nodes.ask(node.node, "probe", request, NodeProbe, seconds=seconds)
        except SparkError as error:
            return NodeProbe(transfers=tuple(replace(each, problem=error.summary) for each in request.transfers))

    async def _measures(self, seen: ClusterReadings, worker: NodeReadings) -> tuple[Measure, ...]:
        """Between the head and that node: RDMA on all rails at once, then TCP on each."""
        head = seen.nodes[0]
        rails = [(mine, theirs) for mine, peer, theirs in seen.paths(0) if peer is worker]
        if worker is head or head.facts is None or worker.facts is None or not rails:
            return ()
        devices = [(head.device(mine), worker.device(theirs), worker.node.fabric[theirs]) for mine, theirs in rails]
        pairs = [each for each in devices if each[0] and each[1]]
        kind = MeasureKind.RDMA if len(pairs) > 1 else MeasureKind.TWIN
        found = [await self._measure(kind, "ib_write_bw", RDMA_PORT, head, worker, pairs)] if pairs else []
        for mine, theirs in rails:
            if seen.cluster.topology is Topology.RING and not head.device(mine):
                continue  # its LAN
            own, other = head.node.fabric[mine], worker.node.fabric[theirs]
            tcp = await self._measure(MeasureKind.TCP, "iperf3", TCP_PORT, head, worker, [(own, other, other)])
            found.append(tcp)
        return tuple(found)

    async def _all_gather(self, seen: ClusterReadings) -> tuple[Measure, ...]:
        """By NCCL between all nodes, in the image that is asked about; nothing without one, or without a fabric."""
        if not seen.image or any(each.facts is None or not each.node.complete for each in seen.nodes):
            return ()
        wiring = seen.cluster.topology
        head, ranks = seen.nodes[0].node.fabric[0], len(seen.nodes)
        found = await asyncio.gather(
            *(
                self._probe(
                    each,
                    ProbeRequest(
                        transfers=(
                            Transfer(
                                ALL_GATHER,
                                seen.image,
                                MASTER_PORT,
                                head if number else "",
                                words=all_gather_words(
                                    Rank(each.node, number, ranks, Backend.MP, wiring), head, seen.image
                                ),
                            ),
                        ),
                        seconds=GATHER_SECONDS,
                    ),
                )
                for number, each in enumerate(seen.nodes)
            )
        )
        ends = [transfer for probe in found for transfer in probe.transfers]
        kind = MeasureKind.NCCL_RING if wiring is Topology.RING else MeasureKind.NCCL
        values = [each.gbits for each in ends if each.gbits is not None]
        return (Measure(kind, min(values, default=None), _first(each.problem for each in ends)),)

    async def _measure(
        self,
        kind: MeasureKind,
        program: str,
        port: int,
        head: NodeReadings,
        worker: NodeReadings,
        pairs: Sequence[tuple[str, str, str]],
    ) -> Measure:
        """The sum of transfers from the head to the worker that run at once, each between its own two ends."""
        clients = tuple(Transfer(program, own, port + at, peer) for at, (own, _, peer) in enumerate(pairs))
        servers = tuple(Transfer(program, other, port + at) for at, (_, other, _) in enumerate(pairs))
        sent, served = await asyncio.gather(
            *(
                self._probe(node, ProbeRequest(transfers=transfers, seconds=MEASURE_SECONDS))
                for node, transfers in ((head, clients), (worker, servers))
            )
        )
        problem = _first(each.problem for each in (*served.transfers, *sent.transfers))
        values = [each.gbits for each in sent.transfers if each.gbits is not None]
        if len(values) < len(pairs):
            return Measure(kind, None, problem or "no result")
        return Measure(kind, sum(values))


async def _counted(steps: StepReporter, step: str, works: Sequence[Awaitable[T]]) -> list[T]:
    """The results of all, at once; the step says how many nodes have answered."""
    answered = 0

    async def one(work: Awaitable[T]) -> T:
        nonlocal answered
        found, answered = await work, answered + 1
        steps.detail(step, f"{answered} of {len(works)}", answered / len(works))
        return found

    async with steps.running(step):
        return list(await asyncio.gather(*map(one, works)))


def _first(texts: Iterable[str]) -> str:
    """The first that is not empty: a program that is absent explains what the other end reports, and an end that only
    waited explains nothing."""
    return min(filter(None, texts), key=lambda each: (each != NOT_INSTALLED, each.startswith(NO_END)), default="")


def _probe_request(seen: ClusterReadings, at: int) -> ProbeRequest:
    """What a node is to try: its peers by every rail with the MTU that it has, all others by their first address."""
    own = seen.nodes[at]
    pings = [
        Ping(link.name, peer.node.fabric[theirs], link.mtu - _HEADERS)
        for mine, peer, theirs in seen.paths(at)
        if (link := own.link(mine)) is not None and link.mtu
    ]
    others = [each for each in seen.nodes if each is not own and each.node.fabric]
    logins = others if at == 0 else others[:1]
    awake = [each for each in others if each.facts is not None]
    free = _free_ports(seen, own) if own.node.fabric else ()
    dials = [Dial(each.node.fabric[0], port) for each in awake for port in _free_ports(seen, each)]
    return ProbeRequest(
        tuple(pings),
        tuple(each.node.fabric[0] for each in logins),
        own.node.fabric[0] if free else "",
        free,
        len(free) * len(awake),
        tuple(dials),
    )


def _free_ports(seen: ClusterReadings, node: NodeReadings) -> tuple[int, ...]:
    """A port that an engine uses is left alone."""
    taken = {port for port, _ in node.facts.taken} if node.facts else set()
    return tuple(port for port in seen.ports if port not in taken)
