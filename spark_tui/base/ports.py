"""What the core needs of the outside, and nothing more. Adapters implement these; so do the fakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:  # the shapes are many, and a port names them only
    from spark_tui.base.checkpoint import CheckpointFacts
    from spark_tui.base.engine.boot import BootStatus
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
    from spark_tui.base.engine.schedule import ScheduleStatus
    from spark_tui.base.engine.state import Endpoint, Health, ServedModel
    from spark_tui.base.history_limits import HistoryState, Record
    from spark_tui.base.host.detectors import SharedFile
    from spark_tui.base.host.drop_caches import Access, Route, SystemFile
    from spark_tui.base.host.guard import GuardedEngine, GuardEntry
    from spark_tui.base.host.identity import HostIdentity
    from spark_tui.base.host.memory import MemInfo
    from spark_tui.base.host.series import Sample, SeriesKey, SeriesSlice
    from spark_tui.base.host.vitals import ContainerMemory, GpuProcess, GpuReading, HostProcess, Vitals
    from spark_tui.base.reading import Reading
    from spark_tui.base.remote import RemoteHost
    from spark_tui.base.secret import Secret
    from spark_tui.catalog.models.model.download import Download, DownloadRequest, Limits, LocalFiles
    from spark_tui.catalog.models.model.hub import RepoFacts, RepoFile, SearchHit, SearchQuery
    from spark_tui.catalog.models.model.ollama import OllamaModels
    from spark_tui.catalog.models.model.store import (
        Deleted,
        DeleteExtent,
        DeletePlan,
        StoreContents,
        StoredFile,
        VerifyProgress,
    )
    from spark_tui.catalog.presets.model.dialects.importing import CollectedFiles, FoundFile
    from spark_tui.catalog.presets.model.preset import Preset, PresetCatalogue
    from spark_tui.catalog.presets.model.registry import PinnedRegistry
    from spark_tui.manage.cluster.model.copying import ModelFile
    from spark_tui.manage.cluster.model.facts import Dial, Ping, ProbeRequest, RoceDevice, Transfer
    from spark_tui.manage.cluster.model.install import ProgramBundle
    from spark_tui.manage.cluster.model.protocol import FabricLink, Router, RouteRequest
    from spark_tui.manage.doctor.model import EngineProcess, Link, StoreState
    from spark_tui.manage.gateway.model import GatewayModel, Upstream
    from spark_tui.observe.explain.model.starts import StartRecord
    from spark_tui.observe.metrics.model.agents import AgentTurn
    from spark_tui.observe.results.model.proof import Proof
    from spark_tui.observe.results.model.run import Result
    from spark_tui.use.bench.model.load import Load, LoadEvent
    from spark_tui.use.chat.model.conversation import ChatThread, ConversationHit, ConversationSummary
    from spark_tui.use.connect.model import ClientFile, FileFormat, Keys
    from spark_tui.use.connect.model import Path as KeyPath


T = TypeVar("T")

PORT_NAMES: Final[dict[type, str]] = {}
"""What the adapter of a Protocol that a room has is called in the tables of adapters. A room adds its own."""


def port(name: str) -> Callable[[type[T]], type[T]]:
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
        """Runs a program of an image, without network, GPU or mounts, and returns the last lines that it printed. Its
        container is removed. Raises DockerError where it cannot run or does not end by itself."""

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
        """Sends a JSON body as it is, and yields the data of each event, or the one JSON text of an answer that is not
        streamed. Raises NoSuchPath where there is none."""

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

    def bare_engines(self) -> tuple[ContainerFacts, ...]:
        """Servers that run outside any container, in the order of their names: see `bare_engine`. Reads the command
        line of each process: not for every second."""

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


class UserUnits(Protocol):
    """The person's own systemd units. Raises SparkError."""

    def path(self, name: str) -> Path: ...

    def install(self, name: str, text: str) -> None:
        """Writes the unit, enables and starts it."""

    def uninstall(self, name: str) -> bool:
        """Stops, disables and removes it; false when there was none."""


