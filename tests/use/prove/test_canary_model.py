"""Nights beside the weeks before: what is noise, what differs, and what changed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.host.series import Record
from spark_tui.use.prove.model.canary import LEAST_NIGHTS, CanaryVerdict, Night, night_of, verdicts

DAY = 86_400.0
NOW = 100 * DAY
USUAL = {"image": "sha256:aaa", "driver": "580", "kernel": "6.14"}
NOISE = (47.0, 46.2, 47.8, 46.9, 47.3, 46.6, 47.5, 46.8, 47.1, 46.4)


def nights(*rates: float | None, **last: Any) -> list[Night]:
    """One a day; `last` changes the newest."""
    found = [Night("qwen", NOW - (len(rates) - at) * DAY, "org/qwen", rate, (), USUAL) for at, rate in enumerate(rates)]
    return [*found[:-1], replace(found[-1], **last)]


def judged(found: Sequence[Night]) -> CanaryVerdict:
    [verdict] = verdicts(found, NOW)
    return verdict


@pytest.mark.parametrize(
    ("rate", "slower", "faster"), [(46.0, False, False), (48.0, False, False), (41.0, True, False), (53.0, False, True)]
)
def test_only_what_exceeds_the_noise_of_the_nights_differs(rate: float, slower: bool, faster: bool) -> None:
    verdict = judged(nights(*NOISE, rate))
    assert (verdict.slower, verdict.faster, verdict.differs) == (slower, faster, slower or faster)
    assert verdict.nights == len(NOISE)


def test_nights_that_were_all_alike_still_vary_a_little() -> None:
    assert not judged(nights(*[47.0] * 10, 46.5)).differs


def test_few_nights_say_nothing() -> None:
    assert judged(nights(*NOISE[: LEAST_NIGHTS - 1], 20.0)).interval is None
    assert not judged(nights(47.0)).differs


def test_what_changed_meanwhile_is_named() -> None:
    verdict = judged(nights(*NOISE, 41.0, conditions={**USUAL, "driver": "590"}))
    assert verdict.changed == (("driver", "580", "590"),)
    assert "driver 580 -> 590" in verdict.sentence


def test_a_case_that_fails_for_the_first_time_differs_and_one_that_always_does_not() -> None:
    found = nights(*NOISE, 47.0, failed=("chat.tool", "chat.vision"))
    found[2] = replace(found[2], failed=("chat.vision",))
    assert judged(found).broken == ("chat.tool",)


def test_a_clock_that_jumped_leaves_nights_of_the_future_out() -> None:
    wrong = Night("qwen", NOW + 400 * DAY, "org/qwen", 1.0, (), USUAL)
    assert not judged([*nights(*NOISE, 47.0), wrong]).differs
    old = [replace(each, at=each.at - 60 * DAY) for each in nights(*NOISE)]
    assert judged([*old, Night("qwen", NOW, "org/qwen", 20.0, (), USUAL)]).nights == 0, "weeks ago is not lately"


def test_another_model_is_no_comparison() -> None:
    assert judged(nights(*NOISE, 20.0, model="org/other")).nights == 0


@pytest.mark.parametrize(
    "body", [None, [], {}, {"rate": "x", "failed": [], "conditions": {}}, {"rate": float("nan"), "failed": [],
             "conditions": {}}, {"rate": 1.0, "failed": 3, "conditions": {}}]
)  # fmt: skip
def test_a_damaged_record_is_passed_over(body: Any) -> None:
    assert night_of(Record("canary", "qwen", NOW, body)) is None
