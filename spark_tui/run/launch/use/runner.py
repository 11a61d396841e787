"""Launches, edits and stops on several nodes as jobs: one task per engine, and what became of each."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from spark_tui.base.actions import key_of
from spark_tui.base.context import Context
from spark_tui.base.engine.state import EngineState
from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.executors import end_tasks, in_thread
from spark_tui.base.finding import EventKind, Severity
from spark_tui.base.jobs import STEP_EVENTS, JobView, Report, Step, StepState, put, step_news
from spark_tui.base.launches import UNFINISHED, ClusterRecord, Stage
from spark_tui.base.protocol import rank_of
from spark_tui.base.store import Store
from spark_tui.catalog.presets.model.overrides import Overrides, pairs_of
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.manage.cluster.use.launch import STEPS as CLUSTER_STEPS
from spark_tui.manage.cluster.use.launch import ClusterLauncher, NotClean
from spark_tui.manage.images.use.update import STEPS as UPDATE_STEPS
from spark_tui.manage.images.use.update import Updater
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.run.launch.use.edit import Editor, EditPlan
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest, pending_steps

MAX_JOBS = 20
STOP: Final = Step("stop", "Stop on all nodes")
RECOVER: Final = Step("recover", "Finish or undo")


class JobRunner:
    """One task per launch. A failure is kept in the job's view, never raised into the loop."""

    @classmethod
    def from_context(cls, context: Context) -> JobRunner:
        return cls(
            context[Launcher],
            context[EngineSupervisor],
            context.store,
            context[Editor],
            (lambda: context[ClusterLauncher]) if context.ports.has("remote_shell") else None,
            lambda: context[Updater],
        )

    def __init__(
        self, launcher: Launcher, supervisor: EngineSupervisor, store: Store, editor: Editor,
        clusters: Callable[[], ClusterLauncher] | None = None, updater: Callable[[], Updater] | None = None,
    ) -> None:  # fmt: skip
        """`clusters` is asked when something is done on several nodes; None: it cannot be. `updater` likewise for
        updates of images."""
        self._clusters = clusters
        self._updater = updater
        self._updates: set[str] = set()
        self._launcher = launcher
        self._editor = editor
        self._supervisor = supervisor
        self._store = store
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)

    def launch(self, request: LaunchRequest) -> str:
        """Starts a launch and returns the job's id. Raises RefusedError when that engine is being launched already."""
        name, wanted = request.overrides.name or request.preset.name, (request.preset, request.overrides)
        job = self._begin(name, lambda report: self._launcher.launch(request, report), launches=wanted)
        changed = ", ".join(f"{key}={value}" for key, value in pairs_of(request.overrides).items())
        self._store.say(f"{name}: launch requested", kind=EventKind.LAUNCH, subject=name, detail=changed)
        return job

    def edit(self, plan: EditPlan, *, rollback: bool = True, force: bool = False, fetch: bool = True) -> str:
        """Like `launch`, for an engine that runs already."""
        editor, name = self._editor, plan.name
        job = self._begin(name, partial(editor.run, plan, rollback=rollback, force=force, fetch=fetch), what="edit")
        changed = ", ".join(f"{each.label} {each.before} -> {each.after}" for each in plan.differences)
        self._store.say(f"{name}: edit requested", kind=EventKind.EDIT, subject=name, detail=changed)
        return job

    def update(self, preset: Preset, engine: str, *, keep: bool | None = None) -> str:
        """Like `launch`: tries the newer image of a preset up to the decision, or with `keep` carries that out. A
        cancelled one brings what ran before back, and can be continued."""

        async def work(report: Report) -> None:
            if keep is not None:
                decide = self._updates_of.keep if keep else self._updates_of.back
                await decide(preset.name, report)
                self._store.say(
                    f"{preset.name}: {'new image kept' if keep else 'old image again'}", kind=EventKind.IMAGE
                )
            elif await self._updates_of.run(preset, report) is None:
                self._store.say(f"{preset.name}: nothing to update", kind=EventKind.IMAGE)
            else:
                text = f"{preset.name}: the new image serves. Keep it or go back: {key_of('update_preset')} on Presets"
                self._store.say(text, Severity.WARNING, kind=EventKind.IMAGE, subject=engine)

        steps = (*(UPDATE_STEPS if keep is None else ()), *pending_steps())
        job = self._begin(engine, work, steps, what="update")
        self._updates.add(job)
        return job

    @property
    def _updates_of(self) -> Updater:
        if self._updater is None:
            raise RefusedError("Updates are not available here.", "Use the command line: spark-tui update NAME")
        return self._updater()

    # --- several nodes --------------------------------------------------------------------------------

    def launch_on_nodes(self, record: ClusterRecord, *, replace_running: bool = False) -> str:
        """Like `launch`, on the nodes of the record; `replace_running` stops another launch of that name first. One
        that fails or is cancelled is undone on all nodes; one that is ready is watched from then on."""
        steps = tuple(Step(id_, label) for id_, label in CLUSTER_STEPS)

        async def work(report: Report) -> None:
            ready = await self._on_nodes.launch(record, report, replace_running=replace_running)
            self._say(record, f"ready on {', '.join(record.nodes)}", EventKind.READY)
            await self._watch(ready)

        job = self._begin(record.name, work, steps, record.nodes)
        self._say(record, "launch requested", detail=f"{record.preset} on {record.cluster}")
        return job

    def stop_on_nodes(self, record: ClusterRecord) -> str:
        """Stops and removes every rank, and proves each node clean; the job fails for one that is not. Raises
        RefusedError while a launch of that name is under way."""
        return self._begin(record.name, lambda report: self._stop(record, report), (STOP,), record.nodes, "stop")

    async def _watch(self, record: ClusterRecord) -> None:
        try:
            await in_thread(self._on_nodes.watched, record)
        except SparkError as error:
            self._store.say(error.summary, Severity.WARNING, error.remedy, subject=record.name)

    async def _stop(self, record: ClusterRecord, report: Report) -> None:
        report(replace(STOP, state=StepState.RUNNING, detail=", ".join(record.nodes)))
        results = await self._on_nodes.stop(record.name)
        left = [each for each in results if not each.clean]
        proof = " ".join(each.text for each in results)
        report(replace(STOP, state=StepState.FAILED if left else StepState.DONE, detail=proof))
        if left:
            why = next((each.problem.remedy for each in left if each.problem is not None), "")
            again = f"Stop {record.name} again when the node answers ({key_of('stop')})."
            raise NotClean(" ".join(each.text for each in left), f"{again} {why}".rstrip())
        self._say(record, f"stopped on all nodes. {proof}", EventKind.STOPPED)

    async def _recover_nodes(self) -> None:
        """Finishes or undoes launches on several nodes that an earlier program left half done; what serves is watched
        again."""
        try:
            records = self._on_nodes.records() if self._clusters is not None else ()
        except SparkError as error:
            self._store.say(error.summary, Severity.ERROR, error.remedy)
            return
        for record in records:
            if record.stage in UNFINISHED and not self.running(record.name):
                self._begin(record.name, partial(self._recover, record), (RECOVER,), record.nodes, "recovery")
            elif record.stage is Stage.READY:
                await self._watch(record)

    async def _recover(self, record: ClusterRecord, report: Report) -> None:
        what = "launch" if record.stage is Stage.STARTING else "stop"
        report(replace(RECOVER, state=StepState.RUNNING, detail=f"an interrupted {what}"))
        try:
            found = await self._on_nodes.recover(record)
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

    @property
    def _on_nodes(self) -> ClusterLauncher:
        if self._clusters is None:
            raise RefusedError("Clusters are not available in the demo.", "Start without --demo.")
        return self._clusters()

    # --- one node -------------------------------------------------------------------------------------

    def resume(self, name: str) -> str:
        """Follows an engine that starts already, to ready and warm."""
        return self._begin(name, lambda report: self._launcher.resume(name, report))

    async def resume_starting(self) -> None:
        """Picks up our containers that were starting when this program was last closed, once it is known which do; what
        was interrupted on other nodes at once, for that this machine needs no Docker."""
        await self._recover_nodes()
        await self._supervisor.settled()
        editor = self._editor
        for problem in editor.unreadable():
            self._store.say(problem.summary, Severity.WARNING, problem.remedy, kind=EventKind.EDIT)
        for entry in editor.interrupted():
            text = f"An edit or A/B of {entry.name} was interrupted: it is finished now."
            self._store.say(text, kind=EventKind.EDIT, subject=entry.name)
            self._begin(entry.name, lambda report, name=entry.name: editor.finish(name, report))  # type: ignore[misc]
        for view in self._supervisor.views():
            alone = view.container.ours and rank_of(view.container) is None
            if alone and view.state is EngineState.STARTING and not self.running(view.name):
                self.resume(view.name)

    def running(self, name: str) -> JobView | None:
        jobs = self._store.world.jobs
        return next((job for job in jobs if job.title == name and job.id in self._tasks), None)

    async def cancel(self, name: str) -> None:
        """Cancels a launch: what it created and started is stopped; the container stays for its log. A cancelled edit
        brings the former settings back, a launch on several nodes is undone on all of them."""
        job = self.running(name)
        if job is None:
            raise RefusedError(f"No launch of {name} is under way.", "Nothing to cancel.")
        if job.nodes and job.steps[0].id == STOP.id:
            raise RefusedError(f"{name} is being stopped.", "Wait until all nodes have answered.")
        await end_tasks(self._tasks[job.id])
        if job.nodes:
            left = self._on_nodes.read(name)
            if left is not None:  # a node did not answer, or a recovery was cancelled
                self.stop_on_nodes(left)
            return
        editor = self._editor
        if editor.cancelled(name):
            self._begin(name, lambda report: editor.finish(name, report))
            return
        if job.id in self._updates:  # what runs is the old engine
            return
        watch = self._supervisor.find(name)
        if watch is not None and watch.container.running and watch.container.ours:
            await self._supervisor.stop(name)

    async def close(self) -> None:
        """Stops following; containers and downloads continue."""
        self._launcher.let_go()
        if any(job.nodes and job.id in self._tasks for job in self._store.world.jobs):
            self._on_nodes.let_go()
        await end_tasks(*self._tasks.values())

    def _begin(
        self, name: str, work: Callable[[Report], Awaitable[object]], steps: tuple[Step, ...] = (),
        nodes: tuple[str, ...] = (), what: str = "launch", launches: tuple[Preset, Overrides] | None = None,
    ) -> str:  # fmt: skip
        if self.running(name) is not None:
            raise RefusedError(f"{name} is being launched already.", "Wait for it, or cancel it first.")
        job = JobView(
            str(next(self._numbers)), name, steps or pending_steps(), nodes=nodes, launches=launches, what=what
        )
        others = tuple(old for old in self._store.world.jobs if old.title != name)
        self._store.update(jobs=(*others, job)[-MAX_JOBS:])
        self._tasks[job.id] = asyncio.create_task(self._run(job.id, name, work, what))
        return job.id

    async def _run(self, job_id: str, name: str, work: Callable[[Report], Awaitable[object]], what: str) -> None:
        def change(make: Callable[[JobView], JobView]) -> None:
            self._store.update(jobs=tuple(make(job) if job.id == job_id else job for job in self._store.world.jobs))

        def report(step: Step) -> None:
            job = next((job for job in self._store.world.jobs if job.id == job_id), None)
            before = next((old for old in job.steps if old.id == step.id), None) if job is not None else None
            change(lambda job: replace(job, steps=put(job.steps, step)))
            if news := step_news(before, step):
                self._store.say(f"{name}: {news}", kind=STEP_EVENTS[step.id], subject=name, detail=step.detail)

        try:
            await work(report)
        except SparkError as failure:
            error = failure
            change(
                lambda job: replace(
                    job, state=StepState.FAILED, error=error.summary, remedy=error.remedy, detail=error.detail
                )
            )
            self._store.say(
                f"{what} of {name} failed: {error.summary}", Severity.ERROR, error.remedy, kind=EventKind.FAILED,
                subject=name, detail=error.detail,
            )  # fmt: skip
        except asyncio.CancelledError:
            change(lambda job: replace(job, state=StepState.CANCELLED))
            self._store.say(f"{name}: {what} cancelled", kind=EventKind.LAUNCH, subject=name)
            raise
        else:
            change(lambda job: replace(job, state=StepState.DONE))
        finally:
            self._tasks.pop(job_id, None)
