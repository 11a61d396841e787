"""Updating a preset's image: tried beside the old one, kept or undone, and killed on every step of the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from contextlib import nullcontext
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.errors import (
    EngineUnreachable,
    ImageNotFound,
    NoSpaceLeft,
    RefusedError,
    RegistryUnreachable,
    SparkError,
    StreamBroken,
    UsageError,
)
from spark_tui.base.finding import Ok
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import pinned_reference
from spark_tui.manage.images.model import kept_tag
from spark_tui.manage.images.use.update import Updater, UpdateRecord, UpdateStage
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.metrics.use.history import History, remember
from spark_tui.run.launch.use.edit import EditFailed, Editor
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest
from spark_tui.use.bench.use.ab import Variant
from tests.fakes_files import MemoryState
from tests.kit import IMAGE, PRESET
from tests.manage.images.test_images_use import GB, NEW, OLD, Shelf

NEW_ID, OLD_ID = f"sha256:{'b' * 64}", f"sha256:{'a' * 64}"
REPO = IMAGE.partition(":")[0]
KEPT = kept_tag(IMAGE, "qwen")
NEW_NAME = pinned_reference(IMAGE, NEW)


class Bench(Shelf):
    """A Shelf whose image has moved in the registry."""

    def __init__(self) -> None:
        super().__init__()
        self.docker.on_start = lambda _: self.api.serve()
        self.image(IMAGE, id=OLD_ID)
        self.docker.digests[IMAGE] = NEW
        self.docker.add_remote_image(NEW_NAME, id=NEW_ID, digests=(f"{REPO}@{NEW}",), size=20 * GB)
        self.host.free = Ok(100 * GB)

    async def done(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.create_task(work)
        await self.until(task.done)
        return task.result()

    async def started(self) -> None:
        """The engine runs in the old image."""
        await self.done(self.context[Launcher].launch(LaunchRequest(PRESET, Overrides()), self.report))

    async def tried(self) -> UpdateRecord:
        record = await self.done(self.context[Updater].run(PRESET, self.report))
        assert isinstance(record, UpdateRecord)
        return record

    async def kept(self) -> UpdateRecord:
        return await self.done(self.context[Updater].keep("qwen", self.report))  # type: ignore[no-any-return]

    async def back(self) -> None:
        await self.done(self.context[Updater].back("qwen", self.report))

    @property
    def runs(self) -> str:
        """The image id of what runs; empty where nothing does."""
        found = [one.facts for one in self.docker.all_containers.values() if one.facts.running]
        assert len(found) < 2
        return found[0].image_id if found else ""

    @property
    def tagged(self) -> str:
        image = self.docker._image(IMAGE)
        return image.id if image else ""

    @property
    def stage(self) -> UpdateStage | None:
        record = self.context[Updater].record("qwen")
        return record.stage if record is not None else None

    async def reopened(self) -> None:
        self.docker.release()
        await self.context.close()
        self.context = self.opened()


# --- the way of it ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False])
async def test_the_new_image_is_tried_while_the_tag_means_the_old_one_and_then_kept(*, running: bool) -> None:
    kit = Bench()
    if running:
        await kit.started()
    record = await kit.tried()
    assert (kit.runs, kit.tagged, record.stage) == (NEW_ID, OLD_ID, UpdateStage.DECIDE)
    assert kit.docker._image(KEPT) == replace(kit.docker._images[IMAGE]), "kept by a tag of ours"
    assert (await kit.kept()).stage is UpdateStage.KEPT
    assert (kit.runs, kit.tagged) == (NEW_ID, NEW_ID)
    assert len(await kit.docker.containers()) == 1, "what ran before is removed"
    again = await kit.done(kit.context[Launcher].launch(LaunchRequest(PRESET, Overrides()), kit.report))
    assert again.already_running, "the preset and its tag are what runs"


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("kept", [False, True])
async def test_going_back_asks_no_registry_and_starts_the_old_image(*, running: bool, kept: bool) -> None:
    kit = Bench()
    if running:
        await kit.started()
    await kit.tried()
    if kept:
        await kit.kept()
    asked = len(kit.docker.asked("registry_digest")), len(kit.docker.asked("pull"))
    await kit.back()
    assert (len(kit.docker.asked("registry_digest")), len(kit.docker.asked("pull"))) == asked
    assert kit.tagged == OLD_ID
    assert kit.runs == (OLD_ID if running or kept else ""), "what did not run before the trial does not run after it"
    assert kit.stage is None
    assert kit.docker._image(KEPT) is None
    await kit.started()
    assert kit.runs == OLD_ID


async def test_an_image_that_does_not_serve_goes_back_by_itself() -> None:
    kit = Bench()
    await kit.started()

    def start(facts: Any) -> None:
        if facts.image_id == NEW_ID:
            kit.docker.end(facts.name, 1)
        else:
            kit.api.serve()

    kit.docker.on_start = start
    with pytest.raises(EditFailed):
        await kit.done(kit.context[Updater].run(PRESET, kit.report))
    assert (kit.runs, kit.tagged, kit.stage) == (OLD_ID, OLD_ID, None)
    with pytest.raises(UsageError):
        await kit.back()


async def test_a_stopped_engine_whose_trial_fails_leaves_no_container_of_the_new_image() -> None:
    kit = Bench()
    kit.docker.on_start = lambda facts: kit.docker.end(facts.name, 1)
    with pytest.raises(SparkError):
        await kit.done(kit.context[Updater].run(PRESET, kit.report))
    assert await kit.docker.containers() == ()
    assert (kit.tagged, kit.stage) == (OLD_ID, None)


async def test_a_tag_that_has_not_moved_changes_nothing() -> None:
    kit = Bench()
    kit.docker.digests[IMAGE] = OLD
    found = await kit.context[Updater].check(PRESET)
    assert (found.moved, found.digest, found.record) == (False, OLD, None)
    assert await kit.done(kit.context[Updater].run(PRESET, kit.report)) is None
    assert kit.docker.asked("tag_image") == kit.docker.asked("pull") == []


async def test_the_start_facts_of_both_images_are_found() -> None:
    kit = Bench()
    await kit.done(remember(kit.context))
    await kit.started()
    kit.context[History].observe(await kit.context[EngineSupervisor].look())
    old, new = await kit.context[Updater].starts(await kit.tried())
    assert old is not None and new is not None
    assert (old.image_id, new.image_id) == (OLD_ID, NEW_ID)


async def test_the_clock_may_jump_back_during_an_update() -> None:
    kit = Bench()
    await kit.started()
    kit.clock._offset -= 86_400
    await kit.tried()
    await kit.kept()
    await kit.back()
    assert (kit.runs, kit.tagged) == (OLD_ID, OLD_ID)


# --- what is refused --------------------------------------------------------------------------------------


async def test_no_room_for_two_images_is_said_before_anything_is_done() -> None:
    kit = Bench()
    kit.host.free = Ok(5 * GB)
    assert (await kit.context[Updater].check(PRESET)).room is False
    with pytest.raises(NoSpaceLeft):
        await kit.done(kit.context[Updater].run(PRESET, kit.report))
    assert (kit.docker.asked("pull"), kit.stage) == ([], None)


@pytest.mark.parametrize(
    "error", [ImageNotFound("gone", "x"), RegistryUnreachable("away", "x")], ids=lambda each: type(each).__name__
)
async def test_a_tag_that_vanished_and_a_registry_that_is_away_change_nothing(error: SparkError) -> None:
    kit = Bench()
    await kit.started()
    kit.docker.digests[IMAGE] = error
    with pytest.raises(type(error)):
        await kit.done(kit.context[Updater].run(PRESET, kit.report))
    assert (kit.runs, kit.tagged, kit.stage) == (OLD_ID, OLD_ID, None)


async def test_a_pull_that_stops_is_continued_or_given_up() -> None:
    kit = Bench()
    await kit.started()
    kit.docker.fail("pull_stage", StreamBroken("cut", "again"))
    with pytest.raises(StreamBroken):
        await kit.done(kit.context[Updater].run(PRESET, kit.report))
    assert (kit.runs, kit.tagged, kit.stage) == (OLD_ID, OLD_ID, UpdateStage.PULL)
    await kit.reopened()
    assert (await kit.tried()).stage is UpdateStage.DECIDE
    await kit.back()
    assert (kit.runs, kit.stage) == (OLD_ID, None)


@pytest.mark.parametrize("image", [f"{IMAGE}@{OLD}", "acme/absent:1"])
async def test_what_is_pinned_or_not_downloaded_has_no_update(image: str) -> None:
    with pytest.raises(RefusedError):
        await Bench().context[Updater].check(replace(PRESET, image=image))


async def test_an_image_of_this_machine_has_no_update() -> None:
    kit = Bench()
    kit.docker.add_image("own:1")
    with pytest.raises(RefusedError, match="built or loaded"):
        await kit.context[Updater].check(replace(PRESET, image="own:1"))


async def test_an_edit_of_an_engine_on_trial_is_refused() -> None:
    kit = Bench()
    await kit.started()
    await kit.tried()
    plan = await kit.context[Editor].plan((await kit.context[EngineSupervisor].look())[0], {"max_model_len": "1024"})
    with pytest.raises(RefusedError, match="not decided"):
        await kit.done(kit.context[Editor].run(plan, kit.report))
    assert kit.context[Editor].interrupted() == (), "a decision is a person's, not the next program's"


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"preset": 1}', b"\xff", b"null"])
async def test_a_damaged_record_names_its_file(data: bytes) -> None:
    kit = Bench()
    kit.state.write("update-qwen", data)
    with pytest.raises(RefusedError, match="damaged"):
        kit.context[Updater].record("qwen")


async def test_two_programs_do_not_update_one_preset() -> None:
    kit = Bench()
    kit.docker.hold("tag_image")
    first = asyncio.create_task(kit.context[Updater].run(PRESET, kit.report))
    await kit.until(lambda: bool(kit.docker.asked("tag_image")))
    with pytest.raises(RefusedError, match="Another"):
        await kit.context[Updater].run(PRESET, kit.report)
    kit.docker.release()
    await kit.until(first.done)


# --- killed -----------------------------------------------------------------------------------------------


async def killed(kit: Bench, method: str, work: Coroutine[Any, Any, Any], calls: int) -> None:
    """The program ends while it waits for Docker's `method`, the last of so many calls."""
    before = len(kit.docker.asked(method))
    kit.docker.hold(method, after=calls - 1)
    task = asyncio.create_task(work)
    await kit.until(lambda: len(kit.docker.asked(method)) >= before + calls or task.done())
    assert not task.done(), f"no call {calls} of {method}"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await kit.reopened()


