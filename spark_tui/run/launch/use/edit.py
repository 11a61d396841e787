"""Changing a running engine: stop, start with other settings, and back to the former ones when those fail.

What is about to be done is written down first, and one program at a time does it: when it is killed, the next one
finishes its work. The former container is set aside until the new one serves: going back starts just what ran.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from operator import attrgetter
from statistics import median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.actions import by_front_end
from spark_tui.base.actions import key_of as action_key
from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.engine.invocation import METHOD, OPTIONS, SETTABLE, TOKENS, key_of, parse
from spark_tui.base.engine.runtimes import KEY_VARIABLES
from spark_tui.base.errors import EngineExited, RefusedError, SparkError, UnreachableError, UsageError
from spark_tui.base.jobs import Report, Step, StepState
from spark_tui.base.journal import WAIT, Journal
from spark_tui.base.ports import EDITS, ContainerEngine, LogArchive, SecretStore, StateFiles
from spark_tui.catalog.fit.use.fit import LaunchChecks
from spark_tui.catalog.presets.model.diff import diff
from spark_tui.catalog.presets.model.overrides import Overrides, all_pairs, overrides_from_pairs, pairs_of
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import PresetCatalogue
from spark_tui.catalog.presets.model.rules.context import given_settings
from spark_tui.catalog.presets.use.rights import catalogue
from spark_tui.observe.engines.use.collectors import clear_container
from spark_tui.observe.explain.model.starts import MAX_STARTS
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.use.history import History
from spark_tui.observe.metrics.use.metrics import in_flight
from spark_tui.run.launch.use.launch import (
    RESTORE,
    SET_ASIDE,
    Launcher,
    LaunchRequest,
    launched_with,
    request_of,
)

_ELSEWHERE: Final = ("name", "port", "gpu_memory_utilization", METHOD, TOKENS)
"""Not read off a command: the container has them itself, or the command's form is not the setting's."""


class EditStage(StrEnum):
    """What an edit was about to do when it was written down."""

    REPLACE = "replace"
    RESTORE = "restore"
    HELD = "held"
    """The new image serves; what ran before is kept until `settle` or `revert`."""


class EditFailed(EngineExited, id="edit_failed"):
    """The new settings did not come to serve; the former ones run again."""


class SettingChange(Struct, frozen=True):
    """One setting as it is and as it will be; empty where the command does not have it."""

    key: str
    label: str
    before: str
    after: str


class EditPlan(Struct, frozen=True):
    """A change of a running engine; `launch` is the new one. `in_flight`: requests that it answers now,
    `start_seconds`: its usual start; None where unknown. `drifted`: its preset or image has changed since its launch,
    and the new settings start with those of now."""

    name: str
    container: str
    before: LaunchRequest
    after: LaunchRequest
    launch: LaunchPlan
    differences: tuple[SettingChange, ...]
    in_flight: int | None = None
    start_seconds: float | None = None
    drifted: bool = False


class EditEntry(Struct, frozen=True):
    """An edit as it is written down. `before` and `after` are pairs of settings, `container` is the one that ran
    before, `who` works on it. `image` and `former_image` are those of an update; empty: the preset's. `hold`: what ran
    before is kept when the new one serves. `stops`: another engine, which ends before the one of before comes back."""

    name: str
    preset: str
    container: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    stage: EditStage
    rollback: bool
    who: str
    image: str = ""
    former_image: str = ""
    hold: bool = False
    stops: str = ""

    def __post_init__(self) -> None:
        """Raises UsageError for settings that there are not."""
        for each in (self.before, self.after):
            overrides_from_pairs(each)


class Editor(Struct, eq=False):
    """Plans edits, carries them out, and finishes those that were interrupted. `in_flight` asks an engine how many
    requests it answers; `who` names this program to another one."""

    _launcher: Launcher
    _checks: LaunchChecks
    _docker: ContainerEngine
    _archive: LogArchive
    _secrets: SecretStore
    _journal: Journal[EditEntry]
    _catalogue: Callable[[], PresetCatalogue]
    _history: History
    _in_flight: Callable[[str], Awaitable[int | None]]
    _who: str

    @classmethod
    def from_context(cls, context: Context) -> Editor:
        return cls(
            context[Launcher],
            context[LaunchChecks],
            context.docker,
            context.archive,
            context.secrets,
            edits(context.ports.state),
            partial(catalogue, context),
            context[History],
            partial(in_flight, context),
            f"spark-tui on {context.host.identity().hostname} (pid {os.getpid()})",
        )

    # --- plan -----------------------------------------------------------------------------------------

    def running(self, view: EngineView) -> LaunchRequest:
        """The launch that makes the engine as it runs: by its label, and by its command where its preset says otherwise
        now. Raises RefusedError."""
        request = request_of(view, self._catalogue())
        planned = given_settings(self._checks.preflight.dry_plan(request.preset, request.overrides))
        command = parse(view.container.argv, view.runtime)
        runs = {key: command.value(key) for key in SETTABLE if key not in _ELSEWHERE and key in planned}
        pairs = {key: value for key, value in runs.items() if value is not None and value != planned[key]}
        if not pairs:
            return request
        return replace(request, overrides=overrides_from_pairs(all_pairs(request.overrides) | pairs))

    async def plan(self, view: EngineView, changes: Mapping[str, str] | Overrides) -> EditPlan:
        """What `changes` of the running settings mean (an empty value: as the preset has it); as Overrides they are all
        of the new settings. Raises RefusedError or UsageError."""
        before = self.running(view)
        if isinstance(changes, Overrides):
            wanted = changes
        else:
            merged = all_pairs(before.overrides) | dict(changes)
            wanted = overrides_from_pairs({key: value for key, value in merged.items() if value})
        name = view.name
        if (wanted.name or before.preset.name) != name:
            raise UsageError(f"The name of {name} cannot be changed.", "Launch its preset under another name.")
        wanted = replace(wanted, name=name, port=wanted.port or view.port)
        launches = [await self._checks.launch(before.preset, each) for each in (before.overrides, wanted)]
        old, new = (each.settle() for each in launches)
        after = replace(before, overrides=new.overrides)
        rows = diff(before.preset.name, old.spec, new.spec, None).differing
        past = [start.seconds for start in self._history.past(view.container) if start.seconds is not None]
        return EditPlan(
            name,
            view.container.id,
            before,
            after,
            new,
            tuple(_difference(row.setting, row.preset, row.launch, view.runtime) for row in rows),
            await self._in_flight(name) if view.container.running else 0,
            median(past[-MAX_STARTS:]) if past else None,
            not view.container.made_by(old.spec),
        )

    # --- do -------------------------------------------------------------------------------------------

    async def run(
        self,
        plan: EditPlan,
        report: Report,
        *,
        rollback: bool = True,
        force: bool = False,
        fetch: bool = True,
        image: str = "",
        former_image: str = "",
        hold: bool = False,
    ) -> EngineView:
        """Stops the engine and starts it with the new settings, or in another `image`; with `hold` the former container
        is kept until `settle` or `revert`. Raises the launch's error, EditFailed where the former settings run again,
        and RefusedError while another spark-tui edits it."""
        before, after = (all_pairs(each.overrides) for each in (plan.before, plan.after))
        preset, stage = plan.before.preset.name, EditStage.REPLACE
        entry = EditEntry(
            plan.name, preset, plan.container, before, after, stage, rollback, self._who, image, former_image, hold
        )
        with self._journal.claimed(plan.name):
            if self.held(plan.name):
                raise RefusedError(
                    f"The update of {preset} is not decided.",
                    by_front_end(
                        f"Decide it on Presets: {action_key('update_preset')}.",
                        f"Keep the new image or go back: spark-tui update {preset} --keep, or --back",
                    ),
                )
            key = self._secrets.api_key(str(self._secrets.path(plan.name))) if rollback else None
            if key is not None:  # the new settings may need none
                self._secrets.env_file(plan.name + SET_ASIDE, {KEY_VARIABLES[0]: key})
            return await self._replace(entry, report, force=force, fetch=fetch)

    def is_busy(self, name: str) -> bool:
        """Whether a program edits that engine now."""
        return self._journal.is_claimed(name)

    def interrupted(self) -> tuple[EditEntry, ...]:
        """Unfinished edits of which no program is the owner now."""
        return tuple(
            each for each in self._journal.left() if isinstance(each, EditEntry) and each.stage is not EditStage.HELD
        )

    def entry(self, name: str) -> EditEntry | None:
        """What is written down of an edit of that engine. Raises SparkError where it is damaged."""
        return self._journal.read(name)

    def held(self, name: str) -> bool:
        """Whether its former container waits for `settle` or `revert`."""
        entry = self.entry(name)
        return entry is not None and entry.stage is EditStage.HELD

    @contextmanager
    def unsettled(self, name: str) -> Iterator[None]:
        """While an engine whose former container is held is started in one image and the other: when this program ends
        meanwhile, the next one finishes or undoes the edit. Afterwards `hold` or `finish` holds it again."""
        with self._journal.claimed(name):
            self._restage(name, EditStage.HELD, EditStage.REPLACE)
            yield

    @contextmanager
    def promised(self, view: EngineView, before: LaunchRequest, after: LaunchRequest, stops: str) -> Iterator[None]:
        """While an engine and its other settings, or the engine `stops`, are started in turn: when this program
        ends meanwhile, the next one brings it back as it is. Who calls this in an edit of it has promised that
        already."""
        if self._journal.is_claimed(view.name):
            yield
            return
        with self._journal.claimed(view.name):
            self._journal.write(
                EditEntry(
                    view.name,
                    before.preset.name,
                    view.container.id,
                    all_pairs(before.overrides),
                    all_pairs(after.overrides),
                    EditStage.RESTORE,
                    True,
                    self._who,
                    stops=stops,
                )
            )
            yield
            self._journal.drop(view.name)  # not after an error: the next program looks after it

    def hold(self, name: str) -> None:
        """The new image serves: what ran before waits again for `settle` or `revert`."""
        with self._journal.claimed(name):
            self._restage(name, EditStage.REPLACE, EditStage.HELD)

    def _restage(self, name: str, stage: EditStage, new: EditStage) -> None:
        if (entry := self.entry(name)) is not None and entry.stage is stage:
            self._journal.write(replace(entry, stage=new))

    async def settle(self, name: str) -> None:
        """The new image stays: removes what was held."""
        with self._journal.claimed(name):
            if (entry := self.entry(name)) is not None:
                await self._close(entry)

    async def revert(self, name: str, report: Report) -> EngineView | None:
        """What ran before the edit runs again, also after it was held; None where nothing is written down."""
        with self._journal.claimed(name):
            entry = self.entry(name)
            if entry is None:
                return None
            if await self._left_alone(entry):
                await self._close(entry)
                return None
            return await self._restore(replace(entry, stage=EditStage.RESTORE), report)

    def unreadable(self) -> tuple[SparkError, ...]:
        """Why other edits that are written down cannot be finished: each names its file and what to do."""
        return tuple(each for each in self._journal.left() if isinstance(each, SparkError))

    async def finish(self, name: str, report: Report) -> EngineView | None:
        """Continues an interrupted edit; None for one that had changed nothing, which is dropped. Raises
        as `run`."""
        with self._journal.claimed(name):
            entry = self.entry(name)
            if entry is None:
                raise RefusedError(f"No interrupted edit of {name}.", f"Begin one: spark-tui edit {name} --set K=V")
            if await self._left_alone(entry):
                await self._close(entry)
                return None
            if entry.stage is EditStage.RESTORE:
                return await self._restore(entry, report)
            return await self._replace(entry, report, fetch=not entry.image)  # an update's model is there

    def cancelled(self, name: str) -> bool:
        """After an edit was cancelled: whether `finish` has to bring the former settings back. An edit that was going
        back already is given up."""
        entry = self.entry(name)
        if entry is None or entry.stage is EditStage.RESTORE:
            self._journal.drop(name)
            return False
        self._journal.write(replace(entry, stage=EditStage.RESTORE))
        return True

    async def _replace(
        self, entry: EditEntry, report: Report, *, force: bool = False, fetch: bool = True
    ) -> EngineView:
        self._journal.write(entry)
        try:
            request = replace(self._request(entry, entry.after, entry.image), force=force, fetch=fetch)
            keep = entry.container if entry.rollback else ""
            result = await self._launcher.launch(request, report, keep=keep)
        except SparkError as error:
            if not entry.rollback or await self._left_alone(entry):
                await self._close(entry)
                raise
            await self._restore(replace(entry, stage=EditStage.RESTORE), report)
            raise EditFailed(
                f"{entry.name} failed with the new settings; the former settings run again. {error.summary}",
                error.remedy,
                detail=error.detail,
            ) from error
        if entry.hold:
            self._journal.write(replace(entry, stage=EditStage.HELD))
        else:
            await self._close(entry)
        return result.view

    async def _restore(self, entry: EditEntry, report: Report) -> EngineView:
        """Starts what ran before: its container, or its preset where another program has removed that. Without Docker
        the entry stays: the next program finishes it."""
        self._journal.write(entry)
        step = Step(RESTORE, "Go back", StepState.RUNNING)

        def follow(each: Step) -> None:
            if each.state is StepState.RUNNING:
                report(replace(step, detail=f"{each.label} {each.detail}".strip(), progress=each.progress))

        report(step)
        try:
            for other in await self._docker.containers():
                if other.name == entry.stops != entry.name and other.running and other.ours:
                    await self._docker.stop(other.id)
            kept = await self._kept(entry)
            if kept is not None:
                key = self._secrets.api_key(str(self._secrets.path(entry.name + SET_ASIDE)))
                if key is not None and kept.api_key_file:
                    self._secrets.env_file(entry.name, {KEY_VARIABLES[0]: key})
                view = await self._launcher.bring_back(entry.name, kept, follow)
            else:
                request = replace(self._request(entry, entry.before, entry.former_image), force=True, fetch=False)
                view = (await self._launcher.launch(request, follow)).view
        except SparkError as error:
            report(replace(step, state=StepState.FAILED, detail=error.summary))
            if not isinstance(error, UnreachableError):
                self._journal.drop(entry.name)
            raise
        image = "the image of before" if entry.former_image else "image of today"
        detail = "former settings" if kept is not None else f"former settings; new container, {image}"
        report(replace(step, state=StepState.DONE, detail=detail))
        await self._close(entry)
        return view

    async def _kept(self, entry: EditEntry) -> ContainerFacts | None:
        """The container of before, set aside or not; None where it was removed. Raises Docker's errors."""
        return next((each for each in await self._docker.containers() if each.id == entry.container), None)

    async def _close(self, entry: EditEntry) -> None:
        """Removes what was set aside, then the entry: when Docker fails here, the next program does it."""
        kept = await self._kept(entry)
        if kept is not None and kept.name == entry.name + SET_ASIDE:
            await clear_container(self._docker, self._archive, replace(kept, name=entry.name))
        if self._secrets.api_key(str(self._secrets.path(entry.name + SET_ASIDE))) is not None:
            self._secrets.env_file(entry.name + SET_ASIDE, {})
        self._journal.drop(entry.name)

    async def _left_alone(self, entry: EditEntry) -> bool:
        """Whether an engine of that name runs that this edit did not start: the one of before, unless it was started
        again, or one that was launched since by other means. False where Docker does not answer: going back finds
        out."""
        try:
            containers = await self._docker.containers()
            found = next((each for each in containers if each.name == entry.name and each.running), None)
            if found is None or found.id == entry.container:
                return found is not None and entry.stage is EditStage.REPLACE
            started = [entry.after] if entry.stage is EditStage.REPLACE else [entry.after, entry.before]
            return launched_with(found) not in [pairs_of(overrides_from_pairs(each)) for each in started]
        except SparkError:
            return False

    def _request(self, entry: EditEntry, pairs: Mapping[str, str], image: str) -> LaunchRequest:
        preset = self._catalogue().get(entry.preset)
        if preset is None:
            raise RefusedError(
                f"The preset {entry.preset} of {entry.name} is not available.", "See: spark-tui presets list"
            )
        return LaunchRequest(replace(preset, trial=image), overrides_from_pairs(pairs), replace_running=True)


def edits(state: StateFiles) -> Journal[EditEntry]:
    """Edits that are under way, held or were interrupted."""
    damaged = (
        "An interrupted edit cannot be finished: {path} is damaged.",
        "Check the engine's settings (spark-tui ps), then delete that file.",
    )
    return Journal(
        state, EditEntry, EDITS, attrgetter("name"), damaged=damaged, busy=("{name} is being edited by {who}.", WAIT)
    )


def _difference(setting: str, before: str | None, after: str | None, runtime: str) -> SettingChange:
    key = key_of(setting, runtime) if setting.startswith("-") else setting
    option = OPTIONS.get(key)
    return SettingChange(key, (option.label if option else "") or setting, before or "", after or "")
