"""What Home tells about one engine: a headline, the facts that its log gave, the steps of its launch, the log's end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from textual.content import Content

from spark_tui.core.jobs import JobView, Step, StepState
from spark_tui.core.log_buffer import LogBuffer
from spark_tui.domain.engine.finding import Level
from spark_tui.domain.engine.log_line import LineKind, parse_line
from spark_tui.domain.engine.verdict_lines import Tone, VerdictLine
from spark_tui.domain.engine.view import EngineState, EngineView
from spark_tui.domain.quantities import human_duration
from spark_tui.tui import format as fmt
from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.line import Line, hanging

if TYPE_CHECKING:
    from spark_tui.domain.engine.explain import Explanation

LABEL_WIDTH = 10

MAX_ROW_LINES = 3
TONE_STYLE = {
    Tone.GOOD: "$success",
    Tone.PLAIN: "",
    Tone.QUIET: "$dim",
    Tone.WARNING: "$warning",
    Tone.BAD: "$error",
}

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
        self.nothing = Content("")

    def say(self, width: int) -> Content:
        """Three or four lines."""
        view = self.engine
        if view is None:
            return self.nothing
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
            return Content.assemble(line, (f"   up since {_when(facts.started_at)}", "$dim"))
        if facts.finished_at is not None:
            return Content.assemble(line, (f"   ended {_when(facts.finished_at)}", "$dim"))
        return line


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%b %d %H:%M")


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
        rows = explanation_rows(self.explanation, preset=self.preset)
        lines = [
            line
            for row in rows
            for line in hanging(
                Content.styled(_label(row.label), TONE_STYLE[row.tone] if row.tone is Tone.BAD else "$dim"),
                fmt.safe(row.text, TONE_STYLE[row.tone]),
                LABEL_WIDTH,
                max(1, width),
            )[:MAX_ROW_LINES]
        ]
        return Content("\n").join(lines)


def _label(label: str) -> str:
    """Small letters, as the labels above have them; `FP4` and `KV cache` stay."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def explanation_rows(explanation: Explanation, *, preset: bool) -> list[VerdictLine]:
    """The cause of a failure with its deciding line and its remedy; else what is wrong, the verdicts, and advice."""
    from spark_tui.domain.engine.explain_view import finding_rows, pairs_text, proposal

    proposed = proposal(explanation)
    changes = proposed.changes if proposed is not None and preset else ()
    cause = explanation.cause
    if cause is None:
        wrong = [found for found in explanation.findings if found.level is not Level.INFO]
        advice = [found for found in explanation.findings if found.level is Level.INFO]
        return [*finding_rows(wrong, changes), *explanation.rows, *finding_rows(advice, changes)]
    word = "perhaps" if cause.guess else "because"
    rows = [VerdictLine(word, cause.summary, Tone.BAD), VerdictLine("do", cause.remedy)]
    if cause.override:
        pairs = pairs_text(cause.override)
        rows.append(VerdictLine("a applies", pairs if preset else f"{pairs} (no preset to set it in)"))
    if cause.lines:
        rows.append(VerdictLine("log", cause.lines[-1], Tone.QUIET))
    return rows


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
        cells = max(10, min(40, width // 3))
        full = round(step.progress * cells)
        bar = Content.assemble(
            (self._glyphs.full * full, "$primary"),
            (self._glyphs.empty * (cells - full), "$rule"),
            f" {step.progress:.0%}",
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


_QUIET = (LineKind.ACCESS, LineKind.BLANK)


def tail_lines(buffer: LogBuffer, height: int, look_back: int = 400) -> Sequence[str]:
    """The last `height` messages that tell something: no access lines, no empty ones, no prefixes."""
    found: list[str] = []
    for number in range(buffer.end - 1, max(buffer.first, buffer.end - look_back) - 1, -1):
        record = parse_line(buffer.line(number).text)
        if record.kind in _QUIET or not record.message.strip():
            continue
        found.append(record.message)
        if len(found) == height:
            break
    return found[::-1]
