"""Two versions of an engine's image in a real registry: from one to the other and back, killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_tui.domain.presets.image_use import kept_tag
from tests.pty_app import spark_tui
from tests.real.lab import Lab, PrivateEngine, PrivateRegistry
from tests.real.lab.images import busybox_layer, image_archive, layer

pytestmark = pytest.mark.timeout(400)

NAME = "update-double"
SOURCE = "update-double:local"
SERVER = """\
#!/bin/sh
echo "(APIServer pid=1) INFO 06-03 09:20:00 [api_server.py:1] vLLM API server version {version}"
echo "(EngineCore pid=9) INFO 06-03 09:20:01 [cuda.py:308] Using AttentionBackendEnum.{attention} backend."
echo "(EngineCore pid=9) INFO 06-03 09:20:02 [kv_cache_utils.py:1708] GPU KV cache size: {tokens} tokens"
echo "(APIServer pid=1) INFO:     Application startup complete."
while [ "$1" != --port ]; do shift; done
trap 'exit 0' TERM
httpd -f -p "$2" -h /www & wait
"""
"""What stands in for vLLM: it says so in its log, and answers what a launch asks."""
VERSIONS = (("0.31.0", "FLASH_ATTN", "100,000"), ("0.32.0", "FLASHINFER", "120,000"))
RECIPE = """\
recipe_version: "2"
model: acme/double
runtime: vllm
container: {image}
executor_config:
  accelerator_vendor: cpu
metadata:
  category: cpu
defaults:
  port: {port}
command: vllm serve {{model}} --port {{port}}
"""


@dataclass
class Person:
    """A new user with one preset, whose image is in the registry."""

    lab: Lab
    engine: PrivateEngine
    registry: PrivateRegistry
    environ: dict[str, str]
    image: str

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            spark_tui(*words), env=self.environ, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def publish(self, number: int) -> None:
        """That version under the tag, and no copy of it here."""
        version, attention, tokens = VERSIONS[number]
        files = {
            "bin/vllm": SERVER.format(version=version, attention=attention, tokens=tokens).encode(),
            "www/health": b"",
            "www/version": json.dumps({"version": version}).encode(),
            "www/v1/models": json.dumps(
                {"object": "list", "data": [{"id": "acme/double", "object": "model"}]}
            ).encode(),
        }
        layers = [busybox_layer(self.lab.toolbox), layer(files, folders=("www", "www/v1"))]
        self.engine.docker("load", stdin=image_archive(layers, {"Entrypoint": None}, SOURCE))
        here = self.id_of(self.image)
        self.registry.push(self.engine, SOURCE, self.image.partition("/")[2])
        if here:
            self.engine.docker("tag", here, self.image)
        self.engine.docker("rmi", SOURCE)

    def id_of(self, image: str) -> str:
        return self.engine.docker("images", "--quiet", "--no-trunc", image).strip()

    @property
    def runs(self) -> str:
        """The image of the running engine."""
        found = self.engine.docker("ps", "--quiet", "--filter", f"name=^{NAME}$").split()
        return self.engine.docker("inspect", "--format", "{{.Image}}", *found).strip() if found else ""

    def killed_at(self, step: str) -> None:
        """An update that is killed as soon as it says that this step runs."""
        words = spark_tui("update", NAME, "--keep", "--json")
        with subprocess.Popen(words, env=self.environ, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            for line in program.stdout:
                found: dict[str, Any] = json.loads(line)
                if (found.get("id"), found.get("state")) == (step, "running"):
                    os.kill(program.pid, signal.SIGKILL)
                    break
            else:
                pytest.fail(f"the step {step} never ran")


@pytest.fixture
def person(
    lab: Lab, engine: PrivateEngine, registry: PrivateRegistry, tmp_path: Path, free_port: int
) -> Iterator[Person]:
    image = f"{registry.address}/vllm/update-double:nightly"
    presets = tmp_path / "config" / "spark-tui" / "presets"
    presets.mkdir(parents=True)
    (presets / f"{NAME}.yaml").write_text(RECIPE.format(image=image, port=free_port), encoding="utf-8")
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        **engine.variables(),
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HOME": str(tmp_path),
        **{f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")},
        "SPARK_TUI_STORE": str(tmp_path / "store"),
    }
    made = Person(lab, engine, registry, environ, image)
    yield made
    for each in engine.docker("ps", "--all", "--quiet", "--filter", f"name={NAME}").split():
        engine.docker("rm", "--force", each)
    for id_ in set(engine.docker("images", "--quiet", "--no-trunc", image.rpartition(":")[0]).split()):
        engine.docker("rmi", "--force", id_)


def test_from_one_version_to_the_other_and_back_killed_on_the_way(person: Person) -> None:
    person.publish(0)
    person.engine.docker("pull", "--quiet", person.image)
    old = person.id_of(person.image)
    person.run("up", NAME, "--no-fetch")
    assert person.runs == old
    assert json.loads(person.run("update", NAME, "--check", "--json").stdout)["moved"] is False
    person.publish(1)
    assert json.loads(person.run("update", NAME, "--check", "--json").stdout)["moved"] is True

    for step in ("kept", "new_image", "create", "follow"):
        person.killed_at(step)
        assert person.id_of(person.image) == old, f"killed at {step}: a launch starts the old image"
        person.run("update", NAME, "--back")
        assert person.runs == old, f"killed at {step}"
        assert not person.id_of(kept_tag(person.image, NAME))

    kept = person.run("update", NAME, "--keep", "--json")
    lines = [json.loads(line) for line in kept.stdout.splitlines()]
    [trial] = [each for each in lines if each["type"] == "trial"]
    changed = {each["id"]: (each["old"], each["new"]) for each in trial["differences"]}
    assert changed["KV cache"] == ("100,000 tokens", "120,000 tokens")
    assert "FLASHINFER" in changed["attention"][1].upper()
    new = person.id_of(person.image)
    assert (person.runs, new != old) == (new, True)
    assert person.id_of(kept_tag(person.image, NAME)) == old
    person.engine.docker("image", "prune", "--force")
    assert json.loads(person.run("update", NAME, "--check", "--json").stdout)["moved"] is False

    person.environ["https_proxy"] = person.environ["http_proxy"] = "http://127.0.0.1:9"
    person.run("update", NAME, "--back")
    assert (person.runs, person.id_of(person.image)) == (old, old)
