"""What a decoded token reads, and what that allows: beside what was measured on a GB10."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts, Experts, ModuleClass, WeightFormat
from spark_tui.catalog.models.model.weights import (
    MEASURED_BANDWIDTH,
    PAPER_BANDWIDTH,
    Tensor,
    bytes_of,
    ceiling_of,
    class_of,
    decode_read,
    format_in,
    summarise,
)
from tests.cases import all_cases

NAMES = {
    "model.embed_tokens.weight": ModuleClass.EMBEDDING,
    "model.language_model.embed_tokens.weight": ModuleClass.EMBEDDING,
    "backbone.embeddings.weight": ModuleClass.EMBEDDING,
    "lm_head.weight": ModuleClass.HEAD,
    "model.layers.3.mlp.experts.7.down_proj.weight": ModuleClass.EXPERTS,
    "model.layers.3.mlp.experts.gate_up_proj_blocks": ModuleClass.EXPERTS,
    "backbone.layers.1.mixer.experts.0.up_proj.weight": ModuleClass.EXPERTS,
    "model.layers.3.mlp.shared_expert.up_proj.weight": ModuleClass.SHARED_EXPERT,
    "model.layers.3.mlp.gate.weight": ModuleClass.ROUTER,
    "model.layers.3.mlp.router.weight": ModuleClass.ROUTER,
    "model.layers.3.mlp.gate_proj.weight": ModuleClass.MLP,
    "model.layers.3.self_attn.q_proj.weight": ModuleClass.ATTENTION,
    "model.layers.3.self_attn.q_norm.weight": ModuleClass.NORM,
    "model.layers.3.linear_attn.in_proj_qkvz.weight": ModuleClass.STATE,
    "backbone.layers.0.mixer.in_proj.weight": ModuleClass.STATE,
    "model.visual.blocks.3.attn.qkv.weight": ModuleClass.VISION,
    "vision_tower.encoder.layers.3.mlp.fc1.weight": ModuleClass.VISION,
    "mtp.layers.0.self_attn.q_proj.weight": ModuleClass.DRAFT,
    "model.layers.48.eh_proj.weight": ModuleClass.DRAFT,
    "something.else": ModuleClass.OTHER,
}


@all_cases("name", NAMES)
def test_a_tensor_is_told_by_its_name(name: str) -> None:
    assert class_of(name, 48) is NAMES[name]


def tensor(name: str, size: float, dtype: str = "BF16") -> Tensor:
    width = {"BF16": 2, "U8": 1, "F8_E4M3": 1, "I32": 4}[dtype]
    return Tensor(name, dtype, (int(size) // width,), int(size) // width * width)


# A published static audit of nvidia/Qwen3.6-35B-A3B-NVFP4 as vLLM 0.20 loaded it, in bytes of BF16.
AUDIT = (
    ("model.layers.0.linear_attn.in_proj_qkvz.weight", 1.44e9),
    ("model.layers.0.linear_attn.out_proj.weight", 480e6),
    ("model.layers.0.mlp.gate.weight", 40e6),
    ("lm_head.weight", 970e6),
)
EXPERTS_READ = 1.7e9


def audited() -> CheckpointFacts:
    tensors = [tensor(name, size) for name, size in AUDIT]
    tensors += [
        tensor("model.embed_tokens.weight", 1.02e9),
        tensor("model.visual.blocks.0.attn.qkv.weight", 0.9e9),
        tensor("mtp.layers.0.mlp.experts.0.up_proj.weight", 1.6e9),
        tensor("model.layers.0.mlp.experts.0.up_proj.weight", EXPERTS_READ * 256 / 8, "U8"),
    ]
    return CheckpointFacts(layers=40, experts=Experts(256, 8, 1), is_moe=True, weights=summarise(tensors, layers=40))


def test_the_sixteen_bit_rest_of_an_nvfp4_model_is_what_makes_it_slow() -> None:
    """Audited: 2.9 GB of BF16 and 1.7 GB of experts per token, a ceiling around 60 tok/s; 44 were measured."""
    read = decode_read(audited())
    assert read is not None
    assert read.wide == pytest.approx(2.93e9, rel=0.01)
    assert read.experts == pytest.approx(EXPERTS_READ, rel=0.01)
    ceiling = ceiling_of(read.size)
    assert ceiling is not None
    assert ceiling.paper == pytest.approx(60, rel=0.05)
    assert ceiling.measured > 44.32


MEASURED = (  # model, bytes per token, tokens per second of one stream on a GB10, source
    ("Qwen3.6-27B BF16", 2 * (27.0e9 - 1.27e9 - 0.46e9), 4.54, "djangodevreng, vLLM 0.26.0"),
    ("Llama-3.1-8B FP8", 8.03e9, 20.5, "LMSYS, SGLang"),
    ("gpt-oss-120b", bytes_of(5.1e9, WeightFormat.MXFP4) or 0, 58.82, "Spark Arena, vLLM"),
)


@pytest.mark.parametrize(("name", "reads", "speed", "source"), MEASURED)
def test_no_measured_speed_is_above_its_ceiling(name: str, reads: float, speed: float, source: str) -> None:
    ceiling = ceiling_of(round(reads))
    assert ceiling is not None
    assert speed < ceiling.measured * 1.01, f"{name}, {source}"
    assert ceiling.paper / ceiling.measured == pytest.approx(PAPER_BANDWIDTH / MEASURED_BANDWIDTH)


def test_a_tied_embedding_is_read_as_the_output_head() -> None:
    tied = summarise([tensor("model.embed_tokens.weight", 1000), tensor("model.layers.0.mlp.up_proj.weight", 50)])
    read = decode_read(CheckpointFacts(weights=tied))
    assert read is not None
    assert read.size == 1050


def test_without_all_files_nothing_is_said_about_speed() -> None:
    whole = audited()
    assert whole.weights is not None
    assert decode_read(replace(whole, weights=replace(whole.weights, complete=False))) is None
    assert decode_read(replace(whole, weights=None)) is None
    assert decode_read(replace(whole, experts=None)) is None, "how many experts run is not known"


def test_packed_weights_count_twice_and_scales_not_at_all() -> None:
    found = summarise(
        [
            Tensor("a.weight", "U8", (4, 8), 32),
            Tensor("a.weight_scale", "F8_E4M3", (4, 1), 4),
            Tensor("b.qweight", "I32", (4, 8), 128),
            Tensor("c.weight", "BF16", (4, 8), 64),
        ]
    )
    assert found.parameters == 64 + 256 + 32
    assert found.size == 228
    assert dict(found.by_dtype) == {"I32": 128, "BF16": 64, "U8": 32, "F8_E4M3": 4}


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ("NVFP4 (ModelOpt)", WeightFormat.NVFP4),
        ("NVFP4 W4A16 (compressed-tensors)", WeightFormat.NVFP4_W4A16),
        ("MXFP4", WeightFormat.MXFP4),
        ("BF16", WeightFormat.BF16),
        ("FP8", WeightFormat.FP8),
        ("Q4_K_M (GGUF)", None),
        ("", None),
    ],
)
def test_the_words_of_a_recipe(words: str, form: WeightFormat | None) -> None:
    assert format_in(words) is form


def test_nothing_read_has_no_ceiling() -> None:
    assert ceiling_of(0) is None


TENSORS = st.lists(
    st.builds(tensor, st.sampled_from(sorted(NAMES)), st.integers(0, 10**6), st.sampled_from(("BF16", "U8", "I32"))),
    max_size=20,
)


@given(TENSORS, st.integers(2, 64), st.integers(1, 64))
def test_parts_never_sum_above_the_whole(tensors: list[Tensor], routed: int, each: int) -> None:
    summary = summarise(tensors, layers=48)
    assert sum(part.size for part in summary.by_module) == summary.size == sum(item.size for item in tensors)
    assert all(part.wide <= part.size for part in summary.by_module)
    read = decode_read(CheckpointFacts(weights=summary, experts=Experts(routed, min(each, routed))))
    assert read is not None
    assert read.wide <= read.size <= summary.size
    assert read.experts <= read.size
