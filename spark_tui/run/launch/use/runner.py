"""Launches and edits as jobs, and what other rooms do with an engine: one task per engine, and what became of each."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.state import EngineState
from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.executors import end_tasks
from spark_tui.base.finding import EventKind, Severity
from spark_tui.base.jobs import STEP_EVENTS, JobView, Report, Step, StepState, put, step_news
from spark_tui.base.protocol import rank_of
from spark_tui.base.store import Store
from spark_tui.catalog.presets.model.overrides import Overrides, pairs_of
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.run.launch.use.edit import Editor, EditPlan
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest, pending_steps

MAX_JOBS = 20


class JobRunner:
    """One task per launch. A failure is kept in the job's view, never raised into the loop."""

    @classmethod
    def from_context(cls, context: Context) -> JobRunner:
        return cls(
            context[Launcher],
            context[EngineSupervisor],
            context.store,
            context[Editor],
        )

    def __init__(self, launcher: Launcher, supervisor: EngineSupervisor, store: Store, editor: Editor) -> None:
        self._launcher = launcher
        self._editor = editor
        self._supervisor = supervisor
        self._store = store
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._undo: dict[str, Callable[[], object]] = {}
        self._numbers = itertools.count(1)
        self.launched: dict[str, tuple[Preset, Overrides]] = {}
        """What each launch on this machine is of, by the job's id."""

    def launch(self, request: LaunchRequest) -> str:
        """Starts a launch and returns the job's id. Raises RefusedError when that engine is being launched already."""
        name, wanted = request.overrides.name or request.preset.name, (request.preset, request.overrides)
        job = self.begin(name, lambda report: self._launcher.launch(request, report))
        self.launched[job] = wanted
        changed = ", ".join(f"{key}={value}" for key, value in pairs_of(request.overrides).items())
        self._store.say(f"{name}: launch requested", kind=EventKind.LAUNCH, subject=name, detail=changed)
        return job

    def edit(self, plan: EditPlan, *, rollback: bool = True, force: bool = False, fetch: bool = True) -> str:
        """Like `launch`, for an engine that runs already."""
        editor, name = self._editor, plan.name
        job = self.begin(name, partial(editor.run, plan, rollback=rollback, force=force, fetch=fetch), what="edit")
        changed = ", ".join(f"{each.label} {each.before} -> {each.after}" for each in plan.differences)
        self._store.say(f"{name}: edit requested", kind=EventKind.EDIT, subject=name, detail=changed)
        return job

    def resume(self, name: str) -> str:
        """Follows an engine that starts already, to ready and warm."""
        return self.begin(name, lambda report: self._launcher.resume(name, report))

    async def resume_starting(self) -> None:
        """Picks up our containers that were starting when this program was last closed, once it is known which do."""
        await self._supervisor.settled()
        editor = self._editor
        for problem in editor.unreadable():
            self._store.say(problem.summary, Severity.WARNING, problem.remedy, kind=EventKind.EDIT)
        for entry in editor.interrupted():
            text = f"An edit or A/B of {entry.name} was interrupted: it is finished now."
            self._store.say(text, kind=EventKind.EDIT, subject=entry.name)
            self.begin(entry.name, lambda report, name=entry.name: editor.finish(name, report))  # type: ignore[misc]
        for view in self._supervisor.views():
            alone = view.container.ours and rank_of(view.container) is None
            if alone and view.state is EngineState.STARTING and not self.running(view.name):
                self.resume(view.name)

    def running(self, name: str) -> JobView | None:
        jobs = self._store.world.jobs
        return next((job for job in jobs if job.title == name and job.id in self._tasks), None)

    async def cancel(self, name: str) -> None:
        """Cancels a launch: what it created and started is stopped; the container stays for its log. A cancelled edit
        brings the former settings back; what another room began is undone as it says."""
        job = self.running(name)
        if job is None:
            raise RefusedError(f"No launch of {name} is under way.", "Nothing to cancel.")
        if job.what == "stop":
            raise RefusedError(f"{name} is being stopped.", "Wait until all nodes have answered.")
        editor, undo = self._editor, self._undo.get(job.id)
        await end_tasks(self._tasks[job.id])
        if not job.nodes and editor.cancelled(name):
            self.begin(name, lambda report: editor.finish(name, report))
            return
        if undo is not None:
            undo()
            return
        watch = self._supervisor.find(name)
        if watch is not None and watch.container.running and watch.container.ours:
            await self._supervisor.stop(name)

    async def close(self) -> None:
        """Stops following; containers and downloads continue."""
        self._launcher.let_go()
        await end_tasks(*self._tasks.values())

    def begin(
        self,
        name: str,
        work: Callable[[Report], Awaitable[object]],
        steps: tuple[Step, ...] = (),
        nodes: tuple[str, ...] = (),
        what: str = "launch",
        undo: Callable[[], object] | None = None,
    ) -> str:
        """Starts any work on an engine as a job, and returns its id. `undo` is called once it was cancelled, in
        place of stopping the engine. Raises RefusedError while that engine is worked on."""
        if self.running(name) is not None:
            raise RefusedError(f"{name} is being launched already.", "Wait for it, or cancel it first.")
        job = JobView(str(next(self._numbers)), name, steps or pending_steps(), nodes=nodes, what=what)
        others = tuple(old for old in self._store.world.jobs if old.title != name)
        self._store.update(jobs=(*others, job)[-MAX_JOBS:])
        if undo is not None:
            self._undo[job.id] = undo
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
                f"{what} of {name} failed: {error.summary}",
                Severity.ERROR,
                error.remedy,
                kind=EventKind.FAILED,
                subject=name,
                detail=error.detail,
            )
        except asyncio.CancelledError:
            change(lambda job: replace(job, state=StepState.CANCELLED))
            self._store.say(f"{name}: {what} cancelled", kind=EventKind.LAUNCH, subject=name)
            raise
        else:
            change(lambda job: replace(job, state=StepState.DONE))
        finally:
            self._tasks.pop(job_id, None)
            self._undo.pop(job_id, None)
