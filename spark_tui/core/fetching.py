"""The model of a launch, its drafter and its plugin files, fetched before the container starts.

An engine fetches what is missing by itself, silently and without resuming. Here it is seen, paused and gone on with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_tui.core.downloads import BUSY_SECONDS, Downloads, combined
from spark_tui.domain.errors import RefusedError, SparkError
from spark_tui.domain.models.download import Download, DownloadPhase, DownloadPlan, DownloadRequest, room_refusal
from spark_tui.domain.models.store import Completeness, Layout, StoreContents
from spark_tui.domain.presets.fetching import downloads_of, reads_store
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import RequiredFile
from spark_tui.domain.quantities import human_bytes, human_duration
from spark_tui.domain.reading import value_of
from spark_tui.domain.text import clean_line
from spark_tui.services.ports import Clock
from spark_tui.services.ports_store import ModelStore

Detail = Callable[[str, float | None], None]
"""Takes how far it is: in words, and as a fraction (None: not known)."""

_WAY_AROUND: Final = "Or leave the model to the engine (--no-fetch; ^f in the launch form)."
_RESUMES: Final = 3
"""So often a download whose process died is gone on with by itself."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a launch has to fetch first: dry runs of what is not here. `here`: it needs something, and all of it
    is here. Sizes in bytes, None where they are not told."""

    plans: tuple[DownloadPlan, ...] = ()
    here: bool = False

    @property
    def left(self) -> int | None:
        """Bytes to come."""
        sizes = [plan.left for plan in self.plans]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def free(self) -> int | None:
        """Room on the store's disk."""
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
        size = "of unknown size" if self.left is None else f"{human_bytes(self.left)} to fetch"
        return f"{self.titles}: {size}" + ("" if self.free is None else f", {human_bytes(self.free)} free")


class Fetching:
    """Looks at what a launch lacks, and fetches it. `has_file` tells whether a required file is in the store."""

    def __init__(
        self,
        downloads: Downloads,
        models: ModelStore,
        has_file: Callable[[RequiredFile], bool],
        clock: Clock,
        folder: str,
    ) -> None:
        self._downloads = downloads
        self._models = models
        self._has_file = has_file
        self._clock = clock
        self._folder = folder
        self._let_go = False

    def let_go(self) -> None:
        """From now on downloads go on when a launch that waits for them ends: this program is being closed."""
        self._let_go = True

    async def look(self, plan: LaunchPlan) -> Wanted:
        """What is missing. The Hub is asked only when something is.

        Raises the Hub's errors when it cannot tell what would have to be fetched; what would stop the fetching itself
        is the answer's `refusal`.
        """
        missing = await self.missing(plan)
        try:
            found = [await self._downloads.plan(request) for request in missing]
        except SparkError as error:
            error.remedy = f"{error.remedy} {_WAY_AROUND}".strip()
            raise
        # Which of a repository's GGUF files is meant, the engine's own command says.
        plans = tuple(each for each in found if not each.whole and not each.choices)
        return Wanted(plans, here=bool(requests_of(plan)) and all(each.whole for each in found))

    async def missing(self, plan: LaunchPlan) -> tuple[DownloadRequest, ...]:
        """What of it is not in the store, by the store alone."""
        requests = requests_of(plan)
        if not requests:
            return ()
        there = {file.target for file in plan.preset.facts.required_files if self._has_file(file)}
        contents = await self._models.scan(others=False)
        return tuple(
            each for each in requests if not (each.target in there if each.target else _is_here(contents, each))
        )

    async def fetch(self, wanted: Wanted, detail: Detail) -> str:
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
            if not self._let_go:
                await self._pause(requests)
            raise
        return f"fetched {wanted.titles}" + ("" if wanted.left is None else f", {human_bytes(wanted.left)}")

    async def _follow(self, requests: dict[str, DownloadRequest], detail: Detail) -> None:
        resumes = dict.fromkeys(requests, 0)
        while True:
            known = {each.id: each for each in await self._downloads.refresh()}
            found = [_still_there(known.get(id_), request) for id_, request in requests.items()]
            for each in found:
                if each.failure is not None and each.phase is DownloadPhase.FAILED:
                    raise each.failure.error
                if each.phase is DownloadPhase.INTERRUPTED and resumes[each.id] < _RESUMES:
                    resumes[each.id] += 1
                    await self._downloads.start(each.request)
            if all(each.phase is DownloadPhase.DONE for each in found):
                return
            detail(*_progress(found))
            await self._clock.sleep(BUSY_SECONDS)

    async def _pause(self, requests: dict[str, DownloadRequest]) -> None:
        for each in await self._downloads.refresh():
            if each.id in requests and each.phase.active:
                await self._downloads.pause(each.id)


def requests_of(plan: LaunchPlan) -> tuple[DownloadRequest, ...]:
    """Files of the store by path always; Hub models where the engine looks for them in the store."""
    return tuple(each for each in downloads_of(plan) if each.target or reads_store(plan))


def _is_here(contents: StoreContents, request: DownloadRequest) -> bool:
    """Whether an engine that asks for this model finds all of it in the store's Hub cache."""
    model = contents.find(request.repo)
    if model is None or model.layout is not Layout.CACHE:
        return False
    revision = model.revision(request.revision)
    return revision is not None and revision.completeness is Completeness.COMPLETE


def _still_there(download: Download | None, request: DownloadRequest) -> Download:
    if download is None:
        raise RefusedError(
            f"The download of {request.title} was taken off the list, so the launch ends.", "Launch it again."
        )
    return download


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
