"""Rules about the image: whether it runs on a Spark, holds what the model needs, and stays the same."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.domain.finding import Finding, Severity
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
from spark_tui.domain.presets.rules.context import GEMMA_CODER, LaunchContext, Rules

RULES = Rules()

NGC_SINCE: Final = (26, 2)
"""The guide, section 2: NVIDIA's images from 26.02 on; 25.12.post1 is their own for Nano on a Spark."""
_ARM: Final = ("arm64", "aarch64")
_GB10_TAG: Final = ("nightly", "cu13", "gemma")
_VERSIONED: Final = re.compile(r"\d+\.\d+|^v\d+|[0-9a-f]{12,}")


@RULES.add(any_engine=True)
def image_architecture(launch: LaunchContext) -> Finding | None:
    """A Spark is arm64: an amd64 image ends with `exec format error`."""
    image = launch.image
    if image is None or not image.architecture or launch.is_spark is not True:
        return None
    if image.architecture.lower().partition("/")[0] in _ARM:
        return None
    return Finding(
        "image_architecture",
        Severity.ERROR,
        "The image is built for another processor.",
        (f"{launch.spec.image}: {image.architecture}; a Spark is arm64",),
        "Choose a tag that is built for arm64, and pull it again.",
    )


@RULES.add(any_engine=True, spark=True)
def stable_image(launch: LaunchContext) -> Finding | None:
    """The guide: the stable image has no sm_121. Since 0.20 some run on a Spark, without all of its FP4 kernels
    (a log of v0.20.2 on GB10; vllm#50925)."""
    image, tag = launch.spec.image, tag_of(launch.spec.image)
    stable = tag == "latest" or re.match(r"v?\d+\.\d+\.\d+", tag) is not None
    if name_of(image) != OFFICIAL or not stable or any(mark in tag for mark in _GB10_TAG):
        return None
    newest = newest_possible(image)
    certain = newest is not None and newest < (0, 20, 0) and launch.is_spark is True
    return Finding(
        "stable_image",
        Severity.ERROR if certain else Severity.WARNING,
        "vLLM's stable image is not built for a Spark's GPU (sm_121).",
        (image,),
        "Use a CUDA 13 image (vllm/vllm-openai:cu130-nightly) or NVIDIA's (nvcr.io/nvidia/vllm).",
    )


@RULES.add(any_engine=True, spark=True)
def ngc_image_old(launch: LaunchContext) -> Finding | None:
    """NVIDIA's images before 26.02."""
    image = launch.spec.image
    release = ngc_release(image)
    if release is None or release >= NGC_SINCE or "post" in tag_of(image):
        return None
    return Finding(
        "ngc_image_old",
        Severity.WARNING,
        "This NVIDIA image is older than those for a Spark.",
        (f"{image}; they begin with {NGC_SINCE[0]}.{NGC_SINCE[1]:02d}",),
        "Use nvcr.io/nvidia/vllm:26.04-py3 or newer.",
    )


@RULES.add(spark=True)
def nano_image(launch: LaunchContext) -> Finding | None:
    """The card of Nano names the one image for a Spark."""
    image, wanted = launch.spec.image, f"{NGC}:25.12.post1-py3"
    if not launch.named(r"nvidia/nvidia-nemotron-3-nano-30b-a3b-nvfp4") or image.startswith(wanted):
        return None
    return Finding(
        "nano_image",
        Severity.INFO,
        "NVIDIA names another image for Nemotron-3-Nano on a Spark.",
        (f"{image} instead of {wanted}",),
        f"Use {wanted}, the one it was tested with.",
    )


@RULES.add()
def image_too_old_for_model(launch: LaunchContext) -> Finding | None:
    """gemma-4-12B-coder needs a nightly that knows Gemma4UnifiedForConditionalGeneration; 0.19 does not."""
    newest = launch.newest_vllm
    if not launch.named(GEMMA_CODER) or newest is None or newest >= (0, 20, 0):
        return None
    return Finding(
        "image_too_old_for_model",
        Severity.WARNING,
        "This image's vLLM is older than the model's architecture.",
        (f"{launch.spec.image}: vLLM {shown_version(newest)} at most; the model needs a recent nightly",),
        "Use vllm/vllm-openai:nightly.",
    )


@RULES.add(any_engine=True)
def provisional_image(launch: LaunchContext) -> Finding | None:
    """The card: flags and image are tentative until vLLM publishes one."""
    if not launch.named("diffusiongemma"):
        return None
    return Finding(
        "provisional_image",
        Severity.INFO,
        "Image and flags of DiffusionGemma are provisional.",
        (launch.spec.image,),
        "Check vLLM's releases before you rely on it.",
    )


@RULES.add(any_engine=True)
def floating_tag(launch: LaunchContext) -> Finding | None:
    """A tag that moves gives another server on the next pull. A name without a registry is built on the machine."""
    image, tag = launch.spec.image, tag_of(launch.spec.image)
    if "@" in image or "/" not in image or _VERSIONED.search(tag):
        return None
    pinned = launch.image.digest.rpartition("@")[2] if launch.image is not None else ""
    return Finding(
        "floating_tag",
        Severity.INFO,
        f"The tag {tag} moves: the next pull may bring another {launch.preset.server.title}.",
        (image + (f", downloaded: {pinned}" if pinned else ""),),
        f"Once it works, pin it in the recipe: container: {repository(image)}@{pinned or 'sha256:...'}",
    )