class BootPort(Protocol):
    """The systemd units that start engines with the machine. Raises SparkError, also where there is no systemd."""

    def all(self) -> tuple[BootStatus, ...]:
        """Of every engine that has a unit."""

    def enable(self, engine: str, words: Sequence[str], *, system: bool = False) -> None:
        """Writes, enables and starts the unit that runs spark-tui with these arguments; with `system` one of the
        machine, written through sudo on the person's terminal."""

    def disable(self, engine: str) -> bool:
        """Disables and removes it; the engine keeps running. False when there was none."""

    def schedules(self) -> tuple[ScheduleStatus, ...]:
        """Of every engine that has a schedule's timer."""

    def install_timer(
        self, name: str, title: str, words: Sequence[str], calendar: Sequence[str], *, data: str = "",
        system: bool = False,
    ) -> None:  # fmt: skip
        """Runs spark-tui with these arguments at the times of `calendar` (systemd.time(7)). With `data`, which is kept
        in the timer, exactly then, and again where it fails."""

    def remove_timer(self, name: str) -> bool:
        """False when there was none."""

    def has_timer(self, name: str) -> bool: ...


@port("presets")
class PresetSource(Protocol):
    """Where presets come from."""

    def load(self) -> PresetCatalogue:
        """Every preset that can be read, and a problem for every file that cannot. Never raises."""

    def glance(self) -> PresetCatalogue:
        """The same, sooner: for what is only shown. What is launched, changed or exported comes from `load`."""


@port("presets")
class PresetGrants(PresetSource, Protocol):
    """A source of presets with the rights that the person allowed them."""

    def allow(self, preset: Preset, names: Collection[str]) -> Preset:
        """Records rights by their names, beside those allowed earlier; without names takes all back. Raises UsageError
        for a name that the recipe does not ask for."""


class CheckpointSource(Protocol):
    """Checkpoints in the model store."""

    def read(self, model: str, revision: str = "") -> Reading[CheckpointFacts]:
        """What the files of a checkpoint say of it, by Hub name or by path within the store; configs and headers are
        read, never a tensor. Missing says why. Never raises. Reads files: not for the event loop."""


@port("recipes")
class RecipeStore(Protocol):
    """Recipe files of other people, and the person's own preset folder. Raises PresetError for what cannot be read."""

    def gather(self, source: Path) -> CollectedFiles:
        """Every recipe in a file or folder, and what its registry says of itself.

        Raises UsageError for a path that is neither, PresetError for a folder that is too large.
        """

    def given(self, text: str, called: str) -> CollectedFiles:
        """A text in place of a file. Raises PresetError for one that is too large."""

    def recipe(self, file: str) -> FoundFile:
        """A preset's file, as it is written."""

    def own_text(self, name: str) -> str | None:
        """What the person's own file of that name holds, None where there is none."""

    def write(self, name: str, text: str, *, replace: bool = False) -> Path:
        """Puts a preset into the person's folder in one step, mode 0644, and returns its path.

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


@port("load")
class LoadDriver(Protocol):
    """Sends load and takes the time. Measured and simulated ones are the same to the core."""

    simulated: bool

    def drive(self, endpoint: Endpoint, load: Load, stop: asyncio.Event) -> AsyncGenerator[LoadEvent, None]:
        """Ticks while it runs, then the LoadResult, once, last. A failing request is a record and no exception.

        When `stop` is set no further request is sent, those under way are cut off and recorded as cancelled, and the
        records follow as at any other end. Raises SparkError when there is no way to send anything at all.
        """

    async def tokenize(self, endpoint: Endpoint, model: str, text: str) -> tuple[tuple[int, ...], int | None]:
        """The token ids of a text, without special ones, and the engine's context length where it says it. Raises the
        API part of the error tree, BadRequest where the server cannot tokenize."""

    async def detokenize(self, endpoint: Endpoint, model: str, tokens: Sequence[int]) -> str: ...
    async def close(self) -> None: ...


@port("results")
class ResultStore(Protocol):
    """Benchmarks and verdicts, kept across runs. Written by one, read by many. Raises SparkError."""

    def add(self, result: Result) -> None:
        """Keeps it. Of too many the oldest go."""

    def remove(self, ids: Collection[str]) -> int:
        """Deletes the results with these ids, and returns how many there were."""

    def all(self) -> tuple[Result, ...]:
        """All that are kept, oldest first. Unreadable ones are skipped and listed in `problems`."""

    def problems(self) -> tuple[str, ...]:
        """What the last `all` could not read, in words."""


@port("proofs")
class ProofStore(Protocol):
    """Proofs, kept across runs as results are. Raises SparkError."""

    def add(self, result: Proof) -> None: ...

    def all(self) -> tuple[Proof, ...]:
        """All that are kept, oldest first."""

    def problems(self) -> tuple[str, ...]: ...


@port("hub")
class HubClient(Protocol):
    """The Hub, asked. An answer takes a second as a rule, and at most some ten: then it is HubOffline."""

    async def search(self, query: SearchQuery, token: Secret | None = None) -> tuple[SearchHit, ...]:
        """What fits the query, best first."""

    async def repo(self, repo: str, revision: str = "main", token: Secret | None = None) -> RepoFacts:
        """One revision: facts of its card, and all its files with sizes. A gated repository can be looked at."""

    async def access(self, repo: str, token: Secret | None = None) -> None:
        """Returns when this token may fetch the repository's files; raises HubGated, HubTokenRejected, ..."""

    async def inspect(self, facts: RepoFacts, token: Secret | None = None) -> Reading[CheckpointFacts]:
        """What a checkpoint's config, index and tensor headers say of it, without fetching a tensor.

        Missing: it has no config, or none that can be understood. What else is wrong is a finding.
        """

    async def close(self) -> None: ...


