"""The Chat screen: settings, tools, editing, going on, room, files, and conversations that are kept."""

from __future__ import annotations

import asyncio
import base64

from msgspec.structs import replace
from textual.events import Key
from textual.widgets import Input, TextArea

from spark_tui.base.engine.message import ContentDelta, ReasoningDelta, Role, ToolCallDelta, Usage
from spark_tui.use.chat.model.conversation import EngineSide
from spark_tui.use.chat.screen.chat import CompareAnswersScreen
from tests.tui.chat_kit import Kit, Reply, chatting

TWO = {"gpt": "gpt-oss-120b", "qwen": "qwen36-35b"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def contents(reply: Reply) -> list[str]:
    return [message.content for message in reply.request.messages]


async def again(kit: Kit, *keys: str) -> Reply:
    """Presses keys that make the screen ask, and returns the answer that the test may write."""
    before = len(kit.api.replies)
    await kit.pilot.press(*keys)
    await kit.until(lambda: len(kit.api.replies) > before, "asked")
    return kit.api.replies[-1]


async def finish(kit: Kit, reply: Reply, text: str, usage: Usage | None = None) -> None:
    reply.send(ContentDelta(text))
    reply.end(usage=usage)
    await kit.until(lambda: not kit.transcript.turns[-1].live, "answered")


# --- settings -----------------------------------------------------------------------------------------------


async def test_settings_are_set_in_the_panel_and_hold_from_the_next_question_on() -> None:
    async with chatting() as kit:
        await kit.pilot.press("ctrl+o")
        await kit.until_seen("For the next question", "temperature", "default")
        await kit.type("0.3")
        kit.app.screen.query_one("#field-system", TextArea).load_text("Be brief.")
        kit.app.screen.query_one("#field-thinking", Input).value = "off"
        await kit.pilot.press("ctrl+o")
        await kit.until_seen("Changed settings for the next question: 3.")
        reply = await kit.ask("Why?")
        assert reply.request.parameters.temperature == 0.3
        assert reply.request.parameters.thinking is False
        assert reply.request.messages[0].role is Role.SYSTEM


async def test_a_setting_that_cannot_be_used_says_so_where_it_stands() -> None:
    async with chatting() as kit:
        await kit.pilot.press("ctrl+o")
        await kit.until_seen("For the next question")
        kit.app.screen.query_one("#field-top_p", Input).value = "7"
        await kit.pilot.press("enter")
        await kit.until_seen("top_p must be a number above 0, at most 1; it is 7.")
        assert kit.app.screen.focused is kit.app.screen.query_one("#field-top_p")
        await kit.pilot.press("escape")
        reply = await kit.ask()
        assert reply.request.parameters.given() == {}


async def test_tools_come_from_a_file_and_their_calls_are_shown_and_not_run() -> None:
    async with chatting() as kit:
        kit.files.files["tools.json"] = b'[{"name": "weather"}, {"name": "time"}]'
        await kit.pilot.press("ctrl+o")
        await kit.until_seen("For the next question")
        kit.app.screen.query_one("#field-tools", Input).value = "tools.json"
        await kit.pilot.press("enter")
        await kit.until_seen("Changed settings")
        reply = await kit.ask("Weather and time?")
        assert [tool.name for tool in reply.request.tools] == ["weather", "time"]
        reply.send(ToolCallDelta(0, "a", "weather", '{"city": "[b]Bern"}'), ToolCallDelta(1, "b", "time", "{}"))
        reply.end("tool_calls")
        await kit.until_seen("asks for tool weather   not run", '{"city": "[b]Bern"}', "asks for tool time   not run")
        await kit.until_seen("to qwen36-35b", "Enter send")
        calls = 'weather({"city": "[b]Bern"})\n\ntime({})'
        assert contents(await kit.ask("22 C at noon")) == ["Weather and time?", calls, "22 C at noon"]


# --- change -------------------------------------------------------------------------------------------------


async def test_questions_are_edited_in_the_prompt_the_last_one_first() -> None:
    async with chatting() as kit:
        await kit.answered("One.", "first")
        await kit.answered("Two.", "secnd")
        await kit.pilot.press("f2")
        await kit.until_seen("edit question 2 of 2")
        assert kit.prompt.text == "secnd"
        await kit.pilot.press("f2")
        await kit.until_seen("edit question 1 of 2")
        await kit.pilot.press("f2")
        await kit.until_seen("This is the first question.")
        await kit.pilot.press("escape")
        assert (kit.prompt.text, len(kit.transcript.turns)) == ("", 4)
        await kit.pilot.press("f2")
        await kit.until(lambda: kit.prompt.text == "secnd")
        await kit.pilot.press("backspace", "backspace")
        await kit.type("ond")
        reply = await again(kit, "enter")
        assert contents(reply) == ["first", "One.", "second"]
        await finish(kit, reply, "Zwei.")
        assert "secnd" not in kit.said()


async def test_an_answer_is_continued_by_a_key_unless_it_is_complete() -> None:
    async with chatting() as kit:
        reply = await kit.ask("Tell")
        reply.send(ContentDelta("Once upon"))
        await kit.until_seen("Once upon")
        await kit.pilot.press("escape")
        await kit.until_seen("F4 continue")
        second = await again(kit, "f4")
        assert (contents(second), second.request.go_on) == (["Tell", "Once upon"], True)
        await finish(kit, second, " a time.")
        assert "Once upon a time." in kit.said()
        assert len(kit.transcript.turns) == 2


async def test_keys_that_have_nothing_to_do_say_so() -> None:
    async with chatting() as kit:
        await kit.answered()
        for key, says in (
            ("f4", "is complete"), ("f5", "No other engine is serving."), ("f6", "No code in this conversation."),
            ("f7", "Nothing to leave out"), ("ctrl+t", "No reasoning in this conversation."),
        ):  # fmt: skip
            await kit.pilot.press(key)
            await kit.until_seen(says)
        assert len(kit.api.replies) == 1


async def test_keys_typed_in_a_burst_reach_the_fields_that_they_are_meant_for() -> None:
    async with chatting() as kit:
        await kit.pilot.press("ctrl+o")
        await kit.until_seen("For the next question")
        for key in ("1", "down", "0", "tab", "4", "0", "up", "up", "up", "S", "up", "7"):
            kit.app.post_message(Key(key, key if len(key) == 1 else None))  # none waits for the one before
        await kit.until(lambda: kit.app.screen.query_one("#field-tool_choice", Input).value == "7", "all keys")
        values = [kit.app.screen.query_one(f"#field-{name}", Input).value for name in ("temperature", "top_p", "top_k")]
        assert values == ["1", "0", "40"]
        assert kit.app.screen.query_one("#field-system", TextArea).text == "S"


async def test_room_is_made_only_by_a_person() -> None:
    async with chatting() as kit:
        for number in range(1, 4):
            await kit.answered("a" * 4000, f"q{number}", Usage(80_000 * number, 10_000))
        await kit.until_seen("context 250,000 of 262,144 tokens: nearly full   F7 make room")
        await kit.pilot.press("f7")
        await kit.until_seen("Make room", "leave out the")
        await kit.pilot.press("end", "enter")
        await kit.until(lambda: kit.transcript.turns[0].unsent, "left out")
        reply = await kit.ask("q4")
        assert "q1" not in contents(reply)
        assert "no longer sent" in kit.said()
        await finish(kit, reply, "x")
        await kit.pilot.press("f7")
        await kit.until_seen("send all messages again")
        await kit.pilot.press("end", "enter")
        await kit.until(lambda: not kit.transcript.turns[0].unsent)


# --- files --------------------------------------------------------------------------------------------------


async def test_a_picture_goes_with_the_next_question_only() -> None:
    async with chatting() as kit:
        kit.files.files |= {"a.png": PNG, "a.pdf": b"%PDF"}
        await kit.pilot.press("f8")
        await kit.until_seen("Attach")
        await kit.type("a.png")
        await kit.pilot.press("enter")
        await kit.until_seen("with a.png")
        first = await kit.ask("What?")
        assert [each.name for each in first.request.messages[0].attachments] == ["a.png"]
        await finish(kit, first, "A cat.")
        assert "with image a.png" in kit.said()
        second = await kit.ask("And?")
        assert second.request.messages[-1].attachments == ()
        await kit.pilot.press("f8")
        await kit.until_seen("Attach")
        await kit.type("a.pdf")
        await kit.pilot.press("enter")
        await kit.until_seen("neither an image nor a sound")


async def test_a_conversation_is_saved_to_a_file() -> None:
    async with chatting() as kit:
        await kit.answered("Because.", "Why?")
        await kit.pilot.press("f9")
        await kit.until_seen("Save the conversation")
        await kit.type("x.md")
        await kit.pilot.press("enter")
        await kit.until_seen("Saved: x.md")
        assert b"Because." in kit.files.files["x.md"]


async def test_code_is_copied_block_by_block_from_the_last_one_on() -> None:
    async with chatting() as kit:
        written: list[str] = []
        await kit.answered("```py\nfirst = 1\n```\ntext\n```\nsecond\x1b[2J\n```")
        driver = kit.app._driver
        assert driver is not None
        driver.write = written.append  # type: ignore[method-assign,assignment]
        for code, place in ((b"second", "2 of 2"), (b"first = 1", "1 of 2"), (b"second", "2 of 2")):
            written.clear()
            await kit.pilot.press("f6")
            await kit.until_seen(f"Code {place} sent to the terminal")
            payload = base64.b64encode(code).decode()
            assert any(f"\x1b]52;c;{payload}\x07" in text for text in written)


# --- conversations ------------------------------------------------------------------------------------------


async def test_a_kept_conversation_is_opened_found_renamed_and_deleted() -> None:
    async with chatting() as kit:
        await kit.answered("CUDA graphs.", "Why so slow?")
        await kit.pilot.press("ctrl+n")
        await kit.answered("Two.", "Other")
        await kit.pilot.press("ctrl+n")
        await kit.pilot.press("ctrl+l")
        await kit.until_seen("Why so slow?", "Other")
        await kit.type("cuda")
        await kit.until(lambda: "Other" not in kit.seen())
        await kit.pilot.press("f2")
        await kit.until_seen("Rename")
        await kit.pilot.press("end")
        await kit.type(" x")
        await kit.pilot.press("enter")
        await kit.until_seen("Why so slow? x")
        await kit.pilot.press("enter")
        await kit.until(lambda: "CUDA graphs." in kit.seen() and kit.app.screen.query("#transcript"), "opened")
        reply = await kit.ask("And?")
        assert contents(reply) == ["Why so slow?", "CUDA graphs.", "And?"]
        await finish(kit, reply, "x")
        await kit.pilot.press("ctrl+l")
        await kit.until_seen("(open)")
        await kit.pilot.press("down", "delete")
        await kit.until_seen("This conversation is open")
        await kit.pilot.press("down", "delete")
        await kit.until_seen("Delete 'Other'?")
        await kit.pilot.press("y")
        await kit.until(lambda: len(kit.kept.ids) == 1, "deleted")


async def test_what_was_said_is_kept_and_what_cannot_be_kept_is_told() -> None:
    async with chatting() as kit:
        with kit.kept.barred():
            await kit.answered("One.", "first")
            await kit.until_seen("Not saved: Cannot write")
        await kit.answered("Two.", "second")
        await kit.until(lambda: bool(kit.kept.ids), "kept")
        [name] = kit.kept.ids
        async with asyncio.timeout(20):
            while [each.live for each in (await kit.kept.read(name)).exchanges] != [False, False]:
                await kit.pilot.pause(0.01)


async def test_hostile_titles_and_tool_calls_are_text() -> None:
    async with chatting() as kit:
        reply = await kit.ask("[/red][@click=app.quit]x")
        reply.send(ToolCallDelta(0, "a", "[bold]\x1b[2Jevil[/x]", '{"[/]": "\x1b]52;c;x\x07"}'))
        reply.end("tool_calls")
        await kit.until_seen("asks for tool [bold]evil[/x]   not run")
        await kit.pilot.press("escape", "ctrl+l")
        await kit.until_seen("[/red][@click=app.quit]x")
        assert "\x1b" not in kit.seen()


# --- two engines --------------------------------------------------------------------------------------------


async def test_two_engines_answer_one_question_side_by_side() -> None:
    async with chatting(TWO, size=(120, 36)) as kit:
        await kit.answered("I am gpt.", "Who?")
        await kit.pilot.press("f5")
        await kit.until(lambda: len(kit.api.replies) == 3, "both asked")
        assert isinstance(kit.app.screen, CompareAnswersScreen)
        one, other = kit.api.replies[1:]
        assert (one.request.model, other.request.model) == ("gpt-oss-120b", "qwen36-35b")
        assert contents(one) == contents(other) == ["Who?"]
        one.send(ContentDelta("left"))
        one.end(usage=Usage(5, 9))
        other.send(ReasoningDelta("hm"), ContentDelta("right"))
        await kit.until_seen("left", "right", "gpt-oss-120b on gpt", "qwen36-35b on qwen")
        await kit.pilot.press("escape")
        await kit.until(lambda: other.closed, "stopped")
        assert [each.question for each in kit.chat._conversation.exchanges] == ["Who?"]


async def test_what_the_engines_metrics_tell_stands_under_the_answer() -> None:
    async with chatting() as kit:
        await kit.answered(usage=Usage(5, 9))
        conversation = kit.chat._conversation
        conversation._past = (replace(conversation._past[0], engine_side=EngineSide(1.25, 30, 20)),)
        kit.chat._show_all()
        await kit.until_seen("queued 1.25 s", "drafts 67 % accepted")
