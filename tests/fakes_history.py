"""A history in memory: what was added is there to look at, and it can be switched off."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from spark_tui.base.finding import Missing, Ok, Reading
from spark_tui.base.host.series import HistoryOff, HistoryState, Record, Sample, SeriesKey, SeriesSlice
from spark_tui.observe.explain.model.starts import StartRecord


class FakeHistory:
    """A HistoryStore. `kept` counts every start that was handed over."""

    def __init__(self, *starts: StartRecord) -> None:
        self.state = HistoryState(file="/data/history.db")
        self.samples: list[Sample] = []
        self.kept: list[StartRecord] = []
        self.known = {start.key: start for start in starts}
        self.noted: list[Record] = []
        self.stretches: dict[SeriesKey, SeriesSlice] = {}
        self.closed = False

    def switch_off(self, reason: str, remedy: str = "Make room.") -> None:
        """Nothing can be read or written from now on."""
        self.state = replace(self.state, reason=reason, remedy=remedy)

    def switch_on(self) -> None:
        """As if nothing had been."""
        self.state = replace(self.state, reason="", remedy="")

    def note(self, text: str) -> None:
        """Something that a person should know."""
        self.state = replace(self.state, notes=(*self.state.notes, text))

    def add_sample(self, sample: Sample) -> None:
        self.samples.append(sample)

    def add_start(self, start: StartRecord) -> None:
        self.kept.append(start)
        self.known[start.key] = start

    async def add_record(self, record: Record) -> None:
        if self.state.reason:
            raise HistoryOff(f"The history is off: {self.state.reason}.", self.state.remedy)
        self.noted.append(record)

    async def series(
        self, keys: Sequence[SeriesKey], since: float, until: float, buckets: int
    ) -> Reading[tuple[SeriesSlice, ...]]:
        if self.state.reason:
            return Missing(self.state.reason)
        return Ok(tuple(self.stretches.get(key, SeriesSlice(key, 1.0)) for key in keys))

    async def starts(
        self, *, engine: str = "", preset: str = "", failed: bool = False, ready: bool = False, limit: int = 200
    ) -> Reading[tuple[StartRecord, ...]]:
        if self.state.reason:
            return Missing(self.state.reason)
        found = [
            start
            for start in self.known.values()
            if engine in ("", start.engine)
            and preset in ("", start.preset)
            and (start.failed or not failed)
            and (start.of_preset or not ready)
        ]
        return Ok(tuple(sorted(found, key=lambda start: start.at, reverse=True)[:limit]))

    async def records(
        self, kind: str, *, key: str | None = None, since: float | None = None, limit: int = 200
    ) -> Reading[tuple[Record, ...]]:
        if self.state.reason:
            return Missing(self.state.reason)
        found = [r for r in self.noted if r.kind == kind and key in (None, r.key) and (since is None or r.at >= since)]
        return Ok(tuple(found[::-1][:limit]))

    async def flush(self) -> None:
        return

    async def close(self) -> None:
        self.closed = True
