"""The form of a benchmark: what to measure, how long it takes, what speaks against it, what would be refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

import spark_tui
from spark_tui.core.bench_ab import Side, running_engine, starts_of
from spark_tui.core.context import Context
from spark_tui.domain.bench.conditions import conditions_of
from spark_tui.domain.bench.plan import BenchPlan, PlanError, PromptCache, check_context, check_plan
from spark_tui.domain.bench.plan import Content as PlanContent
from spark_tui.domain.bench.run import BenchRun, Ending, Result, estimate, plan_caveats
from spark_tui.domain.errors import RefusedError, SparkError, UsageError
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.quantities import gib, human_count, human_duration
from spark_tui.domain.reading import value_of
from spark_tui.tui.form_screen import WRONG, FieldRow, FormField
from spark_tui.tui.screens.bench_words import ago, serving, short_model, turn_parts
from spark_tui.tui.widgets.page import BLANK, Page, Part, sentence, told

Choice = TypeVar("Choice", PlanContent, PromptCache)
_DEFAULT: Final = BenchPlan()
_KEYS: Final = {"input_tokens": "input", "output_tokens": "output"}
"""Fields of the plan that have another name here."""


@dataclass(frozen=True, slots=True)
class BenchOrder:
    """What shall be measured: an engine by its container's name, another one in turn with it, and the load. With
    `sides` the other one is a launch: the two are started in turn."""

    engine: str
    other: str
    plan: BenchPlan
    sides: tuple[Side, Side] | None = None


def fields_of(engine: str, names: Sequence[str]) -> tuple[FormField, ...]:
    """The form's fields with their defaults."""
    there = ", ".join(names)
    others = ", ".join(name for name in names if name != engine) or "no other serves"
    levels = ",".join(str(streams) for streams in _DEFAULT.concurrency)
    return (
        FormField("engine", "engine", f"one that serves: {there}", value=engine),
        FormField("other", "A/B with", f"max_num_seqs=8, image=IMAGE, a preset, or an engine: {others}", "none"),
        FormField("input", "prompt tokens", "the length of each prompt", value=str(_DEFAULT.input_tokens)),
        FormField("output", "answer tokens", "the length of each answer", value=str(_DEFAULT.output_tokens)),
        FormField("concurrency", "streams", "levels of the sweep, or none", value=levels),
        FormField("depths", "prefill at", "prompt lengths for prefill alone, e.g. 1024,16384,65536", "none"),
        FormField("passes", "passes", "3 or more of each level give a confidence", value=str(_DEFAULT.passes)),
        FormField("rounds", "rounds", "requests of each stream in a pass", value=str(_DEFAULT.rounds)),
        FormField("content", "text", "random: no cache, no guess. prose: speculation guesses", value="random"),
        FormField("cache", "prefix cache", "cold: each prompt is new. warm: the same prompt again", value="cold"),
    )  # fmt: skip


