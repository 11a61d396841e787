"""The real sparkrun, from its package, reads our files, and makes the same command line of them.

Its dependencies are pinned against ours and it wants a newer Python, so that it gets an environment of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.settings import ExposureChoice
from spark_tui.base.shell import is_shell, join_lines, split_words
from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.store import PresetFiles, builtin_directory, parse
from spark_tui.catalog.presets.model.command import command_of
from spark_tui.catalog.presets.model.dialects.recipe_files import to_sparkrun, yaml_text
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs
from spark_tui.catalog.presets.model.preset import MappingValue, Origin, Preset
from spark_tui.catalog.presets.model.recipe import made_commands, preset_from
from spark_tui.catalog.presets.use.imports import ImportOutcome, import_recipes
from tests.dialect_fixtures import IMPORTABLE, REAL

SPARKRUN = "sparkrun==0.4.2"
OLDEST_PYTHON = (3, 12)
READ = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from sparkrun.core.bootstrap import get_runtime, init_sparkrun
from sparkrun.core.recipe import Recipe
from sparkrun.core.validation import check_deprecated_features
for name in sys.argv[1:]:
    recipe = Recipe.load(name)
    command = recipe.render_command(recipe.build_config_chain({}))
    if not command and recipe.runtime in ("sglang", "atlas"):
        command = get_runtime(recipe.runtime).generate_command(recipe, {}, False)
    print(json.dumps({"model": recipe.model, "container": recipe.container, "env": recipe.env, "command": command,
                      "issues": list(recipe.validate()),
                      "deprecated": [each.code for each in check_deprecated_features(recipe)]}))
"""
# What sparkrun says of recipes for engines that it does not know, and of quantizations of theirs.
UNKNOWN_TO_IT = ("Unknown runtime: ollama", "is not a recognized method", "is not a recognized dtype")


