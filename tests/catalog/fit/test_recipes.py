"""presets list, presets show."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from spark_tui.catalog.presets.model.preset import PresetCatalogue
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
last served   unknown, the history is off: no history is kept here
runtime       vllm on one Spark
tool calls    off: no parser known for this model
source        made up
file          built in

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
    assert [line.split()[0] for line in result.out.splitlines()] == ["NAME", "big-70b", "tiny-1b"]
    assert result.out.splitlines()[0].split()[1:] == [
        "FOR", "CTX", "GiB", "FITS", "TOK/S", "DISK", "TOOLS", "QUANT", "PROVED", "MODEL",
    ]  # fmt: skip
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


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("tiny",), ["tiny-1b"]),
        (("--sort", "tok_s"), ["tiny-1b", "big-70b"]),
        (("--reverse",), ["tiny-1b", "big-70b"]),
        (("--tag", "coding"), []),
        (("--fits",), []),
        (("--tools",), []),
        (("--max-need", "30GiB"), []),
    ],
)
def test_the_list_is_searched_and_sorted(words: tuple[str, ...], names: list[str]) -> None:
    assert [each["id"] for each in World().run("presets", "list", *words, "--json").json] == names


def test_the_list_as_data_has_the_columns_of_the_screen() -> None:
    found = World().run("presets", "list", "tiny", "--json").json[0]
    assert (found["verdict"], found["tokens_per_second"], found["measured_here"]) == ("unknown", 41.8, False)
    assert (found["model_on_disk"], found["model_on_disk_reason"]) == (None, "the store is not known")
    assert (found["tool_calls"], found["served_here"], found["running"], found["tags"]) == ("unknown", False, False, [])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("list", "--context", "much"), "must be a number of tokens"),
        (("list", "--max-need", "much"), "must be a size"),
        (("compare", "tiny-1b"), "two or three"),
        (("compare", "tiny-1b", "nope"), "no preset named nope"),
    ],
)
def test_a_search_that_cannot_be_is_refused(words: tuple[str, ...], says: str) -> None:
    result = World().run("presets", *words)
    assert result.code == 2
    assert says in result.err


def test_presets_are_compared_side_by_side() -> None:
    result = World().run("presets", "compare", "tiny-1b", "big-70b", "--context", "64k")
    assert result.code == 0
    for word in ("A  tiny-1b", "B  big-70b", "42 published", "Apache-2.0"):
        assert word in result.out


def test_show_tells_everything_that_is_known() -> None:
    dry = World().run("up", "tiny-1b", "--dry-run", "--json").json
    result = World().run("presets", "show", "tiny-1b")
    assert result.code == 0
    assert result.out.startswith(SHOW + "\nOther than the recipe\n  - memory share 0.85 (auto): ")
    shown = result.out.removeprefix(SHOW).count("\n  - ")
    found = World().run("presets", "show", "tiny-1b", "--json").json["deviations"]
    assert [each["id"] for each in found] == [each["id"] for each in dry["deviations"]] and len(found) == shown
    assert result.err == "The exact docker run: spark-tui up tiny-1b --dry-run\n"


def test_show_names_the_variables_of_an_image_with_a_start_script_with_defaults_and_meaning() -> None:
    """Where the preset starts the server itself, without those that the script alone reads."""
    avarok = replace(TINY, image="avarok/dgx-vllm-nvfp4-kernel:v22")
    as_is = replace(avarok, command="", facts=replace(TINY.facts, runs_as_is=True))
    line = "  - MAX_NUM_SEQS (default 128): concurrent requests\n"
    for preset, own in ((avarok, False), (as_is, True)):
        shown = World(presets=StaticPresets(PresetCatalogue((preset,)))).run("presets", "show", "tiny-1b").out
        assert (line in shown) is own
        assert "  - VLLM_NVFP4_GEMM_BACKEND: dense layers by Marlin" in shown


def test_show_as_data() -> None:
    found = World().run("presets", "show", "tiny-1b", "--json").json
    assert found["id"] == "tiny-1b"
    assert found["defaults"] == {"port": 8000, "max_model_len": 4096, "served_model_name": "tiny"}
    assert found["gated"] is False, "known to be open is not the same as unknown"
    assert World().run("presets", "show", "big-70b", "--json").json["gated"] is None


def test_a_value_that_the_recipe_leaves_open_is_asked_for() -> None:
    open_value = replace(BIG, command="vllm serve {model} --tokenizer {tokenizer}")
    world = World(presets=StaticPresets(PresetCatalogue((open_value,))))
    assert re.search(r"needs +tokenizer", world.run("presets", "show", "big-70b").out)
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
