"""The store as it lies on a disk: whole, partial, damaged, shared, hostile, and written to meanwhile."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir

from spark_tui.base.errors import UsageError
from spark_tui.base.files import PrivateFolder
from spark_tui.base.settings import Settings, hub_caches
from spark_tui.catalog.models.adapter.scan import ModelScan, data_behind
from spark_tui.catalog.models.adapter.store import FolderModelStore
from spark_tui.catalog.models.model.store import Completeness, FileProblem, Layout, StoreContents, StoredModel
from tests.ordinary_user import ordinary_user
from tests.store_kit import COMMIT, OLDER, age, cached, disk_usage, files, local, reuse, share, weights, write_tree

LATER = 10_000_000_000.0
"""A clock so late that nothing has changed just now."""


def store_of(root: Path, **given: object) -> FolderModelStore:
    return FolderModelStore(root, now=lambda: LATER, **given)  # type: ignore[arg-type]


def scan(root: Path) -> StoreContents:
    return store_of(root).scan_now(others=False)


def only(root: Path) -> StoredModel:
    (model,) = scan(root).models
    return model


# --- what is there ----------------------------------------------------------------------------------------


def test_a_repository_of_the_cache_is_one_model_with_its_revision_and_refs(tmp_path: Path) -> None:
    content = files()
    base = cached(tmp_path, "org/name", content, refs=("main", "refs/pr/1"))
    model = only(tmp_path)
    assert (model.id, model.layout, model.path) == ("org/name", Layout.CACHE, str(base))
    assert model.completeness is Completeness.COMPLETE, model.reasons
    (revision,) = model.revisions
    assert (revision.commit, revision.refs, revision.files) == (COMMIT, ("main", "refs/pr/1"), 4)
    assert revision.size == model.size == sum(map(len, content.values()))
    assert model.disk == disk_usage(base / "blobs")
    assert model.used is not None


def test_sizes_are_those_that_the_hubs_own_client_finds(tmp_path: Path) -> None:
    for at in range(3):
        cached(tmp_path, f"org/m{at}", files(size=3000 + at, seed=at), tree=at == 1)
    cached(tmp_path, "org/m0", files(size=9000, seed=0), commit=OLDER, refs=("v1",))
    theirs = {repo.repo_id: repo for repo in scan_cache_dir(tmp_path / "hub").repos}
    ours = {model.id: model for model in scan(tmp_path).models}
    assert ours.keys() == theirs.keys()
    for name, repo in theirs.items():
        assert ours[name].size == repo.size_on_disk
        found = {each.commit: (each.size, set(each.refs), each.files) for each in ours[name].revisions}
        assert found == {
            each.commit_hash: (each.size_on_disk, set(each.refs), each.nb_files) for each in repo.revisions
        }


def test_a_folder_of_the_stores_own_is_named_as_containers_see_it(tmp_path: Path) -> None:
    local(tmp_path, "qwen-dflash", files())
    local(tmp_path, "nvidia/nemo", files(), papers=False)
    (tmp_path / "small.gguf").write_bytes(b"GGUF" * 100)
    found = {model.id: model for model in scan(tmp_path).models}
    assert set(found) == {"/models/qwen-dflash", "/models/nvidia/nemo", "/models/small.gguf"}
    assert found["/models/qwen-dflash"].commit == COMMIT
    assert {model.completeness for model in found.values()} == {Completeness.COMPLETE}
    assert all(model.layout is Layout.FOLDER for model in found.values())


def test_folders_without_a_checkpoint_are_left_out_and_a_data_set_is_no_model(tmp_path: Path) -> None:
    for path in ("notes/readme.txt", "nano_v3_reasoning_parser.py", "hub/.locks/x", "xet/y"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    assert scan(tmp_path).models == ()
    cached(tmp_path, "org/data", {"train.parquet": b"x"}, kind="datasets")
    assert (only(tmp_path).kind.value, only(tmp_path).completeness) == ("dataset", Completeness.COMPLETE)


def test_an_absent_store_is_empty_and_a_finding(tmp_path: Path) -> None:
    contents = scan(tmp_path / "none")
    assert (contents.models, contents.findings[0].id) == ((), "no_store")
    assert contents.free is not None


def test_before_the_first_download_an_older_cache_is_offered_for_it(tmp_path: Path) -> None:
    cached(tmp_path / "older", "org/name", files())
    contents = store_of(tmp_path / "none", hubs=(str(tmp_path / "older/hub"),)).scan_now()
    assert contents.findings[0].remedy.endswith(f"spark-tui config set store {tmp_path}/older")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_caches_of_other_users_are_reported_as_theirs_where_they_can_be_read(tmp_path: Path) -> None:
    for user in ("ada", "eve"):
        cached(tmp_path / user / ".cache/huggingface", f"org/of-{user}", files())
    (tmp_path / "eve").chmod(0o700)
    only_asked = tmp_path / "zoe/.cache/huggingface/hub/models--org--asked/refs"
    only_asked.mkdir(parents=True)
    (only_asked / "main").write_text(COMMIT)
    tmp_path.chmod(0o755)
    pattern = f"{tmp_path}/*/.cache/huggingface/hub"
    with ordinary_user(tmp_path / "ada"):
        store = store_of(tmp_path / "none", strangers=(pattern,))
        others = store.scan_now().others
        assert [(each.mine, [model.id for model in each.models]) for each in others] == [(False, ["org/of-ada"])]
        assert store.elsewhere("org/of-ada", "main") is None


# --- how whole --------------------------------------------------------------------------------------------


SHARD = "model-00001-of-00002.safetensors"


def in_cache(root: Path, *, tree: bool = False, refs: tuple[str, ...] = ("main",)) -> Path:
    """The snapshot of a whole model."""
    return cached(root, "org/name", files(), tree=tree, refs=refs) / "snapshots" / COMMIT


def without_a_shard(root: Path) -> None:
    cached(root, "org/name", {name: data for name, data in files(shards=3).items() if "00002-of" not in name})


def cut_short(root: Path) -> None:
    os.truncate((in_cache(root, tree=True) / SHARD).resolve(), 100)


def cut_without_a_listing(root: Path) -> None:
    os.truncate((in_cache(root) / SHARD).resolve(), 2500)


def cut_folder_without_a_listing(root: Path) -> None:
    os.truncate(local(root, "name", files()) / SHARD, 30)


def without_data(root: Path) -> None:
    (in_cache(root) / "config.json").resolve().unlink()


def without_snapshot(root: Path) -> None:
    snapshot = in_cache(root)
    shutil.rmtree(snapshot)
    (snapshot.parent.parent / "refs" / "main").unlink()


def without_its_branch(root: Path) -> None:
    (in_cache(root, refs=("v1",)).parent.parent / "refs" / "main").write_text(OLDER)


def edited_folder(root: Path) -> None:
    (local(root, "name", files(), tree=True) / "config.json").write_text("{}")


def cut_folder(root: Path) -> None:
    os.truncate(local(root, "name", files(), tree=True) / SHARD, 10)


def interrupted(root: Path) -> None:
    base = in_cache(root).parent.parent
    (base / "blobs" / f"{'b' * 64}.incomplete").write_bytes(b"x" * 5000)
    age(base)


def interrupted_folder(root: Path) -> None:
    folder = local(root, "name", files())
    (folder / ".cache" / "huggingface" / "download" / f"abc.{'c' * 64}.incomplete").write_bytes(b"x" * 4096)
    age(folder)


MISSING, LOST = "model-00002-of-00003.safetensors", "config.json leads to data that is gone"
STATES: dict[str, tuple[Callable[[Path], object], Completeness, str, tuple[str, ...], str]] = {
    "no shard": (without_a_shard, Completeness.PARTIAL, f"{MISSING} is missing", (MISSING,), ""),
    "cut short": (cut_short, Completeness.CORRUPT, f"{SHARD} has 100 B of 5.0 KiB", (SHARD,), ""),
    "half, no listing": (cut_without_a_listing, Completeness.CORRUPT, f"{SHARD} has 2.4 KiB of 5.0 KiB", (SHARD,), ""),
    "blob gone": (without_data, Completeness.CORRUPT, LOST, ("config.json",), ""),
    "no snapshot": (without_snapshot, Completeness.UNREFERENCED, "unused data only (no revision)", (), ""),
    "branch gone": (without_its_branch, Completeness.PARTIAL, "main names a missing revision", (), ""),
    "by commit": (lambda root: in_cache(root, refs=()), Completeness.COMPLETE, "", (), ""),
    "interrupted": (interrupted, Completeness.COMPLETE, "", (), "interrupted_download"),
    "folder: edited": (edited_folder, Completeness.COMPLETE, "", (), "edited"),
    "folder: cut": (cut_folder, Completeness.CORRUPT, f"{SHARD} has 10 B of 5.0 KiB", (SHARD,), ""),
    "folder: in its header": (
        cut_folder_without_a_listing,
        Completeness.CORRUPT,
        f"{SHARD} has 30 B of 74 B",
        (SHARD,),
        "",
    ),
    "folder: interrupted": (interrupted_folder, Completeness.PARTIAL, "unfinished download", (), ""),
}


@pytest.mark.parametrize(("make", "state", "reason", "missing", "finding"), STATES.values(), ids=STATES.keys())
def test_how_whole_a_model_is(
    tmp_path: Path, make: Callable[[Path], object], state: Completeness, reason: str, missing: tuple[str, ...],
    finding: str,
) -> None:  # fmt: skip
    make(tmp_path)
    model = only(tmp_path)
    assert (model.completeness, model.writing) == (state, False)
    assert model.reasons == ((reason,) if reason else ())
    assert not missing or model.revisions[0].missing == missing
    assert [each.id for each in model.findings] == ([finding] if finding else [])
    if state is Completeness.UNREFERENCED:
        assert model.loose == model.disk > 0


def test_by_the_hubs_listing_every_needed_file_is_missed_and_its_size_known(tmp_path: Path) -> None:
    content = files() | {"README.md": b"card", "figures/a.png": b"png", "original/model.pth": b"p" * 99}
    base = cached(tmp_path, "org/name", {"config.json": content["config.json"]})
    write_tree(base, content)
    model = only(tmp_path)
    missing = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "tokenizer.json"}
    assert set(model.revisions[0].missing) == missing
    assert model.revisions[0].expected == sum(len(content[name]) for name in (*missing, "config.json"))
    assert "3 files missing" in model.reasons[0]


def test_a_link_that_went_since_it_was_listed_is_absent_and_one_that_is_there_has_lost_its_data(tmp_path: Path) -> None:
    survey = ModelScan(str(tmp_path), str(tmp_path), os.geteuid())
    (tmp_path / "here").symlink_to("blobs/none")
    assert data_behind(survey, f"{tmp_path}/here", is_link=True) == (None, FileProblem.LOST)
    assert data_behind(survey, f"{tmp_path}/gone", is_link=True) == (None, FileProblem.ABSENT)
    assert data_behind(survey, f"{tmp_path}/gone", is_link=False) == (None, FileProblem.ABSENT)


def test_a_running_download_is_partial_and_seen_by_its_lock(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", {"config.json": b"{}"})
    name = "a" * 64
    part = base / "blobs" / f"{name}.12345678.incomplete"
    part.write_bytes(b"x" * 10_000)
    age(base)
    lock = tmp_path / "hub" / ".locks" / base.name / f"{name}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert not only(tmp_path).writing
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        model = only(tmp_path)
    assert (model.writing, model.completeness) == (True, Completeness.PARTIAL)
    assert (model.partials[0].name, model.partial_bytes) == (name, part.stat().st_blocks * 512)


def test_a_revision_that_a_newer_one_replaced_is_unreferenced_and_main_is_the_current_one(tmp_path: Path) -> None:
    cached(tmp_path, "org/name", files(seed=1), commit=OLDER, refs=())
    cached(tmp_path, "org/name", files(seed=2))
    model = only(tmp_path)
    states = {each.commit: each.completeness for each in model.revisions}
    assert states == {OLDER: Completeness.UNREFERENCED, COMMIT: Completeness.COMPLETE}
    assert (model.commit, model.completeness) == (COMMIT, Completeness.COMPLETE)


# --- nothing is counted twice -----------------------------------------------------------------------------


def test_shared_blobs_count_once_in_the_store_and_in_each_model(tmp_path: Path) -> None:
    content = files(size=50_000)
    name = "model-00001-of-00002.safetensors"
    first = cached(tmp_path, "org/a", content)
    shared = share(first, content[name])
    second = cached(tmp_path, "org/b", content)
    reuse(second, content[name])
    contents = scan(tmp_path)
    assert [model.completeness for model in contents.models] == [Completeness.COMPLETE] * 2
    assert all(model.size == sum(map(len, content.values())) for model in contents.models)
    assert contents.disk == sum(
        path.stat().st_blocks * 512
        for path in (*(first / "blobs").iterdir(), *(second / "blobs").iterdir(), shared)
        if not path.is_symlink()
    )
    assert contents.size == scan_cache_dir(tmp_path / "hub").size_on_disk


def test_shared_data_that_no_model_uses_is_told_and_counted(tmp_path: Path) -> None:
    content = files(size=50_000)
    name = "model-00001-of-00002.safetensors"
    base = cached(tmp_path, "org/a", content)
    shared = share(base, content[name])
    (base / "blobs" / (base / "snapshots" / COMMIT / name).readlink().name).unlink()
    contents = scan(tmp_path)
    assert sum(each.disk for each in contents.orphans) == shared.stat().st_blocks * 512
    assert any(each.id == "orphans" for each in contents.findings)


def test_hard_links_and_one_blob_under_two_names_count_once(tmp_path: Path) -> None:
    data = weights(40_000)
    folder = local(tmp_path / "links", "a", {"config.json": b"{}", "model.safetensors": data}, papers=False)
    other = local(tmp_path / "links", "b", {"config.json": b"{}"}, papers=False)
    os.link(folder / "model.safetensors", other / "model.safetensors")
    assert scan(tmp_path / "links").disk == disk_usage(tmp_path / "links")
    twice = {"config.json": b"{}", "model.safetensors": data, "copy.safetensors": data}
    base = cached(tmp_path / "cache", "org/name", twice)
    model = only(tmp_path / "cache")
    assert (model.disk, model.revisions[0].files) == (disk_usage(base / "blobs"), 3)


# --- other people's files ---------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_files_of_another_user_are_findings_and_the_state_is_not_guessed(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    with ordinary_user(tmp_path):
        model = only(tmp_path)
    assert (model.foreign > 4, model.owner) == (True, "root")
    finding = next(each for each in model.findings if each.id == "foreign_files")
    assert finding.remedy == f'sudo chown -R "$(id -u):$(id -g)" {base}'
    (base / "snapshots").chmod(0o700)
    with ordinary_user(tmp_path):
        model = only(tmp_path)
    assert model.completeness is not Completeness.COMPLETE
    assert any(each.id == "unreadable" for each in model.findings)


def test_the_default_cache_of_other_tools_is_found_and_the_own_store_is_none(tmp_path: Path) -> None:
    home = tmp_path / "home"
    cached(home / ".cache" / "huggingface", "org/other", files())
    cached(tmp_path / "store", "org/name", files())
    (tmp_path / "link").symlink_to(tmp_path / "store")
    settings = Settings(store=tmp_path / "store")
    hubs = hub_caches(settings, {"HF_HOME": str(tmp_path / "link")}, home)
    contents = store_of(tmp_path / "store", hubs=hubs).scan_now()
    assert [model.id for model in contents.models] == ["org/name"]
    (other,) = contents.others
    assert other.path == str(home / ".cache" / "huggingface" / "hub")
    assert [model.id for model in other.models] == ["org/other"]
    assert other.disk == disk_usage(Path(other.models[0].path) / "blobs")


# --- hostile ----------------------------------------------------------------------------------------------


def test_links_that_lead_to_themselves_or_out_of_the_store_are_findings(tmp_path: Path) -> None:
    store, secret = tmp_path / "store", tmp_path / "secret.safetensors"
    secret.write_bytes(b"s" * 5000)
    base = cached(store, "org/name", files())
    snapshot = base / "snapshots" / COMMIT
    (snapshot / "loop").symlink_to("loop")
    (snapshot / "out.safetensors").symlink_to(secret)
    (snapshot / "etc").symlink_to("/etc")
    model = only(store)
    assert model.completeness is Completeness.CORRUPT
    assert "loop is a link that leads to itself" in model.reasons
    assert "out.safetensors is a link that leads out of the store" in model.reasons
    found = {each.name: each.trouble for each in store_of(store)._look("org/name", "")[2]}
    assert found["etc"] in (FileProblem.OUTSIDE, FileProblem.UNREADABLE)
    assert model.disk == disk_usage(base / "blobs")


def test_links_between_folders_do_not_go_round_in_circles(tmp_path: Path) -> None:
    folder = local(tmp_path, "name", files(), papers=False)
    (folder / "again").symlink_to(folder)
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "models--a--b").symlink_to(tmp_path)
    contents = scan(tmp_path)
    assert [model.id for model in contents.models] == ["/models/name"]
    assert any(each.id == "not_a_folder" for each in contents.findings)


def test_hostile_names_are_kept_as_they_are_and_shown_clean(tmp_path: Path) -> None:
    evil = "bad\n\x1b[31mname\x07"
    store, kept = tmp_path / "store", PrivateFolder(tmp_path / "kept")
    cached(store, "org/name", files() | {f"{evil}.txt": b"x"})
    folder = local(store, evil, files(), papers=False)
    (folder / os.fsdecode(b"bad\xff\xfe.safetensors")).write_bytes(weights(100))
    (store / "hub" / "models--org--name" / "refs" / evil).write_text("nonsense")
    contents = store_of(store, kept=kept).scan_now()
    assert len(contents.models) == 2
    words = [each.summary for model in contents.models for each in model.findings]
    assert words
    assert all(each.isprintable() for each in words)
    assert store_of(store, kept=kept).scan_now().models == contents.models


@pytest.mark.parametrize(
    "tree",
    [
        b"", b"{", b"[]", b'{"format_version": 1, "files": 3}', b'{"format_version": 9}',
        b'{"format_version": 1, "files": {"a": 3, "b": {"size": -1, "blob_id": 7}}}',
    ],
    ids=range(6),
)  # fmt: skip
def test_a_listing_of_the_wrong_shape_is_left_aside(tmp_path: Path, tree: bytes) -> None:
    base = cached(tmp_path, "org/name", files())
    (base / "trees").mkdir()
    (base / "trees" / f"{COMMIT}.json").write_bytes(tree)
    assert only(tmp_path).completeness in (Completeness.COMPLETE, Completeness.PARTIAL)


def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    folder = local(tmp_path, "name", files(), papers=False)
    os.mkfifo(folder / "pipe.safetensors")
    base = cached(tmp_path, "org/name", files())
    os.mkfifo(base / "refs" / "fifo")
    contents = scan(tmp_path)
    assert any(each.id == "not_a_file" for model in contents.models for each in model.findings)


def test_a_cache_that_is_written_to_and_deleted_from_while_it_is_scanned_never_breaks_a_scan(tmp_path: Path) -> None:
    stop = threading.Event()
    content = files(size=500)

    def write() -> None:
        at = 0
        while not stop.is_set():
            at += 1
            commit = f"{at % 4:040x}"
            base = cached(tmp_path, f"org/m{at % 3}", content, commit=commit)
            if at % 2:
                for path in (base / "snapshots" / commit).iterdir():
                    path.unlink(missing_ok=True)

    cached(tmp_path, "org/quiet", content)
    thread = threading.Thread(target=write)
    thread.start()
    try:
        store = store_of(tmp_path)
        for _ in range(60):
            quiet = store.scan_now(others=False).find("org/quiet")
            assert quiet is not None
            assert quiet.completeness is Completeness.COMPLETE
            for model in store.scan_now(others=False).models:
                assert model.completeness is not Completeness.CORRUPT, model.reasons
    finally:
        stop.set()
        thread.join()


# --- kept results -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [None, b"", b"{", b"[]", b'{"version":1}', b'{"version":1,"models":{"/x":[[],{}]}}'])
def test_a_second_scan_agrees_whatever_became_of_the_kept_results(tmp_path: Path, damage: bytes | None) -> None:
    store, kept = tmp_path / "store", PrivateFolder(tmp_path / "kept")
    for at in range(3):
        cached(store, f"org/m{at}", files(seed=at), tree=at == 1)
    local(store, "own", files())
    first = store_of(store, kept=kept).scan_now()
    (file,) = (tmp_path / "kept").iterdir()
    if damage is not None:
        file.write_bytes(damage)
    assert store_of(store, kept=kept).scan_now() == first
    assert file.read_bytes() != damage


def _another_file(base: Path) -> None:
    (base / "snapshots" / COMMIT / "more.txt").symlink_to("../../blobs/" + next((base / "blobs").iterdir()).name)


def _less(base: Path) -> None:
    (base / "snapshots" / COMMIT / "model-00001-of-00002.safetensors").unlink()


def _ref(base: Path) -> None:
    (base / "refs" / "main").write_text(OLDER)


def _cut(base: Path) -> None:
    os.truncate((base / "snapshots" / COMMIT / "model-00001-of-00002.safetensors").resolve(), 5)


@pytest.mark.parametrize("change", [_another_file, _less, _ref, _cut])
def test_what_has_changed_is_looked_at_again(tmp_path: Path, change: object) -> None:
    store = tmp_path / "store"
    base = cached(store, "org/name", files(size=2_000_000), tree=True)
    found = store_of(store)
    first = found.scan_now()
    assert found.scan_now() == first
    change(base)  # type: ignore[operator]
    assert found.scan_now().models[0] != first.models[0]


def test_a_model_that_changed_just_now_is_not_kept_and_one_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    store, kept = tmp_path / "store", PrivateFolder(tmp_path / "kept")
    base = cached(store, "org/name", files())

    def remembered() -> bool:
        return any(b"org/name" in path.read_bytes() for path in (tmp_path / "kept").glob("*"))

    FolderModelStore(store, kept).scan_now()
    assert not remembered()
    store_of(store, kept=kept).scan_now()
    assert remembered()
    base.rename(tmp_path / "elsewhere")
    assert store_of(store, kept=kept).scan_now().models == ()
    assert not remembered()


# --- asking for one ---------------------------------------------------------------------------------------


async def test_files_are_told_with_what_the_hub_says_of_them(tmp_path: Path) -> None:
    content = files()
    cached(tmp_path, "org/name", content, tree=True)
    store = store_of(tmp_path)
    found = await store.files("org/name", "main")
    assert [each.name for each in found] == sorted(content)
    assert {each.name: each.expected.size for each in found if each.expected} == {
        name: len(data) for name, data in content.items()
    }
    await store.close()


@pytest.mark.parametrize(("name", "revision"), [("org/nme", ""), ("../x", ""), ("org/name", "v9"), ("\0", "")])
async def test_what_is_not_there_is_wrong_usage_with_what_is(tmp_path: Path, name: str, revision: str) -> None:
    cached(tmp_path, "org/name", files())
    store = store_of(tmp_path)
    with pytest.raises(UsageError) as caught:
        await store.files(name, revision)
    assert caught.value.remedy
    await store.close()
