"""What to launch next on this machine: presets whose model is downloaded and that fit into the memory now."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError
from spark_tui.base.finding import value_of
from spark_tui.base.store import Store
from spark_tui.catalog.fit.model.fit import FitWord
from spark_tui.catalog.fit.use.fit import LaunchChecks
from spark_tui.catalog.models.model.store import Completeness
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import PRESETS, Preset
from spark_tui.catalog.presets.use.library import Library
from spark_tui.observe.explain.model.starts import StartRecord
from spark_tui.observe.metrics.use.history import History

MOST: Final = 3
FITTING: Final = (FitWord.FITS, FitWord.FITS_WITH)


class NextPreset(Struct, frozen=True):
    """A preset that can be launched now: `text` is the verdict's, `started` whether it has served here before."""

    preset: Preset
    text: str
    started: bool


class NextStep(Struct, eq=False):
    """Reads the model store, and judges the presets of what is there; those that have served here come first."""

    _library: Library
    _checks: LaunchChecks
    _store: Store
    _starts: Callable[[], Iterable[StartRecord]]

    @classmethod
    def from_context(cls, context: Context) -> NextStep:
        return cls(
            context[Library],
            context[LaunchChecks],
            context.store,
            lambda: context[History].starts if context.ports.has("history") else (),
        )

    async def candidates(self) -> tuple[NextPreset, ...]:
        """At most `MOST`; none where no downloaded model fits."""
        library = value_of(await self._library.refresh())
        names = {
            name
            for entry in (library.entries if library is not None else ())
            if entry.model.completeness is Completeness.COMPLETE
            for name in entry.presets
        }
        started = {start.preset: number for number, start in enumerate(self._starts()) if start.ready}
        presets = [preset for preset in self._store.world[PRESETS].presets if preset.name in names]
        found: list[NextPreset] = []
        for preset in sorted(presets, key=lambda each: -started.get(each.name, -1)):
            try:
                verdict = await self._checks.judge(preset, Overrides())
            except SparkError:  # what cannot be planned is not suggested; its page says why
                continue
            if verdict.word in FITTING:
                found.append(NextPreset(preset, verdict.text, preset.name in started))
                if len(found) == MOST:
                    break
        return tuple(found)
