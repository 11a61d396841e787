"""How a launch drafts: what a command asks for, and what becomes of it with another method or number of tokens."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.engine.invocation import ALONE, WITH_DRAFTER
from spark_tui.base.errors import UsageError
from spark_tui.catalog.presets.model.command import command_of
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs, pairs_of, speculation_of
from spark_tui.catalog.presets.model.preset import Origin, Preset, PresetFacts
from tests.cases import all_cases

MTP = '{"method":"mtp","num_speculative_tokens":3,"moe_backend":"triton"}'
PLAIN = Preset("p", Origin.USER, "/p.yaml", "org/m", "image:1", command="vllm serve {model}")
TEMPLATE = replace(
    PLAIN,
    command="vllm serve {model} --speculative-config '{speculative_config}'",
    defaults=(("speculative_config", MTP),),
)
LITERAL = replace(PLAIN, command=f"vllm serve {{model}} --speculative-config '{MTP}' --seed 1")
SHORT = replace(PLAIN, command="vllm serve {model} --spec-method mtp --spec-tokens 3")
DOTTED = replace(PLAIN, command="vllm serve {model} --speculative-config.method mtp -sc.num_speculative_tokens 3")
BUILT = replace(PLAIN, command="", defaults=(("speculative_config", MTP),))
SCRIPT = replace(
    PLAIN,
    command="python3 fix.py && vllm serve {model} --speculative-config '{speculative_config}'",
    defaults=(("speculative_config", MTP),),
)
FIXED_SCRIPT = replace(PLAIN, command=f"python3 fix.py && vllm serve {{model}} --speculative-config '{MTP}'")
BY_VARIABLE = replace(
    PLAIN,
    command="",
    env=(("DFLASH_DRAFTER", "org/m-DFlash"), ("DFLASH_NUM_SPEC_TOKENS", "{config.num_speculative_tokens}")),
    defaults=(("num_speculative_tokens", 15),),
    facts=PresetFacts(runs_as_is=True),
)


def drafting(preset: Preset, **pairs: str) -> dict[str, object] | None:
    """What the command of a launch with these settings drafts; None: nothing."""
    asked = speculation_of(command_of(preset, overrides_from_pairs(pairs), preset.model).invocation, {})
    return None if asked is None else dict(asked.config)


@pytest.mark.parametrize("preset", [TEMPLATE, LITERAL, BUILT, SCRIPT])
def test_the_number_of_drafted_tokens_changes_and_the_rest_of_the_config_stays(preset: Preset) -> None:
    assert drafting(preset, num_speculative_tokens="1") == {**json.loads(MTP), "num_speculative_tokens": 1}


@pytest.mark.parametrize("preset", [TEMPLATE, LITERAL, BUILT, SCRIPT, SHORT])
def test_another_method_keeps_the_number_and_nothing_else(preset: Preset) -> None:
    assert drafting(preset, speculation="ngram") == {"method": "ngram", "num_speculative_tokens": 3}
    assert drafting(preset, speculation="ngram", num_speculative_tokens="5") == {
        "method": "ngram",
        "num_speculative_tokens": 5,
    }


@pytest.mark.parametrize("preset", [PLAIN, TEMPLATE, LITERAL, BUILT, SHORT, DOTTED])
def test_off_takes_drafting_out_of_the_command_in_every_spelling(preset: Preset) -> None:
    assert drafting(preset, speculation="off") is None
    assert drafting(preset, speculation="off", num_speculative_tokens="3") is None, "off is off, whatever the number"


def test_a_preset_that_drafts_nothing_takes_a_method_and_mtp_begins_with_one_token() -> None:
    assert drafting(PLAIN, speculation="mtp") == {"method": "mtp", "num_speculative_tokens": 1}
    assert drafting(PLAIN, speculation="ngram", num_speculative_tokens="4") == {
        "method": "ngram",
        "num_speculative_tokens": 4,
    }


def test_naming_the_method_that_it_has_changes_nothing() -> None:
    assert drafting(TEMPLATE, speculation="mtp") == json.loads(MTP)


def test_a_whole_config_may_be_given_and_its_number_changed() -> None:
    whole = '{"method":"dflash","model":"org/m-DFlash","num_speculative_tokens":8}'
    found = drafting(PLAIN, speculative_config=whole, num_speculative_tokens="15")
    assert found == {**json.loads(whole), "num_speculative_tokens": 15}


def test_an_image_that_takes_the_number_from_its_environment_gets_it_there() -> None:
    values = command_of(BY_VARIABLE, overrides_from_pairs({"num_speculative_tokens": "5"}), "org/m").values
    assert str(values["num_speculative_tokens"]) == "5"


@all_cases(
    ("preset", "pairs", "says", "remedy"),
    [
        (PLAIN, {"num_speculative_tokens": "3"}, "has no method", "speculation=mtp"),
        (PLAIN, {"speculation": "ngram"}, "number of tokens", "num_speculative_tokens=3"),
        *(
            (TEMPLATE, {"speculation": method, "num_speculative_tokens": "3"}, "needs a drafter", "speculative_config=")
            for method in WITH_DRAFTER
        ),
        (PLAIN, {"speculation": "mpt"}, "off, mtp, ngram, suffix", "speculation=mtp"),
        (PLAIN, {"speculation": "mtp}'; x"}, "off, mtp, ngram, suffix", "speculation=mtp"),
        (DOTTED, {"num_speculative_tokens": "5"}, "cannot be changed", "copy of the preset"),
        (
            TEMPLATE,
            {"num_speculative_tokens": "5", "extra_args": "--speculative-config.num_speculative_tokens 7"},
            "cannot be changed",
            "extra arguments",
        ),
        (FIXED_SCRIPT, {"num_speculative_tokens": "5"}, "shell script", "preset folder"),
        (SCRIPT, {"speculation": "off"}, "shell script", "preset folder"),
        (BY_VARIABLE, {"speculation": "off"}, "sets speculation itself", "env.NAME"),
        (BY_VARIABLE, {"speculation": "mtp"}, "sets speculation itself", "env.NAME"),
        (replace(PLAIN, runtime="sglang", command="sglang serve"), {"speculation": "mtp"}, "SGLang", "extra_args"),
    ],
)
def test_what_the_engine_would_refuse_is_refused_with_a_remedy(
    preset: Preset, pairs: dict[str, str], says: str, remedy: str
) -> None:
    with pytest.raises(UsageError) as raised:
        command_of(preset, overrides_from_pairs(pairs), preset.model)
    assert says in raised.value.summary
    assert remedy in raised.value.remedy


@given(st.sampled_from(["", *ALONE]), st.none() | st.integers(1, 64), st.sampled_from([TEMPLATE, LITERAL, BUILT]))
def test_the_command_drafts_what_was_asked_and_is_one_word(method: str, tokens: int | None, preset: Preset) -> None:
    pairs = {"speculation": method} if method else {}
    pairs |= {"num_speculative_tokens": str(tokens)} if tokens else {}
    overrides = overrides_from_pairs(pairs)
    command = command_of(preset, overrides, "org/m")
    argv, asked = command.argv, speculation_of(command.invocation, {})
    assert asked is not None
    assert (asked.method, asked.tokens) == (method or "mtp", tokens or 3)
    assert argv.count("--speculative-config") == 1
    assert tuple(shlex.split(shlex.join(argv))) == argv
    assert overrides_from_pairs(pairs_of(overrides)) == overrides
