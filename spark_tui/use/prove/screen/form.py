"""The form of a benchmark: what to measure, how long it takes, what argues against it, what would be refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from msgspec import Struct
from textual.binding import Binding, BindingType

import spark_tui
from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.finding import value_of
from spark_tui.base.page import Page, Row, Section, Tone, labelled
from spark_tui.base.quantities import gib, human_count, human_duration
from spark_tui.catalog.presets.model.preset import PRESETS
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.memory.use.guard import guard_policy
from spark_tui.observe.metrics.use.history import History
from spark_tui.observe.results.model.plan import (
    BenchPlan,
    Content,
    PlanError,
    PromptCache,
    check_context,
    check_plan,
    conditions_of,
)
from spark_tui.observe.results.model.run import BenchRun, Result, RunOutcome, estimate, plan_caveats
from spark_tui.tui.form_screen import FORM_CSS, FieldRow, FormField, FormScreen
from spark_tui.use.bench.show.bench import SIMULATED, ab_pairs, ago, serving, short_model
from spark_tui.use.bench.use.ab import ABPlanner, Variant, running_engine, starts_of
from spark_tui.use.bench.use.bench import check_memory

_DEFAULT: Final = BenchPlan()
_NONE: Final = ("none", "-")


class BenchRequest(Struct, frozen=True):
    """What shall be measured: one engine, or two variants in turn."""

    variants: tuple[Variant, ...]
    plan: BenchPlan

    @property
    def launches(self) -> tuple[Variant, Variant] | None:
        """The variants of an A/B that starts both of them in turn."""
        first, *others = self.variants
        return (first, others[0]) if others and first.request is not None else None


def whole_number(text: str) -> int:
    """`2,048`. Raises UsageError."""
    plain = text.replace(",", "").replace("_", "")
    if not (plain.isascii() and plain.isdecimal() and len(plain) < 10):
        raise UsageError("Not a whole number.", "Write for example 1024.")
    return int(plain)


def whole_numbers(text: str) -> tuple[int, ...]:
    """`8 1, 2`, sorted; empty for `none`. Raises UsageError."""
    if text.lower() in _NONE:
        return ()
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise UsageError("Not a list of whole numbers.", "Write for example 1,2,4,8; or none.")
    return tuple(sorted(map(int, parts)))


def one_of(kinds: type[Content] | type[PromptCache], text: str) -> Content | PromptCache:
    """A kind by its value. Raises UsageError."""
    found = next((kind for kind in kinds if kind.value == text.lower()), None)
    if found is None:
        raise UsageError(f"Must be {' or '.join(kind.value for kind in kinds)}.", "Write one of them.")
    return found


READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "input_tokens": whole_number, "output_tokens": whole_number, "concurrency": whole_numbers, "depths": whole_numbers,
    "passes": whole_number, "rounds": whole_number, "content": lambda text: one_of(Content, text),
    "prompt_cache": lambda text: one_of(PromptCache, text),
}  # fmt: skip
"""How the fields of the plan are read."""


def fields_of(engine: str, names: Sequence[str]) -> tuple[FormField, ...]:
    """The form's fields with their defaults; those of the plan have its names."""
    others = ", ".join(name for name in names if name != engine) or "no other serves"
    levels = ",".join(map(str, _DEFAULT.concurrency))
    return (
        FormField("engine", "engine", f"a running engine ({', '.join(names)})", value=engine),
        FormField("other", "A/B with", f"max_num_seqs=8, image=IMAGE, a preset, or an engine: {others}", "none"),
        FormField("input_tokens", "prompt tokens", "the length of each prompt", value=str(_DEFAULT.input_tokens)),
        FormField("output_tokens", "answer tokens", "the length of each answer", value=str(_DEFAULT.output_tokens)),
        FormField("concurrency", "streams", "levels of the sweep, or none", value=levels),
        FormField("depths", "prefill at", "prompt lengths for prefill alone, e.g. 1024,16384,65536", "none"),
        FormField("passes", "passes", "3 or more of each level give a confidence", value=str(_DEFAULT.passes)),
        FormField("rounds", "rounds", "requests of each stream in a pass", value=str(_DEFAULT.rounds)),
        FormField("content", "text", "random: no cache, no guess. prose: speculation guesses", value="random"),
        FormField("prompt_cache", "prefix cache", "cold: each prompt is new. warm: always the same", value="cold"),
    )


