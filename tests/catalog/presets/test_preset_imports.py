"""Other people's folders: what is in them is read within bounds, never run, and nothing outside them is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from spark_tui.base.errors import PresetError, RefusedError, SparkError, UsageError
from spark_tui.catalog.presets.adapter import imports
from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.store import PresetFiles, parse
from spark_tui.catalog.presets.model.command import command_of
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs
from spark_tui.catalog.presets.model.preset import MappingValue, Origin, plain
from spark_tui.catalog.presets.model.recipe import Dialect
from spark_tui.catalog.presets.use.imports import ImportOutcome, PastedText, RecipeStore, import_recipes
from tests.cases import all_cases
from tests.dialect_fixtures import EUGR, IMPORTABLE, REAL, SPARKRUN, WITHOUT_COMMAND, document, examined, imported
from tests.ordinary_user import ordinary_user

V2 = "model: org/m\ncontainer: org/i:1\ncommand: vllm serve {model}\n"
V1 = 'recipe_version: "1"\nname: R\nmodel: org/m\ncontainer: org/i:1\ncommand: vllm serve org/m\n'


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "config" / "presets"


@pytest.fixture
def store(own: Path) -> RecipeStore:
    return FolderRecipeStore(own)


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    folder = tmp_path / "registry"
    (folder / "recipes").mkdir(parents=True)
    (folder / "recipes" / "good.yaml").write_text(V2)
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def outcomes(report: object) -> dict[str, str]:
    return {each.recipe.path: each.outcome.value for each in report.recipes}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "said"), [("post.md", "holds no recipe"), ("own.yaml", "not valid YAML")])
def test_a_page_without_a_recipe_is_no_broken_recipe(name: str, said: str, store: RecipeStore, tmp_path: Path) -> None:
    (tmp_path / name).write_text("Speeds: 75 tok/s\n  as measured: by me\n")
    [page] = import_recipes(store, tmp_path / name).recipes
    assert page.problem is not None
    assert said in page.problem.summary


# --- real recipes -------------------------------------------------------------------------------------


def test_thirty_real_recipes_of_both_dialects_import_without_loss(store: RecipeStore, own: Path) -> None:
    reports = [import_recipes(store, REAL / name) for name in ("eugr", "sparkrun")]
    done = [each for report in reports for each in report.recipes if each.outcome is ImportOutcome.IMPORTED]
    assert len(done) == len(IMPORTABLE) >= 30
    assert {each.recipe.dialect for each in done} == {Dialect.EUGR, Dialect.SPARKRUN}
    loaded = PresetFiles(own).load()
    assert loaded.problems == ()
    assert {preset.name for preset in loaded.presets} == {each.recipe.name for each in done}
    assert {preset.origin for preset in loaded.presets} == {Origin.BUILTIN}, "the folder stands in for ours here"


@all_cases("path", SPARKRUN, ids=lambda path: path.stem)
def test_a_sparkrun_recipe_is_kept_as_it_is_written(path: Path) -> None:
    text = imported(path).text
    assert text.endswith(path.read_text()), "comments and all"
    assert plain(parse(text, "r.yaml")) == plain(document(path))


@all_cases("path", EUGR, ids=lambda path: path.stem)
def test_every_key_of_an_eugr_recipe_is_in_the_file_that_is_written(path: Path) -> None:
    written = parse(imported(path).text, "r.yaml")
    assert isinstance(written, MappingValue)
    before, after = plain(document(path)), plain(written)
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    changed = ("recipe_version", "command", "defaults", "env", "metadata")
    assert {k: v for k, v in before.items() if k not in changed} == {k: after[k] for k in before if k not in changed}
    assert len(after.get("defaults", {})) == len(before.get("defaults", {}))


def test_a_recipe_without_a_command_gets_the_one_that_sparkrun_makes() -> None:
    made = {path.stem: imported(path).preset for path in SPARKRUN if path.stem in WITHOUT_COMMAND}
    words = {name: command_of(preset, Overrides(), preset.model).argv for name, preset in made.items() if preset}
    atlas, sglang = words["minimax-m2.7-nvfp4-ep2-atlas"], words["deepseek-v4.1-flash-b12x-dspark-sglang-tp4"]
    assert atlas[:3] == ("spark", "serve", "lukealonso/MiniMax-M2.7-NVFP4") and "--enable-prefix-caching" in atlas
    assert atlas[atlas.index("--max-seq-len") + 1] == "16384" and "--max-model-len" not in atlas
    assert sglang[:4] == ("sglang", "serve", "--model-path", "deepseek-ai/DeepSeek-V4.1-Flash")
    assert sglang[sglang.index("--revision") + 1] == "fb2764a5cf321eaa5070ca8f9e892818f477c16d"
    changed = command_of(made["gemma-4-26b-a4b-nvfp4-atlas"], overrides_from_pairs({"max_model_len": "4096"}), "m").argv  # type: ignore[arg-type]
    assert changed[changed.index("--max-seq-len") + 1] == "4096"


def test_for_other_runtimes_a_recipe_without_a_command_is_refused() -> None:
    problem = examined("model: org/m\ncontainer: nvcr.io/x/y:1\nruntime: trtllm\n").problem
    assert isinstance(problem, PresetError) and problem.line == 3
    assert "for vLLM, sglang, atlas, and" in problem.summary


def test_mods_are_told_with_what_their_scripts_do() -> None:
    by_name = {path.stem: path for path in (*EUGR, *SPARKRUN)}
    (mod,) = imported(by_name["nemotron-3-nano-nvfp4"]).mods
    assert (mod.name, mod.script) == ("mods/nemotron-nano", "mods/nemotron-nano/run.sh")
    assert mod.lines[0] == "# Fetches the parser of the model's reasoning from its repository."
    (near,) = imported(by_name["qwen3.8-flash-next-nvfp4-vllm"]).mods
    assert near.script == "community/qwen3.8-flash-next/t4cmyk/mods/ple-force-fp8-patch/run.sh"
    first, second = imported(by_name["qwen3.6-27b-fp8-mtp-vllm"]).mods
    assert (first.script, second.script) == ("official-mods/fix-qwen3-coder-next/run.sh", "")
    (elsewhere,) = imported(by_name["kimi-k2.6-native-int4"]).mods
    assert (elsewhere.script, elsewhere.lines) == ("", ()), "a path on somebody's machine is shown and not read"


def test_hooks_are_told_and_stay_in_the_file() -> None:
    found = imported(next(path for path in SPARKRUN if "exl3" in path.stem))
    assert found.hooks[0] == "pre_exec: python3 /opt/glm53/patch_glm_video_placeholders.py"
    assert "pre_exec:\n" in found.text


# --- where it came from -------------------------------------------------------------------------------


def test_a_git_checkout_says_where_it_is_from(store: RecipeStore, registry: Path, own: Path) -> None:
    git = registry / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads" / "main").write_text("a" * 40 + "\n")
    (git / "config").write_text('[remote "origin"]\n\turl = https://me:hf_sekritsekritsekritsekrit@example.org/x.git\n')
    (registry / "LICENSE").write_text("MIT License\n\nCopyright\n")
    report = import_recipes(store, registry)
    assert (report.registry.address, report.registry.commit) == ("https://example.org/x.git", "a" * 40)
    assert report.registry.licence == "MIT"
    assert (own / "good.yaml").read_text() == (
        "# Imported by spark-tui: recipes/good.yaml of https://example.org/x.git (aaaaaaaaaaaa)\n"
        "# It is a sparkrun recipe (version 2).\n"
        "# Licence there: MIT.\n" + V2
    )
    (git / "refs" / "heads" / "main").unlink()
    (git / "packed-refs").write_text(f"# pack-refs\n{'b' * 40} refs/heads/main\n")
    assert store.gather(registry).registry.commit == "b" * 40


def test_a_single_file_finds_the_mods_of_its_registry(store: RecipeStore, registry: Path) -> None:
    (registry / "recipes" / "r.yaml").write_text(V2 + "mods: [mods/patch]\n")
    (registry / "mods" / "patch").mkdir(parents=True)
    (registry / "mods" / "patch" / "run.sh").write_text("#!/bin/sh\nset -e\n# It patches.\n" + "echo\n" * 20)
    (found,) = import_recipes(store, registry / "recipes" / "r.yaml").recipes
    (mod,) = found.recipe.mods
    assert mod.lines[0] == "# It patches."
    assert (len(mod.lines), mod.more_lines) == (12, 9)


def test_the_registrys_manifest_says_where_recipes_are(store: RecipeStore, registry: Path) -> None:
    (registry / ".sparkrun").mkdir()
    (registry / ".sparkrun" / "registry.yaml").write_text(
        "registries:\n  - {name: a, recipes: mine}\n  - {name: b, recipes: ../outside}\n  - {name: c, recipes: /etc}\n"
    )
    (registry / "mine").mkdir()
    (registry / "mine" / "m.yaml").write_text(V2)
    assert outcomes(import_recipes(store, registry)) == {"mine/m.yaml": "imported"}


def test_what_is_no_recipe_is_no_concern(store: RecipeStore, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    (folder / ".github").mkdir(parents=True)
    (folder / ".github" / "x.yaml").write_text(V2)
    (folder / "compose.yaml").write_text("services: {a: {image: b}}\n")
    (folder / "bench.yml").write_text("- 1\n")
    (folder / "r.yml").write_text(V1)
    assert outcomes(import_recipes(store, folder)) == {"r.yml": "imported"}


def test_recipes_and_commands_are_found_within_what_people_write_about_them(store: RecipeStore, tmp_path: Path) -> None:
    listed = "".join(f"    {line}\n" for line in V1.replace("name: R", "name: listed").splitlines())
    compose = "services:\n  eight:\n    image: vllm/vllm-openai:v0.20.0\n    command: org/eight\n"
    quoted = "".join(f"> {line}\n" for line in f"name: cited\n{V2}".splitlines())
    post = f"""Works here: try it. Note: it is slow.

