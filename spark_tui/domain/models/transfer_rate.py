"""How fast a transfer is, how long it will take, and how to hold it back. Time is an argument, in seconds."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_SECONDS: Final = 10.0
_LEAST_SECONDS: Final = 1.0


class SpeedMeter:
    """Bytes per second over the last ten seconds."""

    def __init__(self, window: float = WINDOW_SECONDS) -> None:
        self._window = window
        self._points: deque[tuple[float, int]] = deque()

    def feed(self, now: float, total: int) -> None:
        """The bytes that have arrived so far. Less than before (a file begun anew) starts the meter again."""
        if self._points and total < self._points[-1][1]:
            self._points.clear()
        self._points.append((now, total))
        while len(self._points) > 2 and now - self._points[1][0] >= self._window:
            self._points.popleft()

    def speed(self, now: float) -> float | None:
        """None before it has run for a second; zero when nothing arrives."""
        if not self._points:
            return None
        began, first = self._points[0]
        return (self._points[-1][1] - first) / (now - began) if now - began >= _LEAST_SECONDS else None


def seconds_left(left: int | None, speed: float | None) -> float | None:
    """How long the rest takes; None when nothing can be said."""
    if left == 0:
        return 0.0
    return left / speed if left is not None and speed is not None and speed > 0 else None


class TokenBucket:
    """A bandwidth cap for many takers. At most a quarter of a second's worth may burst."""

    def __init__(self) -> None:
        self._rate: float | None = None
        self._ready_at = 0.0

    def limit(self, bytes_per_second: float | None) -> None:
        """None: no cap. Takes effect at once."""
        if bytes_per_second != self._rate:
            self._rate = bytes_per_second
            self._ready_at = 0.0

    def take(self, now: float, size: int) -> float:
        """Takes so many bytes, and says how long the taker sleeps after it."""
        if self._rate is None or self._rate <= 0:
            return 0.0
        self._ready_at = max(self._ready_at, now - 0.25) + size / self._rate
        return max(0.0, self._ready_at - now)
