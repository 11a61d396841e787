"""Fetching models: what it will take, the queue, and going on after an interruption. Nothing here blocks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from spark_tui.core.store import Store
from spark_tui.domain.errors import RefusedError, SparkError, UsageError
from spark_tui.domain.event import Severity
from spark_tui.domain.models import hub_errors
from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.models.download import (
    Download,
    DownloadPhase,
    DownloadPlan,
    DownloadRequest,
    Here,
    Limits,
    PlannedFile,
)
from spark_tui.domain.models.hub import Gating, RepoFacts, SearchHit, SearchQuery
from spark_tui.domain.models.hub_files import select
from spark_tui.domain.quantities import human_bytes
from spark_tui.domain.reading import Ok, Reading, aged, value_of
from spark_tui.domain.secret import Secret
from spark_tui.services.ports import Clock, HostProbe, SecretStore
from spark_tui.services.ports_hub import Downloader, HubClient

BUSY_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 3.0


class Hub:
    """The Hub with the person's token: search, cards, and what is in a checkpoint that is not here."""

    def __init__(self, client: HubClient, secrets: SecretStore) -> None:
        self._client = client
        self._secrets = secrets

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """What fits, in the query's order. Raises the errors of `domain.models.hub_errors`."""
        return await self._client.search(query, self.token())

    async def repo(self, repo: str, revision: str = "main") -> RepoFacts:
        """One revision, with all its files. Raises HubRepoMissing, HubRevisionMissing, HubOffline, ..."""
        return await self._client.repo(repo, revision, self.token())

    async def access(self, repo: str) -> None:
        """Returns when its files may be fetched; raises HubGated (with the page to accept on), HubTokenRejected."""
        await self._client.access(repo, self.token())

    async def inspect(self, facts: RepoFacts) -> Reading[CheckpointFacts]:
        """The checkpoint by its own files, of which only configs and headers are read. Raises like `repo`."""
        return await self._client.inspect(facts, self.token())

    def token(self) -> Secret | None:
        """The Hugging Face token of the environment or of its files."""
        return self._secrets.hf_token()


class Downloads:
    """Plans, starts and follows downloads. They go on when this program ends."""

    def __init__(
        self, hub: Hub, downloader: Downloader, host: HostProbe, store: Store, clock: Clock, folder: Path
    ) -> None:
        self._hub = hub
        self._downloader = downloader
        self._host = host
        self._store = store
        self._clock = clock
        self._folder = folder

    # --- before -------------------------------------------------------------------------------------------

    async def plan(self, request: DownloadRequest) -> DownloadPlan:
        """A dry run. Raises the Hub's errors when it cannot even be looked at; what would stop the download itself
        (terms to accept, no room, a choice to make) is the plan's `refusal`."""
        free = self._host.free_disk(self._folder)
        if request.url:
            return DownloadPlan(request, None, (PlannedFile(request.target, None),), free=free)
        facts = await self._hub.repo(request.repo, request.revision)
        chosen = select(facts.files, only=request.files, everything=request.everything, load_format=request.load_format)
        if chosen.missing:
            raise hub_errors.file_missing(request.repo, chosen.missing[0])
        if chosen.choices:
            names = [name for name, _ in chosen.choices]
            refusal = hub_errors.needs_choice(request.repo, names)
            return DownloadPlan(request, facts, choices=chosen.choices, free=free, refusal=refusal)
        if not chosen.files:
            raise hub_errors.nothing_to_load(request.repo)
        here = await self._downloader.here(request, facts.commit, chosen.files)
        sizes = {} if request.again else here.sizes
        files = tuple(PlannedFile(file.path, file.size, sizes.get(file.path, 0)) for file in chosen.files)
        found = DownloadPlan(request, facts, files, chosen.left_out, notes=chosen.notes, free=free, named=here.named)
        problem = None if found.whole else await self._refusal(found, facts)
        return found if problem is None else replace(found, refusal=problem)

    async def _refusal(self, plan: DownloadPlan, facts: RepoFacts) -> SparkError | None:
        if facts.gating is not Gating.OPEN or facts.private:
            try:
                await self._hub.access(facts.repo)
            except hub_errors.HubFailed as error:
                return error
        if plan.short:
            return hub_errors.no_room(str(self._folder), plan.left or 0, value_of(plan.free) or 0)
        return None

    # --- running ------------------------------------------------------------------------------------------

    async def start(self, request: DownloadRequest) -> str:
        """Begins a download, or goes on with it; returns its id at once. One that runs is left alone."""
        id_ = await self._downloader.start(request, self._hub.token())
        await self.refresh()
        return id_

    async def resume(self, id_: str) -> str:
        """Goes on with a paused, interrupted or failed download. Raises UsageError for one that is not known."""
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

    async def limits(self) -> Limits:
        """The cap, and how many run at once."""
        return await self._downloader.limits()

    async def set_limits(self, limits: Limits) -> None:
        """For all downloads, those that run too. Raises SparkError."""
        await self._downloader.set_limits(limits)

    # --- looking ------------------------------------------------------------------------------------------

    async def refresh(self) -> tuple[Download, ...]:
        """Reads all downloads into the World and returns them, oldest first. Raises SparkError."""
        before = {each.id: each for each in value_of(self._store.world.downloads) or ()}
        found = await self._downloader.all()
        self._store.update(downloads=Ok(found, self._clock.now()))
        for each in found:
            old = before.get(each.id)
            if old is not None and old.phase is not each.phase:
                self._tell(each)
        return found

    async def get(self, name: str) -> Download:
        """One by its id, or by its repository where there is one such. Raises UsageError."""
        found = await self.refresh()
        fits = [each for each in found if each.id == name] or [
            each for each in found if each.request.title == name or each.id.startswith(name)
        ]
        if len(fits) == 1:
            return fits[0]
        words = "There are several downloads" if fits else "There is no download"
        raise UsageError(f"{words} {hub_errors.shown(name)}.", "See which there are: spark-tui models downloads")

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
        """Keeps the World's downloads up to date until cancelled. `resume`: first goes on with what a restart of the
        machine has ended."""
        while True:
            busy = False
            try:
                if resume:
                    resume = False
                    await self.resume_interrupted()
                busy = any(each.phase.active for each in await self.refresh())
            except SparkError as error:
                self._store.update(downloads=aged(self._store.world.downloads, error.summary))
            await self._clock.sleep(BUSY_SECONDS if busy else IDLE_SECONDS)

    async def resume_interrupted(self) -> tuple[str, ...]:
        """Goes on with what a restart of the machine ended; once, when the program starts. Returns the ids."""
        found = [each for each in await self.refresh() if each.phase is DownloadPhase.INTERRUPTED]
        resumed = []
        for each in found:
            try:
                resumed.append(await self.start(each.request))
            except SparkError as error:
                self._store.say(f"{each.request.title}: {error.summary}", Severity.ERROR, error.remedy)
        return tuple(resumed)

    # --- telling ------------------------------------------------------------------------------------------

    def _tell(self, download: Download) -> None:
        title = download.request.title
        if download.phase is DownloadPhase.DONE:
            self._store.say(f"{title}: fetched, {human_bytes(download.done)}")
        elif download.phase is DownloadPhase.FAILED and download.failure is not None:
            self._store.say(f"{title}: {download.failure.summary}", Severity.ERROR, download.failure.remedy)


