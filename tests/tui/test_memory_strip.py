"""The strip is drawn to scale and never shows more than the pool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.domain.finding import AlarmId, Finding, Severity
from spark_tui.domain.host.vitals import GpuReading, Throttle, Throttled
from spark_tui.domain.reading import Ok
from spark_tui.tui.format import ASCII
from spark_tui.tui.widgets.memory_strip import MemoryStrip, apportion
from tests.fakes_host import IDLE_MEMORY
from tests.tui.kit import QWEN, kit_of, seen


@given(st.lists(st.integers(0, 2**40), max_size=6), st.integers(0, 400))
def test_the_cells_always_sum_to_the_width(sizes: list[int], cells: int) -> None:
    counts = apportion(sizes, cells)
    assert sum(counts) == (cells if sum(sizes) else 0)
    assert all(count >= 0 for count in counts)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=4), st.integers(10, 400))
def test_what_is_there_is_seen(sizes: list[int], cells: int) -> None:
    assert all(count >= 1 for count in apportion(sizes, cells))


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=4), st.integers(10, 400))
def test_a_part_is_off_by_no_more_than_the_cells_lent_to_small_ones(sizes: list[int], cells: int) -> None:
    total = sum(sizes)
    for size, count in zip(sizes, apportion(sizes, cells), strict=True):
        if total:
            assert abs(count - size * cells / total) <= len(sizes)


# --- alarms ---------------------------------------------------------------------------------------------


def strip(*alarms: Finding, severity: Severity = Severity.OK) -> MemoryStrip:
    made = MemoryStrip(ASCII)
    made.memory = Ok(IDLE_MEMORY)
    made.memory_state = Finding("memory", severity, "")
    made.alarms = alarms
    return made


def test_a_quiet_strip_has_two_lines() -> None:
    assert strip().say(80).plain.count("\n") == 1


def test_the_worst_alarm_is_under_the_numbers_and_the_others_are_counted() -> None:
    worst = Finding(
        AlarmId.STALL, Severity.ERROR, "no token for 2m", remedy="Restart it.", subject="[red]qwen[/]\x1b[31m"
    )
    other = Finding(AlarmId.LEAK, Severity.WARNING, "2.0 GiB in 1 file", remedy="Remove it.")
    for width in (60, 80, 120, 200):
        lines = strip(worst, other).say(width).plain.split("\n")
        assert len(lines) == 3
        assert lines[2].startswith(" !   [red]qwen[/]: no token for 2m"), "text from outside is never markup"
        assert lines[2].endswith("+1 more ")
        assert "\x1b" not in lines[2]
        assert all(len(line) <= width for line in lines)


def test_the_colour_of_what_is_available_follows_the_judgement_and_not_a_percentage() -> None:
    styles = {}
    for severity in (Severity.OK, Severity.WARNING, Severity.ERROR):
        said = strip(severity=severity).say(100)
        [span] = [span for span in said.spans if said.plain[span.start : span.end] == "116.0"]
        styles[severity] = str(span.style)
    assert (styles[Severity.OK], "error" in styles[Severity.ERROR]) == ("bold", True)
    assert len(set(styles.values())) == 3


async def test_the_strip_has_two_lines_at_every_size_that_a_terminal_takes_on() -> None:
    async with seen(kit_of(QWEN), (120, 36)) as sight:
        for size in ((80, 24), (200, 50), (100, 30), (80, 24), (120, 36)):
            await sight.pilot.resize_terminal(*size)
            await sight.pilot.pause()
            assert sight.app.screen.query_one(MemoryStrip).size.height == 2, size


# --- the GPU --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("throttled", "words"),
    [
        (None, "1400 MHz  "),
        ((), "1400 MHz  "),
        ((Throttled(Throttle.POWER_CAP, 0.03),), "1400 MHz  "),
        ((Throttled(Throttle.THERMAL, 0.8), Throttled(Throttle.POWER_CAP, 0.2)), "1400 MHz (thermal)"),
    ],
)
def test_what_holds_the_clock_down_is_beside_it(throttled: tuple[Throttled, ...] | None, words: str) -> None:
    made = strip()
    made.gpu = Ok(GpuReading("NVIDIA GB10", 96, 45.0, 88, 1400, unified=True, throttled=throttled))
    assert words in made.say(200).plain
