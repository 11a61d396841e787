"""cluster: sets of machines that serve one model together."""

from __future__ import annotations

from collections.abc import Sequence

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import ExitCode, RefusedError, SparkError, UsageError
from spark_tui.base.finding import Reading, Severity, counts, worst
from spark_tui.base.jobs import Step
from spark_tui.base.launches import UNFINISHED, ClusterRecord, Stage
from spark_tui.base.ports import LogLine
from spark_tui.base.protocol import RankState
from spark_tui.base.remote import (
    Cluster,
    ClusterNode,
    Topology,
    cluster_text,
    find_machines,
    host_text,
    read_cluster,
    read_clusters,
    read_node,
)
from spark_tui.base.secret import mask_secrets
from spark_tui.base.settings import SettingSource, folders_for
from spark_tui.base.text import clean, last_overwrite
from spark_tui.catalog.presets.use.rights import find_preset
from spark_tui.cli.command import complete, group
from spark_tui.cli.output import Interrupted, error_object
from spark_tui.cli.session import Session
from spark_tui.machine.nodes import Nodes
from spark_tui.machine.settings import Config, SettingEntry
from spark_tui.manage.cluster.model.copying import CopyPhase, CopyProgress, InventoryRequest
from spark_tui.manage.cluster.model.doctor import examine, netplan
from spark_tui.manage.cluster.model.facts import ClusterReadings
from spark_tui.manage.cluster.show import cluster as show
from spark_tui.manage.cluster.show import doctor
from spark_tui.manage.cluster.use.copying import ClusterCopier, Copied
from spark_tui.manage.cluster.use.doctor import ClusterDoctor
from spark_tui.manage.cluster.use.install import Installed, Installer
from spark_tui.manage.cluster.use.launch import ClusterLauncher
from spark_tui.observe.engines.show.engines import step_line

_ADD_EXAMPLES = """\
  spark-tui cluster add duo --node nv@spark-1 --node nv@spark-2
  spark-tui cluster add duo --node spark-1,fabric=192.168.100.1,if=enp1s0f0np0 \\
                            --node spark-2,fabric=192.168.100.2,if=enp1s0f0np0
"""
_DOCTOR_EXAMPLES = """\
  spark-tui cluster doctor duo
  spark-tui cluster doctor duo --preset minimax-m2.7-awq --bandwidth
"""

cluster_argument = click.argument("name", shell_complete=complete("clusters"))


def _clusters(session: Session) -> tuple[Cluster, ...]:
    return session.opened().settings.clusters


def _list(session: Session) -> None:
    clusters = _clusters(session)
    session.out.json([show.cluster_object(each) for each in clusters])
    if clusters:
        session.out.table(show.clusters_table(clusters))
    else:
        session.err.say("No clusters configured. Add one: spark-tui cluster add NAME --node ADDRESS --node ADDRESS")


@group("cluster")
def cluster(session: Session) -> None:
    """Manage sets of machines that serve one model together. Without a command: list them."""
    _list(session)


@cluster.sub("list", "  spark-tui cluster list --json | jq '.[].nodes'")
def cluster_list(session: Session) -> None:
    """List clusters: wiring, nodes."""
    _list(session)


@cluster.sub("show", "  spark-tui cluster show duo")
@cluster_argument
def cluster_show(session: Session, name: str) -> None:
    """Show the nodes of a cluster: addresses, interfaces, RDMA devices, versions."""
    found = _named(_clusters(session), name)

    versions = session.run(lambda context: context[Nodes].versions(found.nodes))
    _show(session, found, versions)
    if note := show.versions_note(found, versions):
        session.err.note(note)


def _named(clusters: tuple[Cluster, ...], name: str) -> Cluster:
    found = next((each for each in clusters if each.name == name), None)
    if found is None:
        raise UsageError(f"Unknown cluster {name[:60]!r}.", "See: spark-tui cluster list")
    return found


