"""config: what is set, where it comes from, and changing it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.settings import KEYS
from tests.cli.world import Result, World


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def run(home: Path, *arguments: str, **variables: str) -> Result:
    return World().run("config", *arguments, environment={"HOME": str(home), **variables})


def written(home: Path, text: str) -> Path:
    path = home / ".config/spark-tui/settings.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def entries(result: Result) -> dict[str, Any]:
    return {entry["id"]: entry for entry in result.json}


def test_every_setting_is_told_with_where_it_comes_from(home: Path) -> None:
    path = written(home, '# mine\n\ntheme = "spark-light"\n[keymap]\nstop = "X"\n')
    found = entries(run(home, "list", "--json", SPARK_TUI_READ_ONLY="yes"))
    assert tuple(found) == KEYS
    assert (found["theme"]["value"], found["theme"]["where"]) == ("spark-light", f"{path}:3")
    assert (found["read_only"]["value"], found["read_only"]["where"]) == (True, "SPARK_TUI_READ_ONLY")
    assert (found["store"]["origin"], found["store"]["where"]) == ("default", None)
    assert found["keymap"]["value"] == "stop=X"
    text = run(home).out
    assert f"{path}:3" in text
    assert all(key in text for key in KEYS)


def test_a_value_is_set_where_it_counts_and_the_rest_of_the_file_stays(home: Path) -> None:
    path = written(home, "# mine\nstore = '/m'  # big disk\n")
    path.chmod(0o640)
    assert run(home, "set", "store", "/n").code == 0
    assert run(home, "set", "refresh_seconds", "2.5").code == 0
    assert run(home, "set", "keymap.stop", "X,ctrl+x").code == 0
    assert path.read_text() == (
        '# mine\nstore = "/n"  # big disk\nrefresh_seconds = 2.5\n\n[keymap]\nstop = ["X", "ctrl+x"]\n'
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert run(home, "get", "store").out == "/n\n"
    assert run(home, "get", "keymap.stop").out == "X,ctrl+x\n"
    assert run(home, "get", "keymap.restart").out == "r\n"
    assert run(home, "unset", "keymap").code == 0
    assert run(home, "unset", "store").code == 0
    assert run(home, "unset", "theme").code == 0, "what is not there need not be taken out"
    assert path.read_text() == "# mine\nrefresh_seconds = 2.5\n\n[keymap]\n"


def test_a_settings_file_that_is_a_link_stays_one(home: Path) -> None:
    path = written(home, "")
    real = home / "dotfiles.toml"
    real.write_text("read_only = true\n")
    path.unlink()
    path.symlink_to(real)
    run(home, "set", "theme", "spark-contrast")
    assert path.is_symlink()
    assert real.read_text() == 'read_only = true\ntheme = "spark-contrast"\n'


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("set", "them", "x"), "Did you mean `theme`?"),
        (("get", "colour"), "There is no setting `colour`"),
        (("set", "theme", "pink"), "spark-dark, spark-light"),
        (("set", "keymap.stpo", "X"), "Did you mean `keymap.stop`?"),
        (("set", "keymap.stop", "r"), "r would be stop and restart"),
        (("set", "keymap.stop", "nonsense"), "must name keys"),
        (("set", "refresh_seconds", "0"), "from 0.2 to 60"),
    ],
)
def test_a_mistake_changes_nothing_and_says_what_was_meant(home: Path, arguments: tuple[str, ...], says: str) -> None:
    path = written(home, "read_only = true\n")
    result = run(home, *arguments)
    assert result.code == 2
    assert says in result.err
    assert path.read_text() == "read_only = true\n"


def test_a_broken_file_names_its_line_and_a_wrong_value_in_it_can_be_mended(home: Path) -> None:
    path = written(home, 'theme = "pink"\n')
    assert f"{path}:1" in run(home).err
    assert run(home, "set", "theme", "spark-dark").code == 0
    assert run(home).code == 0
    written(home, "theme = \n")
    assert "is not valid TOML" in run(home, "set", "theme", "spark-dark").err


def test_keys_path_stronger_variables_and_clashes_are_shown(home: Path) -> None:
    path = written(home, '[keymap]\nstop = "X"\n')
    listed = {entry["id"]: entry for entry in run(home, "keys", "--json").json}
    assert (listed["stop"]["keys"], listed["stop"]["default_keys"]) == (["X"], ["x"])
    assert run(home, "path").out == f"{path}\n"
    result = run(home, "set", "theme", "spark-dark", SPARK_TUI_THEME="spark-light")
    assert "SPARK_TUI_THEME overrides" in result.err
    written(home, '[keymap]\nstop = "D"\n')
    result = run(home)
    assert result.code == 2
    assert f"{path}:1: keymap must give each key one meaning" in result.err
