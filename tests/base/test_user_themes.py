"""A user's own themes: what a file may have, and every mistake with its place; none of them stops a start."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.settings import Folders, SettingsError, folders_of
from spark_tui.base.theme import UserTheme
from spark_tui.machine.settings import UserThemes, load_settings, read_themes


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    found = folders_of({}, tmp_path)
    found.themes.mkdir(parents=True)
    return found


def test_a_file_is_a_theme_of_its_own_name_or_of_the_one_it_gives(folders: Folders) -> None:
    (folders.themes / "mine.toml").write_text('base = "spark-nord"\n[colours]\naccent = "#ff9e64"\ndim = "#abc"\n')
    (folders.themes / "other.toml").write_text('name = "dusk"\n')
    (folders.themes / "notes.txt").write_text("no theme")
    found = read_themes(folders.themes)
    assert found.themes == (
        UserTheme("mine", "spark-nord", (("accent", "#ff9e64"), ("dim", "#abc"))), UserTheme("dusk", "spark-dark")
    )  # fmt: skip
    assert found.problems == ()
    for name in ("mine", "dusk"):
        assert load_settings({"SPARK_TUI_THEME": name}, folders).theme == name
    assert read_themes(folders.themes / "absent") == UserThemes()


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[colours]\n\naccnt = '#fff'\n", 3, "Did you mean `accent`?"),
        ("[colours]\ntext = 'red'\n", 2, 'Write it as "#rrggbb".'),
        ("[colours]\ntext = 3\n", 2, 'Write it as "#rrggbb".'),
        ("colours = 3\n", 1, "colours is not a table"),
        ("colors = 3\n", 1, "The keys are: name, base, colours."),
        ("name = 'spark-dark'\n", 1, "built-in theme's"),
        ("name = 'auto'\n", 1, "built-in theme's"),
        ("name = '[b]X'\n", 1, "lower-case letters"),
        ("base = 'nord'\n", 1, "The bases are: spark-dark,"),
        ("name = 'first'\n", 1, "Give one of them another name."),
        ("base = \n", 1, "is not valid TOML"),
    ],
)
def test_a_file_with_a_mistake_is_left_out_with_its_line_and_what_to_do(
    folders: Folders, text: str, line: int, says: str
) -> None:
    (folders.themes / "first.toml").write_text("")
    path = folders.themes / "second.toml"
    path.write_text(text)
    found = read_themes(folders.themes)
    assert [theme.name for theme in found.themes] == ["first"]
    [problem] = found.problems
    assert f"{path}:{line}" in str(problem)
    assert says in str(problem)
    assert load_settings({"SPARK_TUI_THEME": "second"}, folders).theme == "second", "the screen opens, and says so"


def test_what_cannot_be_read_is_a_problem_and_never_an_empty_list(folders: Folders) -> None:
    (folders.themes / "folder.toml").mkdir()
    (folders.themes / "large.toml").write_bytes(b"#" * 1_000_000)
    os.mkfifo(folders.themes / "pipe.toml")  # opening one waits for a writer
    problems = [str(each).partition(".toml")[0] for each in read_themes(folders.themes).problems]
    assert problems == [f"{folders.themes}/folder", f"{folders.themes}/large"]
    file = folders.config / "file"
    file.write_text("")
    assert len(read_themes(file).problems) == 1
    shutil.rmtree(folders.themes)
    folders.themes.touch()
    assert load_settings({"SPARK_TUI_THEME": "mine"}, folders).theme == "mine", "the screen opens, and says so"


@given(st.binary(max_size=200))
def test_no_file_raises(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    folder = tmp_path_factory.mktemp("themes")
    (folder / "any.toml").write_bytes(raw)
    found = read_themes(folder)
    assert len(found.themes) + len(found.problems) == 1


def test_a_theme_that_nobody_has_is_a_mistake_that_names_those_there_are(folders: Folders) -> None:
    (folders.themes / "mine.toml").write_text("")
    for name in ("pink", "spark-drak"):
        with pytest.raises(SettingsError, match="spark-ansi" if name == "spark-drak" else "spark-ansi or mine"):
            load_settings({"SPARK_TUI_THEME": name}, folders)
