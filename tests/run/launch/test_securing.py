"""secure NAME: the question, the launch, and a key that nobody sees."""

from __future__ import annotations

from tests.cli.world import IMAGE, World


def open_world() -> World:
    world = World(drive=True)
    world.docker.add_image(IMAGE)
    world.docker.on_start = world.api.serve
    assert world.run("up", "tiny-1b", "--expose", "lan", "--no-api-key", "--set", "max_model_len=2048").code == 0
    return world


def test_it_says_what_happens_asks_and_prints_the_path_of_the_key() -> None:
    world = open_world()
    result = world.run("secure", "tiny-1b", keyboard="y\n")
    assert result.code == 0, result.err
    assert result.out == "/home/test/.config/spark-tui/secrets/tiny-1b.env\n"
    assert "Clients are cut off" in result.err
    assert "key-1" not in result.out + result.err
    assert "2048" in " ".join(world.docker.created[-1].command)
    listed = world.run("ps", "--json").json
    assert listed[0]["exposure"] == "LAN"


def test_no_is_the_default_and_changes_nothing() -> None:
    world = open_world()
    result = world.run("secure", "tiny-1b", keyboard="\n")
    assert result.code == 0
    assert "Nothing was changed" in result.err
    assert world.run("ps", "--json").json[0]["exposure"] == "LAN NO KEY"


def test_scripts_say_yes_and_get_data() -> None:
    world = open_world()
    assert world.run("secure", "tiny-1b", "--json").code == 4, "nobody is there to answer"
    result = world.run("secure", "tiny-1b", "--json", "--yes")
    assert result.json_lines[-1]["key_file"].endswith("tiny-1b.env")
    assert "key-1" not in result.out + result.err


def test_read_only_and_engines_that_need_none_are_refused() -> None:
    world = World()
    world.engine()
    assert world.run("secure", "tiny-1b", "--yes").code == 4
    assert world.run("secure", "tiny-1b", "--yes", "--read-only").code == 4
