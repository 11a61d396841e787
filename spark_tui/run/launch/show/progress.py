"""Progress of a launch: one line per step and boot phase, or one JSON object per change.

On a terminal the line of the running step is overwritten; in a pipe a long step is announced, and then shown every
tenth of its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from spark_tui.base.context import Context
from spark_tui.base.jobs import Report, Step, StepState
from spark_tui.base.under_way import UnderWay, disturbed
from spark_tui.cli.output import STYLES, Interrupted
from spark_tui.cli.session import Session, confirm
from spark_tui.observe.engines.show import engines
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.starts import UNKNOWN, Eta, EtaBasis, eta_text
from spark_tui.observe.explain.model.timeline import PhaseState
from spark_tui.observe.metrics.use.history import History, supervised

T = TypeVar("T")

TICK_SECONDS: Final = 1.0
JSON_SECONDS: Final = 0.5
"""How often progress alone is written at most; every change of state is."""
_ANNOUNCED: Final = ("fetch", "pull", "follow", "warm", "docker")
"""Long steps."""
_MEASURED: Final = ("fetch", "pull")
"""Steps that know how far they are."""
RESUMED: Final = ("follow", "ready", "warm", "docker")
"""Steps of an engine that starts already."""


class LaunchProgress:
    """Prints every change of a step, and the boot phases of the engine `name` as they end. `states` receives the last
    state of every step, whatever ends the launch."""

    def __init__(
        self, session: Session, context: Context, name: str, states: dict[str, StepState] | None = None
    ) -> None:
        self._session = session
        self._clock = context.clock
        self._supervisor = context[EngineSupervisor]
        self._history = context[History]
        self._name = name
        self._states = {} if states is None else states
        self._current: Step | None = None
        self._phases: dict[str, PhaseState] = {}
        self._tenth = 0
        self._estimated = False
        self._json_at = float("-inf")

    def step(self, step: Step) -> None:
        """Prints one change."""
        changed = self._states.get(step.id) is not step.state
        self._states[step.id] = step.state
        if step.state.over:
            self._print_phases(step)
        # What is going to be fetched, before it comes.
        announced = step.id == "fetch" and step.progress is None and bool(step.detail) and not step.state.over
        if self._session.as_json:
            now = self._clock.monotonic()
            if changed or announced or now - self._json_at >= JSON_SECONDS:
                self._json_at = now
                left = engines.estimate_object(self._eta(step)) if step.id == "follow" and not step.state.over else {}
                self._session.out.json_line({"type": "step", **engines.step_object(step), **left})
        elif step.state.over:
            self._current = None
            self._session.err.settle()
            self._print(step)
        else:
            self._running(step, changed=changed, announced=announced)
        if not step.state.over:
            self._print_phases(step)

    async def tick(self) -> None:
        """Keeps the elapsed time of the running step moving on a terminal."""
        while self._session.err.interactive:
            await self._clock.sleep(TICK_SECONDS)
            if self._current is not None:
                self._overwrite(self._current)

    def _running(self, step: Step, *, changed: bool, announced: bool) -> None:
        self._current = step
        tenth = int(step.progress * 10) if step.progress is not None else 0
        if self._session.err.interactive:
            self._overwrite(step)
        elif changed and step.id in _ANNOUNCED:
            self._tenth = 0
            self._print(step)
        elif (step.id in _MEASURED and tenth > self._tenth) or announced:
            self._tenth = max(tenth, self._tenth)
            self._print(step)
        elif step.id == "follow" and not self._estimated:
            found = self._eta(step)
            if found.basis is EtaBasis.HISTORY:
                self._estimated = True
                self._session.err.say(engines.progress_line("", "", None, eta_text(found)))

    def _overwrite(self, step: Step) -> None:
        self._session.err.standing(engines.step_line(step, self._elapsed(step), eta_text(self._eta(step))))

    def _print(self, step: Step) -> None:
        word, tone = engines.STEP_WORDS[step.state]
        left = "" if step.state.over else eta_text(self._eta(step))
        self._estimated = self._estimated or bool(left)
        elapsed = self._elapsed(step) if step.state.over or step.id in _MEASURED else None
        self._session.err.columns(engines.step_line(step, elapsed, left), word, STYLES[tone])

    def _eta(self, step: Step) -> Eta:
        """How long the boot will still take, by earlier starts or its own progress."""
        watch = self._supervisor.find(self._name) if step.id == "follow" else None
        return UNKNOWN if watch is None else self._history.eta(watch.view())

    def _elapsed(self, step: Step) -> float | None:
        if step.seconds is not None or step.started_at is None:
            return step.seconds
        return self._clock.monotonic() - step.started_at

    def _print_phases(self, step: Step) -> None:
        watch = self._supervisor.find(self._name) if step.id == "follow" else None
        for phase in watch.view().timeline.phases if watch is not None else ():
            over = phase.state in (PhaseState.DONE, PhaseState.FAILED)
            if not over or self._phases.get(phase.id) is phase.state:
                continue
            self._phases[phase.id] = phase.state
            if self._session.as_json:
                self._session.out.json_line({"type": "phase", **engines.phase_object(phase)})
            elif phase.id.value not in RESUMED:  # those have steps of their own
                failed = phase.state is PhaseState.FAILED
                self._session.err.columns(engines.phase_line(phase), phase.state.value, "red" if failed else "dim")


def keeps_starting(engine: str, wait: str = "") -> Interrupted:
    """Ctrl-C while an engine boots, which continues. `wait` is the command that waits for it again, if there is one."""
    ways = [f"Follow its log:  spark-tui logs {engine} -f"]
    ways += [f"Wait for it:     {wait}"] if wait else []
    return Interrupted(f"{engine} keeps starting.", "\n".join([*ways, f"Stop it:         spark-tui down {engine}"]))


async def followed(
    session: Session,
    context: Context,
    name: str,
    work: Callable[[Report], Coroutine[Any, Any, T]],
    states: dict[str, StepState] | None = None,
) -> T:
    """Runs a start or a change of an engine on this machine, watches it, and prints its progress; `states` as
    LaunchProgress takes them."""
    progress = LaunchProgress(session, context, name, states)
    return await supervised(context, shown(progress, work(progress.step)))


async def shown(progress: LaunchProgress, work: Awaitable[T]) -> T:
    """Runs `work` while the elapsed time is shown."""
    ticks = asyncio.ensure_future(progress.tick())
    try:
        return await work
    finally:
        ticks.cancel()


def may(session: Session, then: str, name: str, *, yes: bool) -> bool:
    """Whether `then` (`Launch`, `Stop` ...) may be done with that engine: asks while spark-tui does something on this
    machine that it would disturb. Raises RefusedError without a terminal."""

    async def look(context: Context) -> tuple[UnderWay, ...]:
        return disturbed(then, name, (), context.ports.get("state"))

    works = () if yes else session.run(look, changes=True)
    return not works or confirm(session, f"{then} {name} during the {works[0].what}?", yes=False)
