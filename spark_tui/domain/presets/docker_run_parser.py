"""Reads a `docker run` command: ours, or one that a person wrote or pasted from a guide.

What a `ContainerSpec` cannot hold is refused by name, with what to do instead, or left out where a server does
without it, with the reason: nothing is dropped in silence.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets.container_spec import ContainerSpec
from spark_tui.domain.presets.docker_run_values import LEFT_OUT, REFUSED, SWITCHES, VALUES, Draft
from spark_tui.domain.presets.shell_words import shell_construct, split_words

_PIECE = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\\r?\n|\\.|(?<!\S)~(?=[/\s]|$)""", re.DOTALL)
_CONTINUATION = re.compile(r"\\\r?\n")


@dataclass(frozen=True, slots=True)
class ReadCommand:
    """What a command makes. `left_out` says what it does without, and why."""

    spec: ContainerSpec
    left_out: tuple[str, ...] = ()


def split_text(text: str, *, home: str = "") -> tuple[str, ...]:
    """The words of a command text, as a POSIX shell without variables sees them; lines joined at their backslashes.

    `home` is what `~/` stands for.
    Raises UsageError where a shell would do more than split: variables, pipes, several commands, an open quote.
    """
    joined = _PIECE.sub(partial(_joined, home), text).strip()
    construct = shell_construct(joined)
    if construct:
        raise UsageError(
            f"The command uses the shell: {construct}.",
            "Write values out, as one `docker run` command without variables, comments or further commands.",
        )
    try:
        return split_words(joined)
    except ValueError as error:
        raise UsageError("The command has a quote that is never closed.", "Close it.", detail=str(error)) from error


def _joined(home: str, match: re.Match[str]) -> str:
    piece = match.group()
    if piece == "~" and home:
        return shlex.quote(home)
    if piece[0] == '"':
        return _CONTINUATION.sub("", piece)
    return "" if _CONTINUATION.fullmatch(piece) else piece


def parse_text(text: str, *, home: str = "") -> ContainerSpec:
    """The spec of a command text. `home` is what `~/` stands for; without it such a path is refused."""
    return parse_argv(split_text(text, home=home))


def parse_argv(argv: Sequence[str]) -> ContainerSpec:
    """The spec of a command. Raises like `read_argv`."""
    return read_argv(argv).spec


def read_argv(argv: Sequence[str]) -> ReadCommand:
    """What `docker run ...` makes; `sudo`, `$` and `docker container run` are understood as well.

    Raises UsageError for what is no such command, for options that a spec cannot hold, and for bad values.
    """
    words = list(argv)
    while words and words[0] in ("sudo", "$"):
        del words[0]
    if words[1:2] == ["container"]:
        del words[1]
    if len(words) < 2 or words[0].rpartition("/")[2] != "docker" or words[1] != "run":
        raise UsageError("This is not a docker run command.", "It has to begin with: docker run")
    draft = Draft()
    rest = _read_options(words[2:], draft)
    if not rest:
        raise UsageError("The command names no image.", "The image stands after the options: docker run -d ... IMAGE")
    return ReadCommand(draft.spec(rest[0], tuple(rest[1:])), tuple(draft.left_out))


def _read_options(words: list[str], draft: Draft) -> list[str]:
    """Takes the options off and returns image and command."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            return words[at:]
        if not word.startswith("-") or word == "-":
            return words[at - 1 :]
        for name, attached in _options_of(word):
            if name in LEFT_OUT:
                draft.leave_out(LEFT_OUT[name])
                continue
            if name in SWITCHES:
                draft.switch(SWITCHES[name], attached)
                continue
            _refuse_unknown(name)
            value = attached
            if value is None:
                if at == len(words):
                    raise UsageError(f"{_dashed(name)} has no value.", f"Write: {_dashed(name)} VALUE")
                value = words[at]
                at += 1
            VALUES[name](draft, value)
    return []


def _options_of(word: str) -> Iterator[tuple[str, str | None]]:
    """`--name=value`, `--name`, `-p8000:8000`, `-e=A=B` and clusters such as `-dit` as names with attached values."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        yield name, value if equals else None
        return
    letters = word[1:]
    for index, letter in enumerate(letters):
        rest = letters[index + 1 :]
        if letter not in SWITCHES and letter not in LEFT_OUT:
            yield letter, rest.removeprefix("=") if rest else None
            return
        if rest.startswith("="):
            yield letter, rest[1:]
            return
        yield letter, None


def _dashed(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name}"


def _refuse_unknown(name: str) -> None:
    if name in VALUES:
        return
    remedy = REFUSED.get(name, "Leave it out: a preset has no place for it.")
    raise UsageError(f"{_dashed(name)} is not supported here.", remedy)
