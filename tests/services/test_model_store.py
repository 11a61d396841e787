"""The store as it lies on a disk: whole, partial, damaged, shared, hostile, and written to meanwhile."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir

from spark_tui.domain.errors import UsageError
from spark_tui.domain.models.store import Completeness, Layout, StoreContents, StoredModel, Trouble
from spark_tui.services.files import PrivateFolder
from spark_tui.services.store.scan import Survey, data_behind
from spark_tui.services.store.store import FolderModelStore
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


def test_folders_that_hold_no_checkpoint_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.txt").write_text("x")
    (tmp_path / "nano_v3_reasoning_parser.py").write_text("pass")
    (tmp_path / "hub" / ".locks").mkdir(parents=True)
    (tmp_path / "xet").mkdir()
    assert scan(tmp_path).models == ()


def test_data_sets_are_told_from_models(tmp_path: Path) -> None:
    cached(tmp_path, "org/data", {"train.parquet": b"x"}, kind="datasets")
    model = only(tmp_path)
    assert (model.kind.value, model.completeness) == ("dataset", Completeness.COMPLETE)


def test_a_store_that_is_not_there_is_empty_and_says_so(tmp_path: Path) -> None:
    contents = scan(tmp_path / "none")
    assert contents.models == ()
    assert contents.findings[0].id == "no_store"
    assert contents.free is not None


# --- how whole --------------------------------------------------------------------------------------------


def test_a_shard_that_is_missing_makes_it_partial_and_is_named(tmp_path: Path) -> None:
    content = files(shards=3)
    del content["model-00002-of-00003.safetensors"]
    cached(tmp_path, "org/name", content)
    model = only(tmp_path)
    assert model.completeness is Completeness.PARTIAL
    assert model.revisions[0].missing == ("model-00002-of-00003.safetensors",)


def test_by_the_hubs_listing_every_needed_file_is_missed_and_its_size_known(tmp_path: Path) -> None:
    content = files() | {"README.md": b"card", "figures/a.png": b"png", "original/model.pth": b"p" * 99}
    base = cached(tmp_path, "org/name", {"config.json": content["config.json"]})
    write_tree(base, content)
    model = only(tmp_path)
    missing = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "tokenizer.json"}
    assert set(model.revisions[0].missing) == missing
    assert model.revisions[0].expected == sum(len(content[name]) for name in (*missing, "config.json"))
    assert "3 files missing" in model.reasons[0]


def test_a_file_shorter_than_the_hub_says_is_corrupt(tmp_path: Path) -> None:
    content = files()
    base = cached(tmp_path, "org/name", content, tree=True)
    blob = (base / "snapshots" / COMMIT / "model-00001-of-00002.safetensors").resolve()
    os.truncate(blob, 100)
    model = only(tmp_path)
    assert model.completeness is Completeness.CORRUPT
    assert model.reasons == ("model-00001-of-00002.safetensors has 100 B of 5.0 KiB",)
    assert model.revisions[0].missing == ("model-00001-of-00002.safetensors",)


def test_a_blob_that_is_gone_is_corrupt(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    (base / "snapshots" / COMMIT / "config.json").resolve().unlink()
    model = only(tmp_path)
    assert model.completeness is Completeness.CORRUPT
    assert model.reasons == ("config.json leads to data that is gone",)


def test_a_link_that_went_since_it_was_listed_is_absent_and_one_that_is_there_has_lost_its_data(tmp_path: Path) -> None:
    survey = Survey(str(tmp_path), str(tmp_path), os.geteuid())
    (tmp_path / "here").symlink_to("blobs/none")
    assert data_behind(survey, f"{tmp_path}/here", is_link=True) == (None, Trouble.LOST)
    assert data_behind(survey, f"{tmp_path}/gone", is_link=True) == (None, Trouble.ABSENT)
    assert data_behind(survey, f"{tmp_path}/gone", is_link=False) == (None, Trouble.ABSENT)


def test_a_download_that_goes_on_is_partial_and_seen_by_its_lock(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", {"config.json": b"{}"})
    name = "a" * 64
    (base / "blobs" / f"{name}.12345678.incomplete").write_bytes(b"x" * 10_000)
    age(base)
    lock = tmp_path / "hub" / ".locks" / base.name / f"{name}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert not only(tmp_path).writing
    with held(lock):
        model = only(tmp_path)
        assert model.writing
    assert model.partials[0].name == name
    assert model.partial_bytes == disk_usage(base / "blobs") - disk_usage_of(base / "blobs", name, keep=False)
    assert model.completeness is Completeness.PARTIAL


def disk_usage_of(folder: Path, start: str, *, keep: bool) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir() if path.name.startswith(start) is keep)


@contextmanager
def held(lock: Path) -> Iterator[None]:
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_what_an_interrupted_download_has_left_beside_a_whole_model_is_a_finding(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    (base / "blobs" / f"{'b' * 64}.incomplete").write_bytes(b"x" * 5000)
    age(base)
    model = only(tmp_path)
    assert model.completeness is Completeness.COMPLETE
    assert any(each.id == "interrupted_download" for each in model.findings)


def test_an_unfinished_download_into_a_folder_is_partial(tmp_path: Path) -> None:
    folder = local(tmp_path, "name", files())
    (folder / ".cache" / "huggingface" / "download" / f"abc.{'c' * 64}.incomplete").write_bytes(b"x" * 4096)
    age(folder)
    model = only(tmp_path)
    assert model.completeness is Completeness.PARTIAL
    assert model.partials[0].name == "c" * 64
    assert not model.writing


def test_a_revision_that_a_newer_one_replaced_is_unreferenced_and_main_is_the_current_one(tmp_path: Path) -> None:
    cached(tmp_path, "org/name", files(seed=1), commit=OLDER, refs=())
    cached(tmp_path, "org/name", files(seed=2))
    model = only(tmp_path)
    states = {each.commit: each.completeness for each in model.revisions}
    assert states == {OLDER: Completeness.UNREFERENCED, COMMIT: Completeness.COMPLETE}
    assert (model.commit, model.completeness) == (COMMIT, Completeness.COMPLETE)


def test_a_revision_that_was_asked_for_by_its_commit_alone_is_complete(tmp_path: Path) -> None:
    cached(tmp_path, "org/name", files(), refs=())
    assert only(tmp_path).completeness is Completeness.COMPLETE


def test_blobs_without_any_snapshot_are_unreferenced(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    for path in (base / "snapshots" / COMMIT).iterdir():
        path.unlink()
    (base / "snapshots" / COMMIT).rmdir()
    (base / "refs" / "main").unlink()
    model = only(tmp_path)
    assert model.completeness is Completeness.UNREFERENCED
    assert model.loose == model.disk > 0


def test_a_branch_that_leads_to_a_revision_that_is_not_here_is_told(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files(), refs=("v1",))
    (base / "refs" / "main").write_text(OLDER)
    model = only(tmp_path)
    assert model.completeness is Completeness.PARTIAL
    assert model.reasons == ("main names a missing revision",)


def test_a_config_that_was_edited_in_an_own_folder_is_no_damage(tmp_path: Path) -> None:
    folder = local(tmp_path, "name", files(), tree=True)
    (folder / "config.json").write_text("{}")
    model = only(tmp_path)
    assert model.completeness is Completeness.COMPLETE
    assert (model.findings[0].id, model.findings[0].summary[-11:]) == ("edited", "config.json")


def test_weights_of_an_own_folder_that_were_cut_short_are_damage(tmp_path: Path) -> None:
    folder = local(tmp_path, "name", files(), tree=True)
    os.truncate(folder / "model-00001-of-00002.safetensors", 10)
    assert only(tmp_path).completeness is Completeness.CORRUPT


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
    papers = sum(disk_usage(path.parent) for path in ())
    assert contents.disk + papers == sum(
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


def test_hard_links_count_once(tmp_path: Path) -> None:
    data = weights(40_000)
    folder = local(tmp_path, "a", {"config.json": b"{}", "model.safetensors": data}, papers=False)
    other = local(tmp_path, "b", {"config.json": b"{}"}, papers=False)
    os.link(folder / "model.safetensors", other / "model.safetensors")
    contents = scan(tmp_path)
    assert contents.disk == disk_usage(tmp_path)


def test_one_blob_under_two_names_counts_once(tmp_path: Path) -> None:
    data = weights(40_000)
    base = cached(tmp_path, "org/name", {"config.json": b"{}", "model.safetensors": data, "copy.safetensors": data})
    model = only(tmp_path)
    assert model.disk == disk_usage(base / "blobs")
    assert model.revisions[0].files == 3


# --- other people's files ---------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_files_of_another_user_are_shown_with_the_command_that_fixes_it(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    with ordinary_user(tmp_path):
        model = only(tmp_path)
    assert (model.foreign > 4, model.owner) == (True, "root")
    finding = next(each for each in model.findings if each.id == "foreign_files")
    assert finding.remedy == f'sudo chown -R "$(id -u):$(id -g)" {base}'


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders that another user may not read")
def test_a_folder_that_may_not_be_read_is_a_finding_and_the_state_is_not_guessed(tmp_path: Path) -> None:
    base = cached(tmp_path, "org/name", files())
    (base / "snapshots").chmod(0o700)
    with ordinary_user(tmp_path):
        model = only(tmp_path)
    assert model.completeness is not Completeness.COMPLETE
    assert any(each.id == "unreadable" for each in model.findings)


def test_the_default_cache_of_other_tools_is_found_and_not_counted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    cached(home / ".cache" / "huggingface", "org/other", files())
    cached(tmp_path / "store", "org/name", files())
    contents = store_of(tmp_path / "store", environ={}, home=home).scan_now()
    assert [model.id for model in contents.models] == ["org/name"]
    (other,) = contents.others
    assert other.path == str(home / ".cache" / "huggingface" / "hub")
    assert [model.id for model in other.models] == ["org/other"]
    assert other.disk == disk_usage(Path(other.models[0].path) / "blobs")


def test_the_own_store_is_no_other_cache_however_it_is_named(tmp_path: Path) -> None:
    cached(tmp_path / "store", "org/name", files())
    (tmp_path / "link").symlink_to(tmp_path / "store")
    environ = {"HF_HOME": str(tmp_path / "link")}
    contents = store_of(tmp_path / "store", environ=environ, home=tmp_path).scan_now()
    assert contents.others == ()


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
    assert found["etc"] in (Trouble.OUTSIDE, Trouble.UNREADABLE)
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


def test_names_with_newlines_and_escape_codes_are_carried_as_they_are_and_shown_clean(tmp_path: Path) -> None:
    evil = "bad\n\x1b[31mname\x07"
    cached(tmp_path, "org/name", files() | {f"{evil}.txt": b"x"})
    local(tmp_path, evil, files(), papers=False)
    (tmp_path / "hub" / "models--org--name" / "refs" / evil).write_text("nonsense")
    contents = scan(tmp_path)
    assert len(contents.models) == 2
    words = [each.summary for model in contents.models for each in model.findings]
    assert words
    assert all(each.isprintable() for each in words)


def test_names_that_are_no_text_are_no_trouble(tmp_path: Path) -> None:
    folder = local(tmp_path, "name", files(), papers=False)
    (folder / os.fsdecode(b"bad\xff\xfe.safetensors")).write_bytes(weights(100))
    kept = PrivateFolder(tmp_path / "kept")
    first = store_of(tmp_path, kept=kept).scan_now()
    assert store_of(tmp_path, kept=kept).scan_now().models == first.models


@pytest.mark.parametrize(
    "tree",
    [
        b"",
        b"{",
        b"[]",
        b'{"format_version": 1, "files": 3}',
        b'{"format_version": 9}',
        b'{"format_version": 1, "files": {"a": 3, "b": {"size": -1, "blob_id": 7}}}',
    ],
)
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


def test_a_second_scan_says_the_same_from_what_was_kept(tmp_path: Path) -> None:
    store, kept = tmp_path / "store", PrivateFolder(tmp_path / "kept")
    for at in range(3):
        cached(store, f"org/m{at}", files(seed=at), tree=at == 1)
    local(store, "own", files())
    first = store_of(store, kept=kept).scan_now()
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert store_of(store, kept=kept).scan_now() == first


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version":1}', b'{"version":1,"models":{"/x":[[],{}]}}'])
def test_a_damaged_file_of_kept_results_is_written_anew(tmp_path: Path, damage: bytes) -> None:
    store, kept = tmp_path / "store", PrivateFolder(tmp_path / "kept")
    cached(store, "org/name", files())
    first = store_of(store, kept=kept).scan_now()
    (file,) = (tmp_path / "kept").iterdir()
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


def test_a_model_that_changed_a_moment_ago_is_not_kept(tmp_path: Path) -> None:
    cached(tmp_path / "store", "org/name", files())
    FolderModelStore(tmp_path / "store", PrivateFolder(tmp_path / "kept")).scan_now()
    assert b"org/name" not in b"".join(path.read_bytes() for path in (tmp_path / "kept").glob("*"))


def test_a_model_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    store, kept = tmp_path / "store", PrivateFolder(tmp_path / "kept")
    base = cached(store, "org/name", files())
    store_of(store, kept=kept).scan_now()
    base.rename(tmp_path / "elsewhere")
    assert store_of(store, kept=kept).scan_now().models == ()
    assert b"org/name" not in b"".join(path.read_bytes() for path in (tmp_path / "kept").iterdir())


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
