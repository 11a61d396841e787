"""The recorded data: a start-up log with its times, a failed start, an hour and a half of telemetry, answers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from spark_tui.domain.quantities import GIB

_DATA: Final = Path(__file__).parent / "data"
_MARK: Final = re.compile(r"<<([a-z_]+,?)(?::(\d+(?:\.(\d+))?))?>>")
_ESCAPES: Final = {"\\r": "\r", "\\t": "\t", "\\\\": "\\"}
_ESCAPE: Final = re.compile(r"\\[rt\\]")

# What the recorded engine held, by its own words.
WEIGHTS_BYTES: Final = int(21.42 * GIB)
CHECKPOINT_BYTES: Final = int(21.31 * GIB)
GRAPHS_BYTES: Final = int(0.37 * GIB)
KV_TOKENS_PER_GIB: Final = 5_463_232 / 64.69
POOL_GIB: Final = 121.69
"""What CUDA calls the total of a GB10."""
BESIDE_KV_GIB: Final = 0.8 * POOL_GIB - 64.69
"""Of its share of the pool, what the recorded engine (utilization 0.8) did not give to the KV cache."""


@dataclass(frozen=True, slots=True)
class RecordedLog:
    """A recorded log: seconds after the container's start, text with marks."""

    lines: tuple[tuple[float, str], ...]

    @property
    def seconds(self) -> float:
        """From the container's start to the last line."""
        return self.lines[-1][0]


class BootMarks(NamedTuple):
    """Offsets of the recorded start at which memory moves, seconds."""

    engine: float
    fetch: float
    load: float
    loaded: float
    compile: float
    kv: float
    graphs: float
    ready: float


@dataclass(frozen=True, slots=True)
class Telemetry:
    """One sample: what the GPU did, and how far the memory was from its mean."""

    power_watts: float
    temperature_c: int
    sm_clock_mhz: int
    utilization_percent: int
    drift_bytes: int


@dataclass(frozen=True, slots=True)
class CannedAnswer:
    """An answer and the reasoning before it. `about` are words of a question that it fits."""

    about: frozenset[str]
    reasoning: str
    content: str


def _script(name: str) -> RecordedLog:
    rows = (row.partition("\t") for row in (_DATA / name).read_text(encoding="utf-8").splitlines())
    return RecordedLog(tuple((float(at), _ESCAPE.sub(lambda found: _ESCAPES[found[0]], text)) for at, _, text in rows))


@cache
def boot_script() -> RecordedLog:
    """The recorded start."""
    return _script("boot.tsv")


@cache
def failure_script() -> RecordedLog:
    """A start that finds too little memory."""
    return _script("failure.tsv")


@cache
def boot_marks() -> BootMarks:
    """Read off the recorded start, by the first line with these words."""
    words = (
        "Initializing a V1 LLM engine",
        "Starting to load model",
        "checkpoint shards:   0% Completed",
        "Model loading took",
        "Using cache directory",
        "Available KV cache memory",
        "Graph capturing finished",
        "Application startup complete",
    )
    lines = boot_script().lines
    return BootMarks(*(next(at for at, text in lines if each in text) for each in words))


@cache
def telemetry() -> tuple[tuple[float, Telemetry], ...]:
    """Samples with their seconds, about ten seconds apart."""
    text = (_DATA / "telemetry.csv").read_text(encoding="utf-8")
    rows = [line.split(",") for line in text.splitlines() if line[:1].isdigit()]
    used = sorted(float(row[5]) for row in rows)
    middle = used[len(used) // 2]
    return tuple(
        (float(at), Telemetry(float(power), int(temp), int(mhz), int(load), int((float(mem) - middle) * 1024**2)))
        for at, power, temp, mhz, load, mem in rows
    )


@cache
def answers() -> tuple[CannedAnswer, ...]:
    """The answers of the simulated chat."""
    tables = tomllib.loads((_DATA / "answers.toml").read_text(encoding="utf-8"))["answer"]
    return tuple(CannedAnswer(frozenset(each["about"].split()), each["reasoning"], each["content"]) for each in tables)


def fill(text: str, values: Mapping[str, str], speed: float = 1.0) -> str:
    """The text with its marks replaced; a mark without a value stays as it is.

    `<<s:170.92>>` and `<<m:170>>` are durations that the recorded engine measured, in seconds and as minutes and
    seconds: at a higher speed the replayed one would have measured less.
    """

    def replaced(mark: re.Match[str]) -> str:
        name, number, decimals = mark.groups()
        if number is None:
            return values.get(name, mark[0])
        seconds = float(number) / speed
        if name == "m":
            return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
        return f"{seconds:.{len(decimals or '')}f}"

    return _MARK.sub(replaced, text)
