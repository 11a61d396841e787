"""Which format a checkpoint's weights have, by its own keys: repository names do not tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_tui.domain.models.checkpoint import Quantization, WeightFormat
from spark_tui.domain.models.json_keys import Keys

_MODELOPT: Final = (  # quant_algo holds -> format; the first that fits
    ("W4A16_NVFP4", WeightFormat.NVFP4_W4A16),
    ("NVFP4", WeightFormat.NVFP4),
    ("MXFP8", WeightFormat.MXFP8),
    ("MXFP4", WeightFormat.MXFP4),
    ("FP8", WeightFormat.FP8),
    ("INT8", WeightFormat.INT8),
    ("INT4", WeightFormat.INT4),
    ("W4A16", WeightFormat.INT4),
)
_COMPRESSED: Final = {
    "mxfp4-pack-quantized": WeightFormat.MXFP4,
    "mxfp8-quantized": WeightFormat.MXFP8,
    "float-quantized": WeightFormat.FP8,
    "pack-quantized": WeightFormat.INT4,
    "int-quantized": WeightFormat.INT8,
}


def quantization_of(config: Keys, hf_quant: Keys | None) -> Quantization | None:
    """From `config.json` (its nested text_config too) and `hf_quant_config.json`, ModelOpt's older place.

    A config that names no format is not quantized. Order and keys: vLLM 0.14 to 0.33.
    """
    text = config.inner("text_config")
    places = [config.inner("quantization_config"), config.inner("compression_config")]
    places += [text.inner("quantization_config"), text.inner("compression_config")] if text else []
    for found in places:
        if found is not None:
            return _stated(found)
    if hf_quant is not None:
        return _legacy(hf_quant)
    return Quantization("")


def _stated(found: Keys) -> Quantization:
    method = found.text("quant_method").lower()
    if method.startswith("modelopt"):
        return _modelopt(found, method)
    if method == "compressed-tensors":
        return _compressed(found)
    bits = found.integer("bits", "w_bit")
    formats: tuple[WeightFormat, ...]
    if method == "mxfp4":
        formats = (WeightFormat.MXFP4,)
    elif method in ("fp8", "fbgemm_fp8"):
        formats = (WeightFormat.FP8,)
    elif bits in (4, 8):
        formats = (WeightFormat.INT4 if bits == 4 else WeightFormat.INT8,)
    else:
        formats = (WeightFormat.OTHER,)
    excluded = found.texts("modules_to_not_convert") or found.texts("ignored_layers") or ()
    return Quantization(method or "unknown", formats, excluded, group_size=found.positive("group_size", "q_group_size"))


def _legacy(found: Keys) -> Quantization | None:
    producer, inner = found.inner("producer"), found.inner("quantization")
    if producer is None or inner is None or producer.text("name") != "modelopt":
        return None
    return _modelopt(inner, "modelopt")


def _modelopt(found: Keys, method: str) -> Quantization:
    layers = found.inners("quantized_layers")
    words = [layer.text("quant_algo") for layer in layers] if layers else [found.text("quant_algo")]
    formats = _unique(_modelopt_format(word) for word in words if word)
    groups = found.inners("config_groups")
    if formats == (WeightFormat.NVFP4,) and groups and all("input_activations" not in group for group in groups):
        formats = (WeightFormat.NVFP4_W4A16,)  # vLLM 0.29: no quantized activations
    excluded = found.texts("exclude_modules") or found.texts("ignore") or ()
    kv_cache = found.text("kv_cache_quant_algo").lower() or _kv_scheme(found)
    return Quantization(method, formats, excluded, kv_cache, found.positive("group_size"))


def _modelopt_format(word: str) -> WeightFormat:
    return next((kind for part, kind in _MODELOPT if part in word.upper()), WeightFormat.OTHER)


def _compressed(found: Keys) -> Quantization:
    groups = found.inners("config_groups")
    formats = [_group_format(group, found.text("format")) for group in groups]
    weights = [group.inner("weights") for group in groups]
    sizes = [part.positive("group_size") for part in weights if part is not None]
    if not formats:
        formats = [_COMPRESSED.get(found.text("format"), WeightFormat.OTHER)]
    return Quantization(
        "compressed-tensors",
        _unique(formats),
        found.texts("ignore") or (),
        _kv_scheme(found),
        next((size for size in sizes if size), None),
    )


def _group_format(group: Keys, whole: str) -> WeightFormat:
    """One group of modules: its own format, else the checkpoint's, else its bits."""
    weights = group.inner("weights")
    form = group.text("format") or whole
    bits = weights.integer("num_bits") if weights else None
    if "nvfp4" in form or (weights and weights.text("strategy") == "tensor_group" and bits == 4):
        return WeightFormat.NVFP4 if "input_activations" in group else WeightFormat.NVFP4_W4A16
    if weights and bits == 8 and form != "mxfp8-quantized":
        return WeightFormat.FP8 if weights.text("type") == "float" else WeightFormat.INT8
    return _COMPRESSED.get(form, WeightFormat.OTHER)


def _kv_scheme(found: Keys) -> str:
    scheme = found.inner("kv_cache_scheme")
    if scheme is None or scheme.integer("num_bits") != 8:
        return ""
    return "fp8" if scheme.text("type") == "float" else "int8"


def _unique(formats: Iterable[WeightFormat]) -> tuple[WeightFormat, ...]:
    return tuple(dict.fromkeys(formats))