TRYING = [
    *(("tag_image", 1), ("pull", 1), ("pull_stage", 2)),
    *(("stop", 1), ("rename", 1), ("create", 1), ("start", 1)),
]


@pytest.mark.parametrize("then", ["update", "back"])
@pytest.mark.parametrize(("method", "calls"), TRYING)
async def test_killed_while_trying_the_old_image_can_start_and_the_next_one_ends_it(
    method: str, calls: int, then: str
) -> None:
    kit = Bench()
    await kit.started()
    await killed(kit, method, kit.context[Updater].run(PRESET, kit.report), calls)
    assert kit.tagged == OLD_ID, "whatever starts the preset now starts the old image"
    assert kit.stage in (UpdateStage.PULL, UpdateStage.TRY)
    if then == "back":
        await kit.back()
        assert (kit.runs, kit.stage) == (OLD_ID, None)
    else:
        await kit.tried()
        assert (kit.runs, kit.stage) == (NEW_ID, UpdateStage.DECIDE)
    assert kit.tagged == OLD_ID


@pytest.mark.parametrize("then", ["update", "back"])
@pytest.mark.parametrize(("method", "calls"), [("image", 1), ("tag_image", 1), ("remove", 1)])
async def test_killed_while_keeping_the_next_one_keeps_it_or_goes_back(method: str, calls: int, then: str) -> None:
    kit = Bench()
    await kit.started()
    await kit.tried()
    await killed(kit, method, kit.context[Updater].keep("qwen", kit.report), calls)
    assert kit.stage is UpdateStage.KEEP
    if then == "back":
        await kit.back()
        assert (kit.runs, kit.tagged, kit.stage) == (OLD_ID, OLD_ID, None)
    else:
        assert await kit.done(kit.context[Updater].run(PRESET, kit.report)) is None
        assert (kit.runs, kit.tagged, kit.stage) == (NEW_ID, NEW_ID, UpdateStage.KEPT)


