"""The launch form: a preset's values, what the person changes, and the command that results, as they type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.timer import Timer

from spark_tui.core.context import Context
from spark_tui.core.downloads import requests_of
from spark_tui.core.launch import LaunchRequest
from spark_tui.domain.engine.docker_run import render_text
from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.presets.command import missing_values, settable
from spark_tui.domain.presets.options import METHOD, OPTIONS, TOKENS
from spark_tui.domain.presets.overrides import Overrides, overrides_from_pairs
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.presets.rules.context import given_settings
from spark_tui.present.launch import LaunchVerdict, ModelStatus, judgement_page, model_page
from spark_tui.present.page import Page, Row, Section, Tone
from spark_tui.present.presets import ImageStatus, plan_notes, refusal
from spark_tui.tui.form_screen import FieldRow, FormField, FormScreen
from spark_tui.tui.screens.modals import ConfirmScreen

MAX_FIELDS = 40
"""A recipe may hold any number of values; the rest is reached with `spark-tui up PRESET --set`."""
JUDGE_SECONDS = 0.3
"""How long typing rests before the checkpoint's files and Docker are asked."""
FETCH_KEY = "^f"

_ALWAYS = ("name", "port", "exposure", "api_key")
_WHERE_TAKEN = (
    "max_model_len", "gpu_memory_utilization", "kv_cache_memory_bytes", "max_num_seqs", "max_num_batched_tokens",
    "kv_cache_dtype", METHOD, TOKENS, "served_model_name",
)  # fmt: skip
_FIELDS = {
    **{
        key: FormField(key, OPTIONS[key].label, OPTIONS[key].hint, OPTIONS[key].silent, read=OPTIONS[key].read)
        for key in ("name", "port", *_WHERE_TAKEN)
    },
    "exposure": FormField(
        "exposure", "exposure", "local: this machine only. lan: anyone on the network, with an API key"
    ),
    "api_key": FormField(
        "api_key", "API key", "yes or no; the key is kept in a private file", "no; yes with exposure lan"
    ),
    "extra_env": FormField(
        "extra_env", "environment", "variables of the container: NAME=value OTHER='2 words'", "NAME=value"
    ),
    "extra_args": FormField("extra_args", "more arguments", "appended to the command", "--flag value"),
}
_LABELS = {key: field.label for key, field in _FIELDS.items()} | {"without": "left out"}
_SETTING = re.compile(rf"\b({'|'.join(_WHERE_TAKEN)})=(\S)")
"""Another field's setting as an error writes it: `num_speculative_tokens=3` is `drafted tokens 3` here."""


def fields_of(preset: Preset, given: Mapping[str, str] | None = None) -> tuple[FormField, ...]:
    """What can be changed for one launch of this preset: what it needs first, then the usual, then its own values.

    `given` is what its command says of the usual ones (`given_settings`). What it has no use for is no field.
    """
    needed = [key for key in missing_values(preset) if _writable(key, "1")]
    fields = [FormField(key, key, "required by the command", needed=True) for key in needed]
    own = {"name": preset.name, "exposure": "local", "port": str(preset.default("port") or preset.server.port)}
    for key in (*_ALWAYS, *(each for each in _WHERE_TAKEN if settable(preset, each))):
        if key not in needed:
            default = preset.default(key) if key != "api_key" else None
            value = own.get(key) or (given or {}).get(key) or ("" if default is None else str(default))
            field = _FIELDS[key]
            fields.append(FormField(key, field.label, field.help, field.silent, value, read=field.read))
    for key, stated in preset.defaults:
        if key not in _LABELS and stated is not None and _writable(key, str(stated)):
            fields.append(FormField(key, key, "a value of this preset", value=str(stated)))
    last = [_FIELDS["extra_env"]] + ([] if preset.facts.runs_as_is else [_FIELDS["extra_args"]])
    return (*fields[: MAX_FIELDS - len(last)], *last)


def _writable(key: str, value: str) -> bool:
    try:
        overrides_from_pairs({key: value})
    except UsageError:
        return False
    return True


