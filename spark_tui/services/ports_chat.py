"""Where conversations are kept, as the core sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from spark_tui.domain.conversation import ChatThread, ConversationSummary, SearchHit


class ConversationStore(Protocol):
    """Conversations on disk. Every method raises SparkError with a remedy; what it does is done in order."""

    async def summaries(self) -> tuple[ConversationSummary, ...]:
        """All of them, the one that was changed last first. A file that cannot be read is left out, and counted in
        `unreadable`."""

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Sentences on files that the last `summaries` could not read."""

    async def read(self, conversation: str) -> ChatThread:
        """A whole conversation; raises UsageError when there is none of that id."""

    async def search(self, text: str, most: int = 50) -> tuple[SearchHit, ...]:
        """Exchanges whose question, answer or title holds `text`, whatever its case; newest conversations first."""

    async def new_id(self, at: float) -> str:
        """An id that no conversation has; `at` is epoch seconds."""

    async def claim(self, conversation: str) -> bool:
        """Makes this process the only one that writes in it; false when another one does. A dead process holds none."""

    async def release(self, conversation: str) -> None:
        """Ends the claim."""

    async def append(self, conversation: str, records: Sequence[Mapping[str, Any]], *, durable: bool = False) -> None:
        """Adds lines; on a failure none of them. `durable`: they are on the disk when this returns."""

    async def keep(self, conversation: str, data: bytes) -> str:
        """Keeps a picture or a sound beside it, and returns its name there."""

    async def delete(self, conversation: str) -> None:
        """Removes it with all its files; raises RefusedError while another program writes in it."""

    async def close(self) -> None:
        """Waits for what is on its way to the disk, and ends all claims."""


class PersonFiles(Protocol):
    """Files that a person names. `~` is their home; a relative path starts in the working directory."""

    async def read(self, path: str, most: int) -> bytes:
        """An import, a schema, tools, a picture. Raises UsageError when it cannot be read, RefusedError when it has
        more than `most` bytes."""

    async def write(self, path: str, text: str, *, replace: bool = False) -> str:
        """Writes an export, mode 0600, in one step, and returns its path. Raises RefusedError when there is a file and
        `replace` is false, SparkError when it cannot be written."""

    async def close(self) -> None:
        """Ends its thread."""
