"""Clusters, their nodes, and copies between them, for both front ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from spark_tui import __version__
from spark_tui.base.engine.container import LOOPBACK, ContainerFacts
from spark_tui.base.engine.docker_run import render_argv, render_text
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Event, Reading, reason_of, value_of
from spark_tui.base.jobs import JobView, StepState
from spark_tui.base.launches import RELAUNCHES_AN_HOUR, ClusterRecord, RankRecord, Stage
from spark_tui.base.page import (
    TONES,
    Cell,
    Column,
    Object,
    Page,
    Row,
    Section,
    Table,
    Tone,
    cells,
    finding_object,
    known,
    labelled,
    maybe,
    read,
)
from spark_tui.base.protocol import NodeLook, NodeVersion, RankState, rank_of
from spark_tui.base.quantities import gib, human_bytes, human_duration
from spark_tui.base.remote import Cluster, ClusterNode, memory_words
from spark_tui.base.text import clean_line
from spark_tui.catalog.fit.show.launch import deviations_object, deviations_page, fit_object, fit_verdict
from spark_tui.catalog.models.show.downloads import percent
from spark_tui.manage.cluster.model.copying import CopyPhase, CopyProgress
from spark_tui.manage.cluster.model.plan import SPREADS, ClusterPlan
from spark_tui.manage.cluster.model.variables import Backend
from spark_tui.manage.cluster.use.cluster import ClusterVerdict
from spark_tui.manage.cluster.use.copying import Copied
from spark_tui.manage.cluster.use.install import Installed, NodeProgram
from spark_tui.manage.cluster.use.launch import NodeCleared
from spark_tui.observe.metrics.show.events import event_time
from spark_tui.observe.metrics.show.metrics import Looks, vitals_section


def clusters_table(clusters: Iterable[Cluster]) -> Table:
    columns = (Column("CLUSTER"), Column("WIRING"), Column("NODES", least=12))
    rows = (cells(each.name, each.topology.value, ", ".join(node.name for node in each.nodes)) for each in clusters)
    return Table(columns, tuple(rows), empty="No clusters configured.")


def nodes_table(cluster: Cluster, versions: Sequence[Reading[str]] = ()) -> Table:
    """One node a line, the head first. With the version of each where they were asked for."""
    columns = (
        Column("NODE"),
        Column("ROLE"),
        Column("SSH", keep=6, least=12),
        Column("FABRIC", least=15),
        Column("INTERFACES", keep=8, least=12),
        Column("RDMA", keep=7, least=10),
        *([Column("VERSION", least=12)] if versions else ()),
    )
    rows = (
        cells(
            node.name,
            "worker" if rank else "head",
            node.host,
            *(", ".join(values) or "unknown" for values in (node.fabric, node.interfaces, node.hca)),
            *(value_of(each) or f"n/a: {reason_of(each)}" for each in versions[rank : rank + 1]),
        )
        for rank, node in enumerate(cluster.nodes)
    )
    return Table(columns, tuple(rows))


def versions_note(cluster: Cluster, versions: Sequence[Reading[str]]) -> str:
    """What to do about versions that differ and still understand one another; empty where none does."""
    found = {
        node.name: version for node, each in zip(cluster.nodes, versions, strict=True) if (version := value_of(each))
    }
    if set(found.values()) <= {__version__}:
        return ""
    listed = ", ".join(f"{name} {version}" for name, version in found.items())
    return f"Versions differ: {listed}, here {__version__}. Update: spark-tui cluster install {cluster.name}"


def cluster_object(cluster: Cluster, versions: Sequence[Reading[str]] = ()) -> Object:
    asked = [read("version", each, str) for each in versions] or [{}] * len(cluster.nodes)
    nodes = [_node_object(node, rank) | asked[rank] for rank, node in enumerate(cluster.nodes)]
    return {"id": cluster.name, "topology": cluster.topology.value, "nodes": nodes}


def _node_object(node: ClusterNode, rank: int) -> Object:
    return {
        "id": node.name,
        "rank": rank,
        "ssh": node.host,
        "fabric": list(node.fabric),
        "interfaces": list(node.interfaces),
        "rdma_devices": list(node.hca),
    }


def installed_text(installed: Installed) -> str:
    """`spark-2: spark-tui 0.2.0 installed, was 0.1.0.`"""
    node, program = installed.node.name, installed.program
    if program is None:
        return f"{node}: this machine, nothing to install."
    was = f", was {program.earlier}" if program.earlier not in ("", __version__) else ""
    return f"{node}: spark-tui {__version__} {'installed' if program.copied else 'is up to date'}{was}."


def installed_object(installed: Installed) -> Object:
    """`copied`: files were. `path` is that of the program on the node."""
    program = installed.program or NodeProgram()
    path, earlier = maybe("path", program.path, "this machine"), maybe("earlier_version", program.earlier, "none")
    return {"version": __version__, "copied": program.copied, **path, **earlier}


# --- a launch over several nodes --------------------------------------------------------------------------


def commands(plan: ClusterPlan) -> str:
    """The docker run of each node in the order of starting, each under a comment that names its node."""
    count = len(plan.ranks)
    texts = (
        f"# {each.node.name}: {each.role}, rank {each.rank.number} of {count} (ssh {each.node.host})\n"
        f"{render_text(each.plan.spec)}"
        for each in plan.start_order
    )
    return "\n\n".join(texts)


def verdict_page(verdict: ClusterVerdict) -> Page:
    """How it is spread, what joins it, the memory of each node, the fit on the smallest, what is done otherwise than
    the recipe says, and every way of spreading with its gain and cost, and who measured it."""
    plan = verdict.plan
    return (
        layout_section(verdict),
        *fit_verdict(verdict.fit),
        *deviations_page(plan.head.plan),
        spreads_section(plan, "--parallel"),
    )


def layout_section(verdict: ClusterVerdict) -> Section:
    """How it is spread, what joins it, and the memory of each node."""
    plan = verdict.plan
    joined = "" if plan.backend is Backend.NONE else f", joined by {plan.backend.value}"
    memory = tuple((each.hostname, f"{memory_words(each)} available") for each in verdict.nodes)
    least = sorted((value_of(each.available) or 0, each.hostname) for each in verdict.nodes)[0][1]
    known = all(value_of(each.available) is not None for each in verdict.nodes)
    memory += (("fit for", f"{least}, the node with the least memory" if known else ""),)
    rows = (("layout", f"{plan.layout.text or 'one node'}{joined}"), ("launch", plan.launch_id), *memory)
    return Section(rows=labelled(rows))


def spreads_section(plan: ClusterPlan, setting: str) -> Section:
    """Every way of spreading with its gain and cost, and who measured it. `setting` chooses one."""
    used = plan.layout.spreads
    spreads = tuple(
        (f"{kind.value}{' (chosen)' if kind in used else ''}", f"{each.gain}. Cost: {each.cost}. [{each.source}]")
        for kind, each in SPREADS.items()
    )
    return Section(f"Ways to share the work ({setting})", labelled(spreads))


def verdict_object(verdict: ClusterVerdict) -> Object:
    """`nodes` are in the order of starting."""
    plan = verdict.plan
    layout = {kind.value: ways for kind, ways in plan.layout.ways}
    return {
        "id": plan.head.plan.spec.name,
        "preset": plan.head.plan.preset.name,
        "cluster": plan.cluster.name,
        "launch_id": plan.launch_id,
        "backend": plan.backend.value,
        "layout": layout,
        "nodes": [
            {
                **_node_object(each.node, each.rank.number),
                "role": each.role,
                "container": each.plan.spec.name,
                "docker_run": render_text(each.plan.spec),
                "argv": list(render_argv(each.plan.spec)),
                **read("available_bytes", verdict.nodes[each.rank.number].available, int),
                **read("total_bytes", verdict.nodes[each.rank.number].total, int),
            }
            for each in plan.start_order
        ],
        "spreads": [
            {
                "id": kind.value,
                "chosen": kind in plan.layout.spreads,
                "gain": facts.gain,
                "cost": facts.cost,
                "source": facts.source,
            }
            for kind, facts in SPREADS.items()
        ],
        "deviations": deviations_object(plan.head.plan),
        "fit": fit_object(plan.head.plan.preset.name, verdict.fit),
        "findings": [finding_object(each) for each in verdict.findings],
        "notes": list(plan.notes),
    }


# --- what runs --------------------------------------------------------------------------------------------


def record_object(record: ClusterRecord) -> Object:
    """A launch over several nodes, as it is written down."""
    return {
        "id": record.name,
        "launch_id": record.launch,
        "stage": record.stage.value,
        "preset": record.preset,
        "cluster": record.cluster,
        "problem": record.problem,
        "restarts": len(record.relaunches),
        "ranks": [
            {"rank": number, "node": each.node.name, "container": each.name, "ports": list(each.start.ports)}
            for number, each in enumerate(record.ranks)
        ],
        "router_port": record.router.port if record.router is not None else None,
        "not_clean": list(record.uncleared),
    }


def state_words(state: RankState | SparkError | None) -> Cell:
    """`running`, `exited (137), out of memory`, `gone`, or why it is unknown."""
    if state is None:
        return Cell("gone", Tone.BAD)
    if isinstance(state, SparkError):
        return Cell(f"n/a: {state.summary}", Tone.WARNING)
    if state.running:
        return Cell(state.status.value, Tone.GOOD)
    memory = ", out of memory" if state.oom_killed else ""
    return Cell(f"{state.status.value} ({state.exit_code}){memory}", Tone.BAD)


def launches_table(found: Iterable[tuple[ClusterRecord, Sequence[RankState | SparkError | None]]]) -> Table:
    """One rank a line."""
    columns = (
        Column("LAUNCH"),
        Column("STAGE"),
        Column("NODE"),
        Column("CONTAINER", least=12),
        Column("STATE", least=12),
    )
    rows = tuple(
        (*cells(record.name, record.stage.value, rank.node.name, rank.name), state_words(state))
        for record, states in found
        for rank, state in zip(record.ranks, states, strict=True)
    )
    return Table(columns, rows, empty="Nothing runs on several nodes.")


def cleared_object(cleared: NodeCleared) -> Object:
    found, problem = cleared.cleared, cleared.problem
    return {
        "id": cleared.node,
        "clean": cleared.clean,
        "removed": list(found.removed) if found else [],
        "left": list(found.left) if found else [],
        "problem": problem.summary if problem else "",
        **maybe("available_bytes", found.available if found else None, "not reported"),
    }


# --- on screen --------------------------------------------------------------------------------------------

_ASKING: Final = Cell("asking ...", Tone.QUIET)
_STAGES: Final = {Stage.READY: Tone.GOOD, Stage.BROKEN: Tone.BAD}
ADD_COMMAND: Final = "spark-tui cluster add NAME --node ADDRESS --node ADDRESS"


def node_page(clusters: Iterable[Cluster], looks: Looks) -> Page:
    """The nodes of each cluster with their memory now, and what is wrong with them. Without one: how to add it."""
    columns = (
        Column("node"),
        Column("role"),
        Column("available", right=True, least=12),
        Column("version", least=14),
        Column("fabric", keep=7, least=13),
        Column("ssh", keep=6, least=10),
    )
    sections = []
    for cluster in clusters:
        rows = tuple(
            cells(
                Cell(node.name, Tone.STRONG),
                "worker" if rank else "head",
                *_node_cells(looks.get(node.host)),
                ", ".join(node.fabric) or "unknown",
                node.host,
            )
            for rank, node in enumerate(cluster.nodes)
        )
        title = f"{cluster.name}  {len(cluster.nodes)} nodes, {cluster.topology.value}"
        wrong = [row for node in cluster.nodes for row in _node_problem(node, looks.get(node.host))]
        sections += [Section(title, table=Table(columns, rows)), *((Section(rows=tuple(wrong)),) if wrong else ())]
    how = (Section(rows=(Row("No cluster configured. Add one in a shell:"),)), Section(command=ADD_COMMAND))
    return tuple(sections) or how


def _node_cells(look: NodeLook | SparkError | None) -> tuple[Cell, Cell]:
    """Memory and version."""
    if look is None:
        return _ASKING, Cell("")
    if isinstance(look, SparkError):
        why = "other version" if isinstance(look, NodeVersion) else "no answer"
        return Cell("n/a", Tone.QUIET), Cell(f"n/a: {why}", Tone.BAD)
    total = f" of {gib(look.total)}" if look.total is not None else ""
    memory = Cell(f"n/a: {look.memory_problem}", Tone.WARNING)
    if look.available is not None:
        memory = Cell(f"{gib(look.available)}{total} GiB")
    same = look.version == __version__
    version = clean_line(look.version)
    return memory, Cell(version if same else f"{version} (here {__version__})", Tone.PLAIN if same else Tone.WARNING)


def _node_problem(node: ClusterNode, look: NodeLook | SparkError | None) -> tuple[Row, ...]:
    """What is wrong with a node, and what to do."""
    if isinstance(look, SparkError):
        return (Row(look.summary, "problem", Tone.BAD), Row(look.remedy, "fix"))
    docker = look.docker_problem if look is not None else ""
    return (Row(f"{node.name}: {clean_line(docker)}", "problem", Tone.BAD),) if docker else ()


def rank_cell(record: ClusterRecord, rank: RankRecord, looks: Looks) -> Cell:
    """The state of one rank by its node's last answer; `n/a: reason` where that is unknown."""
    look = looks.get(rank.node.host)
    if look is None:
        return _ASKING
    if isinstance(look, SparkError):
        return state_words(look)
    if look.docker_problem:
        return Cell(f"n/a: {clean_line(look.docker_problem)}", Tone.WARNING)
    state = next((each for each in look.ranks if each.name == rank.name), None)
    if state is None and record.stage is not Stage.READY:
        return Cell("not started" if record.stage is Stage.STARTING else "removed", Tone.QUIET)
    return state_words(state)


