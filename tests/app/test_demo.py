"""Every command on the simulated Spark: no Docker, no GPU, and as a process nothing of the person's touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.world import in_process


def _environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "DOCKER_HOST": f"unix://{home}/none.sock"}


def _demo(home: Path, *arguments: str, piped: str = "") -> subprocess.CompletedProcess[str]:
    return in_process(("--demo", *arguments), _environment(home), stdin=piped)


def _process(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spark_tui", "--demo", *arguments], env=_environment(home), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip


@pytest.fixture
def engine(tmp_path: Path) -> str:
    """The name of the engine that serves on the simulated Spark."""
    listed = json.loads(_demo(tmp_path, "ps", "--json").stdout)
    return str(next(each["id"] for each in listed if each["state"] in ("ready", "busy")))


@pytest.mark.parametrize(
    "command", [("status",), ("ps", "-a"), ("memory",), ("presets",), ("presets", "show", "gpt-oss-120b")], ids=" ".join
)
def test_looking_works_as_text_and_as_data(command: tuple[str, ...], tmp_path: Path) -> None:
    text, data = _demo(tmp_path, *command), _demo(tmp_path, *command, "--json")
    assert (text.returncode, data.returncode) == (0, 0)
    assert text.stderr.startswith("DEMO: a simulated Spark.\n")
    assert text.stdout
    assert json.loads(data.stdout)


def test_status_says_that_it_is_a_demo(tmp_path: Path) -> None:
    found = json.loads(_process(tmp_path, "status", "--json").stdout)
    assert found["demo"] is True
    assert found["host"]["is_spark"] is True


def test_an_engine_answers_and_its_log_is_there(engine: str, tmp_path: Path) -> None:
    said = _demo(tmp_path, "chat", engine, piped="Hello?")
    assert (said.returncode, bool(said.stdout.strip())) == (0, True)
    assert "tok/s" in said.stderr
    log = _demo(tmp_path, "logs", engine, "--tail", "5")
    assert (log.returncode, len(log.stdout.splitlines())) == (0, 5)


def test_an_engine_can_be_stopped_and_restarted(engine: str, tmp_path: Path) -> None:
    assert _demo(tmp_path, "down", engine).returncode == 0
    assert _demo(tmp_path, "restart", engine).returncode == 0


def test_a_preset_is_launched_to_the_end(tmp_path: Path) -> None:
    done = _demo(tmp_path, "up", "gpt-oss-20b", "--set", "gpu_memory_utilization=0.35", "--name", "mine", "--json",
                 "--no-fetch")  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (lines[-1]["type"], lines[-1]["id"], lines[-1]["state"]) == ("result", "mine", "ready")
    phases = [line["id"] for line in lines if line["type"] == "phase"]
    assert "weights" in phases


def test_nothing_of_the_persons_is_touched(tmp_path: Path) -> None:
    _process(tmp_path, "up", "gpt-oss-120b", "--force", "--name", "mine", "--no-wait", "--expose", "lan")
    assert list(tmp_path.iterdir()) == []
