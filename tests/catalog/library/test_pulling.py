"""models search, pull, downloads, pause, resume, cancel: what is printed, and as data."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from spark_tui.base.checkpoint import WeightFormat
from spark_tui.base.finding import Ok
from spark_tui.base.quantities import GIB, MIB
from spark_tui.base.settings import Settings, SettingSource, folders_of
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import DownloadRequest, Limits
from spark_tui.catalog.models.model.hub import FormatBasis, Formats, Gating, SearchHit, Sort
from spark_tui.catalog.models.model.store import Layout, OtherCache, StoreContents, StoredModel
from spark_tui.catalog.models.use.ports import ModelStore
from spark_tui.machine.settings import Config
from tests.cli.world import World
from tests.fakes_host import EPOCH
from tests.fakes_hub import COMMIT, FakeDownloader, FakeHub, card
from tests.fakes_ports import Absent

NVFP4 = Formats((WeightFormat.NVFP4,), FormatBasis.NAME)
HITS = (
    SearchHit("acme/big-NVFP4", "acme", replace(NVFP4, doubt="called NVFP4, but its tensors are BF16"),
              weights=300 * GIB, downloads=1234, modified=EPOCH - 86_400, gating=Gating.MANUAL),
    SearchHit("acme/tiny-NVFP4", "acme", NVFP4, weights=20 * GIB, downloads=99, modified=EPOCH - 3600),
    SearchHit("acme/unknown"),
)  # fmt: skip
ID = DownloadRequest("acme/tiny").id


def world() -> World:
    hub = FakeHub(hits=HITS)
    hub.add(card("acme/tiny", ("config.json", 100), ("model.safetensors", 2000), ("metal/model.bin", 99 * MIB)))
    hub.add(card("acme/gguf", ("a-Q4.gguf", 4000), ("a-Q8.gguf", 8000)))
    return World(hub=hub, downloader=FakeDownloader(at_once=True), drive=True)


def beside_an_older_cache(folder: Path, *own: StoredModel) -> World:
    """A machine without settings, whose models lie in the cache of the Hub's own tools."""
    older = OtherCache("/home/me/.cache/huggingface/hub", (StoredModel("acme/old", Layout.CACHE, "/x"),), 7 * GIB)
    box = world()
    box.folders = folders_of({}, folder)
    box.models = cast("ModelStore", Absent(ModelStore, scan=StoreContents("/store", own, others=(older,))))
    return box


def kept_store(box: World) -> str:
    """The store that the file of settings names; empty where it names none."""
    assert box.folders is not None
    origin = Config(box.folders, {}).entry("store")
    return str(origin.value) if origin.origin.source is SettingSource.FILE else ""


# --- search -----------------------------------------------------------------------------------------------


def test_search_prints_what_matters_on_a_spark() -> None:
    result = world().run("models", "search")
    assert result.out == (
        "MODEL            FORMAT    WEIGHTS  ONE SPARK  DOWNLOADS  UPDATED  ACCESS\n"
        "acme/big-NVFP4   ! NVFP4   300 GiB  too large       1.2k       1d  gated\n"
        "acme/tiny-NVFP4  NVFP4    20.0 GiB  fits              99    today\n"
        "acme/unknown     ?               ?  ?                  ?        ?\n"
    )
    assert "big-NVFP4 is called NVFP4, but its tensors are BF16." in result.err
    assert result.code == 0


def test_search_hands_its_filters_over() -> None:
    box = world()
    box.run("models", "search", "qwen", "3.6", "--format", "nvfp4", "--format", "fp8", "--publisher", "acme",
            "--max-size", "70g", "--fits", "--sort", "updated", "--limit", "5")  # fmt: skip
    hub = box.hub
    assert isinstance(hub, FakeHub)
    (query,) = hub.queries
    assert (query.text, query.formats, query.publisher) == (
        "qwen 3.6", (WeightFormat.NVFP4, WeightFormat.FP8), "acme",
    )  # fmt: skip
    rest = (query.most_bytes, query.fits, query.unknown, query.sort, query.limit)
    assert rest == (70 * GIB, True, False, Sort.UPDATED, 5)


