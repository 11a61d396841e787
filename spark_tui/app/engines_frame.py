"""What the control centre does with the selected engine from every screen, and what its bars say of all engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_tui.base.actions import key_of
from spark_tui.base.errors import SparkError
from spark_tui.base.page import Cell
from spark_tui.base.protocol import rank_of
from spark_tui.catalog.presets.use.catalogue import catalogue
from spark_tui.observe.engines.show.activity import activities, engine_counts, engine_statuses, window_title
from spark_tui.tui.frame import FrameApp

if TYPE_CHECKING:
    from spark_tui.base.jobs import Activity
    from spark_tui.base.launches import ClusterRecord
    from spark_tui.base.store import World
    from spark_tui.observe.explain.model.explain import Explanation
    from spark_tui.observe.explain.model.view import EngineView


class EnginesApp(FrameApp):
    """The app as Home sees it."""

    def take(self, world: World) -> None:
        super().take(world)
        self.notices.title(window_title(world))

    @property
    def selected_engine(self) -> EngineView | None:
        return self.world.view(self.selected)

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
        from spark_tui.observe.metrics.use.history import History

        return self.context[History].eta(view).seconds

    # --- act ------------------------------------------------------------------------------------------

    def refuses(self, verb: str) -> bool:
        """Whether `verb` is not done with the selected engine: a bare process, or one rank of several. Says then how
        the person does it, or how it is done on all ranks."""
        view = self.selected_engine
        if view is not None and view.container.bare:
            from spark_tui.base.engine.container import outside_docker

            self.notify(str(outside_docker(view.container, acts=True)), severity="warning", markup=False)
            return True
        if view is None or rank_of(view.container) is None:
            return False
        from spark_tui.manage.cluster.show.cluster import not_alone

        self.notify(not_alone(view.name, self.selected_record, verb, key_of("stop")), severity="warning", markup=False)
        return True

    def explain(self, view: EngineView) -> Explanation:
        from spark_tui.observe.explain.show import explanation_of  # its rules are many: after the first frame

        return explanation_of(self.context, view)

    def apply_fix(self, engine: str) -> None:
        view = self.world.view(engine)
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
        from spark_tui.catalog.fit.use.draft import Drafts

        if view is None:
            self.notify("No engine is selected.", markup=False)
        elif catalogue(self.context).get(view.container.preset) is not None:
            self.notify(f"{view.name} runs from the preset {view.container.preset}.", markup=False)
        else:
            proposed = self.explain(view).proposal
            changes = dict(proposed.change) if proposed is not None else {}
            container = view.container
            dialog = self.make_screen(
                "draft", self.context, f"Draft: {view.name}", lambda: self.context[Drafts].of_container(container),
                changes=changes,
            )  # fmt: skip
            self.push_screen(dialog, self.launched)

    def edit_engine(self, engine: str, changes: Mapping[str, str] | None = None) -> None:
        view = self.world.view(engine)
        if view is None or not view.container.running:
            self.notify("No running engine is selected.", markup=False)
            return
        if self.refuses("Edit"):
            return
        from spark_tui.run.launch.use.edit import Editor

        try:
            preset = self.context[Editor].running(view).preset
        except SparkError as error:
            self.report(error)
        else:
            self.push_screen(self.make_screen("launch_form", self.context, preset, changes, view))