class LaunchForm(FormScreen[str]):
    """Answers the container's name when a launch has started."""

    VERB = "Launch"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+f", "fetch", "Download the model first, or not", show=False, priority=True)
    ]

    def __init__(self, context: Context, preset: Preset, changes: Mapping[str, str] | None = None) -> None:
        """`changes` are written into the fields to begin with; one that has no field gets one."""
        self._core = context
        self._preset = preset
        try:
            given = given_settings(context.preflight.dry_plan(preset, Overrides()))
        except SparkError:
            given = {}
        fields = fields_of(preset, given)
        more = [key for key in changes or {} if key not in {field.key for field in fields}]
        suggested = [FormField(key, _LABELS.get(key, key), "suggested; clear to ignore") for key in more]
        super().__init__(f"Launch {preset.name}", (*suggested, *fields), changes)
        self._image = ImageStatus()
        self._model: ModelStatus | None = None
        self._timer: Timer | None = None
        self._plan: LaunchPlan | None = None
        self.judgement: LaunchVerdict | None = None
        """Fit and checks of the values as they are; None while they are worked out."""
        self.overrides = Overrides()
        self.fetch = True
        """The launch downloads what is missing of the model; else the engine does."""

    def on_mount(self) -> None:
        """Asks for the image, whose entrypoint decides the command."""
        self._read_image()

    def first_field(self) -> FieldRow:
        """The port is changed most."""
        return next(row for row in self.fields if row.field.key == "port")

    @work(exit_on_error=False, exclusive=True, group="image")
    async def _read_image(self) -> None:
        """The image's real entrypoint decides the command; without Docker its name does."""
        try:
            self._image = ImageStatus(True, await self._core.docker.image(self._preset.reference))
        except SparkError as error:
            self._image = ImageStatus(why=error.summary)
        self.renew()

    # --- check ----------------------------------------------------------------------------------------

    def check(self) -> Mapping[str, SparkError]:
        """Each field alone, then all of them together."""
        wrong: dict[str, SparkError] = {}
        self._plan = None
        for key, text in self.texts.items():
            try:
                overrides_from_pairs({key: text})
            except UsageError as error:
                wrong[key] = error
        if not wrong:
            try:
                self.overrides = overrides_from_pairs(self.texts)
                plan = self._core.preflight.dry_plan(self._preset, self.overrides, self._image.image)
                render_text(plan.spec)
                self._plan = plan
            except SparkError as error:
                wrong[self._culprit(error)] = error
        if self._timer is not None:
            self._timer.stop()
        self.judgement = None
        if self._plan is not None:
            self._timer = self.set_timer(JUDGE_SECONDS, self._judge)
        return wrong

    def _culprit(self, problem: SparkError) -> str:
        """The field without which there would be no problem, or another one; empty where there is none."""
        texts = self.texts if isinstance(problem, UsageError) else {}
        for key in texts:
            others = overrides_from_pairs({other: text for other, text in texts.items() if other != key})
            try:
                self._core.preflight.dry_plan(self._preset, others, self._image.image)
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
        self._read_model()
        overrides = self.overrides
        try:
            fit = await self._core.checks.fit(self._preset, overrides)
            findings = await self._core.checks.check_with(self._image.image, self._preset, overrides)
            found = LaunchVerdict(overrides, fit, findings)
        except SparkError:  # a launch that cannot be planned: the field says so
            found = LaunchVerdict(overrides)
        if overrides == self.overrides:
            self.judgement = found
            self.preview()

    @work(exit_on_error=False, exclusive=True, group="model")
    async def _read_model(self) -> None:
        """What a launch would download first. The Hub is asked for what is missing only, so it may take a second."""
        plan, fetching = self._plan, self._core.fetching
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
            found = (
                *model_page(self._model, fetch=self.fetch, key=FETCH_KEY),
                *judgement_page(self.judgement),
                *plan_notes(plan, self._image),
                Section(command=render_text(plan.spec)),
            )
        elif problem is None or self.blamed:
            found = (Section(rows=(Row("Fix the highlighted field to see the command.", tone=Tone.QUIET),)),)
        elif needed:
            found = (Section(rows=(Row(f"Required: {', '.join(needed)}", tone=Tone.WARNING),)),)
        else:
            found = refusal(problem)
        self.show_preview(found)

    def status(self, row: FieldRow | None) -> str:
        """The field's help and the preset's value; else what the button does."""
        if row is not None:
            return f"{super().status(row)}{f'   preset: {row.field.value}' if row.field.value else ''}"
        if self.problem is not None:
            return "Cannot be launched like this."
        changed = sum(row.field.changes(row.text) for row in self.fields)
        return f"Enter: launch {f'with {changed} changed' if changed else 'as the preset says'}."

    # --- act ------------------------------------------------------------------------------------------

    def action_fetch(self) -> None:
        """Downloads the model first, or leaves it to the engine."""
        self.fetch = not self.fetch
        self.preview()

    def submit(self) -> None:
        """Starts the launch; one that cannot fit only when the preset's name is typed."""
        judgement = self.judgement
        if judgement is None or not judgement.blocked:
            self._launch(force=False)
            return
        question = ConfirmScreen(
            "It does not fit. Launch anyway?",
            " ".join(judgement.fit.reasons) if judgement.fit is not None else "",
            verb="Launch",
            type_to_confirm=self._preset.name,
            because="It will fail or may freeze the machine.",
        )
        self.app.push_screen(question, lambda yes: self._launch(force=True) if yes else None)

    def _launch(self, *, force: bool) -> None:
        try:
            self._core.jobs.launch(LaunchRequest(self._preset, self.overrides, force=force, fetch=self.fetch))
        except SparkError as error:
            self.notify(str(error), severity="error", markup=False)
        else:
            self.dismiss(self.overrides.name or self._preset.name)
