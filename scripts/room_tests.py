#!/usr/bin/env python3
"""Prints the folders with the tests of rooms and wings.

python3 scripts/room_tests.py ROOM...        memory, observe/memory, or a wing: observe
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WINGS = ("base", "machine", "cli", "tui", "observe", "catalog", "run", "use", "manage", "simulator", "app")
WITH_ROOMS = ("observe", "catalog", "run", "use", "manage")


def rooms(root: Path) -> tuple[str, ...]:
    """Wings of the product, and rooms by `wing/room`."""
    folders = (path for wing in WITH_ROOMS for path in sorted((root / "spark_tui" / wing).iterdir()))
    return (*WINGS, *(f"{each.parent.name}/{each.name}" for each in folders if (each / "__init__.py").is_file()))


def folder_of(word: str, known: Iterable[str]) -> str | None:
    """Where the tests of a room stand, which may be named without its wing."""
    matches = [each for each in known if word in (each, each.partition("/")[2])]
    return f"tests/{matches[0]}" if len(matches) == 1 else None


def main() -> int:
    """Prints the folders, one a line. Exit codes: 0 done, 2 an unknown room, or one without tests of its own."""
    known = rooms(ROOT)
    for word in sys.argv[1:]:
        folder = folder_of(word.rstrip("/"), known)
        if folder is None:
            print(f"No room or wing is named {word}. There are: {', '.join(known)}", file=sys.stderr)
            return 2
        if not (ROOT / folder).is_dir():
            print(f"{word} has no tests of its own yet: no folder {folder}.", file=sys.stderr)
            return 2
        print(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
