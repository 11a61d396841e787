"""Updates of a preset's image: the new one is tried beside the old one, which can always run again.

Until a person keeps the new image the preset's tag means the old one, so that every other launch starts it. The old
image has a tag of its own from before the pull on. What is about to be done is written down first: the next program
continues it, keeps it or goes back, and going back asks no registry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.actions import by_front_end, key_of
from spark_tui.base.context import Context
from spark_tui.base.engine.container import ContainerFacts, ImageFacts
from spark_tui.base.engine.image import digest_of
from spark_tui.base.errors import (
    ImageNotFound,
    NoSpaceLeft,
    RefusedError,
    SparkError,
    UnreachableError,
    UsageError,
)
from spark_tui.base.finding import EventKind, Severity, value_of
from spark_tui.base.jobs import Report, Step, StepReporter
from spark_tui.base.journal import WAIT, Journal
from spark_tui.base.ports import Clock, ContainerEngine, HostProbe, LogArchive, StateFiles
from spark_tui.base.quantities import human_bytes
from spark_tui.base.text import clean_line, quoted
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import Preset, PresetCatalogue, pinned_reference
from spark_tui.catalog.presets.use.comparing import container_of
from spark_tui.catalog.presets.use.rights import catalogue
from spark_tui.manage.images.model import kept_tag
from spark_tui.observe.engines.use.collectors import clear_container
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.starts import StartRecord, digest_for
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.metrics.use.history import History
from spark_tui.run.launch.use.edit import Editor, EditStage
from spark_tui.run.launch.use.launch import SET_ASIDE, Launcher, LaunchRequest, pending_steps
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.use.bench.use.ab import Variant

T = TypeVar("T")

STEPS: Final = (Step("disk", "Disk space"), Step("kept", "Keep old image"), Step("new_image", "Pull new image"))


class UpdateStage(StrEnum):
    """What an update was about to do when it was written down. `DECIDE`: the new image serves, and a person decides;
    `KEPT`: it is over, and can be undone."""

    PULL = "pull"
    TRY = "try"
    DECIDE = "decide"
    KEEP = "keep"
    BACK = "back"
    KEPT = "kept"


class UpdateRecord(Struct, frozen=True):
    """An update as it is written down. `old_id` is the old image's own id, digests are the registry's. `running`:
    whether the engine runs when the update is undone. `at` is when it began, by the machine's clock."""

    preset: str
    engine: str
    tag: str
    old_id: str
    old_digest: str
    new_digest: str
    stage: UpdateStage
    at: float
    running: bool

    @property
    def old_reference(self) -> str:
        return pinned_reference(self.tag, self.old_digest)

    @property
    def new_reference(self) -> str:
        return pinned_reference(self.tag, self.new_digest)


class UpdateCheck(Struct, frozen=True):
    """A preset's tag here and in its registry. `size` is the old image's in bytes, which the new one needs as well;
    `free` is the disk's, None where unknown. `others` are presets with the same tag, `record` is the last update."""

    preset: Preset
    image: ImageFacts
    digest: str
    remote: str
    free: int | None
    downloaded: bool = False
    others: tuple[str, ...] = ()
    record: UpdateRecord | None = None

    @property
    def moved(self) -> bool:
        return self.remote not in {digest_of(each) for each in self.image.digests}

    @property
    def room(self) -> bool | None:
        """Whether the disk holds both images; None where unknown."""
        return True if self.downloaded else None if self.free is None else self.free >= self.image.size


