"""down, restart, logs."""

from __future__ import annotations

import asyncio

import pytest

from spark_tui.base.engine.container import ContainerStatus
from spark_tui.base.errors import StreamBroken
from tests.cli.world import BOOT, World, example
from tests.fakes_metrics import FakeMetrics

# --- down -------------------------------------------------------------------------------------------------


def test_down_stops_and_keeps_the_log() -> None:
    world = example()
    result = world.run("down", "tiny-1b")
    assert (result.code, result.out) == (0, "")
    assert result.err == (
        "Stopping tiny-1b (at most 30 s, then it is killed) ...\n"
        "tiny-1b stopped.\n"
        "Its log is kept: spark-tui logs tiny-1b\n"
    )
    assert world.docker.named("tiny-1b").status is ContainerStatus.EXITED  # type: ignore[union-attr]


def test_down_twice_is_no_error() -> None:
    world = example()
    world.run("down", "tiny-1b")
    again = world.run("down", "tiny-1b", "--json")
    assert again.code == 0
    assert again.json == {
        "id": "tiny-1b",
        "container_id": world.docker.named("tiny-1b").id,  # type: ignore[union-attr]
        "was_running": False,
        "stopped": True,
        "removed": False,
    }
    assert len(world.docker.asked("stop")) == 1


def test_down_remove_takes_the_container_away() -> None:
    world = example()
    result = world.run("down", "tiny-1b", "--remove")
    assert result.code == 0
    assert result.err.endswith("tiny-1b stopped and is removed, its log too.\n")
    assert world.docker.named("tiny-1b") is None


def test_an_engine_of_somebody_else_is_stopped_and_never_removed() -> None:
    world = World()
    world.docker.add_container("theirs", image="lmsysorg/sglang:spark")
    refused = world.run("down", "theirs", "--remove")
    assert refused.code == 4
    assert "docker rm theirs" in refused.err
    assert world.docker.named("theirs").running  # type: ignore[union-attr]
    assert world.run("down", "theirs").code == 0


def test_a_container_that_is_no_engine_is_not_stopped() -> None:
    world = example()
    result = world.run("down", "db")
    assert result.code == 2
    assert "db is a container (postgres:17), and not one that serves a model." in result.err
    assert world.docker.named("db").running  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "command", [("down", "tinny"), ("restart", "tinny"), ("logs", "tinny"), ("chat", "tinny", "-m", "x")]
)
def test_an_unknown_name_gets_a_suggestion(command: tuple[str, ...]) -> None:
    result = example().run(*command)
    assert (result.code, result.out) == (2, "")
    assert "named tinny." in result.err
    assert "Did you mean tiny-1b?" in result.err


ASKED = (("logs",), ("explain",), ("metrics", "--seconds", "1"), ("chat", "-m", "x"))


@pytest.mark.parametrize("command", ASKED)
def test_without_a_name_the_only_engine_that_runs_is_meant(command: tuple[str, ...]) -> None:
    world = example()
    world.metrics, world.drive = FakeMetrics(world.clock), True
    result, named = world.run(*command), world.run(command[0], "tiny-1b", *command[1:])
    assert (result.code, named.code) == (0, 0)
    assert result.out.splitlines()[:1] == named.out.splitlines()[:1]


@pytest.mark.parametrize("command", [*ASKED, ("bench",), ("prove",)])
def test_without_a_name_several_engines_are_named_and_none_is_said(command: tuple[str, ...]) -> None:
    world = example()
    world.engine("other-7b", port=8001)
    result = world.run(*command)
    assert (result.code, result.out) == (2, "")
    assert "There are 2 engines: other-7b, tiny-1b." in result.err
    assert f"spark-tui {command[0]} other-7b" in result.err
    alone = World().run(*command)
    assert (alone.code, alone.out) == (2, "")
    assert "spark-tui up PRESET" in alone.err


def test_without_a_name_a_log_of_the_only_engine_is_read_after_its_end() -> None:
    world = World()
    world.failed_engine()
    assert world.run("explain", "--json").json["outcome"] == "failed"
    assert world.run("down").code == 2, "what changes something is named"


