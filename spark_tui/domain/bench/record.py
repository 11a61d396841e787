"""One request as it went over the wire: when it was sent, when each piece came, and how it ended.

All times are seconds on one monotonic clock. They are taken when bytes arrive, before anything is parsed.

    sent ---- first ---- chunk ---- chunk ---- ... ---- last ---- ended
    |- TTFT --|- ITL ----|- ITL ----|                    |
    |- E2E ----------------------------------------------|

The definitions are those of `vllm bench serve` (vLLM 0.32, benchmarks/serve.py and lib/endpoint_request_func.py):
TTFT from sending to the first chunk with a choice in it; ITL between two such chunks, which hold several tokens where
the engine speculates; E2E to the last such chunk, not to the usage chunk or the end of the connection after it; TPOT
(E2E - TTFT) / (tokens - 1) with the number of tokens from the server's usage, never from counting chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise


class Outcome(StrEnum):
    """How a request ended. Only the first kind enters latency figures; all others are reported beside them."""

    COMPLETE = "complete"
    SHORT = "short"
    TRUNCATED = "truncated"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request. `stream` counts the level's streams from 0; `chunks` are the times of the pieces that held a
    choice. Token counts are the server's own, None where it gave none. `error` says what went wrong, in one line."""

    number: int
    stream: int
    sent: float
    ended: float
    asked_input: int
    asked_output: int
    chunks: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str = ""
    status: int = 0
    error: str = ""
    cancelled: bool = False

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        if self.cancelled:
            return Outcome.CANCELLED
        if self.error and not self.chunks:
            return Outcome.FAILED
        if self.error:
            return Outcome.TRUNCATED
        if not self.chunks or self.completion_tokens is None:
            return Outcome.FAILED
        return Outcome.COMPLETE if self.completion_tokens >= self.asked_output else Outcome.SHORT

    @property
    def ttft(self) -> float | None:
        """Seconds to the first token."""
        return self.chunks[0] - self.sent if self.chunks else None

    @property
    def e2e(self) -> float | None:
        """Seconds to the last token."""
        return self.chunks[-1] - self.sent if self.chunks else None

    @property
    def itls(self) -> tuple[float, ...]:
        """Seconds between chunks."""
        return tuple(after - before for before, after in pairwise(self.chunks))

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first one; None for fewer than two tokens."""
        tokens = self.completion_tokens
        if tokens is None or tokens < 2 or not self.chunks:
            return None
        return (self.chunks[-1] - self.chunks[0]) / (tokens - 1)

    @property
    def decode_rate(self) -> float | None:
        """Tokens per second of this stream after its first token: 1 / TPOT."""
        tpot = self.tpot
        return 1 / tpot if tpot else None

    @property
    def stream_rate(self) -> float | None:
        """Tokens per second of this stream with its waiting and prefill: tokens / E2E."""
        e2e = self.e2e
        return self.completion_tokens / e2e if e2e and self.completion_tokens is not None else None

    @property
    def prefill_rate(self) -> float | None:
        """Prompt tokens per second up to the first token, those found in the prefix cache left out. It contains the
        queue and one decode step, so it is a little below the engine's own prefill rate, and more so for short
        prompts."""
        ttft = self.ttft
        if not ttft or self.prompt_tokens is None:
            return None
        computed = self.prompt_tokens - (self.cached_tokens or 0)
        return computed / ttft if computed > 0 else None

    @property
    def wrong_length(self) -> bool:
        """The server counted another number of prompt tokens than was meant."""
        return self.prompt_tokens is not None and self.prompt_tokens != self.asked_input
