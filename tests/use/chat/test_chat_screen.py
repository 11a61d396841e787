"""The Chat screen: what a person types, sees and can stop."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from spark_tui.base.engine.container import ContainerFacts, ContainerStatus
from spark_tui.base.engine.message import ContentDelta, ReasoningDelta, ToolCallDelta, Usage
from spark_tui.base.engine.state import EngineState, Exposure, Health
from spark_tui.base.errors import ApiKeyRejected, ContextOverflow, EngineUnreachable, ModelNotServed, SparkError
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.use.chat.screen.chat import problem_with
from tests.tui.chat_kit import Kit, chatting

LONG = "\n\n".join(f"paragraph {number}" for number in range(60))


# --- typing -----------------------------------------------------------------------------------------------


async def test_keys_typed_in_the_prompt_are_text() -> None:
    async with chatting() as kit:
        await kit.type("12345678?q/]jk xlrD")
        assert kit.prompt.text == "12345678?q/]jk xlrD"
        assert kit.chat.is_current


@pytest.mark.parametrize("state", ["none", "starting", "stopped"])
async def test_what_is_typed_is_text_whatever_the_engine_does(state: str) -> None:
    async with chatting({} if state == "none" else {"qwen": ""}) as kit:
        if state == "stopped":
            kit.docker.end("qwen")
            await kit.let_time_pass(lambda: "stopped" in kit.seen())
        await kit.type("Do you")
        await kit.pilot.press("tab", "shift+tab")
        await kit.pilot.click("#transcript")
        await kit.type(" quit?")
        await kit.pilot.press("enter", "escape", "6")
        await kit.type("y")
        assert kit.prompt.text == "Do you quit?y"
        assert len(kit.app.screen_stack) == 1
        assert kit.app.is_running


async def test_the_prompt_waits_for_text_when_one_comes_to_the_screen() -> None:
    async with chatting() as kit:
        assert kit.prompt.has_focus
        await kit.pilot.press("escape", "1")
        await kit.until(lambda: not kit.app.screen.query("#prompt"))
        await kit.pilot.press("6")
        await kit.until(lambda: bool(kit.app.screen.query("#prompt")))
        await kit.until(lambda: kit.prompt.has_focus)


async def test_enter_sends_and_three_keys_begin_a_new_line() -> None:
    async with chatting() as kit:
        await kit.type("a")
        await kit.pilot.press("ctrl+j", "b", "alt+enter", "c", "shift+enter", "d")
        assert kit.prompt.text == "a\nb\nc\nd"
        await kit.pilot.press("enter")
        await kit.until(lambda: bool(kit.api.replies))
        assert kit.api.replies[0].request.messages[-1].content == "a\nb\nc\nd"
        assert kit.prompt.text == ""


async def test_the_prompt_grows_to_eight_lines() -> None:
    async with chatting() as kit:
        heights = []
        for _ in range(10):
            heights.append(kit.prompt.size.height)
            await kit.pilot.press("ctrl+j")
            await kit.pilot.pause()
        assert heights == [1, 2, 3, 4, 5, 6, 7, 8, 8, 8]


async def test_escape_leaves_the_prompt_so_that_digits_change_the_screen() -> None:
    async with chatting() as kit:
        assert "Leave prompt, then 1-8" in kit.seen()
        await kit.pilot.press("1")
        assert kit.prompt.text == "1"
        for key in ("enter", "tab", "shift+tab"):
            await kit.pilot.press("escape")
            assert kit.transcript.has_focus
            await kit.pilot.press(key)
            assert kit.prompt.has_focus
        assert kit.api.replies == []
        await kit.pilot.press("escape", "question_mark")
        await kit.until_seen("Keys on Chat")
        await kit.pilot.press("escape")
        await kit.until(lambda: kit.app.screen.is_current and "Keys on Chat" not in kit.seen())
        assert kit.transcript.has_focus, "a dialog leaves the focus alone"
        await kit.pilot.press("1")
        await kit.until(lambda: not kit.app.screen.query("#prompt"), "on another screen")


async def test_up_and_down_recall_what_was_sent_and_keep_the_draft() -> None:
    async with chatting() as kit:
        await kit.answered(question="first")
        await kit.answered(question="second\nline")
        await kit.type("draft")
        await kit.pilot.press("up")
        assert kit.prompt.text == "second\nline"
        await kit.pilot.press("up")
        assert kit.prompt.text == "first"
        await kit.pilot.press("up")
        assert kit.prompt.text == "first"
        await kit.pilot.press("down", "down", "down")
        assert kit.prompt.text == "draft"


async def test_what_is_pasted_has_line_ends_and_no_control_codes() -> None:
    from textual.events import Paste

    async with chatting() as kit:
        kit.prompt.post_message(Paste("a\r\nb\rc\x1b[31md\x07"))
        await kit.until(lambda: kit.prompt.text != "")
        assert kit.prompt.text == "a\nb\ncd"


# --- answers ----------------------------------------------------------------------------------------------


async def test_an_answer_appears_while_it_comes_and_gets_its_figures() -> None:
    async with chatting() as kit:
        reply = await kit.ask("Why?")
        assert "waiting for the first token" in kit.seen()
        kit.clock.tick(0.41)
        reply.send(ContentDelta("Because **of"), Usage(100, 1))
        await kit.until(lambda: "Because **of" in kit.said())
        kit.clock.tick(2.0)
        reply.send(ContentDelta("** it."), Usage(100, 85))
        reply.end(usage=Usage(100, 85, None, 88))
        await kit.until_seen("ttft 0.41 s   42.0 tok/s   85 tokens   prompt 100 (88 cached)")
        assert "Because of it." in kit.said()
        assert kit.said().startswith("you\nWhy?\n\nqwen36-35b\n")
        assert "context 185 of 262,144 tokens" in kit.seen()


async def test_reasoning_is_shown_while_it_comes_and_folds_when_the_answer_begins() -> None:
    async with chatting() as kit:
        reply = await kit.ask()
        reply.send(ReasoningDelta("Let me "))
        await kit.until_seen("Let me")
        kit.clock.tick(9.8)
        reply.send(ReasoningDelta("think."))
        await kit.until_seen("Let me think.", "reasoning")
        await kit.pilot.press("ctrl+t")
        await kit.until(lambda: "Let me think." not in kit.said())
        await kit.pilot.press("ctrl+t")
        await kit.until_seen("Let me think.")
        kit.transcript.set_reasoning(None)
        reply.send(ContentDelta("Done."))
        await kit.until_seen("Done.")
        assert "Let me think." not in kit.said()
        reply.end(usage=Usage(10, 500, 412))
        await kit.until_seen("+ reasoned for 9.8 s, 412 tokens  ^t show")
        await kit.pilot.press("ctrl+t")
        await kit.until_seen("Let me think.", "^t hide")
        await kit.pilot.press("ctrl+t")
        await kit.until(lambda: "Let me think." not in kit.said())


# --- stop, again, new -------------------------------------------------------------------------------------


async def test_escape_stops_at_once_keeps_the_partial_answer_and_closes_the_connection() -> None:
    async with chatting() as kit:
        reply = await kit.ask()
        reply.send(ContentDelta("Half an ans"))
        await kit.until_seen("Half an ans")
        await kit.type("second")
        await kit.pilot.press("enter")
        await kit.until_seen("Esc to stop")
        assert (kit.prompt.text, len(kit.api.replies)) == ("second", 1), "a second question waits"
        await kit.pilot.press("escape")
        assert kit.transcript.turns[-1].exchange.stopped
        await kit.until_seen("stopped")
        await kit.until(lambda: reply.closed, "closed")
        assert "Half an ans" in kit.said()
        await kit.pilot.press("escape")
        assert kit.prompt.has_focus, "Esc that comes just too late"
        kit.clock.tick(5)
        await kit.pilot.press("escape")
        assert kit.transcript.has_focus


async def test_again_asks_the_last_question_anew_and_replaces_its_answer() -> None:
    async with chatting() as kit:
        await kit.answered("Old answer.", "question")
        await kit.pilot.press("ctrl+g")
        await kit.until(lambda: len(kit.api.replies) == 2)
        assert [m.content for m in kit.api.replies[1].request.messages] == ["question"]
        kit.api.replies[1].send(ContentDelta("New answer."))
        kit.api.replies[1].end()
        await kit.until_seen("New answer.")
        assert "Old answer." not in kit.said()
        assert kit.said().count("question") == 1


async def test_a_new_conversation_sends_nothing_of_the_old_one_and_can_be_taken_back() -> None:
    async with chatting() as kit:
        await kit.answered("Old answer.", "old question")
        await kit.pilot.press("ctrl+n")
        await kit.until_seen("Chatting with qwen36-35b", "back to the last conversation")
        await kit.pilot.press("ctrl+n")
        await kit.until_seen("Old answer.")
        await kit.pilot.press("ctrl+n")
        reply = await kit.ask("fresh")
        assert [m.content for m in reply.request.messages] == ["fresh"]


async def test_the_last_answer_is_copied_without_control_codes() -> None:
    async with chatting() as kit:
        written: list[str] = []
        await kit.answered("Run `ls`\x1b[2J now.")
        driver = kit.app._driver
        assert driver is not None
        driver.write = written.append  # type: ignore[method-assign,assignment]
        await kit.pilot.press("ctrl+y")
        payload = base64.b64encode(b"Run `ls` now.").decode()
        assert any(f"\x1b]52;c;{payload}\x07" in text for text in written)
        await kit.until_seen("Answer sent to the terminal (OSC 52).")


# --- errors -----------------------------------------------------------------------------------------------

FAILURES: list[SparkError] = [
    EngineUnreachable("The connection broke.", "See its log: 4."),
    ApiKeyRejected("The API key was rejected.", "Set the key of this engine."),
    ModelNotServed("qwen36-35b is not served any more.", "1 shows what is."),
    ContextOverflow("The conversation is longer than the context.", "Start anew: ^n."),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: error.id)
async def test_an_error_stands_where_it_happened_with_its_remedy(error: SparkError) -> None:
    async with chatting() as kit:
        reply = await kit.ask()
        reply.send(ContentDelta("Half an ans"))
        reply.fail(error)
        remedy = "spark-tui has no key for qwen" if isinstance(error, ApiKeyRejected) else error.remedy
        await kit.until_seen(f"error  {error.summary}", remedy, "Half an ans", "^g retry")
        await kit.pilot.press("ctrl+g")
        await kit.until(lambda: len(kit.api.replies) == 2, "asked again")


async def test_a_failure_that_nobody_foresaw_stands_there_too() -> None:
    async with chatting() as kit:
        reply = await kit.ask()
        reply.send(ContentDelta("Half an ans"))
        reply.fail(ValueError("a fault of ours"))
        await kit.until_seen("error  spark-tui failed to read the answer.", "a fault of ours", "Half an ans")
        await kit.answered("It works again.")


# --- engines ----------------------------------------------------------------------------------------------


async def test_without_an_engine_the_screen_says_how_to_launch_one_and_digits_are_keys_after_esc() -> None:
    async with chatting({}) as kit:
        assert "No engine is serving." in kit.seen()
        assert "choose a preset and launch it" in kit.seen()
        await kit.pilot.press("3")
        assert kit.prompt.text == "3"
        await kit.pilot.press("escape", "3")
        await kit.until(lambda: not kit.app.screen.query("#prompt"), "on another screen")


async def test_what_was_written_for_an_engine_that_does_not_serve_yet_stays() -> None:
    async with chatting({"qwen": ""}) as kit:
        await kit.until_seen("qwen is not ready: starting")
        await kit.type("hello")
        assert "Enter sends when qwen is ready" in kit.seen()
        await kit.pilot.press("enter")
        await kit.until_seen("qwen is not ready: starting. Wait until it is ready.")
        assert kit.prompt.text == "hello"
        assert kit.api.replies == []
        kit.api.models_by_port["http://127.0.0.1:8000"] = "qwen36-35b"
        await kit.let_time_pass(lambda: "to qwen36-35b" in kit.seen())
        await kit.pilot.press("enter")
        await kit.until(lambda: bool(kit.api.replies), "asked")


async def test_a_change_of_the_engine_is_told_at_the_next_answer() -> None:
    async with chatting({"gpt": "gpt-oss-120b", "qwen": "qwen36-35b"}) as kit:
        await kit.answered("I am gpt.")
        kit.clock.tick(5)
        await kit.pilot.press("escape", "right_square_bracket")
        await kit.until_seen("to qwen36-35b")
        await kit.pilot.press("enter")
        reply = await kit.answered("I am qwen.")
        assert reply.endpoint.base_url == "http://127.0.0.1:8001"
        assert [m.content for m in reply.request.messages] == ["Hello", "I am gpt.", "Hello"]
        assert "qwen36-35b   on qwen, before on gpt" in kit.said()


async def test_the_engine_is_chosen_from_the_prompt() -> None:
    async with chatting({"gpt": "gpt-oss-120b", "qwen": "qwen36-35b"}) as kit:
        await kit.until_seen("to gpt")
        await kit.type("half a question")
        await kit.pilot.press("ctrl+k", "end", "enter")
        await kit.until_seen("to qwen36-35b")
        assert kit.prompt.text == "half a question"


async def test_a_wide_window_shows_what_the_conversation_costs() -> None:
    async with chatting(size=(180, 50)) as kit:
        await kit.answered("Yes.", usage=Usage(100, 28))
        await kit.until_seen("Last answer", "28 tokens", "128 of 262,144 tokens")
    async with chatting(size=(120, 36)) as kit:
        await kit.answered("Yes.", usage=Usage(100, 28))
        assert "Last answer" not in kit.seen()


# --- the transcript ---------------------------------------------------------------------------------------


async def test_the_end_is_followed_until_the_person_scrolls_up() -> None:
    async with chatting(size=(80, 24)) as kit:
        reply = await kit.ask()
        reply.send(ContentDelta(LONG))
        await kit.until_seen("paragraph 59")
        await kit.pilot.press("pageup")
        await kit.until_seen("lines below")
        assert not kit.transcript.following
        before = kit.transcript.scroll_y
        reply.send(ContentDelta("\n\n" + LONG.replace("paragraph", "more")))
        await kit.until(lambda: "more 59" in kit.said())
        assert kit.transcript.scroll_y == before
        await kit.pilot.press("end")
        await kit.until_seen("more 59")
        assert kit.transcript.following
        assert "below" not in kit.seen()
        await kit.pilot.press("pageup")
        assert not kit.transcript.following
        await kit.pilot.press("pagedown", "pagedown")
        assert kit.transcript.following


async def test_what_is_read_stays_where_it_is_when_reasoning_above_it_folds() -> None:
    async with chatting(size=(80, 24)) as kit:
        await kit.answered(LONG)
        reply = await kit.ask()
        reply.send(ReasoningDelta("\n".join(f"thought {number}" for number in range(40))), ContentDelta(LONG))
        reply.end()
        await kit.until(lambda: not kit.transcript.turns[-1].live)
        await kit.pilot.press("ctrl+t", "end", "pageup")
        top = kit.seen().split("\n")[3]
        assert "paragraph" in top
        kit.transcript.set_reasoning(None)
        await kit.pilot.pause()
        assert kit.seen().split("\n")[3] == top


async def test_an_answer_goes_on_while_another_screen_is_shown() -> None:
    async with chatting() as kit:
        reply = await kit.ask()
        reply.send(ContentDelta("begun "))
        await kit.until_seen("begun")
        kit.app.switch_mode("home")
        await kit.until(lambda: not kit.app.screen.query("#prompt"))
        reply.send(ContentDelta("and ended"))
        reply.end()
        await kit.until(lambda: reply.closed)
        kit.app.switch_mode("chat")
        await kit.until_seen("begun and ended")


@pytest.mark.parametrize(
    "text",
    [
        "[/red] [@click=app.quit]press[/] [bold]",
        "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b[?1049l\x9b31m visible",
        "[ok](app.quit) <http://x> ![i](app.quit)",
        "x" * 100_000,
        "漢字🚀" * 5_000,
        "[" * 50_000,
    ],
    ids=["markup", "escapes", "links", "one long line", "wide", "brackets"],
)
async def test_a_hostile_answer_is_text(text: str) -> None:
    async with chatting(size=(80, 24)) as kit:
        reply = await kit.ask()
        for start in range(0, len(text), 5_000):
            reply.send(ContentDelta(text[start : start + 5_000]))
            await kit.pilot.pause()
        reply.send(ReasoningDelta(text), ToolCallDelta(0, "c", text[:200], text))
        reply.end(text[:50])
        await kit.until(lambda: not kit.transcript.turns[-1].live)
        await kit.pilot.press("ctrl+t")
        await kit.pilot.click(kit.transcript, offset=(10, 5))
        assert kit.app.is_running
        assert kit.chat.is_current
        assert "\x1b" not in kit.said()
        height = kit.transcript.virtual_size.height
        top, widths = round(kit.transcript.scroll_y), set[int]()
        for y in range(0, height, 97):
            widths.add(kit.transcript.render_line(y - top).cell_length)
        assert widths == {kit.transcript.size.width}


async def test_the_mouse_folds_reasoning_and_marks_text_without_the_rules() -> None:
    async with chatting() as kit:
        reply = await kit.ask()
        reply.send(ReasoningDelta("thoughts"), ContentDelta("alpha beta"))
        reply.end()
        await kit.until_seen("alpha beta")
        rows = kit.seen().split("\n")
        headline = next(y for y, row in enumerate(rows) if "reasoned" in row)
        await kit.pilot.click(offset=(8, headline))
        await kit.until_seen("thoughts")
        rows = kit.seen().split("\n")
        answer = next(y for y, row in enumerate(rows) if "alpha beta" in row)
        start = rows[answer].index("alpha")
        await kit.pilot.mouse_down(offset=(start, answer))
        await kit.pilot.hover(offset=(start + 9, answer))
        await kit.pilot.mouse_up(offset=(start + 9, answer))
        assert kit.chat.get_selected_text() == "alpha beta"


# --- layout -----------------------------------------------------------------------------------------------

SHOWN = """Two ways to serve it:

