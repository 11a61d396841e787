"""The FP4 verdict: does the model run on the GPU's FP4 units, and if not, was that meant.

Two kernels are chosen, one for linear layers and one for experts, and each has its line in the log. Weight-only
kernels (Marlin, Humming, CuTe-DSL W4A16) keep weights in FP4 and compute in BF16: right for a W4A16 checkpoint, a loss
for a W4A4 one. The warning that the GPU has no native support for FP4 is printed whenever Marlin is chosen, on any GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts, WeightFormat
from spark_tui.base.engine.image import start_script
from spark_tui.base.engine.runtimes import known_models
from spark_tui.base.finding import Change
from spark_tui.base.text import lazy_pattern
from spark_tui.observe.explain.model.sizing import Suggestion, version_of
from spark_tui.observe.explain.model.timeline import EngineFacts, Kernel, LogEvidence, Topic


class Fp4(StrEnum):
    """The verdict. Stable words: scripts may rely on them."""

    NATIVE = "native"
    WEIGHT_ONLY_INTENDED = "weight_only_intended"
    WEIGHT_ONLY_FALLBACK = "weight_only_fallback"
    EMULATION = "emulation"
    NOT_FP4 = "not_fp4"
    UNKNOWN = "unknown"


class Fp4Verdict(Struct, frozen=True):
    """The verdict with its grounds. `cost` and `advice` are sentences, empty where there is nothing to say;
    `change` are the pairs that try it otherwise. `guess`: the log and the config do not prove it.
    `linear` and `moe` are the engine's names of the kernels, the model's own first."""

    verdict: Fp4
    summary: str
    linear: str = ""
    moe: str = ""
    evidence: tuple[LogEvidence | Kernel, ...] = ()
    cost: str = ""
    advice: str = ""
    change: Change = ()
    guess: bool = False
    mixed: bool = False
    """Some layers are weight-only beside native ones."""


class KernelPath(StrEnum):
    """How one kernel computes."""

    NATIVE = "native"
    WEIGHT_ONLY = "weight-only"
    EMULATED = "emulated"
    UNKNOWN = "unknown"


WEIGHT_ONLY: Final = lazy_pattern(r"MARLIN|HUMMING|W4A16|A16W", re.IGNORECASE)
"""Names of kernels that take activations in 16 bit (vLLM 0.14 to 0.33, `a16_kernels`)."""
_EMULATED: Final = lazy_pattern(r"EMULATION", re.IGNORECASE)
_NATIVE: Final = lazy_pattern(r"CUT[LA]\w*SS|TRT-?LLM|CUDNN|CUTE-?DSL|FBGEMM|B12X|TORCH", re.IGNORECASE)
_MXFP4_16_BIT: Final = lazy_pattern(r"BF16|TRITON", re.IGNORECASE)
_MXFP4_NATIVE: Final = lazy_pattern(r"MXFP8|MXFP4_MXFP4|MXFP4LINEAR|CUTLASS|TRTLLM|B12X|DEEPGEMM", re.IGNORECASE)


def path_of(kernel: Kernel) -> KernelPath:
    """How a kernel computes, by its name."""
    if _EMULATED.search(kernel.name):
        return KernelPath.EMULATED
    if WEIGHT_ONLY.search(kernel.name):
        return KernelPath.WEIGHT_ONLY
    if kernel.format == "MXFP4":
        if _MXFP4_16_BIT.search(kernel.name):
            return KernelPath.WEIGHT_ONLY
        return KernelPath.NATIVE if _MXFP4_NATIVE.search(kernel.name) else KernelPath.UNKNOWN
    return KernelPath.NATIVE if _NATIVE.search(kernel.name) else KernelPath.UNKNOWN


# --- the verdict ------------------------------------------------------------------------------------------

_FP4_WORDS: Final = ("nvfp4", "mxfp4", "modelopt_fp4", "petit")
_OTHER_WORDS: Final = frozenset((
    "fp8", "fbgemm_fp8", "ptpc_fp8", "modelopt_fp8", "modelopt_mxfp8", "mxfp8", "awq", "awq_marlin", "gptq",
    "gptq_marlin", "gptq_marlin_24", "auto_gptq", "auto_awq", "bitsandbytes", "gguf", "hqq", "rtn", "int8", "int4",
    "experts_int8", "moe_wna16", "tpu_int8", "deepspeedfp",
))  # fmt: skip
"""Words for `quantization` that never mean FP4. `modelopt`, `compressed-tensors`, `quark` may or may not."""


def fp4_verdict(
    facts: EngineFacts,
    checkpoint: CheckpointFacts | None = None,
    argv: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Fp4Verdict:
    """The verdict from the checkpoint's format, the flags and both log lines.

    `argv` is the engine's command and `environment` its variables; a variable whose value is not known has an empty
    one. All may be missing: then the log alone decides, and says when it guesses. Never raises.
    """
    fp4 = tuple(kernel for kernel in facts.kernels if kernel.format in _FP4_FORMATS)
    weight_only, native, emulated = (
        tuple(kernel for kernel in fp4 if path_of(kernel) is path)
        for path in (KernelPath.WEIGHT_ONLY, KernelPath.NATIVE, KernelPath.EMULATED)
    )
    named = Fp4Verdict(Fp4.UNKNOWN, "", facts.fp4_linear, facts.fp4_moe)
    warned, logged = facts.proof(Topic.WEIGHT_ONLY), facts.proof(Topic.EMULATION)
    if emulated or logged:
        names = ", ".join(filter(None, (facts.fp4_linear, facts.fp4_moe)))
        summary = f"emulated{f': {names}' if names else ''}"
        evidence: tuple[LogEvidence | Kernel, ...] = (*emulated, *logged)
        return replace(
            named, verdict=Fp4.EMULATION, summary=summary, evidence=evidence, cost=_EMULATION_COST, advice=_NO_KERNEL
        )
    if not fp4 and not warned:
        return _without_kernels(facts, checkpoint)
    # Where both kinds are named for a part, single layers are weight-only by their own format.
    parts = tuple(
        part
        for part in ("linear", "moe")
        if any(k.part == part for k in weight_only) and not any(k.part == part for k in native)
    )
    if warned and native and not any(k.part == "linear" for k in fp4):
        parts = ("linear",)  # Marlin runs something, and it is not the experts
    note = _NOT_PROOF if warned else ""
    if not parts and (native or weight_only):
        summary = f"native: {_kernel_names(native)}"
        if weight_only:
            summary += f"; some layers weight-only ({_kernel_names(weight_only)}), normal for mixed checkpoints"
        kernels = tuple(k for k in facts.kernels if k in native or k in weight_only)
        return replace(
            named,
            verdict=Fp4.NATIVE,
            summary=summary,
            evidence=(*kernels, *warned),
            advice=note,
            mixed=bool(weight_only),
        )
    if not parts and not warned:
        return replace(named, summary=f"unknown kernel: {_kernel_names(fp4)}", evidence=fp4)
    parts, pins = parts or ("linear",), KernelSettings(argv, environment or {}, facts)
    meant, sure = _intent(facts, checkpoint, parts, pins)
    own = () if meant else tuple(part for part in parts if _by_recipe(facts, (part,)))
    names = _kernel_names(k for k in fp4 if k.part in parts and k.part not in own) or "Marlin"
    if meant:
        verdict, summary, guess = Fp4.WEIGHT_ONLY_INTENDED, f"weight-only by intent ({meant}): {names}", not sure
        advice = _try_without(pins, parts)
    else:
        asked = f"; as its published recipe: {_kernel_names(k for k in fp4 if k.part in own)}" if own else ""
        verdict, summary = Fp4.WEIGHT_ONLY_FALLBACK, f"weight-only by fallback: {names}{asked}"
        frozen = (*own, "moe") if facts.speculation.startswith("mtp") else own
        free = tuple(part for part in parts if part not in frozen)
        advice, guess = _try_native(facts, free) if free else Suggestion(_LEAVE), _formats(checkpoint) is None
    if native:
        summary += f"; native: {_kernel_names(native)}"
    return replace(
        named,
        verdict=verdict,
        summary=summary,
        evidence=(*fp4, *facts.proof(Topic.WEIGHT_ONLY, Topic.CHECKPOINT, Topic.BACKEND_REFUSED)),
        cost=_COST,
        advice=" ".join(filter(None, (advice.text, note))),
        change=advice.change,
        guess=guess,
    )


_FP4_FORMATS: Final = ("NVFP4", "MXFP4")
_NOT_PROOF: Final = (
    "vLLM prints its warning about missing native FP4 support whenever it chooses a Marlin kernel. GB10 has FP4 units."
)
_COST: Final = (
    "Weights stay 4-bit, so decoding for one user is memory-bound and loses little (30B-A3B: W4A16 74.8 tok/s, W4A4 "
    "58.3). Prefill and many concurrent requests are slower (400 instead of 786 tok/s at 16)."
)
_LEAVE: Final = "Leave the experts on Marlin: with MTP, FlashInfer's MoE kernels froze a Spark."
_EMULATION_COST: Final = "Every layer is unpacked to BF16 and multiplied without FP4 units: slower than any other path."
_NO_KERNEL: Final = (
    "No kernel in this image runs FP4 on this GPU, or VLLM_BATCH_INVARIANT is set. Use an image built for GB10 "
    "(sm_121) with FlashInfer, or a checkpoint in another format."
)


def _without_kernels(facts: EngineFacts, checkpoint: CheckpointFacts | None) -> Fp4Verdict:
    """No FP4 kernel in the log: not an FP4 model, or the log ends before it, or begins after it."""
    formats, logged = _formats(checkpoint), facts.proof(Topic.CHECKPOINT)
    if formats is not None and not _has_fp4(formats):
        return Fp4Verdict(Fp4.NOT_FP4, "not an FP4 model: " + (" + ".join(formats) or "unquantized"))
    if formats is not None:
        return Fp4Verdict(Fp4.UNKNOWN, "FP4 model; kernel not logged")
    if any("FP4" in line.text for line in logged) or any(word in facts.quantization for word in _FP4_WORDS):
        return Fp4Verdict(Fp4.UNKNOWN, "FP4 model; kernel not logged", evidence=logged)
    guess, form = False, ""
    if facts.unquantized:
        form = "unquantized"
    elif facts.quantization in _OTHER_WORDS:
        form = facts.quantization
    elif facts.load_gib is not None and facts.version and facts.quantization:
        # Kernels are named before the weights are loaded; a whole log without one is a model of another format.
        guess, form = True, ", ".join(sorted({kernel.format for kernel in facts.kernels})) or facts.quantization
    if form:
        return Fp4Verdict(Fp4.NOT_FP4, f"not an FP4 model: {form}", evidence=facts.kernels, guess=guess)
    return Fp4Verdict(Fp4.UNKNOWN, "unknown: no FP4 kernel logged")


_MXFP4_MEANT: Final = "MXFP4 checkpoints quantize only weights"


def _intent(
    facts: EngineFacts, checkpoint: CheckpointFacts | None, parts: tuple[str, ...], pins: KernelSettings
) -> tuple[str, bool]:
    """Why weight-only was meant and whether that is proven; empty where it was not."""
    formats = _formats(checkpoint)
    if formats is not None and _has_fp4(formats) and WeightFormat.NVFP4 not in formats:
        return "W4A16 checkpoint" if WeightFormat.MXFP4 not in formats else _MXFP4_MEANT, True
    if any("W4A16" in line.text for line in facts.proof(Topic.CHECKPOINT)):
        return "W4A16 checkpoint", True
    found = [pins.of(part) for part in parts]
    if all(words for words, _ in found):
        return ", ".join(dict.fromkeys(words for words, _ in found)), all(known for _, known in found)
    if recipe := _by_recipe(facts, parts):
        return f"as its published recipe: {recipe}", False
    if formats is not None:
        return "", True
    formats_of = {k.format for k in facts.kernels if k.part in parts}
    if formats_of == {"MXFP4"}:
        return _MXFP4_MEANT, False
    if re.search(r"w4a16|nvfp4a16", facts.model, re.IGNORECASE):
        return "W4A16 in the model name", False
    old = (version_of(facts) or (0, 20)) < (0, 20)
    if old and not any(k.part in parts and k.format in _FP4_FORMATS for k in facts.kernels):
        return "vLLM before 0.20 logs no kernel for W4A16 layers", False
    return "", False


def _by_recipe(facts: EngineFacts, parts: tuple[str, ...]) -> str:
    """The settings of the model's published recipe that ask for weight-only kernels in those parts; empty where it has
    none. A recipe for an image of its own counts for that image's vLLM."""
    name = facts.model.lower().replace("_", "-")
    for each in known_models().environment:
        script = start_script(each["image"])
        if re.search(each["names"], name) and (script is None or facts.version.startswith(script.vllm)):
            recipe = KernelSettings((each.get("argv", ""),), each["set"], EngineFacts())
            found = [recipe.of(part)[0] for part in parts]
            return ", ".join(dict.fromkeys(found)) if all(found) else ""
    return ""


