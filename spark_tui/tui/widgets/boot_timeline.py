"""A start as its log tells it: a list of phases while it loads, one line when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from textual.content import Content
from textual.events import Hide, Resize, Show
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.timer import Timer
from textual.visual import Visual
from textual.widget import Widget

from spark_tui.domain.logs.eta import PastStart, eta, eta_text
from spark_tui.domain.logs.timeline import BootTimeline, Phase, PhaseId, PhaseState
from spark_tui.domain.quantities import human_duration
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import is_seen, packed

if TYPE_CHECKING:
    from spark_tui.services.ports import Clock


INDENT_CELLS = 11
LABEL_CELLS = 14
TIME_CELLS = 8
BAR_CELLS = 30
MAX_REASON_LINES = 3
SHORT_SCREEN = 30
"""On a terminal with fewer rows, what is still to come stands on one line."""

ESTIMATE_SECONDS = 5.0
"""The words about what is left change at most so often, but for a new phase: over SSH every change is a write."""

WORTH_SECONDS = 0.5
"""Shorter phases are left out of the one line."""


class BootWords:
    """Both shapes of one start. The words about what is left stand still for some seconds, so one object per start
    that is shown."""

    def __init__(self, clock: Clock, glyphs: Glyphs, fold_lines: int) -> None:
        self._clock = clock
        self._glyphs = glyphs
        self._fold_lines = fold_lines
        self._estimate = _Estimate(clock)

    # --- one line -------------------------------------------------------------------------------------

    def fold(self, timeline: BootTimeline, width: int) -> list[Content]:
        """The phases that took time, in order; where they do not all fit, the longest ones and the one that counts."""
        phases = [phase for phase in timeline.phases if _worth(phase)]
        if not phases:
            return []
        gaps = Content.styled(f" {self._glyphs.separator} ", "$rule")
        kept = list(phases)
        while True:
            parts = [self._short(phase) for phase in kept]
            if len(kept) < len(phases):
                parts.append(Content.styled(self._glyphs.ellipsis, "$dim"))
            lines = self._laid_out(timeline, parts, gaps, width)
            droppable = [phase for phase in kept if phase.state is PhaseState.DONE]
            if not droppable or (len(lines) <= self._fold_lines and all(line.cell_length <= width for line in lines)):
                break
            kept.remove(min(droppable, key=lambda phase: phase.seconds or 0.0))
        if timeline.failure is not None:
            lines[-1] = Content.assemble(lines[-1], "  ", self._why(timeline))
        return [line.truncate(width, ellipsis=True) for line in lines[: self._fold_lines]]

    def _laid_out(self, timeline: BootTimeline, parts: list[Content], gaps: Content, width: int) -> list[Content]:
        """On one line behind how long it took, or on several beside their label."""
        if self._fold_lines > 1:
            lines = packed(parts, gaps, max(8, width - INDENT_CELLS))
            labels = (Content.styled(f"{'boot':<{INDENT_CELLS}}", "$dim"), Content(" " * INDENT_CELLS))
            return [Content.assemble(labels[min(number, 1)], line) for number, line in enumerate(lines)]
        said = gaps.join(parts)
        if timeline.ready and timeline.seconds:
            return [Content.assemble(("started in ", "$dim"), human_duration(timeline.seconds), "  ", said)]
        return [Content.assemble(("boot  ", "$dim"), said)]

    def _short(self, phase: Phase) -> Content:
        seconds = self._seconds(phase)
        time = f" {human_duration(seconds)}" if seconds is not None else ""
        if phase.state is PhaseState.RUNNING:
            share = f" {phase.progress:.0%}" if phase.progress is not None else ""
            return Content.styled(f"{phase.short_label}{share}{time} ...", "bold $warning")
        if phase.state is PhaseState.FAILED:
            return Content.styled(f"{phase.short_label} FAILED{time}", "bold $error")
        return Content.assemble((phase.short_label, "$dim"), time)

    # --- the list -------------------------------------------------------------------------------------

    def phases(self, timeline: BootTimeline, width: int, past: Sequence[PastStart], *, rows: int) -> list[Content]:
        """Every phase that has run, runs or will run; below them what the log says, or why it failed.

        `past` are earlier starts like it, latest last; `rows` is the terminal's height.
        """
        pending = [phase for phase in timeline.phases if phase.state is PhaseState.PENDING]
        hidden = {PhaseState.SKIPPED}
        if timeline.failed is not None or rows < SHORT_SCREEN:
            hidden.add(PhaseState.PENDING)
        lines = [self._row(phase, width) for phase in timeline.phases if phase.state not in hidden]
        left = "" if timeline.ready or timeline.failure is not None else self._estimate.words(timeline, past)
        if timeline.failed is None and PhaseState.PENDING in hidden and pending:
            soon, left = (left, "") if past else ("", left)  # here the last lines may not be seen
            lines.append(self._then(pending, soon).truncate(width, ellipsis=True))
        if timeline.failure is not None:
            lines += [Content(""), *self._why(timeline).wrap(max(8, width))[:MAX_REASON_LINES]]
        elif not timeline.ready:
            if left or timeline.news:
                lines.append(Content(left).truncate(width, ellipsis=True))
            if timeline.news:
                lines.append(fmt.safe(timeline.news, "$dim").truncate(width, ellipsis=True))
        return lines

    def _then(self, pending: Sequence[Phase], left: str) -> Content:
        """What is still to come on one line, and when all of it will be over."""
        then = ", ".join(phase.short_label for phase in pending)
        sign = (f"{self._glyphs.pending} ", "$dim")
        return Content.assemble(sign, f"{left}; " if left else "", (f"then {then}", "$dim"))

    def _why(self, timeline: BootTimeline) -> Content:
        failure = timeline.failure
        if failure is None:
            return Content("")
        return fmt.safe(f"{'probably: ' if failure.guess else ''}{failure.line}", "$error")

    def _row(self, phase: Phase, width: int) -> Content:
        sign, style = {
            PhaseState.DONE: (self._glyphs.done, "$success"),
            PhaseState.RUNNING: (self._glyphs.running, "bold $warning"),
            PhaseState.FAILED: (self._glyphs.failed, "bold $error"),
        }.get(phase.state, (self._glyphs.pending, "$dim"))
        label_style = {PhaseState.DONE: "", PhaseState.PENDING: "$dim"}.get(phase.state, style)
        seconds = self._seconds(phase)
        time = human_duration(seconds) if seconds is not None else ""
        line = Content.assemble(
            (f"{sign} ", style), (f"{phase.label:<{LABEL_CELLS}}", label_style), (f"{time:>{TIME_CELLS}}  ", "$dim")
        )
        if phase.state is PhaseState.FAILED:
            line = Content.assemble(line, ("FAILED  ", "bold $error"))
        if phase.progress is not None and phase.state is PhaseState.RUNNING:
            line = Content.assemble(line, self._bar(phase.progress, width), "  ")
        return Content.assemble(line, fmt.safe(phase.detail, "$dim")).truncate(width, ellipsis=True)

    def _bar(self, progress: float, width: int) -> Content:
        cells = max(6, min(BAR_CELLS, width - LABEL_CELLS - TIME_CELLS - 30))
        full = round(max(0.0, min(progress, 1.0)) * cells)
        return Content.assemble(
            (self._glyphs.full * full, "$primary"), (self._glyphs.empty * (cells - full), "$rule"), f" {progress:4.0%}"
        )

    def _seconds(self, phase: Phase) -> float | None:
        if phase.state is PhaseState.RUNNING and phase.started_at is not None:
            return max(0.0, self._clock.now() - phase.started_at)
        return phase.seconds


class _Estimate:
    """What is left in words, which stand still for some seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._about: tuple[PhaseId | None, float | None] | None = None
        self._said = ""
        self._at = 0.0

    def words(self, timeline: BootTimeline, past: Sequence[PastStart]) -> str:
        """Empty when nothing is known."""
        running, now = timeline.current, self._clock.now()
        about = (running.id if running else None, timeline.phases[0].started_at)
        if about != self._about or now - self._at >= ESTIMATE_SECONDS:
            self._about, self._at, self._said = about, now, eta_text(eta(timeline, now, past))
        return self._said


