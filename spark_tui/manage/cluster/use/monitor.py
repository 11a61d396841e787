"""Clusters while a screen is open: the launches on several nodes, what each node answered last, and what is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.actions import key_of
from spark_tui.base.context import Context
from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import Event, EventKind, Severity
from spark_tui.base.host.series import Sample, node_source
from spark_tui.base.jobs import Report, Step, StepState
from spark_tui.base.launches import RELAUNCHES_AN_HOUR, UNFINISHED, ClusterRecord, Stage
from spark_tui.base.ports import Clock
from spark_tui.base.protocol import LookRequest, NodeLook
from spark_tui.base.remote import ClusterNode, Clusters
from spark_tui.base.store import Store
from spark_tui.machine.nodes import Nodes
from spark_tui.manage.cluster.use.launch import STEPS, ClusterLauncher, NotClean
from spark_tui.observe.metrics.show.metrics import node_values
from spark_tui.observe.metrics.use.history import HistoryStore
from spark_tui.run.launch.use.runner import JobRunner

READ_SECONDS: Final = 2.0
"""Between two looks at the records: small files of this machine."""
NODE_SECONDS: Final = 10.0
"""Between two questions to the nodes of what serves: each starts a Python there."""


class ClusterMonitor(Struct, eq=False):
    """Publishes `launches` and `nodes` of the World. What the watcher of a launch does becomes an event. `_note` keeps
    what a node of a launch did, under the engine's name."""

    _clusters: Clusters
    _launcher: ClusterLauncher
    _nodes: Nodes
    _store: Store
    _clock: Clock
    _note: Callable[[Sample], None] = lambda _: None
    _problem: str = ""

    @classmethod
    def from_context(cls, context: Context) -> ClusterMonitor:
        return cls(
            context.settings.clusters,
            context[ClusterLauncher],
            context[Nodes],
            context.store,
            context.clock,
            *((context[HistoryStore].add_sample,) if context.ports.has("history") else ()),
        )

    async def run(self) -> None:
        """Reads the records again and again; asks the nodes when a launch has changed, and while one runs."""
        asked = self._clock.monotonic()
        while True:
            runs = any(each.stage in (Stage.STARTING, Stage.READY) for each in self._store.world.launches)
            if await self.read() or (runs and self._clock.monotonic() - asked >= NODE_SECONDS):
                asked = self._clock.monotonic()
                await self.look()
            await self._clock.sleep(READ_SECONDS)

    async def read(self) -> bool:
        """Whether a launch has come, gone or changed."""
        try:
            found = await in_thread(self._launcher.records)
        except SparkError as error:
            if error.summary != self._problem:
                self._problem = error.summary
                self._store.say(error.summary, Severity.ERROR, error.remedy)
            return False
        before = {each.name: each for each in self._store.world.launches}
        own = {job.title for job in self._store.world.jobs if job.nodes and not job.state.over}
        for record in found:
            if record.name in before and record.name not in own:
                self._tell(before[record.name], record)
        return self._store.update(launches=found)

    async def look(self, only: ClusterRecord | None = None) -> None:
        """Asks all nodes at once, or those of one launch; each answer, or why there is none, is published as it
        comes."""
        known = [node for cluster in self._clusters for node in cluster.nodes] if only is None else []
        records = self._store.world.launches if only is None else (only,)
        known += [rank.node for record in records for rank in record.ranks]
        await asyncio.gather(*map(self._ask, {node.host: node for node in known}.values()))

    async def _ask(self, node: ClusterNode) -> None:
        try:
            request = LookRequest(vitals=True, interfaces=node.interfaces)
            found: NodeLook | SparkError = await self._nodes.ask(node, "look", request, NodeLook)
        except SparkError as error:
            found = error
        for record in self._store.world.launches:
            if record.stage is Stage.READY and any(rank.node.host == node.host for rank in record.ranks):
                values = {} if isinstance(found, SparkError) else node_values(found)
                gap = found.summary if isinstance(found, SparkError) else ""
                self._note(Sample(node_source(record.name, node.name), self._clock.now(), values, gap))
        self._store.update(nodes={**self._store.world.nodes, node.host: found})

    def _tell(self, before: ClusterRecord, now: ClusterRecord) -> None:
        """An event for what another program did with a launch: its watcher, or a command."""
        name, remedy, severity, kind = now.name, "", Severity.WARNING, EventKind.NOTE
        if now.relaunches and now.relaunches[-1:] != before.relaunches[-1:]:
            count = f"restart {len(now.relaunches)} of {RELAUNCHES_AN_HOUR} this hour"
            text = f"{name}: all ranks are started again ({count}). Cause: {now.problem}"
        elif now.stage is before.stage:
            return
        elif now.stage is Stage.STOPPING and now.problem:
            severity, kind = Severity.ERROR, EventKind.FAILED
            text = f"{name}: {now.problem} All ranks are stopped."
        elif now.stage is Stage.BROKEN:
            severity, kind = Severity.ERROR, EventKind.FAILED
            text = f"{name} stays stopped on all nodes. Cause: {now.problem}"
            remedy = f"Fix the cause, then launch it again ({key_of('show_presets')})."
        elif now.stage is Stage.READY:
            severity, kind, text = Severity.INFO, EventKind.READY, f"{name}: ready on {', '.join(now.nodes)}"
        else:
            severity, text = Severity.INFO, f"{name}: {now.stage.value} on {', '.join(now.nodes)}"
        self._store.add_event(Event(self._clock.now(), severity, text, remedy, kind, name))


