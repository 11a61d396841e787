"""presets list, presets show."""

from __future__ import annotations

from dataclasses import replace

from spark_tui.domain.presets.preset import PresetCatalogue
from tests.cli.world import BIG, TINY, StaticPresets, World

SHOW = """\
Tiny 1B
A model for tests.

name          tiny-1b
model         acme/tiny-1b
publisher     Acme
family        Tiny
kind          dense
size          1B parameters, 1.9 GiB of weights
quantization  bf16
context       131,072 tokens
input         text
licence       Apache-2.0, not gated
image         vllm/vllm-openai:nightly
runtime       vllm on one Spark
source        made up
file          /presets/tiny-1b.yaml (built in)

Published speeds
  - 41.8 tok/s: one stream [nobody]

Notes
  - Small enough for every test.

Defaults
  - port = 8000
  - max_model_len = 4096
  - served_model_name = tiny

Environment
  - VLLM_LOGGING_LEVEL=INFO

Command
  vllm serve {model} --port {port} --max-model-len {max_model_len}
"""


def test_one_broken_file_never_hides_the_others_and_is_named_with_its_line() -> None:
    result = World().run("presets", "list")
    assert result.code == 0
    assert result.out == (
        "NAME     WEIGHTS  CONTEXT  PUBLISHED  MODEL\n"
        "big-70b        -        -          -  acme/big-70b\n"
        "tiny-1b  1.9 GiB     131k   42 tok/s  acme/tiny-1b\n"
    )
    assert result.err == "Skipped: /own/broken.yaml:7: `defaults` is not a mapping.\n  Write key: value lines.\n"


def test_presets_alone_is_the_list() -> None:
    assert World().run("presets") == World().run("presets", "list")
    assert World().run("presets", "--json").json == World().run("presets", "list", "--json").json


def test_the_list_as_data() -> None:
    result = World().run("presets", "list", "--json")
    assert [preset["id"] for preset in result.json] == ["big-70b", "tiny-1b"]
    assert result.json[1]["weights_bytes"] == 2_000_000_000
    assert result.json[0]["weights_bytes"] is None
    assert result.json[0]["weights_bytes_reason"] == "the recipe does not say"
    assert (result.error["file"], result.error["line"]) == ("/own/broken.yaml", 7)


def test_show_tells_everything_that_is_known() -> None:
    result = World().run("presets", "show", "tiny-1b")
    assert (result.code, result.out) == (0, SHOW)
    assert result.err == "The exact docker run: spark-tui up tiny-1b --dry-run\n"


def test_show_as_data() -> None:
    found = World().run("presets", "show", "tiny-1b", "--json").json
    assert found["id"] == "tiny-1b"
    assert found["defaults"] == {"port": 8000, "max_model_len": 4096, "served_model_name": "tiny"}
    assert found["gated"] is False, "known to be open is not the same as unknown"
    assert World().run("presets", "show", "big-70b", "--json").json["gated"] is None


def test_a_value_that_the_recipe_leaves_open_is_asked_for() -> None:
    open_value = replace(BIG, command="vllm serve {model} --tokenizer {tokenizer}")
    world = World(presets=StaticPresets(PresetCatalogue((open_value,))))
    assert "needs    tokenizer" in world.run("presets", "show", "big-70b").out
    assert world.run("presets", "show", "big-70b", "--json").json["values_needed"] == ["tokenizer"]


def test_a_secret_in_a_recipe_is_masked() -> None:
    careless = replace(TINY, env=(("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz"),))
    world = World(presets=StaticPresets(PresetCatalogue((careless,))))
    for arguments in (("presets", "show", "tiny-1b"), ("presets", "show", "tiny-1b", "--json")):
        assert "hf_abcdefgh" not in world.run(*arguments).out


def test_an_unknown_preset_is_a_usage_error_with_a_suggestion() -> None:
    result = World().run("presets", "show", "tyni-1b")
    assert (result.code, result.out) == (2, "")
    assert result.err == "Error: There is no preset named tyni-1b.\n  Did you mean tiny-1b?\n"


def test_a_name_without_any_likeness_gets_the_list() -> None:
    assert "Known presets: big-70b, tiny-1b." in World().run("presets", "show", "zzz").err


def test_asking_for_a_broken_preset_tells_what_is_wrong_with_its_file() -> None:
    result = World().run("up", "broken")
    assert result.code == 2
    assert "/own/broken.yaml:7: `defaults` is not a mapping." in result.err


def test_a_long_note_is_wrapped_to_the_window_and_not_in_a_pipe() -> None:
    note = "word " * 60
    wordy = replace(TINY, facts=replace(TINY.facts, notes=(note.strip(),)))
    world = World(presets=StaticPresets(PresetCatalogue((wordy,))))
    seen = world.run("presets", "show", "tiny-1b", tty=True, environment={"COLUMNS": "80", "NO_COLOR": "1"})
    assert max(map(len, seen.out.splitlines())) <= 80
    assert note.strip() in world.run("presets", "show", "tiny-1b").out
