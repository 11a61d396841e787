"""GGUF headers: what they say of a model, and what is wrong with damaged and hostile ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.checkpoint import CheckpointFacts, KvSettings, LayerKind, ModelKind, ModuleClass, kv_layout
from spark_tui.base.finding import Missing, Ok, Reading, value_of
from spark_tui.catalog.models.model.gguf import read_gguf
from spark_tui.catalog.models.model.weights import SafetensorsHeader, decode_read
from tests.cases import all_cases
from tests.gguf_files import Q4_K, QWEN, TENSORS, header, tensor_bytes


class Files:
    """Beginnings of files by name."""

    def __init__(self, **files: bytes) -> None:
        self.files = {f"{name}.gguf": data for name, data in files.items()}

    def names(self) -> Sequence[str]:
        return list(self.files)

    def head(self, path: str, most: int) -> bytes | None:
        data = self.files.get(path)
        return None if data is None else data[:most]

    def headers(self, paths: Sequence[str]) -> list[SafetensorsHeader]:
        raise AssertionError(paths)


def reading(data: bytes, size: int | None = None) -> Reading[CheckpointFacts]:
    return read_gguf(Files(m=data), {"m.gguf": size}, "m.gguf", "/models/m.gguf")


def facts(keys: dict[str, Any], **more: Any) -> CheckpointFacts:
    found = value_of(reading(header({**keys, **more})))
    assert found is not None
    return found


def family(name: str, **own: Any) -> dict[str, Any]:
    keys = {"block_count": 4, "embedding_length": 1024, "attention.head_count": 8, **own}
    return {"general.architecture": name, **{f"{name}.{key}": value for key, value in keys.items()}}


def test_a_header_gives_layers_context_quantization_experts_weights_and_abilities() -> None:
    data = header(QWEN)
    found = value_of(reading(data, len(data) + tensor_bytes()))
    assert found is not None
    assert (found.architecture, found.layers, found.max_position_embeddings) == ("qwen3moe", 4, 40960)
    assert (found.heads, found.kv_heads, found.is_moe, found.licence) == (32, 4, True, "apache-2.0")
    assert found.quantization is not None
    assert found.quantization.method == "GGUF Q4_K_M"
    assert found.attention is not None
    [layers] = found.attention
    assert (layers.kind, layers.layers, layers.key_width, layers.value_width) == (LayerKind.FULL, 4, 512, 512)
    assert found.states == ()
    assert found.chat is not None
    assert found.chat.tools
    assert found.weights is not None
    assert (found.weights.size, found.weights.complete, found.findings) == (tensor_bytes(), True, ())
    classes = {part.module for part in found.weights.by_module}
    assert classes == {
        ModuleClass.EMBEDDING, ModuleClass.ATTENTION, ModuleClass.EXPERTS, ModuleClass.ROUTER, ModuleClass.HEAD
    }  # fmt: skip
    read = decode_read(found)
    assert read is not None
    assert read.experts == 256 * 4 * 128 // 256 * 144 // 16, "8 of 128"
    layout = kv_layout(found, KvSettings())
    assert layout is not None
    assert layout.bytes_per_token == 4 * 1024 * 2, "16 bits"


def test_layers_that_differ_are_grouped() -> None:
    mixed = facts(family("gemma3", **{
        "attention.head_count_kv": [4, 4, 4, 2], "attention.key_length": 64, "attention.value_length": 32,
        "attention.sliding_window": 1024, "attention.sliding_window_pattern": [True, True, True, False],
    }))  # fmt: skip
    assert mixed.attention is not None
    assert {(each.kind, each.layers, each.width, each.window) for each in mixed.attention} == {
        (LayerKind.SLIDING, 3, 4 * 96, 1024), (LayerKind.FULL, 1, 2 * 96, None)
    }  # fmt: skip
    plain = facts(family("gemma2", **{"attention.sliding_window": 4096}))
    assert plain.attention is not None
    assert [each.window for each in plain.attention] == [None], "not said which layers have it"
    latent = facts(family("deepseek2", **{
        "attention.kv_lora_rank": 512, "rope.dimension_count": 64, "attention.key_length_mla": 192,
    }))  # fmt: skip
    assert latent.attention is not None
    assert [(each.kind, each.width) for each in latent.attention] == [(LayerKind.MLA, 576)]


@pytest.mark.parametrize(
    ("own", "attention", "states"),
    [
        ({"full_attention_interval": 4}, 1, 3),
        ({"attention.head_count_kv": [0, 0, 8, 0]}, 1, 3),
        ({}, 4, 4),
    ],
)
def test_layers_with_a_state_are_told_from_those_with_keys(own: dict[str, Any], attention: int, states: int) -> None:
    ssm = {"ssm.inner_size": 4096, "ssm.state_size": 128, "ssm.conv_kernel": 4, "ssm.group_count": 16}
    found = facts(family("hybrid", **ssm, **own))
    assert found.attention is not None
    assert found.states is not None
    assert ([each.layers for each in found.attention], [each.layers for each in found.states]) == (
        [attention],
        [states],
    )
    assert found.states[0].conv_channels == 4096 + 2 * 16 * 128


@all_cases("key", ["attention.indexer.key_length", "attention.compress_ratios", "kda.head_dim"])
def test_attention_that_is_not_read_leaves_the_cache_unknown(key: str) -> None:
    found = facts(family("other"), **{f"other.{key}": 128})
    assert (found.attention, found.states) == (None, None)
    assert key in found.findings[-1]


@all_cases(
    ("pooling", "kind"),
    [(0, ModelKind.TEXT), (1, ModelKind.EMBEDDING), (3, ModelKind.EMBEDDING), (4, ModelKind.RERANKER)],
)
def test_a_file_that_pools_gives_vectors_or_scores(pooling: int, kind: ModelKind) -> None:
    assert facts(family("qwen3", pooling_type=pooling)).kind is kind


def test_the_parts_of_a_split_file_are_one_checkpoint_and_a_missing_one_is_named() -> None:
    first, second = header(QWEN, TENSORS[:2]), header({"split.no": 1}, TENSORS[2:])
    name = "m-00001-of-00002.gguf"
    files = Files(**{"m-00001-of-00002": first, "m-00002-of-00002": second})
    whole = value_of(read_gguf(files, {}, name, ""))
    assert whole is not None
    assert whole.weights is not None
    assert (whole.weights.size, whole.weights.complete) == (tensor_bytes(), True)
    half = value_of(read_gguf(Files(**{"m-00001-of-00002": first}), {}, name, ""))
    assert half is not None
    assert half.weights is not None
    assert not half.weights.complete
    assert half.findings == ("m-00002-of-00002.gguf: is not downloaded",)


def test_a_file_cut_in_half_is_not_complete() -> None:
    data = header(QWEN)
    found = value_of(reading(data, len(data) + tensor_bytes() // 2))
    assert found is not None
    assert found.weights is not None
    assert not found.weights.complete
    assert "truncated" in found.findings[0]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"GGUF", b"GGML" + header(QWEN)[4:], b"GGUF" + struct.pack(">IQQ", 3, 0, 1),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63),
        header({"general.architecture": ""}), header({"general.name": "x"}),
    ],
)  # fmt: skip
def test_what_is_no_gguf_header_is_missing_with_the_reason(data: bytes) -> None:
    found = reading(data)
    assert isinstance(found, Missing)
    assert found.reason.startswith("m.gguf: ")


def test_hostile_keys_and_tensors_are_findings() -> None:
    keys = family("x", context_length="long", **{"attention.head_count": 2**31})
    found = facts(keys)
    assert (found.max_position_embeddings, found.attention) == (None, None)
    assert found.findings
    unknown = value_of(
        reading(header(QWEN, (("a.weight", (256,), Q4_K),)).replace(struct.pack("<IQ", 12, 0), b"\xff" * 12))
    )
    assert unknown is not None
    assert unknown.weights is None
    assert "unknown tensor type" in unknown.findings[0]


@given(st.data())
def test_any_damage_gives_facts_or_a_reason(data: st.DataObject) -> None:
    whole = bytearray(header(QWEN | {"tokenizer.ggml.tokens": ["a"] * 20, "tokenizer.ggml.scores": [0.5] * 20}))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    found = reading(bytes(whole[: data.draw(st.integers(0, len(whole)))]), 10)
    assert isinstance(found, (Ok, Missing))
