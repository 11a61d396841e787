"""Downloading models: dry runs, the queue, resuming, and what a launch needs. Nothing blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.actions import by_front_end
from spark_tui.base.checkpoint import CheckpointFacts
from spark_tui.base.context import Context
from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.base.finding import EventKind, Ok, Reading, Severity, aged, value_of
from spark_tui.base.ports import Clock, HostProbe, SecretStore
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.base.secret import Secret
from spark_tui.base.store import Store
from spark_tui.base.text import clean_line
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import (
    Download,
    DownloadPhase,
    DownloadPlan,
    DownloadRequest,
    Limits,
    PlannedFile,
    room_refusal,
)
from spark_tui.catalog.models.model.hub import Gating, RepoFacts, SearchHit, SearchQuery, select, sum_known
from spark_tui.catalog.models.model.inspection import SPARK_MEMORY
from spark_tui.catalog.models.model.store import Completeness, Layout
from spark_tui.catalog.models.use.ports import Downloader, HubClient, ModelStore
from spark_tui.catalog.presets.model.fetching import downloads_of, reads_store
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import RequiredFile
from spark_tui.catalog.presets.use.preflight import Preflight

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

    async def limits(self) -> Limits:
        """The cap, and how many run at once."""
        return await self._downloader.limits()

    async def set_limits(self, limits: Limits) -> None:
        """For all downloads, those that run too. Raises SparkError."""
        await self._downloader.set_limits(limits)

    # --- following ----------------------------------------------------------------------------------------

    async def refresh(self) -> tuple[Download, ...]:
        """Reads all downloads into the World and returns them, oldest first. Raises SparkError."""
        known = value_of(self._store.world.downloads)
        before = {each.id: each.phase for each in known or ()}
        found = await self._downloader.all()
        self._store.update(downloads=Ok(found, self._clock.now()))
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
                self._store.update(downloads=aged(self._store.world.downloads, error.summary))
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


def combined(downloads: Iterable[Download]) -> tuple[int, int | None, float | None]:
    """Bytes downloaded, bytes in all (None: not all known) and bytes per second of several downloads, for one line."""
    found = list(downloads)
    speeds = [each.speed for each in found if each.speed is not None]
    total = sum_known(each.total for each in found)
    return sum(each.done for each in found), total, sum(speeds) if speeds else None


Detail = Callable[[str, float | None], None]
"""Takes how far it is: in words, and as a fraction (None: not known)."""

_RESUMES: Final = 3
"""How often a download whose process died is resumed by itself."""


class MissingFiles(Struct, frozen=True):
    """What a launch has to fetch first: dry runs of what is not downloaded. `here`: it needs something, and all of it
    is downloaded. Sizes in bytes, None where they are unknown."""

    plans: tuple[DownloadPlan, ...] = ()
    here: bool = False

    @property
    def left(self) -> int | None:
        return sum_known(plan.left for plan in self.plans)

    @property
    def free(self) -> int | None:
        return next((free for plan in self.plans if (free := value_of(plan.free)) is not None), None)

    @property
    def refusal(self) -> SparkError | None:
        """Why it cannot be fetched now: terms to accept, no room."""
        return next((plan.refusal for plan in self.plans if plan.refusal is not None), None)

    @property
    def titles(self) -> str:
        """`acme/tiny, acme/drafter`."""
        return ", ".join(dict.fromkeys(clean_line(plan.request.title) for plan in self.plans))

    @property
    def words(self) -> str:
        """`acme/tiny, acme/drafter: 18.4 GiB to fetch, 412 GiB free`; empty when nothing is to be fetched."""
        if not self.plans:
            return ""
        size = "unknown size" if self.left is None else f"{human_bytes(self.left)} to download"
        return f"{self.titles}: {size}" + ("" if self.free is None else f", {human_bytes(self.free)} free")


class LaunchDownloads:
    """Finds what is missing for a launch, and fetches it. `has_file`: whether a required file is in the store."""

    def __init__(
        self, downloads: Downloads, models: ModelStore, has_file: Callable[[RequiredFile], bool], clock: Clock,
        folder: str,
    ) -> None:  # fmt: skip
        self._downloads = downloads
        self._models = models
        self._has_file = has_file
        self._clock = clock
        self._folder = folder
        self._let_go = False

    def let_go(self) -> None:
        """Downloads continue when a launch that waits for them ends: this program is being closed."""
        self._let_go = True

    async def look(self, plan: LaunchPlan) -> MissingFiles:
        """What is missing. The Hub is asked only when something is.

        Raises the Hub's errors when it cannot list the files to download; what would stop the fetching itself
        is the answer's `refusal`.
        """
        missing = await self.missing(plan)
        try:
            found = [await self._downloads.plan(request) for request in missing]
        except SparkError as error:
            way = by_front_end("^f in the launch form", "--no-fetch")
            error.remedy = f"{error.remedy} Or let the engine download it ({way}).".strip()
            raise
        # Which of a repository's GGUF files is meant, the engine's own command says.
        plans = tuple(each for each in found if not each.whole and not each.choices)
        return MissingFiles(plans, here=bool(requests_of(plan)) and all(each.whole for each in found))

    async def missing(self, plan: LaunchPlan) -> tuple[DownloadRequest, ...]:
        """What of it is not in the store, by the store alone."""
        requests = requests_of(plan)
        if not requests:
            return ()
        there = {file.target for file in plan.preset.facts.required_files if self._has_file(file)}
        contents = await self._models.scan(others=False)

        def here(request: DownloadRequest) -> bool:
            """Whether an engine that asks for this model finds all of it in the store's Hub cache."""
            if request.target:
                return request.target in there
            model = contents.find(request.repo)
            revision = model.revision(request.revision) if model is not None and model.layout is Layout.CACHE else None
            return revision is not None and revision.completeness is Completeness.COMPLETE

        return tuple(each for each in requests if not here(each))

    async def fetch(self, wanted: MissingFiles, detail: Detail) -> str:
        """Fetches all of it, and returns what was fetched in words. Cancelled, it pauses what runs; what has arrived is
        kept. Raises the error of a download that fails, and DiskFull when all of it does not fit."""
        refusal = wanted.refusal or room_refusal(wanted.plans, self._folder)
        if refusal is not None:
            raise refusal
        requests = {each.request.id: each.request for each in wanted.plans}
        detail(wanted.words, None)
        try:
            for request in requests.values():
                await self._downloads.start(request)
            await self._follow(requests, detail)
        except asyncio.CancelledError:
            running = () if self._let_go else await self._downloads.refresh()
            for each in running:
                if each.id in requests and each.phase.active:
                    await self._downloads.pause(each.id)
            raise
        return f"downloaded {wanted.titles}" + ("" if wanted.left is None else f", {human_bytes(wanted.left)}")

    async def _follow(self, requests: dict[str, DownloadRequest], detail: Detail) -> None:
        resumes = dict.fromkeys(requests, 0)
        while True:
            known = {each.id: each for each in await self._downloads.refresh()}
            for id_, request in requests.items():
                each = known.get(id_)
                if each is None:
                    words = f"The download of {request.title} was cancelled, so the launch stopped."
                    raise RefusedError(words, "Launch it again.")
                if each.failure is not None and each.phase is DownloadPhase.FAILED:
                    raise each.failure.error
                if each.phase is DownloadPhase.INTERRUPTED and resumes[id_] < _RESUMES:
                    resumes[id_] += 1
                    await self._downloads.start(request)
            found = [known[id_] for id_ in requests]
            if all(each.phase is DownloadPhase.DONE for each in found):
                return
            detail(*_progress(found))
            await self._clock.sleep(BUSY_SECONDS)


