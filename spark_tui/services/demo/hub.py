"""A simulated Hub: a shelf of repositories, each with what a person meets there. Nothing is asked of the real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.domain.errors import UsageError
from spark_tui.domain.models import hub_errors
from spark_tui.domain.models.checkpoint import CheckpointFacts, WeightFormat
from spark_tui.domain.models.download import (
    Download,
    DownloadPhase,
    DownloadRequest,
    FileProgress,
    FileState,
    Limits,
    LocalFiles,
)
from spark_tui.domain.models.hub import (
    FormatBasis,
    Formats,
    Gating,
    RepoFacts,
    RepoFile,
    SearchHit,
    SearchQuery,
    ranked,
    select,
)
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.domain.secret import Secret
from spark_tui.services.demo.facts import FACTS, SHELF
from spark_tui.services.demo.models import DemoModels
from spark_tui.services.ports import Clock

GATED: Final = ("google/gemma-3-27b-it",)

ENDPOINT: Final = "https://hub.invalid"
COMMIT: Final = "4f2c1e7a9b3d5860c1f2e3d4a5b6978812345678"
_ANSWER_SECONDS: Final = 0.4
_DAY: Final = 86_400.0


class DemoHub:
    """The HubClient port."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now = clock.now()
        self._shelf: Mapping[str, RepoFacts] = {each[0]: _facts(now, *each) for each in SHELF}

    async def search(self, query: SearchQuery, token: Secret | None = None) -> tuple[SearchHit, ...]:
        await self._clock.sleep(_ANSWER_SECONDS)
        words = query.text.lower().split()
        found = (facts for facts in self._shelf.values() if all(word in facts.repo.lower() for word in words))
        return ranked(found, query)

    async def repo(self, repo: str, revision: str = "main", token: Secret | None = None) -> RepoFacts:
        await self._clock.sleep(_ANSWER_SECONDS)
        return replace(self.card(repo, known=token is not None), revision=revision)

    def card(self, repo: str, *, known: bool = False) -> RepoFacts:
        if repo not in self._shelf:
            raise hub_errors.repo_missing(repo, known=known)
        return self._shelf[repo]

    async def access(self, repo: str, token: Secret | None = None) -> None:
        if repo in GATED:
            raise hub_errors.gated(ENDPOINT, repo, known=False)

    async def inspect(self, facts: RepoFacts, token: Secret | None = None) -> Reading[CheckpointFacts]:
        await self._clock.sleep(_ANSWER_SECONDS)
        found = FACTS.get(facts.repo)
        if found is None:
            return Missing("the simulation knows its card only")
        return Ok(replace(found, weights=replace(found.weights, complete=True) if found.weights else None, findings=()))

    async def close(self) -> None:
        pass


