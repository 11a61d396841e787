"""The launch form with a choice of where it runs: this machine, or the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Mapping

from spark_tui.base.engine.docker_run import render_text
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.page import Page, Row, Section, Tone
from spark_tui.base.remote import Cluster, Spread
from spark_tui.catalog.fit.model.verdict import LaunchVerdict
from spark_tui.catalog.fit.show.launch import deviations_page, judgement_page
from spark_tui.catalog.fit.show.presets import refusal
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.use.last_launches import PLACE
from spark_tui.manage.cluster.model.plan import record_of
from spark_tui.manage.cluster.show import cluster as present
from spark_tui.manage.cluster.use.cluster import ClusterPlanner, ClusterVerdict
from spark_tui.manage.cluster.use.monitor import ClusterJobs
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.run.launch.screen import BASICS, LaunchForm
from spark_tui.run.launch.use.launch import DEFAULT_READY_TIMEOUT_SECONDS
from spark_tui.tui.form_screen import FormField
from spark_tui.tui.modals import ConfirmScreen

NODES, PARALLEL = PLACE
HERE, AUTO = "this machine", "auto"


class JudgedNodes(LaunchVerdict, frozen=True, kw_only=True):
    """A launch over several nodes, judged: of its head, and of all of it."""

    whole: ClusterVerdict


class PlacedLaunchForm(LaunchForm):
    """Answers the container's name when a launch has started, here or on several nodes."""

    def places(self) -> tuple[tuple[FormField, ...], Mapping[str, str]]:
        """Where it runs, and how several nodes share the work; nothing without a cluster."""
        clusters = self._core.settings.clusters
        if not clusters:
            return (), {}
        names, ways = (HERE, *(each.name for each in clusters)), (AUTO, *(each.value for each in Spread))
        only = {NODES: clusters[0].name} if len(clusters) == 1 and self._preset.min_nodes > 1 else {}
        return (
            FormField(NODES, NODES, "this machine, or all nodes of a cluster", value=HERE, choices=names, group=BASICS),
            FormField(PARALLEL, PARALLEL, "how the nodes share the work", value=AUTO, choices=ways, group=BASICS),
        ), only

    @property
    def cluster(self) -> Cluster | None:
        """The nodes that it runs on; None: this machine."""
        name = self.texts.get(NODES)
        return next((each for each in self._core.settings.clusters if each.name == name), None)

    @property
    def spread(self) -> Spread | None:
        """How the nodes share the work; None: as the preset says."""
        text = self.texts.get(PARALLEL)
        return Spread(text) if text else None

    def misplaced(self) -> dict[str, SparkError]:
        if self.spread is None or self.cluster is not None:
            return {}
        return {PARALLEL: UsageError("Only for several nodes.", f"Choose a cluster under {NODES}.")}

    def planned(self, overrides: Overrides) -> LaunchPlan:
        """The plan of this machine, or of the head. Raises SparkError."""
        if self.cluster is None:
            return super().planned(overrides)
        planner = self._core[ClusterPlanner]
        return planner.plan(self._preset, overrides, self.cluster, "", self.spread, None, self._image.image).head.plan

    async def judged(self) -> LaunchVerdict:
        """Asks the nodes for their memory. Raises SparkError for a launch that cannot be planned."""
        return await super().judged() if self.cluster is None else await self._judged_on(self.cluster)

    async def _judged_on(self, cluster: Cluster) -> JudgedNodes:
        found = await self._core[ClusterPlanner].judge(self._preset, self.overrides, [cluster.name], self.spread)
        return JudgedNodes(found.plan.head.plan, found.fit, found.findings, whole=found)

    def plan_page(self, plan: LaunchPlan) -> Page:
        """On nodes the verdict and the command of each; until they have answered the head's command."""
        if self.cluster is None:
            return super().plan_page(plan)
        if self.unplanned is not None:
            return refusal(self.unplanned)
        if not isinstance(self.judgement, JudgedNodes):
            asking = Row(f"Asking {', '.join(node.name for node in self.cluster.nodes)} ...", tone=Tone.QUIET)
            return (Section(rows=(asking,)), Section(command=render_text(plan.spec)))
        verdict = self.judgement.whole
        notes = tuple(Row(note, "!", Tone.WARNING) for note in verdict.plan.notes)
        return (
            present.layout_section(verdict),
            *judgement_page(self.judgement),
            Section(rows=notes),
            *deviations_page(self.judgement.plan),
            Section(command=present.commands(verdict.plan)),
            present.spreads_section(verdict.plan, PARALLEL),
        )

    async def weighed(self) -> LaunchVerdict | None:
        """On nodes once they have answered."""
        return await (super().weighed() if self.cluster is None else self._weighed_on(self.cluster))

    async def _weighed_on(self, cluster: Cluster) -> JudgedNodes:
        if self.unplanned is not None:
            raise self.unplanned
        if not isinstance(self.judgement, JudgedNodes):
            self.judgement = await self._judged_on(cluster)
        return self.judgement

    async def start(self, name: str, *, force: bool) -> bool:
        """On nodes after a question where the name runs."""
        if self.cluster is None:
            return await super().start(name, force=force)
        core, plan = self._core, (await self._weighed_on(self.cluster)).whole.plan
        preset = plan.head.plan.preset
        record = record_of(plan, patience=preset.ready_timeout_seconds or DEFAULT_READY_TIMEOUT_SECONDS)
        runs = [view.name for view in core.store.world.known(ENGINES) if view.container.running]
        taken = record.name in (*runs, *(each.name for each in core.store.world.launches))
        if taken:
            question, what = present.replace_question(record.name, record.nodes)
            if not await self.app.push_screen_wait(ConfirmScreen(question, what, verb="Replace")):
                return False
        core[ClusterJobs].launch(record, replace_running=taken)
        return True
