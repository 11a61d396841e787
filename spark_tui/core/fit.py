"""Holds a launch against the memory there is now: what cannot fit is refused, what is on its way back is awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from spark_tui.core.cache import CacheControl
from spark_tui.core.engines import EngineSupervisor
from spark_tui.core.memory import BreakdownReader
from spark_tui.core.preflight import Preflight
from spark_tui.core.store import Store, World
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.errors import RefusedError, SparkError
from spark_tui.domain.host.drop_caches import WORTH_BYTES
from spark_tui.domain.logs.starts import StartRecord, sizes_of
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.presets.fit import Fit, Neighbour, Verdict, fit
from spark_tui.domain.presets.fit_figures import fit_lines
from spark_tui.domain.presets.fit_request import OWN_LOG, Measured, measured_before, measured_by, request_of
from spark_tui.domain.presets.invocation import parse
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.quantities import GIB, MIB, gib, human_duration
from spark_tui.domain.reading import Missing, value_of
from spark_tui.services.executors import in_thread
from spark_tui.services.ports import CheckpointSource, Clock, HostProbe

_LOADING = (EngineState.CREATED, EngineState.STARTING, EngineState.RESTARTING)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A planned launch with what the files of its checkpoints say; None: not in the store."""

    plan: LaunchPlan
    checkpoint: CheckpointFacts | None = None
    drafter: CheckpointFacts | None = None


class Fitting:
    """Answers by the World's last readings: they must have been collected. `starts` are this box's earlier ones."""

    def __init__(
        self,
        checkpoints: CheckpointSource,
        preflight: Preflight,
        host: HostProbe,
        store: Store,
        starts: Callable[[], Iterable[StartRecord]] = tuple,
    ) -> None:
        self._starts = starts
        self._checkpoints = checkpoints
        self._preflight = preflight
        self._ledger = BreakdownReader(host)
        self._store = store

    async def fit(self, preset: Preset, overrides: Overrides) -> Fit:
        """One launch against the memory now. Raises SparkError when it cannot be planned at all."""
        return self.now(await self.candidate(self._preflight.dry_plan(preset, overrides)))

    async def candidate(self, plan: LaunchPlan) -> Candidate:
        """What a fit needs of the disk, read once."""
        checkpoint = await in_thread(self._checkpoints.read, plan.model, plan.preset.model_revision)
        return Candidate(plan, value_of(checkpoint), await self._drafter(plan, value_of(checkpoint)))

    def now(self, candidate: Candidate) -> Fit:
        """A candidate against the memory now: cheap enough for each second."""
        return self.against_memory(candidate.plan, candidate.checkpoint, candidate.drafter)

    def against_memory(
        self, plan: LaunchPlan, checkpoint: CheckpointFacts | None, drafter: CheckpointFacts | None = None
    ) -> Fit:
        """The same for a checkpoint that is read already: cheap enough for each refresh of a screen."""
        world = self._store.world
        held = self._held(world)
        engines = [view for view in value_of(world.engines) or () if view.container.running]
        total = memory.total if (memory := value_of(world.memory)) is not None else 0
        own = next((view for view in engines if view.name == plan.spec.name), None)
        return fit(
            plan,
            checkpoint,
            world.memory,
            neighbours=[_neighbour(view, held, total) for view in engines if view is not own],
            measured=self._measured(plan, own, total),
            drafter=drafter,
            returns=held.get(own.container.id, 0) if own is not None else 0,
        )

    def _measured(self, plan: LaunchPlan, own: EngineView | None, total: int) -> Measured | None:
        """What the engine of that name has measured of itself, else what an earlier start did."""
        now = measured_by(sizes_of(own.timeline.facts), total, OWN_LOG) if own is not None else None
        return now or measured_before(self._starts(), plan, total)

    async def _drafter(self, plan: LaunchPlan, checkpoint: CheckpointFacts | None) -> CheckpointFacts | None:
        name = request_of(plan, checkpoint).drafter
        if not name:
            return None
        return value_of(await in_thread(self._checkpoints.read, str(PurePosixPath(name)), ""))

    def _held(self, world: World) -> dict[str, int]:
        """What each container's CUDA processes hold, by its id; empty when the driver does not tell."""
        found = value_of(self._ledger.read(world))
        return {share.container: share.memory for share in (found.engines or ())} if found is not None else {}


def _neighbour(view: EngineView, held: dict[str, int], total: int) -> Neighbour:
    """Another engine: while it loads, its share is still to be taken."""
    holds = held.get(view.container.id)
    if view.state not in _LOADING:
        return Neighbour(view.name, holds)
    share = parse(view.container.argv, view.runtime).number("gpu_memory_utilization")
    if share is None:
        return Neighbour(view.name, holds, None)
    return Neighbour(view.name, holds, max(0, int(total * share) - (holds or 0)))


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

OVERRIDE: Final = "To launch anyway: --force, or type the preset's name on screen."

Tell = Callable[[str], None]
Lacking = Callable[[], bool]


def silent(_: str) -> None:
    """Ignores progress."""


class WillNotFit(RefusedError):
    """The launch cannot fit into the memory that there is now."""

    id = "does_not_fit"

    def __init__(self, name: str, fit: Fit) -> None:
        ways = " ".join(_way(change.summary, change.pairs) for change in fit.changes)
        figures = "\n".join(f"{row.label.strip()}: {row.value} {row.note}".rstrip() for row in fit_lines(fit))
        super().__init__(
            f"{name} does not fit. {' '.join(fit.reasons)}",
            f"{ways or 'Choose a smaller model, or stop other processes that use memory.'} {OVERRIDE}",
            detail=figures,
        )
        self.fit = fit


