"""Proving what an engine can do."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "prove": (
            "spark_tui.use.prove.command.prove",
            "Prove that an engine does what agents need: tool calls, reasoning, structured output, depth.",
        ),
        "canary": (
            "spark_tui.use.prove.command.canary",
            "Measure idle engines each night, and show when their figures change.",
        ),
    },
    modes={"bench": "spark_tui.use.prove.screen.bench:BenchScreen"},
)
