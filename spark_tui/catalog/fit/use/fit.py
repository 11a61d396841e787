"""A launch against this machine: what the rules find, whether it fits into the memory now, and the wait for memory that
is still being released."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.actions import by_front_end
from spark_tui.base.checkpoint import CheckpointFacts
from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.engine.invocation import parse
from spark_tui.base.engine.state import EngineState
from spark_tui.base.errors import RefusedError, SparkError, UnreachableError
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import Finding, Missing, Severity, value_of
from spark_tui.base.host.memory import WORTH_BYTES
from spark_tui.base.ports import CheckpointSource, Clock, ContainerEngine, SecretStore
from spark_tui.base.quantities import GIB, MIB, gib, human_duration
from spark_tui.base.store import Store
from spark_tui.catalog.fit.model.fit import HOST_BYTES, Fit, FitChange, FitWord, Needs, Neighbour, measure
from spark_tui.catalog.fit.model.request import OWN_LOG, measured_before, measured_by
from spark_tui.catalog.fit.model.verdict import LaunchVerdict, auto_share, fit_lines, judged, number_for
from spark_tui.catalog.presets.model.overrides import SHARE, Overrides, names_share, settings_text
from spark_tui.catalog.presets.model.plan import LaunchPlan, with_share
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.model.rules.check import check
from spark_tui.catalog.presets.model.rules.check import judged as judge_advice
from spark_tui.catalog.presets.model.rules.context import LaunchContext
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.observe.engines.use.collectors import BreakdownReader, Collectors
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.starts import StartRecord, sizes_of
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.memory.use.memory import CacheControl
from spark_tui.observe.metrics.use.history import History

_LOADING = (EngineState.CREATED, EngineState.STARTING, EngineState.RESTARTING)
Stored: TypeAlias = Mapping[tuple[str, str], CheckpointFacts | None]
"""By model and revision; None: not in the store."""


class LaunchChecks(Struct, eq=False):
    """Rules and fit of a launch, by the World's last readings: they must have been collected. `starts` are earlier
    starts on this machine. `auto`: a launch that names no memory share gets what it needs; where that is unknown, the
    preset's or the usual one, as far as it fits. `claims` is what launches that passed the memory gate will take, by
    engine: it is set aside before their start. `results` are those of this machine, the oldest first; `kept` what they
    were when they were last read."""

    docker: ContainerEngine
    secrets: SecretStore
    preflight: Preflight
    checkpoints: CheckpointSource
    store: Store
    breakdown: BreakdownReader
    starts: Callable[[], Iterable[StartRecord]]
    auto: bool
    claims: dict[str, int] = field(default_factory=dict)
    results: Callable[[], Sequence[Any]] = tuple
    kept: Sequence[Any] = ()

    @classmethod
    def from_context(cls, context: Context) -> LaunchChecks:
        return cls(
            context.docker,
            context.secrets,
            context[Preflight],
            context.checkpoints,
            context.store,
            BreakdownReader(context.host),
            lambda: context[History].starts,
            context.settings.memory_share == "auto",
            results=partial(results_here, context),
        )

    async def stored(self, presets: Iterable[Preset]) -> Stored:
        """What the model store has of each preset's model, read in one go."""

        def read() -> Stored:
            self.kept = self.results()
            wanted = {(each.mounted_model or each.model, each.model_revision) for each in presets}
            return {key: value_of(self.checkpoints.read(*key)) for key in wanted}

        return await in_thread(read)

    def failed(self, preset: Preset) -> str:
        """Why it was marked as failed here; empty where it was not, or came to serve later."""
        named, format_ = (preset.model, preset.name), f"{preset.facts.quantization} {preset.model}".lower()
        alike = [
            each
            for each in self.kept
            if each.model in named and each.runtime in ("", preset.engine) and each.status != "pending"
            if each.run is not None or each.quantization.lower() in format_
        ]
        return alike[-1].reason if alike and alike[-1].status == "failed" and alike[-1].run is None else ""

    async def launch(self, preset: Preset, overrides: Overrides) -> Launch:
        """One launch, planned with the image that is downloaded; Docker that does not answer leaves it unknown. Raises
        SparkError when it cannot be planned at all."""
        try:
            image = await self.docker.image(preset.reference)
        except SparkError:
            image = None
        return await self.planned(self.preflight.dry_plan(preset, overrides, image))

    async def planned(self, plan: LaunchPlan, stored: Stored | None = None) -> Launch:
        """One launch that was planned just now, by what is stored of its model."""
        found = Launch(self, plan)
        await found.read(stored)
        return found

    async def judge(self, preset: Preset, overrides: Overrides) -> LaunchVerdict:
        """The same against this machine now, its memory share settled. Raises likewise."""
        return (await self.launch(preset, overrides)).judge()


