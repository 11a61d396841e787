"""A model that is complete somewhere is read there: from the store, else from another Hub cache of this person."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts
from spark_tui.base.context import Context
from spark_tui.base.engine.container import Mount
from spark_tui.base.engine.docker_run import render_text
from spark_tui.base.finding import Ok
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.jobs import StepState
from spark_tui.base.quantities import GIB
from spark_tui.base.settings import Settings, hub_caches
from spark_tui.catalog.models.adapter.checkpoints import StoreCheckpoints
from spark_tui.catalog.models.adapter.store import FolderModelStore
from spark_tui.catalog.presets.model.dialects.docker_run import from_docker_run
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import Origin, Preset
from spark_tui.catalog.presets.model.recipe import preset_from
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.machine.procfs import ProcfsHost
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest, LaunchResult
from tests.fakes_host import FakeHost
from tests.fakes_hub import FakeDownloader, FakeHub, card
from tests.kit import PRESET, Kit
from tests.store_kit import OLDER, cached, files, reuse, share

DRAFTED = replace(
    PRESET, command=PRESET.command + """ --speculative-config '{"method": "dflash", "model": "org/drafter"}'"""
)
FILES = (("config.json", 100), ("model.safetensors", 18 * GIB))


class Folders(FakeHost):
    """The folders of this machine."""

    def has_folder(self, path: Path) -> bool:
        return ProcfsHost().has_folder(path)


class House(Kit):
    """A person's home with a store and other Hub caches."""

    def __init__(
        self, home: Path, preset: Preset = PRESET, environ: dict[str, str] | None = None, **settings: object
    ) -> None:
        super().__init__(preset)
        self.preset, self.home, self.store = preset, home, home / "vllm"
        self.cache, self.other = home / ".cache/huggingface", home / "disk"
        self.hub, self.downloader, self.host = FakeHub(), FakeDownloader(), Folders()
        self.host.free = Ok(400 * GIB)
        for repo in ("org/qwen", "org/drafter"):
            self.hub.add(card(repo, *FILES))
        given = Settings(store=self.store, model_roots=(self.other,))
        hubs = hub_caches(given, environ or {}, home)
        self.models = FolderModelStore(self.store, hubs=hubs)
        self.checkpoints = StoreCheckpoints(self.store, hubs)
        made = {"models": self.models, "hub": self.hub, "downloader": self.downloader, "host": self.host}
        ports = self.context.ports.changed(**made, checkpoints=self.checkpoints)
        paths = HostPaths(str(self.store), "/caches", str(home), hubs=hubs)
        self.context = Context(Settings(), ports, paths)

    def plan(self, **pairs: str) -> LaunchPlan:
        return self.context[Preflight].dry_plan(self.preset, overrides_from_pairs(pairs))

    async def launched(self) -> LaunchResult:
        request = LaunchRequest(self.preset, Overrides())
        task = asyncio.create_task(self.context[Launcher].launch(request, self.report))
        await self.until(task.done)
        return task.result()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.models.close()


@pytest.fixture
async def drafted(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path, DRAFTED)
    yield made
    await made.models.close()


def env(plan: LaunchPlan) -> dict[str, str]:
    return {each.name: each.value for each in plan.spec.env}


def mounted(plan: LaunchPlan) -> dict[str, Mount]:
    """Repositories of the Hub that the container is given one by one."""
    return {each.target: each for each in plan.spec.mounts if each.target.startswith("/hub-cache/")}


async def test_a_model_of_the_hubs_own_cache_is_read_there_and_not_downloaded(house: House) -> None:
    base = cached(house.cache, "org/qwen", files())
    plan = house.plan()
    target = "/hub-cache/models--org--qwen"
    assert mounted(plan) == {target: Mount(str(base), target, read_only=True)}
    assert (env(plan)["HF_HUB_CACHE"], env(plan)["HF_HUB_OFFLINE"]) == ("/hub-cache", "1")
    assert Mount(str(house.store), "/models") in plan.spec.mounts, "what else an engine keeps is kept in the store"
    assert str(base) not in plan.directories
    await house.launched()
    assert (house.step("fetch").state, house.step("fetch").detail) == (StepState.SKIPPED, "model downloaded")
    assert (house.hub.tokens, house.downloader.started) == ([], [])


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "settings"])
def test_every_place_that_the_person_names_counts(tmp_path: Path, variable: str) -> None:
    place = tmp_path / "disk" if variable == "settings" else tmp_path / "elsewhere"
    root = place / "huggingface" if variable == "XDG_CACHE_HOME" else place
    base = cached(root, "org/qwen", files())
    value = str(place / "hub" if "HUB" in variable else place)
    house = House(tmp_path, environ={} if variable == "settings" else {variable: value})
    assert [each.source for each in mounted(house.plan()).values()] == [str(base)]


