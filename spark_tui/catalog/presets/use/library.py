"""The model store for the front ends: what is there, who uses it, verifying and deleting. Nothing here blocks."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.base.executors import end_tasks
from spark_tui.base.finding import EventKind, Finding, Ok, Reading, Severity, aged, value_of
from spark_tui.base.ports import Clock, ContainerEngine
from spark_tui.base.quantities import human_bytes
from spark_tui.base.store import Store
from spark_tui.catalog.models.model.store import (
    Deleted,
    DeleteExtent,
    DeletePlan,
    MovePlan,
    MoveProgress,
    StoredFile,
    StoredModel,
    VerifyProgress,
)
from spark_tui.catalog.models.use.ports import ModelStore
from spark_tui.catalog.presets.feature import LIBRARY
from spark_tui.catalog.presets.model.library import LibraryEntry, LibraryView, PresetUses, User, container_use
from spark_tui.catalog.presets.model.preset import PRESETS
from spark_tui.catalog.presets.use.rights import PresetSource
from spark_tui.observe.explain.feature import ENGINES

REFRESH_SECONDS = 5.0


class Library:
    """Publishes the slice `library` of the World. `root` and `home` are folders of the host."""

    @classmethod
    def from_context(cls, context: Context) -> Library:
        return cls(
            context[ModelStore],
            context.docker,
            context[PresetSource],
            context.store,
            context.clock,
            context.paths.store,
            context.paths.home,
        )

    def __init__(
        self,
        models: ModelStore,
        docker: ContainerEngine,
        presets: PresetSource,
        store: Store,
        clock: Clock,
        root: str,
        home: str = "",
    ) -> None:
        self._models = models
        self._docker = docker
        self._presets = presets
        self._store = store
        self._clock = clock
        self._root = root
        self._home = home
        self._checks: dict[str, VerifyProgress] = {}
        self._failures: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._scanning = asyncio.Lock()

    # --- reading --------------------------------------------------------------------------------------

    @property
    def view(self) -> Reading[LibraryView]:
        return self._store.world[LIBRARY]

    async def run(self) -> None:
        """Refreshes until cancelled: for as long as a screen shows it."""
        while True:
            await self.refresh()
            await self._clock.sleep(REFRESH_SECONDS)

    async def refresh(self) -> Reading[LibraryView]:
        """Scans now. A store that cannot be read leaves the last view, marked stale."""
        async with self._scanning:
            try:
                contents = await self._models.scan()
            except (SparkError, OSError) as error:
                self._store.put(LIBRARY, aged(self.view, str(error)))
                return self.view
            containers: tuple[ContainerFacts, ...] = ()
            unknown = ""
            try:
                containers = await self._docker.containers()
            except SparkError as error:
                unknown = error.summary
        others = [model for other in contents.others if other.mine for model in other.models]
        if (contents.models or others) and not self._store.world[PRESETS].presets:
            self._store.put(PRESETS, self._presets.load())
        presets = PresetUses(self._store.world[PRESETS].presets)
        found = tuple(self._entry(model, containers, presets) for model in contents.models)
        elsewhere = tuple(replace(self._entry(model, containers, presets), check=None, failure="") for model in others)
        self._store.put(LIBRARY, Ok(LibraryView(contents, found, unknown, elsewhere), self._clock.now()))
        return self.view

    async def entry(self, model: str) -> LibraryEntry:
        """One model, by id or by a folder's name, as it is now. Raises UsageError when there is none."""
        view = value_of(await self.refresh())
        found = view.get(model) if view is not None else None
        if found is None:
            await self._models.files(model)  # says what is not there, and what was probably meant
            raise UsageError(f"There is no model {model} in the store.", "See: spark-tui models list")
        return found

    async def files(self, model: str, revision: str = "") -> tuple[StoredFile, ...]:
        """Every file of a revision. Raises UsageError when there is none such."""
        return await self._models.files(model, revision)

    def _entry(self, model: StoredModel, containers: tuple[ContainerFacts, ...], presets: PresetUses) -> LibraryEntry:
        """A model with the engines, then the presets that use it."""
        served = {view.container.id: view.model for view in value_of(self._store.world[ENGINES]) or ()}
        uses = [container_use(model, each, served.get(each.id, "")) for each in containers]
        uses += presets.of(model, self._root, self._home)
        order = list(User)
        found = (use for use in uses if use is not None)
        ordered = sorted(found, key=lambda use: (use.kind is User.PRESET, order.index(use.kind), use.name))
        return LibraryEntry(model, tuple(ordered), self._checks.get(model.id), self._failures.get(model.id, ""))

    # --- verifying ------------------------------------------------------------------------------------

    async def verify(self, model: str, revision: str = "") -> AsyncGenerator[VerifyProgress, None]:
        """Progress of a verification; the last one is over. Closing it ends the reading. Raises UsageError."""
        async with aclosing(self._models.verify(model, revision)) as found:
            async for progress in found:
                yield progress

    def start_verify(self, model: str, revision: str = "") -> None:
        """Verifies in the background: progress and outcome are in the model's entry. Raises RefusedError when that
        model is being verified already."""
        if model in self._tasks:
            raise RefusedError(f"{model} is being verified already.", "Wait for it, or cancel it.")
        self._failures.pop(model, None)
        self._checks.pop(model, None)
        self._tasks[model] = asyncio.create_task(self._verify(model, revision))

    async def cancel_verify(self, model: str) -> None:
        """Ends a verification; nothing of it is kept. None under way is no error."""
        if (task := self._tasks.get(model)) is not None:
            await end_tasks(task)

    def verifying(self, model: str) -> bool:
        return model in self._tasks

    async def _verify(self, model: str, revision: str) -> None:
        try:
            async for progress in self.verify(model, revision):
                self._checks[model] = progress
                self._show(model)
        except SparkError as error:
            self._checks.pop(model, None)
            self._failures[model] = str(error)
        except asyncio.CancelledError:
            self._checks.pop(model, None)
            raise
        else:
            check = self._checks[model]
            severity = Severity.ERROR if check.wrong else Severity.INFO
            remedy = "Download those files again." if check.wrong else ""
            self._store.say(f"{model}: {check.sentence}", severity, remedy, kind=EventKind.VERIFY, subject=model)
        finally:
            self._tasks.pop(model, None)
            self._show(model)

    def _show(self, model: str) -> None:
        """The entry of a model with the state of its verification."""
        view = value_of(self.view)
        if view is None:
            return
        check, failure = self._checks.get(model), self._failures.get(model, "")
        entries = tuple(
            replace(entry, check=check, failure=failure) if entry.model.id == model else entry for entry in view.entries
        )
        self._store.put(LIBRARY, Ok(replace(view, entries=entries), self._clock.now()))

    # --- deleting -------------------------------------------------------------------------------------

    async def plan_delete(
        self, model: str, extent: DeleteExtent = DeleteExtent.MODEL, revision: str = "", *, unchecked: bool = False
    ) -> DeletePlan:
        """What a deletion would take and give back, with its obstacles: an engine that uses the model, a download,
        folders of root's. `unchecked`: also where Docker cannot list the containers. Raises UsageError for a model or
        revision that is not there."""
        plan = await self._models.plan_delete(model, extent, revision)
        if extent is DeleteExtent.LEFTOVERS:
            return plan
        entry, view = await self.entry(plan.model), value_of(self.view)
        if view is not None and view.engines_unknown and not unchecked:
            words = f"unknown whether an engine uses it ({view.engines_unknown.rstrip('.')})"
            remedy = "Start Docker, or skip this check with --unchecked."
            found = [Finding("engines_unknown", Severity.ERROR, words, remedy=remedy)]
        else:
            stop = "Stop it first: spark-tui down {}"
            found = [
                Finding("in_use", Severity.ERROR, use.words, remedy=stop.format(use.name), subject=use.name)
                for use in entry.engines
            ]
        return replace(plan, obstacles=(*plan.obstacles, *found))

    async def delete(self, plan: DeletePlan, typed: str, *, unchecked: bool = False) -> Deleted:
        """Does what `plan_delete` has shown. `typed` is what the person has typed to confirm: it must be `plan.name`.

        All is checked once more: raises RefusedError when the model has come into use or has changed meanwhile,
        SparkError when something could not be removed.
        """
        if typed != plan.name:
            raise RefusedError(f"{plan.model} was not deleted.", f"To confirm, type exactly: {plan.name}")
        fresh = await self.plan_delete(plan.model, plan.extent, plan.revision, unchecked=unchecked)
        fresh.check()
        await self.cancel_verify(plan.model)
        done = await self._models.delete(plan)
        self._store.say(f"{plan.model}: deleted, {human_bytes(done.freed)} freed")
        await self.refresh()
        return done

    # --- moving ---------------------------------------------------------------------------------------

    async def plan_move(self, model: str, folder: str = "", *, unchecked: bool = False) -> MovePlan:
        """What a move into another cache would do; `folder` empty: into the store. Raises UsageError and RefusedError,
        also where an engine runs with the model, or, but for `unchecked`, where Docker cannot say that."""
        plan = await self._models.plan_move(model, folder)
        view = value_of(await self.refresh())
        entries = (*view.entries, *view.elsewhere) if view is not None else ()
        engine = next((use for each in entries if each.model.path == plan.source for use in each.engines), None)
        if engine is not None:
            raise RefusedError(f"{model} is in use: {engine.words}.", f"Stop it first: spark-tui down {engine.name}")
        if view is not None and view.engines_unknown and not unchecked:
            words = f"Unknown whether an engine uses {model} ({view.engines_unknown.rstrip('.')})."
            raise RefusedError(words, "Start Docker, or skip this check with --unchecked.")
        return plan

    async def move(self, plan: MovePlan) -> AsyncGenerator[MoveProgress, None]:
        """Does what `plan_move` has shown; the last progress is over. Raises SparkError: nothing is lost then, and the
        same move continues."""
        async with aclosing(self._models.move(plan)) as found:
            async for progress in found:
                yield progress
        self._store.say(f"{plan.model}: moved to {posixpath.dirname(plan.target)}")
        await self.refresh()

    async def close(self) -> None:
        for model in tuple(self._tasks):
            await self.cancel_verify(model)
