"""`include` of sparkrun recipes: a recipe that is a small change to another one, made whole.

Mappings merge key by key, lists and scalars replace, an empty value deletes what it inherits. A value within
`defaults` or `env` is one setting and replaces as a whole; `overrides` are appended (sparkrun 0.4.2).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection
from typing import Final

from spark_tui.domain.errors import PresetError
from spark_tui.domain.presets.located import Entry, Items, Leaf, Node, Table, compact
from spark_tui.domain.presets.recipe import Dialect, dialect_of
from spark_tui.domain.text import clean_line, truncate

INCLUDE: Final = "include"
MAX_DEPTH: Final = 8
MAX_CHAIN: Final = 5
"""Longest chain of presets that include one another."""
_ATOMIC: Final = ("defaults", "env")
_SIBLING = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_SUFFIXES: Final = (".yaml", ".yml")


def flattened(document: Table, file: str, sibling: Callable[[str], Table | None]) -> Table:
    """The recipe with everything that it includes. `sibling` gives the recipe of a file name in the same folder.

    Raises PresetError for a base that is not there, that lies elsewhere, or that leads back to itself.
    """
    chain: list[Table] = [document]
    seen: set[str] = set()
    while (entry := chain[-1].get(INCLUDE)) is not None:
        name = compact(entry.node).strip()
        if len(chain) > MAX_DEPTH or name in seen:
            raise _error(entry, file, "leads in a circle, or deeper than eight recipes", "Write the values out.")
        seen.add(name)
        chain.append(_base(entry, name, file, sibling))
    merged = chain.pop()
    while chain:
        merged = merge(merged, chain.pop(), sparkrun=True)
    return Table(tuple(entry for entry in merged.entries if entry.key != INCLUDE), document.line)


def _base(entry: Entry, name: str, file: str, sibling: Callable[[str], Table | None]) -> Table:
    if name.startswith("@"):
        raise _error(
            entry,
            file,
            "names a recipe of another registry",
            "Export it whole first (sparkrun recipe export), and import that file.",
        )
    if _SIBLING.fullmatch(name) is None:
        raise _error(entry, file, "is no file of the same folder", "Name a recipe beside this one, without a path.")
    names = (name,) if name.endswith(_SUFFIXES) else tuple(name + suffix for suffix in _SUFFIXES)
    base = next((found for each in names if (found := sibling(each)) is not None), None)
    if base is None:
        raise _error(entry, file, "is not beside this recipe", "Put that recipe into the same folder.")
    if dialect_of(base) is not Dialect.SPARKRUN:
        raise _error(entry, file, f"is a {dialect_of(base)}", "Import that recipe first, and include the result.")
    return base


def _error(entry: Entry, file: str, what: str, remedy: str) -> PresetError:
    shown = truncate(clean_line(compact(entry.node)), 60)
    return PresetError(f"`include: {shown}` {what}.", remedy, file=file, line=entry.line)


def merge(base: Table, outer: Table, *, sparkrun: bool = False, deep: bool = True) -> Table:
    """`outer` over `base`: mappings key by key, everything else replaces, an empty value removes. Keys keep the place
    that they have in `base`. `sparkrun`: that tool's rules for single keys; not `deep`: mappings within replace."""
    entries = {entry.key: entry for entry in base.entries if entry.key != INCLUDE}
    for entry in outer.entries:
        key, node, below = entry.key, entry.node, entries.get(entry.key)
        earlier = below.node if below is not None else None
        if key == INCLUDE:
            continue
        if isinstance(node, Leaf) and node.value is None:
            entries.pop(key, None)
        elif sparkrun and key == "overrides" and isinstance(node, Items) and isinstance(earlier, Items):
            entries[key] = Entry(key, entry.line, Items((*earlier.items, *node.items), node.line))
        elif deep and isinstance(node, Table) and isinstance(earlier, Table):
            entries[key] = Entry(key, entry.line, merge(earlier, node, deep=not (sparkrun and key in _ATOMIC)))
        else:
            entries[key] = entry
    return Table(tuple(entries.values()), outer.line)


Find = Callable[[str, str], tuple[str, Node] | None]
"""Given a name and the file that includes it: the file and document of the preset so named, None where there is none.
Raises PresetError where that file cannot be read."""


def with_included(document: Node, file: str, find: Find, names: Collection[str]) -> tuple[Node, tuple[str, ...]]:
    """The whole document, and the names of the presets it includes, nearest first; the document itself when it includes
    nothing.

    `names` are the presets that can be named. Raises PresetError for a name that is none, for a
    circle, and for a chain longer than MAX_CHAIN.
    """
    chain: list[str] = []
    files = [file]
    layers = [document]
    while isinstance(layers[-1], Table) and (entry := layers[-1].get(INCLUDE)) is not None:
        name = compact(entry.node)
        found = find(name, files[-1])
        if found is None:
            raise _unknown(name, names, files[-1], entry.line)
        if found[0] in files or len(chain) == MAX_CHAIN:
            raise _circle([*chain, name], files[-1], entry.line)
        chain.append(name)
        files.append(found[0])
        layers.append(found[1])
    whole = layers[-1]
    for layer in reversed(layers[:-1]):
        whole = merge(whole, layer) if isinstance(whole, Table) and isinstance(layer, Table) else layer
    return whole, tuple(chain)


def _unknown(name: str, names: Collection[str], file: str, line: int) -> PresetError:
    near = difflib.get_close_matches(name, names, n=1)
    shown = truncate(clean_line(name), 60)
    remedy = f"Did you mean `{near[0]}`?" if near else "`spark-tui presets list` names them all."
    return PresetError(f"`include` names no preset: {shown}.", remedy, file=file, line=line)


def _circle(chain: list[str], file: str, line: int) -> PresetError:
    shown = truncate(" -> ".join(clean_line(name) for name in chain), 120)
    return PresetError(
        f"`include` leads in a circle, or through more than {MAX_CHAIN} presets: {shown}.",
        "Include a preset that stands on its own.",
        file=file,
        line=line,
    )