def test_search_as_data_has_a_reason_beside_every_null() -> None:
    found = world().run("models", "search", "--json").json
    assert [each["id"] for each in found] == ["acme/big-NVFP4", "acme/tiny-NVFP4", "acme/unknown"]
    assert found[0]["formats_by"] == "its name"
    for each in found:
        for key, value in each.items():
            assert value is not None or each[f"{key}_reason"]


@pytest.mark.parametrize("words", [("--format", "nvfp5x"), ("--max-size", "large")])
def test_a_filter_that_makes_no_sense_is_a_usage_error(words: tuple[str, ...]) -> None:
    result = world().run("models", "search", *words)
    assert result.code == 2
    assert "Examples: " in result.err


def test_nothing_found_says_what_to_try_and_the_demo_has_no_hub() -> None:
    result = world().run("models", "search", "--publisher", "nobody")
    assert (result.out, result.code) == ("", 0)
    assert "fewer words" in result.err
    result = World().run("models", "search", "x")
    assert (result.code, "no Hub" in result.err) == (4, True)


# --- pull -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "store"), [("y", "/home/me/.cache/huggingface"), ("n", "{}/vllm"), ("", "{}/vllm")])
def test_where_downloads_go_is_asked_once_where_an_older_cache_holds_models(
    tmp_path: Path, answer: str, store: str
) -> None:
    box = beside_an_older_cache(tmp_path)
    first = box.run("models", "pull", "acme/tiny", keyboard=f"{answer}\n")
    assert (first.code, kept_store(box)) == (0, store.format(tmp_path))
    assert isinstance(box.downloader, FakeDownloader)
    assert [each.repo for each in box.downloader.started] == ["acme/tiny"]
    again = box.run("models", "pull", "acme/tiny", "--again", keyboard="y\n")
    assert (again.code, "[y/N]" in first.err, "[y/N]" in again.err) == (0, True, False)
    assert kept_store(box) == store.format(tmp_path)


@pytest.mark.parametrize(
    ("words", "environment"),
    [((), {"HF_HOME": "/data"}), ((), {"SPARK_TUI_STORE": "/data"}), (("--dry-run",), {}), (("--json",), {})],
)
def test_where_downloads_go_is_not_asked_where_it_is_said_or_nobody_can_answer(
    tmp_path: Path, words: tuple[str, ...], environment: dict[str, str]
) -> None:
    box = beside_an_older_cache(tmp_path)
    result = box.run("models", "pull", "acme/tiny", *words, keyboard="y\n", environment=environment)
    assert (result.code, "[y/N]" in result.err, kept_store(box)) == (0, False, "")
    piped = box.run("models", "pull", "acme/tiny", "--again", stdin="y\n", environment=environment)
    assert (piped.code, kept_store(box)) == (0, "")


@pytest.mark.parametrize(("words", "asked"), [((), True), (("--yes",), False), (("--no-fetch",), False)])
def test_a_launch_asks_where_its_download_goes(tmp_path: Path, words: tuple[str, ...], asked: bool) -> None:
    box = beside_an_older_cache(tmp_path)
    assert isinstance(box.hub, FakeHub)
    box.hub.add(card("acme/tiny-1b", ("config.json", 100), ("model.safetensors", 2000)))
    box.docker.add_image("vllm/vllm-openai:nightly")
    box.run("up", "tiny-1b", "--no-wait", *words, keyboard="y\n")
    assert kept_store(box) == ("/home/me/.cache/huggingface" if asked else "")


def test_a_store_that_holds_models_is_not_asked_for(tmp_path: Path) -> None:
    box = beside_an_older_cache(tmp_path, StoredModel("acme/new", Layout.CACHE, "/y"))
    assert (box.run("models", "pull", "acme/tiny", keyboard="y\n").code, kept_store(box)) == (0, "")


