"""A command line as a value: read in every spelling, edited by key, and given back word for word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.engine.invocation import OPTIONS, VLLM_KEYS, Invocation, key_of, parse, spellings
from spark_tui.base.engine.runtimes import Scalar

ARGV = ("vllm", "serve", "m", "-tp", "2", "--max_model_len=4096", "--served-model-name", "a", "b", "--enforce-eager")
COMMAND = parse(ARGV)
VALUED = [key for key in VLLM_KEYS if not OPTIONS[key].switch]


@pytest.mark.parametrize(
    ("key", "value"),
    [("tensor_parallel", "2"), ("max_model_len", "4096"), ("served_model_name", "a"), ("port", None)],
)
def test_options_are_found_in_every_spelling(key: str, value: str | None) -> None:
    assert COMMAND.value(key) == value


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
    assert COMMAND.with_option(key, value).argv == expected


def test_a_switch_is_on_or_off_and_other_engines_keys_are_no_options() -> None:
    with pytest.raises(ValueError, match="maybe"):
        COMMAND.with_option("enforce_eager", "maybe")
    with pytest.raises(KeyError):
        COMMAND.with_option("ctx_size", 1)


@pytest.mark.parametrize(
    ("runtime", "word", "key"),
    [
        ("vllm", "--max_model_len", "max_model_len"),
        ("sglang", "--context-length", "max_model_len"),
        ("llama-cpp", "-c", "max_model_len"),
        ("trtllm", "--max_seq_len", "max_model_len"),
        ("sglang", "--tp-size", "tensor_parallel"),
        ("vllm", "--unheard-of", "unheard_of"),
    ],
)
def test_one_key_has_a_spelling_for_each_runtime(runtime: str, word: str, key: str) -> None:
    assert key_of(word, runtime) == key


def test_a_script_can_be_read_and_stays_as_it_is() -> None:
    argv = ("bash", "-lc", "pip install --no-cache-dir x && vllm serve m --port 9000")
    assert (parse(argv).value("port"), parse(argv).argv) == ("9000", argv)


@given(st.lists(st.text(max_size=8) | st.sampled_from([*ARGV, "--x", "-1", "--a=b", "--no-y", "-sc.m"]), max_size=12))
def test_any_words_are_given_back_as_they_are(words: list[str]) -> None:
    assert parse(tuple(words)).argv == tuple(words)


@given(st.sampled_from(VALUED), st.text(min_size=1), st.text(min_size=1))
def test_the_last_value_set_is_the_one_read(key: str, first: str, second: str) -> None:
    command = parse(("vllm", "serve", "m")).with_option(key, first).with_option(key, second)
    assert command.value(key) == second
    assert command.argv == ("vllm", "serve", "m", spellings(key, "vllm")[0], second)
    assert command.without(key) == Invocation(parse(("vllm", "serve", "m")).arguments)
