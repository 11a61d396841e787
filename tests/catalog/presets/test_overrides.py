"""What a person changes for one launch: types, ranges, and what may not be set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.engine.invocation import OPTIONS, SETTABLE
from spark_tui.base.errors import ExitCode, UsageError
from spark_tui.base.settings import ExposureChoice
from spark_tui.catalog.presets.model.command import command_of, settable
from spark_tui.catalog.presets.model.overrides import TYPED_KEYS, Overrides, overrides_from_pairs, pairs_from
from tests.cases import all_cases
from tests.shipped import SHIPPED_FILES


def test_pairs_become_typed_values() -> None:
    words = ["port=8001", "gpu_memory_utilization=0.7", "max_model_len=65_536", "moe_backend=marlin", "env.FOO=a=b"]
    overrides = overrides_from_pairs(pairs_from(words))
    assert overrides == Overrides(
        port=8001,
        gpu_memory_utilization=0.7,
        max_model_len=65536,
        values=(("moe_backend", "marlin"),),
        extra_env=(("FOO", "a=b"),),
    )


def test_of_a_key_given_twice_the_last_counts() -> None:
    assert pairs_from(["port=1", "port=2"]) == {"port": "2"}


def test_exposure_to_the_lan_brings_a_key_unless_it_is_declined() -> None:
    assert overrides_from_pairs({"exposure": "LAN"}) == Overrides(exposure=ExposureChoice.LAN, api_key=True)
    assert overrides_from_pairs({"exposure": "lan", "api_key": "no"}) == Overrides(exposure=ExposureChoice.LAN)
    assert overrides_from_pairs({"exposure": "local"}) == Overrides()


def test_extra_arguments_are_split_like_a_shell_would() -> None:
    assert overrides_from_pairs({"extra_args": "--a 'b c'"}).extra_args == ("--a", "b c")


@all_cases(
    ("pair", "says"),
    [
        ("port=0", "from 1 to 65,535"),
        ("port=65536", "from 1 to 65,535"),
        ("port=eight", "'eight'"),
        ("port=8000.5", "a whole number"),
        ("gpu_memory_utilization=1.5", "up to 1"),
        ("gpu_memory_utilization=0", "above 0"),
        ("gpu_memory_utilization=nan", "a fraction"),
        ("max_num_seqs=-1", "from 1"),
        ("max_model_len=64kk", "a whole number"),
        ("kv_cache_dtype=fp8 --x", "KV cache type"),
        ("served_model_name=a b", "without blanks"),
        ("served_model_name=a;b", "shell"),
        ("name=-x", "container name"),
        ("exposure=world", "local or lan"),
        ("api_key=sk-abc", "yes or no"),
        ("extra_args='a", "not closed"),
        ("host=0.0.0.0", "cannot be set"),
        ("model=org/other", "cannot be set"),
        ("a-b=1", "not the name"),
        ("env.1X=1", "not the name"),
        ("env.HF_TOKEN=hf_x", "would be visible"),
        ("extra_args=--api-key sk", "process list"),
        ("extra_args=--api_key=sk", "process list"),
        ("note=hf_abcdefghijklmnopqrstuvwxyz", "looks like a key"),
        ("env.NOTE=hf_abcdefghijklmnopqrstuvwxyz", "would be visible"),
        ("=1", "key=value"),
        ("port", "key=value"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(pair: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        overrides_from_pairs(pairs_from([pair]))
    assert says in raised.value.summary
    assert raised.value.remedy
    assert raised.value.exit_code is ExitCode.USAGE
    assert "abcdefghijklm" not in str(raised.value)


def test_values_are_checked_however_they_are_made() -> None:
    with pytest.raises(UsageError, match="port"):
        Overrides(port=99_999)
    with pytest.raises(UsageError, match="VLLM_API_KEY"):
        Overrides(extra_env=(("VLLM_API_KEY", "x"),))


@given(
    st.dictionaries(
        st.text(max_size=12) | st.sampled_from(["port", "name", "exposure", "api_key"]), st.text(max_size=20)
    )
)
def test_anything_a_person_types_is_understood_or_refused(pairs: dict[str, str]) -> None:
    try:
        overrides_from_pairs(pairs)
    except UsageError as error:
        assert error.summary and error.remedy


def test_what_is_proposed_for_a_misspelled_key_can_be_set() -> None:
    """For presets of every engine, and with the keys of all of them."""
    first = {(each.engine, each.facts.runs_as_is): each for each in SHIPPED_FILES.load().presets}
    assert len({engine for engine, _ in first}) >= 3
    for preset in first.values():
        for key in dict.fromkeys((*OPTIONS, *TYPED_KEYS)):
            misspelled = key[:-1] + "x" if key[:-1] + "x" not in OPTIONS else key + "xx"
            with pytest.raises(UsageError) as refused:
                command_of(preset, Overrides(values=((misspelled, "1"),)), preset.model)
            said, _, proposed = refused.value.remedy.partition("Did you mean ")
            for each in proposed.rstrip("?").split(" or ") if not said else ():
                always = each in ("name", "port") or (each in TYPED_KEYS and each not in SETTABLE)
                assert always or settable(preset, each), (preset.name, misspelled, each)
