"""Two gigabytes by the command line: fetched, killed on the way, resumed, verified, inspected, deleted.

Everything is real but the Hub, which is a server on this machine: huggingface_hub, the detached process, the disk.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_tui.catalog.models.adapter.downloads import alive
from spark_tui.catalog.models.model.hub import KEEP_FREE
from tests.hub_server import COMMIT, HubServer, add_checkpoint
from tests.real.hub_person import REPO, SHARD_BYTES, SHARDS, Person, roomy, wait_for

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with roomy(tmp_path) as folder:
        yield folder


def resident(path: Path) -> float:
    """The share of a file that is in the page cache, by mincore(2)."""
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    told = (ctypes.c_ubyte * pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    with path.open("rb") as file:
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        assert libc.mincore(address, size, told) == 0
        libc.munmap(address, size)
    return sum(page & 1 for page in told) / pages


def test_two_gigabytes_survive_a_kill_at_forty_per_cent(place: Path) -> None:
    with HubServer() as server:
        repo = server.repo(REPO)
        add_checkpoint(repo, place / "source", shards=SHARDS, shard_bytes=SHARD_BYTES)
        person = Person(place, server.url)
        plan = person.data("models", "pull", REPO, "--dry-run")[0]
        assert plan["left_bytes"] == sum(content.size for content in repo.files.values())

        person.types("models", "pull", REPO, "--background")
        id_ = wait_for(person, 0.4)
        state = person.records.state(id_)
        assert state is not None
        os.kill(state.pid, signal.SIGKILL)
        while alive(person.records.state(id_)):
            time.sleep(0.01)
        told = person.download()
        assert told["state"] == "interrupted"
        assert 0.4 * told["total_bytes"] <= told["done_bytes"] < told["total_bytes"]

        before, began = server.sent, time.monotonic()
        person.types("models", "pull", REPO)
        seconds, sent = time.monotonic() - began, server.sent - before
        print(f"\nresumed: {sent / 1e6:.0f} MB of {plan['total_bytes'] / 1e6:.0f} in {seconds:.1f} s", end="")
        assert sent < 0.65 * plan["total_bytes"], "what had arrived was not fetched again"
        assert person.download()["state"] == "done"

    snapshot = place / "store" / "hub" / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT
    held = [resident(snapshot / path) for path, content in repo.files.items() if content.lfs]
    print(f"; {sum(held) / len(held):.0%} of it in the page cache", end="")
    assert sum(held) / len(held) < 0.3, "a Spark's page cache is taken from its GPU"
    for path, content in repo.files.items():
        with (snapshot / path).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == content.sha256

    # The Hub is gone by now: what is here is enough.
    person.types("models", "verify", REPO)
    inspected = person.data("models", "inspect", REPO)["checkpoint"]
    assert inspected["weights_bytes"] == SHARDS * SHARD_BYTES
    person.types("models", "rm", REPO, "--yes", "--unchecked")
    assert person.data("models", "list")["models"] == []
    assert not snapshot.exists()


def test_the_library_s_own_verdict_is_the_same(place: Path) -> None:
    with HubServer() as server:
        add_checkpoint(server.repo(REPO), place / "source", shards=2, shard_bytes=8 * 1024**2)
        person = Person(place, server.url)
        person.types("models", "pull", REPO)
        words = (
            "import json; from huggingface_hub import scan_cache_dir, snapshot_download\n"
            f"print(json.dumps([snapshot_download({REPO!r}, local_files_only=True),"
            " len(scan_cache_dir().warnings), len(list(scan_cache_dir().repos))]))"
        )
        environment = person.environment | {"HF_HOME": str(place / "store"), "HF_HUB_OFFLINE": "1"}
        told = subprocess.run(
            [sys.executable, "-c", words], env=environment, capture_output=True, text=True, check=True
        ).stdout
    path, warnings, repos = json.loads(told)
    assert (path.endswith(COMMIT), warnings, repos) == (True, 0, 1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with some 80 MiB more than a download leaves free."""
    place = tmp_path / "disk"
    place.mkdir()
    size = KEEP_FREE // 1024**2 + 84
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", str(place)], capture_output=True)
    if done.returncode != 0:
        pytest.skip("file systems may not be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up_meanwhile_stops_it_before_it_is_full(place: Path, small_disk: Path) -> None:
    with HubServer() as server:
        add_checkpoint(server.repo(REPO), place / "source", shards=1, shard_bytes=76 * 1024**2)
        server.rate = 40e6
        person = Person(place, server.url)
        person.environment["SPARK_TUI_STORE"] = str(small_disk / "store")
        person.types("models", "pull", REPO, "--background")
        wait_for(person, 0.1)
        filler = small_disk / "filler"
        filler.write_bytes(bytes(24 * 1024**2))
        told = person.download()
        while told["state"] not in ("failed", "done"):
            time.sleep(0.1)
            told = person.download()
        assert told["failure"]["id"] == "disk_full"
        assert told["done_bytes"] >= 60 * 1024**2, "what has arrived is kept"
        assert shutil.disk_usage(small_disk).free > KEEP_FREE // 2

        filler.unlink()
        server.rate, before = None, server.sent
        person.types("models", "pull", REPO)
        assert server.sent - before < 20 * 1024**2
        assert person.download()["state"] == "done"
