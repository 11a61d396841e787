"""Our benchmark beside `vllm bench serve`, in turn, on one real server; and beside the server's own histograms.

What made two streams differ between clients, and is the same for both here: the prompts go as text, which the server
must tokenize; each measurement follows a warm-up of its own; both clients run in the server's container, so that the
scheduler treats them alike; and a step of the server has room for one prompt only, or else it is a matter of
microseconds whether two prompts that come at once are read in one step or in two, which doubles a TTFT or does not.
The model is the smallest real one: with the tiny random one a token takes less than two milliseconds, of which a Python
client's own work is a tenth, and the two clients differ by what they cost and not by what they measure.

The same is asked of a scripted server, which takes no core from its clients: there it is told whether the two count
alike, however little the machine has to give. What is left on the real one is the machine's: on few cores, which the
server takes all, figures scatter by more than 3 %. So the other tool is measured against itself in the same rounds
(ours, theirs, theirs once more, in turning order), and ours must be within 3 %, or within what the tool differs from
itself there, whichever is more. It is judged by the medians of the rounds' ratios: a machine that is slow for a while
is slow for all three.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import spark_tui
from spark_tui.base.engine.state import Endpoint
from spark_tui.observe.results.model.plan import BenchPlan, Conditions, PromptForm, Segment
from spark_tui.observe.results.model.record import median_interval
from spark_tui.observe.results.model.run import level
from spark_tui.use.bench.adapter.driver import HttpLoadDriver
from spark_tui.use.bench.use.bench import BenchSession
from tests.bench_server import BenchServer
from tests.fakes_ports import no_metrics
from tests.real.lab.engine import PrivateEngine
from tests.real.lab.lab import Lab
from tests.real.lab.models import SMOLLM2
from tests.real.lab.serving import LIGHT, healthy
from tests.real.lab.vllm_image import SERVE_TAG

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

NAME = f"test-bench-{os.getpid()}"
"""Of this run alone: others use the lab too."""
TOLERANCE = 0.03
LEAST_ROUNDS, MOST_ROUNDS, ROUNDS_SECONDS = 6, 15, 60.0
"""Many short rounds tell more than few long ones; on a slow machine there are fewer."""
INPUT, OUTPUT = 128, 32
ONE_PROMPT = ("--max-num-batched-tokens", str(INPUT + 4))
"""Tokens of a step: one prompt, and a token for each stream that the server takes."""
READY_SECONDS = 240.0

THEIR_LOOP = """
import contextlib, json, sys
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
print("ready", flush=True)
for line in sys.stdin:
    with contextlib.redirect_stdout(sys.stderr):
        told = main(parser.parse_args(json.loads(line)))
    print(json.dumps({key: value for key, value in told.items() if isinstance(value, (int, float))}), flush=True)
"""
"""What `vllm bench serve` does with its arguments, again and again: its start alone takes longer than a round."""


@dataclass(frozen=True)
class Server:
    """A real vLLM on the host's network, so that no proxy stands before it."""

    engine: PrivateEngine
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def inside(self, *command: str) -> tuple[str, ...]:
        """The words that run a command in its container, with this package at hand."""
        words = ("docker", "--host", self.engine.host, "exec", "--interactive", "--env", "PYTHONPATH=/ours", NAME)
        return (*words, *command)


@pytest.fixture(scope="module")
def server(vllm_lab: Lab, take_port: Callable[[], int]) -> Iterator[Server]:
    """Without a prefix cache, and with this package inside, for our client's helper."""
    engine, port = vllm_lab.engine, take_port()
    engine.try_docker("rm", "--force", NAME)
    engine.docker(
        *("run", "--detach", "--name", NAME, "--gpus", "all", "--ipc", "host", "--network", "host"),
        *("--volume", f"{Path(spark_tui.__file__).parent}:/ours/spark_tui:ro"),
        *("--volume", f"{vllm_lab.store / SMOLLM2}:/models/smollm2:ro", SERVE_TAG, "/models/smollm2"),
        *("--served-model-name", "smollm2", "--host", "127.0.0.1", "--port", str(port), *LIGHT, *ONE_PROMPT),
        "--no-enable-prefix-caching",
    )
    try:
        end = time.monotonic() + READY_SECONDS
        while not healthy(port):
            assert time.monotonic() < end, engine.try_docker("logs", "--tail", "30", NAME).stdout
            time.sleep(0.2)
        yield Server(engine, port)
    finally:
        engine.try_docker("rm", "--force", NAME)


