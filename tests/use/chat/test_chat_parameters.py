"""Chat settings are read from what people and files write, within the ranges that engines accept."""

from __future__ import annotations

import json
from datetime import date

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_tui.base.engine.message import NAMES, ChatParameters, ParameterError, ToolSpec, changed, written
from spark_tui.base.engine.request import ChatSettings, settings_from, settings_json
from spark_tui.catalog.presets.model.preset import Origin, Preset, PresetFacts, RequiredFile
from spark_tui.use.chat.use.conversations import defaults_of, filled_prompt
from tests.cases import all_cases

NOTHING = ChatParameters()


@all_cases(
    ("name", "told", "value"),
    [
        ("temperature", "0.7", 0.7),
        ("temperature", 0, 0.0),
        ("top-p", "0.95", 0.95),
        ("top_k", "20", 20),
        ("top_k", 40.0, 40),
        ("min_p", ".05", 0.05),
        ("max_tokens", "32,768", 32768),
        ("max_completion_tokens", "5", 5),
        ("seed", "-3", -3),
        ("thinking", "on", True),
        ("think", "OFF", False),
        ("enable_thinking", False, False),
        ("effort", "High", "high"),
        ("reasoning_budget", "512", 512),
        ("preserve thinking", "yes", True),
        ("presence_penalty", "-1.5", -1.5),
        ("repetition_penalty", 1.1, 1.1),
        ("stop", "END", ("END",)),
        ("stop", '["a", "b\\\\n"]', ("a", "b\n")),
        ("stop", ["x"], ("x",)),
        ("schema", '{"type": "object"}', '{"type":"object"}'),
        ("schema", {"type": "array"}, '{"type":"array"}'),
    ],
)
def test_a_setting_is_read_as_people_write_it(name: str, told: object, value: object) -> None:
    assert list(changed(NOTHING, name, told).given().values()) == [value]


@all_cases(
    ("name", "told"),
    [
        ("temperature", "2.5"), ("temperature", "nan"), ("temperature", "inf"), ("temperature", True),
        ("temperature", "warm"), ("temperature", "1e999"), ("top_p", "0"), ("top_p", 1.5), ("top_k", -5),
        ("top_k", "2.5"), ("min_p", "-0.1"), ("max_tokens", "0"), ("max_tokens", "9" * 40), ("seed", "x"),
        ("thinking", "perhaps"), ("thinking", 3), ("effort", "enormous"), ("presence_penalty", "3"),
        ("repetition_penalty", "0"), ("stop", "x" * 300), ("stop", ["a"] * 17), ("stop", [1]), ("stop", "[1"),
        ("schema", "[]"), ("schema", "{"), ("schema", "[" * 100_000), ("budget", "-1"),
    ],
)  # fmt: skip
def test_what_an_engine_would_refuse_is_refused_here_by_its_name(name: str, told: object) -> None:
    with pytest.raises(ParameterError) as caught:
        changed(NOTHING, name, told)
    assert caught.value.field in NAMES
    assert caught.value.field in caught.value.summary
    assert caught.value.remedy
    assert len(caught.value.summary) < 300


def test_a_misspelt_setting_is_named_with_its_likeness() -> None:
    with pytest.raises(ParameterError, match=r"temprature\. Did you mean temperature\?"):
        changed(NOTHING, "temprature", "1")
    with pytest.raises(ParameterError, match="The settings are: temperature"):
        changed(NOTHING, "\x1b[31mzzz", "1")


@example("presence_penalty", 0.001953125)
@given(st.sampled_from(NAMES), st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12))
def test_any_value_is_a_setting_or_an_error_that_names_it(name: str, told: object) -> None:
    try:
        found = changed(NOTHING, name, told)
    except ParameterError as error:
        assert error.field == name
    else:
        assert settings_from(json.loads(json.dumps(found.given()))).parameters == found
        text = written(found.given().get(name))
        assert changed(NOTHING, name, text) == found or name == "stop" or "e" in text


def test_what_was_typed_counts_over_the_defaults() -> None:
    for unset in (None, "", "default", "Auto"):
        assert changed(ChatParameters(temperature=1.0), "temperature", unset) == NOTHING
    typed, preset = ChatParameters(temperature=0.2), ChatParameters(temperature=1.0, top_p=0.95)
    assert typed.over(preset) == ChatParameters(temperature=0.2, top_p=0.95)


# --- presets ------------------------------------------------------------------------------------------------


def test_a_preset_brings_its_makers_sampling_and_what_it_takes() -> None:
    facts = PresetFacts(
        sampling=(("temperature", 0.7), ("top_k", 20), ("reasoning_effort", "high"), ("hot", True), ("min_p", 9)),
        modalities=("text", "image"),
        required_files=(RequiredFile("m/SYSTEM_PROMPT.txt", "org/m", "SYSTEM_PROMPT.txt", for_chat=True),),
    )
    defaults = defaults_of(Preset("p", Origin.BUILTIN, "p.yaml", "org/m", "image", facts=facts))
    assert defaults.settings.parameters == ChatParameters(temperature=0.7, top_k=20, reasoning_effort="high")
    assert defaults.prompt_file == "m/SYSTEM_PROMPT.txt"
    assert defaults.problems[0] == "There is no chat setting hot."
    assert len(defaults.problems) == 2


def test_the_blanks_of_a_recipes_system_prompt_are_filled() -> None:
    text = "You are {name}. Today is {today}, yesterday was {yesterday}. {other} {\n"
    filled = filled_prompt(text, name="Mistral", today=date(2026, 3, 1))
    assert filled == "You are Mistral. Today is 2026-03-01, yesterday was 2026-02-28. {other} {"


def test_settings_survive_a_file() -> None:
    chosen = ChatSettings(
        "Be brief.", ChatParameters(temperature=0.5, stop=("a",)), (ToolSpec("f", "does", '{"type": "object"}'),), "f"
    )
    assert settings_from(json.loads(json.dumps(settings_json(chosen)))) == chosen
    assert settings_json(ChatSettings()) == {}


def test_a_tool_choice_must_be_a_tool() -> None:
    with pytest.raises(ParameterError, match="auto, none, required, f"):
        ChatSettings(tools=(ToolSpec("f"),)).with_setting("tool_choice", "g")
