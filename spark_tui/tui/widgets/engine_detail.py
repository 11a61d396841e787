"""What Home shows of one engine beside its pages: the steps of its launch, and the end of its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from spark_tui.core.jobs import StepState
from spark_tui.domain.quantities import human_duration
from spark_tui.present.engines import step_word
from spark_tui.present.page import Row, Section, Tone
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import Line
from spark_tui.tui.widgets.page import page_lines

if TYPE_CHECKING:
    from spark_tui.core.jobs import JobView, Step
    from spark_tui.core.logs import LogBuffer


LABEL_WIDTH = 11
LEAST_BAR = 8
"""A bar of fewer cells says less than its percentage."""

STEP_STYLE = {
    StepState.PENDING: "$dim",
    StepState.RUNNING: "bold $warning",
    StepState.DONE: "$success",
    StepState.SKIPPED: "$dim",
    StepState.FAILED: "bold $error",
    StepState.CANCELLED: "$warning",
}


class JobSteps(Line):
    """A launch under way, or one that failed: its steps, and the fix."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="job-steps")
        self._glyphs = glyphs
        self.job: JobView | None = None

    def say(self, width: int) -> Content:
        """One line per step that has begun or failed; empty without a job."""
        job = self.job
        if job is None or job.state is StepState.DONE:
            return Content("")
        begun = [step for step in job.steps if step.state is not StepState.PENDING]
        lines = [self._step(step, width) for step in begun] if job.error else self._under_way(begun, width)
        if job.error:
            evidence = [line for line in job.detail.splitlines() if line.strip()][-3:]
            rows = (Row(job.error, "failed", Tone.BAD), Row(job.remedy, "fix"), *(Row(each, "|") for each in evidence))
            lines += page_lines((Section(rows=rows),), width, most=4, indent=LABEL_WIDTH)
        return Content("\n").join(line.truncate(width, ellipsis=True) for line in lines)

    def _under_way(self, begun: Sequence[Step], width: int) -> list[Content]:
        """What is over on one line; what runs on its own, but for the boot, which the timeline shows."""
        over = ", ".join(step_word(step) for step in begun if step.state.over)
        running = [step for step in begun if step.state is StepState.RUNNING and step.id != "follow"]
        lines = page_lines((Section(rows=(Row(over, "launch"),)),), width, most=1, indent=LABEL_WIDTH) if over else []
        return lines + [self._step(step, width) for step in running]

    def _step(self, step: Step, width: int) -> Content:
        seconds = f" {human_duration(step.seconds)}" if step.seconds is not None and step.seconds >= 1 else ""
        line = Content.assemble(
            (f"{step.label:<17}", "$dim"),
            (f"{step.state.value:<9}", STEP_STYLE[step.state]),
            fmt.safe(step.detail),
            (seconds, "$dim"),
        )
        if step.progress is None or step.state is not StepState.RUNNING:
            return line
        percent = f" {step.progress:.0%}"
        cells = min(40, width - line.cell_length - 2 - len(percent))
        if cells < LEAST_BAR:
            return Content.assemble(line.truncate(width - len(percent), ellipsis=True), percent)
        full = round(step.progress * cells)
        bar = Content.assemble(
            (self._glyphs.full * full, "$primary"),
            (self._glyphs.empty * (cells - full), "$rule"),
            percent,
        )
        return Content.assemble(line, "  ", bar)


class LogTail(Line):
    """The last lines of a log, access lines left out: enough to see that it moves."""

    def __init__(self) -> None:
        super().__init__(id="log-tail")
        self.buffer: LogBuffer | None = None

    def say(self, width: int) -> Content:
        """As many lines as there is room for, newest last."""
        if self.buffer is None:
            return Content("")
        height = max(1, self.size.height)
        lines = tail_lines(self.buffer, height)
        return Content("\n").join(fmt.safe(line, "$dim").truncate(width, ellipsis=True) for line in lines)


def tail_lines(buffer: LogBuffer, height: int, look_back: int = 400) -> Sequence[str]:
    """The last `height` messages: no access lines, no empty ones, no prefixes."""
    from spark_tui.domain.logs.line import LineKind, parse_line

    quiet = (LineKind.ACCESS, LineKind.BLANK)
    found: list[str] = []
    for number in range(buffer.end - 1, max(buffer.first, buffer.end - look_back) - 1, -1):
        record = parse_line(buffer.line(number).text)
        if record.kind in quiet or not record.message.strip():
            continue
        found.append(record.message)
        if len(found) == height:
            break
    return found[::-1]
