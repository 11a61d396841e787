"""The simulated Spark that all the demo's ports look at: its containers, and what happens to them in time."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import itertools
import json
import time
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from math import inf
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.engine.container import (
    LABEL_MODEL,
    LABEL_OVERRIDES,
    LABEL_PORT,
    LABEL_PRESET,
    LABEL_RUNTIME,
    LABEL_SERVED_NAME,
    LOOPBACK,
    ContainerEvent,
    ContainerSpec,
    PublishedPort,
)
from spark_tui.base.engine.metrics_page import Family, SeriesPart, Slot
from spark_tui.base.engine.runtimes import KEY_VARIABLES
from spark_tui.base.errors import EngineUnreachable
from spark_tui.base.executors import pause
from spark_tui.base.ports import Clock, LogLine
from spark_tui.base.quantities import GIB
from spark_tui.base.settings import DEMO_HOME
from spark_tui.simulator.engines import (
    GRAPHS_GIB,
    BootMarks,
    EngineProfile,
    no_cache,
    no_room,
    other_start,
    vllm_start,
)
from spark_tui.simulator.facts import RECORDED_MODEL
from spark_tui.simulator.recording import POOL_GIB, RecordedLog, fill

_TTFT: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0, inf,
)  # fmt: skip
_ITL: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, inf,
)  # fmt: skip
_REQUEST: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0, inf,
)  # fmt: skip


class Buckets:
    """One histogram. `bounds` rise and end with infinity."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0.0] * len(bounds)
        self._sum = 0.0

    def observe(self, value: float, times: float = 1.0) -> None:
        """`times` observations of that value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def samples(self, family: Family) -> Iterator[tuple[Slot, float]]:
        """As a page has it: cumulative."""
        total = 0.0
        for bound, count in zip(self._bounds, self._counts, strict=True):
            total += count
            yield Slot(family, SeriesPart.BUCKET, bound=bound), float(int(total))
        yield Slot(family, SeriesPart.SUM), self._sum
        yield Slot(family, SeriesPart.COUNT), float(int(total))


class Counters(Struct, eq=False):
    """Counters of one start. `until` is how far the simulated traffic has been counted."""

    ttft: Buckets = field(default_factory=lambda: Buckets(_TTFT))
    itl: Buckets = field(default_factory=lambda: Buckets(_ITL))
    e2e: Buckets = field(default_factory=lambda: Buckets(_REQUEST))
    queue: Buckets = field(default_factory=lambda: Buckets(_REQUEST))
    computed: float = 0.0
    cached: float = 0.0
    generated: float = 0.0
    drafts: float = 0.0
    accepted: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error"), 0))
    running: int = 0
    until: float | None = None

    def prompt(self, tokens: float, cached: float) -> None:
        """A prompt was read; `cached` of its tokens came from the prefix cache."""
        self.computed += tokens - cached
        self.cached += cached

    def step(self, tokens: float, drafts: float, seconds: float) -> None:
        """Tokens were written in `drafts` steps of `seconds` each."""
        self.generated += tokens
        self.drafts += drafts
        self.itl.observe(seconds, drafts)
        for position, share in enumerate((0.43, 0.32, 0.25)):
            self.accepted[position] += share * max(0.0, tokens - drafts)

    def request(self, reason: str, seconds: float, queued: float = 0.0) -> None:
        """A request has ended."""
        self.finished[reason] = self.finished.get(reason, 0) + 1
        self.e2e.observe(seconds)
        self.queue.observe(queued)


CPU_BYTES: Final = int(3.4 * GIB)
CONTEXT_BYTES: Final = int(0.6 * GIB)
RELEASE_SECONDS: Final = 8.0
"""Memory comes back late after an engine has ended; on a real Spark it can be minutes."""
_GRAPHS_BYTES: Final = int(GRAPHS_GIB * GIB)


class HeldMemory(NamedTuple):
    """Bytes held at a moment: by processes, by CUDA; and file pages read since the start."""

    cpu: int = 0
    cuda: int = 0
    pages: int = 0


class Run(Struct, eq=False):
    """`speed` is how many recorded seconds pass in one. `fails` follows the script of a failed start.
    `cpu_bytes` is what its processes come to hold."""

    started_at: float
    speed: float
    script: RecordedLog
    marks: BootMarks
    profile: EngineProfile
    pid: int
    kv_bytes: int = 0
    cpu_bytes: int = CPU_BYTES
    fails: bool = False
    traffic: bool = False
    ended_at: float | None = None
    counters: Counters = field(default_factory=Counters)

    @property
    def exits_at(self) -> float | None:
        """When it will end by itself; None when it will not."""
        return self.started_at + (self.script.seconds + 1) / self.speed if self.fails else None

    @property
    def ready_at(self) -> float:
        """When the server answers, should it live so long; never when it fails."""
        return inf if self.fails else self.started_at + self.marks.ready / self.speed

    @property
    def full_bytes(self) -> int:
        """What it holds once it serves."""
        return self.cpu_bytes + (0 if self.fails else int(self.profile.fixed_gib * GIB) + self.kv_bytes)

    def serves(self, now: float) -> bool:
        """The server answers now."""
        return self.ended_at is None and now >= self.ready_at

    def stage(self, now: float) -> str:
        """`ended`, `start`, `load`, `compile` or `serve`."""
        if self.ended_at is not None and now >= self.ended_at:
            return "ended"
        if now >= self.ready_at:
            return "serve"
        at = (now - self.started_at) * self.speed
        if at < self.marks.load:
            return "start"
        return "load" if at < self.marks.loaded else "compile"

    def answers(self, now: float) -> bool:
        """Its traffic keeps it busy."""
        return self.traffic and self.stage(now) == "serve" and streams(interval_of(self, now)) > 0

    def held(self, now: float) -> HeldMemory:
        """What it holds at `now`; CUDA memory comes back late after its end."""
        marks, profile, until = self.marks, self.profile, now if self.ended_at is None else min(now, self.ended_at)
        at = (until - self.started_at) * self.speed
        cpu = int(self.cpu_bytes * _ramp(at, 0, marks.engine))
        cuda = (
            CONTEXT_BYTES * _ramp(at, marks.engine, marks.engine + 2)
            + profile.weights_gib * GIB * _ramp(at, marks.load, marks.loaded)
            + profile.workspace_gib * GIB * _ramp(at, marks.compile, marks.kv)
            + self.kv_bytes * _ramp(at, marks.kv, marks.kv + 3)
            + _GRAPHS_BYTES * _ramp(at, marks.kv + 10, marks.graphs)
        )
        pages = int(profile.checkpoint_gib * GIB * _ramp(at, marks.load, marks.loaded))
        if self.ended_at is None or now < self.ended_at:
            return HeldMemory(cpu, int(cuda), pages)
        return HeldMemory(0, int(cuda * (1 - _ramp(now, self.ended_at, self.ended_at + RELEASE_SECONDS))), pages)


def noise(*what: object) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    return zlib.crc32(repr(what).encode()) / 2**32


def _ramp(at: float, begin: float, end: float) -> float:
    """0 before `begin`, 1 after `end`, even in between."""
    return min(1.0, max(0.0, (at - begin) / (end - begin)))


STATS_SECONDS: Final = 10.0  # VLLM_LOG_STATS_INTERVAL
DECODE_RATE: Final = 41.8
"""Tokens per second of one stream, as the simulated engine reports and delivers them."""
REQUEST_INTERVALS: Final = 3
"""A request of the simulated traffic ends in every third interval of statistics."""
PREFIX_HITS: Final = 0.714
CROWD: Final = range(904, 970)
"""Intervals in which others use the engine too: eleven minutes, half an hour before the demo is opened."""
MOST_STREAMS: Final = 6
_ROUND: Final = 90
_LULL, _COMPANY = range(10, 19), range(60, 74)
SLOWDOWN: Final = 0.11
"""How much longer a step takes with each further stream: the weights are read once for all, the KV cache for each."""

_API: Final = "(APIServer pid=1) INFO"
_MICROSECOND: Final = 1_000_000
_TIMES: Final = {  # as the recorded programs write them: for strftime, then with milliseconds and microseconds
    "time": "%m-%d %H:%M:%S",
    "iso": "%Y-%m-%d %H:%M:%S,{0:03d}",
    "glog": "%m%d %H:%M:%S.{1:06d}",
    "day": "%Y-%m-%d %H:%M:%S",
    "rfc": "%Y-%m-%dT%H:%M:%S.{0:03d}Z",
    "trt": "%m/%d/%Y-%H:%M:%S",
}


class DemoLog:
    """The log of one container over all its starts."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self._last = 0  # microseconds, strictly rising: stamps of two lines differ
        self._due: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._traffic: tuple[float, int] | None = None

    def write(self, at: float, text: str) -> None:
        """Plans one line, with its marks of time filled in."""
        moment, micros = time.gmtime(at), int(at % 1 * _MICROSECOND)
        times = {
            name: time.strftime(form, moment).format(micros // 1000, micros)
            for name, form in _TIMES.items()
            if f"<<{name}>>" in text
        }
        heapq.heappush(self._due, (at, next(self._order), fill(text, times)))

    def replay(self, run: Run, values: Mapping[str, str]) -> None:
        """Plans a whole recorded log from the run's start on, and the traffic of one that has some."""
        for offset, text in run.script.lines:
            self.write(run.started_at + offset / run.speed, fill(text, values, run.speed))
        self._traffic = (run.ready_at + STATS_SECONDS, 1) if run.traffic else None

    def cut(self) -> None:
        """The process ends: what it would have written is never written."""
        self._due.clear()
        self._traffic = None

    def request_done(self, at: float, prompt_tokens: int, tokens: int, seconds: float) -> None:
        """Plans what vLLM writes about a request: its access line, and the next line of statistics."""
        self.write(at, _access(46876))
        share = min(1.0, STATS_SECONDS / max(seconds, 0.1))
        self.write(at + 2.0, _stats(prompt_tokens / STATS_SECONDS, tokens * share / STATS_SECONDS, 0, 0.4))

    def flush(self, now: float) -> None:
        """Everything up to `now` is written."""
        while self._traffic is not None and self._traffic[0] <= now:
            at, number = self._traffic
            if streams(number):
                rate = decode_rate(number)
                if number % REQUEST_INTERVALS == 0:
                    self.write(at - 4.2, _access(52114))
                self.write(at, _stats(prompt_rate(number), rate, streams(number), kv_percent(number)))
                self.write(at, _speculation(rate, accepted_length(number)))
            elif streams(number - 1):  # then it is silent until there is something to say
                self.write(at, _stats(0.0, 0.0, 0, 0.0))
            self._traffic = (at + STATS_SECONDS, number + 1)
        while self._due and self._due[0][0] <= now:
            at, _, text = heapq.heappop(self._due)
            self._last = max(round(at * _MICROSECOND), self._last + 1)
            seconds, micros = divmod(self._last, _MICROSECOND)  # Docker's RFC 3339 stamps have nanoseconds
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{micros:06d}000Z"
            self.lines.append(LogLine(stamp, text))

    def next_at(self) -> float | None:
        """When the next line will be written; None when none is planned."""
        planned = [at for at, *_ in self._due[:1]] + ([self._traffic[0]] if self._traffic is not None else [])
        return min(planned, default=None)


def interval_of(run: Run, now: float) -> int:
    """The interval of statistics that a moment belongs to."""
    return int((now - run.ready_at) / STATS_SECONDS) + 1


def streams(number: int) -> int:
    """Requests under way in an interval of the traffic: mostly one; every quarter of an hour none for a while, and a
    few people later on; and once a crowd that comes and goes."""
    if number in CROWD:
        return _crowd(number, CROWD, MOST_STREAMS)
    minute = number % _ROUND
    return 0 if minute in _LULL else _crowd(minute, _COMPANY, 3) if minute in _COMPANY else 1


def _crowd(number: int, when: range, most: int) -> int:
    share = (number - when.start) / len(when)
    return round(1 + (most - 1) * min(1.0, 4 * min(share, 1 - share)))


def decode_rate(number: int) -> float:
    """Tokens written per second in an interval of the traffic, of all streams together."""
    together = streams(number)
    if not together:
        return 0.0
    return DECODE_RATE * together / (1 + SLOWDOWN * (together - 1)) * (0.94 + 0.1 * noise("rate", number))


def prompt_rate(number: int) -> float:
    """Prompt tokens read per second in an interval of the traffic."""
    together = streams(number)
    return (180 + 900 * noise("prompt", number)) * (1 + 0.6 * (together - 1)) if together else 0.0


def kv_percent(number: int) -> float:
    """How full the KV cache is at the end of an interval of the traffic."""
    together = streams(number)
    return 2 + 3 * noise("kv", number) + 4.1 * (together - 1) if together else 0.0


def accepted_length(number: int) -> float:
    """Tokens per step in an interval of the traffic, drafts and the model's own."""
    return 2.6 + 0.6 * noise("accepted", number)


def _access(client: int) -> str:
    return f'{_API}:     172.18.0.1:{client} - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def _stats(prompt: float, generation: float, running: int, kv: float) -> str:
    return (
        f"{_API} <<time>> [loggers.py:259] Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, "
        f"Avg generation throughput: {generation:.1f} tokens/s, Running: {running} reqs, Waiting: 0 reqs, "
        f"GPU KV cache usage: {kv:.1f}%, Prefix cache hit rate: {PREFIX_HITS:.1%}"
    )


def _speculation(rate: float, length: float) -> str:
    drafts = rate / length
    accepted = drafts * (length - 1)
    first, second, third = (share * (length - 1) for share in (0.43, 0.32, 0.25))
    return (
        f"{_API} <<time>> [metrics.py:101] SpecDecoding metrics: Mean acceptance length: {length:.2f}, "
        f"Accepted throughput: {accepted:.2f} tokens/s, Drafted throughput: {drafts * 3:.2f} tokens/s, "
        f"Accepted: {accepted * STATS_SECONDS:.0f} tokens, Drafted: {drafts * 3 * STATS_SECONDS:.0f} tokens, "
        f"Per-position acceptance rate: {first:.3f}, {second:.3f}, {third:.3f}, "
        f"Avg Draft acceptance rate: {accepted / (drafts * 3) * 100:.1f}%"
    )


STORE: Final = f"{DEMO_HOME}/vllm"
DISK_FREE: Final = 2_448_240_345_088
DISK_TOTAL: Final = 3_936_818_806_784
"""Bytes free on the disk of the store."""


_RUNTIME_MARKS: Final = (
    ("sglang", "sglang"),
    ("llama", "llama-cpp"),
    ("ollama", "ollama"),
    ("tensorrt", "trtllm"),
    ("trtllm", "trtllm"),
)


class DemoContainer(Struct):
    """One simulated container. `runs` are its starts, the last one the present."""

    id: str
    name: str
    image: str
    image_id: str
    argv: tuple[str, ...]
    created_at: float
    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[PublishedPort, ...] = ()
    network_mode: str = "bridge"
    variables: tuple[tuple[str, str], ...] = ()
    log: DemoLog = field(default_factory=DemoLog)
    runs: list[Run] = field(default_factory=list)
    exit_code: int | None = None
    stopping: bool = False

    @property
    def run(self) -> Run | None:
        """The start that lives now."""
        return self.runs[-1] if self.runs and self.runs[-1].ended_at is None else None

    @property
    def profile(self) -> EngineProfile:
        """What the command makes of it."""
        runtime = dict(self.labels).get(LABEL_RUNTIME) or next(
            (name for mark, name in _RUNTIME_MARKS if mark in f"{self.image} {' '.join(self.argv)}"), "vllm"
        )
        profile = EngineProfile(runtime, "", self.argv, self.variables)
        words = [*profile.words, "", ""]
        positional = words[words.index("serve") + 1] if "serve" in words else ""
        named = dict(self.labels).get(LABEL_MODEL) or profile.option("--model", "--model-path")
        model = named or ("" if positional.startswith("-") else positional) or RECORDED_MODEL
        return replace(profile, model=model)

    @property
    def key(self) -> str:
        """The API key that requests need; empty without one."""
        given = dict(self.variables)
        return next((given[name] for name in KEY_VARIABLES if name in given), "")

    @property
    def model(self) -> str:
        return self.profile.model

    @property
    def served_name(self) -> str:
        """The name that requests use."""
        names = ("--served-model-name", "--alias")
        return dict(self.labels).get(LABEL_SERVED_NAME) or self.profile.option(*names) or self.model

    @property
    def max_model_len(self) -> int:
        return self.profile.context


TOTAL_BYTES: Final = 127_535_084 * 1024  # MemTotal of a GB10 with current firmware
BASE_BYTES: Final = int(4.9 * GIB)
"""Kernel, desktop, Docker: what an idle Spark uses."""
HEADROOM_BYTES: Final = 3 * GIB
REPLAY_SPEED: Final = 20.0
VERSION: Final = "0.20.2"
VLLM_IMAGE: Final = "vllm/vllm-openai:v0.20.2-ubuntu2404"
NIGHTLY_IMAGE: Final = "vllm/vllm-openai:nightly"
GEMMA_IMAGE: Final = "vllm/vllm-openai:gemma4-cu130"
SERVING_NAME: Final = "qwen3.6-35b"
SERVING_PORT: Final = 8001
SERVING_MODEL: Final = "nvidia/Qwen3.6-35B-A3B-NVFP4"
SERVING_PRESET: Final = "qwen3.6-35b-a3b-nvfp4-tools"
FAILED_NAME: Final = "qwen-try"
"""Not one of ours: started with docker run, days ago."""
FAILED_OURS: Final = "gemma-4-26b"
"""Launched a while ago, with a share of memory that the engine which serves has left it."""
_SERVED_HOURS: Final = 3.2
_FAILED_HOURS: Final = 49.0
_FAILED_OURS_HOURS: Final = 0.7

# The commands of presets of the catalogue, as `spark-tui up` makes them.
_SERVING_COMMAND: Final = f"""
vllm serve {SERVING_MODEL} --port 8000 --tensor-parallel-size 1 --trust-remote-code --dtype auto
 --quantization modelopt --kv-cache-dtype fp8 --attention-backend flashinfer --moe-backend flashinfer_cutlass
 --gpu-memory-utilization 0.5 --max-model-len 262144 --max-num-seqs 8 --max-num-batched-tokens 8192
 --enable-chunked-prefill --async-scheduling --enable-prefix-caching
 --speculative-config {{"method":"mtp","num_speculative_tokens":3,"moe_backend":"triton"}}
 --reasoning-parser qwen3 --enable-auto-tool-choice --tool-call-parser qwen3_coder --served-model-name {SERVING_NAME}"""
_SERVING_CHANGES: Final = {
    "served_model_name": SERVING_NAME,
    "gpu_memory_utilization": "0.5",
    "max_model_len": "262144",
    "max_num_seqs": "8",
    "moe_backend": "flashinfer_cutlass",
}
_GEMMA: Final = "nvidia/Gemma-4-26B-A4B-NVFP4"
_GEMMA_COMMAND: Final = f"""
vllm serve {_GEMMA} --quantization modelopt --tensor-parallel-size 1 --moe-backend marlin --trust-remote-code
 --enable-auto-tool-choice --tool-call-parser gemma4 --reasoning-parser gemma4
 --gpu-memory-utilization 0.85 --max-model-len 65536 --max-num-seqs 4"""
_FOREIGN_COMMAND: Final = f"""
vllm serve {RECORDED_MODEL} --served-model-name {SERVING_NAME} --max-model-len 262144 --max-num-seqs 10
 --gpu-memory-utilization 0.91 --kv-cache-dtype fp8"""


class DemoWorld:
    """Time comes from the clock alone: the same clock and the same deeds give the same world."""

    def __init__(self, clock: Clock, seed: int = 0) -> None:
        self.clock = clock
        self.seed = seed
        self.began_at = clock.now()
        self.containers: dict[str, DemoContainer] = {}
        self.runs: list[Run] = []
        """All starts ever: memory of one that has ended comes back late."""
        self.chats = 0
        """Answers that stream now."""
        self.journal: list[ContainerEvent] = []
        self.waiters: set[asyncio.Event] = set()
        """Of those who follow a stream."""
        self._made = 0
        self._furnish()

    def _furnish(self) -> None:
        """What is there when the demo opens: an engine that has served for hours, and two starts that failed."""
        ours = {LABEL_RUNTIME: "vllm", LABEL_OVERRIDES: json.dumps(_SERVING_CHANGES), LABEL_PORT: str(SERVING_PORT)}
        serving = {LABEL_PRESET: SERVING_PRESET, LABEL_MODEL: SERVING_MODEL, LABEL_SERVED_NAME: SERVING_NAME, **ours}
        gemma = {
            LABEL_PRESET: "gemma-4-26b-a4b-nvfp4",
            LABEL_MODEL: _GEMMA,
            LABEL_SERVED_NAME: _GEMMA,
            LABEL_RUNTIME: "vllm",
            LABEL_OVERRIDES: '{"gpu_memory_utilization": "0.85"}',
            LABEL_PORT: "8000",
        }
        for name, image, port, hours, labels, command in (
            (SERVING_NAME, NIGHTLY_IMAGE, SERVING_PORT, _SERVED_HOURS, serving, _SERVING_COMMAND),
            (FAILED_NAME, VLLM_IMAGE, 8000, _FAILED_HOURS, {}, _FOREIGN_COMMAND),
            (FAILED_OURS, GEMMA_IMAGE, 8000, _FAILED_OURS_HOURS, gemma, _GEMMA_COMMAND),
        ):
            ports = (PublishedPort(8000, port, LOOPBACK),)
            spec = ContainerSpec(
                name, image, tuple(command.split()), entrypoint=(), ports=ports, labels=tuple(labels.items())
            )
            container = self.add(spec, (), self.began_at - hours * 3600)
            free = int(109.53 * GIB) if name == FAILED_NAME else None
            self.begin(container, container.created_at, speed=1.0, traffic=name == SERVING_NAME, free_bytes=free)
        self.settle()
        self.journal.clear()

    # --- time -----------------------------------------------------------------------------------------

    def settle(self) -> float:
        """Brings everything up to now, and returns now."""
        now = self.clock.now()
        for container in self.containers.values():
            run = container.run
            if run is not None and run.exits_at is not None and run.exits_at <= now:
                self.end(container, run.exits_at, 1)
            container.log.flush(now)
        return now

    async def until(self, at: float | None) -> None:
        """Returns at that time, or at the next change; None waits for a change."""
        woken = asyncio.Event()
        self.waiters.add(woken)
        try:
            if at is None:
                await woken.wait()
            else:
                await pause(self.clock, max(0.01, at - self.clock.now()), woken)
        finally:
            self.waiters.discard(woken)

    def note(self, container: DemoContainer, action: str, at: float, exit_code: int | None = None) -> None:
        """A line of the event stream; wakes those who wait."""
        self.journal.append(ContainerEvent(action, container.id, container.name, at, exit_code))
        self.wake()

    def wake(self) -> None:
        """Something was written or changed."""
        for waiter in self.waiters:
            waiter.set()

    # --- containers -----------------------------------------------------------------------------------

    def named(self, name: str) -> DemoContainer:
        """KeyError where there is none."""
        return {each.name: each for each in self.containers.values()}[name]

    def on_port(self, port: int) -> DemoContainer | None:
        """The container that lives and has published that host port."""
        alive = (each for each in self.containers.values() if each.run is not None)
        return next((each for each in alive if any(bound.host_port == port for bound in each.ports)), None)

    def serving(self, base_url: str) -> tuple[DemoContainer, Run]:
        """What answers at an address now. Raises EngineUnreachable."""
        now, port = self.settle(), urlsplit(base_url).port
        container = None if port is None else self.on_port(port)
        run = None if container is None else container.run
        if container is None or run is None or not run.serves(now):
            raise EngineUnreachable(f"Nothing answers at {base_url}.", "Wait until the engine is up, or start it.")
        return container, run

    def fingerprint(self, *what: object) -> str:
        """64 hexadecimal digits that depend on the seed and the arguments."""
        return hashlib.sha256(repr((self.seed, *what)).encode()).hexdigest()

    def new(self, spec: ContainerSpec, entrypoint: tuple[str, ...], at: float) -> DemoContainer:
        """A container that is not one of this world's engines."""
        self._made += 1
        first = spec.entrypoint if spec.entrypoint is not None else entrypoint
        return DemoContainer(
            id=self.fingerprint("container", spec.name, self._made),
            name=spec.name,
            image=spec.image,
            image_id=f"sha256:{self.fingerprint('image', spec.image)}",
            argv=(*first, *spec.command),
            created_at=at,
            labels=spec.labels,
            ports=spec.ports,
            network_mode=spec.network or "bridge",
            variables=tuple((each.name, each.value) for each in spec.env),
        )

    def add(self, spec: ContainerSpec, entrypoint: tuple[str, ...], at: float) -> DemoContainer:
        """A container that has not been started."""
        container = self.new(spec, entrypoint, at)
        self.containers[container.id] = container
        self.note(container, "create", at)
        return container

    def begin(
        self,
        container: DemoContainer,
        at: float,
        *,
        speed: float = REPLAY_SPEED,
        traffic: bool = False,
        free_bytes: int | None = None,
    ) -> None:
        """Starts it. It takes the memory that its settings ask for, and fails as the engine does where that is not
        free, or where the weights leave too little of it for the context.

        `free_bytes` says what was free in a start that failed in the past.
        """
        profile, pid = container.profile, 4000 + 173 * len(self.runs)
        others = [run.full_bytes for run in self.runs if run.ended_at is None]
        late = [run.held(at).cuda for run in self.runs if run.ended_at is not None and run not in container.runs]
        # Beside all that live, once they are full-grown.
        room = max(0, TOTAL_BYTES - BASE_BYTES - sum(others) - sum(late))
        free = (room if free_bytes is None else free_bytes) / GIB
        least = profile.fixed_gib + (CPU_BYTES + HEADROOM_BYTES) / GIB
        wanted = int(max(0.0, min(profile.wanted_kv_gib, free - least)) * GIB)
        ending: tuple[str, ...] = ()
        if profile.runtime == "vllm":
            fixed = bool(profile.option("--kv-cache-memory-bytes"))
            short = free < least if fixed else free < profile.share * POOL_GIB
            ending = no_room(profile, free) if short else no_cache(profile)
        script, marks = vllm_start(profile, ending) if profile.runtime == "vllm" else other_start(profile, wanted)
        kv = 0 if ending else int(round(wanted / GIB, 2) * GIB)
        run = Run(
            at,
            speed,
            script,
            marks,
            profile,
            pid,
            kv,
            min(CPU_BYTES, max(0, room - HEADROOM_BYTES)),
            fails=bool(ending),
            traffic=traffic,
        )
        container.runs.append(run)
        container.exit_code = None
        self.runs.append(run)
        capacity = profile.capacity(kv)
        values = {  # in place of the recorded engine's own
            "model": profile.model,
            "served": container.served_name,
            "key": "'api_key': ['***'], " if container.key else "",
            "len": str(profile.context),
            "len,": f"{profile.context:,}",
            "kv_gib": f"{kv / GIB:.4g}",
            "kv_tokens": f"{capacity.tokens:,}",
            "concurrency": f"{capacity.concurrency:.2f}",
        }
        container.log.replay(run, values)
        self.note(container, "start", at)

    def end(self, container: DemoContainer, at: float, exit_code: int) -> None:
        """Its process has ended."""
        run = container.run
        if run is not None:
            container.log.flush(at)
            container.log.cut()
            run.ended_at, container.exit_code = at, exit_code
            self.note(container, "die", at, exit_code)
