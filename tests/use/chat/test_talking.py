"""chat: one question, piped text, a conversation, data, and engines that do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark_tui.app.main import run
from spark_tui.base.engine.container import LABEL_API_KEY_FILE, ContainerStatus
from spark_tui.base.engine.message import (
    AnswerFinished,
    ChatEvent,
    ChatParameters,
    ContentDelta,
    Message,
    ReasoningDelta,
    Role,
    ToolCallDelta,
    Usage,
)
from spark_tui.base.engine.state import Health
from spark_tui.base.errors import ContextOverflow, ExitCode, ReplyCutOff
from spark_tui.base.secret import Secret
from spark_tui.cli.session import Session, Streams
from spark_tui.use.chat.command.chat import ChatOptions, start_chat
from tests.cli.world import Stream, World, example, typing

ASK = ("chat", "tiny-1b", "-m", "Why is the sky blue?")


def test_the_answer_goes_to_stdout_and_its_figures_to_stderr() -> None:
    world = example()
    result = world.run(*ASK)
    assert (result.code, result.out) == (0, "Blue light scatters.\n")
    assert world.api.asked[0].parameters == ChatParameters(), "what was not typed is left to the server"
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


def test_without_any_standard_input_only_the_message_counts() -> None:
    world = example()
    streams = Streams(None, Stream(), Stream(), {})
    assert run(["chat", "tiny-1b", "-m", "x"], streams, world.context) == 0
    assert run(["chat", "tiny-1b"], streams, world.context) == 2


@pytest.mark.parametrize(("arguments", "piped"), [((), ""), ((), " \n"), (("--json",), "")])
def test_without_a_question_it_is_a_usage_error(arguments: tuple[str, ...], piped: str) -> None:
    assert example().run("chat", "tiny-1b", *arguments, stdin=piped).code == 2


def test_piped_text_without_an_end_is_refused() -> None:
    world, endless = example(), open("/dev/zero", encoding="utf-8")  # noqa: SIM115, PTH123 - closed below
    with endless:
        streams = Streams(endless, Stream(), Stream(), {})
        assert run(["chat", "tiny-1b", "-m", "x"], streams, world.context) == ExitCode.REFUSED
    assert world.api.asked == []


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
        AnswerFinished("tool_calls"),
    ]
    assert 'tool call: weather({"city":"Oslo"})' in world.run(*ASK).err
    call, answer = world.run(*ASK, "--json").json_lines
    assert call == {"type": "tool_call", "id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'}
    assert answer["tool_calls"] == [{"id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'}]


@pytest.mark.parametrize(
    ("event", "reason", "out", "note"),
    [
        (ContentDelta("Blue"), "length", "Blue\n", "cut at the token limit. Raise it with --max-tokens, or /continue."),
        (ReasoningDelta("Hm."), "stop", "", "The answer is empty: only reasoning."),
    ],
)
def test_an_answer_that_is_not_whole_has_a_note(event: ChatEvent, reason: str, out: str, note: str) -> None:
    world = example()
    world.api.events = [event, AnswerFinished(reason), Usage(1, 1)]
    result = world.run(*ASK)
    assert (result.code, result.out) == (0, out)
    assert note in result.err


def test_hostile_answers_are_text() -> None:
    world = example()
    world.api.events = [ContentDelta("\n\n\x1b]0;x\x07[/red]\x1b[2J"), ContentDelta("ok"), AnswerFinished("stop")]
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


def test_an_answer_that_stays_away_is_told_once_and_how_to_stop_it() -> None:
    world = example()
    world.drive, world.api.hang, world.api.events = True, True, []
    begun = world.clock.monotonic()
    world.interrupt_when(lambda: world.clock.monotonic() > begun + 60)
    result = world.run(*ASK)
    assert (result.code, result.out) == (130, "")
    assert result.err.count("Nothing from tiny-1b for 10 s") == 1
    assert "Ctrl-C" in result.err


# --- engines that do not answer -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("starts", ("is not ready yet: port 8000 is not listening.", "spark-tui logs tiny-1b -f")),
        ("ended", ("Start it: spark-tui restart tiny-1b",)),
        ("dead", ("is dead",)),
        ("failing", ("is answering with a server error", "spark-tui restart tiny-1b")),
        ("paused", ("is paused in Docker", "docker unpause tiny-1b")),
        ("no port", ("docker run -p",)),
    ],
)
def test_an_engine_that_cannot_answer_says_why(how: str, says: tuple[str, ...]) -> None:
    world, name = World(), "tiny-1b"
    if how == "starts":
        world.engine(serving=False)
    elif how == "ended":
        world.engine(serving=False, status=ContainerStatus.EXITED, exit_code=0)
    elif how == "paused":
        world.engine(status=ContainerStatus.PAUSED)
    elif how == "failing":
        world.engine()
        world.api.health_at = dict.fromkeys(world.api.health_at, Health.FAILING)
    elif how == "dead":
        world.engine()
        world.api.health_at = dict.fromkeys(world.api.health_at, Health.DEAD)
    else:
        name = "theirs"
        world.docker.add_container(name, image="vllm/vllm-openai:nightly")
    result = world.run("chat", name, "-m", "x")
    assert result.code == 3
    assert all(text in result.err for text in says)


# --- a conversation -------------------------------------------------------------------------------------------


@contextmanager
def _conversation(world: World) -> Iterator[tuple[Session, Stream, Stream]]:
    out, err = Stream(tty=True), Stream(tty=True)
    streams = Streams(Stream(tty=True), out, err, {"NO_COLOR": "1", "COLUMNS": "80"})
    with Session(streams, world.context) as session:
        yield session, out, err


def test_a_conversation_remembers_and_ends_at_end_of_file() -> None:
    world = example()
    with _conversation(world) as (session, out, _):
        start_chat(session, "tiny-1b", ChatOptions(), ask=typing("Why?", "  ", "And at night?"))
    assert out.getvalue() == "Blue light scatters.\nBlue light scatters.\n"
    assert [message.role for message in world.api.asked[1].messages] == [Role.USER, Role.ASSISTANT, Role.USER]
    assert world.api.asked[1].messages[1].content == "Blue light scatters."


def test_an_error_in_a_conversation_is_told_and_the_question_is_taken_back() -> None:
    world = example()
    world.api.events = [ContextOverflow("The prompt is too long.", "Shorten it.")]
    with _conversation(world) as (session, _, err):
        start_chat(session, "tiny-1b", ChatOptions(), ask=typing("Why?", "Why then?"))
    assert "The prompt is too long." in err.getvalue()
    assert [message.content for message in world.api.asked[1].messages] == ["Why then?"]


def test_ctrl_c_stops_an_answer_and_the_conversation_goes_on() -> None:
    world = example()
    world.api.hang = True
    world.interrupt_when(lambda: bool(world.api.asked))

    with _conversation(world) as (session, out, err):
        person = typing("Why?", "Go on.")

        def ask(prompt: str) -> str:
            world.api.hang = not world.api.asked
            return person(prompt)

        start_chat(session, "tiny-1b", ChatOptions(), ask=ask)
    assert "(stopped)" in err.getvalue()
    assert out.getvalue() == "Blue light scatters.\n" * 2
    assert len(world.api.asked) == 2
