"""Searching for the fastest settings."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "tune": (
            "spark_tui.manage.tune.command",
            "Search for the settings that make a preset fastest, by measuring them in turn.",
        ),
    },
)
