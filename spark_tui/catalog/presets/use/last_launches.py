"""The values that each preset was last launched with: what its form begins with."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError
from spark_tui.base.ports import StateFiles
from spark_tui.base.untrusted import load_json
from spark_tui.catalog.presets.model.overrides import Overrides, all_pairs, overrides_from_pairs
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.use.preflight import Preflight

_FILE: Final = "last-launches"
_HERE: Final[Mapping[str, str]] = MappingProxyType({})
MAX_PRESETS: Final = 200
PLACE: Final = ("nodes", "parallel")
"""Where it ran, which is no setting of its command."""
MAX_PAIRS: Final = 60
MAX_CHARS: Final = 4000


class LastValues(Struct, frozen=True):
    """Pairs of settings as a form shows them, and the keys of those that the preset no longer takes."""

    pairs: Mapping[str, str]
    left_out: tuple[str, ...] = ()


class LastLaunches:
    """Remembers them, the latest launch last. What is damaged or outdated is ignored; what cannot be read is not
    overwritten, and `keep` says so."""

    @classmethod
    def from_context(cls, context: Context) -> LastLaunches:
        return cls(context.ports.state, context[Preflight])

    def __init__(self, state: StateFiles, preflight: Preflight) -> None:
        self._state = state
        self._preflight = preflight

    @property
    def latest(self) -> str:
        """The preset that was launched last; empty where none was."""
        with suppress(SparkError):
            return next(reversed(self._read()), "")
        return ""

    def of(self, preset: Preset, clusters: Container[str] = ()) -> LastValues:
        """What the form begins with. `clusters` are those that there are now: of another one nothing is taken."""
        stated: object = None
        with suppress(SparkError):
            stated = self._read().get(preset.name)
        given = dict(stated) if isinstance(stated, dict) else {}
        place = {key: value for key in PLACE if isinstance(value := given.pop(key, None), str)}
        pairs = {
            key: value
            for key, value in list(given.items())[:MAX_PAIRS]
            if isinstance(value, str) and len(value) <= MAX_CHARS and self._takes(preset, {key: value}, alone=True)
        }
        if pairs and not self._takes(preset, pairs):
            rest = ({other: pairs[other] for other in pairs if other != key} for key in pairs)
            pairs = next((each for each in rest if self._takes(preset, each)), {})
        left = [key for key in given if key not in pairs]
        if place.get("nodes") in clusters:
            pairs |= place
        return LastValues(pairs, (*left, *(key for key in place if key not in pairs)))

    def keep(self, preset: Preset, overrides: Overrides, place: Mapping[str, str] = _HERE) -> tuple[str, ...]:
        """Why it could not be written; a launch does not depend on it. `place` has values of `PLACE`."""
        try:
            known = self._read()
            known.pop(preset.name, None)
            known[preset.name] = {**all_pairs(overrides), **place}
            latest = dict(list(known.items())[-MAX_PRESETS:])
            self._state.write(_FILE, json.dumps({"version": 1, "presets": latest}).encode())
        except SparkError as error:
            return (f"Values not remembered. {error.summary}",)
        return ()

    def _takes(self, preset: Preset, pairs: Mapping[str, str], *, alone: bool = False) -> bool:
        """`alone`: one pair by itself, which may need another one to make a command."""
        try:
            overrides = overrides_from_pairs(pairs)
            if not alone:
                self._preflight.dry_plan(replace(preset, min_nodes=1), overrides)
        except SparkError:
            return False
        return True

    def _read(self) -> dict[str, Any]:
        try:
            found = load_json(self._state.read(_FILE) or b"{}")
        except ValueError:
            return {}
        presets = found.get("presets") if isinstance(found, dict) else None
        return dict(presets) if isinstance(presets, dict) else {}
