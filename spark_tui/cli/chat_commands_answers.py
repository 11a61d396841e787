"""Commands of the chat's prompt about answers: again, go on, edit, fork, make room."""

from __future__ import annotations

from spark_tui.cli.chat_commands_kept import go_over
from spark_tui.cli.chat_entry import SHOWN_CELLS, Entry
from spark_tui.cli.chat_history import prefilled
from spark_tui.cli.talking import Talk
from spark_tui.core.context import Context
from spark_tui.core.conversation import Conversation
from spark_tui.domain.chat_context import Room
from spark_tui.domain.quantities import human_count
from spark_tui.domain.text import clean_line, truncate


def retry(entry: Entry) -> None:
    """Asks the last question again, in the place of its answer."""

    async def again(_: Context) -> None:
        await entry.talk.write(lambda: entry.talk.conversation.regenerate(entry.talk.target))

    entry.talk.session.run(again)


def let_go_on(entry: Entry) -> None:
    """Lets a stopped or cut answer go on."""

    async def go_on(_: Context) -> None:
        await entry.talk.write(lambda: entry.talk.conversation.go_on(entry.talk.target))

    entry.talk.session.run(go_on)


def edit(entry: Entry) -> None:
    """Another question in the place of one: typed after the command, or edited at the prompt."""
    number, text = _number_and_text(entry.talk.conversation, entry.rest)
    question = next((each.question for each in entry.talk.conversation.exchanges if each.number == number), "")
    if not text:
        with prefilled(question):
            text = entry.ask("edit> ")
    if not text.strip():
        entry.talk.session.err.say("Nothing was changed.", "dim")
        return

    async def edit(_: Context) -> None:
        await entry.talk.write(lambda: entry.talk.conversation.edit(number, text, entry.talk.target))

    entry.talk.session.run(edit)


def _number_and_text(conversation: Conversation, rest: str) -> tuple[int, str]:
    """`3 New question`, `3`, `New question`, or nothing: the last one that has a question."""
    first, _, text = rest.partition(" ")
    numbers = [each.number for each in conversation.exchanges]
    if first.isdecimal() and len(first) < 10 and int(first) in numbers:
        return int(first), text.strip()
    asked = [each.number for each in conversation.exchanges if not each.tool_answers]
    return (asked[-1] if asked else 0), rest


def fork(entry: Entry) -> None:
    """Goes over to a copy that ends at an exchange."""
    number = _number_and_text(entry.talk.conversation, entry.rest)[0] if entry.rest else 0
    last = entry.talk.conversation.last

    async def fork(context: Context) -> None:
        thread = entry.talk.conversation.thread()
        made = await context.conversations.fork(thread, number or (last.number if last else 0))
        await go_over(entry.talk, made)

    entry.talk.session.run(fork)
    entry.talk.session.err.say(f"This is {entry.talk.conversation.id} now; the other one stays as it was.", "dim")


def past(entry: Entry) -> None:
    """What was asked, with the numbers that other commands take."""
    for each in entry.talk.conversation.exchanges:
        said = each.question or ", ".join(f"result of {answer.name}" for answer in each.tool_answers)
        unsent = "   not sent any more" if each.number < entry.talk.conversation.sent_from else ""
        shown = truncate(" ".join(clean_line(said).split()), SHOWN_CELLS)
        entry.talk.session.err.say(f"  {each.number:>3}  {shown}   ({each.model}, {each.outcome.value}){unsent}")


def context(entry: Entry) -> None:
    """How full the context is, and what could be left out."""
    use = entry.talk.conversation.use(entry.talk.target)
    limit = f" of {human_count(use.limit)}" if use.limit else ""
    entry.talk.session.err.say(f"About {human_count(use.tokens)}{limit} tokens are sent with the next question.")
    _list_trims(entry.talk)


def _list_trims(talk: Talk) -> None:
    use = talk.conversation.use(talk.target)
    for place, trim in enumerate(talk.conversation.trims(use), 1):
        talk.session.err.say(f"  /trim {place}  {trim.sentence}")


def trim(entry: Entry) -> None:
    """Leaves out what was proposed; without a number it proposes."""
    talk, say = entry.talk, entry.talk.session.err.say
    use = talk.conversation.use(talk.target)
    trims = talk.conversation.trims(use)
    place = int(entry.rest) if entry.rest.isdecimal() and len(entry.rest) < 6 else 0
    if entry.rest == "off":
        _send_from(talk, 0)
        say("All of it is sent again.", "dim")
    elif 1 <= place <= len(trims):
        _send_from(talk, trims[place - 1].sent_from)
        say(f"Done: {trims[place - 1].sentence}. /trim off sends them again.", "dim")
    elif trims:
        _list_trims(talk)
    else:
        enough = use.room in (Room.ENOUGH, Room.UNKNOWN)
        say("There is room enough." if enough else "There is nothing that could be left out.", "dim")


def _send_from(talk: Talk, number: int) -> None:
    async def send_from(_: Context) -> None:
        talk.conversation.trim(number)
        await talk.flush()

    talk.session.run(send_from)