@cluster.sub("add", _ADD_EXAMPLES)
@click.argument("name")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    required=True,
    metavar="ADDRESS[,fabric=IP[,IP]][,if=NAME[,NAME]]",
    help="A host or ssh address; the first node is the head. Fabric addresses and interfaces are read from the node "
    "unless given.",
)
@click.option(
    "--topology",
    type=click.Choice([each.value for each in Topology]),
    help="The wiring.  [direct with two nodes, else switch]",
)
def cluster_add(session: Session, name: str, nodes: tuple[str, ...], topology: str | None) -> None:
    """Add or replace a cluster in the settings.

    Nodes without addresses are asked for them through your own ssh; nothing is changed there.
    """
    _refuse_in_demo(session)
    try:
        given = tuple(read_node(text) for text in nodes)
        # checked as a whole before a node is asked
        wiring = read_cluster(name, ";".join((*nodes, *((topology,) if topology else ())))).topology
    except ValueError as error:
        raise UsageError(f"A cluster {error}.", "See: spark-tui cluster add --help") from None

    async def look(context: Context) -> Cluster:
        return Cluster(name, await context[Nodes].complete(given), wiring)

    found = session.run(look)
    entry = _change(session, f"clusters.{name}", cluster_text(found))
    effective = read_clusters(f"{name}={entry.value}")[0]
    session.err.say(f"{name} saved (from {entry.origin.where or 'the settings'}).")
    _show(session, effective)
    for node in effective.nodes:
        if not node.hca:
            session.err.note(f"{node.name}: RDMA device unknown. Add hca=NAME (see: ssh {node.host} ibdev2netdev).")
        elif len(node.hca) == 1:
            session.err.note(f"{node.name}: one RDMA device, half the bandwidth of the cable. Configure its twin too.")


@cluster.sub("remove", "  spark-tui cluster remove duo")
@cluster_argument
def cluster_remove(session: Session, name: str) -> None:
    """Remove a cluster from the settings."""
    _refuse_in_demo(session)
    _named(_clusters(session), name)
    _change(session, f"clusters.{name}", None)
    session.done({"id": name, "removed": True}, f"{name} removed.")


@cluster.sub("doctor", _DOCTOR_EXAMPLES)
@cluster_argument
@click.option("--preset", shell_complete=complete("presets"), help="Also compare the image and model of a preset.")
@click.option("--image", default="", metavar="REFERENCE", help="Also compare this image.")
@click.option("--model", default="", metavar="NAME", help="Also compare the files of this model.")
@click.option("--bandwidth", is_flag=True, help="Also measure RDMA and TCP; loads the fabric for some seconds.")
def cluster_doctor(session: Session, name: str, preset: str | None, image: str, model: str, bandwidth: bool) -> int:
    """Check all nodes and the paths between them; nothing is changed.

    Exit code 1: a check fails; 3: a node does not answer.
    """

    def report(step: Step) -> None:
        session.err.standing(step_line(step, step.seconds))

    async def work(context: Context) -> ClusterReadings:
        named = _named(context.settings.clusters, name)
        given = find_preset(context, preset) if preset else None
        try:
            return await context[ClusterDoctor].readings(
                named, image, model, preset=given, bandwidth=bandwidth, report=report
            )
        finally:
            session.err.settle()

    seen = session.run(work)
    findings = examine(seen)
    proposals = netplan(seen, findings)
    session.out.answer(doctor.report_object(name, findings, proposals), doctor.matrix(findings))
    if page := doctor.attention(findings, proposals):
        session.out.line("")
        session.out.page(page)
    session.out.lines(("", counts(findings)))
    silent = any(each.problem and each.problem.exit_code is ExitCode.UNREACHABLE for each in seen.nodes)
    failed = ExitCode.FAILED if worst(findings) is Severity.ERROR else ExitCode.DONE
    return ExitCode.UNREACHABLE if silent else failed


