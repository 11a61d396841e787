"""status, ps, memory: what is printed, byte for byte, and as data."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerStatus
from spark_tui.base.engine.state import Health, bare_engine
from spark_tui.base.errors import ExitCode, SocketPermissionDenied
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.host.vitals import GpuProcess, GpuReading, Throttle, Throttled
from spark_tui.base.quantities import GIB
from tests.cli.world import BOOT, World, example
from tests.fakes_docker import EPOCH
from tests.fakes_host import IDLE_MEMORY, FakeGpu

STATUS = """\
host     spark-test  DGX Spark  up 1d0h
memory   121.0 GiB: in use 5.0, cache 6.0 (5.0 droppable), free 110.0; 116.0 available
swap     0.0 of 16.0 GiB; memory pressure 0.0 %
gpu      NVIDIA GB10  96 %  47 W  2411 MHz  62 C
docker   28.5.1
engines  1 of 2 ready

NAME       STATE            PORT  REACH       UP  MODEL
tiny-1b    ready            8000  LOCAL    1h00m  acme/tiny-1b
broken-8b  failed (exit 1)  8009  LOCAL  59m ago  acme/tiny-1b
"""

FAILURE = "note: broken-8b exited 1: ValueError: No available memory for the cache blocks.\n"


def test_status_shows_the_box_docker_and_the_engines() -> None:
    result = example().run("status")
    assert (result.code, result.out, result.err) == (0, STATUS, FAILURE)


def test_ps_shows_what_runs_and_tells_of_the_rest() -> None:
    result = example().run("ps")
    assert result.out == (
        "NAME     STATE  PORT  REACH     UP  MODEL\ntiny-1b  ready  8000  LOCAL  1h00m  acme/tiny-1b\n"
    )
    assert result.err == "1 engine has ended: spark-tui ps -a\n"
    assert result.code == 0


def test_ps_all_shows_ended_engines_and_why_they_failed() -> None:
    result = example().run("ps", "-a")
    assert result.out == STATUS.partition("\n\n")[2]
    assert result.err == FAILURE


def test_ps_of_an_empty_box_says_what_to_do() -> None:
    result = World().run("ps")
    assert result.code == 0
    assert result.out == "NAME  STATE  PORT  REACH  UP  MODEL\n"
    assert "spark-tui up PRESET" in result.err


def test_ps_json_is_an_array_with_stable_ids_and_an_empty_box_is_an_empty_array() -> None:
    listed = example().run("ps", "-a", "--json").json
    assert [engine["id"] for engine in listed] == ["tiny-1b", "broken-8b"]
    assert listed[0]["state"] == "ready"
    assert listed[0]["url"] == "http://127.0.0.1:8000"
    assert listed[0]["up_seconds"] == pytest.approx(3600, abs=1)
    assert listed[1]["exit_code"] == 1
    assert listed[1]["failure"] == "ValueError: No available memory for the cache blocks."
    assert World().run("ps", "--json").json == []


def test_an_engine_that_starts_shows_its_phase() -> None:
    world = World()
    world.engine(
        serving=False, lines=[*BOOT[:2], "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01]"]
    )
    result = world.run("ps")
    assert "loading 50%" in result.out
    listed = world.run("ps", "--json").json
    assert listed[0]["phase"] == "weights"
    assert listed[0]["state"] == "loading"


def test_an_engine_on_the_lan_without_a_key_is_called_so() -> None:
    world = World()
    world.engine(host_ip="0.0.0.0")
    assert "LAN NO KEY" in world.run("ps").out


def test_an_engine_that_died_behind_its_server_is_stalled() -> None:
    world = World()
    facts = world.engine()
    world.api.health_at = dict.fromkeys(world.api.health_at, Health.DEAD)
    assert facts.name in world.run("ps").out
    assert "stalled" in world.run("ps").out


def test_a_foreign_engine_is_listed_too() -> None:
    world = World()
    world.docker.add_container("theirs", image="lmsysorg/sglang:spark", status=ContainerStatus.RUNNING)
    listed = world.run("ps", "--json").json
    assert (listed[0]["id"], listed[0]["runtime"]) == ("theirs", "sglang")
    assert listed[0]["preset"] is None
    assert listed[0]["preset_reason"] == "spark-tui did not launch it"


# --- without Docker -------------------------------------------------------------------------------------


def test_status_without_docker_shows_memory_and_the_remedy_and_exits_3() -> None:
    world = example()
    world.docker.go_down()
    result = world.run("status")
    assert result.code == 3
    assert "memory  121.0 GiB: in use 5.0" in result.out
    assert "docker  n/a: Cannot reach Docker: nothing listens on its socket.\n" in result.out
    assert result.err == (
        "Error: Cannot reach Docker: nothing listens on its socket.\n  Start it: sudo systemctl start docker\n"
    )


def test_status_json_without_docker_has_a_null_and_its_reason() -> None:
    world = example()
    world.docker.go_down(SocketPermissionDenied("May not use Docker.", "sudo usermod -aG docker $USER"))
    result = world.run("status", "--json")
    assert result.code == 3
    assert result.json["docker"] is None
    assert result.json["docker_reason"] == "May not use Docker. sudo usermod -aG docker $USER"
    assert result.json["engines"] is None, "an error is never an empty list"
    assert result.json["memory"]["total_bytes"] == 121 * GIB
    assert result.error["id"] == "docker_socket_permission"


def test_ps_without_docker_is_an_error_and_no_empty_list() -> None:
    world = World()
    world.docker.go_down()
    result = world.run("ps", "--json")
    assert (result.code, result.out) == (3, "")
    assert result.error["remedy"] == "Start it: sudo systemctl start docker"


# --- memory ---------------------------------------------------------------------------------------------


def _with_engine_memory(world: World) -> World:
    world.gpu.value = Ok(GpuReading("NVIDIA GB10", processes=(GpuProcess(7, 3 * GIB),), unified=True), 0.0)
    return world


def test_memory_lists_every_part_in_the_order_of_the_bar() -> None:
    result = _with_engine_memory(World()).run("memory")
    labels = [line.partition(" ")[0] for line in result.out.splitlines()]
    parts = ["total", "engines", "", "apps", "driver", "cache", "droppable", "free", "available", "swap", "level"]
    assert (result.code, result.err, labels) == (0, "", parts)


def test_a_gpu_s_own_memory_is_no_part_of_the_system_s() -> None:
    processes = (GpuProcess(7, 74 * GIB),)
    own = GpuReading("NVIDIA H100", 3, memory_used=75 * GIB, memory_total=80 * GIB, processes=processes)
    world = World(gpu=FakeGpu(Ok(own, 0.0)))
    result = world.run("status")
    memory, gpu = (
        next(line for line in result.out.splitlines() if line.startswith(each)) for each in ("memory", "gpu")
    )
    assert "74" not in memory
    assert "75.0 of 80.0 GiB" in gpu
    data = world.run("status", "--json").json["memory"]
    assert data["engines_bytes"] is None
    assert data["engines_bytes_reason"] == world.run("memory", "--json").json["engines_reason"]


def test_memory_as_data_adds_up() -> None:
    found = _with_engine_memory(World()).run("memory", "--json").json
    assert found["in_use_bytes"] + found["cache_bytes"] + found["free_bytes"] == found["total_bytes"]
    assert found["engines_bytes"] == 3 * GIB
    assert found["engines_bytes"] + found["apps_bytes"] + (found["driver_bytes"] or 0) == found["in_use_bytes"]
    assert found["driver_bytes"] is None
    assert found["driver_bytes_reason"]
    [share] = found["engines"]
    assert (share["id"], share["bytes"], share["pids"]) == ("pid 7", 3 * GIB, [7])
    assert found["level"] == "ok"


def test_an_engine_is_named_by_its_container_and_by_its_id_when_docker_is_away() -> None:
    world = _with_engine_memory(World())
    facts = world.engine()
    world.host.containers[7] = facts.id
    assert "tiny-1b, pid 7" in world.run("memory").out
    world.docker.go_down()
    result = world.run("memory")
    assert (result.code, f"{facts.id[:12]}, pid 7" in result.out) == (0, True)


def test_watching_is_a_line_a_second_until_ctrl_c() -> None:
    world = _with_engine_memory(World(drive=True))
    world.interrupt_when(lambda: world.host.memory_reads > 4)
    result = world.run("memory", "--watch")
    assert result.code == 130
    heading, *lines = result.out.splitlines()
    assert heading.split()[:3] == ["time", "avail", "engines"]
    assert len(lines) >= 3
    assert all(line.split()[1:4] == ["116.0", "3.0", "2.0"] for line in lines)


def test_watching_as_data_is_an_object_per_reading() -> None:
    world = _with_engine_memory(World(drive=True))
    world.interrupt_when(lambda: world.host.memory_reads > 3)
    found = world.run("memory", "--watch", "--json").json_lines
    assert len(found) >= 2
    assert {each["id"] for each in found} == {"memory"}
    assert found[0]["at"] < found[-1]["at"]


def test_what_the_driver_does_not_tell_says_why_and_is_never_zero() -> None:
    world = World()
    world.gpu.value = Missing("no NVIDIA GPU here")
    assert "no NVIDIA GPU here" in world.run("memory").out
    found = world.run("memory", "--json").json
    assert found["engines_bytes"] is None
    assert found["engines_bytes_reason"] == "no NVIDIA GPU here"
    assert "gpu      n/a: no NVIDIA GPU here" in world.run("status").out


def test_a_kernel_without_pressure_information_says_so() -> None:
    world = World()
    world.host.pressure_value = Missing("this kernel has no PSI")
    world.host.memory_value = Ok(replace(IDLE_MEMORY, active_file=None), 0.0)
    result = world.run("memory")
    assert "this kernel has no PSI" in result.out
    assert "unknown (not reported by the kernel)" in result.out
    assert world.run("memory", "--json").json["cache_droppable_bytes"] is None


def test_memory_that_cannot_be_read_is_an_error() -> None:
    world = World()
    world.host.memory_value = Missing("/proc is not mounted")
    result = world.run("memory")
    assert (result.code, result.out) == (1, "")
    assert "/proc is not mounted" in result.err


# --- the window -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [74, 80, 120])
def test_nothing_is_wider_than_the_window(columns: int) -> None:
    world = example()
    world.engine("a-rather-long-name-for-it", port=8010, lines=())
    result = world.run("status", tty=True, environment={"COLUMNS": str(columns), "NO_COLOR": "1"})
    assert max(map(len, result.out.splitlines())) <= columns


def test_in_a_pipe_nothing_is_cut() -> None:
    world = World()
    model = "acme/" + "x" * 200
    world.engine(serving=False, lines=(), labels=(("io.spark-tui.preset", "p"), ("io.spark-tui.model", model)))
    world.docker.named("tiny-1b")
    assert model in world.run("ps").out


def test_colour_is_for_terminals_and_no_color_ends_it() -> None:
    assert "\x1b[32mready\x1b[0m" in example().run("ps", tty=True).out
    assert "\x1b" not in example().run("ps", tty=True, environment={"NO_COLOR": "1"}).out
    assert "\x1b" not in example().run("ps", tty=True, environment={"TERM": "dumb"}).out
    assert "\x1b" not in example().run("ps").out


def test_a_hostile_name_is_text() -> None:
    world = World()
    world.docker.add_container("x", image="vllm/evil\x1b]0;owned\x07:\x1b[31m1")
    assert "\x1b" not in world.run("ps").out
    assert "owned" not in world.run("ps", "--json").json[0]["image"]


def test_what_holds_the_clock_down_is_told() -> None:
    held = GpuReading("NVIDIA GB10", 96, 45.0, 88, 1400, unified=True, throttled=(Throttled(Throttle.THERMAL, 0.8),))
    world = World(gpu=FakeGpu(Ok(held, 0.0)))
    assert "96 %  45 W  1400 MHz  88 C  clock held by thermal" in world.run("status").out
    assert world.run("status", "--json").json["gpu"]["throttled"] == [{"id": "thermal", "share": 0.8}]


def test_what_one_reading_cannot_tell_is_null_with_the_reason() -> None:
    world = World(gpu=FakeGpu(Ok(GpuReading("NVIDIA GB10", 96, 45.0, 88, 1400, unified=True), 0.0)))
    found = world.run("status", "--json").json["gpu"]
    assert (found["throttled"], found["throttled_reason"]) == (None, "needs two readings")


# --- engines outside Docker ---------------------------------------------------------------------------------


def beside(world: World) -> World:
    found = bare_engine(4711, ("vllm", "serve", "acme/tiny-1b", "--port", "8011"), (), EPOCH)
    assert found is not None
    world.host.processes = (found,)
    world.api.serve(found)
    return world


def test_ps_lists_a_server_outside_docker() -> None:
    listed = beside(World()).run("ps", "--json").json
    assert [(each["id"], each["state"], each["url"]) for each in listed] == [
        ("vllm-8011", "ready", "http://127.0.0.1:8011")
    ]
    assert (listed[0]["image"], listed[0]["image_reason"]) == (None, "it runs outside Docker")


@pytest.mark.parametrize("command", ["ps", "status"])
def test_without_docker_a_server_outside_it_is_shown_before_the_error(command: str) -> None:
    world = beside(World())
    world.docker.go_down()
    result = world.run(command)
    assert "vllm-8011" in result.out
    assert result.code == ExitCode.UNREACHABLE


def test_without_docker_the_status_lists_it_as_data_and_says_that_others_are_unknown() -> None:
    world = beside(World())
    world.docker.go_down()
    found = world.run("status", "--json").json
    assert [each["id"] for each in found["engines"]] == ["vllm-8011"]
    assert found["docker"] is None
    assert "Docker" in found["engines_reason"]


@pytest.mark.parametrize(
    "words", [("down",), ("restart",), ("logs",), ("secure",), ("edit", "--set", "gpu_memory_utilization=0.5")]
)
def test_what_is_not_docker_s_is_refused_with_its_process(words: tuple[str, ...]) -> None:
    result = beside(World()).run(words[0], "vllm-8011", *words[1:])
    assert result.code == ExitCode.REFUSED
    assert "4711" in result.err
