"""A start as its log tells it: a list of phases while it loads, one line when it is over."""

from __future__ import annotations

from textual.content import Content
from textual.timer import Timer

from spark_tui.domain.engine.timeline import BootTimeline, Phase, PhaseState
from spark_tui.domain.quantities import human_duration
from spark_tui.services.ports import Clock
from spark_tui.tui import format as fmt
from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.line import Line, hanging

LABEL_CELLS = 14
TIME_CELLS = 8
BAR_CELLS = 30


class BootTimelineView(Line):
    """Two shapes. The elapsed time of the running phase moves once a second, and only while it is on screen."""

    def __init__(self, clock: Clock, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._clock = clock
        self._glyphs = glyphs
        self._timeline: BootTimeline | None = None
        self._folded = True
        self._timer: Timer | None = None

    def on_mount(self) -> None:
        """Ticks only when something runs."""
        self._timer = self.set_interval(1.0, self._tick, pause=True)

    def show(self, timeline: BootTimeline, *, folded: bool) -> None:
        """Another timeline, or the same one moved on."""
        self._timeline, self._folded = timeline, folded
        if self._timer is not None:
            if timeline.current is not None:
                self._timer.resume()
            else:
                self._timer.pause()
        self.renew()

    def _tick(self) -> None:
        if self.screen.is_current:
            self.renew()

    def say(self, width: int) -> Content:
        """The phases."""
        if self._timeline is None:
            return Content("")
        return self._fold(self._timeline, width) if self._folded else self._list(self._timeline, width)

    # --- one line -------------------------------------------------------------------------------------

    def _fold(self, timeline: BootTimeline, width: int) -> Content:
        parts: list[Content] = []
        for phase in timeline.phases:
            if phase.state in (PhaseState.PENDING, PhaseState.SKIPPED):
                continue
            if phase.state is PhaseState.DONE and (phase.seconds is None or phase.seconds < 0.5):
                continue
            parts.append(self._short(phase))
        if not parts:
            return Content("")
        separator = Content.styled(f" {self._glyphs.separator} ", "$rule")
        lines = hanging(Content.styled("boot", "$dim"), separator.join(parts), 10, width)
        return Content("\n").join(lines[:3])

    def _short(self, phase: Phase) -> Content:
        seconds = self._seconds(phase)
        time = f" {human_duration(seconds)}" if seconds is not None else ""
        if phase.state is PhaseState.RUNNING:
            return Content.styled(f"{phase.short_label}{time} ...", "bold $warning")
        if phase.state is PhaseState.FAILED:
            return Content.styled(f"{phase.short_label} FAILED{time}", "bold $error")
        return Content.assemble((phase.short_label, "$dim"), time)

    # --- the list -------------------------------------------------------------------------------------

    def _list(self, timeline: BootTimeline, width: int) -> Content:
        lines = [self._row(phase, width) for phase in timeline.phases if phase.state is not PhaseState.SKIPPED]
        if timeline.telling:
            lines += [Content(""), fmt.safe(timeline.telling, "$dim").truncate(width, ellipsis=True)]
        return Content("\n").join(lines)

    def _row(self, phase: Phase, width: int) -> Content:
        sign, style = {
            PhaseState.DONE: (self._glyphs.done, "$success"),
            PhaseState.RUNNING: (self._glyphs.running, "bold $warning"),
            PhaseState.FAILED: (self._glyphs.failed, "bold $error"),
        }.get(phase.state, (self._glyphs.pending, "$dim"))
        seconds = self._seconds(phase)
        time = human_duration(seconds) if seconds is not None else ""
        quiet = phase.state is PhaseState.PENDING
        line = Content.assemble(
            (f"{sign} ", style),
            (f"{phase.label:<{LABEL_CELLS}}", "$dim" if quiet else style if phase.state is not PhaseState.DONE else ""),
            (f"{time:>{TIME_CELLS}}  ", "$dim"),
        )
        if phase.progress is not None and phase.state is PhaseState.RUNNING:
            line = Content.assemble(line, self._bar(phase.progress, width), "  ")
        return Content.assemble(line, fmt.safe(phase.detail, "$dim")).truncate(width, ellipsis=True)

    def _bar(self, progress: float, width: int) -> Content:
        cells = max(8, min(BAR_CELLS, width - LABEL_CELLS - TIME_CELLS - 30))
        full = round(max(0.0, min(progress, 1.0)) * cells)
        return Content.assemble(
            (self._glyphs.full * full, "$primary"), (self._glyphs.empty * (cells - full), "$rule"), f" {progress:4.0%}"
        )

    def _seconds(self, phase: Phase) -> float | None:
        if phase.state is PhaseState.RUNNING and phase.started_at is not None:
            return max(0.0, self._clock.now() - phase.started_at)
        return phase.seconds
