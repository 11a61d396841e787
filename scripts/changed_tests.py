#!/usr/bin/env python3
"""Prints the test files that a change touches: changed ones, those that import a changed module directly, and for the
product those of GUARDS. Real tests and benchmarks are left out.

python3 scripts/changed_tests.py [REF]        REF: what the working tree is compared with; default: HEAD
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUARDS = ("test_golden.py", "test_gates.py")
"""What the product prints and what it may weigh, whichever module changes."""
SLOW = ("real", "perf")
"""Folders whose tests are not for every change."""


def changed(ref: str) -> set[Path]:
    """Files that differ from `ref`, with untracked ones."""
    commands = (["git", "diff", "--name-only", ref], ["git", "ls-files", "--others", "--exclude-standard"])
    outputs = (subprocess.run(each, cwd=ROOT, capture_output=True, text=True, check=True).stdout for each in commands)
    return {Path(line) for output in outputs for line in output.splitlines()}


def module_of(path: Path) -> str:
    """The dotted name of a Python file below the root."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    """Every module that a file names in an import, in functions too; `from a import b` counts as `a` and `a.b`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def touched(files: set[Path], root: Path) -> list[Path]:
    """The tests for changes in these files; paths are relative to `root`."""
    modules = {module_of(path) for path in files if path.suffix == ".py"}
    guards = GUARDS if any(path.parts[0] in ("spark_tui", "presets") for path in files) else ()
    tests = [path.relative_to(root) for path in sorted((root / "tests").rglob("test_*.py"))]
    return [
        path
        for path in tests
        if path.parts[1] not in SLOW and (path in files or path.name in guards or imports_of(root / path) & modules)
    ]


def main() -> int:
    """Prints the files, one a line."""
    for path in touched(changed(sys.argv[1] if len(sys.argv) > 1 else "HEAD"), ROOT):
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
