"""What configurations of many kinds keep of a token, by their keys: the right figure, or unknown with the key named.

The figures are worked out by hand from the published architectures; the configs have the keys that memory depends on.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.checkpoint import CheckpointFacts, KvLayout, KvSettings, LayerKind, kv_layout
from spark_tui.catalog.models.model.config import facts_from
from tests.cases import all_cases

PLAIN = {
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 131072,
}
"""24 layers of 2 x 4 x 128 elements: 49,152 bytes per token in 16 bits."""
WINDOWED = PLAIN | {"sliding_window": 1024}


def layout(config: dict[str, Any]) -> KvLayout | None:
    return kv_layout(facts_from(config), KvSettings("bfloat16"))


# config, bytes per token, of windows per sequence, of state per sequence
UNDERSTOOD: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "plain": (PLAIN, 49_152, 0, 0),
    # MLA of 576 elements in 78 layers; an indexer of 128 in 21 of them
    "GLM-5.3: latent, with an indexer that layers share": (
        {
            "num_hidden_layers": 78,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "index_head_dim": 128,
            "index_n_heads": 32,
            "index_topk": 2048,
            "index_topk_freq": 4,
            "index_skip_topk_offset": 3,
            "index_share_for_mtp_iteration": True,
            "indexer_types": ["full", "full", "full", "shared", "shared", "shared"]
            + ["full", "shared", "shared", "shared"] * 18,
        },
        78 * 576 * 2 + 21 * 128 * 2,
        0,
        0,
    ),
    # 21 layers keep one entry for 4 tokens and an index key beside it, 20 layers one for 128; all keep 128 tokens
    "DeepSeek-V4-Flash: compressed": (
        {
            "num_hidden_layers": 43,
            "num_attention_heads": 64,
            "num_key_value_heads": 1,
            "head_dim": 512,
            "qk_rope_head_dim": 64,
            "q_lora_rank": 1024,
            "o_groups": 8,
            "index_head_dim": 128,
            "index_n_heads": 64,
            "index_topk": 512,
            "sliding_window": 128,
            "compress_rope_theta": 160000,
            "compress_ratios": [0, 0, *([4, 128] * 20), 4, 0],
        },
        6_880,
        43 * 512 * 2 * 128,
        0,
    ),
    "MiMo-V2-Flash: windows with heads of their own": (
        {
            "num_hidden_layers": 48,
            "num_attention_heads": 64,
            "num_key_value_heads": 4,
            "head_dim": 192,
            "v_head_dim": 128,
            "swa_num_attention_heads": 64,
            "swa_num_key_value_heads": 8,
            "swa_head_dim": 192,
            "swa_v_head_dim": 128,
            "sliding_window": 128,
            "sliding_window_size": 128,
            "add_swa_attention_sink_bias": True,
            "hybrid_layer_pattern": [0, 1, 1, 1, 1, *([0, 1, 1, 1, 1, 1] * 7), 0],
        },
        23_040,
        39 * 8 * 320 * 2 * 128,
        0,
    ),
    # 48 kinds for 45 layers: the last three draft
    "Step 3.7: groups, and layers for drafting in the list": (
        {
            "num_hidden_layers": 45,
            "num_attention_heads": 64,
            "num_attention_groups": 8,
            "head_dim": 128,
            "sliding_window": 512,
            "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 12,
            "attention_other_setting": {
                "attention_type": "sliding_attention",
                "num_attention_heads": 96,
                "num_attention_groups": 8,
                "head_dim": 128,
            },
        },
        12 * 2 * 8 * 128 * 2,
        33 * 2 * 8 * 128 * 2 * 512,
        0,
    ),
    "MiniMax-M3: an indexer in all layers but three": (
        {
            "num_hidden_layers": 60,
            "num_attention_heads": 64,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "sparse_attention_config": {
                "use_sparse_attention": True,
                "sparse_num_index_heads": 4,
                "sparse_index_dim": 128,
                "sparse_attention_freq": [0, 0, 0, *([1] * 57)],
            },
        },
        60 * 2 * 4 * 128 * 2 + 57 * 128 * 2,
        0,
        0,
    ),
    # 20 layers: three convolutions of 3 columns, and 32 states of 128 x 128 in 32 bits
    "Kimi Linear: KDA and MLA": (
        {
            "num_hidden_layers": 27,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "mla_use_nope": True,
            "linear_attn_config": {
                "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
                "kda_layers": [at for at in range(1, 28) if at % 4 and at != 27],
                "num_heads": 32,
                "head_dim": 128,
                "short_conv_kernel_size": 4,
            },
        },
        7 * 576 * 2,
        0,
        20 * (3 * 3 * 4096 * 2 + 32 * 128 * 128 * 4),
    ),
    "Granite 4: Mamba with keys of its own": (
        PLAIN
        | {
            "layer_types": ["mamba"] * 20 + ["attention"] * 4,
            "mamba_n_heads": 48,
            "mamba_d_head": 64,
            "mamba_d_state": 128,
            "mamba_d_conv": 4,
            "mamba_n_groups": 1,
            "mamba_expand": 2,
            "mamba_chunk_size": 256,
            "attention_multiplier": 0.01,
        },
        8_192,
        0,
        20 * (3 * (48 * 64 + 2 * 128) * 2 + 48 * 64 * 128 * 2),
    ),
    "Laguna: one kind per layer": (
        WINDOWED
        | {
            "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 6,
            "num_attention_heads_per_layer": [16] * 24,
            "mlp_layer_types": ["dense"] + ["sparse"] * 23,
            "gating": True,
        },
        49_152 // 4,
        18 * 2048 * 1024,
        0,
    ),
    "gpt-oss and Mistral: by the class": (WINDOWED | {"model_type": "gpt_oss"}, 49_152 // 2, 12 * 2048 * 1024, 0),
    "a pattern by letters": (WINDOWED | {"sliding_window_pattern": "LLLG"}, 12_288, 18 * 2048 * 1024, 0),
    "a pattern by number": (WINDOWED | {"sliding_window_pattern": 6}, 49_152 // 6, 20 * 2048 * 1024, 0),
    "Qwen: from a layer on": (
        WINDOWED | {"use_sliding_window": True, "max_window_layers": 12},
        24_576,
        12 * 2048 * 1024,
        0,
    ),
    "Qwen: not used": (WINDOWED | {"use_sliding_window": False, "max_window_layers": 12}, 49_152, 0, 0),
    "keys that change no size": (
        PLAIN | {"clip_qkv": 8.0, "attention_dropout": 0.1, "_attn_implementation": "sdpa", "attn_output_gate": True},
        49_152,
        0,
        0,
    ),
    # Until the windows are full each token takes as much as without them.
    "all layers slide by their list": (
        WINDOWED | {"layer_types": ["sliding_attention"] * 24},
        49_152,
        49_152 * 1024,
        0,
    ),
    "all layers slide by their class": (WINDOWED | {"model_type": "mistral"}, 49_152, 49_152 * 1024, 0),
}


@all_cases("case", UNDERSTOOD)
def test_a_config_of_this_kind_is_read_by_its_keys(case: str) -> None:
    config, token, windows, state = UNDERSTOOD[case]
    found = layout(config)
    assert found is not None, facts_from(config).findings
    assert (found.bytes_per_token, found.window_bytes, found.state_bytes) == (token, windows, state)


# the keys added to a plain config, and the one that the finding names
NOT_UNDERSTOOD: dict[str, tuple[dict[str, Any], str]] = {
    "a window without the layers that have one": ({"sliding_window": 1024}, "sliding_window"),
    "compression without what an entry holds": ({"sliding_window": 64, "compress_ratios": [4] * 24}, "compress_ratios"),
    "compression of fewer layers than there are": (
        {"qk_rope_head_dim": 64, "sliding_window": 64, "compress_ratios": [4]},
        "compress_ratios",
    ),
    "entries of which engines differ": (
        {"qk_rope_head_dim": 64, "sliding_window": 64, "compress_ratios": [1, 4] * 12},
        "compress_ratios",
    ),
    "entries that layers share": (
        {"qk_rope_head_dim": 64, "sliding_window": 64, "compress_ratios": [2, 4] * 12, "kv_source_layer_ids": [2, 5]},
        "kv_source_layer_ids",
    ),
    "indexers with a stride": ({"index_head_dim": 128, "index_topk_freq": 4}, "index_topk_freq"),
    "groups of layers": ({"layer_group_size": 8}, "layer_group_size"),
    "a setting of other layers": (
        {
            "sliding_window": 64,
            "layer_types": ["sliding_attention"] * 24,
            "attention_other_setting": {"attention_type": "other", "num_attention_groups": 2},
        },
        "attention_other_setting",
    ),
    "another compression": ({"compress_ratio": 4}, "compress_ratio"),
    "a pattern of somebody": ({"local_global_pattern": [0, 1]}, "local_global_pattern"),
    "letters of somebody": ({"sliding_window": 64, "sliding_window_pattern": "SSF"}, "sliding_window_pattern"),
    "a pattern in a list, of a class with one": (
        {"model_type": "mistral", "sliding_window": 64, "sliding_window_pattern": [1, 2]},
        "sliding_window_pattern",
    ),
    "a list of numbers": ({"layer_types": [0, 1]}, "layer_types"),
    "a list that is too short": ({"layer_types": ["full_attention"] * 20}, "layer_types"),
    "a word of nobody": ({"layer_types": ["chunked_attention"] * 24}, "layer_types"),
    "chunks": ({"attention_chunk_size": 8192}, "attention_chunk_size"),
    "indexers that something shares": ({"index_head_dim": 128, "index_topk_pattern": "FFS"}, "index_topk_pattern"),
    "sparse attention without an index": ({"sparse_attention_config": {"blocks": 4}}, "sparse_attention_config"),
    "linear attention": ({"linear_attn_config": {"layers": [1, 2]}}, "linear_attn_config"),
    "groups": ({"num_kv_groups": 2}, "num_kv_groups"),
    "windows with keys of their own": ({"swa_every": 4}, "swa_every"),
    "states beside attention": ({"mamba_d_state": 128}, "mamba_d_state"),
    "heads layer by layer": ({"num_key_value_heads": [4, 8]}, "num_key_value_heads"),
}


@all_cases("case", NOT_UNDERSTOOD)
def test_a_key_about_attention_that_nobody_reads_makes_the_figure_unknown(case: str) -> None:
    keys, named = NOT_UNDERSTOOD[case]
    found = facts_from(PLAIN | keys)
    assert kv_layout(found, KvSettings()) is None
    assert (found.attention, found.states) == (None, None)
    assert any(named in finding for finding in found.findings)


@given(
    st.from_regex(
        r"\A(?:x_)?(?:attn|attention|swa|compress|index|linear_attn|kv)_[a-z]{1,6}_(?:pattern|ratios|groups)\Z"
    ),
    st.integers(2, 64) | st.just([1, 2]) | st.just({"a": 1}) | st.just(True),
)
def test_no_key_about_attention_passes_unread(key: str, value: Any) -> None:
    assert layout(PLAIN | {key: value}) is None


WIDTHS = st.integers(1, 4096)
ATTENTION_KEYS = st.fixed_dictionaries(
    {"num_hidden_layers": st.integers(1, 64), "num_attention_heads": WIDTHS, "hidden_size": st.integers(4096, 8192)},
    optional={
        "num_key_value_heads": WIDTHS,
        "head_dim": WIDTHS,
        "sliding_window": WIDTHS,
        "model_type": st.sampled_from(["mistral", "gpt_oss", "gemma2", "x"]),
        "layer_types": st.lists(st.sampled_from(["full_attention", "sliding_attention", "attention"]), min_size=1),
        "sliding_window_pattern": WIDTHS,
        "hybrid_layer_pattern": st.lists(st.integers(0, 1), min_size=1),
        "compress_ratios": st.lists(st.sampled_from([0, 4, 128]), min_size=1, max_size=64),
        "qk_rope_head_dim": WIDTHS,
        "kv_lora_rank": WIDTHS,
        "index_head_dim": WIDTHS,
    },
)


@given(ATTENTION_KEYS)
def test_attention_is_never_free(config: dict[str, Any]) -> None:
    found = layout(config)
    assert found is None or found.bytes_per_token > 0


def test_a_compressed_context_takes_what_its_entries_take() -> None:
    found = layout(UNDERSTOOD["DeepSeek-V4-Flash: compressed"][0])
    assert found is not None
    naive = found.bytes_per_token * 262_144 + found.window_bytes
    assert naive <= found.sequence_bytes(262_144) < 1.15 * naive


def test_layers_are_named_with_their_compression() -> None:
    found: CheckpointFacts = facts_from(UNDERSTOOD["DeepSeek-V4-Flash: compressed"][0])
    assert [(each.kind, each.layers, each.ratio) for each in found.attention or ()] == [
        (LayerKind.SLIDING, 43, 1),
        (LayerKind.COMPRESSED, 21, 4),
        (LayerKind.COMPRESSED, 20, 128),
        (LayerKind.INDEXER, 21, 4),
    ]


def test_the_context_is_found_under_its_other_names() -> None:
    assert facts_from({"model_max_length": 1_048_576}).max_position_embeddings == 1_048_576


def test_experts_are_found_under_their_other_names() -> None:
    found = facts_from({"moe_num_experts": 288, "moe_top_k": 8, "share_expert_dim": 1280}).experts
    assert found is not None
    assert (found.routed, found.per_token, found.shared) == (288, 8, 1)
