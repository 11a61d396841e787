"""The guard as a systemd unit of the person's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

UNIT_NAME: Final = "spark-tui-guard.service"


def unit_text(command: Sequence[str], environment: Sequence[tuple[str, str]] = ()) -> str:
    """The unit's file. It runs as the person, who needs Docker's permission; limits are raised as far as theirs go."""
    variables = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in environment)
    return f"""\
# Made by spark-tui (spark-tui guard --uninstall removes it)
[Unit]
Description=Stops an engine before this machine runs out of unified memory
Documentation=https://github.com/spark-tui/spark-tui

[Service]
ExecStart={" ".join(_quoted(word) for word in command)}
{variables}Restart=always
RestartSec=2
LimitMEMLOCK=infinity
OOMScoreAdjust=-900
CPUWeight=1000

[Install]
WantedBy=default.target
"""


def _quoted(word: str) -> str:
    """As systemd reads it: percent signs and dollars doubled, anything odd in quotes."""
    escaped = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    plain = word and all(char.isalnum() or char in "/._-:=,+@%$" for char in word)
    return escaped if plain else f'"{escaped}"'
