"""The simulated server: it listens once its container's log says so, and answers at a real engine's pace."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from spark_tui.domain.chat.message import (
    ChatEvent,
    ChatRequest,
    ContentDelta,
    Finished,
    Logprobs,
    ReasoningDelta,
    Role,
    TokenLogprobs,
    Usage,
)
from spark_tui.domain.engine.state import Endpoint, Health, ServedModel
from spark_tui.domain.errors import ApiKeyRejected, EngineUnreachable, ModelNotServed, ReplyCutOff
from spark_tui.services.demo.world import DECODE_RATE, VERSION, Counters, DemoContainer, DemoWorld, Run
from spark_tui.services.ports import Clock

_PIECE: Final = re.compile(r"\s?[^\W\d_]{1,6}|\s?\d{1,3}|\s+|.", re.DOTALL)
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class CannedAnswer:
    """An answer and the reasoning before it. `about` are words of a question that it fits."""

    about: frozenset[str]
    reasoning: str
    content: str


def canned_answer(prompt: str) -> CannedAnswer:
    """The answer that fits the question's words best; without any such word, one chosen by the prompt alone."""
    words = frozenset(_WORD.findall(prompt.lower()))
    best = max(_ANSWERS, key=lambda answer: len(answer.about & words))
    return best if best.about & words else _ANSWERS[zlib.crc32(prompt.encode("utf-8", "replace")) % len(_ANSWERS)]


def tokens_of(text: str) -> list[str]:
    """The text in pieces of about a token each; joined they are the text."""
    return _PIECE.findall(text)


_ANSWERS: Final = (
    CannedAnswer(
        frozenset(("memory", "pool", "unified", "ram", "oom", "gib", "spark")),
        "The question is about memory on a machine where CPU and GPU share it. I should say what that means for "
        "serving a model, name the three users of the pool, and end with something to do. I am a demo, so I had "
        "better say that first.",
        "*This is a demo: the answer is canned, no model is running.*\n\n"
        "On a DGX Spark the CPU and the GPU draw from **one pool**. Three things compete for it:\n\n"
        "| who | what it holds | reclaimable? |\n"
        "|---|---|---|\n"
        "| the engine | weights, KV cache, CUDA graphs | by stopping it |\n"
        "| applications | everything else that runs | by closing them |\n"
        "| page cache | files read lately, such as a checkpoint | at once |\n\n"
        "So a checkpoint that was just downloaded can make the pool look full although nothing is lost. "
        "The strip at the top of this screen keeps the three apart:\n\n"
        "1. Look at **available**, not at free.\n"
        "2. Leave some of the pool to the system: a utilization of 0.80 to 0.87 is kinder than the default.\n"
        "3. Drop the cache before a large model is loaded, rather than after it has failed.\n",
    ),
    CannedAnswer(
        frozenset(("code", "python", "function", "write", "script", "program", "curl", "api", "openai")),
        "They want code. A short client that streams is useful and small enough to read: an OpenAI-compatible server, "
        "the address of the engine, one loop. I must say that this comes from the demo.",
        "*This is a demo: the answer is canned, no model is running.*\n\n"
        "The engine speaks the OpenAI API, so any client of it will do:\n\n"
        "```python\n"
        "from openai import OpenAI\n\n"
        'client = OpenAI(base_url="http://127.0.0.1:8001/v1", api_key="unused")\n'
        "stream = client.chat.completions.create(\n"
        '    model="qwen3.6-35b",\n'
        '    messages=[{"role": "user", "content": "Hello"}],\n'
        "    stream=True,\n"
        ")\n"
        "for chunk in stream:\n"
        '    print(chunk.choices[0].delta.content or "", end="", flush=True)\n'
        "```\n\n"
        "The port is bound to this machine only. To reach it from your laptop, forward it over SSH: "
        "`ssh -L 8001:127.0.0.1:8001 spark`.\n",
    ),
    CannedAnswer(
        frozenset(("fast", "faster", "slow", "speed", "tokens", "tok", "decode", "prefill", "latency", "throughput")),
        "Speed. Decode on this machine is bound by memory bandwidth, so bytes read per token decide; prefill is bound "
        "by arithmetic. Mention active parameters, quantization and speculation, briefly. Say that I am a demo.",
        "*This is a demo: the answer is canned, no model is running.*\n\n"
        "Two speeds matter, and they have different causes:\n\n"
        "- **Prefill** reads your prompt. It is bound by arithmetic, and the prefix cache skips what was read before.\n"
        "- **Decode** writes the answer. Each token reads all *active* weights once, so memory bandwidth sets the "
        "ceiling: 273 GB/s by specification, rather less in practice.\n\n"
        "That is why a mixture of experts with 3B active parameters writes several times faster than a dense 27B "
        "model. What helps decode, in this order:\n\n"
        "1. fewer active parameters,\n"
        "2. fewer bits per weight, as long as the kernel is a native one,\n"
        "3. a drafter: several tokens are proposed at once and checked in one pass.\n",
    ),
    CannedAnswer(
        frozenset(("hello", "hi", "hey", "who", "what", "are", "you", "help", "test", "ping")),
        "A greeting, or a test. Answer briefly, say honestly what this is, and point to what can be tried.",
        "Hello! *This is a demo: no model is running, and this answer is canned.*\n\n"
        "It streams at the pace of a real one, so that you can see how the chat behaves:\n\n"
        "- `esc` stops an answer, and what has arrived stays;\n"
        "- the line below each answer shows the time to its first token and its tokens per second;\n"
        "- reasoning, when a model shows some, is folded above the answer.\n\n"
        "Launch a preset on the **Presets** screen and watch its start: that log was recorded on a real Spark.\n",
    ),
)


