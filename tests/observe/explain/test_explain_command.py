"""spark-tui explain NAME|FILE|-: for a person, and for scripts."""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tui.base.engine.container import ContainerStatus
from spark_tui.base.errors import SocketPermissionDenied
from spark_tui.observe.engines.command.explain import CHUNK, MAX_LINE, lines_of
from spark_tui.observe.explain.model.timeline import PhaseId
from tests.cli.world import World, example
from tests.engine_logs import banner, core
from tests.log_fixtures import LOGS, run_log
from tests.pty_app import spark_tui

GB10 = LOGS / "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp.log"
KEYS = [
    "engine", "version", "model", "outcome", "earlier", "phases", "kernels", "kv_cache", "cuda_graph", "speculation",
    "failure", "findings",
]  # fmt: skip


def explained(*what: str, world: World | None = None, **given: Any) -> Any:
    result = (world or World()).run("explain", *what, "--json", **given)
    assert result.code == 0, result.err
    return result.json


# --- a file -----------------------------------------------------------------------------------------------


def test_the_json_has_exactly_the_promised_shape() -> None:
    told = explained(str(GB10))
    assert list(told) == KEYS
    assert [phase["id"] for phase in told["phases"]] == [phase.value for phase in PhaseId]
    assert all(list(phase) == ["id", "seconds", "state"] for phase in told["phases"])
    assert told["phases"][4] == {"id": "weights", "seconds": 198.032, "state": "done"}
    assert (told["engine"], told["version"], told["outcome"]) == ("vllm", "0.20.2", "starting")
    assert told["model"] == "rdtand/Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
    assert told["kernels"] == {
        "fp4_linear": "FlashInferCutlassNvFp4LinearKernel",
        "fp4_moe": "FLASHINFER_CUTLASS",
        "attention": "FLASHINFER",
        "verdict": "native",
    }
    assert told["kv_cache"] == {"gib": 64.69, "tokens": 5463232, "max_concurrency": 20.84}
    assert told["cuda_graph"] == {"estimated_gib": -0.17, "actual_gib": 0.37}
    assert told["speculation"] == "mtp 3"
    assert told["failure"] is None
    assert [finding["id"] for finding in told["findings"]] == ["padding_waste"]
    assert told["findings"][0]["line"] == 78


def test_a_failure_has_its_cause_its_lines_its_remedy_and_the_setting() -> None:
    told = explained(str(LOGS / "vllm-0.32-cpu-fatal-port-in-use.log"))
    assert told["outcome"] == "failed"
    assert list(told["failure"]) == ["cause", "component", "summary", "guess", "lines", "remedy", "override"]
    assert told["failure"]["cause"] == "port_in_use"
    assert told["failure"]["lines"]
    assert told["failure"]["override"] == {"port": "18812"}


def test_a_person_reads_the_story_the_verdicts_and_the_notes() -> None:
    result = World().run("explain", str(GB10))
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == "engine   vllm 0.20.2"
    assert "Weights       3m18s  21.42 GiB" in lines
    assert any(line.startswith("FP4        native: linear FlashInferCutlassNvFp4LinearKernel") for line in lines)
    assert any(line.startswith("KV cache   5.46M tokens (64.7 GiB), room for 20 requests") for line in lines)
    assert "dummy-key" not in result.out


def test_a_person_reads_why_it_failed_and_what_to_type() -> None:
    result = World().run("explain", str(LOGS / "vllm-0.32-cpu-fatal-max-model-len-absurd.log"))
    assert result.code == 0
    assert "cause    max_model_len_too_long" in result.out
    assert "setting  --set max_model_len=512" in result.out


@pytest.mark.parametrize("width", ["60", "100"])
def test_words_are_wrapped_where_somebody_looks(width: str) -> None:
    result = World().run("explain", str(GB10), tty=True, environment={"COLUMNS": width, "TERM": "xterm"})
    too_long = [line for line in result.out.splitlines() if len(line) > int(width)]
    assert all(" " not in line.strip().split("  ")[-1] for line in too_long), too_long


def test_a_file_in_gzip_is_read(tmp_path: Path) -> None:
    zipped = tmp_path / "boot.log.gz"
    zipped.write_bytes(gzip.compress(GB10.read_bytes()))
    assert explained(str(zipped))["kernels"]["verdict"] == "native"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_what_powershell_saves_is_read(tmp_path: Path, encoding: str) -> None:
    saved = tmp_path / "boot.log"
    saved.write_text(GB10.read_text(encoding="utf-8"), encoding=encoding)
    assert explained(str(saved))["kernels"]["verdict"] == "native"


ERRORS = [
    ("nowhere.log", "There is no file nowhere.log."),
    ("/", "/ is a folder."),
]


@pytest.mark.parametrize(("what", "words"), ERRORS)
def test_what_cannot_be_read_is_said_with_what_to_do(what: str, words: str) -> None:
    result = World().run("explain", what)
    assert (result.code, result.out) == (2, "")
    assert words in result.err


def test_a_broken_archive_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    broken = tmp_path / "boot.log.gz"
    broken.write_bytes(gzip.compress(GB10.read_bytes())[:500])
    result = World().run("explain", str(broken))
    assert result.code == 2
    assert "cannot be read" in result.err


def test_an_empty_log_is_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "boot.log"
    empty.touch()
    result = World().run("explain", str(empty))
    assert result.code == 2
    assert "2>&1" in result.err


