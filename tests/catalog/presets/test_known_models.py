"""The table of models: what it knows of a checkpoint is said of every recipe of it, whoever wrote the recipe."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import yaml
from msgspec import convert

from spark_tui.base.engine.runtimes import is_known, known_models, published_facts
from spark_tui.catalog.presets.adapter.store import builtin_directory, parse
from spark_tui.catalog.presets.model.dialects.docker_run import from_docker_run
from spark_tui.catalog.presets.model.preset import Origin, Preset, PresetFacts
from spark_tui.catalog.presets.model.recipe import preset_from
from tests import TESTS
from tests.cases import all_cases
from tests.shipped import SHIPPED_FILES

SHIPPED = {preset.name: preset for preset in SHIPPED_FILES.load().presets if not preset.cpu_only}
RECIPES = yaml.safe_load((TESTS / "fixtures/published/recipes.yaml").read_text())
SAME = (
    "licence", "gated", "publisher", "family", "architecture", "total_parameters", "active_parameters",
    "weights_bytes", "modalities", "quantization", "sampling", "required_files", "required_steps",
)  # fmt: skip
ENGINES_OWN = {
    "qwen3-32b-ollama",
    "qwen3-8b-nvfp4-sglang",
    "qwen3-30b-a3b-gguf-llama-cpp",
    "qwen3-30b-a3b-nvfp4-trtllm",
}
"""What their recipes caution against is their engine's, not their model's."""


def without_its_metadata(name: str) -> Preset:
    """The recipe as another person would write it: nothing is said of the model."""
    found = yaml.safe_load((builtin_directory() / f"{name}.yaml").read_text())
    as_is = {key: True for key in ("runs_as_is", "wants_key") if found["metadata"]["spark_tui"].get(key)}
    found["metadata"] = {"spark_tui": as_is}
    document = parse(yaml.safe_dump(found), "x.yaml")
    return preset_from(document, name="x", origin=Origin.USER, file="x.yaml")


def lacking(preset: Preset, shipped: Preset) -> list[str]:
    """Facts that the shipped recipe has and this one has otherwise or not at all."""
    mine, theirs = preset.facts, shipped.facts
    wrong = [key for key in SAME if getattr(theirs, key) and getattr(mine, key) != getattr(theirs, key)]
    prose = () if shipped.name in ENGINES_OWN or shipped.min_nodes > 1 else ("notes", "cautions", "published")
    return wrong + [key for key in prose if getattr(theirs, key) and not getattr(mine, key)]


@all_cases("name", SHIPPED)
def test_a_recipe_without_a_word_about_its_model_says_what_the_shipped_one_says(name: str) -> None:
    assert lacking(without_its_metadata(name), SHIPPED[name]) == []


@all_cases(
    "name", [name for name, each in RECIPES.items() if each.get("runtime", "vllm") == "vllm" and "command" in each]
)
def test_a_published_command_that_is_imported_says_it_too(name: str) -> None:
    each = RECIPES[name]
    variables = " ".join(f"-e {key}={value}" for key, value in each.get("env", {}).items())
    command = each["command"].replace("\n", " ")
    command = f"bash -c {shlex.quote(command)}" if "&&" in command else command
    converted = from_docker_run(f"docker run --gpus all {variables} {each['image']} {command}")
    preset = preset_from(converted.document, name="x", origin=Origin.USER, file="x")
    assert lacking(preset, SHIPPED[name]) == []


def test_what_a_file_says_itself_counts() -> None:
    own: dict[str, Any] = {"licence": "mine", "gated": False, "source": "me", "cautions": ["Mine."]}
    found = {"model": "nvidia/Gemma-4-31B-IT-NVFP4", "container": "a/b", "metadata": {"spark_tui": own}}
    facts = preset_from(parse(yaml.safe_dump(found), "x"), name="x", origin=Origin.USER, file="x").facts
    assert (facts.licence, facts.gated, facts.weights_bytes) == ("mine", False, 21_000_000_000)
    assert facts.cautions[0] == "Mine." and len(facts.cautions) == 3
    assert facts.source.startswith("me; of the model: ")


@pytest.mark.parametrize(
    ("model", "more", "speeds"),
    [
        ("nvidia/Llama-3.3-70B-Instruct-NVFP4", "", {3.1}),  # 39.9 is disputed
        ("nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4", "", {4.8, 36, 42}),  # 67 is drafted
        ("nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4", '"method":"mtp"', {4.8, 36, 42, 67}),
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", '"method":"mtp"', {42.62, 44.32}),  # 116 may have been drafted
        ("Qwen/Qwen3.6-35B-A3B-FP8", "", {51.86}),
        ("acme/of-its-own-NVFP4", "", set()),
    ],
)
def test_a_speed_is_of_the_same_model_format_and_way_to_draft(model: str, more: str, speeds: set[float]) -> None:
    found = {"model": model, "container": "a/b", "command": f"vllm serve {model} --speculative-config '{{{more}}}'"}
    facts = preset_from(parse(yaml.safe_dump(found), "x"), name="x", origin=Origin.USER, file="x").facts
    assert {each.tokens_per_second for each in facts.published} == speeds
    assert all(each.conditions.endswith("one stream") and each.source for each in facts.published)


def test_the_table_is_of_one_piece() -> None:
    table, keys = published_facts(), set(PresetFacts.__struct_fields__)
    names = [name for each in table.checkpoint for name in each.names]
    assert len(names) == len(set(names)) and names == [name.lower() for name in names]
    assert {each.source for each in table.figure} == set(table.source)
    assert {each.drafting for each in table.figure} <= {"", "mtp", "dflash", "dspark", "ngram", "eagle3", "unknown"}
    for each in table.checkpoint:
        assert each.facts["source"] and each.facts.keys() <= keys
        convert(each.facts, PresetFacts)
        for part in each.when:
            assert re.compile(part["has"]) and part.keys() - {"has"} <= keys
            convert(part, PresetFacts)
    models = known_models()
    assert all(re.compile(pattern) for pattern in (*models.mark.values(), *(each["names"] for each in models.failure)))
    assert all(is_known(each["engine"]) and each["problem"] for each in models.failure)
    for family in (*models.family, *models.architecture):
        assert re.compile(family.names)