def results_here(context: Context) -> Sequence[Any]:
    """Results and verdicts of this machine, the oldest first. Where none was ever kept, nothing is imported to read
    them; unreadable ones show on Bench."""
    folders = context.ports.get("folders")
    if not context.ports.has("results") or not (folders is None or folders.benchmarks.exists()):
        return ()
    with suppress(SparkError):
        return tuple(context.ports["results"].all())
    return ()


class Launch:
    """One launch: planned once, measured once, and judged by the memory as it is at each question. `plan` has the
    number of an automatic memory share as it was last settled."""

    def __init__(self, checks: LaunchChecks, drawn: LaunchPlan) -> None:
        self._checks = checks
        self._drawn = self.plan = drawn
        self._stored: list[CheckpointFacts | None] = []
        self._measured: Needs | None = None

    async def read(self, stored: Stored | None = None) -> None:
        """Reads what is stored of its model and its drafter; what has changed there is measured again."""
        drafting, read = LaunchContext(self._drawn).speculation, self._checks.checkpoints.read
        preset = self._drawn.preset
        wanted = [(preset.mounted_model or preset.model, preset.model_revision)]
        if drafting is not None and drafting.drafter:
            wanted.append((str(PurePosixPath(drafting.drafter)), ""))
        known = stored or {}
        found = [known[key] if key in known else value_of(await in_thread(read, *key)) for key in wanted]
        if stored is None:
            self._checks.kept = await in_thread(self._checks.results)
        if found != self._stored:
            self._stored, self._measured = found, None

    def judge(self) -> LaunchVerdict:
        """Against this machine now, the memory share settled, with all findings of the rules, the worst first."""
        plan, found = self.settle(), self.fit()
        launch = self._context(found)
        return LaunchVerdict(plan, advised(found, launch), check(launch))

    def refused(self, found: Fit) -> WillNotFit:
        """The error for a launch that does not fit, as it is planned."""
        return WillNotFit(self.plan.spec.name, advised(found, self._context(found)))

    def _context(self, found: Fit) -> LaunchContext:
        plan, world = self.plan, self._checks.store.world
        engines, memory = value_of(world[ENGINES]), value_of(world.memory)
        reference = plan.preset.reference
        seen = (each.version for each in engines or () if each.container.image == reference and each.version)
        return LaunchContext(
            plan,
            plan.overrides,
            plan.image,
            engine_version=next(seen, ""),
            checkpoint=self._stored[0],
            is_spark=world.identity.is_spark if world.identity.hostname else None,
            has_gpu=world.identity.has_gpu,
            sparks=1,
            memory_total=memory.total if memory is not None else None,
            has_hf_token=self._checks.secrets.hf_token() is not None,
            share=auto_share(found),
            missing_files=self._checks.preflight.missing_files(plan.preset),
            failed_here=self._checks.failed(plan.preset),
        )

    def fit(self) -> Fit:
        """Against the memory and the engines now, with the share that it has; cheap enough for each second."""
        world, name, own = self._checks.store.world, self.plan.spec.name, self._running()
        breakdown = value_of(self._checks.breakdown.read(world))
        # What each container's CUDA processes hold; empty when the driver does not say.
        shares = breakdown.engines if breakdown is not None else None
        held = {each.container: each.memory for each in shares or ()}
        none = None if shares is None else 0
        engines = [view for view in world.known(ENGINES) if view.container.running]
        memory = value_of(world.memory)
        total = memory.total if memory is not None else 0
        others = [_neighbour(view, held.get(view.container.id, none), total) for view in engines if view is not own]
        claims, here = self._checks.claims, {name, *(view.name for view in engines)}
        coming = {job.title for job in world.jobs if not job.state.over} - here
        others += [Neighbour(each, 0, claims[each]) for each in sorted(coming & claims.keys())]
        returns = held.get(own.container.id, 0) if own is not None else 0
        share = None if self.plan is self._drawn else self.plan.overrides.gpu_memory_utilization
        return judged(self._needs(), world.memory, others, returns, share)

    def _running(self) -> EngineView | None:
        """The engine that it replaces."""
        view = self._checks.store.world.named(ENGINES, self._drawn.spec.name)
        return view if view is not None and view.container.running else None

    def _needs(self) -> Needs:
        """By what is stored of it, by the log of its engine where that runs, and by earlier starts."""
        if self._measured is None:
            memory, own = value_of(self._checks.store.world.memory), self._running()
            total = memory.total if memory is not None else 0
            earlier = measured_by(sizes_of(own.timeline.facts), total, OWN_LOG) if own is not None else None
            earlier = earlier or measured_before(self._checks.starts(), self._drawn, total)
            checkpoint, *drafters = self._stored
            self._measured = measure(self._drawn, checkpoint, measured=earlier, drafter=next(iter(drafters), None))
        return self._measured

    def settle(self) -> LaunchPlan:
        """Gives an automatic memory share its number, by the memory now, and returns the plan with it. An engine that
        runs with just these settings keeps its number, though the memory is another now."""
        drawn, running = self._drawn, self._running()
        self.plan, given = drawn, drawn.overrides
        wanted = given.auto_share or (self._checks.auto and not names_share(given))
        if not wanted or given.gpu_memory_utilization is not None:
            return drawn
        if running is not None:
            kept = self._shared(share_of(running.container, running.runtime))
            for each in (drawn, kept):
                if running.container.made_by(each.spec):
                    self.plan = each
                    return each
        if (share := number_for(self.fit())) is not None:
            self.plan = self._shared(share)
        return self.plan

    def _shared(self, share: float | None) -> LaunchPlan:
        """With that number; as it was drawn where the command has no place for one."""
        try:
            return with_share(self._drawn, share)
        except SparkError:
            return self._drawn