def ranks_table(records: Iterable[ClusterRecord], looks: Looks) -> Table:
    """One rank a line, launch and stage on the first of each launch. The ids are `NAME RANK`."""
    columns = (Column("launch", least=10), Column("stage"), Column("node"), Column("role"), Column("state", least=12))
    rows, ids = [], []
    for record in records:
        for number, rank in enumerate(record.ranks):
            first = (record.name, Cell(record.stage.value, _STAGES.get(record.stage, Tone.WARNING)))
            lead = first if number == 0 else ("", "")
            rows.append(cells(*lead, rank.node.name, rank_role(record, number), rank_cell(record, rank, looks)))
            ids.append(f"{record.name} {number}")
    return Table(columns, tuple(rows), tuple(ids), "Nothing runs on several nodes.")


def rank_role(record: ClusterRecord, number: int) -> str:
    return "replica" if record.alone else "worker" if number else "head"


def record_page(
    record: ClusterRecord, job: JobView | None, events: Iterable[Event], now: float, looks: Looks, *, stop_key: str
) -> Page:
    """A launch on several nodes: where it serves, what is done with it now, what went wrong and what was done; what its
    nodes do; then its events, the newest first."""
    urls = (f"{server_url(each)} on {each.node.name}" for each in record.servers)
    facts = labelled(
        (
            ("preset", record.preset),
            ("nodes", f"{len(record.ranks)} of {record.cluster}: {', '.join(record.nodes)}"),
            ("url", "  ".join(urls) if record.stage is Stage.READY else ""),
            ("router", router_url(record) if record.stage is Stage.READY else ""),
            ("launch", record.launch),
        )
    )
    rows = [*facts, *problem_rows(record, stop_key)]
    if job is not None and job.state is StepState.FAILED:
        rows += [Row(job.error, "failed", Tone.BAD), Row(job.remedy, "fix")]
    elif job is not None and job.state is StepState.RUNNING and (step := job.current) is not None:
        rows.append(Row(f"{step.label}: {step.detail}".rstrip(": "), "now", Tone.WARNING))
    own = [each for each in events if each.subject == record.name]
    told = tuple(
        Row(each.text.removeprefix(f"{record.name}: "), event_time(each.at, now), TONES[each.severity])
        for each in reversed(own)
    )
    vitals = (vitals_section(record, looks),) if record.stage is Stage.READY else ()
    return (Section(rows=tuple(rows)), *vitals, *((Section("Events", told),) if told else ()))


