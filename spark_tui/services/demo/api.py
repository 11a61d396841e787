"""The simulated server: it listens once its container's log says so, and answers at a real engine's pace. Under the
load of a benchmark it gives a real one's figures in a twentieth of the time."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from spark_tui.domain.bench.load import Load, LoadEvent, LoadResult, Tick
from spark_tui.domain.bench.record import RequestRecord
from spark_tui.domain.chat.message import (
    AnswerFinished,
    ChatEvent,
    ChatRequest,
    ContentDelta,
    ReasoningDelta,
    Role,
    Usage,
)
from spark_tui.domain.engine.state import Endpoint, Health, ServedModel
from spark_tui.domain.errors import ApiKeyRejected, EngineUnreachable, ModelNotServed, RefusedError, ReplyCutOff
from spark_tui.services.demo.engines import EngineProfile
from spark_tui.services.demo.recording import CannedAnswer, answers
from spark_tui.services.demo.world import REPLAY_SPEED, VERSION, DemoContainer, DemoWorld, Run, noise

_PIECE: Final = re.compile(r"\s?[^\W\d_]{1,6}|\s?\d{1,3}|\s+|.", re.DOTALL)
_WORD: Final = re.compile(r"\w+")
TOKENS_PER_STEP: Final = 2.9
FIRST_TOKEN_SECONDS: Final = 0.31
COLD_SECONDS: Final = 2.4
"""The first request of an engine compiles kernels: 25 to 60 s on a real Spark, shortened like its start."""
_CHARACTERS_PER_TOKEN: Final = 4


def canned_answer(prompt: str) -> CannedAnswer:
    """The answer that fits the question's words best; without any such word, one chosen by the prompt alone."""
    words, known = frozenset(_WORD.findall(prompt.lower())), answers()
    best = max(known, key=lambda answer: len(answer.about & words))
    return best if best.about & words else known[zlib.crc32(prompt.encode("utf-8", "replace")) % len(known)]


def tokens_of(text: str) -> list[str]:
    """The text in pieces of about a token each; joined they are the text."""
    return _PIECE.findall(text)


