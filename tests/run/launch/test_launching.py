"""up: dry runs, the story that it tells in a pipe, on a terminal and as data, refusals, failures, Ctrl-C."""

from __future__ import annotations

import re
import shlex

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LayerProgress
from spark_tui.base.engine.docker_run import render_argv
from spark_tui.base.errors import GpuDriverMissing, PortInUse
from spark_tui.base.finding import Ok
from spark_tui.base.quantities import GIB
from spark_tui.base.secret import Secret
from spark_tui.base.settings import Settings
from tests.cli.world import BOOT, IMAGE, World
from tests.fakes_host import IDLE_MEMORY

UP = ("up", "tiny-1b")


def ready_world(**changes: object) -> World:
    """The image downloaded, and what is started from it serves at once."""
    world = World(**changes)  # type: ignore[arg-type]
    world.docker.add_image(IMAGE)
    world.docker.script(IMAGE, BOOT)
    world.docker.on_start = world.api.serve
    return world


# --- dry run ----------------------------------------------------------------------------------------------


def test_a_dry_run_prints_the_exact_command_and_changes_nothing() -> None:
    world = ready_world()
    dry = world.run(*UP, "--dry-run")
    assert dry.code == 0
    differs = dry.err.removesuffix(WARNED).splitlines()[1:]
    assert dry.err.endswith(WARNED) and len(differs) == len(DEVIATIONS)
    assert differs[0].startswith("  - memory share 0.85 (auto): ") and "vLLM's own is 0.92" in differs[0]
    assert differs[1].startswith("  - --shm-size 10g, not --ipc host: ")
    assert world.docker.created == []
    assert not world.host.made
    world.run(*UP)
    assert tuple(shlex.split(dry.out.replace("\\\n", " "))) == render_argv(world.docker.created[0])


def test_a_dry_run_works_without_docker_and_says_what_it_assumed() -> None:
    world = ready_world()
    world.docker.go_down()
    result = world.run(*UP, "--dry-run")
    assert result.code == 0
    assert result.out.startswith("docker run -d \\\n  --name tiny-1b \\\n")
    assert "note: Image not downloaded; assuming the entrypoint vllm serve." in result.err


def test_a_dry_run_as_data() -> None:
    found = ready_world().run(*UP, "--dry-run", "--json").json
    assert found["id"] == "tiny-1b"
    assert found["argv"][:3] == ["docker", "run", "-d"]
    assert [each["id"] for each in found["deviations"]] == DEVIATIONS
    assert all(each["reason"] and each["launch"] for each in found["deviations"])
    assert {each["id"] for each in found["findings"]} == {"floating_tag"}
    assert found["fit"]["verdict"] == "unknown"
    assert shlex.split(found["docker_run"].replace("\\\n", " ")) == found["argv"]


def test_a_key_is_never_in_the_command() -> None:
    world = ready_world()
    world.secrets.token = Secret("hf_secretsecretsecret")
    result = world.run(*UP, "--dry-run", "--expose", "lan")
    assert "--env-file" in result.out
    assert "hf_secret" not in result.out + result.err
    assert world.secrets.keys_made
    assert not world.secrets.files, "a dry run writes no key"
    assert ready_world(settings=Settings(read_only=True)).run(*UP, "--dry-run").code == 0


# --- what does not fit --------------------------------------------------------------------------------------


def full_world() -> World:
    """Another hundred GiB are in use already."""
    world = ready_world()
    world.host.memory_value = Ok(replace(IDLE_MEMORY, available=20 * GIB, free=20 * GIB, cached=0))
    return world


BLOCKED = (*UP, "--set", "gpu_memory_utilization=0.85")


def test_what_cannot_fit_is_refused_with_its_numbers() -> None:
    world = full_world()
    result = world.run(*BLOCKED, stdin="")
    assert result.code == 4
    assert "102.9 GiB" in result.err
    assert "--force" in result.err
    assert not world.docker.created
    assert world.run(*BLOCKED, "--json").error["id"] == "does_not_fit"


def test_force_launches_it_anyway() -> None:
    result = full_world().run(*BLOCKED, "--force")
    assert (result.code, result.out) == (0, "http://127.0.0.1:8000\n")


@pytest.mark.parametrize(("typed", "code"), [("tiny-1b\n", 0), ("y\n", 4), ("\n", 4)])
def test_a_person_at_the_keyboard_types_the_name_to_insist(typed: str, code: int) -> None:
    world = full_world()
    result = world.run(*BLOCKED, keyboard=typed)
    assert result.code == code
    assert "Type tiny-1b to launch anyway" in result.err
    assert bool(world.docker.created) is (code == 0)
    assert [result.err.count(text) for text in (WARNED.split(":")[1], "--shm-size 10g, not --ipc host")] == [1, 1]


