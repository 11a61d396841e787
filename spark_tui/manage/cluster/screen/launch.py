"""The launch on several nodes that the selected engine belongs to, and stopping one."""

from __future__ import annotations

from spark_tui.base.launches import ClusterRecord
from spark_tui.base.protocol import rank_of
from spark_tui.manage.cluster.show.cluster import stop_question
from spark_tui.manage.cluster.use.monitor import ClusterJobs
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.tui.frame import FrameApp, acting
from spark_tui.tui.modals import ConfirmScreen


def selected_record(app: FrameApp) -> ClusterRecord | None:
    """The launch on several nodes that the selected engine is a rank of, where this machine keeps it."""
    view = app.world.named(ENGINES, app.selected)
    if view is not None and rank_of(view.container) is None:
        return None
    launches = app.world.launches
    return next((each for each in launches if app.selected in (each.name, *(rank.name for rank in each.ranks))), None)


@acting("act", exclusive=False)
async def _stop(app: FrameApp, record: ClusterRecord) -> None:
    jobs = app.context[JobRunner]
    if jobs.running(record.name) is not None:
        await jobs.cancel(record.name)
    else:
        app.context[ClusterJobs].stop(record)


def stop_on_nodes(app: FrameApp, record: ClusterRecord | None) -> None:
    """Stops a launch on all its nodes after asking; one that is still coming up is cancelled, which undoes it."""
    if record is None:
        app.notify("Nothing runs on several nodes.", markup=False)
        return

    def decided(yes: bool | None) -> None:
        if yes:
            _stop(app, record)

    question, what = stop_question(record)
    app.push_screen(ConfirmScreen(question, what, verb="Stop"), decided)
