"""Importing other tools' recipes: a path or a pasted docker run command, then what became of each."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Input

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError
from spark_tui.base.page import Row, Section, Tone
from spark_tui.base.secret import mask_secrets
from spark_tui.base.settings import DEMO_HOME
from spark_tui.base.shell import find_commands, first_variable, with_newlines
from spark_tui.catalog.fit.show.preset_files import import_page
from spark_tui.catalog.presets.model.preset import PRESETS, Origin
from spark_tui.catalog.presets.use.imports import ImportOutcome, PastedText, RecipeStore, import_recipes
from spark_tui.tui.format import key_hints
from spark_tui.tui.textual_private import PasteInput, QuietModal
from spark_tui.tui.widgets.page import Page

HINTS = (
    "A recipe file, or a folder or git checkout of recipes: sparkrun, vLLM's own, eugr's spark-vllm-docker. "
    "Or a Compose file, a systemd unit, a Quadlet, a Kubernetes manifest, a llama-swap configuration.",
    "Or a docker run or podman run command: paste it, or name a script with one. Its --name becomes the preset's name.",
)
PASTED = "pasted text"


DEMO_SOURCE = f"{DEMO_HOME}/recipes"
"""A folder of the simulated person, with recipes to try it with."""


def quiet(text: str) -> Section:
    return Section(rows=(Row(text, tone=Tone.QUIET),))


class SourceInput(PasteInput):
    """One line for a path, or for a command. A pasted command of several lines becomes one line, which can be edited;
    any other text of several lines is kept aside, and the line says so."""

    kept = ""
    note = ""

    def pasted(self, text: str) -> str | None:
        text = with_newlines(text)
        lines = [line for line in text.split("\n") if line.strip()]
        commands = find_commands(text)
        if len(commands) == 1 and "\n" not in commands[0].text and not first_variable(commands[0].text):
            self.value = mask_secrets(commands[0].text)
        elif len(lines) > 1:
            what = f"{len(commands)} docker run commands" if len(commands) > 1 else "text"
            self.kept, self.note = text, f"[{what}, {len(lines)} lines pasted]"
            self.value = self.note
        else:
            return "".join(lines).strip()
        self.cursor_position = 0
        return None

    def source(self) -> Path | PastedText | None:
        """What is to be imported; None for nothing."""
        value = self.value.strip()
        if self.kept and value == self.note:
            return PastedText(self.kept, PASTED)
        if find_commands(value):
            return PastedText(value, PASTED)
        return Path(value).expanduser() if value else None


class ImportForm(QuietModal[bool]):
    """Answers whether something was imported."""

    CSS_PATH = "import_form.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Back"),
        Binding("pagedown", "scroll_report(1)", "Report down", show=False, priority=True),
        Binding("pageup", "scroll_report(-1)", "Report up", show=False, priority=True),
    ]

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._core = context
        self._imported = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="import") as dialog:
            dialog.border_title = "Import recipes"
            dialog.border_subtitle = key_hints("Enter import   Esc back")
            yield SourceInput(
                value=DEMO_SOURCE if self._core.demo else "",
                placeholder="path, e.g. ~/spark-vllm-docker/recipes, or docker run ...",
                compact=True,
                select_on_focus=False,
            )
            with VerticalScroll(id="report-scroll", can_focus=False):
                yield Page(id="report")

    def on_mount(self) -> None:
        self.query_one(Page).show(quiet(hint) for hint in HINTS)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        source = self.query_one(SourceInput).source()
        if source is not None:
            self._import(source)

    @work(exit_on_error=False, exclusive=True, group="import")
    async def _import(self, source: Path | PastedText) -> None:
        page = self.query_one(Page)
        page.show((quiet(f"Reading {PASTED if isinstance(source, PastedText) else source} ..."),))
        presets = self._core.store.world[PRESETS].presets
        builtin = [preset.name for preset in presets if preset.origin is Origin.BUILTIN]
        try:
            store, auto = self._core[RecipeStore], self._core.settings.memory_share == "auto"
            report = await self._core.in_thread(
                import_recipes, store, source, builtin=builtin, paths=self._core.paths, auto=auto
            )
        except SparkError as error:
            page.show((Section(rows=(Row(error.summary, tone=Tone.BAD), Row(error.remedy))),))
            return
        self._imported = self._imported or report.count(ImportOutcome.IMPORTED) > 0
        page.show(import_page(report))
        self.query_one("#import").border_subtitle = key_hints("Enter import   PgDn report   Esc back")
        self.query_one("#report-scroll", VerticalScroll).scroll_home(animate=False)

    def action_scroll_report(self, step: int) -> None:
        scroll = self.query_one("#report-scroll", VerticalScroll)
        scroll.scroll_relative(y=step * max(1, scroll.size.height - 1), animate=False)

    def action_close(self) -> None:
        self.dismiss(self._imported)
