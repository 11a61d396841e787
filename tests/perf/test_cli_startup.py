"""What a command costs before and beside what it does: ratios in one run, against the libraries that it cannot do
without."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.perf.test_store_scan import REPOS, large
from tests.pty_app import REPOSITORY

__all__ = ["large"]

ROUNDS = 9
HELP = ("-c", "import click")
COMMAND = ("-c", "import asyncio, click, docker")
"""What a command that looks at Docker has to import."""
PROGRAM = ("-m", "spark_tui")
PRESETS = 1000
ASKED = {"ps": 1.4, "status": 1.7, "models list": 1.7, "presets list": 2.4}
"""What is asked all day, and what it may cost in units."""


def _processor_seconds(*argv: str, home: Path) -> float:
    """User and system time, with that of children. A machine without Docker has exit code 3."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *argv],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"HOME": str(home), "DOCKER_HOST": f"unix://{home}/no-docker.sock"},
        check=False,
    )
    assert done.returncode in (0, 3)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _ratios(home: Path, unit: tuple[str, ...], *commands: tuple[str, ...], rounds: int = ROUNDS) -> list[float]:
    """Medians in units, taken in turns so that a busy moment hits all of them. The first round compiles and keeps."""
    times: list[list[float]] = [[] for _ in (unit, *commands)]
    for _ in range(rounds + 1):
        for found, command in zip(times, (unit, *commands), strict=True):
            found.append(_processor_seconds(*command, home=home))
    base, *rest = (statistics.median(found[1:]) for found in times)
    print(f"\nunit {base * 1000:.0f} ms", end="")
    for command, seconds in zip(commands, rest, strict=True):
        print(f"; {' '.join(command[2:])} {seconds * 1000:.0f} ms: {seconds / base:.2f}x", end="")
    return [seconds / base for seconds in rest]


def test_help_costs_less_than_twice_the_cli_library(tmp_path: Path) -> None:
    (told,) = _ratios(tmp_path, HELP, (*PROGRAM, "--help"))
    assert told < 2.0


@pytest.mark.timeout(300)
def test_what_is_asked_all_day_costs_a_small_factor_of_its_libraries(tmp_path: Path) -> None:
    ratios = _ratios(tmp_path, COMMAND, *((*PROGRAM, *words.split()) for words in ASKED))
    assert [words for words, ratio in zip(ASKED, ratios, strict=True) if ratio > ASKED[words]] == []


@pytest.mark.timeout(300)
def test_a_thousand_presets_and_three_hundred_models_are_listed_in_little_time(tmp_path: Path, large: Path) -> None:
    folder, recipes = tmp_path / ".config" / "spark-tui" / "presets", sorted((REPOSITORY / "presets").glob("*.yaml"))
    folder.mkdir(parents=True)
    for number in range(PRESETS):
        text = recipes[number % len(recipes)].read_text(encoding="utf-8")
        (folder / f"mine-{number:04}.yaml").write_text(text, encoding="utf-8")
    presets, models = _ratios(
        tmp_path, COMMAND, (*PROGRAM, "presets", "list"), (*PROGRAM, "--store", str(large), "models", "list"), rounds=3
    )
    print(f" ({PRESETS} presets, {REPOS} models)")
    assert presets < 10
    assert models < 5
