"""Measuring how fast an engine is."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "bench": (
            "spark_tui.use.bench.command.bench",
            "Measure how fast an engine is: one stream, several, long prompts.",
        ),
        "results": ("spark_tui.use.bench.command.bench", "List, show, compare and export benchmark results."),
    },
    real={
        "load": ("spark_tui.use.bench.adapter.driver:HttpLoadDriver", None),
    },
)
