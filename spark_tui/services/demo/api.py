"""The simulated server: it listens once its container's log says so, and answers at a real engine's pace."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final
from urllib.parse import urlsplit

from spark_tui.domain.chat import (
    ChatEvent,
    ChatRequest,
    ContentDelta,
    Finished,
    ReasoningDelta,
    Role,
    Usage,
)
from spark_tui.domain.engine.endpoint import Endpoint, Health, ServedModel
from spark_tui.domain.errors import ApiKeyRejected, EngineUnreachable, ModelNotServed, ReplyCutOff
from spark_tui.services.demo.answers import canned_answer, tokens_of
from spark_tui.services.demo.chances import chances_of
from spark_tui.services.demo.chat_count import ChatCount
from spark_tui.services.demo.chronicle import DECODE_RATE
from spark_tui.services.demo.container import DemoContainer
from spark_tui.services.demo.run import Run
from spark_tui.services.demo.world import VERSION, DemoWorld

FIRST_TOKEN_SECONDS: Final = 0.31
COLD_SECONDS: Final = 2.4
"""The first request of an engine compiles kernels: 25 to 60 s on a real Spark, shortened like its start."""
_PREFILL_RATE: Final = 3000.0
_CHARACTERS_PER_TOKEN: Final = 4


class DemoApi:
    """The EngineApi port."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world
        self._warm: list[Run] = [run for run in world.runs if run.traffic]

    async def health(self, endpoint: Endpoint) -> Health:
        """The port is closed until the server is up."""
        return Health.OK if self._serving(endpoint) is not None else Health.NOT_LISTENING

    async def models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        """`/v1/models`."""
        container, _ = self._open(endpoint)
        return (ServedModel(container.served_name, container.model, container.max_model_len),)

    async def version(self, endpoint: Endpoint) -> str:
        """`/version`."""
        self._open(endpoint)
        return VERSION

    async def chat(self, endpoint: Endpoint, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """Streams a canned answer; closing the iterator frees the slot."""
        container, run = self._open(endpoint)
        if request.model != container.served_name:
            raise ModelNotServed(
                f"The engine does not serve {request.model}.", f"It serves {container.served_name}: choose that."
            )
        world = self._world
        began = world.clock.now()
        world.chats += 1
        prompt_tokens = _prompt_tokens(request)
        sent = 0
        counted = ChatCount(run.tally, world.clock)
        try:
            async for event in self._answer(container, run, request, prompt_tokens):
                sent += isinstance(event, ContentDelta | ReasoningDelta) and bool(event.text)
                counted.event(event)
                yield event
        finally:
            counted.end()
            world.chats -= 1
            if container.run is run:
                now = world.clock.now()
                container.log.request_done(now, prompt_tokens, sent, now - began)
                world.wake()

    async def close(self) -> None:
        """Nothing is kept open."""

    # --- one answer -----------------------------------------------------------------------------------

    async def _answer(
        self, container: DemoContainer, run: Run, request: ChatRequest, prompt_tokens: int
    ) -> AsyncGenerator[ChatEvent, None]:
        clock = self._world.clock
        pieces = _pieces(request)
        limit = request.parameters.max_tokens
        first = FIRST_TOKEN_SECONDS + prompt_tokens / _PREFILL_RATE
        if run not in self._warm:
            self._warm.append(run)
            first += COLD_SECONDS
        begin = clock.monotonic() + first
        yield ContentDelta("")  # the opening delta carries a role and no text
        cut = pieces if limit is None else pieces[: max(0, limit)]
        tokens, likeliest = [piece.text for piece in pieces], request.parameters.logprobs
        for number, piece in enumerate(cut):
            await clock.sleep(max(0.0, begin + number / DECODE_RATE - clock.monotonic()))
            if container.run is not run:
                raise ReplyCutOff(
                    f"{container.name} has ended while it answered.",
                    "What had arrived is kept: start it and ask again.",
                )
            yield piece
            if likeliest is not None:
                yield chances_of(tokens, number, likeliest)
        yield Finished("stop" if len(cut) == len(pieces) else "length")
        reasoned = sum(isinstance(piece, ReasoningDelta) for piece in cut)
        yield Usage(prompt_tokens, len(cut), reasoned, min(prompt_tokens, prompt_tokens // 16 * 16 // 2))

    # --- connections ----------------------------------------------------------------------------------

    def _serving(self, endpoint: Endpoint) -> tuple[DemoContainer, Run] | None:
        now = self._world.settle()
        port = urlsplit(endpoint.base_url).port
        container = None if port is None else self._world.on_port(port)
        run = None if container is None else container.run
        return (container, run) if container is not None and run is not None and run.serves(now) else None

    def _open(self, endpoint: Endpoint) -> tuple[DemoContainer, Run]:
        found = self._serving(endpoint)
        if found is None:
            raise EngineUnreachable(
                f"Nothing answers at {endpoint.base_url}.", "Wait until the engine is up, or start it."
            )
        if found[0].needs_key and not endpoint.api_key:
            raise ApiKeyRejected("The engine wants an API key.", "Launch it from here, so that its key is known.")
        return found


def _prompt_tokens(request: ChatRequest) -> int:
    return sum(len(message.content) // _CHARACTERS_PER_TOKEN + 4 for message in request.messages) + 8


def _pieces(request: ChatRequest) -> list[ContentDelta | ReasoningDelta]:
    """The whole answer to the last thing that the person said, token by token."""
    asked = next((m.content for m in reversed(request.messages) if m.role is Role.USER), "")
    answer = canned_answer(asked)
    thinks = request.parameters.thinking is not False and request.parameters.reasoning_effort != "none"
    reasoning = [ReasoningDelta(token) for token in tokens_of(answer.reasoning)] if thinks else []
    return [*reasoning, *(ContentDelta(token) for token in tokens_of(answer.content))]