@cluster.sub("status", "  spark-tui cluster status --json")
def cluster_status(session: Session) -> None:
    """Show what runs on several nodes, rank by rank.

    What a killed spark-tui left half done is finished or undone first; what serves is watched again.
    """

    async def work(context: Context) -> list[tuple[ClusterRecord, tuple[RankState | SparkError | None, ...]]]:
        found = []
        for record in context[ClusterLauncher].records():
            now = await _settled(context, record)
            if now is not None:
                found.append((now, await context[ClusterLauncher].seen(now)))
        return found

    found = session.run(work)
    session.out.answer(
        [
            {**show.record_object(record), "states": [show.state_words(state).text for state in states]}
            for record, states in found
        ],
        show.launches_table(found),
    )
    for record, _ in found:
        if record.problem:
            session.err.note(show.problem_text(record))
        if record.uncleared:
            session.err.note(f"{', '.join(record.uncleared)}: not proven clean. Again: spark-tui down {record.name}")


async def _settled(context: Context, record: ClusterRecord) -> ClusterRecord | None:
    """The launch after what was interrupted is finished or undone; as it is while its owner works on it, or where
    nothing may be changed. What serves has a watcher again."""
    if context.settings.read_only:
        return record
    try:
        found = await context[ClusterLauncher].recover(record) if record.stage in UNFINISHED else record
        if found is not None and found.stage is Stage.READY:
            context[ClusterLauncher].watched(found)
    except RefusedError:
        return record
    return found


@cluster.sub("logs", "  spark-tui cluster logs minimax-m2.7-awq -f")
@click.argument("launch")
@click.option("-f", "--follow", is_flag=True, help="Follow the logs until all ranks end.")
@click.option("-t", "--timestamps", "stamps", is_flag=True, help="Docker's time before each line.")
def cluster_logs(session: Session, launch: str, follow: bool, stamps: bool) -> int:
    """Print the logs of all ranks of a launch by time, each line with its node."""

    async def work(context: Context) -> tuple[SparkError, ...]:
        record = context[ClusterLauncher].read(launch)
        if record is None:
            raise UsageError(f"Unknown launch {launch[:60]!r}.", "See: spark-tui cluster status")
        width = max(len(rank.node.name) for rank in record.ranks)

        def line(node: str, found: LogLine) -> None:
            text = mask_secrets(clean(last_overwrite(found.text)))
            session.out.json_line({"node": node, "stamp": found.stamp, "text": text})
            session.out.line(f"{node:<{width}} | {f'{found.stamp} ' * stamps}{text}")

        return await context[ClusterLauncher].logs(record, line, follow=follow)

    problems = session.run(work)
    session.err.problem(*problems)
    return ExitCode.UNREACHABLE if problems else ExitCode.DONE


@cluster.sub("watch", "  spark-tui cluster watch minimax-m2.7-awq")
@click.argument("launch")
def cluster_watch(session: Session, launch: str) -> None:
    """Look after a launch: a lost rank or a stall ends all ranks and starts them again.

    `up --nodes` starts this by itself. At most three restarts an hour; ends when the launch is stopped.
    """
    session.run(lambda context: context[ClusterLauncher].watch(launch, session.err.say), changes=True)


def _change(session: Session, key: str, text: str | None) -> SettingEntry:
    settings = Config(folders_for(session.options.config, session.environment), session.environment)
    entry = settings.change(key, text)
    if entry.origin.source is SettingSource.ENVIRONMENT:
        session.err.note(f"{entry.variable} overrides the file: unset it to use {settings.path}.")
    return entry


def _refuse_in_demo(session: Session) -> None:
    if session.options.demo:
        raise RefusedError("A demo changes nothing: the settings are your own.", "Leave out --demo.")


def _show(session: Session, found: Cluster, versions: Sequence[Reading[str]] = ()) -> None:
    session.out.answer(show.cluster_object(found, versions), show.nodes_table(found, versions))


# --- copy -------------------------------------------------------------------------------------------------

_COPY_EXAMPLES = """\
  spark-tui cluster copy image vllm/vllm-openai:v0.32.0 duo
  spark-tui cluster copy model org/Qwen3.5-122B duo --from spark-2
"""


