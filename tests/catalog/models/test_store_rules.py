"""How whole a checkpoint is by its names and sizes, what goes back when names go, and who names a model."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.engine.container import ContainerFacts, ContainerStatus, Mount
from spark_tui.catalog.models.model.store import (
    MOVING,
    Algorithm,
    Completeness,
    ExpectedFile,
    FileProblem,
    Layout,
    Payload,
    RepoKind,
    StoreContents,
    StoredFile,
    StoredModel,
    StoredRevision,
    current_commit,
    digest_of,
    expected_files,
    freed_by,
    in_motion,
    judge,
    needed,
    with_expected,
    without_reference,
)
from spark_tui.catalog.presets.model.library import User, container_use
from tests.cases import all_cases

W = "model-{:05d}-of-00003.safetensors"


def file(name: str, size: int = 10, trouble: FileProblem = FileProblem.NONE) -> StoredFile:
    return StoredFile(name, None if trouble else Payload(name, size, size), trouble=trouble)


WHOLE = (file("config.json"), file("tokenizer.json"), *(file(W.format(at)) for at in (1, 2, 3)))


@all_cases(
    ("files", "state", "missing"),
    [
        (WHOLE, Completeness.COMPLETE, ()),
        (WHOLE[:-1], Completeness.PARTIAL, (W.format(3),)),
        (WHOLE[:2], Completeness.PARTIAL, ()),
        ((), Completeness.PARTIAL, ()),
        ((*WHOLE, file("x.txt", trouble=FileProblem.LOST)), Completeness.CORRUPT, ("x.txt",)),
        ((*WHOLE, file("x.txt", trouble=FileProblem.OUTSIDE)), Completeness.CORRUPT, ("x.txt",)),
        ((*WHOLE, file("x.txt", trouble=FileProblem.LOOP)), Completeness.CORRUPT, ("x.txt",)),
        ((*WHOLE, file("x.txt", trouble=FileProblem.UNREADABLE)), Completeness.UNKNOWN, ()),
        ((*WHOLE[:-1], file(W.format(3), 0)), Completeness.CORRUPT, (W.format(3),)),
        ((file("Q4_K_M.gguf"),), Completeness.COMPLETE, ()),
        ((file("Q8-00001-of-00002.gguf"),), Completeness.PARTIAL, ("Q8-00002-of-00002.gguf",)),
        ((*WHOLE, file("original/consolidated-00001-of-00009.pt")), Completeness.COMPLETE, ()),
    ],
)
def test_how_whole_files_are_without_a_listing(
    files: tuple[StoredFile, ...], state: Completeness, missing: tuple[str, ...]
) -> None:
    found = judge(files, tree=None, kind=RepoKind.MODEL)
    assert (found.completeness, found.missing) == (state, missing)
    assert bool(found.reasons) is (state is not Completeness.COMPLETE)


@pytest.mark.parametrize("state", Completeness)
def test_what_changes_while_it_is_read_is_not_called_corrupt(state: Completeness) -> None:
    revisions = (StoredRevision("a", "/p", completeness=state, reasons=("why",)),)
    model = StoredModel("o/n", Layout.CACHE, "/p", revisions=revisions, completeness=state, reasons=("why",))
    found = in_motion(model)
    corrupt = state is Completeness.CORRUPT
    told = (Completeness.PARTIAL, (MOVING,)) if corrupt else (state, ("why",))
    assert (found.completeness, found.reasons) == told
    assert (found.revisions[0].completeness, found.revisions[0].reasons) == told
    assert [each.id for each in found.findings] == ["changing"]


@pytest.mark.parametrize(
    ("listed", "here", "wanted"),
    [
        (("config.json", "README.md", "a.safetensors"), (), {"config.json", "a.safetensors"}),
        (("a.safetensors", "consolidated.safetensors"), (), {"a.safetensors"}),
        (("a.safetensors", "a.bin"), (), {"a.safetensors"}),
        (("a.safetensors", "a.bin"), ("a.bin",), {"a.bin"}),
        (("a.bin",), (), {"a.bin"}),
        (("Q4.gguf", "Q8.gguf"), ("Q4.gguf",), set()),
        (("onnx/model.onnx", "model.safetensors", "original/x.pth"), (), {"model.safetensors"}),
        (("tokenizer.json", "tekken.json"), (), {"tokenizer.json", "tekken.json"}),
    ],
)
def test_what_an_engine_needs_of_a_listing(listed: tuple[str, ...], here: tuple[str, ...], wanted: set[str]) -> None:
    assert needed(listed, here) == wanted


def test_a_listing_gives_the_size_and_digest_of_the_data_and_sizes_are_compared() -> None:
    entry = {"size": 130, "blob_id": "b" * 40, "lfs_sha256": "c" * 64, "lfs_size": 9}  # of the pointer, of the data
    tree = {"format_version": 1, "files": {"a": entry}}
    assert expected_files(tree) == {"a": ExpectedFile(9, "c" * 64, Algorithm.SHA256)}
    found = with_expected((file("a", 5), file("b", 6)), {"a": ExpectedFile(6), "b": ExpectedFile(6)})
    assert [each.trouble for each in found] == [FileProblem.SIZE, FileProblem.NONE]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_listing_breaks_it(value: object) -> None:
    expected_files({"format_version": 1, "files": value})
    expected_files({"format_version": 1, "files": {"a": value}})
    expected_files(json.loads(json.dumps({"format_version": value, "files": {}})))


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("a" * 64, Algorithm.SHA256),
        ("A" * 40, Algorithm.GIT_SHA1),
        ("a" * 41, Algorithm.NONE),
        ("../x", Algorithm.NONE),
    ],
    ids=["sha256", "git", "neither", "path"],
)
def test_a_blobs_name_says_how_it_was_hashed(name: str, algorithm: str) -> None:
    assert digest_of(name)[1] == algorithm


def revision(commit: str, *refs: str, modified: float = 0.0) -> StoredRevision:
    return StoredRevision(commit, f"/s/{commit}", refs, modified=modified)


def test_main_is_the_current_revision_else_the_newest_and_only_beside_a_referenced_one_is_one_old() -> None:
    assert current_commit([revision("a", "main"), revision("b", "v1", modified=9.0)]) == "a"
    assert current_commit([revision("a"), revision("b", modified=9.0)]) == "b"
    assert current_commit([]) == ""
    both = without_reference([revision("a", "main"), revision("b")])
    assert [each.completeness for each in both] == [Completeness.COMPLETE, Completeness.UNREFERENCED]
    assert without_reference([revision("b")])[0].completeness is Completeness.COMPLETE


def test_a_revision_is_found_by_commit_its_beginning_branch_or_not_at_all() -> None:
    commits = ("aaaa1111" + "0" * 32, "aaaa2222" + "0" * 32)
    revisions = (revision(commits[0], "main"), revision(commits[1], "v1"))
    model = StoredModel("o/n", Layout.CACHE, "/p", revisions=revisions, commit=commits[0])
    for name, commit in (("", commits[0]), ("v1", commits[1]), ("aaaa22", commits[1]), (commits[1], commits[1])):
        found = model.revision(name)
        assert found is not None
        assert found.commit == commit
    for name in ("aaa", "aaaa", "nope", "v"):
        assert model.revision(name) is None


# --- what comes back --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "kept", "freed", "stays"),
    [
        ([Payload("a", 9, 8)], set(), 8, 0),
        ([Payload("a", 9, 8, links=2)], set(), 0, 8),
        ([Payload("a", 9, 8, links=2)] * 2, set(), 8, 0),
        ([Payload("a", 9, 8, shared=True)] * 3, set(), 8, 0),
        ([Payload("a", 9, 8, shared=True)], {"a"}, 0, 8),
        ([], {"a"}, 0, 0),
    ],
)
def test_data_comes_back_with_its_last_name(names: list[Payload], kept: set[str], freed: int, stays: int) -> None:
    assert freed_by(names, kept) == (freed, stays)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3), st.booleans()), max_size=20), st.sets(st.integers(0, 5))
)
def test_what_comes_back_and_what_stays_are_all_of_it(spec: list[tuple[int, int, bool]], kept: set[int]) -> None:
    payloads = [Payload(str(key), 100, 10 + key, links, shared=shared) for key, links, shared in spec]
    freed, stays = freed_by(payloads, {str(key) for key in kept})
    assert freed + stays == sum(10 + key for key in {key for key, _, _ in spec})


def test_a_store_counts_what_models_share_once() -> None:
    data = Payload("x", 100, 80)
    models = tuple(StoredModel(f"o/{at}", Layout.CACHE, f"/{at}", size=130, disk=90, shared=(data,)) for at in range(3))
    contents = StoreContents("/s", models, orphans=(Payload("y", 7, 5),))
    assert (contents.size, contents.disk) == (3 * 30 + 100 + 7, 3 * 10 + 80 + 5)


# --- who names it -----------------------------------------------------------------------------------------

MODEL = StoredModel("org/qwen", Layout.CACHE, "/home/me/vllm/hub/models--org--qwen")
FOLDER = StoredModel("/models/own", Layout.FOLDER, "/home/me/vllm/own")
STORE = (Mount("/home/me/vllm", "/models"),)
PART = (Mount("/home/me/vllm/hub/models--org--qwen/snapshots", "/w"),)


def container(*argv: str, mounts: tuple[Mount, ...] = STORE, running: bool = True) -> ContainerFacts:
    status = ContainerStatus.RUNNING if running else ContainerStatus.EXITED
    return ContainerFacts("id", "box", "image", "image", status, argv=argv, mounts=mounts)


@all_cases(
    ("model", "box", "named", "expected"),
    [
        (MODEL, container("org/qwen"), "", (User.ENGINE, True)),
        (MODEL, container("org/qwen2"), "org/qwen2", None),
        (MODEL, container("org/qwen-drafter"), "x", None),
        (MODEL, container("big-org/qwen"), "x", None),
        (MODEL, container("--model=org/qwen"), "", (User.ENGINE, True)),
        (MODEL, container("org/qwen:latest"), "", (User.ENGINE, True)),
        (MODEL, container(), "org/qwen", (User.ENGINE, True)),
        (MODEL, container(), "", (User.ENGINE, False)),
        (MODEL, container(running=False), "", None),
        (MODEL, container("org/qwen", running=False), "", (User.ENDED_ENGINE, True)),
        (MODEL, container("org/qwen", mounts=()), "", None),
        (MODEL, container("org/qwen", mounts=(Mount("/home/me/vllm-cache", "/c"),)), "", None),
        (MODEL, container("org/qwen", mounts=(Mount("/", "/host"),)), "", (User.ENGINE, True)),
        (MODEL, container("x", mounts=PART), "", (User.ENGINE, True)),
        (FOLDER, container("/models/own"), "", (User.ENGINE, True)),
        (FOLDER, container("/models/own2"), "x", None),
        (FOLDER, container("/data/own", mounts=(Mount("/home/me/vllm", "/data"),)), "", (User.ENGINE, True)),
        (FOLDER, container("serve", mounts=(Mount("/home/me/vllm/own", "/w"),)), "", (User.ENGINE, True)),
    ],
)  # fmt: skip
def test_who_uses_a_model(
    model: StoredModel, box: ContainerFacts, named: str, expected: tuple[User, bool] | None
) -> None:
    found = container_use(model, box, named)
    assert (None if found is None else (found.kind, found.sure)) == expected


@given(st.text(), st.lists(st.text(), max_size=4), st.text())
def test_no_command_and_no_path_breaks_it(name: str, argv: list[str], source: str) -> None:
    model = StoredModel(name or "x", Layout.CACHE, f"/s/{name}")
    container_use(model, container(*argv, mounts=(Mount(f"/{source}", "/m"), Mount("/s", "/models"))), name)
