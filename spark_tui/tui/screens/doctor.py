"""Doctor: every check of the box, its evidence, and what to do."""

from __future__ import annotations

import os
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content

from spark_tui.core.actions import Scope
from spark_tui.core.doctor import terminal_state
from spark_tui.domain.doctor.checks import CHECK_BY_ID
from spark_tui.domain.errors import SparkError
from spark_tui.domain.finding import Finding, Severity, worst
from spark_tui.present.doctor import VERDICTS, counts
from spark_tui.tui import format as fmt
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.screens.modals import ConfirmScreen
from spark_tui.tui.widgets.line import entitle
from spark_tui.tui.widgets.page import BLANK, Page, Part, sentence, told
from spark_tui.tui.widgets.row_list import Column, Row, RowList

LABEL_WIDTH = 8
COLUMNS = (Column("check", width=18), Column("", width=4), Column("what", minimum=10))
STYLES = {
    Severity.ERROR: "bold $error",
    Severity.WARNING: "$warning",
    Severity.INFO: "",
    Severity.OK: "$success",
    Severity.UNKNOWN: "$dim",
}
LOOKING = "Looking at the box ..."
CONTAINER_TEXT = "A container with the GPU is started from an image that is here, ends at once, and is removed."


class DoctorScreen(FrameScreen):
    """The checks on the left, the one under the cursor on the right."""

    SCOPE = Scope.DOCTOR
    TAB = "show_doctor"
    CSS_PATH = "doctor.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.DOCTOR)
    AUTO_FOCUS = "#check-list"

    def compose_body(self) -> ComposeResult:
        """List and page."""
        with Horizontal(id="columns"):
            with Container(id="checks-pane", classes="pane") as pane:
                pane.border_title = "Checks"
                yield RowList(COLUMNS, Content.styled(LOOKING, "$dim"), id="check-list")
            with Container(id="check-pane", classes="pane"), VerticalScroll(id="check-scroll"):
                yield Page(LABEL_WIDTH, id="check")

    def on_mount(self) -> None:
        """Looks once; `r` looks again."""
        self._results: tuple[Finding, ...] = ()
        self.examine()

    @work(exit_on_error=False, exclusive=True, group="doctor")
    async def examine(self, *, gpu_container: bool = False) -> None:
        """Has every check look."""
        self.query_one("#checks-pane").border_subtitle = LOOKING
        size = self.app.size
        terminal = terminal_state(
            os.environ, (size.width, size.height), os.environ.get("LC_ALL") or os.environ.get("LANG") or "",
            interactive=True,
        )  # fmt: skip
        try:
            self._results = await self.context.doctor.examine(terminal, gpu_container=gpu_container)
        except SparkError as error:
            self.query_one("#checks-pane").border_subtitle = ""
            self.query_one(RowList).show((), fmt.safe(f"{error.summary} {error.remedy}", "$dim"))
            return
        self._show()

    def _show(self) -> None:
        pane = self.query_one("#checks-pane")
        pane.border_subtitle = Content.styled(counts(self._results), STYLES[worst(self._results)])
        checks = self.query_one(RowList)
        first = not checks.key
        checks.show([_row(result) for result in self._results])
        if first:
            checks.select(_gravest(self._results))
        self._show_selected()

    def on_row_list_moved(self, _: RowList.Moved) -> None:
        """Another check."""
        self._show_selected()

    @property
    def result(self) -> Finding | None:
        """The one under the cursor."""
        key = self.query_one(RowList).key
        return next((result for result in self._results if result.id == key), None)

    def _show_selected(self) -> None:
        result, pane = self.result, self.query_one("#check-pane")
        entitle(pane, CHECK_BY_ID[result.id].title if result is not None else "")
        self.query_one("#check", Page).tell(check_parts(result) if result is not None else ())

    # --- act ------------------------------------------------------------------------------------------

    def action_examine_again(self) -> None:
        """Looks again."""
        self.examine()

    def action_try_gpu_container(self) -> None:
        """Starts a container with the GPU, after asking."""

        def decided(yes: bool | None) -> None:
            if yes:
                self.examine(gpu_container=True)

        self.app.push_screen(ConfirmScreen("Try the GPU in a container?", CONTAINER_TEXT, verb="Try"), decided)

    def action_copy_remedy(self) -> None:
        """The remedy to the clipboard."""
        result = self.result
        if result is None or not result.remedy:
            self.notify("There is nothing to do here.", markup=False)
            return
        self.app.copy_to_clipboard(result.remedy)
        self.notify("Copied the remedy.", markup=False)

    def key_escape(self) -> None:
        """Home."""
        self.spark.switch_mode("home")


def _gravest(results: tuple[Finding, ...]) -> str:
    """Where a person looks first."""
    bad = [result for result in results if result.severity in (Severity.ERROR, Severity.WARNING)]
    return min(bad, key=lambda result: result.severity.rank).id if bad else ""


def _row(result: Finding) -> Row:
    check = CHECK_BY_ID[result.id]
    cells = (
        Content(check.title),
        Content.styled(VERDICTS[result.severity], STYLES[result.severity]),
        fmt.safe(result.summary, "$dim" if result.severity in (Severity.OK, Severity.UNKNOWN) else ""),
    )
    return Row(result.id, cells, check.group.value)


def check_parts(result: Finding) -> list[Part]:
    """The sentence, the remedy, and what was seen."""
    verdict = (f"{VERDICTS[result.severity]}  ", STYLES[result.severity])
    head = Content.assemble(verdict, told(result.summary, "bold"))
    parts: list[Part] = [(Content(""), head)]
    if result.remedy:
        parts += [BLANK, (Content.styled(f"{'do':<{LABEL_WIDTH}}", "$dim"), told(result.remedy))]
    if result.evidence:
        parts += [BLANK, (Content.styled(f"{'seen':<{LABEL_WIDTH}}", "$dim"), told(", ".join(result.evidence)))]
    return [*parts, BLANK, sentence(f"check {result.id}", "$dim")]
