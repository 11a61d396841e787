"""A form in a dialog: fields in groups, what they come to beside them, a button, and one line of help at the foot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeAlias, TypeVar

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Click, Key
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from spark_tui.base.errors import SparkError
from spark_tui.base.page import Row, Section, Tone
from spark_tui.base.text import cell_width, clean_line, truncate
from spark_tui.tui.dialog import Dialog
from spark_tui.tui.format import key_hints
from spark_tui.tui.widgets.line import Line
from spark_tui.tui.widgets.page import Page, one_line

Answer = TypeVar("Answer")
MAX_SHOWN = 200
TALL = 44
"""Rows of a window in which no group is folded."""
CHANGED, NEEDED, WRONG = "changed", "needed", "wrong"
NEEDED_HINT = "required: the preset has no value"


class FormField(Struct, frozen=True):
    """One field. `help` says what may be written, `value` is what holds while the field is empty, and `silent` is shown
    where that is not known. `needed`: it must not stay empty. `read` turns a text into what it means, so that `12GiB`
    is no change of its bytes; it may raise ValueError. `choices` are all that it takes. `group` is its heading; `wide`
    texts have the room of the mark too."""

    key: str
    label: str
    help: str
    silent: str = ""
    value: str = ""
    needed: bool = False
    read: Callable[[str], object] = str
    choices: tuple[str, ...] = ()
    group: str = ""
    wide: bool = False

    @property
    def placeholder(self) -> str:
        return NEEDED_HINT if self.needed else self.value or self.silent

    def changes(self, text: str) -> bool:
        return bool(text) and not self.same(text, self.value)

    def same(self, text: str, other: str) -> bool:
        try:
            return self.read(text) == self.read(other)
        except ValueError:
            return text == other


class Given(Struct, frozen=True):
    """Texts that fields begin with, and the word that marks them: `yours`."""

    texts: Mapping[str, str]
    word: str = ""


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


class Choice(Static, can_focus=True):
    """One of a few words, by Left, Right, Space, or by typing it. The first one stands for `unset`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,space", "step(1)", "Next value", show=False),
        Binding("left", "step(-1)", "Previous value", show=False),
    ]

    class Changed(Message):
        pass

    def __init__(self, words: Sequence[str], value: str, unset: str, silent: str) -> None:
        """`silent` is shown for `unset` where that is empty."""
        super().__init__(classes="choice", markup=False)
        self._unset, self._silent = unset, silent or "default"
        self._words = tuple(words) if unset in words else ("", *words)
        self._value = value
        self._typed = ""

    @property
    def value(self) -> str:
        """Empty for what holds anyway."""
        return self._value

    @value.setter
    def value(self, text: str) -> None:
        text = "" if text == self._unset else text
        if text != self._value:
            self._value = text
            self.refresh()
            self.post_message(self.Changed())

    def render(self) -> Content:
        chosen = self._value or (self._unset if self._unset in self._words else "")
        words = self._words if chosen in self._words else (*self._words, chosen)
        texts = [(word or self._unset or self._silent, word == chosen) for word in words]
        strong = "bold" if self._value else "$dim" if not self.has_focus else ""
        row = Content(" ").join(
            Content.styled(f"[{clean_line(text)}]" if on else f" {clean_line(text)} ", strong if on else "$dim")
            for text, on in texts
        )
        if row.cell_length <= self.size.width:
            return row
        return Content.styled(f"< {next(text for text, on in texts if on)} >", strong).truncate(
            max(1, self.size.width), ellipsis=True
        )

    def on_key(self, event: Key) -> None:
        letter = (event.character or "").lower() if event.is_printable else ""
        if not letter or letter in " ?":
            return
        event.stop()
        for typed in (self._typed + letter, letter):
            found = [word for word in self._words if word and word.startswith(typed)]
            if found:
                self._typed = typed
                at = found.index(self._value) + (len(typed) == 1) if self._value in found else 0
                self.value = found[at % len(found)]
                return

    def on_blur(self) -> None:
        self._typed = ""

    def on_click(self, event: Click) -> None:
        event.stop()
        self.action_step(1)

    def action_step(self, step: int) -> None:
        chosen = self._value or (self._unset if self._unset in self._words else "")
        at = self._words.index(chosen) if chosen in self._words else 0
        self.value = self._words[(at + step) % len(self._words)]


Control: TypeAlias = "Input | Choice"