@dataclass(frozen=True)
class Figures:
    """Medians in seconds, throughput in tokens per second."""

    ttft: float
    itl: float
    throughput: float


class Theirs:
    """`vllm bench serve` in the server's container."""

    def __init__(self, server: Server, url: str, streams: int, requests: int) -> None:
        self._url, self._real = url, server.url
        self._streams = streams
        self._requests = requests
        self._process = subprocess.Popen(
            server.inside("python3", "-P", "-c", THEIR_LOOP),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def measure(self, seed: int) -> Figures:
        """One warm-up for each stream, then the load."""
        words = (
            *("--backend", "openai", "--endpoint", "/v1/completions", "--base-url", self._url),
            *("--model", "/models/smollm2", "--served-model-name", "smollm2", "--dataset-name", "random"),
            *("--random-input-len", str(INPUT), "--random-output-len", str(OUTPUT), "--ignore-eos"),
            *("--num-prompts", str(self._requests), "--max-concurrency", str(self._streams), "--seed", str(seed)),
            *("--num-warmups", str(self._streams), "--temperature", "0", "--ready-check-timeout-sec", "0"),
            *("--disable-tqdm", "--percentile-metrics", "ttft,itl", "--metric-percentiles", "50"),
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._line())
        assert told["completed"] == self._requests
        assert told["total_output_tokens"] == OUTPUT * self._requests
        if self._url == self._real:
            assert told["total_input_tokens"] == pytest.approx(INPUT * self._requests, rel=0.02)
        return Figures(told["median_ttft_ms"] / 1000, told["median_itl_ms"] / 1000, told["output_throughput"])

    def close(self) -> None:
        """Its standard input ends, and so does it."""
        self._process.communicate(timeout=60)


class Ours:
    """Our session, whose helper runs there too."""

    def __init__(self, server: Server, url: str, streams: int, requests: int) -> None:
        self.driver = HttpLoadDriver(server.inside("python3", "-P", "-m", "spark_tui.use.bench.adapter.load"))
        plan = BenchPlan(
            input_tokens=INPUT, output_tokens=OUTPUT, concurrency=(streams,), rounds=1, warmup=1, form=PromptForm.TEXT
        )
        conditions = Conditions(engine=NAME, model="smollm2", served_name="smollm2")
        self.session = BenchSession(
            self.driver, no_metrics(), Endpoint(url), plan, conditions, at=0.0, salt=random.getrandbits(32)
        )
        self._streams = streams
        self._requests = requests

    async def measure(self, number: int) -> Figures:
        """One warm-up for each stream, then the load."""
        await self.session.warm_up(asyncio.Event(), lambda _: None)
        segment = Segment(number, self._streams, self._requests, INPUT, OUTPUT)
        found = level([await self.session.measure(segment, asyncio.Event(), lambda _: None)])
        assert found.counts.complete == self._requests, found.errors
        assert found.ttft and found.itl and found.output_rate
        return Figures(found.ttft.p50, found.itl.p50, found.output_rate)


Round = dict[str, Figures]
_ORDERS = (("ours", "theirs", "again"), ("again", "ours", "theirs"), ("theirs", "again", "ours"))


@pytest.mark.parametrize(("streams", "requests"), [(1, 4), (2, 8)])
async def test_ours_and_vllm_bench_serve_agree(server: Server, streams: int, requests: int) -> None:
    _judge(await _rounds(server, server.url, streams, requests), streams)


async def test_they_agree_on_a_server_that_takes_no_core_from_them(server: Server) -> None:
    async with BenchServer().running() as scripted:
        scripted.first, scripted.step = 0.4, 0.02
        _judge(await _rounds(server, f"http://127.0.0.1:{scripted.port}", 4, 8), 4)


async def _rounds(server: Server, url: str, streams: int, requests: int) -> list[Round]:
    """Ours, theirs and theirs again, in turning order, as often as there is time."""
    theirs, ours = (
        await asyncio.to_thread(Theirs, server, url, streams, requests),
        Ours(server, url, streams, requests),
    )
    rounds: list[Round] = []
    try:
        await ours.session.prepare()
        end = time.monotonic() + ROUNDS_SECONDS
        while len(rounds) < LEAST_ROUNDS or (len(rounds) < MOST_ROUNDS and time.monotonic() < end):
            number, found = len(rounds), {}
            for who in _ORDERS[number % 3]:
                if who == "ours":
                    found[who] = await ours.measure(number + 1)
                else:
                    found[who] = await asyncio.to_thread(theirs.measure, 2 * number + (who == "again"))
            rounds.append(found)
    finally:
        await ours.driver.close()
        await asyncio.to_thread(theirs.close)
    return rounds


def _judge(rounds: list[Round], streams: int) -> None:
    verdicts = [_verdict(figure, streams, rounds) for figure in ("ttft", "itl", "throughput")]
    assert [told for agrees, told in verdicts if not agrees] == []


def _verdict(figure: str, streams: int, rounds: list[Round]) -> tuple[bool, str]:
    """Whether ours differ by no more than 3 %, or than the other tool differs from itself: the farther end of the 95 %
    interval of its own median ratio, for by so much it could be off in a round that nothing is wrong with."""

    def ratios(one: str, other: str) -> list[float]:
        return sorted(getattr(found[one], figure) / getattr(found[other], figure) for found in rounds)

    # Of two measurements by the same tool none is the first: each ratio stands with its inverse.
    itself = sorted((*ratios("again", "theirs"), *ratios("theirs", "again")))
    beside = sorted((*ratios("ours", "theirs"), *ratios("ours", "again")))
    likely = median_interval(ratios("again", "theirs"))
    assert likely is not None
    spread = max(abs(likely.low - 1), abs(likely.high - 1))
    middle, allowed = statistics.median(beside), max(TOLERANCE, spread)
    told = (
        f"{streams} streams, {figure}: ours over theirs {middle:.3f} in {len(rounds)} rounds, allowed {allowed:.3f}; "
        f"theirs over theirs {likely.low:.3f} to {likely.high:.3f}, single rounds {itself[0]:.2f} to {itself[-1]:.2f}"
    )
    print(f"\n{told}  {[round(ratio, 3) for ratio in beside]}")
    return abs(middle - 1) <= allowed, told


def test_our_figures_are_the_servers_own(server: Server, vllm_lab: Lab, tmp_path: Path) -> None:
    environment: Mapping[str, str] = {**os.environ, **vllm_lab.variables(), "HOME": str(tmp_path)}
    load = ("--concurrency", "1,2", "--input", "128", "--output", "16", "--passes", "2", "--prefill-depths", "512")
    done = subprocess.run(
        [sys.executable, "-m", "spark_tui", "bench", NAME, *load, "--json"],
        env=dict(environment), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert all(level["requests"]["complete"] == sum(level["requests"].values()) for level in run["levels"])
    checks = {check["id"]: check for check in run["server_checks"]}
    assert len(checks) == 8
    disagreeing = {name: check for name, check in checks.items() if not check["agrees"]}
    assert disagreeing == {}
    assert checks["output tokens"]["ours"] == checks["output tokens"]["server_low"]
    assert checks["prompt tokens"]["ours"] == checks["prompt tokens"]["server_low"]
    assert run["conditions"]["quantization"] == "none"
    assert run["conditions"]["prefix_caching"] is False
    kept = tmp_path / ".local" / "share" / "spark-tui" / "benchmarks" / "results.jsonl"
    assert json.loads(kept.read_text())["id"] == run["id"]
