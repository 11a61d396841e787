"""What the command line costs before it does anything: ratios in one run, against the CLI library alone."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 15


def _seconds(*argv: str, home: Path) -> float:
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, *argv],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"HOME": str(home)},
        check=True,
    )
    return time.perf_counter() - started


def _medians(home: Path, *commands: tuple[str, ...]) -> list[float]:
    """Median wall time of each, taken in turns so that a busy moment hits all of them."""
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(ROUNDS):
        for found, command in zip(times, commands, strict=True):
            found.append(_seconds(*command, home=home))
    return [statistics.median(found) for found in times]


def test_help_costs_less_than_twice_the_cli_library(tmp_path: Path) -> None:
    bare, told, listed = _medians(
        tmp_path, ("-c", "import click"), ("-m", "spark_tui", "--help"), ("-m", "spark_tui", "presets", "list")
    )
    print(f"\nimport click {bare * 1000:.0f} ms; --help {told * 1000:.0f} ms: {told / bare:.2f}x", end="")
    print(f"; presets list {listed * 1000:.0f} ms: {listed / bare:.2f}x")
    assert told / bare < 2.0
