"""Where a benchmark stands, for whoever watches it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from spark_tui.core.bench_session import BenchSession
from spark_tui.domain.bench.plan import Segment, segments
from spark_tui.domain.bench.run import BenchRun
from spark_tui.services.ports import Clock
from spark_tui.services.ports_bench import Tick


class BenchStep(StrEnum):
    """What is being done."""

    LAUNCHING = "launching"
    PREPARING = "preparing"
    WARM_UP = "warming up"
    MEASURING = "measuring"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """How far a benchmark is. `done` and `total` count segments; `requests_done`, `requests_running` and
    `requests_total` are those of this segment, `rate` the pieces that came per second just now (tokens, where the
    engine does not speculate). `runs` holds what was measured so far, a run per engine. `seconds_left` is a guess from
    the segments that are over, None before there is one. `detail` is how far a launch is."""

    step: BenchStep
    engine: str
    runs: tuple[BenchRun, ...] = ()
    segment: Segment | None = None
    done: int = 0
    total: int = 0
    requests_done: int = 0
    requests_running: int = 0
    requests_total: int = 0
    rate: float | None = None
    seconds: float = 0.0
    seconds_left: float | None = None
    detail: str = ""


OnProgress = Callable[[BenchProgress], None]


class Course:
    """Turns what a benchmark does into reports. `sides` says how many sessions there will be, where not all are known
    from the beginning."""

    def __init__(self, sessions: Sequence[BenchSession], report: OnProgress, clock: Clock, sides: int = 0) -> None:
        self._sessions = list(sessions)
        self._report = report
        self._clock = clock
        self._began = clock.monotonic()
        self._total = len(segments(sessions[0].plan)) * max(sides, len(sessions))
        self._done = 0
        self._measuring_since = 0.0
        self._session = sessions[0]
        self._segment: Segment | None = None
        self._runs: tuple[BenchRun, ...] = ()
        self._last: tuple[float, int] = (0.0, 0)
        self._rate: float | None = None

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._clock.monotonic() - self._began

    @property
    def measured(self) -> bool:
        """There is something to keep."""
        return bool(self._runs) and any(run.levels for run in self._runs)

    def joined(self, session: BenchSession) -> None:
        """A further engine is measured from now on."""
        self._sessions.append(session)

    def begin(self, session: BenchSession, segment: Segment) -> None:
        """A segment begins."""
        if not self._measuring_since:
            self._measuring_since = self._clock.monotonic()
        self._session, self._segment = session, segment
        self._last, self._rate = (self._clock.monotonic(), 0), None
        self.tell(BenchStep.MEASURING, session)

    def launching(self, name: str, detail: str) -> None:
        """An engine is brought up for its turn."""
        self.tell(BenchStep.LAUNCHING, engine=name, detail=detail)

    def tick(self, tick: Tick) -> None:
        """It goes on."""
        now = self._clock.monotonic()
        at, pieces = self._last
        if now > at:
            rate = max(0.0, (tick.pieces - pieces) / (now - at))
            self._rate = rate if self._rate is None else 0.7 * self._rate + 0.3 * rate
            self._last = (now, tick.pieces)
        self.tell(BenchStep.MEASURING, self._session, tick)

    def end(self) -> None:
        """A segment is over: the figures so far are worth showing."""
        self._done += 1
        self._runs = tuple(session.run(self.seconds) for session in self._sessions)
        self.tell(BenchStep.MEASURING, self._session)

    def tell(
        self,
        step: BenchStep,
        session: BenchSession | None = None,
        tick: Tick | None = None,
        *,
        runs: tuple[BenchRun, ...] | None = None,
        engine: str = "",
        detail: str = "",
    ) -> None:
        """Reports."""
        segment = self._segment
        self._report(
            BenchProgress(
                step=step,
                engine=engine or (session or self._session).name,
                runs=self._runs if runs is None else runs,
                segment=segment,
                done=self._done,
                total=self._total,
                requests_done=tick.done if tick else 0,
                requests_running=tick.running if tick else 0,
                requests_total=segment.requests if segment else 0,
                rate=self._rate,
                seconds=self.seconds,
                seconds_left=self._left(),
                detail=detail,
            )
        )

    def _left(self) -> float | None:
        if not self._done:
            return None
        spent = self._clock.monotonic() - self._measuring_since
        return spent / self._done * (self._total - self._done)
