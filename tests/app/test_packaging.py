"""The wheel carries what the program needs at run time."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.pty_app import REPOSITORY


def test_the_wheel_holds_presets_styles_types_and_the_demo(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    presets = {f"spark_tui/_presets/{path.name}" for path in (REPOSITORY / "presets").glob("*.yaml")}
    styles = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "spark_tui").rglob("*.tcss")}
    demo = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "spark_tui").rglob("data/*") if path.is_file()}
    assert presets
    assert styles
    assert demo
    assert (presets | styles | demo | {"spark_tui/py.typed"}) - names == set()
    assert [name for name in names if name.endswith(".data/data/share/man/man1/spark-tui.1")]
    assert not [name for name in names if name.startswith("tests/")]
