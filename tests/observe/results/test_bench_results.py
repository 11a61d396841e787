"""Results: kept and read again, compared like with like, set beside what was published, exported."""

from __future__ import annotations

import json
import math
import resource
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.engine.runtimes import family, is_known, published_facts, quantization_words
from spark_tui.base.errors import SparkError
from spark_tui.observe.results.adapter import FileResults, UnreadableResult, result_from_json
from spark_tui.observe.results.model.compare import SpeedVerdict, beside, compare
from spark_tui.observe.results.model.plan import (
    BenchPlan,
    Conditions,
    Content,
    PromptCache,
    flags_of,
)
from spark_tui.observe.results.model.record import (
    Distribution,
    HistogramBucket,
    ServerCheck,
    ServerHistogram,
    ServerSide,
)
from spark_tui.observe.results.model.run import (
    BenchRun,
    HostFigures,
    HostSample,
    Result,
    RunOutcome,
    Status,
    host_figures,
    plan_caveats,
    result_caveats,
    result_of,
    result_to_json,
)
from spark_tui.use.bench.show.export import markdown
from tests.bench_kit import FIXTURES, SPARK, a_run

# --- kept ----------------------------------------------------------------------------------------------


def _full() -> Result:
    side = ServerSide(
        ttft=ServerHistogram(3, 1.5, (HistogramBucket(0, 0.5, 2), HistogramBucket(0.5, float("inf"), 1))),
        output_tokens=300,
    )
    run = replace(
        a_run("full", (1, (40.0, 41.0)), (8, (160.0, 161.0))),
        server=side, checks=(ServerCheck("TTFT median", 0.4, 0.25, float("inf"), True),), caveats=("one", "two"),
        host=HostFigures(4, 70 << 30, 50 << 30, 47.2, 95.0, 70, 2411.0, 2300, 96.0, 0.9),
        lateness=Distribution(1, 0.1, 0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1),
    )  # fmt: skip
    return result_of(run)


def test_a_result_survives_being_kept() -> None:
    result = _full()
    assert result_from_json(json.loads(json.dumps(result_to_json(result)))) == result


LATER_CONDITIONS = ("nodes", "rails", "nccl", "bandwidth")
"""Absent in files of the first version: those ran on one machine."""


def test_files_of_the_first_version_are_read_and_written_the_same() -> None:
    lines = (FIXTURES / "results-v1.jsonl").read_text().splitlines()
    found = [result_from_json(json.loads(line)) for line in lines]
    written = [result_to_json(result) for result in found]
    for each in written:
        for key in LATER_CONDITIONS if each.get("run") else ():
            assert not each["run"]["conditions"].pop(key)
    assert [json.loads(line) for line in lines] == written
    assert [result.status.value for result in found] == ["failed", *["benchmarked"] * 4, "failed"]
    run = found[3].run
    assert run is not None
    assert (run.plan.temperature, run.host.used_bytes_most, run.checks[0].high) == (None, 61 << 30, math.inf)


@given(st.text(), st.text(), st.sampled_from([status for status in Status if status is not Status.BENCHMARKED]))
def test_a_verdict_survives_being_kept(model: str, reason: str, status: Status) -> None:
    result = Result("1", 2.0, status, model, reason=reason)
    assert result_from_json(json.loads(json.dumps(result_to_json(result)))) == result


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.sampled_from(["id", "at", "status", "model", "run", "version"]))
def test_what_is_no_result_is_refused_in_words(value: Any, place: str) -> None:
    told = result_to_json(_full()) | {place: value}
    for candidate in (value, told):
        try:
            result_from_json(candidate)
        except UnreadableResult as error:
            assert str(error)


def test_a_newer_version_is_refused_rather_than_half_read() -> None:
    with pytest.raises(UnreadableResult, match="newer"):
        result_from_json(result_to_json(_full()) | {"version": 99})


def test_the_file_keeps_what_it_cannot_read_and_says_so(tmp_path: Path) -> None:
    store = FileResults(tmp_path / "benchmarks")
    assert store.all() == ()
    store.add(_full())
    file = tmp_path / "benchmarks" / "results.jsonl"
    file.write_bytes(file.read_bytes() + b'{"version": 9}\n[[[\n{"version": 1, "id": "torn')
    store.add(replace(_full(), id="after the crash"))
    assert [result.id for result in store.all()] == ["full", "after the crash"]
    assert len(store.problems()) == 3
    assert all(f"{file}:{line}: " in problem for line, problem in enumerate(store.problems(), 2))
    assert b'{"version": 9}' in file.read_bytes()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_full_disk_adds_no_part_of_a_result(tmp_path: Path) -> None:
    store = FileResults(tmp_path)
    store.add(_full())
    before = (tmp_path / FileResults.NAME).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
    try:
        with pytest.raises(SparkError, match="cannot be kept"):
            store.add(_full())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / FileResults.NAME).read_bytes() == before


