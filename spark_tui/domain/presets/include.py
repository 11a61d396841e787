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

MAX_DEPTH: Final = 8
_ATOMIC: Final = ("defaults", "env")
_SIBLING = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_SUFFIXES: Final = (".yaml", ".yml")


def flattened(document: Table, file: str, sibling: Callable[[str], Table | None]) -> Table:
    """The recipe with everything that it includes. `sibling` gives the recipe of a file name in the same folder.

    Raises PresetError for a base that is not there, that lies elsewhere, or that leads back to itself.
    """
    chain: list[Table] = [document]
    seen: set[str] = set()
    while (entry := chain[-1].get("include")) is not None:
        name = compact(entry.node).strip()
        if len(chain) > MAX_DEPTH or name in seen:
            raise _error(entry, file, "leads in a circle, or deeper than eight recipes", "Write the values out.")
        seen.add(name)
        chain.append(_base(entry, name, file, sibling))
    merged = chain.pop()
    while chain:
        merged = merge(merged, chain.pop())
    return Table(tuple(entry for entry in merged.entries if entry.key != "include"), document.line)


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


def merge(base: Table, outer: Table) -> Table:
    """`outer` over `base`, by the rules above. Neither is changed."""
    entries = {entry.key: entry for entry in base.entries if entry.key != "include"}
    for entry in outer.entries:
        if entry.key == "include":
            continue
        if _is_null(entry.node):
            entries.pop(entry.key, None)
            continue
        earlier = entries.get(entry.key)
        entries[entry.key] = Entry(entry.key, entry.line, _over(entry, earlier.node if earlier else None))
    return Table(tuple(entries.values()), outer.line)


def _over(entry: Entry, earlier: Node | None) -> Node:
    if entry.key == "overrides" and isinstance(entry.node, Items) and isinstance(earlier, Items):
        return Items((*earlier.items, *entry.node.items), entry.node.line)
    if isinstance(entry.node, Table) and isinstance(earlier, Table):
        return _merged(earlier, entry.node, atomic=entry.key in _ATOMIC)
    return entry.node


def _merged(base: Table, outer: Table, *, atomic: bool) -> Table:
    entries = {entry.key: entry for entry in base.entries}
    for entry in outer.entries:
        earlier = entries.get(entry.key)
        if _is_null(entry.node):
            entries.pop(entry.key, None)
        elif not atomic and earlier is not None and isinstance(entry.node, Table) and isinstance(earlier.node, Table):
            entries[entry.key] = Entry(entry.key, entry.line, _merged(earlier.node, entry.node, atomic=False))
        else:
            entries[entry.key] = entry
    return Table(tuple(entries.values()), outer.line)


def _is_null(node: Node) -> bool:
    return isinstance(node, Leaf) and node.value is None


INCLUDE: Final = "include"
MAX_CHAIN: Final = 5
"""So many presets may stand on one another."""

Find = Callable[[str, str], tuple[str, Node] | None]
"""Given a name and the file that includes it: the file and document of the preset so named, None where there is none.
Raises PresetError where that file cannot be read."""


def with_included(document: Node, file: str, find: Find, names: Collection[str]) -> tuple[Node, tuple[str, ...]]:
    """The whole document, and the names of what it stands on, nearest first; the document itself when it includes
    nothing.

    Mappings are put over one another key by key, everything else replaces; a key with nothing behind it takes the
    included one away. `names` are the presets that can be named. Raises PresetError for a name that is none, for a
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
        whole = over(whole, layer) if isinstance(whole, Table) and isinstance(layer, Table) else layer
    return whole, tuple(chain)


def over(base: Table, own: Table) -> Table:
    """`own` put over `base`; keys keep the place that they have in `base`."""
    entries = {entry.key: entry for entry in base.entries if entry.key != INCLUDE}
    for entry in own.entries:
        if entry.key == INCLUDE:
            continue
        below = entries.get(entry.key)
        if isinstance(entry.node, Leaf) and entry.node.value is None:
            entries.pop(entry.key, None)
        elif below is not None and isinstance(below.node, Table) and isinstance(entry.node, Table):
            entries[entry.key] = Entry(entry.key, entry.line, over(below.node, entry.node))
        else:
            entries[entry.key] = entry
    return Table(tuple(entries.values()), own.line)


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
