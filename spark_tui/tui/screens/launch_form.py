"""The launch form: a preset's values, what the person changes, and the command that results, as they type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from spark_tui.core.downloads import Wanted, requests_of
from spark_tui.core.launch import LaunchRequest
from spark_tui.domain.engine.container import ImageFacts
from spark_tui.domain.engine.docker_run import render_text
from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.models.download import DownloadRequest
from spark_tui.domain.presets.fit import Fit, Verdict
from spark_tui.domain.presets.invocation import settable
from spark_tui.domain.presets.options import ALONE, KNOBS, METHOD, OFF, TOKENS
from spark_tui.domain.presets.overrides import Overrides, overrides_from_pairs
from spark_tui.domain.presets.plan import LaunchPlan, missing_values
from spark_tui.domain.presets.preset import Preset, Scalar
from spark_tui.domain.presets.rules.check import Finding, Severity
from spark_tui.domain.presets.rules.context import stated_by
from spark_tui.domain.text import cell_width, clean_line, truncate
from spark_tui.tui.screens.modals import ConfirmScreen
from spark_tui.tui.screens.presets import (
    LABEL_WIDTH,
    UNKNOWN_IMAGE,
    ImageStanding,
    change_text,
    failure_parts,
    fit_word,
    note_parts,
    severity_word,
)
from spark_tui.tui.widgets.line import Line
from spark_tui.tui.widgets.page import BLANK, Page, Part, sentence, told

MAX_FIELDS = 40
"""A recipe may hold any number of values; the rest is reached with `spark-tui up PRESET --set`."""
MAX_SHOWN = 200
CHANGED = "changed"
NEEDED = "needed"
WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class FormField:
    """One field. `key` is the override's name, `preset` the value that the preset states (empty: it is silent),
    `silent` what holds then, `help` what may be written. `needed`: the preset has no value and cannot do without."""

    key: str
    label: str
    help: str
    silent: str = ""
    preset: str = ""
    needed: bool = False

    @property
    def placeholder(self) -> str:
        """What stands in the empty field."""
        if self.needed:
            return "needed: the preset has no value"
        return self.preset or self.silent

    def changes(self, text: str) -> bool:
        """Whether that text differs from the preset; `12GiB` and its bytes are the same."""
        return bool(text) and self._read(text) != self._read(self.preset)

    def _read(self, text: str) -> Scalar:
        try:
            return KNOBS[self.key].read(text) if self.key in KNOBS else text
        except ValueError:
            return text


_ALWAYS = (
    FormField("name", "container name", "letters, digits, `_`, `.` and `-`"),
    FormField("port", "port", f"{KNOBS['port'].what}: where this machine reaches the API"),
    FormField("exposure", "exposure", "local: this machine only. lan: everyone in the network, with an API key"),
    FormField("api_key", "API key", "yes or no; the key is kept in a private file", "no; yes with exposure lan"),
)
_WHERE_TAKEN = (
    FormField(
        "max_model_len", "context tokens", f"{KNOBS['max_model_len'].what}, e.g. 65536", "the model's own; e.g. 65536"
    ),
    FormField(
        "gpu_memory_utilization",
        "memory share",
        f"{KNOBS['gpu_memory_utilization'].what}: of the pool that CPU and GPU share",
        "the engine's own; e.g. 0.85",
    ),
    FormField(
        "kv_cache_memory_bytes",
        "KV cache size",
        f"{KNOBS['kv_cache_memory_bytes'].what}, e.g. 12GiB: fixed, whatever the memory share leaves",
        "the rest; e.g. 12GiB",
    ),
    FormField(
        "max_num_seqs", "sequences", f"{KNOBS['max_num_seqs'].what}: requests served at once", "the engine's; e.g. 4"
    ),
    FormField(
        "max_num_batched_tokens",
        "batched tokens",
        f"{KNOBS['max_num_batched_tokens'].what}: in one pass, prompts and answers together",
        "the engine's; e.g. 8192",
    ),
    FormField("kv_cache_dtype", "KV cache type", "auto (as the model), fp8, ...", "auto; or fp8"),
    FormField(
        METHOD,
        "speculation",
        f"tokens drafted by {', '.join(ALONE)}, or {OFF}; with a drafter: more arguments, --speculative-config",
        f"{OFF}; or mtp",
    ),
    FormField(
        TOKENS,
        "drafted tokens",
        f"K, {KNOBS[TOKENS].what}: drafted ahead and checked in one pass",
        "none; drafting e.g. 3",
    ),
    FormField("served_model_name", "served as", f"{KNOBS['served_model_name'].what}: clients ask for it", "the model"),
)
_LAST = (
    FormField("extra_env", "environment", "variables of the container, set or replaced: NAME=value OTHER='2 words'",
              "NAME=value"),
    FormField("extra_args", "more arguments", "added to the end of the command", "--flag value"),
)  # fmt: skip
_LABELS = {field.key: field.label for field in (*_ALWAYS, *_WHERE_TAKEN, *_LAST)} | {"without": "left out"}
_SETTING = re.compile(rf"\b({'|'.join(field.key for field in _WHERE_TAKEN)})=(\S)")
"""Another field's setting as an error writes it: `num_speculative_tokens=3` is `drafted tokens 3` here."""


