"""A form in a dialog: labelled fields, what they come to beside them, a button, and one line of help at the foot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from spark_tui.domain.errors import SparkError
from spark_tui.domain.text import cell_width, clean_line, truncate
from spark_tui.present.page import Section
from spark_tui.tui.widgets.line import Line
from spark_tui.tui.widgets.page import Page, one_line

Answer = TypeVar("Answer")
MAX_SHOWN = 200
CHANGED, NEEDED, WRONG = "changed", "needed", "wrong"
NEEDED_HINT = "required: the preset has no value"


@dataclass(frozen=True, slots=True)
class FormField:
    """One field. `help` says what may be written, `value` is what holds while the field is empty, and `silent` is shown
    where that is not known. `needed`: it must not stay empty. `read` turns a text into what it means, so that `12GiB`
    is no change of its bytes; it may raise ValueError."""

    key: str
    label: str
    help: str
    silent: str = ""
    value: str = ""
    needed: bool = False
    read: Callable[[str], object] = str

    @property
    def placeholder(self) -> str:
        return NEEDED_HINT if self.needed else self.value or self.silent

    def changes(self, text: str) -> bool:
        try:
            return bool(text) and self.read(text) != self.read(self.value)
        except ValueError:
            return text != self.value


class FieldLabel(Line):
    """The name of a field. A long one is broken where a person would: `default_chat_` and `template_kwargs`."""

    def __init__(self, text: str) -> None:
        super().__init__(classes="field-label")
        self._parts = truncate(clean_line(text), MAX_SHOWN).replace("_", "_\n").split("\n")

    def say(self, width: int) -> Content:
        lines = [""]
        for part in self._parts:
            if lines[-1] and cell_width(lines[-1] + part) > width:
                lines.append("")
            lines[-1] += part
        return Content("\n".join(lines))


class FieldRow(Vertical):
    """A label, an input, a word when it is changed, and below it what is wrong with it."""

    def __init__(self, field: FormField, value: str = "") -> None:
        super().__init__(classes="field-row")
        self.field = field
        hint = truncate(clean_line(field.placeholder), MAX_SHOWN)
        self.input = Input(value, placeholder=hint, compact=True, select_on_focus=False)
        self.problem = ""
        self._mark = Static(classes="field-mark", markup=False)
        self._message = Static(classes="field-message")
        self._message.display = False

    def compose(self) -> ComposeResult:
        """One line, and a second one only when something is wrong."""
        with Horizontal(classes="field-line"):
            yield FieldLabel(self.field.label)
            yield self.input
            yield self._mark
        yield self._message

    @property
    def text(self) -> str:
        return self.input.value.strip()

    @property
    def mark(self) -> str:
        if self.problem:
            return WRONG
        if self.field.needed and not self.text:
            return NEEDED
        return CHANGED if self.field.changes(self.text) else ""

    def judge(self, problem: str) -> None:
        """Shows what is wrong (empty: nothing), and whether the field is changed."""
        if problem != self.problem:
            self.problem = problem
            self._message.update(one_line(problem, "$error"))
            self._message.display = bool(problem)
            if problem and self.input.has_focus:
                self.call_after_refresh(self.scroll_visible, animate=False)
        for word in (CHANGED, NEEDED, WRONG):
            self.set_class(self.mark == word, f"-{word}")
        if self._mark.content != self.mark:
            self._mark.update(self.mark)


class FormScreen(ModalScreen[Answer | None]):
    """Answers what `submit` dismisses with, None when the person went back.

    Subclasses give the fields and implement `check`, `preview` and `submit`.
    """

    CSS_PATH: ClassVar = ["form_screen.tcss"]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-normal"), (160, "-wide")]  # noqa: RUF012 - Textual's shape
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+l", "submit", "Start", priority=True),
        Binding("escape", "close", "Back"),
        Binding("down", "app.focus_next", "Next field", show=False, priority=True),
        Binding("up", "app.focus_previous", "Previous field", show=False, priority=True),
        Binding("pagedown", "scroll_preview(1)", "Preview down", show=False, priority=True),
        Binding("pageup", "scroll_preview(-1)", "Preview up", show=False, priority=True),
    ]
    VERB: ClassVar[str] = "Start"
    """What the button and the key do."""

    def __init__(self, title: str, fields: Sequence[FormField], values: Mapping[str, str] | None = None) -> None:
        """`values` are written into the fields to begin with."""
        super().__init__()
        self._title = title
        self.fields = tuple(FieldRow(field, (values or {}).get(field.key, "")) for field in fields)
        self.problem: SparkError | None = None
        """Why it would be refused as it is; None when it would not."""

    def compose(self) -> ComposeResult:
        """Fields on the left, the preview on the right (below, when it is narrow)."""
        with Vertical(classes="dialog", id="form") as dialog:
            dialog.border_title = Content(truncate(clean_line(self._title), MAX_SHOWN))
            dialog.border_subtitle = f"^l {self.VERB.lower()}   Enter, arrows: next field   PgDn scroll   Esc back"
            with Horizontal(id="form-columns"):
                with VerticalScroll(id="fields", can_focus=False):
                    yield from self.fields
                with VerticalScroll(id="preview-scroll", can_focus=False):
                    yield Page(id="preview")
            with Horizontal(id="form-foot"):
                yield Button(self.VERB, id="submit", variant="primary", compact=True)
                yield Static(id="form-status")

    def on_mount(self) -> None:
        """The field that has to be written first has the focus."""
        first = next((row for row in self.fields if row.field.needed), self.first_field())
        first.input.focus()
        self.renew()

    def first_field(self) -> FieldRow:
        """The field that is changed most."""
        return self.fields[0]

    @property
    def texts(self) -> dict[str, str]:
        """What was typed, by field; empty fields are left out."""
        return {row.field.key: row.text for row in self.fields if row.text}

    @property
    def blamed(self) -> bool:
        """Whether a field says why it would be refused."""
        return any(row.problem for row in self.fields)

    # --- for subclasses -------------------------------------------------------------------------------

    def check(self) -> Mapping[str, SparkError]:
        """What is wrong, by the field's key; under an empty key what no field is to blame for. Nothing: it can be
        submitted."""
        raise NotImplementedError

    def preview(self) -> None:
        """Shows what the fields come to, or why it would be refused."""
        raise NotImplementedError

    def submit(self) -> None:
        """Does it. Called only while nothing is wrong."""
        raise NotImplementedError

    def message(self, row: FieldRow, problem: SparkError) -> str:
        """What is shown below a field that is wrong."""
        return str(problem)

    def status(self, row: FieldRow | None) -> str:
        """What the foot says: about the field that has the focus, or about the button."""
        return f"Enter: {self.VERB.lower()}." if row is None else f"{row.field.label}: {row.field.help}"

    def show_preview(self, sections: Iterable[Section]) -> None:
        self.query_one("#preview", Page).show(sections)

    # --- events ---------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Checks the fields, marks those that are wrong, and shows what they come to."""
        wrong = self.check()
        self.problem = next(iter(wrong.values()), None)
        for row in self.fields:
            problem = wrong.get(row.field.key)
            row.judge("" if problem is None else self.message(row, problem))
        self.query_one("#submit", Button).disabled = self.problem is not None
        self.preview()
        self.on_descendant_focus()

    def on_input_changed(self) -> None:
        self.renew()

    def on_descendant_focus(self) -> None:
        """The foot explains the field that has the focus."""
        row = next((row for row in self.fields if row.input.has_focus), None)
        self.query_one("#form-status", Static).update(one_line(self.status(row), "$dim"))

    def on_input_submitted(self) -> None:
        """Enter moves to the next field; the button comes after the last one."""
        self.app.action_focus_next()

    def on_button_pressed(self) -> None:
        self.action_submit()

    def action_submit(self) -> None:
        """Submits, or moves to the field that is wrong."""
        if self.problem is None:
            self.submit()
            return
        self.notify(str(self.problem), severity="warning", markup=False)
        row = next((row for row in self.fields if row.mark in (WRONG, NEEDED)), None)
        if row is not None:
            row.input.focus()

    def action_scroll_preview(self, step: int) -> None:
        """A page of the preview."""
        scroll = self.query_one("#preview-scroll", VerticalScroll)
        scroll.scroll_relative(y=step * max(1, scroll.size.height - 1), animate=False)

    def action_close(self) -> None:
        self.dismiss(None)