def advised(found: Fit, launch: LaunchContext) -> Fit:
    """The fit, with what would help as far as it passes the check: a rule may ask for more beside it. Where a rule is
    against it, its words stand in its place, and no setting makes the launch fit."""
    helps = tuple(_judged(each, launch) for each in found.changes)
    change = _judged(FitChange("", found.change), launch).pairs
    return replace(found, changes=helps, change=change if set(found.change) <= set(change) else ())


def _judged(change: FitChange, launch: LaunchContext) -> FitChange:
    told = judge_advice(Finding("fit", Severity.INFO, "", remedy=change.summary, change=change.pairs), launch)
    gains = change.gains if set(change.pairs) <= set(told.change) else None
    return FitChange(told.remedy, told.change, gains)


def share_of(container: ContainerFacts, runtime: str) -> float | None:
    """The memory share that an engine's command names."""
    return parse(container.argv, runtime).number(SHARE)


def _neighbour(view: EngineView, holds: int | None, total: int) -> Neighbour:
    """Another engine. What it has not taken yet of its share, and of what its processes need beside it, is set aside
    from its first second on: a launch is judged alike before, while and after it loads."""
    command = parse(view.container.argv, view.runtime)
    share = command.number(SHARE)
    if view.runtime != "vllm" or share is None or command.value("kv_cache_memory_bytes") is not None:
        return Neighbour(view.name, holds, None if view.state in _LOADING else 0)
    claim = int(total * share)
    left = max(0, claim - (holds or 0))
    if view.state in _LOADING:
        return Neighbour(view.name, holds, left + (int(HOST_BYTES * left / claim) if claim else 0))
    # One that serves with far less than its share will not take the rest.
    return Neighbour(view.name, holds, left if holds is not None and left <= claim // 10 else 0)


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


class WillNotFit(RefusedError, id="does_not_fit"):
    def __init__(self, name: str, fit: Fit) -> None:
        ways = " ".join(
            f"{each.summary.rstrip('.')} ({settings_text(each.pairs)})." if each.pairs else each.summary
            for each in fit.changes
        )
        as_it_is = "" if fit.word is FitWord.DOES_NOT_FIT else f" as it is: {fit.text}"
        super().__init__(
            f"{name} does not fit{as_it_is}. {' '.join(fit.reasons)}",
            f"{ways or 'Choose a smaller model, or stop other processes that use memory.'} "
            f"To launch anyway: {by_front_end('type the name of the preset in its form.', '--force')}",
            detail="\n".join(f"{row.label.strip()}: {row.value} {row.note}".rstrip() for row in fit_lines(fit)),
        )
        self.fit = fit


def short_of_memory(fit: Fit) -> bool:
    """Memory is missing, rather than a share or a context that could never work."""
    if fit.available is None:
        return False
    wanted = fit.claim if fit.claim is not None else fit.at_least
    return wanted > fit.available or (fit.left is not None and fit.left < 0)


class MemoryGate(Struct, eq=False):
    """Lets a launch pass when its memory is free. `read` takes a new reading of host and GPU into the store."""

    _checks: LaunchChecks
    _cache: CacheControl
    _supervisor: EngineSupervisor
    _clock: Clock
    _read: Callable[[], Awaitable[None]]

    @classmethod
    def from_context(cls, context: Context) -> MemoryGate:
        return cls(
            context[LaunchChecks],
            context[CacheControl],
            context[EngineSupervisor],
            context.clock,
            context[Collectors].collect_ready,
        )

    async def check(self, launch: Launch, *, force: bool = False) -> Fit:
        """The fit now. Raises WillNotFit for a launch that does not fit, unless `force` is given or memory of an engine
        that has just ended may still be released; `make_room` decides then. What is not known never refuses."""
        await self.refresh()
        found, name = launch.fit(), launch.plan.spec.name
        awaited = short_of_memory(found) and bool(self._just_ended())
        if found.blocked and not force and not awaited:
            raise launch.refused(found)
        if found.claim is not None:
            self._checks.claims[name] = found.claim + sum(part.size or 0 for part in found.outside)
        return found

    async def make_room(self, launch: Launch, say: Callable[[str], None], *, force: bool = False) -> str:
        """Just before the start: waits for memory that is being released, frees page cache, and checks the fit again.
        Returns what was done, as text; raises WillNotFit like `check`."""
        done = [await self.await_return(say, lambda: short_of_memory(launch.fit()))]
        found = launch.fit()
        if found.cache_to_drop >= WORTH_BYTES:
            done.append(await self._free_cache(found.cache_to_drop, say))
            await self.refresh()
            found = launch.fit()
        if found.blocked and not force:
            raise launch.refused(found)
        known = found.word is not FitWord.UNKNOWN
        done.append(f"{found.text}: {''.join(found.reasons[:1])}" if known else "fit unknown")
        return "; ".join(filter(None, done))

    async def await_return(
        self, say: Callable[[str], None] | None = None, is_short: Callable[[], bool] | None = None
    ) -> str:
        """Waits until memory of engines that have just ended has come back: until it stands still, longer while it
        `is_short`, and never longer than it may take. Returns in words what came back; empty when no engine has just
        ended."""
        await self.refresh()
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
            await self.refresh()
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

    async def refresh(self) -> None:
        """A new reading of memory, and of engines where there is none."""
        await self._read()
        if isinstance(self._checks.store.world[ENGINES], Missing):
            await self._supervisor.refresh()

    def _available(self) -> int | None:
        memory = value_of(self._checks.store.world.memory)
        return None if memory is None else memory.available


async def observe(context: Context, note: Callable[[str], object]) -> None:
    """Reads memory, GPU, engines and their earlier starts once: what a launch is judged by. `note` gets what cannot
    be read."""
    await context[History].load()
    await context[Collectors].collect_once()
    try:
        await context[EngineSupervisor].look()
    except UnreachableError as error:
        note(f"{error.summary} Other engines are unknown.")
