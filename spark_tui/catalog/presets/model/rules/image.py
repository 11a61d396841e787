"""Rules about the image: whether it runs on a Spark, holds what the model needs, and stays the same."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.base.engine.image import (
    NGC,
    OFFICIAL,
    name_of,
    newest_possible,
    newest_server,
    ngc_release,
    parse_version,
    shown_version,
    tag_of,
)
from spark_tui.base.engine.runtimes import known_models
from spark_tui.catalog.presets.model.rules.context import (
    ERROR,
    INFO,
    WARNING,
    LaunchContext,
    Matches,
    RuleMatch,
    RuleTable,
)

RULES: Final = RuleTable()
NGC_SINCE: Final = (26, 2)
"""The guide, section 2: NVIDIA's images from 26.02 on; 25.12.post1 is their own for Nano on a Spark."""
_NANO_IMAGE: Final = f"{NGC}:25.12.post1-py3"
_ON_A_SPARK: Final = (0, 27, 1)
"""vLLM's recipes (2026-08) name v0.27.1 for the GB10, and others measured it there (sfxnz, 2026-09)."""
_GB10_TAG: Final = ("nightly", "cu13", "gemma")
_OWN_BUILD: Final = re.compile(r"\+|dev")
_VERSIONED: Final = re.compile(r"\d+\.\d+|^v\d+|[0-9a-f]{12,}")


@RULES.add(
    WARNING,
    "This machine has no NVIDIA GPU, and the preset needs one.",
    "Launch it on a Spark, or choose a preset for the CPU: cpu-smollm2.",
    any_engine=True,
)
def needs_gpu(launch: LaunchContext) -> Matches:
    if launch.has_gpu is False and not launch.preset.cpu_only:
        yield RuleMatch("no NVIDIA device on the PCI bus, no driver")


@RULES.add(
    ERROR,
    "The image is built for another processor.",
    "Choose a tag that is built for arm64, and pull it again.",
    any_engine=True,
)
def image_architecture(launch: LaunchContext) -> Matches:
    """A Spark is arm64: an amd64 image ends with `exec format error`."""
    built = launch.image.architecture if launch.image is not None else ""
    if built and launch.is_spark is True and built.lower().partition("/")[0] not in ("arm64", "aarch64"):
        yield RuleMatch(f"{launch.spec.image}: {built}; a Spark is arm64")


@RULES.add(
    WARNING,
    "vLLM's stable image is not built for a Spark's GPU (sm_121).",
    "Use a CUDA 13 image (vllm/vllm-openai:cu130-nightly) or NVIDIA's (nvcr.io/nvidia/vllm).",
    any_engine=True,
    spark=True,
)
def stable_image(launch: LaunchContext) -> Matches:
    """The guide: the stable image has no sm_121. Since 0.20 some run on a Spark, without all of its FP4 kernels
    (a log of v0.20.2 on GB10; vllm#50925). v0.27.1 is the image of vLLM's own recipe for a Spark."""
    image, tag = launch.spec.image, tag_of(launch.spec.image)
    stable = tag == "latest" or re.match(r"v?\d+\.\d+\.\d+", tag) is not None
    if name_of(image) == OFFICIAL and stable and not any(mark in tag for mark in _GB10_TAG):
        newest = newest_possible(image)
        if newest is not None and newest >= _ON_A_SPARK:
            return
        certain = newest is not None and newest < (0, 20, 0) and launch.is_spark is True
        yield RuleMatch(image, severity=ERROR if certain else None)


@RULES.add(
    WARNING,
    "This NVIDIA image is older than those for a Spark.",
    "Use nvcr.io/nvidia/vllm:26.04-py3 or newer.",
    any_engine=True,
    spark=True,
)
def ngc_image_old(launch: LaunchContext) -> Matches:
    image = launch.spec.image
    release = ngc_release(image)
    if release is not None and release < NGC_SINCE and "post" not in tag_of(image):
        yield RuleMatch(f"{image}; they begin with {NGC_SINCE[0]}.{NGC_SINCE[1]:02d}")