def combined(downloads: Iterable[Download]) -> tuple[int, int | None, float | None]:
    """Bytes here, bytes in all (None: not all known) and bytes per second of several downloads, for one line."""
    found = list(downloads)
    totals = [each.total for each in found]
    speeds = [each.speed for each in found if each.speed is not None]
    total = None if None in totals else sum(size for size in totals if size is not None)
    return sum(each.done for each in found), total, sum(speeds) if speeds else None


class NoHub:
    """The HubClient of a world without one: a simulation."""

    async def search(self, query: SearchQuery, token: Secret | None = None) -> tuple[SearchHit, ...]:
        """There is none."""
        raise _no_hub()

    async def repo(self, repo: str, revision: str = "main", token: Secret | None = None) -> RepoFacts:
        """There is none."""
        raise _no_hub()

    async def access(self, repo: str, token: Secret | None = None) -> None:
        """There is none."""
        raise _no_hub()

    async def inspect(self, facts: RepoFacts, token: Secret | None = None) -> Reading[CheckpointFacts]:
        """There is none."""
        raise _no_hub()

    async def close(self) -> None:
        """Nothing to end."""


class NoDownloads:
    """The Downloader of a world without a store."""

    async def here(self, request: DownloadRequest, commit: str, files: object) -> Here:
        """Nothing is."""
        return Here({}, False)

    async def start(self, request: DownloadRequest, token: Secret | None = None) -> str:
        """There is nowhere to put it."""
        raise _no_hub()

    async def all(self) -> tuple[Download, ...]:
        """None."""
        return ()

    async def pause(self, id_: str) -> None:
        """None is known."""
        raise _no_hub()

    async def cancel(self, id_: str, *, discard: bool = False) -> int:
        """None is known."""
        raise _no_hub()

    async def limits(self) -> Limits:
        """The defaults."""
        return Limits()

    async def set_limits(self, limits: Limits) -> None:
        """There is nothing to limit."""
        raise _no_hub()

    async def close(self) -> None:
        """Nothing to end."""


def _no_hub() -> RefusedError:
    return RefusedError("The Hub is not asked here: this Spark is simulated.", "Leave out --demo.")
