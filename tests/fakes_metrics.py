"""A scripted MetricsSource: pages that grow by the clock, or an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spark_tui.base.engine.metrics_page import MetricPage
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import SparkError
from spark_tui.base.ports import Clock
from tests import metric_fixtures as pages


@dataclass
class FakeMetrics:
    """Every server writes `speed` tokens a second since `began`, unless `page` says otherwise; `error` is raised."""

    clock: Clock
    speed: float = 40.0
    running: float = 1.0
    began: float | None = None
    error: SparkError | None = None
    page: Callable[[Endpoint], MetricPage] | None = None
    asked: list[Endpoint] = field(default_factory=list)

    async def read(self, endpoint: Endpoint) -> MetricPage:
        self.asked.append(endpoint)
        if self.error is not None:
            raise self.error
        if self.page is not None:
            return self.page(endpoint)
        if self.began is None:
            self.began = self.clock.monotonic()
        passed = self.clock.monotonic() - self.began
        return pages.vllm(
            generation_tokens_total=1000 + self.speed * passed, num_requests_running=self.running,
            num_requests_waiting=0, kv_cache_usage_perc=0.25, num_preemptions_total=0,
        )  # fmt: skip

    async def close(self) -> None:
        return None
