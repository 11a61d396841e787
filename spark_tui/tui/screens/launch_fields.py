"""The fields of the launch form: which there are for a preset, what they hint, and one of them on screen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Static

from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets.command_changes import settable
from spark_tui.domain.presets.knobs import KNOBS
from spark_tui.domain.presets.overrides import overrides_from_pairs
from spark_tui.domain.presets.plan import missing_values
from spark_tui.domain.presets.preset import Preset, Scalar
from spark_tui.domain.presets.speculation import ALONE, METHOD, OFF, TOKENS
from spark_tui.domain.text import cell_width, clean_line, truncate
from spark_tui.tui.widgets.line import Line
from spark_tui.tui.widgets.page import told

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