def server_url(rank: RankRecord) -> str:
    """Of a rank with an API, as its own node reaches it."""
    return f"http://{LOOPBACK}:{rank.start.ports[0]}/v1"


def router_url(record: ClusterRecord) -> str:
    """Of replicas behind one address, as the head reaches it; empty without a router."""
    router = record.router
    return f"http://{LOOPBACK}:{router.port}/v1 on {record.head.node.name}" if router is not None else ""


def problem_text(record: ClusterRecord) -> str:
    """Why a launch was stopped last, and what was done; empty where it never was."""
    restarts = f"All ranks restarted ({len(record.relaunches)} of {RELAUNCHES_AN_HOUR} this hour)."
    done = "Stopped on all nodes." if record.stage in (Stage.BROKEN, Stage.STOPPING) else restarts
    return f"{clean_line(record.problem)} {done}" if record.problem else ""


def problem_rows(record: ClusterRecord, stop_key: str) -> list[Row]:
    """What went wrong with a launch and what was done, and the nodes that are not proven clean."""
    rows = []
    if record.problem:
        tone = Tone.BAD if record.stage is Stage.BROKEN else Tone.WARNING
        rows.append(Row(problem_text(record), "problem", tone))
    if record.uncleared:
        rows.append(
            Row(f"{', '.join(record.uncleared)}: not proven clean. {stop_key} stops it again.", "left", Tone.BAD)
        )
    return rows