def test_a_dry_run_lists_files_sizes_and_room_and_starts_nothing() -> None:
    box = world()
    box.host.free = Ok(50 * GIB)
    result = box.run("models", "pull", "acme/tiny", "--dry-run")
    assert result.out == (
        f"acme/tiny at {COMMIT[:12]}\n"
        "      100 B  config.json\n"
        "    2.0 KiB  model.safetensors\n"
        "    2.1 KiB  in 2 files; to download 2.1 KiB (50.0 GiB free)\n"
    )
    assert "1 files (99.0 MiB) left out" in result.err
    assert isinstance(box.downloader, FakeDownloader)
    assert not box.downloader.started


def test_a_dry_run_as_data() -> None:
    (found,) = world().run("models", "pull", "acme/tiny", "--dry-run", "--json").json
    assert (found["total_bytes"], found["left_bytes"], found["commit"], found["refusal"]) == (2100, 2100, COMMIT, None)
    assert found["left_out"][0]["path"] == "metal/model.bin"


def test_pull_follows_to_the_end() -> None:
    result = world().run("models", "pull", "acme/tiny")
    assert result.out == "acme/tiny: downloaded, 1000 B\n"
    assert "acme/tiny  downloading  25% of 1000 B  0 of 1 file  250 B/s  3s left" in result.err
    assert result.code == 0


def test_pull_as_data_is_lines_and_a_result() -> None:
    lines = world().run("models", "pull", "acme/tiny", "--json").json_lines
    assert lines[0]["type"] == "progress"
    assert (lines[0]["done_bytes"], lines[0]["total_bytes"], lines[0]["seconds_left"]) == (250, 1000, 3)
    assert lines[-1]["type"] == "result"
    assert lines[-1]["downloads"][0]["state"] == "done"


def test_an_address_names_a_repository_and_a_revision() -> None:
    assert pulled("https://huggingface.co/acme/tiny/tree/v2") == [DownloadRequest("acme/tiny", "v2")]


def pulled(*words: str) -> list[DownloadRequest]:
    """What `models pull` starts."""
    box = world()
    assert isinstance(box.hub, FakeHub)
    box.hub.add(card("acme/tiny-1b", ("model.safetensors", 5)))
    assert box.run("models", "pull", *words).code == 0
    assert isinstance(box.downloader, FakeDownloader)
    return box.downloader.started


def test_a_preset_s_name_fetches_what_it_needs() -> None:
    wanted = DownloadRequest("acme/tiny-1b", preset="tiny-1b")
    assert pulled("tiny-1b", "--background") == [wanted]
    assert pulled("tiny-1b", "--background", "--again") == [replace(wanted, again=True)]


def test_what_is_here_is_not_fetched_again() -> None:
    box = world()
    box.downloader = FakeDownloader(held={"config.json": 100, "model.safetensors": 2000}, named=True)
    assert box.run("models", "pull", "acme/tiny").out == "acme/tiny: downloaded already\n"
    assert not box.downloader.started


def test_a_cap_is_set_for_all() -> None:
    box = world()
    box.run("models", "pull", "acme/tiny", "--limit", "50m")
    assert isinstance(box.downloader, FakeDownloader)
    assert box.downloader.limit == Limits(50 * MIB)
    box.run("models", "downloads", "--limit", "none", "--at-once", "3")
    assert box.downloader.limit == Limits(None, 3)


def test_ctrl_c_pauses_and_names_the_command_to_resume() -> None:
    box = world()
    box.downloader = downloader = FakeDownloader()
    box.interrupt_when(lambda: downloader.looks > 1)
    result = box.run("models", "pull", "acme/tiny")
    assert result.code == 130
    assert f"spark-tui models resume {ID}" in result.err
    assert downloader.known[ID].phase == "paused"


