"""Crash loops that only the guard sees: what is read, who is stopped, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_PRESET, ContainerFacts, ContainerStatus
from spark_tui.base.errors import DaemonNotRunning
from spark_tui.base.host.guard import END_LOOP
from spark_tui.base.ports import LogLine
from spark_tui.observe.engines.use.crash_loops import MOST_RESTARTS
from tests.failure_logs import cases
from tests.observe.memory.test_guard_use import Post

PROOF = tuple(next(case.log for case in cases() if case.cause == "no_kv_room" and not case.guess))
NO_ROOM = ("(EngineCore pid=9) ERROR 05-21 21:02:50 [core.py:1] ValueError: No available memory for the cache blocks.",)
ODD = ("something that nobody has seen before",)
BEGAN = 1_700_000_000.0


def looping(*, ours: bool = True, **changes: object) -> ContainerFacts:
    labels = ((LABEL_PRESET, "qwen"),) if ours else ()
    facts = ContainerFacts(
        "9" * 64, "qwen", "vllm/vllm-openai:nightly", "sha256:1", ContainerStatus.RUNNING, pid=44, labels=labels,
        restart_policy="always", started_at=BEGAN,
    )  # fmt: skip
    return replace(facts, **changes)  # type: ignore[arg-type]


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@dataclass
class Box:
    """A guard, and an engine that Docker restarts under it."""

    post: Post
    facts: ContainerFacts

    def crash(self, lines: tuple[str, ...], after: float = 30.0) -> None:
        """It ran for `after` seconds, wrote these lines, and has been started again."""
        began = self.facts.started_at or BEGAN
        self.post.actuator.lines = (
            *(LogLine(stamp(began + 1), text) for text in lines),
            LogLine(stamp(began + after + 1), "the next start's first line"),
        )
        self.facts = replace(self.facts, restart_count=self.facts.restart_count + 1, started_at=began + after)
        self.look()

    def look(self) -> None:
        self.post.actuator.loops = (self.facts,)
        self.post.clock.tick(2.0)
        self.post.guard.refresh()

    @property
    def stops(self) -> list[str]:
        return [name for act, name in self.post.actuator.done if act == "stop"]


def box(*, ours: bool = True, only_ours: bool = True, **changes: object) -> Box:
    made = Box(Post(only_ours=only_ours), looping(ours=ours, **changes))
    made.look()
    return made


def test_what_no_restart_heals_is_stopped_at_once_and_the_reason_is_kept() -> None:
    one = box()
    one.crash(PROOF)
    assert one.stops == ["qwen"]
    [entry] = one.post.journal.kept
    assert (entry.act, entry.engine) == (END_LOOP, "qwen")
    assert "restarting does not help" in entry.reason
    assert entry.how == "docker stop, 10 s grace"


def test_only_the_log_of_the_start_that_ended_is_read() -> None:
    one = box()
    one.crash(ODD)
    one.crash(PROOF)
    since = [given for act, given in one.post.actuator.done if act == "log"]
    assert since == [stamp(BEGAN - 0.001), stamp(BEGAN + 30.0 - 0.001)]
    assert one.stops == ["qwen"]


def test_a_cause_that_is_only_likely_has_to_be_seen_twice() -> None:
    one = box()
    one.crash(NO_ROOM)
    assert one.stops == []
    one.crash(NO_ROOM)
    assert one.stops == ["qwen"]


def test_an_unknown_cause_is_given_its_few_starts() -> None:
    one = box()
    for _ in range(MOST_RESTARTS):
        one.crash(ODD)
    assert one.stops == []
    one.crash(ODD)
    assert one.stops == ["qwen"]
    one.crash(ODD)
    assert one.stops == ["qwen"], "it is told to stop once"


def test_a_log_that_cannot_be_read_is_an_unknown_cause() -> None:
    one = box()
    one.post.actuator.lines = DaemonNotRunning("Docker does not answer.", "Start it.")
    one.facts = replace(one.facts, restart_count=1)
    one.look()
    assert one.stops == []
    assert one.post.guard.problem == ""


def test_a_start_by_a_person_begins_a_new_count() -> None:
    one = box(restart_count=3)
    for _ in range(MOST_RESTARTS):
        one.crash(ODD)
    one.facts = replace(one.facts, restart_count=0)
    one.look()
    one.crash(ODD)
    assert one.stops == []


@pytest.mark.parametrize(("only_ours", "expected"), [(True, []), (False, ["qwen"])])
def test_somebody_elses_engine_is_stopped_only_where_that_was_asked_for(only_ours: bool, expected: list[str]) -> None:
    one = box(ours=False, only_ours=only_ours)
    one.crash(PROOF)
    assert one.stops == expected


def test_a_loop_that_was_there_before_the_guard_counts_from_now_on() -> None:
    one = box(restart_count=40)
    assert one.stops == []
    one.crash(PROOF)
    assert one.stops == ["qwen"]


def test_a_guard_that_is_there_for_engines_alone_ends_some_time_after_the_last() -> None:
    post = Post()
    assert not post.guard.idle()
    post.actuator.running = ()
    post.guard.refresh()
    post.clock.tick(119.0)
    assert not post.guard.idle()
    post.clock.tick(2.0)
    assert post.guard.idle()


def test_one_that_waits_for_its_next_start_keeps_the_guard() -> None:
    one = box(status=ContainerStatus.RESTARTING)
    one.post.actuator.running = ()
    one.look()
    one.post.clock.tick(500.0)
    assert not one.post.guard.idle()


def test_a_docker_that_does_not_answer_is_waited_for_and_not_for_ever() -> None:
    post = Post()
    post.actuator.running = ()
    assert not post.guard.idle()
    post.actuator.error = DaemonNotRunning("Docker does not answer.", "Start it.")
    post.guard.refresh()
    post.clock.tick(500.0)
    assert not post.guard.idle()
    post.clock.tick(200.0)
    assert post.guard.idle()
