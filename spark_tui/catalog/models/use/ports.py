"""What is asked of the disk and of the Hub for models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Protocol

from spark_tui.base.ports import port_named

if TYPE_CHECKING:
    from spark_tui.base.checkpoint import CheckpointFacts
    from spark_tui.base.finding import Reading
    from spark_tui.base.secret import Secret
    from spark_tui.catalog.models.model.download import Download, DownloadRequest, Limits, LocalFiles
    from spark_tui.catalog.models.model.hub import RepoFacts, RepoFile, SearchHit, SearchQuery
    from spark_tui.catalog.models.model.store import (
        Deleted,
        DeleteExtent,
        DeletePlan,
        MovePlan,
        MoveProgress,
        StoreContents,
        StoredFile,
        StoredModel,
        VerifyProgress,
    )


@port_named("models")
class ModelStore(Protocol):
    """Checkpoints on the disk. All work is done in threads of its own: nothing blocks the event loop.

    Models are named as `StoredModel.id` has them, revisions by commit, branch or tag; empty is the current one.
    Every method raises UsageError for a name that is not there.
    """

    async def scan(self, *, others: bool = True) -> StoreContents:
        """What is in the store now. Models that have not changed since the last scan are not looked into again.

        With `others`, other tools' caches on this machine too. Never raises: what cannot be read is a finding.
        """

    def elsewhere(self, repo: str, revision: str) -> StoredModel | None:
        """A model of the Hub as another cache of this person has it, with that revision complete; None where the store
        has it so itself, and where no cache has. At once, as a rule: it looks at one repository's files."""

    async def files(self, model: str, revision: str = "", *, anywhere: bool = False) -> tuple[StoredFile, ...]:
        """Every file of a revision, in name order, with what is known of its content. `anywhere`: of another cache of
        this person where that has it complete and the store has not; the current one is then what `main` leads to."""

    def verify(self, model: str, revision: str = "") -> AsyncGenerator[VerifyProgress, None]:
        """Compares each file with what the Hub says of it; the last progress is over. Closing it ends the reading."""

    async def plan_delete(self, model: str, extent: DeleteExtent, revision: str = "") -> DeletePlan:
        """What a deletion would take and give back. Touches nothing."""

    async def delete(self, plan: DeletePlan) -> Deleted:
        """Does it. Raises RefusedError when the plan has obstacles, SparkError with the reason and the remedy when
        something could not be removed. Never removes anything outside the store's root."""

    async def plan_move(self, model: str, folder: str = "") -> MovePlan:
        """What a move of a Hub model into the cache of `folder` would do, empty: the store's. Touches nothing.

        Raises UsageError for a model that is in no other cache and for a folder that is no root, RefusedError for what
        cannot be moved: a partial model, one being downloaded, folders of another user, a full disk."""

    def move(self, plan: MovePlan) -> AsyncGenerator[MoveProgress, None]:
        """Does it; the last progress is over. Closing it ends it: another move continues there. Raises SparkError."""

    async def close(self) -> None: ...


@port_named("hub")
class HubClient(Protocol):
    """The Hub, asked. An answer takes a second as a rule, and at most some ten: then it is HubOffline."""

    async def search(self, query: SearchQuery, token: Secret | None = None) -> tuple[SearchHit, ...]:
        """What fits the query, best first."""

    async def repo(self, repo: str, revision: str = "main", token: Secret | None = None) -> RepoFacts:
        """One revision: facts of its card, and all its files with sizes. A gated repository can be looked at."""

    async def access(self, repo: str, token: Secret | None = None) -> None:
        """Returns when this token may fetch the repository's files; raises HubGated, HubTokenRejected, ..."""

    async def inspect(self, facts: RepoFacts, token: Secret | None = None) -> Reading[CheckpointFacts]:
        """What a checkpoint's config, index and tensor headers say of it, without fetching a tensor.

        Missing: it has no config, or none that can be understood. What else is wrong is a finding.
        """

    async def close(self) -> None: ...


@port_named("downloader")
class Downloader(Protocol):
    """Downloads, each in a process of its own that outlives this program. Nothing waits for a download. A method that
    takes an id raises UsageError for one that is not known."""

    async def here(self, request: DownloadRequest, commit: str, files: Sequence[RepoFile]) -> LocalFiles:
        """What of these files is in the store already."""

    async def start(self, request: DownloadRequest, token: Secret | None = None) -> str:
        """Starts or resumes a download and returns its id. A running one is left alone."""

    async def all(self) -> tuple[Download, ...]:
        """Every download that is known, oldest first: running, waiting, stopped, done."""

    async def pause(self, id_: str) -> None:
        """Ends its process at once; what has arrived stays."""

    async def cancel(self, id_: str, *, discard: bool = False) -> int:
        """Ends its process at once and forgets the download; with `discard` the parts of files that are not whole are
        deleted. Returns the bytes that this freed."""

    async def limits(self) -> Limits: ...

    async def set_limits(self, limits: Limits) -> None:
        """Takes effect within a second, for what runs too."""

    async def close(self) -> None: ...