def test_a_failed_download_ends_with_its_own_error() -> None:
    box = world()
    box.downloader = downloader = FakeDownloader()
    box.when(lambda: downloader.looks > 1, lambda: downloader.fail(ID, hub_errors.disk_full("/store")))
    result = box.run("models", "pull", "acme/tiny", "--json")
    assert result.error["id"] == "disk_full"
    assert result.code == 1


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("acme/none",), 2, "No repository acme/none"),
        (("acme/gguf",), 2, "--file a-Q4.gguf"),
        (("acme/tiny", "--file", "no.py"), 2, "has no file no.py"),
        (("no-such-preset",), 2, "There is no preset"),
        (("tiny-1b", "--file", "x"), 2, "is a preset"),
        (("acme/tiny", "--limit", "fast"), 2, "--limit"),
        (("acme/tiny", "--read-only"), 4, "Read-only"),
    ],
)
def test_refusals(words: tuple[str, ...], code: int, says: str) -> None:
    box = world()
    result = box.run("models", "pull", *words)
    assert (result.code, says in result.err) == (code, True), result.err
    assert isinstance(box.downloader, FakeDownloader)
    assert not box.downloader.started


def test_a_gated_repository_names_its_page_before_anything_is_fetched() -> None:
    box = world()
    assert isinstance(box.hub, FakeHub)
    box.hub.add(card("acme/gated", ("model.safetensors", 5), gating=Gating.AUTO))
    box.hub.refused["acme/gated"] = hub_errors.gated("https://hub", "acme/gated", known=True)
    result = box.run("models", "pull", "acme/gated")
    assert result.code == 4
    assert "https://hub/acme/gated" in result.err


# --- downloads --------------------------------------------------------------------------------------------


def test_downloads_pause_resume_and_cancel() -> None:
    box = world()
    box.downloader = FakeDownloader()
    started = box.run("models", "pull", "acme/tiny", "--background")
    assert (started.out, "spark-tui models downloads" in started.err) == (f"{ID}\n", True)
    assert box.run("models", "downloads").out == (
        "DOWNLOAD" + " " * (len(ID) - 6) + "STATE        DONE    SIZE    SPEED  LEFT\n"
        f"{ID}  downloading   25%  1000 B  250 B/s    3s\n"
    )
    assert box.run("models", "pause", "acme/tiny").out == f"{ID}: paused\n"
    assert f"spark-tui models resume {ID}" in box.run("models", "downloads").err
    assert box.run("models", "resume", ID, "--background").out == f"{ID}\n"
    assert box.run("models", "cancel", ID, "--discard").out == f"{ID}: cancelled, 250 B freed\n"
    assert "spark-tui models pull" in box.run("models", "downloads").err


def test_downloads_as_data() -> None:
    box = world()
    box.run("models", "pull", "acme/tiny")
    found = box.run("models", "downloads", "--json").json
    assert (found["at_once"], found["limit_bytes_per_second"], found["limit_bytes_per_second_reason"]) == (
        2, None, "there is no cap",
    )  # fmt: skip
    assert found["downloads"][0]["files"][0]["state"] == "done"
    box.run("models", "downloads", "--clear")
    assert box.run("models", "downloads", "--json").json["downloads"] == []


def test_read_only_changes_nothing() -> None:
    box = world()
    box.settings = Settings(read_only=True)
    for words in (("pause", ID), ("cancel", ID), ("resume", ID), ("downloads", "--limit", "1m")):
        assert box.run("models", *words).code == 4
    assert box.run("models", "downloads").code == 0


def test_names_from_outside_are_cleaned() -> None:
    box = world()
    assert isinstance(box.hub, FakeHub)
    box.hub.add(card("acme/tiny", ("mo\x1b[31mdel\n.safetensors", 5)))
    result = box.run("models", "pull", "acme/tiny", "--dry-run")
    assert "\x1b" not in result.out + result.err
    assert len(result.out.splitlines()) == 3


# --- inspect ----------------------------------------------------------------------------------------------


def test_inspect_on_the_hub_shows_the_card_without_format_information() -> None:
    result = world().run("models", "inspect", "acme/tiny", "--hub", "--files")
    assert "page      https://hub/acme/tiny" in result.out
    assert "model.safetensors" in result.out
    assert "it has no config.json" in result.err
    found = world().run("models", "inspect", "acme/tiny", "--hub", "--json").json
    assert (found["checkpoint"], found["checkpoint_reason"]) == (None, "it has no config.json")
    assert found["size_bytes"] == 99 * MIB + 2100