class Updater(Struct, eq=False):
    """Plans, tries, keeps and undoes updates of presets. One program at a time works on a preset."""

    _docker: ContainerEngine
    _host: HostProbe
    _editor: Editor
    _launcher: Launcher
    _supervisor: EngineSupervisor
    _history: History
    _archive: LogArchive
    _journal: Journal[UpdateRecord]
    _clock: Clock
    _catalogue: Callable[[], PresetCatalogue]

    @classmethod
    def from_context(cls, context: Context) -> Updater:
        return cls(
            context.docker,
            context.host,
            context[Editor],
            context[Launcher],
            context[EngineSupervisor],
            context[History],
            context.archive,
            updates(context.ports.state),
            context.clock,
            partial(catalogue, context),
        )

    # --- look -----------------------------------------------------------------------------------------

    async def check(self, preset: Preset) -> UpdateCheck:
        """Asks the registry and changes nothing. Raises RefusedError for a preset whose image cannot move,
        ImageNotFound for a tag that is gone, RegistryUnreachable and the like."""
        reference, name = preset.reference, preset.name
        if "@" in reference:
            raise RefusedError(
                f"{name} is pinned to {digest_of(reference)[:19]}.",
                by_front_end(
                    f"To follow the tag, press {key_of('pin_preset')}.", f"Unpin it: spark-tui presets unpin {name}"
                ),
            )
        image = await self._docker.image(reference)
        if image is None:
            raise RefusedError(
                f"The image {clean_line(reference)} is not downloaded.", f"A launch pulls it: spark-tui up {name}"
            )
        digest = digest_of(digest_for(reference, image.digests))
        if not digest:
            raise RefusedError(
                f"The image {clean_line(reference)} was built or loaded on this machine.", "Build or load a newer one."
            )
        remote = await self._docker.registry_digest(reference)
        daemon = await self._docker.daemon()
        free = value_of(self._host.free_disk(Path(daemon.root))) if daemon.root else None
        downloaded = await self._docker.image(pinned_reference(reference, remote)) is not None
        presets = self._catalogue().presets
        others = tuple(each.name for each in presets if each.reference == reference and each.name != name)
        return UpdateCheck(preset, image, digest, remote, free, downloaded, others, self.record(name))

    def record(self, preset: str) -> UpdateRecord | None:
        """The last update of a preset, if it can still be undone. Raises RefusedError for a damaged file."""
        return self._journal.read(preset)

    async def starts(self, record: UpdateRecord) -> tuple[StartRecord | None, StartRecord | None]:
        """The last good start in the old image, and that in the new one; None where none is known."""
        await self._history.load()
        self._history.observe(self._supervisor.views())
        new = await self._docker.image(record.new_reference)
        good = self._history.good_starts(record.preset)

        def latest(image_id: str) -> StartRecord | None:
            """The newest one whose log was read, else the newest one."""
            found = [each for each in good if each.image_id == image_id]
            read = (each for each in found if each.backends.attention or each.sizes.kv_tokens is not None)
            return next(read, next(iter(found), None))

        return latest(record.old_id), latest(new.id) if new is not None else None

    async def measure(
        self, record: UpdateRecord, work: Callable[[tuple[Variant, Variant]], Awaitable[T]], report: Report
    ) -> T:
        """What `work` finds out about the new image, which runs, and the old one, by starting them in turn. Meanwhile
        it is a try again: a program that ends leaves it to the next one. When this ends, the new image serves. Raises
        RefusedError where the engine does not run, what `work` raises, and what a failed try does."""
        with self._journal.claimed(record.preset):
            now = replace(self._editor.running(await self._view(record.engine)), fetch=False)  # it is there
            new, old = (
                Variant(record.engine, what, replace(now, preset=replace(now.preset, trial=reference)))
                for what, reference in (("new image", record.new_reference), ("old image", record.old_reference))
            )
            record, failure = self._journal.write(replace(record, stage=UpdateStage.TRY)), None
            with self._editor.unsettled(record.engine):
                try:
                    found = await work((new, old))
                except SparkError as error:
                    failure = error
            if await self._serves_new(record):
                self._editor.hold(record.engine)
                self._journal.write(replace(record, stage=UpdateStage.DECIDE))
            else:
                await self._try(record, now.preset, report)
            if failure is not None:
                raise failure
            return found

    # --- try ------------------------------------------------------------------------------------------

    async def run(self, preset: Preset, report: Report) -> UpdateRecord | None:
        """Continues an interrupted update, or begins one, up to the decision. None: there is nothing to decide, because
        the tag has not moved, or an interrupted decision was carried out. Raises the error of the step that failed;
        then the old image runs again where it ran."""
        with self._journal.claimed(preset.name):
            record = self.record(preset.name)
            if record is not None and record.stage is UpdateStage.KEEP:
                await self._keep(record, report)
                return None
            if record is not None and record.stage is UpdateStage.BACK:
                await self._back(record, report)
                return None
            if record is not None and record.stage is UpdateStage.DECIDE:
                return record
            if record is not None and record.stage is UpdateStage.TRY:
                return await self._try(record, preset, report)
            found = await self.check(preset)
            if not found.moved:
                if record is not None and record.stage is UpdateStage.PULL:
                    await self._forget(record)
                return None
            return await self._try(await self._fetch(found, report), preset, report)

    async def _fetch(self, found: UpdateCheck, report: Report) -> UpdateRecord:
        """Both images on disk, the old one with a tag of its own."""
        preset, steps = found.preset, StepReporter(STEPS, report, self._clock)
        async with steps.running("disk"):
            need, free = human_bytes(found.image.size), human_bytes(found.free) if found.free is not None else "unknown"
            steps.detail("disk", "downloaded" if found.downloaded else f"about {need} more, free {free}")
            if found.room is False:
                raise NoSpaceLeft(
                    f"No room for two images: the new one needs about {need}, {free} are free.",
                    "Delete one that nothing uses: spark-tui images",
                )
        engine = container_of(preset, await self._docker.containers())
        record = UpdateRecord(
            preset.name,
            engine.name if engine is not None else preset.name,
            preset.reference,
            found.image.id,
            found.digest,
            found.remote,
            UpdateStage.PULL,
            self._clock.now(),
            engine is not None and engine.running,
        )
        self._journal.write(record)
        async with steps.running("kept"):
            await self._docker.tag_image(record.old_id, kept_tag(record.tag, record.preset))
            steps.detail("kept", kept_tag(record.tag, record.preset))
        async with steps.running("new_image"):
            if found.downloaded:
                steps.skip("new_image", "downloaded")
            else:
                await self._launcher.pull(
                    record.new_reference, lambda text, share: steps.detail("new_image", text, share)
                )
        return record

    async def _try(self, record: UpdateRecord, preset: Preset, report: Report) -> UpdateRecord:
        """The new image serves. What fails goes back, and then there is no update any more."""
        record = self._journal.write(replace(record, stage=UpdateStage.TRY))
        engine = record.engine
        try:
            entry = self._editor.entry(engine)
            if entry is not None and entry.stage is not EditStage.HELD:
                await self._editor.finish(engine, report)
            container = await self._container(engine)
            if self._editor.held(engine):
                pass
            elif container is not None and container.running:
                await self._editor.run(
                    await self._editor.plan(await self._view(engine), {}),
                    report,
                    fetch=False,
                    image=record.new_reference,
                    former_image=record.old_reference,
                    hold=True,
                )
            else:
                trial = replace(preset, trial=record.new_reference)
                await self._launcher.launch(LaunchRequest(trial, Overrides(), replace_running=True), report)
        except SparkError as error:
            if not isinstance(error, UnreachableError) and self._editor.entry(engine) is None:
                with suppress(SparkError):
                    if not record.running:
                        await self._run_in(record, record.old_reference, record.old_id, report, stop=True)
                    await self._forget(record)
            raise
        return self._journal.write(replace(record, stage=UpdateStage.DECIDE))

    # --- decide ---------------------------------------------------------------------------------------

    async def keep(self, preset: str, report: Report) -> UpdateRecord:
        """The tag means the new image from now on. Raises UsageError where no update waits for it."""
        with self._journal.claimed(preset):
            record = self.record(preset)
            if record is None or record.stage not in (UpdateStage.DECIDE, UpdateStage.KEEP):
                raise UsageError(f"No update of {preset} to keep.", f"Try the new image: spark-tui update {preset}")
            return await self._keep(record, report)

    async def _keep(self, record: UpdateRecord, report: Report) -> UpdateRecord:
        self._journal.write(replace(record, stage=UpdateStage.KEEP))
        new = await self._docker.image(record.new_reference)
        if new is None:
            raise ImageNotFound(
                f"The image {record.new_reference} was removed.", f"Go back: spark-tui update {record.preset} --back"
            )
        await self._docker.tag_image(new.id, record.tag)
        await self._editor.settle(record.engine)
        await self._run_in(record, record.new_reference, new.id, report)
        await self._tidy(record)
        return self._journal.write(replace(record, stage=UpdateStage.KEPT, running=True))

    async def back(self, preset: str, report: Report) -> UpdateRecord:
        """The tag means the old image again, and the engine runs in it where it ran. Needs no registry. Raises
        UsageError where there is no update."""
        with self._journal.claimed(preset):
            record = self.record(preset)
            if record is None:
                raise UsageError(
                    f"No update of {preset} to go back from.",
                    f"Pin an earlier start: spark-tui presets pin {preset} --digest DIGEST",
                )
            return await self._back(record, report)

    async def _back(self, record: UpdateRecord, report: Report) -> UpdateRecord:
        record = self._journal.write(replace(record, stage=UpdateStage.BACK))
        if await self._docker.image(record.old_id) is None:
            raise ImageNotFound(
                f"The old image of {record.preset} was removed.",
                f"Get it again: docker pull {quoted(record.old_reference)}",
            )
        tagged = await self._docker.image(record.tag)
        if tagged is None or tagged.id != record.old_id:
            await self._docker.tag_image(record.old_id, record.tag)
        entry = self._editor.entry(record.engine)
        if entry is not None and entry.image == record.old_reference:
            await self._editor.finish(record.engine, report)
        elif entry is not None:
            await self._editor.revert(record.engine, report)
        await self._run_in(record, record.old_reference, record.old_id, report, stop=not record.running)
        await self._forget(record)
        return record

    async def _run_in(
        self, record: UpdateRecord, reference: str, image_id: str, report: Report, *, stop: bool = False
    ) -> None:
        """An engine that runs in another image is restarted in this one, or with `stop` stopped. A stopped container of
        another image is removed: a launch would start it again."""
        container = await self._container(record.engine)
        if container is None or container.image_id == image_id or container.preset != record.preset:
            return
        if container.running and not stop:
            plan = await self._editor.plan(await self._view(record.engine), {})
            await self._editor.run(plan, report, rollback=False, fetch=False, image=reference)
        else:
            await clear_container(self._docker, self._archive, container)

    async def _serves_new(self, record: UpdateRecord) -> bool:
        """Whether the engine runs in the new image, and comes to serve."""
        container, new = await self._container(record.engine), await self._docker.image(record.new_reference)
        if container is None or new is None or not container.running or container.image_id != new.id:
            return False
        try:
            await self._supervisor.refresh()  # the last launch may have made another container of that name
            await self._launcher.resume(record.engine, lambda _: None)
        except SparkError:
            return False
        return True

    async def _forget(self, record: UpdateRecord) -> None:
        """Nothing of it is left: the old image has the preset's tag."""
        await self._tidy(record)
        with suppress(SparkError):
            await self._docker.remove_image(kept_tag(record.tag, record.preset))
        self._journal.drop(record.preset)

    async def _tidy(self, record: UpdateRecord) -> None:
        """A program killed between two launches may have left a container set aside, which holds its image."""
        aside = await self._container(record.engine + SET_ASIDE)
        if aside is not None and aside.preset == record.preset and self._editor.entry(record.engine) is None:
            await clear_container(self._docker, self._archive, replace(aside, name=record.engine))

    # --- inside ---------------------------------------------------------------------------------------

    async def _container(self, name: str) -> ContainerFacts | None:
        return next((each for each in await self._docker.containers() if each.name == name and each.ours), None)

    async def _view(self, engine: str) -> EngineView:
        await self._supervisor.refresh()  # the last launch may have made another container of that name
        watch = await self._supervisor.watch(engine)
        await watch.settled()
        return watch.view()