def plan_of(texts: Mapping[str, str]) -> BenchPlan:
    """The load that was typed; what was left empty is the default. Raises FieldError."""

    def number(key: str, default: int) -> int:
        return _number(key, texts[key]) if texts.get(key) else default

    def numbers(key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        return _numbers(key, texts[key]) if texts.get(key) else default

    return BenchPlan(
        input_tokens=number("input", _DEFAULT.input_tokens),
        output_tokens=number("output", _DEFAULT.output_tokens),
        concurrency=numbers("concurrency", _DEFAULT.concurrency),
        depths=numbers("depths", _DEFAULT.depths),
        passes=number("passes", _DEFAULT.passes),
        rounds=number("rounds", _DEFAULT.rounds),
        content=_choice("content", texts.get("content", ""), PlanContent.RANDOM),
        prompt_cache=_choice("cache", texts.get("cache", ""), PromptCache.COLD),
    )


class FieldError(UsageError):
    """What was typed into one field means nothing."""

    def __init__(self, key: str, summary: str, remedy: str) -> None:
        super().__init__(summary, remedy)
        self.key = key


def _number(key: str, text: str) -> int:
    plain = text.replace(",", "").replace("_", "")
    if not (plain.isascii() and plain.isdecimal() and len(plain) < 10):
        raise FieldError(key, "Not a whole number.", "Write for example 1024.")
    return int(plain)


def _numbers(key: str, text: str) -> tuple[int, ...]:
    if text.lower() in ("none", "-"):
        return ()
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise FieldError(key, "Not a list of whole numbers.", "Write for example 1,2,4,8; or none.")
    return tuple(sorted(int(part) for part in parts))


def _choice(key: str, text: str, default: Choice) -> Choice:
    kinds = list(type(default))
    found = next((kind for kind in kinds if kind.value == text.lower()), None) if text else default
    if found is None:
        raise FieldError(key, f"It is {' or '.join(kind.value for kind in kinds)}.", "Write one of them.")
    return found


def load_sum(plan: BenchPlan, engines: int) -> str:
    """`90 requests: 92,160 prompt and 11,520 answer tokens`; of two engines `each`."""
    requests = plan.total_requests
    sweep = plan.passes * sum(plan.requests(streams) for streams in plan.concurrency)
    prompt = sweep * plan.input_tokens + plan.passes * sum(plan.depths)
    answer = requests * plan.output_tokens
    to_each = " to each engine" if engines > 1 else ""
    tokens = f"{human_count(prompt)} prompt and {human_count(answer)} answer tokens"
    return f"{human_count(requests)} requests{to_each}: {tokens}"


def culprit(problem: SparkError | None) -> str:
    """The field that an error speaks of; empty where it speaks of none, or of several."""
    if isinstance(problem, FieldError):
        return problem.key
    if isinstance(problem, PlanError) and len(problem.fields) == 1:
        return _KEYS.get(problem.fields[0], problem.fields[0])
    return ""


LABEL_WIDTH = 10


class BenchForm(ModalScreen[BenchOrder | None]):
    """Answers what shall be measured, None when the person went back."""

    CSS_PATH = "bench_form.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-normal")]  # noqa: RUF012 - Textual's shape
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+l", "start", "Measure", priority=True),
        Binding("escape", "close", "Back"),
        Binding("down", "app.focus_next", "Next field", show=False, priority=True),
        Binding("up", "app.focus_previous", "Previous field", show=False, priority=True),
        Binding("pagedown", "scroll_preview(1)", "More down", show=False, priority=True),
        Binding("pageup", "scroll_preview(-1)", "More up", show=False, priority=True),
    ]

    def __init__(
        self, context: Context, engines: Sequence[EngineView], selected: str, results: Sequence[Result] = ()
    ) -> None:
        """`selected` is the engine to begin with where it serves; `results` tell how long it may take."""
        super().__init__()
        self._core = context
        self._engines = {view.name: view for view in serving(engines)}
        self._results = tuple(results)
        first = selected if selected in self._engines else next(iter(self._engines), "")
        self._rows = tuple(FieldRow(field) for field in fields_of(first, tuple(self._engines)))
        self.problem: SparkError | None = None
        """Why it cannot be measured as it stands; None when it can."""

    def compose(self) -> ComposeResult:
        """Fields on the left, what they come to on the right (below, when it is narrow)."""
        with Vertical(classes="dialog", id="form") as dialog:
            dialog.border_title = "Measure"
            dialog.border_subtitle = "^l measure   Enter, arrows: next field   Esc back"
            with Horizontal(id="form-columns"):
                with VerticalScroll(id="fields", can_focus=False):
                    yield from self._rows
                with VerticalScroll(id="preview-scroll", can_focus=False):
                    yield Page(LABEL_WIDTH, id="preview")
            with Horizontal(id="form-foot"):
                yield Button("Measure", id="start", variant="primary", compact=True)
                yield Static(id="form-status")

    def on_mount(self) -> None:
        """Shows what the defaults come to."""
        self._rows[0].input.focus()
        self._renew()

    # --- judge ----------------------------------------------------------------------------------------

    def on_input_changed(self, _: Input.Changed) -> None:
        """Judges and shows at every key."""
        self._renew()

    @property
    def texts(self) -> dict[str, str]:
        """What was typed, by field."""
        return {row.field.key: row.text for row in self._rows if row.text}

    def _named(self, key: str) -> str:
        row = next(row for row in self._rows if row.field.key == key)
        text = row.text or row.field.value
        if key != "other":
            return text
        return "" if text.lower() in ("none", "-") else running_engine(text) or text

    @property
    def order(self) -> BenchOrder:
        """What the fields say. Raises SparkError where it would be refused."""
        engine, other = self._named("engine"), self._named("other")
        if engine not in self._engines:
            raise FieldError("engine", "No engine of that name serves.", f"There is: {', '.join(self._engines)}.")
        if engine == other:
            raise FieldError("other", "That is the engine itself.", "Name another one, a change like max_num_seqs=8.")
        order = BenchOrder(engine, other, plan_of(self.texts), self._sides(engine, other))
        check_plan(order.plan)
        for view in self._views(order):
            check_context(order.plan, _context_of(view))
        self._check_memory()
        return order

    def _sides(self, engine: str, other: str) -> tuple[Side, Side] | None:
        """The two launches, where the other one is none that serves."""
        if not other or other in self._engines:
            return None
        try:
            return self._core.ab_runner.sides(self._engines[engine], other)
        except SparkError as error:
            raise FieldError("other", error.summary, error.remedy) from error

    def _check_memory(self) -> None:
        memory, floor = value_of(self._core.store.world.memory), self._core.guard_policy.serving_floor
        if memory is not None and memory.usable < floor:
            raise RefusedError(
                f"Only {gib(memory.usable)} GiB of memory is usable, less than the guard's floor of {gib(floor)} GiB.",
                "Stop another engine first: load could end in a freeze.",
            )

    def _views(self, order: BenchOrder) -> list[EngineView]:
        return [self._engines[name] for name in (order.engine, order.other) if name in self._engines]

    def _renew(self) -> None:
        """Judges every field, and shows what all of them come to."""
        order, self.problem = None, None
        try:
            order = self.order
        except SparkError as error:
            self.problem = error
        wrong = culprit(self.problem)
        for row in self._rows:
            row.judge(str(self.problem) if row.field.key == wrong else "")
        self.query_one("#start", Button).disabled = order is None
        self.query_one("#preview", Page).tell(
            self._parts(order) if order is not None else self._refusal(blamed=bool(wrong))
        )
        self._say()

    def _refusal(self, *, blamed: bool) -> list[Part]:
        if blamed or self.problem is None:
            return [sentence("Fix the highlighted field.", "$dim")]
        return [
            sentence("It would be refused.", "bold $error"),
            sentence(self.problem.summary),
            sentence(self.problem.remedy, "$dim"),
        ]

    # --- what it comes to -----------------------------------------------------------------------------

    def _parts(self, order: BenchOrder) -> list[Part]:
        plan, views = order.plan, self._views(order)
        parts: list[Part] = [
            (_label("takes"), told(self._duration(order), "bold")),
            (_label("sends"), told(load_sum(plan, 2 if order.sides else len(views)))),
        ]
        if order.sides is not None:
            parts += turn_parts(order.sides, plan, LABEL_WIDTH)
        for view in views:
            parts.append((_label("model"), told(f"{short_model(view.model)}  {view.runtime} {view.version}".rstrip())))
            context = _context_of(view)
            room = "of an unknown context" if context is None else f"of the context's {human_count(context)}"
            parts.append((_label("longest"), told(f"{human_count(plan.longest)} tokens {room}")))
        memory, floor = value_of(self._core.store.world.memory), self._core.guard_policy.serving_floor
        now = "" if memory is None else f"; {gib(memory.usable)} GiB now"
        parts.append((_label("ends"), told(f"by itself when usable memory falls below {gib(floor)} GiB{now}")))
        caveats = [text for view in views for text in self._caveats(plan, view)]
        if caveats:
            parts += [BLANK, *((_label("note"), told(text, "$warning")) for text in dict.fromkeys(caveats))]
        parts += [
            BLANK,
            sentence("Traffic by others is included and flagged.", "$dim"),
        ]
        if self._core.demo:
            parts.append(sentence("Simulated Spark: figures are not real.", "$dim"))
        return parts

    def _caveats(self, plan: BenchPlan, view: EngineView) -> tuple[str, ...]:
        conditions = conditions_of(
            view, host=self._core.store.world.identity, image=None, gpu=None, now=self._core.clock.now(),
            tool_version=spark_tui.__version__, context=_context_of(view),
        )  # fmt: skip
        return plan_caveats(plan, conditions)

    def _duration(self, order: BenchOrder) -> str:
        """`about 1m20s, judged by the run of 3h ago`; how it is known always stands with it."""
        found = [self._estimate(order.plan, view) for view in self._views(order)]
        if order.sides is not None:
            return self._turns_last(order, found[0])
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return "unknown until first run"
        seconds = human_duration(sum(each[0] for each in known))
        least = any(each[1] for each in known)
        return f"{'more than' if least else 'about'} {seconds}, judged by {known[0][2]}"

    def _turns_last(self, order: BenchOrder, one: tuple[float, bool, str] | None) -> str:
        """With the starts in between, as far as it is known how long one takes here."""
        starts, past = starts_of(order.plan), self._core.history.past(self._engines[order.engine].container)
        if not past:
            return f"{starts} starts of an engine, and the measuring"
        start = sum(seconds for _, seconds in past[-1].seconds)
        measuring = "" if one is None else f", and about {human_duration(2 * one[0])} of measuring"
        return f"{starts} starts of about {human_duration(start)} each{measuring}"

    def _estimate(self, plan: BenchPlan, view: EngineView) -> tuple[float, bool, str] | None:
        before = last_run(self._results, view.model)
        if before is not None and (found := estimate(plan, before=before)) is not None:
            return found.seconds, False, f"the run of {ago(self._core.clock.now() - before.at)}"
        preset = self._core.store.world.presets.get(view.container.preset)
        speeds = preset.facts.published if preset is not None else ()
        slowest = min((speed.tokens_per_second for speed in speeds), default=None)
        found = estimate(plan, decode_rate=slowest)
        return (found.seconds, True, f"{slowest:g} tok/s, as published") if found is not None else None

    # --- status ---------------------------------------------------------------------------------------

    def on_descendant_focus(self, _: DescendantFocus) -> None:
        """The foot speaks of the field that has the focus."""
        self._say()

    def _say(self) -> None:
        row = next((row for row in self._rows if row.input.has_focus), None)
        text = f"{row.field.label}: {row.field.help}" if row is not None else "Enter measures."
        if row is None and self.problem is not None:
            text = "It cannot be measured like this."
        self.query_one("#form-status", Static).update(told(text, "$dim"))

    # --- act ------------------------------------------------------------------------------------------

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Enter goes to the next field; after the last one stands the button."""
        self.app.action_focus_next()

    def on_button_pressed(self, _: Button.Pressed) -> None:
        """The button begins."""
        self.action_start()

    def action_start(self) -> None:
        """Goes back with the order; memory is looked at once more."""
        self._renew()
        if self.problem is None:
            self.dismiss(self.order)
            return
        self.notify(str(self.problem), severity="warning", markup=False)
        row = next((row for row in self._rows if row.mark == WRONG), None)
        if row is not None:
            row.input.focus()

    def action_scroll_preview(self, step: int) -> None:
        """A page of what it comes to."""
        scroll = self.query_one("#preview-scroll", VerticalScroll)
        scroll.scroll_relative(y=step * max(1, scroll.size.height - 1), animate=False)

    def action_close(self) -> None:
        """Back, nothing done."""
        self.dismiss(None)


def last_run(results: Sequence[Result], model: str) -> BenchRun | None:
    """The newest completed run of a model."""
    runs = [result.run for result in results if result.run is not None and result.model == model]
    return next((run for run in runs if run.ending is Ending.COMPLETED), None)


def _context_of(view: EngineView) -> int | None:
    """The engine's context in tokens, as far as it is known."""
    served = next((model for model in view.models if model.id == view.served_name), None)
    return (served.max_model_len if served is not None else None) or view.timeline.facts.max_model_len


def _label(text: str) -> Content:
    return Content.styled(f"{text:<{LABEL_WIDTH}}", "$dim")
