"""Launches over several nodes, each node a whole core on fakes that is asked by the protocol: nothing half-dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_LAUNCH, LABEL_RANK, ContainerFacts
from spark_tui.base.errors import EngineFailed, NameInUse, PortInUse, RefusedError, SparkError, UnreachableError
from spark_tui.base.finding import Ok
from spark_tui.base.host.detectors import SharedFile
from spark_tui.base.jobs import StepState
from spark_tui.base.launches import RELAUNCHES_AN_HOUR, ClusterRecord, Stage
from spark_tui.base.protocol import Lease, NodeRefused, NodeSilent, NodeVersion
from spark_tui.base.remote import Spread
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.manage.cluster.model.plan import plan_cluster, record_of
from spark_tui.manage.cluster.use.launch import STEPS, ClusterFailed
from spark_tui.manage.cluster.use.node import Node
from tests.engine_logs import banner
from tests.fakes_files import MemoryState
from tests.fakes_metrics import FakeMetrics
from tests.manage.cluster.test_cluster_plan import PATHS, cluster_of, preset
from tests.sparks import HEAD, WORKER, Sparks

RAIL = "enp1s0f0np0"
CUDA_ERROR = "RuntimeError: CUDA error: invalid argument"
ASKED = "'attention_backend': 'TRITON_ATTN'"


@pytest.fixture
def sparks() -> Sparks:
    return Sparks()


async def launched(sparks: Sparks, record: ClusterRecord | None = None, **how: bool) -> ClusterRecord:
    """That launch, with time moving on."""
    found: ClusterRecord = await ended(
        sparks, asyncio.ensure_future(sparks.launcher().launch(record or sparks.record(), lambda _: None, **how))
    )
    return found


async def ended(sparks: Sparks, work: asyncio.Future[Any]) -> Any:
    await sparks.clock.until(work.done)
    return work.result()


# --- it comes up ------------------------------------------------------------------------------------------


async def test_workers_start_before_the_head_and_an_answer_makes_it_ready(sparks: Sparks) -> None:
    order: list[str] = []
    for node, kit in sparks.kits.items():
        before = kit.docker.on_start
        kit.docker.on_start = lambda facts, node=node, before=before: (order.append(node), before and before(facts))  # type: ignore[misc,assignment]
    steps: list[tuple[str, StepState]] = []
    work = sparks.launcher().launch(sparks.record(), lambda step: steps.append((step.id, step.state)))
    ready = await ended(sparks, asyncio.ensure_future(work))
    assert (ready.stage, order) == (Stage.READY, [WORKER, HEAD])
    assert [id_ for id_, state in steps if state is StepState.DONE] == [id_ for id_, _ in STEPS]
    assert sparks.containers() == [(HEAD, "r"), (WORKER, "r-rank1")]
    assert len(sparks[HEAD].api.requests) == 1, "ready is a token, not a page"
    (kept,) = sparks.launcher().records()
    assert kept == ready, "what is written down is read back"


async def test_an_earlier_rank_with_its_old_flags_is_removed_first(sparks: Sparks) -> None:
    await launched(sparks)
    with pytest.raises(NameInUse):
        await launched(sparks, replace(sparks.record(), launch="l2"))
    assert len(sparks.containers()) == 2, "and what serves goes on"
    again = await launched(sparks, replace(sparks.record(), launch="l2"), replace_running=True)
    assert again.stage is Stage.READY
    assert len(sparks.containers()) == 2
    assert len(sparks[HEAD].docker.asked("remove")) == 1


async def test_replicas_are_proven_one_by_one(sparks: Sparks) -> None:
    sparks[WORKER].docker.on_start = lambda _: sparks[WORKER].api.serve()
    ready = await launched(sparks, sparks.record(Spread.REPLICAS))
    assert ready.alone
    assert [len(kit.api.requests) for kit in sparks.kits.values()] == [1, 1]


async def replicas(sparks: Sparks) -> ClusterRecord:
    sparks[WORKER].docker.on_start = lambda _: sparks[WORKER].api.serve()
    return await launched(sparks, sparks.record(Spread.REPLICAS))


async def test_replicas_have_one_router_on_the_head_that_ends_with_them(sparks: Sparks) -> None:
    ready = await replicas(sparks)
    (request,) = sparks[HEAD].routers.running.values()
    assert (request.address, request.port) == ("127.0.0.1", 9000)
    assert request.workers == ("http://192.168.100.1:8000", "http://192.168.100.2:8000")
    assert not sparks[WORKER].routers.running
    published = {port.host_ip for spec in sparks[WORKER].docker.created for port in spec.ports}
    assert published == {"127.0.0.1", "192.168.100.2"}, "the router reaches it, and the LAN does not"
    cleared = await ended(sparks, asyncio.ensure_future(sparks.launcher().stop(ready.name)))
    assert all(each.clean for each in cleared)
    assert not sparks[HEAD].routers.running


async def test_without_a_router_on_the_head_replicas_serve_each_for_itself(sparks: Sparks) -> None:
    sparks[HEAD].routers.installed = False
    ready = await replicas(sparks)
    assert (ready.stage, ready.router) == (Stage.READY, None)


@pytest.mark.parametrize("node", [HEAD, WORKER])
async def test_a_replica_that_ends_is_started_again_alone_and_the_router_stays(sparks: Sparks, node: str) -> None:
    await replicas(sparks)
    sparks[node].docker.end("r", 137)
    other = sparks[WORKER if node == HEAD else HEAD]

    def again() -> bool:
        assert sparks[HEAD].routers.running, "answers go on"
        return len(sparks[node].docker.created) == 2 and len(sparks.containers()) == 2

    await watching(sparks, again)
    assert len(other.docker.created) == 1
    (record,) = sparks.launcher().records()
    assert (record.stage, len(record.relaunches)) == (Stage.READY, 1)


async def test_a_replica_that_dies_again_and_again_stays_stopped_and_the_other_serves(sparks: Sparks) -> None:
    await replicas(sparks)

    def die() -> bool:
        alive = sparks[WORKER].docker.named("r")
        if alive is not None and alive.running:
            sparks[WORKER].docker.end("r", 137)
        return len(sparks.calls) > 200

    assert await watching(sparks, die)
    assert len(sparks[WORKER].docker.created) == 1 + RELAUNCHES_AN_HOUR
    assert len(sparks[HEAD].docker.created) == 1
    assert sparks.launcher().records()[0].stage is Stage.READY


async def test_a_router_that_ended_is_started_again(sparks: Sparks) -> None:
    await replicas(sparks)
    sparks[HEAD].routers.running.clear()
    await watching(sparks, lambda: bool(sparks[HEAD].routers.running))
    assert sparks[HEAD].routers.running


async def test_what_a_login_shell_prints_is_left_out(sparks: Sparks) -> None:
    sparks.greeting = "Welcome to spark-2!"
    assert (await launched(sparks)).stage is Stage.READY


# --- it does not come up: nothing is left -----------------------------------------------------------------


async def test_a_failure_names_the_rank_by_what_its_log_says(sparks: Sparks) -> None:
    wrong = "RuntimeError: Unable to find address for: enp1s0f1np1"
    sparks[WORKER].docker.script("org/vllm:1", [f"ERROR 11-23 15:00:00 [core.py:1] {wrong}", wrong], exit_code=1)
    with pytest.raises(ClusterFailed) as failed:
        await launched(sparks)
    assert "spark-2" in failed.value.summary
    assert "enp1s0f1np1" in failed.value.detail


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("acme/other", "Remove attention_backend=TRITON_ATTN"),
        ("nvidia/diffusiongemma-26B-A4B-it-NVFP4", "Set attention_backend=TRITON_ATTN"),
    ],
)
async def test_what_helps_the_guilty_rank_passes_the_check_of_the_launch(sparks: Sparks, model: str, says: str) -> None:
    head = "ERROR 04-01 17:00:05 [core.py:1]"
    lines = [f'{head}   File "/vllm/v1/attention/triton.py", line 1, in forward', f"{head} {CUDA_ERROR}"]
    sparks[WORKER].docker.script("org/vllm:1", [*banner("0.22.0", model, ASKED), *lines], exit_code=1)
    one = preset(model=model, command="vllm serve {model} --attention-backend TRITON_ATTN")
    plan = plan_cluster(one, Overrides(), PATHS, cluster_of(2), launch_id="l1")
    with pytest.raises(ClusterFailed) as failed:
        await launched(sparks, record_of(plan, patience=600))
    assert says in failed.value.remedy
    assert ("Set without=attention_backend" in failed.value.remedy) is (model == "acme/other")


def worker_ends(sparks: Sparks) -> None:
    sparks[WORKER].docker.script("org/vllm:1", ["ValueError: no such model"], exit_code=1)


def head_ends(sparks: Sparks) -> None:
    sparks[HEAD].docker.script("org/vllm:1", ["DistStoreError: 1/2 clients joined"], exit_code=1)


def head_lies(sparks: Sparks) -> None:
    """200 on every page, and no answer."""
    sparks[HEAD].api.scripts.append((EngineFailed("500 EngineCore died.", ""),))


def port_taken(sparks: Sparks) -> None:
    sparks[HEAD].host.ports[29501] = "python3 (77)"


def no_image(sparks: Sparks) -> None:
    sparks[WORKER].docker._images.clear()


def other_image(sparks: Sparks) -> None:
    sparks[WORKER].docker.add_image("org/vllm:1", digests=("org/vllm@sha256:2",), layers=("b",))


def no_docker(sparks: Sparks) -> None:
    sparks[WORKER].docker.go_down()


def no_ssh(sparks: Sparks) -> None:
    sparks.cut[WORKER] = UnreachableError("spark-2 is unreachable: No route to host.", "Check it.")


def no_link(sparks: Sparks) -> None:
    sparks.links[WORKER].change(RAIL, up=False)


def no_interface(sparks: Sparks) -> None:
    del sparks.links[WORKER].found[RAIL]


def other_model(sparks: Sparks) -> None:
    for count, model in enumerate(sparks.models.values()):
        model.sizes = {"config.json": 700, "model.safetensors": 5_000 + count, "README.md": count}


def no_model(sparks: Sparks) -> None:
    sparks.models[HEAD].sizes = {"model.safetensors": 5_000}


def foreign(sparks: Sparks) -> None:
    sparks[WORKER].docker.add_container("r-rank1")


def other_version(sparks: Sparks) -> None:
    sparks.version = 2


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (worker_ends, ClusterFailed), (head_ends, ClusterFailed), (head_lies, ClusterFailed), (port_taken, PortInUse),
        (no_image, RefusedError), (no_docker, ClusterFailed), (other_image, RefusedError), (no_ssh, NodeSilent),
        (foreign, NodeRefused), (other_version, NodeVersion), (other_model, RefusedError), (no_model, RefusedError),
        (no_link, RefusedError), (no_interface, RefusedError),
    ],
)  # fmt: skip
async def test_a_launch_that_fails_leaves_nothing_and_says_what_to_do(
    sparks: Sparks, fault: Callable[[Sparks], None], error: type[SparkError]
) -> None:
    fault(sparks)
    before = sparks.containers()
    with pytest.raises(error) as failed:
        await launched(sparks)
    assert failed.value.remedy
    assert sparks.containers() == before
    assert sparks.launcher().records() == ()


async def test_a_launch_that_is_cancelled_leaves_nothing(sparks: Sparks) -> None:
    sparks[HEAD].docker.on_start = None  # it loads for ever
    work = asyncio.ensure_future(sparks.launcher().launch(sparks.record(), lambda _: None))
    await sparks.clock.until(lambda: len(sparks.containers()) == 2)
    work.cancel()
    await sparks.clock.until(work.done)
    assert work.cancelled()
    assert sparks.containers() == []
    assert sparks.launcher().records() == ()


@pytest.mark.parametrize("at", range(1, 40))
async def test_a_program_killed_anywhere_is_followed_by_one_that_finishes_or_undoes(sparks: Sparks, at: int) -> None:
    work = sparks.launcher().launch(sparks.record(), lambda _: None)
    assert all(record.stage is Stage.READY for record in await left_when_killed(sparks, work, at))


@pytest.mark.parametrize("at", range(1, 7))
async def test_a_stop_that_is_killed_anywhere_is_finished_by_the_next_program(sparks: Sparks, at: int) -> None:
    await launched(sparks)
    kept = await left_when_killed(sparks, sparks.launcher().stop("r"), at)
    assert [record.stage for record in kept] == [Stage.READY] * len(kept), "not yet stopped, or gone"


@pytest.mark.parametrize("at", range(1, 40, 3))
async def test_a_watcher_killed_while_all_ranks_start_again_leaves_all_of_it_or_nothing(
    sparks: Sparks, at: int
) -> None:
    await launched(sparks)
    watcher = sparks.launcher().watch("r", lambda _: None)
    sparks[WORKER].docker.end("r-rank1", 137)
    for record in await left_when_killed(sparks, watcher, at):
        assert record.stage is Stage.READY
        await ended(sparks, asyncio.ensure_future(sparks.launcher().stop("r")))
    assert sparks.containers() == []


async def left_when_killed(sparks: Sparks, doing: Coroutine[Any, Any, object], at: int) -> tuple[ClusterRecord, ...]:
    """What is written down once the next program has finished or undone what one began that was killed at its call of
    that number. Asserts that it is on all nodes or on none."""
    sparks.kill_at = len(sparks.calls) + at
    work = asyncio.ensure_future(doing)
    await sparks.clock.until(lambda: work.done() or sparks.state.dead)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await sparks.clock.advance(30)
    sparks.state._claimed.clear()
    after = sparks.launcher()
    for record in after.records():
        if record.stage is not Stage.READY:
            await ended(sparks, asyncio.ensure_future(after.recover(record)))
    kept = after.records()
    assert len(sparks.containers()) == 2 * len(kept), "all of it, or nothing"
    return kept


async def test_of_two_launches_at_once_one_gets_the_nodes(sparks: Sparks) -> None:
    """Two people with machines of their own, and names of their own for the engine."""
    ours, mine, theirs = sparks.record(), sparks.launcher(), sparks.launcher(MemoryState())
    other = record_of(plan_cluster(preset(), Overrides(name="other"), PATHS, cluster_of(2), launch_id="l9"))
    both = asyncio.gather(
        mine.launch(ours, lambda _: None), theirs.launch(other, lambda _: None), return_exceptions=True
    )
    results = await ended(sparks, both)
    assert sorted(type(each) for each in results if isinstance(each, Exception)) == [NodeRefused]
    assert len(sparks.containers()) == 2
    assert len({name.partition("-")[0] for _, name in sparks.containers()}) == 1
    again = mine.launch(replace(ours, launch="l3"), lambda _: None, replace_running=True)
    assert await ended(sparks, asyncio.ensure_future(again)), "a launch that is ready keeps no node"


async def test_a_lease_of_a_killed_launch_keeps_nobody_out_for_long(sparks: Sparks) -> None:
    node, now = sparks[HEAD].context[Node], sparks.clock.now()
    await node.lease(Lease("l0", "r", "nv on desk", now + 600))
    await node.lease(Lease("l1", "r", "nv on desk", now + 600))  # the same name at the same machine
    with pytest.raises(RefusedError):
        await node.lease(Lease("l2", "r", "somebody on another", now + 600))


@pytest.mark.parametrize("node", [HEAD, WORKER])
async def test_a_node_that_cannot_be_asked_for_a_while_does_not_end_a_load(sparks: Sparks, node: str) -> None:
    sparks[HEAD].docker.on_start = None
    work = asyncio.ensure_future(sparks.launcher().launch(sparks.record(), lambda _: None))
    await sparks.clock.until(lambda: len(sparks.containers()) == 2)
    await sparks.clock.advance(5)
    sparks.cut[node] = UnreachableError("unreachable: Connection timed out.", "Check it.")
    await sparks.clock.advance(30)
    sparks.cut.clear()
    sparks[HEAD].api.serve()
    assert (await ended(sparks, work)).stage is Stage.READY


# --- it serves, and is stopped ----------------------------------------------------------------------------


async def test_a_stop_proves_each_node_and_remembers_the_one_that_is_away(sparks: Sparks) -> None:
    await launched(sparks)
    no_ssh(sparks)
    results = await ended(sparks, asyncio.ensure_future(sparks.launcher().stop("r")))
    assert [each.clean for each in results] == [True, False]
    (kept,) = sparks.launcher().records()
    assert kept.uncleared == ("spark-2",)
    sparks.cut.clear()
    after = sparks.launcher()
    assert await ended(sparks, asyncio.ensure_future(after.recover(kept))) is None
    assert (sparks.containers(), after.records()) == ([], ())


async def test_a_port_that_stays_taken_is_not_clean(sparks: Sparks) -> None:
    await launched(sparks)
    sparks[HEAD].host.ports[8000] = "python3 (99)"
    results = await ended(sparks, asyncio.ensure_future(sparks.launcher().stop("r")))
    assert [each.clean for each in results] == [False, True]
    assert "8000" in results[0].text


@pytest.mark.parametrize("removable", [True, False])
async def test_shared_memory_that_a_rank_leaves_is_removed_or_named(sparks: Sparks, removable: bool) -> None:
    await launched(sparks)
    worker = sparks[WORKER]
    worker.docker.end("r-rank1", 137)
    names = ("psm_1a", "notes.txt", "psm_2b")
    files = [SharedFile(name, 4096, 0.0, open=name == "psm_2b") for name in names]
    worker.host.shared = Ok(tuple(files), 0)

    def remove(facts: ContainerFacts) -> None:
        gone = [path.removeprefix("/dev/shm/") for path in facts.argv[-1:]] if removable else []
        worker.host.shared = Ok(tuple(each for each in files if each.name not in gone), 0)
        worker.docker.end(facts.name, 0)

    worker.docker.on_start = remove
    results = await ended(sparks, asyncio.ensure_future(sparks.launcher().stop("r")))
    assert [each.clean for each in results] == [True, removable]
    assert ("leaked in 1 file" in results[1].text) is not removable
    assert worker.docker.created[-1].command == ("/dev/shm/psm_1a",), "no other program's files"
    assert sparks.containers() == []


async def test_a_start_that_arrives_after_the_stop_starts_nothing(sparks: Sparks) -> None:
    """The program that asked for it was killed; its ssh was not."""
    ready = await launched(sparks)
    await ended(sparks, asyncio.ensure_future(sparks.launcher().stop("r")))
    node, request = sparks[WORKER].context[Node], ready.ranks[1].start
    with pytest.raises(RefusedError):
        await node.start(request)
    assert sparks.containers() == []
    later = replace(request, spec=replace(request.spec, labels=((LABEL_LAUNCH, "l2"), (LABEL_RANK, "1/2"))))
    sparks[WORKER].docker.on_start = lambda _: sparks[WORKER].context.ports.state.write("node-stopped", b"l2")
    with pytest.raises(RefusedError):
        await node.start(later)
    assert sparks.containers() == [], "it was stopped while it started"


async def test_an_unknown_launch_is_refused(sparks: Sparks) -> None:
    with pytest.raises(RefusedError):
        await sparks.launcher().stop("nobody")


async def test_the_logs_of_all_ranks_are_one_by_time(sparks: Sparks) -> None:
    ready = await launched(sparks)
    for text in ("1", "2"):
        sparks[HEAD].docker.write("r", text)
        sparks[WORKER].docker.write("r-rank1", text)
    seen: list[tuple[str, str]] = []
    launcher = sparks.launcher()
    reading = launcher.logs(ready, lambda node, line: seen.append((line.stamp, node)), follow=False)
    assert await ended(sparks, asyncio.ensure_future(reading)) == ()
    assert [node for _, node in seen].count("spark-2") == 2
    assert [stamp for stamp, _ in seen] == sorted(stamp for stamp, _ in seen)
    no_ssh(sparks)
    reading = launcher.logs(ready, lambda node, line: seen.append((line.stamp, node)), follow=False)
    assert len(await ended(sparks, asyncio.ensure_future(reading))) == 1, "a log that cannot be read is not empty"


# --- it is watched ----------------------------------------------------------------------------------------


async def watching(sparks: Sparks, until: Callable[[], bool]) -> list[str]:
    """What a watcher says until then."""
    said: list[str] = []
    work = asyncio.ensure_future(sparks.launcher().watch("r", said.append))
    await sparks.clock.until(lambda: until() or work.done())
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return said


def launches(sparks: Sparks) -> list[str]:
    return [spec.label(LABEL_LAUNCH) for spec in sparks[HEAD].docker.created]


@pytest.mark.parametrize("node", [HEAD, WORKER])
async def test_a_rank_that_ends_takes_all_ranks_with_it_and_all_start_again(sparks: Sparks, node: str) -> None:
    await launched(sparks)
    sparks[node].docker.end("r" if node == HEAD else "r-rank1", 137)
    await watching(sparks, lambda: len(launches(sparks)) == 2 and sparks.launcher().records()[0].stage is Stage.READY)
    assert len(set(launches(sparks))) == 2, "the second launch has an id of its own"
    assert len(sparks.containers()) == 2
    assert len(sparks.launcher().records()[0].relaunches) == 1


@pytest.mark.parametrize(("speed", "token", "restarts"), [(0.0, False, 1), (0.0, True, 0), (40.0, False, 0)])
async def test_requests_without_a_new_token_call_for_the_canary(
    sparks: Sparks, speed: float, token: bool, restarts: int
) -> None:
    """A link was lost: every page is 200, nothing is logged. Only a completion that dies ends the launch."""
    head = sparks[HEAD]
    head.metrics = FakeMetrics(sparks.clock, speed=speed)
    head.context = head.opened()
    await launched(sparks)
    if not token:
        head.api.scripts.append((EngineFailed("RPC call to execute_model timed out.", ""),))
    looks = len(sparks.calls) + 60
    await watching(sparks, lambda: len(launches(sparks)) > 1 or len(sparks.calls) > looks)
    assert len(launches(sparks)) - 1 == restarts


def link_down(sparks: Sparks) -> None:
    for links in sparks.links.values():
        links.change(RAIL, up=False)


def small_mtu(sparks: Sparks) -> None:
    sparks.links[WORKER].change(RAIL, mtu=1500)


@pytest.mark.parametrize(
    ("fault", "answers", "says", "stage", "starts"),
    [
        (link_down, False, f"no link at {RAIL} of spark-1 and {RAIL} of spark-2", Stage.BROKEN, 1),
        (small_mtu, False, f"MTU 1500 at {RAIL} of spark-2", Stage.READY, 2),
        (link_down, True, "", Stage.READY, 1),
    ],
)
async def test_a_fault_between_the_nodes_calls_for_the_canary_at_once_and_is_named(
    sparks: Sparks, fault: Callable[[Sparks], None], answers: bool, says: str, stage: Stage, starts: int
) -> None:
    """Also while nobody asks anything. Without a link nothing is started again."""
    await launched(sparks)
    fault(sparks)
    if not answers:
        sparks[HEAD].api.scripts.append((EngineFailed("no token", ""),))
    looks = len(sparks.calls) + 60

    def over() -> bool:
        (record,) = sparks.launcher().records() or (None,)
        settled = record is not None and record.stage is stage and len(launches(sparks)) == starts
        return (settled and bool(says)) or len(sparks.calls) > looks

    said = await watching(sparks, over)
    (record,) = sparks.launcher().records()
    assert (record.stage, len(launches(sparks))) == (stage, starts)
    assert says in "".join(said)
    if stage is Stage.BROKEN:
        assert says in record.problem
        assert sparks.containers() == []
    if answers:
        assert len(sparks[HEAD].api.requests) == 2, "the canary is sent once for one fault"


async def test_one_that_dies_again_and_again_stays_stopped(sparks: Sparks) -> None:
    await launched(sparks)
    sparks[WORKER].docker.end("r-rank1", 137)

    def die() -> bool:
        kit, found = sparks[WORKER], sparks.launcher().records()
        alive = kit.docker.named("r-rank1")
        if found and found[0].stage is Stage.READY and alive is not None and alive.running:
            kit.docker.end("r-rank1", 137)
        return False

    said = await watching(sparks, die)
    assert len(launches(sparks)) == 1 + RELAUNCHES_AN_HOUR
    assert sparks.containers() == []
    assert sparks.launcher().records()[0].stage is Stage.BROKEN
    assert said


async def test_a_node_that_cannot_be_asked_is_no_reason_to_stop_what_serves(sparks: Sparks) -> None:
    await launched(sparks)
    no_ssh(sparks)
    looks = len(sparks.calls) + 40
    assert await watching(sparks, lambda: len(sparks.calls) > looks) == []
    assert len(sparks.containers()) == 2


async def test_what_is_stopped_while_it_is_looked_at_is_not_started_again(sparks: Sparks) -> None:
    await launched(sparks)
    launcher = sparks.launcher()
    sparks.late["look"] = asyncio.Event()  # the look has begun, and its answer comes after the stop
    watching = asyncio.ensure_future(launcher.watch("r", lambda _: None))
    await sparks.clock.advance(1)
    await ended(sparks, asyncio.ensure_future(launcher.stop("r")))
    sparks.late.pop("look").set()
    await sparks.clock.until(watching.done)
    assert (sparks.containers(), len(launches(sparks)), launcher.records()) == ([], 1, ())


@pytest.mark.parametrize("calls", range(0, 30, 2))
async def test_a_stop_while_all_ranks_start_again_ends_that_start(sparks: Sparks, calls: int) -> None:
    await launched(sparks)
    sparks[WORKER].docker.end("r-rank1", 137)
    launcher, said, before = sparks.launcher(), list[str](), len(sparks.calls)
    watching = asyncio.ensure_future(launcher.watch("r", said.append))
    await sparks.clock.until(lambda: bool(said) and len(sparks.calls) >= before + calls)
    results = await ended(sparks, asyncio.ensure_future(launcher.stop("r")))
    assert [each.clean for each in results] == [True, True]
    await sparks.clock.until(watching.done)
    assert (sparks.containers(), launcher.records(), watching.exception()) == ([], (), None)


async def test_a_watcher_that_is_closed_while_it_gives_the_nodes_back_ends(sparks: Sparks) -> None:
    await launched(sparks)
    sparks[WORKER].docker.end("r-rank1", 137)
    work = asyncio.ensure_future(sparks.launcher().watch("r", lambda _: None))
    await sparks.clock.until(lambda: len(launches(sparks)) == 2)
    sparks.late["lease"] = asyncio.Event()
    await sparks.clock.until(lambda: sparks.launcher().records()[0].stage is Stage.READY)
    work.cancel()
    await sparks.clock.advance(1)
    sparks.late.pop("lease").set()
    await sparks.clock.until(work.done)
    assert work.cancelled()


async def test_only_one_program_watches(sparks: Sparks) -> None:
    await launched(sparks)
    launcher = sparks.launcher()
    first = asyncio.ensure_future(launcher.watch("r", lambda _: None))
    await sparks.clock.advance(1)
    with pytest.raises(RefusedError):
        await launcher.watch("r", lambda _: None)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
