"""The frame: help, version, usage errors, options on both sides, streams that break, and the exit codes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from spark_tui import __version__
from spark_tui.app.main import cli, run
from spark_tui.app.rooms import ROOMS
from spark_tui.base.context import Context
from spark_tui.base.errors import ContainerNotFound, ExitCode, ModelNotServed, UsageError
from spark_tui.catalog.models.model.hub import HubFileMissing, HubRepoMissing, HubRevisionMissing
from spark_tui.cli.session import Options, Streams
from tests import TESTS
from tests.cli.world import Stream, World, example, in_process

MODULE = (sys.executable, "-m", "spark_tui")


def _environment(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}


def _process(*arguments: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MODULE, *arguments], env=_environment(tmp_path), capture_output=True, text=True, stdin=subprocess.DEVNULL,
        timeout=60, check=False,
    )  # fmt: skip


# --- help and version -------------------------------------------------------------------------------------


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"spark-tui {__version__}\n"


def test_every_command_has_help_within_90_columns(capsys: pytest.CaptureFixture[str]) -> None:
    faults = []
    for command in ([], *([name] for name in ROOMS.commands())):
        code, told = run([*command, "-h"]), capsys.readouterr().out
        wide = [line for line in told.splitlines() if len(line) > 90]
        faults += [(command, code, wide)] if code or wide or not told.startswith("Usage: spark-tui") else []
    assert faults == []


def test_help_lists_every_command_and_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    told = capsys.readouterr().out
    for command in ROOMS.commands():
        assert f"\n  {command} " in told
    assert "Exit codes: 0 done, 1 failed, 2 usage error or unknown name, 3 Docker" in told


# --- usage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("statsu",), "Did you mean 'status'"),
        (("conf",), "'config'"),
        (("--frob",), "No such option"),
        (("up",), "Missing argument 'PRESET'."),
        (("presets", "shwo"), "Did you mean 'show'?"),
        (("logs", "x", "--tail", "-1"), "--tail"),
    ],
)
def test_wrong_usage_exits_2_and_points_to_the_help(arguments: tuple[str, ...], words: str) -> None:
    result = World().run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Error: ")
    assert words in result.err
    assert "--help" in result.err


def test_names_are_found_whatever_their_case() -> None:
    world = example()
    assert world.run("PS", "--json").json == world.run("ps", "--json").json
    assert world.run("logs", "Tiny-1B").out == world.run("logs", "tiny-1b").out != ""
    assert (
        world.run("presets", "show", "TINY-1B", "--json").json == world.run("presets", "show", "tiny-1b", "--json").json
    )


def test_chat_without_a_terminal_names_an_unknown_engine_first() -> None:
    result = example().run("chat", "tiny", stdin="")
    assert result.code == 2
    assert "There is no engine named tiny." in result.err
    assert "Did you mean tiny-1b?" in result.err


def test_wrong_usage_with_json_is_an_error_object() -> None:
    for arguments in (("--json", "up"), ("up", "--json"), ("frob", "--json")):
        result = World().run(*arguments)
        assert (result.code, result.error["id"], result.error["exit_code"]) == (2, "usage", 2)


@pytest.mark.parametrize("arguments", [("--json", "ps"), ("ps", "--json")])
def test_an_option_may_stand_on_either_side_of_the_command(arguments: tuple[str, ...]) -> None:
    assert World().run(*arguments).json == []


def test_what_was_typed_reaches_the_core() -> None:
    world = World()
    world.run("--store", "/models", "ps", "--read-only", "--docker-host", "unix:///x.sock", "--config", "/etc/spark")
    assert world.opened == [Options(read_only=True, store="/models", docker_host="unix:///x.sock", config="/etc/spark")]


# --- the control centre -----------------------------------------------------------------------------------


def test_the_control_centre_needs_a_terminal() -> None:
    result = World().run(stdin="")
    assert (result.code, result.out) == (2, "")
    assert "needs a terminal" in result.err


def test_the_control_centre_has_no_json() -> None:
    assert World().run("--json", tty=True).code == 2


# --- how a run ends ---------------------------------------------------------------------------------------


def test_every_exit_code_of_the_contract_is_used() -> None:
    world = example()
    assert world.run("ps").code == ExitCode.DONE
    assert world.run("metrics", "tiny-1b").code == ExitCode.FAILED
    assert world.run("frob").code == ExitCode.USAGE
    assert world.run("down", "tiny-1b", "--read-only").code == ExitCode.REFUSED
    world.interrupt_when(lambda: bool(world.docker.asked("logs")))
    assert world.run("logs", "tiny-1b", "-f").code == ExitCode.INTERRUPTED
    world.docker.go_down()
    assert world.run("ps").code == ExitCode.UNREACHABLE


def test_the_core_is_closed_whatever_happens() -> None:
    for command in (("ps",), ("down", "nothing"), ("chat", "nothing", "-m", "x")):
        world = example()
        world.run(*command)
        assert world.docker.closed
        assert world.gpu.closed


def test_ctrl_c_before_anything_happens_is_quiet() -> None:
    def opener(options: Options, environment: object) -> Context:
        raise KeyboardInterrupt

    streams = Streams(Stream(tty=True), Stream(), Stream(), {})
    assert run(["ps"], streams, opener) == 130


class _Broken(io.StringIO):
    """A stream whose reader has gone, or whose disk is full."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error

    def write(self, text: str) -> int:
        raise self._error


