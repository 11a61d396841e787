"""Cluster: its nodes with their memory now, and what runs on several of them, rank by rank."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, VerticalScroll

from spark_tui.base.actions import Scope, key_of
from spark_tui.base.launches import ClusterRecord
from spark_tui.machine.nodes import HERE, Nodes
from spark_tui.manage.cluster.screen.launch import stop_on_nodes
from spark_tui.manage.cluster.show import cluster as present
from spark_tui.manage.cluster.use.monitor import ClusterMonitor
from spark_tui.observe.engines.show.engines import latest_job
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import RowList
from spark_tui.tui.yank import Yank


class ClusterScreen(FrameScreen):
    """Over whatever was shown; Esc goes back there. Nodes are asked in the background: nothing waits for them."""

    SCOPE = Scope.CLUSTER
    TAB = ""
    CSS_PATH = "cluster.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.CLUSTER)
    AUTO_FOCUS = "#rank-list"

    def compose_body(self) -> ComposeResult:
        """Nodes above; launches with the selected one's page beside or below them."""
        with VerticalScroll(id="nodes-pane", classes="pane") as nodes:
            nodes.border_title = "Cluster"
            nodes.can_focus = False
            yield Page(id="nodes")
        with Horizontal(id="launches"):
            with Container(id="ranks-pane", classes="pane") as ranks:
                ranks.border_title = "Launches"
                yield RowList(titles=True, id="rank-list")
            with VerticalScroll(id="record-pane", classes="pane") as record:
                record.border_title = "Launch"
                yield Page(id="record")

    def on_mount(self) -> None:
        self.query_one("#launches").display = self._configured
        self.bind_slices(("nodes", "launches", "jobs", "events"), self._show)

    def on_screen_resume(self) -> None:
        self.action_ask_nodes()

    @property
    def _configured(self) -> bool:
        return bool(self.context.settings.clusters)

    @property
    def record(self) -> ClusterRecord | None:
        """The launch under the cursor."""
        name = self.query_one(RowList).key.rpartition(" ")[0]
        return next((each for each in self.world.launches if each.name == name), None)

    # --- show -----------------------------------------------------------------------------------------

    def _show(self) -> None:
        nodes = self.world.nodes
        self.query_one("#nodes", Page).show(present.node_page(self.context.settings.clusters, nodes))
        self.query_one(RowList).show_table(present.ranks_table(self.world.launches, nodes))
        self._show_record()

    def _show_record(self) -> None:
        record = self.record
        pane = self.query_one("#record-pane")
        pane.display = record is not None
        if record is not None:
            pane.border_title = record.name
            job, now = latest_job(self.world.jobs, record.name), self.context.clock.now()
            stop = key_of("stop_launch")
            page = present.record_page(record, job, self.world.events, now, self.world.nodes, stop_key=stop)
            self.query_one("#record", Page).show(page)
        self.name_keys()

    def on_row_list_moved(self) -> None:
        self._show_record()

    def offers(self, id_: str) -> bool:
        match id_:
            case "stop_launch" | "launch_logs":
                return self.record is not None
            case "launch_on_nodes" | "ask_nodes" | "open_cluster_doctor":
                return self._configured
            case "yank":
                return bool(self.yanks())
        return super().offers(id_)

    def yanks(self) -> tuple[Yank, ...]:
        if not self._configured:
            return (Yank("Command", "c", present.ADD_COMMAND),)
        record = self.record
        if record is None:
            return ()
        router = present.router_url(record).partition(" ")[0]
        return (Yank("URL", "u", router or present.server_url(record.head)),)

    # --- act ------------------------------------------------------------------------------------------

    @work(exit_on_error=False, exclusive=True, group="ask-nodes")
    async def action_ask_nodes(self) -> None:
        """Asks each node again; what it answered last stays until then."""
        if self._configured:
            await self.context[ClusterMonitor].read()
            await self.context[ClusterMonitor].look()

    def action_open_cluster_doctor(self) -> None:
        if self._configured:
            self.spark.switch_mode("cluster_doctor")
        else:
            self.notify("No cluster configured.", markup=False)

    def action_launch_on_nodes(self) -> None:
        """Presets: its form has the field for the nodes."""
        self.spark.switch_mode("presets")

    def action_stop_launch(self) -> None:
        stop_on_nodes(self.spark, self.record)

    def action_launch_logs(self) -> None:
        """The head's log: here, or the command for it on its machine."""
        record = self.record
        if record is None:
            self.notify("Nothing runs on several nodes.", markup=False)
        elif any(view.name == record.name for view in self.world.known(ENGINES)):
            self.spark.selected = record.name
            self.spark.switch_mode("logs")
        else:
            host = self.context[Nodes].reach(record.head.node)
            where = "" if host.destination == HERE else f"--host {host.name} "
            self.notify(f"The head is on {record.head.node.name}: spark-tui {where}logs {record.name} -f", markup=False)

    def action_leave_cluster(self) -> None:
        self.spark.show_aside("cluster")
