"""The launch form: a preset's values, what the person changes, and the command that results, as they type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import ClassVar, cast

from msgspec.structs import replace
from textual import work
from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from spark_tui.base.context import Context
from spark_tui.base.engine.docker_run import render_text
from spark_tui.base.engine.invocation import ALONE, METHOD, OFF, OPTIONS, TOKENS, TOOLS
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.finding import Change
from spark_tui.base.page import Page, Row, Section, Tone
from spark_tui.base.text import truncate
from spark_tui.catalog.fit.model.verdict import LaunchVerdict
from spark_tui.catalog.fit.screen.bar import FitBar
from spark_tui.catalog.fit.show.launch import deviations_page, judgement_page
from spark_tui.catalog.fit.show.presets import ImageStatus, changes_of, plan_notes, refusal
from spark_tui.catalog.fit.use.fit import LaunchChecks
from spark_tui.catalog.presets.model.command import missing_values, settable
from spark_tui.catalog.presets.model.overrides import SHARE, Overrides, all_pairs, overrides_from_pairs
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.model.registry import NotReviewed
from spark_tui.catalog.presets.model.rights import NotAllowed, unallowed
from spark_tui.catalog.presets.model.rules.context import given_settings
from spark_tui.catalog.presets.use.last_launches import PLACE, LastLaunches
from spark_tui.catalog.presets.use.launch_downloads import launch_downloads, requests_of
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.catalog.presets.use.registries import RegistryManager
from spark_tui.catalog.presets.use.rights import PresetGrants, require_reviewed
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.run.launch.show.edit import edit_page, shown_value
from spark_tui.run.launch.show.fetch import ModelStatus, model_page
from spark_tui.run.launch.use.edit import Editor, EditPlan
from spark_tui.run.launch.use.launch import LaunchRequest
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.tui.form_screen import FieldRow, FormField, FormScreen, Given
from spark_tui.tui.frame import FrameApp, acting
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.widgets.page import Page as PageView
from spark_tui.tui.widgets.page import one_line

MAX_FIELDS = 40
"""A recipe may hold any number of values; the rest is reached with `spark-tui up PRESET --set`."""
JUDGE_SECONDS = 0.3
"""How long typing rests before the checkpoint's files and Docker are asked."""
FETCH_KEY = "^f"
FIX_KEY = "^a"
BASICS, MEMORY, ADVANCED = "Basics", "Memory", "Advanced"

_BASICS = ("max_model_len", "max_num_seqs", "exposure", "api_key", TOOLS)
_MEMORY = (SHARE, "kv_cache_dtype")
_ADVANCED = (
    "name", "port", "served_model_name", "max_num_batched_tokens", "kv_cache_memory_bytes", METHOD, TOKENS,
)  # fmt: skip
_OWN = ("name", "port", "exposure", "api_key")
_CHOICES = {
    "exposure": ("local", "lan"),
    "api_key": ("yes", "no"),
    TOOLS: ("on", OFF),
    METHOD: (OFF, *ALONE),
    "kv_cache_dtype": ("auto", "fp8", "fp8_e4m3", "fp8_e5m2"),
}
_WIDE = ("name", "served_model_name", "extra_env", "extra_args")
_TEXTS = {
    "exposure": ("exposure", "local: this machine only. lan: anyone on the network, with an API key", ""),
    "api_key": ("API key", "yes or no; the key is kept in a private file", "lan only"),
    "extra_env": ("environment", "variables of the container: NAME=value OTHER='2 words'", "NAME=value"),
    "extra_args": ("more arguments", "appended to the command", "--flag value"),
}
_LABELS = {
    **{key: OPTIONS[key].label for key in (*_BASICS, *_MEMORY, *_ADVANCED) if key in OPTIONS},
    **{key: label for key, (label, _, _) in _TEXTS.items()},
    "without": "left out",
}
_SETTING = re.compile(rf"\b({'|'.join(key for key in _LABELS if key in OPTIONS)})=(\S)")
"""Another field's setting as an error writes it: `num_speculative_tokens=3` is `drafted tokens 3` here."""