def rank_rows(container: ContainerFacts, record: ClusterRecord | None, looks: Looks, stop_key: str) -> tuple[Row, ...]:
    """The other nodes of an engine whose container is a rank; empty for any other engine."""
    own = rank_of(container)
    if own is None:
        return ()
    if record is None:
        text = f"{own.count} nodes   rank {own.rank}, launched from another machine"
        return (Row(text, "cluster"),)
    rows = [Row(f"{len(record.ranks)} nodes   {record.cluster}   {record.stage.value}", "cluster")]
    for number, rank in enumerate(record.ranks):
        cell = rank_cell(record, rank, looks)
        rows.append(Row(f"{rank.node.name}   {rank_role(record, number)}   {cell.text}", f"rank {number}", cell.tone))
    return (*rows, *problem_rows(record, stop_key))


def replace_question(name: str, nodes: Sequence[str]) -> tuple[str, str]:
    """Title and text of the question before an engine of that name gives way to a launch on several nodes."""
    return f"Replace {name}?", f"Stops and removes what runs under that name on {', '.join(nodes)}, then launches."


def stop_question(record: ClusterRecord) -> tuple[str, str]:
    """Title and text of the question before a launch is stopped everywhere."""
    nodes = ", ".join(record.nodes)
    return f"Stop {record.name} on all nodes?", f"Stops and removes its container on {nodes}. Each node is checked."


