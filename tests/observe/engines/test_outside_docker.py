"""An engine is an endpoint that may have a container: every command takes a process, an address, or a container."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_tui.base.engine.state import ServedModel, bare_engine, gpu_server
from spark_tui.base.errors import ExitCode
from spark_tui.base.finding import Ok
from spark_tui.base.host.vitals import GpuProcess, GpuReading
from spark_tui.base.quantities import GIB
from tests.cli.world import World
from tests.fakes_docker import EPOCH
from tests.process_engines import ProcessEngine, process_engine, without_docker

VLLM_PAGE = (
    ("vllm:num_requests_running", "", 0.0, None),
    ("vllm:generation_tokens_total", "", 5.0, 0.0),
    ("vllm:prompt_tokens_total", "", 5.0, 0.0),
)
SMALL = ("--concurrency", "1", "--passes", "1", "--input", "32", "--output", "8", "--rounds", "1", "--warmup", "0")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessEngine]:
    folder = tmp_path_factory.mktemp("outside")
    with process_engine(folder, "vllm", "serve", metrics=VLLM_PAGE, pages=("/health", "/version")) as found:
        yield found


# --- real processes, without Docker ---------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["name", "id", "address"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("metrics", "NAME", "--seconds", "1"), ExitCode.DONE),
        (("chat", "NAME", "-m", "hello"), ExitCode.DONE),
        (("connect", "opencode", "NAME"), ExitCode.DONE),
        (("bench", "NAME", *SMALL), ExitCode.DONE),
        (("prove", "NAME", "--case", "chat.stream"), None),
        (("logs", "NAME"), ExitCode.REFUSED),
        (("explain", "NAME"), ExitCode.REFUSED),
        (("down", "NAME", "--yes"), ExitCode.REFUSED),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_command_takes_a_process(
    engine: ProcessEngine, tmp_path: Path, words: tuple[str, ...], code: ExitCode | None, by: str
) -> None:
    name = {"name": f"vllm-{engine.port}", "id": f"process-{engine.pid}", "address": f"{engine.url}/v1"}[by]
    if words[0] == "connect" and by == "id":
        pytest.skip("it takes names")
    done = without_docker(tmp_path, *(name if word == "NAME" else word for word in words))
    assert "Docker is not running" not in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    if code is ExitCode.REFUSED:
        assert f"process {engine.pid}" in done.stderr
    assert code is None or done.returncode == code, done.stderr


def test_a_process_is_listed_and_what_docker_has_stays_unknown(engine: ProcessEngine, tmp_path: Path) -> None:
    done = without_docker(tmp_path, "--json", "ps")
    mine = next(each for each in json.loads(done.stdout) if each["port"] == engine.port)
    assert (mine["id"], mine["state"], mine["url"]) == (f"vllm-{engine.port}", "ready", engine.url)
    assert done.returncode == ExitCode.UNREACHABLE


def test_a_process_that_boots_is_starting_and_its_age_grows(tmp_path: Path) -> None:
    with process_engine(tmp_path, "vllm", "serve", loads=60.0) as engine:
        looks = [json.loads(without_docker(tmp_path, "--json", "ps").stdout) for _ in range(2)]
        first, second = (next(each for each in look if each["port"] == engine.port) for look in looks)
        assert (first["state"], first["health"]) == ("starting", "not listening")
        assert second["up_seconds"] > first["up_seconds"]
        done = without_docker(tmp_path, "bench", first["id"], *SMALL)
        assert done.returncode == ExitCode.UNREACHABLE
        assert "not ready yet" in done.stderr


@pytest.mark.parametrize(
    ("words", "owner", "pages", "metrics", "code", "said"),
    [
        (("ninfer", "ninfer"), "ninfer", (), (), ExitCode.FAILED, "no page /metrics"),
        (("python3", "tabby.py"), "tabbyAPI", ("/health",), (), ExitCode.FAILED, "TabbyAPI publishes no metrics"),
        (("python3", "far.py"), "vllm", ("/health",), VLLM_PAGE, ExitCode.DONE, "Idle"),
        (("python3", "door.py"), "spark-tui", ("/health",), (), ExitCode.REFUSED, "is a gateway, no engine"),
    ],
    ids=["unknown", "TabbyAPI", "vLLM of another name", "gateway"],
)
def test_an_address_is_asked_what_it_is(
    tmp_path: Path, words: tuple[str, ...], owner: str, pages: tuple[str, ...], metrics: tuple[()], code: int, said: str
) -> None:
    with process_engine(tmp_path, *words, owner=owner, pages=pages, metrics=metrics) as engine:
        done = without_docker(tmp_path, "metrics", engine.url, "--seconds", "1")
        assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
        chat = without_docker(tmp_path, "chat", engine.url, "-m", "hello")
        assert chat.returncode == (ExitCode.REFUSED if code == ExitCode.REFUSED else ExitCode.DONE), chat.stderr


def test_an_address_where_no_engine_is_says_how_to_look(tmp_path: Path) -> None:
    silent = without_docker(tmp_path, "metrics", "http://127.0.0.1:1")
    assert (silent.returncode, "curl http://127.0.0.1:1/v1/models" in silent.stderr) == (ExitCode.UNREACHABLE, True)
    assert without_docker(tmp_path, "metrics", "http://:8000").returncode == ExitCode.USAGE


def test_addresses_of_the_settings_are_engines_and_one_of_a_known_process_is_that(
    engine: ProcessEngine, tmp_path: Path
) -> None:
    with process_engine(tmp_path, "ninfer", "ninfer", pages=()) as other:
        for value in ("lab=" + other.url, "http//x"):
            done = without_docker(tmp_path, "config", "set", "engines", value)
            assert done.returncode == (ExitCode.DONE if value.startswith("lab") else ExitCode.USAGE), done.stderr
        done = without_docker(tmp_path, "--json", "ps")
        lab = next(each for each in json.loads(done.stdout) if each["id"] == "lab")
        assert (lab["port"], lab["state"], lab["runtime"]) == (other.port, "ready", "openai")
        assert (lab["started_at"], lab["started_at_reason"]) == (None, "only its address is known")
        without_docker(tmp_path, "config", "set", "engines", f"twice={engine.url} gone=http://127.0.0.1:1")
        listed = json.loads(without_docker(tmp_path, "--json", "ps").stdout)
        assert [each["id"] for each in listed if each["port"] == engine.port] == [f"vllm-{engine.port}"]
        assert [each["state"] for each in listed if each["id"] == "gone"] == ["stalled"]


TENSORFOLD_PAGE = (
    ("tensorfold:requests_running", "", 2.0, None),
    ("tensorfold:requests_waiting", "", 1.0, None),
    ("tensorfold:generation_tokens_total", "", 100.0, 30.0),
    ("tensorfold:prompt_tokens_total", "", 100.0, 0.0),
    ("tensorfold:mtp_drafted_total", "", 100.0, 0.0),
    ("tensorfold:mtp_accepted_total", "", 80.0, 0.0),
)


def test_an_engine_of_one_file_is_found_and_measured(tmp_path: Path) -> None:
    with process_engine(tmp_path, "tensorfold", "serve", "acme/tiny-1b", metrics=TENSORFOLD_PAGE) as engine:
        done = without_docker(tmp_path, "--json", "metrics", f"tensorfold-{engine.port}", "--seconds", "2")
        assert done.returncode == ExitCode.DONE, done.stderr
        found = json.loads(done.stdout)
        assert (found["running_requests"], found["waiting_requests"]) == (2, 1)
        assert 25 <= found["decode_tokens_per_second"] <= 35
        assert found["since_start"]["speculation"]["acceptance_percent"] == 80.0
    with process_engine(tmp_path, "ds4-server", "-m", "model.gguf", pages=()) as engine:
        done = without_docker(tmp_path, "metrics", f"ds4-{engine.port}")
        assert (done.returncode, "ds4 publishes no metrics" in done.stderr) == (ExitCode.FAILED, True)
        listed = json.loads(without_docker(tmp_path, "--json", "ps").stdout)
        mine = next(each for each in listed if each["port"] == engine.port)
        assert (mine["state"], mine["model"]) == ("ready", "model.gguf")


def test_a_key_that_a_person_writes_down_opens_a_server_outside_docker(tmp_path: Path) -> None:
    with process_engine(tmp_path, "python3", "tabby.py", owner="tabbyAPI", key="planted-key") as engine:
        closed = without_docker(tmp_path, "chat", engine.url, "-m", "hello")
        assert closed.returncode == ExitCode.FAILED, closed.stderr
        named = re.search(r"into (\S+\.env)", closed.stderr)
        assert named is not None, closed.stderr
        kept = Path(named[1])
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept.write_text("VLLM_API_KEY=planted-key\n")
        kept.chmod(0o600)
        opened = without_docker(tmp_path, "chat", engine.url, "-m", "hello")
        assert (opened.returncode, "blue" in opened.stdout) == (ExitCode.DONE, True), opened.stderr
        assert "planted-key" not in opened.stdout + opened.stderr


# --- processes that hold the GPU --------------------------------------------------------------------------------


def holder(*argv: str, port: int = 8080) -> World:
    world = World()
    world.docker.go_down()
    server = gpu_server(4711, argv, EPOCH, port, local=True)
    world.host.processes = (server,)
    world.api.serve(server)
    return world


def test_a_process_on_the_gpu_that_lists_models_is_an_engine() -> None:
    (found,) = holder("/opt/ninfer/ninfer", "--model", "q").run("ps", "--json").json
    assert (found["id"], found["state"], found["url"]) == ("ninfer-8080", "ready", "http://127.0.0.1:8080")
    assert (found["runtime"], found["exposure"]) == ("openai", "LOCAL")


def test_its_list_of_models_says_which_engine_it_is() -> None:
    world = holder("python3", "main.py")
    world.api.models_at = dict.fromkeys(world.api.models_at, (ServedModel("q", owner="tabbyAPI"),))
    (found,) = world.run("ps", "--json").json
    assert (found["id"], found["runtime"]) == ("main-8080", "tabbyapi")


@pytest.mark.parametrize("program", ["litellm", "open-webui", "llama-swap", "spark-tui"])
def test_a_proxy_on_the_gpu_is_none(program: str) -> None:
    assert holder(f"/usr/bin/{program}", "serve").run("ps").code == ExitCode.UNREACHABLE


def test_a_process_on_the_gpu_that_lists_no_models_is_none() -> None:
    world = holder("python3", "train.py")
    world.api.models_at.clear()
    result = world.run("ps", "--json")
    assert (result.code, result.out) == (ExitCode.UNREACHABLE, "")


# --- its memory ---------------------------------------------------------------------------------------------------


def test_the_memory_of_a_process_and_of_what_it_forked_is_its_engine_s() -> None:
    world = World()
    bare = bare_engine(4711, ("vllm", "serve", "acme/tiny-1b", "--port", "8011"), (), EPOCH)
    assert bare is not None
    world.host.processes, world.host.parents = (bare,), {4712: 4711}
    held = (GpuProcess(4712, 2 * GIB), GpuProcess(99, GIB))
    world.gpu.value = Ok(GpuReading("NVIDIA GB10", 96, 47.2, 62, 2411, unified=True, processes=held), 0.0)
    out = world.run("memory").out
    assert re.search(r"2\.0 GiB +vllm-8011, pid 4712", out), out
    assert "pid 99, in no container" in out
