"""What an engine is said to be: one word for its state, one for who can reach it."""

from __future__ import annotations

from enum import StrEnum


class EngineState(StrEnum):
    """One word for the list. `READY` is only ever said after health and models were seen."""

    CREATED = "CREATED"
    STARTING = "STARTING"
    SERVING = "SERVING"
    NOT_ANSWERING = "NOT ANSWERING"
    RESTARTING = "RESTARTING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


class Exposure(StrEnum):
    """Who can reach the port."""

    LOCAL = "LOCAL"
    LAN = "LAN"
    LAN_NO_KEY = "LAN NO KEY"
    NONE = "NO PORT"
