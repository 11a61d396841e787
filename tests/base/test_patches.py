"""Patches of images and mods of recipes are data with a source, and an image's name says what its vLLM has already."""

from __future__ import annotations

import re

from spark_tui.base.engine.image import Patch, mod_words, parse_version, patches, patches_for, visible_patches

B12X = (("CUTE_DSL_ARCH", "sm_121a"), ("VLLM_NVFP4_GEMM_BACKEND", "flashinfer-b12x"))


def test_each_patch_says_what_it_changes_where_that_is_known_from_and_how_it_is_seen() -> None:
    for id_, patch in patches().items():
        assert patch.about and patch.source, id_
        assert not patch.since or parse_version(patch.since), id_
        assert bool(patch.package) == bool(patch.version), id_
        assert patch.file or not patch.pattern, id_
        assert not patch.file.startswith("/"), id_
        assert patch.needs.count("=") == bool(patch.needs) == bool(patch.step) != id_.startswith("mods/"), id_
        re.compile(patch.pattern)


def test_a_recipe_asks_for_patches_by_its_variables_and_its_mods() -> None:
    steps = patches_for(B12X)
    assert list(steps) == ["b12x/vllm", "b12x/libs", "b12x/dsl", "b12x/flashinfer", "b12x/variables"]
    assert set(steps) - set(visible_patches()) == {"b12x/variables"}, "no image shows variables of a launch"
    assert not patches_for((("VLLM_NVFP4_GEMM_BACKEND", "marlin"),))
    for name in ("mods/nemotron-nano", "@eugr/mods/nemotron-nano", "nemotron-nano", "./mods/nemotron-nano/"):
        assert list(patches_for((), (name,))) == ["mods/nemotron-nano"], name
        assert mod_words(name, "x").startswith(f"{name}: fetches"), name
    assert not patches_for((), ("mods/of-nobody",))
    assert mod_words("mods/of-nobody", "vllm/vllm-openai:v0.20.0") == "mods/of-nobody"


def test_whether_an_image_has_it_follows_from_its_vllm() -> None:
    mod: Patch = patches()["mods/nemotron-nano"]
    held = {
        "vllm/vllm-openai:v0.17.1": True,
        "vllm/vllm-openai:v0.17.0": False,
        "avarok/dgx-vllm-nvfp4-kernel:v22": False,
        "nvcr.io/nvidia/vllm:26.04-py3": None,  # at most 0.19: it may be older
        "vllm/vllm-openai:nightly": None,
        "vllm-node-cas": None,
    }
    assert {image: mod.held_by(image) for image in held} == held
    for image, is_held in held.items():
        said = mod_words("mods/nemotron-nano", image)
        assert ("not needed" in said) is (is_held is True), said
        assert ("is older than" in said) is (is_held is False), said
        assert ("images --inspect" in said) is (is_held is None), said
        assert ("nemotron_v3" in said) is (is_held is not False), said
    said = mod_words("mods/fix-qwen3.5-chat-template", "vllm/vllm-openai:v0.30.0")
    assert "in its place" in said and "inspect" not in said, "nothing is promised that cannot be seen"
