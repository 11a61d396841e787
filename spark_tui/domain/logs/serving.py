"""What a serving engine writes about itself every ten seconds: throughput, queue, KV cache, drafting.

vLLM 0.14 to 0.33: `Engine 000: Avg prompt throughput: ...` and `SpecDecoding metrics: ...`. Parts are optional and
their order has changed, so each figure is looked for by its name.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from spark_tui.domain.logs.line import NUMBER, LineKind, LogClock, number, parse_line
from spark_tui.domain.secret import mask_secrets
from spark_tui.domain.text import clean_line, truncate

KEPT: Final = 360
"""An hour of lines."""
MAX_LINE: Final = 4_000
MAX_TEXT: Final = 400


@dataclass(frozen=True, slots=True)
class ServingSample:
    """One interval of a serving engine, from its log or from two readings of `/metrics`. None: not told.

    `at` is in seconds of any one clock; rates are tokens per second over the interval; `preemptions` and the token
    counts are the interval's own; shares are per cent. `line` counts from 0 as in `LogEvidence`.
    """

    at: float | None = None
    prompt_rate: float | None = None
    generation_rate: float | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions: int | None = None
    kv_percent: float | None = None
    prefix_hit_percent: float | None = None
    accepted: int | None = None
    drafted: int | None = None
    positions: tuple[float, ...] = ()
    """Share of drafts accepted at each position, 0 to 1."""
    text: str = ""
    line: int | None = None

    @property
    def busy(self) -> bool:
        """Requests ran, or tokens flowed."""
        return bool(self.running or self.prompt_rate or self.generation_rate)


_FIGURES: Final = {
    "prompt_rate": re.compile(rf"Avg prompt throughput: {NUMBER} tokens/s"),
    "generation_rate": re.compile(rf"Avg generation throughput: {NUMBER} tokens/s"),
    "kv_percent": re.compile(rf"KV cache usage: {NUMBER}%"),
    "prefix_hit_percent": re.compile(rf"(?<!External )[Pp]refix cache hit rate: {NUMBER}%"),
}
_COUNTS: Final = {
    "running": re.compile(r"Running: (\d{1,9}) reqs"),
    "waiting": re.compile(r"Waiting: (\d{1,9}) reqs"),
    "preemptions": re.compile(r"Preemptions: (\d{1,9})"),
}
_DRAFTS: Final = {
    "accepted": re.compile(r"Accepted: (\d{1,12}) tokens"),
    "drafted": re.compile(r"Drafted: (\d{1,12}) tokens"),
}
_POSITIONS: Final = re.compile(r"Per-position acceptance rate: ((?:[\d.]{1,8}, ){0,63}[\d.]{1,8})")


class ServingReader:
    """Feed it every line; `samples` are the last ones that told something.

    Lines are kept as they are and read when somebody asks, for most are never asked for. Memory is bounded; nothing
    raises.
    """

    def __init__(self) -> None:
        self._told: deque[tuple[int, str | float | None, str]] = deque(maxlen=KEPT)
        self._read: tuple[ServingSample, ...] | None = ()
        self._count = 0

    @property
    def samples(self) -> tuple[ServingSample, ...]:
        """Oldest first; the same object until there is a new one."""
        if self._read is None:
            clock = LogClock()
            found = (_sample(clock, line, stamp, text) for line, stamp, text in self._told)
            self._read = tuple(sample for sample in found if sample is not None)
        return self._read

    def feed_many(self, lines: Iterable[tuple[str, str]]) -> None:
        """Lines as `(stamp, text)`."""
        number = self._count - 1
        for number, (stamp, text) in enumerate(lines, self._count):
            if "throughput: " in text and "tokens/s" in text:
                self._told.append((number, stamp, text[:MAX_LINE]))
                self._read = None
            elif self._told and "version " in text and "█" in text:
                self._told.clear()  # the engine was started again
                self._read = ()
        self._count = number + 1

    def feed(self, stamp: str, text: str) -> None:
        """One line."""
        self.feed_many(((stamp, text),))


def _sample(clock: LogClock, line: int, stamp: str | float | None, text: str) -> ServingSample | None:
    record = parse_line(text)
    message = record.message
    at = clock.read(stamp, record.time)
    if record.kind is not LineKind.RECORD:
        return None
    sample = ServingSample(at=at, text=truncate(mask_secrets(clean_line(message)), MAX_TEXT), line=line)
    if message.startswith("SpecDecoding metrics"):
        counts = _counts(message, _DRAFTS)
        accepted, drafted = counts.get("accepted"), counts.get("drafted")
        return replace(sample, positions=_positions(message), accepted=accepted, drafted=drafted)
    return _interval(message, sample) if "Avg generation throughput" in message else None


def _interval(message: str, sample: ServingSample) -> ServingSample:
    figures = {name: number(match[1]) for name, pattern in _FIGURES.items() if (match := pattern.search(message))}
    counts = _counts(message, _COUNTS)
    return replace(
        sample,
        prompt_rate=figures.get("prompt_rate"),
        generation_rate=figures.get("generation_rate"),
        running=counts.get("running"),
        waiting=counts.get("waiting"),
        preemptions=counts.get("preemptions"),
        kv_percent=figures.get("kv_percent"),
        prefix_hit_percent=figures.get("prefix_hit_percent"),
    )


def _counts(message: str, patterns: dict[str, re.Pattern[str]]) -> dict[str, int]:
    return {name: int(match[1]) for name, pattern in patterns.items() if (match := pattern.search(message))}


def _positions(message: str) -> tuple[float, ...]:
    match = _POSITIONS.search(message)
    shares = (_share(word) for word in match[1].split(", ")) if match else ()
    return tuple(share for share in shares if share is not None)


def _share(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Drafting:
    """How speculation has paid: tokens drafted and accepted, and the share accepted at each position."""

    drafted: int
    accepted: int
    positions: tuple[float, ...] = ()
    text: str = ""
    line: int | None = None

    @property
    def rate(self) -> float | None:
        """0 to 1; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens that one step of the model yields, drafts and its own; None when the positions are not known."""
        return 1 + sum(self.positions) if self.positions else None


def drafting(samples: Iterable[ServingSample]) -> Drafting | None:
    """Speculation over all samples; positions are those of the latest. None when there was none."""
    told = [sample for sample in samples if sample.drafted is not None]
    if not told:
        return None
    last = told[-1]
    return Drafting(
        sum(sample.drafted or 0 for sample in told),
        sum(sample.accepted or 0 for sample in told),
        next((sample.positions for sample in reversed(told) if sample.positions), ()),
        last.text,
        last.line,
    )
