"""The tensors of public checkpoints, by name, dtype and shape, as their configs and quantization files make them.

Written from the published architectures (the model classes of transformers and vLLM). That a family is right is shown
by the count of weights: it must be, to the last one, what the Hub states for the public checkpoint. The experts of one
layer are alike: one tensor, with their number in front of its shape, stands for the same one of all of them.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spark_tui.domain.models.weights import Tensor

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
