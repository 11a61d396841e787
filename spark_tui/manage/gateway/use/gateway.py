"""One address for all engines: routes by the model's name, and swaps engines on request.

A swap ends what must go, awaits its memory, and launches as `up` does. One swap runs at a time; those that want the
same model wait for the same launch. An engine that answers is never ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from statistics import median
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.metrics_page import Family
from spark_tui.base.engine.state import Endpoint, EngineState, ServedModel
from spark_tui.base.errors import (
    ApiKeyRejected,
    ModelNotServed,
    RefusedError,
    SparkError,
    UnreachableError,
)
from spark_tui.base.executors import end_tasks, failure_of, in_thread, keep, pause
from spark_tui.base.finding import EventKind, Severity
from spark_tui.base.gateway import PEER_MARK, GatewayEngine, GatewayPeer, GatewayStatus, GatewaySwap
from spark_tui.base.jobs import Step, StepState
from spark_tui.base.optional import install_command
from spark_tui.base.ports import Clock, EngineApi, SecretStore, port_named
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import encode
from spark_tui.catalog.fit.model.fit import Fit
from spark_tui.catalog.fit.use.finder import PresetFinder, Search
from spark_tui.catalog.fit.use.fit import Launch, LaunchChecks, MemoryGate, short_of_memory
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import PRESETS, Preset
from spark_tui.catalog.presets.use.last_launches import LastLaunches
from spark_tui.catalog.presets.use.library import Library
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.catalog.presets.use.rights import PresetSource, catalogue
from spark_tui.machine.gateway import FILE, GatewayKeys
from spark_tui.manage.gateway.model import (
    GatewayModel,
    GatewayPolicy,
    NotServing,
    Resident,
    SwapRefused,
    Upstream,
    evict,
    recent,
)
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.starts import MAX_STARTS
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.model.agents import AgentTurn
from spark_tui.observe.metrics.use.agent_lens import AgentLens
from spark_tui.observe.metrics.use.history import History
from spark_tui.observe.metrics.use.metrics import in_flight
from spark_tui.run.launch.use.edit import Editor
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest, request_of

_LOOK_SECONDS: Final = 2.0
_SWEEP_SECONDS: Final = 15.0
_RELOAD_SECONDS: Final = 10.0
_DRAIN_AFTER_SECONDS: Final = 60.0
"""A model that waits for so long gets the next turn: busy engines take no new requests then."""
_CAUSE_SECONDS: Final = 30.0
"""So long after a failed launch its cause is the answer; later a request launches again."""
_ROUTE_SECONDS: Final = 60.0
"""An engine that serves is reachable at once; one with an unreadable key file never."""
_CLAIM_TRIES: Final = 5
_CLAIM_SECONDS: Final = 0.2
_MOST_PORTS: Final = 200


# --- routes -------------------------------------------------------------------------------------------


class GatewayRouter(Protocol):
    """What a gateway's HTTP server asks. Raises SparkError, which goes to the client as it is."""

    @property
    def keyed(self) -> bool:
        """Whether a client needs a key."""

    def authorize(self, key: str) -> str:
        """The name of the client whose key it is; empty where it is none's and none is needed. Raises
        ApiKeyRejected; KeysUnreadable, whose `detail` is for the owner alone."""

    def models(self) -> tuple[GatewayModel, ...]: ...

    def lease(self, model: str) -> AbstractContextManager[Upstream]:
        """The engine for one request, which counts as under way meanwhile. Raises NotServing after its launch was
        requested, ModelNotServed for an unknown name, and the cause of a launch that has just failed."""

    async def ready(self, model: str) -> None:
        """Returns when a request may be sent; raises the cause of a launch that fails."""

    def eta(self, model: str) -> float | None:
        """Seconds until a request may be sent; None where unknown."""

    def broken(self, engine: str) -> None:
        """The engine did not answer, or stopped in the middle of an answer."""

    def answered(self, turn: AgentTurn) -> None:
        """A prompt was answered, or its client left meanwhile."""