@port("downloader")
class Downloader(Protocol):
    """Downloads, each in a process of its own that outlives this program. Nothing waits for a download. A method that
    takes an id raises UsageError for one that is not known."""

    async def here(self, request: DownloadRequest, commit: str, files: Sequence[RepoFile]) -> LocalFiles:
        """What of these files is in the store already."""

    async def start(self, request: DownloadRequest, token: Secret | None = None) -> str:
        """Starts or resumes a download and returns its id. A running one is left alone."""

    async def all(self) -> tuple[Download, ...]:
        """Every download that is known, oldest first: running, waiting, stopped, done."""

    async def pause(self, id_: str) -> None:
        """Ends its process at once; what has arrived stays."""

    async def cancel(self, id_: str, *, discard: bool = False) -> int:
        """Ends its process at once and forgets the download; with `discard` the parts of files that are not whole are
        deleted. Returns the bytes that this freed."""

    async def limits(self) -> Limits: ...

    async def set_limits(self, limits: Limits) -> None:
        """Takes effect within a second, for what runs too."""

    async def close(self) -> None: ...


@port("conversations")
class ConversationStore(Protocol):
    """Conversations on disk. Every method raises SparkError with a remedy; what it does is done in order.

    `unreadable` are sentences on the files that the last `summaries` could not read.
    """

    async def summaries(self) -> tuple[ConversationSummary, ...]:
        """All of them, the one that was changed last first."""

    @property
    def unreadable(self) -> tuple[str, ...]: ...

    async def read(self, conversation: str) -> ChatThread:
        """A whole conversation; raises UsageError when there is none of that id."""

    async def search(self, text: str) -> tuple[ConversationHit, ...]:
        """Exchanges whose question, answer or title holds `text`, whatever its case; newest conversations first,
        50 at most."""

    async def new_id(self, at: float) -> str:
        """An id that no conversation has; `at` is epoch seconds."""

    async def claim(self, conversation: str) -> bool:
        """Makes this process the only one that writes in it; false when another one does. A dead process holds none."""

    async def release(self, conversation: str) -> None: ...

    async def append(self, conversation: str, records: Sequence[Mapping[str, Any]], *, durable: bool = False) -> None:
        """Adds lines; on a failure none of them. `durable`: they are on the disk when this returns."""

    async def keep(self, conversation: str, data: bytes) -> str:
        """Keeps a picture or a sound beside it, and returns its name there."""

    async def delete(self, conversation: str) -> None:
        """Removes it with all its files; raises RefusedError while another program writes in it."""

    async def close(self) -> None:
        """Waits for what is on its way to the disk, and ends all claims."""


class UserFiles(Protocol):
    """Files that a person names. `~` is their home; a relative path starts in the working directory."""

    async def read(self, path: str, most: int) -> bytes:
        """An import, a schema, tools, a picture. Raises UsageError when it cannot be read, RefusedError when it has
        more than `most` bytes."""

    async def write(self, path: str, text: str, *, replace: bool = False) -> str:
        """Writes an export, mode 0600, in one step, and returns its path. Raises RefusedError when there is a file and
        `replace` is false, SparkError when it cannot be written."""

    async def close(self) -> None: ...


