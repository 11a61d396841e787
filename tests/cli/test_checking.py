"""presets check: what the rules say, for people and for scripts."""

from __future__ import annotations

from dataclasses import replace

from spark_tui.domain.presets.preset import PresetCatalogue
from tests.cli.world import TINY, StaticPresets, World

GREEDY = replace(TINY, name="greedy", defaults=(*TINY.defaults, ("gpu_memory_utilization", 0.92)))
GREEDY = replace(GREEDY, command=GREEDY.command + " --gpu-memory-utilization {gpu_memory_utilization}")
GATED = replace(TINY, name="gated", facts=replace(TINY.facts, gated=True))


def world(*presets: object) -> World:
    return World(presets=StaticPresets(PresetCatalogue(presets)))  # type: ignore[arg-type]


def test_one_preset_is_told_with_remedy_evidence_and_the_fix_as_it_is_typed() -> None:
    result = world(GREEDY).run("presets", "check", "greedy")
    assert result.code == 0, "a warning refuses nothing"
    assert "greedy: 1 warning" in result.out
    assert "[utilization_high]" in result.out
    assert "fix:  --set gpu_memory_utilization=" in result.out


def test_the_fix_ends_the_finding() -> None:
    result = world(GREEDY).run("presets", "check", "greedy", "--set", "gpu_memory_utilization=0.8")
    assert "utilization" not in result.out


def test_an_error_gives_exit_code_4_and_says_what_to_do() -> None:
    result = world(GATED, GREEDY).run("presets", "check", "--json")
    assert result.code == 4
    gated, greedy = result.json
    assert [finding["id"] for finding in gated["findings"] if finding["severity"] == "error"] == ["gated_without_token"]
    assert all(finding["remedy"] for finding in gated["findings"])
    assert greedy["refused"] is None


def test_a_launch_tells_the_errors_and_counts_the_warnings() -> None:
    result = world(GREEDY).run("up", "greedy", "--no-wait")
    assert "1 warning of the rules: spark-tui presets check greedy" in result.err
