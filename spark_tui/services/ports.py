"""What the core needs of the outside, and nothing more. Adapters implement these; so do the fakes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from spark_tui.domain.chat import ChatEvent, ChatRequest
from spark_tui.domain.engine.container import (
    ContainerEvent,
    ContainerFacts,
    DaemonFacts,
    ImageFacts,
    PullProgress,
)
from spark_tui.domain.engine.endpoint import Endpoint, Health, ServedModel
from spark_tui.domain.host.detectors import SharedFile
from spark_tui.domain.host.drop_caches import Access, Route
from spark_tui.domain.host.drop_unit import SystemFile
from spark_tui.domain.host.gpu import GpuReading
from spark_tui.domain.host.guard import GuardedEngine, GuardEntry
from spark_tui.domain.host.identity import HostIdentity
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.presets.catalogue import PresetCatalogue
from spark_tui.domain.presets.container_spec import ContainerSpec
from spark_tui.domain.reading import Reading
from spark_tui.domain.secret import Secret

if TYPE_CHECKING:  # what it imports is for commands that read recipes
    from spark_tui.domain.presets.dialects.importing import FoundFile, Gathered


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

    def has_file(self, path: Path) -> bool:
        """Whether that file exists; links are followed."""

    def make_folders(self, paths: Sequence[Path]) -> None:
        """Creates directories that are absent, parents too; raises SparkError with the reason and the remedy.

        Docker would make them itself, and as root.
        """

    def free_disk(self, path: Path) -> Reading[int]:
        """Bytes free on the file system that holds `path` (or its nearest existing parent)."""

    def container_of(self, pid: int) -> str:
        """The id of the Docker container that a process is in; empty for one in none, or that is gone."""

    def shared_files(self) -> Reading[tuple[SharedFile, ...]]:
        """The files in /dev/shm. Not for every second: to learn who has them open, all processes are looked into."""


class GpuProbe(Protocol):
    """The GPU's live readings."""

    async def read(self) -> Reading[GpuReading]:
        """Never raises and never blocks for longer than a second."""

    async def close(self) -> None:
        """Ends the helper process, if any."""


class CacheDropper(Protocol):
    """Gives up the page cache and compacts memory by what this user is allowed. Never asks for a password itself.

    Whatever could hang in the kernel runs in a child process that is waited for only so long.
    """

    async def access(self) -> Access:
        """What this user is allowed now."""

    async def drop(self, route: Route) -> bool:
        """Writes dirty pages out, then drops the cache, by a silent route. Returns whether the writing was done in
        time; raises SparkError when the route was refused or hangs."""

    async def compact(self, route: Route) -> None:
        """Compacts free memory; raises SparkError."""

    def on_terminal(self, argv: Sequence[str]) -> int:
        """Runs a command on the person's own terminal, where sudo may ask, and returns its exit code. Blocks."""

    async def check_grant(self, text: str) -> str:
        """What `visudo -cf` says against a grant; empty when it is sound."""

    def write_grant(self, text: str) -> int:
        """Writes `/etc/sudoers.d/spark-tui-dropcaches`, 0440 and root's, through sudo on the terminal. Blocks."""

    def remove_grant(self) -> int:
        """Removes that file, the same way. Blocks."""

    def write_files(self, files: Sequence[SystemFile]) -> int:
        """Writes root's files in order, 0644, through sudo on the terminal, and has systemd read its units again.
        Returns the first exit code that is not 0. Blocks."""

    def remove_files(self, paths: Sequence[str]) -> int:
        """Removes them, the same way. Blocks."""

    def user(self) -> tuple[str, int]:
        """Name and number of the user whom a grant is for."""

    async def close(self) -> None:
        """Ends its threads."""


class GuardHands(Protocol):
    """What the memory guard acts with. Made for a machine that is running out of memory: everything that can be is
    prepared before, `stop` and `kill` return at once and never raise."""

    def prepare(self) -> str:
        """Locks memory, sets the process's name and OOM score, as far as allowed. Returns in words what could not be
        had; empty when all could."""

    def engines(self) -> tuple[GuardedEngine, ...]:
        """The engines that run, and whether each of them still loads. Raises SparkError. May take a second."""

    def restarting(self) -> tuple[ContainerFacts, ...]:
        """The engines that Docker starts again by itself, as the last `engines` saw them."""

    def log(self, container: str, since: str) -> tuple[LogLine, ...]:
        """The last lines of its log that are later than `since` (RFC 3339; empty: from the beginning). Raises
        SparkError. May take a second."""

    def stop(self, engine: GuardedEngine, grace_seconds: int) -> str:
        """Asks it to end, and has it killed after the grace time. Returns how, in words."""

    def kill(self, engine: GuardedEngine) -> str:
        """Ends it now, by every way there is. Returns how, in words."""

    def drop_cache(self) -> bool:
        """Drops the cache where that is granted; blocks for as long as it takes, at most some seconds."""

    def compact(self) -> bool:
        """Compacts memory where that is granted."""

    def close(self) -> None:
        """Lets go of Docker's socket; what it was asked to do goes on."""


class GuardStarter(Protocol):
    """Makes a guard run that goes on without us."""

    def start(self) -> None:
        """Starts it, or finds one running. Raises SparkError. May take some seconds."""


class GuardJournal(Protocol):
    """What the guard did, kept across runs, for every front end."""

    def claim(self) -> bool:
        """Makes this process the one guard of this user; false when another one is."""

    def release(self) -> None:
        """Ends the claim."""

    def running(self) -> bool:
        """Whether a guard runs now, in any process."""

    def add(self, entry: GuardEntry) -> None:
        """Keeps an entry. Raises OSError."""

    def entries(self) -> tuple[GuardEntry, ...]:
        """The last entries, oldest first."""


class UserUnits(Protocol):
    """The person's own systemd units."""

    def path(self, name: str) -> Path:
        """Where the unit's file is, or would be."""

    def install(self, name: str, text: str) -> None:
        """Writes the unit, enables and starts it. Raises SparkError."""

    def uninstall(self, name: str) -> bool:
        """Stops, disables and removes it; false when there was none. Raises SparkError."""


class PresetSource(Protocol):
    """Where presets come from."""

    def load(self) -> PresetCatalogue:
        """Every preset that can be read, and a problem for every file that cannot. Never raises."""


class CheckpointSource(Protocol):
    """Checkpoints in the model store."""

    def read(self, model: str, revision: str = "") -> Reading[CheckpointFacts]:
        """What the files of a checkpoint say of it, by Hub name or by path within the store; configs and headers are
        read, never a tensor. Missing says why. Never raises. Reads files: not for the event loop.
        """


class RecipeShelf(Protocol):
    """Recipe files of other people, and the person's own preset folder."""

    def gather(self, source: Path) -> Gathered:
        """Every recipe in a file or folder, and what its registry says of itself.

        Raises UsageError for a path that is neither, PresetError for a folder that is too large.
        """

    def given(self, text: str, called: str) -> Gathered:
        """A text in place of a file. Raises PresetError for one that is too large."""

    def recipe(self, file: str) -> FoundFile:
        """A preset's file, as it is written. Raises PresetError."""

    def own_text(self, name: str) -> str | None:
        """What the person's own file of that name holds, None where there is none. Raises PresetError."""

    def write(self, name: str, text: str, *, replace: bool = False) -> Path:
        """Puts a preset into the person's folder in one step and returns its path.

        Raises RefusedError when there is one of that name and `replace` is false, SparkError when it cannot be written.
        """


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
