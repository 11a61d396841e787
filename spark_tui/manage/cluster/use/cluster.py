"""Clusters: what their nodes are, and the plan of a launch on several of them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts, LayerKind
from spark_tui.base.context import Context
from spark_tui.base.engine.container import ImageFacts
from spark_tui.base.errors import SparkError
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import Finding, Missing, Ok, Reading, value_of
from spark_tui.base.host.memory import MemInfo
from spark_tui.base.ports import CheckpointSource, ContainerEngine
from spark_tui.base.remote import (
    Cluster,
    ClusterNode,
    Clusters,
    RemoteStatus,
    Spread,
    find_nodes,
)
from spark_tui.base.text import quoted
from spark_tui.catalog.fit.model.fit import Fit, Shards, measure
from spark_tui.catalog.fit.model.verdict import judged, number_for
from spark_tui.catalog.fit.use.fit import advised
from spark_tui.catalog.models.model.config import facts_of, known_model
from spark_tui.catalog.presets.model.fetching import hub_models
from spark_tui.catalog.presets.model.overrides import Overrides, names_share
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.model.rules.check import check
from spark_tui.catalog.presets.model.rules.context import LaunchContext
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.machine.nodes import Hosts, Nodes
from spark_tui.manage.cluster.model.plan import ClusterPlan, plan_cluster


class ClusterVerdict(Struct, frozen=True):
    """A launch over several nodes, judged: its plan, the status of each node in the order of ranks, the fit on the
    smallest, and what the rules find."""

    plan: ClusterPlan
    nodes: tuple[RemoteStatus, ...]
    fit: Fit
    findings: tuple[Finding, ...]


class ClusterPlanner(Struct, eq=False):
    """Plans launches over several nodes; nothing is changed anywhere. `auto`: unless it is named, the memory share
    follows from what the launch needs."""

    _clusters: Clusters
    _hosts: Hosts
    _docker: ContainerEngine
    _preflight: Preflight
    _checkpoints: CheckpointSource
    _nodes: Nodes
    _auto: bool

    @classmethod
    def from_context(cls, context: Context) -> ClusterPlanner:
        return cls(
            context.settings.clusters,
            context[Hosts],
            context.docker,
            context[Preflight],
            context.checkpoints,
            context[Nodes],
            context.settings.memory_share == "auto",
        )

    async def judge(
        self, preset: Preset, overrides: Overrides, names: Sequence[str], spread: Spread | None = None
    ) -> ClusterVerdict:
        """The launch on the nodes of those names. Raises SparkError when it cannot be planned; a node that does not
        answer leaves its memory unknown."""
        plan, checkpoint, facts = await self.draw(preset, overrides, names, spread, uuid.uuid4().hex[:12])
        nodes = tuple(await asyncio.gather(*map(self._status, plan.cluster.nodes)))
        smallest, layout = smallest_memory(nodes), plan.layout
        shards = Shards(layout.tensor * layout.pipeline, layout.cache_ways(_kv_heads(facts)))
        needs = measure(plan.head.plan, checkpoint, shards=shards)
        verdict = judged(needs, smallest)
        if self._auto and not names_share(overrides) and (share := number_for(verdict)) is not None:
            overrides = replace(overrides, auto_share=True, gpu_memory_utilization=share)
            heads = facts.heads if facts is not None else None
            plan = self.plan(preset, overrides, plan.cluster, plan.launch_id, spread, heads, plan.head.plan.image)
            verdict = judged(needs, smallest, share=share)
        memory = value_of(smallest)
        context = LaunchContext(
            plan.head.plan,
            overrides,
            plan.head.plan.image,
            checkpoint=checkpoint,
            sparks=layout.nodes // layout.replicas,
            memory_total=memory.total if memory is not None else None,
        )
        return ClusterVerdict(plan, nodes, advised(verdict, context), check(context))

    async def draw(
        self,
        preset: Preset,
        overrides: Overrides,
        names: Sequence[str],
        spread: Spread | None = None,
        launch_id: str = "",
    ) -> tuple[ClusterPlan, CheckpointFacts | None, CheckpointFacts | None]:
        """The launch on the nodes of those names, which are not asked, with the memory share of its recipe; no name is
        the only cluster. With what is stored of the model here, and with what is known of it (None: nothing). Raises
        SparkError when it cannot be planned."""
        cluster = find_nodes(self._clusters, names or [each.name for each in self._clusters])
        try:
            image = await self._docker.image(preset.reference)
        except SparkError:  # without Docker the entrypoint is assumed
            image = None
        checkpoint = value_of(await in_thread(self._checkpoints.read, preset.model, preset.model_revision))
        known = known_model(f"{preset.model} {preset.facts.title}")
        facts = checkpoint or (facts_of(known) if known is not None else None)
        heads = facts.heads if facts is not None else None
        return self.plan(preset, overrides, cluster, launch_id, spread, heads, image), checkpoint, facts

    def plan(
        self,
        preset: Preset,
        overrides: Overrides,
        cluster: Cluster,
        launch_id: str,
        spread: Spread | None,
        heads: int | None,
        image: ImageFacts | None,
    ) -> ClusterPlan:
        """The plan of a launch over several nodes, without asking anyone; their folders are taken to be as here."""
        return plan_cluster(
            preset,
            overrides,
            self._preflight.paths,
            cluster,
            launch_id=launch_id,
            spread=spread,
            heads=heads,
            image=image,
            env_file=self._preflight.env_file(preset, overrides, write=False),
        )

    async def _status(self, node: ClusterNode) -> RemoteStatus:
        """What its spark-tui reports, named as the node; why it does not, in place of each reading."""
        view = await self._hosts.ask(self._nodes.reach(node))
        if view.status is not None:
            return replace(view.status, hostname=node.name)
        why = Missing(view.problem.summary.rstrip(".") if view.problem else "no answer")
        return RemoteStatus(node.name, why, why, why)


async def node_plans(
    context: Context, preset: Preset, overrides: Overrides, nodes: Sequence[str]
) -> tuple[Mapping[str, LaunchPlan], Sequence[str]]:
    """Of the NodePlans port."""
    plan, _, _ = await context[ClusterPlanner].draw(preset, overrides, nodes)
    notes = list(plan.notes)
    if hub_models(plan.head.plan):
        move = f"spark-tui models move {quoted(preset.model)}"
        notes.append(f"The files read the store alone. On a node that has the model in another Hub cache: {move}")
    return {each.node.name: each.plan for each in plan.start_order}, notes


def smallest_memory(nodes: Sequence[RemoteStatus]) -> Reading[MemInfo]:
    """The least available and the least total of all nodes; Missing where one of them is unknown."""
    for reading in (each for node in nodes for each in (node.available, node.total)):
        if isinstance(reading, Missing):
            return reading
    available = min(value_of(each.available) or 0 for each in nodes)
    return Ok(MemInfo(min(value_of(each.total) or 0 for each in nodes), available, available))


def _kv_heads(facts: CheckpointFacts | None) -> int | None:
    """None where they are unknown, or where one latent row stands for all heads."""
    latent = (LayerKind.MLA, LayerKind.COMPRESSED)
    if facts is None or any(layers.kind in latent for layers in facts.attention or ()):
        return None
    return facts.kv_heads
