"""Doctor of a cluster: every check on every node as a matrix, the finding under the cursor, and the bandwidth."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.binding import BindingType
from textual.content import Content

from spark_tui.base.actions import Scope, key_of
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import EventKind, Finding, counts, worst
from spark_tui.base.jobs import Step
from spark_tui.base.page import TONES
from spark_tui.base.remote import Cluster
from spark_tui.catalog.presets.model.preset import PRESETS
from spark_tui.manage.cluster.model.doctor import CHECK_BY_ID, examine, netplan
from spark_tui.manage.cluster.screen.launch import selected_record
from spark_tui.manage.cluster.show import doctor as present
from spark_tui.manage.cluster.show.cluster import ADD_COMMAND
from spark_tui.manage.cluster.use.doctor import ClusterDoctor
from spark_tui.tui import format as fmt
from spark_tui.tui.frame import bindings
from spark_tui.tui.list_screen import LIST_CSS, ListScreen
from spark_tui.tui.modals import ChoiceDialog, ConfirmScreen
from spark_tui.tui.widgets.line import entitle
from spark_tui.tui.yank import Yank

NO_PRESET = "-"


class ClusterDoctorScreen(ListScreen):
    """Over the Cluster page; Esc goes back there, and the checks continue."""

    SCOPE = Scope.CLUSTER_DOCTOR
    TAB = ""
    CSS_PATH: ClassVar = [LIST_CSS, "doctor.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.CLUSTER_DOCTOR)
    AUTO_FOCUS = "#node-check-list"
    LIST = "node-check-list"
    LIST_TITLE = "Checks"
    PAGES = (("node-check", "Check"),)

    def on_mount(self) -> None:
        """Checks the cluster of the selected launch, with its preset; without one the first cluster."""
        record = selected_record(self.spark)
        names = [each.name for each in self.context.settings.clusters]
        self._at = names.index(record.cluster) if record is not None and record.cluster in names else 0
        self._preset = record.preset if record is not None else ""
        self._found: dict[str, tuple[tuple[Finding, ...], dict[str, str]]] = {}
        self._under_way: tuple[str, str] | None = None
        self.check_nodes()

    @property
    def cluster(self) -> Cluster | None:
        """The one that is shown; None where none is configured."""
        clusters = self.context.settings.clusters
        return clusters[self._at] if clusters else None

    @property
    def cluster_name(self) -> str:
        return self.cluster.name if self.cluster is not None else ""

    def check_nodes(self, *, bandwidth: bool = False) -> None:
        """Runs the checks in the background; one run at a time."""
        if self.cluster is None:
            self.show_rows()
            return
        if self._under_way is not None:
            self.notify(f"{self._under_way[0]} is being checked. Cancel: {key_of('cancel_checks')}", markup=False)
            return
        self._under_way = (self.cluster.name, "")
        self.show_rows()
        self._check(self.cluster, bandwidth=bandwidth)

    @work(exit_on_error=False, group="cluster-doctor")
    async def _check(self, cluster: Cluster, *, bandwidth: bool) -> None:
        def report(step: Step) -> None:
            self._under_way = (cluster.name, f"{step.label} {step.detail}".rstrip())
            self._show_state()

        preset = self.world[PRESETS].get(self._preset)
        try:
            seen = await self.context[ClusterDoctor].readings(
                cluster, preset=preset, bandwidth=bandwidth, report=report
            )
            findings = examine(seen)
            self._found[cluster.name] = findings, netplan(seen, findings)
            text = f"{cluster.name}: {counts(findings)}"
            self.context.store.say(text, worst(findings), kind=EventKind.CHECK, subject=cluster.name)
        except SparkError as error:
            self.spark.report(error)
        finally:
            self._under_way = None
            self.show_rows()
        if bandwidth:
            self.rows.select("rdma_bandwidth")

    # --- show -----------------------------------------------------------------------------------------

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of the last run on this cluster; empty before the first."""
        return self._found.get(self.cluster_name, ((), {}))[0]

    def show_rows(self) -> None:
        running = self._under_way is not None and self._under_way[0] == self.cluster_name
        empty = "Running checks..." if running else f"Not checked yet. Run the checks: {key_of('check_cluster')}"
        if self.cluster is None:
            empty = f"No cluster configured. Add one in a shell: {ADD_COMMAND}"
        self.rows.show_table(present.matrix(self.findings, worst_first=True), Content.styled(empty, "$dim"))
        self._show_state()
        self.show_selected()
        self.name_keys()

    def _show_state(self) -> None:
        """The cluster and the preset above; below what is being done, else what the last run found."""
        pane, preset = self.query_one("#list-pane"), f", preset {self._preset}" if self._preset else ""
        entitle(pane, f"Checks of {self.cluster_name}{preset}" if self.cluster_name else "Checks")
        below = Content.styled(counts(self.findings), fmt.TONE_STYLES[TONES[worst(self.findings)]])
        if self._under_way is not None:
            other = "" if self._under_way[0] == self.cluster_name else f"{self._under_way[0]}: "
            below = fmt.safe(f"{other}{self._under_way[1]}", "$dim")
        entitle(pane, below, below=True)

    def show_selected(self) -> None:
        check, proposed = self.rows.key, self._found.get(self.cluster_name, ((), {}))[1]
        self.page("node-check").show(present.check_page(check, self.findings, proposed) if check else ())
        self.show_title(CHECK_BY_ID[check].title if check else "Check")

    def offers(self, id_: str) -> bool:
        match id_:
            case "check_cluster" | "measure_bandwidth" | "compare_preset":
                return self.cluster is not None and self._under_way is None
            case "cancel_checks":
                return self._under_way is not None
            case "next_cluster":
                return len(self.context.settings.clusters) > 1
            case "yank":
                return bool(self.yanks())
        return super().offers(id_)

    def yanks(self) -> tuple[Yank, ...]:
        own = [each for each in self.findings if each.id == self.rows.key and each.remedy]
        proposed = self._found.get(self.cluster_name, ((), {}))[1]
        fixes = (Yank("Fix", "f", min(own, key=lambda each: each.severity.rank).remedy),) if own else ()
        plans = (Yank("netplan of all nodes", "n", "\n".join(proposed.values())),) if proposed else ()
        return (*fixes, *plans)

    # --- act ------------------------------------------------------------------------------------------

    def action_check_cluster(self) -> None:
        self.check_nodes()

    def action_measure_bandwidth(self) -> None:
        """Measures after asking: it loads the fabric."""
        if self.cluster is None:
            return

        def decided(yes: bool | None) -> None:
            if yes:
                self.check_nodes(bandwidth=True)

        question = f"Measure the bandwidth of {self.cluster.name}?"
        self.app.push_screen(ConfirmScreen(question, present.BANDWIDTH_TEXT, verb="Measure"), decided)

    def action_compare_preset(self) -> None:
        """Chooses the preset whose image and model are compared, and checks again."""

        def chosen(name: str | None) -> None:
            if name is not None:
                self._preset = "" if name == NO_PRESET else name
                self.check_nodes()

        presets = [each for each in self.world[PRESETS].presets if each.max_nodes is None or each.max_nodes > 1]
        presets.sort(key=lambda each: -each.min_nodes)
        choices = [(NO_PRESET, "None: no image, no model"), *((each.name, each.name) for each in presets)]
        self.app.push_screen(ChoiceDialog("Compare the image and model of", choices), chosen)

    def action_cancel_checks(self) -> None:
        self.workers.cancel_group(self, "cluster-doctor")

    def action_next_cluster(self) -> None:
        self._at = (self._at + 1) % max(1, len(self.context.settings.clusters))
        self.show_rows()
        if not self.findings and self._under_way is None:
            self.check_nodes()

    def action_leave_cluster_doctor(self) -> None:
        self.spark.switch_mode("cluster")