class GatewayMissing(RefusedError, id="gateway_missing"):
    """Its optional packages are not installed."""


@port_named("gateway_server")
class GatewayServer(Protocol):
    """The HTTP side of a gateway."""

    async def serve(self, router: GatewayRouter, host: str, port: int, on_ready: Callable[[int], None]) -> None:
        """Serves until it is cancelled; `on_ready` gets the port. Raises PortInUse for an address that cannot be
        bound."""


class _Engine(Struct):
    """An engine as requests see it. Times are monotonic."""

    view: EngineView
    endpoint: Endpoint | None
    used: float
    in_flight: int = 0
    answered: int = 0
    generated: float | None = None
    """Tokens by its own counters, at the last sweep."""

    @property
    def serving(self) -> bool:
        return self.endpoint is not None and self.view.state is EngineState.SERVING and not self.view.stopping

    def is_of(self, preset: str) -> bool:
        return preset in (self.view.name, self.view.container.preset)

    @property
    def names(self) -> tuple[str, ...]:
        """By which a request reaches it, the surest first."""
        own = (self.view.name, self.view.container.preset, *(each.id for each in self.view.models))
        return tuple(dict.fromkeys(filter(None, (*own, self.view.served_name))))

    def called(self, model: str) -> str:
        """The engine's own name for a model that was asked for by any of its names."""
        served = [each.id for each in self.view.models]
        return model if model in served or not served else served[0]


class _Offer(Struct, frozen=True):
    """A preset that a request may launch, with the settings of its last launch."""

    preset: Preset
    overrides: Overrides
    served_name: str

    @property
    def name(self) -> str:
        return self.overrides.name or self.preset.name

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.preset.name, self.name, self.served_name)))


class _Swap(Struct):
    """A launch on request. `over` gets None, or why it failed."""

    offer: _Offer
    over: asyncio.Future[SparkError | None]
    phase: str = "queued"
    detail: str = ""
    waiting: int = 0
    began: float | None = None
    stopped: tuple[str, ...] = ()


class _Failures(Struct):
    """Launches of a preset that failed and deaths of its engines, by monotonic time, and why the last one did."""

    times: tuple[float, ...] = ()
    cause: SparkError | None = None


