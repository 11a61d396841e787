"""Like with like: what two results have in common, what differs, and what a difference in their numbers then means.

The load (lengths, content, cache, sampling) must be the same, or the numbers measure different things. The engine may
differ: that is what is compared; every difference is named, because each may be the cause.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from spark_tui.observe.results.model.conditions import Conditions, quantization_words
from spark_tui.observe.results.model.run import BenchRun, Level
from spark_tui.observe.results.model.statistics import ConfidenceInterval, deviation, mean_interval, student_t


class SpeedVerdict(StrEnum):
    """What a comparison of two throughputs shows. `NOT_SHOWN`: the difference is within what repetition scatters."""

    FASTER = "faster"
    SLOWER = "slower"
    NOT_SHOWN = "no difference shown"
    UNKNOWN = "too few passes to say"


class Difference(Struct, frozen=True):
    """A condition that is not the same; a value is empty where it is unknown."""

    what: str
    first: str
    second: str


class LevelPair(Struct, frozen=True):
    """One level of both. `ratio` is the second's throughput over the first's, `interval` its 95 % interval."""

    first: Level
    second: Level
    ratio: float | None
    interval: ConfidenceInterval | None
    verdict: SpeedVerdict


class Comparison(Struct, frozen=True):
    """Two runs. `obstacles` are differences of the load: with any of them there are no `rows`. `differences` are those
    of engine and host. `paired`: their passes alternated, which cancels what drifts."""

    first: BenchRun
    second: BenchRun
    obstacles: tuple[Difference, ...]
    differences: tuple[Difference, ...]
    rows: tuple[LevelPair, ...]
    paired: bool

    @property
    def comparable(self) -> bool:
        return not self.obstacles


def compare(first: BenchRun, second: BenchRun) -> Comparison:
    """The second beside the first, which is the baseline."""
    obstacles = load_differences(first, second)
    paired = bool(first.pair) and first.pair == second.id and second.pair == first.id
    baseline = {level.key: level for level in first.levels}
    rows = []
    for level in () if obstacles else second.levels:
        before = baseline.get(level.key)
        if before is None:
            continue
        interval = ratio_interval(before.pass_rates, level.pass_rates, paired=paired)
        ratio = level.output_rate / before.output_rate if before.output_rate and level.output_rate is not None else None
        if interval is None:
            verdict = SpeedVerdict.UNKNOWN
        elif interval.low > 1:
            verdict = SpeedVerdict.FASTER
        else:
            verdict = SpeedVerdict.SLOWER if interval.high < 1 else SpeedVerdict.NOT_SHOWN
        rows.append(LevelPair(before, level, ratio, interval, verdict))
    differences = condition_differences(first.conditions, second.conditions)
    return Comparison(first, second, obstacles, differences, tuple(rows), paired)


def load_differences(first: BenchRun, second: BenchRun) -> tuple[Difference, ...]:
    """What keeps the numbers from being compared at all."""
    one, two = first.plan, second.plan
    pairs: list[tuple[str, object, object]] = [
        ("prompts", one.content, two.content),
        ("prompt cache", one.prompt_cache, two.prompt_cache),
        ("prompts sent as", one.form, two.form),
        ("temperature", one.temperature, two.temperature),
        ("output tokens", one.output_tokens, two.output_tokens),
        ("simulated", first.conditions.simulated, second.conditions.simulated),
    ]
    if first.sweep and second.sweep:
        pairs.append(("input tokens", one.input_tokens, two.input_tokens))
    found = _differing(pairs)
    if not found and not {level.key for level in first.levels} & {level.key for level in second.levels}:
        names = [
            " ".join(f"d{level.input_tokens}" if level.depth else f"c{level.streams}" for level in run.levels)
            for run in (first, second)
        ]
        found.append(Difference("levels", names[0] or "none", names[1] or "none"))
    return tuple(found)


_COMPARED = (
    ("revision", "revision"),
    ("runtime", "runtime"),
    ("version", "version"),
    ("image", "image_id"),
    ("KV cache type", "kv_cache_dtype"),
    ("speculation", "speculation"),
    ("attention", "attention"),
    ("FP4 linear kernel", "linear_kernel"),
    ("FP4 MoE kernel", "moe_kernel"),
    ("eager", "eager"),
    ("prefix caching", "prefix_caching"),
    ("context tokens", "context_tokens"),
    ("max_num_seqs", "most_sequences"),
    ("platform", "platform"),
    ("host", "hostname"),
    ("driver", "driver"),
    ("host kernel", "kernel"),
    ("NCCL", "nccl"),
)


def condition_differences(one: Conditions, two: Conditions) -> tuple[Difference, ...]:
    """Every condition that decides numbers and is not the same, flags one by one."""
    first, second = _by_name(one.flags), _by_name(two.flags)
    added, gone = (
        " ".join(sorted(set(after.environment) - set(before.environment))) for before, after in ((one, two), (two, one))
    )
    return tuple(
        _differing([
            ("model", one.model, two.model),
            (
                "quantization",
                quantization_words(one.model, one.quantization),
                quantization_words(two.model, two.quantization),
            ),
            *((what, getattr(one, name), getattr(two, name)) for what, name in _COMPARED),
            ("nodes", ", ".join(one.nodes), ", ".join(two.nodes)),
            ("rails", ", ".join(one.rails), ", ".join(two.rails)),
            *((name, first.get(name), second.get(name)) for name in sorted({*first, *second})),
            ("variables", gone, added),
        ])
    )  # fmt: skip


def _differing(pairs: Sequence[tuple[str, object, object]]) -> list[Difference]:
    def text(value: object) -> str:
        return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    return [Difference(what, text(one), text(two)) for what, one, two in pairs if text(one) != text(two)]


def _by_name(flags: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for flag in flags:
        name, _, value = flag.partition(" ")
        found[name] = f"{found[name]} {value}" if name in found else value or "set"
    return found


def ratio_interval(first: Sequence[float], second: Sequence[float], *, paired: bool) -> ConfidenceInterval | None:
    """The 95 % interval of the ratio of two throughputs, from the logarithms of their passes' rates.

    Alternating passes are compared pair by pair, others by Welch's interval. None for fewer than two passes each.
    """
    if min(len(first), len(second)) < 2 or min(*first, *second) <= 0:
        return None
    one, two = [math.log(rate) for rate in first], [math.log(rate) for rate in second]
    if paired and len(one) == len(two):
        found = mean_interval([after - before for before, after in zip(one, two, strict=True)])
    else:
        found = _welch(one, two)
    return None if found is None else ConfidenceInterval(math.exp(found.low), math.exp(found.high))


def _welch(one: Sequence[float], two: Sequence[float]) -> ConfidenceInterval:
    middle = math.fsum(two) / len(two) - math.fsum(one) / len(one)
    parts = [(deviation(each) ** 2 / len(each), len(each) - 1) for each in (one, two)]
    variance = sum(part for part, _ in parts)
    if not variance:
        return ConfidenceInterval(middle, middle)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    half = student_t(max(1, math.floor(freedom))) * math.sqrt(variance)
    return ConfidenceInterval(middle - half, middle + half)