@pytest.mark.parametrize("then", ["update", "back"])
@pytest.mark.parametrize(
    ("kept", "method", "calls"),
    [
        *((False, method, 1) for method in ("image", "stop", "remove", "rename", "start", "remove_image")),
        *((True, method, 1) for method in ("tag_image", "stop", "rename", "create", "start", "remove_image")),
    ],
)
async def test_killed_while_going_back_the_next_one_goes_back(
    method: str, calls: int, then: str, *, kept: bool
) -> None:
    kit = Bench()
    await kit.started()
    await kit.tried()
    if kept:
        await kit.kept()
    await killed(kit, method, kit.context[Updater].back("qwen", kit.report), calls)
    assert kit.stage is UpdateStage.BACK
    if then == "back":
        await kit.back()
    else:
        assert await kit.done(kit.context[Updater].run(PRESET, kit.report)) is None
    assert (kit.runs, kit.tagged, kit.stage) == (OLD_ID, OLD_ID, None)
    assert len(await kit.docker.containers()) == 1
    assert not kit.context[Editor].interrupted()


async def measured(kit: Bench, *, last: SparkError | None = None) -> None:
    """Both images start in turn, the old one first; then `last` is raised."""

    async def work(sides: tuple[Variant, Variant]) -> None:
        for side in reversed(sides):
            assert side.request is not None
            await kit.context[EngineSupervisor].refresh()
            await kit.context[Launcher].launch(side.request, kit.report)
        if last is not None:
            raise last

    record = kit.context[Updater].record("qwen")
    assert record is not None
    await kit.context[Updater].measure(record, work, kit.report)


