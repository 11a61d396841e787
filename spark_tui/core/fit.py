"""A launch against this machine: what the rules find, whether it fits into the memory now, and the wait for memory that
is still being released."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import PurePosixPath
from typing import Final

from spark_tui.core.cache import CacheControl
from spark_tui.core.engines import EngineSupervisor
from spark_tui.core.memory import BreakdownReader
from spark_tui.core.preflight import Preflight
from spark_tui.core.store import Store
from spark_tui.domain.engine.container import ImageFacts
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.errors import RefusedError, SparkError
from spark_tui.domain.finding import Finding
from spark_tui.domain.host.drop_caches import WORTH_BYTES
from spark_tui.domain.logs.starts import StartRecord, sizes_of
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.presets.fit import Fit, Neighbour, Verdict, fit, fit_lines
from spark_tui.domain.presets.fit_request import OWN_LOG, measured_before, measured_by, request_of
from spark_tui.domain.presets.invocation import parse
from spark_tui.domain.presets.overrides import Overrides, settings_text
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.presets.rules.check import check
from spark_tui.domain.presets.rules.context import LaunchContext
from spark_tui.domain.quantities import GIB, MIB, gib, human_duration
from spark_tui.domain.reading import Missing, value_of
from spark_tui.services.executors import in_thread
from spark_tui.services.ports import CheckpointSource, Clock, ContainerEngine, HostProbe, SecretStore

_LOADING = (EngineState.CREATED, EngineState.STARTING, EngineState.RESTARTING)


class LaunchChecks:
    """Rules and fit of a launch, by the World's last readings: they must have been collected. `starts` are earlier
    starts on this machine."""

    def __init__(
        self,
        docker: ContainerEngine,
        host: HostProbe,
        secrets: SecretStore,
        preflight: Preflight,
        checkpoints: CheckpointSource,
        store: Store,
        starts: Callable[[], Iterable[StartRecord]] = tuple,
    ) -> None:
        self._docker = docker
        self._secrets = secrets
        self._preflight = preflight
        self._checkpoints = checkpoints
        self._store = store
        self._starts = starts
        self._breakdown = BreakdownReader(host)

    async def check(self, preset: Preset, overrides: Overrides) -> tuple[Finding, ...]:
        """All findings of the rules, the worst first. Raises SparkError when the preset cannot be planned at all."""
        try:
            image = await self._docker.image(preset.reference)
        except SparkError:  # a Docker that does not answer leaves it unknown
            image = None
        return await self.check_with(image, preset, overrides)

    async def check_with(self, image: ImageFacts | None, preset: Preset, overrides: Overrides) -> tuple[Finding, ...]:
        """The same with the image as it was found before; None: not downloaded, or not known."""
        plan = self._preflight.dry_plan(preset, overrides, image)
        world = self._store.world
        engines, memory = value_of(world.engines), value_of(world.memory)
        reference = preset.reference
        seen = (each.version for each in engines or () if each.container.image == reference and each.version)
        return check(
            LaunchContext(
                plan,
                overrides,
                image,
                engine_version=next(seen, ""),
                checkpoint=await self._checkpoint(plan.model, preset.model_revision),
                is_spark=world.identity.is_spark if world.identity.hostname else None,
                sparks=1,
                memory_total=memory.total if memory is not None else None,
                has_hf_token=self._secrets.hf_token() is not None,
                neighbours_utilization=None if engines is None else _shares(engines, plan.spec.name),
                missing_files=self._preflight.missing_files(preset),
            )
        )

    async def fit(self, preset: Preset, overrides: Overrides) -> Fit:
        """One launch against the memory now. Raises SparkError when it cannot be planned at all."""
        return (await self.fit_reader(self._preflight.dry_plan(preset, overrides)))()

    async def fit_reader(self, plan: LaunchPlan) -> Callable[[], Fit]:
        """Reads the checkpoints once. The result gives the fit against the memory now, cheap enough for each second."""
        checkpoint = await self._checkpoint(plan.model, plan.preset.model_revision)
        name = request_of(plan, checkpoint).drafter
        drafter = await self._checkpoint(str(PurePosixPath(name)), "") if name else None
        return lambda: self._fit(plan, checkpoint, drafter)

    async def _checkpoint(self, model: str, revision: str) -> CheckpointFacts | None:
        return value_of(await in_thread(self._checkpoints.read, model, revision))

    def _fit(self, plan: LaunchPlan, checkpoint: CheckpointFacts | None, drafter: CheckpointFacts | None) -> Fit:
        world = self._store.world
        breakdown = value_of(self._breakdown.read(world))
        # What each container's CUDA processes hold; empty when the driver does not say.
        held = {each.container: each.memory for each in breakdown.engines or ()} if breakdown is not None else {}
        engines = [view for view in value_of(world.engines) or () if view.container.running]
        memory = value_of(world.memory)
        total = memory.total if memory is not None else 0
        own = next((view for view in engines if view.name == plan.spec.name), None)
        measured = measured_by(sizes_of(own.timeline.facts), total, OWN_LOG) if own is not None else None
        return fit(
            plan,
            checkpoint,
            world.memory,
            neighbours=[_neighbour(view, held.get(view.container.id), total) for view in engines if view is not own],
            measured=measured or measured_before(self._starts(), plan, total),
            drafter=drafter,
            returns=held.get(own.container.id, 0) if own is not None else 0,
        )


def _share(view: EngineView) -> float | None:
    return parse(view.container.argv, view.runtime).number("gpu_memory_utilization")


def _shares(engines: Iterable[EngineView], name: str) -> float | None:
    """The memory shares of the other engines that run; None where one of them does not say its own."""
    others = (each for each in engines if each.container.running and each.name != name and each.runtime == "vllm")
    shares = [_share(each) for each in others]
    return None if None in shares else sum(share or 0 for share in shares)


def _neighbour(view: EngineView, holds: int | None, total: int) -> Neighbour:
    """Another engine: while it loads, its share is still to be taken."""
    if view.state not in _LOADING:
        return Neighbour(view.name, holds)
    share = _share(view)
    return Neighbour(view.name, holds, None if share is None else max(0, int(total * share) - (holds or 0)))


RETURN_SECONDS: Final = 180.0
"""So long after an engine's end its memory may still be on its way back: a minute is usual, three were seen."""
STILL_SECONDS: Final = 30.0
"""Memory that has not risen for so long does not come back by itself."""
CALM_SECONDS: Final = 3.0
"""Enough memory must have stood still for so long: vLLM fails its start when memory returns while it measures."""
RISE_BYTES: Final = 128 * MIB
LOOK_SECONDS: Final = 1.0
NOTABLE_CACHE: Final = 4 * GIB
"""Less page cache gives way by itself while an engine loads."""