class Gateway:
    """The GatewayRouter of this machine's engines. `run` keeps it at work."""

    def __init__(self, context: Context, policy: GatewayPolicy) -> None:
        self._context = context
        self._clock = context.clock
        self.policy = policy
        self.keys = GatewayKeys(context.ports.state, context.clock)
        self.keyed = False
        self._aliases = dict(policy.aliases)
        self._peers = Peers(context.ports.api, context.ports.secrets, context.clock, policy.peers)
        self._engines: dict[str, _Engine] = {}
        self._offers: dict[str, _Offer] = {}
        self._swaps: dict[str, _Swap] = {}
        self._failures: dict[str, _Failures] = {}
        self._draining: set[str] = set()
        self._lens = AgentLens()
        self._turn = asyncio.Lock()
        self._moved = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loaded_at = float("-inf")
        self._address = ""
        self._since = self._clock.now()

    # --- life -------------------------------------------------------------------------------------------

    async def run(self, host: str, port: int, *, keyed: bool, on_ready: Callable[[str], None]) -> None:
        """Serves until cancelled or ended by a signal; `on_ready` gets the address. Raises RefusedError while another
        gateway runs, GatewayMissing without the server's packages."""
        try:
            server = self._context[GatewayServer]
        except ImportError as error:
            raise GatewayMissing(
                "The gateway needs an optional part that is not installed.",
                f"Install it: {install_command('gateway')}",
                detail=str(error),
            ) from error
        state = self._context.ports.state
        self.keyed = keyed or bool(self.keys.all())
        for _ in range(_CLAIM_TRIES):  # `status` holds the claim for a moment
            if claimed := state.claim(FILE):
                break
            await self._clock.sleep(_CLAIM_SECONDS)
        if not claimed:
            raise RefusedError("A gateway is already running.", "See: spark-tui gateway status")

        def ready(bound: int) -> None:
            self._address = f"http://{f'[{host}]' if ':' in host else host}:{bound}"
            on_ready(self._address)

        try:
            await self.load()
            watch = self._context[EngineSupervisor].on_views

            def observe(views: tuple[EngineView, ...]) -> None:
                watch(views)
                self.observe(views)

            self._context[EngineSupervisor].on_views = observe
            self.observe(
                self._context[EngineSupervisor].views()
            )  # or the first request would launch what serves already
            loops = [
                asyncio.ensure_future(keep("Gateway", loop, self._clock, self._context.store.fail))
                for loop in (self._report, self._sweep, self._peers.watch)
            ]
            try:
                await server.serve(self, host, port, ready)
            finally:
                await end_tasks(*loops, *self._tasks)
        finally:
            state.remove(FILE)
            state.release(FILE)

    async def load(self) -> None:
        """Reads which presets may be launched: those of the policy, else those that need no download or have served
        here before."""
        context, allowed = self._context, self.policy.presets
        self._loaded_at = self._clock.monotonic()
        catalogue = await in_thread(context[PresetSource].load)
        context.store.put(PRESETS, catalogue)
        if allowed:
            found = [each for each in catalogue.presets if each.name in allowed]
        else:
            await context[Library].refresh()
            candidates = context[PresetFinder].candidates(context.store.world, Search())
            found = [each.preset for each in candidates if each.served or Search(on_disk=True).finds(each)]
        offers = (await in_thread(self._offer, preset) for preset in found if preset.min_nodes == 1)
        self._offers = {offer.preset.name: offer async for offer in offers if offer is not None}

    def _offer(self, preset: Preset) -> _Offer | None:
        """None for a preset that cannot be planned."""
        with suppress(SparkError):
            overrides = overrides_from_pairs(self._context[LastLaunches].of(preset).pairs)
            return _Offer(preset, overrides, self._context[Preflight].dry_plan(preset, overrides).served_name)
        return None

    def plans(self) -> tuple[LaunchPlan, ...]:
        """The launch of each preset that a request may launch."""
        plan = self._context[Preflight].dry_plan
        return tuple(plan(each.preset, each.overrides) for each in self._offers.values())

    def observe(self, views: Iterable[EngineView]) -> None:
        """Takes the engines as they are now."""
        now, engines = self._clock.monotonic(), {}
        for view in views:
            if not view.container.running:
                continue
            before = self._engines.get(view.name)
            if before is None or before.view.container.started_at != view.container.started_at:
                before = _Engine(view, None, now)
            was = before.serving
            before.view = view
            if view.state is EngineState.SERVING and before.endpoint is None:
                with suppress(SparkError):  # a key file that cannot be read: the engine stays unreachable
                    before.endpoint = self._context[EngineSupervisor].endpoint_of(view.name)
            if before.serving and not was:
                before.used = now
            engines[view.name] = before
        self._draining &= engines.keys()
        self._engines = engines
        self._moved.set()

    # --- the router -------------------------------------------------------------------------------------

    def authorize(self, key: str) -> str:
        client = self.keys.client_of(key) if self.keyed else ""
        if client is None:
            raise ApiKeyRejected(
                "The gateway does not know this key.", "Get one on its host: spark-tui gateway keys add NAME"
            )
        return client

    def answered(self, turn: AgentTurn) -> None:
        self._lens.add(turn)

    def models(self) -> tuple[GatewayModel, ...]:
        """What serves, then what could be launched, then aliases."""
        found: dict[str, GatewayModel] = {}
        for engine in self._engines.values():
            if engine.serving:
                context = next((each.max_model_len for each in engine.view.models), None)
                for name in engine.names:
                    found.setdefault(name, GatewayModel(name, engine.view.name, True, context))
        for offer in self._offers.values():
            for name in offer.names:
                found.setdefault(name, GatewayModel(name, offer.preset.name, False))
        for each in self._peers.models():
            if each.id not in found or (each.serving and not found[each.id].serving):
                found[each.id] = each
        for alias, name in self._aliases.items():
            if name in found:
                found[alias] = replace(found[name], id=alias)
        return tuple(found.values())

    @contextmanager
    def lease(self, model: str) -> Iterator[Upstream]:
        engine, named = self._serving(model), self._aliases.get(model, model)
        if self._belongs_to_peer(named, engine):
            with self._peers.lease(named) as upstream:
                yield upstream
            return
        if engine is None or engine.endpoint is None:
            raise NotServing(truncate(clean_line(model), 120), self._eta(self._request(model)))
        engine.in_flight += 1
        try:
            yield Upstream(engine.view.name, engine.endpoint, engine.called(named))
            engine.answered += 1
        finally:
            engine.in_flight -= 1
            engine.used = self._clock.monotonic()
            self._moved.set()

    def _belongs_to_peer(self, name: str, engine: _Engine | None) -> bool:
        """Whether a request for that name goes to another machine: where it serves and is less busy there, or where
        only another machine knows it."""
        busy = self._peers.busy(name)
        if engine is not None:
            return busy is not None and busy < engine.in_flight
        if busy is not None:
            return True
        here = self._offered(name) is not None or any(name in each.names for each in self._engines.values())
        return not here and self._peers.offers(name)

    async def ready(self, model: str) -> None:
        if (engine := self._serving(model)) or self._belongs_to_peer(self._aliases.get(model, model), engine):
            return
        swap = self._request(model)
        swap.waiting += 1
        try:
            error = await asyncio.shield(swap.over)
        finally:
            swap.waiting -= 1
        if error is not None:
            raise error

    def eta(self, model: str) -> float | None:
        swap = self._swaps.get(self._wanted(model).preset.name)
        return 0.0 if swap is None else self._eta(swap)

    def broken(self, engine: str) -> None:
        if not self._peers.lost(engine):
            self._spawn(self._revive(engine))

    def _serving(self, model: str) -> _Engine | None:
        """The engine for a name, the least busy of several; None where none serves it or takes new requests."""
        name = self._aliases.get(model, model)
        able = [each for each in self._engines.values() if each.serving and each.view.name not in self._draining]
        found = [each for each in able if each.is_of(name)] or [each for each in able if name in each.names]
        if not found and (offer := self._offered(name)) is not None:  # by the name that its preset has now
            found = [each for each in able if each.is_of(offer.preset.name)]
        return min(found, key=lambda each: (each.in_flight, each.view.name), default=None)

    def _offered(self, name: str) -> _Offer | None:
        return self._offers.get(name) or next((each for each in self._offers.values() if name in each.names), None)

    def _wanted(self, model: str) -> _Offer:
        """The preset behind a name. Raises ModelNotServed."""
        name = self._aliases.get(model, model)
        offer = self._offered(name)
        for engine in self._engines.values():  # it starts already, or drains
            if offer is None and name in engine.names:
                offer = self._offers.get(engine.view.container.preset) or self._offer_of(engine.view)
        if offer is None:
            if self._clock.monotonic() - self._loaded_at >= _RELOAD_SECONDS:
                self._loaded_at = self._clock.monotonic()
                self._spawn(self.load())
            known = ", ".join(each.id for each in self.models()) or "none"
            raise ModelNotServed(
                f"The model {truncate(clean_line(model), 120)} is unknown.", truncate(f"Known models: {known}.", 1000)
            )
        return offer

    def _offer_of(self, view: EngineView) -> _Offer | None:
        with suppress(SparkError):
            request = request_of(view, catalogue(self._context))
            return _Offer(request.preset, request.overrides, view.served_name)
        return None

    # --- swaps ------------------------------------------------------------------------------------------

    def _request(self, model: str) -> _Swap:
        """The launch of that model, begun if there is none. Raises the cause of one that failed a moment ago or fails
        too often, ModelNotServed for an unknown model."""
        offer = self._wanted(model)
        name = offer.preset.name
        if name in self._swaps:
            return self._swaps[name]
        failures, now = self._failures.get(name, _Failures()), self._clock.monotonic()
        times = recent(failures.times, now)
        if failures.cause is not None and times and now - times[-1] < _CAUSE_SECONDS:
            raise failures.cause
        if len(times) >= self.policy.failures:
            why = failures.cause.summary if failures.cause is not None else ""
            raise RefusedError(
                f"{name} failed {len(times)} times within an hour and is not launched again. {why}".rstrip(),
                f"See why on its host: spark-tui explain {offer.name}",
            )
        swap = self._swaps[name] = _Swap(offer, asyncio.get_running_loop().create_future())
        self._spawn(self._swap(swap))
        return swap

    async def _swap(self, swap: _Swap) -> None:
        name, ended = swap.offer.preset.name, list[LaunchRequest]()
        async with self._turn:
            swap.began = self._clock.monotonic()
            try:
                await self._bring_up(swap, ended)
            except (SparkError, OSError) as caught:
                error = failure_of(name, caught)
                self._failed(name, error)
                self._finish(swap, error)
                await self._bring_back(ended)
            else:
                self._finish(swap, None)
            finally:
                self._finish(swap, RefusedError("The gateway stops.", "Start it again: spark-tui gateway"))
                self._draining.clear()

    def _finish(self, swap: _Swap, error: SparkError | None) -> None:
        if not swap.over.done():
            swap.over.set_result(error)
            self._swaps.pop(swap.offer.preset.name, None)

    async def _bring_up(self, swap: _Swap, ended: list[LaunchRequest]) -> None:
        """Makes way for the engine, launches it, and returns when requests reach it. `ended` gets what was stopped."""
        offer, launcher = swap.offer, self._context[Launcher]

        def report(step: Step) -> None:
            if step.state is StepState.RUNNING:
                swap.phase, swap.detail = step.label, clean_line(step.detail)

        running = next((each for each in self._engines.values() if each.is_of(offer.preset.name)), None)
        if running is not None and not running.serving:
            await launcher.resume(running.view.name, report)
        elif running is None:
            if self._context[Editor].is_busy(offer.name):
                raise RefusedError(f"{offer.name} is being edited.", "Retry when the edit is finished.")
            launch = await self._make_way(swap, ended)
            await launcher.launch(LaunchRequest(offer.preset, launch.plan.overrides), report, planned=launch)
        self._draining.clear()
        deadline = self._clock.monotonic() + _ROUTE_SECONDS
        while self._serving(offer.preset.name) is None:
            if self._clock.monotonic() >= deadline:
                raise UnreachableError(f"{offer.name} serves, but cannot be reached.", "Check its API key file.")
            self._moved.clear()
            await pause(self._clock, _LOOK_SECONDS, self._moved)
        self._context.store.say(f"{offer.name}: launched on request", kind=EventKind.LAUNCH, subject=offer.name)

    async def _make_way(self, swap: _Swap, ended: list[LaunchRequest]) -> Launch:
        """Ends engines by the policy until the launch fits. Returns it, on a port that is free. Raises
        SwapRefused, WillNotFit."""
        context, offer, began = self._context, swap.offer, self._clock.monotonic()

        def say(text: str) -> None:
            swap.phase, swap.detail = "memory", text

        while True:
            await context[MemoryGate].refresh()
            launch = await context[LaunchChecks].launch(offer.preset, await self._placed(offer))
            launch.settle()
            await context[MemoryGate].await_return(say, lambda launch=launch: short_of_memory(launch.fit()))  # type: ignore[misc]
            fit = launch.fit()
            if fit.blocked and not short_of_memory(fit):
                raise launch.refused(fit)
            residents = await self._residents(offer, fit)
            found = evict(residents, _short_bytes(fit) if fit.blocked else 0)
            if found.refused and not residents:
                raise launch.refused(fit)
            if found.refused:
                raise SwapRefused(f"{offer.name} has no room. {' '.join(fit.reasons)}", f"Stays: {found.refused}.")
            if not (found.stop or found.wait):
                return launch
            if found.wait:
                swap.phase, swap.detail = "waiting", f"{', '.join(found.wait)} busy"
                if self._clock.monotonic() - began >= _DRAIN_AFTER_SECONDS:
                    self._draining.update(found.wait)
                await self._clock.sleep(_LOOK_SECONDS)
            for name in found.stop:
                if (engine := self._engines.get(name)) is not None and not engine.in_flight:
                    swap.phase, swap.detail = "stopping", name
                    await self._end(engine, f"for {offer.name}", ended)
                    swap.stopped = (*swap.stopped, name)

    async def _placed(self, offer: _Offer) -> Overrides:
        """The offer's settings, on the next free port where another one has its own."""
        overrides, host = offer.overrides, self._context.ports.host
        wanted = self._context[Preflight].dry_plan(offer.preset, overrides).host_port
        taken = {each.view.port for each in self._engines.values()}
        for port in range(wanted, wanted + _MOST_PORTS):
            if port not in taken and await in_thread(host.port_owner, port) is None:
                return overrides if port == wanted else replace(overrides, port=port)
        return overrides

    async def _residents(self, offer: _Offer, fit: Fit) -> list[Resident]:
        holds = {each.name: each.holds for each in fit.neighbours}
        return [
            replace(
                await self._resident(each, holds.get(each.view.name)),
                excluded=not self.policy.may_run_with(each.names, offer.names),
            )
            for each in tuple(self._engines.values())
        ]

    async def _resident(self, engine: _Engine, holds: int | None = None) -> Resident:
        name, fixed = engine.view.name, ""
        idle: float | None = self._clock.monotonic() - engine.used
        if self.policy.pins(engine.names):
            fixed = "pinned"
        elif self._offer_of(engine.view) is None:
            fixed = "not started from a preset"
        elif engine.in_flight or not engine.serving or (idle or 0.0) < self.policy.stay_seconds:
            idle = None
        else:
            running = await in_flight(self._context, name)
            fixed = "number of running requests unknown" if running is None else ""  # unknown is not idle
            idle = None if running else idle
        return Resident(name, holds, idle, fixed)

    async def _end(self, engine: _Engine, why: str, ended: list[LaunchRequest]) -> None:
        view = engine.view
        with suppress(SparkError):
            ended.append(request_of(view, catalogue(self._context)))
        self._draining.add(view.name)
        self._context.store.say(f"{view.name}: stopped by the gateway {why}", kind=EventKind.STOPPED, subject=view.name)
        await self._context[EngineSupervisor].stop(view.name)

    async def _bring_back(self, ended: list[LaunchRequest]) -> None:
        """Starts again what was ended for a launch that failed; the last one first."""
        for request in reversed(ended):
            name = request.overrides.name or request.preset.name
            try:
                await self._context[Launcher].launch(replace(request, force=True, fetch=False), lambda _: None)
            except SparkError as error:
                self._failed(request.preset.name, error)
                self._context.store.say(
                    f"{name} was not brought back: {error.summary}", Severity.ERROR, error.remedy, subject=name
                )

    def _failed(self, preset: str, error: SparkError) -> None:
        self._count(preset, error)
        self._context.store.say(
            f"{preset}: launch on request failed: {error.summary}",
            Severity.ERROR,
            error.remedy,
            kind=EventKind.FAILED,
            subject=preset,
        )

    def _count(self, preset: str, cause: SparkError | None) -> None:
        now = self._clock.monotonic()
        before = self._failures.get(preset, _Failures())
        self._failures[preset] = _Failures((*recent(before.times, now), now), cause)

    async def _revive(self, name: str) -> None:
        """Launches an engine again that has died; one that is there was only slow to answer."""
        engine = self._engines.get(name)
        await self._context[EngineSupervisor].refresh()
        if engine is None or name in self._engines:
            return
        preset = engine.view.container.preset
        died = RefusedError(f"{name} ended while it answered.", f"See why on its host: spark-tui explain {name}")
        before = self._failures.get(preset, _Failures())
        if before.times and self._clock.monotonic() - before.times[-1] < 1.0:  # one death breaks many answers
            return
        self._count(preset, None)
        self._context.store.say(died.summary, Severity.ERROR, died.remedy, kind=EventKind.FAILED, subject=name)
        with suppress(SparkError):
            self._request(preset)

    # --- time -------------------------------------------------------------------------------------------

    def _eta(self, swap: _Swap) -> float | None:
        """The rest of the launch that runs, the usual time of those in front, and its own; None when one is unknown."""
        total = 0.0
        for each in self._swaps.values():
            watch = self._context[EngineSupervisor].find(each.offer.name)
            left = self._context[History].eta(watch.view()).seconds if watch is not None and each.began else None
            usual = self._usual(each.offer)
            if left is None and usual is not None:
                passed = self._clock.monotonic() - each.began if each.began is not None else 0.0
                left = max(0.0, usual - passed)
            if left is None:
                return None
            total += left
            if each is swap:
                break
        return total

    def _usual(self, offer: _Offer) -> float | None:
        starts = [each for each in self._context[History].starts if each.preset == offer.preset.name and each.ready]
        past = [each.seconds for each in starts if each.seconds is not None]
        return median(past[-MAX_STARTS:]) if past else None

    async def _sweep(self) -> None:
        """Ends engines that were idle for longer than the policy's ttl, by their own counters too."""
        while True:
            await self._clock.sleep(_SWEEP_SECONDS)
            if not self.policy.ttl_seconds or self._turn.locked():
                continue
            for engine in tuple(self._engines.values()):
                if not engine.serving or engine.in_flight or engine.endpoint is None:
                    continue
                with suppress(SparkError):
                    tokens = (await self._context.ports.metrics.read(engine.endpoint)).total(Family.GENERATED)
                    if tokens != engine.generated:  # used past the gateway
                        engine.generated, engine.used = tokens, self._clock.monotonic()
                    resident = await self._resident(engine)
                    idle = resident.idle_seconds
                    if not resident.fixed and idle is not None and idle >= self.policy.ttl_seconds:
                        await self._end(engine, "after its idle time", [])

    # --- status -----------------------------------------------------------------------------------------

    def status(self) -> GatewayStatus:
        now = self._clock.now()
        swaps = []
        for each in self._swaps.values():
            eta = self._eta(each)
            ready_at = None if eta is None else round(now + eta)
            swaps.append(GatewaySwap(each.offer.name, each.phase, each.detail, each.waiting, each.stopped, ready_at))
        return GatewayStatus(
            self._address,
            self._since,
            self.keyed,
            tuple(
                GatewayEngine(each.view.name, each.names, each.in_flight, each.answered, self.policy.pins(each.names))
                for each in self._engines.values()
                if each.serving
            ),
            tuple(swaps),
            tuple((name, each.cause.summary) for name, each in self._failures.items() if each.cause is not None),
            self._peers.status(),
            self._lens.costs(),
        )

    async def _report(self) -> None:
        """Writes the status for other programs whenever it has changed."""
        last: GatewayStatus | None = None
        while True:
            status = self.status()
            if status != last and status.address:
                with suppress(SparkError):  # a full disk does not end the gateway
                    await in_thread(self._context.ports.state.write, FILE, encode(status).encode())
                last = status
            await self._clock.sleep(_LOOK_SECONDS)

    def _spawn(self, work: Awaitable[None]) -> None:
        async def quietly() -> None:
            with suppress(SparkError):  # a request that needs it meets the error itself
                await work

        task = asyncio.ensure_future(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _short_bytes(fit: Fit) -> int:
    """How much memory is missing, at least one byte."""
    wanted = fit.claim if fit.claim is not None else fit.at_least
    return max(wanted - (fit.available or 0), -(fit.left or 0), 1)


# --- gateways of other machines ------------------------------------------------------------------------


LOOK_SECONDS: Final = 3.0


def key_name(peer: str) -> str:
    """The private file that holds the key for a peer."""
    return f"gateway-peer-{peer}"


class _Peer(Struct):
    """`models` are its own: those of gateways behind it are left out, so that no request goes in circles."""

    name: str
    endpoint: Endpoint
    models: tuple[ServedModel, ...] = ()
    in_flight: int = 0
    answered: int = 0
    problem: str = "not asked yet"


class Peers:
    """Asks every peer for its models, again and again. Their engines' keys stay with them."""

    def __init__(self, api: EngineApi, secrets: SecretStore, clock: Clock, peers: Sequence[tuple[str, str]]) -> None:
        self._api = api
        self._clock = clock
        keys = {name: secrets.api_key(str(secrets.path(key_name(name)))) for name, _ in peers}
        self._peers = [_Peer(name, Endpoint(url.rstrip("/"), keys[name])) for name, url in peers]

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.gather(*map(self._look, self._peers))
            await self._clock.sleep(LOOK_SECONDS)

    async def _look(self, peer: _Peer) -> None:
        try:
            listed = await self._api.models(peer.endpoint)
            peer.models = tuple(each for each in listed if not each.root.startswith(PEER_MARK))
            peer.problem = ""
        except SparkError as error:
            peer.models, peer.problem = (), error.summary

    def busy(self, model: str) -> int | None:
        """Requests under way at the least busy peer that serves a model; None where none does."""
        found = self._found(model, serving=True)
        return None if found is None else found.in_flight

    def offers(self, model: str) -> bool:
        """Whether a peer serves or would launch it."""
        return self._found(model, serving=False) is not None

    def models(self) -> Iterator[GatewayModel]:
        for peer in self._peers:
            for each in peer.models:
                yield GatewayModel(each.id, PEER_MARK + peer.name, each.serving, each.max_model_len)

    @contextmanager
    def lease(self, model: str) -> Iterator[Upstream]:
        """The peer for one request, one that serves before one that would launch. Raises ModelNotServed."""
        peer = self._found(model, serving=True) or self._found(model, serving=False)
        if peer is None:
            raise ModelNotServed(f"No other machine serves {truncate(clean_line(model), 120)}.", "See GET /v1/models.")
        peer.in_flight += 1
        try:
            yield Upstream(PEER_MARK + peer.name, peer.endpoint, model)
            peer.answered += 1
        finally:
            peer.in_flight -= 1

    def lost(self, engine: str) -> bool:
        """Whether that names a peer, which then counts as away until it answers again."""
        peer = next((each for each in self._peers if PEER_MARK + each.name == engine), None)
        if peer is not None:
            peer.models, peer.problem = (), "it did not answer a request"
        return peer is not None

    def status(self) -> tuple[GatewayPeer, ...]:
        return tuple(
            GatewayPeer(
                each.name,
                each.endpoint.base_url,
                tuple(model.id for model in each.models if model.serving),
                each.in_flight,
                each.answered,
                each.problem,
            )
            for each in self._peers
        )

    def _found(self, model: str, *, serving: bool) -> _Peer | None:
        able = (
            each for each in self._peers if any(one.id == model and (one.serving or not serving) for one in each.models)
        )
        return min(able, key=lambda each: (each.in_flight, each.name), default=None)
