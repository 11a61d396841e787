"""Permissions mean nothing to root: tests of them run as an ordinary user, whoever runs the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def ordinary_user(*folders: Path) -> Iterator[None]:
    """Within it, root is `nobody`; `folders` and what is above them can be entered. Others stay who they are."""
    if os.geteuid() != 0:
        yield
        return
    for folder in folders:
        for each in (folder, *folder.parents):
            if each.stat().st_mode & 0o077 == 0:
                each.chmod(each.stat().st_mode | 0o055)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
