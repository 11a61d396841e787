"""Whether a launch fits: the plan, the checkpoint in the store and the memory now, brought together."""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath

from spark_tui.core.memory_ledger import LedgerReader
from spark_tui.core.preflight import Preflight
from spark_tui.core.store import Store, World
from spark_tui.domain.engine.timeline import EngineFacts
from spark_tui.domain.engine.view import EngineState, EngineView
from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.presets.fit import Fit, Measured, Neighbour, fit
from spark_tui.domain.presets.fit_ask import ask_of
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.presets.vllm_command import option
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Missing, Reading, value_of
from spark_tui.services.ports import CheckpointSource, HostProbe

_LOADING = (EngineState.CREATED, EngineState.STARTING, EngineState.RESTARTING)


class NoCheckpoints:
    """The CheckpointSource of a world without a store."""

    def read(self, model: str, revision: str = "") -> Reading[CheckpointFacts]:
        """Nothing is there."""
        return Missing("there is no model store here")


class Fitting:
    """Answers by the World's last readings: they must have been collected."""

    def __init__(self, checkpoints: CheckpointSource, preflight: Preflight, host: HostProbe, store: Store) -> None:
        self._checkpoints = checkpoints
        self._preflight = preflight
        self._ledger = LedgerReader(host)
        self._store = store

    async def fit(self, preset: Preset, overrides: Overrides) -> Fit:
        """One launch against the memory now. Raises SparkError when it cannot be planned at all."""
        plan = self._preflight.dry_plan(preset, overrides)
        checkpoint = await asyncio.to_thread(self._checkpoints.read, plan.model, preset.model_revision)
        drafter = await self._drafter(plan, value_of(checkpoint))
        return self.against_memory(plan, value_of(checkpoint), drafter)

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
            measured=None if own is None else measured_of(own.timeline.facts, total),
            drafter=drafter,
            returns=held.get(own.container.id, 0) if own is not None else 0,
        )

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


def measured_of(facts: EngineFacts, total: int) -> Measured | None:
    """An earlier start's figures from its log; None when it did not come that far. `total` is the pool, in bytes."""
    if facts.load_gib is None:
        return None
    weights = int(facts.load_gib * GIB)
    cache = None if facts.kv_gib is None else int(facts.kv_gib * GIB)
    graphs = None if facts.graph_actual_gib is None else int(facts.graph_actual_gib * GIB)
    overhead = None
    if cache is not None and total and facts.gpu_memory_utilization:
        counted = max(0, int((facts.graph_estimated_gib or 0) * GIB))
        overhead = max(0, int(total * facts.gpu_memory_utilization) - weights - cache - counted)
    return Measured(weights, cache, graphs, overhead, facts.max_num_batched_tokens, "this engine's own log")