class _Report:
    """Progress for the person: a line that is written over on a terminal, in a pipe one every tenth; as data all."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last = ("", CopyPhase.SENDING, -1)

    def __call__(self, node: str, progress: CopyProgress) -> None:
        err, total = self._session.err, progress.total
        self._session.out.json_line(show.copy_progress_object(node, progress))
        text = show.copy_progress_text(node, progress)
        now = (node, progress.phase, int(10 * progress.done / total) if total else 0)
        if err.interactive:
            err.standing(text)
        elif now[:2] != self._last[:2] or now > self._last:
            err.say(text)
        self._last = now


@cluster.sub("copy", _COPY_EXAMPLES)
@click.argument("kind", type=click.Choice(("image", "model")))
@click.argument("name")
@click.argument("nodes", metavar="CLUSTER", shell_complete=complete("clusters"))
@click.option("--from", "source", default="", metavar="NODE", help="The node that has it.  [the head]")
def cluster_copy(session: Session, kind: str, name: str, nodes: str, source: str) -> None:
    """Copy an image or a model to the nodes that need it, over the fabric.

    CLUSTER is a cluster, or nodes of one with commas. The nodes need ssh to each other's fabric address. Nodes that
    have it are left alone; an interrupted copy of a model continues when it is repeated.
    """

    async def work(context: Context) -> tuple[Copied, ...]:
        request = InventoryRequest(image=name) if kind == "image" else InventoryRequest(model=name)
        return await context[ClusterCopier].copy(request, nodes.split(","), source, _Report(session))

    def interrupted() -> Interrupted:
        kept = "What has arrived is kept." if kind == "model" else "Docker keeps nothing of it."
        return Interrupted(f"Copy stopped. {kept}", f"Repeat it: {session.command}")

    try:
        done = session.run(work, changes=True, on_interrupt=interrupted)
    finally:
        session.err.settle()
    session.out.json_line({"type": "result", "nodes": [show.copied_object(each) for each in done]})
    session.out.lines(show.copied_text(each) for each in done)


# --- install ----------------------------------------------------------------------------------------------

_INSTALL_EXAMPLES = """\
  spark-tui cluster install                  every node of every cluster
  spark-tui cluster install duo              the nodes of one
  spark-tui cluster install nv@spark-3       any machine, before it is in a cluster
"""


@cluster.sub("install", _INSTALL_EXAMPLES)
@click.argument("names", nargs=-1, metavar="[CLUSTER|NODE]...", shell_complete=complete("clusters"))
def cluster_install(session: Session, names: tuple[str, ...]) -> int:
    """Install this version of spark-tui on nodes, through your own ssh.

    Copied from this machine: a node needs no network, only Python 3.11. Nothing is written outside
    ~/.local/share/spark-tui and ~/.local/bin; an earlier version runs until the new one has started.
    """
    _refuse_in_demo(session)

    def step(node: ClusterNode, text: str) -> None:
        session.err.say(f"{node.name}: {text}", "dim")

    async def work(context: Context) -> list[tuple[ClusterNode, Installed | SparkError]]:
        nodes = find_machines(context.settings.clusters, context.settings.hosts, names)
        return await context[Installer].install(nodes, step)

    ended, objects = session.run(work, changes=True), []
    for node, each in ended:
        found = {"id": node.name, "ssh": node.host, "installed": isinstance(each, Installed)}
        if isinstance(each, SparkError):
            session.err.error(each)
            objects.append(found | {"error": error_object(each)})
            continue
        if each.host is not None:  # ssh does not find the new program by the usual word
            entry = _change(session, f"hosts.{each.host.name}", host_text(each.host))
            session.err.note(f"{entry.key} is now {entry.value}: ssh starts spark-tui by that path.")
        session.err.say(show.installed_text(each))
        objects.append(found | show.installed_object(each))
    session.out.json(objects)
    return max((each.exit_code for _, each in ended if isinstance(each, SparkError)), default=ExitCode.DONE)
