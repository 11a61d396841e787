"""Two gigabytes by keys alone: searched, fetched, killed on the way, gone on with, verified, inspected, deleted.

The program runs in a terminal of its own; the download is a process that neither needs it nor ends with it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_tui.catalog.models.adapter.downloads import alive
from tests.hub_server import COMMIT, HubServer, add_checkpoint
from tests.pty_app import PtyApp, spark_tui
from tests.real.hub_person import REPO, SHARD_BYTES, SHARDS, Person, roomy, wait_for

pytestmark = pytest.mark.timeout(600)

FAST, SLOW = 100e6, 20e6
"""Bytes a second for each file: until it is killed, and while the program is closed, so that it is not over before."""
PATIENCE = 120.0


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with roomy(tmp_path) as folder:
        yield folder


def models_screen(person: Person) -> PtyApp:
    app = PtyApp(spark_tui(), env=person.environment)
    app.wait_for("1 Home", timeout=PATIENCE)
    app.send("2")
    return app


def test_two_gigabytes_by_keys(place: Path) -> None:
    with HubServer() as server:
        repo = server.repo(REPO, info={"tags": ["safetensors"], "downloads": 3})
        add_checkpoint(repo, place / "source", shards=SHARDS, shard_bytes=SHARD_BYTES)
        server.rate = FAST
        person = Person(place, server.url)
        total = sum(content.size for content in repo.files.values())

        with models_screen(person) as app:
            app.wait_for("the store does not exist yet", timeout=PATIENCE)
            app.send("h")
            app.wait_for("Search the Hub")
            app.send(*"gigabytes", "enter")
            app.wait_for(REPO, "1 found", timeout=PATIENCE)
            app.send("enter")
            app.wait_for("2.0 GiB", "Enter", timeout=PATIENCE)
            app.send("enter")
            id_ = wait_for(person, 0.4)

            state = person.records.state(id_)
            assert state is not None
            os.kill(state.pid, signal.SIGKILL)
            app.wait_for("g or p resumes", "interrupted", timeout=PATIENCE)
            before, server.rate = server.sent, SLOW
            app.send("g")  # goes on with it
            app.wait_for("downloading", timeout=PATIENCE)
            wait_for(person, 0.5)
            app.send("q")
            app.wait_end(timeout=30)

        state = person.records.state(id_)
        assert alive(state), "the download goes on without the program"
        server.rate = None

        with models_screen(person) as app:
            app.wait_for(REPO, "complete", timeout=PATIENCE)
            assert server.sent - before < 0.7 * total, "what had arrived was not fetched again"
            snapshot = place / "store" / "hub" / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT
            assert {path.name for path in snapshot.iterdir()} == set(repo.files)

            app.send("v")
            app.wait_for("verified", timeout=PATIENCE)
            app.send("right", "right")
            app.wait_for("1.07 B", "full attention", timeout=PATIENCE)

            app.send("\x1b[3~")
            app.wait_for("Delete", "two-gigabytes", "Frees 2.0 GiB", timeout=PATIENCE)
            half = "two-gigabytes"
            app.send(*half, "enter")
            app.wait_for(f"  {half}")
            assert snapshot.exists(), "half of the name deletes nothing"
            app.send(*["backspace"] * len(half), *REPO, "enter")
            app.wait_for("No models in", timeout=PATIENCE)
            assert not snapshot.exists()
            app.send("q")
            assert app.wait_end(timeout=30) == 0
