"""Long work as a stream of Steps: the same Steps that the CLI prints and the TUI draws."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class StepState(StrEnum):
    """Where a step stands."""

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


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a job. `progress` is 0..1, None when it cannot be known. Times are monotonic seconds."""

    id: str
    label: str
    state: StepState = StepState.PENDING
    detail: str = ""
    progress: float | None = None
    started_at: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """A job on screen: what it is for, its steps, and how it ended."""

    id: str
    title: str
    steps: tuple[Step, ...] = ()
    error: str = ""
    remedy: str = ""
    detail: str = ""
    state: StepState = StepState.RUNNING

    @property
    def current(self) -> Step | None:
        """The step that runs now, else the last one that is over."""
        over = [step for step in self.steps if step.state.over and step.state is not StepState.SKIPPED]
        return next((step for step in self.steps if step.state is StepState.RUNNING), over[-1] if over else None)


def put(steps: tuple[Step, ...], step: Step) -> tuple[Step, ...]:
    """`steps` with the step of the same id replaced, or added at the end."""
    if any(old.id == step.id for old in steps):
        return tuple(step if old.id == step.id else old for old in steps)
    return (*steps, step)
