"""Load on a simulated server: under a benchmark it gives a real one's figures in a twentieth of the time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from spark_tui.base.engine.state import Endpoint
from spark_tui.observe.results.model.record import RequestRecord
from spark_tui.simulator.engines import EngineProfile
from spark_tui.simulator.world import REPLAY_SPEED, SLOWDOWN, DemoWorld, noise
from spark_tui.use.bench.model.load import Load, LoadEvent, LoadResult, Tick

_FIRST_SECONDS: Final = 0.12
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
        step = (1 + SLOWDOWN * (together - 1)) * depth / profile.rate * (0.985 + 0.03 * noise("step", *unique))
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
