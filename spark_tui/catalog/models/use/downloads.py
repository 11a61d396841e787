"""Downloading models: dry runs, the queue, resuming, and what a launch needs. Nothing blocks the event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts
from spark_tui.base.context import Context
from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.base.finding import EventKind, Ok, Reading, Severity, aged, value_of
from spark_tui.base.ports import Clock, HostProbe, SecretStore
from spark_tui.base.quantities import human_bytes
from spark_tui.base.secret import Secret
from spark_tui.base.settings import SettingSource
from spark_tui.base.store import Store
from spark_tui.base.text import clean_line
from spark_tui.catalog.models.feature import DOWNLOADS
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import (
    Download,
    DownloadPhase,
    DownloadPlan,
    DownloadRequest,
    PlannedFile,
)
from spark_tui.catalog.models.model.hub import Gating, RepoFacts, SearchHit, SearchQuery, select, sum_known
from spark_tui.catalog.models.model.inspection import SPARK_MEMORY
from spark_tui.catalog.models.model.store import OtherCache
from spark_tui.catalog.models.use.ports import Downloader, HubClient, ModelStore
from spark_tui.cli.session import Session, at_terminal, confirm
from spark_tui.machine.settings import config_of

BUSY_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 3.0


class Hub(Struct, eq=False):
    """The Hub with the person's token: search, cards, and what is in a checkpoint that is not here."""

    _client: HubClient
    _secrets: SecretStore
    _host: HostProbe

    @classmethod
    def from_context(cls, context: Context) -> Hub:
        return cls(context[HubClient], context.secrets, context.host)

    @property
    def memory(self) -> int:
        """The machine's memory in bytes: what its advice on sizes is for."""
        found = value_of(self._host.memory())
        return SPARK_MEMORY if found is None else found.total

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """What fits, in the query's order. Raises the errors of `domain.models.hub_errors`."""
        return await self._client.search(replace(query, memory=self.memory), self.token())

    async def repo(self, repo: str, revision: str = "main") -> RepoFacts:
        """One revision, with all its files. Raises HubRepoMissing, HubRevisionMissing, HubOffline, ..."""
        return replace(await self._client.repo(repo, revision, self.token()), memory=self.memory)

    async def access(self, repo: str) -> None:
        """Returns when its files may be fetched; raises HubGated (with the page to accept on), HubTokenRejected."""
        await self._client.access(repo, self.token())

    async def inspect(self, facts: RepoFacts) -> Reading[CheckpointFacts]:
        """The checkpoint by its own files, of which only configs and headers are read. Raises like `repo`."""
        return await self._client.inspect(facts, self.token())

    def token(self) -> Secret | None:
        return self._secrets.hf_token()


