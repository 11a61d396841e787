"""Images on a real engine and registry: a tag that moves, what is refused, what is deleted, a program run inside."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base import errors
from spark_tui.base.engine.container import LABEL_TOOL
from spark_tui.base.engine.image import visible_patches
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.machine.docker.engine import DockerEngine
from spark_tui.manage.images.model import TagState
from spark_tui.manage.images.use.images import Images
from tests.kit import PRESET, FixedPresets
from tests.manage.images.test_images_use import Shelf, built, distribution, entry_of
from tests.pty_app import spark_tui
from tests.real.lab import Lab, PrivateEngine, PrivateRegistry
from tests.real.lab.images import BUSYBOX, ensure_layered
from tests.real.lab.support import Say, fresh_folder
from tests.real.lab.vllm_image import PYTHON_TAG, ensure_python

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


def home_of(root: Path, engine: PrivateEngine, recipe: str, name: str) -> dict[str, str]:
    """The environment of a person with one preset and the model /models/tiny."""
    for path, text in (
        (root / f"config/spark-tui/presets/{name}.yaml", recipe),
        (root / "store/tiny/config.json", "{}"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    home = {f"XDG_{name}_HOME": str(root / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")}
    return {**os.environ, **engine.variables(), **home, "SPARK_TUI_STORE": str(root / "store")}


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


STACK = """\
recipe_version: "2"
model: /models/tiny
runtime: vllm
container: {image}
env: {{VLLM_NVFP4_GEMM_BACKEND: flashinfer-b12x}}
"""
WATCH = """\
import os, sys; os.listdir("/sys/class/net") == ["lo"] and not os.access("/", os.W_OK) or sys.exit("network, or writes")
"""
"""Python runs it first: the image answers only where it can neither reach nor change anything."""


def test_an_inspection_says_what_an_image_has_of_a_patch_stack_and_leaves_nothing(
    lab: Lab, engine: PrivateEngine, tmp_path: Path, say: Say, container_name: str
) -> None:
    tag = "vllm/images-stack:1"
    ensure_python(engine, fresh_folder(tmp_path / "python"), say)
    site = tmp_path / "site"
    built(site, "b12x/dsl", "b12x/flashinfer")
    distribution(site, "nvidia-cutlass-dsl-libs-cu13", "4.4.2")
    distribution(site, "vllm", "0.21.0")
    (site / "watch.pth").write_text(WATCH)
    files = {id_: site / each.file for id_, each in visible_patches().items() if each.file}
    files["b12x/vllm"].unlink()
    files["b12x/flashinfer"].chmod(0o600)
    os.chown(files["b12x/flashinfer"], 1000, 1000)
    engine.docker("create", "--name", container_name, PYTHON_TAG, "python3")
    archive = subprocess.run(["tar", "--numeric-owner", "-C", site, "-c", "."], capture_output=True, check=True).stdout
    engine.docker("cp", "--archive", "-", f"{container_name}:/usr/lib/python3/dist-packages", stdin=archive)
    engine.docker("commit", container_name, tag)
    env = home_of(tmp_path, engine, STACK.format(image=tag), "stack")

    def states(*options: str) -> tuple[dict[str, str | None], dict[str, str]]:
        done = subprocess.run(spark_tui("images", *options, "--json"), env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        found = json.loads(done.stdout)
        image = next(each for each in found.get("images", [found]) if each["id"] == tag)
        assert all(bool(each["state"]) is not bool(each.get("state_reason")) for each in image["patches"])
        versions = {each["program"]: each["version"] for each in image["versions"]}
        return {each["id"]: each["state"] for each in image["patches"]}, versions

    stack = ("vllm", "libs", "dsl", "flashinfer")
    before, since = engine.docker("ps", "--all", "--quiet"), str(time.time())
    assert states() == (dict.fromkeys(f"b12x/{each}" for each in stack), {})
    looked, versions = states("--inspect", tag)
    assert looked == {
        "b12x/vllm": "absent", "b12x/libs": "present", "b12x/dsl": "present", "b12x/flashinfer": None,
        "mods/exp-b12x": "present",
    }  # fmt: skip
    assert versions == {"vLLM": "0.21.0"}
    assert states() == (looked, versions), "remembered"
    assert engine.docker("ps", "--all", "--quiet") == before
    events = ("events", "--since", since, "--until", str(time.time()), "--filter", f"label={LABEL_TOOL}=run")
    acts = engine.docker(*events, "--filter", "type=container", "--format", "{{.Action}}").split()
    assert acts == ["create", "start", "die", "destroy"], "one container, for the one look"
    engine.docker("rm", container_name)
    engine.docker("rmi", tag)


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
    env = home_of(tmp_path, engine, RECIPE.format(image=tag), container_name)
    words = spark_tui("up", container_name, "--port", str(free_port), "--no-wait", "--json")
    for _ in range(5):  # until it is killed in the middle, however fast the machine is
        with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
            assert first.stdout is not None
            for line in first.stdout:
                step = json.loads(line)
                if step.get("id") == "pull" and (step["progress"] or 0) > 0.05:
                    break
            first.kill()
        if not engine.docker("images", "--quiet", tag):
            break
        for container in engine.docker("ps", "--all", "--quiet", "--filter", f"name={container_name}").split():
            engine.docker("rm", "--force", container)
        engine.docker("rmi", tag)
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
    with pytest.raises(errors.DockerError) as caught:
        await docker.run_once(BUSYBOX, ("touch", "/tmp/probe"))
    assert "Read-only" in caught.value.detail
    with pytest.raises(errors.DockerError, match="exit code 7") as caught:
        await docker.run_once(BUSYBOX, ("sh", "-c", "echo why >&2; exit 7"))
    assert "why" in caught.value.detail
    with pytest.raises(errors.DockerError, match="python3"):
        await docker.run_once(BUSYBOX, ("python3", "-c", "print()"))
    assert engine.docker("ps", "--all", "--quiet") == before


async def test_a_file_of_a_command_is_looked_for_in_the_image(engine: PrivateEngine, shelf: Shelf) -> None:
    preflight = shelf.opened()[Preflight]
    for file, refused in (("/etc/passwd", False), ("/opt/none.jinja", True)):
        preset = replace(PRESET, image=BUSYBOX, command=f"vllm serve {{model}} --chat-template {file}")
        plan = preflight.dry_plan(preset, Overrides())
        if refused:
            with pytest.raises(errors.RefusedError, match=file):
                await preflight.check(plan)
        else:
            await preflight.check(plan)
