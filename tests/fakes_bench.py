"""A load that is scripted: how fast each number of streams is, what fails, and when it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from spark_tui.domain.bench.record import RequestRecord
from spark_tui.domain.engine.state import Endpoint
from spark_tui.domain.errors import SparkError
from spark_tui.services.ports import Clock, Load, LoadEvent, LoadResult, RequestSpec, Tick


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
