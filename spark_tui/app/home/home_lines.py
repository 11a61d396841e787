"""Parts of Home that are lines of text: the latest events, the steps of a launch, the end of a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from textual.content import Content

from spark_tui.base.jobs import JobView, Step, StepState
from spark_tui.base.page import Page, Row, Section, Tone
from spark_tui.base.quantities import human_duration
from spark_tui.base.text import cells_left
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.line import Line, hanging, packed
from spark_tui.tui.widgets.page import page_lines

if TYPE_CHECKING:
    from spark_tui.app.home.next_step import NextPreset
    from spark_tui.observe.explain.use import LogBuffer

EVENTS_SHOWN: Final = 5
ROOMY_EVENTS: Final = 8
"""On a high screen."""
WRAPPED: Final = 3
"""Lines of one line of a log."""
LABEL_WIDTH: Final = 9
LEAST_BAR: Final = 8
"""A bar of fewer cells says less than its percentage."""
SHORT_LABELS: Final = {"fetch": "fetch", "pull": "image", "create": "create"}
"""Of steps, where all stand on a line."""
STEP_STYLES: Final = {
    StepState.PENDING: "$dim",
    StepState.RUNNING: "bold $warning",
    StepState.DONE: "$success",
    StepState.SKIPPED: "$dim",
    StepState.FAILED: "bold $error",
    StepState.CANCELLED: "$warning",
}


class EventFeed(Line):
    """The newest events at the foot, in no more room than they take."""

    def __init__(self) -> None:
        super().__init__(id="events")
        self.border_title = "Events"

    def say(self, width: int) -> Content:
        events = self.screen.app.context.store.world.events  # type: ignore[attr-defined]
        most, lines = ROOMY_EVENTS if self.screen.has_class("-roomy") else EVENTS_SHOWN, list[Content]()
        for event in reversed(events[-most:]):
            time = Content.styled(datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S "), "$dim")
            found = hanging(time, fmt.event_text(event), 9, width)[:WRAPPED]
            if len(lines) + len(found) > most:
                break
            lines = [*found, *lines]
        return Content("\n").join(lines) if lines else Content.styled("No events yet.", "$dim")

    async def on_click(self) -> None:
        """Opens the events with their whole texts."""
        await self.app.run_action("app.open_events")


class LaunchSteps(Line):
    """A launch under way, or one that failed: all its steps, the one that runs, and the fix."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="job-steps")
        self._glyphs = glyphs
        self.job: JobView | None = None

    def say(self, width: int) -> Content:
        """Every step from the start on, those to come dim; empty without a job."""
        job = self.job
        if job is None or job.state is StepState.DONE:
            return Content("")
        lines = packed([self._sign(step) for step in job.steps], Content("   "), width)
        if job.error:
            evidence = [line for line in job.detail.splitlines() if line.strip()][-3:]
            rows = (Row(job.error, "failed", Tone.BAD), Row(job.remedy, "fix"), *(Row(each, "|") for each in evidence))
            lines += page_lines((Section(rows=rows),), width, most=4, indent=LABEL_WIDTH)
        else:
            running = [step for step in job.steps if step.state is StepState.RUNNING]
            # The boot of one engine has lines of its own; of several nodes each rank's phase is shown.
            shown = (step for step in running if step.id != "follow" or job.nodes)
            lines += [line for step in shown for line in self._progress(step, width)]
        return Content("\n").join(line.truncate(width, ellipsis=True) for line in lines)

    def _sign(self, step: Step) -> Content:
        """`✓ fetch 1m57s`."""
        sign = {
            StepState.DONE: self._glyphs.done,
            StepState.RUNNING: self._glyphs.running,
            StepState.FAILED: self._glyphs.failed,
            StepState.CANCELLED: self._glyphs.failed,
        }.get(step.state, self._glyphs.pending)
        style = STEP_STYLES[step.state]
        seconds = f" {human_duration(step.seconds)}" if step.seconds is not None and step.seconds >= 1 else ""
        word = f" {step.state.value}" if step.state in (StepState.SKIPPED, StepState.CANCELLED) else ""
        label = SHORT_LABELS.get(step.id, step.label.lower()) + word
        quiet = step.state in (StepState.PENDING, StepState.SKIPPED)
        return Content.assemble((f"{sign} ", style), (label, "$dim" if quiet else ""), (seconds, "$dim"))

    def _progress(self, step: Step, width: int) -> list[Content]:
        """The label, how far it is, and its detail; the bar is on a line of its own where there is no room beside."""
        label = Content.styled(f"{step.label:<17}", "bold $warning")
        detail = fmt.safe(step.detail)
        if step.progress is None:
            return [Content.assemble(label, detail)]
        percent = f" {step.progress:.0%}"
        cells = min(40, cells_left(width, label.cell_length, detail.cell_length, 2, len(percent)))
        below = cells < LEAST_BAR
        cells = cells_left(width, len(percent)) if below else cells
        full = round(step.progress * cells)
        bar = (self._glyphs.full * full, "$primary"), (self._glyphs.empty * cells_left(cells, full), "$rule")
        if below:
            label = Content.styled(f"{step.label}  ", "bold $warning")
            first, *between, last = step.detail.split(", ") if ", " in step.detail else (step.detail, "")
            if label.cell_length + detail.cell_length > width and between:  # the time that is left stays
                detail = fmt.safe(f"{first}, {last}")
            return [Content.assemble(label, detail), Content.assemble(*bar, percent)]
        return [Content.assemble(label, *bar, f"{percent}  ", detail)]


