"""vLLM's recipes. The documents are made for these tests after the schema of github.com/vllm-project/recipes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.model.recipe import Dialect
from spark_tui.catalog.presets.use.imports import ImportedRecipe, ImportOutcome, import_recipes

MADE = """\
meta:
  title: Acme 30B
  provider: Acme
  description: A model for tests
  tasks: [multimodal]
  hardware: {h200: verified, dgx_spark_gb10: verified}
model:
  model_id: acme/A-30B
  min_vllm_version: "0.24.0"
  parameter_count: 30B
  active_parameters: 3B
  context_length: 131072
  docker_image: {nvidia: {cu129: "vllm/vllm-openai:old", cu130: "vllm/vllm-openai:new"}, amd: "vllm/rocm:1"}
  base_args: ["--trust-remote-code", "--max-num-seqs", "4"]
  base_env: {BASE: "1"}
features:
  tools: {args: ["--tool-call-parser", "acme"]}
  text_only: {args: ["--language-model-only"]}
  drafts:
    default_mode: slow
    modes:
      slow: {args: ["--speculative-config", '{"method":"mtp","num_speculative_tokens":2}']}
      fused: {variants: [nvfp4], args: ["--speculative-config", '{"method":"x"}']}
opt_in_features: [text_only, drafts]
variants:
  default: {precision: bf16, vram_minimum_gb: 64}
  nvfp4:
    model_id: acme/A-30B-NVFP4
    precision: nvfp4
    vram_minimum_gb: 21
    default_modes: {drafts: fused}
    extra_args: ["--kv-cache-dtype", "fp8"]
    hardware_overrides:
      dgx_spark_gb10:
        docker_image: "acme/spark:1"
        extra_args: ["--max-num-seqs", "8"]
        extra_env: {SPARK: "yes"}
      blackwell: {extra_args: ["--moe-backend", "marlin"]}
      hopper: {extra_args: ["--never"]}
  huge: {precision: fp8, vram_minimum_gb: 200}
  amd: {precision: fp8, vram_minimum_gb: 10, precision_hardware: {brand: AMD}}
hardware_overrides:
  blackwell: {extra_args: ["--async-scheduling"]}
