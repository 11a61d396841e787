"""The launch form: a preset's values, what the person changes, and the command that results, as they type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from spark_tui.core.context import Context
from spark_tui.core.launch import LaunchRequest
from spark_tui.domain.errors import SparkError, UsageError
from spark_tui.domain.presets.docker_run import render_text
from spark_tui.domain.presets.plan import Overrides, overrides_from_pairs
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.text import clean
from spark_tui.tui import format as fmt


@dataclass(frozen=True, slots=True)
class FormField:
    """One line of the form. `key` is the override's name."""

    key: str
    label: str
    hint: str


FIELDS = (
    FormField("name", "container name", ""),
    FormField("port", "port", "1-65535"),
    FormField("exposure", "exposure", "local, lan"),
    FormField("api_key", "API key", "yes, no"),
    FormField("max_model_len", "context tokens", "e.g. 65536"),
    FormField("gpu_memory_utilization", "memory share", "0.05-0.95"),
    FormField("max_num_seqs", "sequences", "1-1024"),
    FormField("kv_cache_dtype", "KV cache type", "auto, fp8"),
    FormField("served_model_name", "served as", ""),
    FormField("extra_args", "more arguments", "--flag value"),
)


class LaunchForm(ModalScreen[str | None]):
    """Answers the container's name when a launch has begun, None when the person went back."""

    CSS_PATH = "launch_form.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-normal")]  # noqa: RUF012 - Textual's shape
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+l", "launch", "Launch", priority=True),
        Binding("escape", "close", "Back"),
        Binding("down", "app.focus_next", "Next field", show=False),
        Binding("up", "app.focus_previous", "Previous field", show=False),
    ]

    def __init__(self, context: Context, preset: Preset) -> None:
        super().__init__()
        self._core = context
        self._preset = preset
        self._overrides = Overrides()
        self._valid = True

    def compose(self) -> ComposeResult:
        """Fields on the left, the command on the right (below, when it is narrow)."""
        with Vertical(classes="dialog", id="form") as dialog:
            dialog.border_title = Content(clean(f"Launch {self._preset.name}"))
            dialog.border_subtitle = "^l launches   Tab next field   Esc back"
            with Horizontal(id="form-columns"):
                with VerticalScroll(id="fields", can_focus=False), Grid(id="field-grid"):
                    for field in FIELDS:
                        yield Static(field.label, classes="field-label")
                        yield Input(
                            placeholder=self._default(field.key) or field.hint,
                            id=f"field-{field.key}",
                            compact=True,
                            select_on_focus=False,
                        )
                with VerticalScroll(id="preview-scroll"):
                    yield Static(id="preview")
            yield Static(id="form-status")

    def _default(self, key: str) -> str:
        preset = self._preset
        match key:
            case "name":
                return preset.name
            case "port":
                return str(preset.default("port") or 8000)
            case "exposure":
                return "local"
            case "api_key":
                return "no; yes when exposed to the LAN"
            case _:
                value = preset.default(key)
                return "" if value is None else str(value)

    def on_mount(self) -> None:
        """Shows the command as the preset has it."""
        self.query_one("#field-port", Input).focus()
        self._renew()

    # --- validate -------------------------------------------------------------------------------------

    def on_input_changed(self, _: Input.Changed) -> None:
        """Checks and shows at every key."""
        self._renew()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Enter goes to the next field."""
        self.app.action_focus_next()

    def _pairs(self) -> dict[str, str]:
        values = {field.key: self.query_one(f"#field-{field.key}", Input).value.strip() for field in FIELDS}
        return {key: value for key, value in values.items() if value}

    def _renew(self) -> None:
        status, preview = self.query_one("#form-status", Static), self.query_one("#preview", Static)
        pairs = self._pairs()
        for field in FIELDS:
            self.query_one(f"#field-{field.key}").set_class(field.key in pairs, "-changed")
        try:
            self._overrides = overrides_from_pairs(pairs)
            plan = self._core.preflight.dry_plan(self._preset, self._overrides)
        except (UsageError, SparkError) as error:
            self._valid = False
            status.update(fmt.safe(str(error), "$error"))
            return
        self._valid = True
        changed = f"{len(pairs)} changed from the preset" if pairs else "as the preset has it"
        status.update(Content.styled(changed, "$dim"))
        preview.update(Content(clean(render_text(plan.spec))))

    # --- act ------------------------------------------------------------------------------------------

    def action_launch(self) -> None:
        """Begins the launch and goes back with the container's name."""
        if not self._valid:
            self.notify("Mend the field that is named below first.", severity="warning", markup=False)
            return
        try:
            self._core.jobs.launch(LaunchRequest(self._preset, self._overrides))
        except SparkError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.dismiss(self._overrides.name or self._preset.name)

    def action_close(self) -> None:
        """Back, nothing done."""
        self.dismiss(None)
