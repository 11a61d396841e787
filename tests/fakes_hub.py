"""Fakes of the Hub and of downloads: cards in a dictionary, downloads that move when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from spark_tui.base.checkpoint import CheckpointFacts
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.finding import Missing, Reading
from spark_tui.base.secret import Secret
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.download import (
    Download,
    DownloadFailure,
    DownloadPhase,
    DownloadRequest,
    FileProgress,
    FileState,
    Limits,
    LocalFiles,
)
from spark_tui.catalog.models.model.hub import RepoFacts, RepoFile, SearchHit, SearchQuery, ranked

COMMIT = "c" * 40


def card(repo: str, *files: tuple[str, int], **values: object) -> RepoFacts:
    """A repository with files of those sizes."""
    held = tuple(RepoFile(path, size, "b" * 40) for path, size in sorted(files))
    return RepoFacts(repo, commit=COMMIT, files=held, page=f"https://hub/{repo}", **values)  # type: ignore[arg-type]


@dataclass
class FakeHub:
    """A HubClient. `refused` are errors of `access` by repository; `tokens` what was sent."""

    cards: dict[str, RepoFacts] = field(default_factory=dict)
    hits: tuple[SearchHit, ...] = ()
    refused: dict[str, SparkError] = field(default_factory=dict)
    broken: SparkError | None = None
    queries: list[SearchQuery] = field(default_factory=list)
    answers: asyncio.Event | None = None
    """A search is answered once it is set; None: at once."""
    tokens: list[Secret | None] = field(default_factory=list)
    facts: Reading[CheckpointFacts] = field(default_factory=lambda: Missing("it has no config.json"))

    def add(self, facts: RepoFacts) -> RepoFacts:
        """Puts a repository on it."""
        self.cards[facts.repo] = facts
        return facts

    def _ask(self, token: Secret | None) -> None:
        self.tokens.append(token)
        if self.broken is not None:
            raise self.broken

    async def search(self, query: SearchQuery, token: Secret | None = None) -> tuple[SearchHit, ...]:
        self._ask(token)
        self.queries.append(query)
        if self.answers is not None:
            await self.answers.wait()
        return ranked(self.hits, query)

    async def repo(self, repo: str, revision: str = "main", token: Secret | None = None) -> RepoFacts:
        self._ask(token)
        if repo not in self.cards:
            raise hub_errors.repo_missing(repo, known=token is not None)
        return replace(self.cards[repo], revision=revision)

    async def access(self, repo: str, token: Secret | None = None) -> None:
        self._ask(token)
        if repo in self.refused:
            raise self.refused[repo]

    async def inspect(self, facts: RepoFacts, token: Secret | None = None) -> Reading[CheckpointFacts]:
        self._ask(token)
        return self.facts

    async def close(self) -> None:
        return


@dataclass
class FakeDownloader:
    """A Downloader. A started download runs until `finish`, `fail` or `interrupt`; with `at_once` it is done by the
    second look."""

    held: dict[str, int] = field(default_factory=dict)
    named: bool = False
    at_once: bool = False
    known: dict[str, Download] = field(default_factory=dict)
    started: list[DownloadRequest] = field(default_factory=list)
    tokens: list[Secret | None] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)
    limit: Limits = field(default_factory=Limits)
    broken: SparkError | None = None
    looks: int = 0

    async def here(self, request: DownloadRequest, commit: str, files: Sequence[RepoFile]) -> LocalFiles:
        return LocalFiles({file.path: self.held.get(file.path, 0) for file in files}, self.named)

    async def start(self, request: DownloadRequest, token: Secret | None = None) -> str:
        self.started.append(request)
        self.tokens.append(token)
        files = (FileProgress("model.safetensors", 1000, 250, FileState.RUNNING),)
        old = self.known.get(request.id)
        if old is None or not old.phase.active:
            self.known[request.id] = Download(
                DownloadPhase.DOWNLOADING,
                files,
                COMMIT,
                id=request.id,
                request=request,
                speed=250.0,
                created=len(self.known) + 1.0,
            )
        return request.id

    async def all(self) -> tuple[Download, ...]:
        if self.broken is not None:
            raise self.broken
        self.looks += 1
        if self.at_once and self.looks > 2:
            for id_, each in tuple(self.known.items()):
                if each.phase.active:
                    self.finish(id_)
        return tuple(self.known.values())

    async def pause(self, id_: str) -> None:
        self._get(id_)
        self.known[id_] = replace(self.known[id_], phase=DownloadPhase.PAUSED, speed=None)

    async def cancel(self, id_: str, *, discard: bool = False) -> int:
        self._get(id_)
        del self.known[id_]
        if discard:
            self.discarded.append(id_)
        return 250 if discard else 0

    async def limits(self) -> Limits:
        return self.limit

    async def set_limits(self, limits: Limits) -> None:
        self.limit = limits

    async def close(self) -> None:
        return

    def _get(self, id_: str) -> Download:
        if id_ not in self.known:
            raise UsageError(f"There is no download {id_}.", "Look.")
        return self.known[id_]

    def finish(self, id_: str) -> None:
        """All of it is there."""
        files = tuple(replace(file, done=file.size or 0, state=FileState.DONE) for file in self.known[id_].files)
        self.known[id_] = replace(self.known[id_], phase=DownloadPhase.DONE, files=files, speed=None)

    def fail(self, id_: str, error: SparkError) -> None:
        """It cannot go on."""
        failure = DownloadFailure(error.id, error.summary, error.remedy, error.detail)
        self.known[id_] = replace(self.known[id_], phase=DownloadPhase.FAILED, failure=failure, speed=None)

    def interrupt(self, id_: str) -> None:
        """The machine was restarted."""
        self.known[id_] = replace(self.known[id_], phase=DownloadPhase.INTERRUPTED, speed=None)