def fields_of(preset: Preset, stated: Mapping[str, str] | None = None) -> tuple[FormField, ...]:
    """What can be changed for one launch of this preset: what it needs first, then the usual, then its own values.

    `stated` is what its command says of the usual ones (`stated_by`). What it has no use for is no field.
    """
    needed = [key for key in missing_values(preset) if _writable(key, "1")]
    first = [FormField(key, key, "the command names it, and the preset has no value", needed=True) for key in needed]
    known = (*_ALWAYS, *(field for field in _WHERE_TAKEN if settable(preset, field.key)))
    last = _LAST[:1] if preset.facts.runs_as_is else _LAST
    usual = [_with_preset(field, preset, stated or {}) for field in known if field.key not in needed]
    own = [
        FormField(key, key, "a value of this preset", preset=str(value))
        for key, value in preset.defaults
        if key not in _LABELS and value is not None and _writable(key, str(value))
    ]
    return (*(*first, *usual, *own)[: MAX_FIELDS - len(last)], *last)


def proposed(key: str) -> FormField:
    """The field of a change that was proposed for this launch, and that has no field of its own."""
    return FormField(key, _LABELS.get(key, key), "proposed for this launch; empty it to leave it be")


def _writable(key: str, value: str) -> bool:
    try:
        overrides_from_pairs({key: value})
    except UsageError:
        return False
    return True


def _with_preset(field: FormField, preset: Preset, stated: Mapping[str, str]) -> FormField:
    own = {"name": preset.name, "exposure": "local", "port": str(preset.default("port") or preset.server.port)}
    default = preset.default(field.key) if field.key != "api_key" else None
    value = own.get(field.key) or stated.get(field.key) or ("" if default is None else str(default))
    return replace(field, preset=value)


class FieldLabel(Line):
    """The name of a field. A long one is broken where a person would: `default_chat_` and `template_kwargs`."""

    def __init__(self, text: str) -> None:
        super().__init__(classes="field-label")
        self._parts = truncate(clean_line(text), MAX_SHOWN).replace("_", "_\n").split("\n")

    def say(self, width: int) -> Content:
        """As many lines as it needs."""
        lines = [""]
        for part in self._parts:
            if lines[-1] and cell_width(lines[-1] + part) > width:
                lines.append("")
            lines[-1] += part
        return Content("\n".join(lines))


class FieldRow(Vertical):
    """A label, an input, a word when it is changed, and below it what is wrong with it."""

    def __init__(self, field: FormField) -> None:
        super().__init__(classes="field-row")
        self.field = field
        self._label = FieldLabel(field.label)
        self.input = Input(
            placeholder=truncate(clean_line(field.placeholder), MAX_SHOWN), compact=True, select_on_focus=False
        )
        self._mark = Static(classes="field-mark", markup=False)
        self._message = Static(classes="field-message")
        self.problem = ""

    def compose(self) -> ComposeResult:
        """One line, and a second one only when something is wrong."""
        with Horizontal(classes="field-line"):
            yield self._label
            yield self.input
            yield self._mark
        yield self._message

    @property
    def text(self) -> str:
        """What was typed."""
        return self.input.value.strip()

    @property
    def mark(self) -> str:
        """The word beside the field."""
        if self.problem:
            return WRONG
        if self.field.needed and not self.text:
            return NEEDED
        return CHANGED if self.field.changes(self.text) else ""

    def judge(self, problem: str) -> None:
        """Shows what is wrong (empty: nothing) in the form's own words, and whether it is changed."""
        problem = problem.replace(f"`{self.field.key}`", self.field.label).replace(f"{self.field.key}=", "")
        if self.field.key in _LABELS:
            problem = _SETTING.sub(lambda found: f"{_LABELS[found[1]]} {found[2]}", problem)
        if problem != self.problem:
            self.problem = problem
            self._message.update(told(problem, "$error"))
            self._message.display = bool(problem)
        for word in (CHANGED, NEEDED, WRONG):
            self.set_class(self.mark == word, f"-{word}")
        if self._mark.content != self.mark:
            self._mark.update(self.mark)

    def on_mount(self) -> None:
        """Nothing is wrong yet."""
        self._message.display = False