@pytest.mark.parametrize("then", ["update", "back"])
@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(("method", "calls"), [(m, n) for m in ("stop", "rename", "create", "start") for n in (1, 2)])
async def test_killed_while_both_images_are_measured_the_next_one_tries_again_or_goes_back(
    method: str, calls: int, then: str, *, running: bool
) -> None:
    kit = Bench()
    if running:
        await kit.started()
    await kit.tried()
    await killed(kit, method, measured(kit), calls)
    assert (kit.tagged, kit.stage) == (OLD_ID, UpdateStage.TRY)
    if then == "back":
        await kit.back()
        assert (kit.tagged, kit.stage) == (OLD_ID, None)
        assert kit.runs == (OLD_ID if running else ""), "as before the update"
    else:
        await kit.tried()
        assert (kit.runs, kit.tagged, kit.stage) == (NEW_ID, OLD_ID, UpdateStage.DECIDE)
        await kit.kept()
        assert (kit.runs, kit.tagged, kit.stage) == (NEW_ID, NEW_ID, UpdateStage.KEPT)
    left = [each.image_id for each in await kit.docker.containers()]
    assert left in ([OLD_ID if then == "back" else NEW_ID], []), "nothing holds the other image"


@pytest.mark.parametrize("error", [None, EngineUnreachable("gone", "look")], ids=["measured", "failed"])
@pytest.mark.parametrize("keep", [True, False])
async def test_after_a_measurement_the_new_image_serves_and_is_decided(error: SparkError | None, *, keep: bool) -> None:
    kit = Bench()
    await kit.started()
    await kit.tried()
    with nullcontext() if error is None else pytest.raises(EngineUnreachable):
        await kit.done(measured(kit, last=error))
    assert (kit.runs, kit.tagged, kit.stage) == (NEW_ID, OLD_ID, UpdateStage.DECIDE)
    assert not kit.context[Editor].interrupted()
    await (kit.kept() if keep else kit.back())
    assert (kit.runs, kit.tagged) == ((NEW_ID, NEW_ID) if keep else (OLD_ID, OLD_ID))
    assert len(await kit.docker.containers()) == 1


async def test_a_new_image_that_ends_while_it_is_measured_is_started_again() -> None:
    kit = Bench()
    await kit.started()
    await kit.tried()

    async def work(_: tuple[Variant, Variant]) -> None:
        await kit.docker.stop("qwen")
        raise EngineUnreachable("gone", "look")

    record = kit.context[Updater].record("qwen")
    assert record is not None
    with pytest.raises(EngineUnreachable):
        await kit.done(kit.context[Updater].measure(record, work, kit.report))
    assert (kit.runs, kit.stage) == (NEW_ID, UpdateStage.DECIDE)


async def test_what_the_records_hold_survives_a_newer_and_an_older_program() -> None:
    kit = Bench()
    await kit.started()
    await kit.tried()
    assert isinstance(kit.state, MemoryState)
    written = json.loads(kit.state.read("update-qwen") or b"")
    assert set(written) == {
        "preset", "engine", "tag", "old_id", "old_digest", "new_digest", "stage", "at", "running",
    }  # fmt: skip
