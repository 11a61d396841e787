"""Long work as a stream of Steps: the same Steps that the CLI prints and the TUI draws."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.errors import SparkError
from spark_tui.base.finding import EventKind
from spark_tui.base.quantities import human_duration

if TYPE_CHECKING:  # the first frame shows steps, and loads none of the ports for them
    from spark_tui.base.ports import Clock


class StepState(StrEnum):
    """The state of a step."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """It will not change any more."""
        return self not in (StepState.PENDING, StepState.RUNNING)


class Step(Struct, frozen=True):
    """One step of a job. `progress` is 0..1, None when it cannot be known. Times are monotonic seconds. `downloads`
    are the ids of those that it waits for."""

    id: str
    label: str
    state: StepState = StepState.PENDING
    detail: str = ""
    progress: float | None = None
    started_at: float | None = None
    seconds: float | None = None
    downloads: tuple[str, ...] = ()


class JobView(Struct, frozen=True):
    """A job on screen: what it is for, its steps, and how it ended. `what`: launch, edit, update ...
    `nodes` are those of a cluster that it works on; empty: this machine."""

    id: str
    title: str
    steps: tuple[Step, ...] = ()
    error: str = ""
    remedy: str = ""
    detail: str = ""
    state: StepState = StepState.RUNNING
    nodes: tuple[str, ...] = ()
    what: str = "launch"

    @property
    def current(self) -> Step | None:
        """The step that runs now, else the last one that is over."""
        over = [step for step in self.steps if step.state.over and step.state is not StepState.SKIPPED]
        return next((step for step in self.steps if step.state is StepState.RUNNING), over[-1] if over else None)


class BenchStatus(Struct, frozen=True):
    """The benchmark that runs: what it does, and how many of its segments are done. `total` 0: not known yet."""

    engine: str
    step: str
    done: int = 0
    total: int = 0
    seconds_left: float | None = None


def put(steps: tuple[Step, ...], step: Step) -> tuple[Step, ...]:
    """`steps` with the step of the same id replaced, or added at the end."""
    if any(old.id == step.id for old in steps):
        return tuple(step if old.id == step.id else old for old in steps)
    return (*steps, step)


STEP_EVENTS: Final = {"preflight": EventKind.CHECK, "fetch": EventKind.FETCH, "pull": EventKind.IMAGE}
"""Steps whose beginning and end are events. Of the later ones the engine itself reports."""


def step_news(before: Step | None, step: Step) -> str:
    """`pull image started`, `pull image done in 5s`; empty for what is no event. A fetch begins with its downloads: it
    first looks whether anything is missing."""
    begins = step.state is StepState.RUNNING and (step.id == "pull" or bool(step.downloads))
    if step.id not in STEP_EVENTS or (before is not None and before.state is step.state and not begins):
        return ""
    if begins and (before is None or before.state is not step.state or before.downloads != step.downloads):
        return f"{step.label.lower()} started"
    if step.state is StepState.DONE:
        seconds = step.seconds or 0
        return f"{step.label.lower()} done" + (f" in {human_duration(seconds)}" if seconds >= 1 else "")
    return ""


Report = Callable[[Step], None]


class StepReporter:
    """Keeps every step's last state, and reports each change once."""

    def __init__(self, steps: tuple[Step, ...], report: Report, clock: Clock) -> None:
        self._steps = {step.id: step for step in steps}
        self._report = report
        self._clock = clock

    def _put(self, id_: str, **changes: object) -> None:
        step = replace(self._steps[id_], **changes)  # names are checked by replace
        if step != self._steps[id_]:
            self._steps[id_] = step
            self._report(step)

    def add(self, step: Step) -> None:
        """A step that was not planned; nothing where it is known."""
        self._steps.setdefault(step.id, step)

    def begin(self, id_: str, detail: str = "") -> None:
        self._put(id_, state=StepState.RUNNING, started_at=self._clock.monotonic(), detail=detail, progress=None)

    def detail(self, id_: str, detail: str, progress: float | None = None) -> None:
        self._put(id_, detail=detail, progress=progress)

    def waits_for(self, id_: str, downloads: Iterable[str]) -> None:
        self._put(id_, downloads=tuple(downloads))

    def done(self, id_: str, detail: str | None = None) -> None:
        self._end(id_, StepState.DONE, detail)

    def skip(self, id_: str, why: str) -> None:
        self._put(id_, state=StepState.SKIPPED, detail=why)

    def fail(self, id_: str, why: str) -> None:
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


ETA_STEP = 10
"""Seconds left are rounded to this: a figure that changes every second is repainted every second."""


class Activity(Struct, frozen=True):
    """`show` is the action of the screen that has the details, `name` what it is about on that screen."""

    show: str
    name: str
    text: str
    seconds_left: float | None = None

    @property
    def words(self) -> str:
        """`gpt-oss-20b loading 62 %  ~1m10s`."""
        return self.text if self.seconds_left is None else f"{self.text} ~{coarse_duration(self.seconds_left)}"


def coarse_duration(seconds: float) -> str:
    """`40s`, `1m10s`, `2h05m`; never less than the step."""
    return human_duration(max(ETA_STEP, round(seconds / ETA_STEP) * ETA_STEP))
