"""What Home tells about one engine: a headline, the facts that its log gave, the steps of its launch, the log's end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.events import Resize
from textual.geometry import Size

from spark_tui.core.actions import key_of
from spark_tui.core.jobs import StepState
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.quantities import human_duration
from spark_tui.present.logs import explanation_rows
from spark_tui.present.page import Row as PageRow
from spark_tui.present.page import Tone
from spark_tui.tui import format as fmt
from spark_tui.tui.format import Glyphs
from spark_tui.tui.widgets.graph import PennedRows, changed_regions
from spark_tui.tui.widgets.graph_picture import Row
from spark_tui.tui.widgets.line import Line, hanging

if TYPE_CHECKING:
    from spark_tui.core.jobs import JobView, Step
    from spark_tui.core.logs import LogBuffer
    from spark_tui.domain.logs.explain import Explanation
    from spark_tui.domain.logs.view import EngineView
    from spark_tui.domain.metrics.series import MetricId, SeriesView


LABEL_WIDTH = 10
LEAST_BAR = 8
"""A bar of fewer cells tells less than its percentage."""

STEP_STYLE = {
    StepState.PENDING: "$dim",
    StepState.RUNNING: "bold $warning",
    StepState.DONE: "$success",
    StepState.SKIPPED: "$dim",
    StepState.FAILED: "bold $error",
    StepState.CANCELLED: "$warning",
}


def field(label: str, value: Content | str) -> Content:
    """One line: a dim label of fixed width, then the value."""
    return Content.assemble(
        (f"{label:<{LABEL_WIDTH}}", "$dim"), value if isinstance(value, Content) else fmt.safe(value)
    )


class EngineSummary(Line):
    """The first lines: what it is, where it serves, since when; or what to do when there is none."""

    def __init__(self) -> None:
        super().__init__(id="summary")
        self.engine: EngineView | None = None
        self.nothing: Callable[[int], Content] | None = None

    def say(self, width: int) -> Content:
        """Three or four lines."""
        view = self.engine
        if view is None:
            return self.nothing(width) if self.nothing is not None else Content("")
        lines = [
            field("model", Content.assemble(fmt.safe(view.model or "not known yet", "bold"))),
            field("engine", self._engine(view)),
            field("address", self._address(view)),
            field("state", self._state(view)),
        ]
        return Content("\n").join(line.truncate(width, ellipsis=True) for line in lines)

    def _engine(self, view: EngineView) -> str:
        version = f" {view.version}" if view.version else ""
        owner = f"preset {view.container.preset}" if view.container.ours else "not started by spark-tui"
        return f"{view.runtime}{version}   {owner}   {view.container.image}"

    def _address(self, view: EngineView) -> Content:
        where = view.base_url or "no port published"
        name = f"   as {view.served_name}" if view.served_name else ""
        return Content.assemble(fmt.safe(where), "   ", fmt.exposure(view), fmt.safe(name))

    def _state(self, view: EngineView) -> Content:
        line = fmt.state(view)
        facts = view.container
        if view.container.running and facts.started_at is not None:
            took = view.timeline.seconds
            if view.state is EngineState.SERVING and took is not None:
                line = Content.assemble(line, f"   ready after {human_duration(took)}")
            return Content.assemble(line, (f"   up since {fmt.day_and_time(facts.started_at)}", "$dim"))
        if facts.finished_at is not None:
            return Content.assemble(line, (f"   ended {fmt.day_and_time(facts.finished_at)}", "$dim"))
        return line


class EngineFacts(Line):
    """Why it failed and what to do; else what is worth attention, and what its log proved: kernels, KV cache, graphs.

    `preset`: it was launched from a preset that is here, so that a change can be made by a key.
    """

    def __init__(self) -> None:
        super().__init__(id="facts")
        self.explanation: Explanation | None = None
        self.preset = False

    def say(self, width: int) -> Content:
        """A few lines per row, each beside its label."""
        if self.explanation is None:
            return Content("")

        rows = explanation_rows(self.explanation, preset=self.preset, key=key_of("apply_remedy"))
        return Content("\n").join(fact_lines(rows, width))


class JobSteps(Line):
    """A launch under way, or one that failed: its steps, and the remedy."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="job-steps")
        self._glyphs = glyphs
        self.job: JobView | None = None

    def say(self, width: int) -> Content:
        """One line per step that has begun or failed; empty when there is no job to speak of."""
        job = self.job
        if job is None or job.state is StepState.DONE:
            return Content("")
        begun = [step for step in job.steps if step.state is not StepState.PENDING]
        lines = [self._step(step, width) for step in begun] if job.error else self._under_way(begun, width)
        if job.error:
            lines += Content.assemble(("failed    ", "bold $error"), fmt.safe(job.error)).wrap(width)[:4]
            lines += field("do", job.remedy).wrap(width)[:3]
            lines += [field("", part) for part in _evidence(job.detail)]
        return Content("\n").join(line.truncate(width, ellipsis=True) for line in lines)

    def _under_way(self, begun: Sequence[Step], width: int) -> list[Content]:
        """What is over on one line; what runs on its own, but for the boot, which the timeline shows."""
        over = ", ".join(_word(step) for step in begun if step.state.over)
        running = [step for step in begun if step.state is StepState.RUNNING and step.id != "follow"]
        lines = [field("launch", over)] if over else []
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