def requests_of(plan: LaunchPlan) -> tuple[DownloadRequest, ...]:
    """Files of the store by path always; Hub models where the engine looks for them in the store."""
    return tuple(each for each in downloads_of(plan) if each.target or reads_store(plan))


def _progress(found: Sequence[Download]) -> tuple[str, float | None]:
    """`7.6 GiB of 18.4 GiB, 112 MiB/s, 1m36s left`, and the fraction."""
    done, total, speed = combined(found)
    parts = [f"{human_bytes(done)} of {human_bytes(total)}" if total else human_bytes(done)]
    held = [each for each in found if each.phase is not DownloadPhase.DONE]
    stopped = [each for each in held if each.phase.resumable]
    if stopped:
        parts.append(f"{clean_line(stopped[0].request.title)} is {stopped[0].phase}: resume it in Models")
    waiting = next((each.waiting for each in held if each.waiting), "")
    if waiting:
        parts.append(waiting)
    if speed:
        parts.append(f"{human_bytes(speed)}/s")
        if total and total > done:
            parts.append(f"{human_duration((total - done) / speed)} left")
    return ", ".join(parts), done / total if total else None


def launch_downloads(context: Context) -> LaunchDownloads | None:
    """None without a Hub."""
    if not context.ports.has("hub"):
        return None
    downloads, preflight = context[Downloads], context[Preflight]
    return LaunchDownloads(downloads, context[ModelStore], preflight.has_file, context.clock, context.paths.store)
