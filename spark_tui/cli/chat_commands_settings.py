"""Commands of the chat's prompt that change what is sent with the next question."""

from __future__ import annotations

from dataclasses import replace

from spark_tui.cli.chat_entry import SHOWN_CELLS, Entry
from spark_tui.cli.talking import FILE_MARK, Talk
from spark_tui.core.context import Context
from spark_tui.domain.chat_media import check_taken, check_together
from spark_tui.domain.chat_parameters import SETTINGS, written
from spark_tui.domain.errors import UsageError
from spark_tui.domain.text import clean, clean_line, truncate


def system(entry: Entry) -> None:
    """Shows or sets the system prompt."""
    if not entry.rest:
        entry.talk.session.err.say(clean(entry.talk.conversation.settings.system) or "There is no system prompt.")
        return
    _change(entry.talk, "system", None if entry.rest == "off" else entry.rest)


def set_(entry: Entry) -> None:
    """Shows all settings, or sets one."""
    name, _, value = entry.rest.replace("=", " ", 1).partition(" ")
    if not name:
        _show_settings(entry.talk)
    elif not value.strip():
        raise UsageError(
            f"/set {clean_line(name)} needs a value.", "Give one, or `default`; /set alone shows them all."
        )
    else:
        _change(entry.talk, name, value.strip())


def _show_settings(talk: Talk) -> None:
    told = talk.conversation.settings.parameters.told()
    for each in SETTINGS:
        value = truncate(written(told.get(each.name)), SHOWN_CELLS) or "(the server's own)"
        talk.session.err.say(f"  {each.name:<19} {value:<20}  {each.help}")


def think(entry: Entry) -> None:
    """Turns reasoning on or off, or its display."""
    if entry.rest in ("show", "hide"):
        entry.talk.show_reasoning = entry.rest == "show"
        entry.talk.session.err.say(f"Reasoning is {'shown' if entry.talk.show_reasoning else 'not shown'}.", "dim")
    else:
        now = entry.talk.conversation.settings.parameters.thinking
        _change(entry.talk, "thinking", entry.rest or ("off" if now is not False else "on"))


def _change(talk: Talk, name: str, told: str | None) -> None:
    async def change(context: Context) -> None:
        text = told
        if name in ("system", "schema") and text is not None and text.startswith(FILE_MARK):
            text = await context.conversations.text(text.removeprefix(FILE_MARK))
        talk.conversation.settings = talk.conversation.settings.with_setting(name, text)

    talk.session.run(change)
    if name == "system":
        talk.session.err.say(f"System prompt: {len(talk.conversation.settings.system):,} characters.", "dim")
    else:
        talk.session.err.say(f"{name}: {told or 'default'}", "dim")


def tools(entry: Entry) -> None:
    """Offers the tools of a file, or none."""

    async def read(context: Context) -> None:
        tools = () if entry.rest == "off" else await context.conversations.tools(entry.rest)
        entry.talk.conversation.settings = replace(entry.talk.conversation.settings, tools=tools, tool_choice="")

    if entry.rest:
        entry.talk.session.run(read)
    tools = entry.talk.conversation.settings.tools
    for tool in tools:
        entry.talk.session.err.say(f"  {tool.name}  {truncate(tool.description, SHOWN_CELLS)}")
    if not tools:
        entry.talk.session.err.say("No tools are offered. /tools FILE reads them; you type their results.", "dim")


def attach(entry: Entry) -> None:
    """A picture or a sound for the next question."""

    async def read(context: Context) -> None:
        found = (*entry.talk.attachments, await context.conversations.attachment(entry.rest))
        check_together(found)
        check_taken(found, entry.talk.target.modalities, entry.talk.target.model)
        entry.talk.attachments = found

    if entry.rest == "off":
        entry.talk.attachments = ()
    elif entry.rest:
        entry.talk.session.run(read)
    names = ", ".join(each.name for each in entry.talk.attachments)
    entry.talk.session.err.say(f"With the next question: {names}" if names else "Nothing is attached.", "dim")
