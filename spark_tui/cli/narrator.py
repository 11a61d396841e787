"""Tells a launch as it goes: one line per step and boot phase, or one JSON object per change.

Where a person watches, the line of the running step is written over; in a pipe a long step says that it began, and
then every tenth of its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, Final, TypeVar

from spark_tui.cli.output import Interrupted
from spark_tui.cli.session import Session
from spark_tui.core.context import Context
from spark_tui.core.jobs import Step, StepState
from spark_tui.domain.logs.starts import UNKNOWN, Eta, EtaBasis, eta_text
from spark_tui.domain.logs.timeline import Phase, PhaseId, PhaseState
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.quantities import human_duration
from spark_tui.present.engines import estimate_object, phase_object, step_object

T = TypeVar("T")

TICK_SECONDS: Final = 1.0
JSON_SECONDS: Final = 0.5
"""Progress alone is told at most twice a second; every change of state is told."""

_LONG: Final = ("fetch", "pull", "follow", "warm")
_MEASURED: Final = ("fetch", "pull")
"""Steps that know how far they are."""
_WORDS: Final = {
    StepState.PENDING: ("waits", "dim"),
    StepState.RUNNING: ("...", "yellow"),
    StepState.DONE: ("done", "green"),
    StepState.SKIPPED: ("skipped", "dim"),
    StepState.FAILED: ("failed", "red"),
    StepState.CANCELLED: ("stopped", "yellow"),
}
_STEPS_OF_THEIR_OWN: Final = (PhaseId.READY, PhaseId.WARM)
_RESUMED: Final = ("follow", "ready", "warm")
_PHASE_WORDS: Final = {PhaseState.DONE: "done", PhaseState.FAILED: "failed"}


class Narrator:
    """Gets every change of a step. `name` is the engine, whose boot phases are told as they end; `states` is where
    the caller wants to know how far every step came, whatever ends the launch."""

    def __init__(
        self, session: Session, context: Context, name: str, states: dict[str, StepState] | None = None
    ) -> None:
        self._session = session
        self._clock = context.clock
        self._supervisor = context.supervisor
        self._history = context.history
        self._name = name
        self._states = {} if states is None else states
        self._current: Step | None = None
        self._told: dict[str, PhaseState] = {}
        self._milestone = 0
        self._left_told = False
        self._json_at = float("-inf")

    def step(self, step: Step) -> None:
        """One change."""
        changed = self._states.get(step.id) is not step.state
        self._states[step.id] = step.state
        if step.state.over:
            self._phases(step)
        if self._session.as_json:
            self._json(step, changed=changed)
        elif step.state.over:
            self._current = None
            self._session.err.settle()
            self._line(step)
        else:
            self._running(step, began=changed)
        if not step.state.over:
            self._phases(step)

    async def tick(self) -> None:
        """Keeps the elapsed time of the running step moving, where a person watches."""
        while self._session.err.interactive:
            await self._clock.sleep(TICK_SECONDS)
            if self._current is not None:
                self._standing(self._current)

    # --- steps ----------------------------------------------------------------------------------------

    def _running(self, step: Step, *, began: bool) -> None:
        self._current = step
        if self._session.err.interactive:
            self._standing(step)
        elif began and step.id in _LONG:
            self._milestone = 0
            self._line(step)
        elif step.id in _MEASURED and step.progress is not None and int(step.progress * 10) > self._milestone:
            self._milestone = int(step.progress * 10)
            self._line(step)
        elif _announces(step):
            self._line(step)
        elif step.id == "follow":
            self._tell_left(step)

    def _tell_left(self, step: Step) -> None:
        """Once, as soon as earlier starts tell it."""
        found = UNKNOWN if self._left_told else self._eta(step)
        if found.basis is EtaBasis.HISTORY:
            self._left_told = True
            self._session.err.say(_row("", "", None, eta_text(found)))

    def _standing(self, step: Step) -> None:
        self._session.err.standing(_text(step, self._elapsed(step), self._left(step)))

    def _line(self, step: Step) -> None:
        word, style = _WORDS[step.state]
        left = "" if step.state.over else self._left(step)
        self._left_told = self._left_told or bool(left)
        plain = _text(step, self._elapsed(step) if step.state.over or step.id in _MEASURED else None, left)
        self._session.err.columns(plain, word, style)

    def _left(self, step: Step) -> str:
        return eta_text(self._eta(step))

    def _eta(self, step: Step) -> Eta:
        """How long the boot will still take, by earlier starts or its own progress."""
        watch = self._supervisor.find(self._name) if step.id == "follow" else None
        return UNKNOWN if watch is None else self._history.eta(watch.view())

    def _elapsed(self, step: Step) -> float | None:
        if step.seconds is not None or step.started_at is None:
            return step.seconds
        return self._clock.monotonic() - step.started_at

    def _json(self, step: Step, *, changed: bool) -> None:
        now = self._clock.monotonic()
        if changed or _announces(step) or now - self._json_at >= JSON_SECONDS:
            self._json_at = now
            left = estimate_object(self._eta(step)) if step.id == "follow" and not step.state.over else {}
            self._session.out.json_line({"type": "step", **step_object(step), **left})

    # --- phases ---------------------------------------------------------------------------------------

    def _phases(self, step: Step) -> None:
        if step.id != "follow":
            return
        watch = self._supervisor.find(self._name)
        for phase in watch.view().timeline.phases if watch is not None else ():
            if phase.state in _PHASE_WORDS and self._told.get(phase.id) is not phase.state:
                self._told[phase.id] = phase.state
                self._phase(phase)

    def _phase(self, phase: Phase) -> None:
        if self._session.as_json:
            self._session.out.json_line({"type": "phase", **phase_object(phase)})
            return
        if phase.id in _STEPS_OF_THEIR_OWN:
            return
        word = _PHASE_WORDS[phase.state]
        self._session.err.columns(
            _row(f"  {phase.label}", word, phase.seconds, phase.detail), word, "red" if word == "failed" else "dim"
        )


def _announces(step: Step) -> bool:
    """What is going to be fetched, before it comes."""
    return step.id == "fetch" and step.progress is None and bool(step.detail) and not step.state.over


def _text(step: Step, elapsed: float | None, left: str = "") -> str:
    if step.state is StepState.CANCELLED or (step.state is StepState.FAILED and step.id != "warm"):
        return _row(step.label, _WORDS[step.state][0], elapsed, "")  # an error follows, and says why
    if step.id == "follow" and step.state is StepState.DONE:
        return _row(step.label, "done", elapsed, "")  # what its phases have told
    percent = f"{step.progress:.0%} " if step.progress is not None else ""
    detail = "; ".join(part for part in ((percent + step.detail).strip(), left) if part)
    return _row(step.label, _WORDS[step.state][0], elapsed, detail)


def _row(label: str, word: str, seconds: float | None, detail: str) -> str:
    took = "" if seconds is None else human_duration(seconds)
    return f"{label:<17} {word:<8} {took:>6}  {detail}".rstrip()


def keeps_starting(engine: str, wait: str = "") -> Interrupted:
    """Ctrl-C while an engine boots: it goes on. `wait` is the command that waits for it again, if there is one."""
    ways = [f"Follow its log:  spark-tui logs {engine} -f"]
    ways += [f"Wait for it:     {wait}"] if wait else []
    return Interrupted(f"{engine} keeps starting.", "\n".join([*ways, f"Stop it:         spark-tui down {engine}"]))


# --- around a launch ----------------------------------------------------------------------------------


async def narrated(session: Session, context: Context, name: str) -> EngineView:
    """Follows an engine that starts already until it serves, and tells its boot."""
    narrator = Narrator(session, context, name)

    def report(step: Step) -> None:
        if step.id in _RESUMED:
            narrator.step(step)

    return await ticking(narrator, context.launcher.resume(name, report))


async def ticking(narrator: Narrator, work: Awaitable[T]) -> T:
    """Runs `work` while the narrator's clock ticks."""
    ticks = asyncio.ensure_future(narrator.tick())
    try:
        return await work
    finally:
        ticks.cancel()


async def supervised(context: Context, work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` while the supervisor watches: without it nobody notices that a container has ended.

    A fault in the supervisor ends the work with that fault, rather than leave it waiting for ever.
    """
    try:
        await context.remember()
    except BaseException:
        work.close()
        raise
    watching = asyncio.ensure_future(context.supervisor.run())
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait((watching, working), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            watching.result()
        return await working
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
