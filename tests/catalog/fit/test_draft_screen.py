"""The draft of a preset by keys: from a stored model, from the Hub, and from an engine that was started by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_tui.app.home.screen import HomeScreen
from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerStatus
from spark_tui.base.finding import Ok
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.quantities import GIB
from spark_tui.base.settings import Settings
from spark_tui.catalog.fit.screen.draft import DraftDialog
from spark_tui.catalog.models.model.config import facts_from
from spark_tui.catalog.models.model.hub import SearchHit
from spark_tui.catalog.presets.adapter.imports import FolderRecipeStore
from spark_tui.catalog.presets.adapter.store import PresetFiles, builtin_directory
from spark_tui.catalog.presets.model.preset import PRESETS
from spark_tui.run.launch.screen import LaunchForm
from spark_tui.tui.modals import TextDialog
from tests import TESTS
from tests.fakes_hub import card
from tests.log_fixtures import run_log
from tests.store_kit import cached, files
from tests.tui.models_kit import Stock, seen

FAILED = {"status": ContainerStatus.EXITED, "exit_code": 1}
QWEN = json.loads((TESTS / "fixtures" / "models" / "qwen3-32b-nvfp4.json").read_text("utf-8"))


@pytest.fixture
def kit(tmp_path: Path) -> Stock:
    """A model of the store that no preset names, one on the Hub, and a folder for presets."""
    root, own = tmp_path / "vllm", tmp_path / "presets"
    cached(root, "acme/tiny", files(seed=1))
    found = Stock(root)
    found.host.free = Ok(900 * GIB)
    held = (("config.json", 100), ("model.safetensors", 20 * GIB))
    found.hub.add(card("acme/Qwen3-32B-NVFP4", *held, weights=20 * GIB))
    found.hub.hits = (SearchHit("acme/Qwen3-32B-NVFP4", "acme", weights=20 * GIB),)
    found.hub.facts = Ok(facts_from(QWEN["config"], hf_quant=QWEN.get("hf_quant")))
    ports = found.context.ports.changed(presets=PresetFiles(builtin_directory(), own), recipes=FolderRecipeStore(own))
    found.context = Context(Settings(), ports, HostPaths(str(root), "/caches", "/home/test"))
    return found


async def test_enter_on_a_model_without_a_preset_shows_its_draft_which_is_saved_or_launched(
    kit: Stock, tmp_path: Path
) -> None:
    async with seen(kit) as sight:
        await sight.press("enter")
        sight.on(DraftDialog)
        await sight.until_seen("^s save")
        assert "checkpoint" in sight.text
        await sight.press("ctrl+s")
        sight.on(TextDialog)
        await sight.press("enter")
        file = tmp_path / "presets" / "tiny.yaml"
        await sight.until(file.exists)
        assert file.read_text().startswith("# Drafted by spark-tui for acme/tiny")
        await sight.until(lambda: sight.app.world[PRESETS].get("tiny") is not None)
        await sight.press("l")
        sight.on(LaunchForm)
        await sight.press("ctrl+l")
        await sight.until(lambda: isinstance(sight.app.screen, HomeScreen))
        assert sight.app.selected == "tiny"


async def test_a_model_on_the_hub_is_downloaded_and_launched_from_its_draft(kit: Stock, tmp_path: Path) -> None:
    async with seen(kit, (120, 36)) as sight:
        await sight.press("h", "enter")
        await sight.until_seen("1 found")
        await sight.press("enter")
        await sight.until_seen("l download and launch")
        await sight.press("l")
        await sight.until_seen("20.0 GiB first")
        await sight.press("l")
        await sight.press("ctrl+l")
        await sight.until(lambda: isinstance(sight.app.screen, HomeScreen))
        assert (tmp_path / "presets" / "qwen3-32b-nvfp4.yaml").exists()


async def test_an_engine_started_by_hand_becomes_a_preset_with_the_change_that_its_log_suggests(kit: Stock) -> None:
    argv = ("vllm", "serve", "acme/tiny", "--port", "8130")
    kit.docker.add_container("by-hand", lines=run_log("vllm-0.32-cpu-f_port"), argv=argv, **FAILED)  # type: ignore[arg-type]
    async with seen(kit, (120, 36), "1") as sight:
        await sight.until(lambda: "cause" in sight.text)
        for key in ("i", "a"):
            await sight.press(key)
            sight.on(DraftDialog)
            await sight.until_seen("l launch")
            if key == "i":
                await sight.press("escape")
        await sight.press("l")
        form = sight.on(LaunchForm)
        assert form.overrides.port == 8131
