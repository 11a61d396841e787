"""The promise of --json: ids, units in the names, and a reason beside every null."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from spark_tui.base.engine.container import ContainerStatus
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.host.vitals import GpuReading, HostIdentity
from tests.cases import all_cases
from tests.cli.world import World, example

COMMANDS = (
    ("status", "--json"),
    ("memory", "--json"),
    ("ps", "-a", "--json"),
    ("presets", "list", "--json"),
    ("presets", "show", "tiny-1b", "--json"),
    ("presets", "show", "big-70b", "--json"),
    ("up", "tiny-1b", "--dry-run", "--json"),
    ("up", "tiny-1b", "--replace", "--json"),
    ("restart", "tiny-1b", "--json"),
    ("chat", "tiny-1b", "-m", "x", "--json"),
    ("logs", "tiny-1b", "--json"),
    ("down", "tiny-1b", "--json"),
)


def bare_world() -> World:
    """As much unknown as can be."""
    world = example()
    world.host.identity_value = HostIdentity("")
    world.host.uptime_value = Missing("no /proc/uptime")
    world.host.memory_value = Ok(world.host.memory_value.value, 0.0)  # type: ignore[union-attr]
    world.host.pressure_value = Missing("no PSI")
    world.gpu.value = Ok(GpuReading("NVIDIA GB10", unified=True), 0.0)
    world.docker.add_container("odd", image="vllm:x", status=ContainerStatus.CREATED)
    return world


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _objects(item)


def _documents(out: str) -> list[Any]:
    try:
        return [json.loads(out)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in out.splitlines()]


@all_cases("make", [example, bare_world])
def test_beside_every_null_stands_its_reason(make: Any) -> None:
    faults = []
    for command in COMMANDS:
        result = make().run(*command)
        assert result.code == 0, (command, result.err)
        for found in _objects(_documents(result.out)):
            nulls = [key for key, value in found.items() if value is None and not found.get(f"{key}_reason")]
            faults += [(" ".join(command), key) for key in nulls]
    assert faults == []


def test_what_is_listed_has_an_id() -> None:
    for command in COMMANDS:
        if command[0] in ("ps", "presets"):
            (document,) = _documents(example().run(*command).out)
            for item in document if isinstance(document, list) else [document]:
                assert item["id"], command


def test_with_json_nothing_is_narrated() -> None:
    for command in COMMANDS:
        told = example().run(*command).err.splitlines()
        assert all("error" in json.loads(line) for line in told), command
