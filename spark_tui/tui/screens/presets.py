"""Presets: every recipe, what is known about it, and the exact command that it becomes."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static, TabbedContent, TabPane

from spark_tui.core.actions import Scope
from spark_tui.domain.errors import PresetError, SparkError
from spark_tui.domain.presets.docker_run import render_text
from spark_tui.domain.presets.plan import LaunchPlan, Overrides
from spark_tui.domain.presets.preset import Origin, Preset, PresetFacts
from spark_tui.domain.quantities import human_bytes, human_count, short_tokens
from spark_tui.domain.text import clean
from spark_tui.tui import format as fmt
from spark_tui.tui.keymap import bindings
from spark_tui.tui.screens.frame import FrameScreen
from spark_tui.tui.widgets.engine_detail import field
from spark_tui.tui.widgets.row_list import Column, Row, RowList

COLUMNS = (
    Column("preset"),
    Column("model", width=11, hide_below=56),
    Column("quantization", width=6, hide_below=48),
    Column("context", width=5, hide_below=72, right=True),
    Column("speed", width=11, hide_below=64, right=True),
    Column("origin", width=5, hide_below=84),
)

PROBLEM = "problem:"
NO_PRESETS = "No presets. Put recipe files (*.yaml) into the presets folder, then press ^r."


class PresetsScreen(FrameScreen):
    """The list, and the selected preset's two pages."""

    SCOPE = Scope.PRESETS
    TAB = "show_presets"
    CSS_PATH = "presets.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.PRESETS)
    AUTO_FOCUS = "#preset-list"

    def compose_body(self) -> ComposeResult:
        """List on the left, pages on the right."""
        with Horizontal(id="columns"):
            with Container(id="list-pane", classes="pane") as pane:
                pane.border_title = "Presets"
                yield Input(placeholder="filter: name, family, quantization, model", id="filter", compact=True)
                yield RowList(COLUMNS, Content(NO_PRESETS), id="preset-list")
            with Container(id="preset-pane", classes="pane"), TabbedContent(id="pages"):
                with TabPane("Overview", id="overview-page"), VerticalScroll():
                    yield Static(id="overview")
                with TabPane("Command", id="command-page"), VerticalScroll():
                    yield Static(id="command")

    def on_mount(self) -> None:
        """Binds the list to the catalogue."""
        super().on_mount()
        self._plan: LaunchPlan | None = None
        self.query_one("#filter").display = False
        self.bind_slice("presets", lambda _: self._show())

    # --- show -----------------------------------------------------------------------------------------

    def _show(self) -> None:
        words = self.query_one("#filter", Input).value.lower().split()
        catalogue = self.spark.presets
        chosen = sorted((p for p in catalogue.presets if _matches(p, words)), key=_order)
        rows = [_row(preset) for preset in chosen]
        rows += [_problem_row(index, problem) for index, problem in enumerate(catalogue.problems)]
        empty = "No preset matches. Esc clears the filter." if words else NO_PRESETS
        self.query_one(RowList).show(rows, Content(empty))
        pane = self.query_one("#list-pane")
        shown = f"{len(chosen)} of {len(catalogue.presets)}" if words else str(len(chosen))
        broken = f", {len(catalogue.problems)} unreadable" if catalogue.problems else ""
        pane.border_subtitle = f"{shown}{broken}"
        self._show_selected()

    @property
    def preset(self) -> Preset | None:
        """The preset under the cursor."""
        return self.spark.presets.get(self.query_one(RowList).key)

    @property
    def problem(self) -> PresetError | None:
        """The unreadable file under the cursor."""
        key = self.query_one(RowList).key
        if not key.startswith(PROBLEM):
            return None
        return self.spark.presets.problems[int(key.removeprefix(PROBLEM))]

    def on_row_list_moved(self, _: RowList.Moved) -> None:
        """Another preset."""
        self._show_selected()

    def _show_selected(self) -> None:
        preset, problem = self.preset, self.problem
        pane = self.query_one("#preset-pane")
        overview, command = self.query_one("#overview", Static), self.query_one("#command", Static)
        if preset is not None:
            pane.border_title = Content(clean(preset.name))
            overview.update(_overview(preset))
            self._show_command(preset)
        elif problem is not None:
            pane.border_title = "Unreadable file"
            overview.update(_problem_page(problem))
            command.update("")
        else:
            pane.border_title = ""
            overview.update("")
            command.update("")

    @work(exit_on_error=False, exclusive=True, group="plan")
    async def _show_command(self, preset: Preset) -> None:
        """The command with the image's real entrypoint when it is here; else with the one its name implies."""
        command = self.query_one("#command", Static)
        preflight = self.context.preflight
        try:
            self._plan = preflight.dry_plan(preset, Overrides())
            command.update(_command(self._plan))
            self._plan = await preflight.plan(preset, Overrides())
            command.update(_command(self._plan))
        except SparkError as error:
            if self._plan is None:
                command.update(Content.assemble(fmt.safe(error.summary, "$error"), "\n", fmt.safe(error.remedy)))

    # --- act ------------------------------------------------------------------------------------------

    def action_launch_preset(self) -> None:
        """Opens the launch form."""
        from spark_tui.tui.screens.launch_form import LaunchForm

        if self.preset is not None:
            self.app.push_screen(LaunchForm(self.context, self.preset), self._launched)
        elif self.problem is not None:
            self.notify("This file cannot be launched: mend it, then press ^r.", severity="warning", markup=False)

    def _launched(self, name: str | None) -> None:
        if name:
            self.spark.selected = name
            self.spark.switch_mode("home")

    def action_copy_command(self) -> None:
        """The docker run text to the clipboard."""
        if self.preset is None or self._plan is None:
            return
        self.app.copy_to_clipboard(render_text(self._plan.spec))
        self.notify("Copied: docker run ...", markup=False)

    def action_filter_presets(self) -> None:
        """Opens the filter."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def on_input_changed(self, _: Input.Changed) -> None:
        """The list follows the filter."""
        self._show()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Enter goes to the list."""
        self.query_one(RowList).focus()

    def key_escape(self) -> None:
        """Clears the filter."""
        box = self.query_one("#filter", Input)
        if box.display:
            box.value = ""
            box.display = False
            self.query_one(RowList).focus()

    def action_reload_presets(self) -> None:
        """Reads the folders again."""
        self.context.collectors.load_presets()
        problems = len(self.context.store.world.presets.problems)
        self.notify(f"Presets read again{f', {problems} unreadable' if problems else ''}.", markup=False)


