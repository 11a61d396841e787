"""pip for another Python: wheels into a folder, whatever the version of the Python that runs here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.real.lab.support import LabUnavailable, run

DOWNLOAD_SECONDS = 3600.0
"""A gigabyte over a slow line takes its time."""


def pip_command() -> list[str]:
    """A pip that can be run here."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        found = shutil.which(name)
        if found is not None:
            return [found]
    raise LabUnavailable("pip not found; run `python3 scripts/venv.py`, then use .venv/bin/python")


def pip_environ(scratch: Path) -> dict[str, str]:
    """The user's own pip settings, and temporary files where the result goes, so that moving them is a rename."""
    scratch.mkdir(parents=True, exist_ok=True)
    quiet = {"PIP_ROOT_USER_ACTION": "ignore", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    return {**os.environ, **quiet, "TMPDIR": str(scratch)}


def install_wheels(
    what: Sequence[str | Path], target: Path, *, python: str, scratch: Path, dependencies: bool = False
) -> None:
    """Unpacks wheels for CPython `python` (such as "3.11") on this kind of machine. Their .pyc files are not made."""
    options = ["--quiet", "--no-compile", "--only-binary=:all:", "--python-version", python, "--implementation", "cp"]
    if not dependencies:
        options.append("--no-deps")
    run(
        [*pip_command(), "install", *options, "--target", target, *what],
        env=pip_environ(scratch),
        timeout=DOWNLOAD_SECONDS,
    )


def download_wheel(requirement: str, into: Path, *, scratch: Path) -> Path:
    """One wheel as a file."""
    into.mkdir(parents=True, exist_ok=True)
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(into)]
    run([*pip_command(), "download", *options, requirement], env=pip_environ(scratch), timeout=DOWNLOAD_SECONDS)
    return next(into.glob("*.whl"))
