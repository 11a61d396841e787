"""The fields of the launch form: which there are for a preset, what they hint, and one of them on screen."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static

from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets.knobs import KNOBS
from spark_tui.domain.presets.overrides import overrides_from_pairs
from spark_tui.domain.presets.plan import missing_values
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.text import clean_line, truncate
from spark_tui.tui import format as fmt
from spark_tui.tui.widgets.page import told

MAX_FIELDS = 40
"""A recipe may hold any number of values; the rest is reached with `spark-tui up PRESET --set`."""
MAX_SHOWN = 200
LABEL_WIDTH = 16
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
        """Whether that text differs from the preset."""
        return bool(text) and text != self.preset


_KNOWN = (
    FormField("name", "container name", "letters, digits, `_`, `.` and `-`"),
    FormField("port", "port", f"{KNOBS['port'].what}: where this machine reaches the API"),
    FormField("exposure", "exposure", "local: this machine only. lan: everyone in the network, with an API key"),
    FormField("api_key", "API key", "yes or no; the key is kept in a private file", "no; yes with exposure lan"),
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
        "max_num_seqs", "sequences", f"{KNOBS['max_num_seqs'].what}: requests served at once", "the engine's; e.g. 4"
    ),
    FormField("kv_cache_dtype", "KV cache type", "auto (as the model), fp8, ...", "auto; or fp8"),
    FormField("served_model_name", "served as", f"{KNOBS['served_model_name'].what}: clients ask for it", "the model"),
    FormField("extra_args", "more arguments", "added to the end of the command", "--flag value"),
)


def fields_of(preset: Preset) -> tuple[FormField, ...]:
    """What can be changed for one launch of this preset: what it needs first, then the usual, then its own values."""
    known = {field.key for field in _KNOWN}
    needed = [key for key in missing_values(preset) if _settable(key, "1")]
    first = [FormField(key, key, "the command names it, and the preset has no value", needed=True) for key in needed]
    usual = [_with_preset(field, preset) for field in _KNOWN if field.key not in needed]
    own = [
        FormField(key, key, "a value of this preset", preset=str(value))
        for key, value in preset.defaults
        if key not in known and value is not None and _settable(key, str(value))
    ]
    return (*first, *usual[:-1], *own, usual[-1])[:MAX_FIELDS]


def _settable(key: str, value: str) -> bool:
    try:
        overrides_from_pairs({key: value})
    except UsageError:
        return False
    return True


def _with_preset(field: FormField, preset: Preset) -> FormField:
    stated = {"name": preset.name, "exposure": "local", "port": str(preset.default("port") or 8000)}
    value = preset.default(field.key) if field.key not in ("api_key", "extra_args") else None
    return FormField(
        field.key,
        field.label,
        field.help,
        field.silent,
        stated.get(field.key, "" if value is None else str(value)),
    )


class FieldRow(Vertical):
    """A label, an input, a word when it is changed, and below it what is wrong with it."""

    def __init__(self, field: FormField) -> None:
        super().__init__(classes="field-row")
        self.field = field
        label = truncate(clean_line(field.label), LABEL_WIDTH)
        self._label = Static(fmt.safe(label), classes="field-label")
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
        """Shows what is wrong (empty: nothing), and whether it is changed."""
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