def _formats(checkpoint: CheckpointFacts | None) -> tuple[WeightFormat, ...] | None:
    """The checkpoint's formats; an unquantized one has none, an unknown one is None."""
    return None if checkpoint is None or checkpoint.quantization is None else checkpoint.quantization.formats


def _has_fp4(formats: Iterable[WeightFormat]) -> bool:
    return any(fmt.value.partition(" ")[0].endswith("FP4") for fmt in formats)


def _try_without(pins: KernelSettings, parts: tuple[str, ...]) -> Suggestion:
    """A start without the pins, for a comparison; none where the checkpoint leaves no choice."""
    pinned = [part for part in parts if pins.of(part)[0]]
    if not pinned:
        return Suggestion("")
    pairs = tuple((f"{part}_backend", "auto") for part in pinned if WEIGHT_ONLY.search(pins.flags[part]))
    return Suggestion("To compare with native FP4, start once without this setting and benchmark both.", pairs)


def _try_native(facts: EngineFacts, parts: tuple[str, ...]) -> Suggestion:
    """Settings that ask for FlashInfer's CUTLASS kernels, the ones that run natively on GB10, by version."""
    version = version_of(facts) or (0, 33)
    pairs: Change = ()
    if "linear" in parts:
        new, old = ("linear_backend", "flashinfer_cutlass"), ("env.VLLM_NVFP4_GEMM_BACKEND", "flashinfer-cutlass")
        pairs += (new if version >= (0, 23) else old,)
    offered = _offered(facts)
    native = [flag for name, flag in _NATIVE_MOE if name in offered or not offered]
    if "moe" in parts and not native:
        more = f" ({', '.join(offered)})"
        return Suggestion(f"This image has no native FP4 backend for MoE layers{more}. {_NO_KERNEL}", pairs)
    if "moe" in parts and version >= (0, 17):
        pairs += (("moe_backend", native[0]),)
    elif "moe" in parts:
        pairs += (("env.VLLM_USE_FLASHINFER_MOE_FP4", "1"), ("env.VLLM_FLASHINFER_MOE_BACKEND", "throughput"))
    settings = " ".join(f"{key.removeprefix('env.')}={value}" for key, value in pairs)
    return Suggestion(
        f"Request the native GB10 kernel ({settings}). If unavailable, the start fails with a reason instead of "
        "falling back. An image built for sm_121 with FlashInfer has it.",
        pairs,
    )