@RULES.add(
    INFO,
    "NVIDIA names another image for Nemotron-3-Nano on a Spark.",
    f"Use {_NANO_IMAGE}, the one it was tested with.",
    spark=True,
)
def nano_image(launch: LaunchContext) -> Matches:
    """The card of Nano names the one image for a Spark."""
    nano = launch.named(r"nvidia/nvidia-nemotron-3-nano-30b-a3b-nvfp4")
    if nano and not launch.spec.image.startswith(_NANO_IMAGE):
        yield RuleMatch(f"{launch.spec.image} instead of {_NANO_IMAGE}")


@RULES.add(WARNING, "This image's server is older than the model's architecture.", any_engine=True)
def image_too_old_for_model(launch: LaunchContext) -> Matches:
    """The first releases that serve a model: `since` of models.toml. What calls itself a build of its own may have
    more in it than its number says."""
    engine, title = launch.preset.engine, launch.preset.server.title
    known = next((each for each in known_models().since if launch.named(each["names"])), {})
    needed = parse_version(known.get(engine, ""))
    newest = newest_server(engine, launch.spec.image, launch.engine_version)
    if needed is not None and newest is not None and newest < needed and not _OWN_BUILD.search(launch.engine_version):
        yield RuleMatch(
            f"{launch.spec.image}: {title} {shown_version(newest)} at most; {known['source']}: {shown_version(needed)}",
            summary=f"This image's {title} is older than the model's architecture.",
            remedy=f"Use an image with {title} {shown_version(needed)} or newer.",
        )


@RULES.add(
    INFO,
    "Image and flags of DiffusionGemma are provisional.",
    "Check vLLM's releases before you rely on it.",
    any_engine=True,
)
def provisional_image(launch: LaunchContext) -> Matches:
    """The card: flags and image are tentative until vLLM publishes one."""
    if launch.named("diffusiongemma"):
        yield RuleMatch(launch.spec.image)


@RULES.add(INFO, "The tag of the image moves.", any_engine=True)
def floating_tag(launch: LaunchContext) -> Matches:
    """A tag that moves gives another server on the next pull. A name without a registry is built on the machine."""
    image, tag = launch.spec.image, tag_of(launch.spec.image)
    if "@" in image or "/" not in image or _VERSIONED.search(tag):
        return
    pinned = launch.image.digest.rpartition("@")[2] if launch.image is not None else ""
    yield RuleMatch(
        image + (f", downloaded: {pinned}" if pinned else ""),
        summary=f"The tag {tag} moves: the next pull may bring another {launch.preset.server.title}.",
        remedy=f"Once it works, pin it: X on Presets, or spark-tui presets pin {launch.preset.name}",
    )


@RULES.add(WARNING, "A variable has no effect on this image.", "Set the one that the image reads.")
def image_variable_without_effect(launch: LaunchContext) -> Matches:
    """A misspelled variable of a described image; one of its start script where the command starts the server itself;
    one that needs a program which the command does not run."""
    found, words = launch.described, " ".join((*(launch.spec.entrypoint or ()), *launch.spec.command))
    if found is None:
        return
    for name, value in launch.env.items():
        near, about = found.near(name), found.variables.get(name)
        meant, needs = near or name, about.needs if about is not None else ""
        by_option = launch.script is None and found.is_own(meant)
        if not value or not (near or by_option or (needs and not re.search(needs, words))):
            continue
        option = found.variables[meant].option
        instead = ((option, value),) if by_option and option else ((f"env.{near}", value),) if near else ()
        remedy = f"The command has to run {needs.replace('|', ' or ')}: {found.source}." if needs else ""
        if by_option:
            remedy = f"The command starts the server itself: {f'set {option}' if option else 'remove it'}."
        summary = f"The image has no variable {name}. Did you mean {near}?" if near else f"{name} has no effect here."
        yield RuleMatch(f"{name}={value}", ((f"env.{name}", ""), *instead), summary=summary, remedy=remedy)
