"""Texts that a person reads use plain words: none of the narrator's, in the program, its presets and its documents."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import TESTS
from tests.app.test_rooms import FRAMES, WINGS

ROOT = TESTS.parent
BANNED = re.compile(
    r"\b(told|tells?|telling|mend(?:s|ed|ing)?|bears?|anew|nobody|lacks?|goes on|had back|leave it(?! out)|"
    r"all the same|so many|at most so|box(?:es)?)\b",
    re.IGNORECASE,
)
BANNED_IN_DOCSTRINGS = re.compile(
    r"\b(told|tells?|telling|mend(?:s|ed|ing)?|bears?|anew|nobody|somebody|whoever|lacks?|goes on|had back|"
    r"so many|at most so|speaks?|box(?:es)?)\b",
    re.IGNORECASE,
)
NOT_OURS = re.compile(r"box[ -]drawing", re.IGNORECASE)
DATA = 600
"""Texts of more characters are no sentences for anybody: prompts to measure with, tables of published figures."""
DOCUMENTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")


def texts_of(path: Path) -> Iterator[tuple[int, str, bool]]:
    """The string literals of a module that hold a sentence: line, text, and whether it is a docstring."""
    gc.disable()  # CPython gh-106905: a collection that parses meanwhile makes ast.parse raise SystemError
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and " " in text:
            yield node.lineno, text, id(node) in documentation


@pytest.mark.parametrize("folder", ["app", *FRAMES, *(wing for wing in WINGS if wing not in ("app", "frame"))])
def test_texts_of_the_program_use_plain_words(folder: str) -> None:
    modules = sorted((ROOT / "spark_tui" / folder).rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:100]}"
        for path in modules
        for line, text, docstring in texts_of(path)
        if (docstring or len(text) < DATA)
        and (BANNED_IN_DOCSTRINGS if docstring else BANNED).search(text)
        and not NOT_OURS.search(text)
    ]
    assert modules and not found, "\n".join(found)


@pytest.mark.parametrize("path", [*DOCUMENTS, "presets"])
def test_documents_and_presets_use_plain_words(path: str) -> None:
    files = sorted((ROOT / path).glob("*.yaml")) if path == "presets" else [ROOT / path]
    found = [
        f"{file.name}:{number}: {line.strip()[:100]}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if BANNED.search(line)
    ]
    assert files and not found, "\n".join(found)
