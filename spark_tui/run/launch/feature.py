"""Launching engines, and changing them."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "ps": ("spark_tui.run.launch.command.ps", "List engines: name, state, port, exposure, model."),
        "edit": ("spark_tui.run.launch.command.edit", "Change the settings of a running engine."),
        "restart": ("spark_tui.run.launch.command.engines", "Stop and start an engine with its current settings."),
        "secure": ("spark_tui.run.launch.command.engines", "Give an engine that is open to the network an API key."),
    },
)