def not_alone(name: str, record: ClusterRecord | None, verb: str, stop_key: str) -> str:
    """Why nothing is done with one rank alone, and what does it on all nodes."""
    if record is None:
        return f"{name} is one rank of a launch on several nodes. On the machine that launched it: spark-tui down NAME"
    again = f"launch {record.preset} again on {record.cluster}"
    return f"{name} runs on {len(record.ranks)} nodes. {verb}: stop it on all of them ({stop_key}), then {again}."


# --- copying ---------------------------------------------------------------------------------------------


_PHASES: Final = {
    CopyPhase.SENDING: "receiving",
    CopyPhase.LOADING: "unpacking in Docker",
    CopyPhase.CHECKING: "checking",
}


def copy_progress_text(node: str, progress: CopyProgress) -> str:
    """`spark-2  receiving  41% of 18.4 GiB  1.1 GiB/s  10s left`."""
    done, total = progress.done, progress.total
    size = f"{percent(done / total)} of {human_bytes(total)}" if total else human_bytes(done) if done else ""
    speed = f"{human_bytes(progress.speed)}/s" if progress.speed else ""
    left = f"{human_duration(progress.left)} left" if progress.left else ""
    return "  ".join(filter(None, (node, _PHASES[progress.phase], size, speed, left)))


def copy_progress_object(node: str, progress: CopyProgress) -> Object:
    speed, left = progress.speed, progress.left
    return {
        "type": "progress",
        "node": node,
        "phase": progress.phase.value,
        "done_bytes": progress.done,
        **known(
            "not known yet",
            total_bytes=progress.total,
            bytes_per_second=speed and round(speed),
            seconds_left=left and round(left),
        ),
    }


def copied_text(copied: Copied) -> str:
    """`spark-2: copied, 12 files, 18.4 GiB in 17s (1.1 GiB/s), 18.3 GiB verified`."""
    if copied.had:
        return f"{copied.node}: already has it"
    files = f", {copied.files} file{'s' * (copied.files != 1)}" if copied.files else ""
    speed = f" ({human_bytes(copied.bytes / copied.seconds)}/s)" if copied.seconds else ""
    hashed = f", {human_bytes(copied.hashed)} verified" if copied.hashed else ""
    took = human_duration(copied.seconds)
    return f"{copied.node}: copied{files}, {human_bytes(copied.bytes)} in {took}{speed}{hashed}"


def copied_object(copied: Copied) -> Object:
    return {
        "id": copied.node,
        "state": "had" if copied.had else "copied",
        "files": copied.files,
        "bytes": copied.bytes,
        "seconds": round(copied.seconds, 1),
        "hashed_bytes": copied.hashed,
    }