"""
PUBLISHED = {
    "hardware": "dgx_spark_gb10",
    "strategy": "single_node_tp",
    "variant": "default",
    "node_count": 1,
    "deploy_type": "single_node",
    "env": {"A": "1"},
    "docker_image": "vllm/vllm-openai:v1",
    "command": "vllm serve acme/A-30B --never \\\n  --read",
    "argv": ["vllm", "serve", "acme/A-30B", "--max-model-len", "4096", "--compilation-config", '{"a": "it\'s $HOME"}'],
}


@pytest.fixture
def store(tmp_path: Path) -> FolderRecipeStore:
    return FolderRecipeStore(tmp_path / "own")


def imported(store: FolderRecipeStore, folder: Path, name: str, text: str) -> dict[str, ImportedRecipe]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return {each.recipe.name: each for each in import_recipes(store, folder / name).recipes}


def preset(found: ImportedRecipe) -> Preset:
    assert found.problem is None
    assert found.recipe.dialect is Dialect.VLLM
    assert found.recipe.preset is not None
    return found.recipe.preset


def words(found: Preset) -> list[str]:
    """The command without its placeholders."""
    values = {"model": found.model, **dict(found.defaults)}
    return [str(values.get(word[1:-1], word)) for word in shlex.split(found.command.replace("\\\n", " "))]


def test_each_variant_that_one_spark_can_hold_is_a_preset(store: FolderRecipeStore, tmp_path: Path) -> None:
    found = imported(store, tmp_path, "A-30B.yaml", MADE)
    assert found.keys() == {"A-30B", "A-30B-nvfp4"}
    plain, small = preset(found["A-30B"]), preset(found["A-30B-nvfp4"])
    assert (plain.model, plain.image, plain.env) == ("acme/A-30B", "vllm/vllm-openai:new", (("BASE", "1"),))
    assert words(plain) == [
        "vllm", "serve", "acme/A-30B", "--trust-remote-code", "--max-num-seqs", "4", "--async-scheduling",
        "--tool-call-parser", "acme",
    ]  # fmt: skip
    assert (small.model, small.image) == ("acme/A-30B-NVFP4", "acme/spark:1")
    assert dict(small.env) == {"BASE": "1", "SPARK": "yes"}
    assert words(small) == [
        "vllm", "serve", "acme/A-30B-NVFP4", "--trust-remote-code", "--kv-cache-dtype", "fp8", "--max-num-seqs", "8",
        "--async-scheduling", "--moe-backend", "marlin", "--tool-call-parser", "acme", "--speculative-config",
        '{"method":"x"}',
    ]  # fmt: skip
    facts = small.facts
    assert (facts.publisher, facts.quantization, facts.context_tokens) == ("Acme", "nvfp4", 131072)
    assert (facts.total_parameters, facts.active_parameters) == (30e9, 3e9)


def test_a_published_command_is_taken_from_its_words_and_never_from_its_shell_text(
    store: FolderRecipeStore, tmp_path: Path
) -> None:
    (found,) = imported(store, tmp_path, "dgx_spark_gb10.json", json.dumps(PUBLISHED)).values()
    assert found.recipe.name == "A-30B"
    made = preset(found)
    assert (made.image, made.env) == ("vllm/vllm-openai:v1", (("A", "1"),))
    assert words(made) == PUBLISHED["argv"]


def test_a_published_page_gives_the_command_for_the_spark(store: FolderRecipeStore, tmp_path: Path) -> None:
    page = {
        "hf_id": "acme/A-30B",
        "meta": {"title": "Acme 30B", "provider": "Acme"},
        "model": {"context_length": 4096},
        "variants": {"default": {"precision": "bf16"}},
        "recommended_command": PUBLISHED,
    }
    (found,) = imported(store, tmp_path, "A-30B.json", json.dumps(page)).values()
    made = preset(found)
    assert words(made) == PUBLISHED["argv"]
    assert (made.facts.publisher, made.facts.quantization, made.facts.context_tokens) == ("Acme", "bf16", 4096)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hardware": "h200"}, "h200"),
        ({"argv": None, "node_count": 2, "deploy_type": "multi_node", "head_argv": ["vllm"]}, "2 nodes"),
        ({"env": {"NCCL_SOCKET_IFNAME": "$IFACE_NAME"}}, "NCCL_SOCKET_IFNAME"),
        ({"argv": ["vllm", "serve", "acme/A-30B", "--hf-token", "hf_" + "a" * 34]}, "key"),
        ({"argv": ["rm", "-rf", "/"], "docker_image": "busybox"}, "server"),
        ({"docker_image": "not an image"}, "image"),
        ({"argv": ["vllm", "serve", "/data/model"]}, "store"),
    ],
    ids=["hardware", "nodes", "network", "token", "program", "image", "folder"],
)
def test_a_command_that_one_spark_cannot_run_as_it_is_is_refused(
    store: FolderRecipeStore, tmp_path: Path, change: Mapping[str, Any], says: str
) -> None:
    text = json.dumps({key: value for key, value in {**PUBLISHED, **change}.items() if value is not None})
    (found,) = imported(store, tmp_path, "one.json", text).values()
    if says == "key":  # removed, and said
        assert "hf_" not in found.recipe.text
        assert found.recipe.changes
    else:
        assert found.outcome is ImportOutcome.REFUSED
        assert says in str(found.problem)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dgx_spark_gb10: verified", "h100: verified"),
        ("dgx_spark_gb10: verified", "dgx_spark_gb10: unsupported"),
        ("tasks: [multimodal]", "tasks: [omni]"),
        ("vram_minimum_gb: 64}", "vram_minimum_gb: 640}\n  nvfp4x: {vram_minimum_gb: 900}"),
    ],
    ids=["others", "unsupported", "omni", "large"],
)
def test_recipes_that_are_not_for_one_spark_are_refused(
    store: FolderRecipeStore, tmp_path: Path, old: str, new: str
) -> None:
    small = "vram_minimum_gb: 21" + "0" * ("64}" in old)
    text = MADE.replace(old, new).replace("vram_minimum_gb: 21", small)
    assert {each.outcome for each in imported(store, tmp_path, "A.yaml", text).values()} == {ImportOutcome.REFUSED}


def test_a_checkout_lists_those_that_name_the_spark(store: FolderRecipeStore, tmp_path: Path) -> None:
    root = tmp_path / "recipes-checkout"
    for path, text in {
        "taxonomy.yaml": "hardware_profiles: {}\n",
        "strategies/a.yaml": "name: a\ncommand: x\nvllm_args: []\n",
        "models/acme/A-30B.yaml": MADE,
        "models/acme/Other.yaml": MADE.replace("dgx_spark_gb10: verified", "b200: verified"),
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    report = import_recipes(store, root)
    assert [each.recipe.name for each in report.recipes] == ["A-30B", "A-30B-nvfp4"]


@pytest.mark.parametrize(
    "text",
    [
        '{"docker_image": [], "deploy_type": {"a": 1}}',
        '{"docker_image": 1, "deploy_type": 2}',
        '{"meta": [], "variants": []}',
        '{"hf_id": 1, "recommended_command": []}',
        '{"meta": {"hardware": {"dgx_spark_gb10": 1}}, "variants": {"default": {}}}',
        '{"meta": {"hardware": {"dgx_spark_gb10": 1}}, "variants": {"a": {"tp": []}}, "features": [1]}',
    ],
)
def test_any_other_shape_is_a_refusal(store: FolderRecipeStore, tmp_path: Path, text: str) -> None:
    assert {each.outcome for each in imported(store, tmp_path, "x.json", text).values()} == {ImportOutcome.REFUSED}
