"""The work of one node of a cluster on itself: what another machine's spark-tui asks of this one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spark_tui import __version__
from spark_tui.base.context import Context
from spark_tui.base.engine.container import (
    LABEL_API_KEY_FILE,
    LABEL_LAUNCH,
    LABEL_RUNTIME,
    LOOPBACK,
    ContainerFacts,
    ContainerSpec,
    EnvVar,
    hub_environment,
    local_model_path,
)
from spark_tui.base.engine.invocation import parse
from spark_tui.base.engine.message import (
    AnswerFinished,
    ChatParameters,
    ChatRequest,
    ContentDelta,
    Message,
    ReasoningDelta,
    Role,
    ToolCallDelta,
)
from spark_tui.base.engine.metrics_page import Family
from spark_tui.base.engine.state import Endpoint, Health, runtime_of
from spark_tui.base.errors import EngineFailed, NameInUse, PortInUse, RefusedError, SparkError
from spark_tui.base.executors import in_thread
from spark_tui.base.finding import Reading, reason_of, value_of
from spark_tui.base.host.detectors import Leak, leaked
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.ports import (
    Clock,
    ContainerEngine,
    EngineApi,
    GpuProbe,
    HostProbe,
    LogArchive,
    MetricsSource,
    SecretStore,
    StateFiles,
    VitalsProbe,
    port_named,
)
from spark_tui.base.protocol import (
    Canary,
    CanaryRequest,
    Cleared,
    FabricLink,
    Lease,
    LookRequest,
    NodeLook,
    NodeVitals,
    RankState,
    Router,
    RouteRequest,
    StartRequest,
    StopRequest,
    rank_of,
)
from spark_tui.base.quantities import human_duration
from spark_tui.base.secret import Secret
from spark_tui.base.untrusted import decode, encode
from spark_tui.catalog.models.model.store import repository_mounts
from spark_tui.catalog.models.use.ports import ModelStore
from spark_tui.manage.cluster.model.facts import Dial, Ping, ProbeRequest, RoceDevice, Transfer
from spark_tui.observe.engines.use.collectors import clear_container

if TYPE_CHECKING:  # made for a start alone: a look is asked for again and again
    from spark_tui.observe.memory.use.guard import GuardLauncher
    from spark_tui.observe.memory.use.memory import CacheControl

T = TypeVar("T")
FREE_SECONDS: Final = 15.0
"""How long a port may take to be free after its container is gone."""
_LOOK_SECONDS: Final = 0.3
_READY_SECONDS: Final = 1.0
_TRAFFIC_SECONDS: Final = 1.0
_LEASE: Final = "node-lease"
_ROUTER: Final = "node-router-"
"""Before the launch that a router is for."""
_ROUTING: Final = "node-routing"
_STOPPED: Final = "node-stopped"
"""The launch that was stopped last. Its program may have been killed, and a request of it still be under way."""
_ANSWERS: Final = (ContentDelta, ReasoningDelta, ToolCallDelta, AnswerFinished)


def _cache(context: Context) -> CacheControl:
    from spark_tui.observe.memory.use.memory import CacheControl

    return context[CacheControl]


def _guard_launcher(context: Context) -> GuardLauncher | None:
    from spark_tui.observe.memory.use.guard import guard_launcher

    return context.once(guard_launcher)


@port_named("fabric")
class FabricProbe(Protocol):
    """The network between nodes, as this one sees it. Nothing is changed, and nothing raises. `links` and `devices`
    read files: not for the event loop."""

    def links(self) -> Reading[tuple[FabricLink, ...]]: ...
    def devices(self) -> Reading[tuple[RoceDevice, ...]]: ...

    async def route(self, peer: str) -> str | None:
        """The interface to an address, empty without a route; None where that is not known."""

    async def ping(self, ping: Ping) -> Ping: ...

    async def ssh(self, address: str) -> str:
        """Why a login there fails; empty when it does not."""

    async def transfer(self, transfer: Transfer, seconds: float) -> Transfer: ...

    async def meet(self, request: ProbeRequest) -> tuple[tuple[Dial, ...], dict[str, str]]:
        """Listens and connects for as long as asked. The dials with their problems, and for each port why it could not
        listen."""


@port_named("routers")
class Routers(Protocol):
    """`vllm-router` on this machine: programs that outlive this one."""

    def available(self) -> bool:
        """Whether it is installed."""

    def start(self, request: RouteRequest) -> Router:
        """Returns once it listens; blocks until then. Raises SparkError where it does not start."""

    def runs(self, router: Router) -> bool: ...

    def end(self, router: Router) -> bool:
        """Whether its process is gone afterwards."""


class Node(Struct, eq=False):
    """This machine as a node. What it starts, its own guard watches."""

    _docker: ContainerEngine
    _api: EngineApi
    _metrics: MetricsSource
    _host: HostProbe
    _fabric: FabricProbe | None
    _secrets: SecretStore
    _archive: LogArchive
    _state: StateFiles
    _cache: Callable[[], CacheControl]
    _guard: Callable[[], GuardLauncher | None]
    _gpu: GpuProbe
    _vitals: VitalsProbe
    _routers: Routers | None
    _clock: Clock
    _paths: HostPaths
    _models: Callable[[], ModelStore]

    @classmethod
    def from_context(cls, context: Context) -> Node:
        return cls(
            context.docker,
            context.api,
            context.ports.metrics,
            context.host,
            context.find(FabricProbe),
            context.secrets,
            context.archive,
            context.ports.state,
            partial(_cache, context),
            partial(_guard_launcher, context),
            context.ports.gpu,
            context.ports.vitals,
            context.find(Routers),
            context.clock,
            context.paths,
            lambda: context[ModelStore],
        )

    def verbs(self) -> dict[str, tuple[type[Any], Callable[[Any], Awaitable[object]]]]:
        """What it does by name: the type of the request, and the work."""
        return {
            "look": (LookRequest, self.look),
            "lease": (Lease, self.lease),
            "start": (StartRequest, self.start),
            "stop": (StopRequest, self.stop),
            "canary": (CanaryRequest, self.canary),
            "route": (RouteRequest, self.route),
        }

    async def look(self, request: LookRequest) -> NodeLook:
        """What a launch needs to know. A Docker that does not answer is a part of the answer."""
        memory = self._host.memory()
        found = value_of(memory)
        look = NodeLook(
            self._host.identity().hostname,
            __version__,
            found.available if found else None,
            found.total if found else None,
            "" if found else reason_of(memory),
            taken=await self._taken(request.ports),
            files=await self._files(request),
            links=value_of(await in_thread(self._fabric.links)) or () if self._fabric else (),
            vitals=await self._vital_signs(request.interfaces) if request.vitals else None,
            router=self._routers is not None and self._routers.available(),
        )
        if inside := request.model and local_model_path(request.model):
            path = Path(self._paths.store) / inside
            look = replace(look, model=self._host.has_folder(path) or self._host.has_file(path))
        try:
            image = await self._docker.image(request.image) if request.image else None
            ranks = await self._ranks()
        except SparkError as error:
            return replace(look, docker_problem=error.summary)
        return replace(look, image=image, ranks=ranks)

    async def _files(self, request: LookRequest) -> tuple[tuple[str, int, str], ...] | None:
        try:
            stored = await self._models().files(request.model, request.revision, anywhere=True) if request.model else ()
        except SparkError:
            return None
        return tuple((each.name, each.size or 0, each.blob) for each in stored) or None

    async def _vital_signs(self, interfaces: Sequence[str]) -> NodeVitals:
        """What the GPU does, and the traffic of one second."""
        await in_thread(self._vitals.look)
        reading, _ = await asyncio.gather(self._gpu.read(), self._clock.sleep(_TRAFFIC_SECONDS))
        links = value_of((await in_thread(self._vitals.look)).links) or ()
        rates = [each for each in links if each.name in interfaces]
        gpu = value_of(reading)
        traffic = (sum(each.received for each in rates), sum(each.sent for each in rates)) if rates else (None, None)
        if gpu is None:
            return NodeVitals(None, None, None, *traffic)
        return NodeVitals(gpu.utilization_percent, gpu.power_watts, gpu.temperature_c, *traffic)

    async def lease(self, wanted: Lease) -> Lease:
        """Keeps this node for one launch, or gives it back. Raises RefusedError while it is kept for another one."""
        if not self._state.claim(_LEASE):
            raise RefusedError("Another launch is asking for this node just now.", "Launch again in a moment.")
        try:
            kept, now = self._kept(_LEASE, Lease), self._clock.now()
            # One machine works on a name once at a time: what is its own and another launch was killed.
            own = kept is not None and (kept.name, kept.who) == (wanted.name, wanted.who)
            if kept is not None and kept.until > now and kept.launch != wanted.launch and not own:
                left = human_duration(kept.until - now)
                raise RefusedError(
                    f"This node is kept for the launch of {kept.name} by {kept.who} (at most {left} more).",
                    "Wait until it is ready, or stop it there.",
                )
            if wanted.until > now:
                self._state.write(_LEASE, encode(wanted).encode())
            else:
                self._state.remove(_LEASE)
        finally:
            self._state.release(_LEASE)
        return wanted

    def _kept(self, name: str, kind: type[T]) -> T | None:
        """As it was written down; None for nothing, and for what cannot be read."""
        data = self._state.read(name)
        with suppress(ValueError):
            return decode(data.decode(), kind) if data else None
        return None

    async def start(self, request: StartRequest) -> RankState:
        """Guard first, then the container. One of ours with that name gives way. Raises NameInUse, PortInUse and what
        Docker refuses; then nothing new is left."""
        spec = request.spec
        self._refuse_stopped(spec.label(LABEL_LAUNCH))
        guard = self._guard()
        if guard is not None:
            await guard.ensure()
        existing = next((each for each in await self._docker.containers() if each.name == spec.name), None)
        if existing is not None and not existing.ours:
            raise NameInUse(
                f"A container named {spec.name} exists, not made by spark-tui.",
                f"Remove it there: docker rm {spec.name}. Or launch under another name.",
            )
        if existing is not None:
            await clear_container(self._docker, self._archive, existing)
        if taken := await self._taken(request.ports):
            port, owner = taken[0]
            raise PortInUse(f"Port {port} is taken by {owner}.", "Stop that process.")
        keys = self._env_file(request)
        labels = tuple(pair for pair in spec.labels if pair[0] != LABEL_API_KEY_FILE)
        if request.key_variable:
            labels += ((LABEL_API_KEY_FILE, keys),)
        spec = replace(spec, labels=labels, env_files=(keys,) if keys else ())
        spec = await self._with_models(spec, request.models)
        made = (each.source for each in spec.mounts[len(request.spec.mounts) :] if not each.read_only)
        await in_thread(self._host.make_folders, [Path(folder) for folder in (*request.folders, *made)])
        await self._cache().drop_quietly()
        container = await self._docker.create(spec)
        try:
            await self._docker.start(spec.name)
            self._refuse_stopped(spec.label(LABEL_LAUNCH))
            state = rank_of(await self._docker.inspect(container))
        except SparkError:
            await self._docker.remove(container, force=True)
            raise
        if state is None:
            await self._docker.remove(container, force=True)
            raise EngineFailed(f"{spec.name} has no rank.", "Launch it: spark-tui up PRESET --nodes CLUSTER")
        return state

    async def _with_models(self, spec: ContainerSpec, wanted: Mapping[str, str]) -> ContainerSpec:
        """The container, with each of these models (revision by repository) read from where this node has all of it,
        when that is not its store."""
        models = self._models() if wanted else None
        if models is None:
            return spec
        elsewhere = {repo: await in_thread(models.elsewhere, repo, revision) for repo, revision in wanted.items()}
        mounts = repository_mounts(self._paths.store, elsewhere)
        command = parse((*(spec.entrypoint or ()), *spec.command), spec.label(LABEL_RUNTIME))
        env = {each.name: each.value for each in spec.env}
        env = hub_environment(env, command.value) if mounts else env
        return replace(spec, env=tuple(EnvVar(*pair) for pair in env.items()), mounts=(*spec.mounts, *mounts))

    def _refuse_stopped(self, launch: str) -> None:
        if launch and self._state.read(_STOPPED) == launch.encode():
            raise RefusedError(
                "This launch was stopped meanwhile.", "Launch again: spark-tui up PRESET --nodes CLUSTER"
            )

    async def stop(self, request: StopRequest) -> Cleared:
        """Stops and removes, keeps the logs, and looks at what is left. Raises what Docker raises."""
        if request.final:
            self._state.write(_STOPPED, request.launch.encode())
        wanted = [each for each in await self._docker.containers() if _meant(each, request)]
        await asyncio.gather(*(self._end(each, request.grace_seconds) for each in wanted))
        left = [] if request.keeps_router else await self._end_routers()
        taken = await self._until_free(request.ports)
        left += [f"port {port} is taken by {owner}" for port, owner in taken]
        still = [each for each in await self._docker.containers() if _meant(each, request)]
        left += [f"the container {each.name} is {each.status.value}" for each in still]
        left += filter(None, [await self._sweep(wanted)])
        kept, memory = self._kept(_LEASE, Lease), value_of(self._host.memory())
        if request.final and kept is not None and kept.launch == request.launch:
            self._state.remove(_LEASE)
        return Cleared(tuple(each.name for each in wanted), tuple(left), memory.available if memory else None)

    async def route(self, request: RouteRequest) -> Router:
        """A router for the replicas of a launch, as long as one of its ranks is here; one that runs is left alone.
        Raises RefusedError without such a rank, PortInUse, and what keeps it from starting."""
        if self._routers is None:
            raise RefusedError("Clusters are not available in the demo.", "Start without --demo.")
        async with self._routing():
            if all(each.launch != request.launch for each in await self._ranks()):
                raise RefusedError("The launch of this router is not here.", "Launch it again.")
            known = self._kept(_ROUTER + request.launch, Router)
            if known is not None and self._routers.runs(known):
                return known
            if taken := await self._taken((request.port,)):
                raise PortInUse(f"Port {request.port} is taken by {taken[0][1]}.", "Stop that process.")
            started = await in_thread(self._routers.start, request)
            self._state.write(_ROUTER + request.launch, encode(started).encode())
        return started

    async def _end_routers(self) -> list[str]:
        """Ends the routers of which no rank is here any more; a sentence for each that is still there."""
        left: list[str] = []
        if self._routers is None or not self._state.names(_ROUTER):
            return left
        async with self._routing():
            launches = {each.launch for each in await self._ranks()}
            for name in self._state.names(_ROUTER):
                known = self._kept(name, Router)
                if known is not None and known.launch in launches:
                    continue
                if known is not None and not await in_thread(self._routers.end, known):
                    left.append(f"the router (process {known.pid}) is still there")
                else:
                    self._state.remove(name)
        return left

    @asynccontextmanager
    async def _routing(self) -> AsyncIterator[None]:
        """Raises RefusedError while another program starts or ends a router here."""
        deadline = self._clock.monotonic() + FREE_SECONDS
        while not self._state.claim(_ROUTING):
            if self._clock.monotonic() >= deadline:
                raise RefusedError("Another program works on the router of this node.", "Try again in a moment.")
            await self._clock.sleep(_LOOK_SECONDS)
        try:
            yield
        finally:
            self._state.release(_ROUTING)

    async def canary(self, request: CanaryRequest) -> Canary:
        """Completions of few tokens on the server here. Never raises: what is wrong is the answer."""
        key = self._secrets.api_key(str(self._secrets.path(request.container))) if request.keyed else None
        endpoint = Endpoint(f"http://{LOOPBACK}:{request.port}", key, request.runtime)
        deadline = self._clock.monotonic() + request.patience
        found = await self._listed(endpoint, request)
        while not found.listed and self._clock.monotonic() < deadline and await self._runs(request.container):
            await self._clock.sleep(_READY_SECONDS)
            found = await self._listed(endpoint, request)
        if not found.listed:
            return found
        problems = await asyncio.gather(*(self._answer(endpoint, request) for _ in range(request.answers)))
        lost = next(filter(None, problems), "")
        return replace(found, answered=sum(not problem for problem in problems), problem=lost)

    async def _listed(self, endpoint: Endpoint, request: CanaryRequest) -> Canary:
        healthy = await self._api.health(endpoint) is Health.OK
        try:
            models = await self._api.models(endpoint)
        except SparkError as error:
            return Canary(healthy, listed=False, problem=error.summary)
        listed = any(model.id == request.model for model in models)
        try:
            page = await self._metrics.read(endpoint)
            totals = page.total(Family.RUNNING), page.total(Family.GENERATED)
            counts = tuple(None if each is None else int(each) for each in totals)
        except SparkError:
            counts = (None, None)
        return Canary(healthy, listed, 0, "" if listed else f"it does not list {request.model}", *counts)

    async def _runs(self, container: str) -> bool:
        try:
            return (await self._docker.inspect(container)).running
        except SparkError:
            return False

    async def _answer(self, endpoint: Endpoint, request: CanaryRequest) -> str:
        """Why no token came; empty when one did."""
        ask = ChatRequest(request.model, (Message(Role.USER, "ping"),), ChatParameters(max_tokens=1))
        try:
            async with asyncio.timeout(request.seconds), aclosing(self._api.chat(endpoint, ask)) as events:
                async for event in events:
                    if isinstance(event, _ANSWERS):
                        return ""
        except TimeoutError:
            return f"no token within {request.seconds:g} s"
        except SparkError as error:
            return error.summary
        return "an answer without a token"

    # --- parts ----------------------------------------------------------------------------------------

    async def _ranks(self) -> tuple[RankState, ...]:
        return tuple(filter(None, map(rank_of, await self._docker.containers())))

    async def _end(self, container: ContainerFacts, grace_seconds: int) -> None:
        if container.running:
            await self._docker.stop(container.id, grace_seconds)
        await clear_container(self._docker, self._archive, await self._docker.inspect(container.id))

    async def _sweep(self, ended: Sequence[ContainerFacts]) -> str:
        """Removes the shared memory that these containers left in /dev/shm, in a container of their image: the files
        are root's. Returns what is still there; empty for nothing."""
        began = min((each.started_at for each in ended if each.started_at is not None), default=None)
        if began is None or not (leak := await self._leak(began)).files:
            return ""
        first = ended[0]
        paths = tuple(f"/dev/shm/{file.name}" for file in leak.files)  # noqa: S108 - named, not used
        spec = ContainerSpec(
            f"{first.name}-shm", first.image, paths, ("rm", "-f", "--"), ipc="host", network="none", labels=first.labels
        )
        container = await self._docker.create(spec)
        try:
            await self._docker.start(container)
            deadline = self._clock.monotonic() + FREE_SECONDS
            while await self._runs(container) and self._clock.monotonic() < deadline:
                await self._clock.sleep(_LOOK_SECONDS)
        finally:
            await self._docker.remove(container, force=True)
        return (await self._leak(began)).sentence

    async def _leak(self, began: float) -> Leak:
        """The shared memory of engines that are gone, of what was written since then."""
        files = value_of(await in_thread(self._host.shared_files)) or ()
        running = any(each.running and runtime_of(each) for each in await self._docker.containers())
        age = self._clock.now() - began
        return leaked([file for file in files if file.age <= age], engines_run=running, least_age=0)

    async def _taken(self, ports: Sequence[int]) -> tuple[tuple[int, str], ...]:
        owners = [(port, await in_thread(self._host.port_owner, port)) for port in ports]
        return tuple((port, owner) for port, owner in owners if owner is not None)

    async def _until_free(self, ports: Sequence[int]) -> tuple[tuple[int, str], ...]:
        deadline = self._clock.monotonic() + FREE_SECONDS
        while (taken := await self._taken(ports)) and self._clock.monotonic() < deadline:
            await self._clock.sleep(_LOOK_SECONDS)
        return taken

    def _env_file(self, request: StartRequest) -> str:
        """This node's own keys in a private file; empty when it has none to give."""
        values: dict[str, Secret] = {}
        token = self._secrets.hf_token() if request.uses_hub else None
        if token:
            values["HF_TOKEN"] = token
        if request.key_variable:
            kept = self._secrets.api_key(str(self._secrets.path(request.spec.name)))
            values[request.key_variable] = kept or self._secrets.new_key()
        return str(self._secrets.env_file(request.spec.name, values)) if values else ""


def _meant(container: ContainerFacts, request: StopRequest) -> bool:
    rank = rank_of(container)
    return rank is not None and (container.name in request.names or bool(rank.launch and rank.launch == request.launch))
