"""What the control centre does with the selected engine from every screen, and what its bars say of all engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from spark_tui.base.actions import key_of
from spark_tui.base.engine.container import outside_docker
from spark_tui.base.engine.state import EngineState, EngineWord
from spark_tui.base.errors import SparkError
from spark_tui.base.feature import named
from spark_tui.base.finding import value_of
from spark_tui.base.jobs import Activity
from spark_tui.base.page import Cell
from spark_tui.base.protocol import rank_of
from spark_tui.catalog.models.feature import DOWNLOADS
from spark_tui.catalog.models.use.downloads import keep_store, undecided_store
from spark_tui.catalog.presets.feature import LIBRARY
from spark_tui.catalog.presets.model.preset import PRESETS
from spark_tui.catalog.presets.use.rights import catalogue
from spark_tui.observe.engines.show.activity import engine_counts, engine_statuses, window_title
from spark_tui.observe.engines.show.engines import latest_job
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.tui.frame import FrameApp

if TYPE_CHECKING:
    from spark_tui.app.home import parts as parts
    from spark_tui.base.launches import ClusterRecord
    from spark_tui.base.store import World
    from spark_tui.observe.explain.model.explain import Explanation
    from spark_tui.observe.explain.model.view import EngineView
else:

    class _Parts:
        """What Home works with, imported after its first frame."""

        def __getattr__(self, name: str) -> object:
            return getattr(named("spark_tui.app.home.parts"), name)

    parts = _Parts()

UNDER_WAY = (
    EngineWord.QUEUED, EngineWord.FETCHING, EngineWord.PULLING, EngineWord.STARTING, EngineWord.LOADING,
    EngineWord.COMPILING, EngineWord.WARMING_UP, EngineWord.STOPPING,
)  # fmt: skip


def activities(world: World, seconds_left: Callable[[EngineView], float | None]) -> tuple[Activity, ...]:
    """Launches, other starts, downloads, verifications, the benchmark; none of them twice: what a launch downloads is
    the launch's. `seconds_left` is how long a start will still take."""
    statuses = engine_statuses(world)
    downloads = [each for each in value_of(world[DOWNLOADS]) or () if each.phase.active]
    found, taken = [], set[str]()
    for name, status in statuses.items():
        job = latest_job(world.jobs, name)
        awaited = {id_ for step in job.steps for id_ in step.downloads} if job is not None else set()
        if status.word is EngineWord.FETCHING:
            taken |= awaited
            left = next((each.eta for each in downloads if each.id in awaited and each.eta is not None), None)
        else:
            view = world.named(ENGINES, name)
            left = seconds_left(view) if view is not None and view.state is EngineState.STARTING else None
        if status.word in UNDER_WAY:
            found.append(Activity("show_home", name, f"{name} {status.text}", left))
    for each in downloads:
        if each.id in taken:
            continue
        percent = "" if each.fraction is None else f" {each.fraction:.0%}"
        title = each.request.title.rpartition("/")[2]
        found.append(Activity("show_models", each.id, f"download {title}{percent}", each.eta))
    library = value_of(world[LIBRARY])
    for entry in library.entries if library is not None else ():
        check = entry.check
        if check is not None and not check.over:
            words = f"verify {entry.model.id.rpartition('/')[2]} {check.fraction:.0%}"
            found.append(Activity("show_models", entry.model.id, words, check.left_seconds))
    bench = world.bench
    if bench is not None:
        count = f"{bench.done} of {bench.total}" if bench.total else bench.step
        found.append(Activity("show_bench", bench.engine, f"bench {bench.engine} {count}", bench.seconds_left))
    return tuple(found)


