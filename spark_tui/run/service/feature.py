"""Engines that start with the machine or at set times."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "boot": ("spark_tui.run.service.command.boot", "Start engines with the machine."),
        "schedule": (
            "spark_tui.run.service.command.schedule",
            "Stop and start an engine at set times, by a systemd timer.",
        ),
    },
)
