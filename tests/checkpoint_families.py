"""The tensors of public checkpoints, by name, dtype and shape, family by family, as their configs and quantization
files make them.

Written from the published architectures (the model classes of transformers and vLLM). That a family is right is shown
by the count of weights: it must be, to the last one, what the Hub states for the public checkpoint. The experts of one
layer are alike: one tensor, with their number in front of its shape, stands for the same one of all of them.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spark_tui.catalog.models.model.weights import Tensor

Config = Mapping[str, Any]
_BYTES = {"BF16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1}


class Shapes:
    """Collects tensors. `stored` tells how the weight of a module is kept: `BF16`, `FP8`, `FP8 blocks` or `NVFP4`."""

    def __init__(self, stored: Callable[[str], str] = lambda _: "BF16") -> None:
        self.tensors: list[Tensor] = []
        self._stored = stored

    def plain(self, name: str, *shape: int, dtype: str = "BF16") -> None:
        """A tensor that no quantization touches."""
        self.tensors.append(Tensor(name, dtype, shape, math.prod(shape) * _BYTES[dtype]))

    def linear(self, module: str, out: int, into: int, *, bias: bool = False, copies: int = 1) -> None:
        """A matrix, with the scales of its format. `copies`: it stands for that many of the same shape."""
        stack = (copies,) if copies > 1 else ()
        match self._stored(module):
            case "NVFP4":
                self.plain(f"{module}.weight", *stack, out, into // 2, dtype="U8")
                self.plain(f"{module}.weight_scale", *stack, out, into // 16, dtype="F8_E4M3")
                self.plain(f"{module}.weight_scale_2", *stack, 1, dtype="F32")
                self.plain(f"{module}.input_scale", *stack, 1, dtype="F32")
            case "FP8":
                self.plain(f"{module}.weight", *stack, out, into, dtype="F8_E4M3")
                self.plain(f"{module}.weight_scale", *stack, 1, dtype="F32")
                self.plain(f"{module}.input_scale", *stack, 1, dtype="F32")
            case "FP8 blocks":
                self.plain(f"{module}.weight", *stack, out, into, dtype="F8_E4M3")
                self.plain(f"{module}.weight_scale_inv", *stack, -(-out // 128), -(-into // 128), dtype="F32")
            case _:
                self.plain(f"{module}.weight", *stack, out, into)
        if bias:
            self.plain(f"{module}.bias", *stack, out)

    def norms(self, prefix: str, size: int, *names: str, bias: bool = False) -> None:
        """Norms of one width."""
        for name in names:
            self.plain(f"{prefix}{name}.weight", size)
            if bias:
                self.plain(f"{prefix}{name}.bias", size)

    def gated(self, prefix: str, hidden: int, inner: int, *, copies: int = 1) -> None:
        """Gate, up and down."""
        self.linear(f"{prefix}.gate_proj", inner, hidden, copies=copies)
        self.linear(f"{prefix}.up_proj", inner, hidden, copies=copies)
        self.linear(f"{prefix}.down_proj", hidden, inner, copies=copies)

    def ends(self, prefix: str, vocabulary: int, hidden: int, head: str = "lm_head") -> None:
        """Embedding, last norm and output head."""
        self.plain(f"{prefix}embed_tokens.weight", vocabulary, hidden)
        self.norms(prefix, hidden, "norm")
        if head:
            self.linear(head, vocabulary, hidden)


def stored_by(found: Config) -> Callable[[str], str]:
    """How a module's weight is kept, by the checkpoint's own files."""
    if "quantized_modules" in found:
        kept = dict(quantized_layers(found["quantized_modules"]))
        return lambda module: kept.get(module, "BF16")
    if "hf_quant" in found:
        left = found["hf_quant"]["quantization"]["exclude_modules"]
        exact, patterns = set(left), [each for each in left if "*" in each]
        return lambda module: (
            "BF16" if module in exact or any(fnmatch.fnmatch(module, each) for each in patterns) else "NVFP4"
        )
    if found["config"].get("quantization_config", {}).get("quant_method") == "fp8":
        kept_wide = ("lm_head", "gate", "eh_proj", "head")  # DeepSeek-V3: output heads, routers, the drafting joint
        return lambda module: "BF16" if module.rpartition(".")[2] in kept_wide else "FP8 blocks"
    return lambda _: "BF16"


def quantized_layers(modules: Mapping[str, Mapping[str, list[int]]]) -> Iterable[tuple[str, str]]:
    """The map of ModelOpt's `quantized_layers`, module by module, from its classes. (512 experts for each `*`.)"""
    for form, classes in modules.items():
        for leaf, layers in classes.items():
            for layer in layers:
                names = (leaf.replace("*", str(each)) for each in range(512)) if "*" in leaf else (leaf,)
                yield from ((f"backbone.layers.{layer}.mixer.{name}", form) for name in names)


