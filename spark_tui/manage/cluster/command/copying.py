"""cluster copy: an image or a model from one node to the others."""

from __future__ import annotations

import click

from spark_tui.base.context import Context
from spark_tui.cli.command import command, complete
from spark_tui.cli.output import Interrupted
from spark_tui.cli.session import Session
from spark_tui.manage.cluster.model.copying import CopyPhase, CopyProgress, InventoryRequest
from spark_tui.manage.cluster.show import copying as show
from spark_tui.manage.cluster.use.copying import ClusterCopier, Copied

EXAMPLES = """\
  spark-tui cluster copy image vllm/vllm-openai:v0.32.0 duo
  spark-tui cluster copy model org/Qwen3.5-122B duo --from spark-2
"""
IMAGE, MODEL = "image", "model"


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


@command("copy", EXAMPLES)
@click.argument("kind", type=click.Choice((IMAGE, MODEL)))
@click.argument("name")
@click.argument("nodes", metavar="CLUSTER", shell_complete=complete("clusters"))
@click.option("--from", "source", default="", metavar="NODE", help="The node that has it.  [the head]")
def cluster_copy(session: Session, kind: str, name: str, nodes: str, source: str) -> None:
    """Copy an image or a model to the nodes that need it, over the fabric.

    CLUSTER is a cluster, or nodes of one with commas. The nodes need ssh to each other's fabric address. Nodes that
    have it are left alone; an interrupted copy of a model continues when it is repeated.
    """

    async def work(context: Context) -> tuple[Copied, ...]:
        request = InventoryRequest(image=name) if kind == IMAGE else InventoryRequest(model=name)
        return await context[ClusterCopier].copy(request, nodes.split(","), source, _Report(session))

    def interrupted() -> Interrupted:
        kept = "What has arrived is kept." if kind == MODEL else "Docker keeps nothing of it."
        return Interrupted(f"Copy stopped. {kept}", f"Repeat it: {session.command}")

    try:
        done = session.run(work, changes=True, on_interrupt=interrupted)
    finally:
        session.err.settle()
    session.out.json_line({"type": "result", "nodes": [show.copied_object(each) for each in done]})
    session.out.lines(show.copied_text(each) for each in done)
