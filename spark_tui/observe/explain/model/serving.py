"""What a serving engine writes about itself every ten seconds: throughput, queue, KV cache, drafting.

vLLM 0.14 to 0.33: `Engine 000: Avg prompt throughput: ...` and `SpecDecoding metrics: ...`. Parts are optional and
their order has changed, so each figure is looked for by its name.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean_line, lazy_pattern, truncate
from spark_tui.observe.explain.model.line import NUMBER, number

KEPT: Final = 360
"""An hour of lines."""
MAX_LINE: Final = 4_000
MAX_TEXT: Final = 400


class ServingSample(Struct, frozen=True):
    """One interval of a serving engine, from its log or from two readings of `/metrics`. None: not reported.

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


_THROUGHPUT: Final = {
    "prompt_rate": (float, lazy_pattern(rf"Avg prompt throughput: {NUMBER} tokens/s")),
    "generation_rate": (float, lazy_pattern(rf"Avg generation throughput: {NUMBER} tokens/s")),
    "kv_percent": (float, lazy_pattern(rf"KV cache usage: {NUMBER}%")),
    "prefix_hit_percent": (float, lazy_pattern(rf"(?<!External )[Pp]refix cache hit rate: {NUMBER}%")),
    "running": (int, lazy_pattern(r"Running: (\d{1,9}) reqs")),
    "waiting": (int, lazy_pattern(r"(?:Waiting|Pending): (\d{1,9}) reqs")),
    "preemptions": (int, lazy_pattern(r"Preemptions: (\d{1,9})")),
}
PREEMPTED: Final = "Sequence group "
"""How vLLM before 0.10 begins its line about a preempted request, one in fifty of them."""
RETRACTED: Final = ("KV cache pool is full", "Decode out of memory happened")
"""How SGLang begins its line about requests that it took back, now and up to 0.4."""
_DRAFTS: Final = {
    "accepted": (int, lazy_pattern(r"Accepted: (\d{1,12}) tokens")),
    "drafted": (int, lazy_pattern(r"Drafted: (\d{1,12}) tokens")),
}
_LLAMA_DRAFTS: Final = {
    "accepted": (int, lazy_pattern(r"\( *(\d{1,12}) accepted")),
    "drafted": (int, lazy_pattern(r"/ *(\d{1,12}) generated\)")),
}
"""llama.cpp's, of one request: `draft acceptance = 0.64 (  167 accepted /   259 generated)`."""
_DECODING: Final = {
    "generation_rate": (float, lazy_pattern(rf"gen throughput \(token/s\): {NUMBER}")),
    "kv_percent": (float, lazy_pattern(rf"token usage: {NUMBER}")),
    "running": (int, lazy_pattern(r"#running-req: (\d{1,9})")),
    "waiting": (int, lazy_pattern(r"#queue-req: (\d{1,9})")),
    "preemptions": (int, lazy_pattern(r"#retracted_reqs: (\d{1,9})")),
}
"""SGLang's `Decode batch` and `Retract requests`."""
_POSITIONS: Final = lazy_pattern(
    r"(?:Per-position acceptance rate: |acceptance rate per position = \()((?:[\d.]{1,8}, ){0,63}[\d.]{1,8})"
)


class ServingHistory:
    """The last hour of statistics. Messages are read when the samples are asked for, for most never are."""

    def __init__(self) -> None:
        self._unread: deque[tuple[float | None, int, str]] = deque(maxlen=KEPT)
        self._kept: deque[ServingSample] = deque(maxlen=KEPT)
        self._samples: tuple[ServingSample, ...] = ()

    def add(self, at: float | None, line: int, message: str) -> None:
        """One message of statistics, at seconds of any clock."""
        self._unread.append((at, line, message[:MAX_LINE]))

    @property
    def samples(self) -> tuple[ServingSample, ...]:
        """Oldest first; the same object until there is a new one."""
        if self._unread:
            self._kept.extend(sample_of(at, line, message) for at, line, message in self._unread)
            self._unread.clear()
            self._samples = tuple(self._kept)
        return self._samples


def sample_of(at: float | None, line: int, message: str) -> ServingSample:
    drafting = message.startswith("SpecDecoding metrics")
    llama = message.startswith("slot print_timing")
    sglang = message.startswith(("Decode batch", *RETRACTED))
    figures: dict[str, Any] = {
        name: kind(number(match[1]))
        for name, (kind, pattern) in (
            _LLAMA_DRAFTS if llama else _DRAFTS if drafting else _DECODING if sglang else _THROUGHPUT
        ).items()
        if (match := pattern.search(message))
    }
    if sglang and "kv_percent" in figures:
        figures["kv_percent"] = round(100 * figures["kv_percent"], 2)
    if message.startswith(PREEMPTED):
        figures = {"preemptions": 1}
    text = truncate(mask_secrets(clean_line(message)), MAX_TEXT)
    return ServingSample(
        at, **figures, positions=_positions(message) if drafting or llama else (), text=text, line=line
    )


def _positions(message: str) -> tuple[float, ...]:
    match = _POSITIONS.search(message)
    words = match[1].split(", ") if match else []
    return tuple(float(word) for word in words if re.fullmatch(r"\d+\.?\d*|\.\d+", word))


class DraftStats(Struct, frozen=True):
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


def drafting(samples: Iterable[ServingSample]) -> DraftStats | None:
    """Speculation over all samples; positions are those of the latest. None when there was none."""
    drafted = [sample for sample in samples if sample.drafted is not None]
    if not drafted:
        return None
    last = drafted[-1]
    return DraftStats(
        sum(sample.drafted or 0 for sample in drafted),
        sum(sample.accepted or 0 for sample in drafted),
        next((sample.positions for sample in reversed(drafted) if sample.positions), ()),
        last.text,
        last.line,
    )
