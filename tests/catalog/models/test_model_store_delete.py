"""Deleting: what was promised comes back, what others use stays, and nothing outside the store is ever touched."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.catalog.models.adapter.store import FolderModelStore
from spark_tui.catalog.models.model.store import Completeness, DeleteExtent, DeletePlan
from tests.ordinary_user import ordinary_user
from tests.store_kit import COMMIT, OLDER, age, cached, disk_usage, files, local, reuse, share, weights

SHARD = "model-00001-of-00002.safetensors"


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[FolderModelStore]:
    store = FolderModelStore(root)
    try:
        yield store
    finally:
        await store.close()


async def delete(root: Path, model: str, extent: DeleteExtent = DeleteExtent.MODEL, revision: str = "") -> DeletePlan:
    """Deletes, and holds the plan to its word."""
    before = disk_usage(root)
    async with opened(root) as store:
        plan = await store.plan_delete(model, extent, revision)
        assert disk_usage(root) == before
        done = await store.delete(plan)
    assert done.freed == plan.freed == before - disk_usage(root)
    return plan


async def test_a_model_goes_with_everything_of_it_and_frees_what_was_said(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files(), tree=True)
    (tmp_path / "hub" / ".locks" / base.name).mkdir(parents=True)
    cached(tmp_path, "org/other", files(seed=5))
    plan = await delete(tmp_path, "org/name")
    assert plan.name == "org/name"
    assert sorted(path.name for path in (tmp_path / "hub").iterdir()) == [".locks", "models--org--other"]
    assert not list((tmp_path / "hub" / ".locks").iterdir())


async def test_a_revision_goes_alone_and_what_the_other_one_uses_stays(tmp_path: Path) -> None:
    old, new = files(seed=1), files(seed=2)
    old["tokenizer.json"] = new["tokenizer.json"]
    base = cached(tmp_path, "org/name", old, commit=OLDER, refs=("v1", "pr/7"), tree=True)
    cached(tmp_path, "org/name", new)
    plan = await delete(tmp_path, "org/name", DeleteExtent.REVISION, "v1")
    assert (plan.revision, plan.refs, plan.name) == (OLDER, ("pr/7", "v1"), OLDER[:7])
    info = scan_cache_dir(tmp_path / "hub")
    assert not info.warnings
    (repo,) = info.repos
    assert [each.commit_hash for each in repo.revisions] == [COMMIT]
    assert repo.size_on_disk == sum(map(len, new.values()))
    assert sorted(path.name for path in (base / "refs").iterdir()) == ["main"]
    assert not (base / "trees" / f"{OLDER}.json").exists()


async def test_the_last_revision_takes_the_repository_with_it_and_a_single_file_goes_alone(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    plan = await delete(tmp_path, "org/name", DeleteExtent.REVISION, "main")
    assert (plan.extent, plan.name) == (DeleteExtent.MODEL, "org/name")
    assert not base.exists()
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF" * 2000)
    await delete(tmp_path, "/models/a.gguf")
    assert [path.name for path in tmp_path.glob("*.gguf")] == ["b.gguf"]


async def test_leftovers_go_and_the_model_stays_whole(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    (base / "blobs" / f"{'b' * 64}.incomplete").write_bytes(b"x" * 50_000)
    (base / "blobs" / ("c" * 64)).write_bytes(b"y" * 50_000)
    age(base)
    plan = await delete(tmp_path, "org/name", DeleteExtent.LEFTOVERS)
    assert len(plan.removes) == 2
    async with opened(tmp_path) as store:
        (model,) = (await store.scan()).models
        assert model.completeness is Completeness.COMPLETE
        nothing = await store.plan_delete("org/name", DeleteExtent.LEFTOVERS)
        assert nothing.obstacles[0].id == "nothing_to_delete"
        with pytest.raises(RefusedError):
            await store.delete(nothing)


@pytest.mark.parametrize("lies", [False, True], ids=["", "its list of references is empty"])
async def test_shared_data_stays_while_another_model_leads_to_it(tmp_path: Path, lies: bool) -> None:
    content = files(size=60_000)
    first = cached(tmp_path, "org/a", content)
    shared = share(first, content[SHARD])
    reuse(cached(tmp_path, "org/b", content), content[SHARD])
    if lies:
        shared.with_name(f"{shared.name}.refs").write_text("")
    size = shared.stat().st_blocks * 512
    plan = await delete(tmp_path, "org/a")
    assert plan.stays == size
    assert shared.exists()
    again = await delete(tmp_path, "org/b")
    assert again.stays == 0
    assert not shared.exists()
    assert not list(shared.parent.iterdir()), "its list of references and its lock are gone too"


async def test_shared_data_whose_lock_is_held_is_left_for_later(tmp_path: Path) -> None:
    content = files(size=60_000)
    shared = share(cached(tmp_path, "org/a", content), content[SHARD])
    with shared.with_name(f"{shared.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        async with opened(tmp_path) as store:
            await store.delete(await store.plan_delete("org/a", DeleteExtent.MODEL))
            assert shared.exists()
            assert (await store.scan()).orphans


async def test_hard_linked_data_comes_back_with_its_last_name(tmp_path: Path) -> None:
    data = weights(60_000)
    folder = local(tmp_path, "a", {"config.json": b"{}", "model.safetensors": data}, papers=False)
    other = local(tmp_path, "b", {"config.json": b"{}"}, papers=False)
    os.link(folder / "model.safetensors", other / "model.safetensors")
    plan = await delete(tmp_path, "/models/a")
    assert plan.stays > 0
    assert (await delete(tmp_path, "/models/b")).stays == 0


# --- never outside ----------------------------------------------------------------------------------------


async def test_links_are_removed_and_what_they_lead_to_stays(tmp_path: Path) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"p" * 9000)
    base = cached(store, "org/name", files())
    for place in (base, base / "blobs", base / "snapshots" / COMMIT, base / "refs"):
        (place / "file").symlink_to(outside / "precious")
        (place / "folder").symlink_to(outside)
        (place / "above").symlink_to("../../../../../outside")
    await delete(store, "org/name")
    assert (outside / "precious").read_bytes() == b"p" * 9000
    assert not base.exists()


REPO = "hub/models--org--name"
SWAPS = {"repository": REPO, "hub": "hub", "blobs": f"{REPO}/blobs", "snapshot": f"{REPO}/snapshots/{COMMIT}"}


@pytest.mark.parametrize("swapped", SWAPS.values(), ids=SWAPS.keys())
@pytest.mark.parametrize("extent", [DeleteExtent.MODEL, DeleteExtent.REVISION])
@pytest.mark.parametrize("late", [False, True])
async def test_a_link_in_place_of_a_folder_reaches_nothing_outside_before_or_after_the_plan(
    tmp_path: Path, swapped: str, extent: DeleteExtent, late: bool
) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside"
    outside.mkdir()
    cached(store, "org/name", files(seed=1))
    cached(store, "org/name", files(seed=2), commit=OLDER, refs=("old",))
    revision = "main" if extent is DeleteExtent.REVISION else ""
    async with opened(store) as models:
        plan = await models.plan_delete("org/name", extent, revision)
        (store / swapped).rename(outside / Path(swapped).name)
        (store / swapped).symlink_to(outside / Path(swapped).name)
        before = {path: path.lstat().st_ino for path in outside.rglob("*")}
        try:
            if not late:
                plan = await models.plan_delete("org/name", extent, revision)
            await models.delete(plan)
        except SparkError as error:
            assert error.remedy
    assert {path: path.lstat().st_ino for path in outside.rglob("*")} == before


async def test_a_plan_that_was_tampered_with_is_not_followed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (tmp_path / "precious").write_text("p")
    cached(store, "org/name", files())
    async with opened(store) as models:
        plan = await models.plan_delete("org/name", DeleteExtent.MODEL)
        forged = DeletePlan(
            plan.model, plan.extent, plan.name, plan.path, removes=(*plan.removes, "../precious", "/etc/hostname")
        )
        await models.delete(forged)
    assert (tmp_path / "precious").exists()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    spec=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=6
    ),
    data=st.data(),
)
async def test_whatever_is_deleted_frees_exactly_what_was_said_and_leaves_the_others_whole(
    tmp_path_factory: pytest.TempPathFactory, spec: list[tuple[int, int, bool, bool]], data: st.DataObject
) -> None:
    """Repositories and folders with content, blobs and revisions in common: none loses what it needs."""
    root = tmp_path_factory.mktemp("store")
    for at, (name, seed, shared, old) in enumerate(spec):
        content = files(size=9000, seed=seed)
        commit = OLDER if old else COMMIT
        base = cached(root, f"org/m{name}", content, commit=commit, refs=("old",) if old else ("main",))
        blob = base / "blobs" / (base / "snapshots" / commit / SHARD).readlink().name
        if shared and not blob.is_symlink():
            share(base, content[SHARD])
        if at % 2:
            local(root, f"own{name}", content)
    async with opened(root) as store:
        models = (await store.scan(others=False)).models
    victim = data.draw(st.sampled_from([model.id for model in models]))
    extent = data.draw(st.sampled_from([DeleteExtent.MODEL, DeleteExtent.REVISION]))
    await delete(root, victim, extent)
    async with opened(root) as store:
        after = (await store.scan(others=False)).models
    rest = [model for model in after if model.id != victim]
    assert [model.id for model in rest] == [model.id for model in models if model.id != victim]
    assert all(model.completeness is Completeness.COMPLETE for model in after), [model.reasons for model in after]
    if (root / "hub").exists():
        assert not scan_cache_dir(root / "hub").warnings


# --- refused ----------------------------------------------------------------------------------------------


async def test_while_a_download_holds_a_lock_nothing_is_deleted(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    lock = tmp_path / "hub" / ".locks" / base.name / f"{'a' * 64}.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        async with opened(tmp_path) as store:
            plan = await store.plan_delete("org/name", DeleteExtent.MODEL)
            assert plan.obstacles[0].id == "downloading"
            with pytest.raises(RefusedError):
                await store.delete(plan)
    assert base.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of another user")
async def test_roots_folders_are_refused_before_anything_is_gone_with_the_command_that_helps(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    before = sorted(base.rglob("*"))
    with ordinary_user(tmp_path):
        async with opened(tmp_path) as store:
            plan = await store.plan_delete("org/name", DeleteExtent.MODEL)
            assert plan.obstacles[0].id == "no_permission"
            assert plan.obstacles[0].remedy.startswith("sudo chown -R")
            with pytest.raises(RefusedError):
                await store.delete(plan)
    assert sorted(base.rglob("*")) == before


async def test_what_has_grown_since_it_was_shown_is_decided_anew(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    (base / "blobs" / f"{'b' * 64}.incomplete").write_bytes(b"x" * 5000)
    async with opened(tmp_path) as store:
        plan = await store.plan_delete("org/name", DeleteExtent.LEFTOVERS)
        (base / "blobs" / f"{'d' * 64}.incomplete").write_bytes(b"x" * 5000)
        with pytest.raises(RefusedError, match="has changed meanwhile"):
            await store.delete(plan)
