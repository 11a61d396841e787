"""A person with a home and a store of their own, a Hub on this machine, and two gigabytes to fetch from it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_tui.catalog.models.adapter.downloads import DownloadFolder

REPO = "acme/two-gigabytes"
SHARDS, SHARD_BYTES = 4, 512 * 1024**2
NEEDED = 6 * 1024**3


@contextmanager
def roomy(folder: Path) -> Iterator[Path]:
    """The folder, where there is room for all of it; what was fetched is removed at the end."""
    if shutil.disk_usage(folder).free < NEEDED:
        pytest.skip("six gigabytes of disk are needed")
    yield folder
    shutil.rmtree(folder / "store", ignore_errors=True)


class Person:
    """Types commands."""

    def __init__(self, root: Path, endpoint: str) -> None:
        self.root = root
        home = root / "home"
        home.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "SPARK_TUI_"))}
        self.environment = kept | {
            "HF_ENDPOINT": endpoint, "HOME": str(home), "XDG_STATE_HOME": str(root / "state"),
            "XDG_CONFIG_HOME": str(root / "config"), "XDG_CACHE_HOME": str(root / "cache"),
            "SPARK_TUI_STORE": str(root / "store"), "DOCKER_HOST": "unix:///nowhere/docker.sock",
        }  # fmt: skip

    def types(self, *words: str, code: int = 0) -> str:
        """One command, and what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "spark_tui", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    def data(self, *words: str) -> Any:
        """One command, as data."""
        return json.loads(self.types(*words, "--json"))

    def download(self) -> dict[str, Any]:
        """The one download there is."""
        (found,) = self.data("models", "downloads")["downloads"]
        assert isinstance(found, dict)
        return found

    @property
    def records(self) -> DownloadFolder:
        return DownloadFolder(self.root / "state" / "spark-tui" / "downloads")


def wait_for(person: Person, share: float) -> str:
    """Waits until so much of it is here, and returns the download's id."""
    deadline = time.monotonic() + 120
    while not person.records.ids() and time.monotonic() < deadline:
        time.sleep(0.02)
    (id_,) = person.records.ids()
    while time.monotonic() < deadline:
        state = person.records.state(id_)
        total = sum(file.size or 0 for file in state.files) if state else 0
        if state is not None and total and sum(file.done for file in state.files) >= share * total:
            return id_
        time.sleep(0.02)
    raise AssertionError(f"it does not come to {share:.0%}")
