"""A start by its log: a list of phases while it loads, one line when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.content import Content
from textual.events import Resize
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.timer import Timer

from spark_tui.base.ports import Clock
from spark_tui.base.quantities import human_duration
from spark_tui.base.text import cells_left
from spark_tui.observe.explain.model.starts import StartRecord, eta, eta_text, usual_phases
from spark_tui.observe.explain.model.timeline import BootTimeline, Phase, PhaseId, PhaseState
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import VisibilityWidget, packed, strip_of

INDENT_CELLS = 11
LABEL_CELLS = 14
TIME_CELLS = 7
SLOWER = 1.3
"""A phase that took longer than before by this factor is marked."""
BAR_CELLS = 30
BAR_INDENT = 9
BAR_STYLES = ("$foreground on $cursor-row", "$foreground on $rule")
SHARE_LOOKS = (("engine", "$primary"), ("apps", "$accent"))
"""Glyph and colour of the phases in a bar, in turn."""
MAX_REASON_LINES = 3
SHORT_SCREEN = 30
"""On a terminal with fewer rows, pending phases share one line."""
ESTIMATE_SECONDS = 5.0
"""The estimate's text changes at most this often within a phase: over SSH every change is a write."""
WORTH_SECONDS = 0.5
"""Shorter phases are left out of the one line."""