1. **Eager**, slower but sure: `--enforce-eager`
2. With CUDA graphs, see [the log](https://example.org/log)

```python
llm = LLM("Qwen/Qwen3.6-35B-A3B")  # 漢字 are wide
print(llm.generate("Hello"))
```

| backend | tok/s |
|---|---|
| CUTLASS | 41.8 |
"""


async def _conversation(kit: Kit) -> None:
    reply = await kit.ask("How do I serve Qwen?")
    kit.clock.tick(0.41)
    reply.send(ReasoningDelta("They want commands."))
    await kit.until_seen("They want commands.")
    kit.clock.tick(9.8)
    reply.send(ContentDelta(SHOWN))
    await kit.until_seen("CUTLASS")
    kit.clock.tick(7.44)
    reply.send(ContentDelta("\n"))
    reply.end(usage=Usage(100, 312, 41, 88))
    await kit.until(lambda: not kit.transcript.turns[-1].live)


async def _failed(kit: Kit) -> None:
    await _conversation(kit)
    reply = await kit.ask("And then?")
    reply.send(ContentDelta("Then you"))
    reply.fail(FAILURES[0])
    await kit.until_seen("The connection broke.")


@pytest.mark.parametrize(
    ("size", "engines", "play"),
    [((80, 24), {}, None), ((80, 24), None, _failed), ((120, 36), None, _conversation)],
    ids=["empty", "failed", "finished"],
)
async def test_layout(
    size: tuple[int, int], engines: dict[str, str] | None, play: Callable[[Kit], Any] | None, snapshot: Any
) -> None:
    from pytest_textual_snapshot import SVGImageExtension

    async with chatting(engines, size=size) as kit:
        if play is not None:
            await play(kit)
        await kit.pilot.pause()
        picture = kit.app.export_screenshot(title="chat", simplify=True)
        assert picture == snapshot.use_extension(SVGImageExtension)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"state": EngineState.PAUSED}, ("paused in Docker", "docker unpause tiny")),
        ({"state": EngineState.NOT_ANSWERING, "health": Health.FAILING}, ("server error", "restart")),
    ],
)
def test_an_engine_that_cannot_answer_is_named_with_its_fault(changes: dict[str, Any], says: tuple[str, str]) -> None:
    facts = ContainerFacts(id="1" * 64, name="tiny", image="x", image_id="sha256:1", status=ContainerStatus.RUNNING)
    view = EngineView(facts, runtime="vllm", exposure=Exposure.LOCAL, **changes)
    problem = problem_with(view)
    assert problem is not None
    assert says[0] in problem.summary
    assert says[1] in problem.remedy
