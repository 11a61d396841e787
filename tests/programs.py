"""Programs of a test's own, which note what they were asked."""

from __future__ import annotations

from pathlib import Path


def program(folder: Path, name: str, body: str) -> None:
    """A shell script in the folder of the `programs` fixture."""
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "$(basename "$0") $*" >> {folder}/asked\n{body}\n')
    path.chmod(0o755)


def asked(folder: Path) -> list[str]:
    """What they were asked, in order."""
    path = folder / "asked"
    return path.read_text().splitlines() if path.exists() else []
