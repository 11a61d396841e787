"""What `y` copies: one entry at once, several from a menu; kept in a private file, but for a key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spark_tui.app.home.screen import HomeScreen
from spark_tui.base.engine.container import ALL_INTERFACES, PublishedPort
from spark_tui.base.files import ScreenFolder
from spark_tui.base.secret import Secret
from spark_tui.tui.modals import YankMenu
from spark_tui.tui.yank import LAST_COPY
from tests.tui.kit import QWEN, Sight, kit_of, seen

KEY = "0123456789abcdef" * 3


@asynccontextmanager
async def served(tmp_path: Path, key: str = KEY) -> AsyncIterator[tuple[Sight, ScreenFolder]]:
    """Home, with an engine of ours that has a key."""
    kit, files = kit_of(QWEN), ScreenFolder(tmp_path / "state")
    vars(kit.context.ports)["screen_files"] = files
    path = kit.secrets.env_file("qwen", {"VLLM_API_KEY": Secret(key)} if key else {})
    labels = {"preset": "qwen", "served-name": "model", "port": "8000", "api-key-file": str(path)}
    kit.docker.add_container(
        "qwen",
        labels=tuple((f"io.spark-tui.{name}", value) for name, value in labels.items()),
        ports=(PublishedPort(8000, 8000, ALL_INTERFACES),),
        lines=("INFO: the last line",),
    )
    kit.api.serve()
    async with seen(kit, (120, 36), "1") as sight:
        await sight.until_seen("qwen", "the last line")
        yield sight, files


def said(sight: Sight) -> str:
    """The newest notice."""
    return list(sight.app._notifications)[-1].message


@pytest.mark.parametrize(
    ("letter", "copied"),
    [("u", "http://127.0.0.1:8000/v1"), ("m", "model"), ("l", "INFO: the last line"), ("c", "docker run")],
)
async def test_home_copies_in_two_keys_and_keeps_the_copy(tmp_path: Path, letter: str, copied: str) -> None:
    async with served(tmp_path) as (sight, files):
        await sight.press("y", letter)
        sight.on(HomeScreen)
        assert sight.app.clipboard.startswith(copied)
        assert files.read(LAST_COPY) == sight.app.clipboard
        assert (tmp_path / "state" / LAST_COPY).stat().st_mode & 0o777 == 0o600
        assert said(sight).endswith("sent to the terminal (OSC 52). Also: spark-tui last-copy")


async def test_a_key_is_copied_only_by_its_own_entry_and_kept_in_no_file(tmp_path: Path) -> None:
    async with served(tmp_path) as (sight, files):
        await sight.press("y")
        menu = sight.on(YankMenu)
        assert KEY not in sight.text
        await sight.press("k")
        assert sight.app.clipboard == KEY
        assert files.read(LAST_COPY) is None
        assert said(sight) == "API key sent to the terminal (OSC 52). Not kept in a file."
        assert not menu.is_current


async def test_a_key_file_without_a_key_is_an_error_and_copies_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, key="") as (sight, files):
        await sight.press("y", "k")
        assert said(sight).startswith("No API key in")
        assert (sight.app.clipboard, files.read(LAST_COPY)) == ("", None)


async def test_enter_copies_the_entry_under_the_cursor_and_escape_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as (sight, _):
        await sight.press("y", "escape")
        assert sight.app.clipboard == ""
        await sight.press("y", "down", "enter")
        assert sight.app.clipboard == "model"


async def test_a_copy_that_cannot_be_kept_is_sent_all_the_same_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in the folder's place")
    async with served(tmp_path) as (sight, _):
        await sight.press("y", "m")
        assert sight.app.clipboard == "model"
        assert "No copy kept:" in said(sight)


async def test_a_screenshot_is_a_private_file_in_the_state_folder_and_shows_no_key(tmp_path: Path) -> None:
    async with served(tmp_path) as (sight, _):
        await sight.press("ctrl+s")
        [saved] = (tmp_path / "state" / "screenshots").glob("home-*.svg")
        assert saved.stat().st_mode & 0o777 == 0o600
        assert str(saved) in said(sight)
        assert saved.read_text().startswith("<svg")
        assert KEY not in saved.read_text()
