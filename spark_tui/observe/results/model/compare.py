"""Like with like: what two results have in common, what differs, and what a difference in their numbers then means.

The load (lengths, content, cache, sampling) must be the same, or the numbers measure different things. The engine may
differ: that is what is compared; every difference is named, because each may be the cause."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.runtimes import PublishedSource, Reference, family, quantization_words
from spark_tui.observe.results.model.plan import Conditions, PromptCache
from spark_tui.observe.results.model.record import ConfidenceInterval, deviation, mean_interval, student_t
from spark_tui.observe.results.model.run import BenchRun, Level

SCATTER: Final = 0.15
"""How far entries of one model on Spark Arena differ between machines and days."""


class PublishedComparison(Struct, frozen=True):
    """A published figure beside one of a run. `ratio` is ours over theirs; `differs` what is not alike, in words."""

    reference: Reference
    source: PublishedSource
    ours: float
    theirs: float
    ratio: float
    differs: tuple[str, ...]

    @property
    def within_scatter(self) -> bool:
        """No further apart than two machines of one kind are."""
        return abs(self.ratio - 1) <= SCATTER


def beside(
    run: BenchRun, references: Iterable[Reference], sources: Mapping[str, PublishedSource]
) -> tuple[PublishedComparison, ...]:
    """The published figures that are comparable with this run, the most alike first. None for a simulated run, for a
    machine that is no Spark, or for a run of repeated prompts."""
    if why_none(run):
        return ()
    mine = family(run.conditions.model)
    found = []
    for reference in references:
        if family(reference.model) != mine:
            continue
        level = next((each for each in run.sweep if each.streams == reference.streams), None)
        if why_not_beside(run, reference) or level is None:
            continue
        alone = level.decode_rate if level.streams == 1 else None
        ours = alone.p50 if alone is not None else level.output_rate
        if ours is not None:
            differs = tuple(_differences(run, reference))
            theirs = reference.decode_rate
            found.append(
                PublishedComparison(reference, sources[reference.source], ours, theirs, ours / theirs, differs)
            )
    return tuple(sorted(found, key=lambda each: len(each.differs)))


def why_none(run: BenchRun) -> str:
    """Why no published figure at all is comparable with this run; empty where some may be."""
    if run.conditions.simulated:
        return "This run is simulated: it is compared with nothing real."
    if not run.conditions.is_spark:
        return "Published figures are for DGX Sparks; this machine is not one."
    if run.plan.prompt_cache is not PromptCache.COLD:
        return "This run repeated its prompts, published ones did not."
    return ""


def why_not_beside(run: BenchRun, reference: Reference) -> str:
    """Why a figure of the same model is not comparable with this run's; empty where only the streams may differ."""
    conditions = run.conditions
    if reference.machine:
        return f"of an {reference.machine}"
    if reference.machines != 1:
        return f"of {reference.machines} machines"
    bits = quantization_words(conditions.model, conditions.quantization)
    if reference.quantization.upper() != bits:
        return f"{reference.quantization}, not {bits or 'a known format'}"
    if reference.runtime != conditions.runtime:
        return f"{reference.runtime}, not {conditions.runtime or 'a known runtime'}"
    return ""


def _differences(run: BenchRun, reference: Reference) -> list[str]:
    found = []
    if not reference.version:
        found.append("their version is not stated")
    elif reference.version != run.conditions.version:
        ours = run.conditions.version or "a known version"
        found.append(f"{reference.runtime} {reference.version}, not {ours}")
    for what, theirs, planned in (
        ("prompts", reference.input_tokens, run.plan.input_tokens),
        ("answers", reference.output_tokens, run.plan.output_tokens),
    ):
        if theirs is None:
            found.append(f"the length of their {what} is not stated")
        elif theirs != planned:
            found.append(f"{what} of {theirs:,} tokens, not {planned:,}")
    found += [text for text in (reference.conditions, reference.dispute) if text]
    if reference.streams > 1:
        found.append("their throughput of several streams may leave prefill out")
    return found


# --- compare ---------------------------------------------------------------------------------------------


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
        _differing(
            [
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
            ]
        )
    )


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
