"""Work on several nodes as jobs of the control centre: launched, cancelled, stopped, closed midway, recovered."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from spark_tui.base.errors import RefusedError
from spark_tui.base.finding import EventKind, Ok
from spark_tui.base.host.series import MetricId, Sample
from spark_tui.base.host.vitals import GpuReading
from spark_tui.base.jobs import JobView, StepState
from spark_tui.base.launches import Stage, new_launch
from spark_tui.machine.nodes import Nodes
from spark_tui.manage.cluster.use.launch import ClusterLauncher
from spark_tui.manage.cluster.use.monitor import ClusterJobs, ClusterMonitor
from spark_tui.run.launch.use.runner import JobRunner
from tests.kit import Kit, running
from tests.manage.cluster.test_cluster_launch import no_ssh, worker_ends
from tests.sparks import HEAD, Sparks


@pytest.fixture
def sparks() -> Sparks:
    return Sparks()


@pytest.fixture
def kit(sparks: Sparks) -> Kit:
    return sparks.controller()


def job(kit: Kit) -> JobView:
    return kit.context.store.world.jobs[-1]


def kinds(kit: Kit) -> list[EventKind]:
    return [event.kind for event in kit.context.store.world.events if event.subject == "r"]


async def over(kit: Kit) -> JobView:
    await kit.until(lambda: kit.context[JobRunner].running("r") is None)
    return job(kit)


async def launched(sparks: Sparks, kit: Kit) -> JobView:
    kit.context[ClusterJobs].launch(sparks.record())
    return await over(kit)


async def test_a_launch_on_nodes_is_a_job_with_steps_and_is_watched(sparks: Sparks, kit: Kit) -> None:
    found = await launched(sparks, kit)
    assert (found.state, found.nodes) == (StepState.DONE, ("spark-1", "spark-2"))
    assert [step.id for step in found.steps] == ["nodes", "clear", "workers", "head", "follow", "ready"]
    assert all(step.state is StepState.DONE for step in found.steps)
    assert kinds(kit) == [EventKind.LAUNCH, EventKind.READY]
    assert sparks.watched == ["r"]


async def test_a_launch_that_fails_keeps_what_is_wrong_and_what_to_do(sparks: Sparks, kit: Kit) -> None:
    worker_ends(sparks)
    found = await launched(sparks, kit)
    assert found.state is StepState.FAILED
    assert found.error
    assert found.remedy
    assert kinds(kit)[-1] is EventKind.FAILED
    assert sparks.containers() == []


async def test_a_cancelled_launch_is_undone_on_all_nodes(sparks: Sparks, kit: Kit) -> None:
    sparks[HEAD].docker.on_start = None  # it loads for ever
    kit.context[ClusterJobs].launch(sparks.record())
    await kit.until(lambda: len(sparks.containers()) == 2)
    await kit.context[JobRunner].cancel("r")
    assert job(kit).state is StepState.CANCELLED
    assert (sparks.containers(), kit.context[ClusterLauncher].records()) == ([], ())


async def test_one_name_is_worked_on_once(sparks: Sparks, kit: Kit) -> None:
    kit.context[ClusterJobs].launch(sparks.record())
    with pytest.raises(RefusedError):
        kit.context[ClusterJobs].stop(sparks.record())
    await over(kit)


async def test_a_stop_proves_each_node_clean(sparks: Sparks, kit: Kit) -> None:
    await launched(sparks, kit)
    kit.context[ClusterJobs].stop(kit.context[ClusterLauncher].records()[0])
    with pytest.raises(RefusedError):
        await kit.context[JobRunner].cancel("r")
    found = await over(kit)
    assert found.state is StepState.DONE
    assert "spark-1" in found.steps[0].detail
    assert "spark-2" in found.steps[0].detail
    assert kinds(kit)[-1] is EventKind.STOPPED
    assert sparks.containers() == []


async def test_a_stop_names_the_node_that_is_away_and_can_be_done_again(sparks: Sparks, kit: Kit) -> None:
    await launched(sparks, kit)
    no_ssh(sparks)
    kit.context[ClusterJobs].stop(kit.context[ClusterLauncher].records()[0])
    found = await over(kit)
    assert found.state is StepState.FAILED
    assert "spark-2" in found.error
    sparks.cut.clear()
    (left,) = kit.context[ClusterLauncher].records()
    kit.context[ClusterJobs].stop(left)
    assert (await over(kit)).state is StepState.DONE
    assert kit.context[ClusterLauncher].records() == ()


async def test_a_launch_goes_on_while_this_program_is_closed_and_the_next_one_finishes_it(
    sparks: Sparks, kit: Kit
) -> None:
    serve, sparks[HEAD].docker.on_start = sparks[HEAD].docker.on_start, None
    kit.context[ClusterJobs].launch(sparks.record())
    await kit.until(lambda: len(sparks.containers()) == 2)
    await kit.context[ClusterJobs].close()
    await kit.context[JobRunner].close()
    assert len(sparks.containers()) == 2
    assert serve is not None
    sparks[HEAD].api.serve()
    after = sparks.controller()
    async with after.supervised():
        await after.context[ClusterJobs].recover()
        found = await over(after)
    assert found.state is StepState.DONE
    (record,) = after.context[ClusterLauncher].records()
    assert record.stage is Stage.READY
    assert sparks.watched == ["r"]
    after.context[ClusterJobs].launch(new_launch(record), replace_running=True)
    assert (await over(after)).state is StepState.DONE, "no node is kept for the launch that was interrupted"


async def test_a_stop_that_was_interrupted_is_finished(sparks: Sparks, kit: Kit) -> None:
    await launched(sparks, kit)
    (record,) = kit.context[ClusterLauncher].records()
    sparks.keep(replace(record, stage=Stage.STOPPING))
    async with kit.supervised():
        await kit.context[ClusterJobs].recover()
        found = await over(kit)
    assert found.state is StepState.DONE
    assert sparks.containers() == []


async def test_what_another_program_works_on_is_left_to_it(sparks: Sparks, kit: Kit) -> None:
    await launched(sparks, kit)
    (record,) = kit.context[ClusterLauncher].records()
    sparks.keep(replace(record, stage=Stage.STARTING))
    assert sparks.state.claim("cluster-r")
    async with kit.supervised():
        await kit.context[ClusterJobs].recover()
        found = await over(kit)
    assert (found.state, found.steps[0].state) == (StepState.DONE, StepState.SKIPPED)
    assert len(sparks.containers()) == 2


CHANGES = (
    ({"stage": Stage.STOPPING, "problem": "r-rank1 on spark-2 is gone."}, EventKind.FAILED, "r-rank1 on spark-2"),
    ({"stage": Stage.STARTING, "relaunches": (1.0,), "problem": "gone."}, EventKind.NOTE, "1 of 3"),
    ({"stage": Stage.BROKEN, "problem": "gone."}, EventKind.FAILED, "stays stopped"),
    ({"stage": Stage.STOPPING}, EventKind.NOTE, "stopping"),
)


@pytest.mark.parametrize(("changes", "kind", "says"), CHANGES)
async def test_what_the_watcher_does_is_told(
    sparks: Sparks, kit: Kit, changes: dict[str, object], kind: EventKind, says: str
) -> None:
    await launched(sparks, kit)
    async with running(kit.context[ClusterMonitor].run()):
        await kit.until(lambda: len(kit.context.store.world.nodes) == 2)
        (record,) = kit.context[ClusterLauncher].records()
        sparks.keep(replace(record, **changes))  # type: ignore[arg-type]
        await kit.until(lambda: kit.context.store.world.launches[0].stage is not Stage.READY)
    last = kit.context.store.world.events[-1]
    assert (last.kind, says in last.text) == (kind, True)


async def test_what_each_node_does_is_kept_under_the_name_of_the_engine(sparks: Sparks, kit: Kit) -> None:
    sparks["nv@spark-2"].gpu.value = Ok(GpuReading("GB10", utilization_percent=91, power_watts=60.0))
    await launched(sparks, kit)
    kept: list[Sample] = []
    parts = (kit.context.settings.clusters, kit.context[ClusterLauncher], kit.context[Nodes], kit.context.store)
    monitor = ClusterMonitor(*parts, kit.clock, kept.append)
    async with running(monitor.run()):
        await kit.until(lambda: len(kept) >= 4)
    by_node = {sample.engine: sample.values for sample in kept}
    assert by_node["r@spark-2"][MetricId.GPU_POWER] == 60.0
    assert MetricId.GPU_POWER not in by_node["r@spark-1"], "unknown is no value"
    assert by_node["r@spark-1"][MetricId.MEMORY_AVAILABLE] > 0


async def test_a_node_that_does_not_answer_is_known_by_its_error(sparks: Sparks, kit: Kit) -> None:
    no_ssh(sparks)
    looking = asyncio.ensure_future(kit.context[ClusterMonitor].look())
    await kit.until(looking.done)
    nodes = kit.context.store.world.nodes
    assert [type(nodes[each]).__name__ for each in ("nv@spark-1", "nv@spark-2")] == ["NodeLook", "NodeSilent"]
