"""The draft of a preset: every value with its source, whether it fits, and its command; to launch or to save."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, cast

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll

from spark_tui.base.context import Context
from spark_tui.base.engine.docker_run import render_text
from spark_tui.base.errors import SparkError
from spark_tui.catalog.fit.model.draft import Draft
from spark_tui.catalog.fit.model.verdict import LaunchVerdict
from spark_tui.catalog.fit.show.draft import draft_page
from spark_tui.catalog.fit.use.draft import Drafts
from spark_tui.catalog.fit.use.fit import LaunchChecks
from spark_tui.catalog.models.show.downloads import refusal_page
from spark_tui.catalog.models.show.inspection import sentence_page
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.tui import format as fmt
from spark_tui.tui.frame import FrameApp
from spark_tui.tui.modals import TextDialog
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.yank import Yank


class DraftDialog(QuietModal[str | None]):
    """Answers the name of a launched engine; None without a launch."""

    CSS_PATH = "draft.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back"),
        Binding("l,enter", "launch", "Launch"),
        Binding("ctrl+s", "save", "Save"),
        Binding("y", "copy", "Copy the command"),
    ]

    def __init__(
        self,
        context: Context,
        title: str,
        make: Callable[[], Awaitable[Draft]],
        *,
        fetch: str = "",
        changes: Mapping[str, str] | None = None,
    ) -> None:
        """`fetch` is what a launch downloads first, `changes` are written into the launch form."""
        super().__init__()
        self._core = context
        self._title = title
        self._make = make
        self._fetch = fetch
        self._changes = dict(changes or {})
        self._draft: Draft | None = None
        self._problem: SparkError | None = None
        self._verdict: LaunchVerdict | None = None
        self._saved = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="draft") as dialog:
            dialog.border_title = fmt.safe(self._title)
            with VerticalScroll(id="fetch-scroll"):
                yield Page(id="fetch-page")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        self._show()
        self._read()

    @work(exit_on_error=False, exclusive=True, group="read")
    async def _read(self) -> None:
        """First the draft, then whether it fits now."""
        try:
            self._draft = await self._make()
            self._show()
            self._verdict = await self._judge(self._draft)
            if self._verdict.fit.change:  # the log's advice is of then: another engine may hold the memory now
                self._changes |= dict(self._verdict.fit.change)
                self._verdict = await self._judge(self._draft)
        except SparkError as error:
            self._problem = error
        self._show()

    async def _judge(self, draft: Draft) -> LaunchVerdict:
        changes = {"gpu_memory_utilization": "auto"} | self._changes
        return await self._core[LaunchChecks].judge(draft.preset, overrides_from_pairs(changes))

    def _show(self) -> None:
        page, draft = self.query_one(Page), self._draft
        keys = "Esc back"
        if draft is not None:
            page.show(draft_page(draft, self._verdict, self._command(), self._fetch, self._changes))
            able = "" if self._core.settings.read_only else f"l launch   {'' if self._saved else '^s save   '}"
            keys = f"{able}y copy command   Esc back"
        elif self._problem is not None:
            page.show(refusal_page(self._problem))
        else:
            page.show(sentence_page("Reading the model..."))
        self.query_one("#draft").border_subtitle = fmt.key_hints(keys)

    def _command(self) -> str:
        if self._draft is None:
            return ""
        try:
            plan = self._verdict.plan if self._verdict is not None else None
            plan = plan or self._core[Preflight].dry_plan(self._draft.preset, overrides_from_pairs(self._changes))
            return render_text(plan.spec)
        except SparkError:  # a change that the draft does not take: the form says so
            return ""

    # --- keys -----------------------------------------------------------------------------------------

    def _able(self) -> bool:
        if self._core.settings.read_only:
            self.notify("Read-only mode: Launch and Save are disabled.", severity="warning", markup=False)
        return self._draft is not None and not self._core.settings.read_only

    def action_launch(self) -> None:
        if self._draft is not None and self._able():
            form = cast(FrameApp, self.app).make_screen("launch_form", self._core, self._draft.preset, self._changes)
            self.app.push_screen(form, self._launched)

    def _launched(self, name: str | None) -> None:
        """A launched draft is kept as a preset: restart and edit need it. It runs also where that fails."""
        if name:
            if not self._saved:
                self._keep("")
            self.dismiss(name)

    @work(exit_on_error=False, exclusive=True, group="save")
    async def action_save(self) -> None:
        if self._draft is None or self._saved or not self._able():
            return
        hint = "Name of the new preset."
        name = await self.app.push_screen_wait(TextDialog("Save as preset", hint, value=self._draft.name))
        if name:
            self._keep(name)
            self._show()

    def _keep(self, name: str) -> bool:
        if self._draft is None:
            return False
        try:
            preset = self._core[Drafts].save(self._draft, name)
        except SparkError as error:
            self.notify(f"{error.summary}\n{error.remedy}", severity="error", markup=False)
            return False
        self._saved = preset.name
        self.notify(f"Saved as preset {preset.name}: {preset.file}", markup=False)
        return True

    def action_copy(self) -> None:
        command = self._command()
        if command:
            cast(FrameApp, self.app).copy(Yank("Command", "c", command))

    def action_leave(self) -> None:
        self.dismiss(None)
