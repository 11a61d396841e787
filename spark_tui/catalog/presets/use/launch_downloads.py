"""What a launch has to fetch first: found, and fetched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from spark_tui.base.actions import by_front_end
from spark_tui.base.context import Context
from spark_tui.base.engine.container import repository_in
from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.finding import value_of
from spark_tui.base.ports import Clock
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.base.text import clean_line
from spark_tui.catalog.models.model.download import Download, DownloadPhase, DownloadPlan, DownloadRequest, room_refusal
from spark_tui.catalog.models.model.hub import HubSwitchedOff, sum_known
from spark_tui.catalog.models.model.store import Completeness, Layout
from spark_tui.catalog.models.use.downloads import BUSY_SECONDS, Downloads, combined
from spark_tui.catalog.models.use.ports import ModelStore
from spark_tui.catalog.presets.model.fetching import downloads_of, reads_store
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import RequiredFile
from spark_tui.catalog.presets.use.preflight import Preflight

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


class LaunchDownloads(Struct, eq=False):
    """Finds what is missing for a launch, and fetches it. `has_file`: whether a required file is in the store."""

    _downloads: Downloads
    _models: ModelStore
    _has_file: Callable[[RequiredFile], bool]
    _clock: Clock
    _folder: str
    _let_go: bool = False

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
            if not isinstance(error, HubSwitchedOff):  # the person wants no download at all
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
        elsewhere = {repository_in(mount.target) for mount in plan.repositories if mount.read_only}

        def here(request: DownloadRequest) -> bool:
            """Whether an engine that asks for this model finds all of it in the store's Hub cache."""
            if request.target:
                return request.target in there
            if request.repo in elsewhere:
                return True
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
