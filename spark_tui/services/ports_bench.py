"""What a benchmark needs of the outside: a generator of load, and a place for results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from spark_tui.domain.bench.record import RequestRecord
from spark_tui.domain.bench.result import Result
from spark_tui.domain.engine.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Shot:
    """One request to send: the prompt as token ids or as text, its length, and how many tokens to ask for."""

    number: int
    prompt: tuple[int, ...] | str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Load:
    """A closed loop: `streams` streams take the next of `shots` as soon as their last one has ended."""

    model: str
    shots: tuple[Shot, ...]
    streams: int
    temperature: float | None = None
    silence_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Tick:
    """How far a load is: requests ended and under way, and pieces received so far, of all streams together."""

    done: int
    running: int
    pieces: int


@dataclass(frozen=True, slots=True)
class Volley:
    """What a load gave: its records in the order of their numbers, and `lateness`, by how many seconds the clock came
    late at a steady pulse beside it (empty where time is simulated)."""

    records: tuple[RequestRecord, ...]
    lateness: tuple[float, ...] = ()


Driven: TypeAlias = Tick | Volley


class LoadDriver(Protocol):
    """Sends load and takes the time. Measured and simulated ones are the same to the core."""

    simulated: bool

    def drive(self, endpoint: Endpoint, load: Load, stop: asyncio.Event) -> AsyncGenerator[Driven, None]:
        """Ticks while it runs, then the Volley, once, last. A failing request is a record and no exception.

        When `stop` is set no further request is sent, those under way are cut off and recorded as cancelled, and the
        records follow as at any other end. Raises SparkError when there is no way to send anything at all.
        """

    async def tokenize(self, endpoint: Endpoint, model: str, text: str) -> tuple[tuple[int, ...], int | None]:
        """The token ids of a text, without special ones, and the engine's context length where it says it. Raises the
        API part of the error tree, BadRequest where the server cannot tokenize."""

    async def detokenize(self, endpoint: Endpoint, model: str, tokens: Sequence[int]) -> str:
        """The text of token ids. Raises like `tokenize`."""

    async def close(self) -> None:
        """Ends the helper process and all connections."""


class ResultStore(Protocol):
    """Benchmarks and verdicts, kept across runs. Written by one, read by many."""

    def add(self, result: Result) -> None:
        """Keeps it. Of too many the oldest go. Raises SparkError when it cannot be written."""

    def remove(self, ids: Collection[str]) -> int:
        """Deletes the results with these ids, and returns how many there were. Raises SparkError when it cannot."""

    def all(self) -> tuple[Result, ...]:
        """All that are kept, oldest first. What cannot be read is left out, and `problems` tells. Raises SparkError."""

    def problems(self) -> tuple[str, ...]:
        """What the last `all` could not read, in words."""
