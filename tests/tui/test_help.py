"""The table of keys: every action with its name, its help, and the command that does the same, whole."""

from __future__ import annotations

import pytest

from spark_tui.core.actions import Scope, of_scope
from spark_tui.tui.keymap import shown
from spark_tui.tui.screens.help import CLI_FROM, KeyTable


@pytest.mark.parametrize("width", [72, CLI_FROM, 109, 122, 180])
@pytest.mark.parametrize("scope", list(Scope))
def test_no_command_is_broken_and_no_line_is_too_long(scope: Scope, width: int) -> None:
    lines = KeyTable(scope, read_only=False).say(width).plain.split("\n")
    assert all(len(line) <= width for line in lines)
    for action in (*of_scope(scope), *of_scope(Scope.GLOBAL)):
        if action.cli:
            assert any(line.rstrip().endswith(f"spark-tui {action.cli}") for line in lines), action.id


def test_commands_stand_in_one_column_where_there_is_room_for_it() -> None:
    lines = KeyTable(Scope.MODELS, read_only=False).say(122).plain.split("\n")
    assert len({line.index("spark-tui ") for line in lines if "spark-tui " in line}) == 1


@pytest.mark.parametrize(
    ("key", "written"), [("ctrl+end", "^End"), ("ctrl+p", "^p"), ("f2", "F2"), ("question_mark", "?"), ("left", "Left")]
)
def test_keys_are_written_as_on_the_keyboard(key: str, written: str) -> None:
    assert shown(key) == written