class WillNotFit(RefusedError):
    id = "does_not_fit"

    def __init__(self, name: str, fit: Fit) -> None:
        ways = " ".join(
            f"{each.summary.rstrip('.')} ({settings_text(each.pairs)})." if each.pairs else each.summary
            for each in fit.changes
        )
        super().__init__(
            f"{name} does not fit. {' '.join(fit.reasons)}",
            f"{ways or 'Choose a smaller model, or stop other processes that use memory.'} "
            "To launch anyway: --force, or type the preset's name on screen.",
            detail="\n".join(f"{row.label.strip()}: {row.value} {row.note}".rstrip() for row in fit_lines(fit)),
        )
        self.fit = fit


def short_of_memory(fit: Fit) -> bool:
    """Memory is missing, rather than a share or a context that could never work."""
    if fit.available is None:
        return False
    wanted = fit.claim if fit.claim is not None else fit.at_least
    return wanted > fit.available or (fit.left is not None and fit.left < 0)


class MemoryGate:
    """Lets a launch pass when its memory is free. `read` takes a new reading of host and GPU into the store."""

    def __init__(
        self,
        checks: LaunchChecks,
        cache: CacheControl,
        supervisor: EngineSupervisor,
        store: Store,
        clock: Clock,
        read: Callable[[], Awaitable[None]],
    ) -> None:
        self._checks = checks
        self._cache = cache
        self._supervisor = supervisor
        self._store = store
        self._clock = clock
        self._read = read

    async def check(self, plan: LaunchPlan, *, force: bool = False) -> Fit:
        """The fit now. Raises WillNotFit for a launch that is BLOCKED, unless `force` is given or memory of an engine
        that has just ended may still be released; `make_room` decides then. What is not known never refuses."""
        fit_now = await self._checks.fit_reader(plan)
        await self._refresh()
        found = fit_now()
        awaited = short_of_memory(found) and bool(self._just_ended())
        if found.verdict is Verdict.BLOCKED and not force and not awaited:
            raise WillNotFit(plan.spec.name, found)
        return found

    async def make_room(self, plan: LaunchPlan, say: Callable[[str], None], *, force: bool = False) -> str:
        """Just before the start: waits for memory that is being released, frees page cache, and checks the fit again.
        Returns what was done, as text; raises WillNotFit like `check`."""
        fit_now = await self._checks.fit_reader(plan)
        done = [await self.await_return(say, lambda: short_of_memory(fit_now()))]
        found = fit_now()
        if found.cache_to_drop >= WORTH_BYTES:
            done.append(await self._free_cache(found.cache_to_drop, say))
            await self._refresh()
            found = fit_now()
        if found.verdict is Verdict.BLOCKED and not force:
            raise WillNotFit(plan.spec.name, found)
        known = found.verdict is not Verdict.UNKNOWN
        done.append(f"{found.verdict.value}: {''.join(found.reasons[:1])}" if known else "fit unknown")
        return "; ".join(filter(None, done))

    async def await_return(
        self, say: Callable[[str], None] | None = None, is_short: Callable[[], bool] | None = None
    ) -> str:
        """Waits until memory of engines that have just ended has come back: until it stands still, longer while it
        `is_short`, and never longer than it may take. Returns in words what came back; empty when no engine has just
        ended."""
        await self._refresh()
        names = ", ".join(view.name for view in self._just_ended())
        before = self._available()
        if not names or before is None:
            return ""
        began = rose = self._clock.monotonic()
        seen = before
        while (now := self._clock.monotonic()) - began < RETURN_SECONDS:
            short = is_short is not None and is_short()
            if now - rose >= (STILL_SECONDS if short else CALM_SECONDS):
                break
            if say is not None:
                say(f"waiting for {names} to release memory: {gib(seen)} GiB available, {human_duration(now - began)}")
            await self._clock.sleep(LOOK_SECONDS)
            await self._refresh()
            available = self._available()
            if available is not None and available >= seen + RISE_BYTES:
                seen, rose = available, self._clock.monotonic()
        waited = human_duration(self._clock.monotonic() - began)
        back = seen - before
        return f"{names} released {gib(back)} GiB in {waited}" if back >= RISE_BYTES else f"waited {waited}"

    def _just_ended(self) -> list[EngineView]:
        """Engines whose end is so recent that their memory may be missing yet."""
        ended = [view for view in self._supervisor.views() if not view.container.running]
        now = self._clock.now()
        return [
            view
            for view in ended
            if view.container.finished_at is not None and 0 <= now - view.container.finished_at < RETURN_SECONDS
        ]

    async def _free_cache(self, size: int, say: Callable[[str], None]) -> str:
        """By silent ways only; where there is none, the load guard and the engine have to cope."""
        say(f"freeing page cache: {gib(size)} GiB needed")
        try:
            result = await self._cache.drop_quietly()
        except SparkError as error:
            return f"the page cache could not be freed ({error.summary.rstrip('.')})"
        if result is not None:
            return f"{gib(result.released)} GiB of page cache freed"
        return f"{gib(size)} GiB of page cache to free (spark-tui drop-caches)" if size >= NOTABLE_CACHE else ""

    async def _refresh(self) -> None:
        await self._read()
        if isinstance(self._store.world.engines, Missing):
            await self._supervisor.refresh()

    def _available(self) -> int | None:
        memory = value_of(self._store.world.memory)
        return None if memory is None else memory.available
