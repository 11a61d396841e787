"""update PRESET: the check, the trial, the decision by flag and by question, and the exit codes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.context import Context
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import EngineFailed, ImageNotFound
from spark_tui.base.finding import Ok
from spark_tui.catalog.presets.model.preset import pinned_reference
from spark_tui.cli.session import Options
from spark_tui.manage.images.model import kept_tag
from spark_tui.observe.results.adapter import FileProofs
from spark_tui.use.bench.model.load import Load, LoadEvent
from tests.bench_kit import FakeLoad
from tests.cli.world import IMAGE, World
from tests.fakes_history import FakeHistory
from tests.manage.images.test_images_use import GB, NEW, OLD
from tests.prove_server import ProveServer

REPO = IMAGE.partition(":")[0]
OLD_ID, NEW_ID = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
UPDATE = ("update", "tiny-1b")


class MortalLoad(FakeLoad):
    world: Measured

    async def drive(self, endpoint: Endpoint, load: Load, stop: asyncio.Event) -> AsyncGenerator[LoadEvent, None]:
        self.world.die("--bench")
        async for event in super().drive(endpoint, load, stop):
            yield event


class Measured(World):
    """Its engine can be measured and proved, and dies under `--bench` or `--prove` where it is `deadly`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(drive=True)
        self.folder, self.deadly = folder, ""
        self.load = MortalLoad(self.clock)
        self.load.world = self
        self.api.ask = self.ask  # type: ignore[method-assign]

    def context(self, options: Options, environment: Mapping[str, str]) -> Context:
        context = super().context(options, environment)
        ports: Any = context.ports
        object.__setattr__(ports, "proofs", FileProofs(self.folder))
        object.__setattr__(ports, "load", self.load)
        return context

    def die(self, how: str) -> None:
        if self.deadly == how:
            self.deadly = ""
            self.docker.end("tiny-1b", 137)

    async def ask(self, *asked: Any) -> AsyncGenerator[str, None]:
        self.die("--prove")
        async for payload in ProveServer().ask(*asked):
            yield payload


def moved(world: World | None = None) -> World:
    """An engine in the image of a tag that has moved."""
    world = world or World(drive=True)
    world.history = FakeHistory()
    world.docker.add_image(IMAGE, id=OLD_ID, digests=(f"{REPO}@{OLD}",), size=20 * GB)
    world.docker.add_remote_image(pinned_reference(IMAGE, NEW), id=NEW_ID, digests=(f"{REPO}@{NEW}",), size=20 * GB)
    world.docker.digests[IMAGE] = NEW
    world.docker.on_start = world.api.serve
    world.host.free = Ok(100 * GB)
    assert world.run("up", "tiny-1b").code == 0
    return world


def state(world: World) -> tuple[str, str]:
    """The image that runs, and that of the tag."""
    (facts,) = [one.facts for one in world.docker.all_containers.values() if one.facts.running]
    image = world.docker._image(IMAGE)
    return facts.image_id, image.id if image else ""


def test_check_only_tells() -> None:
    world = moved()
    found = world.run(*UPDATE, "--check", "--json")
    assert found.code == 0, found.err
    assert (found.json["moved"], found.json["needs_bytes"], found.json["update"]) == (True, 20 * GB, None)
    shown = world.run(*UPDATE, "--check")
    assert "spark-tui update tiny-1b" in shown.out
    world.docker.digests[IMAGE] = OLD
    assert world.run(*UPDATE, "--check", "--json").json["moved"] is False
    world.docker.digests[IMAGE] = ImageNotFound("gone", "look")
    assert world.run(*UPDATE, "--check").code == 1
    assert world.docker.asked("pull") == world.docker.asked("tag_image") == []


@pytest.mark.parametrize(("answer", "image"), [("y\n", NEW_ID), ("\n", OLD_ID)])
def test_a_person_is_asked_after_the_trial(answer: str, image: str) -> None:
    world = moved()
    done = world.run(*UPDATE, keyboard=answer)
    assert done.code == 0, done.err
    assert state(world) == (image, image)
    assert NEW[:19] in done.out


def test_scripts_decide_by_flag_and_are_refused_before_anything_happens() -> None:
    world = moved()
    refused = world.run(*UPDATE, stdin="y\n")
    assert (refused.code, world.docker.asked("pull")) == (4, [])
    assert world.run(*UPDATE, "--keep", "--read-only").code == 4
    assert world.run(*UPDATE, "--keep", "--yes").code == 2
    assert world.run(*UPDATE, "--back").code == 2, "no update to go back from"
    kept = world.run(*UPDATE, "--keep", "--json")
    assert kept.code == 0, kept.err
    assert [each["type"] for each in kept.json_lines if each["type"] not in ("step", "phase")] == ["trial", "result"]
    assert (kept.json_lines[-1]["kept"], kept.json_lines[-1]["stage"]) == (True, "kept")
    assert state(world) == (NEW_ID, NEW_ID)
    again = world.run(*UPDATE, "--yes")
    assert (again.code, state(world)) == (0, (NEW_ID, NEW_ID)), "it has not moved since"
    images = {each["id"]: each for each in world.run("images", "--json").json["images"]}
    assert images[kept_tag(IMAGE, "tiny-1b")]["used_by"][0]["kind"] == "kept"
    world.docker.digests.clear()
    back = world.run(*UPDATE, "--back", "--json")
    assert (back.code, state(world)) == (0, (OLD_ID, OLD_ID)), back.err
    assert back.json_lines[-1]["kept"] is False


@pytest.mark.parametrize(
    ("measure", "decide", "code", "image"),
    [("--prove", "--yes", 1, OLD_ID), ("--bench", "--yes", 1, OLD_ID), ("--prove", "--keep", 1, NEW_ID)],
)
def test_a_void_measurement_keeps_nothing_by_itself(
    tmp_path: Path, measure: str, decide: str, code: int, image: str
) -> None:
    world = moved(Measured(tmp_path))
    world.deadly = measure
    done = world.run(*UPDATE, measure, decide, "--json")
    assert (done.code, bool(done.json_lines[-1]["void"])) == (code, True), done.err
    assert state(world) == (image, image)
    assert "proof" not in done.json_lines[-1] and "comparison" not in done.json_lines[-1]
    assert world.run("events", "--json").json[0]["subject"] == "tiny-1b"


def test_what_cannot_be_measured_is_not_kept_unasked(tmp_path: Path) -> None:
    world = moved(Measured(tmp_path))
    world.load.broken = EngineFailed("It fails.", "Look at its log.")
    done = world.run(*UPDATE, "--bench", "--yes", "--json")
    assert (done.code, state(world)) == (1, (OLD_ID, OLD_ID)), done.err


def test_an_interrupted_trial_says_how_it_goes_on() -> None:
    world = moved()
    world.docker.hold("create")
    world.interrupt_when(lambda: len(world.docker.asked("create")) == 2)
    stopped = world.run(*UPDATE, "--keep")
    assert stopped.code == 130
    assert "spark-tui update tiny-1b --back" in stopped.err
    world.docker.release()
    assert world.run(*UPDATE, "--check", "--json").json["update"]["stage"] == "try"
    back = world.run(*UPDATE, "--back")
    assert (back.code, state(world)) == (0, (OLD_ID, OLD_ID)), back.err
