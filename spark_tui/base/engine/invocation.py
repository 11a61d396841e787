"""A server's command line as a value: program, ordered arguments, tail. Parsed once, edited as such, rendered once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.options import OPTIONS, boolean, json_object, key_of, put, spellings
from spark_tui.base.engine.runtimes import Scalar
from spark_tui.base.shell import is_shell, words_of

_OPTION = re.compile(r"--?[A-Za-z]")
_NEGATIVE_NUMBER = re.compile(r"-\d[\d.]*")
_SUFFIXES: Final[Mapping[str, int]] = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3}


class Argument(Struct, frozen=True):
    """One option as it is written (`--port 8000`, `--port=8000`, `-tp 2`), or a word by itself (no `key`).

    `value` is None where none is written; of several the first. `path` is the part after the dot of
    `--speculative-config.method`; `off` marks `--no-...`.
    """

    words: tuple[str, ...]
    key: str = ""
    value: str | None = None
    path: str = ""
    off: bool = False


class Invocation(Struct, frozen=True):
    """A command. `script` is the whole command of a shell script (`bash -c ...`): its options can be read, not
    changed, and `arguments` are those of its text."""

    arguments: tuple[Argument, ...] = ()
    runtime: str = "vllm"
    script: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """The words, as they were written where nothing was changed."""
        return self.script or self.words

    @property
    def words(self) -> tuple[str, ...]:
        """The words that options are looked for in: the command's own, or those of its script."""
        return tuple(word for argument in self.arguments for word in argument.words)

    def value(self, key: str) -> str | None:
        """The value of an option, the last one where it is given twice; None where it is absent."""
        found = [each for each in self.arguments if each.key == key and not each.path and not each.off]
        return (found[-1].value or "") if found else None

    def number(self, key: str) -> float | None:
        """An option as a number, `64k` and `64K` as vLLM reads them; None where it is absent or no number."""
        return number_in(self.value(key) or "")

    def switch(self, key: str) -> bool | None:
        """Whether a switch is on; None where the command does not say. The last of several counts."""
        found = [each for each in self.arguments if each.key == key]
        return None if not found else not found[-1].off and str(found[-1].value).lower() not in ("false", "0")

    def json(self, key: str) -> Mapping[str, Any]:
        """A JSON option as a mapping, its dotted parts included; empty for what is no object."""
        found = dict(json_object(self.value(key) or ""))
        for argument in self.arguments:
            if argument.key == key and argument.path:
                put(found, argument.path, argument.value or "")
        return found

    def has(self, key: str) -> bool:
        """Whether the option is there in any spelling: negated, short, in dotted parts."""
        return any(argument.key == key for argument in self.arguments)

    def with_option(self, key: str, value: Scalar) -> Invocation:
        """The command with an option set, in place of an earlier one or at the end.

        A switch takes true or false; false removes it, and negates those that are on by themselves. Raises KeyError
        for an option that the runtime has not, ValueError for a switch that is neither true nor false.
        """
        names = spellings(key, self.runtime)
        if not names:
            raise KeyError(key)
        option = OPTIONS[key]
        if option.switch:
            on = boolean(value)
            rest = self.without(key).arguments
            negated = Argument(("--no-" + names[0][2:],), key, off=True)
            added = (Argument((names[0],), key),) if on else (negated,) if option.negatable else ()
            return replace(self, arguments=(*rest, *added))
        new = Argument((names[0], str(value)), key, str(value))
        kept: list[Argument] = []
        for argument in self.arguments:
            same = argument.key == key and not argument.path and not argument.off
            if not same:
                kept.append(argument)
            elif new not in kept:
                kept.append(new)
        return replace(self, arguments=tuple(kept) if new in kept else (*kept, new))

    def without(self, key: str) -> Invocation:
        return replace(self, arguments=tuple(each for each in self.arguments if each.key != key))

    def with_words(self, words: Iterable[str]) -> Invocation:
        return replace(self, arguments=(*self.arguments, *_arguments(tuple(words), self.runtime)))


@lru_cache(maxsize=128)  # planning, fitting and judging one launch read the same command ten times
def parse(argv: tuple[str, ...], runtime: str = "vllm") -> Invocation:
    """Reads a command. Any words make an invocation, and give the same words back."""
    return Invocation(_arguments(words_of(argv), runtime), runtime, argv if is_shell(argv) else ())


def number_in(text: str) -> float | None:
    """A number as vLLM reads it: `64k` is 64,000, `64K` 65,536; None for anything else."""
    if not (text := text.strip()):
        return None
    factor = _SUFFIXES.get(text[-1:], 1)
    match = re.fullmatch(r"-?\d{1,15}(?:\.\d{1,15})?", text[:-1] if factor > 1 else text, re.ASCII)
    return float(match[0]) * factor if match else None


def _arguments(words: tuple[str, ...], runtime: str) -> tuple[Argument, ...]:
    found: list[Argument] = []
    at = 0
    while at < len(words):
        taken = _argument(words, at, runtime)
        found.append(taken)
        at += len(taken.words)
    return tuple(found)


def _argument(words: tuple[str, ...], at: int, runtime: str) -> Argument:
    word = words[at]
    if _OPTION.match(word) is None:
        return Argument((word,))
    head, equals, attached = word.partition("=")
    name, dot, path = head.partition(".")
    key = key_of(name, runtime)
    option = OPTIONS.get(key)
    if option is None and key.startswith("no_"):
        return Argument((word,), key[3:], attached if equals else None, off=True)
    if equals or (option is not None and option.switch):
        return Argument((word,), key, attached if equals else None, path)
    following = words[at + 1 : at + 2]
    known = option is not None and not dot and bool(following) and not following[0].startswith("--")
    if not known and not (following and (following[0][:1] != "-" or _NEGATIVE_NUMBER.fullmatch(following[0]))):
        return Argument((word,), key, None, path)
    end = at + 2
    while option is not None and option.many and end < len(words) and not words[end].startswith("-"):
        end += 1
    return Argument(words[at:end], key, following[0], path)
