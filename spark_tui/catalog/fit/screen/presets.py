"""Presets: a finder over every recipe, what is known about each, and the exact command that it becomes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.widget import Widget
from textual.widgets import Button

from spark_tui.base.actions import Scope, key_of
from spark_tui.base.engine.docker_run import render_text
from spark_tui.base.engine.image import digest_of
from spark_tui.base.errors import PresetError, SparkError, UnreachableError
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.page import Page as Sections
from spark_tui.base.page import Section
from spark_tui.base.quantities import ago
from spark_tui.catalog.fit.screen.bar import FitBar
from spark_tui.catalog.fit.show import presets as present
from spark_tui.catalog.fit.show.launch import deviations_page, fit_figures, fit_verdict
from spark_tui.catalog.fit.show.preset_files import last_good_rows, pin_page, running_page
from spark_tui.catalog.fit.show.presets import MARKS, PROBLEM, ImageStatus
from spark_tui.catalog.fit.use.finder import SORTS, PresetFinder, Search, matches, order
from spark_tui.catalog.fit.use.recommend import Candidate
from spark_tui.catalog.presets.feature import LIBRARY
from spark_tui.catalog.presets.model.overrides import Overrides, pairs_of
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import PRESETS, Preset
from spark_tui.catalog.presets.use.comparing import preset_diff
from spark_tui.catalog.presets.use.library import Library
from spark_tui.catalog.presets.use.pins import Pins
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.catalog.presets.use.rights import load_presets
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.metrics.use.history import History
from spark_tui.observe.results.feature import PROOFS
from spark_tui.tui.form_screen import FORM_CSS, FormField, FormScreen, Given
from spark_tui.tui.format import key_hints, pressable
from spark_tui.tui.frame import acting, bindings
from spark_tui.tui.list_screen import LIST_CSS, ListScreen
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.textual_private import QuietModal
from spark_tui.tui.widgets.line import Line, packed
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import RowList
from spark_tui.tui.yank import Yank

RAIL_COLUMNS = 150
"""A terminal that is so wide has a third pane."""
_ACTIONS_OF_PARTS = (
    "judge_launch", "judge_launch", "next_use", "only_tools", "only_vision", "only_on_disk", "only_fitting",
    "limit_need", "sort_presets",
)  # fmt: skip
"""The action of each part of `present.asked`."""


MOST_COMPARED = 160
COMPARED_FRAME = 22
"""Cells of the comparison's frame and labels."""


def no_presets() -> str:
    """The text of an empty list."""
    return f"No presets. Put recipes (*.yaml) in the presets folder, then press {key_of('reload_presets')}."


class FinderBar(Line):
    """What the list is searched for, each part with its keys; parts that are set stand out."""

    search = Search()

    def say(self, width: int) -> Content:
        parts = [
            pressable(
                Content.assemble((key_of(id_), "bold $primary"), " ", (text, "bold $accent" if is_set else "$dim")),
                f"screen.{id_}",
            )
            for (text, is_set), id_ in zip(present.asked(self.search), _ACTIONS_OF_PARTS, strict=True)
        ]
        return Content("\n").join(packed(parts, Content("  "), width))


