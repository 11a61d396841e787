"""The port to engines' metrics pages."""

from __future__ import annotations

from typing import Protocol

from spark_tui.domain.engine.endpoint import Endpoint
from spark_tui.domain.engine.metric_page import MetricPage


class MetricsSource(Protocol):
    """Where metrics come from."""

    async def read(self, endpoint: Endpoint) -> MetricPage:
        """One reading. It writes a line into the log of most servers: not for nothing.

        Raises MetricsUnavailable for a server that publishes none, ApiKeyRejected, EngineUnreachable, and EngineFailed
        for an answer that is no metrics page.
        """

    async def close(self) -> None:
        """Closes all connections."""
