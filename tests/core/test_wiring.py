"""The tables of the composition root name what there is."""

from __future__ import annotations

import pytest

from spark_tui.core.context import PARTS, PORTS, Context, build_demo
from spark_tui.core.wiring import DEMO, REAL, Ports, class_at
from spark_tui.domain.errors import RefusedError
from tests.cases import all_cases

INPUTS = {"builtin_presets", "world", "machine", "simulator", "simulated_hub", "demo_folder", "folder_recipes",
          "folders", "key_folder"}  # fmt: skip
NOT_IN_THE_DEMO = {"guarding", "user_files", "remote_shell", "watchers", "routers", "transfers", "fabric",
                   "program", "gateway_server", "registries", "ollama"}  # fmt: skip
OF_OTHER_MACHINES = ("hosts", "cluster_planner", "clusters", "cluster_monitor", "nodes", "installer", "cluster_copier",
                     "node_copier", "examiner", "cluster_doctor", "registries")  # fmt: skip


def test_every_port_has_an_adapter() -> None:
    names = set(Ports.__annotations__)
    assert set(REAL) - INPUTS == names
    assert set(DEMO) - INPUTS == names - NOT_IN_THE_DEMO


@all_cases("place", sorted({place for table in (REAL, DEMO) for place, _ in table.values()}))
def test_every_adapter_is_where_the_table_says(place: str) -> None:
    assert callable(class_at(place))


def test_every_part_can_be_made() -> None:
    context = build_demo()
    for name in PARTS:
        if name not in (*OF_OTHER_MACHINES, "new_guard"):
            getattr(context, name)
    assert set(PARTS) | set(PORTS) == set(Context.__annotations__) - {"settings", "ports", "paths"}


@all_cases("name", [*OF_OTHER_MACHINES, "guarding", "user_files"])
def test_what_the_demo_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(RefusedError, match="not available in the demo"):
        getattr(build_demo(), name)


def test_a_demo_without_folders_of_a_person_writes_into_its_own() -> None:
    ports = build_demo().ports
    saved = ports.screen_files.write("view.svg", "<svg/>")
    assert saved.is_relative_to(ports.get("demo_folder").path)


def test_a_name_that_is_no_part_is_no_attribute() -> None:
    with pytest.raises(AttributeError):
        build_demo().frobnicate  # type: ignore[attr-defined]  # noqa: B018
