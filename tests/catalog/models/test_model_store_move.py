"""A move between caches: on one disk and between two, refused, killed, and finished by the next one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.catalog.models.adapter.move import COMING, LEAVING
from spark_tui.catalog.models.adapter.store import FolderModelStore
from spark_tui.catalog.models.model.store import Completeness, MovePlan, MoveWay
from tests import TESTS
from tests.store_kit import COMMIT, OLDER, cached, files, reuse, share, weights

NAME = "models--org--name"


@pytest.fixture
def far() -> Iterator[Path]:
    """A folder on another file system."""
    place = Path("/dev/shm")
    if not place.is_dir() or place.stat().st_dev == Path(tempfile.gettempdir()).stat().st_dev:
        pytest.skip("one file system only")
    folder = Path(tempfile.mkdtemp(dir=place))
    yield folder
    shutil.rmtree(folder)


class Places:
    """A store and two other caches."""

    def __init__(self, root: Path, far: Path | None = None) -> None:
        self.store, self.cache, self.far = root / "vllm", root / "cache", far or root / "far"
        hubs = (f"{self.cache}/hub", f"{self.far}/hub")
        self.models = FolderModelStore(self.store, hubs=hubs)

    def whole(self) -> list[str]:
        """Where the model is complete, by the names of the roots."""
        found = []
        for root in (self.store, self.cache, self.far):
            model = FolderModelStore(root).scan_now(others=False).find("org/name")
            if model is not None and model.completeness is Completeness.COMPLETE:
                found.append(root.name)
        return found

    async def move(self, folder: str = "") -> MovePlan:
        plan = await self.models.plan_move("org/name", folder)
        last = [each async for each in self.models.move(plan)][-1]
        assert last.over
        return plan


def content_of(base: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(base)): path.read_bytes()
        for path in sorted((base / "snapshots").rglob("*"))
        if path.is_file()
    }


def rest_of(root: Path) -> list[str]:
    """What is left beside repositories."""
    return [path.name for path in (root / "hub").glob("*") if path.name not in (NAME, "blobs")]


async def test_on_one_disk_it_is_renamed_and_nothing_is_copied(tmp_path: Path) -> None:
    places = Places(tmp_path)
    base = cached(places.cache, "org/name", files())
    inode = next((base / "blobs").iterdir()).stat().st_ino
    before = content_of(base)
    plan = await places.move()
    moved = places.store / "hub" / NAME
    assert (plan.way, plan.size, plan.target) == (MoveWay.RENAME, 0, str(moved))
    assert places.whole() == ["vllm"]
    assert content_of(moved) == before
    assert inode in [path.stat().st_ino for path in (moved / "blobs").iterdir()]
    await places.move(str(places.cache))
    assert places.whole() == ["cache"]


async def test_between_disks_it_is_copied_whole_before_the_source_goes(tmp_path: Path, far: Path) -> None:
    places = Places(tmp_path, far)
    base = cached(far, "org/name", files(), refs=("main", "refs/pr/1"))
    cached(far, "org/name", files(seed=2), commit=OLDER, refs=("v1",))
    before = content_of(base)
    plan = await places.move()
    assert plan.way is MoveWay.COPY
    assert plan.size > 20_000
    assert places.whole() == ["vllm"]
    assert content_of(places.store / "hub" / NAME) == before
    model = places.models.scan_now().find("org/name")
    assert model is not None
    assert {each.commit: each.refs for each in model.revisions} == {COMMIT: ("main", "refs/pr/1"), OLDER: ("v1",)}
    assert (rest_of(far), rest_of(places.store), base.exists()) == ([], [], False)


@pytest.mark.parametrize("other_disk", [False, True])
async def test_data_shared_with_other_repositories_stays_for_them(
    tmp_path: Path, other_disk: bool, request: pytest.FixtureRequest
) -> None:
    places = Places(tmp_path, request.getfixturevalue("far") if other_disk else None)
    root = places.far
    content = files()
    data = content["model-00001-of-00002.safetensors"]
    base, other = cached(root, "org/name", content), cached(root, "org/other", content)
    share(base, data)
    reuse(other, data)
    before = content_of(base)
    await places.move()
    assert content_of(places.store / "hub" / NAME) == before == content_of(other)
    assert places.models.scan_now().find("org/name").completeness is Completeness.COMPLETE  # type: ignore[union-attr]


async def test_of_two_copies_one_stays_after_they_were_compared(tmp_path: Path) -> None:
    places = Places(tmp_path)
    cached(places.store, "org/name", files())
    cached(places.cache, "org/name", files())
    [finding] = [each for each in places.models.scan_now().findings if each.id == "lies_twice"]
    assert str(places.store / "hub") in finding.summary
    assert str(places.cache / "hub") in finding.summary
    assert (await places.move()).way is MoveWay.KEEP_ONE
    assert places.whole() == ["vllm"]
    assert not [each for each in places.models.scan_now().findings if each.id == "lies_twice"]


async def test_one_folder_under_two_names_is_no_second_copy(tmp_path: Path) -> None:
    places = Places(tmp_path)
    base = cached(places.cache, "org/name", files())
    places.store.mkdir()
    (places.store / "hub").symlink_to(places.cache / "hub")
    with pytest.raises(UsageError, match="only"):
        await places.move()
    assert base.is_dir()
    assert not [each for each in places.models.scan_now().findings if each.id == "lies_twice"]


async def test_a_copy_that_borrows_the_other_ones_data_is_not_the_one_that_stays(tmp_path: Path) -> None:
    base = cached(tmp_path / "cache", "org/name", files())
    borrowing = cached(tmp_path / "cache", "org/other", files())
    shutil.rmtree(borrowing / "blobs")
    (borrowing / "blobs").symlink_to(base / "blobs")
    target = borrowing.rename(tmp_path / "cache" / NAME)
    models = FolderModelStore(tmp_path / "none", hubs=(f"{tmp_path}/cache/hub", f"{tmp_path}/cache"))
    with pytest.raises(SparkError):
        plan = MovePlan("org/name", str(base), str(target), MoveWay.KEEP_ONE)
        assert [each async for each in models.move(plan)]
    assert base.is_dir()


async def test_nothing_is_deleted_where_the_copies_differ(tmp_path: Path) -> None:
    places = Places(tmp_path)
    damaged = cached(places.store, "org/name", files())
    blob = max((damaged / "blobs").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(bytes(data))
    cached(places.cache, "org/name", files())
    with pytest.raises(SparkError, match="differ"):
        await places.move()
    assert places.whole() == ["vllm", "cache"]


async def test_a_damaged_file_is_not_carried_to_another_disk(tmp_path: Path, far: Path) -> None:
    places = Places(tmp_path, far)
    base = cached(far, "org/name", files())
    blob = max((base / "blobs").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(bytes(data))
    with pytest.raises(SparkError, match="differ"):
        await places.move()
    assert places.whole() == [far.name]
    assert rest_of(places.store) == []


async def test_what_cannot_be_moved_is_refused_with_what_to_do(tmp_path: Path) -> None:
    places = Places(tmp_path)
    with pytest.raises(UsageError, match="no model"):
        await places.move()
    cached(places.store, "org/name", files())
    with pytest.raises(UsageError, match="only"):
        await places.move()
    with pytest.raises(UsageError, match="no folder of models") as raised:
        await places.move("/elsewhere")
    assert "config set model_roots /elsewhere" in raised.value.remedy
    half = files(shards=3)
    del half["model-00002-of-00003.safetensors"]
    cached(places.cache, "org/half", half)
    with pytest.raises(RefusedError, match="partial"):
        await places.models.plan_move("org/half")
    cached(places.far, "org/name", half)
    with pytest.raises(RefusedError, match="in part"):
        await places.move(str(places.far))
    assert places.whole() == ["vllm"]


async def test_a_move_that_was_killed_while_it_deleted_is_finished(tmp_path: Path) -> None:
    places = Places(tmp_path)
    cached(places.store, "org/name", files())
    left = cached(places.cache, "org/name", files())
    left = left.rename(left.with_name(LEAVING + NAME))
    shutil.rmtree(left / "snapshots")
    assert (await places.move()).way is MoveWay.FINISH
    assert (places.whole(), left.exists()) == (["vllm"], False)


@pytest.mark.parametrize("moment", ["copy begins", "first file", "some time later", "much later"])
def test_a_killed_move_leaves_the_model_whole_and_the_next_one_finishes_it(
    tmp_path: Path, far: Path, moment: str
) -> None:
    shards = {f"model-{at:05d}-of-00006.safetensors": weights(6_000_000, at) for at in range(1, 7)}
    content = {**files(shards=0), **shards}
    base = cached(far, "org/name", content)
    before = content_of(base)
    places = Places(tmp_path, far)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SPARK_TUI_MODEL_ROOTS": str(far)}
    words = [sys.executable, "-m", "spark_tui", "models", "move", "org/name", "--unchecked"]
    environ |= {"DOCKER_HOST": f"unix://{tmp_path}/none", "PYTHONPATH": str(TESTS.parent)}
    coming = places.store / "hub" / (COMING + NAME)
    with subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        signs = {"copy begins": coming, "first file": coming / "blobs", "some time later": coming, "much later": coming}
        while process.poll() is None and not signs[moment].exists():
            time.sleep(0.001)
        time.sleep({"some time later": 0.05, "much later": 0.15}.get(moment, 0.0))
        process.kill()
    assert places.whole(), "it is whole in at least one place"
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    if places.whole() != ["vllm"] or done.returncode not in (0, 2):
        raise AssertionError(done.stderr)
    assert content_of(places.store / "hub" / NAME) == before
    assert (rest_of(places.store), rest_of(far), base.exists()) == ([], [], False)
