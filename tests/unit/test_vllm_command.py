"""Reading and changing vLLM options in a command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.domain.presets.options import (
    KEYS,
    build,
    is_switch,
    option_of,
    option_value,
    with_option,
    without_option,
)
from spark_tui.domain.presets.preset import Scalar

ARGV = ("vllm", "serve", "m", "-tp", "2", "--max_model_len=4096", "--served-model-name", "a", "b", "--enforce-eager")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("--tensor-parallel-size", "2"),
        ("--max-model-len", "4096"),
        ("--served-model-name", "a"),
        ("--port", None),
    ],
)
def test_options_are_found_in_every_spelling(name: str, value: str | None) -> None:
    assert option_value(ARGV, name) == value


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("max_model_len", 8192, (*ARGV[:5], "--max-model-len", "8192", *ARGV[6:])),
        ("tensor_parallel", 1, ("vllm", "serve", "m", "--tensor-parallel-size", "1", *ARGV[5:])),
        ("served_model_name", "c", (*ARGV[:6], "--served-model-name", "c", "--enforce-eager")),
        ("port", 9000, (*ARGV, "--port", "9000")),
        ("enforce_eager", "false", ARGV[:-1]),
        ("enforce_eager", True, ARGV),
        ("enable_prefix_caching", "no", (*ARGV, "--no-enable-prefix-caching")),
        ("trust_remote_code", "yes", (*ARGV, "--trust-remote-code")),
    ],
)
def test_an_option_is_set_in_its_place(key: str, value: Scalar, expected: tuple[str, ...]) -> None:
    assert with_option(ARGV, key, value) == expected


def test_a_switch_is_on_or_off() -> None:
    with pytest.raises(ValueError, match="maybe"):
        with_option(ARGV, "enforce_eager", "maybe")


def test_keys_of_other_engines_are_no_options() -> None:
    assert option_of("ctx_size") is None
    with pytest.raises(KeyError):
        with_option(ARGV, "ctx_size", 1)


def test_a_command_is_built_from_values_alone() -> None:
    values: dict[str, Scalar] = {
        "port": 8000,
        "tensor_parallel": 1,
        "enable_prefix_caching": False,
        "seed": None,
        "hue": 1,
    }
    assert build("org/m", values) == (
        *("vllm", "serve", "org/m", "--port", "8000", "--tensor-parallel-size", "1", "--no-enable-prefix-caching"),
    )


@given(st.sampled_from([key for key in KEYS if not is_switch(key)]), st.text(min_size=1), st.text(min_size=1))
def test_the_last_value_set_is_the_one_read(key: str, first: str, second: str) -> None:
    name = option_of(key)
    assert name is not None
    argv = with_option(with_option(("vllm", "serve", "m"), key, first), key, second)
    assert option_value(argv, name) == second
    assert without_option(argv, name)[:3] == ("vllm", "serve", "m")