def _worth(phase: Phase) -> bool:
    if phase.state is PhaseState.DONE:
        return phase.seconds is not None and phase.seconds >= WORTH_SECONDS
    return phase.state in (PhaseState.RUNNING, PhaseState.FAILED)


class BootTimelineView(Widget):
    """Two shapes. The elapsed time of the running phase moves once a second, only while somebody looks, and only its
    own line is repainted."""

    DEFAULT_CSS = """
    BootTimelineView { height: auto; }
    """

    def __init__(self, clock: Clock, glyphs: Glyphs, *, fold_lines: int = 3, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._fold_lines = fold_lines
        self._clock = clock
        self._glyphs = glyphs
        self._timeline: BootTimeline | None = None
        self._folded = True
        self._lines: list[Content] = []
        self._timer: Timer | None = None
        self._past: Sequence[PastStart] = ()

    # --- life -----------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Ticks only when something runs and somebody looks."""
        self._timer = self.set_interval(1.0, self.renew, pause=True)
        self.app.screen_change_signal.subscribe(self, lambda _: self._look())

    def on_show(self, _: Show) -> None:
        """It is on screen."""
        self._look()

    def on_hide(self, _: Hide) -> None:
        """It is not."""
        self._look()

    def on_resize(self, _: Resize) -> None:
        """Another width may need other words."""
        self.renew()

    def show(self, timeline: BootTimeline, *, folded: bool, past: Sequence[PastStart] = ()) -> None:
        """Another timeline, or the same one moved on. `past` are earlier starts like it, latest last."""
        self._timeline, self._folded, self._past = timeline, folded, past
        self._look()

    def _look(self) -> None:
        runs = self._timeline is not None and self._timeline.current is not None
        if self._timer is not None:
            if runs and is_seen(self):
                self._timer.resume()
            else:
                self._timer.pause()
        self.renew()

    # --- paint ----------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Repaints the lines that differ."""
        old, self._lines = self._lines, self._say(self.size.width or 80)
        if len(old) != len(self._lines):
            self.refresh(layout=True)
            return
        for y, (was, now) in enumerate(zip(old, self._lines, strict=True)):
            if not was.is_same(now):
                self.refresh(Region(0, y, self.size.width, 1))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as there is to say."""
        return len(self._say(width)) if width else len(self._lines)

    def render_line(self, y: int) -> Strip:
        """One line."""
        width = self.size.width
        if y >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        strip = Visual.to_strips(self, self._lines[y], width, 1, self.visual_style)[0]
        return strip.extend_cell_length(width, self.rich_style)

    def say(self, width: int) -> Content:
        """What stands there at a width, newlines between lines."""
        return Content("\n").join(self._say(width))

    def _say(self, width: int) -> list[Content]:
        if self._timeline is None:
            return []
        if self._folded:
            return self._words.fold(self._timeline, width)
        return self._words.phases(self._timeline, width, self._past, rows=self.app.size.height)

    @cached_property
    def _words(self) -> BootWords:

        return BootWords(self._clock, self._glyphs, self._fold_lines)
