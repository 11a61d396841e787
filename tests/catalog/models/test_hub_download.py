"""Downloads as they are: real worker processes, the real library, a Hub on this machine with its bad days."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from spark_tui.base.errors import UsageError
from spark_tui.base.executors import born
from spark_tui.base.secret import Secret
from spark_tui.catalog.models.adapter.downloads import DetachedDownloads, DownloadFolder, Order, WorkerState, alive
from spark_tui.catalog.models.adapter.hub_client import HubCall, HuggingFaceHub, prepare
from spark_tui.catalog.models.adapter.transfer import FileFetch, FilePlace, Places, TransferState
from spark_tui.catalog.models.adapter.worker import DownloadJob
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import (
    Download,
    DownloadPhase,
    DownloadRequest,
    FileState,
    Limits,
)
from spark_tui.catalog.models.model.hub import RepoFile
from tests.hub_server import COMMIT, TOKEN, Content, Fault, Flood, HubServer, Repo, add_checkpoint

MIB = 1 << 20
TINY = DownloadRequest("acme/tiny")
SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


@pytest.fixture
def repo(server: HubServer, tmp_path: Path) -> Repo:
    """Two shards of four MiB, and what belongs to them."""
    repo = server.repo("acme/tiny")
    add_checkpoint(repo, tmp_path / "source", shards=2, shard_bytes=4 * MIB)
    return repo


class Box:
    """A store, its downloads, and a way to wait for them."""

    def __init__(self, root: Path, server: HubServer) -> None:
        self.store = root / "store"
        self.records = root / "state" / "downloads"
        self.environ = {**os.environ, "HF_ENDPOINT": server.url, "HF_HOME": str(root / "huggingface")}
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
            self.environ.pop(name, None)
        self.downloads = DetachedDownloads(self.records, self.store, self.environ)

    async def one(self) -> Download:
        (found,) = await self.downloads.all()
        return found

    async def until(self, wanted: Callable[[Download], bool], seconds: float = 40.0) -> Download:
        """The one download, once it is as wanted. Fails with what it was instead."""
        deadline = time.monotonic() + seconds
        while True:
            found = await self.one()
            if wanted(found):
                return found
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.05)

    async def ended(self) -> Download:
        return await self.until(lambda each: not each.phase.active)

    async def fetched(self, request: DownloadRequest = TINY, token: Secret | None = None) -> Download:
        await self.downloads.start(request, token)
        return await self.ended()

    def pid(self, id_: str) -> int:
        state = DownloadFolder(self.records).state(id_)
        assert state is not None
        return state.pid

    def kill(self, id_: str) -> None:
        """As a power cut does it."""
        os.kill(self.pid(id_), signal.SIGKILL)
        while alive(DownloadFolder(self.records).state(id_)):
            time.sleep(0.01)

    @property
    def cache(self) -> Path:
        return self.store / "hub" / "models--acme--tiny"

    def is_whole(self, repo: Repo, root: Path | None = None) -> bool:
        """Every file is there with its content."""
        root = root or self.cache / "snapshots" / COMMIT
        return all(
            hashlib.sha256((root / path).read_bytes()).hexdigest() == content.sha256
            for path, content in repo.files.items()
        )


@pytest.fixture
async def box(tmp_path: Path, server: HubServer) -> AsyncIterator[Box]:
    box = Box(tmp_path, server)
    yield box
    for each in await box.downloads.all():
        await box.downloads.cancel(each.id)
    await box.downloads.close()


# --- whole ------------------------------------------------------------------------------------------------


async def test_a_model_is_fetched_into_the_cache_as_the_library_has_it(box: Box, repo: Repo) -> None:
    found = await box.fetched()
    assert (found.phase, found.failure, found.done, found.fraction) == (DownloadPhase.DONE, None, found.total, 1.0)
    assert all(file.state is FileState.DONE for file in found.files)
    assert box.is_whole(repo)
    assert (box.cache / "refs" / "main").read_text() == COMMIT
    assert not list(box.store.rglob("*.incomplete"))
    words = "from huggingface_hub import snapshot_download as s; print(s('acme/tiny', local_files_only=True))"
    told = subprocess.run(
        [sys.executable, "-c", words], env={**os.environ, "HF_HOME": str(box.store), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == str(box.cache / "snapshots" / COMMIT)


async def test_what_is_here_is_not_fetched_again_and_a_new_commit_is(box: Box, repo: Repo, server: HubServer) -> None:
    await box.fetched()
    before = server.sent
    assert (await box.fetched()).phase is DownloadPhase.DONE
    assert server.sent - before < 10_000
    repo.commit = "2" * 40
    repo.put("config.json", b'{"new": 1}')
    assert (await box.fetched()).commit == "2" * 40
    assert (box.cache / "refs" / "main").read_text() == "2" * 40
    assert server.sent - before < 20_000, "the weights are the same"


async def test_a_repository_becomes_a_folder_of_the_store(box: Box, repo: Repo, server: HubServer) -> None:
    request = DownloadRequest("acme/tiny", target="models/mine")
    found = await box.fetched(request)
    assert (found.phase, found.failure) == (DownloadPhase.DONE, None)
    assert box.is_whole(repo, box.store / "models/mine")
    assert not (box.store / "hub" / "models--acme--tiny" / "blobs").exists()
    before = server.sent
    folder = str(box.store / "models/mine")
    words = f"from huggingface_hub import snapshot_download as s; s('acme/tiny', local_dir={folder!r})"
    subprocess.run([sys.executable, "-c", words], env=box.environ, check=True, capture_output=True)
    assert server.sent - before < 20_000, "the library takes the folder for its own, without fetching anything again"


async def test_a_parser_plugin_becomes_the_file_that_the_preset_names(box: Box, repo: Repo) -> None:
    repo.put("parsers/nano.py", b"print(1)\n")
    request = DownloadRequest("acme/tiny", files=("parsers/nano.py",), target="plugins/nano_v3.py", single=True)
    assert (await box.fetched(request)).phase is DownloadPhase.DONE
    assert (box.store / "plugins/nano_v3.py").read_bytes() == b"print(1)\n"
    assert sorted(path.name for path in box.store.rglob("*")) == ["nano_v3.py", "plugins"]


async def test_a_file_that_is_not_on_the_hub_is_fetched_without_a_token(
    box: Box, repo: Repo, server: HubServer
) -> None:
    repo.put("fix.py", b"# fix\n" * 50)
    url = f"{server.url}/acme/tiny/resolve/main/fix.py"
    found = await box.fetched(DownloadRequest(target="fix.py", single=True, url=url), Secret(TOKEN))
    assert (found.phase, found.done) == (DownloadPhase.DONE, 300)
    assert (box.store / "fix.py").read_bytes() == b"# fix\n" * 50
    assert not any(each.token for each in server.requests)


async def test_empty_files_and_odd_names_arrive(box: Box, repo: Repo) -> None:
    repo.put("empty.txt", b"")
    repo.put("sub/with space [1]*.txt", b"x")
    assert (await box.fetched()).phase is DownloadPhase.DONE
    assert box.is_whole(repo)


async def test_damaged_files_are_fetched_again_when_asked_for(box: Box, repo: Repo) -> None:
    await box.fetched()
    blob = (box.cache / "snapshots" / COMMIT / SHARD).resolve()
    blob.write_bytes(b"\xff" * blob.stat().st_size)
    assert (await box.fetched()).phase is DownloadPhase.DONE
    assert not box.is_whole(repo), "sizes agree: only reading all of it tells"
    await box.downloads.start(DownloadRequest("acme/tiny", again=True))
    assert (await box.ended()).phase is DownloadPhase.DONE
    assert box.is_whole(repo)


# --- interruptions ----------------------------------------------------------------------------------------


async def halfway(box: Box, server: HubServer, request: DownloadRequest = TINY) -> Download:
    """A slow download, with some of its weights here."""
    server.rate = 2 * MIB
    await box.downloads.start(request)
    return await box.until(lambda each: each.done > MIB)


async def test_a_killed_download_resumes_where_it_was(box: Box, repo: Repo, server: HubServer) -> None:
    found = await halfway(box, server)
    box.kill(found.id)
    assert (await box.one()).phase is DownloadPhase.INTERRUPTED
    parts = {path.name: path.stat().st_size for path in box.cache.rglob("*.incomplete")}
    assert sum(parts.values()) >= MIB
    server.rate = None
    server.requests.clear()
    again = await box.fetched()
    assert (again.phase, again.failure) == (DownloadPhase.DONE, None)
    assert box.is_whole(repo)
    begins = {f"bytes={size}-" for size in parts.values() if size}
    assert begins <= {each.range for each in server.requests if each.cdn}


FAULTS: dict[str, tuple[tuple[Fault, ...], int | None]] = {
    "cut twice": ((Fault(cut=MIB), Fault(cut=MIB)), 3),
    "no ranges": ((Fault(cut=MIB), Fault(whole=True)), None),
    "address expired": ((Fault(cut=MIB), Fault(status=403)), None),
    "damaged once": ((Fault(flip=True),), 2),
}


@pytest.mark.parametrize(("faults", "requests"), FAULTS.values(), ids=FAULTS.keys())
async def test_what_passes_is_resumed_by_itself(
    box: Box, repo: Repo, server: HubServer, faults: tuple[Fault, ...], requests: int | None
) -> None:
    server.fault(SHARD, *faults)
    found = await box.fetched()
    assert (found.phase, box.is_whole(repo)) == (DownloadPhase.DONE, True)
    asked = [each.range for each in server.requests if each.cdn and each.path.endswith(SHARD)]
    assert requests in (None, len(asked))
    if requests == 3:
        assert asked[0] == ""
        assert all(each.startswith("bytes=") for each in asked[1:])


async def test_the_network_may_go_away_and_come_back(box: Box, repo: Repo, server: HubServer) -> None:
    await halfway(box, server)
    server.down = True
    await box.until(lambda each: "does not answer" in each.waiting)  # after the answer that was cut
    server.rate, server.down = None, False
    assert (await box.ended()).phase is DownloadPhase.DONE
    assert box.is_whole(repo)


async def test_a_pause_that_the_hub_asks_for_is_kept_and_told(box: Box, repo: Repo, server: HubServer) -> None:
    server.fault(SHARD, Fault(status=429, headers={"Retry-After": "2"}))
    server.fault("model-00002-of-00002.safetensors", Fault(status=429, headers={"ratelimit": '"api";r=0;t=2'}))
    began = time.monotonic()
    await box.downloads.start(TINY)
    found = await box.until(lambda each: each.phase is DownloadPhase.WAITING)
    assert "too many requests" in found.waiting
    assert (await box.ended()).phase is DownloadPhase.DONE
    assert time.monotonic() - began >= 2.0


async def test_a_part_of_an_older_library_is_resumed_and_a_wrong_one_is_dropped(
    box: Box, repo: Repo, server: HubServer
) -> None:
    content, other = repo.files[SHARD], repo.files["model-00002-of-00002.safetensors"]
    blobs = box.cache / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{content.sha256}.incomplete").write_bytes(content.read(0, 3 * MIB))
    (blobs / f"{other.sha256}.incomplete").write_bytes(b"\xff" * MIB)
    assert (await box.fetched()).phase is DownloadPhase.DONE
    assert box.is_whole(repo)
    ranges = {each.path.rpartition("/")[2]: each.range for each in server.requests if each.cdn and each.range}
    assert ranges[SHARD] == f"bytes={3 * MIB}-"


# --- pause and cancel ------------------------------------------------------------------------------------


async def test_pause_acts_at_once_and_resume_goes_on(box: Box, repo: Repo, server: HubServer) -> None:
    found = await halfway(box, server)
    began = time.monotonic()
    await box.downloads.pause(found.id)
    assert time.monotonic() - began < 1.5
    paused = await box.one()
    assert (paused.phase, paused.speed) == (DownloadPhase.PAUSED, None)
    assert paused.done >= MIB
    assert {file.state for file in paused.files} == {FileState.DONE, FileState.WAITING}
    sent = server.sent
    await asyncio.sleep(0.3)
    assert server.sent - sent < 2 * MIB, "what is in the pipe, and no more"
    server.rate = None
    assert (await box.fetched()).phase is DownloadPhase.DONE
    assert box.is_whole(repo)


async def test_pause_acts_at_once_on_a_connection_that_says_nothing(box: Box, repo: Repo, server: HubServer) -> None:
    server.fault(SHARD, Fault(cut=MIB, hang=True))
    await box.downloads.start(TINY)
    found = await box.until(lambda each: each.done > 5 * MIB)
    began = time.monotonic()
    await box.downloads.pause(found.id)
    assert time.monotonic() - began < 1.5
    assert (await box.one()).phase is DownloadPhase.PAUSED


async def test_cancel_keeps_what_arrived_unless_told_to_discard(box: Box, repo: Repo, server: HubServer) -> None:
    found = await halfway(box, server)
    assert await box.downloads.cancel(found.id) == 0
    assert await box.downloads.all() == ()
    assert list(box.cache.rglob("*.incomplete"))
    await box.downloads.start(TINY)
    await box.until(lambda each: each.phase is DownloadPhase.DOWNLOADING)
    assert await box.downloads.cancel(found.id, discard=True) > 0
    assert not list(box.cache.rglob("*.incomplete"))
    assert list(box.records.iterdir()) == []


async def test_an_unknown_download_is_told(box: Box) -> None:
    for id_ in ("nothing", "../../etc/passwd", ""):
        with pytest.raises(UsageError):
            await box.downloads.pause(id_)


async def test_a_download_outlives_the_program_and_runs_once(box: Box, repo: Repo, server: HubServer) -> None:
    server.rate = 4 * MIB
    words = (
        "import asyncio, os, sys; from pathlib import Path\n"
        "from spark_tui.catalog.models.adapter.downloads import DetachedDownloads as D\n"
        "from spark_tui.catalog.models.model.download import DownloadRequest as R\n"
        f"asyncio.run(D(Path({str(box.records)!r}), Path({str(box.store)!r}), os.environ).start(R('acme/tiny')))"
    )
    subprocess.run([sys.executable, "-c", words], env=box.environ, check=True)
    found = await box.one()
    assert found.phase.active
    pid = box.pid(found.id)
    assert await box.downloads.start(TINY) == found.id
    assert box.pid(found.id) == pid
    assert (await box.ended()).phase is DownloadPhase.DONE


# --- sharing ----------------------------------------------------------------------------------------------


async def test_a_cap_holds_and_can_be_lifted_while_it_runs(box: Box, repo: Repo, server: HubServer) -> None:
    await box.downloads.set_limits(Limits(MIB))
    began = time.monotonic()
    await box.downloads.start(TINY)
    found = await box.until(lambda each: each.done > 2 * MIB)
    assert time.monotonic() - began > 1.5
    assert found.limit == MIB
    await box.downloads.set_limits(Limits(None))
    assert (await box.ended()).phase is DownloadPhase.DONE
    assert time.monotonic() - began < 7, "eight MiB at one a second would take longer"


async def test_no_more_run_at_once_than_may_the_first_comes_first_and_a_queued_one_can_be_paused(
    box: Box, repo: Repo, server: HubServer, tmp_path: Path
) -> None:
    for name in ("acme/two", "acme/three", "acme/four"):
        add_checkpoint(server.repo(name), tmp_path / name, shards=1, shard_bytes=2 * MIB)
    await box.downloads.set_limits(Limits(None, at_once=1))
    server.rate = 4 * MIB
    ids = [await box.downloads.start(DownloadRequest(f"acme/{name}")) for name in ("tiny", "two", "three", "four")]
    await box.downloads.pause(ids[3])
    async with asyncio.timeout(60):
        while any(each.phase.active for each in await box.downloads.all()):
            found = await box.downloads.all()
            running = [each for each in found if each.phase.active and each.phase is not DownloadPhase.QUEUED]
            assert len(running) <= 1
            await asyncio.sleep(0.05)
    found = await box.downloads.all()
    assert [each.phase for each in found] == [DownloadPhase.DONE] * 3 + [DownloadPhase.PAUSED]
    ends = [each.ended or 0.0 for each in found[:3]]
    assert ends == sorted(ends)


async def test_a_file_that_another_program_fetches_is_waited_for(box: Box, repo: Repo, server: HubServer) -> None:
    content = repo.files[SHARD]
    lock = box.store / "hub" / ".locks" / "models--acme--tiny" / f"{content.sha256}.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        await box.downloads.start(TINY)
        found = await box.until(lambda each: each.phase is DownloadPhase.WAITING)
        assert "another program" in found.waiting
        blob = box.cache / "blobs" / content.sha256
        blob.write_bytes(content.read(0, content.size))
    assert (await box.ended()).phase is DownloadPhase.DONE
    assert not [each for each in server.requests if each.path.endswith(SHARD) and each.method == "GET"]


# --- failures ---------------------------------------------------------------------------------------------

Break = Callable[[HubServer, Repo, Box], DownloadRequest]


def damaged_twice(server: HubServer, repo: Repo, box: Box) -> DownloadRequest:
    server.fault(SHARD, Fault(flip=True), Fault(flip=True))
    return TINY


def too_large_for_the_disk(server: HubServer, repo: Repo, box: Box) -> DownloadRequest:
    path = box.store.parent / "huge"
    with path.open("wb") as file:
        file.truncate(1 << 43)
    repo.files["model-00003-of-00003.safetensors"] = Content(path=path, lfs=True, sha256="a" * 64)
    return TINY


def refused_by_the_store(server: HubServer, repo: Repo, box: Box) -> DownloadRequest:
    box.store.mkdir()
    (box.store / "hub").write_text("a file where a folder belongs")
    return TINY


def many_models(server: HubServer, repo: Repo, box: Box) -> DownloadRequest:
    gguf = server.repo("acme/gguf")
    gguf.put("a-Q4.gguf", b"1", lfs=True)
    gguf.put("a-Q8.gguf", b"2", lfs=True)
    return DownloadRequest("acme/gguf")


def hostile_names(server: HubServer, repo: Repo, box: Box) -> DownloadRequest:
    repo.files["model.safetensors"] = Content(b"x", lfs=True, sha256="../../../../evil")
    return TINY


FAILURES: dict[str, tuple[Break, str]] = {
    "no repository": (lambda *_: DownloadRequest("acme/none"), "hub_repo_missing"),
    "no revision": (lambda *_: DownloadRequest("acme/tiny", "v9"), "hub_revision_missing"),
    "no file": (lambda *_: DownloadRequest("acme/tiny", files=("nothing.py",)), "hub_file_missing"),
    "a choice": (many_models, "hub_file_missing"),
    "damaged": (damaged_twice, "hub_checksum_mismatch"),
    "disk": (too_large_for_the_disk, "disk_full"),
    "store": (refused_by_the_store, "store_not_writable"),
    "hostile": (hostile_names, "hub_failed"),
    "outside": (lambda *_: DownloadRequest("acme/tiny", target="../evil"), "usage"),
}


@pytest.mark.parametrize(("broken", "expected"), FAILURES.values(), ids=FAILURES.keys())
async def test_each_failure_has_its_id_and_a_remedy(
    box: Box, repo: Repo, server: HubServer, broken: Break, expected: str
) -> None:
    found = await box.fetched(broken(server, repo, box))
    assert found.phase is DownloadPhase.FAILED
    assert found.failure is not None
    assert found.failure.id == expected, found.failure
    assert found.failure.remedy


class Hasty(TransferState):
    """Pauses take no time."""

    def pause(self, why: str, seconds: float) -> None:
        self.check()


def fetch_of(box: Box, repo: Repo, server: HubServer) -> FileFetch:
    prepare("")
    content = repo.files[SHARD]
    file = RepoFile(SHARD, content.size, sha256=content.sha256)
    place = Places(box.store, TINY, COMMIT).of(file)
    url = f"{server.url}/acme/tiny/resolve/{COMMIT}/{SHARD}"
    return FileFetch(Hasty(box.store, None), file, place, url, HubCall(server.url, "acme/tiny", COMMIT, SHARD))


@pytest.mark.parametrize(
    "fault", [Fault(cut=0), Fault(cut=1000, whole=True), Fault(cut=0, whole=True)], ids=["rest", "start", "all"]
)
async def test_a_hub_that_truncates_a_file_is_not_asked_for_ever(
    box: Box, repo: Repo, server: HubServer, fault: Fault
) -> None:
    server.always = fault
    with pytest.raises(hub_errors.HubOffline) as caught:
        await asyncio.to_thread(fetch_of(box, repo, server).run)
    assert SHARD in caught.value.summary
    assert caught.value.remedy
    assert sum(each.cdn for each in server.requests) <= 10
    server.always = None
    await asyncio.to_thread(fetch_of(box, repo, server).run)
    assert (box.cache / "blobs" / repo.files[SHARD].sha256).stat().st_size == repo.files[SHARD].size


async def test_a_hub_that_sends_a_file_in_small_pieces_is_asked_until_it_is_whole(
    box: Box, repo: Repo, server: HubServer
) -> None:
    content = repo.files[SHARD] = Content(os.urandom(2 * MIB), lfs=True)
    server.always = Fault(cut=300_000)
    await asyncio.to_thread(fetch_of(box, repo, server).run)
    assert (box.cache / "blobs" / content.sha256).read_bytes() == content.data


async def test_a_file_from_elsewhere_has_a_most_and_leaves_nothing(box: Box, server: HubServer) -> None:
    prepare("")
    server.flood = Flood(itertools.repeat(bytes(MIB)))
    place, call = FilePlace(box.store / "plugin.py", box.store / "part"), HubCall(server.url)
    fetch = FileFetch(Hasty(box.store, None), RepoFile("plugin.py", None), place, f"{server.url}/x", call, hub=False)
    with pytest.raises(hub_errors.HubFailed) as caught:
        await asyncio.to_thread(fetch.run)
    assert "plugin.py" in caught.value.summary
    assert list(box.store.iterdir()) == []


async def test_a_hub_that_truncates_its_answers_is_not_asked_for_ever(box: Box, server: HubServer) -> None:
    server.flood = Flood([b"{"], {"Content-Length": "1000"})
    job = DownloadJob(Order(TINY, str(box.store), server.url, 0.0), None)
    job.shared = Hasty(box.store, None)
    with pytest.raises(hub_errors.HubOffline):
        await asyncio.to_thread(job.run)
    assert len(server.requests) <= 10


async def test_a_failed_download_resumes_once_the_cause_is_gone(box: Box, repo: Repo, server: HubServer) -> None:
    repo.gated = "auto"
    for token, expected in ((None, "hub_gated"), (Secret("hf_wrong"), "hub_token_rejected")):
        found = await box.fetched(token=token)
        assert found.failure is not None
        assert (found.phase, found.failure.id) == (DownloadPhase.FAILED, expected)
    found = await box.fetched(token=Secret(TOKEN))
    assert (found.phase, found.failure) == (DownloadPhase.DONE, None)


async def test_a_process_that_reported_its_end_and_still_lives_does_not_swallow_a_resume(box: Box, repo: Repo) -> None:
    folder, id_ = DownloadFolder(box.records), TINY.id
    ending = WorkerState(DownloadPhase.FAILED, pid=os.getpid(), born=born(os.getpid()) or 0, ended=1.0)
    folder.put_state(id_, ending)
    with folder.lock(id_).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        start = asyncio.create_task(box.downloads.start(TINY))
        await asyncio.sleep(1.5)  # longer than one try for the lock
        assert not start.done()
        assert folder.state(id_) == ending
    await start
    assert (await box.ended()).phase is DownloadPhase.DONE


# --- secrets ----------------------------------------------------------------------------------------------


async def test_the_token_is_nowhere_to_be_seen_and_records_are_private(box: Box, repo: Repo, server: HubServer) -> None:
    repo.gated = "auto"
    server.rate = 2 * MIB
    box.environ["HF_TOKEN"] = TOKEN
    await box.downloads.start(TINY, Secret(TOKEN))
    found = await box.until(lambda each: each.done > MIB)
    process = Path(f"/proc/{box.pid(found.id)}")
    assert TOKEN.encode() not in (process / "cmdline").read_bytes()
    assert TOKEN.encode() not in (process / "environ").read_bytes()
    assert (process / "comm").read_text().strip() == "spark-tui-pull"
    server.rate = None
    await box.ended()
    assert {oct(path.stat().st_mode & 0o777) for path in box.records.iterdir()} == {"0o600"}
    for path in [*box.records.rglob("*"), *box.store.rglob("*")]:
        if path.is_file() and path.stat().st_size < MIB:
            assert TOKEN.encode() not in path.read_bytes(), path
    assert any(each.token for each in server.requests)
    assert not any(each.token for each in server.requests if each.cdn)


# --- what is here -----------------------------------------------------------------------------------------


async def test_a_plan_knows_what_is_here(box: Box, repo: Repo, server: HubServer) -> None:
    client = HuggingFaceHub(box.environ)
    facts = await client.repo("acme/tiny")
    await client.close()
    none = await box.downloads.here(TINY, facts.commit, facts.files)
    assert (set(none.sizes.values()), none.named) == ({0}, False)
    found = await halfway(box, server)
    await box.downloads.pause(found.id)
    part = await box.downloads.here(TINY, facts.commit, facts.files)
    assert MIB <= sum(part.sizes.values()) < sum(file.size or 0 for file in facts.files)
    server.rate = None
    await box.fetched()
    whole = await box.downloads.here(TINY, facts.commit, facts.files)
    assert (whole.sizes, whole.named) == ({file.path: file.size for file in facts.files}, True)
    assert not (await box.downloads.here(TINY, "2" * 40, facts.files)).named, "another commit is not here by its name"


async def test_a_damaged_record_is_shown_and_can_be_removed(box: Box) -> None:
    box.records.mkdir(parents=True)
    (box.records / "broken.request.json").write_text("{")
    (found,) = await box.downloads.all()
    assert (found.phase, found.id) == (DownloadPhase.FAILED, "broken")
    await box.downloads.cancel("broken")
    assert await box.downloads.all() == ()
