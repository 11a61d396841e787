"""A model that is not here: the launch fetches it from the Hub, and a real vLLM without a network finds it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.hub_server import HubServer
from tests.pty_app import spark_tui
from tests.real.lab.lab import Lab
from tests.store_kit import cached

pytestmark = pytest.mark.timeout(600)

NAME = "fetched-tiny"
RECIPE = """\
recipe_version: "2"
model: acme/tiny
runtime: vllm
container: spark-tui/vllm-cpu:0.32.0
executor_config:
  accelerator_vendor: cpu
metadata:
  category: cpu
defaults:
  port: 8000
env:
  HF_HUB_OFFLINE: "1"
  VLLM_NO_USAGE_STATS: "1"
command: |
  vllm serve {model} --port {port} --served-model-name tiny --max-model-len 512 --max-num-seqs 2 \\
    --enforce-eager --kv-cache-memory-bytes 16M
"""


@pytest.fixture
def hub(vllm_lab: Lab) -> Iterator[HubServer]:
    with HubServer() as server:
        repo = server.repo("acme/tiny")
        for path in sorted(vllm_lab.model("tiny").iterdir()):
            repo.put(path.name, path.read_bytes(), lfs=path.suffix == ".safetensors")
        yield server


@pytest.fixture
def environment(vllm_lab: Lab, hub: HubServer, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """A new user with an empty store, one preset and this Hub; the container is removed at the end."""
    presets = tmp_path / "config" / "spark-tui" / "presets"
    presets.mkdir(parents=True)
    (presets / f"{NAME}.yaml").write_text(RECIPE, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    variables = {
        **kept,
        **vllm_lab.variables(),
        "HF_ENDPOINT": hub.url,
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "SPARK_TUI_STORE": str(tmp_path / "store"),
    }
    yield variables
    subprocess.run(spark_tui("down", NAME, "--remove"), env=variables, capture_output=True, timeout=120)


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(environment: Mapping[str, str]) -> Run:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            spark_tui(*words), env=dict(environment), capture_output=True, text=True, timeout=420, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return done

    return run


def test_a_launch_fetches_its_model_and_the_engine_finds_it(run: Run, hub: HubServer, free_port: int) -> None:
    told = run("up", NAME, "--port", str(free_port), "--dry-run")
    assert "Fetched first: acme/tiny" in told.stderr
    assert hub.requests == [], "a dry run asks nobody"

    lines = [json.loads(line) for line in run("up", NAME, "--port", str(free_port), "--json").stdout.splitlines()]
    steps = {line["id"]: line for line in lines if line["type"] == "step"}
    assert steps["fetch"]["state"] == "done"
    assert steps["fetch"]["detail"].startswith("downloaded acme/tiny, ")
    assert lines[-1]["state"] == "ready"
    [model] = json.loads(run("models", "list", "--json").stdout)["models"]
    assert (model["id"], model["state"]) == ("acme/tiny", "complete")

    run("down", NAME)
    asked = len(hub.requests)
    again = run("up", NAME, "--port", str(free_port), "--no-wait", "--json")
    steps = {line["id"]: line for line in map(json.loads, again.stdout.splitlines()) if line["type"] == "step"}
    assert (steps["fetch"]["state"], steps["fetch"]["detail"]) == ("skipped", "model downloaded")
    assert len(hub.requests) == asked, "what is here needs no Hub"


def test_a_model_in_hf_home_is_read_there(
    environment: Mapping[str, str], hub: HubServer, tmp_path: Path, free_port: int
) -> None:
    """Fetched by the Hub's own client, as a person did before; HF_HOME is the store then."""
    home = tmp_path / "elsewhere"
    variables = {**environment, "HF_HOME": str(home)}
    del variables["SPARK_TUI_STORE"]
    code = "import huggingface_hub; huggingface_hub.snapshot_download('acme/tiny')"
    subprocess.run([sys.executable, "-c", code], env=variables, check=True, timeout=120)
    asked = len(hub.requests)
    assert asked
    words = ("up", NAME, "--port", str(free_port))
    told = subprocess.run(spark_tui(*words, "--dry-run"), env=variables, capture_output=True, text=True, timeout=60)
    assert "Fetched first" not in told.stderr
    assert f"-v {home}:/models" in told.stdout
    done = subprocess.run(spark_tui(*words, "--json"), env=variables, capture_output=True, text=True, timeout=420)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    steps = {line["id"]: line for line in lines if line["type"] == "step"}
    assert (steps["fetch"]["state"], lines[-1]["state"]) == ("skipped", "ready")
    assert len(hub.requests) == asked, "nothing was asked of the Hub"


def test_a_model_of_the_hubs_own_cache_is_served_from_there(
    run: Run, vllm_lab: Lab, hub: HubServer, tmp_path: Path, free_port: int
) -> None:
    content = {path.name: path.read_bytes() for path in vllm_lab.model("tiny").iterdir()}
    base = cached(tmp_path / "cache" / "huggingface", "acme/tiny", content)
    before = {path: path.stat().st_mtime_ns for path in base.rglob("*")}
    told = run("up", NAME, "--port", str(free_port), "--dry-run")
    assert f"-v {base}:/hub-cache/models--acme--tiny:ro" in told.stdout
    assert "Fetched first" not in told.stderr
    lines = [json.loads(line) for line in run("up", NAME, "--port", str(free_port), "--json").stdout.splitlines()]
    steps = {line["id"]: line for line in lines if line["type"] == "step"}
    assert (steps["fetch"]["state"], steps["fetch"]["detail"]) == ("skipped", "model downloaded")
    assert lines[-1]["state"] == "ready"
    assert hub.requests == []
    assert not list((tmp_path / "store").glob("hub/models--*"))
    assert {path: path.stat().st_mtime_ns for path in base.rglob("*")} == before, "the engine wrote nothing there"
