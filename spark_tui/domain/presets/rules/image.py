"""Rules about the image: whether it runs on a Spark, holds what the model needs, and stays the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from spark_tui.domain.presets.image import (
    NGC,
    OFFICIAL,
    name_of,
    newest_possible,
    ngc_release,
    repository,
    shown_version,
    tag_of,
)
from spark_tui.domain.presets.rules.context import GEMMA_CODER, Advice, Case, Rule, Severity

NGC_SINCE: Final = (26, 2)
"""The guide, section 2: NVIDIA's images from 26.02 on; 25.12.post1 is their own for Nano on a Spark."""
_ARM: Final = ("arm64", "aarch64")
_GB10_TAG: Final = ("nightly", "cu13", "gemma")
_VERSIONED: Final = re.compile(r"\d+\.\d+|^v\d+|[0-9a-f]{12,}")


def _image(case: Case) -> str:
    return case.situation.plan.spec.image


def image_architecture(case: Case) -> Advice | None:
    """A Spark is arm64: an amd64 image ends with `exec format error`."""
    image = case.situation.image
    if image is None or not image.architecture or case.situation.is_spark is not True:
        return None
    if image.architecture.lower().partition("/")[0] in _ARM:
        return None
    return Advice(
        Severity.ERROR,
        "The image is built for another processor.",
        f"{_image(case)}: {image.architecture}; a Spark is arm64",
        "Choose a tag that is built for arm64, and pull it again.",
    )


def stable_image(case: Case) -> Advice | None:
    """The guide: the stable image has no sm_121. Since 0.20 some run on a Spark, without all of its FP4 kernels
    (a log of v0.20.2 on GB10; vllm#50925)."""
    image = _image(case)
    tag = tag_of(image)
    stable = tag == "latest" or re.match(r"v?\d+\.\d+\.\d+", tag) is not None
    if name_of(image) != OFFICIAL or not stable or any(mark in tag for mark in _GB10_TAG) or not case.may_be_spark:
        return None
    newest = newest_possible(image)
    old = newest is not None and newest < (0, 20, 0)
    certain = old and case.situation.is_spark is True
    return Advice(
        Severity.ERROR if certain else Severity.WARNING,
        "vLLM's stable image is not built for a Spark's GPU (sm_121).",
        image,
        "Use a CUDA 13 image (vllm/vllm-openai:cu130-nightly) or NVIDIA's (nvcr.io/nvidia/vllm).",
    )


def ngc_image_old(case: Case) -> Advice | None:
    """NVIDIA's images before 26.02."""
    release = ngc_release(_image(case))
    if release is None or release >= NGC_SINCE or "post" in tag_of(_image(case)) or not case.may_be_spark:
        return None
    return Advice(
        Severity.WARNING,
        "This image of NVIDIA's is older than those for a Spark.",
        f"{_image(case)}; they begin with {NGC_SINCE[0]}.{NGC_SINCE[1]:02d}",
        "Use nvcr.io/nvidia/vllm:26.04-py3 or newer.",
    )


def nano_image(case: Case) -> Advice | None:
    """The card of Nano names the one image for a Spark."""
    wanted = f"{NGC}:25.12.post1-py3"
    if not case.named(r"nvidia/nvidia-nemotron-3-nano-30b-a3b-nvfp4") or _image(case).startswith(wanted):
        return None
    if not case.is_vllm or not case.may_be_spark:
        return None
    return Advice(
        Severity.NOTE,
        "NVIDIA names another image for Nemotron-3-Nano on a Spark.",
        f"{_image(case)} instead of {wanted}",
        f"Use {wanted}, the one it was tested with.",
    )


def image_too_old_for_model(case: Case) -> Advice | None:
    """gemma-4-12B-coder needs a nightly that knows Gemma4UnifiedForConditionalGeneration; 0.19 does not."""
    newest = case.version_at_most
    if not case.is_vllm or not case.named(GEMMA_CODER) or newest is None or newest >= (0, 20, 0):
        return None
    return Advice(
        Severity.WARNING,
        "This image's vLLM is older than the model's architecture.",
        f"{_image(case)}: vLLM {shown_version(newest)} at most; the model needs a recent nightly",
        "Use vllm/vllm-openai:nightly.",
    )


def provisional_image(case: Case) -> Advice | None:
    """The card: flags and image are tentative until vLLM publishes one."""
    if not case.named("diffusiongemma"):
        return None
    return Advice(
        Severity.NOTE,
        "Image and flags of DiffusionGemma are provisional.",
        _image(case),
        "Look at vLLM's releases before you rely on it.",
    )


def floating_tag(case: Case) -> Advice | None:
    """A tag that moves gives another server on the next pull. A name without a registry is built here."""
    image, tag = _image(case), tag_of(_image(case))
    if "@" in image or "/" not in image or _VERSIONED.search(tag):
        return None
    facts = case.situation.image
    digest = facts.digest if facts is not None else ""
    pinned = digest.rpartition("@")[2]
    return Advice(
        Severity.NOTE,
        f"The tag {tag} moves: the next pull may bring another {case.preset.server.title}.",
        f"{image}" + (f", here {pinned}" if pinned else ""),
        f"Once it works, pin it in the recipe: container: {repository(image)}@{pinned or 'sha256:...'}",
    )


RULES: Final[Mapping[str, Rule]] = {
    "image_architecture": image_architecture,
    "stable_image": stable_image,
    "ngc_image_old": ngc_image_old,
    "nano_image": nano_image,
    "image_too_old_for_model": image_too_old_for_model,
    "provisional_image": provisional_image,
    "floating_tag": floating_tag,
}
