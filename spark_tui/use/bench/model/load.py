"""A load that is sent to a server, and what comes of it: as it is also written to the process that sends it."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from spark_tui.observe.results.model.record import RequestRecord


class RequestSpec(Struct, frozen=True):
    """One request to send: the prompt as token ids or as text, its length, and how many tokens to ask for."""

    number: int
    prompt: tuple[int, ...] | str
    input_tokens: int
    output_tokens: int


class Load(Struct, frozen=True):
    """A closed loop: `streams` streams take the next of `requests` as soon as their last one has ended."""

    model: str
    requests: tuple[RequestSpec, ...]
    streams: int
    temperature: float | None = None
    silence_seconds: float = 600.0


class LoadOrder(Struct, frozen=True):
    """What the process that sends loads is asked: a load at a server, or to cut short (None) what is under way."""

    load: Load | None
    base_url: str = ""
    authorization: str = ""


class Tick(Struct, frozen=True, tag=True):
    """How far a load is: requests ended and under way, and pieces received so far, of all streams together."""

    done: int
    running: int
    pieces: int


class LoadResult(Struct, frozen=True, tag=True):
    """What a load gave: its records in the order of their numbers, and `lateness`, by how many seconds the clock came
    late at a steady pulse beside it (empty where time is simulated)."""

    records: tuple[RequestRecord, ...]
    lateness: tuple[float, ...] = ()


LoadEvent: TypeAlias = Tick | LoadResult
