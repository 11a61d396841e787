"""Where things stand: wings and rooms are used from above alone, and layers inside a room from the screen down.

Imports inside functions and for the type checker count too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final, NamedTuple

import spark_tui
from spark_tui.app import rooms

WINGS: Final = ("base", "machine", "frame", "observe", "catalog", "run", "use", "manage", "simulator", "app")
"""From the ground up. The frames `cli` and `tui` are beside each other."""
FRAMES: Final = ("cli", "tui")
ROOMS: Final = {
    "observe": ("explain", "results", "engines", "metrics", "memory"),
    "catalog": ("models", "presets", "fit", "library"),
    "run": ("launch", "service"),
    "use": ("chat", "bench", "prove", "connect"),
    "manage": ("images", "tune", "gateway", "cluster", "doctor"),
}
LAYERS: Final = {"model": 0, "use": 1, "adapter": 2, "show": 2, "command": 3, "screen": 3}

AMONG_FRONTS: Final = 4
"""Imports of another room's screen or command: only ever lowered."""
SDKS: Final = frozenset((
    "docker", "httpx2", "huggingface_hub", "pynvml", "psutil", "prometheus_client", "tomlkit", "filelock", "starlette",
    "uvicorn",
))  # fmt: skip
FRONT_ENDS: Final = frozenset(("textual", "rich", "click"))

ROOT: Final = Path(spark_tui.__file__).parent


class Place(NamedTuple):
    """Where a module stands."""

    wing: str
    room: str
    layer: str


class Arrow(NamedTuple):
    """An import of a module of our own in another."""

    source: str
    target: str


def place_of(module: str) -> Place:
    """`spark_tui.observe.memory.use.guard` stands in the wing observe, the room memory, the layer use."""
    wing, room, layer = (*module.split(".")[1:4], "", "", "")[:3]
    return Place(wing, room, layer) if wing in ROOMS else Place("app" if wing == "__main__" else wing, "", "")


def height(place: Place) -> int:
    """Of a wing, from the ground."""
    return WINGS.index("frame" if place.wing in FRAMES else place.wing)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the product by its name."""
    files = {path: path.relative_to(ROOT.parent).with_suffix("") for path in ROOT.rglob("*.py")}
    return {
        ".".join(name.parts).removesuffix(".__init__"): ast.parse(path.read_text("utf-8"))
        for path, name in files.items()
    }


def imports_of(tree: ast.Module) -> Iterator[str]:
    """Dotted names of what a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)


@cache
def arrows() -> frozenset[Arrow]:
    """Imports of our own modules in another; `from package import name` is of the module, where the name is none."""
    found = set()
    for source, tree in modules().items():
        for name in imports_of(tree):
            target = name if name in modules() else name.rpartition(".")[0]
            if target in modules() and target.count(".") and source.count("."):
                found.add(Arrow(source, target))
    return frozenset(found)


def upward(source: Place, target: Place) -> str:
    """Which wall an import breaks; nothing for one that runs downward or stays in a room."""
    if source.wing != target.wing:
        beside = {source.wing, target.wing} <= set(FRAMES)
        return f"{source.wing} -> {target.wing}" if beside or height(source) < height(target) else ""
    order = ROOMS.get(source.wing, ())
    if not (source.room in order and target.room in order) or order.index(source.room) >= order.index(target.room):
        return ""
    return f"{source.wing}.{source.room} -> {target.wing}.{target.room}"


def test_every_module_stands_in_a_wing_and_a_room() -> None:
    for module in modules():
        place = place_of(module)
        if module.count("."):
            assert place.wing in (*WINGS, *FRAMES), module
        if place.wing in ROOMS and place.room:
            assert place.room in ROOMS[place.wing], module
            assert place.layer in ("", "feature", *LAYERS), module


def test_rooms_are_used_from_above() -> None:
    assert [each for each in arrows() if upward(place_of(each.source), place_of(each.target))] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for each in arrows():
        if not each.source.startswith(f"{each.target}."):  # the package of a module comes with it
            sorter.add(each.source, each.target)
    sorter.prepare()  # raises CycleError, which names the circle


def test_inside_a_room_layers_are_used_from_above() -> None:
    for each in arrows():
        source, target = place_of(each.source), place_of(each.target)
        if source[:2] == target[:2] and {source.layer, target.layer} <= LAYERS.keys():
            assert LAYERS[source.layer] > LAYERS[target.layer] or source.layer == target.layer, each


def test_a_model_knows_models_alone() -> None:
    for each in arrows():
        source, target = place_of(each.source), place_of(each.target)
        if source.layer == "model":
            assert target.wing == "base" or target.layer == "model", each


def test_what_a_room_declares_are_names_alone() -> None:
    """So that reading what all rooms declare imports nothing of them."""
    features = {name.removesuffix(".feature") for name in modules() if name.endswith(".feature")}
    assert set(rooms.ROOMS) == features - {"spark_tui.base"}
    light = {"__future__", "collections.abc", "typing", "spark_tui.base.feature", "spark_tui.base.finding"}
    for room in rooms.ROOMS:
        body = modules()[f"{room}.feature"].body
        imported = {each.module for each in body if isinstance(each, ast.ImportFrom)}
        made = [
            ast.unparse(each.value).split("(")[0]
            for each in body
            if isinstance(each, ast.Assign | ast.AnnAssign) and each.value
        ]
        assert imported <= light, room
        assert made == [*["Slice"] * (len(made) - 1), "Feature"], room
        assert not any(isinstance(each, ast.Import | ast.FunctionDef | ast.ClassDef) for each in body), room


def test_fronts_of_rooms_do_not_know_each_other() -> None:
    fronts = []
    for each in arrows():
        source, target = place_of(each.source), place_of(each.target)
        if target.layer in ("screen", "command") and source[:2] != target[:2] and source.wing != "app":
            fronts.append(each)
    assert len(fronts) == AMONG_FRONTS, fronts


def test_sdks_and_front_ends_are_imported_where_they_belong() -> None:
    for module, tree in modules().items():
        place, roots = place_of(module), {name.partition(".")[0] for name in imports_of(tree)}
        if place.wing in (*ROOMS, "base", *FRAMES) and place.layer != "adapter":
            assert not roots & SDKS, module
        if place.wing in ("base", "machine") or place.layer in ("model", "use", "adapter", "show"):
            assert not roots & FRONT_ENDS, module


def test_an_arrow_that_runs_up_is_seen() -> None:
    down = upward(place_of("spark_tui.run.launch.use.launch"), place_of("spark_tui.base.text"))
    up = upward(place_of("spark_tui.base.text"), place_of("spark_tui.run.launch.use.launch"))
    between = upward(place_of("spark_tui.catalog.models.use.x"), place_of("spark_tui.catalog.fit.model.y"))
    beside = upward(place_of("spark_tui.cli.command"), place_of("spark_tui.tui.frame"))
    assert (down, up, between, beside) == ("", "base -> run", "catalog.models -> catalog.fit", "cli -> tui")
