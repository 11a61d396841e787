"""The search of `tune`: which settings it tries in which order, when a trial is decided early, and which one wins.

One setting changes at a time, by one step up or down its ladder, against the best so far. A step that wins is the next
baseline, and the search continues in its direction; a value that did not win is not tried again. So a search of n
ladders takes about 2n trials and a few more for each step that wins.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.invocation import METHOD, OFF, TOKENS, number_in
from spark_tui.observe.results.model.plan import BenchPlan
from spark_tui.observe.results.model.record import ConfidenceInterval, deviation

LEAST_GAIN: Final = 0.01
"""A smaller gain is not worth another preset, however sure it is."""
MOST_LOSS: Final = 0.1
"""Of the speed, for a longer context."""
PASSES: Final = 4
PER_LAUNCH: Final = 2
"""A A, B B B B, A A: drift cancels, and a trial takes two launches."""


class TuneGoal(StrEnum):
    """`LATENCY`: output tokens per second of one stream, prefill included. `THROUGHPUT`: of N streams together.
    `CONTEXT`: the longest request that the engine takes, then the tokens in its KV cache."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"
    CONTEXT = "context"


class TrialOutcome(StrEnum):
    """`REFUSED`: a rule or the memory was against it, nothing was launched. `FAILED`: it did not come up, or not to
    the end: out of memory, a hang, or the memory guard."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference shown"
    FAILED = "failed"
    REFUSED = "refused"


class Trial(Struct, frozen=True):
    """One value of one setting against `base`, the best so far. `ratio` is its throughput over the baseline's, `low` to
    `high` the 95 % interval; None where it was not measured. `before` and `after` are tokens per second, or for a
    context the tokens of `context` and `kv`. `runs` are the ids of the two results."""

    key: str
    value: str
    base: tuple[tuple[str, str], ...]
    outcome: TrialOutcome
    reason: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    before: float | None = None
    after: float | None = None
    context_before: int | None = None
    context_after: int | None = None
    runs: tuple[str, ...] = ()
    seconds: float = 0.0


class Ladder(Struct, frozen=True):
    """The values of a setting in their order. `assumed` is its value where the command has none; `up`: larger
    values first; `jump`: from the far end, for a setting that is only a bound; `aim`: tried first from any value below
    it."""

    key: str
    values: tuple[str, ...]
    assumed: str = ""
    up: bool = True
    jump: bool = False
    aim: str = ""


_DRAFTED: Final = ("1", "2", "3", "4", "5", "6", "8", "10", "12", "15")
_SEQUENCES: Final = tuple(str(2**power) for power in range(11))
_BATCHED: Final = ("2048", "4096", "8192", "16384", "32768")
_SHARES: Final = ("0.3", "0.4", "0.5", "0.6", "0.7", "0.75", "0.8", "0.85", "0.9")
_CONTEXTS: Final = tuple(str(2**power * part) for power in range(12, 20) for part in (2, 3))


def ladders(
    goal: TuneGoal,
    given: Mapping[str, str],
    takes: Collection[str],
    *,
    context_limit: int | None = None,
    streams: int = 1,
) -> tuple[Ladder, ...]:
    """What is searched for a goal, what matters most first.

    `given` are the settings as the command has them, `takes` the keys that a launch can set. Drafted tokens are
    searched where there is speculation already: a method needs a drafter. `context_limit` is the model's own, in
    tokens. With fewer sequences than `streams` requests wait for each other: the first step is to as many.
    """
    drafts = given.get(METHOD, OFF) != OFF
    drafted = Ladder(TOKENS, _DRAFTED, "1") if drafts else None
    method = Ladder(METHOD, (given.get(METHOD, OFF), OFF)) if drafts else None
    # vLLM 0.33: 256 sequences and 8192 batched tokens where nothing is set
    throughput = goal is TuneGoal.THROUGHPUT
    aim = next((each for each in _SEQUENCES if int(each) >= streams), "") if throughput else ""
    sequences = Ladder("max_num_seqs", _SEQUENCES, "256", throughput, aim=aim)
    batched = Ladder("max_num_batched_tokens", _BATCHED, "8192", throughput)
    cache = Ladder("kv_cache_dtype", ("auto", "fp8"), "auto")
    size = number_in(given.get("kv_cache_memory_bytes", ""))
    if size is not None:
        memory = Ladder("kv_cache_memory_bytes", tuple(str(int(size) * part // 8) for part in (4, 6, 8, 10, 12, 16)))
    else:
        memory = Ladder("gpu_memory_utilization", _SHARES, "0.9")
    longest = tuple(each for each in _CONTEXTS if context_limit is not None and int(each) <= context_limit)
    if context_limit is not None and str(context_limit) not in longest:
        longest = (*longest, str(context_limit))
    context = Ladder("max_model_len", longest, jump=True)
    wanted = {
        TuneGoal.LATENCY: (drafted, method, cache, batched, sequences),
        TuneGoal.THROUGHPUT: (sequences, batched, method, drafted, memory, cache),
        TuneGoal.CONTEXT: (cache, memory, sequences, batched, context),
    }[goal]
    found = (each for each in wanted if each is not None and each.key in takes)
    return tuple(each for each in found if each.values and (each.jump or len(each.values) > 1))


def best_settings(trials: Sequence[Trial]) -> dict[str, str]:
    """The changes that won, by key; empty: the settings as they were."""
    return {trial.key: trial.value for trial in trials if trial.outcome is TrialOutcome.BETTER}


def next_trial(searched: Sequence[Ladder], given: Mapping[str, str], trials: Sequence[Trial]) -> tuple[str, str] | None:
    """The key and value to try next; None when every neighbour of the best has been tried."""
    now = {**given, **best_settings(trials)}
    tried = {(trial.key, trial.value) for trial in trials}
    tried |= {(trial.key, {**given, **dict(trial.base)}.get(trial.key, "")) for trial in trials}
    for ladder in searched:
        if ladder.key == TOKENS and now.get(METHOD) == OFF:
            continue
        for value in _steps(ladder, now.get(ladder.key) or ladder.assumed):
            if (ladder.key, value) not in tried:
                return ladder.key, value
    return None


def _steps(ladder: Ladder, now: str) -> Iterator[str]:
    """The neighbours of a value, in the ladder's direction first."""
    try:
        place, values = _number(now), [_number(value) for value in ladder.values]
    except ValueError:  # words: all the others
        yield from (value for value in ladder.values if value != now)
        return
    above = [text for text, value in zip(ladder.values, values, strict=True) if value > place]
    if ladder.jump:
        yield from reversed(above)
        return
    if ladder.aim in above:
        yield ladder.aim
    below = [text for text, value in zip(ladder.values, values, strict=True) if value < place]
    sides = (above[:1], below[-1:])
    for side in sides if ladder.up else reversed(sides):
        yield from side


