"""An engine as the screens and the command line see it: a container, what its log says, and what its API says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from spark_tui.domain.engine.container import ContainerFacts, ContainerStatus
from spark_tui.domain.engine.endpoint import Health, ServedModel
from spark_tui.domain.engine.timeline import EMPTY_TIMELINE, BootTimeline
from spark_tui.domain.presets.container_spec import LABEL_PORT, LABEL_RUNTIME, PublishedPort

DEFAULT_PORT = 8000


class EngineState(StrEnum):
    """One word for the list. `READY` is only ever said after health and models were seen."""

    CREATED = "CREATED"
    STARTING = "STARTING"
    SERVING = "SERVING"
    NOT_ANSWERING = "NOT ANSWERING"
    RESTARTING = "RESTARTING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


class Exposure(StrEnum):
    """Who can reach the port."""

    LOCAL = "LOCAL"
    LAN = "LAN"
    LAN_NO_KEY = "LAN NO KEY"
    NONE = "NO PORT"


@dataclass(frozen=True, slots=True)
class EngineView:
    """One row of the engine list, and everything its detail shows. Equal views need no repaint."""

    container: ContainerFacts
    state: EngineState
    runtime: str
    exposure: Exposure
    port: int | None = None
    health: Health = Health.UNKNOWN
    models: tuple[ServedModel, ...] = ()
    version: str = ""
    timeline: BootTimeline = EMPTY_TIMELINE

    @property
    def name(self) -> str:
        """The container's name."""
        return self.container.name

    @property
    def base_url(self) -> str:
        """Where this host reaches the API; empty without a port."""
        return f"http://127.0.0.1:{self.port}" if self.port else ""

    @property
    def model(self) -> str:
        """What it serves, best source first: the API, our label, the log, the command."""
        if self.models:
            return self.models[0].root or self.models[0].id
        return self.container.model or self.timeline.facts.model or _model_argument(self.container.argv)

    @property
    def served_name(self) -> str:
        """The name that requests must use; empty until it is known."""
        return self.models[0].id if self.models else self.container.served_name


_RUNTIMES = (
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("tensorrt-llm", "trtllm"),
    ("trtllm", "trtllm"),
    ("llama-server", "llama-cpp"),
    ("llama.cpp", "llama-cpp"),
    ("ollama", "ollama"),
)


def runtime_of(container: ContainerFacts) -> str:
    """The serving runtime that a container runs, by label, image name or command; empty for other containers."""
    label = container.label(LABEL_RUNTIME)
    if label:
        return label
    programs = [PurePosixPath(word).name.lower() for word in container.argv[:4] if " " not in word]
    words = [container.image.lower(), *programs]
    for mark, runtime in _RUNTIMES:
        if any(mark in word for word in words):
            return runtime
    return ""


def api_port(container: ContainerFacts) -> int | None:
    """The host port of the API.

    Our label first; else the published port that maps the server's own port, else the only published one;
    with the host's network, the port in the command. None when nothing is published.
    """
    label = container.label(LABEL_PORT)
    if label.isdigit():
        return int(label)
    own = _port_argument(container.argv) or DEFAULT_PORT
    if container.network_mode == "host":
        return own
    tcp = [port for port in container.ports if port.protocol == "tcp" and port.host_port]
    for port in tcp:
        if port.container_port == own:
            return port.host_port
    return tcp[0].host_port if tcp else None


def exposure_of(container: ContainerFacts, port: int | None) -> Exposure:
    """Who can reach the API, from the real bindings. Only a key that we know of counts as a key."""
    if port is None:
        return Exposure.NONE
    if container.network_mode == "host":
        open_to_lan = _argument(container.argv, "--host") not in ("127.0.0.1", "localhost", "::1")
    else:
        open_to_lan = any(p.host_port == port and not _is_loopback(p) for p in container.ports)
    if not open_to_lan:
        return Exposure.LOCAL
    has_key = bool(container.api_key_file) or "VLLM_API_KEY" in container.environment or "--api-key" in container.argv
    return Exposure.LAN if has_key else Exposure.LAN_NO_KEY


def state_of(
    container: ContainerFacts, health: Health, models: tuple[ServedModel, ...], was_serving: bool
) -> EngineState:
    """One state from Docker's status, the API's health, and whether it has served since its start."""
    match container.status:
        case ContainerStatus.CREATED:
            return EngineState.CREATED
        case ContainerStatus.PAUSED:
            return EngineState.PAUSED
        case ContainerStatus.RESTARTING:
            return EngineState.RESTARTING
        case ContainerStatus.RUNNING:
            if health is Health.OK and (models or was_serving):
                return EngineState.SERVING
            return EngineState.NOT_ANSWERING if was_serving or health is Health.DEAD else EngineState.STARTING
        case _:
            # 143 is SIGTERM, 130 SIGINT: it was asked to stop. 137 may be the OOM killer as well.
            return EngineState.STOPPED if container.exit_code in (0, None, 130, 143) else EngineState.FAILED


def _is_loopback(port: PublishedPort) -> bool:
    return port.host_ip.startswith("127.") or port.host_ip == "::1"


def _argument(argv: tuple[str, ...], name: str) -> str:
    for index, word in enumerate(argv):
        if word == name and index + 1 < len(argv):
            return argv[index + 1]
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return ""


def _port_argument(argv: tuple[str, ...]) -> int | None:
    text = _argument(argv, "--port")
    return int(text) if text.isdigit() else None


def _model_argument(argv: tuple[str, ...]) -> str:
    if named := _argument(argv, "--model"):
        return named
    for index, word in enumerate(argv[:-1]):
        if word == "serve" and not argv[index + 1].startswith("-"):
            return argv[index + 1]
    return ""
