"""What a simulated container writes: lines appear when their time comes, each with a stamp of its own."""

from __future__ import annotations

import heapq
import itertools
import time
from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from spark_tui.services.demo.recording import fill
from spark_tui.services.demo.run import Run, noise
from spark_tui.services.ports import LogLine

STATS_SECONDS: Final = 10.0  # VLLM_LOG_STATS_INTERVAL
DECODE_RATE: Final = 41.8
"""Tokens per second of one stream, as the simulated engine reports and delivers them."""
REQUEST_INTERVALS: Final = 3
"""A request of the simulated traffic ends in every third interval of statistics."""
PREFIX_HITS: Final = 0.714
CROWD: Final = range(904, 970)
"""Intervals in which others use the engine too: eleven minutes, half an hour before the demo is opened."""
MOST_STREAMS: Final = 6
_SLOWDOWN: Final = 0.11
"""How much longer a step takes with each further stream, as the demo's benchmark has it."""

_API: Final = "(APIServer pid=1) INFO"
_MICROSECOND: Final = 1_000_000


class Chronicle:
    """The log of one container over all its starts."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self._times: list[int] = []  # microseconds, strictly rising: a stamp tells two lines apart
        self._due: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._traffic: tuple[float, int] | None = None

    # --- what will be written -------------------------------------------------------------------------

    def write(self, at: float, text: str) -> None:
        """Plans one line; marks of time are filled in."""
        heapq.heappush(self._due, (at, next(self._order), fill(text, _times(at))))

    def replay(self, run: Run, values: Mapping[str, str]) -> None:
        """Plans a whole recorded log from the run's start on, and the traffic of one that has some."""
        for line in run.script.lines:
            self.write(run.started_at + line.offset / run.speed, fill(line.text, values, run.speed))
        self._traffic = (run.ready_at + STATS_SECONDS, 1) if run.traffic else None

    def cut(self) -> None:
        """The process ends: what it would have written is never written."""
        self._due.clear()
        self._traffic = None

    def request_done(self, at: float, prompt_tokens: int, tokens: int, seconds: float) -> None:
        """Plans what vLLM writes about a request: its access line, and the next line of statistics."""
        self.write(at, _access(46876))
        share = min(1.0, STATS_SECONDS / max(seconds, 0.1))
        self.write(at + 2.0, _stats(prompt_tokens / STATS_SECONDS, tokens * share / STATS_SECONDS, 0, 0.4))

    # --- what has been written ------------------------------------------------------------------------

    def flush(self, now: float) -> None:
        """Everything up to `now` is written."""
        while self._traffic is not None and self._traffic[0] <= now:
            at, number = self._traffic
            self._write_traffic(at, number)
            self._traffic = (at + STATS_SECONDS, number + 1)
        while self._due and self._due[0][0] <= now:
            at, _, text = heapq.heappop(self._due)
            moment = max(round(at * _MICROSECOND), self._times[-1] + 1 if self._times else 0)
            self._times.append(moment)
            self.lines.append(LogLine(_stamp(moment), text))

    def next_at(self) -> float | None:
        """When the next line will be written; None when none is planned."""
        planned = [self._due[0][0]] if self._due else []
        if self._traffic is not None:
            planned.append(self._traffic[0])
        return min(planned, default=None)

    def position_after(self, stamp: str) -> int:
        """Index of the first line later than an RFC 3339 stamp; 0 for an empty or unreadable one."""
        try:
            moment = datetime.fromisoformat(stamp)
        except ValueError:
            return 0
        since = moment.replace(tzinfo=moment.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return bisect_right(self._times, since // timedelta(microseconds=1))

    def _write_traffic(self, at: float, number: int) -> None:
        rate = decode_rate(number)
        if number % REQUEST_INTERVALS == 0:
            self.write(
                at - 4.2, '(APIServer pid=1) INFO:     172.18.0.1:52114 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
            )
        self.write(at, _stats(prompt_rate(number), rate, streams(number), kv_percent(number)))
        self.write(at, _speculation(rate, accepted_length(number)))


def streams(number: int) -> int:
    """Requests under way in an interval of the traffic: one, but for a crowd that comes and goes."""
    if number not in CROWD:
        return 1
    share = (number - CROWD.start) / len(CROWD)
    return round(1 + (MOST_STREAMS - 1) * min(1.0, 4 * min(share, 1 - share)))


def decode_rate(number: int) -> float:
    """Tokens written per second in an interval of the traffic, of all streams together."""
    together = streams(number)
    return DECODE_RATE * together / (1 + _SLOWDOWN * (together - 1)) * (0.94 + 0.1 * noise("rate", number))


def prompt_rate(number: int) -> float:
    """Prompt tokens read per second in an interval of the traffic."""
    return (180 + 900 * noise("prompt", number)) * (1 + 0.6 * (streams(number) - 1))


def kv_percent(number: int) -> float:
    """How full the KV cache is at the end of an interval of the traffic."""
    return 2 + 3 * noise("kv", number) + 4.1 * (streams(number) - 1)


def accepted_length(number: int) -> float:
    """Tokens per step in an interval of the traffic, drafts and the model's own."""
    return 2.6 + 0.6 * noise("accepted", number)


def _access(client: int) -> str:
    return f'{_API}:     172.18.0.1:{client} - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def _stats(prompt: float, generation: float, running: int, kv: float) -> str:
    return (
        f"{_API} <<time>> [loggers.py:259] Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, "
        f"Avg generation throughput: {generation:.1f} tokens/s, Running: {running} reqs, Waiting: 0 reqs, "
        f"GPU KV cache usage: {kv:.1f}%, Prefix cache hit rate: {PREFIX_HITS:.1%}"
    )


def _speculation(rate: float, length: float) -> str:
    drafts = rate / length
    accepted = drafts * (length - 1)
    first, second, third = (share * (length - 1) for share in (0.43, 0.32, 0.25))
    return (
        f"{_API} <<time>> [metrics.py:101] SpecDecoding metrics: Mean acceptance length: {length:.2f}, "
        f"Accepted throughput: {accepted:.2f} tokens/s, Drafted throughput: {drafts * 3:.2f} tokens/s, "
        f"Accepted: {accepted * STATS_SECONDS:.0f} tokens, Drafted: {drafts * 3 * STATS_SECONDS:.0f} tokens, "
        f"Per-position acceptance rate: {first:.3f}, {second:.3f}, {third:.3f}, "
        f"Avg Draft acceptance rate: {accepted / (drafts * 3) * 100:.1f}%"
    )


def _times(at: float) -> Mapping[str, str]:
    """The three ways in which the recorded programs write the time; the container's clock is UTC."""
    moment = time.gmtime(at)
    micros = int(at % 1 * _MICROSECOND)
    return {
        "time": time.strftime("%m-%d %H:%M:%S", moment),
        "iso": time.strftime("%Y-%m-%d %H:%M:%S", moment) + f",{micros // 1000:03d}",
        "glog": time.strftime("%m%d %H:%M:%S", moment) + f".{micros:06d}",
    }


def _stamp(moment: int) -> str:
    """Docker's RFC 3339 stamp with nanoseconds."""
    seconds, micros = divmod(moment, _MICROSECOND)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{micros:06d}000Z"
