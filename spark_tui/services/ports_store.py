"""What the core needs of the model store on the disk."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from spark_tui.domain.models.store import StoreContents, StoredFile
from spark_tui.domain.models.store_delete import Deleted, DeletePlan, Extent
from spark_tui.domain.models.store_verify import VerifyProgress


class ModelStore(Protocol):
    """Checkpoints on the disk. All work is done in threads of its own: nothing here blocks the event loop.

    Models are named as `StoredModel.id` has them, revisions by commit, branch or tag; empty is the current one.
    Every method raises UsageError for a name that is not there.
    """

    async def scan(self, *, others: bool = True) -> StoreContents:
        """What is in the store now. Models that have not changed since the last scan are not looked into again.

        With `others`, other tools' caches on this machine too. Never raises: what cannot be read is a finding.
        """

    async def files(self, model: str, revision: str = "") -> tuple[StoredFile, ...]:
        """Every file of a revision, in name order, with what is known of its content."""

    def verify(self, model: str, revision: str = "") -> AsyncGenerator[VerifyProgress, None]:
        """Compares each file with what the Hub says of it; the last progress is over. Closing it ends the reading."""

    async def plan_delete(self, model: str, extent: Extent, revision: str = "") -> DeletePlan:
        """What a deletion would take and give back. Touches nothing."""

    async def delete(self, plan: DeletePlan) -> Deleted:
        """Does it. Raises RefusedError when the plan has obstacles, SparkError with the reason and the remedy when
        something could not be removed. Never removes anything outside the store's root."""

    async def close(self) -> None:
        """Ends its threads."""
