"""Every command that a text of the program names can be typed as it stands."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click
import pytest

import spark_tui
from spark_tui.app.main import cli
from tests.app.test_manners import COMMANDS, WRONG, told, within
from tests.cases import all_cases

PACKAGE = Path(spark_tui.__file__).parent
VALUE = "\0"
"""Stands where a text has a value of its own."""
ARGUMENT = re.compile(r"[A-Z]|\S*([A-Z]{2}|[\0={}/:0-9])\S*")
"""In a sentence: a word in capitals, a value, a path, a number. Other words are the sentence's."""


def texts(tree: ast.Module) -> Iterator[str]:
    """The texts of a module, but for docstrings, with `VALUE` for what is filled in."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if not isinstance(node, ast.JoinedStr | ast.Expr):
                if isinstance(child, ast.JoinedStr):
                    yield "".join(p.value if isinstance(p, ast.Constant) else VALUE for p in child.values)
                elif isinstance(child, ast.Constant) and isinstance(child.value, str):
                    yield child.value


def named(text: str) -> Iterator[list[str]]:
    """The commands in a text, as lists of words. A line of examples is one to its end, to a wide gap, a pipe or a
    redirection; in a sentence one ends with punctuation, or before a word that is none of its arguments."""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if example := re.fullmatch(r"\s\s+(?:.*(?:\||&&) )?spark-tui( .*?)(\s\s+.*|\s[|>#].*|\\)?", line):
            yield shlex.split(example[1])
            continue
        for start in re.finditer(r"spark-tui (?=[a-z\0-])", line):
            words: list[str] = []
            at: click.Command = cli
            for word in re.findall(r'"[^"]*"|\S+', line[start.end() :]):
                bare = word.strip("`'").rstrip(".,;:)`'")
                below = dict(within(at)) if isinstance(at, click.Group) else {}
                kinds = (each.type.choices for each in at.params if isinstance(each.type, click.Choice))
                if bare not in (*below, *chain(*kinds)) and not (bare[:1] in ("-", '"') or ARGUMENT.fullmatch(bare)):
                    break
                at = below.get(bare, at)
                words.append(bare)
                if word != bare:
                    break
            if words:
                yield words


def fault_of(words: list[str]) -> str:
    """Why the program does not take these words; empty where it does. Values are not judged."""
    at: click.Command = cli
    context, rest = click.Context(cli), words
    unsure = any(word.strip("\0") == "" or VALUE * 2 in word for word in words)  # a value may be nothing, or many words
    try:
        while isinstance(at, click.Group):
            while rest and rest[0] in ("--host", "--config", "--store"):
                rest = rest[2:]
            below = dict(within(at))
            if not rest or rest[0] not in below:
                break
            at = below[rest[0]]
            context, rest = click.Context(at, context, rest[0]), rest[1:]
        given, more, _ = at.make_parser(context).parse_args(list(rest))
    except click.UsageError as error:
        return error.format_message()
    if isinstance(at, click.Group):
        known = at.invoke_without_command and not more
        return "" if known or (more and (unsure or more[0].isupper())) else f"no command {' '.join(more)}"
    missing = [each.name for each in at.params if isinstance(each, click.Argument) and each.required]
    missing = [name for name in missing if name and not isinstance(given.get(name), str | tuple)]
    return "" if unsure or "--help" in words or not (missing or more) else f"missing {missing}, too much {more}"


def test_every_command_in_a_text_of_the_program_is_one() -> None:
    commands = {
        (path.name, *words)
        for path in PACKAGE.rglob("*.py")
        for text in texts(ast.parse(path.read_text("utf-8")))
        for words in named(text)
    }
    assert len(commands) > 300
    assert {each: fault for each in sorted(commands) if (fault := fault_of(list(each[1:])))} == {}


@all_cases(
    ("words", "fine"),
    [
        ("presets show", False), ("presets show x", True), ("config", True),
        ("presets show x y", False), ("presets show x --nope", False),
        ("nope x", False), ("gateway keys", True), ("--host lab ps", True), ("chat x -m", False), ("up \0 \0", True),
    ],
)  # fmt: skip
def test_a_command_that_the_program_does_not_take_is_noticed(words: str, fine: bool) -> None:
    assert (fault_of(words.split()) == "") is fine


# --- followed ---------------------------------------------------------------------------------------------

ELSEWHERE = {"registries", "cluster", "hosts", "update", "tune", "guard", "serve", "gateway", "completion"}
"""Groups that a demo does not have, or that go on until they are stopped."""


def remedies() -> list[str]:
    """Commands that fail: those of the table, and each command with a name that nothing has."""
    found = [line for line, _, _ in WRONG]
    for path, command in COMMANDS:
        names = ["nope1"] * sum(isinstance(each, click.Argument) and each.required for each in command.params)
        if names and not isinstance(command, click.Group) and path[0] not in ELSEWHERE:
            found.append(shlex.join([*path, *names]))
    return list(dict.fromkeys(found))


def test_the_command_that_an_error_names_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    followed, faults = set[str](), {}
    for line in remedies():
        _, _, err = told(f"--demo {line}", tmp_path)
        for words in named(err.partition("Error: ")[2]):
            command = shlex.join(words)
            if words[0] in ELSEWHERE or "-f" in words or any(word.isupper() for word in words) or command in followed:
                continue
            followed.add(command)
            code, _, answer = told(f"--demo {command}", tmp_path)
            if code == 2 and "nope" not in command:
                faults[f"{line} -> {command}"] = answer
    assert len(followed) > 10, followed
    assert faults == {}
