"""A preset that includes another one is that one with its own words put over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_tui.catalog.presets.adapter.store import PresetFiles
from spark_tui.catalog.presets.model.preset import Origin, Preset, PresetCatalogue

BASE = """
recipe_version: "2"
model: org/base
container: vllm/vllm-openai:nightly
metadata:
  description: the base
  spark_tui: {title: Base, family: Fam}
defaults: {port: 8000, max_model_len: 4096, max_num_seqs: 4}
env: {A: "1", B: "2"}
command: vllm serve {model} --port {port} --max-model-len {max_model_len} --max-num-seqs {max_num_seqs}
"""


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    builtin, own = tmp_path / "builtin", tmp_path / "own"
    builtin.mkdir()
    own.mkdir()
    (builtin / "base.yaml").write_text(BASE)
    return builtin, own


def load(folders: tuple[Path, Path]) -> PresetCatalogue:
    return PresetFiles(*folders).load()


def preset(folders: tuple[Path, Path], name: str) -> Preset:
    found = load(folders).get(name)
    assert found is not None, load(folders).problems
    return found


def test_what_it_says_counts_and_the_rest_is_the_included_presets(folders: tuple[Path, Path]) -> None:
    (folders[1] / "mine.yaml").write_text("include: base\ndefaults: {max_model_len: 65536}\nenv: {B: '3', C: '4'}\n")
    mine = preset(folders, "mine")
    assert mine.origin is Origin.USER
    assert mine.includes == ("base",)
    assert dict(mine.defaults) == {"port": 8000, "max_model_len": 65536, "max_num_seqs": 4}
    assert dict(mine.env) == {"A": "1", "B": "3", "C": "4"}
    assert mine.model == "org/base"
    assert mine.unknown == ()


def test_a_key_with_nothing_behind_it_is_taken_away(folders: tuple[Path, Path]) -> None:
    (folders[1] / "mine.yaml").write_text("include: base\nenv:\n  A:\n")
    assert dict(preset(folders, "mine").env) == {"B": "2"}


def test_a_file_may_take_the_place_of_the_built_in_preset_that_it_includes(folders: tuple[Path, Path]) -> None:
    (folders[1] / "base.yaml").write_text("include: base\ndefaults: {port: 9000}\n")
    base = preset(folders, "base")
    assert base.origin is Origin.USER
    assert dict(base.defaults)["port"] == 9000
    assert base.model == "org/base"


def test_presets_may_stand_on_one_another(folders: tuple[Path, Path]) -> None:
    (folders[1] / "one.yaml").write_text("include: base\ndefaults: {max_num_seqs: 2, port: 8001}\n")
    (folders[1] / "two.yaml").write_text("include: one\ndefaults: {port: 8002}\n")
    two = preset(folders, "two")
    assert two.includes == ("one", "base")
    assert dict(two.defaults) == {"port": 8002, "max_model_len": 4096, "max_num_seqs": 2}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"mine": "include: bass"}, "Did you mean `base`?"),
        ({"mine": "include: ../builtin/base"}, "names no preset"),
        ({"mine": "include: mine"}, "names no preset"),
        ({"mine": "include: other", "other": "include: mine"}, "circle"),
        ({f"n{n}": f"include: n{n + 1}" for n in range(8)}, "circle, or through more"),
    ],
)
def test_an_include_that_leads_nowhere_says_so(folders: tuple[Path, Path], files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        (folders[1] / f"{name}.yaml").write_text(text + "\n")
    problems = load(folders).problems
    assert any(words in f"{problem.summary} {problem.remedy}" for problem in problems), problems


def test_a_change_in_the_included_file_is_seen_at_the_next_look(folders: tuple[Path, Path]) -> None:
    (folders[1] / "mine.yaml").write_text("include: base\n")
    source = PresetFiles(*folders)
    assert source.load().get("mine") is source.load().get("mine"), "what has not changed is not read again"
    (folders[0] / "base.yaml").write_text(BASE.replace("org/base", "org/newer"))
    newer = source.load().get("mine")
    assert newer is not None
    assert newer.model == "org/newer"


def test_a_mistake_in_the_included_file_names_that_file(folders: tuple[Path, Path]) -> None:
    (folders[0] / "broken.yaml").write_text("model: [\n")
    (folders[1] / "mine.yaml").write_text("include: broken\n")
    assert {Path(problem.file).name for problem in load(folders).problems} == {"broken.yaml"}


def test_a_built_in_preset_includes_nothing(folders: tuple[Path, Path]) -> None:
    (folders[0] / "bad.yaml").write_text("include: base\n")
    [problem] = load(folders).problems
    assert "only followed among presets" in problem.summary