def test_the_store_comes_first_then_the_cache_that_the_environment_names(tmp_path: Path) -> None:
    house = House(tmp_path, environ={"HF_HUB_CACHE": str(tmp_path / "named/hub")})
    named = cached(tmp_path / "named", "org/qwen", files())
    cached(house.cache, "org/qwen", files())
    assert [each.source for each in mounted(house.plan()).values()] == [str(named)]
    plain = replace(house.plan(), repositories=())
    cached(house.store, "org/qwen", files())
    assert mounted(house.plan()) == {}
    assert "HF_HUB_CACHE" not in env(house.plan())
    assert plain.spec.mounts != house.plan().spec.mounts


async def test_what_is_partial_everywhere_is_fetched_into_the_store(house: House) -> None:
    content = files(shards=3)
    del content["model-00003-of-00003.safetensors"]
    cached(house.cache, "org/qwen", content)
    cached(house.other, "org/qwen", files(), commit=OLDER, refs=("v1",))  # a revision that the launch does not ask for
    assert mounted(house.plan()) == {}
    house.downloader.at_once = True
    await house.launched()
    assert [each.repo for each in house.downloader.started] == ["org/qwen"]


def test_a_partial_download_in_the_store_does_not_hide_the_whole_model(house: House) -> None:
    content = files(shards=3)
    base = cached(house.cache, "org/qwen", content)
    del content["model-00002-of-00003.safetensors"]
    cached(house.store, "org/qwen", content)
    assert [each.source for each in mounted(house.plan()).values()] == [str(base)]
    found = house.checkpoints.read("org/qwen")
    assert isinstance(found, Ok)
    facts = found.value
    assert isinstance(facts, CheckpointFacts)
    assert facts.weights is not None
    assert facts.weights.complete


async def test_model_and_drafter_may_lie_in_different_places(drafted: House) -> None:
    model = cached(drafted.cache, "org/qwen", files())
    drafter = cached(drafted.other, "org/drafter", files(seed=1))
    sources = {each.source: each.read_only for each in mounted(drafted.plan()).values()}
    assert sources == {str(model): True, str(drafter): True}
    shutil.rmtree(drafter)
    own = cached(drafted.store, "org/drafter", files(seed=1))
    plan = drafted.plan()
    assert {each.source: each.read_only for each in mounted(plan).values()} == {str(model): True, str(own): False}


async def test_a_missing_drafter_alone_is_fetched(drafted: House) -> None:
    cached(drafted.cache, "org/qwen", files())
    plan = drafted.plan()
    own = str(drafted.store / "hub/models--org--drafter")
    assert mounted(plan)["/hub-cache/models--org--drafter"].source == own
    assert own in plan.directories, "made by us: Docker would make it as root"
    drafted.downloader.at_once = True
    await drafted.launched()
    assert [each.repo for each in drafted.downloader.started] == ["org/drafter"]


def test_data_that_the_cache_shares_between_repositories_is_mounted_too(drafted: House) -> None:
    content = files()
    weights = content["model-00001-of-00002.safetensors"]
    base = cached(drafted.cache, "org/qwen", content)
    share(base, weights)
    cached(drafted.store, "org/drafter", files(seed=1))
    blobs = str(drafted.cache / "hub/blobs")
    assert mounted(drafted.plan())["/hub-cache/blobs"] == Mount(blobs, "/hub-cache/blobs", read_only=True)
    second = cached(drafted.other, "org/drafter", content)
    shutil.rmtree(drafted.store / "hub")
    share(second, weights)
    reuse(second, weights)
    assert mounted(drafted.plan()) == {}, "a container has one folder for shared data"


def test_a_person_may_still_ask_the_hub(house: House) -> None:
    cached(house.cache, "org/qwen", files())
    assert env(house.plan(**{"env.HF_HUB_OFFLINE": "0"}))["HF_HUB_OFFLINE"] == "0"


def test_without_another_cache_a_launch_is_as_ever(tmp_path: Path) -> None:
    house, plain = House(tmp_path), Kit(PRESET)
    plain.context = Context(Settings(), plain.context.ports, HostPaths(str(house.store), "/caches", str(tmp_path)))
    cached(house.cache, "org/other", files())
    assert house.plan().spec == plain.context[Preflight].dry_plan(PRESET, Overrides()).spec


def test_a_repository_that_only_the_engine_fetches_keeps_the_hub_open(house: House) -> None:
    cached(house.cache, "org/qwen", files())
    plan = house.plan(extra_args="--tokenizer org/words")
    assert mounted(plan)
    assert env(plan)["HF_HUB_OFFLINE"] == "0"
    assert mounted(house.plan(extra_args="--download-dir /models/own")) == {}, "the command names a cache of its own"


def test_the_command_of_such_a_launch_imports_as_the_same_launch(house: House) -> None:
    cached(house.cache, "org/qwen", files())
    plan = house.plan()
    found = from_docker_run(render_text(plan.spec), house.context.paths)
    house.preset = preset_from(found.document, name=PRESET.name, origin=Origin.USER, file="x.yaml")
    assert house.plan().spec.mounts == plan.spec.mounts
    assert env(house.plan()) == env(plan)
