"""Weights counted by the bits of the declared format; tables that are looked up; what a checkpoint gives back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from spark_tui.base.checkpoint import CheckpointFacts, ModelKind, ModuleClass
from spark_tui.base.finding import value_of
from spark_tui.catalog.models.model.inspection import Inspection, inspect
from spark_tui.catalog.models.model.weights import (
    BITS,
    CheckpointProblem,
    SafetensorsHeader,
    Tensor,
    class_of,
    read_checkpoint,
)
from spark_tui.catalog.models.show.inspection import inspection_rows
from tests.cases import all_cases

Rows = dict[str, tuple[str, tuple[int, ...]]]
HIDDEN, INNER, LAYERS, EXPERTS = 64, 48, 2, 4
MOE = {
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "head_dim": 32,
    "hidden_size": HIDDEN,
    "moe_intermediate_size": INNER,
    "num_experts": EXPERTS,
    "num_experts_per_tok": 1,
    "max_position_embeddings": 4096,
}


class Files:
    """One checkpoint in memory."""

    def __init__(self, config: bytes, tensors: Rows, others: tuple[str, ...] = ()) -> None:
        self._config, self._tensors, self._others = config, tensors, others

    def names(self) -> Iterator[str]:
        yield from ("config.json", "model.safetensors", *self._others)

    def head(self, path: str, most: int) -> bytes | CheckpointProblem | None:
        return self._config if path == "config.json" else None

    def headers(self, paths: Any) -> list[SafetensorsHeader | CheckpointProblem]:
        tensors = (
            Tensor(name, dtype, shape, math.prod(shape) * BITS[dtype] // 8)
            for name, (dtype, shape) in self._tensors.items()
        )
        return [SafetensorsHeader(tuple(tensors))]


def read(config: dict[str, Any], tensors: Rows, others: tuple[str, ...] = ()) -> CheckpointFacts:
    found = value_of(read_checkpoint(Files(json.dumps(config).encode(), tensors, others), "memory"))
    assert found is not None
    return found


def ends(head: bool = True) -> Rows:
    found: Rows = {"model.embed_tokens.weight": ("BF16", (100, HIDDEN))}
    return found | ({"lm_head.weight": ("BF16", (100, HIDDEN))} if head else {})


def experts(dtype: str, packed: int, *, suffix: str = "weight") -> Rows:
    """Two layers of four experts, with so many weights in one element."""
    found: Rows = {}
    for layer in range(LAYERS):
        for expert in range(EXPERTS):
            at = f"model.layers.{layer}.mlp.experts.{expert}"
            found |= {
                f"{at}.gate_proj.{suffix}": (dtype, (INNER, HIDDEN // packed)),
                f"{at}.up_proj.{suffix}": (dtype, (INNER, HIDDEN // packed)),
                f"{at}.down_proj.{suffix}": (dtype, (HIDDEN, INNER // packed)),
                f"{at}.down_proj.{suffix}_scale": ("F8_E8M0", (HIDDEN, 2)),
            }
    return found


ROUTED = LAYERS * EXPERTS * 3 * HIDDEN * INNER
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
# what the config adds, the dtype of the experts, and how many weights are in one element
PACKED: dict[str, tuple[dict[str, Any], str, int]] = {
    "wide": ({}, "BF16", 1),
    "FP8": ({"quantization_config": FP8}, "F8_E4M3", 1),
    "FP4 experts in bytes, beside FP8": ({"quantization_config": FP8, "expert_dtype": "fp4"}, "I8", 2),
    "FP4 experts by a key of the format": (
        {"quantization_config": FP8 | {"routed_expert_format": "mxfp4"}},
        "I8",
        2,
    ),
    "FP4 experts by how they are stored": ({"quantization_config": FP8 | {"store_dtype": "mxfp4"}}, "I8", 2),
    "FP4 experts in unsigned bytes": ({"quantization_config": FP8, "expert_dtype": "fp4"}, "U8", 2),
    "integers of eight bits": ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, "I32", 4),
    "integers of four bits": ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "I32", 8),
    "NVFP4": ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "U8", 2),
    "INT8": (
        {"quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized"}},
        "I8",
        1,
    ),
    "NF4": ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "U8", 2),
    "bits that the config names": ({"quantization_config": {"quant_method": "own", "bits": 2}}, "I16", 8),
}


@all_cases("case", PACKED)
def test_weights_are_counted_by_the_bits_of_the_format(case: str) -> None:
    keys, dtype, packed = PACKED[case]
    found = inspect(read(MOE | keys, ends() | experts(dtype, packed)))
    assert found.parameters == 2 * 100 * HIDDEN + ROUTED
    assert found.active == 100 * HIDDEN + ROUTED // EXPERTS
    assert found.facts.findings == ()


def test_weights_of_exl3_are_counted_by_each_tensors_own_bits() -> None:
    three_bits: Rows = {"model.layers.0.mlp.up_proj.trellis": ("I16", (HIDDEN // 16, 128 // 16, 48))}
    six_bits: Rows = {"lm_head.trellis": ("I16", (HIDDEN // 16, 112 // 16, 96))}
    signs: Rows = {"lm_head.suh": ("F16", (HIDDEN,)), "lm_head.svh": ("F16", (112,))}
    config = {"num_hidden_layers": 1, "quantization_config": {"quant_method": "exl3", "bits": 3.0, "head_bits": 6}}
    found = read(config, three_bits | six_bits | signs)
    assert inspect(found).parameters == HIDDEN * 128 + HIDDEN * 112
    assert found.quantization is not None
    assert found.quantization.words == "3-bit (exl3)"


def test_a_format_without_known_bits_leaves_the_number_of_weights_unknown() -> None:
    found = inspect(read(MOE | {"quantization_config": {"quant_method": "own"}}, ends() | experts("I32", 8)))
    assert (found.parameters, found.active) == (None, None)
    assert dict(inspection_rows(found))["parameters"].startswith("unknown")


def test_a_format_that_its_headers_contradict_is_said() -> None:
    found = read(MOE | {"quantization_config": FP8}, ends() | experts("I8", 2))
    assert any("routed experts" in finding for finding in found.findings)


TABLES = (
    "model.ngram_embeddings.3.weight",
    "model.ngram_embeddings.3.weight_scale",
    "model.language_model.embed_tokens_per_layer.weight",
    "model.layers.4.ple.embedding.weight",
    "model.layers.4.engram.table.weight",
    "transformer.wpe.weight",
    "model.oe_embed.0.weight",
    "model.engram.multi_head_embedding.embedding.weight",
)
NO_TABLES = (
    ("model.embed_tokens.weight", ModuleClass.EMBEDDING),
    ("bert.embeddings.word_embeddings.weight", ModuleClass.EMBEDDING),
    ("embed.weight", ModuleClass.EMBEDDING),
    ("head.weight", ModuleClass.HEAD),
    ("model.layers.4.self_attn.rotary_emb.inv_freq", ModuleClass.ATTENTION),
    ("model.per_layer_model_projection.weight", ModuleClass.OTHER),
    ("model.layers.4.engram.value_proj.weight", ModuleClass.OTHER),
    ("model.visual.patch_embed.proj.weight", ModuleClass.VISION),
    ("model.layers.4.mlp.up_proj.weight", ModuleClass.MLP),
    ("mtp.layers.0.embed_tokens.weight", ModuleClass.DRAFT),
)


def test_tables_are_told_by_their_names() -> None:
    assert {class_of(name, 40) for name in TABLES} == {ModuleClass.TABLE}
    assert [class_of(name, 40) for name, _ in NO_TABLES] == [module for _, module in NO_TABLES]


def test_a_table_is_stored_and_not_read() -> None:
    table: Rows = {"model.ngram_embeddings.0.weight": ("F8_E4M3", (1000, HIDDEN))}
    whole, without = (
        inspect(read(MOE, ends() | table | experts("BF16", 1))),
        inspect(read(MOE, ends() | experts("BF16", 1))),
    )
    assert whole.table is not None
    assert (whole.table.parameters, whole.table.size) == (1000 * HIDDEN, 1000 * HIDDEN)
    assert (whole.active, whole.read) == (without.active, without.read)
    assert whole.parameters == (without.parameters or 0) + 1000 * HIDDEN
    assert any("lookup tables" in sentence for sentence in whole.verdict)


PLAIN = {"architectures": ["SomethingForCausalLM"], "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 32}
JOINT: Rows = {"fc.weight": ("BF16", (HIDDEN, 4 * HIDDEN)), "layers.0.mlp.up_proj.weight": ("BF16", (HIDDEN, HIDDEN))}
CLASSIFIER = PLAIN | {"architectures": ["SomethingForSequenceClassification"]}
KINDS: dict[str, tuple[dict[str, Any], Rows, tuple[str, ...], ModelKind]] = {
    "plain": (PLAIN, ends(), (), ModelKind.TEXT),
    "layers of a target": (PLAIN | {"block_size": 8, "target_layer_ids": [1, 9]}, ends(), (), ModelKind.DRAFTER),
    "layers of a target, in an object": (
        PLAIN | {"dflash_config": {"target_layer_ids": [1]}},
        {},
        (),
        ModelKind.DRAFTER,
    ),
    "layers of a target, with a list of kinds": (
        PLAIN | {"target_layer_ids": [1], "layer_types": ["full_attention"]},
        ends(),
        (),
        ModelKind.DRAFTER,
    ),
    "a target's vocabulary": (PLAIN | {"draft_vocab_size": 32000}, ends(), (), ModelKind.DRAFTER),
    "speculators": (PLAIN | {"speculators_config": {"algorithm": "eagle3"}}, ends(), (), ModelKind.DRAFTER),
    "an assistant": (PLAIN | {"architectures": ["Some4AssistantForCausalLM"]}, ends(), (), ModelKind.DRAFTER),
    "a joint without embedding and head": (PLAIN, JOINT, (), ModelKind.DRAFTER),
    "an index of the target's vocabulary": (PLAIN, ends() | {"d2t": ("I64", (8,))}, (), ModelKind.DRAFTER),
    "a mask without embedding and head": (
        PLAIN | {"mask_token_id": 5},
        {"layers.0.mlp.up_proj.weight": ("BF16", (HIDDEN, HIDDEN))},
        (),
        ModelKind.DRAFTER,
    ),
    "a diffusion model": (PLAIN | {"block_size": 8, "mask_token_id": 5}, ends(), (), ModelKind.TEXT),
    "a vision model of that name": (PLAIN | {"architectures": ["Eagle3_VLForCausalLM"]}, ends(), (), ModelKind.TEXT),
    "pooling": (PLAIN, ends(), ("modules.json", "1_Pooling"), ModelKind.EMBEDDING),
    "an encoder": (PLAIN | {"architectures": ["XLMRobertaModel"]}, ends(), (), ModelKind.EMBEDDING),
    "one label": (CLASSIFIER | {"num_labels": 1}, ends(), (), ModelKind.RERANKER),
    "one label by name": (CLASSIFIER | {"id2label": {"0": "LABEL_0"}}, ends(), (), ModelKind.RERANKER),
    "Whisper": (PLAIN | {"architectures": ["WhisperForConditionalGeneration"]}, ends(), (), ModelKind.SPEECH),
    "Qwen3-ASR": (PLAIN | {"architectures": ["Qwen3ASRForConditionalGeneration"]}, ends(), (), ModelKind.SPEECH),
    "GLM-ASR": (PLAIN | {"architectures": ["GlmAsrForConditionalGeneration"]}, ends(), (), ModelKind.SPEECH),
    "live Voxtral": (
        PLAIN | {"architectures": ["VoxtralRealtimeForConditionalGeneration"]},
        ends(),
        (),
        ModelKind.SPEECH,
    ),
    "Voxtral, which chats": (
        PLAIN | {"architectures": ["VoxtralForConditionalGeneration"]},
        ends(),
        (),
        ModelKind.TEXT,
    ),
    "several labels": (CLASSIFIER | {"id2label": {"0": "a", "1": "b"}}, ends(), (), ModelKind.TEXT),
}


@all_cases("case", KINDS)
def test_a_checkpoint_is_told_by_keys_files_and_tensors(case: str) -> None:
    config, tensors, files, kind = KINDS[case]
    found: Inspection = inspect(read(config, tensors, files))
    assert found.facts.kind is kind
    if kind is not ModelKind.TEXT:
        assert (found.ceiling, found.narrow_ceiling) == (None, None)
        assert "tok/s" not in " ".join(found.verdict)
        assert kind.value in found.verdict[0]
        assert dict(inspection_rows(found))["kind"].startswith(kind.value)
    elif tensors:
        assert found.ceiling is not None
