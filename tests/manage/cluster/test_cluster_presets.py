"""The shipped presets of several nodes beside the recipes that they come from, and what they say of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_tui.base.finding import Severity
from spark_tui.catalog.models.model.config import facts_of, known_model
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.model.rules.check import check
from spark_tui.catalog.presets.model.rules.context import LaunchContext
from spark_tui.manage.cluster.model.plan import ClusterPlan, plan_cluster
from tests.catalog.presets.test_recipes_of_the_guide import BANDWIDTH
from tests.dialect_fixtures import REAL, imported
from tests.manage.cluster.test_cluster_plan import PATHS, cluster_of
from tests.shipped import SHIPPED_FILES

PRESETS = {preset.name: preset for preset in SHIPPED_FILES.load().presets if preset.min_nodes > 1}
SOURCES = {
    "minimax-m2.7-awq": "sparkrun/official-recipes/minimax-m2.7/minimax-m2.7-awq4-vllm.yaml",
    "minimax-m2.7-nvfp4": "sparkrun/official-recipes/minimax-m2.7/minimax-m2.7-nvfp4-vllm.yaml",
    "deepseek-v4-flash-0731": "nvidia/deepseek-v4-flash-0731.yaml",
    "qwen3.5-397b-a17b-int4":
        "sparkrun/experimental-recipes/eugr-vllm/qwen3.5-397b-a17b-int4-autoround-4x-vllm.yaml",
    "deepseek-v4-flash": "eugr/recipes/deepseek-v4-flash.yaml",
    "glm-5.3-flash-nvfp4": "eugr/recipes/glm-5.3-flash.yaml",
}  # fmt: skip
OTHER_IMAGE = {
    "qwen3.5-397b-a17b-int4": "ghcr.io/spark-arena/dgx-vllm-eugr-nightly:latest",
    "glm-5.3-flash-nvfp4": "eugr/spark-vllm-b12x:latest",
}
"""The source's is retired, and its own launcher takes this one; the name of a build, which is published as this."""


def planned(preset: Preset) -> ClusterPlan:
    return plan_cluster(preset, Overrides(), PATHS, cluster_of(preset.min_nodes), launch_id="l1")


def test_every_preset_of_several_nodes_has_its_source() -> None:
    assert set(PRESETS) == set(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_each_rank_runs_the_image_command_and_environment_of_the_source(name: str) -> None:
    source: Path = REAL / SOURCES[name]
    published = imported(source).preset
    assert published is not None
    for ours, theirs in zip(planned(PRESETS[name]).ranks, planned(published).ranks, strict=True):
        assert ours.plan.spec.image == OTHER_IMAGE.get(name, theirs.plan.spec.image)
        assert ours.plan.spec.command == theirs.plan.spec.command
        assert set(ours.plan.spec.env) == set(theirs.plan.spec.env)


@pytest.mark.parametrize("name", SOURCES)
def test_a_preset_says_what_it_is_who_measured_it_and_that_we_did_not(name: str) -> None:
    preset, facts = PRESETS[name], PRESETS[name].facts
    assert preset.unknown == () and preset.hooks == () and preset.mods == ()
    assert facts.title and facts.description and facts.family and facts.publisher and facts.licence
    assert facts.source and facts.architecture and facts.total_parameters and facts.modalities and facts.quantization
    assert facts.cautions[0].startswith("Not tested by spark-tui's authors")
    assert facts.published
    for speed in facts.published:
        assert "one stream" in speed.conditions and "Sparks" in speed.conditions
        assert "github.com/" in speed.source
        ceiling = BANDWIDTH * preset.min_nodes / ((facts.active_parameters or facts.total_parameters) / 2)
        assert speed.tokens_per_second < ceiling or "MTP" in speed.conditions


@pytest.mark.parametrize("name", SOURCES)
def test_a_preset_on_its_nodes_breaks_no_rule(name: str) -> None:
    preset = PRESETS[name]
    found = check(LaunchContext(planned(preset).head.plan, is_spark=True, sparks=preset.min_nodes))
    assert [finding for finding in found if finding.severity is Severity.ERROR] == []


def test_heads_that_nodes_must_divide_are_known_where_the_config_is_public() -> None:
    known = known_model(PRESETS["minimax-m2.7-awq"].model)
    assert known is not None
    assert (facts_of(known).heads, facts_of(known).kv_heads) == (48, 8)
