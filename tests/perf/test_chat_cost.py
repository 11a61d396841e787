"""What a chat costs: the stream, the notes on disk, the transcript, and what a long conversation adds to each."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

from textual.app import App, ComposeResult

from spark_tui.base.engine.answer import SseDecoder, StreamReader
from spark_tui.base.engine.message import (
    Answer,
    AnswerBuilder,
    ChatEvent,
    ChatRequest,
    ContentDelta,
    ReasoningDelta,
    Usage,
)
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.executors import SystemClock
from spark_tui.tui.format import UNICODE
from spark_tui.use.chat.adapter import FileConversations
from spark_tui.use.chat.model.conversation import AnswerOutcome, ChatThread, Exchange
from spark_tui.use.chat.screen.transcript import Transcript
from spark_tui.use.chat.screen.turn import TurnLines, turns
from spark_tui.use.chat.use.chat import ChatTarget, Conversation, Journal
from tests.fakes_api import FakeEngineApi

TARGET = ChatTarget("e", Endpoint("http://127.0.0.1:1"), "m", 262_144)
TOKENS = 10_000
FRAMES = 40
WORDS = ("The ", "model ", "writes ", "**words** ", "and\n\n", "paragraphs ")


def wire(tokens: int) -> bytes:
    """A stream as vLLM sends it, usage on every chunk."""
    chunks = []
    for number in range(tokens):
        delta = {"content": WORDS[number % len(WORDS)]}
        usage = {"prompt_tokens": 100, "completion_tokens": number + 1, "total_tokens": 101 + number}
        chunk = {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": usage}
        chunks.append(f"data: {json.dumps(chunk)}\n\n")
    chunks.append('data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')
    return "".join(chunks).encode()


class Wire(FakeEngineApi):
    """Decodes recorded bytes, packet by packet."""

    raw = b""

    async def chat(self, endpoint: Endpoint, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        decoder, reader = SseDecoder(), StreamReader()
        for at in range(0, len(self.raw), 700):
            for data in decoder.feed(self.raw[at : at + 700]):
                for event in reader.read(data):
                    yield event


async def test_a_stream_of_a_thousand_tokens_per_second_takes_less_than_half_a_core(tmp_path: Path) -> None:
    api = Wire(SystemClock())
    api.raw = wire(TOKENS)
    store = FileConversations(tmp_path)
    journal = Journal(store, SystemClock(), ChatThread(), exists=False)
    conversation = Conversation(api, SystemClock(), journal=journal)
    began = time.process_time()
    async with aclosing(conversation.ask("Go", TARGET)) as answers:
        async for _ in answers:
            pass
    seconds = time.process_time() - began
    await conversation.close()
    await store.close()
    print(f"\n{TOKENS:,} tokens read and written down: {seconds:.2f} s, {seconds / TOKENS * 1e6:.0f} us each")
    assert seconds / TOKENS * 1000 < 0.3, "what is left of the half core is for the screen"


def exchange(number: int, tokens: int, *, live: bool = False) -> Exchange:
    text = "".join(WORDS[n % len(WORDS)] for n in range(tokens))
    answer = Answer(0.0, text, "", (), "" if live else "stop", Usage(100, tokens), 0.4, 9.0)
    return Exchange(
        number, "q", "e", "m", 1.0, answer, AnswerOutcome.LIVE if live else AnswerOutcome.COMPLETE, limit=262_144
    )


class Said(App[None]):
    """A transcript, and nothing else."""

    def compose(self) -> ComposeResult:
        yield Transcript(UNICODE)


async def _frame_seconds(before: tuple[Exchange, ...], live: Callable[[int], Exchange]) -> float:
    """The usual time of one frame of an answer that grows below these exchanges, without the painting."""
    app, times = Said(), []
    async with app.run_test(size=(120, 36)) as pilot:
        transcript = app.query_one(Transcript)
        transcript.show((*before, live(0)))
        await pilot.pause()
        for number in range(1, FRAMES):
            exchanges = (*before, live(number))
            began = time.process_time()
            transcript.show(exchanges)
            times.append(time.process_time() - began)
            await pilot.pause()
    return sorted(times)[len(times) // 2]


def _growing(carried: str = "", *, reasoning: str = "") -> Callable[[int], Exchange]:
    """An answer that gets six words with each frame; `carried` and `reasoning` had come before."""
    builder = AnswerBuilder(0.0, content=carried, reasoning=reasoning)

    def at(number: int) -> Exchange:
        text = "".join(WORDS[(number + n) % len(WORDS)] for n in range(6))
        builder.add(ReasoningDelta(text) if reasoning else ContentDelta(text), 1.0)
        return Exchange(10_000, "q", "e", "m", 1.0, builder.snapshot())

    return at


async def test_a_frame_below_a_hundred_thousand_tokens_costs_what_it_costs_below_none() -> None:
    past = tuple(exchange(n, 1000) for n in range(1, 101))
    many = tuple(exchange(n, 10) for n in range(1, 10_001))
    text = exchange(1, 100_000).answer.content
    empty = await _frame_seconds((), _growing())
    full = {
        "100 answers of 1,000 tokens": await _frame_seconds(past, _growing()),
        "10,000 answers of 10 tokens": await _frame_seconds(many, _growing()),
        "100,000 tokens of the same answer": await _frame_seconds((), _growing(text)),
        "100,000 tokens of reasoning": await _frame_seconds((), _growing(reasoning=text)),
    }
    print(f"\na frame: {empty * 1e3:.2f} ms below nothing", end="")
    for what, seconds in full.items():
        print(f"; {seconds * 1e3:.2f} ms below {what}", end="")
    for what, seconds in full.items():
        assert seconds < 1.5 * empty + 0.0005, what


def test_ten_thousand_tokens_of_transcript_take_less_than_five_megabytes() -> None:
    layout = TurnLines(100, UNICODE)
    for turn in turns((exchange(9999, 10),)):  # what is imported once
        layout.lay(turn, open_=False)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = tuple(exchange(n, 1000) for n in range(1, 11))
    laid = [layout.lay(turn, open_=False) for turn in turns(kept)]
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    print(f"\n{TOKENS:,} tokens of transcript: {used / 1e6:.2f} MB in {sum(len(each.lines) for each in laid):,} lines")
    assert used < 5e6
