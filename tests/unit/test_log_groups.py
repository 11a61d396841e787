"""Which lines belong together."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.domain.logs.groups import MAX_APART, REACH, GroupKind, LineGroup, group_lines, traceback_at
from spark_tui.domain.logs.line import LineKind, parse_line
from tests.cases import all_cases
from tests.log_fixtures import log_names, run_log

COMPOSED = Path(__file__).parents[1] / "fixtures" / "logs-composed"
CPU = "vllm-0.32-cpu-"
RUNS = sorted({name.removesuffix(".stdout").removesuffix(".stderr") for name in log_names()})


def tracebacks(lines: list[str]) -> list[LineGroup]:
    return [group for group in group_lines(lines) if group.kind is GroupKind.TRACEBACK]


@all_cases("name", RUNS)
def test_every_line_is_in_one_group_and_groups_come_in_order(name: str) -> None:
    lines = run_log(name)
    groups = list(group_lines(lines))
    assert sorted(number for group in groups for number in group.lines) == list(range(len(lines)))
    firsts = [group.lines[0] for group in groups]
    assert firsts == sorted(firsts)
    for group in groups:
        assert list(group.lines) == sorted(group.lines)
        assert {parse_line(lines[number]).process for number in group.lines} == {group.process}


@all_cases("name", RUNS)
def test_no_frame_of_a_traceback_is_left_alone(name: str) -> None:
    lines = run_log(name)
    inside = {number for group in tracebacks(lines) for number in group.lines}
    frames = {number for number, line in enumerate(lines) if parse_line(line).kind is LineKind.TRACEBACK}
    assert frames <= inside


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "fatal-kv-space-zero",
            [
                ("EngineCore", "ValueError: No available memory for the cache blocks. Try increasing"),
                ("", "ValueError: No available memory for the cache blocks. Try increasing"),
                ("", "RuntimeError: Engine core initialization failed. See root cause above."),
            ],
        ),
        (
            "f_missing",
            [
                ("Worker", "FileNotFoundError: Weight files referenced in index but missing:"),
                ("EngineCore", "Exception: WorkerProc initialization failed due to an exception in a background"),
                ("", "Exception: WorkerProc initialization failed due to an exception in a background"),
                ("", "RuntimeError: Engine core initialization failed. See root cause above."),
            ],
        ),
        # chained exceptions are one story, told by the last of them
        (
            "fatal-model-hub-offline",
            [("", "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate")],
        ),
        ("f_nomodel_on", [("", "OSError: We couldn't connect to 'https://huggingface.co' to load the files")]),
    ],
)
def test_the_tracebacks_of_a_failed_start(name: str, expected: list[tuple[str, str]]) -> None:
    found = tracebacks(run_log(CPU + name))
    assert len(found) == len(expected)
    for group, (process, title) in zip(found, expected, strict=True):
        assert group.process == process
        assert group.title.startswith(title)


def test_two_workers_that_fail_at_once_have_a_traceback_each() -> None:
    with (COMPOSED / "vllm-0.31-ray-tp2-oom.log").open(encoding="utf-8", newline="\n") as file:
        lines = [line.removesuffix("\n") for line in file]
    one, other, *_ = tracebacks(lines)
    assert (one.process, other.process) == ("Worker_TP1", "Worker_TP0")
    assert one.lines[-1] > other.lines[0]
    assert "1.09 GiB is free" in one.title
    assert "2.09 GiB is free" in other.title
    assert [parse_line(lines[number]).message.strip() for number in one.lines[:2]] == [
        "WorkerProc failed to start.",
        "Traceback (most recent call last):",
    ]


@all_cases("name", RUNS)
def test_each_of_its_lines_leads_to_the_whole_traceback_and_no_other_line_does(name: str) -> None:
    lines = run_log(name)
    for group in list(group_lines(lines))[-60:]:
        whole = group.lines if group.kind is GroupKind.TRACEBACK else ()
        for number in {group.lines[0], group.lines[len(group.lines) // 2], group.lines[-1]}:
            first = max(0, number - REACH)
            assert traceback_at(number, lines[first : number + REACH], first) == whole


BARE = [
    "Traceback (most recent call last):",
    '  File "a.py", line 1, in f',
    "    x()",
    "    ^^^",
    "KeyError: 'x'",
    "",
    "The above exception was the direct cause of the following exception:",
    "",
    "Traceback (most recent call last):",
    '  File "a.py", line 2, in g',
    "    raise OSError(",
    "OSError: You are trying to access a gated repo.",
    "Make sure to have access to it at https://huggingface.co/x.",
    "",
    "INFO:     Shutting down",
]


def kinds(lines: list[str]) -> list[tuple[str, tuple[int, ...], str]]:
    return [(group.kind.value, group.lines, group.title) for group in group_lines(lines)]


def test_a_chain_is_one_group_with_its_last_exceptions_text() -> None:
    assert kinds(BARE) == [
        ("traceback", tuple(range(13)), "OSError: You are trying to access a gated repo."),
        ("line", (13,), ""),
        ("line", (14,), "Shutting down"),
    ]


def test_a_record_between_the_lines_of_a_traceback_is_not_part_of_it() -> None:
    """stdout and stderr come by different ways."""
    lines = [*BARE[:2], "(APIServer pid=1) INFO 11-21 02:16:18 [x.py:1] meanwhile", *BARE[2:5]]
    assert kinds(lines) == [("traceback", (0, 1, 3, 4, 5), "KeyError: 'x'"), ("line", (2,), "meanwhile")]


def test_what_uvicorn_reports_stands_above_its_traceback() -> None:
    lines = [
        "ERROR:    Exception in ASGI application",
        *BARE[:5],
        'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK',
    ]
    assert kinds(lines)[0] == ("traceback", (0, 1, 2, 3, 4, 5), "KeyError: 'x'")
    assert len(kinds(lines)) == 2


def test_a_bar_is_one_group_and_the_next_models_bar_another() -> None:
    bar = "\rLoading safetensors checkpoint shards: {:3d}% Completed | {}/4 [00:34<02:54, 34.81s/it]"
    lines = [bar.format(25 * step, step) for step in (1, 2, 4, 0, 4)]
    assert [(kind, numbers) for kind, numbers, _ in kinds(lines)] == [("progress", (0, 1, 2)), ("progress", (3, 4))]


def test_a_warning_keeps_its_second_line() -> None:
    lines = ["/x/y.py:138: FutureWarning: old", "  warnings.warn(", "    return f()"]
    assert kinds(lines) == [("message", (0, 1, 2), "FutureWarning: old")]


def test_records_of_one_line_stay_alone() -> None:
    lines = [f"(APIServer pid=1) INFO 11-21 02:16:18 [launcher.py:46] Route: /{name}, Methods: GET" for name in "abc"]
    assert [numbers for _, numbers, _ in kinds(lines)] == [(0,), (1,), (2,)]


def test_numbers_begin_where_they_are_told_to() -> None:
    assert [group.lines for group in group_lines(["a", "b"], first=100)] == [(100,), (101,)]


def test_a_group_that_nobody_continues_is_given_after_a_while() -> None:
    def endless() -> list[str]:
        return [BARE[0], *(f"INFO:     line {number}" for number in range(2 * MAX_APART))]

    given_first = next(iter(group_lines(endless())))
    assert given_first.kind is GroupKind.TRACEBACK


def test_memory_does_not_grow_with_the_log() -> None:
    def lines(count: int) -> int:
        source = (f"(W{n % 7} pid={n}) INFO 11-21 02:16:18 [x.py:{n}] line {n}" for n in range(count))
        return sum(1 for _ in group_lines(source))

    tracemalloc.start()
    lines(2_000)
    _, small = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    assert lines(10_000) == 10_000
    _, large = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert large < 2 * small


_LINES = st.sampled_from(
    [*BARE, "\rBar:  50%|## | 1/2 [00:00<00:00]", "(W pid=1) ERROR 11-21 02:16:18 [x.py:1] E: x\r"]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_LINES | st.text(max_size=60), max_size=40))
def test_any_lines_are_grouped_without_loss(lines: list[str]) -> None:
    groups = list(group_lines(lines))
    assert sorted(number for group in groups for number in group.lines) == list(range(len(lines)))
