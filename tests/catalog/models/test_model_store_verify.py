"""Verifying: every damaged file is found and named, whatever the layout, and it can be stopped."""

from __future__ import annotations

import os
from contextlib import aclosing
from pathlib import Path

import pytest

from spark_tui.base.settings import SettingOrigin, Settings, SettingSource
from spark_tui.catalog.models.adapter.store import FolderModelStore
from spark_tui.catalog.models.model.store import Algorithm, FileVerdict, VerifyProgress, fetch_again
from tests.ordinary_user import ordinary_user
from tests.store_kit import COMMIT, cached, files, git_sha1, local, reuse, sha256, share, weights

SHARD = "model-00001-of-00002.safetensors"


async def verify(root: Path, model: str, revision: str = "") -> VerifyProgress:
    store = FolderModelStore(root)
    last = None
    async with aclosing(store.verify(model, revision)) as found:
        async for progress in found:
            assert last is None or progress.done >= last.done
            last = progress
    await store.close()
    assert last is not None
    assert last.over
    return last


def flip(path: Path, at: int = -1) -> None:
    """Changes one byte, and neither the size nor the name."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("tree", [True, False])
async def test_a_whole_model_matches_by_the_listing_or_by_the_names_of_its_blobs(tmp_path: Path, tree: bool) -> None:
    content = files()
    cached(tmp_path, "org/name", content, tree=tree)
    found = await verify(tmp_path, "org/name")
    assert {check.name: check.verdict for check in found.checks} == dict.fromkeys(content, FileVerdict.MATCHES)
    assert found.done == found.total == sum(map(len, content.values()))
    assert found.sentence.startswith("All 4 files match the Hub")
    algorithms = {check.name: check.algorithm for check in found.checks}
    assert algorithms["config.json"] is Algorithm.GIT_SHA1
    assert algorithms[SHARD] is Algorithm.SHA256


async def test_digests_are_those_of_the_hubs_own_client(tmp_path: Path) -> None:
    from huggingface_hub.utils._verification import compute_file_hash

    data = weights(70_000)
    path = tmp_path / "file"
    path.write_bytes(data)
    assert (sha256(data), git_sha1(data)) == (compute_file_hash(path, "sha256"), compute_file_hash(path, "git-sha1"))


@pytest.mark.parametrize("name", [SHARD, "config.json"])
@pytest.mark.parametrize("tree", [True, False])
async def test_one_changed_byte_is_found_and_exactly_that_file_is_to_be_fetched_again(
    tmp_path: Path, name: str, tree: bool
) -> None:
    base = cached(tmp_path, "org/name", files(size=200_000), tree=tree)
    flip((base / "snapshots" / COMMIT / name).resolve())
    found = await verify(tmp_path, "org/name")
    assert [check.name for check in found.wrong] == [name]
    assert found.wrong[0].verdict is FileVerdict.DIFFERS
    assert "the Hub has" in found.wrong[0].detail


async def test_data_that_two_files_share_is_read_once_and_damage_names_both(tmp_path: Path) -> None:
    data = weights(100_000)
    base = cached(tmp_path, "org/name", {"config.json": b"{}", "a.safetensors": data, "b.safetensors": data})
    found = await verify(tmp_path, "org/name")
    assert found.total == len(data) + 2
    flip(base / "blobs" / sha256(data))
    assert [check.name for check in (await verify(tmp_path, "org/name")).wrong] == ["a.safetensors", "b.safetensors"]


async def test_shared_blobs_are_verified_by_what_their_repository_says(tmp_path: Path) -> None:
    content = files()
    shared = share(cached(tmp_path, "org/a", content), content[SHARD])
    reuse(cached(tmp_path, "org/b", content), content[SHARD])
    assert (await verify(tmp_path, "org/b")).matching == 4
    shared.chmod(0o600)
    flip(shared)
    for model in ("org/a", "org/b"):
        assert [check.name for check in (await verify(tmp_path, model)).wrong] == [SHARD]


async def test_missing_and_cut_files_are_told_without_reading_them(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files(), tree=True)
    (base / "snapshots" / COMMIT / "config.json").resolve().unlink()
    os.truncate((base / "snapshots" / COMMIT / SHARD).resolve(), 10)
    verdicts = {check.name: check.verdict for check in (await verify(tmp_path, "org/name")).wrong}
    assert verdicts == {"config.json": FileVerdict.ABSENT, SHARD: FileVerdict.SIZE}


async def test_files_of_the_listing_that_an_engine_needs_and_that_are_not_here_are_told(tmp_path: Path) -> None:
    from tests.store_kit import write_tree

    content = files()
    base = cached(tmp_path, "org/name", {name: data for name, data in content.items() if name != SHARD})
    write_tree(base, content | {"README.md": b"not fetched, and not missed"})
    found = await verify(tmp_path, "org/name")
    assert [(check.name, check.verdict) for check in found.wrong] == [(SHARD, FileVerdict.ABSENT)]


async def test_a_folder_is_verified_by_its_papers(tmp_path: Path) -> None:
    folder = local(tmp_path, "name", files())
    assert (await verify(tmp_path, "/models/name")).matching == 4
    flip(folder / SHARD)
    assert [check.name for check in (await verify(tmp_path, "/models/name")).wrong] == [SHARD]


async def test_without_papers_only_the_form_is_told_and_damage_to_it_is_found(tmp_path: Path) -> None:
    folder = local(tmp_path, "name", files(), papers=False)
    found = await verify(tmp_path, "/models/name")
    assert (found.wrong, found.matching) == ((), 0)
    assert found.sentence.startswith("No digests to compare")
    whole = (folder / SHARD).read_bytes()
    for damaged, verdict in ((whole[:60], FileVerdict.SIZE), (whole[:20] + b"{" + whole[21:], FileVerdict.DAMAGED)):
        (folder / SHARD).write_bytes(damaged)
        assert [check.verdict for check in (await verify(tmp_path, "/models/name")).wrong] == [verdict]


async def test_a_single_gguf_file_can_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF" * 100)
    assert [check.verdict for check in (await verify(tmp_path, "/models/a.gguf")).checks] == [FileVerdict.UNTOLD]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files that another user may not read")
async def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    (base / "snapshots" / COMMIT / SHARD).resolve().chmod(0o600)
    with ordinary_user(tmp_path):
        found = await verify(tmp_path, "org/name")
    assert found.wrong == ()
    assert [(check.name, check.detail) for check in found.unsure] == [(SHARD, "permission denied")]


async def test_closing_it_ends_the_reading(tmp_path: Path) -> None:
    cached(tmp_path, "org/name", files(size=60_000_000, shards=3))
    store = FolderModelStore(tmp_path)
    async with aclosing(store.verify("org/name")) as found:
        async for progress in found:
            assert not progress.over or progress.done == progress.total
            break
    await store.close()


async def test_looking_at_a_model_is_no_use_of_it(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    blobs = list((base / "blobs").iterdir())
    for blob in blobs:
        os.utime(blob, (1_000_000_000, 1_000_000_000))
    await verify(tmp_path, "org/name")
    assert {blob.stat().st_atime for blob in blobs} == {1_000_000_000}


async def test_the_command_that_fetches_again_names_the_files(tmp_path: Path) -> None:
    cached(tmp_path, "org/name", files())
    store = FolderModelStore(tmp_path)
    (model,) = (await store.scan()).models
    await store.close()
    words = fetch_again(model, ["a b.json"], Settings())
    assert words == f"spark-tui models pull org/name --revision {model.commit} --file 'a b.json' --again"
    typed = Settings().changed(SettingOrigin(SettingSource.OPTION, "--store"), store="/s")
    assert "spark-tui --store /s models pull" in fetch_again(model, ["c.json"], typed, revision="abc")
    assert "--revision abc --file c.json" in fetch_again(model, ["c.json"], typed, revision="abc")
    assert fetch_again(model, [], Settings()) == ""
