"""The system's time."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """The Clock port on the machine's own clocks."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds`; cancellable."""
        await asyncio.sleep(seconds)
