"""Who ends for whom: the gateway's decisions."""

from __future__ import annotations

import pytest

from spark_tui.manage.gateway.model import Eviction, GatewayPolicy, Resident, evict, recent, retry_after
from tests.cases import all_cases

IDLE, BUSY = 60.0, None


@all_cases(
    ("residents", "short", "expected"),
    [
        ((), 0, Eviction()),
        ((Resident("a", 5, IDLE),), 0, Eviction()),
        ((Resident("a", 5, IDLE),), 3, Eviction(stop=("a",))),
        ((Resident("a", 5, 10.0), Resident("b", 5, 90.0)), 3, Eviction(stop=("b",))),
        ((Resident("a", 5, 10.0), Resident("b", 5, 90.0)), 7, Eviction(stop=("b", "a"))),
        ((Resident("a", 5, BUSY), Resident("b", 5, IDLE)), 3, Eviction(stop=("b",))),
        ((Resident("a", 5, BUSY), Resident("b", 5, IDLE)), 7, Eviction(wait=("a",))),
        ((Resident("a", None, IDLE), Resident("b", 5, 10.0)), 7, Eviction(stop=("a",))),
        ((Resident("a", 5, IDLE, excluded=True), Resident("b", 5, 90.0)), 0, Eviction(stop=("a",))),
        ((Resident("a", 5, BUSY, excluded=True),), 0, Eviction(wait=("a",))),
        ((Resident("a", 5, IDLE, "pinned", excluded=True),), 0, Eviction()),
        ((Resident("a", 5, IDLE, "pinned"), Resident("b", 5, IDLE)), 7, Eviction(refused="a: pinned")),
    ],
)
def test_the_one_unused_longest_ends_and_no_more_than_needed(
    residents: tuple[Resident, ...], short: int, expected: Eviction
) -> None:
    assert evict(residents, short) == expected


def test_nothing_ends_in_vain() -> None:
    assert evict((Resident("a", 5, IDLE),), 100).refused


@pytest.mark.parametrize(
    ("policy", "together"),
    [
        (GatewayPolicy(), True),
        (GatewayPolicy(alone=True), False),
        (GatewayPolicy(together=(frozenset(("a", "b")),)), True),
        (GatewayPolicy(together=(frozenset(("a", "x")), frozenset(("b", "y")))), False),
    ],
)
def test_groups_say_what_may_run_at_once(policy: GatewayPolicy, together: bool) -> None:
    assert policy.may_run_with(("a",), ("b",)) is together


@pytest.mark.parametrize(("eta", "seconds"), [(None, 30), (0.0, 1), (12.3, 13), (9999.0, 600)])
def test_retry_after_is_whole_seconds_within_bounds(eta: float | None, seconds: int) -> None:
    assert retry_after(eta) == seconds


def test_failures_count_for_an_hour() -> None:
    assert recent((0.0, 100.0, 3700.0), 3701.0) == (3700.0,)
    assert recent((200.0, 3700.0), 3701.0) == (200.0, 3700.0)