class FieldRow(Horizontal):
    """A label, an input or a choice, and beside it a word when it is changed, or what is wrong with it."""

    def __init__(self, field: FormField, value: str = "", word: str = "") -> None:
        super().__init__(classes="field-row")
        self.field = field
        self.given, self.word = value, word
        self.input: Control
        if field.choices:
            self.input = Choice(field.choices, value, field.value, field.silent)
        else:
            hint = truncate(clean_line(field.placeholder), MAX_SHOWN)
            self.input = Input(value, placeholder=hint, compact=True, select_on_focus=bool(value))
        self.problem = ""
        self.note = ""
        """Shown while there is no mark."""
        self._mark = Static(classes="field-mark", markup=False)
        self.set_class(field.wide, "-wide-field")

    def compose(self) -> ComposeResult:
        yield FieldLabel(self.field.label)
        yield self.input
        yield self._mark

    @property
    def text(self) -> str:
        return self.input.value.strip()

    @property
    def unlabelled(self) -> str:
        """What is wrong, without the label beside it."""
        return self.problem.removeprefix(f"{self.field.label} ")

    @property
    def mark(self) -> str:
        if self.problem:
            return WRONG
        if self.field.needed and not self.text:
            return NEEDED
        if self.given and self.field.same(self.text, self.given):
            return self.word if self.field.changes(self.text) or self.field.needed else ""
        return CHANGED if self.field.changes(self.text) else ""

    @property
    def keeps(self) -> bool:
        """It is shown though its group is folded."""
        return bool(self.mark) or self.input.has_focus

    def judge(self, problem: str) -> None:
        """Shows what is wrong (empty: nothing), and whether the field is changed."""
        if problem and problem != self.problem and self.input.has_focus:
            self.call_after_refresh(self.scroll_visible, animate=False)
        self.problem = problem
        mark = self.mark
        for word in (CHANGED, NEEDED, WRONG):
            self.set_class(mark == word, f"-{word}")
        beside = clean_line(self.unlabelled).removeprefix("must be ")
        shown = mark or self.note if not problem or self.field.wide else truncate(beside, MAX_SHOWN)
        if self._mark.content != shown:
            self._mark.update(shown)


FORM_CSS = Path(__file__).with_name("form_screen.tcss")
"""For the CSS_PATH of each such screen."""


