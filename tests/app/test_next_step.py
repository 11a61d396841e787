"""What is suggested on a machine without an engine."""

from __future__ import annotations

from spark_tui.app.home.next_step import FITTING, MOST, NextStep
from spark_tui.app.wiring import build_demo
from spark_tui.base.finding import value_of
from spark_tui.catalog.fit.use.fit import LaunchChecks
from spark_tui.catalog.models.model.store import Completeness
from spark_tui.catalog.presets.feature import LIBRARY
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import PRESETS
from spark_tui.catalog.presets.use.rights import PresetSource
from spark_tui.observe.engines.use.collectors import Collectors


async def test_only_what_is_downloaded_and_fits_is_suggested() -> None:
    context = build_demo()
    try:
        await context[Collectors].collect_once()
        context.store.put(PRESETS, context[PresetSource].load())
        found = await context[NextStep].candidates()
        assert 0 < len(found) <= MOST
        library = value_of(context.store.world[LIBRARY])
        assert library is not None
        whole = {name for entry in library.entries if entry.model.completeness is Completeness.COMPLETE
                 for name in entry.presets}  # fmt: skip
        for each in found:
            assert each.preset.name in whole
            assert (await context[LaunchChecks].judge(each.preset, Overrides())).word in FITTING
    finally:
        await context.close()
