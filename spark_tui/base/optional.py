"""Optional parts of this program: what installs them where it runs."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path

import spark_tui


def install_command(extra: str) -> str:
    """The shell command that installs what an extra of this program requires, for the Python that runs it."""
    try:
        requirements = [each.partition(";") for each in metadata.requires("spark-tui") or ()]
    except metadata.PackageNotFoundError:  # it runs from a checkout that nothing has installed
        needed = [f"{Path(spark_tui.__file__).resolve().parents[1]}[{extra}]"]
    else:
        needed = [name.strip() for name, _, marker in requirements if marker.split("==")[-1].strip(" \"'") == extra]
    if importlib.util.find_spec("pip") is not None:
        return shlex.join([sys.executable, "-m", "pip", "install", *needed])
    if shutil.which("uv") is not None:  # what uv makes has no pip
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *needed])
    return shlex.join(["python3", "-m", "pip", "--python", sys.executable, "install", *needed])
