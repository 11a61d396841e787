"""conversations: list, search, show, export, import, rename and remove saved conversations."""

from __future__ import annotations

import click

from spark_tui.base.context import Context
from spark_tui.base.page import maybe
from spark_tui.cli.command import group, yes_option
from spark_tui.cli.session import Session, confirm
from spark_tui.use.chat.model.conversation import ConversationSummary
from spark_tui.use.chat.model.formats import exported
from spark_tui.use.chat.show import conversation_table, hit_table, summary_object, thread_object
from spark_tui.use.chat.use.conversations import Conversations


@group("conversations")
def conversations(session: Session) -> None:
    """Manage saved conversations. Without a command: the list.

    Private files of yours, in ~/.local/share/spark-tui/conversations.
    """
    list_conversations(session)


_conversation = click.argument("name", metavar="ID|last")


@conversations.sub("list", '  spark-tui conversations list --search "CUDA graph"')
@click.option("--search", default="", metavar="TEXT", help="Only messages with this text.")
def conversations_list(session: Session, search: str) -> None:
    """List conversations, the latest first, or messages with a text."""
    list_conversations(session, search)


def list_conversations(session: Session, search: str = "") -> None:
    async def look(context: Context) -> tuple[tuple[ConversationSummary, ...], tuple[str, ...]]:
        return await context[Conversations].summaries(), context[Conversations].problems

    if search:
        hits = session.run(lambda context: context[Conversations].search(search))
        data = [{"id": hit.id, "title": hit.title, "number": hit.number, "excerpt": hit.excerpt} for hit in hits]
        table, none = hit_table(hits), "No matches."
    else:
        found, problems = session.run(look)
        for problem in problems:
            session.err.note(problem)
        data = [summary_object(each) for each in found]
        table, none = conversation_table(found), "No conversations yet: spark-tui chat NAME"
    session.out.json(data)
    if data:
        session.out.table(table)
    else:
        session.err.say(none)


@conversations.sub("show", "  spark-tui conversations show last | less")
@_conversation
def show_conversation(session: Session, name: str) -> None:
    """Show one conversation as Markdown, or as data with --json."""
    thread = session.run(lambda context: context[Conversations].read(name))
    session.out.json(thread_object(thread))
    session.out.write(exported(thread, "markdown"))
    if thread.damaged:
        session.err.note(f"{thread.damaged} lines of its file cannot be read and are left out.")


@conversations.sub("export", "  spark-tui conversations export last --format json -o talk.json")
@_conversation
@click.option("--format", "form", type=click.Choice(["markdown", "json"]), default="markdown", help="[markdown]")
@click.option("-o", "--output", default="", metavar="FILE", help="Write to a new file.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def export_conversation(session: Session, name: str, form: str, output: str, force: bool) -> None:
    """Export one conversation: Markdown to read, JSON with everything, to import again."""
    if force and not output:
        raise click.UsageError("--force needs --output.")
    thread = session.run(lambda context: context[Conversations].read(name))
    text, written = exported(thread, form), ""
    if output:
        written = session.run(lambda context: context.user_files.write(output, text, replace=force))
        session.err.say(f"Written: {written}")
    file = maybe("file", written or None, "no --output")
    session.out.json({"id": thread.id, "format": form, "text": text, **file})
    if not output:
        session.out.write(text)


@conversations.sub("import", "  spark-tui conversations import talk.json")
@click.argument("path", metavar="FILE")
def import_conversation(session: Session, path: str) -> None:
    """Import our own JSON or Markdown, or a JSON list of messages. Prints the new id."""

    async def import_file(context: Context) -> tuple[str, str, int]:
        made = await context[Conversations].import_file(path)
        try:
            return made.id, made.title, len(made.exchanges)
        finally:
            await made.close()

    id_, title, count = session.run(import_file)
    session.out.json({"id": id_, "title": title, "exchanges": count})
    session.out.line(id_)
    session.err.say(f"{title}: {count} exchanges. Continue: spark-tui chat NAME --continue {id_}")


@conversations.sub("rename", '  spark-tui conversations rename last "Kernel hunt"')
@_conversation
@click.argument("title")
def rename_conversation(session: Session, name: str, title: str) -> None:
    """Rename a conversation."""
    id_ = session.run(lambda context: context[Conversations].rename(name, title))
    session.err.say(f"{id_}: {title}")
    session.out.json({"id": id_, "title": title})


@conversations.sub("rm", "  spark-tui conversations rm 20261121-101500-3fa2c1")
@_conversation
@yes_option
def remove_conversation(session: Session, name: str, yes: bool) -> None:
    """Delete a conversation and its images."""
    thread = session.run(lambda context: context[Conversations].read(name))
    if not confirm(session, f"Delete {thread.title!r}, {len(thread.exchanges)} exchanges?", yes=yes):
        return
    id_ = session.run(lambda context: context[Conversations].delete(thread.id))
    session.err.say(f"Deleted: {id_}")
    session.out.json({"id": id_, "deleted": True})
