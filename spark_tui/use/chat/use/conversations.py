"""Saved conversations: list, open, rename, import and export."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine import request
from spark_tui.base.engine.message import Attachment, ToolSpec, known_parameters
from spark_tui.base.errors import RefusedError, SparkError, UsageError
from spark_tui.base.ports import Clock, EngineApi, MetricsSource, UserFiles
from spark_tui.base.quantities import MIB
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.use.rights import PresetSource
from spark_tui.use.chat.model import records
from spark_tui.use.chat.model.conversation import ChatThread, ConversationHit, ConversationSummary
from spark_tui.use.chat.model.formats import exported, imported
from spark_tui.use.chat.use.chat import Advise, Conversation, ConversationStore, Journal, advice

LATEST = "last"
"""Instead of an id: the conversation that was changed last."""
MOST_IMPORT_BYTES = 64 * MIB
MOST_PROMPT_BYTES = MIB


class Conversations:
    """Makes and opens conversations. `root` is the model store, where recipes keep their system prompts."""

    @classmethod
    def from_context(cls, context: Context) -> Conversations:
        return cls(
            context.api,
            context.clock,
            context[PresetSource],
            Path(context.paths.store),
            store=context.find(ConversationStore),
            files=context.ports.get("user_files"),
            metrics=context.ports.get("metrics"),
            advise=partial(advice, context),
        )

    def __init__(
        self,
        api: EngineApi,
        clock: Clock,
        presets: PresetSource,
        root: Path,
        *,
        store: ConversationStore | None = None,
        files: UserFiles | None = None,
        metrics: MetricsSource | None = None,
        advise: Advise | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._presets = presets
        self._root = root
        self._kept = store
        self._files = files
        self._metrics = metrics
        self._advise = advise

    @property
    def kept(self) -> bool:
        """Whether conversations can be saved at all."""
        return self._kept is not None

    @property
    def _store(self) -> ConversationStore:
        if self._kept is None:
            raise RefusedError("Conversations are not kept here.", "Leave out --demo.")
        return self._kept

    @property
    def files(self) -> UserFiles:
        """The user's own files. Raises RefusedError in a simulation."""
        if self._files is None:
            raise RefusedError("No files are read or written here.", "Leave out --demo.")
        return self._files

    # --- one ------------------------------------------------------------------------------------------

    def new(self, settings: request.ChatSettings = request.NO_SETTINGS, *, keep: bool = True) -> Conversation:
        """An empty one; with `keep` it is saved from its first question on."""
        return self._conversation(ChatThread(), settings, exists=False, keep=keep)

    async def open(self, conversation: str) -> Conversation:
        """A saved one by its id, a part of its id, or LATEST. Raises UsageError when there is none, or more than one.
        Where another program writes in it, the next question begins a copy."""
        thread = await self.read(conversation)
        return self._conversation(thread, thread.settings, exists=True)

    async def read(self, conversation: str) -> ChatThread:
        """As `open`."""
        return await self._store.read(await self._id(conversation))

    async def import_file(self, path: str) -> Conversation:
        """A conversation from a file: our JSON or Markdown, or a list of messages; saved at once where conversations
        are saved. Raises UsageError."""
        raw = await self.files.read(path, MOST_IMPORT_BYTES)
        thread = imported(raw.decode("utf-8", "replace"), Path(path).name, self._clock.now())
        made = self._conversation(thread, thread.settings, exists=False)
        if made.journal is not None:
            made.journal.write()
            await made.journal.flush()
            if made.journal.error is not None:
                raise made.journal.error
        return made

    def _conversation(
        self, thread: ChatThread, settings: request.ChatSettings, *, exists: bool, keep: bool = True
    ) -> Conversation:
        journal = Journal(self._kept, self._clock, thread, exists=exists) if keep and self._kept is not None else None
        return Conversation(
            self._api,
            self._clock,
            settings=settings,
            thread=thread,
            journal=journal,
            metrics=self._metrics,
            advise=self._advise,
        )

    # --- all ------------------------------------------------------------------------------------------

    async def summaries(self) -> tuple[ConversationSummary, ...]:
        """The latest change first; `problems` names unreadable files."""
        return await self._store.summaries()

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences on files that the last `summaries` could not read."""
        return self._store.unreadable

    async def search(self, text: str) -> tuple[ConversationHit, ...]:
        """Messages and titles with `text`, whatever its case."""
        return await self._store.search(text)

    async def rename(self, conversation: str, title: str) -> str:
        """Works also while another program writes in it; returns its id."""
        if not title.strip():
            raise UsageError("A title must say something.", "Give one.")
        found = await self._id(conversation)
        await self._store.append(found, [records.title(" ".join(title.split()))], durable=True)
        return found

    async def delete(self, conversation: str) -> str:
        """Returns its id. Raises RefusedError while another program writes in it."""
        found = await self._id(conversation)
        await self._store.delete(found)
        return found

    async def export(self, thread: ChatThread, path: str) -> str:
        """Writes a file, JSON where its name ends so, else Markdown; returns the path."""
        form = "json" if path.lower().endswith(".json") else "markdown"
        return await self.files.write(path, exported(thread, form))

    async def _id(self, given: str) -> str:
        ids = [each.id for each in await self._store.summaries()]
        if given == LATEST and ids:
            return ids[0]
        found = [each for each in ids if each == given] or [
            each for each in ids if given and (each.startswith(given) or each.endswith(given))
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(f"{len(found)} conversations are called {given}...", "Give more of the id.")
        what = "There is no conversation yet." if given == LATEST else f"There is no conversation {given}."
        raise UsageError(what, "List them: spark-tui conversations list")

    # --- for a question -------------------------------------------------------------------------------

    async def attachment(self, path: str) -> Attachment:
        """An image or audio by its path. Raises UsageError, RefusedError."""
        raw = await self.files.read(path, max(request.MOST_BYTES.values()))
        return request.attachment_of(raw, Path(path).name)

    async def tools(self, path: str) -> tuple[ToolSpec, ...]:
        """Tools from a JSON file. Raises UsageError."""
        return request.tools_from(
            (await self.files.read(path, request.MOST_CHARS)).decode("utf-8", "replace"), Path(path).name
        )

    async def with_setting(self, settings: request.ChatSettings, name: str, given: object) -> request.ChatSettings:
        """`settings` with one changed; `@FILE` reads a system prompt or a schema from a file. Raises ParameterError,
        UsageError."""
        if name in ("system", "schema") and isinstance(given, str) and given.startswith("@") and "\n" not in given:
            raw = await self.files.read(given.removeprefix("@").strip(), MOST_PROMPT_BYTES)
            given = raw.decode("utf-8", "replace")
        return settings.with_setting(name, given)

    async def defaults(self, preset: str, model: str) -> request.Defaults:
        """The settings with which chats of a preset begin, its recipe's system prompt read from the store. Never
        raises: `problems` says what is missing."""
        found = self._presets.load().get(preset) if preset else None
        if found is None:
            return request.NO_DEFAULTS
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


def defaults_of(preset: Preset) -> request.Defaults:
    """The sampling that the model's authors recommend, and where its system prompt is."""
    parameters, problems = known_parameters(preset.facts.sampling)
    prompt = next((each.target for each in preset.facts.required_files if each.for_chat), "")
    return request.Defaults(request.ChatSettings(parameters=parameters), preset.facts.modalities, prompt, problems)


def filled_prompt(text: str, *, name: str, today: date) -> str:
    """A recipe's system prompt with its blanks filled, as Mistral's card does: `{name}`, `{today}`, `{yesterday}`."""
    blanks = {"{name}": name, "{today}": today.isoformat(), "{yesterday}": (today - timedelta(days=1)).isoformat()}
    for blank, value in blanks.items():
        text = text.replace(blank, value)
    return text.strip("\n")
