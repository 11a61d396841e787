"""A model without a preset, served by keys: drafted with its doubts marked, launched with a memory share of its own.

The image that the draft names is the lab's vLLM under that name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.pty_app import PtyApp, spark_tui
from tests.real.lab.lab import Lab
from tests.real.lab.vllm_image import SHELL_TAG, derive

pytestmark = pytest.mark.timeout(600)

MODEL = "homemade"
BOOT_SECONDS = 300.0
EAGER = ("ENV TORCHDYNAMO_DISABLE=1 VLLM_USE_AOT_COMPILE=0",)
"""The lab's image has no compiler, and a draft does not know it."""


@pytest.fixture
def environment(vllm_lab: Lab, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """A new user's home, and a store with one model, whose config names no longest context."""
    model = tmp_path / "store" / MODEL
    shutil.copytree(vllm_lab.store / "smollm2", model)
    config = json.loads((model / "config.json").read_text())
    del config["max_position_embeddings"]
    (model / "config.json").write_text(json.dumps(config))
    variables = {
        **os.environ,
        **vllm_lab.variables(),
        "HOME": str(tmp_path),
        **{f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")},
        "SPARK_TUI_STORE": str(model.parent),
    }
    image = str(json.loads(call(variables, "draft", MODEL, "--json"))["image"])
    derive(vllm_lab.engine, SHELL_TAG, image, EAGER)
    yield variables
    vllm_lab.engine.try_docker("rm", "--force", "--volumes", MODEL)
    vllm_lab.engine.try_docker("rmi", image)


def call(environment: Mapping[str, str], *words: str) -> str:
    """What the command line prints."""
    done = subprocess.run(spark_tui(*words), env=dict(environment), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_model_without_a_preset_is_drafted_launched_and_answers(
    environment: Mapping[str, str], vllm_lab: Lab, free_port: int
) -> None:
    with PtyApp(spark_tui(), env=environment) as app:
        app.wait_for("1 Home", "docker OK", timeout=60)
        app.send("2")
        app.wait_for(MODEL, "complete")
        app.send("enter")
        app.wait_for("? the model's own", "Uncertain", "l launch")
        app.send("l")
        app.wait_for("^l launch", "docker run")
        app.send(*"1k", "down", "ctrl+u", "2")
        few = share(app, "1.0k", 2)
        app.send("ctrl+u", *"8", "up", "ctrl+u", *"8k")
        many = share(app, "8.2k", 8)
        assert float(few) < float(many), "context and users decide"
        app.send("ctrl+u", *"2k", "down", "ctrl+u", "4")
        wanted = share(app, "2.0k", 4)
        app.send("ctrl+o", "down")
        app.wait_for("port: ")
        app.send(*str(free_port))
        app.wait_for(f"127.0.0.1:{free_port}:")
        app.send("ctrl+l")
        app.wait_for(f"{MODEL} ready", "KV cache", timeout=BOOT_SECONDS)
        command = vllm_lab.engine.api("GET", f"/containers/{MODEL}/json")["Config"]["Cmd"]
        assert command[command.index("--gpu-memory-utilization") + 1] == wanted
        assert command[command.index("--max-model-len") + 1] == "2048"

        app.send("6")
        app.wait_for("Message to ")
        app.send(*"What is the capital of France?", "enter")
        app.wait_for("ttft", " tok/s", timeout=120)
        app.wait_gone("Esc stop", timeout=120)
        time.sleep(1.5)  # an Esc right after the answer's end was meant for the answer
        app.send("esc", "q")
        assert app.wait_end(timeout=60) == 0

    kept = json.loads(call(environment, "presets", "show", MODEL, "--json"))
    assert kept["id"] == MODEL, "a launched draft is kept: restart and edit need it"
    call(environment, "draft", MODEL, "--save", "second")
    planned = call(environment, "up", "second", "--dry-run", "--set", "max_model_len=1k")
    assert "--gpu-memory-utilization" in planned and "--max-model-len 1024" in planned


def share(app: PtyApp, context: str, users: int) -> str:
    """The memory share that the form shows for these, in its field and in its verdict."""
    shown = app.wait_for(f"{context} context for {users} users", "fits with 0.")
    found = re.search(r"fits with (0\.\d+)", shown)
    assert found is not None
    app.wait_for(f"= {found[1]}")
    return found[1]
