"""The buffer keeps the tail, numbers never shift; search and filter go in bounded steps."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.base.ports import LogLine
from spark_tui.observe.explain.use import BadPattern, LineFilter, LogBuffer, LogState, MatchIndex, Query, first_line_at
from tests.cases import all_cases
from tests.log_fixtures import read_log, run_log


def batch(*texts: str) -> list[LogLine]:
    return [LogLine("", text) for text in texts]


def filled(texts: list[str], **limits: int) -> LogBuffer:
    buffer = LogBuffer(**limits)
    buffer.extend(batch(*texts))
    return buffer


# --- the ring ---------------------------------------------------------------------------------------------


def test_numbers_are_absolute_and_the_oldest_lines_go() -> None:
    buffer = filled([f"line {n}" for n in range(25)], max_lines=10)
    assert (buffer.first, buffer.end, len(buffer)) == (15, 25, 10)
    assert buffer.line(15).text == "line 15"
    assert buffer.line(24).text == "line 24"
    with pytest.raises(IndexError):
        buffer.line(14)
    with pytest.raises(IndexError):
        buffer.line(25)


def test_a_slice_gives_what_is_there() -> None:
    buffer = filled([f"{n}" for n in range(25)], max_lines=10)
    assert [line.text for line in buffer.slice(0, 17)] == ["15", "16"]
    assert [line.text for line in buffer.slice(23, 99)] == ["23", "24"]
    assert buffer.slice(30, 40) == []
    assert buffer.slice(0, 10) == []


def test_large_lines_are_bounded_by_their_bytes() -> None:
    buffer = LogBuffer(max_bytes=1_000_000)
    for n in range(100):
        buffer.extend(batch(f"{n}" + "x" * 65_536))
    assert buffer.bytes <= 1_000_000
    assert buffer.end == 100
    assert buffer.line(99).text.startswith("99x")


def test_one_line_above_the_limit_is_kept_alone() -> None:
    buffer = filled(["small", "x" * 5_000], max_bytes=1_000)
    assert (buffer.first, buffer.end) == (1, 2)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.text(max_size=50), max_size=30), max_size=20), st.integers(1, 40), st.integers(500, 20_000))
def test_the_tail_is_never_lost(batches: list[list[str]], lines: int, size: int) -> None:
    buffer = LogBuffer(max_lines=lines, max_bytes=size)
    everything: list[str] = []
    for texts in batches:
        buffer.extend(batch(*texts))
        everything += texts
        assert buffer.end == len(everything)
        assert len(buffer) <= lines
        assert buffer.bytes <= size or len(buffer) == 1
        assert [line.text for line in buffer.slice(buffer.first, buffer.end)] == everything[buffer.first :]


def test_the_revision_changes_with_everything_and_only_then() -> None:
    buffer = LogBuffer()
    seen = [buffer.revision]
    for change in (
        lambda: buffer.extend(batch("a")),
        lambda: buffer.end_of_log("the container has ended"),
        lambda: buffer.fail("the daemon went away"),
    ):
        change()
        seen.append(buffer.revision)
    assert len(set(seen)) == len(seen)
    buffer.extend([])
    assert buffer.revision == seen[-1]


def test_an_ended_log_says_why_and_opens_again_with_new_lines() -> None:
    buffer = filled(["a"])
    buffer.fail("the daemon went away")
    assert (buffer.state, buffer.reason) == (LogState.FAILED, "the daemon went away")
    buffer.end_of_log("the container has ended")
    assert (buffer.state, buffer.reason) == (LogState.ENDED, "the container has ended")
    buffer.extend(batch("b"))
    assert (buffer.state, buffer.reason) == (LogState.OPEN, "")


def test_no_secret_leaves_the_buffer() -> None:
    buffer = filled(["non-default args: {'api_key': ['sesame'], 'port': 1}"])
    assert "sesame" not in buffer.line(0).text
    assert "sesame" not in buffer.slice(0, 1)[0].text
    search = MatchIndex(buffer, LineFilter(query=Query("sesame")))
    search.step()
    assert search.numbers == []


# --- queries ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "regex", "line", "found"),
    [
        ("error", False, "An ERROR occurred", True),
        ("Error", False, "An ERROR occurred", False),
        ("ERROR", False, "An ERROR occurred", True),
        ("a.c", False, "abc", False),
        ("[/red]", False, "text [/red] more", True),
        ("a.c", True, "abc", True),
        ("took \\d+", True, "it took 12 s", True),
        ("^it", True, "It took", True),
        ("error|warn", True, "a WARNING", True),
    ],
)
def test_smart_case_and_regex(text: str, regex: bool, line: str, found: bool) -> None:
    query = Query(text, regex)
    assert query.found_in(line) is found
    assert bool(query.spans(line)) is found


def test_spans_are_where_it_matches() -> None:
    assert Query("o").spans("foo Oo") == [(1, 2), (2, 3), (4, 5), (5, 6)]
    assert Query("x*", regex=True).spans("axxb") == [(1, 3)]


DANGEROUS = (
    "x(y", "*", "(a+)+$", "(a|aa)*b", "(?:a*)*", "(a?){30}", "a*b*c*", "(a)\\1", "(?P<x>a)(?P=x)", "a" * 300, "a?" * 20,
    "((a|b)c)*",
)  # fmt: skip


@all_cases("pattern", DANGEROUS)
def test_a_bad_or_dangerous_pattern_is_refused_with_words(pattern: str) -> None:
    with pytest.raises(BadPattern) as refused:
        Query(pattern, regex=True)
    assert str(refused.value).endswith((".", ")"))


@pytest.mark.parametrize(
    "pattern", ["took .* s", "[*+]+x", "\\(.*\\)", "([^)]*)", "(ab)+", "a{3}b", "\\d+\\.\\d+", "(a|b)?c", "^\\s*File"]
)
def test_everyday_patterns_are_accepted(pattern: str) -> None:
    Query(pattern, regex=True)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("a*a*b", "a" * 65_536),
        ("a.*b.*c", "ab" * 30_000),
        ("(a|a)" * 8 + "b", "a" * 65_536),
        ("a?" * 8 + "a" * 9 + "b", "a" * 65_536),
    ],
)
def test_an_accepted_pattern_cannot_hold_up_the_screen(pattern: str, line: str) -> None:
    query = Query(pattern, regex=True)
    start = time.process_time()
    query.found_in(line)
    assert time.process_time() - start < 0.5


@given(st.text(alphabet="ab()[]{}*+?|\\^$.,0123<=!:P", max_size=40))
def test_any_pattern_is_accepted_or_refused(pattern: str) -> None:
    try:
        query = Query(pattern, regex=True)
    except BadPattern:
        return
    query.found_in("ab" * 100)


def test_a_query_is_a_value() -> None:
    assert Query("a") == Query("a")
    assert Query("a") != Query("a", regex=True)
    with pytest.raises(AttributeError):
        Query("a").text = "b"  # type: ignore[misc]


# --- the index --------------------------------------------------------------------------------------------


def numbers(buffer: LogBuffer, wanted: LineFilter) -> list[int]:
    index = MatchIndex(buffer, wanted)
    while not index.step():
        pass
    return list(index.numbers)


def test_matches_come_in_steps_and_all_come() -> None:
    buffer = filled([f"line {n}" for n in range(5_000)])
    index = MatchIndex(buffer, LineFilter(query=Query("7")))
    steps = 0
    while not index.step(cost=10_000):
        steps += 1
    assert steps > 10
    assert index.numbers == [n for n in range(5_000) if "7" in str(n)]


def test_new_lines_are_looked_at_and_gone_ones_forgotten() -> None:
    buffer = filled(["hit", "miss"] * 5, max_lines=10)
    index = MatchIndex(buffer, LineFilter(query=Query("hit")))
    index.step()
    assert index.numbers == [0, 2, 4, 6, 8]
    buffer.extend(batch("hit", "hit", "hit"))
    assert not index.complete
    index.step()
    assert index.numbers == [4, 6, 8, 10, 11, 12]


def test_the_text_is_searched_as_a_person_reads_it() -> None:
    buffer = filled(["\x1b[31mEngine\x1b[0m Core", "Engine\tCore"])
    assert numbers(buffer, LineFilter(query=Query("engine core"))) == [0, 1]


def test_a_level_takes_the_traceback_with_it() -> None:
    buffer = filled(run_log("vllm-0.32-cpu-fatal-port-in-use"))
    shown = [buffer.line(n).text for n in numbers(buffer, LineFilter(level=40))]
    assert shown[0] == "Traceback (most recent call last):"
    assert shown[-1] == "OSError: [Errno 98] Address already in use"
    assert "    sock.bind(addr)" in shown


def test_the_lines_after_a_traceback_are_not_errors() -> None:
    texts = [
        "ERROR:    Exception in ASGI application",
        "Traceback (most recent call last):",
        "ValueError: x",
        "Triton is here",
    ]
    assert numbers(filled(texts), LineFilter(level=30)) == [0, 1, 2]


def test_conditions_hold_together() -> None:
    buffer = filled(read_log("gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"))
    wanted = LineFilter(level=30, query=Query("padding"))
    assert [buffer.line(n).text[:60] for n in numbers(buffer, wanted)] == [
        "(EngineCore pid=199) WARNING 05-21 21:10:10 [kv_cache_utils."[:60],
        "(EngineCore pid=199) WARNING 05-21 21:10:12 [kv_cache_utils."[:60],
    ]


@given(st.lists(st.sampled_from(["hit", "a hit b", "miss", ""]), max_size=60), st.integers(1, 500))
def test_the_index_does_not_depend_on_the_size_of_its_steps(texts: list[str], cost: int) -> None:
    buffer = filled(texts) if texts else LogBuffer()
    index = MatchIndex(buffer, LineFilter(query=Query("hit")))
    while not index.step(cost):
        pass
    assert index.numbers == [n for n, text in enumerate(texts) if "hit" in text]


def test_a_filter_that_lets_everything_through_says_so() -> None:
    assert LineFilter().off
    assert not LineFilter(level=30).off


BAR = "(Worker_TP{rank} pid=9) Loading safetensors checkpoint shards: {percent:3}% Completed | {percent:3}%|###| 1/9"
STATS = "(APIServer pid=1) INFO 07-01 07:00:0{n} [loggers.py:1] Engine 000: Avg prompt throughput: {n}.0 tokens/s"
ASKED = '(APIServer pid=1) INFO:     127.0.0.1:5 - "GET /metrics HTTP/1.1" {status} OK'


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([BAR.format(rank=0, percent=each) for each in (0, 50, 100)], [2]),
        ([BAR.format(rank=each % 2, percent=10 * each) for each in range(6)], [4, 5]),
        ([BAR.format(rank=0, percent=each) for each in (0, 100, 0, 100)], [1, 3]),
        ([BAR.format(rank=0, percent=0), "something new", BAR.format(rank=0, percent=50)], [0, 1, 2]),
        ([STATS.format(n=1), ASKED.format(status=200), STATS.format(n=2), ASKED.format(status=200)], [2]),
        ([ASKED.format(status=200), ASKED.format(status=500), ASKED.format(status=200)], [0, 1, 2]),
    ],
    ids=["a bar", "bars of two ranks", "another bar", "news between", "statistics stand for requests", "errors stay"],
)
def test_folding_shows_the_latest_of_repeating_lines(lines: list[str], shown: list[int]) -> None:
    buffer = LogBuffer()
    buffer.extend([LogLine("", line) for line in lines])
    index = MatchIndex(buffer, LineFilter(fold=True))
    while not index.step(100):
        pass
    assert index.numbers == shown
    assert sum(index.folded.values()) == len(lines) - len(shown), "no line is lost"


def test_lines_on_screen_are_not_folded_away() -> None:
    buffer = LogBuffer()
    index = MatchIndex(buffer, LineFilter(fold=True))
    buffer.extend([LogLine("", STATS.format(n=1))])
    index.step()
    index.hold = 0
    buffer.extend([LogLine("", STATS.format(n=each)) for each in (2, 3)])
    index.step()
    assert index.numbers == [0, 2]


def test_a_query_sees_folded_lines() -> None:
    buffer = LogBuffer()
    buffer.extend([LogLine("", STATS.format(n=each)) for each in range(4)])
    index = MatchIndex(buffer, LineFilter(query=Query("throughput"), fold=True))
    index.step()
    assert index.numbers == [0, 1, 2, 3]


def test_line_at_a_time_is_the_first_one_from_then_on() -> None:
    buffer = LogBuffer()
    buffer.extend([LogLine(f"2026-07-01T07:00:0{second}.5Z", "x") for second in range(5)])
    start = datetime.fromisoformat("2026-07-01T07:00:00+00:00").timestamp()
    assert [first_line_at(buffer, start + each) for each in (0, 2.5, 2.6, 9)] == [0, 2, 3, None]
    buffer.extend([LogLine("", "no stamp")])
    assert first_line_at(buffer, start + 9) is None
