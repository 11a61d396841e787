"""Sending images and files through ssh: what arrives, what is left when it ends early, and which error is raised."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from spark_tui.base.errors import ImageNotFound, SparkError
from spark_tui.catalog.models.model.store import PARTIAL_FOLDER
from spark_tui.manage.cluster.adapter.copying import SshTransfers
from spark_tui.manage.cluster.model.copying import (
    RSYNC_INSTALL,
    CopyFailed,
    FabricUnreachable,
    ModelFile,
    ReceiverFull,
    TransferCount,
    transfer_error,
)
from tests.cases import all_cases
from tests.ssh_nodes import SshNodes

TO = "nv@192.168.100.2"
IMAGE = "repo/engine:1"
PATIENCE = 60.0
NO_RSYNC = (
    "sh: 1: rsync: not found",
    "bash: line 1: rsync: command not found",
    "zsh:1: command not found: rsync",
    "fish: Unknown command: rsync",
)
needs_rsync = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")


@pytest.fixture
def nodes(tmp_path: Path) -> SshNodes:
    nodes = SshNodes(tmp_path / "nodes")
    nodes.add("192.168.100.2")
    return nodes


@pytest.fixture
def home(nodes: SshNodes) -> Path:
    return nodes.folder / "192.168.100.2"


def transfers(nodes: SshNodes) -> SshTransfers:
    return SshTransfers(nodes.environment)


def docker(nodes: SshNodes, save: str, load: str) -> None:
    nodes.program("docker", f'#!/bin/sh\nif [ "$1" = save ]; then {save}; else {load}; fi\n')


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


# --- images -----------------------------------------------------------------------------------------------


async def test_an_image_goes_as_one_stream_and_every_byte_is_counted(nodes: SshNodes, home: Path) -> None:
    docker(nodes, 'head -c 5000000 /dev/urandom | tee "$HOME/saved"', 'cat > "$HOME/loaded"')
    count = TransferCount()
    await transfers(nodes).send_image(IMAGE, TO, 0, count)
    assert (home / "loaded").read_bytes() == (nodes.folder / "home/saved").read_bytes()
    assert (count.done, count.ended) == (5_000_000, True)
    [call] = nodes.calls
    assert "BatchMode=yes" in call
    assert "StrictHostKeyChecking" not in call, "the person's own known hosts count"
    assert call.endswith(f"{TO} -- docker load ")


@pytest.mark.parametrize(
    ("save", "load", "kind", "says"),
    [
        ("echo 'Error: No such image: x' >&2; exit 1", "cat > /dev/null", ImageNotFound, "gone"),
        ("head -c 9000; echo 'Error: lost' >&2; exit 1", "cat > /dev/null", CopyFailed, "lost"),
        ("cat /dev/zero", "head -c 9000; echo 'write /x: no space left on device' >&2; exit 1", ReceiverFull, "full"),
        ("cat /dev/zero", "echo 'sh: 1: docker: not found' >&2; exit 127", CopyFailed, "not found"),
    ],
)
async def test_the_first_failure_is_the_one_that_is_reported(
    nodes: SshNodes, save: str, load: str, kind: type[SparkError], says: str
) -> None:
    docker(nodes, f"{save} < /dev/zero", load)
    with pytest.raises(kind, match=says):
        async with asyncio.timeout(PATIENCE):
            await transfers(nodes).send_image(IMAGE, TO, 0, TransferCount())


async def test_without_ssh_between_the_nodes_the_command_to_set_it_up_is_named(nodes: SshNodes, home: Path) -> None:
    docker(nodes, "cat /dev/zero", "cat > /dev/null")
    (home / "refuses").touch()
    with pytest.raises(FabricUnreachable) as caught:
        await transfers(nodes).send_image(IMAGE, TO, 0, TransferCount())
    assert "Permission denied" in caught.value.summary
    assert caught.value.remedy.endswith(f"ssh-copy-id {TO}")


async def test_a_copy_that_is_cancelled_leaves_no_process(nodes: SshNodes, home: Path) -> None:
    docker(nodes, 'echo $$ > "$HOME/pid"; exec cat /dev/zero', 'echo $$ > "$HOME/pid"; exec cat > /dev/null')
    pids = (nodes.folder / "home/pid", home / "pid")
    task = asyncio.ensure_future(transfers(nodes).send_image(IMAGE, TO, 0, TransferCount()))
    await until(lambda: all(path.exists() and path.read_text() for path in pids))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: all(gone(int(path.read_text())) for path in pids))


# --- files ------------------------------------------------------------------------------------------------


def hub_model(folder: Path, size: int = 3_000_000) -> str:
    """A model as the Hub's client keeps it; the name of its large blob."""
    data = os.urandom(size)
    name = hashlib.sha256(data).hexdigest()
    for path, content in (
        (f"blobs/{name}", data), ("blobs/" + "a" * 40, b"{}"), ("refs/main", b"c" * 40),
        ("blobs/xyz.incomplete", b"part"), (f"{PARTIAL_FOLDER}/old", b"part"),
    ):  # fmt: skip
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    snapshot = folder / "snapshots" / ("c" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(f"../../blobs/{name}")
    (snapshot / "config.json").symlink_to(f"../../blobs/{'a' * 40}")
    return name


def test_files_are_listed_with_sizes_links_and_small_contents_and_without_what_is_partial(
    nodes: SshNodes, tmp_path: Path
) -> None:
    name = hub_model(tmp_path / "model")
    (tmp_path / "model/shared").symlink_to("/etc/hostname")
    (tmp_path / "model/lost").symlink_to("/nowhere")
    found = {file.path: file for file in transfers(nodes).files(tmp_path / "model")}
    snapshot = "snapshots/" + "c" * 40
    assert set(found) == {
        f"blobs/{name}", "blobs/" + "a" * 40, "refs/main", f"{snapshot}/model.safetensors", f"{snapshot}/config.json",
        "shared",
    }  # fmt: skip
    assert found[f"blobs/{name}"] == ModelFile(f"blobs/{name}", 3_000_000)
    assert found[f"{snapshot}/model.safetensors"].link == f"../../blobs/{name}"
    assert found["refs/main"].digest == hashlib.sha256(b"c" * 40).hexdigest()
    assert found["shared"].link == "", "a link out of the folder is the file behind it"
    assert transfers(nodes).files(tmp_path / "none") == ()


@needs_rsync
async def test_files_and_links_arrive_and_are_counted(nodes: SshNodes, home: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "a model\n'$HOME", home / "store/hub/a model\n'$HOME"
    hub_model(source)
    sender, count = transfers(nodes), TransferCount()
    files = sender.files(source)
    await sender.send_files(source, [file.path for file in files], TO, 0, str(target), count)
    assert sender.files(target) == files
    assert await sender.damaged(target, files, TransferCount()) == ()
    assert count.done == sum(file.size for file in files)


@needs_rsync
async def test_an_interrupted_file_is_kept_aside_and_continued(nodes: SshNodes, home: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "model", home / "model"
    name = hub_model(source, 40_000_000)
    # The receiver's rsync ends in the middle, as when its node ends the session.
    nodes.program("rsync", f'#!/bin/sh\nexec {shutil.which("rsync")} --bwlimit=20m "$@"\n')
    sender = transfers(nodes)
    names = [file.path for file in sender.files(source)]
    task = asyncio.ensure_future(sender.send_files(source, names, TO, 0, str(target), TransferCount()))
    await until(lambda: any(each.stat().st_size > 4_000_000 for each in target.glob(f"blobs/.{name}.*")))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    kept = target / "blobs" / PARTIAL_FOLDER / name
    await until(kept.exists)
    assert not (target / "blobs" / name).exists()
    assert 0 < kept.stat().st_size < 40_000_000
    await sender.send_files(source, names, TO, 0, str(target), TransferCount())
    assert sender.files(target) == sender.files(source)
    assert not kept.exists()


@needs_rsync
async def test_a_receiver_without_rsync_or_room_is_said_so(nodes: SshNodes, tmp_path: Path) -> None:
    hub_model(tmp_path / "model")
    for text, kind, says in (
        ("echo 'sh: 1: rsync: not found' >&2; exit 127", CopyFailed, "sudo apt install rsync"),
        ("echo 'rsync: write failed: No space left on device (28)' >&2; exit 11", ReceiverFull, PARTIAL_FOLDER),
    ):
        nodes.program("rsync", f"#!/bin/sh\n{text}\n", "192.168.100.2")
        with pytest.raises(kind) as caught:
            await transfers(nodes).send_files(tmp_path / "model", ["refs/main"], TO, 0, "/x", TransferCount())
        assert says in str(caught.value)


async def test_a_damaged_file_is_found_by_size_and_by_the_name_of_its_blob_and_removed(
    nodes: SshNodes, tmp_path: Path
) -> None:
    name = hub_model(tmp_path)
    expected = transfers(nodes).files(tmp_path)
    with (tmp_path / "blobs" / name).open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"damaged")
    (tmp_path / "refs/main").write_bytes(b"d" * 40)
    found = await transfers(nodes).damaged(tmp_path, expected, TransferCount())
    assert set(found) == {f"blobs/{name}", "refs/main"}
    assert not (tmp_path / "blobs" / name).exists()
    with pytest.raises(CopyFailed, match="outside"):
        await transfers(nodes).damaged(tmp_path, [ModelFile("../x", 1)], TransferCount())


@all_cases(
    ("code", "err", "kind"),
    [
        (255, "Host key verification failed.\n", FabricUnreachable),
        (255, "ssh: connect to host x port 22: Connection refused\n", FabricUnreachable),
        (12, "nv@x: Permission denied (publickey).\nrsync error: data stream (code 12)\n", FabricUnreachable),
        (12, "rsync: connection unexpectedly closed\nrsync error: error in rsync protocol (code 12)\n", CopyFailed),
        (2, "protocol version mismatch -- is your shell clean?\nrsync error: (code 2)\n", CopyFailed),
        (1, "", CopyFailed),
        *((12, f"{line}\nrsync error: data stream (code 12)\n", CopyFailed) for line in NO_RSYNC),
    ],
)
def test_every_end_has_a_next_step(code: int, err: str, kind: type[SparkError]) -> None:
    error = transfer_error(TO, code, err, "rsync")
    assert type(error) is kind
    assert error.remedy
    assert ("bashrc" in error.remedy) is ("clean?" in err)
    assert (RSYNC_INSTALL in error.remedy) is any(line in err for line in NO_RSYNC)
