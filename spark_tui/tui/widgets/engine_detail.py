"""What Home tells about one engine: a headline, the facts that its log gave, the steps of its launch, the log's end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from textual.content import Content

from spark_tui.core.jobs import JobView, Step, StepState
from spark_tui.core.log_buffer import LogBuffer
from spark_tui.domain.engine.log_line import LineKind, parse_line
from spark_tui.domain.engine.timeline import EngineFacts as LogFacts
from spark_tui.domain.engine.view import EngineState, EngineView
from spark_tui.domain.quantities import human_count, human_duration
from spark_tui.tui import format as fmt
from spark_tui.tui.glyphs import Glyphs
from spark_tui.tui.widgets.line import Line, hanging

LABEL_WIDTH = 10

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
    """What the log proved: kernels, KV cache, graphs; and why it failed."""

    def __init__(self) -> None:
        super().__init__(id="facts")
        self.engine: EngineView | None = None

    def say(self, width: int) -> Content:
        """One line per fact that is known."""
        view = self.engine
        if view is None:
            return Content("")
        facts = fact_pairs(view.timeline.facts)
        failure = view.timeline.failure
        if failure is not None and view.state is not EngineState.SERVING:
            word = "perhaps" if failure.guess else "because"
            facts.insert(0, (word, failure.line))
        styles = {"perhaps": "$error", "because": "$error"}
        wrapped = [
            line
            for label, value in facts
            for line in hanging(
                Content.styled(label, styles.get(label, "$dim")), fmt.safe(value), LABEL_WIDTH, max(1, width)
            )[:3]
        ]
        return Content("\n").join(wrapped)


def fact_pairs(facts: LogFacts) -> list[tuple[str, str]]:
    """Label and words for what is known; nothing is said about what is not."""
    lines: list[tuple[str, str]] = []
    kernels = [f"{what} {name}" for what, name in (("linear", facts.fp4_linear), ("MoE", facts.fp4_moe)) if name]
    if kernels:
        lines.append(("FP4", ", ".join(kernels)))
    if facts.attention:
        lines.append(("attention", facts.attention))
    if facts.load_gib is not None:
        lines.append(("weights", f"{facts.load_gib:g} GiB in memory"))
    if facts.kv_tokens is not None:
        lines.append(("KV cache", _kv_text(facts)))
    if facts.speculation:
        lines.append(("drafting", facts.speculation))
    if facts.graph_actual_gib is not None or facts.graph_estimated_gib is not None:
        lines.append(("graphs", _graph_text(facts)))
    return lines


def _kv_text(facts: LogFacts) -> str:
    text = f"{human_count(facts.kv_tokens or 0)} tokens"
    if facts.kv_gib is not None:
        text += f" in {facts.kv_gib:g} GiB"
    if facts.max_concurrency is not None and facts.max_model_len is not None:
        text += f", {facts.max_concurrency:g} requests of {human_count(facts.max_model_len)}"
    return text


def _graph_text(facts: LogFacts) -> str:
    words = []
    if facts.graph_actual_gib is not None:
        words.append(f"{facts.graph_actual_gib:g} GiB")
    if facts.graph_estimated_gib is not None:
        words.append(f"estimated {facts.graph_estimated_gib:g}")
    return ", ".join(words)


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
