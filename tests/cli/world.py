"""A fixed small world for the command line: fakes behind every port, a preset catalogue in memory, captured streams."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_tui.app.main import run
from spark_tui.app.opening import open_context
from spark_tui.base.context import Context
from spark_tui.base.engine.container import (
    LABEL_MODEL,
    LABEL_PORT,
    LABEL_PRESET,
    LABEL_RUNTIME,
    LABEL_SERVED_NAME,
    ContainerFacts,
    ContainerStatus,
    PublishedPort,
)
from spark_tui.base.engine.message import AnswerFinished, ChatEvent, ChatRequest, ContentDelta, ReasoningDelta, Usage
from spark_tui.base.engine.state import Endpoint, Health, ServedModel, api_port
from spark_tui.base.errors import ApiKeyRejected, EngineUnreachable, PresetError, SparkError
from spark_tui.base.finding import Ok
from spark_tui.base.host.vitals import GpuReading, HostPaths
from spark_tui.base.ports import CheckpointSource, DoctorProbe, MetricsSource, UserFiles
from spark_tui.base.settings import Folders, Settings
from spark_tui.catalog.models.use.ports import Downloader, HubClient, ModelStore
from spark_tui.catalog.presets.model.preset import Origin, Preset, PresetCatalogue, PresetFacts, PublishedSpeed
from spark_tui.catalog.presets.use.imports import RecipeStore
from spark_tui.catalog.presets.use.rights import AllowedPresets
from spark_tui.cli.session import Opener, Options, Streams
from spark_tui.machine.settings import load_settings
from spark_tui.observe.metrics.use.history import HistoryStore
from spark_tui.use.chat.use.chat import ConversationStore
from spark_tui.use.connect.use import SettingsFiles
from tests.fakes_docker import EPOCH, FakeDocker
from tests.fakes_files import MemoryState
from tests.fakes_host import FakeArchive, FakeClock, FakeGpu, FakeHost, FakeSecrets
from tests.fakes_ports import Ports
from tests.shipped import SHIPPED_FILES

IMAGE = "vllm/vllm-openai:nightly"

BOOT = (
    "INFO 01-15 07:00:01 [api_server.py:1] vLLM API server version 0.32.0",
    "INFO 01-15 07:00:02 [gpu_model_runner.py:1] Starting to load model acme/tiny-1b...",
    "INFO 01-15 07:00:09 [default_loader.py:1] Loading weights took 6.10 seconds",
    "INFO:     Started server process [1]",
    "INFO:     Application startup complete.",
)

ANSWER = (
    ReasoningDelta("Hm. "),
    ContentDelta("Blue "),
    ContentDelta("light scatters."),
    AnswerFinished("stop"),
    Usage(prompt_tokens=12, completion_tokens=5, reasoning_tokens=2, cached_tokens=8),
)

TINY = Preset(
    name="tiny-1b",
    origin=Origin.BUILTIN,
    file="/presets/tiny-1b.yaml",
    model="acme/tiny-1b",
    image=IMAGE,
    command="vllm serve {model} --port {port} --max-model-len {max_model_len}",
    defaults=(("port", 8000), ("max_model_len", 4096), ("served_model_name", "tiny")),
    env=(("VLLM_LOGGING_LEVEL", "INFO"),),
    facts=PresetFacts(
        title="Tiny 1B",
        description="A model for tests.",
        family="Tiny",
        publisher="Acme",
        licence="Apache-2.0",
        gated=False,
        architecture="dense",
        total_parameters=1e9,
        weights_bytes=2_000_000_000,
        context_tokens=131072,
        modalities=("text",),
        quantization="bf16",
        source="made up",
        notes=("Small enough for every test.",),
        published=(PublishedSpeed(41.8, "one stream", "nobody"),),
    ),
)
BIG = Preset(name="big-70b", origin=Origin.USER, file="/own/big-70b.yaml", model="acme/big-70b", image="acme/big:1")
CATALOGUE = PresetCatalogue(
    (BIG, TINY),
    (PresetError("`defaults` is not a mapping.", "Write key: value lines.", file="/own/broken.yaml", line=7),),
)


class FakeApi:
    """An EngineApi per port: what it serves, and how it answers; the next `rejects` keys are refused. `asked` keeps the
    requests."""

    def __init__(self) -> None:
        self.models_at: dict[str, tuple[ServedModel, ...]] = {}
        self.health_at: dict[str, Health] = {}
        self.events: Sequence[ChatEvent | SparkError] = ANSWER
        self.asked: list[ChatRequest] = []
        self.keys: list[str] = []
        self.hang = False
        self.posts: list[tuple[str, Mapping[str, Any]]] = []
        self.reply: Any = {}
        self.rejects = 0

    def serve(self, container: ContainerFacts, model: str = "tiny") -> None:
        """The container's server is up."""
        address = f"http://127.0.0.1:{api_port(container)}"
        self.models_at[address] = (ServedModel(model, "acme/tiny-1b", 4096),)
        self.health_at[address] = Health.OK

    async def health(self, endpoint: Endpoint) -> Health:
        return self.health_at.get(endpoint.base_url, Health.NOT_LISTENING)

    async def models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        if endpoint.base_url not in self.models_at:
            raise EngineUnreachable("Nothing listens there.", "Start it.")
        return self.models_at[endpoint.base_url]

    async def version(self, endpoint: Endpoint) -> str:
        return "0.32.0"

    async def ask(self, endpoint: Endpoint, path: str, body: bytes) -> AsyncGenerator[str, None]:
        self.posts.append((path, json.loads(body)))
        self.keys.append(endpoint.api_key.reveal() if endpoint.api_key else "")
        if self.rejects:
            self.rejects -= 1
            raise ApiKeyRejected("401", "")
        yield json.dumps(self.reply)

    async def chat(self, endpoint: Endpoint, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        self.asked.append(request)
        self.keys.append(endpoint.api_key.reveal() if endpoint.api_key else "")
        for event in self.events:
            if isinstance(event, SparkError):
                raise event
            yield event
        if self.hang:
            await asyncio.Event().wait()

    async def close(self) -> None:
        return


class Stream(io.StringIO):
    """A captured stream that can be a terminal."""

    def __init__(self, text: str = "", *, tty: bool = False) -> None:
        super().__init__(text)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@dataclass
class StaticPresets:
    """A PresetSource of fixed presets."""

    catalogue: PresetCatalogue = CATALOGUE

    def load(self) -> PresetCatalogue:
        return self.catalogue

    glance = load


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        """The last line of standard error as a JSON error."""
        return json.loads(self.err.splitlines()[-1])["error"]


@dataclass
class World:
    """Everything behind the command line. `drive` lets the fake clock run by itself, as fast as it can. With `folders`
    the settings are those that are written there."""

    docker: FakeDocker = field(default_factory=FakeDocker)
    api: FakeApi = field(default_factory=FakeApi)
    host: FakeHost = field(default_factory=FakeHost)
    gpu: FakeGpu = field(
        default_factory=lambda: FakeGpu(Ok(GpuReading("NVIDIA GB10", 96, 47.2, 62, 2411, processes=()), 0.0))
    )
    presets: StaticPresets = field(default_factory=StaticPresets)
    secrets: FakeSecrets = field(default_factory=FakeSecrets)
    archive: FakeArchive = field(default_factory=FakeArchive)
    clock: FakeClock = field(default_factory=FakeClock)
    recipes: RecipeStore | None = None
    models: ModelStore | None = None
    metrics: MetricsSource | None = None
    checkpoints: CheckpointSource | None = None
    history: HistoryStore | None = None
    hub: HubClient | None = None
    downloader: Downloader | None = None
    conversations: ConversationStore | None = None
    user_files: UserFiles | None = None
    client_files: SettingsFiles | None = None
    doctor: DoctorProbe | None = None
    state: MemoryState = field(default_factory=MemoryState)
    paths: HostPaths = field(default_factory=lambda: HostPaths("/store", "/caches", "/home/test"))
    drive: bool = False
    happenings: list[tuple[Callable[[], bool], Callable[[], None]]] = field(default_factory=list)
    settings: Settings = field(default_factory=Settings)
    folders: Folders | None = None
    opened: list[Options] = field(default_factory=list)
    err: Stream = field(default_factory=Stream)
    """What the command that runs now, or ran last, has written for a person."""
    _helpers: list[asyncio.Task[None]] = field(default_factory=list)

    def context(self, options: Options, environment: Mapping[str, str]) -> Context:
        """An opener. A closed fake has nothing to close twice, so every command may open anew."""
        self.opened.append(options)
        if self.drive:
            self._helpers.append(asyncio.ensure_future(self._driving()))
        for condition, happening in self.happenings:
            self._helpers.append(asyncio.ensure_future(_happen(condition, happening)))
        self.happenings.clear()
        ports = Ports(
            self.clock, self.docker, self.api, self.host, self.gpu, self.presets, self.secrets, self.archive,
            recipes=self.recipes, models=self.models, metrics=self.metrics, checkpoints=self.checkpoints,
            history=self.history, hub=self.hub, state=self.state, downloader=self.downloader,
            doctor_probe=self.doctor, conversations=self.conversations, user_files=self.user_files,
            client_files=self.client_files, folders=self.folders, environ=environment,
        )  # fmt: skip
        settings = self.settings if self.folders is None else load_settings(environment, self.folders)
        return Context(settings, ports, self.paths)

    async def _driving(self) -> None:
        while True:
            await asyncio.sleep(0.001)  # threads get their turn
            await self.clock.advance(0.5)

    def when(self, condition: Callable[[], bool], happening: Callable[[], None]) -> None:
        """Does something once, as soon as the condition holds during the next command."""
        self.happenings.append((condition, happening))

    def interrupt_when(self, condition: Callable[[], bool]) -> None:
        """The person presses Ctrl-C: a real SIGINT to this process."""
        self.when(condition, lambda: signal.raise_signal(signal.SIGINT))

    def run(
        self,
        *arguments: str,
        stdin: str | None = None,
        tty: bool = False,
        keyboard: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Result:
        """One command. Without `stdin` a person sits at the keyboard and types `keyboard`."""
        source = Stream(stdin or keyboard, tty=stdin is None)
        out, self.err = Stream(tty=tty), Stream(tty=tty)
        code = run(arguments, Streams(source, out, self.err, environment or {}), self.context)
        return Result(code, out.getvalue(), self.err.getvalue())

    def engine(
        self,
        name: str = "tiny-1b",
        *,
        port: int = 8000,
        serving: bool = True,
        lines: Sequence[str] = BOOT,
        host_ip: str = "127.0.0.1",
        more_labels: tuple[tuple[str, str], ...] = (),
        **changes: Any,
    ) -> ContainerFacts:
        """An engine that spark-tui launched earlier."""
        labels = (
            (LABEL_PRESET, name),
            (LABEL_MODEL, "acme/tiny-1b"),
            (LABEL_SERVED_NAME, "tiny"),
            (LABEL_RUNTIME, "vllm"),
            (LABEL_PORT, str(port)),
            *more_labels,
        )
        given = {"labels": labels, "ports": (PublishedPort(8000, port, host_ip),), "network_mode": "bridge"} | changes
        facts = self.docker.add_container(name, image=IMAGE, lines=lines, **given)
        if serving:
            self.api.serve(facts)
        return facts

    def failed_engine(self, name: str = "broken-8b") -> ContainerFacts:
        """One that ended with an error an hour before now."""
        return self.engine(
            name,
            port=8009,
            serving=False,
            lines=(*BOOT[:2], "ValueError: No available memory for the cache blocks."),
            status=ContainerStatus.EXITED,
            exit_code=1,
            finished_at=EPOCH + 30,
        )


async def _happen(condition: Callable[[], bool], happening: Callable[[], None]) -> None:
    while not condition():
        await asyncio.sleep(0)
    happening()


def opened(options: Options, environment: Mapping[str, str]) -> Context:
    """As the program opens it; the presets of a demo, which are the shipped ones, are read once for all of them."""
    context = open_context(options, environment)
    if context.demo:
        context.ports.presets = AllowedPresets(SHIPPED_FILES, context.ports.state)
    return context


def in_process(
    arguments: Sequence[str], environment: Mapping[str, str], *, stdin: str = "", opener: Opener = opened
) -> subprocess.CompletedProcess[str]:
    """A command on the real ports, away from any terminal and without the start of a Python: all that it knows of the
    machine is `environment`."""
    out, err = Stream(), Stream()
    code = run(arguments, Streams(Stream(stdin), out, err, environment), opener)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def example() -> World:
    """One engine that serves, one that failed, one image, and one container that is no engine."""
    world = World()
    world.docker.add_image(IMAGE)
    world.docker.script(IMAGE, BOOT)
    world.docker.on_start = world.api.serve
    world.engine()
    world.failed_engine()
    world.docker.add_container("db", image="postgres:17", argv=("postgres",))
    return world


def typing(*lines: str) -> Callable[[str], str]:
    """A user who types these lines, then ends the input."""
    left = list(lines)

    def read(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return read
