"""A sliding window over one server's metrics: feed it every reading, ask it what the last minute was like."""

from __future__ import annotations

from collections import deque
from typing import Final

from spark_tui.domain.engine.metric_change import Change, Snapshot, restarted
from spark_tui.domain.engine.metric_names import Family
from spark_tui.domain.engine.metrics import EngineMetrics, measure, token_sample
from spark_tui.domain.host.detectors import TokenSample

WINDOW_SECONDS: Final = 60.0
"""Latencies and shares are over so long: p95 of fewer requests says little, of more says nothing of now."""
RATE_SECONDS: Final = 5.0
"""Speeds are over so long: prompts are counted all at once, and would be a spike and zeros in between."""
COARSE_SECONDS: Final = 5.0


class MetricWindow:
    """Keeps the snapshots that the window needs: every one of the last seconds, and one in five seconds before."""

    def __init__(self, seconds: float = WINDOW_SECONDS, rate_seconds: float = RATE_SECONDS) -> None:
        self.seconds = seconds
        self.rate_seconds = rate_seconds
        self._recent: deque[Snapshot] = deque()
        self._coarse: deque[Snapshot] = deque()

    def clear(self) -> None:
        """Begins anew: another start of the engine, whatever the counters say."""
        self._recent.clear()
        self._coarse.clear()

    def add(self, snapshot: Snapshot) -> bool:
        """Takes the next reading and returns whether the server was started again since the last one.

        After a restart, and after a gap longer than the window, the window begins anew.
        """
        last = self.last
        again = last is not None and restarted(last.page, snapshot.page)
        if again or (last is not None and not 0 <= snapshot.at - last.at <= self.seconds):
            self.clear()
        self._recent.append(snapshot)
        if not self._coarse or snapshot.at - self._coarse[-1].at >= COARSE_SECONDS:
            self._coarse.append(snapshot)
        _trim(self._recent, snapshot.at - self.rate_seconds)
        _trim(self._coarse, snapshot.at - self.seconds)
        return again

    @property
    def last(self) -> Snapshot | None:
        """The latest reading."""
        return self._recent[-1] if self._recent else None

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines of the server; several with data parallelism."""
        return self.last.page.engines if self.last else ()

    def metrics(self, engine: str | None = None) -> EngineMetrics | None:
        """The window now, of one engine or of all together; None before the first reading."""
        if self.last is None:
            return None
        wide, narrow = Change.between(self._coarse[0], self.last), Change.between(self._recent[0], self.last)
        if engine is not None:
            wide, narrow = wide.of_engine(engine), narrow.of_engine(engine)
        return measure(wide, narrow)

    def lifetime(self, now: float | None = None, engine: str | None = None) -> EngineMetrics | None:
        """Since the server's start. `now` (seconds since the epoch) makes rates of it where the page tells when the
        server began; None before the first reading."""
        if self.last is None:
            return None
        began = self.last.page.total(Family.STARTED)
        seconds = now - began if now is not None and began is not None and now > began else None
        change = Change(None, self.last, seconds)
        return measure(change if engine is None else change.of_engine(engine))

    def token_sample(self) -> TokenSample | None:
        """The latest reading for the wedge detector; None where the server's counters cannot tell."""
        return token_sample(self.last.page, self.last.at) if self.last else None


def _trim(kept: deque[Snapshot], until: float) -> None:
    """Keeps the newest one that is old enough, and all after it."""
    while len(kept) > 1 and kept[1].at <= until:
        kept.popleft()