def fields_of(preset: Preset, given: Mapping[str, str] | None = None, *, share: str = "") -> tuple[FormField, ...]:
    """What can be changed for one launch of this preset: what it needs first, then the usual, then its own values.

    `given` is what its command says of the usual ones (`given_settings`), `share` the memory share of a launch that
    names none. What it has no use for is no field.
    """
    needed = [key for key in missing_values(preset) if _writable(key, "1")]
    fields = [FormField(key, key, "required by the command", needed=True, group=BASICS) for key in needed]
    own = {"name": preset.name, "exposure": "local", "port": str(preset.default("port") or preset.server.port)}
    own |= {SHARE: share} if share else {}
    for group, keys in ((BASICS, _BASICS), (MEMORY, _MEMORY), (ADVANCED, _ADVANCED)):
        for key in keys:
            if key in needed or not (key in _OWN or settable(preset, key)):
                continue
            default = preset.default(key) if key != "api_key" else None
            value = own.get(key) or (given or {}).get(key) or ("" if default is None else str(default))
            fields.append(_field(key, value, group))
    for key, stated in preset.defaults:
        if key not in _LABELS and stated is not None and _writable(key, str(stated)):
            fields.append(FormField(key, key, "a value of this preset", value=str(stated), group=ADVANCED))
    last = ["extra_env"] + ([] if preset.facts.runs_as_is else ["extra_args"])
    return (*fields[: MAX_FIELDS - len(last)], *(_field(key, "", ADVANCED) for key in last))


def _field(key: str, value: str, group: str) -> FormField:
    option, choices, wide = OPTIONS.get(key), _CHOICES.get(key, ()), key in _WIDE
    if key in _TEXTS or option is None:
        label, help_, silent = _TEXTS[key]
        return FormField(key, label, help_, silent, value, choices=choices, group=group, wide=wide)
    silent = "default" if choices else option.silent
    return FormField(
        key, option.label, option.hint, silent, value, read=option.read, choices=choices, group=group, wide=wide
    )


def _suggested(key: str) -> FormField:
    return FormField(key, _LABELS.get(key, key), "suggested; clear to ignore", group=BASICS)


def _writable(key: str, value: str) -> bool:
    try:
        overrides_from_pairs({key: value})
    except UsageError:
        return False
    return True


