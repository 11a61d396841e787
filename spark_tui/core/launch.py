"""From a preset to a warm server: preflight, fetch, pull, memory, create, start, follow, ready, warm.

Every step is reported as it moves, can be cancelled, and is safe to repeat: what is already done is skipped.
Ready means that `/health` answers 200 and `/v1/models` lists a model; a running container proves nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, replace

from spark_tui.core.downloads import LaunchDownloads
from spark_tui.core.engines import EngineSupervisor, EngineWatch
from spark_tui.core.fit import MemoryGate
from spark_tui.core.guard import GuardLauncher, LoadGuard
from spark_tui.core.jobs import JobView, Report, Step, StepReporter, StepState, put
from spark_tui.core.poller import pause
from spark_tui.core.preflight import Preflight, PreflightStatus
from spark_tui.core.store import Store
from spark_tui.domain.chat.message import ChatParameters, ChatRequest, Message, Role
from spark_tui.domain.engine.container import LABEL_SPEC_HASH, ContainerFacts
from spark_tui.domain.engine.runtimes import runtime_named
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.errors import EngineExited, RefusedError, SparkError
from spark_tui.domain.finding import Severity
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.quantities import human_bytes, human_duration
from spark_tui.services.ports import Clock, ContainerEngine, EngineApi, LogArchive, LogLine

STEPS: tuple[tuple[str, str], ...] = (
    ("preflight", "Check"),
    ("fetch", "Fetch model"),
    ("pull", "Pull image"),
    ("memory", "Memory"),
    ("create", "Create container"),
    ("start", "Start"),
    ("follow", "Boot"),
    ("ready", "Ready"),
    ("warm", "Warm up"),
)

DEFAULT_READY_TIMEOUT_SECONDS = 3600.0
LAST_LINES_SECONDS = 5.0
MAX_JOBS = 20


def pending_steps() -> tuple[Step, ...]:
    return tuple(Step(id_, label) for id_, label in STEPS)


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What to launch. `wait` follows it until it is ready and warm; `replace_running` stops an engine of the same
    name that runs with other settings; `force` launches what does not fit into memory; `fetch` brings what is missing
    of the model into the store first, where the engine would fetch it by itself."""

    preset: Preset
    overrides: Overrides
    wait: bool = True
    warm: bool = True
    replace_running: bool = False
    force: bool = False
    fetch: bool = True


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The outcome: the container, and where it serves."""

    container_id: str
    plan: LaunchPlan
    view: EngineView
    already_running: bool


class Launcher:
    """Runs launches. One object serves many. `fetching` None: there is no Hub, and engines fetch by themselves."""

    def __init__(
        self,
        docker: ContainerEngine,
        api: EngineApi,
        archive: LogArchive,
        supervisor: EngineSupervisor,
        preflight: Preflight,
        clock: Clock,
        load_guard: LoadGuard | None,
        gate: MemoryGate,
        fetching: LaunchDownloads | None,
        guard_launcher: GuardLauncher | None,
    ) -> None:
        self._docker = docker
        self._api = api
        self._archive = archive
        self._supervisor = supervisor
        self._preflight = preflight
        self._clock = clock
        self._guard_launcher = guard_launcher
        self._load_guard = load_guard
        self._gate = gate
        self._fetching = fetching

    async def launch(self, request: LaunchRequest, report: Report) -> LaunchResult:
        """Brings the preset up. Raises the error of the step that failed, after reporting that step as failed."""
        steps = StepReporter(pending_steps(), report, self._clock)
        async with steps.running("preflight"):
            status = await self._preflight.check(
                request.preset,
                request.overrides,
                replace_running=request.replace_running,
                fetches=request.fetch and self._fetching is not None,
            )
            if not status.runs:
                await self._gate.check(status.plan, force=request.force)
            where = f"{status.plan.spec.name} on port {status.plan.host_port}"
            steps.detail("preflight", f"{where}: already running" if status.runs else where)
        await self._fetch(status, request, steps)
        await self._pull(status, steps)
        plan = await self._preflight.finish(status, request.preset, request.overrides)
        await self._make_room(status, request, steps)
        container_id = await self._bring_up(status, plan, steps)
        watch = await self._supervisor.watch(container_id)
        if self._guard_launcher is not None:
            await self._guard_launcher.ensure()
        if request.wait:
            await self._until_ready(watch, steps, request.preset.ready_timeout_seconds)
            if request.warm:
                await self._warm(watch, steps)
            else:
                steps.skip("warm", "not requested")
        return LaunchResult(container_id, plan, watch.view(), status.runs)

    async def resume(self, name: str, report: Report) -> EngineView:
        """Follows a container that starts already: after a restart of this program, or started by someone else."""
        steps = StepReporter(pending_steps(), report, self._clock)
        for id_ in ("preflight", "fetch", "pull", "memory", "create", "start"):
            steps.skip(id_, "done earlier")
        watch = await self._supervisor.watch(name)
        await self._until_ready(watch, steps)
        if watch.container.ours:
            await self._warm(watch, steps)
        return watch.view()

    def let_go(self) -> None:
        """This program is closing: downloads of a launch continue without it."""
        if self._fetching is not None:
            self._fetching.let_go()

    # --- before the container -------------------------------------------------------------------------

    async def _fetch(self, status: PreflightStatus, request: LaunchRequest, steps: StepReporter) -> None:
        """Brings the model, its drafter and its plugin files into the store, as far as they are not there."""
        if status.runs or self._fetching is None or not request.fetch:
            steps.skip("fetch", "already running" if status.runs else "left to the engine")
            return
        async with steps.running("fetch"):
            wanted = await self._fetching.look(status.plan)
            if not wanted.plans:
                steps.skip("fetch", "model downloaded" if wanted.here else "nothing to download")
                return
            done = await self._fetching.fetch(wanted, lambda text, share: steps.detail("fetch", text, share))
            steps.detail("fetch", done)

    async def _pull(self, status: PreflightStatus, steps: StepReporter) -> None:
        if status.image is not None:
            steps.skip("pull", "image downloaded")
            return
        reference = status.plan.preset.reference
        async with steps.running("pull"), aclosing(self._docker.pull(reference)) as progress:
            async for each in progress:
                done, total = each.current_bytes, each.total_bytes
                text = f"{human_bytes(done)} of {human_bytes(total)}" if total else each.status
                steps.detail("pull", text, done / total if total else None)

    async def _make_room(self, status: PreflightStatus, request: LaunchRequest, steps: StepReporter) -> None:
        """Ends the engine that is replaced, awaits its memory, and checks that the launch fits into what is free
        then."""
        if status.runs:
            steps.skip("memory", "already running")
            return
        async with steps.running("memory"):
            existing = status.existing
            if existing is not None and existing.running:
                steps.detail("memory", f"stopping {existing.name}")
                await self._supervisor.stop(existing.name)

            def say(text: str) -> None:
                steps.detail("memory", text)

            say(await self._gate.make_room(status.plan, say, force=request.force))

    # --- container ------------------------------------------------------------------------------------

    async def _bring_up(self, status: PreflightStatus, plan: LaunchPlan, steps: StepReporter) -> str:
        existing = status.existing
        if status.runs and existing is not None:
            steps.skip("create", "exists")
            steps.skip("start", "already running")
            return existing.id
        same = existing is not None and existing.spec_hash == plan.spec.label(LABEL_SPEC_HASH)
        if existing is not None and same:
            steps.skip("create", "exists with the same settings")
            container_id = existing.id
        else:
            async with steps.running("create"):
                if existing is not None:
                    steps.detail("create", await self._clear(existing))
                container_id = await self._docker.create(plan.spec)
        name = plan.spec.name  # errors show it
        async with steps.running("start"):
            try:
                await self._docker.start(name)
            except SparkError:
                # A container that never ran holds the name and no log worth keeping.
                if not same:
                    await self._docker.remove(name, force=True)
                raise
        return container_id

    async def _clear(self, existing: ContainerFacts) -> str:
        """Makes room for a container of the same name; the old one's log is kept."""
        if existing.running:
            await self._docker.stop(existing.id)
        lines: list[LogLine] = []
        async with aclosing(self._docker.logs(existing.id, follow=False)) as batches:
            async for batch in batches:
                lines.extend(batch)
        kept = f"old log kept in {self._archive.save(existing.name, lines)}" if lines else "replaces an earlier one"
        await self._docker.remove(existing.id)
        return kept

    # --- boot -----------------------------------------------------------------------------------------

    async def _until_ready(self, watch: EngineWatch, steps: StepReporter, patience: float | None = None) -> None:
        """Steps `follow` and `ready`; memory is kept free while it loads."""
        patience = patience or DEFAULT_READY_TIMEOUT_SECONDS
        name = watch.view().name
        async with self._load_guard.during(name) if self._load_guard is not None else nullcontext():
            async with steps.running("follow"):
                await self._follow(watch, steps, patience)
            view = watch.view()
            models = ", ".join(model.id for model in view.models)
            steps.done("ready", f"{models or 'serving'} at {view.base_url}")

    async def _follow(self, watch: EngineWatch, steps: StepReporter, patience: float) -> None:
        deadline = self._clock.monotonic() + patience
        while (view := watch.view()).state is not EngineState.SERVING:
            if view.state in (EngineState.FAILED, EngineState.STOPPED):
                # The reason is in the log, which may still be on its way.
                await pause(self._clock, LAST_LINES_SECONDS, watch.log_read)
                raise _exited(watch.view())
            phase = view.timeline.current
            if phase is not None:
                steps.detail("follow", f"{phase.label} {phase.detail}".strip(), phase.progress)
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise EngineExited(
                    f"{view.name} was not ready after {human_duration(patience)}.",
                    f"It is still running: read its log, or stop it with: spark-tui down {view.name}",
                    detail=view.timeline.news,
                )
            tasks = [asyncio.ensure_future(watch.moved()), asyncio.ensure_future(self._clock.sleep(min(left, 5.0)))]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()

    async def _warm(self, watch: EngineWatch, steps: StepReporter) -> None:
        """Step `warm`: the slow first request. A failure of it is reported and does not undo the launch."""
        view, endpoint = watch.view(), watch.endpoint
        if endpoint is None or not view.served_name:
            steps.skip("warm", "no served name")
            return
        runtime = runtime_named(view.runtime)
        steps.begin("warm", runtime.first_request)
        started, patience = self._clock.monotonic(), runtime.first_request_seconds
        request = ChatRequest(view.served_name, (Message(Role.USER, "ping"),), ChatParameters(max_tokens=3))
        try:
            async with asyncio.timeout(patience), aclosing(self._api.chat(endpoint, request)) as events:
                async for _ in events:
                    pass
        except TimeoutError:
            steps.fail("warm", f"no answer within {human_duration(patience)}")
        except SparkError as error:
            steps.fail("warm", str(error))
        else:
            watch.mark_warm(self._clock.monotonic() - started)
            steps.done("warm", "")


