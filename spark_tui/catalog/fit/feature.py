"""Which preset fits this machine."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "presets": ("spark_tui.catalog.fit.command.presets", "List and show recipes."),
        "recommend": (
            "spark_tui.catalog.fit.command.recommend",
            "Recommend presets for a purpose on this machine, and say why others are left out.",
        ),
        "from-ollama": (
            "spark_tui.catalog.fit.command.recommend",
            "Propose presets for the models that Ollama has, with the speed to expect.",
        ),
        "draft": ("spark_tui.catalog.fit.command.draft", "Draft a preset for a model that has none."),
        "fit": ("spark_tui.catalog.fit.command.fit", "Check whether a preset fits in the memory that is free now."),
    },
    dialogs={
        "compare_presets": "spark_tui.catalog.fit.screen.presets:CompareScreen",
        "draft": "spark_tui.catalog.fit.screen.draft:DraftDialog",
        "judge_form": "spark_tui.catalog.fit.screen.presets:JudgeForm",
        "import_form": "spark_tui.catalog.fit.screen.import_form:ImportForm",
    },
)
