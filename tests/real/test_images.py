"""Images on a real engine and registry: a tag that moves, what is refused, what is deleted, a program run inside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from spark_tui.domain import errors
from spark_tui.domain.presets.image_use import TagState
from spark_tui.services.docker.engine import DockerEngine
from tests.core.kit import PRESET, FixedPresets
from tests.core.test_images import Shelf, entry_of
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
    images = shelf.opened().images
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
