"""bench and results on the simulated Spark and on a scripted server: text, data, exit codes, interruption."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_tui.app.main import run
from spark_tui.app.wiring import build_demo
from spark_tui.base.context import Context
from spark_tui.cli.session import Options, Streams
from tests.bench_kit import FakeLoad
from tests.cases import all_cases
from tests.cli.world import BOOT, IMAGE, Result, Stream, World
from tests.fakes_files import MemoryResults
from tests.use.bench.test_bench import nulls_without_reason

NAME = "qwen3.6-35b"
SMALL = ("--concurrency", "1,2", "--output", "16", "--input", "64", "--passes", "2", "--rounds", "1", "--warmup", "0")


class Demo:
    """The simulated Spark, opened anew by every command, with results that stay."""

    def __init__(self) -> None:
        self.kept = MemoryResults()

    def open(self, options: Options, environment: Mapping[str, str]) -> Context:
        context = build_demo()
        ports: Any = context.ports
        object.__setattr__(ports, "results", self.kept)
        return context

    def run(self, *arguments: str, tty: bool = False) -> Result:
        out, err = Stream(tty=tty), Stream(tty=tty)
        code = run(["--demo", *arguments], Streams(Stream(tty=True), out, err, {}), self.open)
        return Result(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def demo() -> Demo:
    """With two results in it."""
    made = Demo()
    assert made.run("bench", NAME, *SMALL).code == 0
    assert made.run("bench", NAME, *SMALL, "--prefill-depths", "2048").code == 0
    return made


def test_a_benchmark_prints_its_table_on_stdout_and_its_course_on_stderr() -> None:
    result = Demo().run("bench", NAME, *SMALL, "--prefill-depths", "2048")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[1].split()[:3] == ["STREAMS", "TOTAL", "±"]
    assert [line.split()[0] for line in lines[2:4]] == ["1", "2"]
    assert lines[4].split()[0] == "PROMPT"
    assert lines[6].startswith("1 stream decodes 4")
    assert "pass 1  1 stream " in result.err
    assert "simulated" in result.err
    assert "saved as" not in result.err, "nothing is kept of a simulation"


def test_on_a_terminal_one_line_moves() -> None:
    result = Demo().run("bench", NAME, *SMALL, tty=True)
    assert "\r\x1b[K" in result.err
    assert "requests" in result.err


def test_as_data_a_run_is_one_object() -> None:
    run = Demo().run("bench", NAME, *SMALL, "--json").json
    assert (run["ending"], run["simulated"], run["conditions"]["engine"]) == ("completed", True, NAME)
    assert [level["id"] for level in run["levels"]] == ["streams-1", "streams-2"]
    first = run["levels"][0]
    assert first["ttft_seconds"]["p50"] > 0.1
    assert first["requests"] == {"complete": 2, "short": 0, "truncated": 0, "failed": 0, "cancelled": 0}
    assert 35 < run["single_stream_tokens_per_second"] < 50
    assert nulls_without_reason(run) == []


@all_cases(
    ("arguments", "code", "words"),
    [
        (("bench", "nope"), 2, "no engine named nope"),
        (("bench", NAME, "--input", "300000"), 1, "context 262,144"),
        (("bench", NAME, "--concurrency", "1,x"), 2, "not a list of whole numbers"),
        (("bench", NAME, "--concurrency", ""), 2, "nothing to measure"),
        (("bench", NAME, "--concurrency", ""), 2, "Give streams, prefill depths, or both: --concurrency, --prefill"),
        (("bench", NAME, "--output", "1"), 2, "at least 2"),
        (("bench", NAME, "--output", "1"), 2, "to measure: --output."),
        (("bench", NAME, "--ab", NAME), 2, "one and the same"),
        (("bench", NAME, "--ab", "max_num_seqs=8", "--yes"), 2, "already uses max_num_seqs=8"),
        (("bench", NAME, "--ab", f"container={NAME}"), 2, "one and the same"),
        (("bench", NAME, "--ab", "container=nope"), 2, "no engine named nope"),
        (("bench", "qwen-try"), 3, "is not running"),
        (("results", "show", "nope"), 2, "no result nope"),
        (("results", "compare", "nope"), 2, "no result nope"),
        (("results", "mark", "m", "failed"), 2, "needs its reason"),
    ],
)
def test_what_cannot_be_done_says_why(arguments: tuple[str, ...], code: int, words: str) -> None:
    result = Demo().run(*arguments)
    assert (result.code, words in result.err) == (code, True), result.err


# --- A/B -----------------------------------------------------------------------------------------------


class BenchWorld(World):
    """An engine that was launched from a preset, a scripted load, and results that stay."""

    def __init__(self) -> None:
        super().__init__(drive=True)
        self.kept = MemoryResults()
        self.docker.add_image(IMAGE)
        self.docker.script(IMAGE, BOOT)
        self.docker.on_start = self.api.serve
        assert self.run("up", "tiny-1b").code == 0

    def context(self, options: Options, environment: Mapping[str, str]) -> Context:
        context = super().context(options, environment)
        ports: Any = context.ports
        object.__setattr__(ports, "results", self.kept)
        object.__setattr__(ports, "load", FakeLoad(self.clock))
        return context

    @property
    def length(self) -> str:
        """The context length that the engine runs with now."""
        facts = self.docker.named("tiny-1b")
        assert facts is not None
        assert facts.running
        words = " ".join(facts.argv).split()
        return words[words.index("--max-model-len") + 1]


QUICK = ("--concurrency", "1", "--input", "32", "--output", "8", "--rounds", "1", "--passes", "2", "--warmup", "0")


def test_a_change_is_measured_in_turn_and_the_engine_runs_as_before() -> None:
    world = BenchWorld()
    asked = world.run("bench", "tiny-1b", "--ab", "max_model_len=8192", *QUICK, keyboard="n\n")
    assert (asked.code, world.kept.all()) == (4, ())
    assert "A: tiny-1b, current settings. B: max_model_len=8192." in asked.err
    assert "2 times" in asked.err
    done = world.run("bench", "tiny-1b", "--ab", "max_model_len=8192", *QUICK, "--json", "--yes")
    assert done.code == 0, done.err
    told = done.json["comparison"]
    assert [row["verdict"] for row in told["levels"]] == ["no difference shown"]
    assert ("4096", "8192") in {(each["first"], each["second"]) for each in told["differences"]}
    assert len(world.kept.all()) == 2
    assert world.length == "4096"


def test_what_cannot_be_the_other_side_is_refused_before_anything_is_stopped() -> None:
    world = BenchWorld()
    made = len(world.docker.created)
    result = world.run("bench", "tiny-1b", "--ab", "max_model_len=4096", *QUICK, "--yes")
    assert (result.code, "already uses" in result.err) == (2, True), result.err
    assert len(world.docker.created) == made


# --- results -------------------------------------------------------------------------------------------


def test_results_are_listed_shown_and_compared(demo: Demo) -> None:
    listed = demo.run("results", "--json").json
    assert [each["status"] for each in listed] == ["benchmarked"] * 2
    text = demo.run("results", "list", "--model", "qwen").out.splitlines()
    assert text[0].split()[:3] == ["ID", "WHEN", "STATUS"]
    assert [line.split()[0] for line in text[1:]] == [each["id"] for each in listed]
    assert demo.run("results", "list", "--status", "failed").out == ""
    assert "PROMPT" in demo.run("results", "show", "last").out
    whole = demo.run("results", "show", "last", "--json").json
    assert [level["id"] for level in whole["run"]["levels"]] == ["streams-1", "streams-2", "depth-2048"]
    compared = demo.run("results", "compare", "last")
    assert (compared.code, "none shown" in compared.out, "Not alternated" in compared.err) == (0, True, True)
    found = demo.run("results", "compare", "last", "--json").json
    assert (found["comparable"], [level["id"] for level in found["levels"]]) == (True, ["streams-1", "streams-2"])


def test_another_load_is_not_compared_and_the_exit_code_says_so(demo: Demo) -> None:
    store = Demo()
    store.run("bench", NAME, *SMALL)
    store.run("bench", NAME, *SMALL[:2], "--input", "128", "--output", "16", "--passes", "2", "--warmup", "0")
    ids = [each["id"] for each in store.run("results", "--json").json]
    compared = store.run("results", "compare", *ids)
    assert compared.code == 1
    assert "not comparable: input tokens: 128 -> 64" in compared.out


@pytest.mark.parametrize("format_", ["markdown", "json"])
def test_results_are_exported(demo: Demo, format_: str) -> None:
    text = demo.run("results", "export", "--format", format_).out
    if format_ == "markdown":
        assert text.startswith("# Benchmarks\n")
        assert "## Benchmarked (2)" in text
    else:
        assert '"version": 1' in text


def test_verdicts_are_kept_and_deleted_once_that_was_confirmed() -> None:
    made = Demo()
    assert made.run("results", "mark", "acme/one", "failed", "CUDA error 35", "--quantization", "NVFP4").code == 0
    (kept,) = made.run("results", "--json").json
    assert (kept["status"], kept["model"], kept["cause"]) == ("failed", "acme/one", "CUDA error 35")
    assert kept["single_stream_tokens_per_second"] is None
    assert "CUDA error 35" in made.run("results", "show", "last").out
    for model in ("acme/two", "acme/three"):
        assert made.run("results", "mark", model, "working").code == 0
    assert "Delete these 2 results for good? [y/N]" in made.run("results", "rm", "acme/one", "acme/two").err
    refused = made.run("results", "rm", "acme/one", "--json")
    assert (refused.code, "--yes" in refused.err) == (4, True), "with data there is no question"
    assert len(made.kept.all()) == 3
    done = made.run("results", "rm", "acme/one", "acme/two", "acme/one", "--yes")
    assert (done.code, "Deleted: 2 of 2" in done.err) == (0, True)
    assert [result.model for result in made.kept.all()] == ["acme/three"]
    assert json.loads(made.run("results", "rm", "acme/three", "--yes", "--json").out)["deleted"] == 1
    assert made.run("results", "rm", "acme/three", "--yes").code == 2


def test_without_the_demo_results_go_into_the_data_folder(tmp_path: Path) -> None:
    out, err = Stream(), Stream()
    environment = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    streams = Streams(Stream(tty=True), out, err, environment)
    assert run(["results", "mark", "acme/big", "working"], streams) == 0
    assert (tmp_path / "data" / "spark-tui" / "benchmarks" / "results.jsonl").stat().st_mode & 0o777 == 0o600