def _way(summary: str, pairs: tuple[tuple[str, str], ...]) -> str:
    settings = " ".join(f"{key}={value}" for key, value in pairs)
    return f"{summary.rstrip('.')} ({settings})." if settings else summary


def short_of_memory(fit: Fit) -> bool:
    """It is memory that is lacking, rather than a share or a context that could never work."""
    if fit.available is None:
        return False
    wanted = fit.claim if fit.claim is not None else fit.at_least
    return wanted > fit.available or (fit.left is not None and fit.left < 0)


class LaunchBudget:
    """One for the program. `read` takes a new reading of host and GPU into the store."""

    def __init__(
        self,
        fitting: Fitting,
        cache: CacheControl,
        supervisor: EngineSupervisor,
        store: Store,
        clock: Clock,
        read: Callable[[], Awaitable[None]],
    ) -> None:
        self._fitting = fitting
        self._cache = cache
        self._supervisor = supervisor
        self._store = store
        self._clock = clock
        self._read = read

    async def check(self, plan: LaunchPlan, *, force: bool = False) -> Fit:
        """The fit now. Raises WillNotFit for a launch that is BLOCKED, unless `force` is given or memory of an engine
        that has just ended may still be released; `make_room` decides then. What is not known never refuses."""
        candidate = await self._fitting.candidate(plan)
        await self._look()
        found = self._fitting.now(candidate)
        awaited = short_of_memory(found) and bool(self._just_ended())
        if found.verdict is Verdict.BLOCKED and not force and not awaited:
            raise WillNotFit(plan.spec.name, found)
        return found

    async def make_room(self, plan: LaunchPlan, tell: Tell, *, force: bool = False) -> str:
        """Just before the start: waits for memory that is being released, frees page cache, and checks the fit again.
        Returns what was done, as text; raises WillNotFit like `check`."""
        candidate = await self._fitting.candidate(plan)
        done = [await self.await_return(tell, lambda: short_of_memory(self._fitting.now(candidate)))]
        found = self._fitting.now(candidate)
        if found.cache_to_drop >= WORTH_BYTES:
            done.append(await self._free_cache(found, tell))
            await self._look()
            found = self._fitting.now(candidate)
        if found.verdict is Verdict.BLOCKED and not force:
            raise WillNotFit(plan.spec.name, found)
        return "; ".join(filter(None, (*done, _verdict(found))))

    # --- memory on its way back -----------------------------------------------------------------------

    async def await_return(self, tell: Tell = silent, lacking: Lacking | None = None) -> str:
        """Waits until memory of engines that have just ended has come back: until it stands still, longer while it is
        still `lacking`, and never longer than it may take. Returns in words what came back; empty when no engine has
        just ended."""
        await self._look()
        names = ", ".join(view.name for view in self._just_ended())
        before = self._available()
        if not names or before is None:
            return ""
        began = rose = self._clock.monotonic()
        seen = before
        while (now := self._clock.monotonic()) - began < RETURN_SECONDS:
            lacks = lacking is not None and lacking()
            if now - rose >= (STILL_SECONDS if lacks else CALM_SECONDS):
                break
            tell(f"waiting for {names} to release memory: {gib(seen)} GiB available, {human_duration(now - began)}")
            await self._clock.sleep(LOOK_SECONDS)
            await self._look()
            available = self._available()
            if available is not None and available >= seen + RISE_BYTES:
                seen, rose = available, self._clock.monotonic()
        waited = human_duration(self._clock.monotonic() - began)
        back = seen - before
        return f"{names} released {gib(back)} GiB in {waited}" if back >= RISE_BYTES else f"waited {waited}"

    def _just_ended(self) -> tuple[EngineView, ...]:
        """Engines whose end is so recent that their memory may be missing yet."""
        now = self._clock.now()
        return tuple(
            view
            for view in self._supervisor.views()
            if not view.container.running
            and view.container.finished_at is not None
            and 0 <= now - view.container.finished_at < RETURN_SECONDS
        )

    # --- page cache -----------------------------------------------------------------------------------

    async def _free_cache(self, found: Fit, tell: Tell) -> str:
        """By silent ways only; where there is none, the load guard and the engine have to cope."""
        tell(f"freeing page cache: {gib(found.cache_to_drop)} GiB needed")
        try:
            result = await self._cache.drop_quietly()
        except SparkError as error:
            return f"the page cache could not be freed ({error.summary.rstrip('.')})"
        if result is None:
            much = found.cache_to_drop >= NOTABLE_CACHE
            return f"{gib(found.cache_to_drop)} GiB of page cache to free (spark-tui drop-caches)" if much else ""
        return f"{gib(result.released)} GiB of page cache freed"

    # --- readings -------------------------------------------------------------------------------------

    async def _look(self) -> None:
        await self._read()
        if isinstance(self._store.world.engines, Missing):
            await self._supervisor.refresh()

    def _available(self) -> int | None:
        memory = value_of(self._store.world.memory)
        return None if memory is None else memory.available


def _verdict(found: Fit) -> str:
    """`READY: Fits. Leaves 12.1 GiB.`, for the step's line."""
    if found.verdict is Verdict.UNKNOWN:
        return "fit unknown"
    first = found.reasons[0] if found.reasons else ""
    return f"{found.verdict.value}: {first}"
