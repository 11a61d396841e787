"""Rules about DFlash: drafting of whole blocks by a diffusion model that was trained for the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_tui.domain.presets.json_option import compact
from spark_tui.domain.presets.rules_case import Advice, Case, Rule, Severity
from spark_tui.domain.presets.rules_image_version import OWN_DFLASH, name_of, shown_version
from spark_tui.domain.presets.rules_speculation import without_drafting
from spark_tui.domain.presets.speculation import Speculation

DFLASH_SINCE: Final = (0, 21, 0)
# Who drafts for whom (the guide, 13.4): of these a mistake is certain.
_TRAINED_FOR: Final = ("gemma-4-31b-it", "laguna-xs.2", "qwen3.5-27b")
_DRAFTER_MARKS: Final = ("-speculator.dflash", "-speculator.eagle3", "-dflash", "-eagle3", "-eagle")


def _target(spec: Speculation) -> str:
    """The model that a drafter was trained for, by its name, in lower case; empty where the name does not say."""
    name = spec.drafter.rpartition("/")[2].lower().replace("_", "-")
    mark = next((mark for mark in _DRAFTER_MARKS if name.endswith(mark)), None)
    return name.removesuffix(mark) if mark else ""


def dflash_with_fp8_kv(case: Case) -> Advice | None:
    """The guide, 13.6: never together. Recipes for later drafters have both; those that it names do not."""
    spec, dtype = case.speculation, (case.option("--kv-cache-dtype") or "").lower()
    if spec is None or not spec.is_dflash or not dtype.startswith("fp8"):
        return None
    certain = _target(spec) in _TRAINED_FOR
    if not certain and not str(spec.config.get("kv_cache_dtype", dtype)).startswith("fp8"):
        return None  # the drafter has a KV cache of its own type
    return Advice(
        Severity.ERROR if certain else Severity.WARNING,
        "DFlash needs the KV cache in BF16.",
        f"--kv-cache-dtype {dtype} with method dflash",
        "Leave --kv-cache-dtype out, or launch without DFlash.",
        case.setting("kv_cache_dtype", "auto"),
    )


def dflash_without_drafter(case: Case) -> Advice | None:
    """DFlash has no drafter of its own."""
    spec = case.speculation
    if spec is None or not spec.is_dflash or spec.drafter:
        return None
    return Advice(
        Severity.ERROR,
        "DFlash needs a drafter, and the command names none.",
        f"--speculative-config {compact(spec.config)}",
        'Name the drafter that was trained for this model under "model", or launch without speculation.',
        without_drafting(case),
    )


def dflash_old_vllm(case: Case) -> Advice | None:
    """DFlash came with vLLM 0.21.0. AEON-7's and Z Lab's images carry it themselves, whatever they are numbered."""
    spec, newest = case.speculation, case.version_at_most
    image = case.situation.plan.spec.image
    if spec is None or not spec.is_dflash or newest is None or newest >= DFLASH_SINCE or name_of(image) in OWN_DFLASH:
        return None
    return Advice(
        Severity.ERROR,
        "This image's vLLM is too old for DFlash.",
        f"{image}: vLLM {shown_version(newest)} at most; DFlash needs {shown_version(DFLASH_SINCE)}",
        "Use a nightly image or the drafter's own, or launch without DFlash.",
        without_drafting(case),
    )


def gemma_4_dflash_image(case: Case) -> Advice | None:
    """Gemma 4 and DFlash need different attention kernels; Z Lab's build has both."""
    spec, image = case.speculation, case.situation.plan.spec.image
    if spec is None or not spec.is_dflash or not case.named("gemma-4") or name_of(image).startswith("z-lab/"):
        return None
    return Advice(
        Severity.WARNING,
        "DFlash for Gemma 4 was only in Z Lab's image.",
        image,
        "Start from the preset gemma-4-31b-it-dflash, or launch without speculation.",
        without_drafting(case),
    )


def drafter_of_another_model(case: Case) -> Advice | None:
    """A drafter is trained for one model: its name says which. A folder's name may not say what lies in it."""
    spec, local = case.speculation, case.preset.model.startswith("/")
    target = _target(spec) if spec is not None else ""
    if spec is None or not target or target in case.model or (local and not case.named(r"\d+b\b")):
        return None
    return Advice(
        Severity.ERROR if target in _TRAINED_FOR and not local else Severity.WARNING,
        "This drafter was trained for another model.",
        f"{spec.drafter} drafts for {target}; the model is {case.preset.model}",
        "Name the drafter of this very model, or launch without speculation.",
        without_drafting(case),
    )


RULES: Final[Mapping[str, Rule]] = {
    "dflash_with_fp8_kv": dflash_with_fp8_kv,
    "dflash_without_drafter": dflash_without_drafter,
    "dflash_old_vllm": dflash_old_vllm,
    "gemma_4_dflash_image": gemma_4_dflash_image,
    "drafter_of_another_model": drafter_of_another_model,
}
