"""The tables of the composition root name what there is."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import spark_tui
from spark_tui.app.wiring import Adapters, build_demo
from spark_tui.base.context import PORTS, Context, Ports
from spark_tui.base.errors import RefusedError
from spark_tui.base.feature import named
from spark_tui.base.ports import PORT_NAMES
from spark_tui.catalog.models.use.ports import HubClient
from spark_tui.manage.cluster.use.install import ProgramSource
from tests.cases import all_cases

REAL, DEMO = Adapters(), Adapters(demo=True)
INPUTS = {"builtin_presets", "world", "machine", "simulator", "simulated_hub", "demo_folder", "folder_recipes",
          "folders", "key_folder"}  # fmt: skip
NOT_IN_THE_DEMO = {"guarding", "user_files", "remote_shell", "launches", "watchers", "routers", "transfers", "fabric",
                   "program", "gateway_server", "registries", "ollama", "node_plans"}  # fmt: skip
OF_OTHER_MACHINES = {"Hosts", "ClusterPlanner", "ClusterLauncher", "ClusterMonitor", "ClusterJobs", "Nodes",
                     "Installer", "ClusterCopier", "NodeCopier", "NodeExaminer", "ClusterDoctor",
                     "RegistryManager"}  # fmt: skip


def modules_with(text: str) -> list[ModuleType]:
    """Modules of the program that hold that text, imported."""
    folder = Path(spark_tui.__file__).parents[1]
    files = [path for path in folder.rglob("spark_tui/**/*.py") if text in path.read_text("utf-8")]
    return [import_module(".".join(path.relative_to(folder).with_suffix("").parts)) for path in files]


def parts() -> dict[str, Any]:
    """Every class that a context makes, by its name."""
    modules = modules_with("def from_context")
    found = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    return {each.__name__: each for each in found if hasattr(each, "from_context")}


def test_every_port_has_an_adapter() -> None:
    assert modules_with("@port_named(")
    names = Ports.__annotations__.keys() | PORT_NAMES.values()
    assert not Ports.__annotations__.keys() & PORT_NAMES.values()
    assert set(REAL) - INPUTS == names
    assert set(DEMO) - INPUTS == names - NOT_IN_THE_DEMO


def test_a_port_that_is_asked_for_by_name_is_in_a_table() -> None:
    texts = [path.read_text("utf-8") for path in Path(spark_tui.__file__).parent.rglob("*.py")]
    asked = {name for text in texts for name in re.findall(r"ports(?:\.has\(|\.get\(|\[)\"(\w+)\"[\])]", text)}
    assert len(asked) > 10
    assert asked <= REAL.keys() | DEMO.keys() | {"environ"}


@all_cases("place", sorted({place for table in (REAL, DEMO) for place, _ in table.values()}))
def test_every_adapter_is_where_the_table_says(place: str) -> None:
    assert callable(named(place))


def test_every_part_can_be_made_and_is_made_once() -> None:
    context, found = build_demo(), parts()
    assert len(found) > 40
    for name in found.keys() - OF_OTHER_MACHINES - {"Guard"}:
        assert context[found[name]] is context[found[name]]


def test_what_the_demo_does_not_have_is_refused() -> None:
    context, found = build_demo(), parts()
    for name in sorted(OF_OTHER_MACHINES):
        with pytest.raises(RefusedError, match="not available in the demo"):
            context[found[name]]
    for name in ("guarding", "user_files"):
        with pytest.raises(RefusedError, match="not available in the demo"):
            getattr(context, name)


def test_the_ports_of_a_context_are_those_of_its_table() -> None:
    assert set(PORTS) == set(Context.__annotations__) - {"settings", "ports", "paths", "store"}


def test_a_port_of_a_room_is_asked_for_by_its_protocol() -> None:
    context = build_demo()
    assert context[HubClient] is context.ports.get("hub") is context.find(HubClient)
    assert context.find(ProgramSource) is None
    with pytest.raises(RefusedError, match="Remote hosts are not available in the demo"):
        context[ProgramSource]


def test_a_demo_without_folders_of_a_person_writes_into_its_own() -> None:
    ports = build_demo().ports
    saved = ports.screen_files.write("view.svg", "<svg/>")
    assert saved.is_relative_to(ports.get("demo_folder").path)


def test_a_name_that_is_no_port_is_no_attribute() -> None:
    with pytest.raises(AttributeError):
        build_demo().frobnicate  # type: ignore[attr-defined]  # noqa: B018
