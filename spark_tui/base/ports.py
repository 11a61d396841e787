"""What the program needs of the outside, as far as every room may ask for it; a room has its own ports beside these.
Adapters implement them; so do the fakes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:  # the shapes are many, and a port names them only
    from spark_tui.base.checkpoint import CheckpointFacts
    from spark_tui.base.engine.container import (
        ContainerEvent,
        ContainerFacts,
        ContainerSpec,
        DaemonFacts,
        ImageDisk,
        ImageFacts,
        PullProgress,
    )
    from spark_tui.base.engine.message import ChatEvent, ChatRequest
    from spark_tui.base.engine.metrics_page import MetricPage
    from spark_tui.base.engine.state import Endpoint, Health, ServedModel
    from spark_tui.base.engine.units import BootStatus, ScheduleStatus, Unit
    from spark_tui.base.finding import Reading
    from spark_tui.base.host.detectors import EngineProcess, Link, SharedFile, StoreState
    from spark_tui.base.host.guard import GuardedEngine, GuardEntry
    from spark_tui.base.host.memory import Access, MemInfo, Route, SystemFile
    from spark_tui.base.host.vitals import ContainerMemory, GpuProcess, GpuReading, HostIdentity, HostProcess, Vitals
    from spark_tui.base.remote import RemoteHost
    from spark_tui.base.secret import Secret


T = TypeVar("T")

PORT_NAMES: Final[dict[type, str]] = {}
"""What the adapter of a Protocol that a room has is called in the tables of adapters. A room adds its own."""


def port_named(name: str) -> Callable[[type[T]], type[T]]:
    """Makes a Protocol a port: `context[Protocol]` is the adapter of that name."""

    def known(kind: type[T]) -> type[T]:
        PORT_NAMES[kind] = name
        return kind

    return known


class Clock(Protocol):
    """Time as an argument: `now` in seconds since the epoch, `monotonic` on a clock that never goes back."""

    def now(self) -> float: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


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
    """A Docker engine. Every method raises the Docker part of the error tree (`spark_tui.base.errors`).

    Containers are named by name or id, and listed in name order. Closing a generator ends its stream.
    """

    async def daemon(self) -> DaemonFacts: ...
    async def containers(self) -> tuple[ContainerFacts, ...]: ...
    async def inspect(self, container: str) -> ContainerFacts: ...
    async def image(self, reference: str) -> ImageFacts | None: ...

    async def images(self) -> ImageDisk:
        """Every local image with its sizes. Docker measures layers: it may take seconds."""

    async def registry_digest(self, reference: str) -> str:
        """The digest that the registry has for a name now, asked with the logins of the docker program. Raises
        ImageNotFound for a tag that is gone, RegistryUnauthorized, RegistryUnreachable."""

    async def tag_image(self, image: str, name: str) -> None:
        """Gives a local image one more name `NAME:TAG`, which another image loses. Raises ImageNotFound."""

    async def remove_image(self, reference: str) -> None:
        """Removes a tag, and the image with its last one. Raises ImageInUse, ImageNotFound."""

    async def run_once(self, image: str, argv: Sequence[str]) -> tuple[str, ...]:
        """Runs a program of an image, without network, GPU, mounts or writes to its root, and returns the last lines
        that it printed. Its container is removed. Raises DockerError where it cannot run or does not end by itself."""

    def pull(self, reference: str) -> AsyncGenerator[PullProgress, None]: ...

    async def create(self, spec: ContainerSpec) -> str:
        """Creates the container and returns its id; raises NameInUse, ImageNotFound, GpuDriverMissing ..."""

    async def start(self, container: str) -> None: ...

    async def stop(self, container: str, grace_seconds: int = 30) -> None:
        """SIGTERM, then SIGKILL after the grace time; returns when it has ended. A stopped one is no error."""

    async def restart(self, container: str, grace_seconds: int = 30) -> None: ...

    async def rename(self, container: str, name: str) -> None:
        """Gives a container another name; raises NameInUse."""

    async def remove(self, container: str, *, force: bool = False) -> None:
        """Removes a container; its log goes with it."""

    def events(self) -> AsyncGenerator[ContainerEvent, None]:
        """Container events from now on; raises StreamBroken when the daemon goes away."""

    def logs(
        self, container: str, *, tail: int | None = None, follow: bool = True, since: str = ""
    ) -> AsyncGenerator[Sequence[LogLine], None]:
        """Batches of log lines, oldest first, stdout and stderr merged.

        `tail` None is all of it. `since` is a LogLine.stamp: later lines only. With `follow` it continues until
        the container ends, and survives a daemon restart without losing or repeating a line. A consumer that
        is slow slows the reader down: memory stays bounded.
        """

    async def close(self) -> None: ...


class EngineApi(Protocol):
    """An OpenAI-compatible server. Raises the API part of the error tree; `health` never raises."""

    async def health(self, endpoint: Endpoint) -> Health: ...
    async def models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]: ...

    async def version(self, endpoint: Endpoint) -> str:
        """The server's own version; an empty string where it reports none."""

    def chat(self, endpoint: Endpoint, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """Streams an answer; closing the iterator closes the connection, which frees the server's slot."""

    def ask(self, endpoint: Endpoint, path: str, body: bytes) -> AsyncGenerator[str, None]:
        """Sends a JSON body, or the parts of a form, as it is, and yields the data of each event, or the one JSON text
        of an answer that is not streamed. Raises NoSuchPath where there is none."""

    async def close(self) -> None: ...


class HostProbe(Protocol):
    """The machine. Cheap enough to call once a second on the event loop, but for `shared_files`."""

    def identity(self) -> HostIdentity: ...
    def memory(self) -> Reading[MemInfo]: ...

    def memory_pressure(self) -> Reading[float]:
        """PSI `some avg10` of memory, per cent."""

    def uptime(self) -> Reading[float]:
        """Seconds since boot."""

    def port_owner(self, port: int) -> str | None:
        """Who listens on a TCP port: `name (pid)`, `another process` when that cannot be read, None when free."""

    def kernel_lines(self, at: float) -> tuple[str, ...]:
        """The kernel's messages of the minute before `at` (epoch seconds), the last 200; empty where this user may not
        read them. Takes up to 3 seconds: not for the event loop."""

    def addresses(self) -> tuple[str, ...]:
        """The IPv4 addresses of this machine's interfaces."""

    def has_folder(self, path: Path) -> bool: ...
    def has_file(self, path: Path) -> bool: ...

    def make_folders(self, paths: Sequence[Path]) -> None:
        """Creates directories that are absent, parents too: Docker would make them as root. Raises SparkError."""

    def free_disk(self, path: Path) -> Reading[int]:
        """Bytes free on the file system that holds `path` (or its nearest existing parent)."""

    def container_of(self, pid: int) -> str:
        """The id of the Docker container that a process is in; empty for one in none, or that is gone."""

    def lineage(self, pid: int) -> tuple[int, ...]:
        """A process and its parents, itself first; empty for one that is gone."""

    def bare_engines(self) -> tuple[ContainerFacts, ...]:
        """Servers that run outside any container, in the order of their names: see `bare_engine`, and `gpu_server` for
        what may be one. Reads the command line of each process: not for every second."""

    def shared_files(self) -> Reading[tuple[SharedFile, ...]]:
        """The files in /dev/shm. Looks into all processes, to learn which has them open."""


class GpuProbe(Protocol):
    """The GPU's live readings. `read` never raises and never blocks for longer than a second. `start`, if called before
    there is an event loop, takes the first reading while other things are done."""

    def start(self) -> None: ...
    async def read(self) -> Reading[GpuReading]: ...
    async def close(self) -> None: ...


class CacheDropper(Protocol):
    """Gives up the page cache and compacts memory by what this user is allowed. Never asks for a password itself.

    Whatever could hang in the kernel runs in a child process that is waited for only so long. What writes or removes
    root's files does it through sudo on the person's own terminal, blocks, and returns an exit code.
    """

    async def access(self) -> Access: ...

    async def drop(self, route: Route) -> bool:
        """Writes dirty pages out, then drops the cache, by a silent route. Returns whether the writing was done in
        time; raises SparkError when the route was refused or hangs."""

    async def compact(self, route: Route) -> None: ...
    def on_terminal(self, argv: Sequence[str]) -> int: ...

    async def check_grant(self, text: str) -> str:
        """The complaint of `visudo -cf` about a sudo rule; empty when it is sound."""

    def write_files(self, files: Sequence[SystemFile]) -> int:
        """Puts each in place in one step, root's and with its mode. Returns the exit code of the first that failed."""

    def remove_files(self, paths: Sequence[str]) -> int: ...

    def user(self) -> tuple[str, int]:
        """Name and number of the user whom a grant is for."""

    async def close(self) -> None: ...


class GuardDocker(Protocol):
    """Docker for the memory guard: no threads, nothing large in memory. The first four raise SparkError and may take
    a second; what changes something is sent and not waited for, and false when dockerd did not take the request."""

    def local(self) -> bool:
        """Whether the daemon listens on a socket of this machine."""

    def running(self) -> tuple[str, ...]:
        """Ids of the containers that run or restart."""

    def inspect(self, container: str) -> ContainerFacts: ...

    def log(self, container: str, since: str, tail: int, *, tty: bool) -> tuple[LogLine, ...]:
        """Its last lines, at most `tail`, later than `since` (RFC 3339; empty: all)."""

    def send_stop(self, container: str, grace_seconds: int) -> bool:
        """SIGTERM now and SIGKILL after the grace time, by dockerd."""

    def send_kill(self, container: str) -> bool: ...

    def close(self) -> None:
        """Closes the socket. What was sent is carried out."""


class GuardActuator(Protocol):
    """What the memory guard acts with. Made for a machine that is running out of memory: everything that can be is
    prepared before, `stop` and `kill` return at once, say in words how they did it, and never raise. `engines` and
    `log` raise SparkError and may take a second."""

    def prepare(self) -> str:
        """Locks memory, sets the process's name and OOM score, as far as allowed. Returns in words what was not
        allowed; empty when all was."""

    def engines(self) -> tuple[GuardedEngine, ...]:
        """The engines that run, and whether each of them still loads."""

    def restarting(self) -> tuple[ContainerFacts, ...]:
        """The engines that Docker starts again by itself, as the last `engines` saw them."""

    def log(self, container: str, since: str) -> tuple[LogLine, ...]:
        """The last lines of its log that are later than `since` (RFC 3339; empty: from the beginning)."""

    def stop(self, engine: GuardedEngine, grace_seconds: int) -> str: ...
    def kill(self, engine: GuardedEngine) -> str: ...

    def drop_cache(self) -> bool:
        """Drops the cache where that is granted; blocks for as long as it takes, at most some seconds."""

    def compact(self) -> bool: ...
    def close(self) -> None: ...


class GuardStarter(Protocol):
    """Starts a guard that outlives this process, or finds one running. Raises SparkError. May take some seconds."""

    def start(self) -> None: ...


class GuardJournal(Protocol):
    """What the guard did, kept across runs, for every front end."""

    def claim(self) -> bool:
        """Makes this process the one guard of this user; false when another one is."""

    def release(self) -> None: ...

    def running(self) -> bool:
        """Whether a guard runs now, in any process."""

    def add(self, entry: GuardEntry) -> None:
        """Keeps an entry. Raises OSError."""

    def entries(self) -> tuple[GuardEntry, ...]:
        """The last entries, oldest first."""


class Units(Protocol):
    """The systemd units of this program. Raises SparkError, also where there is no systemd."""

    def all(self) -> tuple[BootStatus, ...]:
        """Of every engine that starts with the machine."""

    def schedules(self) -> tuple[ScheduleStatus, ...]:
        """Of every engine that has a schedule's timer."""

    def path(self, name: str) -> Path:
        """Where the person's own unit of that name is, or would be."""

    def files(self, unit: Unit, *, system: bool = False) -> Mapping[str, str]:
        """What `install` writes, by the names of the files."""

    def install(self, unit: Unit, *, system: bool = False) -> None:
        """Writes, enables and starts it; with `system` as one of the machine, through sudo on the person's terminal."""

    def remove(self, name: str, *, machine: bool = True) -> bool:
        """Ends, disables and removes it, with `machine` one of the machine too; what it started keeps running. False
        when there was none."""


class CheckpointSource(Protocol):
    """Checkpoints in the model store."""

    def read(self, model: str, revision: str = "") -> Reading[CheckpointFacts]:
        """What the files of a checkpoint say of it, by Hub name or by path within the store; configs and headers are
        read, never a tensor. Missing says why. Never raises. Reads files: not for the event loop."""


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

    def new_key(self) -> Secret: ...


class LogArchive(Protocol):
    """Keeps text that would otherwise be lost: dumped logs, and logs of containers that are replaced."""

    def save(self, name: str, lines: Sequence[LogLine]) -> Path:
        """Writes the lines to a private file and returns its path. Raises OSError."""


class ScreenFiles(Protocol):
    """Private texts of the control centre that outlive it: the last copy, screenshots, what was used last."""

    def write(self, name: str, text: str) -> Path:
        """Puts a file into the state folder, mode 0600, and returns its path. Raises OSError."""

    def read(self, name: str) -> str | None:
        """Its text; None when there is none. Raises OSError."""


class UserFiles(Protocol):
    """Files that a person names. `~` is their home; a relative path starts in the working directory."""

    async def read(self, path: str, most: int) -> bytes:
        """An import, a schema, tools, a picture. Raises UsageError when it cannot be read, RefusedError when it has
        more than `most` bytes."""

    async def write(self, path: str, text: str, *, replace: bool = False) -> str:
        """Writes an export, mode 0600, in one step, and returns its path. Raises RefusedError when there is a file and
        `replace` is false, SparkError when it cannot be written."""

    async def close(self) -> None: ...


MEASURES: Final = "bench-"
"""Begins the claim of an engine while it is measured: other programs ask before they stop it."""
EDITS: Final = "edit-"
"""Begins the file of an edit that is under way or was interrupted."""


class StateFiles(Protocol):
    """Small private files of this program's own, by name."""

    def read(self, name: str) -> bytes | None:
        """None where there is none. Raises SparkError where it cannot be read."""

    def path(self, name: str) -> str:
        """Where that file is, for a person to look at."""

    def write(self, name: str, data: bytes) -> None:
        """Whole or not at all, and on the disk when this returns. Raises SparkError."""

    def remove(self, name: str) -> None: ...

    def names(self, prefix: str) -> tuple[str, ...]:
        """The files whose name begins so. Raises SparkError where they cannot be listed."""

    def claim(self, name: str) -> bool:
        """Makes this caller the only one that works on it; false while another one does. A dead process holds none.
        Raises SparkError."""

    def release(self, name: str) -> None: ...

    def claimed(self, prefix: str) -> tuple[str, ...]:
        """The claims of all programs whose name begins so. Raises SparkError where they cannot be listed."""


class DoctorProbe(Protocol):
    """Readings of files under /proc, /sys and /etc. Blocks for as long as they take: not for the event loop. Nothing
    raises: what cannot be read is Missing."""

    def user(self) -> tuple[str, bool]:
        """This user's name, and whether it is root."""

    def driver(self) -> Reading[str]:
        """Version of the NVIDIA kernel module."""

    def kernel_number(self, name: str) -> Reading[int]:
        """A number under /proc/sys, by its path there: `vm/min_free_kbytes`."""

    def earlyoom(self) -> Reading[str]:
        """Its command line; empty where it does not run."""

    def engine_processes(self) -> Reading[tuple[EngineProcess, ...]]:
        """Processes of inference engines that are in no container."""

    def clock_synchronised(self) -> Reading[bool]: ...

    def kernel_log(self) -> Reading[tuple[str, ...]]:
        """The kernel's lines since the start of the machine, the latest thousands."""

    def relogin(self) -> bool:
        """Whether this user is in the group `docker`, which only a new login sees."""

    def toolkit(self) -> Reading[str]:
        """Path of the NVIDIA container toolkit; empty where there is none."""

    def cdi(self) -> Reading[tuple[str, ...]]:
        """Specifications of devices for containers."""

    def registries(self) -> Reading[tuple[str, ...]]:
        """Registries with a login in Docker's own settings."""

    def folder(self, path: Path) -> Reading[StoreState]: ...

    def links(self) -> tuple[Reading[tuple[Link, ...]], str]:
        """Interfaces that are up, and the one with the default route; empty where there is none."""

    def taken(self, ports: Sequence[int]) -> tuple[int, ...]:
        """Those of these ports on which a process listens."""


class ShellResult(Struct, frozen=True):
    """How a command on another host ended: ssh's exit code, and all that came."""

    code: int
    out: str
    err: str


class RemoteShell(Protocol):
    """Runs spark-tui, or the host's other `command`, on another host. Nothing secret goes with it: neither in its
    arguments nor in its environment. Raises UnreachableError when there is no ssh."""

    async def ask(
        self,
        host: RemoteHost,
        arguments: Sequence[str],
        *,
        given: str | bytes = "",
        seconds: float | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> ShellResult:
        """Runs it with these arguments and `given` as its input, without a terminal and without a question to the
        person. `on_line` is called with each line of output as it comes; then none of it is kept. Raises
        UnreachableError also for no end within `seconds` (None: a few; 0: no limit)."""

    async def on_terminal(self, host: RemoteHost, arguments: Sequence[str]) -> int:
        """Runs it on this program's terminal until it ends, and returns its exit code."""

    def become(self, host: RemoteHost, arguments: Sequence[str], *, terminal: bool) -> NoReturn:
        """This process becomes ssh, with a terminal there or without."""


class VitalsProbe(Protocol):
    """The machine's other vital signs. Reads many files: for a thread, while they are shown. Never raises."""

    def look(self) -> Vitals:
        """Rates since the look before, and temperatures."""

    def processes(self, gpu: Sequence[GpuProcess], limit: int) -> Reading[tuple[HostProcess, ...]]:
        """The `limit` heaviest processes, and every one of `gpu` that can be seen."""

    def container_memory(self, pid: int) -> Reading[ContainerMemory]:
        """What the kernel charges to the container of a process."""


class MetricsSource(Protocol):
    """Where metrics come from."""

    async def read(self, endpoint: Endpoint) -> MetricPage:
        """One reading. It writes a line into the log of most servers: only on demand.

        Raises MetricsUnavailable for a server that publishes none, ApiKeyRejected, EngineUnreachable, and EngineFailed
        for an answer that is no metrics page.
        """

    async def close(self) -> None: ...
