"""A preset that says `include: NAME` is that preset with what the file itself says put over it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from typing import Final

from spark_tui.domain.errors import PresetError
from spark_tui.domain.presets.located import Entry, Leaf, Node, Table, compact
from spark_tui.domain.text import clean_line, truncate

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