def test_an_id_names_an_engine_too() -> None:
    world = example()
    facts = world.docker.named("tiny-1b")
    assert facts is not None
    assert world.run("down", facts.id[:12]).code == 0
    assert not world.docker.named("tiny-1b").running  # type: ignore[union-attr]


@pytest.mark.parametrize("command", ["down", "restart"])
def test_read_only_refuses(command: str) -> None:
    world = example()
    result = world.run(command, "tiny-1b", "--read-only", "--json")
    assert (result.code, result.out) == (4, "")
    assert result.error["id"] == "refused"
    assert world.docker.asked("stop") == world.docker.asked("restart") == []


# --- restart ----------------------------------------------------------------------------------------------


def test_restart_returns_once_it_starts() -> None:
    world = example()
    result = world.run("restart", "tiny-1b")
    assert (result.code, result.out) == (0, "")
    assert result.err.endswith("tiny-1b is starting. Follow it: spark-tui logs tiny-1b -f\n")
    assert len(world.docker.asked("stop")) == len(world.docker.asked("start")) == 1


def test_restart_wait_follows_it_until_it_serves() -> None:
    result = example().run("restart", "tiny-1b", "--wait")
    assert (result.code, result.out) == (0, "http://127.0.0.1:8000\n")
    assert result.err == (
        "Restarting tiny-1b ...\n"
        "Boot              ...\n"
        "  Container       done       0.0s\n"
        "  Config          done       0.0s\n"
        "  Weights         done       0.0s\n"
        "Boot              done       0.0s\n"
        "Ready             done             tiny at http://127.0.0.1:8000\n"
        "Warm up           ...              compiles kernels\n"
        "Warm up           done       0.0s\n"
    )


def test_restart_as_data_ends_with_the_engine() -> None:
    lines = example().run("restart", "tiny-1b", "--wait", "--json").json_lines
    assert (lines[-1]["type"], lines[-1]["id"], lines[-1]["state"]) == ("result", "tiny-1b", "ready")


def test_ctrl_c_while_it_boots_again_says_that_it_goes_on() -> None:
    world = example()
    world.docker.on_start = None
    world.docker.script("vllm/vllm-openai:nightly", BOOT[:1])
    world.api.health_at.clear()
    world.interrupt_when(lambda: len(world.docker.asked("logs")) > 4)
    result = world.run("restart", "tiny-1b", "--wait")
    assert result.code == 130
    assert result.err.endswith(
        "Interrupted: tiny-1b keeps starting.\n"
        "  Follow its log:  spark-tui logs tiny-1b -f\n"
        "  Stop it:         spark-tui down tiny-1b\n"
    )


# --- logs -------------------------------------------------------------------------------------------------


def test_logs_are_the_lines() -> None:
    result = example().run("logs", "tiny-1b")
    assert (result.code, result.err) == (0, "")
    assert result.out == "".join(f"{line}\n" for line in BOOT)


def test_tail_is_the_last_lines() -> None:
    assert example().run("logs", "tiny-1b", "--tail", "1").out == f"{BOOT[-1]}\n"
    assert example().run("logs", "tiny-1b", "-n", "0").out == ""


def test_stamps_and_data_carry_dockers_time() -> None:
    line = example().run("logs", "tiny-1b", "-n1", "-t").out
    stamp, _, text = line.partition(" ")
    assert text == f"{BOOT[-1]}\n"
    assert example().run("logs", "tiny-1b", "-n1", "--json").json == {"stamp": stamp, "text": BOOT[-1]}


HOSTILE = "\x1b[31mred\x1b[0m \x1b]0;title\x07tail \x9b2J[/red] [@click=app.quit]x"


def test_control_codes_are_removed_unless_raw_is_asked_for() -> None:
    world = World()
    world.engine(lines=[HOSTILE, "\r10%|#  |\r100%|###|"], serving=False)
    assert world.run("logs", "tiny-1b").out == "red tail [/red] [@click=app.quit]x\n100%|###|\n"
    assert world.run("logs", "tiny-1b", "--raw").out == f"{HOSTILE}\n\r10%|#  |\r100%|###|\n"
    raw = world.run("logs", "tiny-1b", "--raw", "--json")
    assert raw.json_lines[0]["text"] == HOSTILE
    assert "\x9b" not in raw.out, "raw data is escaped, never written as it is"


