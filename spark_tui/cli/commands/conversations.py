"""Conversations that are kept: `conversations` and its commands."""

from __future__ import annotations

import click

from spark_tui.cli.commands.frame import command, group, yes_option
from spark_tui.cli.session import Session


@group("conversations")
def conversations(session: Session) -> None:
    """Conversations with models that are kept. Without a command: the list.

    They are files of yours, private, in ~/.local/share/spark-tui/conversations.
    """
    from spark_tui.cli.conversations import list_conversations

    list_conversations(session)


_conversation = click.argument("conversation", metavar="ID|last")


@command("list", '  spark-tui conversations list --search "CUDA graph"')
@click.option("--search", default="", metavar="TEXT", help="Where this was said.")
def conversations_list(session: Session, search: str) -> None:
    """All conversations, the latest first; or where something was said."""
    from spark_tui.cli.conversations import list_conversations

    list_conversations(session, search)


@command("show", "  spark-tui conversations show last | less")
@_conversation
def conversations_show(session: Session, conversation: str) -> None:
    """One conversation, as Markdown, or as data with --json."""
    from spark_tui.cli.conversations import show_conversation

    show_conversation(session, conversation)


@command("export", "  spark-tui conversations export last --format json -o talk.json")
@_conversation
@click.option("--format", "form", type=click.Choice(["markdown", "json"]), default="markdown", help="[markdown]")
@click.option("-o", "--output", default="", metavar="FILE", help="Write it there, where there is no file yet.")
@click.option("--force", is_flag=True, help="Take the place of a file.")
def conversations_export(session: Session, conversation: str, form: str, output: str, force: bool) -> None:
    """One conversation for elsewhere: Markdown to be read, JSON with everything, to be imported again."""
    from spark_tui.cli.conversations import export_conversation

    if force and not output:
        raise click.UsageError("--force goes with --output.")
    export_conversation(session, conversation, form, output, force=force)


@command("import", "  spark-tui conversations import talk.json")
@click.argument("file")
def conversations_import(session: Session, file: str) -> None:
    """Our own JSON or Markdown, or a JSON list of messages. Prints the new id."""
    from spark_tui.cli.conversations import import_conversation

    import_conversation(session, file)


@command("rename", '  spark-tui conversations rename last "Kernel hunt"')
@_conversation
@click.argument("title")
def conversations_rename(session: Session, conversation: str, title: str) -> None:
    """Give a conversation a title."""
    from spark_tui.cli.conversations import rename_conversation

    rename_conversation(session, conversation, title)


@command("rm", "  spark-tui conversations rm 20261121-101500-3fa2c1")
@_conversation
@yes_option
def conversations_rm(session: Session, conversation: str, yes: bool) -> None:
    """Delete a conversation, and the pictures in it."""
    from spark_tui.cli.conversations import remove_conversation

    remove_conversation(session, conversation, yes=yes)


conversations.add(
    conversations_list,
    conversations_show,
    conversations_export,
    conversations_import,
    conversations_rename,
    conversations_rm,
)