_BANDS: Final = ((0.72, 0.93, 0.999), (0.88, 0.5, 0.9), (0.97, 0.12, 0.5), (1.0, 0.02, 0.1))
"""Of all tokens up to this share, the least and the greatest probability: mostly sure, now and then not at all."""
_SPLIT: Final = 0.7
"""Share of what is left that the next likeliest token has."""


def logprobs_of(tokens: Sequence[str], number: int, likeliest: int) -> Logprobs:
    """Of token `number` of an answer's tokens, with the `likeliest` alternatives."""
    token = tokens[number]
    ranked = [(token, _probability(token, number))]
    left = 1.0 - ranked[0][1]
    for other in _others(tokens, number)[: max(0, likeliest)]:
        ranked.append((other, left * _SPLIT))
        left *= 1.0 - _SPLIT
    ordered = sorted(ranked, key=lambda each: -each[1])[: max(0, likeliest)]
    return Logprobs((TokenLogprobs(token, math.log(ranked[0][1]), tuple((text, math.log(p)) for text, p in ordered)),))


def _probability(token: str, number: int) -> float:
    drawn = zlib.crc32(f"{number}:{token}".encode("utf-8", "replace")) / 2**32
    before = 0.0
    for upto, least, most in _BANDS:
        if drawn < upto:
            return least + (most - least) * (drawn - before) / (upto - before)
        before = upto
    return _BANDS[-1][2]


def _others(tokens: Sequence[str], number: int) -> list[str]:
    """What else could stand there: the answer's other tokens of the same shape, from this place on."""
    shape = _shape(tokens[number])
    around = (*tokens[number + 1 :], *tokens[:number])
    return [each for each in dict.fromkeys(around) if _shape(each) == shape and each != tokens[number]]


def _shape(token: str) -> tuple[bool, bool, bool]:
    return token[:1].isspace(), token.strip().isalpha(), token.strip().isdecimal()


TOKENS_PER_STEP: Final = 2.9


class ChatCounters:
    """Feed it every event of an answer; `end` when it is over, however it ended."""

    def __init__(self, counters: Counters, clock: Clock) -> None:
        self._tally = counters
        self._clock = clock
        self._began = self._last = clock.monotonic()
        self._first = True
        self._reason = "abort"  # the client went away, unless the answer says otherwise
        counters.running += 1

    def event(self, event: ChatEvent) -> None:
        """A token, the end, or the counts."""
        if isinstance(event, ContentDelta | ReasoningDelta) and event.text:
            self._token()
        elif isinstance(event, Finished):
            self._reason = event.reason or "stop"
        elif isinstance(event, Usage):
            self._tally.prompt(event.prompt_tokens, event.cached_tokens or 0)

    def _token(self) -> None:
        now = self._clock.monotonic()
        if self._first:
            self._first = False
            self._tally.ttft.observe(now - self._began)
            self._tally.generated += 1
        else:
            self._tally.step(1.0, 1 / TOKENS_PER_STEP, (now - self._last) * TOKENS_PER_STEP)
        self._last = now

    def end(self) -> None:
        """The slot is free."""
        self._tally.running -= 1
        self._tally.request(self._reason, self._clock.monotonic() - self._began)


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
        counted = ChatCounters(run.counters, world.clock)
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
                yield logprobs_of(tokens, number, likeliest)
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
