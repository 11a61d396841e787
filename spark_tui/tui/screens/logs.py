"""Logs: the selected engine's log, full screen, over the bounded buffer."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Input

from spark_tui.core.actions import Scope, key_of
from spark_tui.core.logs import BadPattern, LineFilter, LogBuffer, Query, last_line_with
from spark_tui.domain.logs.explain import Explanation
from spark_tui.domain.logs.view import EngineView
from spark_tui.present.logs import Landmark, cause_rows, landmarks
from spark_tui.present.page import Section, Tone
from spark_tui.tui import format as fmt
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.widgets.boot_timeline import BootTimelineView
from spark_tui.tui.widgets.line import Line, entitle, spread
from spark_tui.tui.widgets.log_view import LogView
from spark_tui.tui.widgets.page import Page


class LogStatus(Line):
    """Under the log: what is shown of what there is, and whether the end is followed."""

    def __init__(self) -> None:
        super().__init__(id="log-status")
        self.left = Content("")
        self.right = Content("")

    def say(self, width: int) -> Content:
        """One line."""
        return spread(self.left, self.right, width)


SIGN_STYLES = {
    Tone.BAD: "error",
    Tone.WARNING: "warning",
    Tone.GOOD: "good",
    Tone.PLAIN: "dim",
    Tone.QUIET: "dim",
}
LEVELS = ((0, ""), (30, "warnings and errors"), (40, "errors"))


class LogsScreen(FrameScreen):
    """The log of the engine that is selected."""

    SCOPE = Scope.LOGS
    TAB = "show_logs"
    CSS_PATH = "logs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.LOGS)
    AUTO_FOCUS = "#log"

    def compose_body(self) -> ComposeResult:
        """Boot history on top, the log, why it ended, one line of status."""
        yield BootTimelineView(self.context.clock, self.spark.glyphs, fold_lines=1, id="boot")
        with Container(id="log-pane", classes="pane"):
            yield LogView(id="log", glyphs=self.spark.glyphs, gutter=True)
        yield Page(most=2, id="log-cause")
        yield Input(id="log-input", compact=True)
        yield LogStatus()

    def on_mount(self) -> None:
        """Binds the log to the selected engine."""
        self._asking = ""
        self._level = 0
        self._text = ""
        self._query: Query | None = None
        self._landmarks: dict[int, Landmark] = {}
        self._located: tuple[Explanation, int | None] | None = None
        self.query_one("#log-input").display = False
        self.bind_slice("selected", lambda _: self._show())
        self.bind_slice("engines", lambda _: self._show())
        self._timer = self.set_interval(0.5, self._renew_status)

    def on_screen_suspend(self) -> None:
        """Nothing ticks on a hidden screen."""
        self._timer.pause()

    def on_screen_resume(self) -> None:
        """Catches up."""
        self._timer.resume()

    # --- show -----------------------------------------------------------------------------------------

    @property
    def log_view(self) -> LogView:
        """The log."""
        return self.query_one(LogView)

    def _show(self) -> None:
        view = self.selected_engine
        boot = self.query_one(BootTimelineView)
        pane = self.query_one("#log-pane")
        watch = self.context.supervisor.find(self.spark.selected)
        boot.display = view is not None
        if view is not None:
            boot.show(view.timeline, folded=True)
        if watch is not None:
            self.log_view.show(watch.buffer)
            self._point_out(watch.buffer, view)
            entitle(pane, Content.assemble(fmt.safe(watch.container.name), "  ", fmt.state(watch.view())))
        else:
            home, presets = key_of("show_home"), key_of("show_presets")
            nothing = f"No engine is selected. {home} Home. {presets} choose a preset to launch."
            self.log_view.show(LogBuffer(), nothing)
            self._point_out(LogBuffer(), None)
            entitle(pane, "No log")
        self._renew_status()

    def _point_out(self, buffer: LogBuffer, view: EngineView | None) -> None:
        """Signs in the gutter where a line proves a cause, a finding or a verdict."""
        found: tuple[Landmark, ...] = ()
        cause = None
        if view is not None:
            explanation = self.spark.explain(view)
            if self._located is None or self._located[0] is not explanation:
                lines = explanation.cause.evidence if explanation.cause is not None else ()
                deciding = last_line_with(buffer, lines[-1], view.first_line) if lines else None
                self._located = (explanation, deciding)
            cause = explanation.cause
            found = landmarks(explanation, view.first_line, self._located[1])
        self._landmarks = {landmark.line: landmark for landmark in found}
        self.log_view.point_out({line: SIGN_STYLES[landmark.tone] for line, landmark in self._landmarks.items()})
        preset = view is not None and self.spark.presets.get(view.container.preset) is not None
        page = self.query_one("#log-cause", Page)
        page.display = cause is not None
        if cause is not None:
            page.show((Section(rows=tuple(cause_rows(cause, preset=preset, key=key_of("apply_log_remedy")))),))

    def _renew_status(self) -> None:
        log, status = self.log_view, self.query_one(LogStatus)
        if self.selected_engine is None:
            status.left = status.right = Content("")
            status.renew()
            return
        words = [f"{log.shown_count:,} of {log.total_count:,} lines"]
        if log.match_text:
            words.append(log.match_text)
        here = self._landmarks.get(log.cursor) if log.cursor is not None else None
        box = self.query_one("#log-input", Input)
        self._name_filter()
        if box.display:
            status.left = fmt.safe(f" {box.placeholder}", "$dim")
        elif here is not None and not log.match_text:
            status.left = Content.assemble(
                (f" {here.kind.value} ", f"bold {fmt.TONE_STYLES[here.tone]}".strip()), fmt.safe(here.text)
            )
        else:
            if self._landmarks and not log.match_text:
                keys = f"{key_of('next_match')} next  {key_of('previous_match')} previous"
                words.append(f"{len(self._landmarks)} finding{'s' * (len(self._landmarks) > 1)}  {keys}")
            status.left = fmt.safe(" " + "   ".join(words), "$dim")
        if log.following:
            status.right = Content.styled(*(("following ", "$success") if log.open else ("at the end ", "$dim")))
        else:
            new = f"+{log.new_lines:,} new, " if log.new_lines else ""
            status.right = Content.styled(f"{new}{key_of('follow')} follow ", "$warning")
        status.renew()

    def _name_filter(self) -> None:
        """What is left out stands on the frame as long as it is."""
        words = [LEVELS[self._level][1], f"matching {self._text!r}" if self._text else ""]
        shown = ", ".join(word for word in words if word)
        entitle(self.query_one("#log-pane"), fmt.safe(f"only {shown}", "$warning") if shown else "", below=True)

    def on_log_view_follow_changed(self) -> None:
        """The state is on screen at once."""
        self._renew_status()

    def on_log_view_search_changed(self) -> None:
        """Matches are counted as they are found."""
        self._renew_status()

    # --- search and filter ----------------------------------------------------------------------------

    def action_search(self) -> None:
        """Asks for the text to find."""
        self._ask("search", "search: text, or /regex/   Enter find, Esc close")

    def action_filter_log(self) -> None:
        """Asks for the text that shown lines must have."""
        self._ask("filter", "show only lines with: text, or /regex/   empty: all")

    def _ask(self, what: str, placeholder: str) -> None:
        self._asking = what
        box = self.query_one("#log-input", Input)
        box.placeholder = placeholder
        box.value = self._text if what == "filter" else ""
        box.display = True
        box.focus()
        self._renew_status()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Searches or filters."""
        try:
            query = query_of(event.value)
        except BadPattern as error:
            self.notify(str(error), severity="warning", markup=False)
            return
        if self._asking == "search":
            self.log_view.search(query)
        else:
            self._text, self._query = event.value.strip(), query
            self._filter()
        self._close_input()

    def _filter(self) -> None:
        self.log_view.filter(LineFilter(level=LEVELS[self._level][0], query=self._query))
        self._renew_status()

    def key_escape(self) -> None:
        """Closes the input, else ends the search, else goes Home."""
        box = self.query_one("#log-input", Input)
        if box.display:
            self._close_input()
        elif self.log_view.match_text:
            self.log_view.search(None)
        else:
            self.spark.switch_mode("home")

    def _close_input(self) -> None:
        self.query_one("#log-input").display = False
        self.log_view.focus()
        self._renew_status()

    # --- keys -----------------------------------------------------------------------------------------

    def action_follow(self) -> None:
        """To the end, and stay there."""
        self.log_view.follow()

    def action_next_match(self) -> None:
        """Next match, or next finding."""
        self._jump(1)

    def action_previous_match(self) -> None:
        """Previous match, or previous finding."""
        self._jump(-1)

    def _jump(self, step: int) -> None:
        log = self.log_view
        if log.match_text:
            log.next_match() if step > 0 else log.previous_match()
        elif not log.visit(step):
            none = "No findings in this log."
            self.notify("Findings are hidden by the filter." if self._landmarks else none, markup=False)
        self._renew_status()

    def action_apply_log_remedy(self) -> None:
        """The launch form with the change that helps."""
        self.spark.apply_fix(self.selected_engine)

    def action_level(self) -> None:
        """All, warnings and worse, errors only."""
        self._level = (self._level + 1) % len(LEVELS)
        self._filter()

    def action_wrap(self) -> None:
        """Wraps long lines, or not."""
        self.log_view.toggle_wrap()

    def action_copy_line(self) -> None:
        """The marked lines, or the one under the cursor."""
        self._copy(self.log_view.selected_text())

    def action_copy_traceback(self) -> None:
        """The whole traceback that the line is part of: in a log, processes write into one another's."""
        text = self.log_view.traceback_text()
        self._copy(text)
        if not text:
            self.notify(f"No traceback on this line. {key_of('copy_line')} copies the line.", markup=False)

    def _copy(self, text: str) -> None:
        if text:
            self.app.copy_to_clipboard(text)
            count = text.count("\n") + 1
            self.notify(f"Copied {count} line{'s' if count > 1 else ''}.", markup=False)

    @work(exit_on_error=False, group="dump")
    async def action_dump(self) -> None:
        """Saves what the buffer holds."""
        watch = self.context.supervisor.find(self.spark.selected)
        if watch is None:
            return
        buffer = watch.buffer
        try:
            path = self.context.archive.save(watch.container.name, buffer.slice(buffer.first, buffer.end))
        except OSError as error:
            self.notify(f"Not saved: {error.strerror or error}.", severity="error", markup=False)
        else:
            self.notify(f"Saved to {path}", timeout=10, markup=False)

    def action_next_engine(self) -> None:
        """The log of the next engine."""
        names = [view.name for view in self.engines()]
        if names:
            here = names.index(self.spark.selected) if self.spark.selected in names else -1
            self.spark.selected = names[(here + 1) % len(names)]


def query_of(text: str) -> Query | None:
    """`text` as typed: `/.../` is a regular expression, anything else stands for itself, nothing is None.

    Raises BadPattern.
    """
    text = text.strip()
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        return Query(text[1:-1], regex=True)
    return Query(text) if text else None
