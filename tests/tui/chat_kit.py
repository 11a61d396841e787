"""The Chat screen over scripted ports: a fake Docker with engines, and an API whose answers a test writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from textual.app import ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Static

from spark_tui.app.control_centre import SparkApp
from spark_tui.base.actions import Scope
from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerStatus, PublishedPort
from spark_tui.base.engine.message import AnswerFinished, ChatEvent, ChatRequest, ContentDelta, Usage
from spark_tui.base.engine.state import Endpoint, Health, ServedModel
from spark_tui.base.finding import NOT_READ_YET
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.settings import Settings
from spark_tui.catalog.presets.model.preset import PresetCatalogue
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.tui.format import UNICODE
from spark_tui.tui.frame import FrameScreen
from spark_tui.use.chat.screen.chat import ChatScreen
from spark_tui.use.chat.screen.prompt import Prompt
from spark_tui.use.chat.screen.transcript import Transcript
from tests.fakes_api import MemoryFiles
from tests.fakes_docker import FakeDocker
from tests.fakes_files import OwnConversations
from tests.fakes_host import FakeArchive, FakeClock, FakeGpu, FakeHost, FakeSecrets
from tests.fakes_ports import Ports
from tests.tui.quiet import text_of, until

CONTEXT_TOKENS = 262_144


@dataclass
class Reply:
    """One answer, as the test lets it come."""

    endpoint: Endpoint
    request: ChatRequest
    closed: bool = False
    _queue: asyncio.Queue[ChatEvent | Exception | None] = field(default_factory=asyncio.Queue)

    def send(self, *events: ChatEvent) -> None:
        for event in events:
            self._queue.put_nowait(event)

    def end(self, reason: str = "stop", usage: Usage | None = None) -> None:
        self.send(AnswerFinished(reason), *([usage] if usage else []))
        self._queue.put_nowait(None)

    def fail(self, error: Exception) -> None:
        self._queue.put_nowait(error)

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        try:
            while (item := await self._queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed = True


@dataclass
class ScriptedApi:
    """An EngineApi: one served model per port."""

    models_by_port: dict[str, str] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)

    async def health(self, endpoint: Endpoint) -> Health:
        return Health.OK if endpoint.base_url in self.models_by_port else Health.LOADING

    async def models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        name = self.models_by_port.get(endpoint.base_url, "")
        return (ServedModel(name, name, CONTEXT_TOKENS),) if name else ()

    async def version(self, endpoint: Endpoint) -> str:
        return "0.33.0"

    def chat(self, endpoint: Endpoint, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        self.replies.append(Reply(endpoint, request))
        return self.replies[-1].events()

    async def close(self) -> None:
        return


class NoPresets:
    """A PresetSource without presets."""

    def load(self) -> PresetCatalogue:
        return PresetCatalogue()

    glance = load


class Elsewhere(FrameScreen):
    """Any other screen."""

    SCOPE = Scope.HOME
    TAB = "show_home"

    def compose_body(self) -> ComposeResult:
        yield Static("elsewhere")


def _elsewhere() -> Screen[Any]:
    return Elsewhere()


class ChatApp(SparkApp):
    """The app with the Chat screen, and stand-ins for the others."""

    CSS_PATH = SparkApp.CSS_PATH[:1]
    MODES = {**SparkApp.MODES, "home": _elsewhere, "presets": _elsewhere, "logs": _elsewhere}  # noqa: RUF012


class Kit:
    """What a test holds: the app, the ports, and words for what a person does and sees."""

    def __init__(self, engines: dict[str, str]) -> None:
        self.clock = FakeClock()
        self.docker = FakeDocker()
        self.api = ScriptedApi()
        self.kept = OwnConversations()
        self.files = MemoryFiles()
        for number, (name, model) in enumerate(engines.items()):
            self.add_engine(name, model, 8000 + number)
        ports = Ports(
            clock=self.clock, docker=self.docker, api=self.api, host=FakeHost(), gpu=FakeGpu(), presets=NoPresets(),
            secrets=FakeSecrets(), archive=FakeArchive(), conversations=self.kept, user_files=self.files,
        )  # fmt: skip
        self.context = Context(Settings(), ports, HostPaths("/store", "/caches", "/home/test"))
        self.app = ChatApp(self.context, UNICODE)
        self.pilot: Pilot[None]

    def add_engine(self, name: str, model: str, port: int) -> None:
        """A container that runs; it serves `model`, or is still loading when that is empty."""
        published = (PublishedPort(8000, port, "127.0.0.1"),)
        self.docker.add_container(name, argv=("vllm", "serve"), ports=published, status=ContainerStatus.RUNNING)
        if model:
            self.api.models_by_port[f"http://127.0.0.1:{port}"] = model

    # --- see ------------------------------------------------------------------------------------------

    @property
    def chat(self) -> ChatScreen:
        """The screen; it must be the current one."""
        assert isinstance(self.app.screen, ChatScreen)
        return self.app.screen

    @property
    def prompt(self) -> Prompt:
        return self.chat.query_one(Prompt)

    @property
    def transcript(self) -> Transcript:
        return self.chat.query_one(Transcript)

    def said(self) -> str:
        """The whole transcript as painted, right ends trimmed, without the rules."""
        transcript = self.transcript
        transcript._lay_exactly(range(len(transcript._stack.laid)))  # what was never seen is not laid out yet
        top, transcript_height = round(transcript.scroll_y), transcript.virtual_size.height
        lines = [transcript.render_line(y - top).text for y in range(transcript_height)]
        return "\n".join(line[2:].rstrip() for line in lines)

    def seen(self) -> str:
        """The terminal as it is now."""
        return text_of(self.app)

    # --- do -------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool], what: str = "") -> None:
        await until(self.app, condition, what)

    async def let_time_pass(self, condition: Callable[[], bool]) -> None:
        """Moves the clock on until a condition holds: for what the core polls."""
        await until(self.app, condition, passes=lambda: self.clock.advance(0.2))

    async def until_seen(self, *texts: str) -> None:
        """Waits until the terminal shows all of these."""
        await self.until(lambda: all(text in self.seen() for text in texts), f"seen: {texts}")

    async def type(self, text: str) -> None:
        """Types text, character by character, as keys."""
        for character in text:
            await self.pilot.press(_KEYS.get(character, character))

    async def ask(self, text: str = "Hello") -> Reply:
        """Types a question, sends it, and returns the answer that the test may write."""
        before = len(self.api.replies)
        await self.type(text)
        await self.pilot.press("enter")
        await self.until(lambda: len(self.api.replies) > before, "asked")
        return self.api.replies[-1]

    async def answered(self, text: str = "Yes.", question: str = "Hello", usage: Usage | None = None) -> Reply:
        """A complete exchange."""
        reply = await self.ask(question)
        reply.send(ContentDelta(text))
        reply.end(usage=usage)
        await self.until(lambda: not self.transcript.turns[-1].live, "answered")
        return reply


_KEYS = {
    " ": "space",
    "?": "question_mark",
    ".": "full_stop",
    ",": "comma",
    "\n": "ctrl+j",
    "]": "right_square_bracket",
}


@asynccontextmanager
async def chatting(engines: dict[str, str] | None = None, *, size: tuple[int, int] = (100, 30)) -> AsyncIterator[Kit]:
    """The Chat screen with these engines (container name -> served model), in a terminal of that size."""
    kit = Kit({"qwen": "qwen36-35b"} if engines is None else engines)
    async with kit.app.run_test(size=size, notifications=True) as pilot:
        kit.pilot = pilot
        serving = any(kit.api.models_by_port)
        await kit.let_time_pass(lambda: ("ready" in kit.seen()) if serving else kit.app.world[ENGINES] != NOT_READ_YET)
        await pilot.press("6")
        await kit.until(lambda: isinstance(kit.app.screen, ChatScreen) and kit.app.screen.focused is not None)
        yield kit
