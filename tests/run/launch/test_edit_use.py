"""Changing a running engine: what it means, going back, and an edit that is killed on its way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.engine.state import EngineState
from spark_tui.base.errors import DaemonNotRunning, RefusedError, SparkError, UsageError
from spark_tui.base.files import StateFolder
from spark_tui.base.finding import EventKind, Severity
from spark_tui.base.jobs import StepState
from spark_tui.base.secret import Secret
from spark_tui.base.settings import ExposureChoice
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs, pairs_from
from spark_tui.catalog.presets.model.preset import PresetCatalogue
from spark_tui.catalog.presets.use.last_launches import LastLaunches
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.run.launch.use.edit import EditFailed, Editor, EditPlan
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest
from spark_tui.run.launch.use.runner import JobRunner
from tests.fakes_files import MemoryState
from tests.kit import IMAGE, PRESET, Kit

DOWN = DaemonNotRunning("Cannot reach Docker.", "Start it.")
OLD = overrides_from_pairs(pairs_from(("max_model_len=2048", "port=8123", "env.NAME=a b", "extra_args=--seed 7")))


def context_of(facts: ContainerFacts) -> str:
    return facts.argv[facts.argv.index("--max-model-len") + 1]


async def engine(kit: Kit, overrides: Overrides = OLD) -> EngineView:
    """Runs it, and returns its view."""
    task = asyncio.create_task(kit.context[Launcher].launch(LaunchRequest(PRESET, overrides), kit.report))
    await kit.until(task.done)
    task.result()
    return (await kit.context[EngineSupervisor].look())[0]


async def edited(kit: Kit, plan: EditPlan, **how: bool) -> object:
    task = asyncio.create_task(kit.context[Editor].run(plan, kit.report, **how))
    await kit.until(task.done)
    return task.result()


def refuse(kit: Kit, context: str) -> None:
    """An engine with that context ends while it starts."""

    def started(facts: ContainerFacts) -> None:
        if context_of(facts) == context:
            kit.docker.end(facts.name, exit_code=1)
        else:
            kit.api.serve()

    kit.docker.on_start = started


async def runs_with(kit: Kit) -> str:
    found = [each for each in await kit.docker.containers() if each.running]
    return context_of(found[0]) if found else ""


async def test_a_change_keeps_everything_else_and_says_what_differs() -> None:
    kit = Kit()
    view = await engine(kit)
    plan = await kit.context[Editor].plan(view, {"max_model_len": "1024", "exposure": "lan"})
    rows = {each.label: (each.before, each.after) for each in plan.differences}
    assert rows["context tokens"] == ("2048", "1024")
    assert "port" in rows, "the address that it listens on"
    assert plan.after.overrides.exposure is ExposureChoice.LAN
    assert (plan.after.overrides.port, plan.after.overrides.extra_env) == (8123, (("NAME", "a b"),))
    assert not plan.drifted
    await edited(kit, plan)
    after = (await kit.context[EngineSupervisor].look())[0]
    assert (context_of(after.container), after.port) == ("1024", 8123)
    assert {"--seed", "7"} <= set(after.container.argv)
    assert not kit.context[Editor].interrupted()


@pytest.mark.parametrize(
    ("changes", "kind"), [({"name": "other"}, UsageError), ({"max_model_len": "many"}, UsageError)]
)
async def test_what_cannot_be_changed_is_refused(changes: dict[str, str], kind: type[SparkError]) -> None:
    kit = Kit()
    with pytest.raises(kind):
        await kit.context[Editor].plan(await engine(kit), changes)


async def test_an_empty_value_is_the_presets_own() -> None:
    kit = Kit()
    plan = await kit.context[Editor].plan(await engine(kit), {"max_model_len": "", "extra_args": ""})
    assert plan.after.overrides.max_model_len is None
    assert {each.key for each in plan.differences} == {"max_model_len", "seed"}


async def test_an_engine_that_does_not_become_ready_goes_back_to_its_former_settings() -> None:
    kit = Kit()
    view = await engine(kit)
    refuse(kit, "1024")
    plan = await kit.context[Editor].plan(view, {"max_model_len": "1024"})
    with pytest.raises(EditFailed):
        await edited(kit, plan)
    assert await runs_with(kit) == "2048"
    assert kit.step("restore").state is StepState.DONE
    assert kit.step("follow").state is StepState.FAILED, "what failed stays on screen"
    assert not kit.context[Editor].interrupted()


async def test_without_going_back_it_stays_failed() -> None:
    kit = Kit()
    view = await engine(kit)
    refuse(kit, "1024")
    with pytest.raises(SparkError) as caught:
        await edited(kit, await kit.context[Editor].plan(view, {"max_model_len": "1024"}), rollback=False)
    assert not isinstance(caught.value, EditFailed)
    assert await runs_with(kit) == ""
    assert not kit.context[Editor].interrupted()


async def test_what_is_refused_before_the_stop_changes_nothing() -> None:
    kit = Kit()
    view = await engine(kit)
    plan = await kit.context[Editor].plan(view, {"max_model_len": "1024"})
    kit.docker.fail("daemon", DOWN)
    with pytest.raises(DaemonNotRunning):
        await edited(kit, plan)
    assert "stop" not in [method for method, _ in kit.docker.calls]
    assert await runs_with(kit) == "2048"
    assert not kit.context[Editor].interrupted()


async def killed_at(kit: Kit, method: str, plan: EditPlan, *, calls: int = 1) -> None:
    """The program ends while it waits for Docker's `method`, the last of so many calls."""
    before = len(kit.docker.asked(method))
    task = asyncio.create_task(kit.context[Editor].run(plan, kit.report))
    kit.docker.hold(method, after=calls - 1)
    await kit.until(lambda: len(kit.docker.asked(method)) >= before + calls)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    kit.docker.release()
    await kit.context.close()
    kit.context = kit.opened()


