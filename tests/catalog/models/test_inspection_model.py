"""What a checkpoint's files say it can do: its chat template, its licence, its speed at most, in figures and words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.checkpoint import (
    AttentionLayers,
    ChatAbilities,
    CheckpointFacts,
    Experts,
    LayerKind,
    ModuleClass,
    Quantization,
    WeightFormat,
    abilities_of,
    licence_in,
    template_in,
)
from spark_tui.base.quantities import GIB
from spark_tui.catalog.models.model.inspection import inspect
from spark_tui.catalog.models.model.weights import MEASURED_BANDWIDTH, Tensor, summarise
from tests.cases import all_cases

HERMES = '{%- if tools %}<tool_call>{"name": ...}</tool_call>{%- endif %}'
CODER = (
    "{%- if tools %}<tool_call>\n<function=name>{%- endif %}"
    "{{ reasoning_content }}<think>{% if enable_thinking is false %}"
)


@all_cases(
    ("template", "model_type", "expected"),
    [
        ("{{ messages }}", "llama", ChatAbilities()),
        (HERMES, "qwen2", ChatAbilities(tools=True, tool_parser="hermes")),
        (
            CODER, "qwen3_5",
            ChatAbilities(True, True, False, ("enable_thinking",), "qwen3", "qwen3_coder"),
        ),
        (CODER, "nemotron_h", ChatAbilities(True, True, False, ("enable_thinking",), "nemotron_v3", "qwen3_coder")),
        (
            "<|channel|>analysis {{ reasoning_effort }} {% if tools %}", "gpt_oss",
            ChatAbilities(True, True, False, ("reasoning_effort",), "openai_gptoss", "openai"),
        ),
        ("{% if tools %}<|tool_call>call<tool_call|>{% endif %}<|channel>thought", "gemma4",
         ChatAbilities(True, True, False, (), "gemma4", "gemma4")),
        ("[AVAILABLE_TOOLS]{% if tools %}[TOOL_CALLS]", "mistral", ChatAbilities(tools=True, tool_parser="mistral")),
        ("{% if tools %}<｜tool▁calls▁begin｜>{% endif %}<think>", "deepseek_v3",
         ChatAbilities(True, True, False, (), "deepseek_v3", "deepseek_v3")),
        ("<think>\n</think>", "other", ChatAbilities(True, reasoning_parser="deepseek_r1")),
        ("{% if message.type == 'image_url' %}", "x", ChatAbilities(images=True)),
        ("{% set stools = 1 %}", "x", ChatAbilities()),
    ],
)  # fmt: skip
def test_what_a_chat_template_can_do(template: str, model_type: str, expected: ChatAbilities) -> None:
    assert abilities_of(template, model_type) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({"chat_template": "a"}, "a"),
        ({"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]}, "a\nb"),
        ({"chat_template": [1, {"template": 3}]}, None),
        ({"chat_template": {"default": "a"}}, None),
    ],
)
def test_where_a_template_stands_in_the_tokenizers_config(config: dict[str, object], expected: str | None) -> None:
    assert template_in(config) == expected


@all_cases(
    ("card", "licence"),
    [
        ("---\nlicense: apache-2.0\n---\n", "apache-2.0"),
        ("---\r\nlicense: mit\r\n---\r\n", "mit"),
        ('---\nlicense: other\nlicense_name: "nvidia-open-model-license"\n---\n', "nvidia-open-model-license"),
        ("---\nlicense: other\nlicense_link: https://x/L\n---\n", "https://x/L"),
        ("---\nlicense: other\n---\n", "other"),
        ("---\ntags: [a]\n---\nlicense: mit\n", ""),
        ("# A model\n\nlicense: mit\n", ""),
        ("---\nlicense: mit", ""),
        ("---\nlicense: \x1b[31mmit\n---\n", "mit"),
        ("", ""),
    ],
)
def test_the_licence_of_a_model_card(card: str, licence: str) -> None:
    assert licence_in(card) == licence


@given(st.text())
def test_no_text_breaks_them(text: str) -> None:
    assert licence_in(text).isprintable()
    abilities_of(text, text)


# --- speed ------------------------------------------------------------------------------------------------


def tensor(name: str, dtype: str, elements: int, width: float) -> Tensor:
    return Tensor(name, dtype, (elements,), int(elements * width))


def moe(attention: str = "BF16") -> CheckpointFacts:
    """A mixture with NVFP4 experts, whose attention is or is not quantized."""
    width = 2 if attention == "BF16" else 1
    tensors = [
        tensor("model.embed_tokens.weight", "BF16", 100_000_000, 2),
        tensor("lm_head.weight", "BF16", 100_000_000, 2),
        tensor("model.layers.0.self_attn.q_proj.weight", attention, 1_000_000_000 // (1 if width == 2 else 2), width),
        tensor("model.layers.0.mlp.experts.0.up_proj.weight", "U8", 8_000_000_000, 1),
        tensor("model.layers.0.mlp.experts.0.up_proj.weight_scale", "F8_E4M3", 1_000_000_000, 1),
    ]
    return CheckpointFacts(
        architecture="X",
        dtype="bfloat16",
        quantization=Quantization("modelopt", (WeightFormat.NVFP4,)),
        layers=1,
        attention=(AttentionLayers(LayerKind.FULL, 1, 512, 512),),
        states=(),
        experts=Experts(128, 8),
        is_moe=True,
        max_position_embeddings=131072,
        weights=summarise(tensors, layers=1),
    )


def test_the_modules_that_stayed_wide_are_named_with_what_they_cost_per_token() -> None:
    found = inspect(moe(), "acme/X-NVFP4")
    assert found.read is not None
    experts = 9_000_000_000 * 8 / 128
    assert found.read.size == 200_000_000 + 2_000_000_000 + round(experts)
    assert [(each.module, each.read) for each in found.wide] == [
        (ModuleClass.ATTENTION, 2_000_000_000), (ModuleClass.HEAD, 200_000_000), (ModuleClass.EMBEDDING, 0),
    ]  # fmt: skip
    assert found.ceiling is not None
    assert found.ceiling.measured == pytest.approx(MEASURED_BANDWIDTH / found.read.size)
    assert "16 bits wide, not NVFP4: attention 1.9 GiB" in found.verdict[1]
    assert found.narrow_ceiling is not None
    assert found.narrow_ceiling.measured > 1.5 * found.ceiling.measured


def test_a_checkpoint_that_is_quantized_throughout_gets_no_such_sentence() -> None:
    assert not any("16 bits wide" in words for words in inspect(moe("U8"), "acme/X-NVFP4").verdict)


def test_all_and_active_parameters_are_told_apart() -> None:
    found = inspect(moe())
    assert found.parameters == 100_000_000 * 2 + 1_000_000_000 + 16_000_000_000
    assert found.active == 100_000_000 + 1_000_000_000 + 16_000_000_000 * 8 // 128


def test_a_name_that_promises_another_format_is_told() -> None:
    assert "The name says FP8, the files say NVFP4." in inspect(moe(), "acme/X-FP8").verdict
    assert not any("The name says" in words for words in inspect(moe(), "acme/X-NVFP4").verdict)


def test_drafting_layers_that_were_dropped_are_told() -> None:
    dropped = inspect(replace(moe(), mtp_declared=1, mtp_layers=0)).verdict
    assert any("do not enable MTP" in words for words in dropped)
    kept = inspect(replace(moe(), mtp_declared=1, mtp_layers=1)).verdict
    assert any("needs no second checkpoint" in words for words in kept)


def test_without_all_headers_nothing_is_said_of_speed() -> None:
    facts = moe()
    assert facts.weights is not None
    found = inspect(replace(facts, weights=replace(facts.weights, complete=False)))
    assert (found.read, found.ceiling, found.parameters, found.active, found.wide) == (None, None, None, None, ())
    assert not any("tokens/s" in words for words in found.verdict)


def test_weights_that_one_spark_cannot_hold_are_told() -> None:
    tensors = [tensor("model.layers.0.mlp.up_proj.weight", "BF16", 90_000_000_000, 2)]
    facts = CheckpointFacts(weights=summarise(tensors, layers=1))
    assert any("Does not fit" in words for words in inspect(facts).verdict)
    assert not any("Does not fit" in words for words in inspect(facts, memory=200 * GIB).verdict)


def test_a_spark_with_64_gb_holds_less() -> None:
    tensors = [tensor("model.layers.0.mlp.up_proj.weight", "BF16", 30_000_000_000, 2)]
    facts = CheckpointFacts(weights=summarise(tensors, layers=1))
    assert not any("fit" in words or "Tight" in words for words in inspect(facts).verdict)
    assert any("Tight" in words for words in inspect(facts, memory=60 * GIB).verdict)
    assert any("Does not fit" in words for words in inspect(facts, memory=50 * GIB).verdict)
