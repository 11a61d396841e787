"""Which rank is guilty: real logs of two ranks for each fault, and lines of NCCL, Ray and hostile ones."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerStatus
from spark_tui.base.finding import Finding, Missing, Ok, Severity
from spark_tui.base.protocol import RankState
from spark_tui.base.remote import Cluster, ClusterNode, Topology
from spark_tui.manage.cluster.model.blame import RankView, blame, merged_lines, read_rank
from spark_tui.observe.explain.model.explain import LogExplainer
from spark_tui.observe.explain.model.view import LogContext
from tests import TESTS
from tests.cases import all_cases

LOGS = TESTS / "fixtures" / "cluster" / "logs"
STATES: dict[str, dict[str, Any]] = json.loads((LOGS / "containers.json").read_text("utf-8"))
NODES = tuple(ClusterNode(f"nv@spark-{at}", (f"192.168.100.{at}",), ("enp1s0f0np0",)) for at in (1, 2, 3))
DUO = Cluster("duo", NODES[:2])
HEAD, WORKER = "spark-1", "spark-2"
OLD_LAUNCH = ("relaunch-over-orphaned-worker", "relaunch-joins-waiting-worker")

# scenario -> id of the root cause, guilty node, nodes where a rank is still to be stopped
GUILTY: dict[str, tuple[str, str, tuple[str, ...]] | None] = {
    "tp2-ok": None,
    "pp2-ok": None,
    "ray": None,
    "vllm-router": None,
    "litellm": None,
    "tp2-no-compiler": ("no_compiler", WORKER, (WORKER,)),
    "pp2-no-compiler": ("unsupported_model_feature", WORKER, (WORKER,)),
    "pp2-eager-dies": ("unknown", WORKER, (WORKER,)),
    "worker-killed": ("killed", WORKER, ()),
    "head-killed": ("killed", HEAD, (WORKER,)),
    "dp2-worker-killed": ("rank_lost", WORKER, (HEAD,)),
    "dp2-head-alone": ("bad_argument", WORKER, ()),
    "link-down": ("link_lost", WORKER, (WORKER,)),
    "worker-missing": ("rank_missing", WORKER, ()),
    "head-missing": ("rank_missing", HEAD, ()),
    "wrong-interface-worker": ("wrong_interface", WORKER, (HEAD,)),
    "wrong-master": ("wrong_master", HEAD, ()),
    "worker-lacks-model": ("weights_missing", WORKER, ()),
    "firewall": ("fabric_blocked", WORKER, ()),
    "master-port-taken": ("master_port_in_use", HEAD, (WORKER,)),
    "relaunch-over-orphaned-worker": ("stale_rank", WORKER, ()),
    "relaunch-joins-waiting-worker": ("stale_rank", WORKER, ()),
    "ray-refused": ("ray_refused", HEAD, (WORKER,)),
}


def epoch(stamp: str | None) -> float | None:
    return datetime.fromisoformat(stamp).timestamp() if stamp else None


def container(name: str = "vllm", status: str = "running", launch: str = "b", **more: Any) -> RankState:
    return RankState("1", name, launch, 0, 2, ContainerStatus(status), **more)


def lines_of(path: Path) -> list[tuple[str, str]]:
    """Stamp and text of each line; no stamps where the log has none."""
    rows = path.read_bytes().decode().removesuffix("\n").split("\n") if path.exists() else []
    return [(row.split(" ", 1)[0], row.partition(" ")[2]) if row[10:11] == "T" else ("", row) for row in rows]


def scenario(name: str, *, labels: bool = True) -> list[RankView]:
    """The ranks of a fixture; the worker of a relaunch has the label of an earlier launch."""
    found = []
    for number, (role, state) in enumerate(STATES[name].items()):
        facts = None
        if state is not None:
            old = name in OLD_LAUNCH and role == "worker"
            facts = container(
                state["name"], state["status"], ("a" if old else "b") if labels else "",
                exit_code=state.get("exit_code"), started_at=epoch(state.get("started")),
                finished_at=epoch(state.get("finished")),
            )  # fmt: skip
        found.append(RankView(number, NODES[number], Ok(facts), lines_of(LOGS / f"{name}.{role}.log")))
    return found


def verdict(ranks: Sequence[RankView], cluster: Cluster = DUO) -> tuple[Finding, ...]:
    return blame(cluster, [read_rank(rank, cluster) for rank in ranks])


def said(*lines: str, at: int = 0) -> list[tuple[str, str]]:
    """Lines one second apart, `at` seconds after noon."""
    noon = datetime(2026, 11, 22, 12)
    return [(f"{noon + timedelta(seconds=at + each):%Y-%m-%dT%H:%M:%S}Z", text) for each, text in enumerate(lines)]


def ranks(*logs: Sequence[tuple[str, str]], **more: Any) -> list[RankView]:
    return [RankView(at, NODES[at], Ok(container(f"vllm-{at}", **more)), lines) for at, lines in enumerate(logs)]


def ended(rank: RankView, exit_code: int = 1) -> RankView:
    return replace(rank, container=Ok(container("vllm", "exited", exit_code=exit_code)))


def test_every_recorded_scenario_has_its_row() -> None:
    logs = {path.name.partition(".")[0] for path in LOGS.glob("*.log")}
    assert logs | set(STATES) == set(GUILTY)


@all_cases("name", GUILTY)
def test_the_guilty_rank_of_a_recorded_scenario(name: str) -> None:
    logs = scenario(name)
    found, expected = verdict(logs), GUILTY[name]
    if expected is None:
        assert found == ()
        return
    cause, node, left = expected
    assert (found[0].id, found[0].subject) == (cause, node)
    assert tuple(each.subject for each in found if each.id == "rank_left_running") == left
    assert len(found) == 1 + len(left)
    assert found[0].evidence and found[0].remedy and node in found[0].summary
    if found[0].line is not None:
        log = next(rank for rank in logs if rank.node.name == node)
        assert found[0].evidence[-1][:40] in log.lines[found[0].line][1]


@all_cases("name", [name for name, row in GUILTY.items() if row])
def test_the_verdict_does_not_depend_on_the_order_of_the_ranks(name: str) -> None:
    assert verdict(scenario(name)[::-1]) == verdict(scenario(name))


@all_cases("name", [name for name, row in GUILTY.items() if row and name != OLD_LAUNCH[1]])
def test_without_stamps_and_labels_the_guilty_rank_is_the_same(name: str) -> None:
    logs = [replace(rank, lines=[("", text) for _, text in rank.lines]) for rank in scenario(name, labels=False)]
    found, expected = verdict(logs), GUILTY[name]
    assert expected is not None
    assert (found[0].id, found[0].subject) == expected[:2]


def test_a_clock_that_is_a_second_off_does_not_move_the_blame_to_the_head() -> None:
    head, worker = scenario("pp2-eager-dies")  # the core of the head ends with an exception of its own
    second = timedelta(seconds=1)
    early = [(f"{datetime.fromisoformat(at) - second:%Y-%m-%dT%H:%M:%S.%f}Z", text) for at, text in head.lines if at]
    assert verdict([replace(head, lines=early), worker])[0].subject == WORKER


def test_an_unknown_error_of_the_head_alone_is_its_own() -> None:
    head, worker = scenario("pp2-eager-dies")
    silent = replace(worker, lines=[line for line in worker.lines if " ERROR " not in line[1]])
    found = verdict([head, silent])
    assert (found[0].id, found[0].subject) == ("unknown", HEAD)


@pytest.mark.parametrize(("seconds", "guilty"), [(-0.5, ("killed", WORKER)), (9, ("unknown", HEAD))])
def test_a_killed_worker_is_guilty_of_what_came_after(seconds: float, guilty: tuple[str, str]) -> None:
    head, worker = scenario("pp2-eager-dies")
    at = (epoch("2026-11-22T17:36:11.680Z") or 0.0) + seconds  # the exception of the head's core
    silent = [line for line in worker.lines if " ERROR " not in line[1]]
    dead = replace(worker, container=Ok(container("vllm-1", "exited", exit_code=137, finished_at=at)), lines=silent)
    found = verdict([head, dead])
    assert (found[0].id, found[0].subject) == guilty


def test_a_serving_engine_with_a_worker_of_an_earlier_launch_is_a_warning() -> None:
    assert verdict(scenario("relaunch-joins-waiting-worker"))[0].severity is Severity.WARNING


def test_a_command_to_stop_a_rank_names_host_and_container() -> None:
    found = verdict(scenario("link-down"))
    assert "spark-tui --host nv@spark-2 down vllm-1" in found[1].remedy


def test_lines_of_all_ranks_come_by_time_with_their_node() -> None:
    merged = merged_lines(scenario("worker-killed"))
    stamps = [stamp for _, stamp, _ in merged if stamp]
    assert {node for node, _, _ in merged} == {HEAD, WORKER} and stamps == sorted(stamps)
    assert len(merged) == sum(len(rank.lines) for rank in scenario("worker-killed"))


# --- what no recording has ------------------------------------------------------------------------------------

NCCL = "spark:199:412 [0] "
INIT = "(Worker pid=7) INFO 11-22 12:00:00 [parallel_state.py:1906] world_size=2 rank={} local_rank=0 " \
       "distributed_init_method=tcp://{}:29501 backend=nccl"  # fmt: skip
GONE = "RuntimeError: NCCL error: remote process exited or there was a network error"
STORE = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."
CORE = "(EngineCore pid=3) ERROR 11-22 12:00:09 [core.py:1510] "


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (f"{NCCL}misc/ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev "
         "rocep1s0f0:1, curr state INIT, next state RTR, local GID index 3", "pinned_gid"),
        (f"{NCCL}ibvwrap.cc:160 NCCL WARN Call to ibv_modify_qp failed with error No data available", "pinned_gid"),
        (f"{NCCL}misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
         "rdma_memory"),
        ("RuntimeError: [enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: eth0",
         "wrong_interface"),
        ("bash: line 1: ray: command not found", "no_ray"),
        ("ModuleNotFoundError: No module named 'ray'", "no_ray"),
        ("ValueError: current platform cpu does not support ray.", "ray_refused"),
    ],
)  # fmt: skip
def test_a_line_of_one_rank_is_the_cause_although_the_head_only_lost_its_peer(line: str, cause: str) -> None:
    head, worker = ranks(said(GONE, at=30), said(line, GONE))
    found = verdict([ended(head), worker])
    assert (found[0].id, found[0].subject, found[0].line) == (cause, WORKER, 0)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (f"{NCCL}net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer 192.168.100.2<4444> with status=12 "
         "opcode=0 len=0 vendor err 129", "rdma_retry"),
        ("[rank0]:[E1122 12:00:01.000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
         "WorkNCCL(SeqNum=7, OpType=_ALLGATHER_BASE, Timeout(ms)=600000) ran for 600001 ms", "collective_timeout"),
        (GONE, "connection_lost"),
    ],
)  # fmt: skip
def test_what_only_consequences_leave_is_a_guess(line: str, cause: str) -> None:
    found = verdict(ranks(said(INIT.format(0, "192.168.100.1"), line), said(INIT.format(1, "192.168.100.1"))))
    assert (found[0].id, found[0].guess) == (cause, True)


def test_a_refused_ray_is_named_by_one_log_alone_too_with_the_setting_that_helps() -> None:
    explainer = LogExplainer()
    explainer.feed_many(lines_of(LOGS / "ray-refused.head.log"))
    cause = explainer.explanation(LogContext(ended=True, exit_code=1)).cause
    assert cause and (cause.id, cause.change) == ("bad_argument", (("distributed_executor_backend", "mp"),))


def test_an_old_nccl_is_named_where_a_collective_timed_out() -> None:
    stuck = "[E1122 12:00:01.000 ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout"
    for version, named in (("2.28.9", True), ("2.29.3", False)):
        found = verdict(ranks(said(f"NCCL version {version}+cuda13.0", stuck), []))
        assert found[0].id == "collective_timeout" and (version in found[0].summary) is named


def test_the_fix_for_rdma_retries_on_a_ring_of_four_is_the_algorithm() -> None:
    ring = Cluster("ring", tuple(replace(NODES[0], host=f"nv@s{at}") for at in range(4)), Topology.RING)
    four = [RankView(at, node, Ok(container())) for at, node in enumerate(ring.nodes)]
    retry = said(f"{NCCL}NCCL WARN NET/IB : Got completion with error 12, opcode 0")
    assert "NCCL_ALGO" in verdict([replace(four[0], lines=retry), *four[1:]], ring)[0].remedy


@pytest.mark.parametrize(
    ("line", "notes"),
    [
        ("NET/IB : Using [0]rocep1s0f0:1/RoCE [1]roceP2p1s0f0:1/RoCE [RO]; OOB enp1s0f0np0:192.168.100.1<0>", []),
        ("NET/IB : Using [0]rocep1s0f0:1/RoCE [RO]; OOB enp1s0f0np0:192.168.100.1<0>", ["one_hca"]),
        ("NET/Socket : Using [0]enP7s7:10.77.0.11<0>", ["no_rdma"]),
        ("Bootstrap : Using wlP9s9:10.88.0.11<0>", ["bootstrap_wifi"]),
        ("Bootstrap : Using enp1s0f0np0:192.168.100.1<0>", []),
    ],
)
def test_a_poor_choice_of_nccl_is_a_warning(line: str, notes: list[str]) -> None:
    found = verdict(ranks(said(f"{NCCL}NCCL INFO {line}"), []))
    assert [each.id for each in found] == notes
    assert all(each.severity is Severity.WARNING and each.subject == HEAD for each in found)


def test_ray_that_waits_for_an_address_asks_for_the_node_address() -> None:
    line = "(EngineCore pid=3) INFO 11-22 12:00:00 [ray_utils.py:212] Waiting for creating a placement group of specs "
    assert verdict(ranks(said(line + "for 10 seconds. specs=[{'node:10.0.0.1': 0.001}]"), []))[0].id == "ray_node_ip"


def test_a_node_that_cannot_be_asked_is_named_with_the_reason() -> None:
    head, worker = ranks(said(GONE), [])
    found = verdict([head, replace(worker, container=Missing("No route to host\x1b[31m"))])
    assert (found[0].id, found[0].subject, found[0].evidence) == ("node_unreachable", WORKER, ("No route to host",))


def test_a_worker_with_another_master_address_is_guilty() -> None:
    head, worker = ranks(said(INIT.format(0, "192.168.100.1"), CORE + STORE, at=600), said(INIT.format(1, "127.0.0.1")))
    found = verdict([ended(head), worker])
    assert (found[0].id, found[0].subject) == ("wrong_master", WORKER)


def test_a_worker_that_came_after_the_head_stopped_waiting_is_late() -> None:
    head, worker = ranks(said(INIT.format(0, "192.168.100.1"), CORE + STORE), said("Starting", at=100))
    found = verdict([ended(head), worker])
    assert (found[0].id, found[0].subject) == ("rank_late", WORKER)


def test_a_worker_that_ended_in_silence_is_lost() -> None:
    head, worker = ranks(said(GONE), said("fine"))
    found = verdict([head, ended(worker, 0)])
    assert (found[0].id, found[0].subject) == ("rank_lost", WORKER)


def test_with_three_ranks_the_silent_peer_that_a_line_names_is_guilty() -> None:
    line = "RuntimeError: [pair.cc:537] Read error [192.168.100.3]:16052: Connection reset by peer."
    trio = Cluster("trio", NODES, Topology.SWITCH)
    found = verdict(ranks(said(line), said(line), []), trio)
    assert (found[0].id, found[0].subject) == ("connection_lost", "spark-3")


@pytest.mark.parametrize(
    "line",
    [
        "[E1122 12:00:01.000 socket.cpp:1023] [c10d] The client socket has timed out after 20000ms",
        "(Worker pid=7) WARNING 11-22 12:00:00 [connectionpool.py:868] Retrying after: Connection reset by peer",
    ],
)
def test_a_retry_that_succeeds_is_no_failure(line: str) -> None:
    head, worker = scenario("tp2-ok")
    assert verdict([head, replace(worker, lines=[("2026-11-22T17:21:40Z", line), *worker.lines])]) == ()


# --- hostile logs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [("", "")],
        [("no time", "\x1b]0;x\x07\x00\u202e{0} {host} %s"), ("2026-99-99T00:00:00Z", "Error: {refresh}")],
        [("", "x" * 1_000_000 + "rror"), ("", "\ud800 ERROR\r\r\n")],
        [("", '{"message": "ERROR DistStoreError", "level": [1]}'), ("", "[" * 5_000 + "ERROR")],
    ],
)
def test_any_lines_give_a_verdict(lines: list[tuple[str, str]]) -> None:
    for logs in ((lines, lines), (lines, []), ([], lines)):
        verdict(ranks(*logs))
        verdict([ended(rank, 139) for rank in ranks(*logs)])


def test_evidence_has_no_control_codes_and_no_secrets() -> None:
    line = "RuntimeError: Unable to find address for: eth0 \x1b[31mapi_key=sk-abcdefghijklmnopqrst\u202e"
    shown = " ".join(verdict(ranks([], said(line)))[0].evidence)
    assert shown.isprintable() and "sk-abc" not in shown


def test_what_people_write_to_the_model_is_no_evidence() -> None:
    line = f"(APIServer pid=1) INFO 11-22 12:00:00 [logger.py:41] Received request: prompt: '{STORE} {GONE}'"
    assert verdict(ranks(said(line), said(line))) == ()


def test_time_grows_with_the_lines_and_not_faster() -> None:
    log = scenario("worker-killed")[0].lines

    def seconds(count: int) -> float:
        rank = ranks((list(log) * (count // len(log) + 1))[:count])[0]
        begun = time.process_time()
        read_rank(rank, DUO)
        return time.process_time() - begun

    seconds(1_000)
    assert seconds(40_000) < 40 * seconds(4_000)
