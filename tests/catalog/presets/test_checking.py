"""presets check: what the rules say, for people and for scripts."""

from __future__ import annotations

import re
import shlex

import pytest
from msgspec.structs import replace

from spark_tui.catalog.presets.model.preset import PresetCatalogue
from tests.cli.world import TINY, StaticPresets, World

GREEDY = replace(TINY, name="greedy", defaults=(*TINY.defaults, ("gpu_memory_utilization", 0.92)))
GREEDY = replace(GREEDY, command=GREEDY.command + " --gpu-memory-utilization {gpu_memory_utilization}")
GATED = replace(TINY, name="gated", facts=replace(TINY.facts, gated=True))


def world(*presets: object) -> World:
    return World(presets=StaticPresets(PresetCatalogue(presets)))  # type: ignore[arg-type]


def test_one_preset_is_told_with_remedy_evidence_and_the_fix_as_it_is_typed() -> None:
    result = world(GREEDY).run("presets", "check", "greedy", "--set", "gpu_memory_utilization=0.92")
    assert result.code == 0, "a warning refuses nothing"
    assert "greedy: unknown, 1 warning" in result.out
    assert "rule      utilization_high" in result.out
    assert "setting   --set gpu_memory_utilization=" in result.out


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


@pytest.mark.parametrize("last", ["--no-wait", "--dry-run"])
def test_a_launch_and_its_dry_run_tell_what_the_rules_find_once_and_in_full(last: str) -> None:
    typed = ("--set", "gpu_memory_utilization=0.92", "--set", "max_num_seqs=2", "--expose", "lan", "--no-api-key")
    result = world(GREEDY, GATED).run("up", "greedy", *typed, last)
    notes = [line for line in result.err.splitlines() if line.startswith("note: ")]
    assert sum("leaves too little" in note for note in notes) == 1
    assert sum("(no API key)" in note for note in notes) == 1
    gated = world(GREEDY, GATED).run("up", "gated", last)
    assert gated.err.count("The model is gated") == 1


def test_how_many_notes_there_are_is_told_with_the_command_that_shows_them_for_these_settings() -> None:
    result = world(GREEDY).run("up", "greedy", "--dry-run", "--set", "max_model_len=2048", "--port", "8001")
    command = re.search(r"notes? more: spark-tui (presets check .*)", result.err)
    assert command is not None
    assert command[1] == "presets check greedy --set max_model_len=2048 --set port=8001"
    assert world(GREEDY).run(*shlex.split(command[1])).code == 0


@pytest.mark.parametrize("words", [("--set", "max_modellen=1"), ("--set", "nothing_known=1"), ("--set", "port=x")])
def test_settings_that_a_preset_does_not_take_are_wrong_usage(words: tuple[str, ...]) -> None:
    for arguments in (("presets", "check", "greedy"), ("up", "greedy", "--dry-run"), ("presets", "export", "greedy")):
        result = world(GREEDY).run(*arguments, *words)
        assert (result.code, result.out) == (2, "")


@pytest.mark.parametrize("columns", [60, 80])
def test_findings_are_wrapped_to_the_window_with_their_words_below_each_other(columns: int) -> None:
    result = world(GREEDY).run(
        "presets", "check", "greedy", tty=True, environment={"COLUMNS": str(columns), "NO_COLOR": "1"}
    )
    lines = result.out.splitlines()
    assert len(lines) > 3
    assert all(len(line) <= columns for line in lines)
    labels = ("", "error", "warning", "note", "fix", "evidence", "setting", "now", "rule")
    assert all(line[:10].strip() in labels for line in lines[1:])