# --- the story --------------------------------------------------------------------------------------------

DEVIATIONS = ["gpu_memory_utilization", "ipc", "restart", "exposure", "limits", "folders"]
WARNED = """\
note: 1 note more: spark-tui presets check tiny-1b
"""
STORY = """\
Check             done       0.0s  tiny-1b on port 8000
Fetch model       skipped          left to the engine
Pull image        skipped          image downloaded
Memory            done       0.0s  fit unknown
Create container  done       0.0s
Start             done       0.0s
Boot              ...
  Container       done       0.0s
  Config          done       0.0s
  Weights         done       0.0s
Boot              done       0.0s
Ready             done             tiny at http://127.0.0.1:8000
Warm up           ...              compiles kernels
Warm up           done       0.0s
Talk to it: spark-tui chat tiny-1b
"""


def test_a_launch_in_a_pipe_is_told_line_by_line_and_prints_the_address() -> None:
    world = ready_world()
    result = world.run(*UP)
    dry = ready_world().run(*UP, "--dry-run").err
    assert dry.endswith(WARNED), "what differs from the recipe is said as in a dry run"
    assert (result.code, result.out, result.err) == (0, "http://127.0.0.1:8000\n", dry + STORY)
    assert [request.model for request in world.api.asked] == ["tiny"], "the first request is made"


def test_on_a_terminal_the_running_step_is_one_line_that_is_written_over() -> None:
    result = ready_world().run(*UP, tty=True, environment={"COLUMNS": "80"})
    assert "\r\x1b[K" in result.err
    visible = [line.rpartition("\x1b[K")[2] for line in result.err.removesuffix("\n").split("\n")]
    plain = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in visible]
    story = [line for line in STORY.splitlines() if "..." not in line]
    assert plain[-len(story) :] == story
    assert plain[-len(story) - 1].startswith("note: 1 note more")


def test_as_data_there_is_one_object_per_change_and_a_result() -> None:
    result = ready_world().run(*UP, "--json")
    assert result.err == ""
    lines = result.json_lines
    assert {line["type"] for line in lines[:-1]} == {"step", "phase"}
    steps = [(line["id"], line["state"]) for line in lines if line["type"] == "step"]
    assert steps == [
        ("preflight", "running"), ("preflight", "done"), ("fetch", "skipped"), ("pull", "skipped"),
        ("memory", "running"), ("memory", "done"), ("create", "running"), ("create", "done"),
        ("start", "running"), ("start", "done"),
        ("follow", "running"), ("follow", "done"), ("ready", "done"), ("warm", "running"), ("warm", "done"),
    ]  # fmt: skip
    warming = [line["detail"] for line in lines if line["type"] == "step" and line["id"] == "warm"]
    assert warming[0] == "compiles kernels", "what the wait is for"
    end = lines[-1]
    assert (end["type"], end["id"], end["state"], end["url"]) == (
        "result",
        "tiny-1b",
        "ready",
        "http://127.0.0.1:8000",
    )
    assert end["already_running"] is False
    assert [each["id"] for each in end["deviations"]] == DEVIATIONS
    assert [phase["id"] for phase in end["phases"]][:3] == ["container", "config", "weights"]


def test_a_pull_is_told_in_tenths_in_a_pipe() -> None:
    world = ready_world()
    world.docker = type(world.docker)()
    stages = [[LayerProgress("a", "Downloading", done, 1000)] for done in range(0, 1001, 10)]
    world.docker.add_remote_image(IMAGE, stages)
    world.docker.script(IMAGE, BOOT)
    world.docker.on_start = world.api.serve
    result = world.run(*UP)
    assert result.code == 0
    told = [line for line in result.err.splitlines() if line.startswith("Pull image")]
    assert 10 <= len(told) <= 13
    assert "10% 100 B of 1000 B" in told[1]


@pytest.mark.parametrize(
    ("option", "seen", "absent"),
    [
        ("--no-wait", "It is starting. Follow it: spark-tui logs tiny-1b -f", "Boot"),
        ("--no-warm", "Warm up           skipped          not requested", "Talking"),
    ],
)
def test_a_launch_that_ends_early_says_what_is_left_out(option: str, seen: str, absent: str) -> None:
    world = ready_world()
    result = world.run(*UP, option)
    assert (result.code, result.out) == (0, "http://127.0.0.1:8000\n")
    assert seen in result.err
    assert absent not in result.err
    assert world.api.asked == []


