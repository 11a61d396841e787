#!/usr/bin/env python3
"""Prints the rules of causes.toml that no recorded text shows: they need a `source`, or they go.

Usage: scripts/unused_rules.py [FOLDER]...    logs (*.log, *.txt) of other folders count too
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from spark_tui.observe.explain.model.causes.diagnosis import recognise
from spark_tui.observe.explain.model.causes.table import rules
from spark_tui.observe.explain.model.line import parse_line
from tests.failure_logs import cases

ROOT = Path(__file__).resolve().parent.parent
TABLES = (
    "test_llama_vocabulary",
    "test_log_vocabulary",
    "test_log_strings",
    "test_log_truth",
    "test_failures_evidence",
)
"""Tests whose texts are sentences of engines, with their source."""


def texts(folders: list[Path]) -> Iterator[str]:
    for folder in (ROOT / "tests/fixtures", *folders):
        for path in (*folder.rglob("*.log"), *folder.rglob("*.txt"), *folder.rglob("*.jsonl")):
            yield path.read_text(encoding="utf-8", errors="replace")
    yield from ("\n".join(case.log) for case in cases())
    for name in TABLES:
        tree = ast.parse((ROOT / f"tests/observe/explain/{name}.py").read_text("utf-8"))
        yield from (str(each.value) for each in ast.walk(tree) if isinstance(each, ast.Constant))


def main() -> None:
    lines = {line[:2_000] for text in texts([Path(each) for each in sys.argv[1:]]) for line in text.splitlines()}
    lines |= {parse_line(line).message for line in lines}
    shown = {id(found[0]) for found in map(recognise, lines) if found is not None}
    unused = [rule for _, rule in rules() if id(rule) not in shown]
    for rule in unused:
        print(f"{rule.id}: {rule.summary or rule.explain or rule.fault}{f' ({rule.source})' if rule.source else ''}")
    print(f"{len(unused)} of {len(rules())} rules, {sum(not rule.source for rule in unused)} without a source")


if __name__ == "__main__":
    main()
