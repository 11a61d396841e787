"""Importing recipes by keys alone."""

from __future__ import annotations

from pathlib import Path

from spark_tui.services.preset_imports import FolderRecipeShelf
from spark_tui.tui.screens.import_form import ImportForm
from spark_tui.tui.screens.presets import PresetsScreen
from tests.core.kit import Kit
from tests.tui.kit import QWEN, SIZES, kit_of, seen

RECIPE = """\
recipe_version: "2"
model: org/theirs
container: vllm/vllm-openai:v0.30.0
command: vllm serve {model} --port {port}
defaults:
  port: 8000
"""


def shelved(folder: Path) -> Kit:
    kit = kit_of(QWEN)
    kit.recipes = FolderRecipeShelf(folder / "own")
    kit.context = kit.opened()
    return kit


async def test_a_recipe_file_is_imported_and_its_report_shown(tmp_path: Path) -> None:
    source = tmp_path / "theirs.yaml"
    source.write_text(RECIPE)
    async with seen(shelved(tmp_path), SIZES[0], "i") as sight:
        await sight.type(str(source))
        await sight.press("enter")
        await sight.until_seen("1 imported", "theirs")
        await sight.press("escape")
        sight.on(PresetsScreen)
    assert (tmp_path / "own" / "theirs.yaml").exists()


async def test_a_path_that_is_none_says_what_to_do_and_the_dialog_stays(tmp_path: Path) -> None:
    async with seen(shelved(tmp_path), (120, 36), "i") as sight:
        await sight.type(str(tmp_path / "nowhere"))
        await sight.press("enter")
        await sight.until(lambda: "Reading" not in sight.text and "nowhere" in sight.text)
        sight.on(ImportForm)
        assert not (tmp_path / "own").exists()
