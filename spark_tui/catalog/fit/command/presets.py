"""presets: its commands, each imported when it is asked for."""

from __future__ import annotations

from typing import Final

from spark_tui.cli.command import group, run_command
from spark_tui.cli.session import Session

_HERE: Final = "spark_tui.catalog.fit.command"
_PLACES: Final = {
    "list": f"{_HERE}.preset_list",
    "compare": f"{_HERE}.preset_list",
    "show": f"{_HERE}.preset_pins",
    "pin": f"{_HERE}.preset_pins",
    "unpin": f"{_HERE}.preset_pins",
    "allow": f"{_HERE}.preset_checks",
    "import": f"{_HERE}.preset_import",
    "export": f"{_HERE}.preset_export",
    "diff": f"{_HERE}.preset_checks",
    "check": f"{_HERE}.preset_checks",
}


@group("presets", _PLACES)
def presets(_: Session) -> None:
    """List and show recipes. Without a command: the list.

    Put your own in ~/.config/spark-tui/presets, as sparkrun v2 YAML; yours replace built-in ones of the same name.
    """
    run_command("presets", "list")