def updates(state: StateFiles) -> Journal[UpdateRecord]:
    """The last update of each preset, under way or over."""
    damaged = (
        "The last update of {name} is unknown: {path} is damaged.",
        f"Delete that file. The old image is kept by its tag: {kept_tag('...', '{name}')}",
    )
    busy = "Another spark-tui updates {name}.", WAIT
    return Journal(state, UpdateRecord, "update-", attrgetter("preset"), damaged=damaged, busy=busy)


def begin_update(context: Context, preset: Preset, engine: str, *, keep: bool | None = None) -> str:
    """Starts a job, and returns its id: tries the newer image of a preset up to the decision, or with `keep` carries
    that out. A cancelled one brings what ran before back, and can be continued. Raises RefusedError while that engine
    is worked on."""
    updater = context[Updater]

    async def work(report: Report) -> None:
        if keep is not None:
            decide = updater.keep if keep else updater.back
            await decide(preset.name, report)
            context.store.say(f"{preset.name}: {'new image kept' if keep else 'old image again'}", kind=EventKind.IMAGE)
        elif await updater.run(preset, report) is None:
            context.store.say(f"{preset.name}: nothing to update", kind=EventKind.IMAGE)
        else:
            text = f"{preset.name}: the new image serves. Keep it or go back: {key_of('update_preset')} on Presets"
            context.store.say(text, Severity.WARNING, kind=EventKind.IMAGE, subject=engine)

    steps = (*(STEPS if keep is None else ()), *pending_steps())
    # What runs once it was cancelled is the old engine.
    return context[JobRunner].begin(engine, work, steps, what="update", undo=lambda: None)
