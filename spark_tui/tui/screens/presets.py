"""Presets: every recipe, what is known about it, and the exact command that it becomes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from spark_tui.core.actions import Scope, key_of
from spark_tui.core.preflight import preset_diff
from spark_tui.domain.engine.docker_run import render_text
from spark_tui.domain.errors import PresetError, SparkError, UnreachableError
from spark_tui.domain.presets.fit import Fit
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.reading import Ok
from spark_tui.present import presets as present
from spark_tui.present.launch import fit_figures, fit_verdict
from spark_tui.present.page import Page as Sections
from spark_tui.present.page import Section
from spark_tui.present.presets import PROBLEM, Checked, ImageStatus, PresetEntry
from spark_tui.tui.frame import bindings
from spark_tui.tui.list_screen import ListScreen
from spark_tui.tui.screen_table import make_screen
from spark_tui.tui.widgets.fit_bar import FitBar
from spark_tui.tui.widgets.page import Page

NO_MATCH = "No preset matches. Esc clears the filter."


def no_presets() -> str:
    """The text of an empty list."""
    return f"No presets. Put recipe files (*.yaml) into the presets folder, then press {key_of('reload_presets')}."


class PresetsScreen(ListScreen):
    """The list, and the selected preset's pages."""

    SCOPE = Scope.PRESETS
    TAB = "show_presets"
    CSS_PATH: ClassVar = ["list_screen.tcss", "presets.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.PRESETS)
    AUTO_FOCUS = "#preset-list"
    LIST = "preset-list"
    LIST_TITLE = "Presets"
    FILTER = "filter: name, family, quantization, model, image"
    PAGES = (
        ("overview", "Overview"), ("command", "Command"), ("checks", "Checks"), ("fit", "Fit"), ("running", "Running")
    )  # fmt: skip

    action_filter_presets = ListScreen.action_filter
    action_next_page = ListScreen.action_next_tab
    action_previous_page = ListScreen.action_previous_tab

    def compose_page(self, name: str) -> ComposeResult:
        """The fit has a bar between its verdict and its figures."""
        yield Page(id=name)
        if name == "fit":
            yield FitBar(self.spark.glyphs, id="fit-bar")
            yield Page(id="fit-figures")

    def on_mount(self) -> None:
        """Binds the list to the catalogue, and to what may change which images are downloaded."""
        self._plan: LaunchPlan | SparkError | None = None
        self._images: dict[str, ImageStatus] = {}
        self._checked: dict[str, Checked] = {}
        self._fits: dict[str, Fit] = {}
        self._seen: tuple[object, ...] = ()
        self.bind_slice("presets", lambda _: self._catalogue_changed())
        for name in ("docker", "jobs", "identity"):
            self.bind_slice(name, lambda _: self._check_again())
        self.bind_slice("engines", lambda _: self._engines_changed())

    # --- images, checks, fit --------------------------------------------------------------------------

    def _catalogue_changed(self) -> None:
        self.show_rows()
        self._check_again()

    def _engines_changed(self) -> None:
        self._check_again()
        self._show_running()

    def _check_again(self) -> None:
        """Asks for the images and checks again when the answer may be another: presets, Docker, a launch ended, an
        engine came or went."""
        ended = tuple(job.id for job in self.spark.jobs if job.state.over)
        running = frozenset(view.name for view in self.engines() if view.container.running)
        seen = (self.spark.presets, isinstance(self.spark.docker, Ok), ended, self.spark.identity, running)
        if seen != self._seen:
            self._seen = seen
            self._read_images()

    @work(exit_on_error=False, exclusive=True, group="images")
    async def _read_images(self) -> None:
        """One question per image; a Docker that does not answer is asked once."""
        found: dict[str, ImageStatus] = {}
        references = dict.fromkeys(preset.reference for preset in self.spark.presets.presets)
        for reference in references:
            try:
                found[reference] = ImageStatus(True, await self.context.docker.image(reference))
            except UnreachableError as error:
                found |= {left: ImageStatus(why=error.summary) for left in references if left not in found}
                break
            except SparkError as error:
                found[reference] = ImageStatus(why=error.summary)
        if found != self._images:
            self._images = found
            self.show_rows()
        self._check_all()

    @work(exit_on_error=False, exclusive=True, group="checks")
    async def _check_all(self) -> None:
        """The rules and the fit of every preset, one at a time: keys go first."""
        checked: dict[str, Checked] = {}
        fits: dict[str, Fit] = {}
        for preset in self.spark.presets.presets:
            try:
                image = self._image(preset).image
                checked[preset.name] = await self.context.checks.check_with(image, preset, Overrides())
            except SparkError as error:
                checked[preset.name] = error
            with contextlib.suppress(SparkError):  # the Checks page shows it
                fits[preset.name] = await self.context.checks.fit(preset, Overrides())
            await asyncio.sleep(0)
        if (checked, fits) != (self._checked, self._fits):
            self._checked, self._fits = checked, fits
            self.show_rows()

    def _image(self, preset: Preset) -> ImageStatus:
        return self._images.get(preset.reference, ImageStatus())

    # --- show -----------------------------------------------------------------------------------------

    def show_rows(self) -> None:
        """All presets that the filter finds; without one also the unreadable files."""
        words, catalogue = self.filter_words, self.spark.presets
        chosen = sorted((preset for preset in catalogue.presets if present.matches(preset, words)), key=present.order)
        entries = [
            PresetEntry(each, self._image(each), self._checked.get(each.name), self._fits.get(each.name))
            for each in chosen
        ]
        problems = catalogue.problems if not words else ()
        empty = NO_MATCH if words else no_presets()
        self.rows.show_table(present.list_table(entries, problems, empty))
        broken = f", {len(catalogue.problems)} unreadable" if catalogue.problems else ""
        self.show_count(len(chosen), len(catalogue.presets), broken)
        self.show_selected()

    @property
    def preset(self) -> Preset | None:
        """The preset under the cursor."""
        return self.spark.presets.get(self.rows.key)

    @property
    def problem(self) -> PresetError | None:
        """The unreadable file under the cursor."""
        key, problems = self.rows.key, self.spark.presets.problems
        number = int(key.removeprefix(PROBLEM)) if key.startswith(PROBLEM) else len(problems)
        return problems[number] if number < len(problems) else None

    def show_selected(self) -> None:
        """The pages of the preset, or what is wrong with the file."""
        preset, problem = self.preset, self.problem
        self._plan = None
        pages: dict[str, Sections] = dict.fromkeys(("overview", "command", "checks", "fit", "fit-figures"), ())
        fit = self._fits.get(preset.name) if preset is not None else None
        if preset is not None:
            pages["overview"] = present.overview(preset, self._image(preset))
            pages["command"] = self._command(preset)
            pages["checks"] = present.checks_page(self._checked.get(preset.name))
            pages["fit"] = fit_verdict(fit)
        elif problem is not None:
            pages["overview"] = present.problem_page(problem)
        if fit is not None:
            pages["fit-figures"] = fit_figures(fit)
        for name, sections in pages.items():
            self.page(name).show(sections)
        self.query_one(FitBar).show(fit)
        self._show_running()
        self.show_title(preset.name if preset is not None else "Unreadable file" if problem is not None else "")
        self.name_keys()

    def _command(self, preset: Preset) -> Sections:
        """The command with the image's real entrypoint when it is downloaded; else with the one that its name
        implies."""
        image = self._image(preset)
        try:
            plan = self.context.preflight.dry_plan(preset, Overrides(), image.image)
            text = render_text(plan.spec)
        except SparkError as error:
            self._plan = error
            return present.refusal(error)
        self._plan = plan
        return (*present.plan_notes(plan, image), Section(command=text))

    def _show_running(self) -> None:
        """Where the container of this preset differs from what the preset says now."""
        preset, page = self.preset, self.page("running")
        if preset is None:
            page.show(())
            return
        containers = tuple(view.container for view in self.engines())
        try:
            found = preset_diff(self.context.preflight, preset, Overrides(), self._image(preset).image, containers)
        except SparkError as error:
            page.show(present.refusal(error))
        else:
            page.show(present.running_page(found))

    def offers(self, id_: str) -> bool:
        """Where no preset is chosen, none is launched or copied."""
        if id_ in ("launch_preset", "copy_command"):
            return self.preset is not None
        return super().offers(id_)

    def look_for(self, text: str, names: Sequence[str]) -> None:
        """Shows these presets, asked for by another screen: those that `text` finds, when it finds them all, else the
        first of them among all others."""
        wanted = [preset for preset in self.spark.presets.presets if preset.name in names]
        if wanted:
            found = all(present.matches(preset, text.lower().split()) for preset in wanted)
            self.set_filter(text if found else wanted[0].name if len(wanted) == 1 else "")
            self.show_rows()
            self.rows.select(min(wanted, key=present.order).name)
            self.rows.focus()

    # --- keys -----------------------------------------------------------------------------------------

    def action_launch_preset(self) -> None:
        """Opens the launch form."""
        if self.preset is not None:
            self.app.push_screen(make_screen("launch_form", self.context, self.preset), self._launched)
        elif self.problem is not None:
            reload = key_of("reload_presets")
            self.notify(f"Unreadable file. Fix it, then press {reload}.", severity="warning", markup=False)

    def action_apply_fixes(self) -> None:
        """The launch form with what ends the findings."""
        preset = self.preset
        checked = self._checked.get(preset.name) if preset is not None else None
        changes = {} if checked is None or isinstance(checked, SparkError) else present.changes_of(checked)
        if preset is None or not changes:
            self.notify("The checks suggest no change.", markup=False)
        else:
            self.app.push_screen(make_screen("launch_form", self.context, preset, changes), self._launched)

    def _launched(self, name: str | None) -> None:
        if name:
            self.spark.selected = name
            self.spark.switch_mode("home")

    def action_import_recipes(self) -> None:
        """Asks for a path, and shows what became of each recipe."""

        def imported(any_: bool | None) -> None:
            if any_:
                self.action_reload_presets()

        self.app.push_screen(make_screen("import_form", self.context), imported)

    def action_copy_command(self) -> None:
        """The docker run text to the clipboard, just as it is."""
        if isinstance(self._plan, SparkError):
            self.spark.report(self._plan)
        elif self._plan is not None:
            self.app.copy_to_clipboard(render_text(self._plan.spec))
            self.notify("Copied: docker run ...", markup=False)

    def action_reload_presets(self) -> None:
        """Reads the folders again, and asks for the images again."""
        self.context.collectors.load_presets()
        self._seen = ()
        self._check_again()
        problems = len(self.context.store.world.presets.problems)
        self.notify(f"Presets reloaded{f', {problems} unreadable' if problems else ''}.", markup=False)
