"""A recipe's command as words: what bash would pass, without a shell."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_tui.base.shell import is_shell, join_lines, shell_construct, split_words, words_of
from tests.cases import all_cases


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve m \\\n  --port 8000\n", ("vllm", "serve", "m", "--port", "8000")),
        ("vllm serve m \\  \n  --port 8000", ("vllm", "serve", "m", "--port", "8000")),
        ("vllm serve m --port 8000 \\", ("vllm", "serve", "m", "--port", "8000")),
        ("""--c '{"a": "b c"}'""", ("--c", '{"a": "b c"}')),
        ('--c "{\\"a\\": 1}"', ("--c", '{"a": 1}')),
        ("--x \"a\\$b\" --y 'a$b'", ("--x", "a$b", "--y", "a$b")),
        ('a"b c"d \'\' ""', ("ab cd", "", "")),
        ("--glob *.json", ("--glob", "*.json")),
        ('bash -lc "a \\\n b"', ("bash", "-lc", "a  b")),
    ],
)
def test_words_are_those_of_the_shell(command: str, expected: tuple[str, ...]) -> None:
    joined = join_lines(command)
    assert shell_construct(joined) == ""
    assert split_words(joined) == expected


@all_cases(
    ("command", "construct"),
    [
        ("pip install scipy && vllm serve m", "&&"),
        ("vllm serve m | tee log", "|"),
        ("vllm serve m; sleep 1", ";"),
        ("vllm serve m > log", ">"),
        ("vllm serve $MODEL", "$"),
        ('vllm serve "${MODEL}"', "$"),
        ("vllm serve `cat m`", "`"),
        ("(vllm serve m)", "("),
        ("cd /x\nvllm serve m", "several lines"),
        ("vllm serve m # comment", "#"),
        ("vllm serve ~/m", "~"),
        ("HF_HUB_OFFLINE=1 vllm serve m", "HF_HUB_OFFLINE=1"),
        ("exec vllm serve m", "exec"),
    ],
)
def test_what_needs_a_shell_is_found_out(command: str, construct: str) -> None:
    assert shell_construct(join_lines(command)) == construct


@pytest.mark.parametrize(
    "command", ["vllm serve m --x 'a && b | $c'", 'bash -lc "a && b"', "vllm serve org/m#rev", "--pattern a\\;b"]
)
def test_quoted_operators_are_plain_text(command: str) -> None:
    assert shell_construct(join_lines(command)) == ""


@pytest.mark.parametrize("command", ["vllm serve 'm", 'vllm serve "m'])
def test_an_open_quote_is_an_error(command: str) -> None:
    with pytest.raises(ValueError, match="closing"):
        split_words(command)


def test_options_are_found_within_a_script() -> None:
    argv = ("bash", "-lc", "pip install scipy&&vllm serve m --port 9000")
    assert is_shell(argv)
    assert words_of(argv)[-2:] == ("--port", "9000")
    assert not is_shell(("vllm", "serve", "-c"))


def test_the_command_that_a_script_runs_at_its_end_is_read_too() -> None:
    server = ("vllm", "serve", "org/m", "--port", "9000")
    joined = ("bash", "-c", 'ray start --head && exec "$@"', "bash", *server)
    assert words_of(joined) == ("ray", "start", "--head", "&&", "exec", *server)
    keyed = ("sh", "-c", 'umask 077 && exec "$@"', "sh")
    assert words_of((*keyed, *joined))[-5:] == server
    assert words_of((*keyed * 5_000, *server))[-5:] == server, "however deep"
    assert words_of(("sh", "-c", "vllm serve org/m", "sh", "--port", "1"))[-1] == "org/m", "what it does not run"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is the oracle here")
@settings(max_examples=60, deadline=None)
@given(st.text("ab '\"\\-=\n.$", min_size=1, max_size=14))
def test_words_are_what_bash_passes(command: str) -> None:
    joined = join_lines(command)
    # A trailing backslash, and blanks after one, are mended where bash takes them literally.
    assume(joined and not shell_construct(joined) and not command.rstrip().endswith("\\") and "\\ \n" not in command)
    script = 'f() { for word in "$@"; do printf \'%s\\0\' "$word"; done; }; f ' + joined
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    try:
        words = split_words(joined)
    except ValueError:
        assert done.returncode != 0
    else:
        assert tuple(done.stdout.split("\0")[:-1]) == words