def _exited(view: EngineView) -> EngineExited:
    failure = view.timeline.failure
    summary = f"{view.name} ended before it was ready (exit code {view.container.exit_code})."
    if failure is None:
        return EngineExited(summary, f"Read its log: spark-tui logs {view.name}", detail=view.timeline.news)
    remedy = f"The whole log: spark-tui logs {view.name}"
    return EngineExited(f"{summary} {failure.line}", remedy, detail=failure.line)


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
        return self._begin(name, lambda report: self._launcher.launch(request, report))

    def resume(self, name: str) -> str:
        """Follows an engine that starts already, to ready and warm."""
        return self._begin(name, lambda report: self._launcher.resume(name, report))

    async def resume_starting(self) -> None:
        """Picks up our containers that were starting when this program was last closed, once it is known which do."""
        await self._supervisor.settled()
        for view in self._supervisor.views():
            if view.container.ours and view.state is EngineState.STARTING and not self.running(view.name):
                self.resume(view.name)

    def running(self, name: str) -> JobView | None:
        jobs = self._store.world.jobs
        return next((job for job in jobs if job.title == name and job.id in self._tasks), None)

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
        """Stops following; containers and downloads continue."""
        self._launcher.let_go()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, name: str, work: Callable[[Report], Awaitable[object]]) -> str:
        if self.running(name) is not None:
            raise RefusedError(f"{name} is being launched already.", "Wait for it, or cancel it first.")
        job = JobView(str(next(self._numbers)), name, pending_steps())
        others = tuple(old for old in self._store.world.jobs if old.title != name)
        self._store.update(jobs=(*others, job)[-MAX_JOBS:])
        self._tasks[job.id] = asyncio.create_task(self._run(job.id, name, work))
        return job.id

    async def _run(self, job_id: str, name: str, work: Callable[[Report], Awaitable[object]]) -> None:
        def change(make: Callable[[JobView], JobView]) -> None:
            self._store.update(jobs=tuple(make(job) if job.id == job_id else job for job in self._store.world.jobs))

        try:
            await work(lambda step: change(lambda job: replace(job, steps=put(job.steps, step))))
        except SparkError as failure:
            error = failure
            change(
                lambda job: replace(
                    job, state=StepState.FAILED, error=error.summary, remedy=error.remedy, detail=error.detail
                )
            )
            self._supervisor.say(f"launch of {name} failed: {error.summary}", Severity.ERROR, error.remedy)
        except asyncio.CancelledError:
            change(lambda job: replace(job, state=StepState.CANCELLED))
            raise
        else:
            change(lambda job: replace(job, state=StepState.DONE))
        finally:
            self._tasks.pop(job_id, None)


def launched_with(container: ContainerFacts) -> dict[str, str]:
    """The changes to its preset that a container was launched with. Raises RefusedError for a label that is not
    ours."""
    try:
        pairs = json.loads(container.overrides or "{}")
    except ValueError:
        pairs = None
    if not isinstance(pairs, dict) or not all(isinstance(value, str) for value in pairs.values()):
        raise RefusedError(
            f"The settings of {container.name} cannot be read from its label.", "Launch it again from its preset."
        )
    return pairs