def new_python() -> str | None:
    """An interpreter that sparkrun runs on: this one, one on the path, or one that pyenv keeps."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = (
        sys.executable,
        *(shutil.which(f"python3.{minor}") for minor in (12, 13, 14)),
        *sorted(pyenv.glob("3.1[2-9]*/bin/python3")),
    )
    for each in filter(None, found):
        code = f"import sys, ensurepip, venv; sys.exit(sys.version_info < {OLDEST_PYTHON})"
        if subprocess.run([each, "-c", code], capture_output=True, check=False).returncode == 0:
            return str(each)
    return None


@pytest.fixture(scope="module")
def sparkrun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has sparkrun."""
    python = new_python()
    if python is None:
        pytest.skip("there is no Python 3.12 or newer with venv")
    folder = tmp_path_factory.mktemp("sparkrun") / "venv"
    subprocess.run([python, "-m", "venv", str(folder)], check=True, timeout=120)
    done = subprocess.run(
        [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", SPARKRUN],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        said = f"{SPARKRUN} cannot be installed: {done.stderr[-500:]}"
        if os.environ.get("SPARK_TUI_REAL") == "required":
            pytest.fail(said)
        pytest.skip(said)
    return folder / "bin" / "python"


def read(python: Path, files: list[Path], home: Path) -> dict[Path, Any]:
    """What sparkrun makes of recipe files. It is given a home of its own, and no telemetry."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "SPARKRUN_TELEMETRY": "0", "DO_NOT_TRACK": "1"}
    done = subprocess.run(
        [str(python), "-c", READ, *map(str, files)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(files, map(json.loads, done.stdout.splitlines()), strict=True))


def document_of(preset: Preset) -> MappingValue:
    recipe = parse(Path(preset.file).read_text(), preset.file)
    assert isinstance(recipe, MappingValue)
    return recipe


def words(preset: Preset) -> tuple[str, ...]:
    """Our command line with the port open to the network, as sparkrun always has it; built-in presets as they are
    written, without the parsers that a launch adds."""
    written = replace(preset, origin=Origin.USER)
    return command_of(written, Overrides(exposure=ExposureChoice.LAN), preset.model).argv


def agree(preset: Preset, theirs: Any) -> None:
    """The same model, image and words. A shell script is compared as the text that the shell gets."""
    assert (theirs["model"], theirs["container"]) == (preset.model, preset.image)
    ours = words(preset)
    if is_shell(ours) and not theirs["command"].lstrip().startswith("bash"):
        assert split_words(join_lines(ours[2])) == split_words(join_lines(theirs["command"]))
        return
    found = split_words(join_lines(theirs["command"]))
    if preset.model_revision and "--revision" not in found:
        ours = tuple(word for word in ours if word not in ("--revision", preset.model_revision))
    assert ours == found


def test_it_accepts_every_preset_and_makes_the_same_command(sparkrun: Path, tmp_path: Path) -> None:
    presets = PresetFiles(builtin_directory()).load().presets
    assert len(presets) >= 27
    found = read(sparkrun, [Path(preset.file) for preset in presets], tmp_path)
    for preset in presets:
        theirs = found[Path(preset.file)]
        issues = [issue for issue in theirs["issues"] if not any(known in issue for known in UNKNOWN_TO_IT)]
        assert issues == [], preset.name
        if preset.facts.runs_as_is:
            assert not theirs["command"], "the image starts its server by itself"
        else:
            agree(preset, theirs)


def test_it_accepts_what_we_imported_and_makes_the_same_command(sparkrun: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    for registry in ("eugr", "sparkrun"):
        report = import_recipes(FolderRecipeStore(own), REAL / registry)
        assert report.count(ImportOutcome.IMPORTED) > 0
    presets = PresetFiles(own).load().presets
    assert len(presets) == len(IMPORTABLE)
    found = read(sparkrun, [Path(preset.file) for preset in presets], tmp_path)
    for preset in presets:
        agree(preset, found[Path(preset.file)])
    # What is exported of them is written in sparkrun's present words, and means the same.
    exported = {tmp_path / f"exported-{preset.name}.yaml": preset for preset in presets}
    for file, preset in exported.items():
        file.write_text(yaml_text(to_sparkrun(preset, document_of(preset), Overrides()).document))
    for file, theirs in read(sparkrun, list(exported), tmp_path).items():
        assert not {"deprecated-recipe-name", "deprecated-topology"} & {*theirs["deprecated"]}, file.name
        agree(exported[file], theirs)


@pytest.mark.parametrize("on", [True, False], ids=["switched on", "switched off"])
def test_without_a_command_every_key_becomes_the_option_that_it_makes(sparkrun: Path, tmp_path: Path, on: bool) -> None:
    files: dict[Path, Preset] = {}
    for runtime, made in made_commands().items():
        keys = [option.split()[0] for option in made.options if not option.startswith("speculative_draft_model ")]
        defaults: dict[str, Any] = {key: on if key in made.switches else at for at, key in enumerate(keys, 2)}
        json_value = {"a": [1, "b c"]}
        defaults |= {"mm_feature_transport": json_value, "default_chat_template_kwargs": json_value}
        defaults |= {"gpu_memory_utilization": 0.5, "no_option": 1}
        recipe = {"recipe_version": "2", "model": "org/m", "runtime": runtime, "container": "org/i:1"}
        file = tmp_path / f"{runtime}.yaml"
        file.write_text(json.dumps({**recipe, "defaults": defaults}))
        files[file] = preset_from(parse(file.read_text(), str(file)), name=runtime, origin=Origin.USER, file=str(file))
    assert len(files) == 2
    for file, theirs in read(sparkrun, list(files), tmp_path).items():
        agree(files[file], theirs)
        assert len(split_words(theirs["command"])) > 80


def test_it_accepts_what_we_export_with_changes_in_it(sparkrun: Path, tmp_path: Path) -> None:
    overrides = overrides_from_pairs({"max_num_seqs": "3", "seed": "7", "enforce_eager": "true", "env.A": "x y"})
    files: dict[Path, Preset] = {}
    for preset in PresetFiles(builtin_directory()).load().presets:
        if preset.engine != "vllm" or preset.facts.runs_as_is or is_shell(words(preset)):
            continue
        recipe = document_of(preset)
        file = tmp_path / f"{preset.name}.yaml"
        file.write_text(yaml_text(to_sparkrun(preset, recipe, overrides).document))
        files[file] = preset
    assert len(files) > 15
    for file, theirs in read(sparkrun, list(files), tmp_path).items():
        found = split_words(join_lines(theirs["command"]))
        assert theirs["env"]["A"] == "x y"
        for option, value in (("--max-num-seqs", "3"), ("--seed", "7")):
            last = max(at for at, word in enumerate(found) if word == option)
            assert found[last + 1] == value, file.stem
        assert "--enforce-eager" in found
