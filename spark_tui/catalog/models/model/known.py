"""Configs of public models that our presets serve, for as long as the checkpoint is not in the store.

Only what the KV cache and the state need; figures are those of the models' public config.json files. `checked` names
the published log that gives the same cache, block by block.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts
from spark_tui.base.quantities import GIB
from spark_tui.catalog.models.model.config import facts_from


class MeasuredWeights(Struct, frozen=True):
    """What the weights took once loaded, in bytes, and whose log says so."""

    size: int
    source: str


class KnownModel(Struct, frozen=True):
    """A public config, as far as it matters here. `names` is a pattern for the model's name in lower case."""

    names: str
    config: dict[str, Any]
    checked: str = ""
    loaded: tuple[tuple[str, MeasuredWeights], ...] = ()


_COMMON: Final = {"max_position_embeddings": 262144, "dtype": "bfloat16"}


def _qwen_gdn(layers: int, kv_heads: int, value_heads: int, **more: Any) -> dict[str, Any]:
    return {
        **_COMMON, "num_hidden_layers": layers, "full_attention_interval": 4, "num_key_value_heads": kv_heads,
        "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": value_heads,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, **more,
    }  # fmt: skip


def _gemma4(layers: int, full: int, kv_heads: int, full_heads: int, **more: Any) -> dict[str, Any]:
    return {
        **_COMMON, "model_type": "gemma4", "num_hidden_layers": layers,
        "layer_types": ["sliding_attention"] * (layers - full) + ["full_attention"] * full,
        "num_key_value_heads": kv_heads, "head_dim": 256, "global_head_dim": 512,
        "num_global_key_value_heads": full_heads, "attention_k_eq_v": True, "sliding_window": 1024, **more,
    }  # fmt: skip


def _nemotron(mamba: int, moe: int, attention: int, heads: int, **more: Any) -> dict[str, Any]:
    return {
        **_COMMON, "model_type": "nemotron_h",
        "hybrid_override_pattern": "M" * mamba + "E" * moe + "*" * attention,  # the order does not matter
        "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": heads, "mamba_head_dim": 64,
        "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, **more,
    }  # fmt: skip


def _plain(layers: int, kv_heads: int, head_dim: int, context: int, **more: Any) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers, "num_key_value_heads": kv_heads, "head_dim": head_dim,
        "max_position_embeddings": context, "dtype": "bfloat16", **more,
    }  # fmt: skip


def _gpt_oss(layers: int, experts: int) -> dict[str, Any]:
    return _plain(
        layers, 8, 64, 131072, model_type="gpt_oss", sliding_window=128, num_local_experts=experts,
        num_experts_per_tok=4,
    )  # fmt: skip


KNOWN: Final = (
    KnownModel(
        r"qwen-?3\.[56]-35b-a3b",
        _qwen_gdn(
            40, 2, 32, model_type="qwen3_5_moe", mamba_ssm_dtype="float32", num_experts=256, num_experts_per_tok=8,
            n_shared_experts=1, mtp_num_hidden_layers=1,
        ),
        "vLLM 0.20.2 on a GB10, Qwen3.6-35B-A3B with MTP: 64.69 GiB, 5,463,232 tokens, 20.84x",
    ),
    KnownModel(
        r"qwen-?3\.5-122b-a10b",
        _qwen_gdn(
            48, 2, 64, model_type="qwen3_5_moe", mamba_ssm_dtype="float32", num_experts=256, num_experts_per_tok=8,
            n_shared_experts=1, mtp_num_hidden_layers=1,
        ),
        "vLLM on a Jetson Thor, NVFP4: 24.05 GiB, 482,080 tokens, 6.42x",
    ),
    KnownModel(
        r"qwen-?3\.[56]-27b",
        _qwen_gdn(64, 4, 48, model_type="qwen3_5", mamba_ssm_dtype="float32", mtp_num_hidden_layers=1),
    ),
    KnownModel(
        r"qwen-?3-next-80b",
        _qwen_gdn(48, 2, 32, model_type="qwen3_next", num_experts=512, num_experts_per_tok=10, n_shared_experts=1,
                  num_nextn_predict_layers=1),
    ),
    KnownModel(
        r"gemma-4-31b",
        _gemma4(60, 10, 16, 4),
        loaded=((r"nvfp4", MeasuredWeights(int(31.04 * GIB), "vLLM on a Jetson Thor, NVIDIA's NVFP4: 31.04 GiB")),),
    ),
    KnownModel(
        r"(?:diffusiongemma|gemma-4)-26b-a4b",
        _gemma4(30, 5, 8, 2, num_experts=128, num_experts_per_tok=8, n_shared_experts=1),
        "vLLM on a Jetson Thor, BF16: 51.62 GiB, 451,040 tokens, 33.42x",
    ),
    KnownModel(
        r"nemotron-?3-super-120b",
        _nemotron(40, 40, 8, 128, num_nextn_predict_layers=1, mtp_hybrid_override_pattern="*E"),
        "vLLM 0.19 on a GB10, with MTP: 18.04 GiB, 694,656 tokens, 2.63x",
    ),
    KnownModel(
        r"nemotron-?3-nano(?:-30b|-nvfp4)|nemotron-cascade-2-30b",
        _nemotron(23, 23, 6, 64, n_routed_experts=128, num_experts_per_tok=6, n_shared_experts=1),
    ),
    KnownModel(
        r"gpt-oss-120b",
        _gpt_oss(36, 128),
        loaded=((r"", MeasuredWeights(int(64.38 * GIB), "vLLM 0.14 (vllm#33155): 64.38 GiB")),),
    ),
    KnownModel(r"gpt-oss-20b", _gpt_oss(24, 32)),
    KnownModel(
        r"minimax-m2(?:\.[157])?(?![\d.])",
        _plain(62, 8, 128, 204800, num_attention_heads=48, hidden_size=3072, num_local_experts=256,
               num_experts_per_tok=8),
    ),
    KnownModel(r"llama-3\.[13]-70b", _plain(80, 8, 128, 131072)),
    KnownModel(r"llama-3\.1-8b", _plain(32, 8, 128, 131072)),
    KnownModel(r"phi-4-multimodal", _plain(32, 8, 128, 131072)),
    KnownModel(r"qwen-?3-32b", _plain(64, 8, 128, 40960)),
    KnownModel(r"qwen-?3-30b-a3b", _plain(48, 4, 128, 40960, num_experts=128, num_experts_per_tok=8)),
    KnownModel(r"smollm2-135m", _plain(30, 3, 64, 8192)),
)  # fmt: skip


@lru_cache(maxsize=1024)
def known_model(names: str) -> KnownModel | None:
    """The entry for a model by its names (Hub name, title), in any case; None when it is not here."""
    words = names.lower().replace("_", "-")
    return next((known for known in KNOWN if re.search(known.names, words)), None)


def loaded_weights(known: KnownModel, names: str) -> MeasuredWeights | None:
    """What a published log says that its weights take, for the format in the names."""
    words = names.lower()
    return next((found for pattern, found in known.loaded if re.search(pattern, words)), None)


@cache
def _facts(names: str) -> CheckpointFacts:
    known = next(known for known in KNOWN if known.names == names)
    return replace(facts_from(known.config, source="the model's published config"), quantization=None)


def facts_of(known: KnownModel) -> CheckpointFacts:
    """Its facts: layers and lengths. Nothing about quantization and weights, which differ by checkpoint."""
    return _facts(known.names)
