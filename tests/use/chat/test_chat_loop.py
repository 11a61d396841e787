"""The chat's prompt: commands with a slash, tool calls, and conversations that are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.message import AnswerFinished, ContentDelta, Role, ToolCallDelta, Usage
from spark_tui.base.errors import UsageError
from spark_tui.base.files import SystemUserFiles
from spark_tui.base.host.vitals import HostPaths
from spark_tui.cli.session import Options, Session, Streams
from spark_tui.use.chat.adapter import FileConversations
from spark_tui.use.chat.command.chat import ChatOptions, start_chat
from spark_tui.use.chat.command.repl import COMMANDS, command_named
from tests.cli.world import Stream, World, example, typing
from tests.fakes_ports import Ports

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


@dataclass
class Kept(World):
    """A world whose conversations are files in `folder`."""

    folder: Path = Path("/nowhere")

    def context(self, options: Options, environment: Mapping[str, str]) -> Context:
        bare = super().context(options, environment)
        ports = Ports(
            self.clock, self.docker, self.api, self.host, self.gpu, self.presets, self.secrets, self.archive,
            conversations=FileConversations(self.folder / "conversations"), user_files=SystemUserFiles(self.folder),
        )  # fmt: skip
        return Context(bare.settings, ports, HostPaths("/store", "/caches", "/home/test"))


@pytest.fixture
def world(tmp_path: Path) -> Kept:
    given = example()
    return Kept(docker=given.docker, api=given.api, folder=tmp_path)


def talk(world: World, *lines: str, options: ChatOptions | None = None) -> tuple[str, str]:
    """What a person sees who types these lines: standard output and standard error."""
    out, err = Stream(tty=True), Stream(tty=True)
    streams = Streams(Stream(tty=True), out, err, {"NO_COLOR": "1", "COLUMNS": "200"})
    with Session(streams, world.context) as session:
        start_chat(session, "tiny-1b", options or ChatOptions(), ask=typing(*lines))
    return out.getvalue(), err.getvalue()


def asked(world: World) -> list[tuple[str, str]]:
    return [(message.role.value, message.content) for message in world.api.asked[-1].messages]


# --- commands -----------------------------------------------------------------------------------------------


def test_every_command_is_in_the_help(world: Kept) -> None:
    _, err = talk(world, "/help")
    assert all(f"/{command.name} " in err for command in COMMANDS.values())


def test_a_command_is_known_by_its_beginning_and_a_misspelt_one_is_named() -> None:
    assert command_named("ret").name == "retry"
    with pytest.raises(UsageError, match=r"Unknown command /retyr\. Did you mean /retry\?"):
        command_named("retyr")
    with pytest.raises(UsageError, match="begin with //"):
        command_named("")


def test_settings_are_set_shown_and_refused_by_name(world: Kept) -> None:
    _, err = talk(
        world, "/set temperature 0.3", "/set top_p=0.9", "/think off", "/system Be brief.", "/set warmth 3",
        "/set temperature 9", "/set", "Why?", "/set temperature default", "/system off", "Why?",
    )  # fmt: skip
    first, second = world.api.asked
    assert (first.parameters.temperature, first.parameters.top_p, first.parameters.thinking) == (0.3, 0.9, False)
    assert first.messages[0].content == "Be brief."
    assert second.parameters.temperature is None
    assert second.messages[0].role is Role.USER
    assert "There is no chat setting warmth." in err
    assert "temperature must be a number from 0 to 2; it is 9." in err
    assert "  temperature         0.3 " in err


def test_again_and_edit_replace_and_never_repeat(world: Kept) -> None:
    talk(world, "One", "Two", "/retry", "/edit 1 Eins", "/past")
    sent = [[each.content for each in request.messages if each.role is Role.USER] for request in world.api.asked]
    assert sent == [["One"], ["One", "Two"], ["One", "Two"], ["Eins"]]


def test_a_cut_answer_goes_on_and_only_the_new_text_is_written(world: Kept) -> None:
    world.api.events = [ContentDelta("Once upon"), AnswerFinished("length")]
    out, err = talk(world, "Tell", "/continue", "/continue")
    assert out == "Once upon\nOnce upon\nOnce upon\n"
    assert "or /continue" in err
    assert world.api.asked[2].messages[-1].content == "Once uponOnce upon"
    assert world.api.asked[2].go_on


def test_several_lines_and_a_leading_slash_can_be_said(world: Kept) -> None:
    talk(world, '"""', "a", "", 'b"""', "c\\", "d", "//etc/hosts is what?", "/etc/hosts is what?")
    assert [request.messages[-1].content for request in world.api.asked] == ["a\n\nb", "c\nd", "/etc/hosts is what?"]


def test_tool_calls_are_shown_and_not_run_and_the_next_line_is_a_question(world: Kept) -> None:
    (world.folder / "tools.json").write_text('[{"name": "weather"}]')
    world.api.events = [ToolCallDelta(0, "c1", "weather", '{"city": "Bern"}'), AnswerFinished("tool_calls")]
    _, err = talk(world, f"/tools {world.folder}/tools.json", "Weather?", "22 C")
    assert 'tool call: weather({"city": "Bern"})' in err
    assert [tool.name for tool in world.api.asked[0].tools] == ["weather"]
    spoken = 'weather({"city": "Bern"})'
    assert asked(world) == [("user", "Weather?"), ("assistant", spoken), ("user", "22 C")]
    assert len(world.api.asked) == 2


def test_a_picture_goes_with_the_next_question_and_no_other(world: Kept) -> None:
    (world.folder / "a.png").write_bytes(PNG)
    (world.folder / "b.png").write_text("no picture")
    world.presets.catalogue = replace(world.presets.catalogue, presets=())
    _, err = talk(world, f"/image {world.folder}/b.png", f"/image {world.folder}/a.png", "What?", "And?")
    assert "neither an image nor a sound" in err
    assert [[a.name for a in m.attachments] for m in world.api.asked[1].messages] == [["a.png"], [], []]


def test_a_model_that_takes_no_pictures_is_not_asked(world: Kept) -> None:
    (world.folder / "a.png").write_bytes(PNG)
    result = world.run("chat", "tiny-1b", "-m", "What?", "--image", str(world.folder / "a.png"))
    assert result.code == 4
    assert "tiny does not take images: it takes text." in result.err
    assert world.api.asked == []


def test_a_full_context_is_told_before_and_trimmed_only_by_a_person(world: Kept) -> None:
    world.api.events = [ContentDelta("a" * 4000), AnswerFinished("stop"), Usage(2500, 1300)]
    _, err = talk(world, "One", "Two", "Three", "/trim", "/trim 1", "Four", "/context", "/trim off")
    assert "context about 3,8" in err and "nearly full" in err
    assert "/trim 1  leave out the oldest exchange" in err
    assert len(world.api.asked[2].messages) == 5
    assert len(world.api.asked[3].messages) < 7


def test_another_model_that_is_not_served_is_refused_with_those_that_are(world: Kept) -> None:
    _, err = talk(world, "/model nope", "/model", "/engine nope", "/engine tiny-1b")
    assert "The engine does not serve nope." in err
    assert "It serves tiny" in err
    assert err.count("tiny at tiny-1b") == 3


# --- kept ---------------------------------------------------------------------------------------------------


def test_a_conversation_is_gone_on_with_later(world: Kept) -> None:
    talk(world, "Why?", "/title Sky", options=ChatOptions(settings=(("temperature", "0.5"),)))
    _, err = talk(world, "And?", options=ChatOptions(goes_on="last"))
    assert "Sky: 1 exchange." in err
    assert asked(world) == [("user", "Why?"), ("assistant", "Blue light scatters."), ("user", "And?")]
    assert world.api.asked[-1].parameters.temperature == 0.5
    [listed] = world.run("conversations", "--json").json
    assert (listed["title"], listed["exchanges"], listed["models"], listed["in_use"]) == ("Sky", 2, ["tiny"], False)


def test_a_single_question_is_kept_only_when_it_is_wanted(world: Kept) -> None:
    world.run("chat", "tiny-1b", "-m", "Why?")
    assert world.run("conversations", "--json").json == []
    world.run("chat", "tiny-1b", "-m", "Why?", "--save")
    last = world.run("chat", "tiny-1b", "-m", "And?", "--continue", "--json").json_lines[-1]
    [listed] = world.run("conversations", "list", "--json").json
    assert last["conversation"] == listed["id"]
    assert listed["exchanges"] == 2
    talk(world, "Secret", options=ChatOptions(keep=False))
    assert len(world.run("conversations", "--json").json) == 1


def test_conversations_are_shown_found_exported_imported_renamed_and_removed(world: Kept) -> None:
    talk(
        world,
        "Why?",
        f"/save {world.folder}/talk.json",
        f"/load {world.folder}/talk.json",
        "And?",
        f"/save {world.folder}/talk.md",
    )
    listed = world.run("conversations").out
    assert listed.count("Why?") == 2
    assert "## You\n\nAnd?" in world.run("conversations", "show", "last").out
    assert len(world.run("conversations", "show", "last", "--json").json["exchanges"]) == 2
    assert "And?" in world.run("conversations", "list", "--search", "and?").out
    for form, begins in (("markdown", "#"), ("json", "{")):
        exported = world.run("conversations", "export", "last", "--format", form, "--json").json
        assert (exported["format"], exported["text"][:1], exported["file"]) == (form, begins, None)
        assert exported["file_reason"]
    assert json.loads(exported["text"])["title"] == "Why?"
    saved = world.run("conversations", "export", "last", "-o", str(world.folder / "out.md"), "--json").json
    assert Path(saved["file"]).read_text() == saved["text"]
    file = str(world.folder / "talk.json")
    refused = world.run("conversations", "export", "last", "-o", file)
    assert (refused.code, "already exists" in refused.err) == (4, True)
    new = world.run("conversations", "import", file).out.strip()
    assert world.run("conversations", "rename", new, "Imported", "--json").json == {"id": new, "title": "Imported"}
    assert world.run("conversations", "show", new).out.startswith("# Imported\n")
    assert world.run("conversations", "rm", new, "--yes", "--json").json == {"id": new, "deleted": True}
    assert world.run("conversations", "show", new).code == 2
    assert world.run("conversations", "rm", "last", stdin="").code == 4
    assert len(world.run("conversations", "--json").json) == 2


def test_another_conversation_is_loaded_by_id_or_from_a_file(world: Kept) -> None:
    talk(world, "One", f"/save {world.folder}/one.json", "/new", "Two")
    talk(world, f"/load {world.folder}/one.json", "More")
    assert [content for role, content in asked(world) if role == "user"] == ["One", "More"]
    first = world.run("conversations", "--json").json[-1]["id"]
    talk(world, f"/load {first}", "Again", "/list")
    assert next(content for role, content in asked(world) if role == "user") in ("One", "Two")


# --- as data ------------------------------------------------------------------------------------------------


def test_an_answer_as_data_says_how_it_was_made(world: Kept) -> None:
    result = world.run(
        "chat", "tiny-1b", "-m", "Why?", "--json", "--top-k", "20", "--stop", "END", "--effort", "high",
        "--schema", '{"type": "object"}', "--keep-thinking", "--budget", "64",
    )  # fmt: skip
    answer = result.json_lines[-1]
    assert answer["parameters"] == {
        "top_k": 20, "stop": ["END"], "reasoning_effort": "high", "schema": '{"type":"object"}',
        "preserve_thinking": True, "thinking_budget": 64,
    }  # fmt: skip
    assert (answer["outcome"], answer["context_used_tokens"], answer["context_limit_tokens"]) == ("complete", 17, 4096)
    assert answer["queue_seconds"] is None
    assert answer["queue_seconds_reason"]
    assert answer["conversation"] is None


@pytest.mark.parametrize(
    "arguments",
    [("--temperature", "9"), ("--effort", "huge"), ("--schema", "{"), ("--tools", "/no/such"), ("--image", "/no/such")],
)
def test_what_cannot_be_used_is_a_usage_error_before_anything_is_asked(world: Kept, arguments: tuple[str, str]) -> None:
    result = world.run("chat", "tiny-1b", "-m", "Why?", *arguments)
    assert result.code == 2
    assert world.api.asked == []


def test_a_schema_and_a_system_prompt_come_from_files(world: Kept) -> None:
    (world.folder / "s.json").write_text('{"type": "object"}')
    (world.folder / "p.txt").write_text("Be brief.")
    arguments = ("--schema", f"@{world.folder}/s.json", "--system", f"@{world.folder}/p.txt")
    assert world.run("chat", "tiny-1b", "-m", "Why?", *arguments).code == 0
    assert world.api.asked[0].parameters.schema == '{"type":"object"}'
    assert asked(world)[0] == ("system", "Be brief.")


def test_a_preset_s_sampling_holds_where_nothing_was_typed(world: Kept) -> None:
    tiny = world.presets.catalogue.presets[-1]
    facts = replace(tiny.facts, sampling=(("temperature", 0.7), ("top_p", 0.95)))
    world.presets.catalogue = replace(world.presets.catalogue, presets=(replace(tiny, facts=facts),))
    world.run("chat", "tiny-1b", "-m", "Why?", "--temperature", "0")
    assert (world.api.asked[0].parameters.temperature, world.api.asked[0].parameters.top_p) == (0.0, 0.95)
