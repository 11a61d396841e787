"""Text from outside as values: one loader for each language, which raises one kind of error."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import spark_tui
from spark_tui.base.untrusted import MAX_DEPTH, load_json, load_toml

ROOT = Path(spark_tui.__file__).parent
LOADERS = {"base/untrusted.py", "base/yaml_nodes.py"}
OWN = {
    "manage/cluster/adapter/bundle_installer.py",  # runs alone on a new machine, on what this program sent there
    "simulator/recording.py",  # files of the package
}
CALLED = re.compile(r"\b(?:json|tomllib|yaml)\.(?:loads?|safe_load|compose|parse|decode)\b")
READ = {
    "json": {"load", "loads"},
    "tomllib": {"load", "loads"},
    "yaml": {"load", "safe_load", "compose", "parse"},
    "msgspec.json": {"decode"},
}


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" * 950 + "]" * 950, '{"a":' * 100_000, "[", "", "9" * 5000, b"\xff"]
)
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        load_json(text)


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, ".".join("a" * 5000) + " = 1", "a =", "a = " + "9" * 5000])
def test_what_is_no_toml_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        load_toml(text)


def test_values_are_as_deep_as_is_allowed() -> None:
    load_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    load_json('{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH)
    assert load_json('{"a": [1, {"b": []}]}') == {"a": [1, {"b": []}]}
    with pytest.raises(ValueError):
        load_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    with pytest.raises(ValueError):
        load_json('[1, {"a":' * MAX_DEPTH + "1" + "}]" * MAX_DEPTH)


def test_everything_is_read_by_the_one_loader() -> None:
    found = [
        f"{name}:{node.lineno}"
        for path in sorted(ROOT.rglob("*.py"))
        if (name := str(path.relative_to(ROOT))) not in LOADERS | OWN
        if CALLED.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in READ.get(ast.unparse(node.value), ())
    ]
    assert found == []