def test_control_codes_in_a_log_never_reach_the_terminal(tmp_path: Path) -> None:
    hostile = tmp_path / "boot.log"
    lines = core("Unknown vLLM environment variable detected: VLLM_X\x1b]0;owned\x07\x1b[2J", level="WARNING")
    hostile.write_text("\n".join([*banner("0.32.0\x1b[31m", model="a/b\u202etxt"), *lines]), encoding="utf-8")
    for arguments in ((), ("--json",)):
        out = World().run("explain", str(hostile), *arguments).out
        assert not any(mark in out for mark in ("\x1b", "\x07", "\u202e", "owned"))


# --- standard input ---------------------------------------------------------------------------------------


def test_standard_input_is_read() -> None:
    told = explained("-", stdin=GB10.read_text(encoding="utf-8"))
    assert told["kernels"]["verdict"] == "native"


@pytest.mark.parametrize("pipe", [True, False])
def test_what_is_piped_in_is_explained_without_a_name_and_a_silent_input_is_not_waited_for(
    pipe: bool, tmp_path: Path
) -> None:
    environment = {"HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    run = partial(subprocess.run, spark_tui("explain", "--json"), env=environment, capture_output=True, check=False)
    with GB10.open("rb") as log:
        done = run(input=log.read()) if pipe else run(stdin=log)
    assert json.loads(done.stdout)["kernels"]["verdict"] == "native"
    here, there = socket.socketpair()  # sshd gives one to a command without a terminal
    with here, there:
        assert run(stdin=here, timeout=60).returncode == 3, "Docker was asked for engines"


def test_standard_input_needs_no_docker() -> None:
    world = World()
    world.docker.fail("containers", SocketPermissionDenied("No.", "Yes."))
    assert explained("-", stdin="\n".join(run_log("vllm-0.32-cpu-f_maxlen")), world=world)["outcome"] == "failed"
    assert world.opened == []


# --- a container ------------------------------------------------------------------------------------------


def test_a_container_is_explained_by_its_name() -> None:
    told = explained("tiny-1b", world=example())
    assert (told["engine"], told["version"], told["outcome"]) == ("vllm", "0.32.0", "ready")
    assert told["failure"] is None


def test_a_container_that_failed_is_explained_with_its_exit_code() -> None:
    told = explained("broken-8b", world=example())
    assert told["outcome"] == "failed"
    assert told["failure"]["cause"] == "no_kv_room"


def test_a_container_that_was_killed_says_so_although_its_log_does_not() -> None:
    world = World()
    world.engine(
        "gone", serving=False, lines=[*banner("0.32.0"), *core("Starting to load model acme/m...")],
        status=ContainerStatus.EXITED, exit_code=137,
    )  # fmt: skip
    told = explained("gone", world=world)
    assert (told["outcome"], told["failure"]["cause"]) == ("failed", "killed")


def test_the_container_s_command_tells_what_was_meant() -> None:
    world = World()
    kernels = core("Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN'].")
    world.engine("pinned", argv=("vllm", "serve", "m", "--moe-backend", "marlin"), lines=[*banner("0.32.0"), *kernels])
    world.engine("fell", port=8001, argv=("vllm", "serve", "m"), lines=[*banner("0.32.0"), *kernels])
    assert explained("pinned", world=world)["kernels"]["verdict"] == "weight_only_intended"
    told = explained("fell", world=world)
    assert told["kernels"]["verdict"] == "weight_only_fallback"
    assert told["findings"][0]["override"] is None, "the image offers no native backend"


def test_an_unknown_name_is_an_error_that_names_the_near_ones() -> None:
    result = example().run("explain", "tiny-2b")
    assert result.code == 2
    assert "tiny-1b" in result.err


def test_a_file_without_an_ending_is_found_where_no_container_has_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("boot").write_bytes(GB10.read_bytes())
    assert explained("boot", world=example())["kernels"]["verdict"] == "native"


# --- any bytes --------------------------------------------------------------------------------------------


def test_a_line_of_many_megabytes_is_cut_and_the_next_one_is_whole() -> None:
    data = b"x" * (3 * MAX_LINE) + b"\nnext\n" + b"y" * 10
    first, second, third = lines_of(io.BytesIO(data))
    assert (len(first), second, third) == (MAX_LINE, "next", "y" * 10)


@given(st.binary(max_size=400))
@settings(deadline=None)
def test_any_bytes_are_lines(data: bytes) -> None:
    for line in lines_of(io.BytesIO(data)):
        assert "\n" not in line


@given(st.lists(st.text(alphabet="aé\u4e2d€", max_size=30), min_size=1, max_size=5), st.integers(0, 7))
@settings(deadline=None)
def test_characters_cut_by_a_chunk_are_put_together_again(texts: list[str], shift: int) -> None:
    lines = ["x" * (CHUNK - shift), *texts, "end"]
    assert list(lines_of(io.BytesIO("\n".join(lines).encode()))) == lines


def test_a_device_is_refused_and_a_pipe_without_a_writer_is_empty(tmp_path: Path) -> None:
    assert World().run("explain", "/dev/zero").code == 2
    os.mkfifo(tmp_path / "pipe.log")
    assert World().run("explain", str(tmp_path / "pipe.log")).code == 2


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"(APIServer pid=1) INFO 04-01 18:00:00 [api_server.py:1] vLLM API server version 0.32.0\n")
    os.close(writer)
    assert explained(f"/dev/fd/{reader}")["version"] == "0.32.0"
    os.close(reader)
