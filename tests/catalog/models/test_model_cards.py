"""The inspector beside the model cards: what it reads from public checkpoints is what their makers say of them."""

from __future__ import annotations

import json
from collections import Counter
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.checkpoint import ModuleClass
from spark_tui.base.quantities import GIB
from spark_tui.catalog.models.model.config import facts_from
from spark_tui.catalog.models.model.inspection import Inspection, inspect
from spark_tui.catalog.models.model.weights import summarise
from spark_tui.catalog.models.show.inspection import inspection_rows
from tests import TESTS
from tests.cases import all_cases
from tests.checkpoint_families import quantized_layers, tensors_of

FOLDER = TESTS / "fixtures" / "models"
MODELS: dict[str, Any] = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}
WITHOUT_SHAPES = {"phi-4-multimodal"}
"""Its speech encoder and adapters are not rebuilt; its config is in the other tests."""


def cards(key: str) -> list[str]:
    return [name for name, found in MODELS.items() if key in found["card"]]


@cache
def inspected(name: str) -> Inspection:
    """What the inspector makes of the checkpoint's config, quantization file and headers."""
    found = MODELS[name]
    config = dict(found["config"])
    if "quantized_modules" in found:
        layers = {module: {"quant_algo": form} for module, form in quantized_layers(found["quantized_modules"])}
        config["quantization_config"] = config["quantization_config"] | {"quantized_layers": layers}
    tensors = tensors_of(found)
    facts = facts_from(config, hf_quant=found.get("hf_quant"), tensor_names=[tensor.name for tensor in tensors])
    return inspect(replace(facts, weights=summarise(tensors, layers=facts.layers)), found["repo"])


def weights_of(name: str, modules: list[str]) -> int:
    summary = inspected(name).facts.weights
    assert summary is not None
    return sum(part.parameters for part in summary.by_module if part.module in [ModuleClass(each) for each in modules])


def rounded(count: int, stated: str, *, cut: bool = False) -> str:
    """In billions, with as many digits as the card has. `cut`: the card cuts digits off instead of rounding."""
    rounding = ROUND_FLOOR if cut else ROUND_HALF_UP
    return str((Decimal(count) / 10**9).quantize(Decimal(stated), rounding))


def test_there_are_at_least_ten_public_models_each_with_the_source_of_its_card() -> None:
    assert len(MODELS) >= 10
    assert all(found["repo"] and found["source"] and found["card"]["source"] for found in MODELS.values())
    assert len(cards("total")) >= 10


@all_cases("name", cards("total"))
def test_all_weights_are_counted_to_the_last_one(name: str) -> None:
    card = MODELS[name]["card"]
    assert inspected(name).parameters == card["total"] + card.get("uncounted", 0)


@pytest.mark.parametrize("name", cards("total_rounded"))
def test_all_weights_are_as_many_as_the_card_says(name: str) -> None:
    card = MODELS[name]["card"]
    counted = inspected(name).parameters
    assert counted is not None
    counted -= weights_of(name, card.get("total_without", []))
    assert rounded(counted, card["total_rounded"], cut=card.get("cut", False)) == card["total_rounded"]


@all_cases("name", cards("active"))
def test_the_weights_that_run_for_a_token_are_as_many_as_the_card_says(name: str) -> None:
    """Ours are those that a token reads: with the output head, without the embedding table. Some cards count others."""
    card = MODELS[name]["card"]
    active = inspected(name).active
    assert active is not None
    counted = active + weights_of(name, card.get("active_with", [])) - weights_of(name, card.get("active_without", []))
    assert rounded(counted, card["active"], cut=card.get("cut", False)) == card["active"]


@pytest.mark.parametrize("name", cards("gib"))
def test_the_checkpoint_is_as_large_as_the_card_says(name: str) -> None:
    summary, card = inspected(name).facts.weights, MODELS[name]["card"]
    assert summary is not None
    assert str((Decimal(summary.size) / GIB).quantize(Decimal(card["gib"]), ROUND_HALF_UP)) == card["gib"]


@pytest.mark.parametrize("name", cards("headers"))
def test_dtypes_are_those_of_the_published_headers(name: str) -> None:
    summary = inspected(name).facts.weights
    assert summary is not None
    width = {"BF16": 2, "F8_E4M3": 1, "F32": 4}
    assert {dtype: size // width[dtype] for dtype, size in summary.by_dtype} == MODELS[name]["card"]["headers"]


@pytest.mark.parametrize("name", cards("wide"))
def test_the_modules_that_quantization_left_wide_are_those_that_its_files_name(name: str) -> None:
    found = inspected(name)
    assert {each.module.value for each in found.wide} == set(MODELS[name]["card"]["wide"])
    assert found.read is not None
    assert sum(each.read for each in found.wide) == pytest.approx(found.read.wide, abs=len(found.wide))


@pytest.mark.parametrize("name", cards("modules"))
def test_a_mixed_checkpoint_lists_its_modules_by_format(name: str) -> None:
    found = MODELS[name]
    assert Counter(form for _, form in quantized_layers(found["quantized_modules"])) == found["card"]["modules"]
    told = inspected(name).facts.quantization
    assert told is not None
    assert [form.value for form in told.formats] == found["expect"]["formats"]


@all_cases("name", sorted(MODELS.keys() - WITHOUT_SHAPES))
def test_layers_for_drafting_that_are_declared_are_found_in_the_headers(name: str) -> None:
    facts, card = inspected(name).facts, MODELS[name]
    assert facts.mtp_layers == (card["expect"]["mtp_declared"] or 0)


@all_cases("name", sorted(MODELS.keys() - WITHOUT_SHAPES))
def test_everything_of_a_public_checkpoint_has_a_place(name: str) -> None:
    """A class of `other` would hide what a token reads for."""
    summary = inspected(name).facts.weights
    assert summary is not None
    other = sum(part.size for part in summary.by_module if part.module is ModuleClass.OTHER)
    assert other < 0.001 * summary.size


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("gpt-oss-120b", "parameters", "117 B, 5.13 B active per token"),
        ("llama-3.3-70b-instruct", "parameters", "70.6 B"),
        ("qwen3.6-35b-a3b", "layers", "40: 10 full attention, 30 gated delta net"),
        ("qwen3.6-35b-a3b", "drafting", "1 MTP layer declared, weights included"),
        ("deepseek-v3", "KV cache", "68.6 KiB per token in bfloat16"),
        ("nemotron-3-super-120b-a12b-nvfp4", "weights", "FP8 + NVFP4 (modelopt), 74.7 GiB"),
        ("nemotron-3-nano-30b-a3b-nvfp4", "KV cache", "3.0 KiB per token in fp8"),
    ],
)
def test_a_person_reads_the_cards_figures(name: str, row: str, says: str) -> None:
    assert dict(inspection_rows(inspected(name)))[row] == says
