"""The recorded data: start-up logs with their times, an hour and a half of telemetry, answers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

DATA: Final = Path(__file__).parent / "data"
_MARK: Final = re.compile(r"<<([a-z_]+,?)(?::(\d+(?:\.(\d+))?))?>>")
_ESCAPES: Final = {"\\r": "\r", "\\t": "\t", "\\\\": "\\"}
_PLACE: Final = re.compile(r"([a-z]+)([+-][\d.]+)")
_ESCAPE: Final = re.compile(r"\\[rt\\]")

POOL_GIB: Final = 121.69
"""What CUDA calls the total of a GB10."""


class RecordedLog(Struct, frozen=True):
    """A recorded log: seconds after the container's start, text with marks."""

    lines: tuple[tuple[float, str], ...]

    @property
    def seconds(self) -> float:
        """From the container's start to the last line."""
        return self.lines[-1][0]


class Telemetry(Struct, frozen=True):
    """One sample: what the GPU did, and how far the memory was from its mean."""

    power_watts: float
    temperature_c: int
    sm_clock_mhz: int
    utilization_percent: int
    drift_bytes: int


class CannedAnswer(Struct, frozen=True):
    """An answer and the reasoning before it. `about` are words of a question that it fits."""

    about: frozenset[str]
    reasoning: str
    content: str


@cache
def boot_script() -> RecordedLog:
    """The recorded start."""
    rows = (row.partition("\t") for row in (DATA / "boot.tsv").read_text(encoding="utf-8").splitlines())
    return RecordedLog(tuple((float(at), _ESCAPE.sub(lambda found: _ESCAPES[found[0]], text)) for at, _, text in rows))


@cache
def other_script(runtime: str) -> tuple[tuple[str, float, str], ...]:
    """The lines of a start of another server than vLLM: the mark, the seconds from it, the text with marks."""
    rows = (row.split("\t", 2) for row in (DATA / "others.tsv").read_text(encoding="utf-8").splitlines())
    return tuple(
        (place[1], float(place[2]), text)
        for name, at, text in rows
        if name == runtime and (place := _PLACE.fullmatch(at)) is not None
    )


@cache
def telemetry() -> tuple[tuple[float, Telemetry], ...]:
    """Samples with their seconds, about ten seconds apart."""
    text = (DATA / "telemetry.csv").read_text(encoding="utf-8")
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
    tables = tomllib.loads((DATA / "answers.toml").read_text(encoding="utf-8"))["answer"]
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
