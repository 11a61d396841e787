"""The library: who uses a model, verifying in the background, and no deletion under an engine's feet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_MODEL, ContainerStatus, Mount
from spark_tui.base.errors import RefusedError
from spark_tui.base.finding import Stale, value_of
from spark_tui.base.store import Store
from spark_tui.catalog.models.adapter.store import FolderModelStore
from spark_tui.catalog.models.model.store import DeleteExtent
from spark_tui.catalog.presets.model.library import LibraryEntry, LibraryView, User
from spark_tui.catalog.presets.model.preset import Preset, PresetFacts, RequiredFile
from spark_tui.catalog.presets.use.library import Library
from tests.fakes_docker import FakeDocker
from tests.fakes_host import FakeClock
from tests.kit import PRESET, FixedPresets
from tests.store_kit import COMMIT, cached, files, local

SERVE = ("vllm", "serve")


class Shelf:
    """A library on a store in a folder."""

    def __init__(self, root: Path, *presets: Preset) -> None:
        self.root = root
        self.docker = FakeDocker()
        self.clock = FakeClock()
        self.models = FolderModelStore(root)
        self.store = Store(self.clock)
        catalogue = FixedPresets(*(presets or (PRESET,)))
        self.library = Library(self.models, self.docker, catalogue, self.store, self.clock, str(root), "/home/test")

    def engine(self, name: str, *argv: str, **changes: Any) -> None:
        """A container that mounts the store."""
        given: dict[str, Any] = {"mounts": (Mount(str(self.root), "/models"),)} | changes
        self.docker.add_container(name, argv=(*SERVE, *argv), **given)

    async def view(self) -> LibraryView:
        view = value_of(await self.library.refresh())
        assert view is not None
        return view

    async def uses(self, model: str) -> list[tuple[User, str, bool]]:
        entry = (await self.view()).get(model)
        assert entry is not None
        return [(use.kind, use.name, use.sure) for use in entry.uses]


@asynccontextmanager
async def opened(root: Path, *presets: Preset) -> AsyncIterator[Shelf]:
    shelf = Shelf(root, *presets)
    try:
        yield shelf
    finally:
        await shelf.library.close()
        await shelf.models.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = tmp_path / "vllm"
    cached(store, "org/qwen", files(seed=1))
    cached(store, "org/qwen-drafter", files(seed=2))
    local(store, "own", files(seed=3))
    return store


# --- who uses it ------------------------------------------------------------------------------------------


async def test_presets_are_found_by_the_model_that_they_serve_draft_with_or_need(root: Path) -> None:
    presets = (
        PRESET,
        replace(PRESET, name="drafted", model="x/y", command='vllm serve x --spec \'{"model":"org/qwen-drafter"}\''),
        replace(PRESET, name="path", model="/models/own"),
        replace(PRESET, name="home", model=str(root / "own")),
        replace(PRESET, name="needs", model="a/b", facts=PresetFacts(required_files=(RequiredFile("own", "c/d"),))),
        replace(PRESET, name="other", model="org/qwen2"),
    )
    async with opened(root, *presets) as shelf:
        assert await shelf.uses("org/qwen") == [(User.PRESET, "qwen", True)]
        assert await shelf.uses("org/qwen-drafter") == [(User.PRESET, "drafted", True)]
        names = [name for _, name, _ in await shelf.uses("/models/own")]
        assert names == ["home", "needs", "path"]


QWEN, OWN, ALL = "org/qwen", "/models/own", ("/models/own", "org/qwen", "org/qwen-drafter")
SPEC = ("x", "--speculative-config", '{"method":"eagle3","model":"org/qwen-drafter"}')
USES: dict[str, tuple[tuple[str, ...], dict[str, Any], tuple[str, ...], bool]] = {
    "drafter": (SPEC, {}, ("org/qwen-drafter",), True),
    "snapshot": ((f"/models/hub/models--org--qwen/snapshots/{COMMIT}",), {}, (QWEN,), True),
    "nothing named": ((), {}, ALL, False),
    "one mounted": ((), {"mounts": (Mount("{root}/own", "/weights", read_only=True),)}, (OWN,), True),
    "our label": ((), {"labels": ((LABEL_MODEL, QWEN),)}, (QWEN,), True),
}


@pytest.mark.parametrize(("argv", "given", "models", "sure"), USES.values(), ids=USES.keys())
async def test_a_container_uses_what_it_names_and_can_see(
    root: Path, argv: tuple[str, ...], given: dict[str, Any], models: tuple[str, ...], sure: bool
) -> None:
    mounts = tuple(replace(each, source=each.source.replace("{root}", str(root))) for each in given.get("mounts", ()))
    async with opened(root) as shelf:
        shelf.engine("engine", *argv, **(given | ({"mounts": mounts} if mounts else {})))
        entries = (await shelf.view()).entries
        assert {entry.model.id for entry in entries if any(use.sure is sure for use in entry.engines)} == set(models)


async def test_an_ended_container_is_listed_and_forbids_no_deletion(root: Path) -> None:
    async with opened(root) as shelf:
        shelf.engine("box", "org/qwen", status=ContainerStatus.EXITED)
        assert (User.ENDED_ENGINE, "box", True) in await shelf.uses("org/qwen")
        assert (await shelf.library.plan_delete("org/qwen")).obstacles == ()


async def test_without_docker_the_models_are_shown_and_engines_are_unknown(root: Path) -> None:
    async with opened(root) as shelf:
        shelf.docker.go_down()
        view = await shelf.view()
        assert len(view.entries) == 3
        assert "Cannot reach Docker" in view.engines_unknown


# --- the slice --------------------------------------------------------------------------------------------


async def test_an_unchanged_store_changes_nothing_and_a_broken_one_leaves_the_last_view_stale(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*, others: bool = True) -> Any:
        raise OSError(5, "Input/output error")

    async with opened(root) as shelf:
        ticks = 0
        scanning = asyncio.ensure_future(shelf.library.refresh())
        while not scanning.done():
            ticks += 1
            await asyncio.sleep(0)
        assert ticks > 3, "the loop is free while a scan runs"
        before = shelf.store.world
        await shelf.library.refresh()
        assert shelf.store.world is before
        monkeypatch.setattr(shelf.models, "scan", broken)
        assert isinstance(await shelf.library.refresh(), Stale)


# --- verifying --------------------------------------------------------------------------------------------


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def entry_of(shelf: Shelf, model: str) -> LibraryEntry:
    view = value_of(shelf.library.view)
    assert view is not None
    entry = view.get(model)
    assert entry is not None
    return entry


async def test_a_verification_runs_in_the_background_and_its_outcome_stays_in_the_entry(root: Path) -> None:
    async with opened(root) as shelf:
        await shelf.library.refresh()
        shelf.library.start_verify("org/qwen")
        with pytest.raises(RefusedError):
            shelf.library.start_verify("org/qwen")
        await until(lambda: not shelf.library.verifying("org/qwen"))
        check = entry_of(shelf, "org/qwen").check
        assert check is not None
        assert (check.over, check.matching) == (True, 4)
        await shelf.library.refresh()
        assert entry_of(shelf, "org/qwen").check == check
        assert shelf.store.world.events[-1].text.startswith("org/qwen: All 4 files match the Hub")
        blob = (root / "hub/models--org--qwen/snapshots" / COMMIT / "config.json").resolve()
        blob.write_bytes(blob.read_bytes().replace(b"l", b"L"))
        shelf.library.start_verify("org/qwen")
        await until(lambda: not shelf.library.verifying("org/qwen"))
        event = shelf.store.world.events[-1]
        assert (event.severity.value, event.remedy) == ("error", "Download those files again.")
        shelf.library.start_verify("org/qwen", "v9")
        await until(lambda: not shelf.library.verifying("org/qwen"))
        assert "has no revision v9" in entry_of(shelf, "org/qwen").failure


async def test_a_cancelled_verification_leaves_no_outcome(root: Path) -> None:
    async with opened(root) as shelf:
        await shelf.library.refresh()
        shelf.library.start_verify("org/qwen")
        await asyncio.sleep(0)
        await shelf.library.cancel_verify("org/qwen")
        assert not shelf.library.verifying("org/qwen")
        assert entry_of(shelf, "org/qwen").check is None
        await shelf.library.cancel_verify("org/qwen")


# --- deleting ---------------------------------------------------------------------------------------------


async def test_a_model_is_deleted_after_its_name_was_typed(root: Path) -> None:
    async with opened(root) as shelf:
        plan = await shelf.library.plan_delete("org/qwen")
        for typed in ("", "org/Qwen", "org/qwen ", "y"):
            with pytest.raises(RefusedError, match="was not deleted"):
                await shelf.library.delete(plan, typed)
        assert (root / "hub/models--org--qwen").exists()
        done = await shelf.library.delete(plan, "org/qwen")
        assert done.freed == plan.freed > 0
        assert not (root / "hub/models--org--qwen").exists()
        view = value_of(shelf.library.view)
        assert view is not None
        assert view.get("org/qwen") is None
        assert "deleted" in shelf.store.world.events[-1].text


@pytest.mark.parametrize("argv", [("org/qwen",), ()], ids=["uses it", "may use it"])
async def test_a_model_that_an_engine_uses_or_may_use_is_not_deleted(root: Path, argv: tuple[str, ...]) -> None:
    async with opened(root) as shelf:
        before = await shelf.library.plan_delete("org/qwen")
        assert before.obstacles == ()
        shelf.engine("box", *argv)
        plan = await shelf.library.plan_delete("org/qwen")
        assert plan.obstacles[0].remedy == "Stop it first: spark-tui down box"
        for each in (before, plan):  # also when it started between the question and the answer
            with pytest.raises(RefusedError, match="box"):
                await shelf.library.delete(each, each.name)
        assert (root / "hub/models--org--qwen").exists()


async def test_without_docker_nothing_is_deleted_unless_the_person_insists(root: Path) -> None:
    async with opened(root) as shelf:
        shelf.docker.go_down()
        plan = await shelf.library.plan_delete("org/qwen")
        assert plan.obstacles[0].id == "engines_unknown"
        assert (await shelf.library.plan_delete("org/qwen", unchecked=True)).obstacles == ()
        await shelf.library.delete(plan, plan.name, unchecked=True)
        assert not (root / "hub/models--org--qwen").exists()


async def test_leftovers_may_go_while_an_engine_runs(root: Path) -> None:
    base = root / "hub/models--org--qwen"
    (base / "blobs" / f"{'a' * 64}.incomplete").write_bytes(b"x" * 5000)
    async with opened(root) as shelf:
        shelf.engine("box", "org/qwen")
        plan = await shelf.library.plan_delete("org/qwen", DeleteExtent.LEFTOVERS)
        await shelf.library.delete(plan, "org/qwen")
        assert not list((base / "blobs").glob("*.incomplete"))