class SettingsText(Struct, frozen=True):
    """A settings file of another program: its path, its text (None where there is none), and its mode. `target`: where
    a symbolic link leads, which is what is written; empty for a plain file."""

    path: str
    text: str | None
    mode: int
    target: str = ""


@port("client_files")
class SettingsFiles(Protocol):
    """Settings files of other programs, below the person's home. Raises SparkError."""

    def read(self, file: ClientFile) -> SettingsText:
        """Raises RefusedError, which names the line, for one that does not parse."""

    def edit(self, old: SettingsText, kind: FileFormat, keys: Keys) -> str:
        """Its text with these values; all else stays as it is written. Raises RefusedError."""

    def value(self, text: str, kind: FileFormat, path: KeyPath) -> Any:
        """What a text has at that place; None for nothing."""

    def write(self, path: str, text: str | None, mode: int) -> None:
        """In one step, and through a link; None removes it. Raises RefusedError for a file that is read-only, or that
        has another name by a hard link."""


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


@port("history")
class HistoryStore(Protocol):
    """Keeps samples, starts and records across runs of this program. Nothing of it blocks the event loop.

    What is added is never waited for (but for `add_record`) and never raises: a disk that is full or a home that
    cannot be written shows in `state`, as of the last try. Every process adds starts and records; samples are recorded
    by one process at a time. Missing says why nothing can be read.
    """

    @property
    def state(self) -> HistoryState: ...

    def add_sample(self, sample: Sample) -> None:
        """Keeps a reading of an engine or of the machine; it may take some seconds until it is on disk."""

    def add_start(self, start: StartRecord) -> None:
        """Keeps a start, in place of what was known of the same one, and writes it at once."""

    async def add_record(self, record: Record) -> None:
        """Keeps a record and returns when it is on disk. Raises HistoryOff when it cannot be kept."""

    async def series(
        self, keys: Sequence[SeriesKey], since: float, until: float, buckets: int
    ) -> Reading[tuple[SeriesSlice, ...]]:
        """A stretch of each series from `since` to `until` (seconds since the epoch), in the order of `keys`.

        In at most `buckets` buckets and one; in fewer where samples of that age are further apart. A series that is
        not known has buckets without values.
        """

    async def starts(
        self, *, engine: str = "", preset: str = "", failed: bool = False, ready: bool = False, limit: int = 200
    ) -> Reading[tuple[StartRecord, ...]]:
        """The latest starts, newest first: of one engine, of one preset, those that failed, those of presets that came
        to serve, or all."""

    async def records(
        self, kind: str, *, key: str | None = None, since: float | None = None, limit: int = 200
    ) -> Reading[tuple[Record, ...]]:
        """The latest records of a kind, newest first."""

    async def flush(self) -> None:
        """Returns when all that was added is on disk, or could not be written."""

    async def close(self) -> None: ...


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


@port("fabric")
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


@port("models")
class ModelStore(Protocol):
    """Checkpoints on the disk. All work is done in threads of its own: nothing blocks the event loop.

    Models are named as `StoredModel.id` has them, revisions by commit, branch or tag; empty is the current one.
    Every method raises UsageError for a name that is not there.
    """

    async def scan(self, *, others: bool = True) -> StoreContents:
        """What is in the store now. Models that have not changed since the last scan are not looked into again.

        With `others`, other tools' caches on this machine too. Never raises: what cannot be read is a finding.
        """

    async def files(self, model: str, revision: str = "") -> tuple[StoredFile, ...]:
        """Every file of a revision, in name order, with what is known of its content."""

    def verify(self, model: str, revision: str = "") -> AsyncGenerator[VerifyProgress, None]:
        """Compares each file with what the Hub says of it; the last progress is over. Closing it ends the reading."""

    async def plan_delete(self, model: str, extent: DeleteExtent, revision: str = "") -> DeletePlan:
        """What a deletion would take and give back. Touches nothing."""

    async def delete(self, plan: DeletePlan) -> Deleted:
        """Does it. Raises RefusedError when the plan has obstacles, SparkError with the reason and the remedy when
        something could not be removed. Never removes anything outside the store's root."""

    async def close(self) -> None: ...


