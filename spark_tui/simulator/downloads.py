"""Simulated downloads of what is on the simulated Hub: they move by the clock, and nothing is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from spark_tui.base.errors import UsageError
from spark_tui.base.ports import Clock
from spark_tui.base.secret import Secret
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import (
    Download,
    DownloadPhase,
    DownloadRequest,
    FileProgress,
    FileState,
    Limits,
    LocalFiles,
)
from spark_tui.catalog.models.model.hub import RepoFile, select
from spark_tui.simulator.models import COMMIT, DemoModels
from spark_tui.simulator.shelf import files_on

RATE: Final = 118_000_000.0
"""Bytes a second of a 1 Gbit line."""
PAUSED_AT_START: Final = DownloadRequest("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4")
"""It is what the store has in part."""
_HERE_AT_START: Final = 0.817


class _Fetch(Struct):
    request: DownloadRequest
    phase: DownloadPhase
    files: tuple[RepoFile, ...]
    commit: str
    created: float
    done: float = 0.0
    ended: float | None = None
    left_out: int = 0

    @property
    def total(self) -> int:
        return sum(file.size or 0 for file in self.files)


class DemoDownloads:
    """The Downloader port."""

    def __init__(self, clock: Clock, models: DemoModels) -> None:
        self._clock = clock
        self._models = models
        self._limits = Limits()
        paused = self._fetch(PAUSED_AT_START)
        paused.phase, paused.done = DownloadPhase.PAUSED, paused.total * _HERE_AT_START
        self._known = {PAUSED_AT_START.id: paused}
        self._seen_at = clock.monotonic()

    async def here(self, request: DownloadRequest, commit: str, files: Sequence[RepoFile]) -> LocalFiles:
        stored = self._models.sizes(request.repo)
        whole = all(file.path in stored for file in files if file.path.endswith(".safetensors"))
        sizes = {file.path: file.size or 0 for file in files if whole or file.path in stored}
        return LocalFiles(sizes, whole)

    async def start(self, request: DownloadRequest, token: Secret | None = None) -> str:
        known = self._known.get(request.id)
        if known is None or known.phase is DownloadPhase.DONE:
            known = self._known[request.id] = self._fetch(request)
        elif known.phase.active:
            return request.id
        known.phase = DownloadPhase.QUEUED
        self._move()
        return request.id

    async def all(self) -> tuple[Download, ...]:
        self._move()
        running = [each for each in self._known.values() if each.phase is DownloadPhase.DOWNLOADING]
        speed = self._rate() / len(running) if running else None
        return tuple(self._download(id_, each, speed) for id_, each in self._known.items())

    @property
    def rate(self) -> float:
        """Bytes per second of all that downloads now."""
        return self._rate() if any(each.phase is DownloadPhase.DOWNLOADING for each in self._known.values()) else 0.0

    async def pause(self, id_: str) -> None:
        self._move()
        self._get(id_).phase = DownloadPhase.PAUSED

    async def cancel(self, id_: str, *, discard: bool = False) -> int:
        self._move()
        each = self._get(id_)
        del self._known[id_]
        whole = sum(file.size or 0 for file in each.files if self._of(each, file) == file.size)
        return int(each.done) - whole if discard and each.phase is not DownloadPhase.DONE else 0

    async def limits(self) -> Limits:
        return self._limits

    async def set_limits(self, limits: Limits) -> None:
        self._move()
        self._limits = limits

    async def close(self) -> None:
        pass

    # --- the clock ------------------------------------------------------------------------------------

    def _fetch(self, request: DownloadRequest) -> _Fetch:
        files = [RepoFile(path, file.size) for path, file in files_on(request.repo).items()]
        if not files:
            raise hub_errors.repo_missing(request.repo, known=False)
        chosen = select(files, only=request.files, everything=request.everything)
        return _Fetch(
            request, DownloadPhase.QUEUED, chosen.files, COMMIT, self._clock.now(), left_out=len(chosen.left_out)
        )

    def _rate(self) -> float:
        return min(RATE, self._limits.bytes_per_second or RATE)

    def _move(self) -> None:
        """Carries all forward to now, and starts those whose turn it is; one that ends in between hands its share on
        with the next look."""
        now = self._clock.monotonic()
        running = [each for each in self._known.values() if each.phase is DownloadPhase.DOWNLOADING]
        for each in running:
            each.done = min(float(each.total), each.done + (now - self._seen_at) * self._rate() / len(running))
            if each.done >= each.total:
                each.phase, each.ended = DownloadPhase.DONE, self._clock.now()
                self._models.fetched(each.request.repo, each.files)
        self._seen_at = now
        free = self._limits.at_once - sum(each.phase is DownloadPhase.DOWNLOADING for each in running)
        for each in [each for each in self._known.values() if each.phase is DownloadPhase.QUEUED][: max(0, free)]:
            each.phase = DownloadPhase.DOWNLOADING

    def _download(self, id_: str, each: _Fetch, speed: float | None) -> Download:
        return Download(
            each.phase,
            tuple(self._file(each, file) for file in each.files),
            each.commit,
            id=id_,
            request=each.request,
            speed=speed if each.phase is DownloadPhase.DOWNLOADING else None,
            limit=self._limits.bytes_per_second,
            created=each.created,
            ended=each.ended,
            left_out=each.left_out,
        )

    def _file(self, each: _Fetch, file: RepoFile) -> FileProgress:
        here = self._of(each, file)
        state = FileState.DONE if here == file.size else FileState.RUNNING if here else FileState.WAITING
        return FileProgress(file.path, file.size, here, state)

    def _of(self, each: _Fetch, file: RepoFile) -> int:
        """How much of one file is here: they arrive one after the other."""
        before = sum(other.size or 0 for other in each.files[: each.files.index(file)])
        return max(0, min(file.size or 0, int(each.done) - before))

    def _get(self, id_: str) -> _Fetch:
        if id_ not in self._known:
            raise UsageError(f"There is no download {id_}.", "See which there are: spark-tui models downloads")
        return self._known[id_]