def test_a_result_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SparkError, match="cannot be kept"):
        FileResults(tmp_path / "file" / "benchmarks").add(_full())


def test_a_link_in_the_files_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SparkError):
        FileResults(tmp_path).add(_full())
    assert not (tmp_path / "elsewhere").exists()


def test_a_deleted_result_is_gone_and_what_cannot_be_read_stays(tmp_path: Path) -> None:
    store, file = FileResults(tmp_path), tmp_path / "results.jsonl"
    assert store.remove({"one"}) == 0, "there is no file yet"
    for id_ in ("one", "two", "three"):
        store.add(replace(_full(), id=id_))
    file.write_bytes(file.read_bytes() + b'{"version": 9, "id": "one"}\n[[[\n')
    assert store.remove({"one", "three", "never there"}) == 2
    assert [result.id for result in store.all()] == ["two"]
    assert file.read_bytes().endswith(b'{"version": 9, "id": "one"}\n[[[\n')
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["results.jsonl"]
    store.add(replace(_full(), id="four"))
    assert [result.id for result in store.all()] == ["two", "four"]


def test_who_adds_while_another_deletes_loses_nothing(tmp_path: Path) -> None:
    FileResults(tmp_path).add(replace(_full(), id="old"))
    barrier = threading.Barrier(9)

    def add(number: int) -> None:
        barrier.wait()
        for each in range(5):
            FileResults(tmp_path).add(replace(_full(), id=f"{number}-{each}"))

    def delete() -> None:
        barrier.wait()
        for number in range(8):
            FileResults(tmp_path).remove({"old", f"{number}-0"})

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    threads.append(threading.Thread(target=delete))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = FileResults(tmp_path)
    ids = {result.id for result in store.all()}
    assert store.problems() == ()
    assert {f"{number}-{each}" for number in range(8) for each in range(1, 5)} <= ids
    assert "old" not in ids


def test_the_file_stays_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    size = len(json.dumps(result_to_json(_full()), separators=(",", ":"))) + 1
    store, file = FileResults(tmp_path, most_bytes=6 * size), tmp_path / "results.jsonl"
    file.write_bytes(b'{"version": 9}\n')
    for number in range(20):
        store.add(replace(_full(), id=f"{number:04}"))
        assert file.stat().st_size <= 7 * size
    kept = [result.id for result in store.all()]
    assert kept == sorted(kept)
    assert kept[-1] == "0019"
    assert 3 <= len(kept) <= 6
    assert file.read_bytes().startswith(b'{"version": 9}\n'), "a newer program's line is not ours to delete"


@pytest.mark.parametrize(
    ("run", "status"),
    [
        (a_run(), Status.BENCHMARKED),
        (a_run(ending=RunOutcome.CANCELLED), Status.BENCHMARKED),
        (a_run(levels=(), ending=RunOutcome.FAILED, reason="it died"), Status.FAILED),
        (a_run(levels=(), ending=RunOutcome.CANCELLED), Status.PENDING),
    ],
)
def test_a_runs_status_is_what_it_measured(run: BenchRun, status: Status) -> None:
    result = result_of(run)
    assert result.status is status
    assert result.reason or status is Status.BENCHMARKED


# --- compared ------------------------------------------------------------------------------------------


def test_a_difference_beyond_the_scatter_is_shown_and_one_within_is_not() -> None:
    before = a_run("a", (1, (40.0, 41.0, 40.5)), (8, (160.0, 200.0, 180.0)))
    after = a_run("b", (1, (50.0, 51.0, 50.5)), (8, (170.0, 205.0, 182.0)))
    one, many = compare(before, after).rows
    assert one.verdict is SpeedVerdict.FASTER
    assert one.ratio == pytest.approx(50.5 / 40.5, rel=0.01)
    assert many.verdict is SpeedVerdict.NOT_SHOWN
    assert compare(after, before).rows[0].verdict is SpeedVerdict.SLOWER