def _facts(
    now: float, repo: str, gib: float, shards: int, form: WeightFormat, licence: str, thousands: int, days: int
) -> RepoFacts:
    size = int(gib * GIB)
    files = [RepoFile(f"model-{at:05d}-of-{shards:05d}.safetensors", size // shards) for at in range(1, shards + 1)]
    files += [RepoFile("config.json", 4_812), RepoFile("tokenizer.json", 12_807_982), RepoFile("README.md", 18_204)]
    if repo.startswith("openai/"):
        files += [RepoFile("original/model.safetensors", size), RepoFile("metal/model.bin", size)]
    packed = form is not WeightFormat.BF16
    return RepoFacts(
        repo, repo.partition("/")[0], Formats((form,), FormatBasis.CONFIG), size if packed else size // 2, size, size,
        Gating.AUTO if repo in GATED else Gating.OPEN, downloads=thousands * 1000, likes=thousands,
        modified=now - days * _DAY, task="text-generation", licence=licence, commit=COMMIT,
        files=tuple(sorted(files, key=lambda file: file.path)), page=f"{ENDPOINT}/{repo}", library="transformers",
    )  # fmt: skip


RATE: Final = 118_000_000.0
"""Bytes a second of a 1 Gbit line."""
PAUSED_AT_START: Final = DownloadRequest("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4")
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

    def __init__(self, clock: Clock, hub: DemoHub, models: DemoModels) -> None:
        self._clock = clock
        self._hub = hub
        self._models = models
        self._limits = Limits()
        self._known: dict[str, _Fetch] = {}
        self._seen_at = clock.monotonic()
        self._first = True

    async def here(self, request: DownloadRequest, commit: str, files: Sequence[RepoFile]) -> LocalFiles:
        stored = self._models.sizes(request.repo)
        whole = all(file.path in stored for file in files if file.path.endswith(".safetensors"))
        sizes = {file.path: file.size or 0 for file in files if whole or file.path in stored}
        return LocalFiles(sizes, whole)

    async def start(self, request: DownloadRequest, token: Secret | None = None) -> str:
        self._begin_first()
        known = self._known.get(request.id)
        if known is None or known.phase is DownloadPhase.DONE:
            known = self._known[request.id] = self._fetch(request)
        elif known.phase.active:
            return request.id
        self._move()
        known.phase = DownloadPhase.QUEUED
        self._turns()
        return request.id

    async def all(self) -> tuple[Download, ...]:
        self._begin_first()
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
        self._turns()

    async def cancel(self, id_: str, *, discard: bool = False) -> int:
        self._move()
        each = self._get(id_)
        del self._known[id_]
        self._turns()
        whole = sum(file.size or 0 for file in each.files if self._of(each, file) == file.size)
        return int(each.done) - whole if discard and each.phase is not DownloadPhase.DONE else 0

    async def limits(self) -> Limits:
        return self._limits

    async def set_limits(self, limits: Limits) -> None:
        self._move()
        self._limits = limits
        self._turns()

    async def close(self) -> None:
        pass

    # --- the clock ------------------------------------------------------------------------------------

    def _begin_first(self) -> None:
        """One stands there paused from the start: it is what the store has in part."""
        if self._first:
            self._first = False
            paused = self._fetch(PAUSED_AT_START)
            paused.phase, paused.done = DownloadPhase.PAUSED, paused.total * _HERE_AT_START
            self._known[PAUSED_AT_START.id] = paused

    def _fetch(self, request: DownloadRequest) -> _Fetch:
        facts = self._hub.card(request.repo)
        chosen = select(facts.files, only=request.files, everything=request.everything)
        return _Fetch(
            request, DownloadPhase.QUEUED, chosen.files, facts.commit, self._clock.now(),
            left_out=len(chosen.left_out),
        )  # fmt: skip

    def _rate(self) -> float:
        return min(RATE, self._limits.bytes_per_second or RATE)

    def _move(self) -> None:
        """Carries all forward to now; one that ends in between hands its share on with the next look."""
        now = self._clock.monotonic()
        running = [each for each in self._known.values() if each.phase is DownloadPhase.DOWNLOADING]
        for each in running:
            each.done = min(float(each.total), each.done + (now - self._seen_at) * self._rate() / len(running))
            if each.done >= each.total:
                each.phase, each.ended = DownloadPhase.DONE, self._clock.now()
                self._models.fetched(each.request.repo, each.files)
        self._seen_at = now
        self._turns()

    def _turns(self) -> None:
        running = sum(each.phase is DownloadPhase.DOWNLOADING for each in self._known.values())
        for each in self._known.values():
            if each.phase is DownloadPhase.QUEUED and running < self._limits.at_once:
                each.phase, running = DownloadPhase.DOWNLOADING, running + 1

    def _download(self, id_: str, each: _Fetch, speed: float | None) -> Download:
        runs = each.phase is DownloadPhase.DOWNLOADING
        files = tuple(self._file(each, file) for file in each.files)
        return Download(
            id_, each.request, each.phase, files, each.commit, speed=speed if runs else None,
            limit=self._limits.bytes_per_second, created=each.created, ended=each.ended, left_out=each.left_out,
        )  # fmt: skip

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
