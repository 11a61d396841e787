"""Other ways to share a model between two real hosts than tensor parallel: pipeline, data parallel, and Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.lab.models import TINY
from tests.real.lab.support import run
from tests.real.lab.vllm_image import SERVE_TAG
from tests.real.test_cluster import PRESET, UP_SECONDS, Desk, desk, idle

__all__ = ["desk", "idle"]
pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

RAY = "ray==2.60.0"
RAY_PROGRAM = "#!/usr/bin/env python3\nfrom ray.scripts.scripts import main\nmain()\n"
STATUS_FIRST = """\
#!/bin/sh
n=0
until [ "$(ray status | grep -c '1 node_')" = 2 ] || [ $((n = n + 1)) -gt 30 ]; do sleep 1; done
ray status
exec /usr/local/bin/vllm "$@"
"""
"""In place of the image's vllm: prints what the cluster is before the engine starts."""
RAY_NEEDS = ("msgpack", "jsonschema", "filelock", "packaging", "protobuf", "pyyaml", "requests", "click")


@pytest.fixture
def ways(idle: Desk) -> Iterator[Desk]:
    """Presets of each way. Pipeline stages need a compiled graph, which the image can build without a compiler."""
    graph = _preset("stages").replace("--enforce-eager", "-cc.mode=2 -cc.backend=eager")
    paths = "PYTHONPATH: /models/ray\n  PATH: /models/ray/bin:/usr/local/bin:/usr/bin:/bin"
    texts = {
        "stages": graph.replace('TORCHDYNAMO_DISABLE: "1"', 'TORCHDYNAMO_DISABLE: "0"'),
        "copies": _preset("copies"),
        "rays": _preset("rays", paths).replace("runtime: vllm", "runtime: vllm-ray"),
    }
    for name, text in texts.items():
        (idle.settings / "presets" / f"{name}.yaml").write_text(text)
    yield idle
    for name in texts:
        subprocess.run(idle.argv("down", name), capture_output=True, timeout=200, check=False)


def _preset(name: str, env: str = "") -> str:
    return PRESET.format(name=name, env=env, seconds=60, tiny=TINY, image=SERVE_TAG)


@pytest.mark.parametrize(("name", "way"), [("stages", "pp"), ("copies", "dp")])
def test_every_way_to_share_a_model_answers_and_leaves_nothing(ways: Desk, name: str, way: str) -> None:
    ways.run("up", name, "--nodes", "duo", "--parallel", way, "--json")
    assert ways.running() == [f"spark-1 {name}", f"spark-2 {name}-rank1"]
    assert ways.answered(name)
    ways.run("down", name)
    assert ways.left() == []


def test_a_ray_cluster_forms_and_an_engine_that_refuses_it_is_ended_on_both_nodes(ways: Desk) -> None:
    """vLLM's CPU platform has no Ray executor: the cluster forms, then the engine ends with that sentence."""
    _install_ray(ways.rig.share / "store/ray")
    words = ways.argv("up", "rays", "--nodes", "duo", "--force", "--json")
    done = subprocess.run(words, capture_output=True, text=True, timeout=UP_SECONDS, check=False)
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert (done.returncode, error["id"]) == (1, "cluster_failed"), error
    assert "does not support ray" in error["detail"]
    (kept,) = (ways.home / "state/spark-tui/logs").glob("rays-*.log")
    assert kept.read_text().count("1 node_") == 2, "both nodes stand in ray status"
    assert ways.left() == []


def _install_ray(folder: Path) -> None:
    """Ray and what it imports, where the nodes see it; its program runs with their own Python."""
    if (folder / "bin/vllm").exists():
        return
    run([
        sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:", "--target", folder,
        RAY, *RAY_NEEDS,
    ])  # fmt: skip
    for name, text in (("ray", RAY_PROGRAM), ("vllm", STATUS_FIRST)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
