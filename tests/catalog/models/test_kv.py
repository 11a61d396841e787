"""The KV cache, block by block, beside what vLLM printed on real machines; and what always holds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.checkpoint import (
    CheckpointFacts,
    KvLayout,
    KvSettings,
    LayerKind,
    Quantization,
    StateMode,
    kv_layout,
)
from spark_tui.base.engine.runtimes import known_models
from spark_tui.base.quantities import GIB
from spark_tui.catalog.models.model.config import facts_of, known_model


def public(name: str) -> CheckpointFacts:
    known = known_model(name)
    assert known is not None
    return facts_of(known)


def layout_of(name: str, settings: KvSettings) -> KvLayout:
    found = kv_layout(public(name), settings)
    assert found is not None
    return found


@dataclass(frozen=True)
class Logged:
    """One start: what was asked, and what vLLM's log said. `newer`: its tokens are concurrency times length."""

    model: str
    settings: KvSettings
    gib: float
    context: int
    tokens: int
    concurrency: float
    source: str
    newer: bool = False
    block: int = 16


LOGS = (
    Logged(
        "Qwen3.6-35B-A3B", KvSettings("fp8", batched_tokens=32768, draft_tokens=3, mtp=True), 64.69, 262144,
        5_463_232, 20.84, "GB10, vLLM 0.20.2: Setting attention block size to 2144 tokens; Add 3 padding layers",
        newer=True, block=2144,
    ),
    Logged(
        "NVIDIA-Nemotron-3-Super-120B-A12B", KvSettings("fp8", draft_tokens=5, mtp=True, state_mode=StateMode.ALL),
        18.04, 262144, 694_656, 2.63, "GB10, nightly of 2026-04: Add 5 padding layers, may waste at most 12.50%",
        block=8576,
    ),
    Logged(
        "Qwen3.5-122B-A10B", KvSettings("fp8", draft_tokens=1, mtp=True), 24.05, 262144, 482_080, 6.42,
        "Jetson Thor, NVFP4 with MTP, 2026-04", block=4192,
    ),
    Logged(
        "Qwen3.5-122B-A10B", KvSettings("fp8"), 21.43, 131072, 467_712, 11.79, "Jetson Thor, NVFP4, 2026-04",
        block=4176,
    ),
    Logged("gemma-4-26B-A4B-it", KvSettings("fp8"), 51.62, 131072, 451_040, 33.42, "Jetson Thor, 2026-04", block=32),
)  # fmt: skip


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.model} {log.gib} GiB")
def test_capacity_is_what_vllm_printed(log: Logged) -> None:
    """Within the rounding of the logged GiB; the issue asks for 10 %."""
    layout = layout_of(log.model, log.settings)
    found = layout.capacity(int(log.gib * GIB), log.context)
    tokens = found.tokens if log.newer else found.tokens_by_group
    assert tokens == pytest.approx(log.tokens, rel=0.001), log.source
    assert found.concurrency == pytest.approx(log.concurrency, abs=0.006), log.source
    assert layout.groups[0].block_tokens == log.block, log.source


def test_a_plain_model_is_the_naive_product() -> None:
    """vLLM 0.32, run with 4 layers of 2 KV heads by 64 in BF16: 1 GiB held 524,288 tokens."""
    plain = replace(public("Llama-3.1-8B"), attention=None)
    assert kv_layout(plain, KvSettings()) is None
    from spark_tui.catalog.models.model.config import facts_from

    tiny = facts_from({"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64})
    layout = kv_layout(tiny, KvSettings("bfloat16"))
    assert layout is not None
    assert layout.capacity(GIB, 2048).tokens == 524_288


@pytest.mark.parametrize(
    ("calibrated", "asked", "becomes"),
    [("", "auto", "bfloat16"), ("fp8", "auto", "fp8"), ("fp8", "bfloat16", "bfloat16"), ("", "fp8_e4m3", "fp8_e4m3")],
)
def test_auto_is_what_the_checkpoint_was_calibrated_for(calibrated: str, asked: str, becomes: str) -> None:
    facts = replace(public("Llama-3.3-70B"), quantization=Quantization("modelopt", kv_cache=calibrated))
    layout = kv_layout(facts, KvSettings(asked))
    assert layout is not None
    assert layout.cache_dtype == becomes


def test_an_unknown_cache_dtype_is_unknown_and_not_sixteen_bits() -> None:
    assert kv_layout(public("gpt-oss-20b"), KvSettings("turboquant_k8v4")) is None


@pytest.mark.parametrize(("dtype", "share"), [("fp8", 0.5), ("nvfp4", 0.28125)])
def test_narrower_caches_take_their_share(dtype: str, share: float) -> None:
    wide, narrow = (layout_of("Llama-3.3-70B", KvSettings(word)).bytes_per_token for word in ("bfloat16", dtype))
    assert narrow == wide * share


def test_a_window_keeps_itself_and_one_step() -> None:
    layout = layout_of("gpt-oss-120b", KvSettings(batched_tokens=2048))
    sliding = next(group for group in layout.groups if group.kind is LayerKind.SLIDING)
    assert sliding.blocks(131072, 2048) == -(-(127 + 2048) // 16) + 1
    assert sliding.blocks(131072, 2048) == sliding.blocks(65536, 2048)


NAMES = st.sampled_from([known.names for known in known_models().architecture])
LENGTHS = st.integers(1, 2_000_000)


def of_pattern(names: str) -> CheckpointFacts:
    return facts_of(next(known for known in known_models().architecture if known.names == names))


SETTINGS = st.builds(
    KvSettings,
    cache_dtype=st.sampled_from(("auto", "fp8", "nvfp4", "bfloat16")),
    batched_tokens=st.integers(1, 65536),
    state_mode=st.sampled_from(StateMode),
    draft_tokens=st.integers(0, 15),
    mtp=st.booleans(),
)


@given(NAMES, SETTINGS, LENGTHS, LENGTHS)
def test_more_context_never_needs_less(names: str, settings: KvSettings, one: int, other: int) -> None:
    layout = kv_layout(of_pattern(names), settings)
    assert layout is not None
    assert layout.sequence_bytes(min(one, other)) <= layout.sequence_bytes(max(one, other))


@given(NAMES, SETTINGS, st.integers(0, 100 * GIB), st.integers(1, 300_000))
def test_the_longest_context_fits_and_one_more_token_does_not(
    names: str, settings: KvSettings, memory: int, most: int
) -> None:
    layout = kv_layout(of_pattern(names), settings)
    assert layout is not None
    longest = layout.longest(memory, most)
    assert 0 <= longest <= most
    assert longest == 0 or layout.sequence_bytes(longest) <= memory
    assert longest == most or layout.sequence_bytes(longest + 1) > memory


@given(NAMES, SETTINGS, LENGTHS)
def test_the_manager_never_takes_less_than_the_naive_cache(names: str, settings: KvSettings, context: int) -> None:
    layout = kv_layout(of_pattern(names), settings)
    assert layout is not None
    assert layout.sequence_bytes(context) >= layout.bytes_per_token * context
