"""The launch form: a preset's values, what the person changes, and the command that results, as they type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Button, Input, Static

from spark_tui.core.context import Context
from spark_tui.core.launch import LaunchRequest
from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.presets.docker_run import render_text
from spark_tui.domain.presets.plan import LaunchPlan, Overrides, overrides_from_pairs
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.presets.stated import stated_by
from spark_tui.domain.text import clean_line, truncate
from spark_tui.tui.screens.launch_fields import NEEDED, WRONG, FieldRow, fields_of, proposed
from spark_tui.tui.screens.launch_judgement import JUDGE_SECONDS, Judgement, judge, judgement_parts
from spark_tui.tui.screens.launch_model import ModelStanding, model_parts, stand
from spark_tui.tui.screens.modals import ConfirmScreen
from spark_tui.tui.screens.preset_verdicts import LABEL_WIDTH, failure_parts
from spark_tui.tui.screens.preset_words import UNKNOWN_IMAGE, ImageStanding, note_parts
from spark_tui.tui.widgets.page import Page, sentence, told

MAX_TITLE = 60


class LaunchForm(ModalScreen[str | None]):
    """Answers the container's name when a launch has begun, None when the person went back."""

    CSS_PATH = "launch_form.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-normal"), (160, "-wide")]  # noqa: RUF012 - Textual's shape
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+l", "launch", "Launch", priority=True),
        Binding("ctrl+f", "fetch", "Fetch the model, or not", show=False, priority=True),
        Binding("escape", "close", "Back"),
        Binding("down", "app.focus_next", "Next field", show=False, priority=True),
        Binding("up", "app.focus_previous", "Previous field", show=False, priority=True),
        Binding("pagedown", "scroll_preview(1)", "Command down", show=False, priority=True),
        Binding("pageup", "scroll_preview(-1)", "Command up", show=False, priority=True),
    ]

    def __init__(self, context: Context, preset: Preset, changes: Mapping[str, str] | None = None) -> None:
        """`changes` are written into the fields to begin with; one that has no field gets one."""
        super().__init__()
        self._core = context
        self._preset = preset
        fields = fields_of(preset, self._stated())
        known = {field.key for field in fields}
        added = [proposed(key) for key in changes or {} if key not in known]
        self._rows = tuple(FieldRow(field) for field in (*added, *fields))
        for row in self._rows:
            row.input.value = (changes or {}).get(row.field.key, "")
        self._standing = UNKNOWN_IMAGE
        self._model: ModelStanding | None = None
        self._judging: Timer | None = None
        self._plan: LaunchPlan | None = None
        self.judgement: Judgement | None = None
        """Fit and checks of the values as they stand; None while they are worked out."""
        self.overrides = Overrides()
        self.fetch = True
        """The launch brings what is missing of the model; else the engine does."""
        self.problem: SparkError | None = None
        """Why it cannot be launched as it stands; None when it can."""

    def compose(self) -> ComposeResult:
        """Fields on the left, the command on the right (below, when it is narrow)."""
        with Vertical(classes="dialog", id="form") as dialog:
            dialog.border_title = Content(f"Launch {truncate(clean_line(self._preset.name), MAX_TITLE)}")
            dialog.border_subtitle = "^l launch   Esc back   Enter, arrows: next field   PgDn command"
            with Horizontal(id="form-columns"):
                with VerticalScroll(id="fields", can_focus=False):
                    yield from self._rows
                with VerticalScroll(id="preview-scroll", can_focus=False):
                    yield Page(LABEL_WIDTH, id="preview")
            with Horizontal(id="form-foot"):
                yield Button("Launch", id="launch", variant="primary", compact=True)
                yield Static(id="form-status")

    def on_mount(self) -> None:
        """Shows the command as the preset has it."""
        first = next((row for row in self._rows if row.field.needed or row.field.key == "port"), self._rows[0])
        first.input.focus()
        self._renew()
        self._look_at_image()

    @work(exit_on_error=False, exclusive=True, group="image")
    async def _look_at_image(self) -> None:
        """The image's real entrypoint decides the command; without Docker its name does."""
        try:
            self._standing = ImageStanding(True, await self._core.docker.image(self._preset.reference))
        except SparkError as error:
            self._standing = ImageStanding(why=error.summary)
        self._renew()

    def _stated(self) -> Mapping[str, str]:
        """What the preset's command says by itself; nothing where it cannot be planned as it is."""
        try:
            return stated_by(self._core.preflight.dry_plan(self._preset, Overrides()))
        except SparkError:
            return {}

    # --- validate -------------------------------------------------------------------------------------

    def on_input_changed(self, _: Input.Changed) -> None:
        """Checks and shows at every key."""
        self._renew()

    def _pairs(self) -> dict[str, str]:
        return {row.field.key: row.text for row in self._rows if row.text}

    def _renew(self) -> None:
        """Judges every field alone, then all of them together, and shows what they come to."""
        wrong = {row.field.key: problem for row in self._rows if (problem := _problem_alone(row))}
        self.problem = next(iter(wrong.values()), None)
        plan = None if wrong else self._planned()
        if plan is None and not wrong and self.problem is not None:
            culprit = self._culprit()
            if culprit is not None:
                wrong[culprit.field.key] = self.problem
        for row in self._rows:
            problem = wrong.get(row.field.key)
            row.judge("" if problem is None else str(problem))
            if problem is not None and row.input.has_focus:
                self.call_after_refresh(row.scroll_visible, animate=False)
        self._plan = plan
        self._judge_soon()
        self._show(plan, blamed=bool(wrong))

    def _planned(self) -> LaunchPlan | None:
        try:
            self.overrides = overrides_from_pairs(self._pairs())
            plan = self._core.preflight.dry_plan(self._preset, self.overrides, self._standing.image)
            render_text(plan.spec)
        except SparkError as error:
            self.problem = error
            return None
        return plan

    # --- fit and checks -------------------------------------------------------------------------------

    def _judge_soon(self) -> None:
        """Works out fit and checks once typing rests."""
        if self._judging is not None:
            self._judging.stop()
        self.judgement = None
        if self._plan is not None:
            self._judging = self.set_timer(JUDGE_SECONDS, self._judge)

    @work(exit_on_error=False, exclusive=True, group="judge")
    async def _judge(self) -> None:
        self._look_at_model()
        found = await judge(self._core, self._preset, self.overrides, self._standing.image)
        if found.overrides == self.overrides:
            self.judgement = found
            self._show(self._plan, blamed=False)

    @work(exit_on_error=False, exclusive=True, group="model")
    async def _look_at_model(self) -> None:
        """What a launch would fetch first. The Hub is asked when something is missing, so it may take a second."""
        plan = self._plan
        if plan is None or (self._model is not None and self._model.wants(plan)):
            return
        self._model = await stand(self._core, plan)
        self._show(self._plan, blamed=self._plan is None)

    def action_fetch(self) -> None:
        """The other way round."""
        self.fetch = not self.fetch
        self._show(self._plan, blamed=self._plan is None)

    def _culprit(self) -> FieldRow | None:
        """The field without which there would be no problem, or another one."""
        pairs = self._pairs()
        for row in self._rows:
            if row.field.key not in pairs or not isinstance(self.problem, UsageError):
                continue
            others = {key: text for key, text in pairs.items() if key != row.field.key}
            try:
                self._core.preflight.dry_plan(self._preset, overrides_from_pairs(others), self._standing.image)
            except SparkError as error:
                if str(error) == str(self.problem):
                    continue
            return row
        return None

    def _show(self, plan: LaunchPlan | None, *, blamed: bool) -> None:
        preview = self.query_one("#preview", Page)
        self.query_one("#launch", Button).disabled = plan is None
        if plan is not None:
            model = model_parts(self._model, fetch=self.fetch)
            words = [*model, *judgement_parts(self.judgement), *note_parts(plan, self._standing)]
            preview.tell(words, render_text(plan.spec))
        elif not blamed and self.problem is not None:
            preview.tell(self._why_not(self.problem))
        else:
            preview.tell([sentence("The command comes back when the field marked wrong is mended.", "$dim")])
        self._say()

    def _why_not(self, problem: SparkError) -> list[tuple[Content, Content]]:
        needed = [row.field.label for row in self._rows if row.field.needed and not row.text]
        if needed:
            return [
                sentence(f"Needed first: {', '.join(needed)}", "bold $warning"),
                sentence("The command names it, and the preset has no value. Write it into its field.", "$warning"),
            ]
        return failure_parts(problem)

    # --- status ---------------------------------------------------------------------------------------

    def on_descendant_focus(self, _: DescendantFocus) -> None:
        """The foot speaks of the field that has the focus."""
        self._say()

    def _say(self) -> None:
        row = next((row for row in self._rows if row.input.has_focus), None)
        if row is not None:
            stated = f"   preset: {row.field.preset}" if row.field.preset else ""
            text = f"{row.field.label}: {row.field.help}{stated}"
        elif self.problem is not None:
            text = "It cannot be launched like this."
        else:
            changed = sum(row.field.changes(row.text) for row in self._rows)
            how = f"with {changed} changed" if changed else "as the preset has it"
            text = f"Enter launches it {how}."
        self.query_one("#form-status", Static).update(told(text, "$dim"))

    # --- act ------------------------------------------------------------------------------------------

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Enter goes to the next field; after the last one stands the button."""
        self.app.action_focus_next()

    def on_button_pressed(self, _: Button.Pressed) -> None:
        """The button launches."""
        self.action_launch()

    def action_launch(self) -> None:
        """Begins the launch and goes back with the container's name."""
        if self.problem is not None:
            self.notify(str(self.problem), severity="warning", markup=False)
            self._to_problem()
            return
        judgement = self.judgement
        if judgement is not None and judgement.blocked:
            self._ask_twice(judgement)
        else:
            self._begin(force=False)

    def _ask_twice(self, judgement: Judgement) -> None:
        """What cannot fit is launched only by typing the preset's name."""
        reasons = " ".join(judgement.fit.reasons) if judgement.fit is not None else ""
        screen = ConfirmScreen(
            "It does not fit. Launch it all the same?",
            reasons,
            verb="Launch",
            type_to_confirm=self._preset.name,
            because="It would fail, or freeze the machine.",
        )
        self.app.push_screen(screen, lambda yes: self._begin(force=True) if yes else None)

    def _begin(self, *, force: bool) -> None:
        try:
            self._core.jobs.launch(LaunchRequest(self._preset, self.overrides, force=force, fetch=self.fetch))
        except SparkError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.dismiss(self.overrides.name or self._preset.name)

    def _to_problem(self) -> None:
        """The focus goes to what has to be mended."""
        row = next((row for row in self._rows if row.mark in (WRONG, NEEDED)), None)
        if row is not None:
            row.input.focus()

    def action_scroll_preview(self, step: int) -> None:
        """A page of the command."""
        scroll = self.query_one("#preview-scroll", VerticalScroll)
        scroll.scroll_relative(y=step * max(1, scroll.size.height - 1), animate=False)

    def action_close(self) -> None:
        """Back, nothing done."""
        self.dismiss(None)


def _problem_alone(row: FieldRow) -> SparkError | None:
    if not row.text:
        return None
    try:
        overrides_from_pairs({row.field.key: row.text})
    except UsageError as error:
        return error
    return None
