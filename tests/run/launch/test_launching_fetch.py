"""up with a model that is not here: what it tells, how it is left out, and what Ctrl-C leaves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_tui.base.finding import Ok
from spark_tui.base.quantities import GIB
from spark_tui.catalog.models.adapter.store import FolderModelStore
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import DownloadPhase
from spark_tui.catalog.models.model.hub import Gating
from tests.cli.world import BOOT, IMAGE, World
from tests.fakes_hub import FakeDownloader, FakeHub, card
from tests.store_kit import cached, files

UP = ("up", "tiny-1b")


class Shop(World):
    """A world whose Hub has the preset's model."""

    hub: FakeHub
    downloader: FakeDownloader


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    world = Shop(hub=FakeHub(), downloader=FakeDownloader(at_once=True), models=FolderModelStore(tmp_path), drive=True)
    world.hub.add(card("acme/tiny-1b", ("config.json", 100), ("model.safetensors", 18 * GIB)))
    world.host.free = Ok(400 * GIB)
    world.docker.add_image(IMAGE)
    world.docker.script(IMAGE, BOOT)
    world.docker.on_start = world.api.serve
    return world


def test_size_room_and_progress_are_told_before_the_container_is_made(shop: Shop) -> None:
    result = shop.run(*UP)
    assert result.code == 0
    lines = [line for line in result.err.splitlines() if line.startswith("Fetch model")]
    told = [" ".join(re.sub(r"\b\d+(\.\d)?s ", "", line).split()) for line in lines]
    assert told[0].startswith("Fetch model ...")
    assert told[1:2] == ["Fetch model ... acme/tiny-1b: 18.0 GiB to download, 400 GiB free"]
    assert "25% 250 B of 1000 B" in told[2]
    assert told[-1].startswith("Fetch model done")
    assert told[-1].endswith("downloaded acme/tiny-1b, 18.0 GiB")
    assert result.err.index("Fetch model") < result.err.index("Create container")


def test_as_data_size_and_room_are_told_too(shop: Shop) -> None:
    steps = [line for line in shop.run(*UP, "--json").json_lines if line.get("id") == "fetch"]
    assert {"running", "done"} == {step["state"] for step in steps}
    assert "acme/tiny-1b: 18.0 GiB to download, 400 GiB free" in [step["detail"] for step in steps]


def test_no_fetch_leaves_it_to_the_engine(shop: Shop) -> None:
    result = shop.run(*UP, "--no-fetch")
    assert result.code == 0
    assert "left to the engine" in result.err
    assert (shop.hub.tokens, shop.downloader.started) == ([], [])


def test_what_is_here_needs_no_hub(shop: Shop, tmp_path: Path) -> None:
    cached(tmp_path, "acme/tiny-1b", files(seed=1))
    assert "model downloaded" in shop.run(*UP).err
    assert shop.hub.tokens == []


def test_a_dry_run_names_what_would_be_fetched_and_asks_nobody(shop: Shop) -> None:
    result = shop.run(*UP, "--dry-run")
    note = "note: Fetched first: acme/tiny-1b. How much that is: spark-tui models pull tiny-1b --dry-run"
    assert note in result.err
    assert "Fetched first" not in shop.run(*UP, "--dry-run", "--no-fetch").err
    assert shop.hub.tokens == []


def test_a_gated_model_is_refused_with_the_page_to_accept_on(shop: Shop) -> None:
    shop.hub.add(card("acme/tiny-1b", ("model.safetensors", 5), gating=Gating.MANUAL))
    shop.hub.refused["acme/tiny-1b"] = hub_errors.gated("https://hub", "acme/tiny-1b", known=True)
    result = shop.run(*UP)
    assert result.code == 4
    assert "https://hub/acme/tiny-1b" in result.err
    assert not shop.docker.created


def test_without_the_hub_the_way_around_is_named(shop: Shop) -> None:
    shop.hub.broken = hub_errors.offline("https://hub", "no route")
    result = shop.run(*UP)
    assert result.code == 3
    assert "--no-fetch" in result.err


def test_ctrl_c_pauses_and_the_same_command_goes_on(shop: Shop, tmp_path: Path) -> None:
    shop.downloader.at_once = False
    shop.interrupt_when(lambda: shop.downloader.looks > 3)
    result = shop.run(*UP)
    assert result.code == 130
    assert "Paused. Downloaded files are kept." in result.err
    assert [each.phase for each in shop.downloader.known.values()] == [DownloadPhase.PAUSED]
    assert not shop.docker.created
    shop.downloader.at_once, shop.models = True, FolderModelStore(tmp_path)
    assert shop.run(*UP).code == 0
