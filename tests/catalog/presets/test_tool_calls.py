"""Tool calls: on by default where the model's family has a parser, and what a recipe or a launch says instead."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.runtimes import Parsers, parsers_of
from spark_tui.base.errors import UsageError
from spark_tui.catalog.presets.model.command import command_of, settable, tool_calls_of
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs, pairs_of
from spark_tui.catalog.presets.model.preset import Origin, Preset
from tests.cases import all_cases
from tests.shipped import SHIPPED_FILES

PRESETS = {preset.name: preset for preset in SHIPPED_FILES.load().presets}
NOT_KNOWN = {"cpu-smollm2", "phi-4-multimodal-instruct-nvfp4", "qwen3.5-27b-dflash", "qwen3-30b-a3b-nvfp4-trtllm",
             "qwen3-embedding-8b", "qwen3-reranker-8b", "voxtral-mini-4b-realtime"}  # fmt: skip
"""No parser is known, or the image or a script starts the server, or the model writes no text."""
PLAIN = Preset("plain", Origin.BUILTIN, "plain.yaml", "Qwen/Qwen3.6-27B", "vllm/vllm-openai:nightly",
               command="vllm serve {model}")  # fmt: skip
FLAGS = ("--tool-call-parser", "qwen3_coder", "--reasoning-parser", "qwen3", "--enable-auto-tool-choice")


def words(preset: Preset, **pairs: str) -> tuple[str, ...]:
    return command_of(preset, overrides_from_pairs(pairs), preset.model).argv


@pytest.mark.parametrize(
    ("name", "runtime", "parsers"),
    [
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", "vllm", Parsers("qwen3_coder", "qwen3")),
        ("nvidia/Qwen3-8B-NVFP4", "sglang", Parsers("qwen", "qwen3")),
        ("nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4", "vllm", Parsers("hermes")),
        ("openai/gpt-oss-20b", "vllm", Parsers("openai")),
        ("google/gemma_4-31B-it", "vllm", Parsers("gemma4", "gemma4")),
        ("google/gemma-4-31B-it", "sglang", None),
        ("HuggingFaceTB/SmolLM2-135M", "vllm", None),
    ],
)
def test_a_family_has_its_parsers_by_server(name: str, runtime: str, parsers: Parsers | None) -> None:
    assert parsers_of(name, runtime) == parsers


@all_cases("name", sorted(PRESETS))
def test_a_shipped_preset_calls_tools_unless_no_parser_is_known(name: str) -> None:
    assert tool_calls_of(PRESETS[name]).on is (name not in NOT_KNOWN)


def test_both_parsers_are_added_and_can_be_left_out() -> None:
    assert words(PLAIN)[-5:] == words(PLAIN, tool_calls="yes")[-5:] == FLAGS
    assert words(PLAIN, tool_calls="off") == ("vllm", "serve", PLAIN.model)
    assert words(replace(PLAIN, defaults=(("tool_calls", "off"),))) == ("vllm", "serve", PLAIN.model)
    assert words(PLAIN, without="enable_auto_tool_choice,tool_call_parser")[-2:] == ("--reasoning-parser", "qwen3")
    assert settable(PLAIN, "tool_calls")
    assert not settable(PRESETS["cpu-smollm2"], "tool_calls")


def test_what_a_recipe_or_a_launch_names_stays() -> None:
    own = replace(PLAIN, command="vllm serve {model} --enable-auto-tool-choice --tool-call-parser qwen3_xml")
    assert words(own) == words(own, tool_calls="on")[:6] == tuple(own.command.format(model=own.model).split())
    assert "qwen3_coder" not in words(PLAIN, extra_args="--tool-call-parser hermes --enable-auto-tool-choice")
    assert words(own, tool_calls="off") == ("vllm", "serve", PLAIN.model)


def test_a_persons_own_recipe_is_started_as_it_is_written() -> None:
    own = replace(PLAIN, origin=Origin.USER)
    assert words(own) == ("vllm", "serve", PLAIN.model)
    assert words(own, tool_calls="on")[-5:] == FLAGS
    assert pairs_of(overrides_from_pairs({"tool_calls": "true"})) == {"tool_calls": "on"}


def test_llama_cpp_takes_the_models_template() -> None:
    llama = replace(PLAIN, runtime="llama-cpp", command="llama-server --model {model} --jinja")
    assert words(llama, tool_calls="on")[-1] == "--jinja"
    assert words(llama, tool_calls="off")[-1] == "--no-jinja"


@pytest.mark.parametrize(
    ("preset", "pairs", "says"),
    [
        (replace(PLAIN, model="a/Unheard-Of"), {"tool_calls": "on"}, "No tool-call parser is known"),
        (replace(PLAIN, command="a; vllm serve {model}"), {"tool_calls": "on"}, "shell script"),
        (replace(PLAIN, runtime="ollama", command="ollama serve"), {"tool_calls": "off"}, "Ollama decides"),
        (PLAIN, {"tool_calls": "maybe"}, "on or off"),
    ],
)
def test_what_cannot_be_is_refused(preset: Preset, pairs: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        words(preset, **pairs)
    assert caught.value.remedy
