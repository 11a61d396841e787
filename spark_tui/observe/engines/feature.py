"""Engines: what they are, their logs, and what these mean."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "status": ("spark_tui.observe.engines.command.status", "Show the machine, Docker and what is serving."),
        "logs": ("spark_tui.observe.engines.command.logs", "Print a container's log, or those of several by time."),
        "explain": (
            "spark_tui.observe.engines.command.explain",
            "Explain a start-up log: phases, kernels, memory, root cause, fix.",
        ),
    },
    modes={"logs": "spark_tui.observe.engines.screen.logs:LogsScreen"},
)