def _word(step: Step) -> str:
    seconds = f" {human_duration(step.seconds)}" if step.seconds is not None and step.seconds >= 1 else ""
    state = "" if step.state is StepState.DONE else f" {step.state.value}"
    return f"{step.label.lower()}{state}{seconds}"


def _evidence(detail: str) -> list[str]:
    return [line for line in detail.splitlines() if line.strip()][-3:]


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
    """The last `height` messages that tell something: no access lines, no empty ones, no prefixes."""
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


MAX_ROW_LINES = 3
MAX_ACT_LINES = 6
"""What has happened and what to do is told whole."""
ACT_LABELS = ("cause", "likely", "fix")
TONE_STYLE = {
    Tone.GOOD: "$success",
    Tone.PLAIN: "",
    Tone.QUIET: "$dim",
    Tone.STRONG: "bold",
    Tone.WARNING: "$warning",
    Tone.BAD: "$error",
}


def fact_lines(rows: Sequence[PageRow], width: int, limit: int | None = None) -> list[Content]:
    """Each row beside its label, in `limit` lines at most, else in a few; a sign tells where one goes on."""
    lines: list[Content] = []
    for row in rows:
        most = limit or (MAX_ACT_LINES if row.label in ACT_LABELS else MAX_ROW_LINES)
        label = Content.styled(_label(row.label), TONE_STYLE[row.tone] if row.tone is Tone.BAD else "$dim")
        found = hanging(label, fmt.safe(row.text, TONE_STYLE[row.tone]), LABEL_WIDTH, max(1, width))
        if len(found) > most:
            found = [*found[: most - 1], Content.assemble(found[most - 1].truncate(max(1, width - 1)), "…")]
        lines += found
    return lines


def _label(label: str) -> str:
    """Small letters, as the labels above have them; `FP4` and `KV cache` stay."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


LEVELS: Final[Mapping[str, str]] = {"unicode": "▁▂▃▄▅▆▇█", "console": ".░▒█", "ascii": "_.:=#"}


class EngineGraphs(PennedRows):
    """Four small graphs of one engine, two beside each other where there is room; no height while nothing is known."""

    DEFAULT_CSS = """
    EngineGraphs { width: 100%; height: auto; }
    """

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._levels = LEVELS.get(glyphs.name, LEVELS["ascii"])
        self._series: dict[MetricId, SeriesView] = {}
        self._now = 0.0
        self._rows: list[Row] = []

    def show(self, read: Callable[[MetricId], SeriesView] | None, now: float) -> None:
        """`read` gives the last minutes (WINDOW_SECONDS) of a series; None: there is no engine to speak of.

        Call it once a second while the screen is shown: it repaints only what differs.
        """
        self._series = {} if read is None else _read(read)
        self._now = now
        self._renew()

    def on_resize(self, _: Resize) -> None:
        """Another width, other lines."""
        self._renew()

    @property
    def rows(self) -> Sequence[Row]:
        """One or two graphs in each."""
        return self._rows

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as there is something to say."""
        return len(self._lay_out(width)) if width else len(self._rows)

    def _renew(self) -> None:
        old, self._rows = self._rows, self._lay_out(self.size.width)
        if len(old) != len(self._rows):
            self.refresh(layout=True)
        elif regions := changed_regions(old, self._rows):
            self.refresh(*regions)

    def _lay_out(self, width: int) -> list[Row]:
        if not self._series:
            return []
        from spark_tui.tui.widgets.graph import ITEMS, laid_out

        return laid_out(ITEMS, self._series, self._now, self._levels, width)


def _read(read: Callable[[MetricId], SeriesView]) -> dict[MetricId, SeriesView]:
    from spark_tui.tui.widgets.graph import METRICS

    return {metric: read(metric) for metric in METRICS}
