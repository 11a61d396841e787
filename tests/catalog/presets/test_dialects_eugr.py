"""eugr recipes become presets that launch the same words as that tool's solo mode, and the way back is exact."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.shell import join_lines, split_words
from spark_tui.catalog.presets.adapter.store import parse
from spark_tui.catalog.presets.model.command import command_of
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import Preset, plain
from spark_tui.catalog.presets.model.recipe import Dialect
from tests.cases import all_cases
from tests.dialect_fixtures import EUGR, document, examined, imported

HEAD = 'recipe_version: "1"\nname: R\nmodel: org/m\ncontainer: vllm-node\n'


def written(path: Path) -> Any:
    """A fixture as plain values."""
    return plain(document(path))


def without_executor(recipe: Any) -> Any:
    """As eugr's launcher has it, on one machine and on several: it takes the executor out of the command."""
    return recipe | {"command": re.sub(r"--distributed-executor-backend\s+\S+", "", recipe["command"])}


def eugr_words(recipe: Any, *, solo: bool) -> tuple[str, ...]:
    """What run-recipe.py would run: `str.format`, and in solo mode one-way parallelism."""
    values = {
        **recipe["defaults"],
        **({"tensor_parallel": 1} if solo and "tensor_parallel" in recipe["defaults"] else {}),
    }
    command = recipe["command"].format(**values)
    return split_words(join_lines("\n".join(line for line in command.splitlines() if line.strip() not in ("", "\\"))))


@all_cases("path", EUGR, ids=lambda path: path.stem)
def test_a_real_recipe_launches_the_words_that_eugr_would_run(path: Path) -> None:
    preset = imported(path).preset
    assert preset is not None
    argv = command_of(preset, Overrides(), preset.model).argv
    recipe = without_executor(written(path))
    assert argv == eugr_words(recipe, solo=preset.min_nodes == 1)


@all_cases("path", EUGR, ids=lambda path: path.stem)
def test_a_real_recipe_keeps_its_keys(path: Path) -> None:
    ours: Any = plain(parse(imported(path).text, "r.yaml"))
    theirs = written(path)
    for key, value in theirs.items():
        if value is not None and key not in ("recipe_version", "command", "defaults", "env"):
            assert ours[key] == value, key
    assert (ours.get("env") or {}).keys() == (theirs.get("env") or {}).keys()
    assert ours["metadata"]["spark_tui"]["imported"] == {"dialect": "eugr", "version": "1"}


def read(text: str) -> Preset:
    found = examined(text)
    assert found.problem is None, found.problem
    assert found.dialect is Dialect.EUGR
    assert found.preset is not None
    return found.preset


@pytest.mark.parametrize(
    ("options", "argv"),
    [
        ("""--sc '{{"n":{k},"a":{{}}}}'""", ("--sc", '{"n":4,"a":{}}')),
        ("--template '{{k}} {{x}}' --n {k}", ("--template", "{k} {x}", "--n", "4")),  # literal words, no placeholders
    ],
    ids=["json", "literal"],
)
def test_doubled_braces_are_text(options: str, argv: tuple[str, ...]) -> None:
    preset = read(HEAD + f"defaults: {{k: 4}}\ncommand: |\n  vllm serve org/m {options}\n")
    assert command_of(preset, Overrides(), "org/m").argv == ("vllm", "serve", "org/m", *argv)


def test_json_with_single_braces_is_text_and_its_placeholders_count() -> None:
    said = """vllm serve org/m --speculative-config '{"method": "mtp", "n": {k}, "in": {"a": {}}}' --n {k}"""
    preset = read(HEAD + "defaults: {k: 4}\ncommand: " + _quoted(said) + "\n")
    words = command_of(preset, Overrides(), "org/m").argv
    assert words[-3:] == ('{"method": "mtp", "n": 4, "in": {"a": {}}}', "--n", "4")


_BITS = st.sampled_from(("{a}", "{b}", "{{", "}}", "{{a}}", '{{"x":{a}}}', "word", '"k":', " ", "{{{a}}}", ",", "\\\n"))


@given(st.lists(_BITS, max_size=10).map("".join))
def test_every_template_means_what_str_format_made_of_it(template: str) -> None:
    text = f"vllm serve '{template}' {{a}}"
    meant = text.format(a=1, b="two")
    preset = read(HEAD + "defaults: {a: 1, b: two}\n" + "command: " + _quoted(text) + "\n")
    expected = split_words(join_lines(meant))
    assert command_of(preset, Overrides(), "org/m").argv == expected


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


