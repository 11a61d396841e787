"""schedule: times that are set, listed, removed and applied."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from spark_tui.base.context import Context
from spark_tui.base.engine.units import timer_name
from spark_tui.base.ports import MEASURES
from tests.cli.world import BOOT, IMAGE, World
from tests.run.service.test_boot import FakeBoot


class Scheduled(World):
    """With units of systemd, in memory."""

    def __init__(self) -> None:
        super().__init__(drive=True)
        self.boot = FakeBoot()

    def context(self, *given: Any) -> Context:
        made = super().context(*given)
        made.ports.boot = self.boot  # type: ignore[assignment]
        return made

    def hours(self, *hours: float) -> list[str]:
        """`--stop` and `--start`, so many hours from now."""
        now = datetime.fromtimestamp(self.clock.now())
        times = (f"{now + timedelta(hours=each):%H:%M}" for each in hours)
        return [word for pair in zip(("--stop", "--start"), times, strict=False) for word in pair]


@pytest.fixture
def world() -> Scheduled:
    made = Scheduled()
    made.docker.add_image(IMAGE)
    made.docker.script(IMAGE, BOOT)
    made.docker.on_start = made.api.serve
    made.engine()
    return made


def test_a_schedule_is_set_listed_and_removed(world: Scheduled) -> None:
    assert world.run("schedule", "--json").json == []
    made = world.run("schedule", "TINY-1b", "--stop", "23:00", "--start", "7:00", "--days", "mon-fri", "--json").json
    assert (made["id"], made["stop"], made["start"], made["next"]) == ("tiny-1b", "23:00", "07:00", "stop")
    assert (made["days"][0], made["days"][-1], made["engine"], made["state"]) == ("mon", "fri", True, "enabled")
    assert datetime.fromisoformat(made["next_at"]) == datetime(2027, 1, 15, 23).astimezone()
    assert world.run("schedule", "--json").json == [made]
    assert "stops 23:00, starts 07:00, mon-fri" in world.run("schedule", "tiny-1b").out
    assert world.run("schedule", "other", "--json").json == []
    assert world.run("schedule", "tiny-1b", "--remove", "--json").json == {"id": "tiny-1b", "removed": True}
    assert world.run("schedule", "tiny-1b", "--remove").code == 4
    only = world.run("schedule", "tiny-1b", "--stop", "23:00", "--json").json
    assert only["start"] is None
    assert only["start_reason"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--stop", "23:00"), 2),
        (("--remove",), 2),
        (("tiny-1b", "--stop", "25:00"), 2),
        (("tiny-1b", "--stop", "7-8"), 2),
        (("tiny-1b", "--days", "mon"), 2),
        (("tiny-1b", "--stop", "23:00", "--days", "someday"), 2),
        (("tiny-1b", "--stop", "23:00", "--remove"), 2),
        (("gone", "--stop", "23:00"), 2),
        (("../../tiny-1b", "--remove"), 4),
        (("tiny-1b", "--stop", "23:00", "--read-only"), 4),
        (("tiny-1b", "--remove", "--read-only"), 4),
    ],
)
def test_what_cannot_be_set_changes_nothing(arguments: tuple[str, ...], code: int, world: Scheduled) -> None:
    assert world.run("schedule", *arguments).code == code
    assert not world.boot.timers


def test_its_timer_stops_the_engine_and_starts_it_with_its_settings(world: Scheduled) -> None:
    assert world.run("schedule", "tiny-1b", *world.hours(1, 2)).code == 0
    [(words, _)] = world.boot.timers.values()
    assert world.run(*words, stdin="").code == 0
    assert world.docker.named("tiny-1b").running, "no time has passed yet"
    asyncio.run(world.clock.advance(3601))
    assert world.run(*words, stdin="").code == 0
    assert not world.docker.named("tiny-1b").running
    rests = world.run("up", "tiny-1b", "--service", stdin="")
    assert rests.code == 0
    assert not world.docker.named("tiny-1b").running, "a start of the machine leaves it stopped"
    asyncio.run(world.clock.advance(3601))
    started = world.run(*words, stdin="")
    assert started.code == 0, started.err
    assert world.docker.named("tiny-1b").running
    assert world.run(*words, stdin="").code == 0


def test_an_engine_that_is_measured_is_not_stopped(world: Scheduled) -> None:
    world.run("schedule", "tiny-1b", *world.hours(1))
    asyncio.run(world.clock.advance(3601))
    assert world.state.claim(MEASURES + "tiny-1b")
    assert world.run("schedule", "tiny-1b", "--apply", stdin="").code == 4
    assert world.docker.named("tiny-1b").running


def test_a_stopped_or_removed_engine_says_that_its_schedule_starts_it(world: Scheduled) -> None:
    assert "schedule" not in world.run("down", "tiny-1b").err
    world.run("schedule", "tiny-1b", "--stop", "23:00")
    assert "schedule" not in world.run("down", "tiny-1b").err, "it is never started"
    world.run("schedule", "tiny-1b", "--stop", "23:00", "--start", "07:00")
    assert "spark-tui schedule tiny-1b --remove" in world.run("down", "tiny-1b").err
    assert "spark-tui schedule tiny-1b --remove" in world.run("down", "tiny-1b", "--remove").err
    listed = world.run("schedule")
    assert "the engine was removed" in listed.err
    assert world.run("schedule", "--json").json[0]["engine"] is False
    world.docker.go_down()
    assert world.run("schedule", "--json").json[0]["engine"] is None
    assert world.run("schedule").code == 0


def test_a_schedule_whose_preset_was_removed_is_named(world: Scheduled) -> None:
    world.engine("old", more_labels=())
    assert world.run("schedule", "old", "--stop", "23:00").code == 0
    assert "its preset old was removed" in world.run("schedule").err
    assert list(world.boot.timers) == [f"{timer_name('old')}.timer"]
    assert json.loads(world.boot.timers[f"{timer_name('old')}.timer"][1].partition("=")[2])["stop"] == "23:00"
