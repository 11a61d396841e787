"""Which vLLM an image can hold at most, as far as its name says."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from spark_tui.domain.presets.image_reference import repository

Version: TypeAlias = tuple[int, int, int]

_VERSION = re.compile(r"(?:^|[^0-9.])v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?![0-9.]*\d)")
_NGC_TAG = re.compile(r"(\d{2})\.(\d{2})")
NGC: Final = "nvcr.io/nvidia/vllm"
OFFICIAL: Final = "vllm/vllm-openai"
# NVIDIA's 26.04 holds vLLM 0.19.0 (the guide, sections 6 and 13); what came before holds that or older.
_NGC_AT_MOST: Final = ((26, 4), (0, 19, 0))
# What these carry is their own build: DFlash is in it, whatever number it bears.
OWN_DFLASH: Final = ("aeon-7/vllm-dflash", "z-lab/vllm-openai")
# The image says v22; its makers pin vLLM 0.16.0rc2.
_KNOWN: Final = (("avarok/dgx-vllm-nvfp4-kernel", (0, 16, 0)),)


def tag_of(image: str) -> str:
    """The tag of an image, `latest` where none is given; empty when it is named by digest alone."""
    name, _, digest = image.partition("@")
    head, _, tag = name.rpartition(":")
    if head and "/" not in tag:
        return tag
    return "" if digest else "latest"


def name_of(image: str) -> str:
    """The repository in lower case, without the registries that need no telling: `vllm/vllm-openai`."""
    return repository(image).lower().removeprefix("docker.io/").removeprefix("ghcr.io/")


def ngc_release(image: str) -> tuple[int, int] | None:
    """Year and month of an image of NVIDIA's catalogue: `nvcr.io/nvidia/vllm:26.04-py3` -> (26, 4)."""
    if name_of(image) != NGC:
        return None
    match = _NGC_TAG.match(tag_of(image))
    return (int(match[1]), int(match[2])) if match else None


def parse_version(text: str) -> Version | None:
    """`v0.20.2-cu130` -> (0, 20, 2), None where no version stands."""
    match = _VERSION.search(text[:200])
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def newest_possible(image: str, said: str = "") -> Version | None:
    """The newest vLLM that an image can hold; None when nothing says it. `said` is what the engine called itself."""
    if said:
        return parse_version(said)
    name = name_of(image)
    known = next((version for prefix, version in _KNOWN if name == prefix), None)
    if known is not None or name in OWN_DFLASH:
        return known
    release = ngc_release(image)
    if release is not None:
        return _NGC_AT_MOST[1] if release <= _NGC_AT_MOST[0] else None
    tag = tag_of(image)
    if name.startswith("nvcr.io/") or "nightly" in tag or "vllm" not in name:
        return None
    return parse_version(tag)


def shown_version(version: Version) -> str:
    """`0.19.0`."""
    return ".".join(map(str, version))
