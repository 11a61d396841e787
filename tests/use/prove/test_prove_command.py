"""prove on a scripted engine: verdicts as text, data and JUnit XML, exit codes, the kept proof."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.cli.session import Options
from spark_tui.observe.results.adapter import FileProofs
from spark_tui.use.prove.show import comparison_object
from tests.bench_kit import FakeLoad
from tests.cli.world import BOOT, IMAGE, World
from tests.fakes_history import FakeHistory
from tests.prove_server import ProveServer
from tests.use.bench.test_bench import nulls_without_reason
from tests.use.bench.test_benching import Demo


class Deadly(list[Any]):
    """The requests that a server got, the engine of which is killed under one of them."""

    def __init__(self, world: World, last: int) -> None:
        super().__init__()
        self.world = world
        self.last = last

    def append(self, request: Any) -> None:
        super().append(request)
        if len(self) == self.last:
            self.world.docker.end("tiny-1b", 137)


class ProveWorld(World):
    """An engine that was launched from a preset and answers a proof, and proofs that stay."""

    def __init__(self, folder: Path, fault: str = "") -> None:
        super().__init__(drive=True)
        self.server = ProveServer(fault)
        self.api.ask = self.server.ask  # type: ignore[attr-defined]
        self.folder = folder
        self.docker.add_image(IMAGE)
        self.docker.script(IMAGE, BOOT)
        self.docker.on_start = self.api.serve
        assert self.run("up", "tiny-1b").code == 0

    def context(self, options: Options, environment: Mapping[str, str]) -> Context:
        context = super().context(options, environment)
        ports: Any = context.ports
        object.__setattr__(ports, "proofs", FileProofs(self.folder))
        object.__setattr__(ports, "load", FakeLoad(self.clock))
        return context


def test_a_sound_engine_is_proved_and_the_proof_is_kept(tmp_path: Path) -> None:
    world = ProveWorld(tmp_path)
    done = world.run("prove", "tiny-1b")
    assert done.code == 0, done.err + done.out
    assert "0 failed" not in done.out and "cases pass" in done.out
    kept = world.run("prove", "tiny-1b", "--kept", "--json")
    assert (kept.code, kept.json["outcome"], kept.json["failed"]) == (0, "completed", 0)
    assert nulls_without_reason(kept.json) == []
    asked = len(world.server.requests)
    assert len(world.server.requests) == asked
    world.server.fault = "schema fenced"
    later = world.run("prove", "tiny-1b")
    assert "now fails: chat.schema, chat.schema.stream" in " ".join(later.out.split())


def test_a_proof_of_an_engine_that_ended_is_void_and_known_as_an_event_alone(tmp_path: Path) -> None:
    world = ProveWorld(tmp_path)
    world.history = FakeHistory()
    world.server.requests = Deadly(world, 10)
    done = world.run("prove", "tiny-1b", "--json")
    assert (done.code, set(done.json), done.json["id"]) == (1, {"id", "void"}, "tiny-1b")
    assert done.error["id"] == "measurement_void"
    assert world.run("prove", "tiny-1b", "--kept").code == 2
    [event] = world.run("events", "--json").json
    assert (event["kind"], event["subject"], event["severity"]) == ("bench", "tiny-1b", "error")
    now = world.docker.named("tiny-1b")
    assert now is not None and now.running
    world.history.switch_off("disk full")
    world.server.requests = Deadly(world, 10)
    shown = world.run("prove", "tiny-1b")
    assert (shown.code, shown.out, "was started again" in shown.err) == (1, "", True)


def test_two_proofs_are_compared_without_a_question(tmp_path: Path) -> None:
    world = ProveWorld(tmp_path)
    assert world.run("prove", "tiny-1b", "--compare", "last").code == 2, "never proved"
    first = world.run("prove", "tiny-1b", "--json").json["id"]
    assert world.run("prove", "tiny-1b", "--compare", "last").code == 2, "proved once"
    world.server.fault = "schema fenced"
    world.clock.tick(60.0)
    world.run("prove", "tiny-1b")
    asked = len(world.server.requests)
    shown = world.run("prove", "tiny-1b", "--compare", "last")
    assert shown.code == 1, "a case that passed fails"
    assert "chat.schema.stream" in shown.out and "same image" in shown.out
    found = world.run("prove", "tiny-1b", "--compare", first, "--json").json
    assert (found["earlier"], found["broken"][0], found["fixed"], found["changed"]) == (first, "chat.schema", [], [])
    assert world.run("prove", "tiny-1b", "--compare", "nope").code == 2
    assert world.run("prove", "tiny-1b", "--compare", "last", "--full").code == 2
    assert len(world.server.requests) == asked
    later, earlier = FileProofs(tmp_path).all()
    shared = replace(later, conditions=replace(later.conditions, nodes=("spark-1", "spark-2"), nccl="2.29.3"))
    changed = comparison_object(earlier, shared)["changed"]
    assert [each["now"] for each in changed] == ["spark-1, spark-2", "2.29.3"], "another run on several nodes"


def test_presets_are_sorted_by_what_was_proved(tmp_path: Path) -> None:
    world = ProveWorld(tmp_path)
    before = world.run("presets", "list", "--sort", "proved", "--json").json
    assert {each["proof"] for each in before} == {None} and not nulls_without_reason(before[0])
    world.run("prove", "tiny-1b")
    found = world.run("presets", "list", "--sort", "proved", "--json").json
    assert next((each["id"], each["proved"], each["proof"]) for each in found) == ("tiny-1b", True, "proved")
    world.server.fault = "schema fenced"
    world.clock.tick(60.0)
    world.run("prove", "tiny-1b")
    failed = world.run("presets", "list", "tiny", "--json").json[0]
    assert (failed["proved"], "failed" in failed["proof"]) == (False, True)


def test_a_failed_case_is_named_and_ends_with_1(tmp_path: Path) -> None:
    world = ProveWorld(tmp_path, "named ignored")
    path = tmp_path / "proof.xml"
    done = world.run("prove", "tiny-1b", "--case", "chat.tool", "--junit", str(path))
    assert done.code == 1
    assert "chat.tool.named:" in done.err
    suite = ElementTree.fromstring(path.read_text())
    assert (suite.get("failures"), suite.find("testcase[@name='chat.tool.named']/failure") is not None) == ("2", True)
    assert world.run("prove", "tiny-1b", "--kept").code == 2, "a part is not kept"
    assert world.run("prove", "tiny-1b", "--case", "chat.tool", "--junit", str(path)).code == 4


def test_a_proof_can_be_read_after_its_engine_was_removed(tmp_path: Path) -> None:
    world = ProveWorld(tmp_path)
    assert world.run("prove", "tiny-1b").code == 0
    kept = world.run("prove", "tiny-1b", "--kept", "--json").json
    assert world.run("down", "tiny-1b", "--remove").code == 0
    assert world.run("prove", "tiny-1b").code == 2, "the engine is gone"
    assert world.run("prove", "Tiny-1B", "--kept", "--json").json == kept
    assert world.run("prove", "other", "--kept").code == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("nope",), 2), (("tiny-1b", "--case", "nothing"), 2), (("tiny-1b", "--kept"), 2)],
)
def test_what_cannot_be_proved_says_why(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    assert ProveWorld(tmp_path).run("prove", *arguments).code == code


def test_a_simulated_engine_is_not_proved() -> None:
    assert Demo().run("prove", "qwen3.6-35b").code == 4