def _matches(preset: Preset, words: list[str]) -> bool:
    facts = preset.facts
    text = " ".join(
        (preset.name, facts.title, facts.family, facts.quantization, facts.publisher, preset.model, preset.runtime)
    ).lower()
    return all(word in text for word in words)


def _order(preset: Preset) -> tuple[bool, str, str]:
    return (preset.facts.category == "cpu", preset.facts.family.lower() or "~", preset.name)


def _row(preset: Preset) -> Row:
    facts = preset.facts
    speed = max((p.tokens_per_second for p in facts.published), default=None)
    return Row(
        preset.name,
        (
            fmt.safe(facts.title or preset.name),
            fmt.safe(_size(facts), "$dim"),
            fmt.safe(facts.quantization, "$secondary"),
            fmt.safe(short_tokens(facts.context_tokens) if facts.context_tokens else "", "$dim"),
            fmt.safe(f"~{speed:.0f} tok/s" if speed else ""),
            fmt.safe("yours" if preset.origin is Origin.USER else "", "$accent"),
        ),
    )


def _size(facts: PresetFacts) -> str:
    total, active = facts.total_parameters, facts.active_parameters
    if total is None:
        return ""
    if active is None or active == total:
        return _billions(total)
    return f"{_billions(total)}/{_billions(active)}"


def _billions(count: float) -> str:
    return f"{count / 1e9:.3g}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def _problem_row(index: int, problem: PresetError) -> Row:
    file = problem.file.rsplit("/", 1)[-1]
    place = f"{file}:{problem.line}" if problem.line else file
    text = Content.assemble(("unreadable ", "bold $error"), fmt.safe(place), "  ", fmt.safe(problem.summary, "$dim"))
    return Row(f"{PROBLEM}{index}", (text, *(Content("") for _ in COLUMNS[1:])))


def _problem_page(problem: PresetError) -> Content:
    parts = [fmt.safe(problem.where, "bold"), fmt.safe(problem.summary, "$error"), fmt.safe(problem.remedy)]
    if problem.detail:
        parts += [Content(""), Content.styled(clean(problem.detail), "$dim")]
    return Content("\n").join(parts)


def _overview(preset: Preset) -> Content:
    facts = preset.facts
    lines = [fmt.safe(facts.title or preset.name, "bold")]
    if facts.description:
        lines.append(fmt.safe(facts.description, "$dim"))
    lines.append(Content(""))
    lines += [
        field(label, value)
        for label, value in (
            ("model", preset.model),
            ("publisher", facts.publisher),
            ("family", facts.family),
            ("kind", facts.architecture),
            ("size", _size_line(facts)),
            ("quantized", facts.quantization),
            ("context", f"{human_count(facts.context_tokens)} tokens" if facts.context_tokens else ""),
            ("input", ", ".join(facts.modalities)),
            ("licence", _licence(facts)),
            ("image", preset.image),
            ("runtime", preset.runtime),
            ("file", f"{preset.file} ({preset.origin.value})"),
        )
        if value
    ]
    for speed in facts.published:
        lines.append(field("speed", f"{speed.tokens_per_second:g} tok/s, {speed.conditions} ({speed.source})"))
    lines += _said("Cautions", facts.cautions, "$warning") + _said("Notes", facts.notes, "")
    lines += _said("Not run by spark-tui", preset.hooks, "$dim") + _said("Kept, not used", _unknown(preset), "$dim")
    if facts.source:
        lines += [Content(""), field("source", facts.source)]
    return Content("\n").join(lines)


def _unknown(preset: Preset) -> tuple[str, ...]:
    return tuple(f"{key}: {value}" for key, value in preset.unknown)


def _size_line(facts: PresetFacts) -> str:
    words = []
    if facts.total_parameters:
        words.append(f"{_billions(facts.total_parameters)} parameters")
    if facts.active_parameters and facts.active_parameters != facts.total_parameters:
        words.append(f"{_billions(facts.active_parameters)} active")
    if facts.weights_bytes:
        words.append(f"{human_bytes(facts.weights_bytes)} of weights")
    return ", ".join(words)


def _licence(facts: PresetFacts) -> str:
    if not facts.licence:
        return ""
    return f"{facts.licence}, gated: accept it on the model's page first" if facts.gated else facts.licence


def _said(title: str, texts: tuple[str, ...], style: str) -> list[Content]:
    if not texts:
        return []
    return [
        Content(""),
        Content.styled(title, "bold"),
        *(Content.assemble("- ", fmt.safe(text, style)) for text in texts),
    ]


def _command(plan: LaunchPlan) -> Content:
    parts = [Content(clean(render_text(plan.spec)))]
    parts += [Content.assemble(("note ", "$warning"), fmt.safe(note)) for note in plan.notes]
    return Content("\n").join((parts[0], Content(""), *parts[1:]))