class BenchForm(FormScreen[BenchRequest]):
    CSS_PATH: ClassVar = [FORM_CSS, "form.tcss"]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-normal")]  # noqa: RUF012 - Textual's shape
    VERB = "Measure"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+l", "submit", "Measure", priority=True)]

    def __init__(
        self, context: Context, engines: Sequence[EngineView], selected: str, results: Sequence[Result] = ()
    ) -> None:
        """`selected` is the engine to begin with where it serves; `results` give how long it may take."""
        self._core = context
        self._engines = {view.name: view for view in serving(engines)}
        self._results = tuple(results)
        first = selected if selected in self._engines else next(iter(self._engines), "")
        super().__init__("Measure", fields_of(first, tuple(self._engines)))
        self._order: BenchRequest | None = None

    # --- check ----------------------------------------------------------------------------------------

    def check(self) -> Mapping[str, SparkError]:
        """Each field alone, then the plan, the engines, the context and the memory."""
        self._order = None
        wrong: dict[str, SparkError] = {}
        values: dict[str, object] = {}
        for key, read in READERS.items():
            try:
                if text := self.texts.get(key):
                    values[key] = read(text)
            except UsageError as error:
                wrong[key] = error
        try:
            variants = self._variants(wrong)
            plan = BenchPlan(**values)  # type: ignore[arg-type]  # READERS has the types
            if not wrong:
                check_plan(plan)
                for view in self._views():
                    check_context(plan, _context_of(view))
                check_memory(value_of(self._core.store.world.memory), guard_policy(self._core).serving_floor)
                self._order = BenchRequest(variants, plan)
        except PlanError as error:
            wrong[error.fields[0] if len(error.fields) == 1 else ""] = error
        except SparkError as error:
            wrong[""] = error
        return wrong

    def _named(self, key: str) -> str:
        row = next(row for row in self.fields if row.field.key == key)
        text = row.text or row.field.value
        if key != "other":
            return text
        return "" if text.lower() in _NONE else running_engine(text) or text

    def _variants(self, wrong: dict[str, SparkError]) -> tuple[Variant, ...]:
        """What is compared; what cannot be is added to `wrong`."""
        engine, other = self._named("engine"), self._named("other")
        if engine not in self._engines:
            known = ", ".join(self._engines)
            wrong["engine"] = UsageError("No engine of that name serves.", f"There is: {known}.")
        elif engine == other:
            wrong["other"] = UsageError("That is the engine itself.", "Name another, or a change like max_num_seqs=8.")
        elif other and other not in self._engines:
            try:
                return self._core[ABPlanner].plan(self._engines[engine], other)
            except SparkError as error:
                wrong["other"] = error
        return tuple(Variant(name) for name in (engine, other) if name)

    def _views(self) -> list[EngineView]:
        return [self._engines[name] for name in map(self._named, ("engine", "other")) if name in self._engines]

    # --- preview --------------------------------------------------------------------------------------

    def preview(self) -> None:
        """How long it takes, what is sent, what limits it; or why it would be refused."""
        order, problem = self._order, self.problem
        page: Page = (self.problems(),)
        if order is not None:
            page = self._preview(order)
        elif problem is not None and not self.blamed:
            rows = (Row("Would be refused.", tone=Tone.BAD), Row(problem.summary), Row(problem.remedy, tone=Tone.QUIET))
            page = (Section(rows=rows),)
        self.show_preview(page)

    def _preview(self, order: BenchRequest) -> Page:
        plan, views, launches = order.plan, self._views(), order.launches
        pairs = [("takes", self._duration(order)), ("sends", load_sum(plan, len(order.variants)))]
        if launches is not None:
            pairs += ab_pairs(launches, plan)
        for view in views:
            pairs.append(("model", f"{short_model(view.model)}  {view.runtime} {view.version}".rstrip()))
            context = _context_of(view)
            room = "of an unknown context" if context is None else f"of the context's {human_count(context)}"
            pairs.append(("longest", f"{human_count(plan.longest)} tokens {room}"))
        memory, floor = value_of(self._core.store.world.memory), guard_policy(self._core).serving_floor
        now = "" if memory is None else f"; {gib(memory.usable)} GiB now"
        pairs.append(("stops", f"by itself when available memory falls below {gib(floor)} GiB{now}"))
        caveats = dict.fromkeys(text for view in views for text in self._caveats(plan, view))
        notes = tuple(Row(text, "note", Tone.WARNING) for text in caveats)
        last = [Row("Traffic by others is included and flagged.", tone=Tone.QUIET)]
        if self._core.demo:
            last.append(Row(SIMULATED, tone=Tone.QUIET))
        sections = (Section(rows=labelled(pairs)), Section(rows=notes), Section(rows=tuple(last)))
        return tuple(section for section in sections if section.rows)

    def _caveats(self, plan: BenchPlan, view: EngineView) -> tuple[str, ...]:
        conditions = conditions_of(
            view,
            host=self._core.store.world.identity,
            image=None,
            gpu=None,
            now=self._core.clock.now(),
            tool_version=spark_tui.__version__,
            context=_context_of(view),
        )
        return plan_caveats(plan, conditions)

    def _duration(self, order: BenchRequest) -> str:
        """`about 1m20s, judged by the run of 3h ago`; how it is known always follows."""
        found = [self._estimate(order.plan, view) for view in self._views()]
        known = [each for each in found if each is not None]
        if order.launches is not None:
            starts = starts_of(order.plan)
            past = self._core[History].past(self._engines[self._named("engine")].container)
            if not past:
                return f"{starts} starts of an engine, and the measuring"
            start = human_duration(sum(seconds for _, seconds in past[-1].phases))
            measuring = f", and about {human_duration(2 * known[0][0])} of measuring" if known else ""
            return f"{starts} starts of about {start} each{measuring}"
        if len(known) < len(found):
            return "unknown until first run"
        seconds = human_duration(sum(each[0] for each in known))
        least = any(each[1] for each in known)
        return f"{'more than' if least else 'about'} {seconds}, judged by {known[0][2]}"

    def _estimate(self, plan: BenchPlan, view: EngineView) -> tuple[float, bool, str] | None:
        """Seconds, whether it takes at least so long, and by what it is judged."""
        before = last_run(self._results, view.model)
        if before is not None and (found := estimate(plan, before=before)) is not None:
            return found.seconds, False, f"the run of {ago(self._core.clock.now() - before.at)}"
        preset = self._core.store.world[PRESETS].get(view.container.preset)
        speeds = preset.facts.published if preset is not None else ()
        slowest = min((speed.tokens_per_second for speed in speeds), default=None)
        found = estimate(plan, decode_rate=slowest)
        return (found.seconds, True, f"{slowest:g} tok/s, as published") if found is not None else None

    def status(self, row: FieldRow | None) -> str:
        if row is None and self.problem is not None:
            return "It cannot be measured like this."
        return super().status(row)

    def submit(self) -> None:
        """Answers the order; memory is checked once more."""
        self.renew()
        if self.problem is None:
            self.dismiss(self._order)


def load_sum(plan: BenchPlan, engines: int) -> str:
    """`90 requests: 92,160 prompt and 11,520 answer tokens`; of two engines `to each engine`."""
    requests = plan.total_requests
    sweep = plan.passes * sum(map(plan.requests, plan.concurrency))
    prompt = sweep * plan.input_tokens + plan.passes * sum(plan.depths)
    to_each = " to each engine" if engines > 1 else ""
    tokens = f"{human_count(prompt)} prompt and {human_count(requests * plan.output_tokens)} answer tokens"
    return f"{human_count(requests)} requests{to_each}: {tokens}"


def last_run(results: Sequence[Result], model: str) -> BenchRun | None:
    runs = [result.run for result in results if result.run is not None and result.model == model]
    return next((run for run in runs if run.ending is RunOutcome.COMPLETED), None)


def _context_of(view: EngineView) -> int | None:
    """The engine's context in tokens, as far as it is known."""
    served = next((model for model in view.models if model.id == view.served_name), None)
    return (served.max_model_len if served is not None else None) or view.timeline.facts.max_model_len
