"""What an engine is said to be: one word for its state, one for who can reach it."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.container import (
    ADDRESS_ID,
    ALL_INTERFACES,
    LABEL_RUNTIME,
    LABEL_TOOL,
    PROCESS_ID,
    ContainerFacts,
    ContainerStatus,
    PublishedPort,
)
from spark_tui.base.engine.runtimes import ANY, PROXIES, RUNTIMES, program_of, recognised, runtime_named, server_of
from spark_tui.base.remote import server_address
from spark_tui.base.secret import Secret

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_KEY_OPTIONS: Final = ("--api-key", "--api-key-file")


class Endpoint(Struct, frozen=True):
    """`base_url` without a trailing slash, `http://127.0.0.1:8000`; the key goes into the Authorization header only.

    `runtime` is an id of the table of runtimes and says how this server is asked; unknown ones are asked as vLLM is.
    `model` is the name that is served here, for servers that list all they have in store; empty: all of them.
    """

    base_url: str
    api_key: Secret | None = None
    runtime: str = "vllm"
    model: str = ""


class Health(StrEnum):
    """What the server's health page says."""

    OK = "ok"
    NOT_LISTENING = "not listening"
    LOADING = "loading"
    DEAD = "engine dead"
    FAILING = "answering with a server error"
    UNKNOWN = "unknown"


class ServedModel(Struct, frozen=True):
    """An entry of `/v1/models`. `root` is the path or repo that was given, where the server says it; `max_model_len`
    in tokens. `serving` is false for what a gateway would have to launch. `owner` names the server's program."""

    id: str
    root: str = ""
    max_model_len: int | None = None
    serving: bool = True
    owner: str = ""


class EngineState(StrEnum):
    """What Docker, the health page and the list of models prove. `SERVING` needs all three."""

    CREATED = "CREATED"
    STARTING = "STARTING"
    SERVING = "SERVING"
    NOT_ANSWERING = "NOT ANSWERING"
    RESTARTING = "RESTARTING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


class EngineWord(StrEnum):
    """The word that people and scripts read for what an engine does, from its launch to its end."""

    QUEUED = "queued"
    FETCHING = "fetching"
    PULLING = "pulling"
    STARTING = "starting"
    LOADING = "loading"
    COMPILING = "compiling"
    WARMING_UP = "warming up"
    READY = "ready"
    BUSY = "busy"
    """Ready, and answering requests."""
    RUNNING = "running"
    """A rank of a launch over several nodes: whether it serves is known where its head is."""
    STALLED = "stalled"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"
    """Docker has the container, and cannot start or end it any more."""

    @property
    def serves(self) -> bool:
        return self in (EngineWord.READY, EngineWord.BUSY)


class Exposure(StrEnum):
    """Who can reach the port."""

    LOCAL = "LOCAL"
    LAN = "LAN"
    LAN_NO_KEY = "LAN NO KEY"
    NONE = "NO PORT"


# --- what a container says about it -------------------------------------------------------------------------


def runtime_of(container: ContainerFacts) -> str:
    """The serving runtime that a container runs, by its command, our label or its image; empty for other containers."""
    return "" if container.label(LABEL_TOOL) else recognised(container.image, container.argv, container.runtime)


def endpoint_of(container: ContainerFacts, key: Secret | None) -> Endpoint | None:
    """Where and how this host reaches the API; None while no port is published."""
    port = api_port(container)
    if port is None:
        return None
    return Endpoint(base_url(container, port), key, runtime_of(container), name_argument(container))


def base_url(container: ContainerFacts, port: int) -> str:
    """Where this host reaches the API, without a trailing slash."""
    return container.address or f"http://127.0.0.1:{port}"


def api_port(container: ContainerFacts) -> int | None:
    """The host port of the API, as Docker has it: our label may have come along with a changed command.

    The published port that maps the server's own port, else the one that our label names, else the first; with the
    host's network, the port in the command, else our label's. None when nothing is published, and for a rank without
    an API.
    """
    if container.rank_of:
        return None
    labelled, on_host = container.api_port, container.network_mode == "host"
    given = _argument(container.argv, "--port") or (labelled if on_host else "")
    own = int(given) if given.isdigit() else runtime_named(runtime_of(container)).port
    if on_host:
        return own
    tcp = [port for port in container.ports if port.protocol == "tcp" and port.host_port]
    tcp.sort(key=lambda port: (port.container_port != own, str(port.host_port) != labelled))
    return tcp[0].host_port if tcp else None


