"""Doctor: every check of the machine, its evidence, and the fix."""

from __future__ import annotations

import os
from typing import ClassVar

from textual import work
from textual.binding import BindingType
from textual.content import Content
from textual.events import Resize

from spark_tui.base.actions import Scope
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Finding, counts, worst
from spark_tui.base.page import TONES
from spark_tui.manage.doctor import show as present
from spark_tui.manage.doctor.model import CHECK_BY_ID
from spark_tui.manage.doctor.use import Doctor, terminal_state
from spark_tui.tui import format as fmt
from spark_tui.tui.frame import bindings
from spark_tui.tui.list_screen import LIST_CSS, ListScreen
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.widgets.line import entitle
from spark_tui.tui.widgets.row_list import NO_ROWS
from spark_tui.tui.yank import Yank

RUNNING = "Running checks..."


class DoctorScreen(ListScreen):
    """The checks on the left, the one under the cursor on the right."""

    SCOPE = Scope.DOCTOR
    TAB = "show_doctor"
    CSS_PATH: ClassVar = [LIST_CSS, "screen.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.DOCTOR)
    AUTO_FOCUS = "#check-list"
    LIST = "check-list"
    LIST_TITLE = "Checks"
    PAGES = (("check", "Check"),)
    MORE = "Passed"
    folded = True

    def on_mount(self) -> None:
        """Runs the checks once; `r` runs them again."""
        self._results: tuple[Finding, ...] = ()
        self.rows.show_table(NO_ROWS, Content.styled(RUNNING, "$dim"))
        self.examine()

    @work(exit_on_error=False, exclusive=True, group="doctor")
    async def examine(self, *, gpu_container: bool = False) -> None:
        pane, size = self.query_one("#list-pane"), self.app.size
        entitle(pane, RUNNING, below=True)
        encoding = os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
        terminal = terminal_state(os.environ, (size.width, size.height), encoding, interactive=True)
        try:
            self._results = await self.context[Doctor].examine(terminal, gpu_container=gpu_container)
        except SparkError as error:
            entitle(pane, "", below=True)
            self.rows.show_table(NO_ROWS, fmt.safe(f"{error.summary} {error.remedy}", "$dim"))
            return
        tone = fmt.TONE_STYLES[TONES[worst(self._results)]]
        entitle(pane, Content.styled(counts(self._results), tone), below=True)
        self.folded = self.folded and not gpu_container
        self.show_rows()
        if gpu_container:
            self.rows.select("gpu_container")

    def on_resize(self, _: Resize) -> None:
        """Another height may have room for the checks that passed."""
        self.call_after_refresh(self.show_selected)

    def show_rows(self) -> None:
        """The checks, the worst first and under the cursor."""
        self.rows.show_table(present.checks_table(present.attention_first(self._results, passed=not self.folded)))
        self.show_selected()

    @property
    def result(self) -> Finding | None:
        """The check under the cursor."""
        return next((result for result in self._results if result.id == self.rows.key), None)

    def show_selected(self) -> None:
        result = self.result
        below = self.show_more(present.passed_table(self._results) if self.folded else ())
        passed = present.passed_page(self._results) if self.folded and not below else ()
        self.page("check").show((*present.check_page(result), *passed) if result is not None else ())
        self.show_title(CHECK_BY_ID[result.id].title if result is not None else "")

    def action_examine_again(self) -> None:
        self.examine()

    def action_toggle_passed(self) -> None:
        """Shows the checks that passed below the others, or hides them."""
        self.folded = not self.folded
        self.show_rows()
        self.name_keys()

    def action_try_gpu_container(self) -> None:
        """Starts a container with the GPU, after asking."""

        def decided(yes: bool | None) -> None:
            if yes:
                self.examine(gpu_container=True)

        question = "Try the GPU in a container?"
        self.app.push_screen(ConfirmScreen(question, present.CONTAINER_TEXT, verb="Try"), decided)

    def yanks(self) -> tuple[Yank, ...]:
        result = self.result
        return (Yank("Fix", "f", result.remedy),) if result is not None and result.remedy else ()