def tensors_of(found: Config) -> list[Tensor]:
    """All tensors of the checkpoint of a fixture."""
    config = found["config"]
    shapes = Shapes(stored_by(found))
    family = config["model_type"]
    _FAMILIES[family](shapes, config)
    return shapes.tensors


# --- attention ----------------------------------------------------------------------------------------------


def _attention(shapes: Shapes, prefix: str, config: Config, *, gate: int = 1, bias: bool = False) -> None:
    """Grouped queries. `gate` 2: the query projection carries an output gate."""
    hidden, heads, kv = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or hidden // heads
    shapes.linear(f"{prefix}.q_proj", heads * size * gate, hidden, bias=bias)
    shapes.linear(f"{prefix}.k_proj", kv * size, hidden, bias=bias)
    shapes.linear(f"{prefix}.v_proj", kv * size, hidden, bias=bias)
    shapes.linear(f"{prefix}.o_proj", hidden, heads * size, bias=bias)


def _latent_attention(shapes: Shapes, prefix: str, config: Config) -> None:
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    rope, nope, value = config["qk_rope_head_dim"], config["qk_nope_head_dim"], config["v_head_dim"]
    shapes.linear(f"{prefix}.q_a_proj", config["q_lora_rank"], hidden)
    shapes.norms(f"{prefix}.", config["q_lora_rank"], "q_a_layernorm")
    shapes.linear(f"{prefix}.q_b_proj", heads * (nope + rope), config["q_lora_rank"])
    shapes.linear(f"{prefix}.kv_a_proj_with_mqa", rank + rope, hidden)
    shapes.norms(f"{prefix}.", rank, "kv_a_layernorm")
    shapes.linear(f"{prefix}.kv_b_proj", heads * (nope + value), rank)
    shapes.linear(f"{prefix}.o_proj", hidden, heads * value)


def _delta_net(shapes: Shapes, prefix: str, config: Config, *, joined: bool) -> None:
    """A gated delta net. `joined`: Qwen3-Next keeps its projections in two matrices, Qwen3.5 in four."""
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    if joined:
        shapes.linear(f"{prefix}.in_proj_qkvz", 2 * keys + 2 * values, hidden)
        shapes.linear(f"{prefix}.in_proj_ba", 2 * heads, hidden)
    else:
        shapes.linear(f"{prefix}.in_proj_qkv", 2 * keys + values, hidden)
        shapes.linear(f"{prefix}.in_proj_z", values, hidden)
        shapes.linear(f"{prefix}.in_proj_b", heads, hidden)
        shapes.linear(f"{prefix}.in_proj_a", heads, hidden)
    shapes.plain(f"{prefix}.conv1d.weight", 2 * keys + values, 1, config["linear_conv_kernel_dim"])
    shapes.plain(f"{prefix}.dt_bias", heads)
    shapes.plain(f"{prefix}.A_log", heads)
    shapes.norms(f"{prefix}.", config["linear_value_head_dim"], "norm")
    shapes.linear(f"{prefix}.out_proj", hidden, values)


# --- families -----------------------------------------------------------------------------------------------


