"""Turns what a job does into Steps, with times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from spark_tui.core.jobs import Step, StepState
from spark_tui.domain.errors import SparkError
from spark_tui.services.ports import Clock

Report = Callable[[Step], None]


class StepReporter:
    """Keeps every step's last state, and reports each change once."""

    def __init__(self, steps: tuple[Step, ...], report: Report, clock: Clock) -> None:
        self._steps = {step.id: step for step in steps}
        self._report = report
        self._clock = clock

    def _put(self, id_: str, **changes: object) -> None:
        step = replace(self._steps[id_], **changes)  # type: ignore[arg-type]  # names are checked by replace
        if step != self._steps[id_]:
            self._steps[id_] = step
            self._report(step)

    def begin(self, id_: str, detail: str = "") -> None:
        """The step runs now."""
        self._put(id_, state=StepState.RUNNING, started_at=self._clock.monotonic(), detail=detail, progress=None)

    def detail(self, id_: str, detail: str, progress: float | None = None) -> None:
        """How far it is, in words and as a fraction."""
        self._put(id_, detail=detail, progress=progress)

    def done(self, id_: str, detail: str | None = None) -> None:
        """It succeeded."""
        self._end(id_, StepState.DONE, detail)

    def skip(self, id_: str, why: str) -> None:
        """There was nothing to do."""
        self._put(id_, state=StepState.SKIPPED, detail=why)

    def fail(self, id_: str, why: str) -> None:
        """It failed."""
        self._end(id_, StepState.FAILED, why)

    def _end(self, id_: str, state: StepState, detail: str | None) -> None:
        step = self._steps[id_]
        seconds = None if step.started_at is None else self._clock.monotonic() - step.started_at
        self._put(id_, state=state, seconds=seconds, progress=None, detail=step.detail if detail is None else detail)

    @asynccontextmanager
    async def running(self, id_: str) -> AsyncIterator[None]:
        """Runs the body as this step: at its end done, unless the body has ended it; failed or cancelled by a raise."""
        self.begin(id_)
        try:
            yield
        except SparkError as error:
            self.fail(id_, error.summary)
            raise
        except asyncio.CancelledError:
            self._end(id_, StepState.CANCELLED, "cancelled")
            raise
        if self._steps[id_].state is StepState.RUNNING:
            self.done(id_)