def test_alternating_passes_show_what_drift_would_hide() -> None:
    drift = (40.0, 35.0, 30.0, 25.0)
    first = a_run("a", (1, drift), pair="b")
    second = a_run("b", (1, tuple(rate * 1.05 for rate in drift)), pair="a")
    assert compare(first, second).rows[0].verdict is SpeedVerdict.FASTER
    alone = compare(replace(first, pair=""), replace(second, pair=""))
    assert alone.rows[0].verdict is SpeedVerdict.NOT_SHOWN


def test_one_pass_is_too_few_to_say() -> None:
    assert compare(a_run("a", (1, (40.0,))), a_run("b", (1, (80.0,)))).rows[0].verdict is SpeedVerdict.UNKNOWN


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"content": Content.PROSE}, "prompts"),
        ({"prompt_cache": PromptCache.WARM}, "prompt cache"),
        ({"input_tokens": 2048}, "input tokens"),
        ({"output_tokens": 7}, "output tokens"),
        ({"temperature": None}, "temperature"),
    ],
)
def test_another_load_is_not_compared(changes: dict[str, Any], what: str) -> None:
    run = a_run("a")
    found = compare(run, replace(run, id="b", plan=replace(run.plan, **changes)))
    assert not found.comparable
    assert [each.what for each in found.obstacles] == [what]
    assert found.rows == ()


def test_the_simulated_is_not_compared_with_the_real() -> None:
    run = a_run("a")
    assert not compare(run, replace(run, conditions=replace(SPARK, simulated=True))).comparable


def test_runs_without_a_common_level_are_not_compared() -> None:
    found = compare(a_run("a", (1, (40.0,))), a_run("b", (4, (90.0,))))
    assert [(each.what, each.first, each.second) for each in found.obstacles] == [("levels", "c1", "c4")]


def test_every_difference_of_the_engine_is_named() -> None:
    one = replace(SPARK, flags=("--kv-cache-dtype fp8", "--max-num-seqs 8"), driver="580.142", environment=("A",))
    two = replace(SPARK, flags=("--enforce-eager", "--max-num-seqs 16"), driver="580.173", environment=("A", "B"))
    found = compare(a_run("a", conditions=one), a_run("b", conditions=two))
    named = {each.what: (each.first, each.second) for each in found.differences}
    assert named == {
        "driver": ("580.142", "580.173"),
        "--enforce-eager": ("", "set"),
        "--kv-cache-dtype": ("fp8", ""),
        "--max-num-seqs": ("8", "16"),
        "variables": ("", "B"),
    }


def test_keys_are_masked_and_the_address_decides_nothing() -> None:
    flags = flags_of(("vllm", "serve", "m", "--port=8000", "--api-key", "sk-secret", "--a", "1", "2", "--b=3", "-x"))
    assert flags == ("--a 1 2", "--b 3 -x")
    assert "secret" not in " ".join(flags_of(("x", "--hf-token", "hf_abcdefghijklmnopqrstuv")))


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", "modelopt", "NVFP4"),
        ("openai/gpt-oss-120b", "mxfp4", "MXFP4"),
        ("Qwen/Qwen3.6-27B", "none", "BF16"),
        ("acme/x-AWQ", "compressed-tensors", "AWQ"),
        ("acme/x-AWQ-4bit", "compressed-tensors", "AWQ"),
        ("acme/x-4.75bit-vllm", "compressed-tensors", "4.75-bit"),
        ("acme/x", "compressed-tensors", "compressed-tensors"),
        ("acme/x", "", ""),
    ],
)
def test_a_quantization_is_called_what_people_call_it(name: str, config: str, words: str) -> None:
    assert quantization_words(name, config) == words


# --- published -----------------------------------------------------------------------------------------


def test_every_published_figure_has_a_source_with_a_licence() -> None:
    known = published_facts().source
    found = published_facts().figure
    assert len(found) > 150
    assert {reference.source for reference in found} == set(known)
    assert all(source.licence for source in known.values())
    for reference in found:
        assert reference.decode_rate > 0
        assert reference.model and reference.quantization and reference.date
        assert is_known(reference.runtime) or (reference.machine and not reference.runtime)
    for of in (*published_facts().kv, *published_facts().accuracy, *published_facts().claim):
        assert of.source in known


