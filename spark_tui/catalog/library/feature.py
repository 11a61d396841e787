"""Models and what serves them."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "models": (
            "spark_tui.catalog.library.command.models",
            "List, download, inspect, verify and delete checkpoints.",
        ),
    },
    modes={"models": "spark_tui.catalog.library.screen.models:ModelsScreen"},
)
