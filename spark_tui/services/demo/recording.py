"""The recorded data: a start-up log with its times, a failed start, an hour and a half of telemetry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

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
class ScriptLine:
    """One line of a recorded log: seconds after the container's start, text with marks."""

    offset: float
    text: str


@dataclass(frozen=True, slots=True)
class Script:
    """A recorded log."""

    lines: tuple[ScriptLine, ...]

    @property
    def seconds(self) -> float:
        """From the container's start to the last line."""
        return self.lines[-1].offset

    def when(self, words: str) -> float:
        """The offset of the first line that holds `words`."""
        return next(line.offset for line in self.lines if words in line.text)


@dataclass(frozen=True, slots=True)
class BootMarks:
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


@cache
def boot_script() -> Script:
    """The recorded start."""
    return _script("boot.tsv")


@cache
def failure_script() -> Script:
    """A start that finds too little memory."""
    return _script("failure.tsv")


@cache
def boot_marks() -> BootMarks:
    """Read off the recorded start."""
    when = boot_script().when
    return BootMarks(
        engine=when("Initializing a V1 LLM engine"),
        fetch=when("Starting to load model"),
        load=when("checkpoint shards:   0% Completed"),
        loaded=when("Model loading took"),
        compile=when("Using cache directory"),
        kv=when("Available KV cache memory"),
        graphs=when("Graph capturing finished"),
        ready=when("Application startup complete"),
    )


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


def _script(name: str) -> Script:
    lines = []
    for row in (_DATA / name).read_text(encoding="utf-8").splitlines():
        offset, _, text = row.partition("\t")
        lines.append(ScriptLine(float(offset), _ESCAPE.sub(lambda found: _ESCAPES[found[0]], text)))
    return Script(tuple(lines))
