"""What the core needs of the outside, and nothing more. Adapters implement these; so do the fakes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from spark_tui.domain.chat import ChatEvent, ChatRequest
from spark_tui.domain.engine.container import (
    ContainerEvent,
    ContainerFacts,
    DaemonFacts,
    ImageFacts,
    PullProgress,
)
from spark_tui.domain.engine.endpoint import Endpoint, Health, ServedModel
from spark_tui.domain.host.gpu import GpuReading
from spark_tui.domain.host.identity import HostIdentity
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.presets.container_spec import ContainerSpec
from spark_tui.domain.presets.preset import PresetCatalogue
from spark_tui.domain.reading import Reading
from spark_tui.domain.secret import Secret


class Clock(Protocol):
    """Time as an argument."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds`; cancellable."""


class LogLine(NamedTuple):
    """One line as the container wrote it. `stamp` is Docker's RFC 3339 time (UTC), kept as text until needed.

    `text` is decoded (bad bytes replaced), without its newline, at most `MAX_LINE_CHARS` long, and otherwise
    untouched: control codes are removed where it is shown or searched.
    """

    stamp: str
    text: str


MAX_LINE_CHARS = 65_536
"""Longer lines are cut, with a mark that says how long they were."""


class ContainerEngine(Protocol):
    """A Docker engine. Every method raises the Docker part of the error tree (`spark_tui.domain.errors`)."""

    async def daemon(self) -> DaemonFacts:
        """The daemon's version; raises DaemonNotRunning or SocketPermissionDenied."""

    async def containers(self) -> tuple[ContainerFacts, ...]:
        """All containers, running or not, in name order."""

    async def inspect(self, container: str) -> ContainerFacts:
        """One container by name or id; raises ContainerNotFound."""

    async def image(self, reference: str) -> ImageFacts | None:
        """A local image, or None."""

    def pull(self, reference: str) -> AsyncGenerator[PullProgress, None]:
        """Pulls an image; closing the iterator cancels the pull."""

    async def create(self, spec: ContainerSpec) -> str:
        """Creates the container and returns its id; raises NameInUse, ImageNotFound, GpuDriverMissing ..."""

    async def start(self, container: str) -> None:
        """Starts it; raises PortInUse, GpuDriverMissing ..."""

    async def stop(self, container: str, grace_seconds: int = 30) -> None:
        """SIGTERM, then SIGKILL after the grace time; returns when it has ended. A stopped one is no error."""

    async def restart(self, container: str, grace_seconds: int = 30) -> None:
        """Stop and start."""

    async def remove(self, container: str, *, force: bool = False) -> None:
        """Removes a container; its log goes with it."""

    def events(self) -> AsyncGenerator[ContainerEvent, None]:
        """Container events from now on; raises StreamBroken when the daemon goes away."""

    def logs(
        self, container: str, *, tail: int | None = None, follow: bool = True, since: str = ""
    ) -> AsyncGenerator[Sequence[LogLine], None]:
        """Batches of log lines, oldest first, stdout and stderr merged.

        `tail` None is all of it. `since` is a LogLine.stamp: later lines only. With `follow` it goes on until
        the container ends, and survives a daemon restart without losing or repeating a line. A consumer that
        is slow slows the reader down: memory stays bounded.
        """

    async def close(self) -> None:
        """Ends all streams and threads."""


class EngineApi(Protocol):
    """An OpenAI-compatible server. Raises the API part of the error tree."""

    async def health(self, endpoint: Endpoint) -> Health:
        """Never raises: an engine that does not listen is NOT_LISTENING."""

    async def models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        """`/v1/models`."""

    async def version(self, endpoint: Endpoint) -> str:
        """`/version`; an empty string where the server has none."""

    def chat(self, endpoint: Endpoint, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """Streams an answer; closing the iterator closes the connection, which frees the server's slot."""

    async def close(self) -> None:
        """Closes all connections."""


class HostProbe(Protocol):
    """The machine. Cheap enough to call once a second on the event loop."""

    def identity(self) -> HostIdentity:
        """Which machine this is."""

    def memory(self) -> Reading[MemInfo]:
        """`/proc/meminfo`."""

    def memory_pressure(self) -> Reading[float]:
        """PSI `some avg10` of memory, per cent."""

    def uptime(self) -> Reading[float]:
        """Seconds since boot."""

    def port_owner(self, port: int) -> str | None:
        """Who listens on a TCP port: `name (pid)`, `another process` when that cannot be read, None when free."""

    def has_folder(self, path: Path) -> bool:
        """Whether that directory exists."""

    def make_folders(self, paths: Sequence[Path]) -> None:
        """Creates directories that are absent, parents too; raises SparkError with the reason and the remedy.

        Docker would make them itself, and as root.
        """

    def free_disk(self, path: Path) -> Reading[int]:
        """Bytes free on the file system that holds `path` (or its nearest existing parent)."""


class GpuProbe(Protocol):
    """The GPU's live readings."""

    async def read(self) -> Reading[GpuReading]:
        """Never raises and never blocks for longer than a second."""

    async def close(self) -> None:
        """Ends the helper process, if any."""


class PresetSource(Protocol):
    """Where presets come from."""

    def load(self) -> PresetCatalogue:
        """Every preset that can be read, and a problem for every file that cannot. Never raises."""


class SecretStore(Protocol):
    """Keys and tokens in files of mode 0600."""

    def hf_token(self) -> Secret | None:
        """The Hugging Face token: environment first, then the token files."""

    def api_key(self, path: str) -> Secret | None:
        """The engine key kept in an env file that we wrote, or None."""

    def path(self, name: str) -> Path:
        """Where the env file of the container `name` is, or would be."""

    def env_file(self, name: str, values: dict[str, Secret]) -> Path:
        """Writes `NAME=value` lines to a private file for the container `name` and returns its path."""

    def new_key(self) -> Secret:
        """A fresh random API key."""


class LogArchive(Protocol):
    """Keeps text that would otherwise be lost: dumped logs, and logs of containers that are replaced."""

    def save(self, name: str, lines: Sequence[LogLine]) -> Path:
        """Writes the lines to a private file and returns its path. Raises OSError."""
