"""Images on a real engine and registry: a tag that moves, what is refused, what is deleted, a program run inside."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base import errors
from spark_tui.machine.docker.engine import DockerEngine
from spark_tui.manage.images.model import TagState
from spark_tui.manage.images.use.images import Images
from tests.kit import PRESET, FixedPresets
from tests.manage.images.test_images_use import Shelf, entry_of
from tests.pty_app import spark_tui
from tests.real.lab import Lab, PrivateEngine, PrivateRegistry
from tests.real.lab.images import BUSYBOX, ensure_layered

LATER = "layered:images-test"


@pytest.fixture
async def docker(engine: PrivateEngine) -> AsyncIterator[DockerEngine]:
    adapter = DockerEngine(engine.environ())
    yield adapter
    await adapter.close()


@pytest.fixture
def shelf(docker: DockerEngine) -> Shelf:
    """The core on the real engine, with the presets, the history and the clock of a test."""
    kit = Shelf()
    kit.docker = docker  # type: ignore[assignment]
    return kit


async def test_a_tag_that_moved_is_noticed_and_the_image_deleted_once_nothing_needs_it(
    lab: Lab, engine: PrivateEngine, registry: PrivateRegistry, shelf: Shelf, docker: DockerEngine, container_name: str
) -> None:
    ensure_layered(engine, lab.toolbox, (300_000,), LATER)
    ensure_layered(engine, lab.toolbox, (200_000,), f"{LATER}-first", seed=2)
    tag = registry.push(engine, f"{LATER}-first", "vllm/images-test:nightly")
    engine.docker("rmi", f"{LATER}-first")
    engine.docker("pull", "--quiet", tag)
    shelf.presets = FixedPresets(replace(PRESET, image=tag))
    images = shelf.opened()[Images]
    entry = entry_of(await images.check(), tag)
    assert (entry.state, entry.presets, entry.digest) == (TagState.CURRENT, ("qwen",), entry.remote)
    assert entry.stored is not None and entry.stored.unique is not None and entry.stored.unique >= 200_000
    registry.push(engine, LATER, "vllm/images-test:nightly")  # takes the tag of this machine with it
    first = f"{tag.rpartition(':')[0]}@{entry.digest}"
    engine.docker("pull", "--quiet", first)
    engine.docker("tag", first, tag)
    entry = entry_of(await images.check(), tag)
    assert (entry.state, entry.digest == entry.remote) == (TagState.MOVED, False)

    engine.docker("create", "--name", container_name, tag, "sh")
    plan = await images.plan_delete(tag)
    assert [each.subject for each in plan.obstacles] == [container_name]
    with pytest.raises(errors.RefusedError):
        await images.delete(plan)
    with pytest.raises(errors.ImageInUse):
        await docker.remove_image(tag)
    engine.docker("rm", container_name)
    freed = await images.delete(await images.plan_delete(tag))
    assert freed is not None and freed >= 200_000
    assert entry_of(await images.refresh(), tag).stored is None
    engine.docker("rmi", LATER)


RECIPE = """\
recipe_version: "2"
model: /models/tiny
runtime: vllm
container: {image}
executor_config: {{accelerator_vendor: cpu}}
command: sleep 600
"""


def test_a_large_pull_killed_midway_is_finished_by_the_next_launch(
    lab: Lab, engine: PrivateEngine, registry: PrivateRegistry, tmp_path: Path, container_name: str, free_port: int
) -> None:
    ensure_layered(engine, lab.toolbox, (60_000_000,) * 5, f"{LATER}-large", seed=3)
    tag = registry.push(engine, f"{LATER}-large", "vllm/images-large:1")
    engine.docker("rmi", f"{LATER}-large")
    for path, text in (
        (tmp_path / f"config/spark-tui/presets/{container_name}.yaml", RECIPE.format(image=tag)),
        (tmp_path / "store/tiny/config.json", "{}"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    home = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")}
    env = {**os.environ, **engine.variables(), **home, "SPARK_TUI_STORE": str(tmp_path / "store")}
    words = spark_tui("up", container_name, "--port", str(free_port), "--no-wait", "--json")
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        for line in first.stdout:
            step = json.loads(line)
            if step.get("id") == "pull" and (step["progress"] or 0) > 0.05:
                break
        first.kill()
    assert not engine.docker("images", "--quiet", tag), "it was killed in the middle"
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert engine.docker("ps", "--format", "{{.Names}} {{.Image}}", "--filter", f"name={container_name}") == (
        f"{container_name} {tag}"
    )
    engine.docker("rm", "--force", container_name)
    engine.docker("rmi", tag)


async def test_every_failure_of_a_registry_says_what_to_do(
    engine: PrivateEngine, registry: PrivateRegistry, locked_registry: PrivateRegistry, docker: DockerEngine
) -> None:
    locked = locked_registry.push(engine, BUSYBOX, "vllm/locked:1")
    for reference, error in (
        (f"{registry.address}/vllm/nothing:1", errors.ImageNotFound),
        (locked, errors.RegistryUnauthorized),
        ("127.0.0.1:1/vllm/nothing:1", errors.RegistryUnreachable),
    ):
        with pytest.raises(error) as caught:
            await docker.registry_digest(reference)
        assert caught.value.remedy
    with locked_registry.logged_in(engine) as config:
        known = DockerEngine(engine.environ() | {"DOCKER_CONFIG": str(config)})
        assert (await known.registry_digest(locked)).startswith("sha256:")
        await known.close()


async def test_a_program_inside_has_no_network_and_leaves_nothing(engine: PrivateEngine, docker: DockerEngine) -> None:
    before = engine.docker("ps", "--all", "--quiet")
    assert await docker.run_once(BUSYBOX, ("sh", "-c", "echo begun; ls /sys/class/net")) == ("begun", "lo")
    with pytest.raises(errors.DockerError, match="exit code 7") as caught:
        await docker.run_once(BUSYBOX, ("sh", "-c", "echo why >&2; exit 7"))
    assert "why" in caught.value.detail
    with pytest.raises(errors.DockerError, match="python3"):
        await docker.run_once(BUSYBOX, ("python3", "-c", "print()"))
    assert engine.docker("ps", "--all", "--quiet") == before