JUDGE_SECONDS = 0.3
"""Typing may rest so long before the checkpoint's files and Docker are asked."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The fit and the findings of one set of values. None: it could not be worked out."""

    overrides: Overrides
    fit: Fit | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def blocked(self) -> bool:
        """It cannot fit: a launch needs the preset's name typed."""
        return self.fit is not None and self.fit.verdict is Verdict.BLOCKED


async def judge(core: Context, preset: Preset, overrides: Overrides, image: ImageFacts | None) -> Judgement:
    """Works it out. Never raises for a launch that cannot be planned: the form says so at the field."""
    try:
        fit = await core.fitting.fit(preset, overrides)
        findings = await core.checks.check_with(image, preset, overrides)
    except SparkError:
        return Judgement(overrides)
    return Judgement(overrides, fit, findings)


def judgement_parts(judgement: Judgement | None) -> list[Part]:
    """The verdict with its reason and what would help, then errors and warnings, each with its remedy."""
    if judgement is None:
        return [sentence("Fit and checks follow when typing rests.", "$dim"), BLANK]
    parts = [*_fit_parts(judgement.fit), *_finding_parts(judgement.findings)]
    return [*parts, BLANK] if parts else []


def _fit_parts(fit: Fit | None) -> list[Part]:
    if fit is None:
        return []
    reason = fit.reasons[0] if fit.reasons else ""
    head = Content.assemble(fit_word(fit).stylize("bold"), "  ", told(reason))
    more = [sentence(text, bullet="- ") for text in fit.reasons[1:]] if fit.verdict is Verdict.BLOCKED else []
    return [(Content(""), head), *more, *(sentence(change_text(change), bullet="> ") for change in fit.changes)]


def _finding_parts(findings: tuple[Finding, ...]) -> list[Part]:
    parts: list[Part] = []
    for finding in findings:
        if finding.severity is Severity.NOTE:
            continue
        fix = f"  Set {finding.fix_text}" if finding.fix and finding.fix_text not in finding.remedy else ""
        text = Content.assemble(told(finding.summary), "  ", told(f"{finding.remedy}{fix}", "$dim"))
        parts.append((severity_word(finding.severity), text))
    notes = sum(finding.severity is Severity.NOTE for finding in findings)
    if notes:
        parts.append(sentence(f"{notes} note{'s' if notes > 1 else ''} more: the preset's page Checks.", "$dim"))
    return parts


FETCH_KEY = "^f"
_LABEL = Content("model")


@dataclass(frozen=True, slots=True)
class ModelStanding:
    """What a launch would fetch, of all that it `needs`. `wanted` None: not known, or there is no Hub to fetch from."""

    needs: tuple[DownloadRequest, ...]
    wanted: Wanted | None = None
    problem: SparkError | None = None

    def wants(self, plan: LaunchPlan) -> bool:
        """Whether that launch needs just the same."""
        return requests_of(plan) == self.needs


async def stand(core: Context, plan: LaunchPlan) -> ModelStanding:
    """Looks into the store, and asks the Hub only for what is not there. What goes wrong is the answer's `problem`."""
    needs = requests_of(plan)
    if core.fetching is None:
        return ModelStanding(needs)
    try:
        wanted = await core.fetching.look(plan)
    except SparkError as error:
        return ModelStanding(needs, problem=error)
    return ModelStanding(needs, wanted, wanted.refusal)


def model_parts(standing: ModelStanding | None, *, fetch: bool) -> list[Part]:
    """One line where something is missing, none where all of it is here. `fetch`: the launch brings it."""
    if standing is None:
        return []
    if standing.problem is not None:
        return [_not_fetched(standing.problem, fetch=fetch), BLANK]
    wanted = standing.wanted
    if wanted is None or not wanted.plans:
        return []
    how = f"fetched before the start ({FETCH_KEY}: not)" if fetch else f"left to the engine ({FETCH_KEY}: fetch it)"
    return [(_LABEL, Content.assemble(told(wanted.words, "$warning"), told(f"; {how}", "$dim"))), BLANK]


def _not_fetched(problem: SparkError, *, fetch: bool) -> Part:
    if not fetch:
        return _LABEL, told(f"left to the engine ({FETCH_KEY}: fetch it)", "$dim")
    return _LABEL, Content.assemble(told(problem.summary, "$error"), "  ", told(problem.remedy, "$dim"))


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
