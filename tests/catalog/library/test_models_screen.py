"""The Models screen: what lists and pages say, what keys do, and what hostile names cannot do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import Input, TabbedContent

from spark_tui.app.home.screen import HomeScreen
from spark_tui.base.checkpoint import CheckpointFacts, WeightFormat
from spark_tui.base.engine.container import Mount
from spark_tui.base.finding import Ok, value_of
from spark_tui.base.quantities import GIB
from spark_tui.catalog.fit.screen.draft import DraftDialog
from spark_tui.catalog.fit.screen.presets import PresetsScreen
from spark_tui.catalog.library.screen.hub import FetchDialog, SearchDialog
from spark_tui.catalog.library.screen.models import ModelsScreen
from spark_tui.catalog.library.show.models import speed_text
from spark_tui.catalog.models.feature import DOWNLOADS
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import Download, DownloadPhase, DownloadRequest
from spark_tui.catalog.models.model.hub import FormatBasis, Formats, Gating, SearchHit, Sort
from spark_tui.catalog.models.model.inspection import Inspection
from spark_tui.catalog.models.model.weights import DecodeCeiling
from spark_tui.catalog.models.show.downloads import bar_cell
from spark_tui.catalog.models.show.inspection import hits_table
from spark_tui.catalog.models.use.downloads import Downloads
from spark_tui.catalog.presets.feature import LIBRARY
from spark_tui.catalog.presets.model.preset import PublishedSpeed
from spark_tui.tui.format import cell
from spark_tui.tui.help import HelpScreen
from spark_tui.tui.modals import ChoiceDialog, ConfirmScreen, TextDialog
from spark_tui.tui.widgets.row_list import RowList
from tests.fakes_hub import card
from tests.gguf_files import QWEN as GGUF
from tests.gguf_files import write_gguf
from tests.kit import PRESET
from tests.store_kit import COMMIT, cached, files, local
from tests.tui.kit import SIZES, Sight
from tests.tui.models_kit import Stock, page, row_of, seen

QWEN = replace(PRESET, name="qwen-fast", model="org/qwen")
TINY = (("config.json", 100), ("model.safetensors", 10 * GIB), ("original/model.pth", 10 * GIB))
HIT = SearchHit(
    "acme/tiny-NVFP4", "acme", Formats((WeightFormat.NVFP4,), FormatBasis.NAME), 8_000_000_000, 5 * GIB, 6 * GIB,
    downloads=1234, licence="mit", task="text-generation",
)  # fmt: skip


@pytest.fixture
def kit(tmp_path: Path) -> Stock:
    """Two models of the cache and a folder, one of them without a shard, and a Hub with one repository."""
    root = tmp_path / "vllm"
    cached(root, "org/qwen", files(seed=1))
    lame = cached(root, "org/lame", files(seed=2, shards=3))
    (lame / "snapshots" / COMMIT / "model-00003-of-00003.safetensors").unlink()
    local(root, "own", files(seed=3))
    found = Stock(root, QWEN)
    found.hub.add(card("acme/tiny-NVFP4", *TINY))
    found.hub.hits = (HIT,)
    found.host.free = Ok(100 * GIB)
    return found


def list_key(sight: Sight) -> str:
    return sight.app.screen.query_one("#model-list", RowList).key


async def go_to(sight: Sight, model: str) -> None:
    rows = sight.app.screen.query_one("#model-list", RowList)

    def there() -> bool:
        rows.select(model)
        return rows.key == model

    await sight.until(there)
    await sight.pilot.pause()


@asynccontextmanager
async def search(kit: Stock, *keys: str) -> AsyncIterator[Sight]:
    """The search dialog with the one hit, after these keys."""
    async with seen(kit, (120, 36), "h", "enter") as sight:
        await sight.until_seen("1 found")
        await sight.press(*keys)
        yield sight


# --- lists and pages --------------------------------------------------------------------------------------


async def test_the_list_shows_state_format_and_size_and_the_free_disk(kit: Stock) -> None:
    states = {"qwen": "complete", "lame": "partial", "own": "complete"}
    async with seen(kit, SIZES[0]) as sight:
        for size in SIZES:
            await sight.resized(size)
            await sight.until(lambda: "BF16" in row_of(sight, "qwen"))
            assert "KiB" in row_of(sight, "qwen")
            assert all(state in row_of(sight, name) for name, state in states.items())
            assert "DISK" in sight.text
            assert " free" in sight.text


async def test_the_pages_show_reasons_users_performance_files_and_checkpoint(kit: Stock) -> None:
    kit.engine("serving", "org/qwen")
    async with seen(kit) as sight:
        await sight.until(lambda: "model-00003-of-00003.safetensors is missing" in page(sight, "overview"))
        assert "g downloads the missing files" in page(sight, "overview")
        await go_to(sight, "org/qwen")
        await sight.until(lambda: "tok/s, one stream" in page(sight, "overview"))
        text = page(sight, "overview")
        assert all(words in text for words in ("serving runs with it", "qwen-fast", str(kit.root), COMMIT[:12]))
        assert "in use" in row_of(sight, "qwen")
        await sight.press("delete")
        await sight.until_seen("is not deleted", "spark-tui down serving")
        await sight.press("right")
        await sight.until(lambda: "model-00002-of-00002.safetensors" in page(sight, "files"))
        await sight.press("right")
        assert sight.app.screen.query_one(TabbedContent).active == "inspect-page"
        await sight.until(lambda: "LlamaForCausalLM (llama)" in page(sight, "inspect"))
        assert all(words in page(sight, "inspect") for words in ("KV cache", "one stream, estimated", "4,096 tokens"))
        assert isinstance(sight.app.focused, RowList), "the cursor stays in the list"
        await sight.press("left", "left")
        assert sight.app.screen.query_one(TabbedContent).active == "overview-page"
    assert (kit.root / "hub" / "models--org--qwen").exists()


async def test_an_empty_store_names_the_next_step_and_no_key_fails_in_it(tmp_path: Path) -> None:
    async with seen(Stock(tmp_path / "nowhere")) as sight:
        await sight.until_seen("Findings", "the store does not exist yet")
        assert "The first download creates it" in page(sight, "overview")
        assert "h search the Hub" in page(sight, "overview")
    (tmp_path / "vllm").mkdir()
    async with seen(Stock(tmp_path / "vllm")) as sight:
        await sight.until_seen("No models in", "h search the Hub")
        await sight.press("v", "delete", "g", "c", "p", "y", "enter")
        sight.on(ModelsScreen)


async def test_other_caches_and_files_of_root_have_a_page_and_a_command(tmp_path: Path) -> None:
    async with seen(Stock(tmp_path, simulated=True)) as sight:
        await sight.until_seen("Also read: /home/spark/.cache/huggingface/hub")
        await sight.press("end")
        assert ".cache/huggingface/hub/models--Qwen--Qwen3-0.6B" in page(sight, "overview").replace("\n", "").replace(
            " ", ""
        )
        await go_to(sight, "/models/qwen3.5-27b-dflash")
        assert "belong to root" in page(sight, "overview")
        assert "y f copies the fix" in page(sight, "overview")
        await sight.press("y", "f")
        assert sight.app.clipboard.startswith("sudo chown -R")
        await sight.press("home", "y", "f", "p")
        assert sight.app.clipboard.startswith("/"), "nothing to fix: the path"


# --- keys -------------------------------------------------------------------------------------------------


async def test_enter_shows_the_presets_that_use_it_and_else_a_draft(kit: Stock) -> None:
    async with seen(kit) as sight:
        await go_to(sight, "org/lame")
        await sight.press("enter")
        sight.on(DraftDialog)
        await sight.until_seen("is partial")
        await sight.press("escape")
        await go_to(sight, "org/qwen")
        await sight.press("enter")
        await sight.until(lambda: isinstance(sight.app.screen, PresetsScreen))
        await sight.until(lambda: sight.app.screen.query_one("#filter", Input).value == "org/qwen")
        assert sight.app.screen.query_one("#preset-list", RowList).key == "qwen-fast"


async def test_the_filter_finds_by_state_and_preset_and_escape_goes_one_step_back(kit: Stock) -> None:
    async with seen(kit, (120, 36), "slash") as sight:
        await sight.type("partial")
        assert list_key(sight) == "org/lame"
        assert "1 of 3" in sight.text
        await sight.press("escape", "slash")
        await sight.type("zzz")
        assert "No model matches. Esc clears the filter." in sight.text
        await sight.press("escape", "slash")
        await sight.type("qwen-fast")
        await sight.press("enter")
        assert list_key(sight) == "org/qwen"
        await sight.press("tab", "escape")
        assert isinstance(sight.app.focused, RowList)
        await sight.press("escape")
        assert "of 3" not in sight.text
        await sight.press("escape")
        sight.on(HomeScreen)


async def test_other_keys_change_nothing_and_without_docker_engines_are_unknown(kit: Stock) -> None:
    kit.docker.go_down()
    async with seen(kit) as sight:
        await sight.until(lambda: "unknown:" in page(sight, "overview"))
        await sight.until(lambda: "BF16" in row_of(sight, "own"))
        before = sight.text
        await sight.press("z", "Z", "f5", "ctrl+b", "tilde", "home")
        assert sight.text == before
        await sight.press("question_mark")
        sight.on(HelpScreen)


# --- verify -----------------------------------------------------------------------------------------------


async def test_a_whole_model_is_verified_and_says_so(kit: Stock) -> None:
    async with seen(kit) as sight:
        await go_to(sight, "org/qwen")
        await sight.press("v")
        await sight.until(lambda: "verified" in row_of(sight, "qwen"))
        assert "All 4 files match the Hub" in page(sight, "overview")
        assert "matches" in page(sight, "files")


async def test_a_damaged_file_is_named_and_g_fetches_that_one_again(kit: Stock) -> None:
    blob = os.path.realpath(kit.root / f"hub/models--org--qwen/snapshots/{COMMIT}/model-00001-of-00002.safetensors")
    data = bytearray(Path(blob).read_bytes())
    data[-1] ^= 1
    Path(blob).write_bytes(data)
    kit.hub.add(card("org/qwen", *((name, len(body)) for name, body in files(seed=1).items())))
    async with seen(kit) as sight:
        await go_to(sight, "org/qwen")
        await sight.press("v")
        await sight.until(lambda: "damaged" in row_of(sight, "qwen"))
        assert "model-00001-of-00002.safetensors differs from the Hub" in page(sight, "overview")
        await sight.press("y", "f")
        assert sight.app.clipboard == (
            f"spark-tui models pull org/qwen --revision {COMMIT} --file model-00001-of-00002.safetensors --again"
        )
        await sight.press("g")
        sight.on(FetchDialog)
        await sight.until_seen("Files: 1", "Enter download")
        await sight.press("enter")
        await sight.until(lambda: bool(kit.downloader.started))
        started = kit.downloader.started[0]
        assert (started.files, started.again, started.revision) == (("model-00001-of-00002.safetensors",), True, COMMIT)


async def test_c_ends_a_verification_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    kit = Stock(tmp_path, simulated=True)
    async with seen(kit, (120, 36)) as sight:
        await go_to(sight, "openai/gpt-oss-120b")
        await sight.press("v")
        await kit.clock.advance(3.0)
        await sight.until(lambda: "verify " in row_of(sight, "gpt-oss-120b"))
        await sight.press("c")
        await sight.until(lambda: "complete" in row_of(sight, "gpt-oss-120b"))
        assert "verifying" not in page(sight, "overview")


# --- delete -----------------------------------------------------------------------------------------------


async def test_deleting_shows_what_comes_free_and_needs_the_name(kit: Stock) -> None:
    async with seen(kit) as sight:
        await go_to(sight, "org/lame")
        await sight.press("delete")
        await sight.until(lambda: isinstance(sight.app.screen, (ConfirmScreen, ChoiceDialog)))
        if isinstance(sight.app.screen, ChoiceDialog):  # the shard that no name leads to is left over: all, or that
            assert "left" in sight.text
            await sight.press("enter")
            await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))
        assert "Delete org/lame?" in sight.text and "Frees " in sight.text
        await sight.type("org/lam")
        await sight.press("enter")
        sight.on(ConfirmScreen)
        await sight.type("e")
        await sight.press("enter")
        await sight.until(lambda: not row_of(sight, "lame"))
    assert not (kit.root / "hub" / "models--org--lame").exists()
    assert (kit.root / "hub" / "models--org--qwen").exists()


async def test_a_model_of_another_cache_is_moved_into_the_store_and_back(tmp_path: Path) -> None:
    kit = Stock(tmp_path / "store", QWEN, hubs=(str(tmp_path / "other/hub"),))
    other = cached(tmp_path / "other", "org/qwen", files())
    cached(tmp_path / "other", "org/more", files(seed=1))
    async with seen(kit) as sight:
        await go_to(sight, f"other:{other}")
        await sight.press("f3")
        await sight.until_seen("Move org/qwen?", "Copies nothing.")
        await sight.press("y")
        await sight.until(lambda: (kit.root / "hub/models--org--qwen/snapshots").is_dir() and not other.exists())
        await go_to(sight, "org/qwen")
        await sight.press("f3")
        await sight.until_seen("Move org/qwen where?", f"{tmp_path}/other/hub"[:40])
        await sight.press("enter")
        await sight.until_seen("Move org/qwen?")
        await sight.press("y")
        await sight.until(other.is_dir)


async def test_what_another_tool_has_is_drafted_in_its_place_and_not_moved(tmp_path: Path) -> None:
    kit = Stock(tmp_path / "store", QWEN, tools={str(tmp_path / "studio"): "LM Studio"})
    file = write_gguf(tmp_path / "studio/acme/Tiny-GGUF/Tiny-Q4_K_M.gguf", GGUF)
    async with seen(kit) as sight:
        await go_to(sight, f"other:{file}")
        assert not sight.on(ModelsScreen).offers("move_model")
        await sight.press("enter")
        await sight.until(lambda: isinstance(sight.app.screen, DraftDialog))


async def test_a_model_that_an_engine_uses_is_not_moved(tmp_path: Path) -> None:
    kit = Stock(tmp_path / "store", QWEN, hubs=(str(tmp_path / "other/hub"),))
    other = cached(tmp_path / "other", "org/qwen", files())
    kit.docker.add_container("busy", argv=("vllm", "serve", "org/qwen"), mounts=(Mount(str(other), "/hub-cache/x"),))
    async with seen(kit) as sight:
        await go_to(sight, f"other:{other}")
        await sight.press("f3")
        await sight.until_seen("org/qwen is in use", "spark-tui down busy")
    assert other.is_dir()


async def test_one_revision_of_several_can_be_deleted_alone(kit: Stock) -> None:
    other = "f" * 40
    cached(kit.root, "org/qwen", files(seed=9), commit=other, refs=())
    async with seen(kit) as sight:
        await go_to(sight, "org/qwen")
        await sight.press("delete")
        await sight.until_seen("all of it", "revision fffffff", f"revision {COMMIT[:7]} main")
        view = value_of(kit.context.store.world[LIBRARY])
        model = view.contents.find("org/qwen") if view is not None else None
        assert model is not None
        sight.app.screen.query_one(RowList).select(str([each.commit for each in model.revisions].index(other) + 1))
        await sight.press("enter")
        await sight.until_seen("Deletes revision fffffff", "Frees 20.0 KiB")
        await sight.type("fffffff")
        await sight.press("enter")
        await sight.until(lambda: not (kit.root / "hub/models--org--qwen/snapshots" / other).exists())
    assert (kit.root / "hub/models--org--qwen/snapshots" / COMMIT).exists()


# --- the Hub ----------------------------------------------------------------------------------------------


async def test_a_text_that_goes_on_while_the_hub_is_asked_stays_in_its_field(kit: Stock) -> None:
    kit.hub.answers = asyncio.Event()
    async with seen(kit, (120, 36), "h") as sight:
        await sight.type("tiny")
        await sight.press("enter")
        await sight.until(lambda: bool(kit.hub.queries))
        await sight.type(" agent")
        kit.hub.answers.set()
        await sight.until_seen("1 found")
        await sight.type("s l")
        words = sight.app.screen.query_one("#by-words", Input)
        assert words.has_focus
        assert words.value == "tiny agents l"


async def test_a_search_asks_with_what_the_fields_say_and_only_with_enter(kit: Stock) -> None:
    async with seen(kit, (120, 36), "h") as sight:
        await sight.type("tiny 8b?")
        await sight.press("tab")
        await sight.type("nvfp4")
        await sight.press("tab", "tab")
        await sight.type("70g")
        assert not kit.hub.queries
        await sight.press("enter")
        await sight.until_seen("1 found", "tiny-NVFP4", "fits", "Format by its name")
        asked = kit.hub.queries[0]
        assert (asked.text, asked.formats, asked.most_bytes, asked.fits) == (
            "tiny 8b?", (WeightFormat.NVFP4,), 70 * GIB, True,
        )  # fmt: skip
        await sight.press("f3")
        await sight.until(lambda: len(kit.hub.queries) == 2)
        assert kit.hub.queries[1].sort is Sort.TRENDING
        await sight.press("escape", "h")
        assert "tiny-NVFP4" in sight.text, "the last search stands there"


async def test_the_hub_of_the_demo_is_searched_looked_into_and_fetched_from(tmp_path: Path) -> None:
    async with seen(Stock(tmp_path, simulated=True), (120, 36), "h") as sight:
        await sight.type("gpt-oss")
        await sight.press("enter")
        await sight.until_seen("2 found", "openai/gpt-oss-20b", "MXFP4")
        await sight.press("enter")
        await sight.until_seen("12.8 GiB in 7 files", "Enter download")
        await sight.until_seen("tok/s")
        await sight.press("enter")
        await sight.until(lambda: "%" in row_of(sight, "gpt-oss-20b"))


async def test_arrows_lead_from_the_fields_to_the_hits_and_back(kit: Stock) -> None:
    async with search(kit) as sight:
        assert isinstance(sight.app.focused, RowList)
        await sight.press("up")
        assert getattr(sight.app.focused, "id", "") == "by-words"
        await sight.press("down")
        assert isinstance(sight.app.focused, RowList)


async def test_files_and_sizes_come_before_a_download_and_enter_starts_it(kit: Stock) -> None:
    async with search(kit, "enter") as sight:
        await sight.until_seen(
            "10.0 GiB in 2 files", "100 GiB free", "Left out: 1 files", "another copy of the weights"
        )
        assert not kit.downloader.started
        await sight.press("enter")
        await sight.until(lambda: isinstance(sight.app.screen, ModelsScreen))
        assert kit.downloader.started == [DownloadRequest("acme/tiny-NVFP4")]
        await sight.until_seen("25%", "250 B/s", "3s")


CHOICES = {
    "all files": (TINY, "Left out", ("a",), "20.0 GiB in 3 files", ((), True)),
    "one of many": (
        (("a-Q4.gguf", 4 * GIB), ("a-Q8.gguf", 8 * GIB)), "Enter choose", ("down", "enter"), "8.0 GiB in 1 files",
        (("a-Q8.gguf",), False),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("held", "first", "keys", "then", "asked"), CHOICES.values(), ids=CHOICES.keys())
async def test_files_can_be_chosen(kit: Stock, held: Any, first: str, keys: Any, then: str, asked: Any) -> None:
    kit.hub.add(card("acme/tiny-NVFP4", *held))
    async with search(kit, "enter") as sight:
        await sight.until_seen(first)
        await sight.press(*keys)
        await sight.until_seen(then, "Enter download")
        await sight.press("enter")
        await sight.until(lambda: bool(kit.downloader.started))
        assert (kit.downloader.started[0].files, kit.downloader.started[0].everything) == asked


async def test_gated_models_name_the_page_to_accept_on_and_are_not_started(kit: Stock) -> None:
    kit.hub.add(card("acme/tiny-NVFP4", *TINY, gating=Gating.AUTO))
    kit.hub.refused["acme/tiny-NVFP4"] = hub_errors.gated("https://hub", "acme/tiny-NVFP4", known=False)
    async with search(kit, "enter") as sight:
        await sight.until_seen("https://hub/acme/tiny-NVFP4", "accept the licence")
        await sight.press("enter")
        sight.on(FetchDialog)
        assert not kit.downloader.started
        await sight.press("y")
        assert sight.app.clipboard == "https://hub/acme/tiny-NVFP4"


async def test_a_wrong_field_and_a_silent_hub_show_the_remedy_in_the_dialog(kit: Stock) -> None:
    kit.hub.broken = hub_errors.offline("https://hub.example", "no route")
    async with seen(kit, (120, 36), "h", "tab") as sight:
        for word in ("nvfp5", "[red]"):
            sight.app.screen.query_one("#by-formats", Input).value = word
            await sight.press("enter")
            await sight.until_seen("is not a weight format", "nvfp4, fp8")
            assert not kit.hub.queries
            sight.on(SearchDialog)
        sight.app.screen.query_one("#by-formats", Input).value = ""
        await sight.press("enter")
        await sight.until_seen("hub.example does not answer", "Check the network (and HTTPS_PROXY behind a proxy)")
        kit.hub.broken = None
        await sight.press("enter")
        await sight.until_seen("1 found")
        kit.hub.broken = hub_errors.offline("https://hub.example", "no route")
        await sight.press("enter")
        await sight.until_seen("hub.example does not answer")
        sight.on(FetchDialog)


async def test_g_completes_what_is_partial_at_the_commit_that_is_here(kit: Stock) -> None:
    kit.hub.add(card("org/lame", *((name, len(body)) for name, body in files(seed=2, shards=3).items())))
    async with seen(kit) as sight:
        await go_to(sight, "org/lame")
        await sight.press("g")
        await sight.until_seen("Enter download")
        await sight.press("enter")
        await sight.until(lambda: bool(kit.downloader.started))
        assert kit.downloader.started == [DownloadRequest("org/lame", COMMIT)]
        await sight.until(lambda: "25%" in row_of(sight, "lame"))
        await go_to(sight, "/models/own")
        await sight.press("g")
        await sight.until_seen("Source of this folder unknown")
        sight.on(ModelsScreen)


# --- downloads --------------------------------------------------------------------------------------------


async def started(kit: Stock, sight: Sight) -> str:
    id_ = await kit.context[Downloads].start(DownloadRequest("acme/tiny-NVFP4"))
    await go_to(sight, f"download:{id_}")
    await sight.until_seen("25%")
    return id_


async def test_p_pauses_and_resumes_and_c_asks_about_the_downloaded_data(kit: Stock) -> None:
    async with seen(kit) as sight:
        id_ = await started(kit, sight)
        await sight.press("down", "up")
        assert list_key(sight) == f"download:{id_}"
        assert "revision" in page(sight, "overview")
        assert "model.safetensors" in page(sight, "files")
        await sight.press("p")
        await sight.until_seen("paused 25%", "p Resume")
        await sight.press("p")
        await sight.until(lambda: "paused" not in sight.text and "p Pause" in sight.text)
        await sight.press("c")
        await sight.until_seen("Do not cancel", "keep 250 B")
        await sight.press("enter")
        assert id_ in kit.downloader.known
        await sight.press("c")
        await sight.until(lambda: isinstance(sight.app.screen, ChoiceDialog))
        await sight.press("down", "down", "enter")
        await sight.until(lambda: id_ not in kit.downloader.known)
        assert kit.downloader.discarded == [id_]
        await sight.until(lambda: "25%" not in sight.text)
        assert isinstance(sight.app.focused, RowList)
        await sight.press("p", "c")
        sight.on(ModelsScreen)


async def test_a_failure_shows_its_remedy_g_resumes_and_what_is_done_leaves_the_list(kit: Stock) -> None:
    async with seen(kit) as sight:
        id_ = await started(kit, sight)
        error = hub_errors.no_room("/store", 10 * GIB, GIB)
        kit.downloader.fail(id_, error)
        await sight.until_seen("failed 25%")
        assert error.summary in page(sight, "overview")
        assert error.remedy in page(sight, "overview")
        await sight.press("g")
        await sight.until(lambda: "failed" not in sight.text)
        kit.downloader.fail(id_, hub_errors.HubFailed(HOSTILE, HOSTILE, detail=HOSTILE * 5000))
        await sight.until_seen("failed")
        assert "[/red][bold]xyz" in page(sight, "overview"), "plain text"
        assert len(page(sight, "overview")) < 10_000
        await sight.press("g")
        await sight.until(lambda: "failed" not in sight.text)
        kit.downloader.finish(id_)
        await sight.until(lambda: not list_key(sight).startswith("download:"))


async def test_progress_is_painted_once_a_second_at_most(kit: Stock) -> None:
    async with seen(kit) as sight:
        id_ = await started(kit, sight)
        await kit.clock.advance(2.0)
        await sight.pilot.pause()
        download = kit.downloader.known[id_]
        begin = sight.text
        assert "25%" in begin
        for done in (300, 400, 500):
            moved = replace(download, files=(replace(download.files[0], done=done),))
            sight.app.take(sight.app.world.having({DOWNLOADS: Ok((moved,))}))
            await sight.pilot.pause()
        assert "50%" not in sight.text
        kit.downloader.known[id_] = moved
        await sight.until_seen("50%")


async def test_a_hidden_screen_scans_nothing(tmp_path: Path) -> None:
    kit = Stock(tmp_path, simulated=True)
    models: Any = kit.context.ports.get("models")
    plain, scans = models.scan, []

    async def scan(*, others: bool = True) -> Any:
        scans.append(others)
        return await plain(others=others)

    models.scan = scan
    async with seen(kit) as sight:
        assert scans
        await sight.press("1")
        await kit.clock.advance(60.0)  # Home has looked for itself
        await sight.press("2", "1")
        before = len(scans)
        await kit.clock.advance(60.0)
        assert len(scans) == before
        await sight.press("2")
        await sight.until(lambda: len(scans) > before)


async def test_the_bandwidth_is_capped_and_freed_by_a_key(kit: Stock) -> None:
    async with seen(kit) as sight:
        for text, rate in (("50m", 50 * 1024 * 1024), ("fast", 50 * 1024 * 1024), ("none", None)):
            await sight.press("R")
            await sight.until(lambda: isinstance(sight.app.screen, TextDialog))
            sight.app.screen.query_one(Input).value = text
            await sight.press("enter")
            if text == "fast":
                await sight.until_seen("is not a size")
            await sight.until(lambda rate=rate: kit.downloader.limit.bytes_per_second == rate)


# --- safety -----------------------------------------------------------------------------------------------


async def test_in_read_only_mode_nothing_is_fetched_paused_or_deleted(kit: Stock, tmp_path: Path) -> None:
    safe = Stock(kit.root, QWEN, read_only=True)
    safe.hub.add(card("acme/tiny-NVFP4", *TINY))
    safe.hub.hits = (HIT,)
    async with seen(safe, (120, 36), "g", "delete", "p", "R") as sight:
        sight.on(ModelsScreen)
        await sight.press("h", "enter")
        await sight.until_seen("1 found")
        await sight.press("enter")
        await sight.until_seen("10.0 GiB in 2 files")
        assert "Enter download" not in sight.text
        await sight.press("enter")
        await sight.until_seen("Read-only mode: Download is disabled.")
        assert not safe.downloader.started


HOSTILE = "[/red][bold]x\x1b[31m\x07y\u202ez"


async def test_hostile_names_of_folders_and_files_are_cleaned_and_never_markup(tmp_path: Path) -> None:
    root = tmp_path / "vllm"
    local(root, f"{HOSTILE}\n2".replace("/", "|"), {**files(seed=1), f"{HOSTILE}.safetensors".replace("/", "|"): b"x"})
    cached(root, "org/[bold]qwen[", files(seed=2))
    kit = Stock(root)
    async with seen(kit) as sight:
        await sight.until(lambda: "[|red][bold]xyz 2" in sight.text)
        await sight.press("end", "right")
        await sight.until(lambda: "[|red][bold]xyz.safetensors" in page(sight, "files"))
        await sight.press("left", "v", "g", "y", "p")
        await sight.press("delete")
        await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))
        assert "\x1b" not in sight.text
        await sight.press("escape", "home", "right", "right", "enter")


def test_hostile_answers_of_the_hub_stay_on_one_line_and_lose_their_codes() -> None:
    hit = replace(HIT, repo=f"a/{HOSTILE}\nb", publisher="\x1b]0;t\x07")
    text = " ".join(cell(each, 40).plain for each in hits_table((hit,), 0.0).rows[0])
    assert not {"\x1b", "\n", "\u202e"} & set(text)


def test_every_phase_of_a_download_has_a_word_or_a_bar_and_a_model_one_row() -> None:
    for phase in set(DownloadPhase) - {DownloadPhase.DONE}:
        assert bar_cell(Download(phase, id="id", request=DownloadRequest("a/b")), "#", ".").text in (
            phase.value,
            "fetching",
        )


def test_an_estimate_never_contradicts_a_published_speed() -> None:
    look = Ok(Inspection(CheckpointFacts(), ceiling=DecodeCeiling(1, 50.0, 45.0)))
    published = (PublishedSpeed(59.0, "one stream", "a log"), PublishedSpeed(20.0, "one stream", "a log"))
    assert speed_text(look, ()).endswith("-50 tok/s, one stream")
    assert speed_text(look, published).endswith("-59 tok/s, one stream; published 20-59 tok/s")
    assert speed_text(None, published[:1]) == "published 59 tok/s"


# --- layout -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_models_whose_names_begin_alike_are_told_apart(size: tuple[int, int], tmp_path: Path) -> None:
    async with seen(Stock(tmp_path, simulated=True), size) as sight:
        for name in ("Gemma-4-26B-A4B-NVFP4", "Qwen3.6-35B-A3B-NVFP4"):
            await go_to(sight, f"nvidia/{name}")
            await sight.until(lambda name=name: "GiB" in row_of(sight, name))


@pytest.mark.parametrize("size", [(80, 24), (120, 36)], ids=["80x24", "120x36"])
async def test_layout(size: tuple[int, int], tmp_path: Path, snapshot: Any) -> None:
    from pytest_textual_snapshot import SVGImageExtension

    async with seen(Stock(tmp_path, simulated=True), size) as sight:
        await sight.until_seen("docker OK", "GPU", "paused")
        await go_to(sight, "unsloth/Qwen3.6-27B-NVFP4")
        await sight.until(lambda: "NVFP4" in row_of(sight, "Qwen3.6-27B-NVFP4").split("corrupt")[-1])
        await sight.until(lambda: "tok/s" in page(sight, "overview"))
        for name in ("Gemma-4", "gpt-oss-120b", "NVIDIA-Nem", "Qwen3.6-27B", "Qwen3.6-35B-A3B-N", "Qwen3.6-35B-A3B-P"):
            # formats are read in threads, row by row
            await sight.until(lambda name=name: "FP4" in row_of(sight, name).split("GiB")[-1])
        await sight.until(lambda: "Not read yet" not in page(sight, "files") + page(sight, "inspect"))
        picture = sight.app.export_screenshot(title="models", simplify=True)
    assert picture == snapshot.use_extension(SVGImageExtension)
