"""Presets: every recipe, what is known about it, and the exact command that it becomes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, TabbedContent, TabPane

from spark_tui.core.actions import Scope
from spark_tui.core.key_words import key_of
from spark_tui.domain.errors import PresetError, SparkError, UnreachableError
from spark_tui.domain.presets.docker_run import render_text
from spark_tui.domain.presets.fit import Fit
from spark_tui.domain.presets.plan import LaunchPlan, Overrides
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.reading import Ok
from spark_tui.domain.text import clean_line, truncate
from spark_tui.tui.keymap import bindings
from spark_tui.tui.screens.frame import FrameScreen
from spark_tui.tui.screens.preset_verdicts import (
    ABOUT_NOW,
    FIT_LABEL_WIDTH,
    LABEL_WIDTH,
    Checked,
    check_parts,
    failure_parts,
    fit_figure_parts,
    fit_verdict_parts,
    fixes_of,
)
from spark_tui.tui.screens.preset_words import (
    COLUMNS,
    MAX_CELL,
    PROBLEM,
    UNKNOWN_IMAGE,
    ImageStanding,
    matches,
    note_parts,
    order,
    overview,
    preset_row,
    problem_page,
    problem_row,
    running_page,
)
from spark_tui.tui.widgets.fit_bar import FitBar
from spark_tui.tui.widgets.line import entitle
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import Row, RowList

NO_MATCH = "No preset matches. Esc clears the filter."


def no_presets() -> str:
    """What stands in an empty list."""
    return f"No presets. Put recipe files (*.yaml) into the presets folder, then press {key_of('reload_presets')}."


class PresetsScreen(FrameScreen):
    """The list, and the selected preset's pages."""

    SCOPE = Scope.PRESETS
    TAB = "show_presets"
    CSS_PATH = "presets.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.PRESETS)
    AUTO_FOCUS = "#preset-list"

    def compose_body(self) -> ComposeResult:
        """List on the left, pages on the right; one above the other when it is narrow."""
        with Horizontal(id="columns"):
            with Container(id="list-pane", classes="pane") as pane:
                pane.border_title = "Presets"
                yield Input(placeholder="filter: name, family, quantization, model, image", id="filter", compact=True)
                yield RowList(COLUMNS, Content(no_presets()), titles=True, gap=1, id="preset-list")
            with Container(id="preset-pane", classes="pane"), TabbedContent(id="pages"):
                with TabPane("Overview", id="overview-page"), VerticalScroll(id="overview-scroll"):
                    yield Page(LABEL_WIDTH, id="overview")
                with TabPane("Command", id="command-page"), VerticalScroll(id="command-scroll"):
                    yield Page(LABEL_WIDTH, id="command")
                with TabPane("Checks", id="checks-page"), VerticalScroll(id="checks-scroll"):
                    yield Page(LABEL_WIDTH, id="checks")
                with TabPane("Fit", id="fit-page"), VerticalScroll(id="fit-scroll"):
                    yield Page(FIT_LABEL_WIDTH, id="fit")
                    yield FitBar(self.spark.glyphs, id="fit-bar")
                    yield Page(FIT_LABEL_WIDTH, id="fit-figures")
                with TabPane("Running", id="running-page"), VerticalScroll(id="running-scroll"):
                    yield Page(LABEL_WIDTH, id="running")

    def on_mount(self) -> None:
        """Binds the list to the catalogue, and to what may change which images are here."""
        self._plan: LaunchPlan | SparkError | None = None
        self._shown = ""
        self._images: dict[str, ImageStanding] = {}
        self._findings: dict[str, Checked] = {}
        self._fits: dict[str, Fit] = {}
        self._looked_at: tuple[object, ...] = ()
        self.query_one("#filter").display = False
        self.bind_slice("presets", lambda _: self._take_catalogue())
        self.bind_slice("docker", lambda _: self._look_again())
        self.bind_slice("jobs", lambda _: self._look_again())
        self.bind_slice("identity", lambda _: self._look_again())
        self.bind_slice("engines", lambda _: self._take_engines())

    # --- images ---------------------------------------------------------------------------------------

    def _take_catalogue(self) -> None:
        self._show()
        self._look_again()

    def _take_engines(self) -> None:
        self._look_again()
        self._show_running()

    def _look_again(self) -> None:
        """Asks for the images and checks again when the answer may be another: presets, Docker, a launch ended, an
        engine came or went."""
        ended = tuple(job.id for job in self.spark.jobs if job.state.over)
        running = frozenset(view.name for view in self.engines() if view.container.running)
        grounds = (self.spark.presets, isinstance(self.spark.docker, Ok), ended, self.spark.identity, running)
        if grounds != self._looked_at:
            self._looked_at = grounds
            self._look_at_images()

    @work(exit_on_error=False, exclusive=True, group="images")
    async def _look_at_images(self) -> None:
        """One question per image; a Docker that does not answer is asked once."""
        found: dict[str, ImageStanding] = {}
        references = dict.fromkeys(preset.reference for preset in self.spark.presets.presets)
        for reference in references:
            try:
                found[reference] = ImageStanding(True, await self.context.docker.image(reference))
            except UnreachableError as error:
                found |= {left: ImageStanding(why=error.summary) for left in references if left not in found}
                break
            except SparkError as error:
                found[reference] = ImageStanding(why=error.summary)
        if found != self._images:
            self._images = found
            self._show()
        self._check_all()

    @work(exit_on_error=False, exclusive=True, group="checks")
    async def _check_all(self) -> None:
        """The rules and the fit of every preset, one at a time: keys go first."""
        found: dict[str, Checked] = {}
        fits: dict[str, Fit] = {}
        for preset in self.spark.presets.presets:
            found[preset.name] = await self._checked(preset)
            with contextlib.suppress(SparkError):  # the Checks page tells it
                fits[preset.name] = await self.context.fitting.fit(preset, Overrides())
            await asyncio.sleep(0)
        if (found, fits) != (self._findings, self._fits):
            self._findings, self._fits = found, fits
            self._show()

    async def _checked(self, preset: Preset) -> Checked:
        try:
            return await self.context.checks.check_with(self._standing(preset).image, preset, Overrides())
        except SparkError as error:
            return error

    def _alone(self, preset: Preset) -> Checked | None:
        """Without what the engines that run now have to do with it: the list speaks of the recipe."""
        checked = self._findings.get(preset.name)
        if checked is None or isinstance(checked, SparkError):
            return checked
        return tuple(finding for finding in checked if finding.id not in ABOUT_NOW)

    def _standing(self, preset: Preset) -> ImageStanding:
        return self._images.get(preset.reference, UNKNOWN_IMAGE)

    # --- show -----------------------------------------------------------------------------------------

    def _show(self) -> None:
        words = self.query_one("#filter", Input).value.lower().split()
        catalogue = self.spark.presets
        chosen = sorted((preset for preset in catalogue.presets if matches(preset, words)), key=order)
        rows = [
            preset_row(preset, self._standing(preset), self._alone(preset), self._fits.get(preset.name))
            for preset in chosen
        ]
        if not words:
            rows += [problem_row(index, problem) for index, problem in enumerate(catalogue.problems)]
        self.query_one(RowList).show(rows, Content(NO_MATCH if words else no_presets()))
        shown = f"{len(chosen)} of {len(catalogue.presets)}" if words else str(len(chosen))
        broken = f", {len(catalogue.problems)} unreadable" if catalogue.problems else ""
        entitle(self.query_one("#list-pane"), f"{shown}{broken}", below=True)
        self._show_selected()

    def _row(self, preset: Preset) -> Row:
        return preset_row(preset, self._standing(preset), self._alone(preset), self._fits.get(preset.name))

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
        number = int(key.removeprefix(PROBLEM))
        problems = self.spark.presets.problems
        return problems[number] if number < len(problems) else None

    def on_row_list_moved(self, _: RowList.Moved) -> None:
        """Another preset."""
        self._show_selected()

    def _show_selected(self) -> None:
        preset, problem = self.preset, self.problem
        pane = self.query_one("#preset-pane")
        about, command = self.query_one("#overview", Page), self.query_one("#command", Page)
        checks = self.query_one("#checks", Page)
        self._plan = None
        if preset is not None:
            entitle(pane, truncate(clean_line(preset.name), MAX_CELL))
            about.tell(overview(preset, self._standing(preset)))
            self._show_command(preset, command)
            checks.tell(check_parts(self._findings.get(preset.name)))
        else:
            entitle(pane, "Unreadable file" if problem is not None else "")
            about.tell(problem_page(problem) if problem is not None else ())
            command.tell(())
            checks.tell(())
        self._show_fit(preset)
        self._show_running()
        self.name_keys()
        key = self.query_one(RowList).key
        if key != self._shown:
            self._shown = key
            for page in self.query("#pages VerticalScroll"):
                page.scroll_home(animate=False)

    def _show_fit(self, preset: Preset | None) -> None:
        fit = self._fits.get(preset.name) if preset is not None else None
        self.query_one("#fit", Page).tell(fit_verdict_parts(fit) if preset is not None else ())
        self.query_one(FitBar).show(fit)
        self.query_one("#fit-figures", Page).tell(fit_figure_parts(fit))

    def offers(self, id_: str) -> bool:
        """Where no preset is chosen, none is launched or copied."""
        if id_ in ("launch_preset", "copy_command"):
            return self.preset is not None
        return super().offers(id_)

    def _show_command(self, preset: Preset, page: Page) -> None:
        """The command with the image's real entrypoint when it is here; else with the one that its name implies."""
        standing = self._standing(preset)
        try:
            plan = self.context.preflight.dry_plan(preset, Overrides(), standing.image)
            text = render_text(plan.spec)
        except SparkError as error:
            self._plan = error
            page.tell(failure_parts(error))
            return
        self._plan = plan
        page.tell(note_parts(plan, standing), text)

    def _show_running(self) -> None:
        """Where the container of this preset differs from what the preset says now."""
        preset, page = self.preset, self.query_one("#running", Page)
        if preset is None:
            page.tell(())
            return
        containers = tuple(view.container for view in self.engines())
        page.tell(running_page(self.context.preflight, preset, self._standing(preset).image, containers))

    # --- act ------------------------------------------------------------------------------------------

    def action_launch_preset(self) -> None:
        """Opens the launch form."""
        from spark_tui.tui.screens.launch_form import LaunchForm

        if self.preset is not None:
            self.app.push_screen(LaunchForm(self.context, self.preset), self._launched)
        elif self.problem is not None:
            again = key_of("reload_presets")
            self.notify(f"This file cannot be launched: mend it, then press {again}.", severity="warning", markup=False)

    def action_import_recipes(self) -> None:
        """Asks for a path, and shows what became of each recipe."""
        from spark_tui.tui.screens.import_form import ImportForm

        self.app.push_screen(ImportForm(self.context), lambda imported: self._imported(imported is True))

    def _imported(self, imported: bool) -> None:
        if imported:
            self.action_reload_presets()

    def action_apply_fixes(self) -> None:
        """The launch form with what ends the findings."""
        from spark_tui.tui.screens.launch_form import LaunchForm

        preset = self.preset
        checked = self._findings.get(preset.name) if preset is not None else None
        fixes = {} if checked is None or isinstance(checked, SparkError) else dict(fixes_of(checked))
        if preset is None or not fixes:
            self.notify("The checks propose no change here.", markup=False)
            return
        self.app.push_screen(LaunchForm(self.context, preset, fixes), self._launched)

    def _launched(self, name: str | None) -> None:
        if name:
            self.spark.selected = name
            self.spark.switch_mode("home")

    def action_copy_command(self) -> None:
        """The docker run text to the clipboard, just as it is."""
        if isinstance(self._plan, SparkError):
            self.spark.report(self._plan)
        elif self._plan is not None:
            self.app.copy_to_clipboard(render_text(self._plan.spec))
            self.notify("Copied: docker run ...", markup=False)

    def action_next_page(self) -> None:
        """The page to the right; the cursor stays in the list."""
        self._turn(1)

    def action_previous_page(self) -> None:
        """The page to the left."""
        self._turn(-1)

    def _turn(self, step: int) -> None:
        pages = self.query_one(TabbedContent)
        names = [str(pane.id) for pane in pages.query(TabPane)]
        pages.active = names[(names.index(pages.active) + step) % len(names)]

    def action_filter_presets(self) -> None:
        """Opens the filter."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def look_for(self, text: str, names: Sequence[str]) -> None:
        """Shows these presets, asked for by another screen: those that `text` finds, when it finds them all, else the
        first of them among all others."""
        wanted = [preset for preset in self.spark.presets.presets if preset.name in names]
        if not wanted:
            return
        found = all(matches(preset, text.lower().split()) for preset in wanted)
        box = self.query_one("#filter", Input)
        box.value = text if found else wanted[0].name if len(wanted) == 1 else ""
        box.display = bool(box.value)
        self._show()
        self.query_one(RowList).select(min(wanted, key=order).name)
        self.query_one(RowList).focus()

    def on_input_changed(self, _: Input.Changed) -> None:
        """The list follows the filter."""
        self._show()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Enter goes to the list; an empty filter goes away."""
        self._leave_filter(keep=True)

    def _leave_filter(self, *, keep: bool) -> None:
        box = self.query_one("#filter", Input)
        if not keep:
            box.value = ""
        box.display = bool(box.value)
        self.query_one(RowList).focus()

    def key_escape(self) -> None:
        """One step back: from the pages to the list, then without the filter, then Home."""
        box, presets = self.query_one("#filter", Input), self.query_one(RowList)
        if box.display and (box.has_focus or presets.has_focus):
            self._leave_filter(keep=False)
        elif not presets.has_focus:
            presets.focus()
        else:
            self.spark.switch_mode("home")

    def key_down(self) -> None:
        """From the filter into what it found."""
        if self.query_one("#filter", Input).has_focus:
            self.query_one(RowList).focus()

    def action_reload_presets(self) -> None:
        """Reads the folders again, and asks for the images again."""
        self.context.collectors.load_presets()
        self._looked_at = ()
        self._look_again()
        problems = len(self.context.store.world.presets.problems)
        self.notify(f"Presets read again{f', {problems} unreadable' if problems else ''}.", markup=False)
