"""What an engine is said to be: one word for its state, one for who can reach it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_tui.domain.secret import Secret


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`base_url` without a trailing slash, `http://127.0.0.1:8000`; the key goes into the Authorization header only.

    `runtime` is an id of the table of runtimes and says how this server is asked; unknown ones are asked as vLLM is.
    `model` is the name that is served here, for servers that list all they have in store; empty: all of them.
    """

    base_url: str
    api_key: Secret | None = None
    runtime: str = "vllm"
    model: str = ""


class Health(StrEnum):
    """What the server's health page says."""

    OK = "ok"
    NOT_LISTENING = "not listening"
    LOADING = "loading"
    DEAD = "engine dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """An entry of `/v1/models`. `root` is the path or repo that was given, where the server tells it; `max_model_len`
    in tokens."""

    id: str
    root: str = ""
    max_model_len: int | None = None


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


class Reach(StrEnum):
    """Who may reach the port."""

    LOCAL = "local"
    LAN = "lan"
