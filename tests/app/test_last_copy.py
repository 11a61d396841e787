"""last-copy: what was copied last on the screen, for a terminal that did not take it."""

from __future__ import annotations

from pathlib import Path

from spark_tui.base.files import ScreenFolder
from tests.cli.world import World


def test_what_was_copied_last_is_printed_and_an_absent_copy_is_an_error(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    none = World().run("last-copy", environment=environment)
    assert (none.code, none.out) == (1, "")
    assert "Nothing copied yet." in none.err
    ScreenFolder(tmp_path / ".local/state/spark-tui").write("last-copy", "docker run -d \\\n  image")
    assert World().run("last-copy", environment=environment).out == "docker run -d \\\n  image\n"
    assert World().run("last-copy", "--json", environment=environment).json == {
        "id": "last-copy", "text": "docker run -d \\\n  image",
    }  # fmt: skip
