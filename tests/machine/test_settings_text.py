"""One value of a settings file changes, and nothing else in it."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.machine.settings import NotEditable, with_value

FILE = """\
# mine
store = "~/models"  # the big disk
 "theme" = 'spark-dark' # not "x" # really

# hosts [not] a table
presets = "/p#1"

# my keys
[keymap]
# stop with care
stop = [
  "X",  # big
  "ctrl+x",
]  # two

[other]
theme = "x"
"""


@pytest.mark.parametrize(
    ("key", "value", "before", "after"),
    [
        ("store", "/m", 'store = "~/models"  # the big disk', 'store = "/m"  # the big disk'),
        ("theme", "a", """ "theme" = 'spark-dark' # not "x" # really""", ' "theme" = "a" # not "x" # really'),
        ("presets", "/q", 'presets = "/p#1"', 'presets = "/q"'),
        ("read_only", True, "# my keys\n", "# my keys\nread_only = true\n\n"),
        ("keymap.stop", "Y", FILE[FILE.index("stop = [") : FILE.index("\n\n[other]")], 'stop = "Y"  # two'),
        ("keymap.restart", "R", "]  # two\n", ']  # two\nrestart = "R"\n'),
        ("keymap.quit", ["Q", "f10"], "]  # two\n", ']  # two\nquit = ["Q", "f10"]\n'),
        ("store", None, 'store = "~/models"  # the big disk\n', ""),
    ],
)
def test_only_that_value_changes(key: str, value: object, before: str, after: str) -> None:
    assert with_value(FILE, key, value) == FILE.replace(before, after, 1)


@pytest.mark.parametrize(
    ("text", "key", "after"),
    [
        ("", "theme", 'theme = "v"\n'),
        ("", "keymap.stop", '[keymap]\nstop = "v"\n'),
        ("store = '/m'", "theme", "store = '/m'\ntheme = \"v\"\n"),
        ("store = '/m'", "keymap.stop", "store = '/m'\n\n[keymap]\nstop = \"v\"\n"),
        ("# only a comment\n", "theme", '# only a comment\ntheme = "v"\n'),
        ("[keymap]\nstop = 'X'\n", "theme", "theme = \"v\"\n\n[keymap]\nstop = 'X'\n"),
        ("keymap = {stop = 'X'}\n", "keymap.stop", 'keymap = {stop = "v"}\n'),
        ("keymap.stop = 'X'\n", "keymap.restart", "keymap.stop = 'X'\nkeymap.restart = \"v\"\n"),
        ("[keymap]\n", "keymap.stop", '[keymap]\nstop = "v"\n'),
    ],
)
def test_a_value_that_was_not_there_goes_where_it_belongs(text: str, key: str, after: str) -> None:
    assert with_value(text, key, "v") == after


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("keymap = 3\n", "keymap.stop"),
        ("theme = [\n", "store"),
        ("theme = 1\ntheme = 2\n", "theme"),
    ],
)
def test_what_cannot_be_changed_safely_is_left_alone(text: str, key: str) -> None:
    with pytest.raises(NotEditable):
        with_value(text, key, "v")


@given(
    st.lists(st.sampled_from(FILE.splitlines(keepends=True))),
    st.sampled_from(("store", "theme", "read_only", "keymap.stop")),
    st.booleans() | st.integers(0, 99) | st.floats(0, 60) | st.text(st.characters(exclude_categories=("C",))),
)
def test_any_text_is_changed_rightly_or_not_at_all(lines: list[str], key: str, value: object) -> None:
    text = "".join(lines)
    try:
        changed = tomllib.loads(with_value(text, key, value))
    except NotEditable:
        return
    table, _, name = key.rpartition(".")
    before = tomllib.loads(text)
    assert (changed[table] if table else changed)[name] == value
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in with_value(text, key, value).splitlines() if line.startswith("#")
    ]
    assert set(before) <= set(changed)
