"""Figures over time, and what happened."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "history": (
            "spark_tui.observe.metrics.command.history",
            "Show earlier starts: duration, measurements, failures.",
        ),
        "events": ("spark_tui.observe.metrics.command.history", "Show what happened on this machine."),
        "metrics": (
            "spark_tui.observe.metrics.command.metrics",
            "Show how fast an engine serves, by its own counters.",
        ),
    },
    modes={
        "metrics": "spark_tui.observe.metrics.screen.metrics:MetricsScreen",
    },
    asides={
        "events": "spark_tui.observe.metrics.screen.events:EventsScreen",
    },
    real={
        "history": (
            "spark_tui.observe.metrics.adapter.db:HistoryDb",
            lambda make, p: make(p.folders.history, now=p.clock.now),
        ),
    },
)
