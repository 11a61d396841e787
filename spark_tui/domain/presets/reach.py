"""Who may reach an engine's port."""

from __future__ import annotations

from enum import StrEnum


class Reach(StrEnum):
    """Who may reach the port."""

    LOCAL = "local"
    LAN = "lan"
