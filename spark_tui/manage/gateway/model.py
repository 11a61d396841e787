"""One address for all engines: which of them ends for another one, what a gateway reports, and its errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import RefusedError, UnreachableError

STAY_SECONDS: Final = 15.0
MOST_FAILURES: Final = 3
HOUR_SECONDS: Final = 3600.0
RETRY_SECONDS: Final = 30
"""Retry-After without an estimate."""
_MOST_RETRY_SECONDS: Final = 600


class NotServing(UnreachableError, id="engine_starting"):
    """The engine is starting or waits for its turn. `eta_seconds` None: no earlier start is known."""

    def __init__(self, model: str, eta_seconds: float | None) -> None:
        self.eta_seconds = eta_seconds
        known = "unknown" if eta_seconds is None else f"{math.ceil(eta_seconds)} s"
        super().__init__(f"{model} is starting. Estimated time: {known}.", "Retry later, or send stream=true to wait.")


class GatewayBusy(UnreachableError, id="gateway_busy"):
    """Too many request bytes are held at once."""


class BodyTooLarge(RefusedError, id="body_too_large"):
    """The request's body is longer than the gateway takes."""


class SwapRefused(RefusedError, id="swap_refused"):
    """The engine cannot be started without ending one that must stay."""


def retry_after(eta_seconds: float | None) -> int:
    """Whole seconds for a Retry-After header."""
    if eta_seconds is None:
        return RETRY_SECONDS
    return min(max(1, math.ceil(eta_seconds)), _MOST_RETRY_SECONDS)


# --- policy -------------------------------------------------------------------------------------------


class GatewayPolicy(Struct, frozen=True):
    """How engines share the machine.

    `presets` may be launched on request; empty: those whose model is downloaded or that have served here before.
    `aliases` are pairs of a name and the model that it stands for. A pinned engine is never ended. `together` are sets
    of engines that may run at once; with any of them, or `alone`, all other engines end for a new one; without, only
    memory decides. `ttl_seconds` ends an idle engine, 0 never. `stay_seconds` is how long an engine counts as used
    after a request. `failures` is how often a preset may fail in an hour before it is not launched again. `peers` are
    gateways of other machines, by name and address.
    """

    presets: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    pinned: tuple[str, ...] = ()
    together: tuple[frozenset[str], ...] = ()
    alone: bool = False
    ttl_seconds: float = 0.0
    stay_seconds: float = STAY_SECONDS
    failures: int = MOST_FAILURES
    peers: tuple[tuple[str, str], ...] = ()

    def may_run_with(self, one: Iterable[str], other: Iterable[str]) -> bool:
        """Whether two engines, each by its names, may run at once."""
        if not (self.alone or self.together):
            return True
        return any(not group.isdisjoint(one) and not group.isdisjoint(other) for group in self.together)

    def pins(self, names: Iterable[str]) -> bool:
        return not set(self.pinned).isdisjoint(names)


class Resident(Struct, frozen=True):
    """An engine that runs while another one wants its place. `holds` is its memory in bytes, None: unknown.
    `idle_seconds` is the time since its last request, None while it answers one. `fixed` says why it stays whatever
    happens; empty: it may end. `excluded`: it must not run beside the new one."""

    name: str
    holds: int | None
    idle_seconds: float | None
    fixed: str = ""
    excluded: bool = False


class Eviction(Struct, frozen=True):
    """Engines to stop now; else engines to wait for, since they answer requests; else why there is no way."""

    stop: tuple[str, ...] = ()
    wait: tuple[str, ...] = ()
    refused: str = ""


def evict(residents: Sequence[Resident], short_bytes: int) -> Eviction:
    """Which engines end so that `short_bytes` more become free: those that must not run beside the new one, then the
    one unused longest, idle ones first. One of unknown size ends alone: what it frees is measured afterwards."""
    going = [each for each in residents if each.excluded and not each.fixed]
    freed = sum(each.holds or 0 for each in going)
    unknown = any(each.holds is None for each in going)
    others = [each for each in residents if not each.fixed and not each.excluded]
    others.sort(key=lambda each: (each.idle_seconds is None, -(each.idle_seconds or 0.0), each.name))
    for each in others:
        if freed >= short_bytes or unknown:
            break
        going.append(each)
        freed += each.holds or 0
        unknown = each.holds is None
    if freed < short_bytes and not unknown:
        kept = "; ".join(f"{each.name}: {each.fixed}" for each in residents if each.fixed)
        return Eviction(refused=kept or "no other engine can be stopped")
    busy = tuple(each.name for each in going if each.idle_seconds is None)
    return Eviction(wait=busy) if busy else Eviction(stop=tuple(each.name for each in going))


def recent(times: Iterable[float], now: float) -> tuple[float, ...]:
    """Those of the last hour."""
    return tuple(at for at in times if now - at < HOUR_SECONDS)


# --- what is served -----------------------------------------------------------------------------------


class Upstream(Struct, frozen=True):
    """Where a request goes. `model` is what the engine calls it."""

    engine: str
    endpoint: Endpoint
    model: str


class GatewayModel(Struct, frozen=True):
    """A name that requests may use. `engine` is the engine or preset behind it, `context` its tokens where known."""

    id: str
    engine: str
    serving: bool
    context: int | None = None