async def resumed(kit: Kit) -> None:
    """The next program finishes what was left."""
    async with kit.whole():
        await kit.until(lambda: not kit.context[Editor].interrupted() and not kit.context[JobRunner].running("qwen"))


@pytest.mark.parametrize("method", ["stop", "rename", "create", "start", "remove"])
async def test_killed_while_it_changes_the_next_program_finishes_it(method: str) -> None:
    kit = Kit()
    plan = await kit.context[Editor].plan(await engine(kit), {"max_model_len": "1024"})
    await killed_at(kit, method, plan)
    await resumed(kit)
    expected = "2048" if method == "stop" else "1024"  # an engine that still serves is left alone
    assert await runs_with(kit) == expected


def change_preset_and_tag(kit: Kit) -> None:
    """The preset's file and the image's tag are others now."""
    changed = replace(PRESET, command=f"{PRESET.command} --enforce-eager")
    kit.presets.catalogue = PresetCatalogue((changed,))
    kit.docker.add_image(IMAGE, id="sha256:moved")


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize(("method", "calls"), [("stop", 2), ("remove", 1), ("rename", 2), ("start", 2)])
async def test_killed_while_it_goes_back_the_next_program_starts_what_ran(
    method: str, calls: int, *, moved: bool
) -> None:
    kit = Kit()
    view = await engine(kit)
    refuse(kit, "1024")
    plan = await kit.context[Editor].plan(view, {"max_model_len": "1024"})
    if moved:
        change_preset_and_tag(kit)
    if method == "stop":  # the new one hangs
        kit.docker.on_start = lambda _: kit.api.refuse()
        task = asyncio.create_task(kit.context[Editor].run(plan, kit.report))
        await kit.until(lambda: len(kit.docker.asked("start")) == 2)
        kit.docker.hold("stop")
        task.cancel()
        kit.context[Editor].cancelled("qwen")
        await asyncio.gather(task, return_exceptions=True)
        kit.docker.release()
        await kit.context.close()
        kit.context = kit.opened()
        kit.docker.on_start = lambda _: kit.api.serve()
    else:
        await killed_at(kit, method, plan, calls=calls)
    await resumed(kit)
    [left] = await kit.docker.containers()
    assert (left.id, left.name, left.running) == (view.container.id, "qwen", True)
    assert (left.argv, left.image_id) == (view.container.argv, f"sha256:{IMAGE}")