MISTAKES = [
    ("command: vllm serve {x!r}\n", 5, "which name no value"),
    ("command: vllm serve {x:>4}\n", 5, "which name no value"),
    ("command: vllm serve {}\n", 5, "which name no value"),
    ("command: vllm serve {0}\n", 5, "which name no value"),
    ("command: vllm serve {a.b}\n", 5, "which name no value"),
    ("command: |\n  vllm serve '{\"a\": 1'\n", 5, "without its other half"),
    ("command: vllm serve {a\n", 5, "without its other half"),
    ("command: vllm serve a}\n", 5, "without its other half"),
    ("command: [vllm]\n", 5, "`command` must be text"),
    ("x: 1\n", 1, "`command` must be text"),
    ("command: vllm serve m --api-key k\n", 5, "API key as an argument"),
    ("command: vllm serve m\nenv: {HF_TOKEN: hf_abcdefghijklmnopqrstu}\n", 6, "holds a key"),
]


@all_cases(("text", "line", "says"), MISTAKES, ids=[text.strip()[:40] for text, _, _ in MISTAKES])
def test_what_that_tool_could_not_run_either_is_refused_with_its_line(text: str, line: int, says: str) -> None:
    problem = examined(HEAD + text).problem
    assert problem is not None
    assert says in problem.summary
    assert (problem.file, problem.line) == ("/registry/recipes/r.yaml", line)
    assert problem.remedy
    assert "hf_abc" not in str(problem)


def test_the_model_may_stand_in_the_command_alone() -> None:
    text = 'recipe_version: "1"\nname: R\ncontainer: vllm-node\ncommand: |\n  vllm serve \\\n    org/m2 --port 1\n'
    found = examined(text)
    assert found.preset is not None
    assert found.preset.model == "org/m2"
    assert found.changes == ("model is org/m2, from the command.",)
    problem = examined(text.replace("org/m2", "")).problem
    assert problem is not None
    assert "`model` is missing" in problem.summary


@pytest.mark.parametrize(
    ("extra", "path", "nodes", "ways"),
    [
        ("defaults: {tensor_parallel: 2}\n", "recipes/r.yaml", 1, 1),
        ("solo_only: true\ndefaults: {tensor_parallel: 4}\n", "recipes/r.yaml", 1, 1),
        ("cluster_only: true\ndefaults: {tensor_parallel: 2}\n", "recipes/r.yaml", 2, 2),
        ("cluster_only: true\ndefaults: {tensor_parallel: 2, pipeline_parallel: 2}\n", "recipes/r.yaml", 4, 2),
        ("defaults: {tensor_parallel: 4}\n", "recipes/r.yaml", 4, 4),
        ("defaults: {tensor_parallel: 2}\n", "recipes/4x-spark-cluster/r.yaml", 4, 2),
    ],
)
def test_a_recipe_that_may_run_solo_does(extra: str, path: str, nodes: int, ways: int) -> None:
    found = examined(HEAD + extra + "command: vllm serve org/m -tp {tensor_parallel}\n", path)
    assert found.preset is not None
    assert found.preset.min_nodes == nodes
    assert found.preset.default("tensor_parallel") == ways


def test_keys_from_the_shell_are_left_to_our_private_file() -> None:
    found = examined(HEAD + 'env: {HF_TOKEN: "$HF_TOKEN", A: "x:$PATH", B: "\\\\$5"}\ncommand: vllm serve org/m\n')
    assert found.preset is not None
    assert found.preset.env == (("A", "x:$PATH"), ("B", "$5"))
    assert any("HF_TOKEN comes from spark-tui's private file" in change for change in found.changes)
    assert any("env.A holds a variable of the shell" in note for note in found.notes)


def test_unknown_keys_stay_and_an_image_that_no_registry_has_is_reported() -> None:
    found = examined(HEAD + "command: vllm serve org/m --x {value}\nmoon: {phase: [full]}\nbuild_args: [--tf5]\n")
    assert dict(found.kept) == {"moon": '{"phase":["full"]}', "build_args": '["--tf5"]'}
    assert plain(parse(found.text, "r.yaml"))["moon"] == {"phase": ["full"]}  # type: ignore[index]
    assert found.needs == ("value",), "a placeholder without a value is asked for at launch"
    assert "vllm-node is built on the machine" in found.notes[0]
    assert found.preset is not None
    assert found.preset.facts.cautions == found.notes
    assert examined(HEAD.replace("vllm-node", "org/x:1") + "command: vllm serve org/m\n").notes == ()