{V1}2 Likes
A list of mine:

{listed}
name: nobody, and no recipe at all

```yaml
{compose}```
docker run --gpus all --name ran vllm/vllm-openai vllm serve org/ran
As Jo wrote:
{quoted}Mine was broken:
name: [broken
model: x
"""
    (tmp_path / "post.md").write_text(post)
    report = import_recipes(store, tmp_path / "post.md")
    assert [(each.recipe.path, each.recipe.name) for each in report.recipes if each.problem is None] == [
        ("post.md:3", "R"), ("post.md:11", "listed"), ("post.md:20", "eight"), ("post.md:25", "ran"),
        ("post.md:27", "cited"),
    ], [str(each.problem) for each in report.recipes]  # fmt: skip
    pasted = import_recipes(store, PastedText(post, "paste"), replace=True)
    assert [each.recipe.name for each in pasted.recipes] == ["R", "listed", "eight", "ran", "cited"]


def test_a_folder_without_recipes_is_refused(store: RecipeStore, tmp_path: Path) -> None:
    outside, linked = tmp_path / "outside", tmp_path / "linked"
    for folder in (tmp_path / "empty", outside, linked):
        folder.mkdir()
    (outside / "secret.yaml").write_text(V2)
    (linked / "recipes").symlink_to(outside)  # a folder of recipes that is a link is not the registry's
    for folder in (tmp_path / "empty", linked):
        with pytest.raises(UsageError, match="no recipe"):
            import_recipes(store, folder)
    with pytest.raises(UsageError, match="No such file"):
        import_recipes(store, tmp_path / "nowhere")


# --- includes -----------------------------------------------------------------------------------------


def test_what_a_recipe_includes_is_written_into_it(store: RecipeStore, own: Path, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        V2
        + "defaults: {port: 1, spec: {method: mtp, n: 3}}\nenv: {A: '1', B: '2'}\nmods: [a, b]\nmetadata: {x: {y: 1}}\n"
        "overrides: [{when: {tp: 2}}]\n"
    )
    (tmp_path / "child.yaml").write_text(
        "include: base\ndefaults: {port: 2, spec: {method: ngram}}\nenv: {B: }\nmods: [c]\nmetadata: {x: {z: 2}}\n"
        "overrides: [{when: {tp: 4}}]\n"
    )
    (found,) = import_recipes(store, tmp_path / "child.yaml").recipes
    assert found.recipe.changes == ("What it includes is written into it.",)
    assert plain(parse((own / "child.yaml").read_text(), "r")) == {
        "model": "org/m",
        "container": "org/i:1",
        "command": "vllm serve {model}",
        "defaults": {"port": 2, "spec": {"method": "ngram"}},
        "env": {"A": "1"},
        "mods": ["c"],
        "metadata": {"x": {"y": 1, "z": 2}},
        "overrides": [{"when": {"tp": 2}}, {"when": {"tp": 4}}],
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("include: '@official/x'\n", "another registry"),
        ("include: ../secret\n", "no file of the same folder"),
        ("include: /etc/x.yaml\n", "no file of the same folder"),
        ("include: absent\n", "not beside"),
        ("include: child\n", "in a circle"),
        ("include: old\n", "is a eugr recipe"),
    ],
)
def test_an_include_that_leads_elsewhere_is_refused(store: RecipeStore, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "child.yaml").write_text(text)
    (tmp_path / "old.yaml").write_text(V1)
    (tmp_path / "secret.yaml").write_text(V2)
    (found,) = import_recipes(store, tmp_path / "child.yaml").recipes
    assert found.problem is not None
    assert says in found.problem.summary
    assert isinstance(found.problem, PresetError)
    assert found.problem.line == 1


# --- bad input ----------------------------------------------------------------------------------------

BAD = [
    ("engines: {vllm: {image: x}}\nname: a\n", "spark-pulse recipe"),
    ("model: org/m\ncontainer: 'rm -rf /'\ncommand: x\n", "must be the name of an image"),
    ("model: ../../etc\ncontainer: x\ncommand: y\n", "must be a Hugging Face repository"),
    ("model: /models/../etc\ncontainer: x\ncommand: y\n", "leaves the model store"),
    (V2 + "executor_config: {volumes: ['../x:/y']}\n", "cannot be used"),
    (
        "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"b{i}: &b{i} [*a,*a,*a]\n" for i in range(1)) + "model: [",
        "not valid YAML",
    ),
    (
        "\n".join([f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]" for i in range(9)]).join(
            ("a: &a [1,1,1,1,1,1,1,1,1]\n", "\nmodel: m\ncontainer: x\n")
        ),
        "holds more than 20,000 values",
    ),
    ("model: \x00\n", "control character"),
    (V2 + V2 + "model: org/other\n", "given twice"),
    ("Resources: {X: !Ref Foo}\n", "The tag !Ref"),
    ("model: org/m\ncontainer: x\ncommand: vllm serve --api-key k\n", "passes the API key"),
    (V2 + "env: {HF_TOKEN: hf_aaaaaaaaaaaaaaaaaaaaaaaa}\n", "holds a key"),
    (V2 + "recipe_version: '9'\n", "must be 2, 3 or 4"),
]


@pytest.mark.parametrize(
    "more", ["model: org/m\n", "recipe_version: 3\n", 'recipe_version: "4"\n', 'env: {HF_TOKEN: "${HF_TOKEN}"}\n']
)
def test_what_a_launcher_takes_is_imported(store: RecipeStore, registry: Path, more: str) -> None:
    (registry / "recipes" / "odd.yaml").write_text(V2 + more)
    report = import_recipes(store, registry)
    assert outcomes(report) == {"recipes/good.yaml": "imported", "recipes/odd.yaml": "imported"}


@pytest.mark.parametrize(("text", "says"), BAD, ids=[says for _, says in BAD])
def test_a_bad_recipe_is_refused_and_stops_no_other(
    store: RecipeStore, registry: Path, own: Path, text: str, says: str
) -> None:
    (registry / "recipes" / "bad.yaml").write_text(text)
    report = import_recipes(store, registry)
    assert outcomes(report) == {"recipes/bad.yaml": "refused", "recipes/good.yaml": "imported"}
    problem = report.recipes[0].problem
    assert isinstance(problem, PresetError)
    assert says in problem.summary
    assert problem.where.startswith(f"{registry}/recipes/bad.yaml:")
    assert names_in(own) == ["good.yaml"]


def test_links_are_never_followed(store: RecipeStore, registry: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "mods" / "m").mkdir(parents=True)
    (outside / "secret.yaml").write_text(V2)
    (outside / "mods" / "m" / "run.sh").write_text("# secret\n")
    (registry / "recipes" / "link.yaml").symlink_to(outside / "secret.yaml")
    (registry / "recipes" / "folder").symlink_to(outside)
    (registry / "recipes" / "up").symlink_to(registry)
    (registry / "mods").symlink_to(outside / "mods")
    (registry / "recipes" / "wants.yaml").write_text(V2 + "mods: [mods/m]\n")
    report = import_recipes(store, registry)
    assert set(outcomes(report)) == {"recipes/good.yaml", "recipes/wants.yaml"}
    assert {Path(problem.file).name for problem in report.passed_over if isinstance(problem, PresetError)} == {
        "link.yaml", "folder", "up",
    }  # fmt: skip
    assert report.recipes[1].recipe.mods[0].script == ""


def test_links_beside_a_named_file_are_no_concern(store: RecipeStore, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(V2)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "current").symlink_to(tmp_path / "elsewhere")
    report = import_recipes(store, tmp_path / "mine.yaml")
    assert outcomes(report) == {"mine.yaml": "imported"}
    assert report.passed_over == ()


def test_pipes_are_never_opened_and_what_lies_too_deep_is_not_followed(store: RecipeStore, registry: Path) -> None:
    os.mkfifo(registry / "recipes" / "pipe.yaml")
    (registry / "mods" / "m").mkdir(parents=True)
    os.mkfifo(registry / "mods" / "m" / "run.sh")
    deep = registry.joinpath("recipes", *["d"] * (imports.MAX_DEPTH + 2))
    deep.mkdir(parents=True)
    (deep / "r.yaml").write_text(V2)
    assert outcomes(import_recipes(store, registry)) == {"recipes/good.yaml": "imported"}


def test_too_many_files_and_a_huge_one_are_refused(store: RecipeStore, registry: Path) -> None:
    for number in range(imports.MAX_RECIPES):
        (registry / "recipes" / f"r{number}.yaml").write_text("a: 1\n")
    with pytest.raises(PresetError, match="more than 2,000 YAML files"):
        import_recipes(store, registry)
    for path in (registry / "recipes").glob("r*.yaml"):
        path.unlink()
    (registry / "recipes" / "huge.yaml").write_bytes(b"#" * (imports.MAX_BYTES + 1))
    report = import_recipes(store, registry)
    assert outcomes(report) == {"recipes/good.yaml": "imported", "recipes/huge.yaml": "refused"}


def test_an_unreadable_folder_is_told(store: RecipeStore, registry: Path) -> None:
    shut = registry / "recipes" / "shut"
    shut.mkdir()
    (registry / "recipes" / "dark.yaml").write_text(V2)
    (registry / "recipes" / "dark.yaml").chmod(0)
    shut.chmod(0)
    try:
        with ordinary_user(registry / "recipes"):
            gathered = store.gather(registry)
    finally:
        shut.chmod(0o755)
    assert [Path(problem.file).name for problem in gathered.passed_over] == ["shut"]
    dark = next(found for found in gathered.files if found.path.endswith("dark.yaml"))
    assert dark.problem is not None
    assert "cannot be read" in dark.problem.summary


# --- names and writing --------------------------------------------------------------------------------


def test_names_come_from_the_files(store: RecipeStore, tmp_path: Path, own: Path) -> None:
    folder = tmp_path / "reg"
    for name in ("a b.yaml", "x.v1.yaml", "x.yml", "4x-spark-cluster/q.yaml", "q.yaml", "-.yaml", "deep/q.yaml"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(V2)
    names = {each.recipe.path: each.recipe.name for each in import_recipes(store, folder).recipes}
    assert names == {
        "a b.yaml": "a-b",
        "x.v1.yaml": "x",
        "x.yml": "x-2",
        "q.yaml": "q",
        "4x-spark-cluster/q.yaml": "4x-spark-cluster-q",
        "deep/q.yaml": "deep-q",
        "-.yaml": "recipe",
    }


def test_a_preset_is_written_whole_and_readable(store: RecipeStore, own: Path) -> None:
    old = os.umask(0o077)
    try:
        path = store.write("a", V2)
    finally:
        os.umask(old)
    assert (path, path.read_text()) == (own / "a.yaml", V2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert names_in(own) == ["a.yaml"], "nothing is left beside it"


def test_what_is_there_is_replaced_only_on_wish(store: RecipeStore, registry: Path, own: Path) -> None:
    own.mkdir(parents=True)
    (own / "good.yml").write_text("model: org/mine\ncontainer: x\n")
    (found,) = import_recipes(store, registry).recipes
    assert isinstance(found.problem, RefusedError)
    assert "another one" in found.problem.summary
    (found,) = import_recipes(store, registry, replace=True).recipes
    assert found.outcome is ImportOutcome.IMPORTED
    assert names_in(own) == ["good.yml"], "in its place, and not beside it"
    (found,) = import_recipes(store, registry).recipes
    assert found.outcome is ImportOutcome.UNCHANGED
    (own / "good.yml").unlink()
    (found,) = import_recipes(store, registry, builtin={"good"}).recipes
    assert isinstance(found.problem, RefusedError)
    assert "built-in preset good" in found.problem.summary
    assert import_recipes(store, registry, builtin={"good"}, replace=True).count(ImportOutcome.IMPORTED) == 1


def test_a_name_is_for_one_recipe(store: RecipeStore, registry: Path, own: Path) -> None:
    file = registry / "recipes" / "good.yaml"
    assert import_recipes(store, file, name="mine").recipes[0].file == str(own / "mine.yaml")
    with pytest.raises(UsageError, match="cannot be a preset's name"):
        import_recipes(store, file, name="../x")
    (registry / "recipes" / "two.yaml").write_text(V2)
    with pytest.raises(UsageError, match="for one recipe"):
        import_recipes(store, registry, name="mine")


def test_a_link_in_the_files_place_is_replaced_and_never_followed(
    store: RecipeStore, own: Path, tmp_path: Path
) -> None:
    own.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (own / "a.yaml").symlink_to(victim)
    with pytest.raises(RefusedError):
        store.write("a", V2)
    store.write("a", V2, replace=True)
    assert victim.read_text() == "precious"
    assert not (own / "a.yaml").is_symlink()


def test_where_nothing_can_be_written_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SparkError, match="cannot be written"):
        FolderRecipeStore(tmp_path / "file" / "presets").write("a", V2)
    with pytest.raises(RefusedError, match="demo"):
        FolderRecipeStore(None).write("a", V2)
