"""Benchmarks apart from the machine: no Docker but one that a test brings, and no guard left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

GUARD = "spark-tui-guard"


def guards_of(folder: Path) -> list[int]:
    """Guards that run with their state below a folder."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            guard = process.name.isdigit() and (process / "comm").read_text().strip() == GUARD
            if guard and os.fsencode(folder) in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:  # it has ended, or belongs to somebody else
            continue
    return found


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-docker.sock")
    yield
    left = guards_of(tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGTERM)
    assert not left, "a memory guard outlived its test"