def exposure_of(container: ContainerFacts, port: int | None) -> Exposure:
    """Who can reach the API, from the real bindings. Only a key that we know of counts as a key."""
    if port is None:
        return Exposure.NONE
    runtime = runtime_named(runtime_of(container))
    if container.network_mode == "host":
        # The value of a variable is not known, and counts as outside.
        host = _argument(container.argv, "--host")
        by_default = not host and runtime.loopback
        open_to_lan = runtime.host_variable in container.environment if by_default else host not in _LOOPBACK
    else:
        bound = [published.host_ip for published in container.ports if published.host_port == port]
        local = container.fabric  # between the nodes alone
        open_to_lan = any(not ip.startswith("127.") and ip not in ("::1", *local) for ip in bound)
    if not open_to_lan:
        return Exposure.LOCAL
    in_variable = bool(runtime.key_variable) and runtime.key_variable in container.environment
    in_command = any(word.partition("=")[0] in _KEY_OPTIONS for word in container.argv)
    return Exposure.LAN if container.api_key_file or in_variable or in_command else Exposure.LAN_NO_KEY


def state_of(
    container: ContainerFacts, health: Health, models: tuple[ServedModel, ...], was_serving: bool
) -> EngineState:
    """One state from Docker's status, the API's health, and whether it has served since its start."""
    match container.status.value:
        case "created":
            return EngineState.CREATED
        case "paused":
            return EngineState.PAUSED
        case "restarting":
            return EngineState.RESTARTING
        case "running":
            if health is Health.OK and (models or was_serving):
                return EngineState.SERVING
            silent = was_serving or health is Health.DEAD or container.address  # an address is not known to start
            return EngineState.NOT_ANSWERING if silent else EngineState.STARTING
        case _:
            # 143 is SIGTERM, 130 SIGINT: it was asked to stop. 137 may be the OOM killer as well.
            return EngineState.STOPPED if container.exit_code in (0, None, 130, 143) else EngineState.FAILED


def _argument(argv: tuple[str, ...], name: str) -> str:
    for index, word in enumerate(argv):
        if word == name and index + 1 < len(argv):
            return argv[index + 1]
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return ""


def bare_engine(
    pid: int, argv: tuple[str, ...], environment: tuple[str, ...], started_at: float
) -> ContainerFacts | None:
    """A server outside any container as one in the host's network, named by its port: `vllm-8000`; None for another
    process, a rank without an API, and a server that is no engine of one model (Ollama). `environment` are names."""
    runtime = server_of(argv)
    if runtime is None or runtime.lists_more or "--headless" in argv:
        return None
    facts = ContainerFacts(
        f"{PROCESS_ID}{pid}",
        "",
        "",
        "",
        ContainerStatus.RUNNING,
        argv,
        network_mode="host",
        environment=environment,
        pid=pid,
        started_at=started_at,
    )
    return replace(facts, name=f"{runtime.id}-{api_port(facts)}")


def gpu_server(pid: int, argv: tuple[str, ...], started_at: float, port: int, *, local: bool) -> ContainerFacts:
    """A process that computes on the GPU and listens on a port, named by its program and that: `ninfer-8080`. It is an
    engine once it lists models."""
    return ContainerFacts(
        f"{PROCESS_ID}{pid}",
        f"{program_of(argv) or 'server'}-{port}",
        "",
        "",
        ContainerStatus.RUNNING,
        argv,
        labels=((LABEL_RUNTIME, ANY.id),),
        ports=(PublishedPort(port, port, _LOOPBACK[0] if local else ALL_INTERFACES),),
        pid=pid,
        started_at=started_at,
    )


def server_at(url: str, name: str = "") -> ContainerFacts:
    """A server that a person names by its address. Raises ValueError for what is none."""
    address = server_address(url)
    place = urlsplit(address)
    port = place.port or (443 if place.scheme == "https" else 80)
    host = place.hostname or ""
    return ContainerFacts(
        ADDRESS_ID + address,
        name or f"{host}-{port}",
        "",
        "",
        ContainerStatus.RUNNING,
        labels=((LABEL_RUNTIME, ANY.id),),
        ports=(PublishedPort(port, port, _LOOPBACK[0] if host in _LOOPBACK else host),),
    )


def proven(container: ContainerFacts, models: tuple[ServedModel, ...]) -> ContainerFacts | None:
    """A server of an unknown kind as the one that its list of models names as their owner; None for a gateway."""
    owners = {model.owner.lower() for model in models}
    if owners & {owner for proxy in PROXIES for owner in proxy.owners}:
        return None
    found = next((each.id for each in RUNTIMES if owners.intersection(each.owners)), ANY.id)
    return replace(container, labels=((LABEL_RUNTIME, found),))


def name_argument(container: ContainerFacts) -> str:
    """The name under which the command serves its model, or else our label."""
    options = runtime_named(runtime_of(container)).name_options
    return next(filter(None, (_argument(container.argv, each) for each in options)), container.served_name)


def model_argument(container: ContainerFacts) -> str:
    """The model that the command names, by an option, or as the word after `serve` or `trtllm-serve`; or else our
    label."""
    argv = container.argv
    for option in runtime_named(runtime_of(container)).model_options:
        if named := _argument(argv, option):
            return named
    for word, after in pairwise(argv):
        if word.rpartition("/")[2] in ("serve", "trtllm-serve") and after != "serve" and not after.startswith("-"):
            return after
    return container.model