def _dense(shapes: Shapes, config: Config, prefix: str = "model.", head: str = "lm_head") -> None:
    """Llama, Mistral, Qwen3 and its mixtures."""
    hidden = config["hidden_size"]
    shapes.ends(prefix, config["vocab_size"], hidden, head)
    for number in range(config["num_hidden_layers"]):
        layer = f"{prefix}layers.{number}."
        _attention(shapes, f"{layer}self_attn", config)
        if config["model_type"].startswith("qwen3"):
            shapes.norms(f"{layer}self_attn.", config["head_dim"], "q_norm", "k_norm")
        shapes.norms(layer, hidden, "input_layernorm", "post_attention_layernorm")
        if "num_experts" in config:
            _experts(shapes, f"{layer}mlp", config)
        else:
            shapes.gated(f"{layer}mlp", hidden, config["intermediate_size"])


def _experts(shapes: Shapes, prefix: str, config: Config, *, fused: bool = False) -> None:
    """Qwen's mixtures: router, routed experts, and a shared one behind a gate of its own where there is one."""
    hidden, inner, count = config["hidden_size"], config["moe_intermediate_size"], config["num_experts"]
    shapes.linear(f"{prefix}.gate", count, hidden)
    if fused:
        shapes.plain(f"{prefix}.experts.gate_up_proj", count, 2 * inner, hidden)
        shapes.plain(f"{prefix}.experts.down_proj", count, hidden, inner)
    else:
        shapes.gated(f"{prefix}.experts.0", hidden, inner, copies=count)
    if "shared_expert_intermediate_size" in config:
        shapes.gated(f"{prefix}.shared_expert", hidden, config["shared_expert_intermediate_size"])
        shapes.linear(f"{prefix}.shared_expert_gate", 1, hidden)


