"""`spark-tui conversations` for scripts: with --json every command that does something says what, as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_tui.services.conversations import FileConversations
from spark_tui.services.files import SystemUserFiles
from tests.cli.world import Result, World

TALK = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]


class Kept:
    """A folder with conversations; every command opens them anew, as a process does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *words: str) -> Result:
        """`spark-tui conversations WORDS`."""
        files = FileConversations(self.folder / "conversations")
        return World(conversations=files, user_files=SystemUserFiles(self.folder)).run("conversations", *words)


@pytest.fixture
def world(tmp_path: Path) -> Kept:
    (tmp_path / "talk.json").write_text(json.dumps(TALK))
    found = Kept(tmp_path)
    assert found.run("import", str(tmp_path / "talk.json")).code == 0
    return found


@pytest.mark.parametrize(("form", "begins"), [("markdown", "#"), ("json", "{")])
def test_an_export_as_data_holds_the_text_and_its_form(world: Kept, form: str, begins: str) -> None:
    found = world.run("export", "last", "--format", form, "--json").json
    assert (found["format"], found["text"][:1], found["file"]) == (form, begins, None)
    assert found["file_reason"]
    assert "Because." in found["text"]


def test_an_export_into_a_file_as_data_names_the_file(world: Kept, tmp_path: Path) -> None:
    found = world.run("export", "last", "-o", str(tmp_path / "out.md"), "--json").json
    assert found["file"] == str(tmp_path / "out.md")
    assert (tmp_path / "out.md").read_text() == found["text"]


def test_what_was_renamed_and_deleted_is_told_as_data(world: Kept) -> None:
    renamed = world.run("rename", "last", "Kernel hunt", "--json").json
    assert renamed == {"id": world.run("--json").json[0]["id"], "title": "Kernel hunt"}
    assert world.run("rm", "last", "--yes", "--json").json == {"id": renamed["id"], "deleted": True}
    assert world.run("--json").json == []
