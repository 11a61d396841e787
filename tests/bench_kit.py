"""Benchmarks made by hand: requests, passes, runs; and a scripted load."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import SparkError
from spark_tui.base.ports import Clock
from spark_tui.observe.results.model.plan import BenchPlan, Conditions, Segment
from spark_tui.observe.results.model.record import RequestRecord
from spark_tui.observe.results.model.run import BenchRun, Pass, levels
from spark_tui.use.bench.model.load import Load, LoadEvent, LoadResult, RequestSpec, Tick

FIXTURES = Path(__file__).parent / "fixtures" / "bench"
SPARK = Conditions(
    engine="qwen", model="nvidia/Qwen3.6-35B-A3B-NVFP4", quantization="modelopt", runtime="vllm", version="0.26.0",
    platform="DGX Spark", is_spark=True,
)  # fmt: skip


def request(
    number: int = 0, *, sent: float = 0.0, ttft: float = 0.5, step: float = 0.1, tokens: int = 5, **changes: Any
) -> RequestRecord:
    """A complete one, unless changed."""
    chunks = tuple(sent + ttft + step * token for token in range(tokens))
    given: dict[str, Any] = {
        "number": number, "stream": 0, "sent": sent, "ended": chunks[-1] if chunks else sent + ttft, "asked_input": 10,
        "asked_output": tokens, "chunks": chunks, "prompt_tokens": 10, "completion_tokens": tokens, "status": 200,
    } | changes  # fmt: skip
    return RequestRecord(**given)


def a_pass(streams: int, seconds: float, tokens: int = 100, *, number: int = 1, depth: int = 0) -> Pass:
    """`tokens` by each of so many streams, all in `seconds`."""
    step = (seconds - 0.1) / (tokens - 1)
    records = tuple(
        request(
            index, ttft=0.1, step=step, tokens=tokens, stream=index, asked_input=depth or 10, prompt_tokens=depth or 10
        )
        for index in range(streams)
    )
    return Pass(Segment(number, streams, streams, depth or 10, tokens, depth=bool(depth)), records)


def a_run(id_: str = "one", *rates: tuple[int, tuple[float, ...]], **changes: Any) -> BenchRun:
    """A run whose level of so many streams gave these tokens per second, pass by pass."""
    passes = [
        a_pass(streams, streams * 100 / rate, number=number)
        for streams, told in rates or ((1, (40.0, 41.0, 40.5)),)
        for number, rate in enumerate(told, 1)
    ]
    plan = BenchPlan(input_tokens=10, output_tokens=100, concurrency=tuple(streams for streams, _ in rates) or (1,))
    given: dict[str, Any] = {
        "id": id_,
        "at": 1000.0,
        "plan": plan,
        "conditions": SPARK,
        "levels": levels(passes),
    } | changes
    return BenchRun(**given)


def saved(name: str) -> dict[str, Any]:
    """A result that `vllm bench serve` saved."""
    told: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return told


def records_of(told: dict[str, Any]) -> tuple[RequestRecord, ...]:
    """Its requests as ours."""
    records = []
    rows = zip(told["start_times"], told["ttfts"], told["itls"], told["input_lens"], told["output_lens"], strict=True)
    for number, (start, ttft, itls, asked, tokens) in enumerate(rows):
        chunks = [start + ttft]
        for itl in itls:
            chunks.append(chunks[-1] + itl)
        records.append(
            RequestRecord(number, 0, start, chunks[-1], asked, tokens, tuple(chunks), asked, tokens, status=200)
        )
    return tuple(records)


@dataclass
class FakeLoad:
    """A LoadDriver. One stream does 1 / `step` tokens a second, each further one makes a step longer by `slowdown`.

    `spoil` changes the records of a load before they are told; `broken` is raised instead of sending anything. Each
    load takes one second of the clock.
    """

    clock: Clock
    step: float = 0.02
    slowdown: float = 0.25
    simulated: bool = False
    broken: SparkError | None = None
    spoil: dict[int, dict[str, object]] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)
    closed: bool = False

    async def drive(self, endpoint: Endpoint, load: Load, stop: asyncio.Event) -> AsyncGenerator[LoadEvent, None]:
        if self.broken is not None:
            raise self.broken
        self.loads.append(load)
        begun = self.clock.monotonic()
        yield Tick(0, load.streams, 0)
        await self.clock.sleep(1.0)
        if stop.is_set():
            yield LoadResult(())
            return
        yield LoadResult(tuple(self._record(load, request, begun) for request in load.requests))

    def _record(self, load: Load, request: RequestSpec, begun: float) -> RequestRecord:
        step = self.step * (1 + self.slowdown * (load.streams - 1))
        round_ = request.number // load.streams
        sent = begun + round_ * (0.1 + step * request.output_tokens)
        chunks = tuple(sent + 0.1 + step * number for number in range(request.output_tokens))
        record = RequestRecord(
            request.number, request.number % load.streams, sent, chunks[-1], request.input_tokens,
            request.output_tokens, chunks, request.input_tokens, request.output_tokens, finish_reason="length",
            status=200,
        )  # fmt: skip
        return replace(record, **self.spoil.get(load.streams, {}))  # type: ignore[arg-type]

    async def tokenize(self, endpoint: Endpoint, model: str, text: str) -> tuple[tuple[int, ...], int | None]:
        return tuple(range(max(1000, len(text.split())))), None

    async def detokenize(self, endpoint: Endpoint, model: str, tokens: Sequence[int]) -> str:
        return " ".join(str(token) for token in tokens)

    async def close(self) -> None:
        self.closed = True
