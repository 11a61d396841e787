"""Logs: the selected engine's log, full screen, over the bounded buffer."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Input

from spark_tui.base.actions import Scope, key_of
from spark_tui.base.errors import UsageError
from spark_tui.base.page import Section, Tone
from spark_tui.base.quantities import human_duration
from spark_tui.observe.engines.screen.boot_timeline import BootTimelineView
from spark_tui.observe.engines.screen.view import LogView
from spark_tui.observe.engines.show.activity import launch_words
from spark_tui.observe.engines.show.engines import engine_status
from spark_tui.observe.engines.use.engines import EngineSupervisor, EngineWatch
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.explain.model.explain import Explanation
from spark_tui.observe.explain.model.line import MOMENTS, moment_of
from spark_tui.observe.explain.model.timeline import PhaseId, PhaseState
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.explain.show import Landmark, cause_rows, explanation_of, landmarks
from spark_tui.observe.explain.use import (
    BadPattern,
    LineFilter,
    LogBuffer,
    LogState,
    MergedLog,
    Query,
    first_line_at,
    last_line_with,
    nearest_line,
)
from spark_tui.tui import format as fmt
from spark_tui.tui.frame import FrameScreen, bindings
from spark_tui.tui.widgets.line import Line, entitle, spread
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.yank import Yank

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
    "time": f"go to: {MOMENTS}, start, ready",
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
    OF_ENGINE = True
    CSS_PATH = "logs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.LOGS)
    AUTO_FOCUS = "#log"
    folded = True

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
        self._since_start = False
        self._first = 0
        self._landmarks: dict[int, Landmark] = {}
        self._located: dict[str, tuple[Explanation, int | None]] = {}
        self._together = False
        self._merged: MergedLog | None = None
        self.query_one("#log-input").display = False
        self.bind_slices(("selected", ENGINES), self._show)
        self._timer = self.set_interval(0.5, self._renew_status)

    def on_screen_suspend(self) -> None:
        self._timer.pause()

    def on_screen_resume(self) -> None:
        self._timer.resume()

    # --- show -----------------------------------------------------------------------------------------

    @property
    def selected_engine(self) -> EngineView | None:
        return self.world.named(ENGINES, self.spark.selected)

    @property
    def log_view(self) -> LogView:
        return self.query_one(LogView)

    def _show(self) -> None:
        view, boot, pane = self.selected_engine, self.query_one(BootTimelineView), self.query_one("#log-pane")
        watch = self.context[EngineSupervisor].find(self.spark.selected)
        watches = self._shown_together()
        boot.display = view is not None and not watches
        if view is not None:
            boot.show(view.timeline, folded=True)
        if watches:
            self._show_together(watches)
            names = fmt.safe(" ".join(each.container.name for each in watches))
            entitle(pane, Content.assemble(names, (f"  {len(watches)} engines by time", "$dim")))
        elif watch is not None:
            if self.log_view.pager.buffer is not watch.buffer:
                self.log_view.show(watch.buffer)
                self._filter()
            if self._since_start and view is not None and view.first_line != self._first:
                self._filter()  # it was started again
            self._point_out(watch.buffer, view)
            self.log_view.head(_headings(watch.buffer, view))
            entitle(
                pane,
                Content.assemble(fmt.safe(watch.container.name), "  ", fmt.styled(engine_status(watch.view()).cell)),
            )
        else:
            home, presets = key_of("show_home"), key_of("show_presets")
            nothing = f"No engine is selected. {home} Home. {presets} choose a preset to launch."
            if launch := launch_words(self.world, self.spark.selected):
                nothing = (
                    f"{launch}: its log begins with its container. {home} Home. {key_of('next_engine')} next engine."
                )
            self.log_view.show(LogBuffer(), nothing)
            self._point_out(LogBuffer(), None)
            entitle(pane, "No log")
        self._renew_status()

    def _shown_together(self) -> tuple[EngineWatch, ...]:
        """The running engines and the selected one, while several are shown; empty where there are not two."""
        views = self.context[EngineSupervisor].views() if self._together else ()
        found = [self.context[EngineSupervisor].find(view.name) for view in views]
        watches = tuple(
            each for each in found if each and (each.container.running or each.container.name == self.spark.selected)
        )
        return watches if len(watches) > 1 else ()

    def _show_together(self, watches: tuple[EngineWatch, ...]) -> None:
        """One log of theirs by time, with the signs and phases of each; no cause, which is of one engine."""
        logs = tuple(
            (each.container.name, each.buffer, each.view().first_line if self._since_start else 0) for each in watches
        )
        if self._merged is None or self._merged.logs != logs:
            self._merged = MergedLog(logs)
        merged = self._merged
        if self.log_view.pager.buffer is not merged:
            self.log_view.show(merged)
            self._filter()
        found, headings = {}, {}
        for log, each in enumerate(watches):
            view, name = each.view(), each.container.name
            for mark in self._landmarks_of(view, each.buffer):
                if (place := merged.place(log, mark.line)) is not None:
                    found[place] = replace(mark, line=place, text=f"{name}  {mark.text}")
            for line, text in _headings(each.buffer, view).items():
                if (place := merged.place(log, line)) is not None:
                    headings[place] = f"{name}  {text}"
        self._sign(found)
        self.log_view.head(headings)
        self.query_one("#log-cause", Page).display = False

    def _landmarks_of(self, view: EngineView, buffer: LogBuffer) -> tuple[Landmark, ...]:
        explanation = explanation_of(self.context, view)
        located = self._located.get(view.name)
        if located is None or located[0] is not explanation:
            lines = explanation.cause.evidence if explanation.cause is not None else ()
            located = (explanation, last_line_with(buffer, lines[-1], view.first_line) if lines else None)
            self._located[view.name] = located
        return landmarks(explanation, view.first_line, located[1])

    def _sign(self, found: dict[int, Landmark]) -> None:
        self._landmarks = found
        self.log_view.point_out({line: SIGN_STYLES[landmark.tone] for line, landmark in found.items()})

    def _point_out(self, buffer: LogBuffer, view: EngineView | None) -> None:
        """Signs in the gutter where a line proves a cause, a finding or a verdict; the cause below the log."""
        cause = explanation_of(self.context, view).cause if view is not None else None
        found = self._landmarks_of(view, buffer) if view is not None else ()
        self._sign({landmark.line: landmark for landmark in found})
        preset = view is not None and self.spark.has_preset(view.container.preset)
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
        matching = f"matching {self._text!r}" if self._text else ""
        start = "the latest start" if self._since_start else ""
        only = ", ".join(filter(None, (LEVELS[self._level][1], matching, start)))
        entitle(self.query_one("#log-pane"), fmt.safe(f"only {only}", "$warning") if only else "", below=True)
        mark = None if pager.cursor is None else self._landmarks.get(pager.cursor)
        if box.display and box.value:
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

    on_log_view_search_changed = on_log_view_follow_changed

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
        if self._asking == "time":
            self._go_to_time(event.value.strip())
            return
        try:
            query = query_of(event.value)
        except BadPattern as error:
            self.notify(str(error), severity="warning", markup=False)
            return
        if self._asking == "search":
            self._filter(searching=query is not None)
            self.log_view.search(query)
        else:
            self._text, self._query = event.value.strip(), query
            self._filter()
        self._close_input()

    def _go_to_time(self, text: str) -> None:
        """Puts the cursor on the line nearest to a moment; says what is taken where the text is none."""
        try:
            number = self._line_at(text)
        except UsageError as error:
            self.notify(f"{error.summary} {error.remedy}", severity="warning", markup=False)
            return
        if number is not None:
            with self.log_view.paging() as pager:
                pager.go_to_line(number)
        self._close_input()

    def _line_at(self, text: str) -> int | None:
        """The number of the line nearest to a moment; None for no text. Raises UsageError."""
        buffer, view = self.log_view.pager.buffer, self.selected_engine
        if not text:
            return None
        if text == "start" and view is not None and not isinstance(buffer, MergedLog):
            return max(buffer.first, view.first_line)
        if text in ("start", "ready"):
            begun = view.container.started_at if view is not None else None
            ready = view.timeline.phase(PhaseId.READY).started_at if view is not None else None
            at = begun if text == "start" else ready
            if at is None:
                raise UsageError(f"The time of {text} is unknown.", "Go to a time instead: 14:05 or -10m.")
        else:
            at = moment_of(text, self.context.clock.now())
        number = nearest_line(buffer, at)
        if number is None:
            raise UsageError("This log has no times.", "Search for text instead.")
        return number

    def _filter(self, *, searching: bool | None = None) -> None:
        """Shows the lines that are wanted. A search looks at every line: nothing is folded while there is one."""
        view = self.selected_engine
        alone = view is not None and self._since_start and self.log_view.pager.buffer is not self._merged
        self._first = first = view.first_line if view is not None and alone else 0
        searching = bool(self.log_view.pager.match_text) if searching is None else searching
        fold = self.folded and not searching
        self.log_view.filter(LineFilter(level=LEVELS[self._level][0], query=self._query, first=first, fold=fold))
        self._renew_status()

    def key_escape(self) -> None:
        """Closes the input, else ends the search, else goes Home."""
        if self.query_one("#log-input").display:
            self._close_input()
        elif self.log_view.pager.match_text:
            self.log_view.search(None)
            self._filter()
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
        """Of several engines, of the one whose line is under the cursor."""
        pager, name = self.log_view.pager, self.spark.selected
        if isinstance(pager.buffer, MergedLog) and pager.cursor is not None:
            name = pager.buffer.names[pager.buffer.owner(pager.cursor)]
        self.spark.apply_fix(name)

    def action_all_engines(self) -> None:
        self._together = not self._together
        if self._together and not self._shown_together():
            self._together = False
            self.notify("Only one engine is running.", markup=False)
        self._show()

    def action_go_to_time(self) -> None:
        self._ask("time")

    def action_level(self) -> None:
        self._level = (self._level + 1) % len(LEVELS)
        self._filter()

    def action_fold(self) -> None:
        """Shows the latest of repeating lines only, or all of them."""
        self.folded = not self.folded
        self._filter()
        self.name_keys()

    def action_since_start(self) -> None:
        """Shows the lines of the latest start only, or those of earlier ones, too."""
        self._since_start = not self._since_start
        self._show()
        self._filter()

    def action_wrap(self) -> None:
        self.log_view.toggle_wrap()

    def yanks(self) -> tuple[Yank, ...]:
        """The line or the marked lines; the traceback that the line is part of."""
        pager = self.log_view.pager
        text, traceback = pager.selected_text(), pager.traceback_text()
        count = text.count("\n") + 1
        line = Yank("Line" if count == 1 else f"{count} lines", "l", text)
        return (*([line] if text else ()), *([Yank("Traceback", "t", traceback)] if traceback else ()))

    @work(exit_on_error=False, group="dump")
    async def action_dump(self) -> None:
        watch = self.context[EngineSupervisor].find(self.spark.selected)
        if watch is None:
            return
        buffer, name = self.log_view.pager.buffer, watch.container.name
        lines = buffer.slice(buffer.first, buffer.end)
        if isinstance(buffer, MergedLog):
            owners = (buffer.names[buffer.owner(number)] for number in range(buffer.first, buffer.end))
            lines = [line._replace(text=f"{owner} | {line.text}") for owner, line in zip(owners, lines, strict=True)]
            name = "engines"
        try:
            path = self.context.archive.save(name, lines)
        except OSError as error:
            self.notify(f"Not saved: {error.strerror or error}.", severity="error", markup=False)
        else:
            self.notify(f"Saved to {path}", timeout=10, markup=False)


def query_of(text: str) -> Query | None:
    """`text` as typed: `/.../` is a regular expression, anything else is plain text, nothing is None.

    Raises BadPattern.
    """
    text = text.strip()
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        return Query(text[1:-1], regex=True)
    return Query(text) if text else None


def _headings(buffer: LogBuffer, view: EngineView | None) -> dict[int, str]:
    """Each phase of the start, to stand above its first line; logs without Docker's stamps have none."""
    headings: dict[int, str] = {}
    for phase in view.timeline.phases if view is not None else ():
        if phase.started_at is None or phase.state is PhaseState.SKIPPED:
            continue
        number = first_line_at(buffer, phase.started_at, view.first_line if view is not None else 0)
        if number is not None and (number > buffer.first or not number):  # else its first line has gone
            took = human_duration(phase.seconds) if phase.seconds else ""
            text = "  ".join(filter(None, (phase.label, took)))
            headings[number] = f"{headings[number]}, {text}" if number in headings else text
    return headings
