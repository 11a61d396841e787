"""The phases of a start as they happen: which one runs, since when, and who gets the time between two markers."""

from __future__ import annotations

from dataclasses import dataclass

from spark_tui.domain.logs.timeline import Phase, PhaseId, PhaseState

_ORDER = tuple(PhaseId)


@dataclass(slots=True)
class _Slot:
    started: float | None = None
    seconds: float | None = None
    progress: float | None = None
    detail: str = ""
    done: bool = False
    proven: bool = False
    ruled_out: bool = False
    elsewhere: float = 0.0
    begun: float | None = None
    """When it last took over from a phase that waits for it."""
    measured: float = 0.0
    """Seconds of it that were measured so, and that its own word afterwards replaces."""
    left: float | None = None
    estimated_at: float | None = None


class PhaseRecorder:
    """One phase runs at a time, and time is never counted twice.

    A phase may be entered on suspicion (`proven=False`): it is the likely one after the last marker. When the next
    marker speaks for another phase, that one takes over the time, also when it comes earlier in the order. A proven
    phase is never left backwards: a slower rank's lines do not turn the clock back. Once it is ready nothing begins
    again.
    """

    def __init__(self) -> None:
        self._slots = {phase_id: _Slot() for phase_id in _ORDER}
        self._current: PhaseId | None = None
        self._held: PhaseId | None = None
        self._failed = self._stopped = False
        self.now: float | None = None
        """The time of the latest line that had one, in seconds."""

    @property
    def current(self) -> PhaseId | None:
        """The phase that runs."""
        return self._current

    @property
    def over(self) -> bool:
        """It has failed or was stopped: no marker counts any more."""
        return self._failed or self._stopped

    def tick(self, at: float | None) -> None:
        """Takes the time of a line; order between stdout and stderr is only approximate, so it never goes back."""
        if at is not None and (self.now is None or at > self.now):
            self.now = at

    def enter(self, phase_id: PhaseId, *, proven: bool = True) -> None:
        """A marker says that this phase runs now."""
        if phase_id is not self._current:
            self.release()
        slot = self._slots[phase_id]
        if self.over or self._slots[PhaseId.READY].done or phase_id is self._current:
            slot.proven = slot.proven or (proven and not self.over)
            return
        started = self.now
        if self._current is not None:
            running = self._slots[self._current]
            backwards = _ORDER.index(phase_id) < _ORDER.index(self._current)
            if running.proven and (backwards or (slot.done and not proven)):
                return
            if running.proven:
                self._close(self._current)
            else:
                started = running.started
                self._slots[self._current] = _Slot(ruled_out=running.ruled_out)
        if slot.started is None:
            slot.started = started
        slot.done, slot.seconds, slot.proven, slot.ruled_out = False, None, proven, False
        self._current = phase_id

    def finish(self, phase_id: PhaseId, then: PhaseId, detail: str = "", *, proven: bool = False) -> None:
        """A marker says that this phase has ended; `then` is the likely next one, or the certain one (`proven`)."""
        self.enter(phase_id)
        if self._current is phase_id:
            self._slots[phase_id].detail = detail
            self.enter(then, proven=False)
        if proven and self._current is then:
            self._slots[then].proven = True

    def report(
        self, phase_id: PhaseId, *, detail: str | None = None, progress: float | None = None, left: float | None = None
    ) -> None:
        """How far the running phase is; `left` is what its own bar or rate says it still takes, in seconds."""
        if self._current is phase_id:
            slot = self._slots[phase_id]
            slot.progress, slot.left = progress, left
            slot.estimated_at = None if left is None else self.now
            slot.detail = slot.detail if detail is None else detail

    def describe(self, phase_id: PhaseId, detail: str) -> None:
        """Another word on a phase that has been, when a later line knows better."""
        if not self.over:
            self._slots[phase_id].detail = detail

    def hold(self, phase_id: PhaseId) -> None:
        """The running phase waits for an earlier one: weights for their download. The time is the other one's."""
        if self.over or self._held is not None or self._current in (None, phase_id):
            return
        slot = self._slots[phase_id]
        slot.started = slot.started if slot.started is not None else self.now
        slot.begun, slot.done, slot.proven, slot.ruled_out = self.now, False, True, False
        self._held, self._current = self._current, phase_id

    def release(self) -> None:
        """What the held phase waited for is over; nothing when none is held."""
        if self._held is None or self._current is None:
            return
        slot = self._slots[self._current]
        took = max(0.0, self.now - slot.begun) if self.now is not None and slot.begun is not None else 0.0
        slot.measured += took
        slot.seconds = (slot.seconds or 0.0) + took
        slot.done, slot.progress, slot.left, slot.estimated_at = True, None, None, None
        self._slots[self._held].elsewhere += took
        self._current, self._held = self._held, None

    def rule_out(self, *phase_ids: PhaseId) -> None:
        """These phases will not happen."""
        for phase_id in phase_ids:
            self._slots[phase_id].ruled_out = True

    def note_past(self, phase_id: PhaseId, seconds: float, within: PhaseId) -> None:
        """A phase was silent while it ran: it took `seconds` of the time counted for `within` so far. Its own word
        counts, not what was measured from outside meanwhile."""
        slot = self._slots[phase_id]
        seconds -= slot.measured
        slot.seconds, slot.measured = (slot.seconds or 0.0) + seconds, 0.0
        slot.done = slot.proven = True
        if slot.started is None and self.now is not None:
            slot.started = self.now - seconds
        self._slots[within].elsewhere += seconds

    def mark(self, phase_id: PhaseId, seconds: float | None = None) -> None:
        """The phase is done, an instant rather than a span unless `seconds` says otherwise."""
        self.release()
        if self._current is not None and self._current is not phase_id:
            self._close(self._current)
        slot = self._slots[phase_id]
        slot.started = slot.started if slot.started is not None else self.now
        slot.seconds, slot.done, slot.proven = seconds, True, True
        self._current = None

    def fail(self) -> None:
        """The running phase has failed."""
        self._end()
        self._failed = True

    def stop(self) -> None:
        """Somebody stopped it."""
        self._end()
        self._stopped = True

    def since_start(self, phase_id: PhaseId) -> float | None:
        """Seconds from the first phase's start to this one's."""
        first = next((s.started for s in self._slots.values() if s.started is not None), None)
        end = self._slots[phase_id].started
        return None if first is None or end is None else round(end - first, 3)

    def begin_at(self, at: float) -> None:
        """The container started at `at`, before its first line."""
        slot = self._slots[PhaseId.CONTAINER]
        if slot.started is None or at < slot.started:
            slot.started = at

    def phases(self, *, real_clock: bool) -> tuple[Phase, ...]:
        """The phases as values; without a real clock there are durations but no times."""
        reached = self._reached()
        return tuple(
            Phase(
                phase_id,
                self._state(phase_id, slot, index < reached),
                self._shown_start(phase_id, slot) if real_clock else None,
                None if slot.seconds is None else round(slot.seconds, 3),
                slot.progress,
                slot.detail,
                slot.left,
                slot.estimated_at if real_clock else None,
            )
            for index, (phase_id, slot) in enumerate(self._slots.items())
        )

    def _shown_start(self, phase_id: PhaseId, slot: _Slot) -> float | None:
        """Of the running phase, so that what it spent waiting for others does not count as its own time."""
        if slot.started is None or phase_id is not self._current or phase_id is PhaseId.DOWNLOAD:
            return slot.started
        return slot.started + slot.elsewhere

    def _reached(self) -> int:
        """Index of the latest phase that is certain: what stands before it and never ran was skipped."""
        proven = [index for index, slot in enumerate(self._slots.values()) if slot.proven]
        return max(proven, default=0)

    def _state(self, phase_id: PhaseId, slot: _Slot, passed: bool) -> PhaseState:
        if phase_id is self._current:
            if self._failed:
                return PhaseState.FAILED
            return PhaseState.SKIPPED if self._stopped else PhaseState.RUNNING
        if slot.done:
            return PhaseState.DONE
        return PhaseState.SKIPPED if passed or slot.ruled_out else PhaseState.PENDING

    def _close(self, phase_id: PhaseId) -> None:
        slot = self._slots[phase_id]
        slot.done, slot.progress, slot.left, slot.estimated_at = True, None, None, None
        if slot.started is not None and self.now is not None:
            slot.seconds = max(0.0, self.now - slot.started - slot.elsewhere)

    def _end(self) -> None:
        self._held = None
        if self._current is not None:
            detail, progress = self._slots[self._current].detail, self._slots[self._current].progress
            self._close(self._current)
            slot = self._slots[self._current]
            slot.done, slot.detail, slot.progress = False, detail, progress