def test_published_figures_stand_beside_a_run_of_the_same_model_and_format() -> None:
    found = beside(
        a_run("a", (1, (40.0, 41.0)), (10, (190.0, 191.0))), published_facts().figure, published_facts().source
    )
    assert found
    assert all(family(each.reference.model) == family(SPARK.model) for each in found)
    assert {each.reference.streams for each in found} <= {1, 10}
    assert {each.reference.machines for each in found} == {1}
    theirs = {each.theirs for each in found if each.reference.source == "djangodevreng"}
    assert theirs == {42.62, 196.13}
    assert all(each.differs for each in found), "another prompt length at least"
    assert [len(each.differs) for each in found] == sorted(len(each.differs) for each in found)


@pytest.mark.parametrize(
    "changes",
    [
        {"simulated": True},
        {"is_spark": False},
        {"model": "Qwen/Qwen3.6-35B-A3B-FP8", "quantization": "none"},
        {"runtime": "sglang"},
        {"model": "nvidia/Qwen3.6-27B-NVFP4"},
    ],
)
def test_nothing_unlike_is_set_beside_a_run(changes: dict[str, Any]) -> None:
    run = a_run("a", (1, (40.0,)), conditions=replace(SPARK, **changes))
    found = beside(run, published_facts().figure, published_facts().source)
    assert [each for each in found if each.reference.model == "RedHatAI/Qwen3.6-35B-A3B-NVFP4"] == []


def test_a_run_of_repeated_prompts_stands_beside_nothing() -> None:
    run = a_run("a")
    assert (
        beside(
            replace(run, plan=replace(run.plan, prompt_cache=PromptCache.WARM)),
            published_facts().figure,
            published_facts().source,
        )
        == ()
    )


# --- caveats -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "changes", "words"),
    [
        (BenchPlan(), {"most_sequences": 4}, "max_num_seqs"),
        (BenchPlan(), {"kv_tokens": 5000}, "KV cache"),
        (BenchPlan(prompt_cache=PromptCache.WARM), {}, "prefix cache"),
        (BenchPlan(), {"speculation": "mtp"}, "prose as content"),
        (BenchPlan(), {"eager": True}, "eager"),
    ],
)
def test_what_limits_the_numbers_is_said(plan: BenchPlan, changes: dict[str, Any], words: str) -> None:
    (caveat,) = plan_caveats(plan, replace(SPARK, **changes))
    assert words in caveat
    assert plan_caveats(BenchPlan(), SPARK) == ()


def test_what_the_measurement_says_against_itself_is_said() -> None:
    late = Distribution(9, 0.05, 0, 0, 0.05, 0.05, 0.05, 0.09, 0.1)
    run = replace(
        a_run(), lateness=late, host=HostFigures(9, sm_clock_mhz_mean=720.0, utilization_percent_mean=96.0),
        server=ServerSide(preemptions=3, cache_hit_share=0.4), checks=(ServerCheck("TTFT mean", 1, 2, 2, False),),
    )  # fmt: skip
    found = " ".join(result_caveats(run, 5))
    for words in (
        "90 ms late",
        "720 MHz",
        "3 preemptions",
        "prefix cache",
        "differ from ours: TTFT mean",
        "5 requests",
    ):
        assert words in found
    assert result_caveats(a_run(), 0) == ()


def test_the_box_in_figures() -> None:
    samples = [
        HostSample(0.0, 60, 40, 50.0, 60, 2400, 90),
        HostSample(1.0, 50, 50, 100.0, 70, 2200, 100),
        HostSample(2.0),
    ]
    found = host_figures(samples, 4.0, 300)
    assert (found.used_bytes_most, found.usable_bytes_least, found.power_watts_mean) == (50, 50, 75.0)
    assert found.joules_per_token == pytest.approx(1.0)
    assert host_figures([], 4.0, 300) == HostFigures(0)


# --- exported ------------------------------------------------------------------------------------------

HOSTILE = Conditions(engine="a|b\x1b[2J", model="=cmd()|`x`<b>", runtime="vllm")


def test_markdown_is_a_table_that_text_cannot_break() -> None:
    failed = Result("2", 0.0, Status.FAILED, "acme/x", reason="error | 35\nand more")
    text = markdown((_full(), result_of(a_run("h", conditions=HOSTILE)), failed))
    assert "## Benchmarked (2)" in text and "## Failed (1)" in text
    assert "\x1b" not in text and "<b>" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)
    assert "error \\| 35 and more" in text
