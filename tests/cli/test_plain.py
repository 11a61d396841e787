"""status --plain: sentences, and only what changes."""

from __future__ import annotations

from spark_tui.base.errors import DaemonNotRunning
from tests.cli.world import World, example


def test_everything_is_told_in_sentences() -> None:
    result = example().run("status", "--plain")
    assert result.out == (
        "Memory: 116 of 121 gibibytes available.\n"
        "Docker 28.5.1 answers.\n"
        "tiny-1b: ready with acme/tiny-1b on port 8000, this machine only.\n"
        "broken-8b: failed with exit code 1.\n"
    )
    assert World().run("status", "--plain").out.endswith("No engines.\n")


def test_an_open_engine_is_said_to_be_open() -> None:
    world = World()
    world.engine(host_ip="0.0.0.0")
    assert "open to the network without a key" in world.run("status", "--plain").out


def test_without_docker_the_memory_is_told_and_the_exit_code_says_why() -> None:
    world = World()
    world.docker.go_down(DaemonNotRunning("Docker does not run.", "Start it."))
    result = world.run("status", "--plain")
    assert result.code == 3
    assert result.out.splitlines()[1] == "Docker cannot be reached: Docker does not run."


def test_watching_tells_a_change_once_and_nothing_while_nothing_changes() -> None:
    world = example()
    world.drive = True
    start = world.clock.monotonic()
    world.when(lambda: world.clock.monotonic() > start + 20, lambda: world.docker.end("tiny-1b"))
    world.interrupt_when(lambda: world.clock.monotonic() > start + 40)
    result = world.run("status", "--plain", "--watch")
    assert result.code == 130
    told = [line[9:] for line in result.out.splitlines()]
    assert told[4:] == ["tiny-1b: stopped."], result.out


def test_watch_alone_is_refused_with_the_way_out() -> None:
    result = World().run("status", "--watch")
    assert result.code == 2
    assert "--plain" in result.err
