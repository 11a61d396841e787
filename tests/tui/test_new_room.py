"""A feature is one folder and one line of a list: here a list of our rooms and of one that is made up."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from textual.screen import Screen

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.main import cli, program, run
from spark_tui.app.rooms import ROOMS, Rooms
from spark_tui.base.feature import named
from spark_tui.cli.session import Streams
from spark_tui.tui.format import UNICODE
from tests.cli.world import Stream
from tests.tui.kit import kit_of
from tests.tui.quiet import text_of, until

ROOM: Final = "made_up.counting"
FILES: Final = {
    "feature.py": """
from spark_tui.base.feature import Feature, Slice

COUNTED: Slice[int] = Slice(0)
FEATURE = Feature(
    commands={"count": ("made_up.counting.command", "Count to a number.")},
    asides={"counting": "made_up.counting.screen:CountingScreen"},
    real={"counter": ("made_up.counting.adapter:Counter", None)},
    demo={"counter": ("made_up.counting.adapter:Counter", lambda make, p: make(7))},
    actions=(("everywhere", "open_counting", "f3", "Counting", "How far it was counted", "-", "count"),),
)
""",
    "adapter.py": """
class Counter:
    def __init__(self, most=3):
        self.most = most
""",
    "command.py": '''
from spark_tui.cli.command import command

@command("count")
def count(session):
    """Count to a number."""
    async def work(context):
        return context.ports["counter"].most
    session.out.write(f"{session.run(work)} counted\\n")
''',
    "screen.py": """
from textual.widgets import Static

from made_up.counting.feature import COUNTED
from spark_tui.tui.frame import FrameScreen

class CountingScreen(FrameScreen):
    SCOPE = "Counting"
    TAB = ""

    def compose_body(self):
        yield Static("", id="counted")

    def on_mount(self):
        self.bind_slices((COUNTED,), self.show_count)

    def show_count(self):
        self.query_one("#counted", Static).update(f"{self.world[COUNTED]} counted")
""",
}


@pytest.fixture
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rooms]:
    folder = tmp_path.joinpath(*ROOM.split("."))
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield Rooms((*ROOMS, ROOM))
    for name in [name for name in sys.modules if name.partition(".")[0] == "made_up"]:
        del sys.modules[name]


def said(words: str, rooms: Rooms, tmp_path: Path) -> tuple[int, str]:
    """Exit code, and what is on both streams."""
    out = Stream()
    streams = Streams(None, out, out, {"HOME": str(tmp_path)})
    return run(words.split(), streams, cli=program(rooms)), out.getvalue()


def test_its_command_answers_and_stands_in_the_help(
    rooms: Rooms, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said("count", rooms, tmp_path) == (0, "3 counted\n")
    assert "7 counted\n" in said("--demo count", rooms, tmp_path)[1]
    capsys.readouterr()
    said("--help", rooms, tmp_path)
    commands = [
        line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:2] == "  " and line[2:3] != " "
    ]
    assert commands.index("count") > commands.index("man") > commands.index("status")


async def test_its_screen_opens_by_its_key_and_follows_its_slice(rooms: Rooms) -> None:
    kit = kit_of()
    app = SparkApp(kit.context, UNICODE, rooms=rooms)
    async with app.run_test(size=(120, 70)) as pilot:
        await pilot.press("f3")
        await until(app, lambda: "0 counted" in text_of(app), passes=lambda: kit.clock.advance(1.0))
        kit.context.store.put(named(f"{ROOM}.feature:COUNTED"), 5)
        await until(app, lambda: "5 counted" in text_of(app), passes=lambda: kit.clock.advance(1.0))
        await pilot.press("f3")
        assert app.current_mode == "home"
        await pilot.press("question_mark")
        await until(app, lambda: "Counting" in text_of(app), passes=lambda: kit.clock.advance(1.0))


def test_its_key_may_be_changed(rooms: Rooms, tmp_path: Path) -> None:
    environ = {"SPARK_TUI_KEYMAP": "open_counting=f11"}
    for known, code in ((rooms, 0), (ROOMS, 2)):
        out = Stream()
        streams = Streams(None, out, out, {"HOME": str(tmp_path), **environ})
        assert run(["ps", "--demo"], streams, cli=program(known)) == code, out.getvalue()


def test_without_a_room_the_rest_works(tmp_path: Path) -> None:
    fewer = Rooms(room for room in ROOMS if room != "spark_tui.manage.cluster")
    assert said("cluster list", fewer, tmp_path)[0] == 2
    assert said("node look", fewer, tmp_path)[0] == 2
    assert said("--demo ps", fewer, tmp_path)[0] == 0
    assert len(fewer.commands()) == len(ROOMS.commands()) - 4


def test_every_name_that_a_room_declares_is_there() -> None:
    for feature in ROOMS.features():
        for name in (*feature.commands, *feature.unlisted):
            assert isinstance(cli.get_command(click.Context(cli), name), click.Command), name
        for place in (*feature.modes.values(), *feature.asides.values(), *feature.dialogs.values()):
            assert issubclass(named(place), Screen), place
        for place, _ in (*feature.real.values(), *feature.demo.values()):
            assert callable(named(place)), place


def test_no_two_rooms_declare_the_same_name() -> None:
    for kind in ("commands", "unlisted", "modes", "asides", "dialogs", "real", "demo"):
        names = [name for feature in ROOMS.features() for name in getattr(feature, kind)]
        assert len(names) == len(set(names)), kind
