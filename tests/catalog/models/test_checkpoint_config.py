"""Configs of public models, as facts: layers, cache and state, format, drafting; and what a hostile config does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.checkpoint import CheckpointFacts, KvSettings, LayerKind, WeightFormat, kv_layout
from spark_tui.catalog.models.model.config import BadJson, facts_from, is_draft_tensor, read_object
from tests import TESTS
from tests.cases import all_cases

FOLDER = TESTS / "fixtures" / "models"
MODELS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def facts(name: str) -> CheckpointFacts:
    found = MODELS[name]
    return facts_from(found["config"], hf_quant=found.get("hf_quant"))


def layers_of(found: CheckpointFacts, *kinds: LayerKind) -> int:
    return sum(layers.layers for layers in found.attention or () if layers.kind in kinds)


@all_cases("name", MODELS)
def test_a_public_config_is_understood(name: str) -> None:
    found, expect = facts(name), MODELS[name]["expect"]
    assert found.findings == ()
    assert found.layers == expect["layers"]
    assert layers_of(found, LayerKind.FULL, LayerKind.MLA) == expect["full"]
    assert layers_of(found, LayerKind.SLIDING) == expect.get("sliding", 0)
    assert sum(layers.layers for layers in found.states or ()) == expect["states"]
    for key in ("is_moe", "has_ssm", "mtp_declared", "max_position_embeddings", "quant_method"):
        assert getattr(found, key) == expect[key], key
    assert list(found.modalities) == expect["modalities"]
    experts = found.experts
    assert (None if experts is None else [experts.routed, experts.per_token, experts.shared]) == expect["experts"]


@all_cases("name", [name for name in MODELS if "quantized_modules" not in MODELS[name]])
def test_the_format_of_a_public_checkpoint(name: str) -> None:
    found, expect = facts(name).quantization, MODELS[name]["expect"]
    assert found is not None
    assert [form.value for form in found.formats] == expect["formats"]
    assert found.kv_cache == expect["kv_cache"]
    assert len(found.excluded) == expect["excluded"]


@all_cases("name", MODELS)
def test_cache_and_state_of_a_public_config(name: str) -> None:
    layout = kv_layout(facts(name), KvSettings("bfloat16"))
    assert layout is not None
    assert layout.bytes_per_token == MODELS[name]["expect"]["kv_bytes_per_token"]
    assert layout.state_bytes == MODELS[name]["expect"]["state_bytes"]


def quantized(**keys: Any) -> CheckpointFacts:
    return facts_from({"num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 64, **keys})


NVFP4_GROUP = {"weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}}

FORMATS: dict[str, tuple[dict[str, Any], str, tuple[str, ...], str]] = {
    "nothing": ({}, "", (), ""),
    "modelopt nvfp4": ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt", ("NVFP4",), ""),
    "modelopt_fp4": ({"quant_method": "modelopt_fp4", "quant_algo": "NVFP4"}, "modelopt_fp4", ("NVFP4",), ""),
    "weights only": ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, "modelopt", ("NVFP4 W4A16",), ""),
    "weights only by its groups": (
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": {"a": {"input_activations": None}}},
        "modelopt",
        ("NVFP4 W4A16",),
        "",
    ),
    "mixed, as in NVIDIA's Qwen3.6-27B": (
        {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "NVFP4"}},
            "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        },
        "modelopt",
        ("FP8", "NVFP4"),
        "fp8",
    ),
    "compressed-tensors W4A4": (
        {
            "quant_method": "compressed-tensors",
            "format": "nvfp4-pack-quantized",
            "config_groups": {"g": {**NVFP4_GROUP, "input_activations": {"dynamic": "local"}}},
        },
        "compressed-tensors",
        ("NVFP4",),
        "",
    ),
    "compressed-tensors W4A16": (
        {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {"g": NVFP4_GROUP}},
        "compressed-tensors",
        ("NVFP4 W4A16",),
        "",
    ),
    "fp8": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", ("FP8",), ""),
    "awq": ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, "awq", ("INT4",), ""),
    "bitsandbytes": ({"quant_method": "bitsandbytes"}, "bitsandbytes", ("other",), ""),
}


@all_cases("case", FORMATS)
def test_the_format_is_that_of_the_keys_not_of_the_name(case: str) -> None:
    keys, method, formats, kv_cache = FORMATS[case]
    found = quantized(**({"quantization_config": keys} if keys else {})).quantization
    assert found is not None
    assert (found.method, tuple(form.value for form in found.formats), found.kv_cache) == (method, formats, kv_cache)


def test_a_quantization_file_of_an_unknown_producer_leaves_the_format_unknown() -> None:
    found = facts_from({"num_hidden_layers": 1}, hf_quant={"producer": {"name": "else"}, "quantization": {}})
    assert found.quant_method is None


def test_layers_for_drafting_count_only_when_their_tensors_are_there() -> None:
    config = MODELS["qwen3.6-35b-a3b"]["config"]
    assert facts_from(config).mtp_layers is None, "nobody has looked"
    assert facts_from(config, tensor_names=["model.layers.0.mlp.gate.weight"]).mtp_layers == 0
    assert facts_from(config, tensor_names=["mtp.layers.0.mlp.gate.weight"]).mtp_layers == 1


def test_a_layer_after_the_last_one_drafts() -> None:
    assert is_draft_tensor("model.layers.61.eh_proj.weight", 61)
    assert is_draft_tensor("model.layers.61.self_attn.kv_b_proj.weight", 61)
    assert not is_draft_tensor("model.layers.60.self_attn.kv_b_proj.weight", 61)
    assert not is_draft_tensor("model.layers.61.self_attn.kv_b_proj.weight", None)


def test_layers_of_an_unknown_kind_leave_the_cache_unknown() -> None:
    jamba = facts_from({"num_hidden_layers": 32, "num_attention_heads": 32, "head_dim": 128, "attn_layer_period": 8})
    assert (jamba.attention, jamba.states, jamba.has_ssm) == (None, None, None)
    assert "attn_layer_period" in jamba.findings[-1]
    assert kv_layout(jamba, KvSettings()) is None


def test_defaults_of_generation_say_nothing_of_attention() -> None:
    plain = {"num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 64}
    assert facts_from(plain | {"num_beams": 4, "num_beam_groups": 2}).attention == facts_from(plain).attention


def test_a_limit_that_is_none_is_read_as_python_writes_it() -> None:
    assert read_object(b'{"time_step_limit": [0.0, Infinity]}') == {"time_step_limit": [0.0, None]}


def test_a_window_that_is_switched_off_is_none() -> None:
    config = {"num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 64, "sliding_window": 4096}
    assert layers_of(facts_from(config | {"model_type": "mistral"}), LayerKind.SLIDING) == 2
    assert layers_of(facts_from(config | {"use_sliding_window": False}), LayerKind.SLIDING) == 0, "Qwen"


def test_wrong_shapes_are_findings() -> None:
    found = facts_from(
        {"num_hidden_layers": "many", "architectures": "X", "text_config": [], "max_position_embeddings": -1}
    )
    assert found.layers is None
    assert {"num_hidden_layers is not a whole number", "architectures is not a list of texts"} <= set(found.findings)
    assert "text_config is not an object" in found.findings


def test_control_codes_in_a_config_do_not_reach_the_screen() -> None:
    found = facts_from({"architectures": ["\x1b[31mX\n"], "model_type": "a\x00b"})
    assert "\x1b" not in found.architecture + found.model_type
    assert "\n" not in found.architecture


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
READ_KEYS = (
    "num_hidden_layers", "layer_types", "layers_block_type", "hybrid_override_pattern", "text_config", "head_dim",
    "num_attention_heads", "num_key_value_heads", "sliding_window", "kv_lora_rank", "num_experts", "mtp",
    "rope_scaling", "num_experts_per_tok", "quantization_config", "config_groups", "quantized_layers",
    "kv_cache_scheme", "num_kv_shared_layers", "full_attention_interval", "linear_num_value_heads", "architectures",
    "quant_method",
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(READ_KEYS), JSON, max_size=10), st.none() | st.dictionaries(st.text(), JSON))
def test_no_config_makes_it_raise(config: dict[str, Any], extra: dict[str, Any] | None) -> None:
    found = facts_from(config, hf_quant=extra, generation=extra, tensor_names=list(extra or ()))
    assert len(found.findings) <= 21
    layout = kv_layout(found, KvSettings())
    assert layout is None or layout.block_bytes > 0


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_what_is_no_json_object_says_why(data: bytes, says: str) -> None:
    with pytest.raises(BadJson, match=says):
        read_object(data)


def test_formats_have_the_words_of_the_field() -> None:
    found = quantized(quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4"}).quantization
    assert found is not None
    assert found.words == "NVFP4 (modelopt)"
    assert found.formats == (WeightFormat.NVFP4,)