class BootTimelineView(VisibilityWidget):
    """Three shapes: a list, `folded` lines, and as a `bar` one line of the phases by their
    share. The elapsed time of the running phase moves once a second, only while it is
    seen, and only its own line is repainted. `fold_lines`: how many lines the folded one may take."""

    DEFAULT_CSS = """
    BootTimelineView { height: auto; }
    """

    def __init__(
        self,
        clock: Clock,
        glyphs: Glyphs,
        *,
        fold_lines: int = 3,
        bar: bool = False,
        id: str | None = None,  # noqa: A002 - Textual's name
    ) -> None:
        super().__init__(id=id)
        self._bar = bar
        self._fold_lines = fold_lines
        self._clock = clock
        self._glyphs = glyphs
        self._timeline: BootTimeline | None = None
        self._folded = True
        self._lines: list[Content] = []
        self._timer: Timer | None = None
        self._past: Sequence[StartRecord] = ()
        self._estimate: tuple[object, float, str] = (None, 0.0, "")
        """What the estimate's text is about, when it was made, and the text."""

    def on_mount(self) -> None:
        self._timer = self.set_interval(1.0, self.renew, pause=True)

    def on_resize(self, _: Resize) -> None:
        self.renew()

    def show(self, timeline: BootTimeline, *, folded: bool, past: Sequence[StartRecord] = ()) -> None:
        """Another timeline, or the same one with news. `past` are earlier starts like it, latest last."""
        self._timeline, self._folded, self._past = timeline, folded, past
        self.visibility_changed(self._timer is not None and self.seen)

    def visibility_changed(self, seen: bool) -> None:
        """Ticks only while a phase runs."""
        if self._timer is not None:
            if seen and self._timeline is not None and self._timeline.current is not None:
                self._timer.resume()
            else:
                self._timer.pause()
        self.renew()

    # --- paint ----------------------------------------------------------------------------------------

    def renew(self) -> None:
        old, self._lines = self._lines, self.lines(self.size.width or 80)
        if len(old) != len(self._lines):
            self.refresh(layout=True)
            return
        for y, (was, now) in enumerate(zip(old, self._lines, strict=True)):
            if not was.is_same(now):
                self.refresh(Region(0, y, self.size.width, 1))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.lines(width)) if width else len(self._lines)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        return strip_of(self, self._lines[y], width).extend_cell_length(width, self.rich_style)

    def lines(self, width: int) -> list[Content]:
        if self._timeline is None:
            return []
        return self._fold(self._timeline, width) if self._folded else self._list(self._timeline, width)

    # --- one line -------------------------------------------------------------------------------------

    def _fold(self, timeline: BootTimeline, width: int) -> list[Content]:
        """The phases that took time, in order; where there is no room for all, the longest ones and the present one."""
        phases = [
            phase
            for phase in timeline.phases
            if phase.state in (PhaseState.RUNNING, PhaseState.FAILED)
            or (phase.state is PhaseState.DONE and phase.seconds is not None and phase.seconds >= WORTH_SECONDS)
        ]
        if not phases:
            return []
        if self._bar and timeline.ready and timeline.seconds:
            return [self._segments(timeline.seconds, phases, width)]
        kept = list(phases)
        while True:
            parts = [self._short(phase) for phase in kept]
            if len(kept) < len(phases):
                parts.append(Content.styled(self._glyphs.ellipsis, "$dim"))
            lines = self._laid_out(timeline, parts, width)
            droppable = [phase for phase in kept if phase.state is PhaseState.DONE]
            if not droppable or (len(lines) <= self._fold_lines and all(line.cell_length <= width for line in lines)):
                break
            kept.remove(min(droppable, key=lambda phase: phase.seconds or 0.0))
        if timeline.failure is not None:
            lines[-1] = Content.assemble(lines[-1], "  ", self._reason(timeline))
        return [line.truncate(width, ellipsis=True) for line in lines[: self._fold_lines]]

    def _segments(self, seconds: float, phases: Sequence[Phase], width: int) -> Content:
        """`boot 8m07s  weights 3m19s      compile 1m56s  ...`: each phase as wide as its share of the time."""
        head = Content.assemble((f"{'boot':<{BAR_INDENT}}", "$dim"), f"{human_duration(seconds)} ")
        room, total = cells_left(width, head.cell_length), sum(phase.seconds or 0.0 for phase in phases) or 1.0
        parts, used, spent = [head], 0, 0.0
        for number, phase in enumerate(phases):
            spent += phase.seconds or 0.0
            end = round(spent / total * room)
            cells, used = cells_left(end, used), end
            words = (f" {phase.short_label} {self._took(phase)}", f" {phase.short_label}", "")
            text = next(word for word in words if len(word) < cells or not word)
            parts.append(Content.styled(f"{text:<{cells}}"[:cells], BAR_STYLES[number % 2]))
        return Content.assemble(*parts)

    def _laid_out(self, timeline: BootTimeline, parts: list[Content], width: int) -> list[Content]:
        """On one line behind how long it took, or on several beside their label."""
        gaps = Content.styled(f" {self._glyphs.separator} ", "$rule")
        if self._fold_lines > 1:
            lines = packed(parts, gaps, max(8, width - INDENT_CELLS))
            labels = (Content.styled(f"{'boot':<{INDENT_CELLS}}", "$dim"), Content(" " * INDENT_CELLS))
            return [Content.assemble(labels[min(number, 1)], line) for number, line in enumerate(lines)]
        if timeline.ready and timeline.seconds:
            took = human_duration(timeline.seconds)
            return [Content.assemble(("started in ", "$dim"), took, "  ", gaps.join(parts))]
        return [Content.assemble(("boot  ", "$dim"), gaps.join(parts))]

    def _short(self, phase: Phase) -> Content:
        time = f" {took}" if (took := self._took(phase)) else ""
        if phase.state is PhaseState.RUNNING:
            share = f" {phase.progress:.0%}" if phase.progress is not None else ""
            return Content.styled(f"{phase.short_label}{share}{time} ...", "bold $warning")
        if phase.state is PhaseState.FAILED:
            return Content.styled(f"{phase.short_label} FAILED{time}", "bold $error")
        return Content.assemble((phase.short_label, "$dim"), time)

    # --- the list -------------------------------------------------------------------------------------

    def _list(self, timeline: BootTimeline, width: int) -> list[Content]:
        """Every phase but those skipped; below them the latest news of the log, or why it failed."""
        pending = [phase for phase in timeline.phases if phase.state is PhaseState.PENDING]
        hidden = {PhaseState.SKIPPED}
        if timeline.failed is not None or self.app.size.height < SHORT_SCREEN:
            hidden.add(PhaseState.PENDING)
        if self._bar and self.app.size.height >= SHORT_SCREEN and timeline.failed is None:
            lines, hidden = self._packed(timeline, width), set()
        else:
            lines = [self._row(phase, width) for phase in timeline.phases if phase.state not in hidden]
        left = "" if timeline.ready or timeline.failure is not None else self._left(timeline)
        if timeline.failed is None and PhaseState.PENDING in hidden and pending:
            soon, left = (left, "") if self._past else ("", left)  # on a short screen the last lines may be cut off
            then = (f"then {', '.join(phase.short_label for phase in pending)}", "$dim")
            row = Content.assemble((f"{self._glyphs.pending} ", "$dim"), f"{soon}; " if soon else "", then)
            lines.append(row.truncate(width, ellipsis=True))
        if timeline.failure is not None:
            lines += [Content(""), *self._reason(timeline).wrap(max(8, width))[:MAX_REASON_LINES]]
        elif not timeline.ready:
            if left or (timeline.news and not self._bar):
                lines.append(Content(left).truncate(width, ellipsis=True))
            if timeline.news and not self._bar:
                lines.append(fmt.safe(timeline.news, "$dim").truncate(width, ellipsis=True))
        return lines

    def _packed(self, timeline: BootTimeline, width: int) -> list[Content]:
        """All phases with their time now and in earlier starts, as many on a line as fit; below them their shares of
        the time as a bar, and the running one."""
        usual = usual_phases(timeline, self._past)
        phases = [
            phase
            for phase in timeline.phases
            if phase.state is not PhaseState.SKIPPED and phase.id not in (PhaseId.READY, PhaseId.WARM)
        ]
        if not usual and all(phase.state is PhaseState.PENDING for phase in phases):
            return []  # the steps of the launch say that it is to come
        gap = Content.styled(f" {self._glyphs.separator} ", "$rule")
        lines = packed([self._cell(phase, usual) for phase in phases], gap, width)
        if bar := self._shares(phases, usual, width):
            lines.append(bar)
        running = timeline.current
        if running is not None and (running.progress is not None or running.detail):
            lines.append(self._row(running, width))
        return lines

    def _cell(self, phase: Phase, usual: Mapping[PhaseId, float]) -> Content:
        """`✓ Weights 3m19s (before 3m02s)`; a phase that took much longer than before is marked."""
        sign, style, label_style = self._signs(phase)
        now, before = phase.seconds, usual.get(phase.id) or 0.0
        slow = now is not None and before and now > SLOWER * before and now - before > 2.0
        took = self._took(phase)
        return Content.assemble(
            (f"{sign} ", style),
            (phase.label, label_style),
            (f" {took}" if took else "", "bold $warning" if slow else ""),
            (f" (before {human_duration(before)})" if before >= WORTH_SECONDS else "", "$dim"),
        )

    def _shares(self, phases: Sequence[Phase], usual: Mapping[PhaseId, float], width: int) -> Content:
        """Each phase as wide as its share of the whole start, as far as that is known: filled for the time that has
        passed, light for what earlier starts or the progress let expect. Empty before there is anything to divide."""
        spans: list[tuple[float, float]] = []
        for phase in phases:
            spent = phase.seconds or 0.0
            if phase.state is PhaseState.RUNNING and phase.started_at is not None:
                spent = max(0.0, self._clock.now() - phase.started_at)
            expected = usual.get(phase.id, 0.0) if phase.state in (PhaseState.RUNNING, PhaseState.PENDING) else 0.0
            if phase.state is PhaseState.RUNNING and phase.progress and not expected:
                expected = spent / phase.progress
            spans.append((spent, max(spent, expected)))
        whole = sum(span for _, span in spans)
        if whole < WORTH_SECONDS:
            return Content("")
        parts: list[tuple[str, str]] = []
        at, used = 0.0, 0
        for number, (spent, span) in enumerate(spans):
            full, end = round((at + spent) / whole * width), round((at + span) / whole * width)
            glyph, style = SHARE_LOOKS[number % 2]
            parts += [
                (getattr(self._glyphs, glyph) * cells_left(full, used), style),
                (self._glyphs.cache * cells_left(end, full), "$dim"),
            ]
            at, used = at + span, end
        return Content.assemble(*parts)

    def _signs(self, phase: Phase) -> tuple[str, str, str]:
        """Sign, its style, and the label's."""
        return {
            PhaseState.DONE: (self._glyphs.done, "$success", ""),
            PhaseState.RUNNING: (self._glyphs.running, "bold $warning", "bold $warning"),
            PhaseState.FAILED: (self._glyphs.failed, "bold $error", "bold $error"),
        }.get(phase.state, (self._glyphs.pending, "$dim", "$dim"))

    def _reason(self, timeline: BootTimeline) -> Content:
        failure = timeline.failure
        return fmt.safe(f"{'probably: ' if failure.guess else ''}{failure.line}", "$error") if failure else Content("")

    def _left(self, timeline: BootTimeline) -> str:
        """How long it will still take; the same text for some seconds, empty when unknown."""
        running, now = timeline.current, self._clock.now()
        about = (running.id if running else None, timeline.phases[0].started_at)
        before, at, _ = self._estimate
        if about != before or now - at >= ESTIMATE_SECONDS:
            self._estimate = (about, now, eta_text(eta(timeline, now, self._past)))
        return self._estimate[2]

    def _row(self, phase: Phase, width: int) -> Content:
        sign, style, label_style = self._signs(phase)
        label, time = f"{phase.label:<{LABEL_CELLS}}", f"{self._took(phase):>{TIME_CELLS}}  "
        line = Content.assemble((f"{sign} ", style), (label, label_style), (time, "$dim"))
        if phase.state is PhaseState.FAILED:
            line = Content.assemble(line, ("FAILED  ", "bold $error"))
        if phase.progress is not None and phase.state is PhaseState.RUNNING:
            cells = max(6, min(BAR_CELLS, width - LABEL_CELLS - TIME_CELLS - 30))
            full = round(max(0.0, min(phase.progress, 1.0)) * cells)
            bar = (self._glyphs.full * full, "$primary"), (self._glyphs.empty * (cells - full), "$rule")
            line = Content.assemble(line, *bar, f" {phase.progress:4.0%}", "  ")
        return Content.assemble(line, fmt.safe(phase.detail, "$dim")).truncate(width, ellipsis=True)

    def _took(self, phase: Phase) -> str:
        if phase.state is PhaseState.RUNNING and phase.started_at is not None:
            return human_duration(max(0.0, self._clock.now() - phase.started_at))
        return "" if phase.seconds is None else human_duration(phase.seconds)
