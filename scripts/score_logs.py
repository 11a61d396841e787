#!/usr/bin/env python3
"""Scores the explanation of logs by facet, on excerpts from public threads with their expected facts.

Usage: scripts/score_logs.py [--held]    prints what is missed, of the third that is held back only with --held
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.log_score import EXPECTED, HELD, marks, shares


def main() -> None:
    found = [mark for name in EXPECTED for mark in marks(name)]
    groups = {"open": [m for m in found if m.name not in HELD], "held back": [m for m in found if m.name in HELD]}
    for mark in groups["open"] + (groups["held back"] if "--held" in sys.argv else []):
        if not mark.right:
            print(f"{mark.name}: {mark.facet}: expected {mark.expected!r}, found {mark.found!r}")
    for title, group in groups.items():
        parts = (f"{facet} {right}/{of}" for facet, (right, of) in shares(group).items())
        print(f"{title:10} {len({mark.name for mark in group})} excerpts: {', '.join(parts)}")


if __name__ == "__main__":
    main()
