#!/usr/bin/env python3
"""Prints the open excerpts that show nothing another one does not: they may go.

Kept are all of a GB10, those held back, and the fewest that show each rule, cause, phase, outcome and finding of each
engine.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from spark_tui.observe.explain.model.causes.diagnosis import recognise
from spark_tui.observe.explain.model.line import parse_line
from tests.log_score import EXCERPTS, EXPECTED, HELD, excerpt, explained

GB10 = re.compile(rb"GB10|DGX Spark|sm_?121")


def shown(name: str) -> set[object]:
    """What an excerpt stands for."""
    told, found = explained(name), set[object]()
    failure = told.timeline.failure
    found |= {(told.engine, told.cause and told.cause.id), (told.engine, told.outcome), told.fp4.verdict}
    found |= {(told.engine, failure and failure.phase), *((told.engine, each.id) for each in told.findings)}
    for line in excerpt(name).decode(errors="replace").splitlines():
        for text in (line[:2_000], parse_line(line).message[:2_000]):
            if known := recognise(text):
                found.add(id(known[0]))
    return found


def main() -> None:
    real = {name for name in EXPECTED if name.startswith("gb10") or GB10.search(_text(name))}
    left = {name: shown(name) for name in EXPECTED if name not in real and name not in HELD}
    covered = {each for name in real if name not in HELD for each in shown(name)}
    while left:
        best = max(left, key=lambda name: (len(left[name] - covered), -len(excerpt(name)), name))
        if left[best] <= covered:
            break
        covered |= left.pop(best)
    print("\n".join(sorted(left)))


def _text(name: str) -> bytes:
    return (EXCERPTS / f"{name}.log").read_bytes()


if __name__ == "__main__":
    main()
