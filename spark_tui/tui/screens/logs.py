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
from spark_tui.core.logs import BadPattern, LineFilter, LogBuffer, LogState, Query, last_line_with
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

SIGN_STYLES = {
    Tone.BAD: "error",
    Tone.WARNING: "warning",
    Tone.GOOD: "good",
    Tone.PLAIN: "dim",
    Tone.QUIET: "dim",
}
LEVELS = ((0, ""), (30, "warnings and errors"), (40, "errors"))
PLACEHOLDERS = {
    "search": "search: text, or /regex/   Enter find, Esc close",
    "filter": "show only lines with: text, or /regex/   empty: all",
}


class LogStatus(Line):
    """Below the log: how many lines are shown, and whether the end is followed."""

    def __init__(self) -> None:
        super().__init__(id="log-status")
        self.left = self.right = Content("")

    def say(self, width: int) -> Content:
        return spread(self.left, self.right, width)


class LogsScreen(FrameScreen):
    """The log of the selected engine."""

    SCOPE = Scope.LOGS
    TAB = "show_logs"
    CSS_PATH = "logs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.LOGS)
    AUTO_FOCUS = "#log"

    def compose_body(self) -> ComposeResult:
        yield BootTimelineView(self.context.clock, self.spark.glyphs, fold_lines=1, id="boot")
        with Container(id="log-pane", classes="pane"):
            yield LogView(id="log", glyphs=self.spark.glyphs, gutter=True)
        yield Page(most=2, id="log-cause")
        yield Input(id="log-input", compact=True)
        yield LogStatus()

    def on_mount(self) -> None:
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
        self._timer.pause()

    def on_screen_resume(self) -> None:
        self._timer.resume()

    # --- show -----------------------------------------------------------------------------------------

    @property
    def log_view(self) -> LogView:
        return self.query_one(LogView)

    def _show(self) -> None:
        view, boot, pane = self.selected_engine, self.query_one(BootTimelineView), self.query_one("#log-pane")
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
        """Signs in the gutter where a line proves a cause, a finding or a verdict; the cause below the log."""
        found: tuple[Landmark, ...] = ()
        cause = None
        if view is not None:
            explanation = self.spark.explain(view)
            cause = explanation.cause
            if self._located is None or self._located[0] is not explanation:
                lines = cause.evidence if cause is not None else ()
                self._located = (explanation, last_line_with(buffer, lines[-1], view.first_line) if lines else None)
            found = landmarks(explanation, view.first_line, self._located[1])
        self._landmarks = {landmark.line: landmark for landmark in found}
        self.log_view.point_out({line: SIGN_STYLES[landmark.tone] for line, landmark in self._landmarks.items()})
        preset = view is not None and self.spark.presets.get(view.container.preset) is not None
        page = self.query_one("#log-cause", Page)
        page.display = cause is not None
        if cause is not None:
            page.show((Section(rows=tuple(cause_rows(cause, preset=preset, key=key_of("apply_log_remedy")))),))

    def _renew_status(self) -> None:
        status, box, pager = self.query_one(LogStatus), self.query_one("#log-input", Input), self.log_view.pager
        if self.selected_engine is None:
            status.left = status.right = Content("")
            status.renew()
            return
        only = ", ".join(filter(None, (LEVELS[self._level][1], f"matching {self._text!r}" if self._text else "")))
        entitle(self.query_one("#log-pane"), fmt.safe(f"only {only}", "$warning") if only else "", below=True)
        mark = None if pager.cursor is None else self._landmarks.get(pager.cursor)
        if box.display:
            status.left = fmt.safe(f" {box.placeholder}", "$dim")
        elif mark is not None and not pager.match_text:
            tone = f"bold {fmt.TONE_STYLES[mark.tone]}".strip()
            status.left = Content.assemble((f" {mark.kind.value} ", tone), fmt.safe(mark.text))
        else:
            words = [f"{len(pager.numbers):,} of {len(pager.buffer):,} lines"]
            if pager.match_text:
                words.append(pager.match_text)
            elif self._landmarks:
                keys = f"{key_of('next_match')} next  {key_of('previous_match')} previous"
                words.append(f"{len(self._landmarks)} finding{'s' * (len(self._landmarks) > 1)}  {keys}")
            status.left = fmt.safe(" " + "   ".join(words), "$dim")
        if not pager.following:
            new = f"+{pager.new_lines:,} new, " if pager.new_lines else ""
            status.right = Content.styled(f"{new}{key_of('follow')} follow ", "$warning")
        elif pager.buffer.state is LogState.OPEN:
            status.right = Content.styled("following ", "$success")
        else:
            status.right = Content.styled("at the end ", "$dim")
        status.renew()

    def on_log_view_follow_changed(self) -> None:
        self._renew_status()

    def on_log_view_search_changed(self) -> None:
        self._renew_status()

    # --- search and filter ----------------------------------------------------------------------------

    def action_search(self) -> None:
        self._ask("search")

    def action_filter_log(self) -> None:
        self._ask("filter")

    def _ask(self, what: str) -> None:
        self._asking = what
        box = self.query_one("#log-input", Input)
        box.placeholder = PLACEHOLDERS[what]
        box.value = self._text if what == "filter" else ""
        box.display = True
        box.focus()
        self._renew_status()

    def on_input_submitted(self, event: Input.Submitted) -> None:
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
        if self.query_one("#log-input").display:
            self._close_input()
        elif self.log_view.pager.match_text:
            self.log_view.search(None)
        else:
            self.spark.switch_mode("home")

    def _close_input(self) -> None:
        self.query_one("#log-input").display = False
        self.log_view.focus()
        self._renew_status()

    # --- keys -----------------------------------------------------------------------------------------

    def action_follow(self) -> None:
        self.log_view.action_pager("follow")

    def action_next_match(self) -> None:
        self._jump(1)

    def action_previous_match(self) -> None:
        self._jump(-1)

    def _jump(self, step: int) -> None:
        with self.log_view.paging() as pager:
            if pager.match_text:
                pager.jump(step)
            elif not pager.visit(step):
                none = "No findings in this log."
                self.notify("Findings are hidden by the filter." if self._landmarks else none, markup=False)
        self._renew_status()

    def action_apply_log_remedy(self) -> None:
        self.spark.apply_fix(self.selected_engine)

    def action_level(self) -> None:
        self._level = (self._level + 1) % len(LEVELS)
        self._filter()

    def action_wrap(self) -> None:
        self.log_view.toggle_wrap()

    def action_copy_line(self) -> None:
        self._copy(self.log_view.pager.selected_text())

    def action_copy_traceback(self) -> None:
        """The whole traceback of the line, without lines that other processes wrote into it."""
        text = self.log_view.pager.traceback_text()
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
        names = [view.name for view in self.engines()]
        if names:
            at = names.index(self.spark.selected) if self.spark.selected in names else -1
            self.spark.selected = names[(at + 1) % len(names)]


def query_of(text: str) -> Query | None:
    """`text` as typed: `/.../` is a regular expression, anything else is plain text, nothing is None.

    Raises BadPattern.
    """
    text = text.strip()
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        return Query(text[1:-1], regex=True)
    return Query(text) if text else None