def test_a_reader_that_has_gone_is_no_error() -> None:
    err = Stream()
    streams = Streams(Stream(tty=True), _Broken(BrokenPipeError(32, "Broken pipe")), err, {})
    assert run(["ps"], streams, example().context) == 0
    assert err.getvalue() == ""


def test_a_full_disk_is_an_error() -> None:
    err = Stream()
    streams = Streams(Stream(tty=True), _Broken(OSError(28, "No space left on device")), err, {})
    assert run(["ps"], streams, example().context) == 1
    assert "Standard output cannot be written: No space left on device." in err.getvalue()


def test_closed_streams_are_no_fault() -> None:
    assert run(["ps"], Streams(None, None, None, {}), example().context) == 0
    assert run(["down", "x"], Streams(None, None, None, {}), example().context) == 2


def test_a_stderr_that_breaks_does_not_hide_the_exit_code() -> None:
    streams = Streams(Stream(tty=True), Stream(), _Broken(BrokenPipeError(32, "x")), {})
    assert run(["down", "x"], streams, example().context) == 2


def test_an_old_locale_gets_question_marks_and_no_traceback() -> None:
    world = World()
    world.engine(lines=["größer 東"], serving=False)
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    assert run(["logs", "tiny-1b"], Streams(Stream(tty=True), out, Stream(), {}), world.context) == 0
    assert raw.getvalue() == b"gr??er ?\n"
    assert run(["logs", "tiny-1b", "--json"], Streams(Stream(tty=True), out, Stream(), {}), world.context) == 0
    assert b"gr\\u00f6\\u00dfer" in raw.getvalue()


# --- as a process -----------------------------------------------------------------------------------------


def test_a_pipe_into_head_is_silent(tmp_path: Path) -> None:
    command = f"{sys.executable} -m spark_tui presets show gpt-oss-120b | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, capture_output=True,
        text=True, timeout=60, check=False, cwd=TESTS.parent,
    )  # fmt: skip
    assert done.stdout == "gpt-oss-120b\n"
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode == 0


def test_without_docker_memory_is_still_told(tmp_path: Path) -> None:
    done = _process("status", tmp_path=tmp_path)
    assert done.returncode == 3
    assert "memory" in done.stdout
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dry_run_needs_no_docker(tmp_path: Path) -> None:
    done = _process("up", "gpt-oss-120b", "--dry-run", tmp_path=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("docker run -d \\\n  --name gpt-oss-120b")


def test_a_settings_file_that_is_wrong_is_named_with_its_line(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "spark-tui"
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text('\nstor = "/x"\n')
    done = in_process(("ps",), _environment(tmp_path))
    assert done.returncode == 2
    assert "settings.toml:2" in done.stderr
    assert "Did you mean `store`?" in done.stderr


def test_options_on_the_command_line_win_over_the_settings(tmp_path: Path) -> None:
    words = ("up", "gpt-oss-120b", "--dry-run", "--store", "/somewhere", "--config", str(tmp_path / "else"))
    assert "-v /somewhere:/models" in in_process(words, _environment(tmp_path)).stdout
    wrong = in_process(("ps", "--docker-host", "/var/run/x.sock"), _environment(tmp_path))
    assert wrong.returncode == 2
    assert "--docker-host must be an address" in wrong.stderr


def test_the_static_table_says_what_the_commands_say() -> None:
    for name, summary in ROOMS.commands().items():
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert " ".join((command.help or "").split()).startswith(summary.removesuffix("."))


def test_a_name_that_nothing_has_is_one_and_the_same_exit_code() -> None:
    named = (UsageError, ContainerNotFound, ModelNotServed, HubRepoMissing, HubRevisionMissing, HubFileMissing)
    assert {error.exit_code for error in named} == {ExitCode.USAGE}
    commands = (
        "down", "restart", "secure", "logs", "metrics", "bench", "up", "presets show", "presets check", "fit",
        "results show",
    )  # fmt: skip
    assert {name: example().run(*name.split(), "nope").code for name in commands} == dict.fromkeys(
        commands, ExitCode.USAGE
    )
