"""The conversations that are kept: the list, and each of them opened, forked, renamed, imported and exported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from spark_tui.core.chat import Advise, Conversation, EngineMeter, Journal
from spark_tui.domain.chat import records
from spark_tui.domain.chat.conversation import ChatThread, ConversationHit, ConversationSummary
from spark_tui.domain.chat.formats import exported, imported
from spark_tui.domain.chat.message import Attachment, MediaKind, ToolSpec
from spark_tui.domain.chat.request import (
    MOST_BYTES,
    MOST_CHARS,
    NO_DEFAULTS,
    NO_SETTINGS,
    ChatSettings,
    Defaults,
    attachment_of,
    defaults_of,
    filled_prompt,
    tools_from,
)
from spark_tui.domain.errors import RefusedError, SparkError, UsageError
from spark_tui.domain.quantities import MIB
from spark_tui.services.ports import Clock, ConversationStore, EngineApi, PresetSource, UserFiles

LATEST = "last"
"""In the place of an id: the conversation that was changed last."""
MOST_IMPORT_BYTES = 64 * MIB
MOST_PROMPT_BYTES = MIB
FORK = " (fork)"


class Conversations:
    """Makes and opens conversations. `root` is the model store, where recipes keep their system prompts."""

    def __init__(
        self,
        api: EngineApi,
        clock: Clock,
        presets: PresetSource,
        root: Path,
        *,
        store: ConversationStore | None = None,
        files: UserFiles | None = None,
        meter: Callable[[], EngineMeter | None] = lambda: None,
        advise: Advise | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._presets = presets
        self._root = root
        self._kept = store
        self._files = files
        self._meter = meter
        self._advise = advise

    # --- one ------------------------------------------------------------------------------------------

    def new(self, settings: ChatSettings = NO_SETTINGS, *, keep: bool = True) -> Conversation:
        """One in which nothing was said yet; with `keep` it is written down from its first question on."""
        return self._conversation(ChatThread(), settings, exists=False, keep=keep)

    async def open(self, conversation: str) -> Conversation:
        """One that is kept, by its id, a part of its id, or LATEST. Raises UsageError when there is none, or more than
        one. Where another program writes in it, the next question begins a copy."""
        thread = await self.read(conversation)
        return self._conversation(thread, thread.settings, exists=True, keep=True)

    async def read(self, conversation: str) -> ChatThread:
        """What is kept of it; as `open`."""
        return await self._store.read(await self._id(conversation))

    async def fork(self, thread: ChatThread, number: int) -> Conversation:
        """A new conversation that begins as `thread` does, up to exchange `number` and with it."""
        kept = tuple(each for each in thread.exchanges if each.number <= number and not each.live)
        if not kept:
            raise UsageError("There is nothing to fork yet.", "Fork at an exchange that has its answer.")
        title = thread.title if thread.title.endswith(FORK) else f"{thread.title}{FORK}"
        begun = replace(
            thread, id="", title=title, exchanges=kept, parent=thread.id,
            sent_from=thread.sent_from if thread.sent_from <= number else 0,
        )  # fmt: skip
        return await self._begun(begun, thread.settings)

    async def _begun(self, thread: ChatThread, settings: ChatSettings) -> Conversation:
        """A conversation with a past, written down at once where conversations are kept."""
        made = self._conversation(thread, settings, exists=False, keep=self._kept is not None)
        if made.journal is not None:
            made.journal.write()
            await made.journal.flush()
            if made.journal.error is not None:
                raise made.journal.error
        return made

    def _conversation(self, thread: ChatThread, settings: ChatSettings, *, exists: bool, keep: bool) -> Conversation:
        journal = Journal(self._kept, self._clock, thread, exists=exists) if keep and self._kept is not None else None
        return Conversation(
            self._api,
            self._clock,
            settings=settings,
            thread=thread,
            journal=journal,
            meter=self._meter(),
            advise=self._advise,
        )

    # --- all ------------------------------------------------------------------------------------------

    @property
    def kept(self) -> bool:
        """Conversations are kept here."""
        return self._kept is not None

    async def summaries(self) -> tuple[ConversationSummary, ...]:
        """All of them, the one that was changed last first; `problems` says which files could not be read."""
        return await self._store.summaries()

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences on files that the last `summaries` could not read."""
        return self._store.unreadable

    async def search(self, text: str) -> tuple[ConversationHit, ...]:
        """Where `text` was said, whatever its case."""
        return await self._store.search(text)

    async def rename(self, conversation: str, title: str) -> str:
        """Calls it so, also while another program writes in it; returns its id."""
        if not title.strip():
            raise UsageError("A title must say something.", "Give one.")
        found = await self._id(conversation)
        await self._store.append(found, [records.title(" ".join(title.split()))], durable=True)
        return found

    async def delete(self, conversation: str) -> str:
        """Removes it for good; returns its id. Raises RefusedError while another program writes in it."""
        found = await self._id(conversation)
        await self._store.delete(found)
        return found

    async def take_in(self, path: str) -> Conversation:
        """A conversation from a file: our JSON or Markdown, or a list of messages. Raises UsageError."""
        raw = await self.files.read(path, MOST_IMPORT_BYTES)
        thread = imported(raw.decode("utf-8", "replace"), Path(path).name, self._clock.now())
        return await self._begun(replace(thread, id=""), thread.settings)

    async def put_out(self, thread: ChatThread, path: str, *, replace_it: bool = False) -> str:
        """Writes it to a file, as JSON where its name ends so, else as Markdown; returns the path."""
        form = "json" if path.lower().endswith(".json") else "markdown"
        return await self.files.write(path, exported(thread, form), replace=replace_it)

    async def _id(self, told: str) -> str:
        summaries = await self._store.summaries()
        if told == LATEST and summaries:
            return summaries[0].id
        found = [each.id for each in summaries if each.id == told] or [
            each.id for each in summaries if told and (each.id.startswith(told) or each.id.endswith(told))
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(f"{len(found)} conversations are called {told}...", "Give more of the id.")
        what = "There is no conversation yet." if told == LATEST else f"There is no conversation {told}."
        raise UsageError(what, "spark-tui conversations lists them.")

    @property
    def _store(self) -> ConversationStore:
        if self._kept is None:
            raise RefusedError("Conversations are not kept here.", "Leave out --demo.")
        return self._kept

    @property
    def files(self) -> UserFiles:
        """Files that the person names. Raises RefusedError where there are none: in a simulation."""
        if self._files is None:
            raise RefusedError("No files are read or written here.", "Leave out --demo.")
        return self._files

    # --- what a question needs ------------------------------------------------------------------------

    async def attachment(self, path: str) -> Attachment:
        """A picture or a sound by its path. Raises UsageError, RefusedError."""
        raw = await self.files.read(path, max(MOST_BYTES[MediaKind.IMAGE], MOST_BYTES[MediaKind.AUDIO]))
        return attachment_of(raw, Path(path).name)

    async def tools(self, path: str) -> tuple[ToolSpec, ...]:
        """Tools from a JSON file. Raises UsageError."""
        return tools_from((await self.files.read(path, MOST_CHARS)).decode("utf-8", "replace"), Path(path).name)

    async def text(self, path: str) -> str:
        """A system prompt or a schema from a file."""
        return (await self.files.read(path, MOST_PROMPT_BYTES)).decode("utf-8", "replace")

    async def defaults(self, preset: str, model: str) -> Defaults:
        """What chats of a preset begin with, its recipe's system prompt read from the store; none for one that is not
        there. Never raises: what is wrong is in `problems`."""
        found = self._presets.load().get(preset) if preset else None
        if found is None:
            return NO_DEFAULTS
        defaults = defaults_of(found)
        if not defaults.prompt_file or self._files is None:
            return defaults
        path = self._root / defaults.prompt_file
        try:
            text = (await self._files.read(str(path), MOST_PROMPT_BYTES)).decode("utf-8", "replace")
        except SparkError:
            problem = f"{found.name} is meant to be used with the system prompt of its repository: {path} is not there."
            return replace(defaults, problems=(*defaults.problems, problem))
        today = datetime.fromtimestamp(self._clock.now(), UTC).date()
        system = filled_prompt(text, name=model, today=today)
        return replace(defaults, settings=replace(defaults.settings, system=system))
