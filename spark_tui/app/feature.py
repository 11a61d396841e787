"""Home, settings, the browser, the shell."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "config": ("spark_tui.app.config.command", "Show and change settings."),
        "serve": ("spark_tui.app.serve", "Open the control centre in a browser, behind a token."),
        "last-copy": ("spark_tui.app.config.command", "Print what was copied last on the screen."),
        "completion": ("spark_tui.app.completion", "Set up shell completion for bash, zsh or fish."),
        "man": ("spark_tui.cli.man", "Print the manual page, or install it for man."),
    },
    modes={"home": "spark_tui.app.home.screen:HomeScreen"},
)
