"""What a checkpoint's own files say about it, as far as they say it. None: not stated, or not understood."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_tui.domain.models.chat_template import ChatAbilities


class LayerKind(StrEnum):
    """What one layer keeps of the tokens it has seen."""

    FULL = "full attention"
    SLIDING = "sliding-window attention"
    MLA = "multi-head latent attention"
    MAMBA = "Mamba-2"
    GDN = "gated delta net"


@dataclass(frozen=True, slots=True)
class AttentionLayers:
    """Layers of one kind that keep keys and values.

    `key_width` and `value_width` are elements per token and layer: KV heads times head size; MLA keeps one latent row
    per token, which counts as keys alone. `window` is in tokens, None for layers that see everything.
    """

    kind: LayerKind
    layers: int
    key_width: int
    value_width: int
    window: int | None = None

    @property
    def width(self) -> int:
        """Elements per token and layer, keys and values together."""
        return self.key_width + self.value_width


@dataclass(frozen=True, slots=True)
class StateLayers:
    """Layers of one kind that keep a state of fixed size per sequence instead of keys and values.

    `conv_channels` columns of `conv_taps` elements (16-bit) and `state_elements` elements of `state_bytes` each, per
    layer. `state_bytes` None: the config leaves it to the engine.
    """

    kind: LayerKind
    layers: int
    conv_channels: int
    conv_taps: int
    state_elements: int
    state_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: `routed` per layer, of which `per_token` run for a token, and `shared` that always run."""

    routed: int
    per_token: int
    shared: int = 0


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """A stretched context: `kind` as the config names it (`yarn`, `linear`, `llama3`), from `original` tokens."""

    kind: str
    factor: float | None = None
    original: int | None = None


class WeightFormat(StrEnum):
    """How weights are stored, in the field's words."""

    BF16 = "BF16"
    FP16 = "FP16"
    FP8 = "FP8"
    MXFP8 = "MXFP8"
    NVFP4 = "NVFP4"
    NVFP4_W4A16 = "NVFP4 W4A16"
    MXFP4 = "MXFP4"
    INT8 = "INT8"
    INT4 = "INT4"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the weights are quantized, by the checkpoint's own config.

    `method` is the config's word: `modelopt`, `compressed-tensors`, `mxfp4`, `fp8`, `awq`, `gptq`, ...; empty for a
    checkpoint that is not quantized. `formats` are what it holds, the main one first. `excluded` are the modules that
    stay as they were, as patterns. `kv_cache` is the KV dtype that it was calibrated for (`fp8`, `nvfp4`), empty for
    none. `group_size` counts weights per scale.
    """

    method: str
    formats: tuple[WeightFormat, ...] = ()
    excluded: tuple[str, ...] = ()
    kv_cache: str = ""
    group_size: int | None = None

    @property
    def words(self) -> str:
        """`NVFP4 (modelopt)`, `FP8 + NVFP4 (modelopt)`, `BF16`."""
        formats = " + ".join(self.formats) or "unquantized"
        return f"{formats} ({self.method})" if self.method else formats


class ModuleClass(StrEnum):
    """What a tensor is for, as far as its name tells."""

    EXPERTS = "experts"
    SHARED_EXPERT = "shared expert"
    ATTENTION = "attention"
    STATE = "state layers"
    MLP = "MLP"
    ROUTER = "router"
    EMBEDDING = "embedding"
    HEAD = "output head"
    NORM = "norms"
    VISION = "vision tower"
    AUDIO = "audio tower"
    DRAFT = "layers for drafting"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ModuleBytes:
    """The tensors of one class: all their bytes, those of them that are 16 bits wide or more, and their weights."""

    module: ModuleClass
    size: int
    wide: int
    parameters: int = 0


@dataclass(frozen=True, slots=True)
class WeightSummary:
    """All tensors of a checkpoint, in bytes by dtype and by class, largest first. `parameters` counts weights, not
    their scales, two for each byte of packed 4-bit weights. `complete`: no file is missing."""

    by_dtype: tuple[tuple[str, int], ...]
    by_module: tuple[ModuleBytes, ...]
    parameters: int
    tensors: int
    complete: bool = True

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(size for _, size in self.by_dtype)


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """One checkpoint. Sizes in bytes, lengths in tokens.

    `attention` and `states` group the layers by what they keep; None where the config is of a kind that is not
    understood, and then nothing can be said about KV. `mtp_declared` counts the layers for drafting that the config
    names, `mtp_layers` those whose weights are really there (quantized checkpoints often drop them). `dtype` is the
    dtype of what is not quantized. `weights` comes from the tensors' headers. `chat` is None without a chat template;
    `licence` is the model card's word, empty where it has none. `findings` are words about what looked wrong. `source`
    says where all of it is from.
    """

    architecture: str = ""
    model_type: str = ""
    dtype: str = ""
    quantization: Quantization | None = None
    layers: int | None = None
    hidden_size: int | None = None
    vocab_size: int | None = None
    attention: tuple[AttentionLayers, ...] | None = None
    states: tuple[StateLayers, ...] | None = None
    experts: Experts | None = None
    is_moe: bool | None = None
    max_position_embeddings: int | None = None
    rope_scaling: RopeScaling | None = None
    mtp_declared: int | None = None
    mtp_layers: int | None = None
    mtp_attention: AttentionLayers | None = None
    modalities: tuple[str, ...] = ()
    tied_embeddings: bool | None = None
    weights: WeightSummary | None = None
    sampling: tuple[tuple[str, float], ...] = ()
    chat: ChatAbilities | None = None
    licence: str = ""
    findings: tuple[str, ...] = ()
    source: str = ""

    @property
    def quant_method(self) -> str | None:
        """`modelopt`, `compressed-tensors`, ...; empty when it is not quantized, None when that is not known."""
        return None if self.quantization is None else self.quantization.method

    @property
    def has_ssm(self) -> bool | None:
        """Whether some layers keep a state instead of keys and values; None when the layers are not understood."""
        return None if self.states is None else bool(self.states)


@dataclass(frozen=True, slots=True)
class CheckpointProblem:
    """A file of a checkpoint that cannot be used, and why. Words for the screen; nothing of it is executed."""

    file: str
    reason: str
