"""canary: the timer, the status and the exit codes."""

from __future__ import annotations

from pathlib import Path

from spark_tui.base.host.series import Record
from spark_tui.use.prove.model.canary import KIND
from tests import metric_fixtures as pages
from tests.cli.world import World
from tests.fakes_history import FakeHistory
from tests.fakes_metrics import FakeMetrics
from tests.use.prove.test_prove_command import Deadly, ProveWorld


def world() -> World:
    found = World(drive=True)
    found.history = FakeHistory()
    return found


def test_status_has_the_last_night_of_each_engine() -> None:
    found = world()
    assert found.run("canary", "--status", "--json").json == {"installed": False, "engines": []}
    assert isinstance(found.history, FakeHistory)
    now = found.clock.now()
    for days, rate in enumerate((40.0, *(47.0, 46.8, 47.2) * 3)):
        body = {"rate": rate, "failed": [], "model": "m", "conditions": {}}
        found.history.noted.insert(0, Record(KIND, "tiny-1b", now - 60 - days * 86_400, body))
    [engine] = found.run("canary", "--status", "--json").json["engines"]
    assert (engine["id"], engine["differs"], engine["nights"]) == ("tiny-1b", True, 9)
    assert engine["expected_tokens_per_second"][0] > engine["tokens_per_second"] == 40.0
    assert "differs" in found.run("canary", "--status").out


def test_a_night_that_an_engine_does_not_survive_ends_with_1_and_is_no_night(tmp_path: Path) -> None:
    found = ProveWorld(tmp_path)
    found.history, found.metrics = (
        FakeHistory(),
        FakeMetrics(found.clock, page=lambda _: pages.vllm(num_requests_running=0)),
    )
    found.server.requests = Deadly(found, 20)
    done = found.run("canary", "--json")
    assert (done.code, done.json["engines"], done.json["skipped"]) == (1, [], []), done.err
    [void] = done.json["void"]
    assert void["id"] == "tiny-1b" and void["reason"]
    assert found.run("canary", "--status", "--json").json["engines"] == []
    assert [event["subject"] for event in found.run("events", "--json").json] == ["tiny-1b"]
    now = found.docker.named("tiny-1b")
    assert now is not None and now.running
    found.server.requests = []
    again = found.run("canary", "--json")
    assert (again.code, [each["id"] for each in again.json["engines"]], again.json["void"]) == (0, ["tiny-1b"], [])


def test_read_only_measures_and_writes_nothing() -> None:
    found = world()
    assert found.run("canary", "--read-only").code == 4
    assert found.run("canary", "--install", "--yes", "--read-only").code == 4


def test_what_contradicts_itself_or_is_no_time_is_a_usage_error() -> None:
    found = world()
    assert found.run("canary", "--install", "--status").code == 2
    assert found.run("canary", "--install", "--at", "25:00").code == 2
    assert found.run("canary", "--install", stdin="y\n").code == 4, "nobody is there to answer"
