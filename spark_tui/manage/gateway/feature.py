"""One address for all engines."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "gateway": (
            "spark_tui.manage.gateway.command",
            "Serve all engines at one address, and launch models on request.",
        ),
    },
    real={
        "gateway_server": ("spark_tui.manage.gateway.adapter.server:HttpGateway", None),
    },
)