class ShellResult(Struct, frozen=True):
    """How a command on another host ended: ssh's exit code, and all that came."""

    code: int
    out: str
    err: str


@port("program")
class ProgramSource(Protocol):
    """The running program, to be copied to another machine."""

    def pack(self) -> ProgramBundle:
        """All of it, for a thread: takes seconds. Raises InstallFailed for a part whose files are unknown."""


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


@port("watchers")
class Watchers(Protocol):
    """Starts programs that look after launches over several nodes and outlive this one."""

    def start(self, name: str) -> Path:
        """A program that watches that launch, if none does; returns where it writes what it did. Raises SparkError."""


@port("routers")
class Routers(Protocol):
    """`vllm-router` on this machine: programs that outlive this one."""

    def available(self) -> bool:
        """Whether it is installed."""

    def start(self, request: RouteRequest) -> Router:
        """Returns once it listens; blocks until then. Raises SparkError where it does not start."""

    def runs(self, router: Router) -> bool: ...

    def end(self, router: Router) -> bool:
        """Whether its process is gone afterwards."""


class TransferCount(Struct):
    """How far a transfer is, written by it. `ended`: all is sent, and the receiver works on it."""

    done: int = 0
    ended: bool = False


@port("ollama")
class OllamaApi(Protocol):
    """Ollama on this or another machine, read only."""

    async def models(self, address: str = "") -> OllamaModels:
        """What it has, MAX_MODELS at most. `address` as OLLAMA_HOST has it; empty: what that variable says, else this
        machine. Raises OllamaUnreachable, UsageError."""


@port("registries")
class RegistryStore(Protocol):
    """Git repositories of recipes: what is fetched of them, and the person's pins."""

    def pins(self) -> tuple[PinnedRegistry, ...]:
        """In the order in which they were pinned. Raises SparkError for a file that cannot be read."""

    def keep(self, pins: tuple[PinnedRegistry, ...]) -> None: ...

    async def fetch(self, name: str, address: str) -> str:
        """The newest commit of the default branch, without history; returns its hash. Raises GitUnreachable,
        RegistryTooLarge."""

    async def fetched(self, name: str) -> str:
        """The commit that was fetched last, without the network; empty for none."""

    def tree(self, name: str, commit: str) -> Path:
        """A folder with a fetched commit's recipes, scripts and licences as plain files. Raises RegistryTooLarge."""

    def skipped(self, name: str, commit: str) -> tuple[str, ...]:
        """Recipes, scripts and licences of that commit that are not in its tree: `path: reason`."""

    def publish(self, name: str, commit: str, presets: Mapping[str, str]) -> None:
        """Preset files by name, in place of the registry's earlier ones, for PresetSource."""

    def remove(self, name: str) -> None:
        """Everything of a registry but its pin."""


@port("transfers")
class Transfers(Protocol):
    """Sends to another machine through this user's own ssh, which must not ask anything. Raises CopyFailed,
    FabricUnreachable, ReceiverFull; when it is cancelled, all its processes end."""

    def user(self) -> str:
        """Who this program runs as."""

    def has_rsync(self) -> bool: ...

    def files(self, folder: Path, only: Collection[str] = ()) -> tuple[ModelFile, ...]:
        """Everything below a folder that is whole, or what of `only` there is; empty without the folder. Reads small
        files: for a thread. Raises SparkError."""

    async def damaged(self, folder: Path, files: Sequence[ModelFile], count: TransferCount) -> tuple[str, ...]:
        """Those of these files that are not as expected; by SHA-256 where it is their name. They are removed."""

    async def send_image(self, reference: str, to: str, port: int, count: TransferCount) -> None:
        """From Docker here into Docker there, in one stream."""

    async def send_files(
        self, folder: Path, files: Sequence[str], to: str, port: int, place: str, count: TransferCount
    ) -> None:
        """Files and links below `folder` to the same names below `place` there. Interrupted files are continued."""


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


@port("gateway_server")
class GatewayServer(Protocol):
    """The HTTP side of a gateway."""

    async def serve(self, router: GatewayRouter, host: str, port: int, on_ready: Callable[[int], None]) -> None:
        """Serves until it is cancelled; `on_ready` gets the port. Raises GatewayMissing without its packages, PortInUse
        for an address that cannot be bound."""