@pytest.mark.parametrize("options", [(), ("--raw",), ("--json",), ("-t",)])
def test_secrets_are_masked_always(options: tuple[str, ...]) -> None:
    world = World()
    world.engine(
        lines=["non-default args: {'api_key': ['sekrit-value']}", "HF_TOKEN=hf_abcdefghijklmnopqrst"], serving=False
    )
    out = world.run("logs", "tiny-1b", *options).out
    assert "sekrit" not in out
    assert "hf_abcdef" not in out


def test_following_goes_on_until_the_engine_ends() -> None:
    world = World()
    world.engine(serving=False)

    def more() -> None:
        world.docker.write("tiny-1b", "one more")
        world.docker.end("tiny-1b", 3)

    world.when(lambda: bool(world.docker.asked("logs")), more)
    result = world.run("logs", "tiny-1b", "-f")
    assert result.code == 0
    assert result.out.endswith("one more\n")
    assert result.err == "tiny-1b ended 59m ago with exit code 3.\n"


def test_following_a_container_that_is_removed_says_so() -> None:
    world = World()
    world.engine(serving=False)
    removing: list[object] = []

    def remove() -> None:
        removing.append(asyncio.ensure_future(world.docker.remove("tiny-1b", force=True)))

    world.when(lambda: bool(world.docker.asked("logs")), remove)
    result = world.run("logs", "tiny-1b", "-f")
    assert (result.code, result.err) == (0, "tiny-1b has been removed.\n")


def test_ctrl_c_ends_following_without_a_word() -> None:
    world = example()
    world.interrupt_when(lambda: bool(world.docker.asked("logs")))
    result = world.run("logs", "tiny-1b", "-f")
    assert (result.code, result.err) == (130, "")


def test_a_stream_that_breaks_is_an_error_and_what_came_is_there() -> None:
    world = example()
    world.docker.fail("logs", StreamBroken("The connection to Docker broke.", "Ask again."))
    result = world.run("logs", "tiny-1b")
    assert result.code == 3
    assert "Ask again." in result.err


def test_the_log_of_any_container_can_be_read() -> None:
    world = example()
    world.docker.write("db", "ready to accept connections")
    assert world.run("logs", "db").out == "ready to accept connections\n"


@pytest.mark.parametrize("claim", ["bench-other", "edit-other", "update-other", "tune"])
def test_what_starts_an_engine_asks_while_spark_tui_does_what_it_would_disturb(claim: str) -> None:
    world = example()
    assert world.state.claim(claim), "another program"
    for words in (("up", "tiny-1b", "--name", "new"), ("restart", "tiny-1b")):
        assert world.run(*words, "--json").code == 4, "nobody can be asked"
        world.run(*words, keyboard="n\n")
    assert not world.docker.asked("create")
    assert not world.docker.asked("stop")
    assert world.run("up", "tiny-1b", "--name", "new", "--dry-run").code == 0
    assert world.run("restart", "tiny-1b", "--yes").code == 0
    assert world.run("down", "tiny-1b", "--json").code == 0, "it gives memory back"


@pytest.mark.parametrize("verb", ["down", "restart"])
def test_an_engine_that_is_measured_is_stopped_only_when_the_person_says_so(verb: str) -> None:
    world = example()
    assert world.state.claim("bench-tiny-1b"), "a benchmark of another program"
    refused = world.run(verb, "tiny-1b", "--json")
    assert refused.code == 4
    assert "measurement of tiny-1b" in refused.err
    assert world.run(verb, "tiny-1b", keyboard="n\n").code == 0
    assert not world.docker.asked("stop")
    assert world.run(verb, "tiny-1b", keyboard="y\n").code == 0
    assert world.run(verb, "tiny-1b", "--yes").code == 0
    assert world.docker.asked("stop")
    world.state.release("bench-tiny-1b")
    assert world.run(verb, "tiny-1b", "--json").code == 0
