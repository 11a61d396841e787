"""A person's own keys: read, named, and held against the registry."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.keys import _character_to_key

from spark_tui.base.actions import ACTIONS, check_keymap
from spark_tui.base.settings import key_name, keymap_text, read_keymap
from tests.cases import all_cases


@all_cases("character", string.printable.strip() + " é")
def test_a_character_has_the_name_under_which_textual_reports_it(character: str) -> None:
    assert key_name(character if character != " " else "space") == _character_to_key(character).replace(" ", "space")


def test_every_default_key_can_be_written_in_a_keymap() -> None:
    for action in ACTIONS:
        for key in action.default_keys:
            assert key_name(key) == key


@pytest.mark.parametrize(
    ("written", "name"),
    [("Ctrl+X", "ctrl+x"), ("G", "G"), ("F5", "f5"), ("shift+ctrl+left", "ctrl+shift+left"), ("PageUp", "pageup")],
)
def test_names_are_forgiving(written: str, name: str) -> None:
    assert key_name(written) == name


@pytest.mark.parametrize("written", ["", "xx", "ctrl+", "hyper+x", "f13", "tab", "Ctrl+C", "shift+tab", "ctrl++"])
def test_what_is_no_key_or_always_does_the_same_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="must"):
        key_name(written)


def test_a_table_and_a_text_say_the_same() -> None:
    table = read_keymap({"stop": ["X", "ctrl+x"], "restart": "R"})
    assert table == read_keymap("stop=X,ctrl+x restart=R") == (("restart", ("R",)), ("stop", ("X", "ctrl+x")))
    assert read_keymap(keymap_text(table)) == table


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_a_keymap_is_read_or_refused_with_a_sentence(value: object) -> None:
    try:
        keymap = read_keymap(value)
    except ValueError as error:
        assert str(error).startswith("must ")
    else:
        assert read_keymap(keymap) == keymap


def test_the_default_keys_may_be_written_down() -> None:
    check_keymap(tuple((action.id, action.default_keys) for action in ACTIONS))


@pytest.mark.parametrize(
    ("keymap", "says"),
    [
        ("stpo=X", "did you mean stop?"),
        ("copy_line=q", "there is no action copy_line"),
        ("stop=r", "r would be stop and restart"),
        ("stop=D", "D would be stop and drop_cache"),
        ("quit=l", "l would be quit and launch"),
    ],
)
def test_an_unknown_action_and_a_clash_are_named(keymap: str, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("?", r"\?")):
        check_keymap(read_keymap(keymap))


def test_two_actions_may_change_places_and_screens_may_share_a_key() -> None:
    check_keymap(read_keymap("stop=r restart=x"))
    check_keymap(read_keymap("stop=w"))
    for earlier in ("longer_context=q", "token_chances=q", "fork_chat=q", "graph_kind=q"):
        check_keymap(read_keymap(earlier))  # of the last version: valid, without effect


EXCEPTIONS = {
    "enter": "opens what the cursor is on",
    "escape": "one step back",
    "left": "sideways: page, column, time",
    "right": "sideways: page, column, time",
    "up": "scrolls",
    "down": "scrolls",
    "pageup": "scrolls",
    "pagedown": "scrolls",
    "minus": "less or longer of what is shown",
    "plus": "more or shorter of what is shown",
    "equals_sign": "plus without shift",
    "slash": "finds: filters a list, searches a log",
    "delete": "removes the selected thing",
    "ctrl+r": "reads again",
}
"""Keys whose one meaning has another word on each screen."""


def test_one_key_has_one_meaning_on_every_screen() -> None:
    meanings: dict[str, set[str]] = {}
    for action in ACTIONS:
        for key in action.default_keys:
            meanings.setdefault(key, set()).add(action.label)
    assert {key: labels for key, labels in meanings.items() if len(labels) > 1 and key not in EXCEPTIONS} == {}


@all_cases(
    ("key", "label"),
    [
        ("l", "Launch"), ("e", "Edit"), ("x", "Stop"), ("r", "Restart"), ("a", "Fix"), ("c", "Cancel"), ("y", "Copy"),
        ("D", "Free cache"), ("B", "At boot"), ("question_mark", "Help"), ("f1", "Help"), ("ctrl+p", "Palette"),
        ("colon", "Palette"), ("q", "Quit"), ("o", "Connect"), ("u", "Update"),
    ],
)  # fmt: skip
def test_the_keys_that_a_person_learns_are_those_of_the_design(key: str, label: str) -> None:
    assert {action.label for action in ACTIONS if key in action.default_keys} == {label}
