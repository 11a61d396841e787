"""Importing recipes by keys alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.events import Paste

from spark_tui.catalog.fit.screen.import_form import ImportForm, SourceInput
from spark_tui.catalog.fit.screen.presets import PresetsScreen
from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from tests.kit import Kit
from tests.tui.kit import QWEN, SIZES, Sight, kit_of, seen

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
    kit.recipes = FolderRecipeStore(folder / "own")
    kit.context = kit.opened()
    return kit


async def paste(sight: Sight, text: str) -> SourceInput:
    line = sight.on(ImportForm).query_one(SourceInput)
    line.post_message(Paste(text))
    await sight.until(lambda: bool(line.value))
    return line


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


async def test_the_report_says_which_rights_a_recipe_takes(tmp_path: Path) -> None:
    source = tmp_path / "theirs.yaml"
    source.write_text(RECIPE + "executor_config: {devices: [/dev/sda], ipc: host}\n")
    async with seen(shelved(tmp_path), (120, 36), "i") as sight:
        await sight.type(str(source))
        await sight.press("enter")
        await sight.until_seen("1 imported", "takes_host", "devices=/dev/sda", "shares_host")


async def test_a_path_that_is_none_says_what_to_do_and_the_dialog_stays(tmp_path: Path) -> None:
    async with seen(shelved(tmp_path), (120, 36), "i") as sight:
        assert (await paste(sight, f"{tmp_path}/nowhere\n")).value == f"{tmp_path}/nowhere"
        await sight.press("enter")
        await sight.until(lambda: "Reading" not in sight.text and "nowhere" in sight.text)
        sight.on(ImportForm)
        assert not (tmp_path / "own").exists()


# --- docker run ---------------------------------------------------------------------------------------

COMMAND = """\
# from a post
sudo docker run -d --gpus all --name crane -p 8000:8000 \\
  -e HF_TOKEN=hf_abcdefghijklmnopqrstuv \\
  vllm/vllm-openai:nightly \\
  --model acme/crane --max-model-len 8192
"""


@pytest.mark.parametrize("size", SIZES)
async def test_a_pasted_command_stands_in_the_line_without_its_key_and_is_imported(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with seen(shelved(tmp_path), size, "i") as sight:
        line = await paste(sight, COMMAND.replace("\n", "\r"))  # as terminals do
        assert line.value.startswith("docker run -d --gpus all --name crane -p 8000:8000 -e")
        assert "hf_a" not in line.value
        await sight.press("enter")
        await sight.until_seen("1 imported", "crane", "HF_TOKEN", "private file")
    text = (tmp_path / "own" / "crane.yaml").read_text()
    assert "max_model_len: 8192" in text
    assert "hf_a" not in text


async def test_what_cannot_be_held_is_reported_and_the_line_stays_for_a_correction(tmp_path: Path) -> None:
    one_line = " ".join(COMMAND.replace("\\\n", " ").splitlines()[1].split())
    async with seen(shelved(tmp_path), (120, 36), "i") as sight:
        line = await paste(sight, one_line.replace("--name", "--memory 100g --name"))
        assert "-e HF_TOKEN=***" in line.value, "no key either where it is one line"
        await sight.press("enter")
        await sight.until_seen("refused", "--memory is not supported here", "does not bound what the GPU takes")
        line.value = line.value.replace("--memory 100g ", "").replace("--name crane", "--name heron")
        await sight.press("enter")
        await sight.until_seen("1 imported", "heron")
    assert (tmp_path / "own" / "heron.yaml").exists()


@pytest.mark.parametrize(
    ("text", "told", "names"),
    [
        (f"{COMMAND}\n{COMMAND.replace('crane', 'heron')}", "[2 docker run commands, 10 lines pasted]", "crane heron"),
        (RECIPE, "[text, 6 lines pasted]", "theirs"),
    ],
)
async def test_other_texts_of_several_lines_are_kept_whole(tmp_path: Path, text: str, told: str, names: str) -> None:
    async with seen(shelved(tmp_path), (120, 36), "i") as sight:
        assert (await paste(sight, text)).value == told
        await sight.press("enter")
        await sight.until_seen(f"{len(names.split())} imported")
    assert sorted(path.stem for path in (tmp_path / "own").iterdir()) == names.split()
