"""Schedules: what a person types, what is due when, and what a timer's file keeps."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.engine.units import (
    DAYS,
    BootState,
    Schedule,
    read_timer,
    schedule_of,
    schedule_unit,
    scheduled_engine,
    timer_name,
)
from spark_tui.base.errors import UsageError
from tests.cases import all_cases

WEEK, WEEKEND = DAYS[:5], DAYS[5:]


@pytest.mark.parametrize(
    ("typed", "expected", "text", "calendar"),
    [
        ("23:00-07:00", Schedule("23:00", "07:00"), "stops 23:00, starts 07:00", "*-*-* 23:00:00 | *-*-* 07:00:00"),
        ("23:00-7:00 daily", Schedule("23:00", "07:00"), "stops 23:00, starts 07:00", ""),
        ("23:00", Schedule("23:00", ""), "stops 23:00", "*-*-* 23:00:00"),
        ("22:30- mon-fri", Schedule("22:30", "", WEEK), "stops 22:30, mon-fri", "mon,tue,wed,thu,fri *-*-* 22:30:00"),
        ("-8:15 Sat, sun", Schedule("", "08:15", WEEKEND), "starts 08:15, sat,sun", "sat,sun *-*-* 08:15:00"),
        ("1:00-2:00 sat-tue", Schedule("01:00", "02:00", ("mon", "tue", "sat", "sun")),
         "stops 01:00, starts 02:00, mon,tue,sat,sun", ""),
        ("1:00-2:00 wed", Schedule("01:00", "02:00", ("wed",)), "stops 01:00, starts 02:00, wed", ""),
    ],
)  # fmt: skip
def test_a_line_is_read_said_and_given_to_systemd(typed: str, expected: Schedule, text: str, calendar: str) -> None:
    found = schedule_of(typed)
    assert (found, found.text) == (expected, text)
    assert not calendar or " | ".join(found.calendar) == calendar


@all_cases(
    "typed", ["", "-", "25:00-", "23:60-", "7-8", "23:00-23:00", "23:00-07:00 someday", "1:00-2:00 mon-x",
              "23:00-07:00 mon-fri-sun", "23:00\n-", "２３:00-"],
)  # fmt: skip
def test_what_is_no_schedule_is_a_usage_error(typed: str) -> None:
    with pytest.raises(UsageError):
        schedule_of(typed)


NIGHT, FRIDAYS = schedule_of("23:00-07:00"), schedule_of("18:00-08:00 mon-fri")


@pytest.mark.parametrize(
    ("schedule", "now", "due"),
    [
        (NIGHT, "2026-11-26T22:59:59", "start"),
        (NIGHT, "2026-11-26T23:00:00", "stop"),
        (NIGHT, "2026-11-27T06:59:59", "stop"),
        (NIGHT, "2026-11-27T07:00:00", "start"),
        (FRIDAYS, "2026-11-28T09:00:00", "stop"),  # Saturday: since Friday evening
        (FRIDAYS, "2026-11-30T07:59:59", "stop"),
        (FRIDAYS, "2026-11-30T08:00:00", "start"),
        (schedule_of("23:00-"), "2026-11-26T22:00:00", "stop"),
        (schedule_of("-07:00 wed"), "2026-11-25T06:59:00", "start"),  # that of a week before
    ],
)
def test_the_last_time_before_now_is_due(schedule: Schedule, now: str, due: str) -> None:
    assert schedule.due(datetime.fromisoformat(now)) == due


def test_a_time_before_it_was_set_is_not_due() -> None:
    """systemd makes up for a time that a former schedule of that engine has missed."""
    noon = datetime(2026, 11, 26, 12)
    found = Schedule("10:00", "11:00", since=noon.timestamp())
    assert found.due(noon) == ""
    assert found.due(datetime(2026, 11, 27, 10)) == "stop"


def test_a_timer_is_read_with_what_systemd_says_of_it() -> None:
    known = Schedule("23:00", "07:00", WEEK, 1.5)
    text = f"[Timer]\nOnCalendar=x\n\n[X-Spark-TUI]\n{schedule_unit('qwen', known).data}\n"
    shown = {
        f"{timer_name('qwen')}.timer": {
            "UnitFileState": "enabled",
            "NextElapseUSecRealtime": "Thu 2026-11-26 23:00:00 CET",
        },
        f"{timer_name('qwen')}.service": {"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "4"},
    }
    found = read_timer("qwen", text, shown, system=False, lingers=False)
    assert found is not None
    assert (found.schedule, found.next) == (known, datetime(2026, 11, 26, 23))
    assert (found.unit.state, found.unit.detail, found.unit.lingers) == (BootState.FAILED, "exit code 4", False)
    idle = read_timer("qwen", text, {}, system=True, lingers=False)
    assert idle is not None
    assert (idle.next, idle.unit.state, idle.unit.lingers) == (None, BootState.OFF, True)


@given(st.text() | st.text().map(lambda text: f"Schedule={text}") | st.sampled_from(
    ["Schedule=[]", "Schedule=null", 'Schedule={"stop": 1, "start": [], "days": 3, "since": {}}',
     'Schedule={"stop": "23:00", "start": "07:00", "days": ["mon"], "since": "x"}']))  # fmt: skip
def test_a_file_that_is_not_ours_is_left_out(text: str) -> None:
    assert read_timer("qwen", text, {}, system=False, lingers=True) is None


@pytest.mark.parametrize(
    "name", ["spark-tui-schedule-.timer", "spark-tui-schedule-../../x.timer", "spark-tui-schedule-a b.timer",
             "spark-tui-schedule-a\n.timer", "spark-tui-canary.timer", "spark-tui-schedule-a.service"],
)  # fmt: skip
def test_only_files_named_after_a_container_are_timers_of_engines(name: str) -> None:
    assert scheduled_engine(name) == ""
    assert scheduled_engine(f"{timer_name('qwen3.6-35b')}.timer") == "qwen3.6-35b"
