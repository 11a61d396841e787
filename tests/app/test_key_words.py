"""A text that names a key names the one in force: a person who moved it is never told the old one."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import spark_tui
from spark_tui.app.control_centre import SparkApp
from spark_tui.app.home import screen as home
from spark_tui.base.actions import ACTIONS, key_of, screen_keys, shown, use_keys
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import ContextOverflow
from spark_tui.base.finding import NOT_READ_YET, Missing, Ok
from spark_tui.base.settings import Settings
from spark_tui.catalog.fit.screen import presets
from spark_tui.observe.metrics.screen import metrics as metrics_words
from spark_tui.tui.format import UNICODE
from spark_tui.use.bench.show import bench
from spark_tui.use.chat.screen import chat
from spark_tui.use.chat.use.chat import ChatTarget, advised
from tests.tui.kit import Sight, kit_of

MOVED = {found.id: ("ctrl+x",) if "ctrl+x" not in found.default_keys else ("f12",) for found in ACTIONS}
"""Every action on a key that it does not have by itself; clashes are of no matter to a text."""
NAMED = re.compile(r"\b[Pp]ress (?:\^?[a-zA-Z0-9?]|F\d+)(?![a-z])")


@pytest.fixture(autouse=True)
def _default_keys_afterwards() -> Iterator[None]:
    yield
    use_keys({})


def test_a_key_is_written_as_people_write_it() -> None:
    keys = ("ctrl+p", "question_mark", "f2", "escape", "space", "x", "D", "pagedown")
    assert [shown(key) for key in keys] == ["^p", "?", "F2", "Esc", "Space", "x", "D", "PgDn"]


def test_the_screens_keys_are_one_range_until_one_of_them_moves() -> None:
    assert screen_keys() == "1-8"
    use_keys({"show_chat": ("f6",)})
    assert screen_keys() == "1 2 3 4 5 F6 7 8"


def test_what_is_no_action_has_no_key() -> None:
    with pytest.raises(KeyError):
        key_of("nothing")


def overflow() -> str:
    error = ContextOverflow("Too long.", "Shorten it.")
    return advised(error, ChatTarget("qwen", Endpoint("http://127.0.0.1:1"), "qwen", 512), Path("/key")).remedy


TEXTS: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "no engine on Home": (home.no_engine, ("Press 3", "? for")),
    "no presets": (presets.no_presets, ("press ^r",)),
    "nothing to measure": (lambda: bench.no_engine(Ok(())), ("1 Home, then l; or 3 Presets",)),
    "how to compare": (bench.how_to_compare, ("with Space", "A/B (b)")),
    "no metrics": (lambda: metrics_words.nothing(None), ("3 launch a preset", "1 running engines")),
    "paused metrics": (lambda: metrics_words.pace(0.0, simulated=False), ("p continue",)),
    "nobody to talk to": (
        lambda: chat.empty(None, "", has_previous=True),
        ("3  choose", "Esc leaves", "^n  back"),
    ),
    "an empty prompt": (lambda: chat.placeholder(None, ""), ("Esc, then 3",)),
    "under the prompt": (lambda: chat.hint(writing=False, files=()), ("Enter or Tab",)),
    "a full context": (overflow, ("F7 on the screen",)),
}  # fmt: skip


@pytest.mark.parametrize(("make", "says"), TEXTS.values(), ids=TEXTS)
def test_a_text_names_the_key_in_force(make: Callable[[], object], says: tuple[str, ...]) -> None:
    before = str(make())
    assert [words for words in says if words not in before] == []
    use_keys(MOVED)
    after = str(make())
    assert [words for words in says if words in after] == []
    assert "^x" in after


async def test_screens_without_anything_on_them_name_a_persons_own_keys() -> None:
    kit = kit_of()
    own = (("show_home", ("f1",)), ("show_models", ("f2",)), ("show_presets", ("f3",)), ("reload_presets", ("f10",)))
    kit.context.settings = replace(Settings(), keymap=tuple(sorted(own)))
    app = SparkApp(kit.context, UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        sight = Sight(kit, app, pilot)
        await sight.until_seen("Press F3 to choose a preset", "F3  choose a preset")
        await sight.press("f3")
        await sight.until_seen("press F10.")
        await sight.press("4")
        await sight.until_seen("No engine is selected. F1 Home.")


def test_no_text_has_a_key_written_into_it() -> None:
    folder = Path(spark_tui.__file__).parent
    files = [path for path in folder.rglob("*.py") if "click" not in path.read_text("utf-8")]  # a command has no keys
    found = [
        f"{path.relative_to(folder)}:{node.lineno}: {node.value}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMED.search(node.value)
    ]
    assert found == [], "ask base.actions.key_of"


def test_engines_that_cannot_be_listed_are_not_said_to_be_none() -> None:
    reason = "Docker is not running"
    assert reason in bench.no_engine(Missing(reason))
    unread = bench.no_engine(NOT_READ_YET)
    assert NOT_READ_YET.reason not in unread, "Docker has not answered yet: nothing has failed"
    for text in (unread, bench.no_engine(Missing(reason)), chat.placeholder(None, reason).plain):
        assert "no engine" not in text.lower()