class Fold(Static, can_focus=True):
    """The heading of a group that is folded: Enter or Space shows its fields."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space,right", "screen.unfold", "Show all", show=False)]

    def show(self, group: str, hidden: int) -> None:
        self.update(Content.assemble(group, (f"  {hidden} more settings  ^o shows them", "not bold $dim")))

    def on_click(self) -> None:
        self.screen.action_unfold()  # type: ignore[attr-defined]


class FormScreen(Dialog[Answer | None]):
    """Answers what `submit` dismisses with, None when the person went back.

    Subclasses give the fields and implement `check`, `preview` and `submit`. The fields of the group FOLDED are shown
    when the person asks for them, and those that differ always.
    """

    CSS_PATH: ClassVar = [FORM_CSS]
    CONFIRMS = ("ctrl+l",)
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-normal"), (160, "-wide")]  # noqa: RUF012 - Textual's shape
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+l", "submit", "Start", priority=True),
        Binding("ctrl+r", "reset", "Reset", priority=True),
        Binding("ctrl+o", "unfold", "All settings", show=False, priority=True),
        Binding("escape", "cancel", "Back"),
        Binding("down", "move(1)", "Next field", show=False, priority=True),
        Binding("up", "move(-1)", "Previous field", show=False, priority=True),
        Binding("pagedown", "scroll_preview(1)", "Preview down", show=False, priority=True),
        Binding("pageup", "scroll_preview(-1)", "Preview up", show=False, priority=True),
    ]
    VERB: ClassVar[str] = "Start"
    """What the button and the key do."""
    FOLDED: ClassVar[str] = ""

    def __init__(self, title: str, fields: Sequence[FormField], *given: Given) -> None:
        """`given` are texts in the fields to begin with; of two for one field the last counts."""
        super().__init__()
        self._title = title
        self.verb = self.VERB
        found = {key: (text, each.word) for each in given for key, text in each.texts.items()}
        self.fields = tuple(FieldRow(field, *found.get(field.key, ("", ""))) for field in fields)
        self.problem: SparkError | None = None
        """Why it would be refused as it is; None when it would not."""
        self.folded = bool(self.FOLDED)
        self._folded_before = False

    def compose(self) -> ComposeResult:
        """Fields on the left, the preview on the right (below, when it is narrow)."""
        with Vertical(classes="dialog", id="form") as dialog:
            dialog.border_title = Content(truncate(clean_line(self._title), MAX_SHOWN))
            with Horizontal(id="form-columns"):
                with VerticalScroll(id="fields", can_focus=False):
                    yield from self._grouped()
                with VerticalScroll(id="preview-scroll", can_focus=False):
                    yield Page(id="preview")
            with Horizontal(id="form-foot"):
                yield Button(self.verb, id="submit", variant="primary", compact=True)
                yield Static(id="form-status")

    def _grouped(self) -> Iterable[Widget]:
        groups = dict.fromkeys(row.field.group for row in self.fields)
        for group in groups:
            if group and group == self.FOLDED:
                yield Fold(classes="field-group", id="fold", markup=False)
            elif group:
                yield Static(group, classes="field-group", markup=False)
            yield from (row for row in self.fields if row.field.group == group)
            yield from self.group_foot(group)

    def on_mount(self) -> None:
        """The field that has to be written first has the focus."""
        if self.app.size.height >= TALL:
            self.action_unfold()
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

    def group_foot(self, group: str) -> Iterable[Widget]:
        """What stands below the fields of a group."""
        return ()

    def keys(self) -> tuple[tuple[str, str], ...]:
        """The keys at the foot, with what they do."""
        return (("^l", self.verb.lower()), ("^r", "reset"), ("F1", "help"), ("Esc", "back"))

    def message(self, row: FieldRow, problem: SparkError) -> str:
        """What is shown beside a field that is wrong."""
        return str(problem)

    def status(self, row: FieldRow | None) -> str:
        """What the foot says: about the field that has the focus, or about the button."""
        return f"Enter: {self.verb.lower()}." if row is None else f"{row.field.label}: {row.field.help}"

    def problems(self) -> Section:
        """Every field that is wrong, with all that is wrong with it."""
        rows = (Row(row.unlabelled, row.field.label, Tone.BAD) for row in self.fields if row.problem)
        return Section(rows=tuple(rows))

    def show_preview(self, sections: Iterable[Section]) -> None:
        self.query_one("#preview", Page).show(sections)
        self.call_after_refresh(self._keep_in_view)

    def _keep_in_view(self) -> None:
        """The field that is typed into stays in sight when what is above it has grown."""
        row = next((row for row in self.fields if row.input.has_focus), None)
        if row is not None:
            row.scroll_visible(animate=False)

    # --- events ---------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Checks the fields, marks those that are wrong, and shows what they come to."""
        wrong = self.check()
        self.problem = next(iter(wrong.values()), None)
        for row in self.fields:
            problem = wrong.get(row.field.key)
            row.judge("" if problem is None else self.message(row, problem))
        self.query_one("#submit", Button).disabled = self.problem is not None
        self._fold()
        self.preview()
        self.show_foot()

    def _fold(self) -> None:
        """A field that differs is shown, and one that was shown stays: nothing moves under the hand."""
        if not self.folded:
            return
        rows = [row for row in self.fields if row.field.group == self.FOLDED]
        for row in rows:
            row.display = row.keeps or (self._folded_before and row.display)
        self._folded_before = True
        self.query_one(Fold).show(self.FOLDED, sum(not row.display for row in rows))

    def on_input_changed(self) -> None:
        self.renew()

    def on_choice_changed(self) -> None:
        self.renew()

    def on_descendant_focus(self) -> None:
        self.show_foot()

    def show_foot(self) -> None:
        """The keys, and about the field that has the focus: what is wrong with it, else what it takes."""
        row = next((row for row in self.fields if row.input.has_focus), None)
        problem = row.problem if row is not None else ""
        foot = one_line(problem or self.status(row), "$error" if problem else "$dim")
        self.query_one("#form-status", Static).update(foot)
        self.query_one("#form").border_subtitle = key_hints("  ".join(f"{key} {text}" for key, text in self.keys()))

    def on_input_submitted(self) -> None:
        """Enter moves to the next field; the button comes after the last one."""
        self.action_move(1)

    def on_button_pressed(self) -> None:
        self.action_submit()

    def action_move(self, step: int) -> None:
        """To the next field or the one before, and not beyond the last or the first."""
        chain, now = self.focus_chain, self.focused
        at = chain.index(now) + step if now in chain else 0
        if 0 <= at < len(chain):
            chain[at].focus()

    def action_unfold(self) -> None:
        """Shows all fields, and moves to the first that was hidden."""
        if not self.folded:
            return
        self.folded = False
        hidden = [row for row in self.fields if not row.display]
        for row in hidden:
            row.display = True
        self.query_one(Fold).update(self.FOLDED)
        self.query_one(Fold).can_focus = False
        if hidden:
            self.set_focus(hidden[0].input)  # at once: the next key may be under way

    def action_reset(self) -> None:
        """All fields as they are without a change."""
        for row in self.fields:
            row.input.value = ""

    def action_submit(self) -> None:
        """Submits, or moves to the field that is wrong."""
        if self.problem is None:
            self.submit()
            return
        row = next((row for row in self.fields if row.mark in (WRONG, NEEDED)), None)
        if row is not None:  # its words stand beside it, at the foot and in the preview
            row.display = True
            row.input.focus()
        else:
            self.notify(str(self.problem), severity="warning", markup=False)

    def action_scroll_preview(self, step: int) -> None:
        """A page of the preview."""
        scroll = self.query_one("#preview-scroll", VerticalScroll)
        scroll.scroll_relative(y=step * max(1, scroll.size.height - 1), animate=False)
