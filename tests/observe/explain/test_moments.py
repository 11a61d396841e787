"""Lines of several logs by time, and the moments that a person writes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.errors import UsageError
from spark_tui.observe.explain.model.line import by_time, moment_of

SECONDS = st.integers(0, 4).map(lambda second: f"2026-11-23T10:00:0{second}Z")
STAMPS = st.one_of(SECONDS, SECONDS.map(lambda stamp: f"{stamp[:-1]}.5Z"), st.just(""))
LOGS = st.lists(st.lists(STAMPS.map(lambda stamp: (stamp, "text")), max_size=8), max_size=4)
NOW = datetime(2026, 11, 23, 14, 30, tzinfo=UTC)


@given(LOGS)
def test_every_line_comes_once_and_each_log_keeps_its_order(logs: list[list[tuple[str, str]]]) -> None:
    order = by_time(logs)
    assert sorted(order) == [(log, at) for log, lines in enumerate(logs) for at in range(len(lines))]
    for log, lines in enumerate(logs):
        assert [at for of, at in order if of == log] == list(range(len(lines)))


@given(st.lists(st.lists(SECONDS, max_size=8).map(sorted), max_size=4))
def test_logs_in_order_come_out_in_order_and_the_earlier_log_first(stamps: list[list[str]]) -> None:
    order = by_time([[(stamp, "") for stamp in each] for each in stamps])
    keys = [(stamps[log][at], log) for log, at in order]
    assert keys == sorted(keys)


def test_a_stamp_without_decimals_is_the_earlier_one() -> None:
    assert by_time([[("2026-11-23T10:00:00.5Z", "")], [("2026-11-23T10:00:00Z", "")]]) == [(1, 0), (0, 0)]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("14:05", datetime(2026, 11, 23, 14, 5, tzinfo=UTC)),
        (" 9:05:30 ", datetime(2026, 11, 23, 9, 5, 30, tzinfo=UTC)),
        ("14:31", datetime(2026, 11, 22, 14, 31, tzinfo=UTC)),
        ("-10m", datetime(2026, 11, 23, 14, 20, tzinfo=UTC)),
        ("-2d", datetime(2026, 11, 21, 14, 30, tzinfo=UTC)),
        ("2026-11-20T08:00:00Z", datetime(2026, 11, 20, 8, tzinfo=UTC)),
        ("2026-11-20 08:00", datetime(2026, 11, 20, 8, tzinfo=UTC)),
    ],
)
def test_a_moment_is_read(text: str, moment: datetime) -> None:
    assert moment_of(text, NOW.timestamp(), UTC) == moment.timestamp()


@given(st.text())
def test_any_text_is_a_moment_or_a_usage_error(text: str) -> None:
    try:
        moment_of(text, NOW.timestamp(), UTC)
    except UsageError as error:
        assert "14:05" in error.remedy