class Downloads(Struct, eq=False):
    """Plans, starts and follows downloads. They continue when this program ends."""

    _hub: Hub
    _downloader: Downloader
    _host: HostProbe
    _store: Store
    _clock: Clock
    _folder: Path

    @classmethod
    def from_context(cls, context: Context) -> Downloads:
        return cls(
            context[Hub],
            context[Downloader],
            context.host,
            context.store,
            context.clock,
            Path(context.paths.store),
        )

    # --- before -------------------------------------------------------------------------------------------

    async def plan(self, request: DownloadRequest) -> DownloadPlan:
        """A dry run. Raises the Hub's errors when nothing can be said; what would stop the download itself (terms to
        accept, no room, a choice to make) is the plan's `refusal`."""
        free = self._host.free_disk(self._folder)
        if request.url:
            return DownloadPlan(request, None, (PlannedFile(request.target, None),), free=free)
        facts = await self._hub.repo(request.repo, request.revision)
        chosen = select(facts.files, only=request.files, everything=request.everything, load_format=request.load_format)
        problem: SparkError | None = hub_errors.selection_problem(request.repo, chosen)
        if problem is not None:
            if not chosen.choices:
                raise problem
            return DownloadPlan(request, facts, choices=chosen.choices, free=free, refusal=problem)
        here = await self._downloader.here(request, facts.commit, chosen.files)
        sizes = {} if request.again else here.sizes
        files = tuple(PlannedFile(file.path, file.size, sizes.get(file.path, 0)) for file in chosen.files)
        found = DownloadPlan(request, facts, files, chosen.left_out, notes=chosen.notes, free=free, named=here.named)
        if found.whole:
            return found
        if facts.gating is not Gating.OPEN or facts.private:
            try:
                await self._hub.access(facts.repo)
            except hub_errors.HubFailed as error:
                problem = error
        if problem is None and found.short:
            problem = hub_errors.no_room(str(self._folder), found.left or 0, value_of(free) or 0)
        return replace(found, refusal=problem)

    # --- running ------------------------------------------------------------------------------------------

    async def start(self, request: DownloadRequest) -> str:
        """Starts or resumes a download and returns its id at once. One that runs is left alone."""
        id_ = await self._downloader.start(request, self._hub.token())
        await self.refresh()
        return id_

    async def resume(self, id_: str) -> str:
        """Resumes a paused, interrupted or failed download. Raises UsageError for an unknown one."""
        return await self.start((await self.get(id_)).request)

    async def pause(self, id_: str) -> None:
        """Ends it at once; what has arrived stays. Raises UsageError."""
        await self._downloader.pause(id_)
        await self.refresh()

    async def cancel(self, id_: str, *, discard: bool = False) -> int:
        """Ends it at once and takes it off the list. With `discard` unfinished files are deleted; returns the bytes
        that this freed. Raises UsageError."""
        freed = await self._downloader.cancel(id_, discard=discard)
        await self.refresh()
        return freed

    async def clear(self) -> None:
        """Takes what is done off the list."""
        for each in await self.refresh():
            if each.phase is DownloadPhase.DONE:
                await self._downloader.cancel(each.id)
        await self.refresh()

    # --- following ----------------------------------------------------------------------------------------

    async def refresh(self) -> tuple[Download, ...]:
        """Reads all downloads into the World and returns them, oldest first. Raises SparkError."""
        known = value_of(self._store.world[DOWNLOADS])
        before = {each.id: each.phase for each in known or ()}
        found = await self._downloader.all()
        self._store.put(DOWNLOADS, Ok(found, self._clock.now()))
        for each in found:
            self._tell(each, before.get(each.id, each.phase if known is None else None))
        return found

    def _tell(self, each: Download, before: DownloadPhase | None) -> None:
        """What has become of a download goes into the feed; a launch has lines and a bell of its own."""
        title, failure = each.request.title, each.failure
        kind = EventKind.FETCH if each.request.preset else EventKind.DOWNLOAD
        if before is each.phase:
            return
        if each.phase is DownloadPhase.DONE:
            self._store.say(f"{title}: downloaded, {human_bytes(each.done)}", kind=kind, subject=title)
        elif each.phase is DownloadPhase.FAILED and failure is not None:
            text = f"{title}: {failure.summary}"
            self._store.say(text, Severity.ERROR, failure.remedy, kind=kind, subject=title, detail=failure.detail)
        elif each.phase.active and not each.request.preset and (before is None or not before.active):
            word = "started" if before is None else "resumed"
            self._store.say(f"{title}: download {word}", kind=EventKind.FETCH, subject=title)

    async def get(self, name: str) -> Download:
        """One by its id, or by its repository where there is one such. Raises UsageError."""
        found = await self.refresh()
        fits = [each for each in found if each.id == name] or [
            each for each in found if each.request.title == name or each.id.startswith(name)
        ]
        if len(fits) == 1:
            return fits[0]
        words = "Several downloads match" if fits else "No download named"
        raise UsageError(f"{words} {hub_errors.shown(name)}.", "List them: spark-tui models downloads")

    async def watch(self, ids: Sequence[str]) -> AsyncGenerator[tuple[Download, ...], None]:
        """These downloads twice a second, until none of them runs; the last look says how they ended. Closing it leaves
        them alone. Raises UsageError for an id that is not known."""
        while True:
            known = {each.id: each for each in await self.refresh()}
            found = tuple([known[id_] if id_ in known else await self.get(id_) for id_ in ids])
            yield found
            if not any(each.phase.active for each in found):
                return
            await self._clock.sleep(BUSY_SECONDS)

    async def run(self, *, resume: bool = False) -> None:
        """Keeps the World's downloads up to date until cancelled. `resume`: first resumes what a restart of the
        machine has ended."""
        while True:
            busy = False
            try:
                if resume:
                    resume = False
                    await self.resume_interrupted()
                busy = any(each.phase.active for each in await self.refresh())
            except SparkError as error:
                self._store.put(DOWNLOADS, aged(self._store.world[DOWNLOADS], error.summary))
            await self._clock.sleep(BUSY_SECONDS if busy else IDLE_SECONDS)

    async def resume_interrupted(self) -> tuple[str, ...]:
        """Resumes what a restart of the machine ended; once, when the program starts. Returns the ids."""
        found = [each for each in await self.refresh() if each.phase is DownloadPhase.INTERRUPTED]
        resumed = []
        for each in found:
            try:
                resumed.append(await self.start(each.request))
            except SparkError as error:
                self._store.say(f"{each.request.title}: {error.summary}", Severity.ERROR, error.remedy)
        return tuple(resumed)


# --- where they go ----------------------------------------------------------------------------------------


async def undecided_store(context: Context) -> OtherCache | None:
    """An older cache of this person that downloads could go to, as long as it was never said where they go and the
    store, the default, holds no models. None else. Raises RefusedError once the setting names another store than this
    program works with."""
    config, running = config_of(context), context.settings
    if config is None or running.origin("store").source is not SettingSource.DEFAULT:
        return None
    saved = config.current()
    if saved.origin("store").source is not SettingSource.DEFAULT:
        if saved.store != running.store:
            raise RefusedError(f"Downloads go to {saved.store} from the next start on.", "Quit, and start spark-tui.")
        return None
    contents = await context[ModelStore].scan()
    return next((each for each in contents.others if each.folder and not contents.models), None)


async def keep_store(context: Context, folder: str) -> str:
    """Writes where downloads go into the person's settings, empty: to where they go now. Returns the folder. Raises
    SettingsError."""
    config, folder = config_of(context), folder or str(context.settings.store)
    if config is not None:
        config.change("store", folder)
    return folder


def choose_store(
    session: Session, look: Callable[[Context], Coroutine[Any, Any, OtherCache | None]] = undecided_store
) -> bool:
    """Asks on a terminal where downloads go, if `look` finds that open, and keeps the answer. Whether the store is
    another one from now on."""
    older = session.run(look, changes=True) if at_terminal(session) else None
    if older is None:
        return False
    session.err.say(older.sentence)
    moves = confirm(session, "Download there instead of to ~/vllm?", yes=False)
    folder = session.run(lambda context: keep_store(context, older.folder if moves else ""))
    session.err.say(f"Saved: store = {clean_line(folder)}", "dim")
    session.reopen()
    return moves


def combined(downloads: Iterable[Download]) -> tuple[int, int | None, float | None]:
    """Bytes downloaded, bytes in all (None: not all known) and bytes per second of several downloads, for one line."""
    found = list(downloads)
    speeds = [each.speed for each in found if each.speed is not None]
    total = sum_known(each.total for each in found)
    return sum(each.done for each in found), total, sum(speeds) if speeds else None
