"""The options that every command takes."""

from __future__ import annotations

from msgspec import Struct


class Options(Struct):
    """What every command takes. Empty: as the settings have it."""

    as_json: bool = False
    demo: bool = False
    read_only: bool = False
    store: str = ""
    docker_host: str = ""
    config: str = ""
