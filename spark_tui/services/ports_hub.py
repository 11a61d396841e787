"""What the core needs of the Hub: to look, and to fetch. Raises the errors of `domain.models.hub_errors`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.models.download import Download, DownloadRequest, Here, Limits
from spark_tui.domain.models.hub import RepoFacts, RepoFile, SearchHit, SearchQuery
from spark_tui.domain.reading import Reading
from spark_tui.domain.secret import Secret


class HubClient(Protocol):
    """The Hub, asked. An answer takes a second as a rule, and at most some ten: then it is HubOffline."""

    async def search(self, query: SearchQuery, token: Secret | None = None) -> tuple[SearchHit, ...]:
        """What fits the query, best first; empty when nothing does."""

    async def repo(self, repo: str, revision: str = "main", token: Secret | None = None) -> RepoFacts:
        """One revision: facts of its card, and all its files with sizes.

        A gated repository can be looked at; `access` tells whether its files would come.
        """

    async def access(self, repo: str, token: Secret | None = None) -> None:
        """Returns when this token may fetch the repository's files; raises HubGated, HubTokenRejected, ..."""

    async def inspect(self, facts: RepoFacts, token: Secret | None = None) -> Reading[CheckpointFacts]:
        """What a checkpoint's config, index and tensor headers say of it, without fetching a tensor.

        Missing: it has no config, or none that can be understood. What else is wrong is a finding.
        """

    async def close(self) -> None:
        """Ends its threads."""


class Downloader(Protocol):
    """Downloads, each in a process of its own that outlives this program. Nothing here waits for a download."""

    async def here(self, request: DownloadRequest, commit: str, files: Sequence[RepoFile]) -> Here:
        """What of these files is in the store already."""

    async def start(self, request: DownloadRequest, token: Secret | None = None) -> str:
        """Begins a download, or goes on with it, and returns its id. One that runs is left alone."""

    async def all(self) -> tuple[Download, ...]:
        """Every download that is known, oldest first: running, waiting, stopped, done."""

    async def pause(self, id_: str) -> None:
        """Ends its process at once; what has arrived stays. Raises UsageError for an id that is not known."""

    async def cancel(self, id_: str, *, discard: bool = False) -> int:
        """Ends its process at once and forgets the download; with `discard` the parts of files that are not whole are
        deleted. Returns the bytes that this freed."""

    async def limits(self) -> Limits:
        """What holds now."""

    async def set_limits(self, limits: Limits) -> None:
        """Takes effect within a second, for what runs too."""

    async def close(self) -> None:
        """Ends this program's own threads; downloads go on."""
