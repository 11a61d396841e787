"""Clients that use an engine."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "connect": ("spark_tui.use.connect.command", "Connect a coding agent or a chat front end to an engine."),
    },
    asides={"connect": "spark_tui.use.connect.screen:ConnectScreen"},
    real={
        "client_files": ("spark_tui.use.connect.adapter:HomeFiles", lambda make, p: make(p.folders.home, p.environ)),
    },
    demo={
        "client_files": ("spark_tui.use.connect.adapter:MemoryFiles", None),
    },
)
