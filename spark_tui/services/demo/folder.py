"""A folder for what the demo writes."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class DemoFolder:
    """A folder of this run, removed with it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="spark-tui-demo-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
