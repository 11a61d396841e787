"""From a preset to a warm server: preflight, fetch, pull, memory, create, start, follow, ready, warm.

Every step is reported as it moves, can be cancelled, and is safe to repeat: what is already done is skipped.
Ready means that `/health` answers 200 and `/v1/models` lists a model; a running container proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, nullcontext, suppress
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts, outside_docker
from spark_tui.base.engine.message import ChatParameters, ChatRequest, Message, Role
from spark_tui.base.engine.runtimes import is_pooling, runtime_named
from spark_tui.base.engine.state import EngineState, Exposure
from spark_tui.base.errors import EngineExited, NoSuchPath, RefusedError, SparkError
from spark_tui.base.executors import pause
from spark_tui.base.jobs import Report, Step, StepReporter, StepState
from spark_tui.base.ports import Clock, ContainerEngine, EngineApi, LogArchive
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.base.settings import ExposureChoice
from spark_tui.base.untrusted import load_json
from spark_tui.catalog.fit.use.fit import Launch, LaunchChecks, MemoryGate, share_of
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import Preset, PresetCatalogue
from spark_tui.catalog.presets.use.launch_downloads import LaunchDownloads, launch_downloads
from spark_tui.catalog.presets.use.preflight import PreflightStatus
from spark_tui.catalog.presets.use.rights import require_reviewed
from spark_tui.observe.engines.use.collectors import clear_container
from spark_tui.observe.engines.use.engines import EngineSupervisor, EngineWatch
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.memory.use.guard import GuardLauncher, LoadGuard, guard_launcher

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
LOOK_SECONDS = 2.0
"""Between two looks at a boot that says nothing: whether Docker is still there."""
SET_ASIDE = "-former"
"""Ends the name of a container that is replaced, until its successor runs; of one that is edited, until it serves."""
DOCKER = "docker"
"""The step that is added where Docker goes away during a boot."""
RESTORE = "restore"
"""The step that going back adds to those of a launch."""


def pending_steps() -> tuple[Step, ...]:
    return tuple(Step(id_, label) for id_, label in STEPS)


class LaunchRequest(Struct, frozen=True):
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


class LaunchResult(Struct, frozen=True):
    """The outcome: the container, and where it serves."""

    container_id: str
    plan: LaunchPlan
    view: EngineView
    already_running: bool


class Launcher(Struct, eq=False):
    """Runs launches. One object serves many. `fetching` None: there is no Hub, and engines fetch by themselves.
    `reviewed` raises for a preset whose content the person has not approved."""

    _docker: ContainerEngine
    _api: EngineApi
    _archive: LogArchive
    _supervisor: EngineSupervisor
    _clock: Clock
    _load_guard: LoadGuard | None
    _checks: LaunchChecks
    _gate: MemoryGate
    _fetching: LaunchDownloads | None
    _guard_launcher: GuardLauncher | None
    _reviewed: Callable[[Preset], None] = lambda _: None

    @classmethod
    def from_context(cls, context: Context) -> Launcher:
        return cls(
            context.docker,
            context.api,
            context.archive,
            context[EngineSupervisor],
            context.clock,
            context[LoadGuard],
            context[LaunchChecks],
            context[MemoryGate],
            context.once(launch_downloads),
            context.once(guard_launcher),
            partial(require_reviewed, context),
        )

    async def launch(
        self, request: LaunchRequest, report: Report, *, keep: str = "", planned: Launch | None = None
    ) -> LaunchResult:
        """Brings the preset up. A container of the id `keep` is set aside and not removed; `planned` is this launch as
        it was asked about before. Raises the error of the step that failed, after reporting that step as failed."""
        steps = StepReporter(pending_steps(), report, self._clock)
        async with steps.running("preflight"):
            self._reviewed(request.preset)
            await self._gate.refresh()
            launch = planned or await self._checks.launch(request.preset, request.overrides)
            launch.settle()
            status = await self._checks.preflight.check(
                launch.plan,
                replace_running=request.replace_running,
                fetches=request.fetch and self._fetching is not None,
            )
            if not status.runs:
                await self._gate.check(launch, force=request.force)
            where = f"{launch.plan.spec.name} on port {launch.plan.host_port}"
            steps.detail("preflight", f"{where}: already running" if status.runs else where)
        await self._fetch(status, launch.plan, steps, fetch=request.fetch)
        await self._pull(status, request.preset.reference, steps)
        try:
            await self._make_room(status, launch, steps, force=request.force)
            if not status.runs:  # the model is there now, and the memory is another
                await self._gate.refresh()
                await launch.read()
                launch.settle()
            plan = await self._checks.preflight.finish(status, launch.plan)
            container_id = await self._bring_up(status, plan, steps, keep)
        except SparkError:
            await self._undo(status, launch.plan.spec.name, report)
            raise
        watch = await self._guarded(container_id)
        if request.wait:
            await self._until_ready(watch, steps, request.preset.ready_timeout_seconds, warm=request.warm)
            if not request.warm:
                steps.skip("warm", "not requested")
        return LaunchResult(container_id, plan, watch.view(), status.runs)

    async def resume(self, name: str, report: Report) -> EngineView:
        """Follows a container that starts already: after a restart of this program, or started by someone else."""
        steps = StepReporter(pending_steps(), report, self._clock)
        for id_ in ("preflight", "fetch", "pull", "memory", "create", "start"):
            steps.skip(id_, "done earlier")
        watch = await self._supervisor.watch(name)
        await self._until_ready(watch, steps, warm=watch.container.ours)
        return watch.view()

    async def bring_back(self, name: str, kept: ContainerFacts, report: Report) -> EngineView:
        """Starts a container that a launch set aside, in place of the one that has its name now: the same command,
        image and keys, whatever its preset and tag have become. Raises the error of the step that failed."""
        steps = StepReporter(pending_steps(), report, self._clock)
        async with steps.running("create"):
            for other in await self._docker.containers():
                if other.name == name and other.id != kept.id and other.ours:
                    steps.detail("create", await clear_container(self._docker, self._archive, other))
            if kept.name != name:
                await self._docker.rename(kept.id, name)
        async with steps.running("memory"):
            await self._gate.await_return(lambda text: steps.detail("memory", text))
        async with steps.running("start"):
            await self._docker.start(kept.id)
        watch = await self._guarded(kept.id)
        await self._until_ready(watch, steps)
        return watch.view()

    async def _guarded(self, container: str) -> EngineWatch:
        """The watch of a container that was just started, with the memory guard running."""
        watch = await self._supervisor.watch(container)
        if self._guard_launcher is not None:
            await self._guard_launcher.ensure()
        return watch

    def let_go(self) -> None:
        """This program is closing: downloads of a launch continue without it."""
        if self._fetching is not None:
            self._fetching.let_go()

    # --- before the container -------------------------------------------------------------------------

    async def _fetch(self, status: PreflightStatus, plan: LaunchPlan, steps: StepReporter, *, fetch: bool) -> None:
        """Brings the model, its drafter and its plugin files into the store, as far as they are not there."""
        if status.runs or self._fetching is None or not fetch:
            steps.skip("fetch", "already running" if status.runs else "left to the engine")
            return
        async with steps.running("fetch"):
            wanted = await self._fetching.look(plan)
            if not wanted.plans:
                steps.skip("fetch", "model downloaded" if wanted.here else "nothing to download")
                return
            steps.waits_for("fetch", (each.request.id for each in wanted.plans))
            done = await self._fetching.fetch(wanted, lambda text, share: steps.detail("fetch", text, share))
            steps.detail("fetch", done)

    async def _pull(self, status: PreflightStatus, reference: str, steps: StepReporter) -> None:
        if status.image is not None:
            steps.skip("pull", "image downloaded")
            return
        async with steps.running("pull"):
            await self.pull(reference, lambda text, share: steps.detail("pull", text, share))

    async def pull(self, reference: str, say: Callable[[str, float | None], None]) -> None:
        """Downloads an image; `say` is given words and the share that is done."""
        async with aclosing(self._docker.pull(reference)) as progress:
            async for each in progress:
                done, total = each.current_bytes, each.total_bytes
                text = f"{human_bytes(done)} of {human_bytes(total)}" if total else each.status
                say(text, done / total if total else None)

    async def _make_room(self, status: PreflightStatus, launch: Launch, steps: StepReporter, *, force: bool) -> None:
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

            say(await self._gate.make_room(launch, say, force=force))

    # --- container ------------------------------------------------------------------------------------

    async def _bring_up(self, status: PreflightStatus, plan: LaunchPlan, steps: StepReporter, keep: str) -> str:
        existing = status.existing
        if status.runs and existing is not None:
            steps.skip("create", "exists")
            steps.skip("start", "already running")
            return existing.id
        same = existing is not None and existing.made_by(plan.spec)
        if plan.preset.trial and existing is not None:
            same = same and status.image is not None and existing.image_id == status.image.id
        if existing is not None and same:
            steps.skip("create", "exists with the same settings")
            container_id = existing.id
        else:
            async with steps.running("create"):
                if existing is not None:
                    await self._set_aside(existing)
                container_id = await self._docker.create(plan.spec)
        name = plan.spec.name  # errors show it
        async with steps.running("start"):
            await self._docker.start(name)
            if not same and (former := await self._aside(name)) is not None and former.id != keep:
                try:
                    kept = await clear_container(self._docker, self._archive, replace(former, name=name))
                except SparkError as error:
                    kept = f"{former.name} is kept: {error.summary}"
                steps.detail("start", kept)
        return container_id

    async def _aside(self, name: str) -> ContainerFacts | None:
        """The container that had this name and was set aside."""
        found = (each for each in await self._docker.containers() if each.ours and each.name == name + SET_ASIDE)
        return next(found, None)

    async def _set_aside(self, existing: ContainerFacts) -> None:
        """Frees the name of a container that is started again where its successor cannot start."""
        await self._docker.stop(existing.id)
        if (older := await self._aside(existing.name)) is not None:
            await clear_container(self._docker, self._archive, older)
        await self._docker.rename(existing.id, existing.name + SET_ASIDE)

    async def _undo(self, status: PreflightStatus, name: str, report: Report) -> None:
        """After a launch that failed before its container ran: what it replaced has its name again, and runs again if
        it did. A container that never ran holds the name and no log worth keeping."""
        former = status.existing
        with suppress(SparkError):
            for each in await self._docker.containers():
                if each.name == name and each.started_at is None and (former is None or each.id != former.id):
                    await self._docker.remove(each.id, force=True)
            aside = await self._aside(name)
            if former is not None and aside is not None and aside.id == former.id:
                await self._docker.rename(former.id, name)
            if former is not None and former.running and not (await self._docker.inspect(former.id)).running:
                await self._docker.start(former.id)
                report(Step(RESTORE, "Go back", StepState.DONE, "the former engine starts again"))

    # --- boot -----------------------------------------------------------------------------------------

    async def _until_ready(
        self, watch: EngineWatch, steps: StepReporter, patience: float | None = None, *, warm: bool = True
    ) -> None:
        """Steps `follow` and `ready`; memory is kept free while it loads. Then `warm`."""
        patience = patience or DEFAULT_READY_TIMEOUT_SECONDS
        name = watch.view().name
        async with self._load_guard.during(name) if self._load_guard is not None else nullcontext():
            async with steps.running("follow"):
                await self._follow(watch, steps, patience)
            view = watch.view()
            models = ", ".join(model.id for model in view.models)
            steps.done("ready", f"{models or 'serving'} at {view.base_url}")
        if warm:
            await self._warm(watch, steps)

    async def _follow(self, watch: EngineWatch, steps: StepReporter, patience: float) -> None:
        before, away, waited = self._clock.monotonic(), False, False
        deadline = before + patience
        while True:
            seen, view, now = watch.changes, watch.view(), self._clock.monotonic()
            if view.state is EngineState.SERVING:
                await pause(self._clock, LAST_LINES_SECONDS, watch.start_read)  # its log tells of the boot
                return
            if view.state in (EngineState.FAILED, EngineState.STOPPED):
                # The reason is in the log, which may still be on its way.
                await pause(self._clock, LAST_LINES_SECONDS, watch.log_read)
                raise _exited(watch.view(), with_docker=waited)
            problem = self._supervisor.docker_problem
            if problem and not away:
                steps.add(Step(DOCKER, "Docker"))
                steps.begin(DOCKER, f"waiting for it: {problem}")
            elif away and not problem:
                steps.done(DOCKER, "answers again")
            deadline += now - before if problem else 0.0
            before, away, waited = now, bool(problem), waited or bool(problem)
            phase = view.timeline.current
            if phase is not None:
                steps.detail("follow", f"{phase.label} {phase.detail}".strip(), phase.progress)
            left = deadline - now
            if left <= 0:
                raise EngineExited(
                    f"{view.name} was not ready after {human_duration(patience)}.",
                    f"It is still running: read its log, or stop it with: spark-tui down {view.name}",
                    detail=view.timeline.news,
                )
            pauses = (watch.moved(seen), self._clock.sleep(min(left, LOOK_SECONDS)))
            tasks = [asyncio.ensure_future(each) for each in pauses]
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
        if is_pooling(view.container.argv):
            steps.skip("warm", "a model of vectors or scores has no chat")
            return
        runtime = runtime_named(view.runtime)
        steps.begin("warm", runtime.first_request)
        started, patience = self._clock.monotonic(), runtime.first_request_seconds
        request = ChatRequest(view.served_name, (Message(Role.USER, "ping"),), ChatParameters(max_tokens=3))
        try:
            async with asyncio.timeout(patience), aclosing(self._api.chat(endpoint, request)) as events:
                async for _ in events:
                    pass
        except NoSuchPath:
            steps.skip("warm", "the engine has no chat")
        except TimeoutError:
            steps.fail("warm", f"no answer within {human_duration(patience)}")
        except SparkError as error:
            steps.fail("warm", str(error))
        else:
            watch.mark_warm(self._clock.monotonic() - started)
            steps.done("warm", "")


def _exited(view: EngineView, *, with_docker: bool) -> EngineExited:
    failure = view.timeline.failure
    if with_docker and (failure is None or failure.guess):
        return EngineExited(
            f"{view.name} ended when Docker went away (exit code {view.container.exit_code}).",
            "Launch it again. Why Docker ended: journalctl -u docker",
        )
    summary = f"{view.name} ended before it was ready (exit code {view.container.exit_code})."
    if failure is None:
        return EngineExited(summary, f"Read its log: spark-tui logs {view.name}", detail=view.timeline.news)
    remedy = f"The whole log: spark-tui logs {view.name}"
    return EngineExited(f"{summary} {failure.line}", remedy, detail=failure.line)


def launched_with(container: ContainerFacts) -> dict[str, str]:
    """The changes to its preset that a container was launched with. Raises RefusedError for a label that is not
    ours."""
    with suppress(ValueError, SparkError):
        pairs = load_json(container.overrides or "{}")
        if isinstance(pairs, dict) and all(isinstance(value, str) for value in pairs.values()):
            overrides_from_pairs(pairs)
            return pairs
    raise RefusedError(
        f"The settings of {container.name} cannot be read from its label.", "Launch it again from its preset."
    )


def launched_overrides(view: EngineView) -> Overrides:
    """The same as overrides; an automatic memory share has the number that the engine runs with. Raises likewise."""
    overrides = overrides_from_pairs(launched_with(view.container))
    if overrides.auto_share:
        overrides = replace(overrides, gpu_memory_utilization=share_of(view.container, view.runtime))
    return overrides


def same_place(view: EngineView, overrides: Overrides) -> Overrides:
    """With the name, the port and the exposure that the engine has."""
    lan = view.exposure in (Exposure.LAN, Exposure.LAN_NO_KEY)
    return replace(
        overrides,
        name=view.name,
        port=view.port,
        exposure=ExposureChoice.LAN if lan else ExposureChoice.LOCAL,
        api_key=bool(view.container.api_key_file),
    )


def request_of(view: EngineView, catalogue: PresetCatalogue) -> LaunchRequest:
    """The launch that makes an engine as it is now. Raises RefusedError for one that no preset makes."""
    container = view.container
    if container.bare:
        raise outside_docker(container, acts=True)
    if not container.ours:
        raise RefusedError(
            f"Not started by spark-tui: {view.name}.", "Import it as a preset first: spark-tui presets import FILE"
        )
    preset = catalogue.get(container.preset)
    if preset is None:
        raise RefusedError(
            f"The preset {container.preset} of {view.name} is not available.",
            "Launch it from another preset: spark-tui presets list",
        )
    overrides = launched_overrides(view)
    return LaunchRequest(preset, same_place(view, overrides), replace_running=True)