# --- what is done there --------------------------------------------------------------------------------


STOP: Final = Step("stop", "Stop on all nodes")
RECOVER: Final = Step("recover", "Finish or undo")


class ClusterJobs(Struct, eq=False):
    """What the runner does on several nodes. A failure is kept in the job's view."""

    _jobs: JobRunner
    _launcher: ClusterLauncher
    _store: Store

    @classmethod
    def from_context(cls, context: Context) -> ClusterJobs:
        return cls(context[JobRunner], context[ClusterLauncher], context.store)

    def launch(self, record: ClusterRecord, *, replace_running: bool = False) -> str:
        """Starts a launch on the nodes of the record, and returns the job's id; `replace_running` stops another launch
        of that name first. One that fails or is cancelled is undone on all nodes; one that is ready is watched from
        then on. Raises RefusedError while that engine is worked on."""
        steps = tuple(Step(id_, label) for id_, label in STEPS)

        async def work(report: Report) -> None:
            ready = await self._launcher.launch(record, report, replace_running=replace_running)
            self._say(record, f"ready on {', '.join(record.nodes)}", EventKind.READY)
            await self._watch(ready)

        job = self._jobs.begin(record.name, work, steps, record.nodes, undo=partial(self._clear, record.name))
        self._say(record, "launch requested", detail=f"{record.preset} on {record.cluster}")
        return job

    def stop(self, record: ClusterRecord) -> str:
        """Stops and removes every rank, and proves each node clean; the job fails for one that is not. Raises
        RefusedError while a launch of that name is under way."""
        return self._jobs.begin(record.name, lambda report: self._stop(record, report), (STOP,), record.nodes, "stop")

    async def _watch(self, record: ClusterRecord) -> None:
        try:
            await in_thread(self._launcher.watched, record)
        except SparkError as error:
            self._store.say(error.summary, Severity.WARNING, error.remedy, subject=record.name)

    async def _stop(self, record: ClusterRecord, report: Report) -> None:
        report(replace(STOP, state=StepState.RUNNING, detail=", ".join(record.nodes)))
        results = await self._launcher.stop(record.name)
        left = [each for each in results if not each.clean]
        proof = " ".join(each.text for each in results)
        report(replace(STOP, state=StepState.FAILED if left else StepState.DONE, detail=proof))
        if left:
            why = next((each.problem.remedy for each in left if each.problem is not None), "")
            again = f"Stop {record.name} again when the node answers ({key_of('stop')})."
            raise NotClean(" ".join(each.text for each in left), f"{again} {why}".rstrip())
        self._say(record, f"stopped on all nodes. {proof}", EventKind.STOPPED)

    async def recover(self) -> None:
        """Finishes or undoes launches on several nodes that an earlier program left half done; what serves is watched
        again."""
        try:
            records = self._launcher.records()
        except SparkError as error:
            self._store.say(error.summary, Severity.ERROR, error.remedy)
            return
        for record in records:
            if record.stage in UNFINISHED and not self._jobs.running(record.name):
                self._jobs.begin(
                    record.name,
                    partial(self._recover, record),
                    (RECOVER,),
                    record.nodes,
                    "recovery",
                    undo=partial(self._clear, record.name),
                )
            elif record.stage is Stage.READY:
                await self._watch(record)

    async def _recover(self, record: ClusterRecord, report: Report) -> None:
        what = "launch" if record.stage is Stage.STARTING else "stop"
        report(replace(RECOVER, state=StepState.RUNNING, detail=f"an interrupted {what}"))
        try:
            found = await self._launcher.recover(record)
        except RefusedError:  # its owner lives
            report(replace(RECOVER, state=StepState.SKIPPED, detail=f"another spark-tui does the {what}"))
            return
        if found is not None and found.stage is not Stage.READY:
            nodes = ", ".join(found.uncleared)
            report(replace(RECOVER, state=StepState.FAILED, detail=nodes))
            raise NotClean(
                f"{record.name} was interrupted, and {nodes} cannot be cleared.",
                f"Stop it again when the node answers ({key_of('stop')}).",
            )
        done = "ready" if found is not None else "nothing of it is left on any node"
        report(replace(RECOVER, state=StepState.DONE, detail=done))
        self._say(record, f"the interrupted {what} is over: {done}", EventKind.LAUNCH)
        if found is not None:
            await self._watch(found)

    def _say(self, record: ClusterRecord, text: str, kind: EventKind = EventKind.LAUNCH, detail: str = "") -> None:
        self._store.say(f"{record.name}: {text}", kind=kind, subject=record.name, detail=detail)

    def _clear(self, name: str) -> None:
        """A node did not answer when the launch was cancelled, or a recovery was: what is left is stopped."""
        left = self._launcher.read(name)
        if left is not None:
            self.stop(left)

    async def close(self) -> None:
        """Lets what is under way continue without this program. Before the jobs end."""
        if any(job.nodes and self._jobs.running(job.title) for job in self._store.world.jobs):
            self._launcher.let_go()
