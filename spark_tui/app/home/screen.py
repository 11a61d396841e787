"""Home: the engines of this machine, the selected one's launch, boot, facts and log, and the latest events."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content

from spark_tui.app.engines_frame import EnginesApp, parts
from spark_tui.app.home.home_lines import LABEL_WIDTH, EventFeed, LaunchSteps, LogTail, next_step_page
from spark_tui.app.home.yanks import engine_yanks, log_and_event_yanks
from spark_tui.base.actions import Scope, key_of
from spark_tui.base.engine.state import EngineState
from spark_tui.base.engine.units import schedule_of
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Reading, reason_of, value_of
from spark_tui.base.jobs import JobView, StepState
from spark_tui.base.page import Row, Section
from spark_tui.base.protocol import rank_of
from spark_tui.base.quantities import GIB
from spark_tui.catalog.models.feature import DOWNLOADS
from spark_tui.catalog.presets.feature import LIBRARY
from spark_tui.catalog.presets.model.library import stored_commit
from spark_tui.catalog.presets.model.preset import PRESETS, Preset
from spark_tui.observe.engines.show.engines import (
    LiveCells,
    boot_question,
    boot_text,
    docker_command,
    docker_page,
    engine_page,
    home_table,
    latest_job,
    schedule_text,
)
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.results.feature import PROOFS
from spark_tui.tui.frame import FrameScreen, acting, bindings
from spark_tui.tui.help import TourText
from spark_tui.tui.widgets.line import entitle
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import RowList
from spark_tui.tui.yank import Yank

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_tui.app.home.next_step import NextPreset
    from spark_tui.base.graph import Curve, Panel
    from spark_tui.base.host.series import MetricId, Sample, SeriesSlice
    from spark_tui.base.launches import ClusterRecord
    from spark_tui.catalog.presets.model.overrides import Overrides
    from spark_tui.observe.explain.model.starts import StartRecord
    from spark_tui.observe.explain.model.view import EngineView
    from spark_tui.observe.memory.use.memory import GuardStatus
    from spark_tui.tui.widgets.graph import GraphGrid

GUARD_SECONDS = 10.0
"""Between two looks at the guard's files."""
KEY = "bold $footer-key-foreground"


PAST_BUCKETS = 90
"""Of ten seconds each: more than the window, as the history keeps it."""
WINDOW_SECONDS = 10 * 60.0
REST_SECONDS = 300.0
"""Graphs whose values stay as they are are redrawn this often."""
PROOFS_SECONDS = 1.0
"""After the first frame."""
NOISE = 0.02
SPARK_CELLS = 5
TILE_CELLS = 24
MOST_TILES = 4
"""Graphs of the machine; other series have a line each."""
ALONE = ("edit_engine", "restart", "remove", "secure_engine", "toggle_boot", "set_schedule")
"""What is not done with one rank of a launch on several nodes."""
MOST_TWO_LINES = 4
"""Engines with a line more each beside the graphs."""
LEFT_LEAST = (36, 4)
"""Cells and rows of a graph of the machine."""


def _moved(old: float | None, new: float | None) -> bool:
    """A value that is worth a redrawn graph: over SSH the flicker of a machine at rest is not."""
    if old is None or new is None:
        return old is not new
    return abs(new - old) > NOISE * max(abs(old), abs(new))


def no_engine() -> Content:
    """An empty list: the next keys."""
    head, presets, keys = ("No engine is running.", "bold"), (key_of("show_presets"), KEY), (key_of("help"), KEY)
    return Content.assemble(head, "\n\nPress ", presets, " to choose a preset,\nor ", keys, " for all keys.")


