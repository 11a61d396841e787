"""Which lines belong to a traceback."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.observe.explain.model.line import MAX_APART, LineKind, parse_line, traceback_at
from tests import TESTS
from tests.cases import all_cases
from tests.log_fixtures import log_names, run_log

COMPOSED = TESTS / "fixtures" / "logs-composed"
CPU = "vllm-0.32-cpu-"
RUNS = sorted({name.removesuffix(".stdout").removesuffix(".stderr") for name in log_names()})


def tracebacks(lines: list[str]) -> list[tuple[int, ...]]:
    """All of a log, by their first lines."""
    found: dict[tuple[int, ...], None] = {}
    for number, text in enumerate(lines):
        if parse_line(text).kind is LineKind.TRACEBACK and not any(number in each for each in found):
            found[traceback_at(number, lines)] = None
    return sorted(found)


def title_of(lines: list[str], numbers: tuple[int, ...]) -> tuple[str, str]:
    """Its process, and the exception that it ends in."""
    records = [parse_line(lines[number]) for number in numbers]
    return records[0].process, [each.message.strip() for each in records if each.kind is LineKind.EXCEPTION][-1]


@all_cases("name", RUNS)
def test_no_frame_is_left_alone_and_each_line_leads_to_the_whole_traceback_of_its_process(name: str) -> None:
    lines = run_log(name)
    found = tracebacks(lines)
    inside = [number for each in found for number in each]
    assert len(inside) == len(set(inside))
    assert {at for at, text in enumerate(lines) if parse_line(text).kind is LineKind.TRACEBACK} <= set(inside)
    for numbers in found:
        assert list(numbers) == sorted(numbers)
        assert {parse_line(lines[number]).process for number in numbers} == {parse_line(lines[numbers[0]]).process}
        for number in {numbers[0], numbers[len(numbers) // 2], numbers[-1]}:
            assert traceback_at(number, lines) == numbers


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
    lines = run_log(CPU + name)
    found = [title_of(lines, numbers) for numbers in tracebacks(lines)]
    assert [process for process, _ in found] == [process for process, _ in expected]
    assert all(said.startswith(title) for (_, said), (_, title) in zip(found, expected, strict=True))


def test_two_workers_that_fail_at_once_have_a_traceback_each() -> None:
    with (COMPOSED / "vllm-0.31-ray-tp2-oom.log").open(encoding="utf-8", newline="\n") as file:
        lines = [line.removesuffix("\n") for line in file]
    one, other, *_ = tracebacks(lines)
    assert one[-1] > other[0]
    for numbers, process, words in ((one, "Worker_TP1", "1.09 GiB is free"), (other, "Worker_TP0", "2.09 GiB is free")):
        assert title_of(lines, numbers)[0] == process
        assert words in title_of(lines, numbers)[1]
    assert [parse_line(lines[number]).message.strip() for number in one[:2]] == [
        "WorkerProc failed to start.",
        "Traceback (most recent call last):",
    ]


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


def test_a_chain_is_one_traceback_with_its_last_exceptions_text() -> None:
    assert [traceback_at(number, BARE) for number in (0, 5, 12, 13, 14)] == [tuple(range(13))] * 3 + [()] * 2


def test_a_record_between_the_lines_of_a_traceback_is_not_part_of_it() -> None:
    """stdout and stderr come by different ways."""
    lines = [*BARE[:2], "(APIServer pid=1) INFO 11-21 02:16:18 [x.py:1] meanwhile", *BARE[2:5]]
    assert [traceback_at(number, lines) for number in (0, 2, 5)] == [(0, 1, 3, 4, 5), (), (0, 1, 3, 4, 5)]


def test_what_uvicorn_reports_stands_above_its_traceback() -> None:
    lines = [
        "ERROR:    Exception in ASGI application",
        *BARE[:5],
        'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK',
    ]
    assert [traceback_at(number, lines) for number in (0, 3, 6)] == [tuple(range(6)), tuple(range(6)), ()]


def test_bars_warnings_and_single_records_are_no_tracebacks() -> None:
    bar = "\rLoading safetensors checkpoint shards: {:3d}% Completed | {}/4 [00:34<02:54, 34.81s/it]"
    warning = ["/x/y.py:138: FutureWarning: old", "  warnings.warn(", "    return f()"]
    routes = [f"(APIServer pid=1) INFO 11-21 02:16:18 [launcher.py:46] Route: /{name}, Methods: GET" for name in "abc"]
    for lines in ([bar.format(25 * step, step) for step in range(5)], warning, routes):
        assert not any(traceback_at(number, lines) for number in range(len(lines)))


def test_numbers_begin_where_they_are_told_to() -> None:
    assert traceback_at(101, BARE[:5], first=100) == tuple(range(100, 105))


def test_a_traceback_that_nothing_continues_ends_after_a_while() -> None:
    lines = [BARE[0], *(f"INFO:     line {number}" for number in range(2 * MAX_APART)), BARE[1]]
    assert traceback_at(0, lines) == (0,)


_LINES = st.sampled_from(
    [*BARE, "\rBar:  50%|## | 1/2 [00:00<00:00]", "(W pid=1) ERROR 11-21 02:16:18 [x.py:1] E: x\r"]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_LINES | st.text(max_size=60), min_size=1, max_size=40), st.data())
def test_any_line_of_any_lines_is_in_its_own_traceback_or_in_none(lines: list[str], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(lines) - 1))
    found = traceback_at(number, lines)
    assert not found or (number in found and list(found) == sorted(set(found)))
