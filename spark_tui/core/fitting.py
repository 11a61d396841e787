"""Whether a launch fits: the plan, the checkpoint in the store and the memory now, brought together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from spark_tui.core.memory_ledger import LedgerReader
from spark_tui.core.preflight import Preflight
from spark_tui.core.store import Store, World
from spark_tui.domain.engine.start_record import sizes_of
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.history import StartRecord
from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.presets.fit import Fit, Measured, Neighbour, fit
from spark_tui.domain.presets.fit_ask import ask_of
from spark_tui.domain.presets.fit_measured import OWN_LOG, measured_before, measured_by
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.presets.vllm_command import option
from spark_tui.domain.reading import Missing, Reading, value_of
from spark_tui.services.ports import CheckpointSource, HostProbe

_LOADING = (EngineState.CREATED, EngineState.STARTING, EngineState.RESTARTING)


class NoCheckpoints:
    """The CheckpointSource of a world without a store."""

    def read(self, model: str, revision: str = "") -> Reading[CheckpointFacts]:
        """Nothing is there."""
        return Missing("there is no model store here")


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
        self._ledger = LedgerReader(host)
        self._store = store

    async def fit(self, preset: Preset, overrides: Overrides) -> Fit:
        """One launch against the memory now. Raises SparkError when it cannot be planned at all."""
        return self.now(await self.candidate(preset, overrides))

    async def candidate(self, preset: Preset, overrides: Overrides) -> Candidate:
        """What a fit needs of the disk, read once. Raises SparkError when the launch cannot be planned at all."""
        plan = self._preflight.dry_plan(preset, overrides)
        checkpoint = await asyncio.to_thread(self._checkpoints.read, plan.model, preset.model_revision)
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
        name = ask_of(plan, checkpoint).drafter
        if not name:
            return None
        return value_of(await asyncio.to_thread(self._checkpoints.read, str(PurePosixPath(name)), ""))

    def _held(self, world: World) -> dict[str, int]:
        """What each container's CUDA processes hold, by its id; empty when the driver does not tell."""
        found = value_of(self._ledger.read(world))
        return {share.container: share.memory for share in (found.engines or ())} if found is not None else {}


def _neighbour(view: EngineView, held: dict[str, int], total: int) -> Neighbour:
    """Another engine: while it loads, its share is still to be taken."""
    holds = held.get(view.container.id)
    if view.state not in _LOADING:
        return Neighbour(view.name, holds)
    try:
        share = float(option(view.container.argv, "--gpu-memory-utilization") or "")
    except ValueError:
        return Neighbour(view.name, holds, None)
    return Neighbour(view.name, holds, max(0, int(total * share) - (holds or 0)))