class DemoApi:
    """The EngineApi port."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world
        self._warm: list[Run] = [run for run in world.runs if run.traffic]

    async def health(self, endpoint: Endpoint) -> Health:
        try:
            self._world.serving(endpoint.base_url)
        except EngineUnreachable:
            return Health.NOT_LISTENING
        return Health.OK

    async def models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        container, _ = self._open(endpoint)
        return (ServedModel(container.served_name, container.model, container.max_model_len),)

    async def version(self, endpoint: Endpoint) -> str:
        self._open(endpoint)
        return VERSION

    async def chat(self, endpoint: Endpoint, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """Streams a canned answer and counts it; closing the iterator frees the slot."""
        container, run = self._open(endpoint)
        if request.model != container.served_name:
            raise ModelNotServed(
                f"The engine does not serve {request.model}.", f"It serves {container.served_name}: choose that."
            )
        world, counters = self._world, run.counters
        began, last = world.clock.now(), world.clock.monotonic()
        prompt_tokens = sum(len(message.content) // _CHARACTERS_PER_TOKEN + 4 for message in request.messages) + 8
        world.chats += 1
        counters.running += 1
        sent, reason = 0, "abort"  # the client went away, unless the answer says otherwise
        try:
            async for event in self._answer(container, run, request, prompt_tokens):
                if isinstance(event, ContentDelta | ReasoningDelta) and event.text:
                    now = world.clock.monotonic()
                    if sent:
                        tokens = TOKENS_PER_STEP if run.profile.drafts else 1.0
                        counters.step(1.0, 1 / tokens, (now - last) * tokens)
                    else:
                        counters.ttft.observe(now - last)
                        counters.generated += 1
                    sent, last = sent + 1, now
                elif isinstance(event, AnswerFinished):
                    reason = event.reason or "stop"
                elif isinstance(event, Usage):
                    counters.prompt(event.prompt_tokens, event.cached_tokens or 0)
                yield event
        finally:
            now = world.clock.now()
            counters.running -= 1
            counters.request(reason, now - began)
            world.chats -= 1
            if container.run is run:
                container.log.request_done(now, prompt_tokens, sent, now - began)
                world.wake()

    def ask(self, endpoint: Endpoint, path: str, body: bytes) -> AsyncGenerator[str, None]:
        """Canned answers prove nothing: raises RefusedError."""
        raise RefusedError("A simulated engine cannot be proved.", "Start without --demo.")

    async def close(self) -> None:
        pass

    async def _answer(
        self, container: DemoContainer, run: Run, request: ChatRequest, prompt_tokens: int
    ) -> AsyncGenerator[ChatEvent, None]:
        """The answer to the last thing that the person said, token by token."""
        clock, parameters = self._world.clock, request.parameters
        answer = canned_answer(next((m.content for m in reversed(request.messages) if m.role is Role.USER), ""))
        thinks = parameters.thinking is not False and parameters.reasoning_effort != "none"
        reasoning = tokens_of(answer.reasoning) if thinks else []
        tokens = [*reasoning, *tokens_of(answer.content)]
        count = len(tokens) if parameters.max_tokens is None else min(len(tokens), max(0, parameters.max_tokens))
        begin = clock.monotonic() + FIRST_TOKEN_SECONDS + prompt_tokens / run.profile.prefill_rate
        if run not in self._warm:
            self._warm.append(run)
            begin += COLD_SECONDS
        yield ContentDelta("")  # the opening delta carries a role and no text
        for number, token in enumerate(tokens[:count]):
            await clock.sleep(max(0.0, begin + number / run.profile.rate - clock.monotonic()))
            if container.run is not run:
                raise ReplyCutOff(
                    f"{container.name} has ended while it answered.",
                    "What had arrived is kept: start it and ask again.",
                )
            yield ReasoningDelta(token) if number < len(reasoning) else ContentDelta(token)
        yield AnswerFinished("stop" if count == len(tokens) else "length")
        yield Usage(prompt_tokens, count, min(count, len(reasoning)), prompt_tokens // 16 * 16 // 2)

    def _open(self, endpoint: Endpoint) -> tuple[DemoContainer, Run]:
        found = self._world.serving(endpoint.base_url)
        if found[0].needs_key and not endpoint.api_key:
            raise ApiKeyRejected("The engine wants an API key.", "Launch it from here, so that its key is known.")
        return found


# --- load -------------------------------------------------------------------------------------------------

_FIRST_SECONDS: Final = 0.12
_SLOWDOWN: Final = 0.11
"""How much longer a step takes with each further stream: the weights are read once for all, the KV cache for each."""
_TICK_SECONDS: Final = 0.25
_TOKENS: Final = 4096


class DemoLoad:
    """The LoadDriver port. The times in its records are those of a real engine; what passes meanwhile is less."""

    simulated = True

    def __init__(self, world: DemoWorld) -> None:
        self._world = world
        self._loads = 0

    async def drive(self, endpoint: Endpoint, load: Load, stop: asyncio.Event) -> AsyncGenerator[LoadEvent, None]:
        """Records are made at once and handed out when their time has come."""
        container, _ = self._world.serving(endpoint.base_url)
        clock = self._world.clock
        self._loads += 1
        begun = clock.monotonic()
        records = _records(load, begun, (self._world.seed, self._loads), container.profile)
        end = max((record.ended for record in records), default=begun)
        self._world.chats += load.streams
        try:
            while not stop.is_set() and (clock.monotonic() - begun) * REPLAY_SPEED < end - begun:
                await clock.sleep(_TICK_SECONDS)
                self._world.serving(endpoint.base_url)
                yield _tick(records, begun + (clock.monotonic() - begun) * REPLAY_SPEED)
        finally:
            self._world.chats -= load.streams
        until = begun + (clock.monotonic() - begun) * REPLAY_SPEED
        yield LoadResult(tuple(record for record in records if not stop.is_set() or record.ended <= until))

    async def tokenize(self, endpoint: Endpoint, model: str, text: str) -> tuple[tuple[int, ...], int | None]:
        """A token for each word."""
        container, _ = self._world.serving(endpoint.base_url)
        return tuple(int(noise("token", word) * _TOKENS) for word in text.split()), container.max_model_len

    async def detokenize(self, endpoint: Endpoint, model: str, tokens: Sequence[int]) -> str:
        """A word for each token."""
        self._world.serving(endpoint.base_url)
        return " ".join(f"t{token}" for token in tokens)

    async def close(self) -> None:
        """Nothing is kept open."""


def _records(load: Load, begun: float, seed: tuple[int, int], profile: EngineProfile) -> list[RequestRecord]:
    """A closed loop by arithmetic: each stream sends its next request when it is free, and the engine answers as many
    at once as its settings allow."""
    together = min(load.streams, profile.streams)
    free, slots = [begun] * load.streams, [begun] * together
    records = []
    for order, request in enumerate(load.requests):
        stream, unique = min(range(load.streams), key=lambda index: free[index]), (*seed, request.number)
        slot = min(range(together), key=lambda index: slots[index])
        waits = order % together if order < together else 0  # all begin at once: prefill goes one by one
        read = request.input_tokens / profile.prefill_rate
        prefill = (1 + 0.6 * waits) * read * (0.97 + 0.06 * noise("first", *unique))
        cheap = 2 if profile.kv_dtype.startswith("fp8") else 1
        depth = 1 + request.input_tokens / (200_000 * cheap)  # a longer context is read with each token
        step = (1 + _SLOWDOWN * (together - 1)) * depth / profile.rate * (0.985 + 0.03 * noise("step", *unique))
        chunks = [max(free[stream], slots[slot]) + _FIRST_SECONDS + prefill]
        for number in range(1, request.output_tokens):
            chunks.append(chunks[-1] + step * (0.94 + 0.12 * noise("token", number, *unique)))
        records.append(
            RequestRecord(
                number=request.number,
                stream=stream,
                sent=free[stream],
                ended=chunks[-1] + 0.001,
                asked_input=request.input_tokens,
                asked_output=request.output_tokens,
                chunks=tuple(chunks),
                prompt_tokens=request.input_tokens,
                completion_tokens=request.output_tokens,
                finish_reason="length",
                status=200,
            )
        )
        free[stream] = slots[slot] = chunks[-1] + 0.001
    return records


def _tick(records: Sequence[RequestRecord], now: float) -> Tick:
    done = sum(record.ended <= now for record in records)
    begun = sum(record.sent <= now for record in records)
    return Tick(done, begun - done, sum(at <= now for record in records for at in record.chunks))
