"""What another box answers when it is asked for its status, and what it means when it does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.errors import SparkError, UnreachableError
from spark_tui.domain.quantities import gib
from spark_tui.domain.reading import Missing, Ok, Reading, reason_of, value_of
from spark_tui.domain.remote_hosts import DEFAULT_COMMAND, RemoteHost
from spark_tui.domain.text import clean, clean_line, truncate

QUESTION: Final = ("status", "--json")
SSH_FAILED: Final = 255
"""ssh's own exit code when it could not connect; every other one is that of the command there."""
NOT_FOUND: Final = (126, 127)
"""POSIX shells: found and cannot be run, not found."""
_MOST: Final = 300
_MOST_ENGINES: Final = 100
_NOT_TOLD: Final = "it does not tell"


class HostUnreachable(UnreachableError):
    """ssh does not get there."""

    id = "host_unreachable"


class HostNotReady(SparkError):
    """ssh gets there, and finds no spark-tui that answers."""

    id = "host_not_ready"


@dataclass(frozen=True, slots=True)
class RemoteEngine:
    """An engine of another box. `model` is empty and `port` None where it does not tell."""

    name: str
    state: str
    model: str = ""
    port: int | None = None

    @property
    def serving(self) -> bool:
        """It answers requests."""
        return self.state == EngineState.SERVING.value


@dataclass(frozen=True, slots=True)
class RemoteBox:
    """Another box, as its own spark-tui sees it. `available` of `total` bytes of memory are usable."""

    hostname: str
    available: Reading[int]
    total: Reading[int]
    engines: Reading[tuple[RemoteEngine, ...]]


def read_status(out: str) -> RemoteBox | None:
    """The answer to `status --json`; None when this is none. A shell there may have said something before it."""
    told = _object(out)
    if told is None or "memory" not in told or "engines" not in told:
        return None
    host, memory = told.get("host"), told.get("memory")
    reason = _text(told.get("memory_reason")) or _NOT_TOLD
    return RemoteBox(
        _text(host.get("id")) if isinstance(host, Mapping) else "",
        _bytes(memory, "available_bytes", reason),
        _bytes(memory, "total_bytes", reason),
        _engines(told),
    )


def no_answer(host: RemoteHost, code: int, out: str, err: str) -> SparkError:
    """Why `host` gave no status: the exit code of ssh, what came on standard output and on standard error."""
    said = last_line(err)
    if code == SSH_FAILED:
        return HostUnreachable(
            f"{host.name} cannot be reached: {said or 'ssh does not say why'}.",
            _ssh_remedy(host, err),
            detail=clean(err),
        )
    if code in NOT_FOUND:
        return not_installed(host, clean(err))
    return HostNotReady(
        f"{host.name} has no status to tell: {said or last_line(out) or f'its exit code is {code}'}.",
        f"Its spark-tui is probably older than this one: update it there. See: ssh {host.destination} "
        f"-- {host.line(QUESTION)}",
        detail=clean(err) or clean(out[:_MOST]),
    )


def not_installed(host: RemoteHost, detail: str = "") -> SparkError:
    """The shell there does not find the command."""
    usual = host.command == DEFAULT_COMMAND
    where = "it is not on the PATH that ssh gives a command" if usual else f"there is no {host.command}"
    return HostNotReady(
        f"{host.name}: spark-tui is not installed there: {where}.",
        "Install it on that box, or say where it is: "
        f"spark-tui config set hosts.{_settings_name(host)} '{host.destination},~/.local/bin/spark-tui'",
        detail=detail,
    )


def too_slow(host: RemoteHost, seconds: float) -> SparkError:
    """It has not answered in time."""
    return HostUnreachable(
        f"{host.name} has not answered for {seconds:g} s.",
        f"See whether it is on, and in reach: ssh {host.destination}",
    )


def memory_words(box: RemoteBox) -> str:
    """`96.3 of 119.7 GiB`, or why that is not known."""
    available, total = value_of(box.available), value_of(box.total)
    if available is None:
        return f"n/a: {reason_of(box.available)}"
    return f"{gib(available)} GiB" if total is None else f"{gib(available)} of {gib(total)} GiB"


def serving_words(box: RemoteBox) -> str:
    """`qwen3 :8000, gemma :8001; 1 more does not serve`, or why that is not known."""
    engines = value_of(box.engines)
    if engines is None:
        return f"n/a: {reason_of(box.engines)}"
    serving = [each.name if each.port is None else f"{each.name} :{each.port}" for each in engines if each.serving]
    others = len(engines) - len(serving)
    more = f"{others} that {'does' if others == 1 else 'do'} not serve" if others else ""
    return "; ".join(filter(None, (", ".join(serving) or "nothing", more)))


def last_line(text: str) -> str:
    """The last line that says something, for the screen, without its full stop."""
    lines = [line for line in (clean_line(each).strip() for each in text.splitlines()) if line]
    return truncate(lines[-1], _MOST).rstrip(".") if lines else ""


def _settings_name(host: RemoteHost) -> str:
    return host.name if host.name != host.destination else "NAME"


def _ssh_remedy(host: RemoteHost, err: str) -> str:
    by_hand = f"ssh {host.destination}"
    if "Permission denied" in err:
        return (
            f"Give it your key: ssh-copy-id {host.destination}. "
            f"With a password it opens by hand: spark-tui --host {host.name}"
        )
    if "Host key verification failed" in err:
        return f"Log in once by hand, and look at the key that it shows: {by_hand}"
    if "Could not resolve hostname" in err:
        return f"Correct its address: spark-tui config set hosts.{_settings_name(host)} USER@ADDRESS"
    return f"See what ssh says: {by_hand}"


def _object(out: str) -> Mapping[str, Any] | None:
    """The JSON object that the text is, or that begins on one of its lines."""
    starts = [0, *(at + 1 for at, char in enumerate(out) if char == "\n" and out.startswith("{", at + 1))]
    for start in starts[:_MOST_ENGINES]:
        try:
            found, _ = json.JSONDecoder().raw_decode(out[start:].lstrip())
        except (ValueError, RecursionError):
            continue
        if isinstance(found, Mapping):
            return found
    return None


def _engines(told: Mapping[str, Any]) -> Reading[tuple[RemoteEngine, ...]]:
    listed = told.get("engines")
    if not isinstance(listed, list):
        return Missing(_text(told.get("engines_reason")) or _NOT_TOLD)
    return Ok(tuple(_engine(each) for each in listed[:_MOST_ENGINES] if isinstance(each, Mapping)))


def _engine(told: Mapping[str, Any]) -> RemoteEngine:
    port = told.get("port")
    model = _text(told.get("served_name")) or _text(told.get("model"))
    number = port if isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536 else None
    return RemoteEngine(_text(told.get("id")), _text(told.get("state")), model, number)


def _bytes(memory: object, key: str, reason: str) -> Reading[int]:
    count = memory.get(key) if isinstance(memory, Mapping) else None
    return Ok(count) if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else Missing(reason)


def _text(value: object) -> str:
    return truncate(clean_line(value), _MOST) if isinstance(value, str) else ""
