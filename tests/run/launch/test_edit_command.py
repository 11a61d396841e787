"""edit NAME: what it would change, the question, the restart, and going back."""

from __future__ import annotations

from spark_tui.base.engine.container import ContainerFacts
from tests.cli.world import IMAGE, World

EDIT = ("edit", "tiny-1b", "--set", "max_model_len=2k")


def world_with_engine() -> World:
    world = World(drive=True)
    world.docker.add_image(IMAGE)
    world.docker.on_start = world.api.serve
    assert world.run("up", "tiny-1b", "--port", "8123").code == 0
    return world


def started(world: World) -> str:
    (facts,) = [one.facts for one in world.docker.all_containers.values()]
    return " ".join(facts.argv)


def test_a_dry_run_says_what_differs_and_changes_nothing() -> None:
    world = world_with_engine()
    shown = world.run(*EDIT, "--dry-run")
    assert shown.code == 0, shown.err
    assert "4,096" in shown.out
    assert "2,048" in shown.out
    plan = world.run(*EDIT, "--dry-run", "--json").json_lines[0]
    assert plan["differences"] == [
        {"id": "max_model_len", "label": "context tokens", "before": "4096", "after": "2048"}
    ]
    assert plan["requests_in_flight"] is None
    assert {"ipc", "exposure"} <= {each["id"] for each in plan["deviations"]}
    assert shown.out.count("--shm-size 10g, not --ipc host") == 1
    assert len(world.docker.created) == 1


def test_it_asks_and_restarts_at_the_same_port() -> None:
    world = world_with_engine()
    refused = world.run(*EDIT, keyboard="\n")
    assert (refused.code, len(world.docker.created)) == (0, 1)
    assert refused.err.count("--shm-size 10g, not --ipc host") == 1
    assert world.run(*EDIT, "--json").code == 4, "nobody is there to answer"
    done = world.run(*EDIT, keyboard="y\n")
    assert (done.code, done.out) == (0, "http://127.0.0.1:8123\n"), done.err
    assert "--max-model-len 2048" in started(world)
    again = world.run(*EDIT, "--yes")
    assert (again.code, len(world.docker.created)) == (0, 2), "nothing to change"


def test_what_fails_goes_back_and_exits_with_1() -> None:
    world = world_with_engine()

    def start(facts: ContainerFacts) -> None:
        if "2048" in facts.argv:
            world.docker.end(facts.name, 1)
        else:
            world.api.serve(facts)

    world.docker.on_start = start
    failed = world.run(*EDIT, "--yes", "--json")
    assert (failed.code, failed.error["id"]) == (1, "edit_failed"), failed.err
    assert "--max-model-len 4096" in started(world)
    failed = world.run(*EDIT, "--yes", "--no-rollback")
    assert failed.code == 1
    assert "--max-model-len 2048" in started(world)


def test_mistakes_have_their_exit_codes() -> None:
    world = world_with_engine()
    assert world.run("edit", "tiny").code == 2
    assert world.run("edit", "tiny-1b").code == 2, "no change and nothing interrupted"
    assert world.run("edit", "tiny-1b", "--set", "max_model_len=x").code == 2
    assert world.run(*EDIT, "--yes", "--read-only").code == 4
    assert world.run("edit", "tiny-1b", "--set", "name=other").code == 2


def test_an_interrupted_edit_is_named_and_finished() -> None:
    world = world_with_engine()
    world.docker.hold("create")
    world.interrupt_when(lambda: len(world.docker.asked("create")) == 2)
    stopped = world.run(*EDIT, "--yes")
    assert stopped.code == 130
    assert "spark-tui edit tiny-1b" in stopped.err
    world.docker.release()
    assert "spark-tui edit tiny-1b" in world.run("ps").err
    done = world.run("edit", "tiny-1b")
    assert (done.code, done.out) == (0, "http://127.0.0.1:8123\n"), done.err
    assert "--max-model-len 2048" in started(world)
    assert "interrupted" not in world.run("ps").err