class EnginesApp(FrameApp):
    """The app as Home sees it."""

    BARS = (ENGINES, DOWNLOADS, LIBRARY, "jobs", "bench")

    def take(self, world: World) -> None:
        """The selected engine stays selected; before one is chosen, it is the first."""
        super().take(world)
        names = self.engine_names()
        others = [job.title for job in world.jobs] + [record.name for record in world.launches]
        if self.selected not in names and self.selected not in others:
            self.selected = names[0] if names else ""
        self.notices.title(window_title(world))

    def engine_names(self) -> list[str]:
        return [view.name for view in self.world.known(ENGINES)]

    @property
    def selected_engine(self) -> EngineView | None:
        return self.world.named(ENGINES, self.selected)

    @property
    def selected_record(self) -> ClusterRecord | None:
        """The launch on several nodes that the selected engine is a rank of, where this machine keeps it."""
        if not self.world.launches:
            return None
        from spark_tui.manage.cluster.screen.launch import selected_record

        return selected_record(self)

    # --- bars -----------------------------------------------------------------------------------------

    def engine_words(self) -> tuple[Cell, tuple[Cell, ...]]:
        world, name = self.context.store.world, self.selected
        statuses = engine_statuses(world)
        known = name in statuses and len(statuses) > 1
        selected = Cell(f"{name} {statuses[name].text}", statuses[name].tone) if known else Cell("")
        return selected, engine_counts(world, statuses)

    def activities(self) -> tuple[Activity, ...]:
        return activities(self.context.store.world, self._seconds_left)

    def _seconds_left(self, view: EngineView) -> float | None:
        return self.context[parts.History].eta(view).seconds

    async def settle_store(self) -> bool:
        older = await undecided_store(self.context)
        if older is None:
            return True
        places = tuple((each, each) for each in (older.folder, str(self.context.settings.store)))
        chosen = await self.push_screen_wait(self.make_screen("choice", f"{older.sentence} Download to:", places))
        if chosen is None:
            return False
        await keep_store(self.context, chosen)
        return await self.settle_store()

    # --- act ------------------------------------------------------------------------------------------

    def refuses(self, verb: str) -> bool:
        """Whether `verb` is not done with the selected engine: a bare process, or one rank of several. Says then how
        the person does it, or how it is done on all ranks."""
        view = self.selected_engine
        if view is not None and view.container.bare:
            self.notify(str(outside_docker(view.container, acts=True)), severity="warning", markup=False)
            return True
        if view is None or rank_of(view.container) is None:
            return False
        from spark_tui.manage.cluster.show.cluster import not_alone

        self.notify(not_alone(view.name, self.selected_record, verb, key_of("stop")), severity="warning", markup=False)
        return True

    def explain(self, view: EngineView) -> Explanation:
        return parts.explanation_of(self.context, view)

    def has_preset(self, name: str) -> bool:
        return self.world[PRESETS].get(name) is not None

    def apply_fix(self, engine: str) -> None:
        view = self.world.named(ENGINES, engine)
        proposed = self.explain(view).proposal if view is not None else None
        preset = catalogue(self.context).get(view.container.preset) if view is not None else None
        if view is None or proposed is None:
            self.notify("No fix available for this engine.", markup=False)
        elif preset is None:
            self.draft_engine(view)
        else:
            record = self.selected_record
            name, nodes = (view.name, {}) if record is None else (record.name, {"nodes": record.cluster})
            named = {"name": name} if name != preset.name else {}
            self.push_screen(
                self.make_screen("launch_form", self.context, preset, named | nodes | dict(proposed.change))
            )

    def draft_engine(self, view: EngineView | None) -> None:
        """The draft of a preset for an engine that was started by hand, with the change that its log suggests."""
        if view is None:
            self.notify("No engine is selected.", markup=False)
        elif catalogue(self.context).get(view.container.preset) is not None:
            self.notify(f"{view.name} runs from the preset {view.container.preset}.", markup=False)
        else:
            proposed = self.explain(view).proposal
            changes = dict(proposed.change) if proposed is not None else {}
            container = view.container
            dialog = self.make_screen(
                "draft",
                self.context,
                f"Draft: {view.name}",
                lambda: self.context[parts.Drafts].of_container(container),
                changes=changes,
            )
            self.push_screen(dialog, self.launched)

    def edit_engine(self, engine: str, changes: Mapping[str, str] | None = None) -> None:
        view = self.world.named(ENGINES, engine)
        if view is None or not view.container.running:
            self.notify("No running engine is selected.", markup=False)
            return
        if self.refuses("Edit"):
            return
        try:
            preset = self.context[parts.Editor].running(view).preset
        except SparkError as error:
            self.report(error)
        else:
            self.push_screen(self.make_screen("launch_form", self.context, preset, changes, view))
