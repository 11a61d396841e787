"""What benchmarks show: words, the curve, and the objects of a result file of the first version."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.actions import key_of
from spark_tui.base.errors import UsageError
from spark_tui.base.page import Page
from spark_tui.observe.results.model.compare import compare
from spark_tui.observe.results.model.run import BenchRun, Result, RunOutcome, Status, result_of
from spark_tui.tui.widgets.graph_picture import GraphKind
from spark_tui.use.bench.show import bench
from spark_tui.use.bench.show.export import comparison_object, result_object
from spark_tui.use.prove.screen.bench import format_of
from spark_tui.use.prove.screen.curve import Curves, curve_rows
from spark_tui.use.prove.screen.form import whole_number, whole_numbers
from tests.bench_kit import a_run
from tests.cases import all_cases

SWEEP = ((1, (40.0, 41.0, 40.5)), (8, (130.0, 131.0, 129.0)))
Sweep = tuple[int, tuple[float, ...]]
CANCELLED = a_run("c", ending=RunOutcome.CANCELLED, reason="stopped before its end")


def text_of(page: Page) -> str:
    return "\n".join(f"{row.label} {row.text}".strip() for section in page for row in section.rows)


@all_cases(
    ("text", "expected"),
    [
        (bench.quant_word("acme/x", "compressed-tensors"), "-"),
        (bench.quant_word("acme/x-4.75bit", "compressed-tensors"), "4.75-bit"),
        (bench.quant_word("acme/x", "gptq-int4"), "GPTQ-INT4"),
        (bench.short_model("nvidia/Qwen"), "Qwen"),
        (bench.short_model(""), "unknown"),
        ([bench.since(seconds) for seconds in (3, 300, 7300, 200_000)], ["now", "5m", "2h", "2d"]),
        ([bench.rate(value) for value in (None, 1.234, 12.34, 1234.5)], ["-", "1.23", "12.3", "1,234"]),
        ([bench.level_name(key) for key in ((False, 1, 9), (False, 2, 9), (True, 1, 16384))],
         ["1 stream", "2 streams", "prompt 16,384"]),
        (bench.headline(a_run("a", *SWEEP)),
         "1 stream decodes 41.8 tok/s, peak throughput 130 at 8 streams, 40 % of linear, knee 1"),
        (bench.ended_text(CANCELLED),
         "qwen: cancelled, stopped before its end. Kept: 1 stream decodes 41.8 tok/s"),
        (bench.result_line(Result("v", 0.0, Status.FAILED, "acme/x", reason="no room"), 7300.0),
         "acme/x, 2h ago: no room"),
        ([bench.status_word(result_of(run)) for run in (a_run(), CANCELLED)], ["done", "cancelled"]),
    ],
)  # fmt: skip
def test_words(text: object, expected: object) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((8, (100.0, 101.0, 99.0)), (8, (118.0, 119.0, 117.0)), "B is 18 % faster at 8 streams (95 %: 15 to 21 %)."),
        ((8, (100.0, 101.0, 99.0)), (8, (80.0, 81.0, 79.0)), "B is 20 % slower at 8 streams (95 %: 18 to 22 %)."),
        ((1, (40.0, 41.0, 39.0)), (1, (40.2, 41.2, 39.0)), "No significant difference at 1 stream: B +0 % (95 %: "),
        ((1, (40.0,)), (1, (44.0,)), "Too few passes to compare."),
    ],
    ids=["faster", "slower", "none", "few"],
)
def test_two_runs_have_a_verdict_in_one_sentence(first: Sweep, second: Sweep, expected: str) -> None:
    found = bench.pair_verdict(compare(a_run("a", first), a_run("b", second)))
    assert found is not None and found.text.startswith(expected)


def test_two_runs_of_other_loads_say_why_they_are_not_compared() -> None:
    found = compare(a_run("a", (1, (40.0,))), a_run("b", (4, (90.0,))))
    assert bench.pair_verdict(found) is None
    assert "Not compared" in text_of(bench.pair_head(found, 2000.0))
    assert "levels: c1 -> c4" in text_of(bench.pair_head(found, 2000.0))


def test_numbers_and_file_names_are_read_as_people_write_them() -> None:
    assert (whole_number("2,048"), whole_numbers("8 1, 2"), whole_numbers("none")) == (2048, (1, 2, 8), ())
    assert (format_of("a.md"), format_of("A.JSON")) == ("markdown", "json")
    with pytest.raises(UsageError):
        format_of("a.exe")


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (a_run("a", (1, (40.0, 41.0, 40.5)), (2, (79.0, 80.0, 78.0))), "more than 2 streams"),
        (a_run("b", *SWEEP), "A/B"),
        (a_run("c", levels=(), ending=RunOutcome.FAILED), "incomplete"),
    ],
    ids=["the knee may be beyond", "whole", "broken off"],
)
def test_a_run_names_the_next_step_and_its_key(run: BenchRun, expected: str) -> None:
    text = bench.next_step(run)
    assert text.startswith(f"{key_of('start_bench')} ") and expected in text


def test_what_is_unknown_of_a_run_takes_one_row() -> None:
    page = bench.conditions_page(a_run("a", *SWEEP))
    short = [row for section in bench.brief(page) for row in section.rows]
    assert [row.label for row in short if row.text == bench.UNKNOWN] == []
    assert short[-1].label == bench.UNKNOWN
    assert "revision" in short[-1].text
    assert any(row.label == "model" for row in short)


# --- the curve ------------------------------------------------------------------------------------------


@given(
    rates=st.dictionaries(st.integers(1, 1024), st.floats(0, 1e6), min_size=2, max_size=12),
    width=st.integers(0, 200), height=st.integers(0, 40), kind=st.sampled_from(GraphKind),
)  # fmt: skip
def test_a_curve_fills_its_room_exactly_whatever_was_measured(
    rates: dict[int, float], width: int, height: int, kind: GraphKind
) -> None:
    points = tuple(sorted(rates.items()))
    rows = curve_rows(Curves("A", points, "B", points[:1], max(rates), "knee"), kind, width, height)
    assert len(rows) in (0, height)
    assert all(len(row.text) == len(row.pens) == width for row in rows)


@pytest.mark.parametrize("width", [58, 62, 66, 100])
def test_a_narrow_curve_has_a_shorter_legend(width: int) -> None:
    points = ((1, 41.0), (8, 157.0))
    curves = Curves(rates=points, other=points, knee=8, knee_words="knee 8 or beyond")
    head = curve_rows(curves, GraphKind.FILLED, width, 9)[0].text
    assert head.rstrip().endswith("knee 8 or beyond")
    assert " 50 %" in head


# --- objects --------------------------------------------------------------------------------------------


def nulls_without_reason(value: object, path: str = "") -> list[str]:
    """Keys that are null and do not say why."""
    if isinstance(value, list):
        return [found for item in value for found in nulls_without_reason(item, path)]
    if not isinstance(value, dict):
        return []
    missing = [f"{path}.{key}" for key, item in value.items() if item is None and f"{key}_reason" not in value]
    return missing + [found for key, item in value.items() for found in nulls_without_reason(item, f"{path}.{key}")]


@pytest.mark.parametrize(
    "run", [a_run("a", *SWEEP), a_run("b", levels=(), ending=RunOutcome.FAILED)], ids=["whole", "empty"]
)
def test_objects_say_why_a_value_is_missing_and_have_units(run: BenchRun) -> None:
    found = result_object(result_of(run), whole=True)
    assert nulls_without_reason(json.loads(json.dumps(found))) == []
    assert found["run"]["box"]["memory_used_bytes_most"] is None
    levels = [level["id"] for level in found["run"]["levels"]]
    assert levels == [f"streams-{level.streams}" for level in run.levels]
    assert nulls_without_reason(comparison_object(compare(run, run))) == []
    assert not re.search(r"_(ms|gb)\b", json.dumps(found))