class CompareScreen(QuietModal[None]):
    """Up to three presets side by side."""

    CSS_PATH = "presets.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,C,q", "close", "Back")]

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        super().__init__()
        self._candidates = tuple(candidates)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="comparison") as dialog:
            dialog.border_title = "Compare presets"
            dialog.border_subtitle = key_hints("Up, Down scroll  Esc back")
            with VerticalScroll():
                yield Page(id="compared")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def on_resize(self) -> None:
        """Columns of one width."""
        room = min(self.app.size.width * 95 // 100, MOST_COMPARED) - COMPARED_FRAME
        self.query_one(Page).show(present.comparison(self._candidates, room // len(self._candidates) - 2))

    def action_close(self) -> None:
        self.dismiss(None)


class JudgeForm(FormScreen[Search]):
    """Context and users of the launch that all presets are judged as."""

    CSS_PATH: ClassVar = [FORM_CSS, "presets.tcss"]
    VERB = "Judge"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Judge")]
    HORIZONTAL_BREAKPOINTS = [(0, "-normal")]  # noqa: RUF012 - Textual's shape

    def __init__(self, search: Search) -> None:
        self._search = search
        context = next((text for text, tokens in present.CONTEXTS.items() if tokens == search.context), "")
        help_, unset = "Left and Right choose, or type it", "as preset"
        fields = (
            FormField("context", "context", help_, unset, choices=tuple(present.CONTEXTS)),
            FormField("users", "users at once", help_, unset, choices=present.USERS),
        )
        super().__init__("Judge presets", fields, Given({"context": context, "users": str(search.users or "")}))

    def check(self) -> Mapping[str, SparkError]:
        return {}

    def keys(self) -> tuple[tuple[str, str], ...]:
        return (("Enter", "judge"), ("^r", "reset"), ("Esc", "back"))

    def preview(self) -> None:
        """Nothing: the list shows it."""

    def submit(self) -> None:
        context, users = present.CONTEXTS.get(self.texts.get("context", "")), self.texts.get("users")
        self.dismiss(replace(self._search, context=context, users=int(users) if users else None))


class PageQuestion(ConfirmScreen):
    """Shows a page, and asks before something is done. `other` is one more answer, with the key `b`: then the answer is
    no, and `other_chosen` is set."""

    CONFIRMS = (*ConfirmScreen.CONFIRMS, "b")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("b", "other", "Other", show=False)]

    def __init__(self, question: str, page: Sections, verb: str, *, other: str = "") -> None:
        super().__init__(question, "", verb=verb)
        self._page = page
        self._other = other
        self.other_chosen = False

    def extra(self) -> Iterable[Widget]:
        yield Page(id="asked-page")

    def on_mount(self) -> None:
        self.query_one("#asked-page", Page).show(self._page)
        if self._other:
            self.query_one(".dialog-buttons").mount(Button(f"{self._other} (b)", id="other"), after="#yes")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "other":
            event.prevent_default()
            self.action_other()

    def action_other(self) -> None:
        if self._other:
            self.other_chosen = True
            self.dismiss(False)


class PresetsScreen(ListScreen):
    """The list, and the selected preset's pages."""

    SCOPE = Scope.PRESETS
    TAB = "show_presets"
    CSS_PATH: ClassVar = [LIST_CSS, Path(__file__).with_name("presets.tcss")]
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.PRESETS)
    AUTO_FOCUS = "#preset-list"
    LIST = "preset-list"
    LIST_TITLE = "Presets"
    FILTER = "filter: name, use, tag, family, model, image, notes"
    PAGES = (
        ("overview", "Overview"),
        ("command", "Command"),
        ("checks", "Checks"),
        ("fit", "Fit"),
        ("running", "Running"),
    )

    action_filter_presets = ListScreen.action_filter
    action_next_page = ListScreen.action_next_tab
    action_previous_page = ListScreen.action_previous_tab

    def compose_body(self) -> ComposeResult:
        yield FinderBar(id="finder-bar")
        yield from super().compose_body()

    def compose_page(self, name: str) -> ComposeResult:
        """Overview and fit have a bar below the verdict."""
        yield Page(id=name, dense=name == "overview")
        if name == "overview":
            yield FitBar(self.spark.glyphs, sequences=True, id="overview-bar")
            yield Page(id="overview-more", dense=True)
        if name == "fit":
            yield FitBar(self.spark.glyphs, id="fit-bar")
            yield Page(id="fit-figures")

    def compose_rail(self) -> ComposeResult:
        with Container(id="rail", classes="pane") as rail:
            rail.border_title = "Launch"
            with VerticalScroll(id="rail-scroll"):
                yield Page(id="rail-fit", dense=True)
                yield FitBar(self.spark.glyphs, sequences=True, id="rail-bar")
                yield Page(id="rail-more", dense=True)

    def on_mount(self) -> None:
        """Binds the list to the catalogue, and to what may change what a launch of a preset comes to."""
        self._plan: LaunchPlan | SparkError | None = None
        self._images: dict[str, ImageStatus] = {}
        self._candidates: dict[str, Candidate] = {}
        self._marked: list[str] = []
        self._seen: tuple[object, ...] = ()
        self._search = Search()
        self.bind_slices((PRESETS,), self._catalogue_changed)
        self.bind_slices(("docker", "jobs", "identity"), self._check_again)
        self.bind_slices((ENGINES,), self._engines_changed)
        self.bind_slices((LIBRARY, PROOFS), self.show_rows)

    def on_resize(self, event: Resize) -> None:
        wide = self.app.size.width >= RAIL_COLUMNS
        if wide is not self.has_class("-rail"):
            self.set_class(wide, "-rail")
            self.show_selected()

    # --- images, checks, fit --------------------------------------------------------------------------

    def _catalogue_changed(self) -> None:
        self.show_rows()
        self._check_again()

    def _engines_changed(self) -> None:
        self._check_again()
        self._show_running()

    def _check_again(self) -> None:
        """Asks for the images and judges again when the answer may be another: presets, Docker, a launch ended, an
        engine came or went."""
        ended = tuple(job.id for job in self.world.jobs if job.state.over)
        running = frozenset(view.name for view in self.world.known(ENGINES) if view.container.running)
        seen = (self.world[PRESETS], isinstance(self.world.docker, Ok), ended, self.world.identity, running)
        if seen != self._seen:
            self._seen = seen
            self.context[PresetFinder].forget()
            self._read_images()

    @work(exit_on_error=False, exclusive=True, group="images")
    async def _read_images(self) -> None:
        """One question per image; a Docker that does not answer is asked once. Then the model store, and the fit."""
        found: dict[str, ImageStatus] = {}
        references = dict.fromkeys(preset.reference for preset in self.world[PRESETS].presets)
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
        if self.context.ports.has("models"):
            await self.context[Library].refresh()
        self._judge_all()

    @work(exit_on_error=False, exclusive=True, group="checks")
    async def _judge_all(self) -> None:
        """The launch that is asked about of every preset, the ones found first, one at a time: keys go first."""
        await self.context[History].load()  # the page names the last good start
        names = [*self.rows.ids, *(each.name for each in self.world[PRESETS].presets)]
        for name in dict.fromkeys(names):
            preset = self.world[PRESETS].get(name)
            if preset is not None:
                await self.context[PresetFinder].judge(preset, self._search, self._image(preset).image)
                self.repaint_soon()
                await asyncio.sleep(0)
        self.show_rows()

    def _image(self, preset: Preset) -> ImageStatus:
        return self._images.get(preset.reference, ImageStatus())

    # --- show -----------------------------------------------------------------------------------------

    def show_rows(self) -> None:
        """The presets that are found, in order; while nothing narrows them also the unreadable files."""
        catalogue = self.world[PRESETS]
        search = replace(self._search, words=tuple(self.filter_words))
        candidates = self.context[PresetFinder].candidates(self.context.store.world, search)
        self._candidates = {each.preset.name: each for each in candidates}
        found = search.of(candidates)
        problems = catalogue.problems if not search.narrowed else ()
        empty = present.no_match(search) if search.narrowed else no_presets()
        self.rows.show_table(present.list_table(found, problems, empty, search=search, marked=self._marked))
        bar = self.query_one(FinderBar)
        bar.search = search
        bar.renew()
        broken = f", {len(catalogue.problems)} unreadable" if catalogue.problems else ""
        own = f"   {present.OWN_SPEED} measured here" if any(each.own_speed for each in found) else ""
        waiting = sum(each.judged is None for each in candidates)
        judging = f"   judging {len(candidates) - waiting} of {len(candidates)}" if waiting else ""
        self.show_count(len(found), len(catalogue.presets), broken + own + judging)
        self.show_selected()

    @property
    def candidate(self) -> Candidate | None:
        """The one under the cursor."""
        return self._candidates.get(self.rows.key)

    @property
    def preset(self) -> Preset | None:
        """The preset under the cursor."""
        return self.world[PRESETS].get(self.rows.key)

    @property
    def problem(self) -> PresetError | None:
        """The unreadable file under the cursor."""
        key, problems = self.rows.key, self.world[PRESETS].problems
        number = int(key.removeprefix(PROBLEM)) if key.startswith(PROBLEM) else len(problems)
        return problems[number] if number < len(problems) else None

    def show_selected(self) -> None:
        """The pages of the preset, or what is wrong with the file."""
        preset, problem = self.preset, self.problem
        self._plan = None
        names = ("overview", "overview-more", "command", "checks", "fit", "fit-figures", "rail-fit", "rail-more")
        pages: dict[str, Sections] = dict.fromkeys(names, ())
        found = self.candidate
        verdict = found.verdict if found is not None else None
        fit = verdict.fit if verdict is not None else None
        if preset is not None and found is not None:
            pages["command"] = self._command(preset)
            about, facts, *more = present.overview(
                preset, self._image(preset), found, self._proof(preset), found.drift, self._last_good(preset)
            )
            more = [*more, facts, *present.recipe_values(preset)]  # the end may be out of sight
            pages["overview"], pages["overview-more"] = (about,), tuple(more)
            refused = present.refusal(found.judged) if isinstance(found.judged, SparkError) else fit_verdict(fit)
            if not self.has_class("-rail"):
                rows = tuple(row for section in refused for row in section.rows)
                pages["overview"] = (about, Section(rows=rows))
                pages["overview-more"] = (*more, *pages["command"])
            pages["checks"] = present.checks_page(found.checked)
            pages["fit"] = pages["rail-fit"] = refused
            pages["rail-more"] = (*present.speeds(preset), *pages["command"])
        elif problem is not None:
            pages["overview"] = present.problem_page(problem)
        if fit is not None:
            pages["fit-figures"] = fit_figures(fit)
        for name, sections in pages.items():
            self.page(name).show(sections)
        for bar in self.query(FitBar):
            bar.show(fit)
        self._show_running()
        self.show_title(preset.name if preset is not None else "Unreadable file" if problem is not None else "")
        self.name_keys()

    def _proof(self, preset: Preset) -> str:
        badge = self._candidates[preset.name].proof
        return f"{badge.text}, {ago(self.context.clock.now() - badge.proof.at)}" if badge is not None else ""

    def _last_good(self, preset: Preset) -> tuple[tuple[str, str], ...]:
        """Nothing for a preset that has not served yet: the page is short."""
        status = self._image(preset)
        image = Ok(status.image, 0.0) if status.known else Missing(status.why)
        last = self.context[Pins].last_good(preset, image)
        return last_good_rows(last, key_of("pin_preset")) if last.start is not None else ()

    def _command(self, preset: Preset) -> Sections:
        """The command with the image's real entrypoint when it is downloaded; else with the one that its name
        implies."""
        image = self._image(preset)
        found = self._candidates[preset.name].verdict
        wanted = found.plan.overrides if found is not None else self._search.overrides(preset)
        try:
            if found is not None and found.plan.image == image.image:
                plan = found.plan
            else:
                plan = self.context[Preflight].dry_plan(preset, wanted, image.image)
            text = render_text(plan.spec)
        except SparkError as error:
            self._plan = error
            return present.refusal(error)
        self._plan = plan
        return (*present.plan_notes(plan, image), Section(command=text), *deviations_page(plan))

    def _show_running(self) -> None:
        """Where the container of this preset differs from what the preset says now."""
        preset, page = self.preset, self.page("running")
        if preset is None:
            page.show(())
            return
        containers = tuple(view.container for view in self.world.known(ENGINES))
        try:
            found = preset_diff(self.context[Preflight], preset, Overrides(), self._image(preset).image, containers)
        except SparkError as error:
            page.show(present.refusal(error))
        else:
            page.show(running_page(found))

    def offers(self, id_: str) -> bool:
        """Where no preset is chosen, none is launched or copied; a fix is offered where there is one."""
        if id_ in ("launch_preset", "pin_preset", "update_preset", "yank"):
            return self.preset is not None
        if id_ == "apply_fixes":
            return bool(self._fixes())
        if id_ == "compare_presets":
            return len(self._marked) > 1
        return super().offers(id_)

    def look_for(self, text: str, names: Sequence[str]) -> None:
        """Shows these presets, asked for by another screen: those that `text` finds, when it finds them all, else the
        first of them among all others."""
        wanted = [preset for preset in self.world[PRESETS].presets if preset.name in names]
        if wanted:
            found = all(matches(preset, text.lower().split()) for preset in wanted)
            self._search = Search()
            self.set_filter(text if found else wanted[0].name if len(wanted) == 1 else "")
            self.show_rows()
            self.rows.select(min(wanted, key=order).name)
            self.rows.focus()

    # --- keys -----------------------------------------------------------------------------------------

    def _ask(self, **changes: object) -> None:
        """Searches for something else, and judges what was not judged yet."""
        before, self._search = self._search, replace(self._search, **changes)
        if self._search == before:
            return
        self.show_rows()
        if (before.context, before.users) != (self._search.context, self._search.users):
            self._judge_all()

    def action_sort_presets(self) -> None:
        columns = list(SORTS)
        following = columns[(columns.index(self._search.sort) + 1) % len(columns)]
        self._ask(sort=following, reverse=False)
        self.rows.cursor = 0

    def action_reverse_presets(self) -> None:
        self._ask(reverse=not self._search.reverse)
        self.rows.cursor = 0

    def on_row_list_title_pressed(self, message: RowList.TitlePressed) -> None:
        """A click on a column's title sorts by it, a second one the other way round."""
        column = list(present.COLUMNS)[message.column]
        if column in SORTS:
            self._ask(sort=column, reverse=column == self._search.sort and not self._search.reverse)

    def action_next_use(self) -> None:
        """After the last use comes any."""
        at = present.USES.index(self._search.tags)
        self._ask(tags=present.USES[(at + 1) % len(present.USES)])

    def action_judge_launch(self) -> None:
        """Asks for the context and the users that all presets are judged with."""

        def judged(found: Search | None) -> None:
            if found is not None:
                self._ask(context=found.context, users=found.users)

        self.app.push_screen(self.spark.make_screen("judge_form", self._search), judged)

    def action_only_tools(self) -> None:
        self._ask(tools=not self._search.tools)

    def action_only_vision(self) -> None:
        self._ask(vision=not self._search.vision)

    def action_only_on_disk(self) -> None:
        self._ask(on_disk=not self._search.on_disk)

    def action_only_fitting(self) -> None:
        self._ask(fits=not self._search.fits)

    def action_limit_need(self) -> None:
        """After the last limit comes none."""
        at = present.NEEDS.index(self._search.most_bytes)
        self._ask(most_bytes=present.NEEDS[(at + 1) % len(present.NEEDS)])

    def action_mark_preset(self) -> None:
        """Marks it, or takes the mark away; of four the oldest mark goes."""
        if self.preset is None:
            return
        name = self.preset.name
        if name in self._marked:
            self._marked.remove(name)
        else:
            self._marked = [*self._marked[-len(MARKS) + 1 :], name]
        self.show_rows()

    def action_compare_presets(self) -> None:
        found = [self._candidates[name] for name in self._marked if name in self._candidates]
        if len(found) < 2:
            self.notify(f"Mark two or three presets with {key_of('mark_preset')}.", markup=False)
        else:
            self.app.push_screen(self.spark.make_screen("compare_presets", found))

    def action_launch_preset(self) -> None:
        """Opens the launch form, with the context and the users that are asked about."""
        if self.preset is not None:
            self._open_form(self.preset, {})
        elif self.problem is not None:
            reload = key_of("reload_presets")
            self.notify(f"Unreadable file. Fix it, then press {reload}.", severity="warning", markup=False)

    def _open_form(self, preset: Preset, changes: dict[str, str]) -> None:
        given = pairs_of(self._search.overrides(preset)) | changes
        self.app.push_screen(self.spark.make_screen("launch_form", self.context, preset, given), self.spark.launched)

    def _fixes(self) -> dict[str, str]:
        """What makes the launch of the selected preset fit, and ends the findings."""
        verdict = self.candidate.verdict if self.candidate is not None else None
        return {} if verdict is None else present.changes_of(verdict.findings) | dict(verdict.fit.change)

    def action_apply_fixes(self) -> None:
        """The launch form with these changes."""
        fixes = self._fixes()
        if self.preset is None or not fixes:
            self.notify("Nothing to fix: fit and checks suggest no change.", markup=False)
        else:
            self._open_form(self.preset, fixes)

    @acting("pin")
    async def action_pin_preset(self) -> None:
        """Shows the change of the file, and writes it on consent; of a pinned preset, back to the tag."""
        preset, pins = self.preset, self.context[Pins]
        if preset is None:
            return
        pinned = bool(digest_of(preset.reference))
        await self.context[History].load()
        plan = pins.unpin_plan(preset) if pinned else await pins.plan(preset)
        verb = "Unpin" if pinned else "Pin"
        if await self.app.push_screen_wait(PageQuestion(f"{verb} {preset.name}?", pin_page(plan), verb)):
            found = pins.apply(plan)
            self.notify(f"{found.name}: {found.reference}\n{found.file}", markup=False)

    def action_import_recipes(self) -> None:
        """Asks for a path, and shows what became of each recipe."""

        def imported(any_: bool | None) -> None:
            if any_:
                self.action_reload_presets()

        self.app.push_screen(self.spark.make_screen("import_form", self.context), imported)

    def yanks(self) -> tuple[Yank, ...]:
        preset, plan = self.preset, self._plan
        if preset is None:
            return ()
        command = [Yank("Command", "c", render_text(plan.spec))] if isinstance(plan, LaunchPlan) else []
        return (*command, Yank("Model", "m", preset.model), Yank("Image", "i", preset.image))

    def action_reload_presets(self) -> None:
        """Reads the folders again, and asks for the images again."""
        load_presets(self.context)
        self._seen = ()
        self._check_again()
        problems = len(self.context.store.world[PRESETS].problems)
        self.notify(f"Presets reloaded{f', {problems} unreadable' if problems else ''}.", markup=False)
