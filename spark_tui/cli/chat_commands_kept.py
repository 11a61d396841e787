"""Commands of the chat's prompt about conversations and engines: another one, from a file, to a file, its name."""

from __future__ import annotations

from spark_tui.cli.chat_engine import find_target
from spark_tui.cli.chat_entry import Entry, Leave
from spark_tui.cli.tables import Table
from spark_tui.cli.talking import Talk
from spark_tui.core.context import Context
from spark_tui.core.conversation import Conversation
from spark_tui.domain.errors import UsageError


async def go_over(talk: Talk, conversation: Conversation) -> None:
    """To another conversation; the old one is closed."""
    await talk.conversation.close()
    talk.conversation = conversation


def new(entry: Entry) -> None:
    """A new conversation with the same settings."""

    async def new(context: Context) -> None:
        kept = entry.talk.conversation.journal is not None
        await go_over(entry.talk, context.conversations.new(entry.talk.conversation.settings, keep=kept))

    entry.talk.session.run(new)
    entry.talk.session.err.say("A new conversation, with the same settings.", "dim")


def list_(entry: Entry) -> None:
    """The conversations that are kept."""
    from spark_tui.cli.conversations import table_of

    async def look(context: Context) -> Table:
        return table_of(await context.conversations.summaries())

    for line in entry.talk.session.run(look).render(
        entry.talk.session.err.terminal.width, entry.talk.session.err.terminal.paint
    ):
        entry.talk.session.err.stream(f"{line}\n")


def load(entry: Entry) -> None:
    """Goes over to another conversation, by id or from a file."""
    if not entry.rest:
        raise UsageError("/load needs an id or a file.", "/list shows the ids.")

    async def load(context: Context) -> None:
        conversations = context.conversations
        known = {each.id for each in await conversations.summaries()} if conversations.kept else set()
        is_file = (
            "/" in entry.rest
            or entry.rest.lower().endswith((".json", ".md"))
            or (entry.rest not in known and "." in entry.rest)
        )
        await go_over(
            entry.talk, await (conversations.take_in(entry.rest) if is_file else conversations.open(entry.rest))
        )

    entry.talk.session.run(load)
    entry.talk.session.err.say(
        f"{entry.talk.conversation.title}: {len(entry.talk.conversation.exchanges)} exchanges.", "dim"
    )


def save(entry: Entry) -> None:
    """Writes the conversation to a file."""
    if not entry.rest:
        kept = f"It is kept as {entry.talk.conversation.id}." if entry.talk.conversation.id else "It is not kept."
        raise UsageError("/save needs a file name.", f"NAME.md to be read, NAME.json to be imported again. {kept}")

    async def save(context: Context) -> str:
        return await context.conversations.put_out(entry.talk.conversation.thread(), entry.rest)

    entry.talk.session.err.say(f"Written: {entry.talk.session.run(save)}", "dim")


def title(entry: Entry) -> None:
    """Names the conversation."""

    async def rename(_: Context) -> None:
        entry.talk.conversation.rename(entry.rest)
        await entry.talk.flush()

    if entry.rest:
        entry.talk.session.run(rename)
    entry.talk.session.err.say(entry.talk.conversation.title or "It has no title yet.", "dim")


def engine(entry: Entry) -> None:
    """Talks to another engine from now on."""

    async def change(context: Context) -> None:
        entry.talk.target, entry.talk.defaults = await find_target(context, entry.rest)

    if entry.rest:
        entry.talk.session.run(change)
    entry.talk.session.err.say(f"{entry.talk.target.model} at {entry.talk.target.engine}", "dim")


def model(entry: Entry) -> None:
    """Talks to another model of the engine."""

    async def change(context: Context) -> None:
        entry.talk.target, entry.talk.defaults = await find_target(context, entry.talk.target.engine, entry.rest)

    if entry.rest:
        entry.talk.session.run(change)
    entry.talk.session.err.say(f"{entry.talk.target.model} at {entry.talk.target.engine}", "dim")


def quit_(_entry: Entry) -> None:
    """Leaves."""
    raise Leave
