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

from collections.abc import Iterable
from enum import StrEnum
from itertools import pairwise
from typing import Any

from msgspec import Struct, field

from spark_tui.base.engine.api_errors import api_error, stream_error
from spark_tui.base.engine.stream import EventTooLong, SseDecoder
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json


class RequestOutcome(StrEnum):
    """How a request ended. Only the first kind enters latency figures; all others are reported beside them."""

    COMPLETE = "complete"
    SHORT = "short"
    TRUNCATED = "truncated"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RequestRecord(Struct, frozen=True):
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
    def outcome(self) -> RequestOutcome:
        if self.cancelled:
            return RequestOutcome.CANCELLED
        if self.error and not self.chunks:
            return RequestOutcome.FAILED
        if self.error:
            return RequestOutcome.TRUNCATED
        if not self.chunks or self.completion_tokens is None:
            return RequestOutcome.FAILED
        return RequestOutcome.COMPLETE if self.completion_tokens >= self.asked_output else RequestOutcome.SHORT

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


DONE = "[DONE]"
COMPLETIONS_PATH = "/v1/completions"
MAX_ERROR_CHARS = 300


class Reply(Struct):
    """What a stream held: the times of the pieces with a choice, the usage, and how it ended."""

    chunks: list[float] = field(default_factory=list)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str = ""
    done: bool = False
    error: str = ""


class WireExchange(Struct, frozen=True):
    """One request on the wire: `pieces` are (time, body bytes) as they came, `broken` why the connection failed."""

    number: int
    stream: int
    sent: float
    ended: float
    asked_input: int
    asked_output: int
    status: int = 0
    pieces: tuple[tuple[float, bytes], ...] = ()
    broken: str = ""
    cancelled: bool = False


def record_of(exchange: WireExchange) -> RequestRecord:
    """The record of an exchange. Never raises: what cannot be read is the record's error."""
    reply = Reply()
    if exchange.status == 200:
        read_stream(exchange.pieces, reply)
        if not reply.error and not exchange.broken and not exchange.cancelled:
            if not reply.done and not reply.finish_reason:
                reply.error = "the answer broke off"
            elif reply.completion_tokens is None:
                reply.error = "the server reported no usage: its tokens cannot be counted"
    elif exchange.status:
        body = b"".join(piece for _, piece in exchange.pieces).decode("utf-8", "replace")
        reply.error = api_error(exchange.status, body, path=COMPLETIONS_PATH).summary
    return RequestRecord(
        number=exchange.number,
        stream=exchange.stream,
        sent=exchange.sent,
        ended=exchange.ended,
        asked_input=exchange.asked_input,
        asked_output=exchange.asked_output,
        chunks=tuple(reply.chunks),
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cached_tokens=reply.cached_tokens,
        finish_reason=reply.finish_reason,
        status=exchange.status,
        error=truncate(clean_line(reply.error or exchange.broken), MAX_ERROR_CHARS),
        cancelled=exchange.cancelled,
    )


def read_stream(pieces: Iterable[tuple[float, bytes]], reply: Reply) -> None:
    """Fills the reply. An event has the time of the piece that completed it."""
    decoder = SseDecoder()
    for at, piece in pieces:
        try:
            for data in decoder.feed(piece):
                _event(data, at, reply)
        except EventTooLong as error:
            reply.error = f"the engine sent {error}"
        if reply.error or reply.done:
            return


def _event(data: str, at: float, reply: Reply) -> None:
    if data.strip() == DONE:
        reply.done = True
        return
    try:
        event = load_json(data)
    except ValueError:
        reply.error = f"the engine sent something that is not JSON: {data[:80]}"
        return
    if not isinstance(event, dict):
        return
    if event.get("error") or event.get("object") == "error":
        reply.error = stream_error(event).summary
        return
    choices = event.get("choices")
    if isinstance(choices, list) and choices:
        reply.chunks.append(at)
        reason = choices[0].get("finish_reason") if isinstance(choices[0], dict) else None
        if isinstance(reason, str) and reason:
            reply.finish_reason = reason
            if reason == "abort":  # vLLM, for the answers that a shutdown interrupts
                reply.error = "the engine aborted the answer"
    usage = event.get("usage")
    if isinstance(usage, dict):
        reply.prompt_tokens = _count(usage.get("prompt_tokens"), reply.prompt_tokens)
        reply.completion_tokens = _count(usage.get("completion_tokens"), reply.completion_tokens)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            reply.cached_tokens = _count(details.get("cached_tokens"), reply.cached_tokens)


def _count(value: Any, before: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else before
