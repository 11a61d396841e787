"""Like with like: what two results have in common, what differs, and what a difference in their numbers then means.

The load (lengths, content, cache, sampling) must be the same, or the numbers measure different things. The engine may
differ: that is what is compared; every difference is named, because each may be the cause.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from spark_tui.domain.bench.conditions import Conditions, quantization_words
from spark_tui.domain.bench.run import BenchRun, Level
from spark_tui.domain.bench.statistics import Interval, deviation, mean_interval, student_t


class Verdict(StrEnum):
    """What a comparison of two throughputs shows. `NOT_SHOWN`: the difference is within what repetition scatters."""

    FASTER = "faster"
    SLOWER = "slower"
    NOT_SHOWN = "no difference shown"
    UNKNOWN = "too few passes to say"


@dataclass(frozen=True, slots=True)
class Difference:
    """A condition that is not the same. Empty: not known there."""

    what: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Row:
    """One level of both. `ratio` is the second's throughput over the first's, `interval` its 95 % interval."""

    streams: int
    input_tokens: int
    depth: bool
    first: Level
    second: Level
    ratio: float | None
    interval: Interval | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs. `obstacles` are differences of the load: with any of them there are no rows. `differences` are those
    of engine and box. `paired` says that their passes alternated, which cancels what drifts."""

    first: BenchRun
    second: BenchRun
    obstacles: tuple[Difference, ...]
    differences: tuple[Difference, ...]
    rows: tuple[Row, ...]
    paired: bool

    @property
    def comparable(self) -> bool:
        """Like with like."""
        return not self.obstacles


def compare(first: BenchRun, second: BenchRun) -> Comparison:
    """The second beside the first, which is the one that was there before."""
    obstacles = load_differences(first, second)
    paired = bool(first.pair) and first.pair == second.id and second.pair == first.id
    rows = () if obstacles else tuple(_rows(first, second, paired=paired))
    return Comparison(
        first, second, obstacles, condition_differences(first.conditions, second.conditions), rows, paired
    )


def load_differences(first: BenchRun, second: BenchRun) -> tuple[Difference, ...]:
    """What keeps the numbers from being compared at all."""
    one, two = first.plan, second.plan
    pairs = [
        ("prompts", one.content.value, two.content.value),
        ("prompt cache", one.prompt_cache.value, two.prompt_cache.value),
        ("prompts sent as", one.form.value, two.form.value),
        ("temperature", _text(one.temperature), _text(two.temperature)),
        ("output tokens", str(one.output_tokens), str(two.output_tokens)),
        ("simulated", _text(first.conditions.simulated), _text(second.conditions.simulated)),
    ]
    if first.sweep and second.sweep:
        pairs.append(("input tokens", str(one.input_tokens), str(two.input_tokens)))
    found = [Difference(*pair) for pair in pairs if pair[1] != pair[2]]
    if not found and not _common(first.levels, second.levels):
        levels = (" ".join(map(_level_words, run.levels)) or "none" for run in (first, second))
        found.append(Difference("levels", *levels))
    return tuple(found)


_COMPARED = (
    ("model", "model"),
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
)


def condition_differences(one: Conditions, two: Conditions) -> tuple[Difference, ...]:
    """Every condition that decides numbers and is not the same, flags one by one."""
    pairs = [(what, _text(getattr(one, name)), _text(getattr(two, name))) for what, name in _COMPARED]
    pairs.insert(1, ("quantization", _quantization(one), _quantization(two)))
    found = [Difference(*pair) for pair in pairs if pair[1] != pair[2]]
    first, second = _by_name(one.flags), _by_name(two.flags)
    found += [
        Difference(name, first.get(name, ""), second.get(name, ""))
        for name in sorted({*first, *second})
        if first.get(name) != second.get(name)
    ]
    added, gone = (
        sorted(set(two.environment) - set(one.environment)),
        sorted(set(one.environment) - set(two.environment)),
    )
    if added or gone:
        found.append(Difference("variables", " ".join(gone), " ".join(added)))
    return tuple(found)


def _by_name(flags: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for flag in flags:
        name, _, value = flag.partition(" ")
        found[name] = f"{found[name]} {value}" if name in found else value or "set"
    return found


def _rows(first: BenchRun, second: BenchRun, *, paired: bool) -> list[Row]:
    mine = {level.key: level for level in first.levels}
    rows = []
    for level in second.levels:
        before = mine.get(level.key)
        if before is None:
            continue
        interval = _ratio_interval(before.pass_rates, level.pass_rates, paired=paired)
        ratio = level.output_rate / before.output_rate if before.output_rate and level.output_rate is not None else None
        rows.append(
            Row(
                level.streams,
                level.input_tokens,
                level.depth,
                before,
                level,
                ratio,
                interval,
                _verdict(interval),
            )
        )
    return rows


def _verdict(interval: Interval | None) -> Verdict:
    if interval is None:
        return Verdict.UNKNOWN
    if interval.low > 1:
        return Verdict.FASTER
    return Verdict.SLOWER if interval.high < 1 else Verdict.NOT_SHOWN


def _ratio_interval(first: Sequence[float], second: Sequence[float], *, paired: bool) -> Interval | None:
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
    return None if found is None else Interval(math.exp(found.low), math.exp(found.high))


def _welch(one: Sequence[float], two: Sequence[float]) -> Interval:
    middle = math.fsum(two) / len(two) - math.fsum(one) / len(one)
    parts = [(deviation(each) ** 2 / len(each), len(each) - 1) for each in (one, two)]
    variance = sum(part for part, _ in parts)
    if not variance:
        return Interval(middle, middle)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    half = student_t(max(1, math.floor(freedom))) * math.sqrt(variance)
    return Interval(middle - half, middle + half)


def _common(first: Sequence[Level], second: Sequence[Level]) -> bool:
    return bool({level.key for level in first} & {level.key for level in second})


def _level_words(level: Level) -> str:
    return f"d{level.input_tokens}" if level.depth else f"c{level.streams}"


def _quantization(conditions: Conditions) -> str:
    return quantization_words(conditions.model, conditions.quantization)


def _text(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
