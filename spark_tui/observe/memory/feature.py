"""Unified memory: owners, page cache, guard."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "memory": (
            "spark_tui.observe.memory.command",
            "Show unified memory: engines, applications, driver, cache, free, available.",
        ),
        "drop-caches": ("spark_tui.observe.memory.command", "Free the page cache, which CUDA counts as used."),
        "guard": (
            "spark_tui.observe.memory.command",
            "Stop an engine before the machine runs out of memory and freezes.",
        ),
    },
    asides={"memory": "spark_tui.observe.memory.screen:MemoryScreen"},
    real={
        "dropper": ("spark_tui.observe.memory.adapter.drop_caches:SystemCacheDropper", None),
        "guarding": ("spark_tui.observe.memory.adapter.guard:guarding", lambda make, p: make(p)),
    },
)
