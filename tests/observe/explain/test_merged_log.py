"""Several logs as one: by time, bounded, kept up while they grow."""

from __future__ import annotations

from spark_tui.base.ports import LogLine
from spark_tui.observe.explain.use import LineFilter, LogBuffer, LogState, MatchIndex, MergedLog, nearest_line


def lines(*seconds: int, text: str = "line") -> list[LogLine]:
    return [LogLine(f"2026-11-23T10:00:{second:02}.000000000Z", f"{text} {second}") for second in seconds]


def logs(*batches: list[LogLine]) -> list[LogBuffer]:
    made = [LogBuffer() for _ in batches]
    for log, batch in zip(made, batches, strict=True):
        log.extend(batch)
    return made


def shown(merged: MergedLog) -> list[tuple[str, str]]:
    return [
        (merged.names[merged.owner(at)], merged.line(at).text.split()[-1]) for at in range(merged.first, merged.end)
    ]


def test_lines_are_merged_by_time_and_new_ones_follow() -> None:
    a, b = logs(lines(1, 3), lines(2))
    merged = MergedLog([("a", a, 0), ("b", b, 0)])
    assert shown(merged) == [("a", "1"), ("b", "2"), ("a", "3")]
    b.extend(lines(4))
    a.extend(lines(5))
    merged.pull()
    assert shown(merged)[3:] == [("b", "4"), ("a", "5")]
    assert [merged.place(log, line) for log, line in ((0, 1), (1, 1), (0, 2), (1, 2))] == [2, 3, 4, None]


def test_a_log_that_is_read_late_is_put_where_it_belongs() -> None:
    a, b = logs(lines(10, 20), [])
    merged = MergedLog([("a", a, 0), ("b", b, 0)])
    b.extend(lines(12, 15))
    merged.pull()
    assert [second for _, second in shown(merged)] == ["10", "12", "15", "20"]
    assert merged.place(1, 0) == merged.first + 1


def test_a_clock_that_was_set_back_costs_no_second_merge() -> None:
    a, b = logs(lines(30), lines(40))
    merged = MergedLog([("a", a, 0), ("b", b, 0)])
    a.extend(lines(1))
    merged.pull()
    assert merged.first == 0
    assert shown(merged)[-1] == ("a", "1")


def test_lines_before_the_wanted_one_are_left_out_and_old_ones_go() -> None:
    a, b = logs(lines(1, 2, 3), [LogLine("", str(number)) for number in range(30_000)])
    merged = MergedLog([("a", a, 2), ("b", b, 0)])
    assert len(merged) == 20_000
    assert merged.place(0, 0) is None
    assert merged.place(1, 9_000) is None


def test_it_ends_when_all_of_them_have() -> None:
    a, b = logs(lines(1), lines(2))
    merged = MergedLog([("a", a, 0), ("b", b, 0)])
    a.end_of_log()
    merged.pull()
    assert merged.state is LogState.OPEN
    b.end_of_log()
    merged.pull()
    assert merged.state is LogState.ENDED


def test_repeats_are_folded_and_levels_carried_on_within_one_engine() -> None:
    bar = "Loading: 50%|█████     | 1/2"
    a, b = logs(
        [LogLine("2026-11-23T10:00:01Z", bar), LogLine("2026-11-23T10:00:03Z", bar)],
        [LogLine("2026-11-23T10:00:02Z", "ERROR: no"), LogLine("2026-11-23T10:00:04Z", "    more of it")],
    )
    merged = MergedLog([("a", a, 0), ("b", b, 0)])
    folded, loud = MatchIndex(merged, LineFilter(fold=True)), MatchIndex(merged, LineFilter(level=40))
    folded.step()
    loud.step()
    assert folded.numbers == [1, 2, 3]
    assert loud.numbers == [1, 3]


def test_the_line_nearest_to_a_moment_is_found() -> None:
    (log,) = logs(lines(10, 20, 30))
    at = 1_795_428_000.0  # 2026-11-23T10:00:00Z
    found = {second: nearest_line(log, at + second) for second in (0, 14, 16, 99)}
    assert found == {0: 0, 14: 0, 16: 1, 99: 2}
    assert nearest_line(LogBuffer(), at) is None
    assert nearest_line(logs([LogLine("", "no time")])[0], at) is None
