"""`include`: a recipe that is a small change to another one, made whole.

Mappings merge key by key, lists and scalars replace, an empty value deletes what it inherits. In sparkrun's own recipes
(0.4.2) a value within `defaults` or `env` is one setting and replaces as a whole, and `overrides` are appended.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection
from typing import Final

from spark_tui.base.errors import PresetError
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.presets.model.located import Entry, ListValue, MappingValue, Node, ScalarValue, compact
from spark_tui.catalog.presets.model.recipe import Dialect, dialect_of

INCLUDE: Final = "include"
MAX_SIBLINGS: Final = 8
MAX_CHAIN: Final = 5
"""Longest chain of presets that include one another."""
_SIBLING = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_SUFFIXES: Final = (".yaml", ".yml")
Find = Callable[[str, str], tuple[str, Node] | None]
"""Given a name and the file that includes it: the file and document of the preset so named, None where there is none.
Raises PresetError where that file cannot be read."""


def flattened(document: MappingValue, file: str, sibling: Callable[[str], MappingValue | None]) -> MappingValue:
    """A sparkrun recipe with everything that it includes. `sibling` gives the recipe of a file name in the same folder.

    Raises PresetError for a base that is not there, that is elsewhere, or that leads back to itself.
    """

    def base(name: str, entry: Entry, _: str) -> tuple[str, Node]:
        names = (name,) if name.endswith(_SUFFIXES) else tuple(name + suffix for suffix in _SUFFIXES)
        named = _SIBLING.fullmatch(name) is not None
        found = next((found for each in names if (found := sibling(each)) is not None), None) if named else None
        if name.startswith("@"):
            what = "names a recipe of another registry"
            remedy = "Export it whole first (sparkrun recipe export), and import that file."
        elif not named:
            what, remedy = "is no file of the same folder", "Name a recipe beside this one, without a path."
        elif found is None:
            what, remedy = "is not beside this recipe", "Put that recipe into the same folder."
        elif dialect_of(found) is not Dialect.SPARKRUN:
            what, remedy = f"is a {dialect_of(found)}", "Import that recipe first, and include the result."
        else:
            return name, found
        shown = truncate(clean_line(name), 60)
        raise PresetError(f"`include: {shown}` {what}.", remedy, file=file, line=entry.line)

    layers, _ = _layers(document, file, base, MAX_SIBLINGS)
    whole = _merged(layers, sparkrun=True)
    entries = whole.entries if isinstance(whole, MappingValue) else ()
    return MappingValue(tuple(entry for entry in entries if entry.key != INCLUDE), document.line)


def with_included(document: Node, file: str, find: Find, names: Collection[str]) -> tuple[Node, tuple[str, ...]]:
    """The whole document of a preset, and the names of the presets it includes, nearest first; the document itself when
    it includes nothing.

    `names` are the presets that can be named. Raises PresetError for a name that is none, for a circle, and for a
    chain longer than MAX_CHAIN.
    """

    def base(name: str, entry: Entry, including: str) -> tuple[str, Node]:
        found = find(name, including)
        if found is None:
            near = difflib.get_close_matches(name, names, n=1)
            summary = f"`include` names no preset: {truncate(clean_line(name), 60)}."
            remedy = f"Did you mean `{near[0]}`?" if near else "`spark-tui presets list` names them all."
            raise PresetError(summary, remedy, file=including, line=entry.line)
        return found

    layers, chain = _layers(document, file, base, MAX_CHAIN)
    return _merged(layers), chain


def _layers(
    document: Node, file: str, base: Callable[[str, Entry, str], tuple[str, Node]], most: int
) -> tuple[list[Node], tuple[str, ...]]:
    """The document and all that it includes, nearest first, and their names."""
    names: list[str] = []
    files, layers = [file], [document]
    while isinstance(layers[-1], MappingValue) and (entry := layers[-1].get(INCLUDE)) is not None:
        name = compact(entry.node).strip()
        found, node = base(name, entry, files[-1])
        if found in files or len(names) == most:
            shown = truncate(" -> ".join(map(clean_line, (*names, name))), 120)
            raise PresetError(
                f"`include` leads in a circle, or through more than {most} recipes: {shown}.",
                "Include a recipe that includes no other one.",
                file=files[-1],
                line=entry.line,
            )
        names.append(name)
        files.append(found)
        layers.append(node)
    return layers, tuple(names)


def _merged(layers: list[Node], *, sparkrun: bool = False) -> Node:
    whole = layers[-1]
    for layer in reversed(layers[:-1]):
        both = isinstance(whole, MappingValue) and isinstance(layer, MappingValue)
        whole = merge(whole, layer, sparkrun=sparkrun) if both else layer  # type: ignore[arg-type]
    return whole


def merge(base: MappingValue, outer: MappingValue, *, sparkrun: bool = False, deep: bool = True) -> MappingValue:
    """`outer` over `base`: mappings key by key, everything else replaces, an empty value removes. Keys keep the place
    that they have in `base`. `sparkrun`: that tool's rules for single keys; not `deep`: mappings within replace."""
    entries = {entry.key: entry for entry in base.entries if entry.key != INCLUDE}
    for entry in outer.entries:
        key, node, below = entry.key, entry.node, entries.get(entry.key)
        earlier = below.node if below is not None else None
        if key == INCLUDE:
            continue
        if isinstance(node, ScalarValue) and node.value is None:
            entries.pop(key, None)
        elif sparkrun and key == "overrides" and isinstance(node, ListValue) and isinstance(earlier, ListValue):
            entries[key] = Entry(key, entry.line, ListValue((*earlier.items, *node.items), node.line))
        elif deep and isinstance(node, MappingValue) and isinstance(earlier, MappingValue):
            whole = sparkrun and key in ("defaults", "env")
            entries[key] = Entry(key, entry.line, merge(earlier, node, deep=not whole))
        else:
            entries[key] = entry
    return MappingValue(tuple(entries.values()), outer.line)
