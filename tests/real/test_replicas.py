"""One server on each of two real hosts behind vllm-router: a replica that dies in mid-load costs no answer.

The servers are the double of vLLM; router, hosts, containers and load are real.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.lab import Lab, Rig
from tests.real.lab.engine import write_program
from tests.real.lab.models import TINY
from tests.real.lab.support import wait_until
from tests.real.lab.vllm_image import SERVE_TAG
from tests.real.lab.wheels import install_wheels
from tests.real.test_cluster import DOUBLE_ENV, UP_SECONDS, Desk

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

NAME = "twins"
ROUTER_PORT = 9000
PRESET = f"""\
recipe_version: "2"
name: {NAME}
model: /models/{TINY}
runtime: vllm
container: {SERVE_TAG}
executor_config:
  accelerator_vendor: cpu
metadata:
  category: cpu
defaults: {{port: 8000, max_model_len: 512, max_num_seqs: 4}}
env:
  OMP_NUM_THREADS: "1"
  VLLM_CPU_OMP_THREADS_BIND: nobind
  TORCHDYNAMO_DISABLE: "1"
  {DOUBLE_ENV}
command: >-
  vllm serve {{model}} --port {{port}} --served-model-name m --max-model-len {{max_model_len}}
  --max-num-seqs {{max_num_seqs}} --enforce-eager --kv-cache-memory-bytes 64M
"""
LOAD = """\
import json, sys, threading, time, urllib.request
port, streams, each, tokens = map(int, sys.argv[1:])
codes, lock, began = [], threading.Lock(), time.monotonic()
body = {"model": "m", "prompt": "Once", "max_tokens": tokens, "ignore_eos": True}
def stream():
    for _ in range(each):
        ask = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(ask, timeout=120) as answer:
                found = json.load(answer)["usage"]["completion_tokens"]
        except Exception as error:
            found = repr(error)
        with lock:
            codes.append(found)
            print(json.dumps(found), flush=True)
threads = [threading.Thread(target=stream) for _ in range(streams)]
[each.start() for each in threads]
[each.join() for each in threads]
print(json.dumps({"seconds": time.monotonic() - began}), flush=True)
"""
"""Asks PORT with STREAMS at once, each EACH times for TOKENS: a line for each answer, its tokens or what failed."""


@pytest.fixture(scope="module")
def router(lab: Lab) -> Path:
    """A folder with `vllm-router` as a program, whose packages are not those of the tests."""
    folder = lab.root / "vllm-router"
    if not (folder / "bin/vllm-router").exists():
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        install_wheels(["vllm-router"], folder / "site", python=python, scratch=folder / "tmp", dependencies=True)
    # Written each time: the packages outlive the checkout that installed them, and this names its interpreter.
    start = f'exec env PYTHONPATH={folder / "site"} {sys.executable} -S -m vllm_router.launch_router "$@"'
    write_program(folder / "bin/vllm-router", f"#!/bin/sh\n{start}\n")
    return folder / "bin"


@pytest.fixture
def desk(vllm_lab: Lab, rig: Rig, router: Path, tmp_path: Path) -> Iterator[Desk]:
    rig.load_image(SERVE_TAG)
    desk = Desk(rig, vllm_lab, tmp_path)
    settings = tmp_path / "config/spark-tui"
    text = (
        (settings / "settings.toml").read_text().replace('"env ', f'"env PATH={router}:/usr/bin:/bin:/usr/sbin:/sbin ')
    )
    (settings / "settings.toml").write_text(text)
    (settings / "presets" / f"{NAME}.yaml").write_text(PRESET)
    yield desk
    subprocess.run(desk.argv("down", NAME), capture_output=True, timeout=200, check=False)


def load(port: int, *how: int) -> list[str]:
    return [sys.executable, "-c", LOAD, str(port), *map(str, how)]


def test_replicas_answer_at_one_address_when_one_dies_in_mid_load_and_end_with_down(desk: Desk) -> None:
    steps = [json.loads(line) for line in desk.run(
        "up", NAME, "--nodes", "duo", "--parallel", "replicas", "--json").splitlines()]  # fmt: skip
    assert steps[-1]["router_port"] == ROUTER_PORT
    assert desk.running() == [f"spark-1 {NAME}", f"spark-2 {NAME}"]
    node = desk.rig.node(1)
    with subprocess.Popen(node.argv(load(ROUTER_PORT, 4, 20, 32), {}), stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        answers = [json.loads(client.stdout.readline()) for _ in range(8)]
        desk.rig.node(2).engine.docker("kill", NAME)
        answers += map(json.loads, client.stdout)
    assert answers[:-1] == [32] * 80, "no answer is lost"

    def back() -> bool:
        (launch,) = desk.status()
        return launch["states"] == ["running", "running"] and bool(launch["problem"])

    assert wait_until(back, UP_SECONDS, pause=3), desk.status()
    assert [json.loads(line) for line in node.run(load(ROUTER_PORT, 1, 2, 4)).splitlines()][:2] == [4, 4]
    stopped = json.loads(desk.run("down", NAME, "--json"))
    assert [each["clean"] for each in stopped["nodes"]] == [True, True]
    assert desk.containers() == []
    refused = [json.loads(line) for line in node.run(load(ROUTER_PORT, 1, 1, 1)).splitlines()]
    assert "refused" in refused[0], "the router has ended"
