"""The search of `tune` on planted response curves with noise: what it tries, when it gives up early, what wins."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.base.engine.invocation import number_in
from spark_tui.manage.tune.model import (
    PASSES,
    Ladder,
    Trial,
    TrialOutcome,
    TuneGoal,
    best_settings,
    clearly_worse,
    context_outcome,
    gain_of,
    ladders,
    load_of,
    next_trial,
    outcome_of,
)
from spark_tui.observe.results.model.compare import ratio_interval
from spark_tui.observe.results.model.record import ConfidenceInterval

Speed = Callable[[Mapping[str, str]], float]
EVERYTHING = (
    "num_speculative_tokens", "speculation", "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype",
    "gpu_memory_utilization", "kv_cache_memory_bytes", "max_model_len",
)  # fmt: skip
SERVED = {"speculation": "mtp", "num_speculative_tokens": "3", "max_num_seqs": "4", "gpu_memory_utilization": "0.85"}


def searched(
    goal: TuneGoal, start: Mapping[str, str], speed: Speed, noise: float, seed: int, takes: tuple[str, ...] = EVERYTHING
) -> tuple[Trial, ...]:
    """The whole search on an engine with that speed; noise is the deviation of one pass."""
    chance, trials = random.Random(seed), ()

    def passes(changes: Mapping[str, str]) -> list[float]:
        return [speed(changes) * chance.gauss(1, noise) for _ in range(PASSES)]

    drift = [1.0, 0.997, 0.994, 0.991]
    while (proposed := next_trial(ladders(goal, start, takes), start, trials)) is not None:
        assert len(trials) < 60, "it ends"
        key, value = proposed
        best = best_settings(trials)
        before = [rate * slow for rate, slow in zip(passes({**start, **best}), drift, strict=True)]
        after = [rate * slow for rate, slow in zip(passes({**start, **best, key: value}), drift, strict=True)]
        interval = ratio_interval(before, after, paired=True)
        ratio = sum(after) / sum(before)
        outcome = outcome_of(ratio, interval)
        if clearly_worse(before[:2], after[:1]):
            outcome = TrialOutcome.WORSE
        low, high = (interval.low, interval.high) if interval else (None, None)
        trials = (*trials, Trial(key, value, tuple(best.items()), outcome, "", ratio, low, high))
    return trials


def peak(key: str, best: str, steps: tuple[str, ...], *, loss: float = 0.12) -> Speed:
    """A curve that loses so much with each step away from its best value."""
    places = {value: at for at, value in enumerate(steps)}

    def speed(changes: Mapping[str, str]) -> float:
        at = places.get(changes.get(key, ""), places.get("4", 0))
        return 40.0 * (1 - loss) ** abs(at - places[best])

    return speed


DRAFTED = ("1", "2", "3", "4", "5", "6", "8", "10", "12", "15")
SEQUENCES = tuple(str(2**power) for power in range(11))


@settings(max_examples=25, deadline=None)
@given(best=st.sampled_from(DRAFTED[:7]), seed=st.integers(0, 10**6), noise=st.floats(0, 0.012))
def test_the_best_number_of_drafted_tokens_is_found(best: str, seed: int, noise: float) -> None:
    trials = searched(TuneGoal.LATENCY, SERVED, peak("num_speculative_tokens", best, DRAFTED), noise, seed)
    assert {**SERVED, **best_settings(trials)}["num_speculative_tokens"] == best


@settings(max_examples=25, deadline=None)
@given(best=st.sampled_from(SEQUENCES[:7]), seed=st.integers(0, 10**6), noise=st.floats(0, 0.012))
def test_the_best_number_of_sequences_is_found(best: str, seed: int, noise: float) -> None:
    trials = searched(TuneGoal.THROUGHPUT, SERVED, peak("max_num_seqs", best, SEQUENCES), noise, seed)
    assert {**SERVED, **best_settings(trials)}["max_num_seqs"] == best


@pytest.mark.parametrize("noise", [0.002, 0.01])
def test_two_planted_settings_are_found_together_and_their_gain_is_right(noise: float) -> None:
    one, two = peak("num_speculative_tokens", "5", DRAFTED), peak("kv_cache_dtype", "fp8", ("auto", "fp8"), loss=0.07)

    def speed(changes: Mapping[str, str]) -> float:
        return one(changes) * two({"kv_cache_dtype": "auto", **changes}) / 40.0

    right, within = 0, 0
    for seed in range(12):
        trials = searched(TuneGoal.LATENCY, SERVED, speed, noise, seed)
        won = best_settings(trials)
        right += (won.get("num_speculative_tokens"), won.get("kv_cache_dtype")) == ("5", "fp8")
        gain = gain_of(trials)
        assert gain is not None and gain.low is not None and gain.high is not None
        within += gain.low <= speed({**SERVED, **won}) / speed(SERVED) <= gain.high
    assert (right, within >= 10) == (12, True)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), noise=st.floats(0.001, 0.03))
def test_where_no_setting_matters_what_wins_by_chance_is_within_its_noise(seed: int, noise: float) -> None:
    trials = searched(TuneGoal.THROUGHPUT, SERVED, lambda _: 40.0, noise, seed)
    gain = gain_of(trials)
    assert gain is None or gain.ratio < 1 + 12 * noise
    assert len({(trial.key, trial.value) for trial in trials}) == len(trials), "nothing is measured twice"


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 0.03), st.floats(1.0, 1.5), st.integers(1, 4))
def test_a_better_setting_is_never_given_up_early(seed: int, noise: float, gain: float, passes: int) -> None:
    chance = random.Random(seed)
    before = [40 * max(0.9, min(1.1, chance.gauss(1, noise))) for _ in range(max(2, passes))]
    after = [40 * gain * max(0.9, min(1.1, chance.gauss(1, noise))) for _ in range(passes)]
    if clearly_worse(before, after):
        assert sum(after) / len(after) < 0.95 * sum(before) / len(before)


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        ((40.0, 40.4), (20.0,), True),
        ((40.0, 40.4), (38.0,), False),
        ((40.0, 40.4), (36.0, 36.2), True),
        ((40.0, 44.0), (37.0, 36.0), False),
        ((40.0,), (), False),
        ((), (40.0,), False),
        ((40.0, 0.0), (40.0,), False),
    ],
)
def test_clearly_worse(before: tuple[float, ...], after: tuple[float, ...], worse: bool) -> None:
    assert clearly_worse(before, after) is worse


@pytest.mark.parametrize(
    ("ratio", "low", "high", "outcome"),
    [
        (1.1, 1.05, 1.15, TrialOutcome.BETTER),
        (1.005, 1.001, 1.01, TrialOutcome.SAME),
        (1.1, 0.99, 1.2, TrialOutcome.SAME),
        (0.9, 0.85, 0.95, TrialOutcome.WORSE),
    ],
)
def test_what_a_comparison_means(ratio: float, low: float, high: float, outcome: TrialOutcome) -> None:
    assert outcome_of(ratio, ConfidenceInterval(low, high)) is outcome


def test_a_comparison_without_an_error_wins_nothing() -> None:
    assert outcome_of(1.5, None) is TrialOutcome.SAME
    assert outcome_of(None, None) is TrialOutcome.SAME


@pytest.mark.parametrize(
    ("before", "after", "high", "outcome"),
    [
        ((65_536, 80_000), (65_536, 160_000), 1.02, TrialOutcome.BETTER),
        ((65_536, 80_000), (131_072, 80_000), 1.02, TrialOutcome.BETTER),
        ((65_536, 80_000), (65_536, 160_000), 0.8, TrialOutcome.WORSE),
        ((65_536, 80_000), (65_536, 80_100), 1.02, TrialOutcome.SAME),
        ((65_536, 80_000), (65_536, 40_000), 1.02, TrialOutcome.WORSE),
        ((None, 80_000), (65_536, 160_000), 1.02, TrialOutcome.SAME),
    ],
)
def test_a_longer_context(
    before: tuple[int | None, int | None], after: tuple[int | None, int | None], high: float, outcome: TrialOutcome
) -> None:
    assert context_outcome(before, after, high) is outcome


def keys(found: tuple[Ladder, ...]) -> list[str]:
    return [ladder.key for ladder in found]


def test_only_what_the_preset_takes_is_searched() -> None:
    assert keys(ladders(TuneGoal.LATENCY, {}, ("max_num_seqs",))) == ["max_num_seqs"]
    assert keys(ladders(TuneGoal.LATENCY, {"speculation": "off"}, EVERYTHING)) == [
        "kv_cache_dtype", "max_num_batched_tokens", "max_num_seqs"
    ]  # fmt: skip
    assert keys(ladders(TuneGoal.LATENCY, SERVED, EVERYTHING))[:2] == ["num_speculative_tokens", "speculation"]
    assert ladders(TuneGoal.LATENCY, SERVED, ()) == ()


def test_memory_is_searched_as_the_preset_has_it() -> None:
    assert "gpu_memory_utilization" in keys(ladders(TuneGoal.THROUGHPUT, SERVED, EVERYTHING))
    for size in (str(8 * 2**30), "8G", "10G", "64M"):
        given = {**SERVED, "kv_cache_memory_bytes": size}
        found = ladders(TuneGoal.THROUGHPUT, given, EVERYTHING)
        assert "gpu_memory_utilization" not in keys(found)
        memory = tuple(each for each in found if each.key == "kv_cache_memory_bytes")
        key, more = next_trial(memory, given, ()) or ("", "")
        bytes_ = number_in(size) or 0
        assert (key, int(more)) == ("kv_cache_memory_bytes", bytes_ * 10 // 8), "the next step up"


@pytest.mark.parametrize(("now", "streams", "first"), [("1", 4, "4"), ("2", 12, "16"), ("4", 4, "8"), ("16", 4, "32")])
def test_as_many_sequences_as_streams_are_tried_first(now: str, streams: int, first: str) -> None:
    start = {"max_num_seqs": now}
    found = ladders(TuneGoal.THROUGHPUT, start, ("max_num_seqs",), streams=streams)
    assert next_trial(found, start, ()) == ("max_num_seqs", first)
    failed = Trial("max_num_seqs", first, (), TrialOutcome.FAILED)
    following = next_trial(found, start, (failed,))
    assert following is not None and following[1] in SEQUENCES and following[1] != first


def test_a_context_below_the_models_short_limit_is_raised_to_it() -> None:
    start = {"max_model_len": "512"}
    found = ladders(TuneGoal.CONTEXT, start, ("max_model_len",), context_limit=8192)
    assert next_trial(found, start, ()) == ("max_model_len", "8192")
    assert ladders(TuneGoal.CONTEXT, start, ("max_model_len",)) == ()


def test_the_context_is_tried_from_the_models_limit_down() -> None:
    start, trials = {"max_model_len": "32768"}, ()
    tried = []
    while proposed := next_trial(
        ladders(TuneGoal.CONTEXT, start, ("max_model_len",), context_limit=100_000), start, trials
    ):
        tried.append(int(proposed[1]))
        outcome = TrialOutcome.BETTER if tried[-1] <= 65_536 else TrialOutcome.FAILED
        trials = (*trials, Trial(*proposed, tuple(best_settings(trials).items()), outcome))
    assert tried == [100_000, 98_304, 65_536]
    assert best_settings(trials) == {"max_model_len": "65536"}


def test_without_speculation_no_drafted_tokens_are_tried() -> None:
    off = Trial("speculation", "off", (), TrialOutcome.BETTER, ratio=1.2, low=1.1, high=1.3)
    found = ladders(TuneGoal.THROUGHPUT, SERVED, ("speculation", "num_speculative_tokens"))
    assert next_trial(found, SERVED, ()) == ("speculation", "off")
    assert next_trial(found, SERVED, (off,)) is None


def test_the_load_of_a_goal() -> None:
    load = {"streams": 16, "input_tokens": 256, "output_tokens": 32}
    assert load_of(TuneGoal.LATENCY, **load).concurrency == (1,)
    assert load_of(TuneGoal.THROUGHPUT, **load).concurrency == (16,)
    assert load_of(TuneGoal.THROUGHPUT, **load).passes == PASSES
