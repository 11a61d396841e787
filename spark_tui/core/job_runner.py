"""Runs launches in the background and keeps them in the store, where every screen sees them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace

from spark_tui.core.engines import EngineSupervisor
from spark_tui.core.jobs import JobView, Step, StepState, put
from spark_tui.core.launch import Launcher, LaunchRequest, pending_steps
from spark_tui.core.step_reporter import Report
from spark_tui.core.store import Store
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.errors import RefusedError, SparkError
from spark_tui.domain.event import Severity

MAX_JOBS = 20


class JobRunner:
    """One task per launch. A failure is kept in the job's view, never raised into the loop."""

    def __init__(self, launcher: Launcher, supervisor: EngineSupervisor, store: Store) -> None:
        self._launcher = launcher
        self._supervisor = supervisor
        self._store = store
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)

    def launch(self, request: LaunchRequest) -> str:
        """Starts a launch and returns the job's id. Raises RefusedError when that engine is being launched already."""
        name = request.overrides.name or request.preset.name

        async def work(report: Report) -> None:
            await self._launcher.launch(request, report)

        return self._begin(name, work)

    def resume(self, name: str) -> str:
        """Follows an engine that starts already, to ready and warm."""

        async def work(report: Report) -> None:
            await self._launcher.resume(name, report)

        return self._begin(name, work)

    async def resume_starting(self) -> None:
        """Picks up our containers that were starting when this program was last closed, once it is known which do."""
        await self._supervisor.settled()
        for view in self._supervisor.views():
            if view.container.ours and view.state is EngineState.STARTING and not self.running(view.name):
                self.resume(view.name)

    def running(self, name: str) -> JobView | None:
        """The job that launches that engine now."""
        for job in self._store.world.jobs:
            if job.title == name and job.id in self._tasks:
                return job
        return None

    async def cancel(self, name: str) -> None:
        """Cancels a launch: what it created and started is stopped; the container stays for its log."""
        job = self.running(name)
        if job is None:
            raise RefusedError(f"No launch of {name} is under way.", "Nothing to cancel.")
        task = self._tasks[job.id]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        watch = self._supervisor.find(name)
        if watch is not None and watch.container.running and watch.container.ours:
            await self._supervisor.stop(name)

    async def close(self) -> None:
        """Stops following; containers and downloads go on."""
        self._launcher.let_go()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, name: str, work: Callable[[Report], Awaitable[None]]) -> str:
        if self.running(name) is not None:
            raise RefusedError(f"{name} is being launched already.", "Wait for it, or cancel it first.")
        job = JobView(str(next(self._numbers)), name, pending_steps())
        others = tuple(old for old in self._store.world.jobs if old.title != name)
        self._store.update(jobs=(*others, job)[-MAX_JOBS:])
        self._tasks[job.id] = asyncio.create_task(self._run(job.id, name, work))
        return job.id

    async def _run(self, job_id: str, name: str, work: Callable[[Report], Awaitable[None]]) -> None:
        def report(step: Step) -> None:
            self._change(job_id, lambda job: replace(job, steps=put(job.steps, step)))

        def end(state: StepState, error: SparkError | None = None) -> None:
            summary, remedy, detail = (error.summary, error.remedy, error.detail) if error else ("", "", "")
            self._change(job_id, lambda job: replace(job, state=state, error=summary, remedy=remedy, detail=detail))

        try:
            await work(report)
        except SparkError as error:
            end(StepState.FAILED, error)
            self._supervisor.say(f"launch of {name} failed: {error.summary}", Severity.ERROR, error.remedy)
        except asyncio.CancelledError:
            end(StepState.CANCELLED)
            raise
        else:
            end(StepState.DONE)
        finally:
            self._tasks.pop(job_id, None)

    def _change(self, job_id: str, change: Callable[[JobView], JobView]) -> None:
        jobs = tuple(change(job) if job.id == job_id else job for job in self._store.world.jobs)
        self._store.update(jobs=jobs)