class HomeScreen(FrameScreen):
    """The first screen."""

    SCOPE = Scope.HOME
    TAB = "show_home"
    OF_ENGINE = True
    KEYS_TOO = ("open_cluster",)
    BINDINGS: ClassVar[list[BindingType]] = bindings(Scope.HOME)
    AUTO_FOCUS = "#engine-list"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (140, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall"), (44, "-roomy")]  # noqa: RUF012 - Textual's shape

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="columns"):
            with Container(id="engines-pane", classes="pane") as engines:
                engines.border_title = "Engines"
                yield RowList(empty=no_engine(), gap=1, id="engine-list")
                yield Page(id="host-graphs-lines")
                yield EventFeed()
            with VerticalScroll(id="detail-pane", classes="pane"):
                yield Page(LABEL_WIDTH, most=1, id="summary")
                yield TourText(id="welcome")
                yield LaunchSteps(self.spark.glyphs)
                yield Page(id="fetch", dense=True)
                yield Page(id="figures-lines")
                for part in (Page(LABEL_WIDTH, most=1, id="facts"), Page(LABEL_WIDTH, id="slow")):
                    part.border_title = {"facts": "Health", "slow": "Speed"}[part.id or ""]
                    yield part
                yield LogTail(id="log-tail")
                yield Page(id="preset", dense=True)
            with Container(id="rail", classes="pane") as rail:
                rail.border_title = "Log"
                yield LogTail(id="rail-log")
                with VerticalScroll(id="rail-fetch", can_focus=False):
                    yield Page(id="rail-fetch-files", dense=True)
                    yield Page(id="rail-preset", dense=True)
                    yield Page(id="rail-command", dense=True)

    def on_mount(self) -> None:
        self._unsubscribe: Callable[[], None] | None = None
        self._next: tuple[NextPreset, ...] | None = None
        self._looked: tuple[object, ...] = ()
        self._drawn: dict[str, tuple[tuple[object, ...], list[float | None], float]] = {}
        self._past: dict[str, dict[MetricId, SeriesSlice]] = {}
        self._judged: tuple[Preset, Overrides] | None = None
        self._fit: tuple[Section, ...] = ()
        self._command: tuple[Section, ...] = ()
        self._guard: Reading[GuardStatus] | None = None
        self._guard_at = float("-inf")
        self.bind_slices((ENGINES, "jobs", "boot", "launches", "nodes"), self._show)
        self.bind_slices((DOWNLOADS,), self._show_coming)
        self.bind_slices((PRESETS,), lambda: self._show_selected() if not self.world.known(ENGINES) else None)
        self.bind_slices(("selected", PROOFS, "gateway", "schedules"), self._show_selected)
        self.bind_slices(("selected",), lambda: self.query_one(RowList).select(self.spark.selected))
        # At once, and not by a message: the next key is for that engine, and a list shown meanwhile keeps its cursor.
        self.watch(self.query_one(RowList), "cursor", self._select, init=False)
        self.set_timer(PROOFS_SECONDS, self._read_proofs)
        self.bind_slices(("events",), lambda: self.query_one(EventFeed).renew())
        self._tail_timer = self.set_interval(1.0, self._renew_second, pause=True)

    @property
    def spark(self) -> EnginesApp:
        return cast("EnginesApp", self.app)

    @property
    def selected_engine(self) -> EngineView | None:
        return self.spark.selected_engine

    @acting("proofs")
    async def _read_proofs(self) -> None:
        await parts.read_proofs(self.context)

    def on_screen_suspend(self) -> None:
        self._tail_timer.pause()
        self._end_following()

    def on_screen_resume(self) -> None:
        self._tail_timer.resume()

    def on_unmount(self) -> None:
        self._end_following()

    def _end_following(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _sampled(self, sample: Sample) -> None:
        """The machine is sampled once a second, whatever the engines do."""
        if sample.engine == parts.HOST:
            self.call_later(self._renew_graphs)

    # --- graphs ---------------------------------------------------------------------------------------

    def _read(self, name: str, metric: MetricId) -> Curve:
        """What is known of a series, without asking the engine more often: each request is a line in its log."""
        past = self._past.get(parts.HOST if metric.of_host else name, {}).get(metric)
        return parts.Curve(
            "", self.context[parts.EngineMetricsCollector].series(name, metric, 2 * WINDOW_SECONDS), past
        )

    @work(exit_on_error=False, group="past")
    async def _read_past(self, name: str) -> None:
        """What was measured of an engine, or of the machine, before this program was opened."""
        self._past[name] = {}
        if not self.context.ports.has("history"):
            return
        metrics, now = [each for each in parts.MetricId if each.of_host is not bool(name)], self.context.clock.now()
        found = await self.context[parts.History].series(name, metrics, now - 10.0 * PAST_BUCKETS, now, PAST_BUCKETS)
        self._past[name] = {parts.MetricId(stretch.key.metric): stretch for stretch in value_of(found) or ()}
        self._show()

    def _live(self) -> dict[str, LiveCells]:
        """Rate, sparkline and running requests of each engine that serves."""
        found = {}
        for view in self.world.known(ENGINES):
            if view.word.serves:
                curve = self._read(view.name, parts.MetricId.DECODE_RATE)
                rate, running = curve.last, self._read(view.name, parts.MetricId.RUNNING).last
                line = parts.sparkline(curve, self.context.clock.now(), SPARK_CELLS, self.spark.glyphs, WINDOW_SECONDS)
                found[view.name] = LiveCells(
                    "" if rate is None else f"{rate:.0f} t/s", line, "" if running is None else f"{running:.0f} req"
                )
        return found

    def _renew_graphs(self) -> None:
        """The machine's graphs on the left; on the right the engine's, or while it starts the memory it takes."""
        if value_of(self.world[ENGINES]) is None or not self.is_current:
            return  # not for the first frame
        if self._unsubscribe is None:
            self._unsubscribe = self.context[parts.EngineMetricsCollector].subscribe(self._sampled)
        for name in (parts.HOST, *(view.name for view in self.world.known(ENGINES))):
            if name not in self._past:
                self._read_past(name)
        if not self.query(parts.GraphGrid):
            graphs = parts.GraphGrid(self.spark.glyphs, least=LEFT_LEAST, one_axis=True, id="host-graphs")
            self.query_one("#engines-pane").mount(graphs, before="#host-graphs-lines")
            figures = parts.GraphGrid(self.spark.glyphs, least=(TILE_CELLS, 3), id="figures")
            self.query_one("#detail-pane").mount(figures, before="#figures-lines")
        memory = value_of(self.world.memory)
        settings = self.context.settings  # the policy made of them brings the guard along
        floor = int((settings.guard_loading_gib if self._loads else settings.guard_serving_gib) * GIB)
        panels = {each.title: each for each in parts.panels_with(memory.total if memory else None, floor)}
        view = self.selected_engine
        name = self.spark.selected
        shown: list[Panel] = []
        if view is not None and view.container.running:
            shown = list(parts.existing(parts.HOME_PANELS, partial(self._read, name)))
        loads = self._loads and (view is not None or self.has_class("-wide"))  # else what is downloaded needs the room
        if loads or (view is not None and view.container.running and not shown):
            shown = [panels["memory"]]
        host = [panels[title] for title in parts.HOST_TITLES]
        others = [panel for panel in host if panel not in shown]
        host = others if parts.existing(others, partial(self._read, parts.HOST)) else host
        self._draw(self.query_one("#host-graphs", parts.GraphGrid), parts.HOST, host)
        self._draw(self.query_one("#figures", parts.GraphGrid), name, shown)
        if self.context.clock.monotonic() - self._guard_at >= GUARD_SECONDS:
            self._guard_at = self.context.clock.monotonic()
            self._look_at_guard()
        self._show_slow()
        self._show_list()

    @work(exit_on_error=False, exclusive=True, group="guard")
    async def _look_at_guard(self) -> None:
        self._guard = await self.context.in_thread(self.context[parts.MemoryInspector].guard)
        self._show_slow()

    def _show_slow(self) -> None:
        """What holds the engine back, with its figures where there is room for them; and the guard."""
        metrics, name = self.context[parts.EngineMetricsCollector], self.spark.selected
        brief = not (self.has_class("-wide") and self.has_class("-roomy"))
        rows = parts.slow_rows(metrics.current(name), metrics.lifetime(name), self.world.gpu, brief=brief)
        if self._guard is not None and self.world.known(ENGINES):
            rows = (*rows, parts.guard_row(self._guard))
        slow = self.query_one("#slow", Page)
        slow.display = bool(rows)
        entitle(slow, "Speed" if len(rows) > 1 else "")  # the guard's row alone has its label
        slow.show((Section(rows=rows),))

    @property
    def _loads(self) -> bool:
        """The selected engine is on its way to serve."""
        view, job = self.selected_engine, latest_job(self.world.jobs, self.spark.selected)
        if view is not None and view.container.running:
            return view.state is EngineState.STARTING
        return job is not None and job.state is StepState.RUNNING

    def _draw(self, grid: GraphGrid, name: str, panels: Sequence[Panel]) -> None:
        """The panels that have values: as many as there is room for in tiles that fill the width, the others in a line
        each."""

        def line(curve: Curve, cells: int) -> str:
            return parts.sparkline(curve, now, cells, self.spark.glyphs, WINDOW_SECONDS)

        read = partial(self._read, name)
        found, now = parts.existing(panels, read), self.context.clock.now()
        count = min(MOST_TILES, grid.per_page, len(found))
        if grid.id == "figures":
            count = min(2 * grid.columns, len(found) // grid.columns * grid.columns or len(found))
            high = 4 if self.has_class("-roomy") else 3
            height = -(-count // grid.columns) * (high if len(found) > 1 else 2 * high)
            alone = len(found) == 1 and not self.query_one("#preset").display
            wanted = "1fr" if alone and self.has_class("-wide") else str(height)  # the log has its own pane
            if str(grid.styles.height) != wanted:
                grid.styles.height = wanted
        grid.display = bool(found)
        page = self.query_one(f"#{grid.id}-lines", Page)
        page.display = len(found) > count and not (self.has_class("-short") or self.has_class("-narrow"))
        charts, rest = [parts.chart_of(panel, read) for panel in found[:count]], found[count:]
        values = [curve.last for chart in charts for curve in chart.curves]
        values += [read(metric).last for panel in rest for metric in panel.metrics]
        seen = (name, grid.size, [chart.subject for chart in charts], sum(map(len, self._past.values())))
        before, old, at = self._drawn.get(grid.id or "", ((), [], 0.0))
        if not grid.size.width:
            return  # it has no place yet: it asks again when it has one
        if seen != before or any(map(_moved, old, values)) or now - at >= REST_SECONDS:
            self._drawn[grid.id or ""] = (seen, values, now)
            grid.draw(charts, parts.GraphView(now, WINDOW_SECONDS))
            table = parts.spark_table(rest, read, line, grid.size.width - 1)
            page.show((Section(table=table),) if rest else ())

    def on_graph_grid_rearranged(self) -> None:
        self.call_later(self._renew_graphs)

    # --- show -----------------------------------------------------------------------------------------

    def _show(self) -> None:
        self._show_list()
        self._show_selected()

    def _show_list(self) -> None:
        rows = self.query_one(RowList)
        engines, world = self.world.known(ENGINES), self.world
        two_lines = not self.has_class("-narrow") and len(engines) <= MOST_TWO_LINES
        table = home_table(
            engines, world.jobs, live=self._live(), boot=world.boot, launches=world.launches, two_lines=two_lines
        )
        rows.show_table(table, self._empty())
        rows.select(self.spark.selected)
        height = (
            str(len(table.rows) + len(table.below) + self.has_class("-narrow"))
            if table.rows and self.query("#host-graphs")
            else "1fr"
        )
        if str(rows.styles.height) != height:
            rows.styles.height = height

    @property
    def _docker_fault(self) -> str:
        """Why the engines cannot be listed; empty while they can, and before they were."""
        why = reason_of(self.world[ENGINES])
        return "" if why == "not read yet" else why

    def _empty(self) -> Content:
        if value_of(self.world[ENGINES]) is None and not self._docker_fault:
            return Content.styled("Finding engines ...", "$dim")
        return Content.styled("Cannot list engines.", "bold $error") if self._docker_fault else no_engine()

    def _empty_page(self) -> tuple[Section, ...]:
        """Without an engine: what keeps it from being launched, else what to launch."""
        if self._docker_fault:
            return docker_page(self._docker_fault, key_of("yank"), key_of("show_doctor"))
        if value_of(self.world[ENGINES]) is None:
            return ()  # not for the first frame
        seen = (self.world[PRESETS], tuple(job.id for job in self.world.jobs), self.world.known(ENGINES))
        if seen != self._looked and self.world[PRESETS].presets and self.context.ports.has("models"):
            self._looked = seen
            self._find_next()
        return next_step_page(
            self._next,
            token=self.context.secrets.hf_token() is not None,
            launch_key=key_of("open_logs"),
            presets_key=key_of("show_presets"),
            models_key=key_of("show_models"),
        )

    @work(exit_on_error=False, exclusive=True, group="next")
    async def _find_next(self) -> None:
        try:
            self._next = await self.context[parts.NextStep].candidates()
        except SparkError as error:
            self._next = ()
            self.spark.report(error)
        self._show_selected()

    def _show_selected(self) -> None:
        view, name = self.selected_engine, self.spark.selected
        job = latest_job(self.world.jobs, name)
        entitle(self.query_one("#detail-pane"), name or "Welcome")
        lan = self.world.identity.lan_address
        page = (
            engine_page(
                view,
                self.context.clock.now(),
                job,
                lan=lan,
                secure=key_of("secure_engine"),
                launches=self.world.launches,
            )
            if view
            else ()
        )
        record = self.spark.selected_record
        empty = view is None and job is None and record is None
        if empty:
            page = self._empty_page()
        page = self._with_nodes(self._with_proof(page, view), record, job)
        if page and name in self.world.schedules:
            times = Row(self.world.schedules[name].schedule.text, "schedule")
            page = (*page[:-1], replace(page[-1], rows=(*page[-1].rows, times)))
        if self.world.gateway is not None:
            from spark_tui.manage.gateway.show import gateway_rows  # not for the first frame

            own = gateway_rows(self.world.gateway, self.context.clock.now())
            last = page[-1] if page else Section()
            page = (*page[:-1], replace(last, rows=(*last.rows, *own)))
        summary = self.query_one("#summary", Page)
        summary.display = bool(page)
        summary.most = 0 if empty else 1
        summary.show(page)
        welcome = self.query_one(TourText)
        welcome.display = empty and not self._docker_fault
        welcome.renew()
        steps = self.query_one(LaunchSteps)
        steps.job = job if job is not None and job.state is not StepState.DONE else None
        steps.display = steps.job is not None
        steps.renew()
        facts = self.query_one("#facts", Page)
        facts.display = view is not None
        if view is not None:
            preset = self.world[PRESETS].get(view.container.preset) is not None
            found, key = self.spark.explain(view), key_of("apply_remedy")
            if view.container.running:
                rows = parts.health_rows(found, preset=preset, key=key, brief=not self.has_class("-roomy"))
            else:
                rows = parts.explanation_rows(found, preset=preset, key=key)
            facts.most = 1 if view.container.running else 4
            facts.show((Section(rows=tuple(rows)),))
            facts.display = bool(rows)  # without a log nothing is known of its health
        self._show_boot(view, job)
        self._show_coming()
        self._renew_tail()
        self._renew_graphs()
        self.name_keys()

    def _with_proof(self, page: tuple[Section, ...], view: EngineView | None) -> tuple[Section, ...]:
        """The page of an engine with what was proved of it, if anything was."""
        if view is None or not self.world[PROOFS]:
            return page
        from spark_tui.use.prove.show import badge_row

        found = parts.engine_badge(self.world[PROOFS], view, stored_commit(self.world[LIBRARY], view.model))
        return (*page[:-1], Section(rows=(*page[-1].rows, *badge_row(found))))

    def _with_nodes(
        self, page: tuple[Section, ...], record: ClusterRecord | None, job: JobView | None
    ) -> tuple[Section, ...]:
        """The page of the selected engine with its other nodes; as it is for an engine on this machine alone."""
        view, stop = self.selected_engine, key_of("stop")
        if view is not None and rank_of(view.container) is not None:
            from spark_tui.manage.cluster.show.cluster import rank_rows  # not for the first frame

            rows = rank_rows(view.container, record, self.world.nodes, stop)
            return (*page[:-1], Section(rows=(*page[-1].rows, *rows)))
        if view is None and record is not None and (job is None or job.state is StepState.RUNNING):
            from spark_tui.manage.cluster.show.cluster import record_page

            # the steps of the job have their own place
            return record_page(record, None, (), 0.0, self.world.nodes, stop_key=stop)
        return page

    def _show_boot(self, view: EngineView | None, job: JobView | None) -> None:
        """The phases of a start: all of them while it loads, and before there is an engine; in one line afterwards."""
        coming = view is None and job is not None and job.state is StepState.RUNNING
        for widget in self.query("#boot"):
            widget.display = view is not None or coming
        if view is None and not coming:
            return
        if not self.query("#boot"):
            boot = parts.BootTimelineView(self.context.clock, self.spark.glyphs, bar=True, id="boot")
            self.query_one("#detail-pane").mount(boot, after="#job-steps")
        timeline = view.timeline if view is not None else parts.EMPTY_TIMELINE
        past: tuple[StartRecord, ...] = ()
        if self.context.ports.has("history"):
            if view is not None and timeline.current is not None:
                past = self.context[parts.History].past(view.container)
            elif view is None and job is not None:
                past = tuple(
                    each for each in self.context[parts.History].starts if each.ready and each.engine == job.title
                )
        folded = view is not None and view.state is not EngineState.STARTING
        self.query_one(parts.BootTimelineView).show(timeline, folded=folded, past=past)

    def _show_coming(self) -> None:
        """While an engine is launched: what is downloaded for it, in the place of its log, and its preset."""
        view, name, wide = self.selected_engine, self.spark.selected, self.has_class("-wide")
        job = latest_job(self.world.jobs, name) if self._loads else None
        awaited = {id_ for step in job.steps for id_ in step.downloads} if job is not None and view is None else set()
        launched = self.context[parts.JobRunner].launched.get(job.id) if job is not None else None
        if launched is not None and launched != self._judged:
            self._judged = launched
            self._judge(*launched)
        fetched = [each for each in value_of(self.world[DOWNLOADS]) or () if each.id in awaited]
        preset = self.world[PRESETS].get(view.container.preset if view is not None else name) if self._loads else None
        pages: dict[str, tuple[Section, ...]] = dict.fromkeys(
            ("fetch", "preset", "rail-fetch-files", "rail-preset", "rail-command"), ()
        )
        if fetched:
            found = parts.fetch_page(fetched, self.spark.glyphs.engine, self.spark.glyphs.cache)
            pages["rail-fetch-files" if wide else "fetch"] = found
        if preset is not None:
            if wide and view is None:
                pages["preset"], pages["rail-preset"] = parts.overview(preset), self._fit or parts.recipe(preset)
                pages["rail-command"] = self._command
            elif wide or view is None:
                pages["preset"] = (*parts.overview(preset), *parts.recipe(preset))
        for id_, page in pages.items():
            widget = self.query_one(f"#{id_}", Page)
            widget.display = bool(page)
            widget.show(page)
        for bar in self.query("#rail-bar"):
            bar.display = bool(pages["rail-command"])
        coming = bool(pages["rail-fetch-files"] or pages["rail-preset"])
        self.query_one("#rail-fetch").display = coming
        entitle(self.query_one("#rail"), "Download" if fetched else "Preset" if coming else "Log")

    @work(exit_on_error=False, exclusive=True, group="command")
    async def _judge(self, preset: Preset, overrides: Overrides) -> None:
        """How the launch that waits for its files fits, and its command, both by the memory now."""
        self._fit = self._command = ()
        found = await self.context[parts.LaunchChecks].judge(preset, overrides)
        self._fit, self._command = (
            parts.fit_verdict(found.fit),
            (Section(command=parts.render_text(found.plan.spec)),),
        )
        if not self.query(parts.FitBar):
            bar = parts.FitBar(self.spark.glyphs, sequences=True, id="rail-bar")
            await self.query_one("#rail-fetch").mount(bar, before="#rail-command")
        self.query_one(parts.FitBar).show(found.fit)
        self._show_coming()

    def offers(self, id_: str) -> bool:
        """Of an engine that has ended nothing is stopped, outside Docker none is, and without a launch none is
        cancelled."""
        view = self.selected_engine
        if view is not None and id_ in ALONE and rank_of(view.container) is not None:
            return False
        match id_:
            case "stop" if self.spark.selected_record is not None:
                return True
            case "apply_remedy":
                return view is not None and self.spark.explain(view).proposal is not None
            case "stop" | "edit_engine":
                return view is not None and view.container.running and not view.container.bare
            case "restart" | "secure_engine" | "toggle_boot" | "set_schedule":
                return view is not None and not view.container.bare
            case "remove":
                return view is not None and not view.container.running
            case "open_logs" | "open_connect":
                return view is not None
            case "draft_engine":
                return view is not None and not view.container.ours
            case "cancel_job":
                job = latest_job(self.world.jobs, self.spark.selected)
                return job is not None and job.state is StepState.RUNNING
            case "yank":
                return bool(self.yanks())
        return super().offers(id_)

    def yanks(self) -> tuple[Yank, ...]:
        view = self.selected_engine
        if view is None and (command := docker_command(self._docker_fault)):
            return (Yank("Command", "c", command),)
        preset = self.world[PRESETS].get(view.container.preset) if view is not None else None
        last = log_and_event_yanks(self.context, self.spark.selected)
        return (*engine_yanks(self.context, view, preset, self.world.identity.lan_address), *last)

    def _renew_second(self) -> None:
        view = self.selected_engine
        if view is not None and view.container.bare and view.state is EngineState.STARTING:
            self._show_selected()  # how long it starts: no line of a log says that something has changed
        else:
            self._renew_tail()

    def _renew_tail(self) -> None:
        beside, below = self.query_one("#rail-log", LogTail), self.query_one("#log-tail", LogTail)
        tail, other = (beside, below) if self.has_class("-wide") else (below, beside)
        watch = self.context[parts.EngineSupervisor].find(self.spark.selected) if self.spark.selected else None
        tail.buffer = watch.buffer if watch is not None else None
        view = self.selected_engine
        if view is not None:
            tail.marks = {mark.line: mark.tone for mark in parts.landmarks(self.spark.explain(view), view.first_line)}
        tail.display, other.display = watch is not None, False  # one log, also after the window was resized
        tail.renew()

    def on_row_list_moved(self) -> None:
        """Rows came or went."""
        self._select()

    def _select(self) -> None:
        """The row under the cursor is the engine that all screens show."""
        self.spark.selected = self.query_one(RowList).key or self.spark.selected

    # --- act ------------------------------------------------------------------------------------------

    @work(exit_on_error=False, exclusive=True, group="launch")
    async def action_launch(self) -> None:
        """Presets, with the one that was launched last under the cursor."""
        latest = self.context[parts.LastLaunches].latest
        await self.spark.switch_mode("presets")
        if latest:
            from spark_tui.catalog.fit.screen.presets import PresetsScreen

            if isinstance(self.app.screen, PresetsScreen):
                self.app.screen.look_for("", (latest,))

    def action_apply_remedy(self) -> None:
        self.spark.apply_fix(self.spark.selected)

    def action_edit_engine(self) -> None:
        self.spark.edit_engine(self.spark.selected)

    def action_open_connect(self) -> None:
        self.spark.show_aside("connect")

    def action_draft_engine(self) -> None:
        self.spark.draft_engine(self.selected_engine)

    def action_open_logs(self) -> None:
        """The log; without an engine the nodes that it is on, or the form of the preset that is suggested."""
        if self.selected_engine is None and self.spark.selected_record is not None:
            self.spark.show_aside("cluster")
        elif self.selected_engine is None and self._next and not self.context.settings.read_only:
            self.app.push_screen(
                self.spark.make_screen("launch_form", self.context, self._next[0].preset), self.spark.launched
            )
        else:
            self.spark.switch_mode("logs")

    def action_stop(self) -> None:
        view, record = self.selected_engine, self.spark.selected_record
        if record is not None:
            from spark_tui.manage.cluster.screen.launch import stop_on_nodes

            stop_on_nodes(self.spark, record)
            return
        running = view is not None and view.container.running
        self._ask(
            "Stop", "Stops gracefully. The container stays, with its log.", running, "No running engine is selected."
        )

    def action_restart(self) -> None:
        exists = self.selected_engine is not None
        self._ask("Restart", "Stops and starts with the same settings.", exists, "No engine is selected.")

    def action_remove(self) -> None:
        view = self.selected_engine
        ended = view is not None and not view.container.running
        self._ask("Remove", "The container and its log are deleted.", ended, "Stop the engine before removing it.")

    def _ask(self, verb: str, what: str, possible: bool, otherwise: str) -> None:
        """Acts on the selected engine after asking; of one that is not ours the name must be typed."""
        if self.spark.refuses(verb):
            return
        view = self.selected_engine
        if view is None or not possible:
            self.notify(otherwise, markup=False)
            return
        name = view.name

        def decided(yes: bool | None) -> None:
            if yes:
                self._act(verb, name)

        typed = name if not view.container.ours else ""
        if (
            (measured := self.spark.measurement) is not None and name in measured.engines and not typed
        ):  # its question stands for this one
            self._act(verb, name)
            return
        self.app.push_screen(
            self.spark.make_screen("confirm", f"{verb} {name}?", what, verb=verb, type_to_confirm=typed), decided
        )

    @acting("secure")
    async def action_secure_engine(self) -> None:
        """Restarts the selected engine open to the network with a key, after saying what that means."""
        view = self.selected_engine
        if view is None:
            self.notify("No engine is selected.", markup=False)
            return
        if self.context[parts.JobRunner].running(view.name) is not None:
            self.notify(f"{view.name} is starting. Wait until it serves.", markup=False)
            return
        if self.spark.refuses("Restart"):
            return
        secured = await self.context[parts.Securing].plan(view, publish=True)
        question = self.spark.make_screen(
            "confirm", f"Open {view.name} to the network with an API key?", secured.what, verb="Restart"
        )
        if not (await self.app.push_screen_wait(question) and await self.spark.may("Restart", view.name)):
            return
        self.context[parts.JobRunner].launch(secured.request)
        self.notify(f"API key file: {secured.key_file}", markup=False, timeout=12)
        self.spark.copy(Yank("Path of the key file", "f", secured.key_file))

    def _engine_for(self, verb: str) -> EngineView | None:
        """The selected engine, if `verb` is done with it; else says why not."""
        if self.selected_engine is None:
            self.notify("No engine is selected.", markup=False)
        return None if self.spark.refuses(verb) else self.selected_engine

    @acting("boot")
    async def action_toggle_boot(self) -> None:
        """Asks first: a unit of systemd is written or removed."""
        view = self._engine_for("Start at boot")
        if view is None:
            return
        boot = self.context[parts.BootUnits]
        now = await boot.status(view.name)
        title, what, verb = boot_question(now)
        if not await self.app.push_screen_wait(self.spark.make_screen("confirm", title, what, verb=verb)):
            return
        after = await (boot.disable(view.name) if now.on else boot.enable(view.name))
        self.notify(f"{view.name}: {boot_text(after)}.", markup=False)
        self.context.store.update(boot=boot.known)

    @acting("boot")
    async def action_set_schedule(self) -> None:
        """One line: the times and days. A timer of systemd is written or removed."""
        view = self._engine_for("A schedule")
        if view is None:
            return
        had, boot = self.world.schedules.get(view.name), self.context[parts.BootUnits]
        hint = "Stop-start by this machine's clock, then days; or none."
        hint += f" Now: {had.schedule.text}." if had else ""
        dialog = parts.TextDialog(f"Schedule of {view.name}", hint, placeholder="23:00-07:00 mon-fri")
        text = await self.app.push_screen_wait(dialog)
        try:
            if text == "none":
                await boot.unschedule(view.name)
                self.notify(f"{view.name}: no schedule.", markup=False)
            elif text is not None:
                made = await boot.schedule(view.name, schedule_of(text))
                self.notify(f"{view.name}: {schedule_text(made)}.", markup=False)
        finally:
            self.context.store.update(schedules=boot.schedules)

    def action_cancel_job(self) -> None:
        name = self.spark.selected
        if self.context[parts.JobRunner].running(name) is None:
            self.notify("No launch is running.", markup=False)
            return
        self._act("Cancel", name)

    @acting("act", exclusive=False)
    async def _act(self, verb: str, name: str) -> None:
        supervisor, jobs = self.context[parts.EngineSupervisor], self.context[parts.JobRunner]
        if verb != "Cancel" and not await self.spark.may(verb, name):
            return
        self.notify(f"{verb} {name} ...", markup=False, timeout=3)
        match verb:
            case "Stop":
                await supervisor.stop(name)
            case "Restart":
                await supervisor.restart(name, settle=self.context[parts.MemoryGate].await_return)
            case "Remove":
                await supervisor.remove(name)
            case "Cancel":
                await jobs.cancel(name)