def _qwen_hybrid(shapes: Shapes, config: Config) -> None:
    """Qwen3-Next, Qwen3.5 and Qwen3.6: delta nets, every fourth layer attention, one layer for drafting."""
    text = config.get("text_config", config)
    prefix = "model.language_model." if "text_config" in config else "model."
    hidden, joined = text["hidden_size"], text is config
    shapes.ends(prefix, text["vocab_size"], hidden)
    for number in range(text["num_hidden_layers"]):
        layer = f"{prefix}layers.{number}."
        if (number + 1) % 4:
            _delta_net(shapes, f"{layer}linear_attn", text, joined=joined)
        _qwen_layer(shapes, layer, text, attention=(number + 1) % 4 == 0)
    shapes.linear("mtp.fc", hidden, 2 * hidden)
    shapes.norms("mtp.", hidden, "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    _qwen_layer(shapes, "mtp.layers.0.", text, attention=True)
    if "vision_config" in config:
        _qwen_vision(shapes, config["vision_config"])


def _qwen_layer(shapes: Shapes, layer: str, text: Config, *, attention: bool) -> None:
    if attention:
        _attention(shapes, f"{layer}self_attn", text, gate=2)
        shapes.norms(f"{layer}self_attn.", text["head_dim"], "q_norm", "k_norm")
    shapes.norms(layer, text["hidden_size"], "input_layernorm", "post_attention_layernorm")
    if "num_experts" in text:
        _experts(shapes, f"{layer}mlp", text, fused=text["model_type"].startswith("qwen3_5"))
    else:
        shapes.gated(f"{layer}mlp", text["hidden_size"], text["intermediate_size"])


def _qwen_vision(shapes: Shapes, vision: Config) -> None:
    size, inner, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    merged = size * vision["spatial_merge_size"] ** 2
    shapes.plain("model.visual.patch_embed.proj.weight", size, 3, vision["temporal_patch_size"], patch, patch)
    shapes.plain("model.visual.patch_embed.proj.bias", size)
    shapes.plain("model.visual.pos_embed.weight", vision["num_position_embeddings"], size)
    for number in range(vision["depth"]):
        block = f"model.visual.blocks.{number}."
        shapes.norms(block, size, "norm1", "norm2", bias=True)
        shapes.linear(f"{block}attn.qkv", 3 * size, size, bias=True)
        shapes.linear(f"{block}attn.proj", size, size, bias=True)
        shapes.linear(f"{block}mlp.linear_fc1", inner, size, bias=True)
        shapes.linear(f"{block}mlp.linear_fc2", size, inner, bias=True)
    shapes.norms("model.visual.merger.", size, "norm", bias=True)
    shapes.linear("model.visual.merger.linear_fc1", merged, merged, bias=True)
    shapes.linear("model.visual.merger.linear_fc2", vision["out_hidden_size"], merged, bias=True)


def _gpt_oss(shapes: Shapes, config: Config) -> None:
    hidden, inner, count = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    shapes.ends("model.", config["vocab_size"], hidden)
    for number in range(config["num_hidden_layers"]):
        layer = f"model.layers.{number}."
        _attention(shapes, f"{layer}self_attn", config, bias=True)
        shapes.plain(f"{layer}self_attn.sinks", config["num_attention_heads"])
        shapes.norms(layer, hidden, "input_layernorm", "post_attention_layernorm")
        shapes.linear(f"{layer}mlp.router", count, hidden, bias=True)
        for name, rows, columns in (("gate_up_proj", 2 * inner, hidden), ("down_proj", hidden, inner)):
            shapes.plain(f"{layer}mlp.experts.{name}_blocks", count, rows, columns // 32, 16, dtype="U8")
            shapes.plain(f"{layer}mlp.experts.{name}_scales", count, rows, columns // 32, dtype="U8")
            shapes.plain(f"{layer}mlp.experts.{name}_bias", count, rows)


def _gemma3(shapes: Shapes, config: Config) -> None:
    text, vision = config["text_config"], config["vision_config"]
    hidden, size = text["hidden_size"], vision["hidden_size"]
    shapes.ends("language_model.model.", 262208, hidden, head="")
    for number in range(text["num_hidden_layers"]):
        layer = f"language_model.model.layers.{number}."
        _attention(shapes, f"{layer}self_attn", text)
        shapes.norms(f"{layer}self_attn.", text["head_dim"], "q_norm", "k_norm")
        shapes.norms(layer, hidden, *_GEMMA_NORMS)
        shapes.gated(f"{layer}mlp", hidden, text["intermediate_size"])
    tower = "vision_tower.vision_model."
    shapes.plain(f"{tower}embeddings.patch_embedding.weight", size, 3, vision["patch_size"], vision["patch_size"])
    shapes.plain(f"{tower}embeddings.patch_embedding.bias", size)
    positions = (vision["image_size"] // vision["patch_size"]) ** 2
    shapes.plain(f"{tower}embeddings.position_embedding.weight", positions, size)
    for number in range(vision["num_hidden_layers"]):
        block = f"{tower}encoder.layers.{number}."
        shapes.norms(block, size, "layer_norm1", "layer_norm2", bias=True)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes.linear(f"{block}self_attn.{name}", size, size, bias=True)
        shapes.linear(f"{block}mlp.fc1", vision["intermediate_size"], size, bias=True)
        shapes.linear(f"{block}mlp.fc2", size, vision["intermediate_size"], bias=True)
    shapes.norms(tower, size, "post_layernorm", bias=True)
    shapes.plain("multi_modal_projector.mm_input_projection_weight", size, hidden)
    shapes.norms("multi_modal_projector.", size, "mm_soft_emb_norm")


_GEMMA_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                "post_feedforward_layernorm")  # fmt: skip
_GEMMA_MIXTURE_NORMS = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")


def _gemma4(shapes: Shapes, config: Config) -> None:
    """The text model alone: its card counts no more."""
    text = config["text_config"]
    hidden, prefix = text["hidden_size"], "model.language_model."
    shapes.ends(prefix, text["vocab_size"], hidden, head="")
    for number, kind in enumerate(text["layer_types"]):
        layer = f"{prefix}layers.{number}."
        whole = kind == "full_attention"
        size = text["global_head_dim"] if whole else text["head_dim"]
        kv = text["num_global_key_value_heads"] if whole else text["num_key_value_heads"]
        heads = text["num_attention_heads"]
        shapes.linear(f"{layer}self_attn.q_proj", heads * size, hidden)
        shapes.linear(f"{layer}self_attn.k_proj", kv * size, hidden)
        if not whole:  # keys serve as values in the others
            shapes.linear(f"{layer}self_attn.v_proj", kv * size, hidden)
        shapes.linear(f"{layer}self_attn.o_proj", hidden, heads * size)
        shapes.norms(f"{layer}self_attn.", size, "q_norm", "k_norm")
        shapes.norms(layer, hidden, *_GEMMA_NORMS)
        shapes.plain(f"{layer}layer_scalar", 1)
        shapes.gated(f"{layer}mlp", hidden, text["intermediate_size"])
        if "num_experts" in text:
            count, inner = text["num_experts"], text["moe_intermediate_size"]
            shapes.linear(f"{layer}router.proj", count, hidden)
            shapes.plain(f"{layer}router.scale", hidden)
            shapes.plain(f"{layer}router.per_expert_scale", count)
            shapes.plain(f"{layer}experts.gate_up_proj", count, 2 * inner, hidden)
            shapes.plain(f"{layer}experts.down_proj", count, hidden, inner)
            shapes.norms(layer, hidden, *_GEMMA_MIXTURE_NORMS)


def _nemotron(shapes: Shapes, config: Config) -> None:
    """Nemotron-H: one mixer in each layer. Layers for drafting are of the same kinds."""
    hidden = config["hidden_size"]
    shapes.plain("backbone.embeddings.weight", config["vocab_size"], hidden)
    shapes.norms("backbone.", hidden, "norm_f")
    shapes.linear("lm_head", config["vocab_size"], hidden)
    for number, kind in enumerate(config["hybrid_override_pattern"]):
        shapes.norms(f"backbone.layers.{number}.", hidden, "norm")
        _NEMOTRON[kind](shapes, f"backbone.layers.{number}.mixer", config)
    for number, kind in enumerate(config.get("mtp_hybrid_override_pattern", "")):
        shapes.norms(f"mtp.layers.{number}.", hidden, "norm")
        _NEMOTRON[kind](shapes, f"mtp.layers.{number}.mixer", config)


def _mamba(shapes: Shapes, prefix: str, config: Config) -> None:
    hidden, heads = config["hidden_size"], config["mamba_num_heads"]
    inner, states = heads * config["mamba_head_dim"], config["n_groups"] * config["ssm_state_size"]
    shapes.linear(f"{prefix}.in_proj", 2 * inner + 2 * states + heads, hidden)
    shapes.plain(f"{prefix}.conv1d.weight", inner + 2 * states, 1, config["conv_kernel"])
    shapes.plain(f"{prefix}.conv1d.bias", inner + 2 * states)
    for name in ("A_log", "D", "dt_bias"):
        shapes.plain(f"{prefix}.{name}", heads)
    shapes.norms(f"{prefix}.", inner, "norm")
    shapes.linear(f"{prefix}.out_proj", hidden, inner)


def _nemotron_experts(shapes: Shapes, prefix: str, config: Config) -> None:
    """Up and down without a gate; in Super the routed ones work on a narrower row (`moe_latent_size`)."""
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    width, shared = config.get("moe_latent_size", hidden), config["moe_shared_expert_intermediate_size"]
    shapes.linear(f"{prefix}.gate", config["n_routed_experts"], hidden)
    shapes.plain(f"{prefix}.gate.e_score_correction_bias", config["n_routed_experts"])
    shapes.linear(f"{prefix}.experts.0.up_proj", inner, width, copies=config["n_routed_experts"])
    shapes.linear(f"{prefix}.experts.0.down_proj", width, inner, copies=config["n_routed_experts"])
    if width != hidden:
        shapes.linear(f"{prefix}.fc1_latent_proj", width, hidden)
        shapes.linear(f"{prefix}.fc2_latent_proj", hidden, width)
    shapes.linear(f"{prefix}.shared_experts.up_proj", shared, hidden)
    shapes.linear(f"{prefix}.shared_experts.down_proj", hidden, shared)


_NEMOTRON: Mapping[str, Callable[[Shapes, str, Config], None]] = {
    "M": _mamba, "E": _nemotron_experts, "*": _attention,
}  # fmt: skip


def _mistral3(shapes: Shapes, config: Config) -> None:
    vision, hidden = config["vision_config"], config["text_config"]["hidden_size"]
    size = vision["hidden_size"]
    _dense(shapes, config["text_config"], "language_model.model.", "language_model.lm_head")
    shapes.plain("vision_tower.patch_conv.weight", size, 3, vision["patch_size"], vision["patch_size"])
    shapes.norms("vision_tower.", size, "ln_pre")
    for number in range(vision["num_hidden_layers"]):
        block = f"vision_tower.transformer.layers.{number}."
        shapes.norms(block, size, "attention_norm", "ffn_norm")
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            shapes.linear(f"{block}attention.{name}", size, size)
        shapes.gated(f"{block}feed_forward", size, vision["intermediate_size"])
    shapes.norms("multi_modal_projector.", size, "norm")
    shapes.linear("multi_modal_projector.patch_merger.merging_layer", size, 4 * size)
    shapes.linear("multi_modal_projector.linear_1", hidden, size)
    shapes.linear("multi_modal_projector.linear_2", hidden, hidden)


def _deepseek(shapes: Shapes, config: Config) -> None:
    """DeepSeek-V3 and GLM-4.7-Flash; a layer for drafting stands behind the last one, with ends of its own."""
    hidden, last = config["hidden_size"], config["num_hidden_layers"]
    shapes.ends("model.", config["vocab_size"], hidden)
    for number in range(last + config.get("num_nextn_predict_layers", 0)):
        layer = f"model.layers.{number}."
        _latent_attention(shapes, f"{layer}self_attn", config)
        shapes.norms(layer, hidden, "input_layernorm", "post_attention_layernorm")
        if number < config["first_k_dense_replace"]:
            shapes.gated(f"{layer}mlp", hidden, config["intermediate_size"])
            continue
        inner = config["moe_intermediate_size"]
        shapes.linear(f"{layer}mlp.gate", config["n_routed_experts"], hidden)
        shapes.plain(f"{layer}mlp.gate.e_score_correction_bias", config["n_routed_experts"], dtype="F32")
        shapes.gated(f"{layer}mlp.experts.0", hidden, inner, copies=config["n_routed_experts"])
        shapes.gated(f"{layer}mlp.shared_experts", hidden, inner * config["n_shared_experts"])
    if "num_nextn_predict_layers" in config:
        draft = f"model.layers.{last}."
        shapes.norms(draft, hidden, "enorm", "hnorm", "shared_head.norm")
        shapes.linear(f"{draft}eh_proj", hidden, 2 * hidden)
        shapes.plain(f"{draft}embed_tokens.weight", config["vocab_size"], hidden)
        shapes.linear(f"{draft}shared_head.head", config["vocab_size"], hidden)


_FAMILIES: Mapping[str, Callable[[Shapes, Config], None]] = {
    "llama": _dense, "qwen3": _dense, "qwen3_moe": _dense, "qwen3_next": _qwen_hybrid, "qwen3_5": _qwen_hybrid,
    "qwen3_5_moe": _qwen_hybrid, "gpt_oss": _gpt_oss, "gemma3": _gemma3, "gemma4": _gemma4, "nemotron_h": _nemotron,
    "mistral3": _mistral3, "deepseek_v3": _deepseek, "glm4_moe_lite": _deepseek,
}  # fmt: skip
