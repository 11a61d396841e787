"""The fields of the benchmark form: what there is to choose, what was typed and which of them an error speaks of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from spark_tui.core.bench_sides import Side
from spark_tui.domain.bench.plan import BenchPlan, Content, PlanError, PromptCache
from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.quantities import human_count
from spark_tui.tui.screens.launch_fields import FormField

Choice = TypeVar("Choice", Content, PromptCache)
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
        FormField("engine", "engine", f"one that serves: {there}", preset=engine),
        FormField("other", "A/B with", f"a change like max_num_seqs=8, a preset, or an engine: {others}", "none"),
        FormField("input", "prompt tokens", "the length of each prompt", preset=str(_DEFAULT.input_tokens)),
        FormField("output", "answer tokens", "the length of each answer", preset=str(_DEFAULT.output_tokens)),
        FormField("concurrency", "streams", "levels of the sweep, or none", preset=levels),
        FormField("depths", "prefill at", "prompt lengths for prefill alone, e.g. 1024,16384,65536", "none"),
        FormField("passes", "passes", "3 or more of each level give a confidence", preset=str(_DEFAULT.passes)),
        FormField("rounds", "rounds", "requests of each stream in a pass", preset=str(_DEFAULT.rounds)),
        FormField("content", "text", "random: no cache, no guess. prose: speculation guesses", preset="random"),
        FormField("cache", "prefix cache", "cold: each prompt is new. warm: the same prompt again", preset="cold"),
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
        content=_choice("content", texts.get("content", ""), Content.RANDOM),
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
