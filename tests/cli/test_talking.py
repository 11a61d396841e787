"""chat: one question, piped text, a conversation, data, and engines that do not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from spark_tui.cli.chat import ChatOptions, start_chat
from spark_tui.cli.main import run
from spark_tui.cli.session import Session, Streams
from spark_tui.domain.chat.message import ContentDelta, Finished, Message, ReasoningDelta, Role, ToolCallDelta, Usage
from spark_tui.domain.engine.container import LABEL_API_KEY_FILE, ContainerStatus
from spark_tui.domain.engine.state import Health
from spark_tui.domain.errors import ContextOverflow, ReplyCutOff
from spark_tui.domain.secret import Secret
from tests.cli.world import Stream, World, example

ASK = ("chat", "tiny-1b", "-m", "Why is the sky blue?")


def test_the_answer_goes_to_stdout_and_its_figures_to_stderr() -> None:
    result = example().run(*ASK)
    assert (result.code, result.out) == (0, "Blue light scatters.\n")
    assert result.err == "ttft 0.00 s   5 tokens (2 reasoning)   prompt 12 (8 cached)   context 0 %\n"


def test_what_was_typed_reaches_the_engine() -> None:
    world = example()
    world.run(
        *ASK, "--system", "Be brief.", "--temperature", "0.5", "--top-p", "0.9", "--max-tokens", "64", "--seed", "7",
        "--no-thinking", "--effort", "low",
    )  # fmt: skip
    (request,) = world.api.asked
    assert request.model == "tiny"
    assert request.messages == (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Why is the sky blue?"))
    asked = request.parameters
    assert (asked.temperature, asked.top_p, asked.max_tokens, asked.seed) == (0.5, 0.9, 64, 7)
    assert (asked.thinking, asked.reasoning_effort) == (False, "low")


def test_what_was_not_typed_is_left_to_the_server() -> None:
    world = example()
    world.run(*ASK)
    asked = world.api.asked[0].parameters
    assert (asked.temperature, asked.max_tokens, asked.thinking, asked.reasoning_effort) == (None, None, None, "")


@pytest.mark.parametrize(
    ("message", "piped", "sent"),
    [
        (None, "Explain.\n", "Explain."),
        ("Review:", "diff --git a b\n", "Review:\n\ndiff --git a b"),
        ("Just this.", "", "Just this."),
    ],
)
def test_piped_text_is_the_message_or_stands_below_it(message: str | None, piped: str, sent: str) -> None:
    world = example()
    arguments = ("chat", "tiny-1b", *(() if message is None else ("-m", message)))
    assert world.run(*arguments, stdin=piped).code == 0
    assert world.api.asked[0].messages[-1].content == sent


@pytest.mark.parametrize("piped", ["", " \n"])
def test_nothing_to_ask_is_a_usage_error(piped: str) -> None:
    result = example().run("chat", "tiny-1b", stdin=piped)
    assert result.code == 2
    assert "The message is empty." in result.err


def test_without_any_standard_input_only_the_message_counts() -> None:
    world = example()
    streams = Streams(None, Stream(), Stream(), {})
    assert run(["chat", "tiny-1b", "-m", "x"], streams, world.context) == 0
    assert run(["chat", "tiny-1b"], streams, world.context) == 2


def test_data_without_a_question_is_a_usage_error() -> None:
    assert example().run("chat", "tiny-1b", "--json").code == 2


def test_reasoning_is_shown_on_stderr_when_asked_for_and_never_on_stdout() -> None:
    quiet, told = example().run(*ASK), example().run(*ASK, "--show-reasoning")
    assert "Hm." not in quiet.out + quiet.err
    assert told.out == quiet.out
    assert told.err.startswith("Hm. \n")


def test_the_key_that_was_kept_is_used() -> None:
    world = World()
    path = world.secrets.env_file("tiny-1b", {"VLLM_API_KEY": Secret("key-1")})
    world.engine(more_labels=((LABEL_API_KEY_FILE, str(path)),))
    result = world.run(*ASK)
    assert world.api.keys == ["key-1"]
    assert "key-1" not in result.out + result.err


def test_as_data_every_piece_is_a_line_and_the_answer_the_last() -> None:
    lines = example().run(*ASK, "--json").json_lines
    assert (lines[0]["type"], lines[-1]["type"]) == ("reasoning", "answer")
    assert "".join(line["text"] for line in lines if line["type"] == "content") == "Blue light scatters."
    answer = lines[-1]
    assert (answer["content"], answer["reasoning"]) == ("Blue light scatters.", "Hm. ")
    assert (answer["prompt_tokens"], answer["completion_tokens"]) == (12, 5)
    assert answer["finish_reason"] == "stop"
    assert answer["ttft_seconds"] == 0.0


def test_tool_calls_are_told() -> None:
    world = example()
    world.api.events = [
        ToolCallDelta(0, "c1", "weather", '{"city":'),
        ToolCallDelta(0, arguments='"Oslo"}'),
        Finished("tool_calls"),
    ]
    assert 'tool call: weather({"city":"Oslo"})' in world.run(*ASK).err
    call, answer = world.run(*ASK, "--json").json_lines
    assert call == {"type": "tool_call", "id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'}
    assert answer["tool_calls"] == [{"id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'}]


def test_an_answer_cut_at_the_limit_says_so() -> None:
    world = example()
    world.api.events = [ContentDelta("Blue"), Finished("length"), Usage(1, 1)]
    assert "note: Answer cut at the token limit. Raise it with --max-tokens, or /continue." in world.run(*ASK).err


def test_only_reasoning_is_no_answer_and_says_so() -> None:
    world = example()
    world.api.events = [ReasoningDelta("Hm."), Finished("stop")]
    result = world.run(*ASK)
    assert (result.code, result.out) == (0, "")
    assert "note: The answer is empty: only reasoning." in result.err


def test_hostile_answers_are_text() -> None:
    world = example()
    world.api.events = [ContentDelta("\n\n\x1b]0;x\x07[/red]\x1b[2J"), ContentDelta("ok"), Finished("stop")]
    assert world.run(*ASK).out == "[/red]ok\n"
    assert "\x1b" not in world.run(*ASK, "--json").out


def test_an_answer_that_breaks_off_is_kept_and_is_a_failure() -> None:
    world = example()
    world.api.events = [ContentDelta("Blue li"), ReplyCutOff("The stream ended in the middle.", "Ask again.")]
    result = world.run(*ASK)
    assert (result.code, result.out) == (1, "Blue li\n")
    assert result.err == "Error: The stream ended in the middle.\n  Ask again.\n"


def test_ctrl_c_stops_the_answer() -> None:
    world = example()
    world.api.hang = True
    world.interrupt_when(lambda: bool(world.api.asked))
    result = world.run(*ASK)
    assert (result.code, result.out) == (130, "Blue light scatters.\n")
    assert "Traceback" not in result.err


# --- engines that do not answer -----------------------------------------------------------------------------


def test_an_engine_that_starts_is_not_ready_yet() -> None:
    world = World()
    world.engine(serving=False)
    result = world.run(*ASK)
    assert result.code == 3
    assert "is not ready yet: port 8000 is not listening." in result.err
    assert "spark-tui logs tiny-1b -f" in result.err


def test_an_ended_engine_says_how_to_start_it() -> None:
    world = World()
    world.engine(serving=False, status=ContainerStatus.EXITED, exit_code=0)
    result = world.run(*ASK)
    assert result.code == 3
    assert "Start it: spark-tui restart tiny-1b" in result.err


def test_a_dead_engine_behind_its_server_is_told_apart() -> None:
    world = World()
    world.engine()
    world.api.health_at = dict.fromkeys(world.api.health_at, Health.DEAD)
    result = world.run(*ASK)
    assert result.code == 3
    assert "is dead" in result.err


def test_an_engine_without_a_port_cannot_be_reached() -> None:
    world = World()
    world.docker.add_container("theirs", image="vllm/vllm-openai:nightly")
    assert world.run("chat", "theirs", "-m", "x").code == 3


# --- a conversation -------------------------------------------------------------------------------------------


@contextmanager
def _conversation(world: World) -> Iterator[tuple[Session, Stream, Stream]]:
    out, err = Stream(tty=True), Stream(tty=True)
    streams = Streams(Stream(tty=True), out, err, {"NO_COLOR": "1", "COLUMNS": "80"})
    with Session(streams, world.context) as session:
        yield session, out, err


def _person(*lines: str) -> Callable[[str], str]:
    left = list(lines)

    def ask(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return ask


def test_a_conversation_remembers_and_ends_at_end_of_file() -> None:
    world = example()
    with _conversation(world) as (session, out, _):
        start_chat(session, "tiny-1b", ChatOptions(), ask=_person("Why?", "  ", "And at night?"))
    assert out.getvalue() == "Blue light scatters.\nBlue light scatters.\n"
    assert [message.role for message in world.api.asked[1].messages] == [Role.USER, Role.ASSISTANT, Role.USER]
    assert world.api.asked[1].messages[1].content == "Blue light scatters."


def test_an_error_in_a_conversation_is_told_and_the_question_is_taken_back() -> None:
    world = example()
    world.api.events = [ContextOverflow("The prompt is too long.", "Shorten it.")]
    with _conversation(world) as (session, _, err):
        start_chat(session, "tiny-1b", ChatOptions(), ask=_person("Why?", "Why then?"))
    assert "The prompt is too long." in err.getvalue()
    assert [message.content for message in world.api.asked[1].messages] == ["Why then?"]


def test_ctrl_c_stops_an_answer_and_the_conversation_goes_on() -> None:
    world = example()
    world.api.hang = True
    world.interrupt_when(lambda: bool(world.api.asked))

    with _conversation(world) as (session, out, err):
        person = _person("Why?", "Go on.")

        def ask(prompt: str) -> str:
            world.api.hang = not world.api.asked
            return person(prompt)

        start_chat(session, "tiny-1b", ChatOptions(), ask=ask)
    assert "(stopped)" in err.getvalue()
    assert out.getvalue() == "Blue light scatters.\n" * 2
    assert len(world.api.asked) == 2