def test_an_engine_that_runs_is_found_and_one_with_other_settings_needs_replace() -> None:
    world = ready_world()
    world.run(*UP)
    again = world.run(*UP)
    assert again.code == 0
    assert "Start             skipped          already running" in again.err
    assert len(world.docker.created) == 1
    other = world.run(*UP, "--set", "max_model_len=2048", "--set", "port=1", "--port", "8123")
    assert (other.code, "--replace" in other.err) == (4, True)
    replaced = world.run(*UP, "--set", "max_model_len=2048", "--set", "port=1", "--port", "8123", "--replace")
    assert replaced.code == 0
    assert "old log kept in" in replaced.err
    spec = world.docker.created[-1]
    assert spec.ports[0].host_port == 8123, "an option of its own wins over the same key after --set"
    assert "2048" in spec.command


# --- options ----------------------------------------------------------------------------------------------


def test_the_lan_brings_a_key_and_says_where_it_is() -> None:
    world = ready_world()
    world.host.identity_value = replace(world.host.identity_value, lan_address="192.168.1.40")
    result = world.run(*UP, "--expose", "lan")
    assert "http://192.168.1.40:8000/v1" in result.err
    (spec,) = world.docker.created
    assert spec.ports[0].host_ip == "0.0.0.0"
    path = world.secrets.path("tiny-1b")
    assert spec.env_files == (str(path),)
    assert f"API key: in {path}, as VLLM_API_KEY" in result.err
    assert "key-1" not in result.out + result.err


# --- refusals and failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("up", "tyni-1b"), 2, "Did you mean tiny-1b?"),
        ((*UP, "--set", "foo"), 2, "not of the form key=value"),
        ((*UP, "--set", "max_modellen=3"), 2, "Did you mean max_model_len?"),
        ((*UP, "--set", "max_model_len=many"), 2, "a whole number"),
        ((*UP, "--port", "99999"), 2, "not in the range"),
        ((*UP, "--expose", "world"), 2, "'world' is not one of"),
        ((*UP, "--read-only"), 4, "Read-only"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_happens(arguments: tuple[str, ...], code: int, words: str) -> None:
    world = ready_world()
    result = world.run(*arguments)
    assert result.code == code
    assert result.out == ""
    assert words in result.err
    assert world.docker.created == []


def test_without_docker_it_exits_3_with_the_remedy() -> None:
    world = ready_world()
    world.docker.go_down()
    result = world.run(*UP)
    assert (result.code, result.out) == (3, "")
    assert "sudo systemctl start docker" in result.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (GpuDriverMissing("Docker has no GPU driver.", "Install the NVIDIA container toolkit."), 1),
        (PortInUse("Port 8000 is taken.", "Choose another."), 4),
    ],
)
def test_a_start_that_fails_leaves_no_container_behind(error: Exception, code: int) -> None:
    world = ready_world()
    world.docker.fail("start", error)  # type: ignore[arg-type]
    result = world.run(*UP)
    assert result.code == code
    assert "Start             failed" in result.err
    assert world.docker.named("tiny-1b") is None


def test_a_failure_as_data_ends_with_the_failed_step_and_an_error_on_stderr() -> None:
    world = ready_world()
    world.docker.fail("start", GpuDriverMissing("Docker has no GPU driver.", "Install the toolkit."))
    result = world.run(*UP, "--json")
    assert result.code == 1
    assert result.json_lines[-1]["state"] == "failed"
    assert result.error == {
        "id": "docker_gpu_driver_missing",
        "summary": "Docker has no GPU driver.",
        "remedy": "Install the toolkit.",
        "detail": "",
        "exit_code": 1,
    }


# --- Ctrl-C -------------------------------------------------------------------------------------------------


def test_ctrl_c_while_it_boots_says_that_it_goes_on_and_how_to_follow_or_stop_it() -> None:
    world = ready_world()
    world.docker.on_start = None  # never ready
    world.interrupt_when(lambda: "Boot " in world.err.getvalue())
    result = world.run(*UP, "--name", "mine")
    assert result.code == 130
    assert "Boot              stopped" in result.err
    assert result.err.endswith(
        "Interrupted: mine keeps starting.\n"
        "  Follow its log:  spark-tui logs mine -f\n"
        "  Wait for it:     spark-tui up tiny-1b --name mine\n"
        "  Stop it:         spark-tui down mine\n"
    )
    assert world.docker.named("mine").running  # type: ignore[union-attr]
    assert "Traceback" not in result.err
    again = ready_world()
    again.docker.on_start = None
    again.interrupt_when(lambda: "logs" in [name for name, _ in again.docker.calls])
    assert again.run(*UP, "--json").error["id"] == "interrupted"


def test_ctrl_c_during_the_pull_says_that_nothing_was_started() -> None:
    world = World()
    world.docker.add_remote_image(IMAGE)
    world.docker.hold("pull_stage")
    world.interrupt_when(lambda: bool(world.docker.asked("pull_stage")))
    result = world.run(*UP)
    assert result.code == 130
    assert "Pull image        stopped" in result.err
    assert "Interrupted: tiny-1b was not started." in result.err
    assert world.docker.created == []
