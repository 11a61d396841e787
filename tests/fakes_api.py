"""A scripted engine API: health, models and version as set, answers as lists of events with pauses."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from spark_tui.base.engine.message import AnswerFinished, ChatEvent, ChatRequest, ContentDelta, Usage
from spark_tui.base.engine.state import Endpoint, Health, ServedModel
from spark_tui.base.errors import EngineUnreachable, SparkError, UsageError
from spark_tui.base.ports import Clock

Script: TypeAlias = Sequence[ChatEvent | BaseException | float]
"""What a chat does, in order: an exception is raised where it stands, a number is a pause in seconds of the clock."""

HELLO: Script = (ContentDelta("Hello"), ContentDelta(" there."), AnswerFinished("stop"), Usage(5, 3))


@dataclass
class FakeEngineApi:
    """An EngineApi. Set `state`, `served`, `version_text`; `scripts` are played one per question, then `answer`."""

    clock: Clock
    state: Health = Health.NOT_LISTENING
    served: tuple[ServedModel, ...] = (ServedModel("model", "org/model", 4096),)
    models_error: SparkError | None = None
    version_text: str = "0.32.0"
    answer: Script = HELLO
    scripts: deque[Script] = field(default_factory=deque)
    requests: list[tuple[Endpoint, ChatRequest]] = field(default_factory=list)
    posts: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    reply: Any = None
    open_streams: int = 0
    health_calls: int = 0

    def serve(self) -> None:
        """Ready from now on."""
        self.state = Health.OK

    def refuse(self) -> None:
        """Nothing listens from now on."""
        self.state = Health.NOT_LISTENING

    async def health(self, endpoint: Endpoint) -> Health:
        self.health_calls += 1
        return self.state

    async def models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        if self.models_error is not None:
            raise self.models_error
        if self.state is not Health.OK:
            raise EngineUnreachable("Nothing answers.", "Is it ready?")
        return self.served

    async def version(self, endpoint: Endpoint) -> str:
        return self.version_text

    async def ask(self, endpoint: Endpoint, path: str, body: bytes) -> AsyncGenerator[str, None]:
        self.posts.append((path, json.loads(body)))
        yield json.dumps(self.reply)

    async def chat(self, endpoint: Endpoint, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        self.requests.append((endpoint, request))
        script = self.scripts.popleft() if self.scripts else self.answer
        self.open_streams += 1
        try:
            for part in script:
                if isinstance(part, BaseException):
                    raise part
                if isinstance(part, int | float):
                    await self.clock.sleep(part)
                else:
                    yield part
        finally:
            self.open_streams -= 1

    async def close(self) -> None:
        return None


class MemoryFiles:
    """A UserFiles in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    async def read(self, path: str, most: int) -> bytes:
        if path not in self.files:
            raise UsageError(f"{path} cannot be read.", "Check its name.")
        return self.files[path]

    async def write(self, path: str, text: str, *, replace: bool = False) -> str:
        self.files[path] = text.encode()
        return path

    async def close(self) -> None:
        return