def _clock(stamp: str) -> str:
    """`18:40:02`, by this machine's clock, of an RFC 3339 time."""
    try:
        return datetime.fromisoformat(stamp).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return stamp[11:19]


class LogTail(Line):
    """The end of a log: lines that prove something are marked, periodic ones and the states of a progress bar folded,
    access lines left out."""

    LOOK_BACK: Final = 6_000
    ACCESS: Final = ('"GET /', '"POST /')
    """Of most access lines: looked for before a line is parsed."""
    PERIODIC: Final = ("Avg prompt throughput:", "SpecDecoding metrics:", "#running-req:")

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.border_title = "Log"
        self.buffer: LogBuffer | None = None
        self.marks: Mapping[int, Tone] = {}
        """Lines that findings and verdicts rest on, by their number."""
        self._shown: tuple[object, ...] = ()

    def renew(self) -> None:
        """Reads the buffer only when it has other lines, or is shown otherwise."""
        buffer = self.buffer
        shown = (buffer, buffer.revision if buffer is not None else 0, self.size, self.marks)
        if shown != self._shown:
            self._shown = shown
            super().renew()

    def say(self, width: int) -> Content:
        from spark_tui.observe.explain.model.line import (  # not for the first frame
            LineKind,
            Repeat,
            parse_line,
            repeat_of,
        )

        buffer, found, folded = self.buffer, list[Content](), 0
        later: Repeat | None = None
        if buffer is None:
            return Content("")
        if not len(buffer) and buffer.reason:
            return fmt.safe(f"No log here: {buffer.reason}", "$dim")
        room, oldest = max(1, self.size.height), max(buffer.first, buffer.end - self.LOOK_BACK)
        for number in range(buffer.end - 1, oldest - 1, -1):
            stamp, text = buffer.line(number)
            if any(word in text for word in self.PERIODIC):
                folded += 1
                continue
            if any(word in text for word in self.ACCESS):
                continue
            record = parse_line(text)
            if record.kind in (LineKind.ACCESS, LineKind.BLANK) or not record.message.strip():
                continue
            bar, newer = repeat_of(text), later
            later = bar
            if bar and newer and bar.series == newer.series and bar.percent <= newer.percent:
                continue  # an earlier state of a bar that is shown
            if folded:
                found.append(Content.styled(f"{self._ellipsis} stats collapsed (x{folded})", "$dim"))
                folded = 0
            if len(found) >= room:
                break
            found += self._lines(number, stamp, record.message, width)
        if folded:
            found.append(Content.styled(f"{self._ellipsis} stats collapsed (x{folded})", "$dim"))
        for number in sorted((each for each in self.marks if buffer.first <= each < oldest), reverse=True):
            stamp, text = buffer.line(number)
            found += self._lines(number, stamp, parse_line(text).message, width)
        return Content("\n").join(found[:room][::-1])

    def _lines(self, number: int, stamp: str, message: str, width: int) -> list[Content]:
        """Time and message, wrapped beside its sign; the last line comes first."""
        tone = self.marks.get(number)
        sign = ("● ", fmt.TONE_STYLES[tone] or "$success") if tone is not None else ("  ", "")
        text = fmt.safe(message, "" if tone is not None else "$dim")
        if stamp:
            text = Content.assemble((f"{_clock(stamp)} ", "$secondary"), text)
        lines = hanging(Content.styled(*sign), text, 2, width)
        if len(lines) > WRAPPED:
            lines[WRAPPED - 1 :] = [Content.assemble(lines[WRAPPED - 1].truncate(width - 1), self._ellipsis)]
        return lines[::-1]

    @property
    def _ellipsis(self) -> str:
        glyphs: Glyphs = getattr(self.app, "glyphs", fmt.UNICODE)
        return glyphs.ellipsis


def next_step_page(
    found: Sequence[NextPreset] | None, *, token: bool, launch_key: str, presets_key: str, models_key: str
) -> Page:
    """What to do on a machine without an engine. `found` None: still looking; `token`: the Hub's was found."""
    if found is None:
        rows: tuple[Row, ...] = (Row("Checking downloaded models ...", "launch", Tone.QUIET),)
    elif found:
        rows = tuple(
            Row(f"{each.preset.name}   {each.text}, downloaded{', has served here' if each.started else ''}", label)
            for each, label in zip(found, (launch_key, *("or" for _ in found[1:])), strict=True)
        )
    else:
        rows = (Row(f"No downloaded model fits. {presets_key} presets, {models_key} models.", "launch"),)
    hub = "found" if token else "none (needed for gated models only): HF_TOKEN, or `hf auth login`"
    return (Section("Next", rows=(*rows, Row(hub, "HF token", Tone.PLAIN if token else Tone.QUIET))),)
