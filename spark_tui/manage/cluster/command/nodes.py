"""up --nodes: from a preset to one model that several machines serve together."""

from __future__ import annotations

from collections.abc import Mapping

from spark_tui.base.context import Context
from spark_tui.base.engine.container import LOOPBACK
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Severity
from spark_tui.base.page import finding_fix
from spark_tui.base.remote import Spread
from spark_tui.catalog.fit.show.launch import deviations_object, deviations_page
from spark_tui.catalog.fit.use.fit import WillNotFit
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.catalog.presets.use.rights import find_preset, require_reviewed
from spark_tui.cli.output import Interrupted
from spark_tui.cli.session import Session
from spark_tui.manage.cluster.model.plan import record_of
from spark_tui.manage.cluster.show import cluster
from spark_tui.manage.cluster.use.cluster import ClusterPlanner
from spark_tui.manage.cluster.use.launch import ClusterLauncher
from spark_tui.run.launch.show.progress import LaunchProgress, shown
from spark_tui.run.launch.use.launch import DEFAULT_READY_TIMEOUT_SECONDS


def launch_on_nodes(
    session: Session,
    name: str,
    pairs: dict[str, str],
    nodes: str,
    spread: Spread | None,
    how: Mapping[str, bool],
    *,
    dry_run: bool,
) -> None:
    """`up --nodes`: a launch over several machines, planned alone with `dry_run`."""
    overrides = overrides_from_pairs(pairs)

    verdict = session.run(
        lambda context: context[ClusterPlanner].judge(find_preset(context, name), overrides, nodes.split(","), spread)
    )
    plan = verdict.plan
    if dry_run:
        session.out.answer(cluster.verdict_object(verdict), cluster.commands(plan))
    session.err.page(cluster.verdict_page(verdict) if dry_run else deviations_page(plan.head.plan))
    session.err.note(*plan.notes)
    for each in verdict.findings:
        if each.severity is not Severity.INFO:
            session.err.note(f"{each.summary} {finding_fix(each, flags=True)}")
    if dry_run:
        return
    if verdict.fit.blocked and not how["force"]:
        raise WillNotFit(plan.head.plan.spec.name, verdict.fit)

    async def work(context: Context) -> None:
        require_reviewed(context, plan.head.plan.preset)
        record = record_of(plan, patience=plan.head.plan.preset.ready_timeout_seconds or DEFAULT_READY_TIMEOUT_SECONDS)
        progress = LaunchProgress(session, context, record.name)
        ready = await shown(
            progress, context[ClusterLauncher].launch(record, progress.step, replace_running=how["replace_running"])
        )
        try:
            context[ClusterLauncher].watched(ready)
        except SparkError as error:
            session.err.note(str(error))
        differs = deviations_object(plan.head.plan)
        session.out.json_line({"type": "result", **cluster.record_object(ready), "deviations": differs})
        if router := cluster.router_url(ready):
            session.out.line(f"{router} (router)")
        session.out.lines(f"http://{LOOPBACK}:{each.start.ports[0]}  on {each.node.name}" for each in ready.servers)
        session.err.say(f"Talk to it: spark-tui --host {ready.head.node.host} chat {ready.name}")
        session.err.say(f"Stop it on all nodes: spark-tui down {ready.name}")

    session.run(
        work,
        changes=True,
        on_interrupt=lambda: Interrupted(
            f"{plan.head.plan.spec.name} was stopped on all nodes.", "See what is left: spark-tui cluster status"
        ),
    )
