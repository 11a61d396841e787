"""How fast something arrives, from readings of how much of it is there."""

from __future__ import annotations

from collections import deque
from typing import Final

from spark_tui.domain.engine.figures import share
from spark_tui.domain.quantities import human_bytes

WINDOW_SECONDS: Final = 30.0
"""The rate is that of the latest readings: a download that stalls must not look fast."""
MIN_SECONDS: Final = 2.0
"""Readings closer together say nothing about a rate."""


class Transfer:
    """Readings of one download, the latest ones only."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque(maxlen=120)
        self.done = -1
        """Bytes that are there; -1 before the first reading."""
        self.total: int | None = None

    def note(self, done: int, total: int | None, at: float | None) -> bool:
        """One reading: bytes there, bytes in all (None: not known), when (seconds, None without a clock). Returns
        whether there is more than at the reading before."""
        grown = 0 <= self.done < done
        if done < self.done or total != self.total:
            self._readings.clear()  # another file, or begun again
        self.done, self.total = done, total
        if at is not None and (not self._readings or at > self._readings[-1][0]):
            self._readings.append((at, done))
            while at - self._readings[0][0] > WINDOW_SECONDS and len(self._readings) > 2:
                self._readings.popleft()
        return grown

    @property
    def rate(self) -> float | None:
        """Bytes a second; None while it is not known."""
        if len(self._readings) < 2:
            return None
        (began, first), (at, last) = self._readings[0], self._readings[-1]
        return (last - first) / (at - began) if at - began >= MIN_SECONDS else None

    @property
    def left(self) -> float | None:
        """Seconds to the end at this rate; None when that is not known, or nothing arrives."""
        rate = self.rate
        return (self.total - self.done) / rate if self.total is not None and rate else None

    @property
    def progress(self) -> float | None:
        """0..1, None when the total is not known."""
        return None if self.total is None else share(self.done, self.total)

    @property
    def detail(self) -> str:
        """`12.3 GiB of 21.3 GiB, 112 MiB/s`."""
        said = human_bytes(self.done)
        said = said if self.total is None else f"{said} of {human_bytes(self.total)}"
        rate = self.rate
        return said if rate is None else f"{said}, {human_bytes(rate)}/s"