_NATIVE_MOE: Final = (
    ("FLASHINFER_CUTLASS", "flashinfer_cutlass"),
    ("VLLM_CUTLASS", "cutlass"),
    ("FLASHINFER_B12X", "flashinfer_b12x"),
    ("B12X", "b12x"),
)
"""MoE backends that run FP4 natively on GB10, in vLLM's list and as a setting; the best known first."""


def _offered(facts: EngineFacts) -> list[str]:
    """The MoE backends that vLLM said it could choose from; empty where it did not."""
    texts = (k.text for k in facts.kernels if k.part == "moe" and k.format in _FP4_FORMATS)
    found = next((match for text in texts if (match := re.search(r"potential backends: \[([^\]]*)\]", text))), None)
    return re.findall(r"\w+", found[1]) if found else []


def _kernel_names(kernels: Iterable[Kernel]) -> str:
    """`linear FlashInferCutlassNvFp4LinearKernel, MoE FLASHINFER_CUTLASS`."""
    names = {"linear": "linear", "moe": "MoE"}
    return ", ".join(f"{names[kernel.part]} {kernel.name}" for kernel in kernels)


# --- settings that choose a weight-only kernel --------------------------------------------------------------


class KernelSettings:
    """Settings that choose kernels: from the command, from the variables, and as the log repeats them."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], facts: EngineFacts) -> None:
        text = " ".join(argv)[:20_000]
        self._environment = {**dict(_INLINE.findall(text)), **environment}
        self.flags = {"linear": facts.linear_backend, "moe": facts.moe_backend}
        for part in self.flags:
            match = re.search(_FLAG.format(part=part), text)
            self.flags[part] = match[1] if match else self.flags[part]

    def of(self, part: str) -> tuple[str, bool]:
        """The setting that asks for a weight-only kernel in that part and whether its value is known; or nothing."""
        flag = self.flags[part]
        if WEIGHT_ONLY.search(flag):
            return f"{part}_backend={flag}", True
        if flag and flag != "auto":
            return "", True
        for variable, part_of, pattern in _VARIABLES:
            value = self._environment.get(variable)
            if value is None or part_of not in (part, "both"):
                continue
            if value == "":
                return f"{variable} is set", False
            if re.search(pattern, value, re.IGNORECASE):
                return f"{variable}={value[:60]}", True
        return "", True


_FLAG: Final = r"(?<![\w'\"])--(?:kernel[-_]config\.)?{part}[-_]backend[= ]+[\"']?([\w\-]{{1,60}})"
_INLINE: Final = lazy_pattern(r"\b(VLLM_[A-Z0-9_]{1,60})=[\"']?([\w.,:\-]{1,120})")
# Variable, the part it rules, and the values that mean weight-only.
_VARIABLES: Final = (
    ("VLLM_NVFP4_GEMM_BACKEND", "linear", r"^marlin"),
    ("VLLM_TEST_FORCE_FP8_MARLIN", "both", r"^(?:1|true)"),
    ("VLLM_USE_FLASHINFER_MOE_FP4", "moe", r"^(?:0|false)"),
    ("VLLM_B12X_MOE_FP4_FORCE_A16", "moe", r"^(?:1|true)"),
    ("VLLM_MXFP4_USE_MARLIN", "both", r"^(?:1|true)"),
    ("VLLM_DISABLED_KERNELS", "linear", r"NvFp4"),
)