async def test_killed_while_what_ran_loads_again_the_next_program_waits_for_it() -> None:
    kit = Kit()
    view = await engine(kit)
    refuse(kit, "1024")
    await killed_at(kit, "start", await kit.context[Editor].plan(view, {"max_model_len": "1024"}), calls=2)
    await kit.docker.start(view.container.id)
    task = asyncio.create_task(kit.context[Editor].finish("qwen", kit.report))
    await kit.until(task.done)
    back = task.result()
    assert back is not None
    assert (back.container.id, back.state) == (view.container.id, EngineState.SERVING)
    assert not kit.context[Editor].interrupted()


async def test_going_back_starts_the_same_container_though_preset_and_tag_have_changed() -> None:
    kit = Kit()
    kit.docker.script(IMAGE, ["loading"])
    view = await engine(kit)
    refuse(kit, "1024")
    change_preset_and_tag(kit)
    plan = await kit.context[Editor].plan(view, {"max_model_len": "1024"})
    assert plan.drifted
    with pytest.raises(EditFailed):
        await edited(kit, plan)
    [left] = await kit.docker.containers()
    assert (left.id, left.argv, left.image_id) == (view.container.id, view.container.argv, f"sha256:{IMAGE}")
    assert len(kit.archive.saved) == 1, "the log of what failed is kept"


async def test_going_back_works_without_the_preset_and_gives_the_key_back() -> None:
    kit = Kit()
    kit.secrets.token = Secret("hf_x")
    view = await engine(kit, replace(OLD, api_key=True))
    path = kit.secrets.path("qwen")
    key = kit.secrets.api_key(str(path))
    assert key is not None
    refuse(kit, "1024")
    plan = await kit.context[Editor].plan(view, {"max_model_len": "1024", "api_key": "no"})
    kit.docker.hold("start")
    task = asyncio.create_task(kit.context[Editor].run(plan, kit.report))
    await kit.until(lambda: len(kit.docker.asked("start")) == 2)
    assert kit.secrets.api_key(str(path)) is None
    kit.presets.catalogue = PresetCatalogue(())
    kit.docker.release()
    await kit.until(task.done)
    assert isinstance(task.exception(), EditFailed)
    assert kit.secrets.api_key(str(path)) == key
    assert not any(kit.secrets.api_key(str(each)) for each in kit.secrets.files if each != path)


async def test_a_former_container_that_somebody_removed_is_made_again_from_its_preset() -> None:
    kit = Kit()
    view = await engine(kit)
    refuse(kit, "1024")
    plan = await kit.context[Editor].plan(view, {"max_model_len": "1024"})
    kit.docker.hold("start")
    task = asyncio.create_task(kit.context[Editor].run(plan, kit.report))
    await kit.until(lambda: len(kit.docker.asked("start")) == 2)
    await kit.docker.remove(view.container.id)
    kit.docker.release()
    await kit.until(task.done)
    assert isinstance(task.exception(), EditFailed)
    assert await runs_with(kit) == "2048"


async def test_an_edit_that_works_leaves_one_container() -> None:
    kit = Kit()
    kit.docker.script(IMAGE, ["loading"])
    view = await engine(kit)
    await edited(kit, await kit.context[Editor].plan(view, {"max_model_len": "1024"}))
    [left] = await kit.docker.containers()
    assert (left.name, left.running) == ("qwen", True)
    assert len(kit.archive.saved) == 1, "the log of the former one is kept"


async def test_without_docker_going_back_is_left_to_the_next_program() -> None:
    kit = Kit()
    view = await engine(kit)
    plan = await kit.context[Editor].plan(view, {"max_model_len": "1024"})
    kit.docker.on_start = lambda facts: kit.docker.go_down()
    with pytest.raises(DaemonNotRunning):
        await edited(kit, plan)
    [entry] = kit.context[Editor].interrupted()
    assert entry.stage == "restore"
    kit.docker.come_back()
    kit.docker.on_start = lambda _: kit.api.serve()
    await kit.context.close()
    kit.context = kit.opened()
    await resumed(kit)
    assert await runs_with(kit) == "2048"


