"""Container images."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "images": (
            "spark_tui.manage.images.command.images",
            "List container images: disk, versions inside, used by, moved tags.",
        ),
        "update": (
            "spark_tui.manage.images.command.update",
            "Try a preset's newer image beside the old one, then keep it or go back.",
        ),
    },
    modes={
        "images": "spark_tui.manage.images.screen:ImagesScreen",
        "presets": "spark_tui.manage.images.screen:UpdatablePresets",
    },
)
