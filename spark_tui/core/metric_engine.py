"""One engine's metrics: what is kept of it, from look to look."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from spark_tui.core.metric_rings import SeriesRing
from spark_tui.domain.engine.metric_change import Change, Snapshot
from spark_tui.domain.engine.metric_series import MetricId, Sample, SeriesView
from spark_tui.domain.engine.metric_values import engine_values, serving_sample
from spark_tui.domain.engine.metric_window import MetricWindow
from spark_tui.domain.engine.metrics import EngineMetrics
from spark_tui.domain.engine.serving_lines import KEPT, ServingSample
from spark_tui.domain.errors import SparkError
from spark_tui.domain.host.detectors import TokenSample
from spark_tui.domain.reading import Missing, Ok, Reading, Stale, value_of

SERVING_INTERVAL_SECONDS: Final = 10.0
"""Findings were made for vLLM's log lines, which come so often."""
_NOBODYS_POWER: Final = Missing("another engine works too: whose power it is cannot be told")

Start = tuple[str, float | None]
"""The container's id, and when it was started: another pair is another start."""


class FollowedEngine:
    """Feed it every look, good or failed; times are seconds since the epoch."""

    def __init__(self, name: str, reason: str = "it was not asked yet") -> None:
        self.name = name
        self.ring = SeriesRing()
        self.metrics: EngineMetrics | None = None
        self.error: SparkError | None = None
        self.reason = reason
        """Why there is nothing new; empty while looks succeed."""
        self.reasons: dict[MetricId, str] = {}
        """Why one series has no value now."""
        self._window = MetricWindow()
        self._start: Start | None = None
        self._fresh = False
        self._at = 0.0
        self._served: list[ServingSample] = []
        self._mark: Snapshot | None = None

    # --- looks ----------------------------------------------------------------------------------------

    def started(self, start: Start) -> None:
        """The start that is looked at from now on; the same one again changes nothing."""
        if self._start != start:
            self._fresh = self._start is not None
            self._start = start
            self._window.clear()
            self._mark = None

    def took(self, snapshot: Snapshot, now: float, *, alone: bool) -> Sample:
        """A good look. `alone`: no other engine works, so that the GPU's power is this one's."""
        restarted = self._window.add(snapshot) or self._fresh
        self._fresh = False
        metrics = self._window.metrics()
        assert metrics is not None  # noqa: S101 - a window that was just given a snapshot has one
        if not alone and isinstance(metrics.energy, Ok):
            metrics = replace(metrics, energy=_NOBODYS_POWER)
        self.metrics, self._at, self.error, self.reason = metrics, now, None, ""
        values, self.reasons = engine_values(metrics)
        self._note_serving(snapshot, restarted=restarted)
        at = self.ring.add(now, values, restarted=restarted)
        return Sample(self.name, at, values, restarted=restarted)

    def failed(self, error: SparkError, now: float) -> Sample:
        """A look that failed."""
        self.error = error
        return self._gap(error.summary, now)

    def ended(self, why: str, now: float) -> Sample:
        """It is not looked at any more."""
        self.error = None
        return self._gap(why, now)

    def _gap(self, why: str, now: float) -> Sample:
        self.reason = why
        return Sample(self.name, self.ring.add(now, {}, gap=why), gap=why)

    def _note_serving(self, snapshot: Snapshot, *, restarted: bool) -> None:
        """A sample for the findings, every ten seconds, of one start."""
        if restarted:
            self._served.clear()
        mark = self._mark
        if mark is None or restarted or snapshot.at - mark.at > 6 * SERVING_INTERVAL_SECONDS:
            self._mark = snapshot
        elif snapshot.at - mark.at >= SERVING_INTERVAL_SECONDS:
            self._served.append(serving_sample(Change.between(mark, snapshot), self._at))
            del self._served[:-KEPT]
            self._mark = snapshot

    # --- what is known --------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """It writes tokens."""
        rate = value_of(self.metrics.decode_rate) if self.metrics is not None and not self.reason else None
        return bool(rate)

    def series(self, metric: MetricId, window_seconds: float, now: float, step: float) -> SeriesView:
        """The last `window_seconds` of one series."""
        reason = self.reason or self.reasons.get(metric, "")
        return self.ring.view(metric, now - window_seconds, now, step=step, reason=reason)

    def current(self) -> Reading[EngineMetrics]:
        """The window now; stale with the reason when the last look failed."""
        return self._reading(self.metrics)

    def lifetime(self) -> Reading[EngineMetrics]:
        """Since the server's start."""
        return self._reading(self._window.lifetime(self._at))

    def _reading(self, metrics: EngineMetrics | None) -> Reading[EngineMetrics]:
        if metrics is None:
            return Missing(self.reason)
        return Stale(metrics, self._at, self.reason) if self.reason else Ok(metrics, self._at)

    def parts(self) -> dict[str, EngineMetrics]:
        """By data-parallel rank where the server has several engines; else empty."""
        ranks = self._window.engines
        if len(ranks) < 2:
            return {}
        parts = ((rank, self._window.metrics(rank)) for rank in ranks)
        return {rank: metrics for rank, metrics in parts if metrics is not None}

    def token_sample(self) -> TokenSample | None:
        """The latest counters; None where they cannot tell, and while looks fail."""
        return None if self.reason else self._window.token_sample()

    def serving_samples(self) -> tuple[ServingSample, ...]:
        """The last hour in intervals of ten seconds."""
        return tuple(self._served)