class LaunchForm(FormScreen[str]):
    """Answers the container's name when a launch has started."""

    VERB = "Launch"
    FOLDED = ADVANCED
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+a", "fix", "Use the suggestion", show=False, priority=True),
        Binding("ctrl+f", "fetch", "Download the model first, or not", show=False, priority=True),
    ]

    def __init__(
        self,
        context: Context,
        preset: Preset,
        changes: Mapping[str, str] | None = None,
        edits: EngineView | None = None,
    ) -> None:
        """`changes` are written into the fields to begin with; one that has no field gets one. `edits`: an engine whose
        settings are changed."""
        self._core = context
        self._preset = preset
        self._drawn: LaunchPlan | None = None
        self._edits = edits
        self.left_out: tuple[str, ...] = ()
        """Remembered values that the preset no longer takes."""
        if edits is not None:
            begin = Given(all_pairs(context[Editor].running(edits).overrides), "running")
        else:
            last = context[LastLaunches].of(preset, [each.name for each in context.settings.clusters])
            begin, self.left_out = Given(last.pairs, "yours"), last.left_out
        try:
            self._drawn = context[Preflight].dry_plan(replace(preset, min_nodes=1), Overrides())
            given = given_settings(self._drawn)
        except SparkError:
            given = {}
        share = "auto" if context.settings.memory_share == "auto" else ""
        places, only = ((), {}) if edits else self.places()
        fields = [each for each in fields_of(preset, given, share=share) if not (edits and each.key == "name")]
        fields = [*places, *fields]
        here = {field.key for field in fields}
        begun = [key for key in begin.texts if key not in here and not (edits and key == "name")]
        proposed = [key for key in changes or {} if key not in here and key not in begun]
        more = [_suggested(key) for key in proposed]
        own = [FormField(key, _LABELS.get(key, key), "added to the preset", group=ADVANCED) for key in begun]
        title = f"Edit {edits.name}" if edits else f"Launch {preset.name}"
        needs = Given(only, f"{preset.min_nodes} nodes")
        super().__init__(title, (*more, *fields, *own), begin, needs, Given(changes or {}, "suggested"))
        self.verb = "Restart" if edits else self.VERB
        self._image = ImageStatus()
        self._model: ModelStatus | None = None
        self._timer: Timer | None = None
        self._plan: LaunchPlan | None = None
        self.judgement: LaunchVerdict | None = None
        """Fit and checks of the values as they are; None while they are worked out."""
        self.unplanned: SparkError | None = None
        """Why there is no judgement."""
        self.overrides = Overrides()
        self.fetch = True
        """The launch downloads what is missing of the model; else the engine does."""

    def on_mount(self) -> None:
        """Asks for the image, whose entrypoint decides the command."""
        self._read_image()

    def first_field(self) -> FieldRow:
        """The context is changed most."""
        return next((row for row in self.fields if row.field.key == "max_model_len"), self.fields[0])

    def group_foot(self, group: str) -> Iterable[Widget]:
        """The memory as it would be, what this launch can get, and the suggestion."""
        if group == MEMORY:
            app = cast("FrameApp", self.app)
            yield FitBar(app.glyphs, id="form-fit")
            yield Static(id="form-fix", markup=False)

    @work(exit_on_error=False, exclusive=True, group="image")
    async def _read_image(self) -> None:
        """The image's real entrypoint decides the command; without Docker its name does."""
        try:
            self._image = ImageStatus(True, await self._core.docker.image(self._preset.reference))
        except SparkError as error:
            self._image = ImageStatus(why=error.summary)
        self.renew()

    # --- where it runs --------------------------------------------------------------------------------

    def places(self) -> tuple[tuple[FormField, ...], Mapping[str, str]]:
        """The fields that say where it runs, if there is a choice, and what the preset needs there."""
        return (), {}

    def misplaced(self) -> dict[str, SparkError]:
        """What is wrong with those fields."""
        return {}

    @property
    def pairs(self) -> dict[str, str]:
        """What was typed of the launch's own settings."""
        return {key: text for key, text in self.texts.items() if key not in PLACE}

    @property
    def place(self) -> Mapping[str, str]:
        """What was typed of where it runs."""
        return {key: text for key, text in self.texts.items() if key in PLACE}

    def planned(self, overrides: Overrides) -> LaunchPlan:
        """The plan without asking anyone, made once for the same values. Raises SparkError."""
        last, asked = self._drawn, (self._preset, overrides, self._image.image)
        if last is None or (last.preset, last.overrides, last.image) != asked:
            self._drawn = last = self._core[Preflight].dry_plan(*asked)
        return last

    async def judged(self) -> LaunchVerdict:
        """Fit and rules of the values. Raises SparkError for a launch that cannot be planned."""
        self._read_model()
        return (await self._core[LaunchChecks].planned(self.planned(self.overrides))).judge()

    # --- check ----------------------------------------------------------------------------------------

    def check(self) -> Mapping[str, SparkError]:
        """Each field alone, then all of them together."""
        wrong = self.misplaced()
        self._plan = None
        for key, text in self.pairs.items():
            try:
                overrides_from_pairs({key: text})
            except UsageError as error:
                wrong[key] = error
        if not wrong:
            try:
                self.overrides = overrides_from_pairs(self.pairs)
                if self._edits is not None:
                    self.overrides = replace(self.overrides, name=self._edits.name)
                plan = self.planned(self.overrides)
                render_text(plan.spec)
                self._plan = plan
            except SparkError as error:
                wrong[self._culprit(error)] = error
        if self._timer is not None:
            self._timer.stop()
        self.judgement = self.unplanned = None
        if self._plan is not None:
            self._timer = self.set_timer(JUDGE_SECONDS, self._judge)
        return wrong

    def _culprit(self, problem: SparkError) -> str:
        """The field without which there would be no problem, or another one; empty where there is none."""
        texts = self.pairs if isinstance(problem, UsageError) else {}
        for key in texts:
            others = overrides_from_pairs({other: text for other, text in texts.items() if other != key})
            try:
                self.planned(others)
            except SparkError as error:
                if str(error) == str(problem):
                    continue
            return key
        return ""

    def message(self, row: FieldRow, problem: SparkError) -> str:
        """In the form's own words."""
        key, text = row.field.key, str(problem)
        text = text.replace(f"`{key}`", row.field.label).replace(f"{key}=", "")
        return _SETTING.sub(lambda found: f"{_LABELS[found[1]]} {found[2]}", text) if key in _LABELS else text

    @work(exit_on_error=False, exclusive=True, group="judge")
    async def _judge(self) -> None:
        """Fit and rules of the values, once typing rests."""
        asked = self.overrides, self.place
        found: LaunchVerdict | None = None
        problem: SparkError | None = None
        try:
            found = await self.judged()
        except SparkError as error:  # on this machine the field says so
            problem = error
        if asked == (self.overrides, self.place):
            self.judgement, self.unplanned = found, problem
            self.preview()

    @work(exit_on_error=False, exclusive=True, group="model")
    async def _read_model(self) -> None:
        """What a launch would download first. The Hub is asked for what is missing only, so it may take a second."""
        plan, fetching = self._plan, self._core.once(launch_downloads)
        needs = requests_of(plan) if plan is not None else ()
        if plan is None or (self._model is not None and self._model.needs == needs):
            return
        try:
            wanted = await fetching.look(plan) if fetching is not None else None
            self._model = ModelStatus(needs, wanted, wanted.refusal if wanted is not None else None)
        except SparkError as error:
            self._model = ModelStatus(needs, problem=error)
        self.preview()

    # --- show -----------------------------------------------------------------------------------------

    def preview(self) -> None:
        """The model, fit and rules, notes, and the command; or why there is none."""
        plan, problem = self._plan, self.problem
        needed = [row.field.label for row in self.fields if row.field.needed and not row.text]
        found: Page
        if plan is not None:
            found = (*self._remarks(), *self.plan_page(plan))
        elif problem is None or self.blamed:
            found = (self.problems(),)
        elif needed:
            found = (Section(rows=(Row(f"Required: {', '.join(needed)}", tone=Tone.WARNING),)),)
        else:
            found = refusal(problem)
        self.show_preview(found)
        self._show_fit()

    def plan_page(self, plan: LaunchPlan) -> Page:
        """What the launch would download, fit and rules, notes, and the command."""
        plan = self.judgement.plan if self.judgement is not None else plan
        return (
            *model_page(self._model, fetch=self.fetch, key=FETCH_KEY),
            *judgement_page(self.judgement),
            *plan_notes(plan, self._image),
            Section(command=render_text(plan.spec)),
            *deviations_page(plan),
        )

    def _remarks(self) -> Page:
        gone = ", ".join(_LABELS.get(key, key) for key in self.left_out)
        text = f"Left out: {gone}. No longer available." if gone else ""
        return (Section(rows=(Row(text, "note", Tone.WARNING),)),) if text else ()

    def _show_fit(self) -> None:
        """The bar keeps its last forecast while another is worked out: nothing jumps while a person types."""
        for bar in self.query(FitBar):
            if self.judgement is not None:
                bar.show(self.judgement.fit)
        share = next((row for row in self.fields if row.field.key == SHARE), None)
        if share is not None and self.judgement is not None:
            fit = self.judgement.fit
            share.note = f"= {fit.utilization:.2f}" if fit.auto and fit.utilization is not None else ""
            share.judge(share.problem)
        for line in self.query("#form-fix").results(Static):
            line.display = bool(self.suggested)
            line.update(one_line(f"{FIX_KEY} {self._fix_words()}", "bold $warning"))
        self.show_foot()

    @property
    def suggested(self) -> Change:
        """The change that makes it fit, else what ends the errors and warnings of the rules."""
        found = self.judgement
        if found is None:
            return ()
        change = dict(found.fit.change) or changes_of(found.findings)
        return tuple((key, value) for key, value in change.items() if self.texts.get(key) != value)

    def _fix_words(self) -> str:
        words = [value if key == SHARE else f"{_LABELS.get(key, key)} {value}" for key, value in self.suggested]
        return f"use {', '.join(words)}"

    def keys(self) -> tuple[tuple[str, str], ...]:
        first, *others = super().keys()
        return (first, *(((FIX_KEY, truncate(self._fix_words(), 30)),) if self.suggested else ()), *others)

    def status(self, row: FieldRow | None) -> str:
        """The field's help and the preset's value; else what the button does."""
        if row is not None:
            value = row.field.value
            return f"{super().status(row)}{f'   preset: {shown_value(value)}' if value else ''}"
        if self.problem is not None:
            return "Cannot be launched like this."
        changed = sum(row.field.changes(row.text) for row in self.fields)
        return f"Enter: {self.verb.lower()} {f'with {changed} changed' if changed else 'as the preset says'}."

    # --- act ------------------------------------------------------------------------------------------

    def action_fetch(self) -> None:
        """Downloads the model first, or leaves it to the engine."""
        self.fetch = not self.fetch
        self.preview()

    def action_fix(self) -> None:
        """Writes the suggestion into the fields."""
        rows = {row.field.key: row for row in self.fields}
        for key, value in self.suggested:
            if key not in rows:
                rows[key] = FieldRow(_suggested(key))
                self.fields = (rows[key], *self.fields)
                self.query_one("#fields").mount(rows[key], before=0)
            rows[key].input.value = value

    def submit(self) -> None:
        self._begin()

    @acting("begin")
    async def _begin(self) -> None:
        """Begins it after the questions that it raises: it does not fit, its recipe was not approved,
        it would disturb what is under way."""
        app, verdict = cast("FrameApp", self.app), await self.weighed()
        force, name = verdict is not None and verdict.fit.blocked, self.overrides.name or self._preset.name
        if verdict is not None and force:
            question = ConfirmScreen(
                "It does not fit. Launch anyway?",
                " ".join(verdict.fit.reasons),
                verb="Launch",
                type_to_confirm=self._preset.name,
                because="It will fail or may freeze the machine.",
            )
            if not await app.push_screen_wait(question):
                return
        missing = self._model is None or self._model.wanted is None or self._model.wanted.plans
        if self.fetch and missing and not await app.settle_store():
            return
        if await self.approved() and await app.may(self.verb, name) and await self.start(name, force=force):
            self.keep()
            self.dismiss(name)

    async def weighed(self) -> LaunchVerdict | None:
        """The verdict that decides what is asked; None: not known yet, and the launch itself finds out."""
        return self.judgement

    async def start(self, name: str, *, force: bool) -> bool:
        """Launches; an engine of that name that runs with other settings is changed, after a question. Whether
        it was begun."""
        core, running = self._core, self._core.store.world.named(ENGINES, name)
        if (
            running is None
            or not (running.container.running and running.container.ours)
            or core[JobRunner].running(name) is not None
        ):
            core[JobRunner].launch(LaunchRequest(self._preset, self.overrides, force=force, fetch=self.fetch))
            return True
        return await self._edit(running, force=force)

    async def approved(self) -> bool:
        """Whether the preset may be launched: the person is asked for a recipe of a registry that was not reviewed, and
        for rights that were not allowed."""
        try:
            require_reviewed(self._core, self._preset)
        except NotReviewed as error:
            what = f"{error.summary} Its command is in this form: read it first."
            if not await self.app.push_screen_wait(ConfirmScreen("Approve this recipe?", what, verb="Approve")):
                return False
            self._core[RegistryManager].approve(self._preset)
        except NotAllowed as error:
            names = unallowed(self._preset)
            if not await self.app.push_screen_wait(
                ConfirmScreen(
                    "Allow these rights?",
                    error.summary,
                    verb="Allow",
                    type_to_confirm=" ".join(names),
                    because="A recipe can take over this machine with them.",
                )
            ):
                return False
            self._preset = self._core[PresetGrants].allow(self._preset, names)
        else:
            return True
        return await self.approved()

    def keep(self) -> None:
        """Remembers the values for the next launch."""
        for problem in self._core[LastLaunches].keep(self._preset, self.overrides, self.place):
            self.notify(problem, severity="warning", markup=False)

    async def _edit(self, view: EngineView, *, force: bool) -> bool:
        """Whether the person agreed to what differs."""
        plan = await self._core[Editor].plan(view, self.overrides)
        if not plan.differences:
            self.notify(f"{view.name} already runs with these settings.", markup=False)
            return False
        question = EditQuestion(plan)
        if not await self.app.push_screen_wait(question):
            return False
        self._core[JobRunner].edit(plan, rollback=question.rollback, force=force, fetch=self.fetch)
        return True


class EditQuestion(ConfirmScreen):
    """Asks before a running engine is stopped for other settings, and whether it goes back when those fail."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("g", "go_back", "Go back or not")]

    def __init__(self, plan: EditPlan) -> None:
        super().__init__(f"Restart {plan.name} with these changes?", "", verb="Restart")
        self._plan = plan
        self.rollback = True

    def extra(self) -> Iterable[Widget]:
        yield PageView(id="edit-page")
        yield Static(id="edit-rollback", markup=False)

    def on_mount(self) -> None:
        self.query_one("#edit-page", PageView).show(edit_page(self._plan))
        self._show()

    def action_go_back(self) -> None:
        self.rollback = not self.rollback
        self._show()

    def _show(self) -> None:
        sign = "[x]" if self.rollback else "[ ]"
        self.query_one("#edit-rollback", Static).update(f"{sign} g  go back to the current settings if it fails")