async def test_two_programs_do_not_edit_one_engine() -> None:
    kit = Kit()
    plan = await kit.context[Editor].plan(await engine(kit), {"max_model_len": "1024"})
    kit.docker.hold("create")
    first = asyncio.create_task(kit.context[Editor].run(plan, kit.report))
    await kit.until(lambda: len(kit.docker.asked("create")) == 2)
    second = kit.opened()
    assert not second[Editor].interrupted(), "somebody is at it"
    with pytest.raises(RefusedError, match=r"is being edited by spark-tui on \S+ \(pid \d+\)"):
        await second[Editor].run(plan, kit.report)
    kit.docker.release()
    await kit.until(first.done)
    assert await runs_with(kit) == "1024"


async def test_a_cancelled_edit_brings_the_former_settings_back() -> None:
    kit = Kit()
    view = await engine(kit)
    plan = await kit.context[Editor].plan(view, {"max_model_len": "1024"})
    async with kit.supervised():
        kit.docker.hold("create")
        kit.context[JobRunner].edit(plan)
        await kit.until(lambda: len(kit.docker.asked("create")) == 2)
        cancelling = asyncio.create_task(kit.context[JobRunner].cancel("qwen"))
        await asyncio.sleep(0)
        kit.docker.release()
        await kit.until(lambda: cancelling.done() and not kit.context[JobRunner].running("qwen"))
        assert await runs_with(kit) == "2048"


@pytest.mark.parametrize(
    "text",
    [b"{", b"null", b"[1]", b"{}", b"\xff", json.dumps({"name": "qwen"}).encode(), b"[" * 100_000],
)
async def test_a_damaged_entry_is_no_edit_and_the_person_is_told_of_its_file(text: bytes) -> None:
    kit = Kit()
    kit.state.write("edit-qwen", text)
    assert kit.context[Editor].interrupted() == ()
    [problem] = kit.context[Editor].unreadable()
    assert kit.state.path("edit-qwen") in problem.summary
    assert problem.remedy
    with pytest.raises(RefusedError):
        await kit.context[Editor].finish("qwen", kit.report)
    await resumed(kit)
    [event] = [each for each in kit.context.store.world.events if each.kind is EventKind.EDIT]
    assert (event.severity, event.text, event.remedy) == (Severity.WARNING, problem.summary, problem.remedy)


async def test_entries_that_cannot_be_read_are_told_with_their_file(tmp_path: Path) -> None:
    kit = Kit()
    kit.state = Unreadable()
    kit.context = kit.opened()
    assert kit.context[Editor].interrupted() == ()
    [problem] = kit.context[Editor].unreadable()
    assert "/state/edit-qwen.json" in problem.summary


class Unreadable(MemoryState):
    """Files that are there and cannot be read, as those of another user."""

    def names(self, prefix: str) -> tuple[str, ...]:
        return (f"{prefix}qwen",)

    def read(self, name: str) -> bytes | None:
        raise SparkError(f"Cannot read /state/{name}.json: Permission denied.", "Make it readable, or delete it.")


async def test_remembered_values_that_cannot_be_read_are_not_overwritten() -> None:
    kit = Kit()
    kit.state = Unreadable()
    kit.context = kit.opened()
    last = kit.context[LastLaunches]
    assert (last.latest, last.of(PRESET).pairs) == ("", {})
    assert "/state/last-launches.json" in " ".join(last.keep(PRESET, overrides_from_pairs({"max_model_len": "1024"})))


async def test_a_launch_does_not_depend_on_remembering_its_values(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in the folder's place")
    kit = Kit()
    kit.state = StateFolder(tmp_path / "state" / "launches")  # type: ignore[assignment]
    last = kit.opened()[LastLaunches]
    assert "not remembered" in " ".join(last.keep(PRESET, Overrides(max_model_len=1024)))
    assert last.latest == ""


def test_files_of_the_state_are_private_whole_and_claimed_once(tmp_path: Path) -> None:
    one, other = StateFolder(tmp_path / "s"), StateFolder(tmp_path / "s")
    one.write("edit-a", b"1")
    assert (one.read("edit-a"), one.names("edit-")) == (b"1", ("edit-a",))
    assert ((tmp_path / "s").stat().st_mode & 0o777, (tmp_path / "s" / "edit-a.json").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )
    assert (one.claim("edit-a"), one.claim("edit-a"), other.claim("edit-a")) == (True, False, False)
    one.release("edit-a")
    assert other.claim("edit-a")
    one.remove("edit-a")
    assert one.read("edit-a") is None
