"""The commands' declarations, a module for each part of the work.

A module is imported when one of its commands is asked for, and the command's own work when it runs: neither the
control centre nor `--help` waits for more than it shows.
"""

from __future__ import annotations

from typing import Final

COMMANDS: Final = {
    "status": "looking",
    "memory": "looking",
    "presets": "presets",
    "models": "models",
    "fit": "presets",
    "up": "launching",
    "ps": "looking",
    "logs": "logs",
    "explain": "logs",
    "history": "logs",
    "chat": "chat",
    "metrics": "metrics",
    "conversations": "conversations",
    "bench": "benchmarks",
    "results": "benchmarks",
    "restart": "launching",
    "secure": "launching",
    "down": "launching",
    "drop-caches": "box",
    "guard": "box",
    "doctor": "box",
    "config": "config",
    "serve": "box",
    "hosts": "hosts",
}
"""Every command, in the order of the help, and the module that declares it under its name."""