def _number(text: str) -> float:
    found = number_in(text)
    if found is None:
        raise ValueError(text)
    return found


def load_of(goal: TuneGoal, *, streams: int, input_tokens: int, output_tokens: int) -> BenchPlan:
    """What both sides of a trial are asked."""
    together = streams if goal is TuneGoal.THROUGHPUT else 1
    return BenchPlan(input_tokens, output_tokens, (together,), passes=PASSES, rounds=2, warmup=1)


def clearly_worse(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the passes so far, in tokens per second, leave no hope for the second: a loss of 5 % at least, and of
    four times what the passes of one side scatter, which is taken for 5 % where there is only one."""
    if not before or not after or min(*before, *after) <= 0:
        return False
    middles = [math.fsum(rates) / len(rates) for rates in (before, after)]
    scatter = max(
        deviation(rates) / middle if len(rates) > 1 else 0.05
        for rates, middle in zip((before, after), middles, strict=True)
    )
    return middles[1] / middles[0] < 1 - max(0.05, 4 * scatter)


def outcome_of(ratio: float | None, interval: ConfidenceInterval | None) -> TrialOutcome:
    """What a comparison of throughputs means for the search."""
    if ratio is None or interval is None:
        return TrialOutcome.SAME
    if interval.low > 1 and ratio >= 1 + LEAST_GAIN:
        return TrialOutcome.BETTER
    return TrialOutcome.WORSE if interval.high < 1 else TrialOutcome.SAME


def context_outcome(
    before: tuple[int | None, int | None], after: tuple[int | None, int | None], high: float | None
) -> TrialOutcome:
    """The same for the longest context. Before and after: the longest request and the KV cache, in tokens; `high` is
    the upper end of the speed's interval: only a loss that is sure counts against a longer context."""
    if None in (*before, *after):
        return TrialOutcome.SAME
    reach = [min(each[0] or 0, each[1] or 0) for each in (before, after)]
    room = [each[1] or 0 for each in (before, after)]
    longer = reach[1] > reach[0] or (reach[1] == reach[0] and room[1] > room[0] * (1 + LEAST_GAIN))
    if longer:
        return TrialOutcome.WORSE if high is not None and high < 1 - MOST_LOSS else TrialOutcome.BETTER
    shorter = reach[1] < reach[0] or room[1] < room[0] * (1 - LEAST_GAIN)
    return TrialOutcome.WORSE if shorter else TrialOutcome.SAME


class Gain(Struct, frozen=True):
    """The throughput of the winner over that of the settings before, with its 95 % interval where it is known."""

    ratio: float
    low: float | None
    high: float | None


def gain_of(trials: Sequence[Trial]) -> Gain | None:
    """Over all steps that won: each was measured against the one before, so their ratios multiply and the errors of
    their logarithms add as squares. None where no step was measured."""
    won = [trial for trial in trials if trial.outcome is TrialOutcome.BETTER and trial.ratio]
    if not won:
        return None
    middle = math.fsum(math.log(trial.ratio or 1.0) for trial in won)
    if any(not trial.low or not trial.high for trial in won):
        return Gain(math.exp(middle), None, None)
    half = math.sqrt(math.fsum((math.log((trial.high or 1.0) / (trial.low or 1.0)) / 2) ** 2 for trial in won))
    return Gain(math.exp(middle), math.exp(middle - half), math.exp(middle + half))
