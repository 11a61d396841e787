"""How a helper is started: a Python of this package, in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def command(module: str) -> tuple[str, ...]:
    """The command that runs a module of ours."""
    # -P: a `json.py` in the folder where the program was started is not the helper's business.
    return (sys.executable, "-P", "-m", module)


def python_path() -> str:
    """For PYTHONPATH: the helper finds this package also where it runs from a checkout. Installed packages stay behind
    the standard library, where Python puts them."""
    home = Path(__file__).resolve().parents[2]
    own = "" if home.name in ("site-packages", "dist-packages") else str(home)
    return os.pathsep.join(path for path in (own, os.environ.get("PYTHONPATH", "")) if path)
