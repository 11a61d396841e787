"""What a running gateway says of itself, and the keys of its clients."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.errors import RefusedError

PEER_MARK: Final = "peer:"
"""Before the name of another gateway, where an engine's name stands."""


class KeysUnreadable(RefusedError, id="gateway_keys"):
    """The file of the clients' keys cannot be read. `detail` says where and why, to the owner only."""


class ClientCosts(Struct, frozen=True):
    """What a client's requests cost one engine, summed since the gateway started. `path` is that of its last request.

    `counted_prompts` have `prompt_tokens` in all. `cache_known_tokens` are the prompt tokens of requests whose cached
    tokens are reported, `cached_tokens` those. `timed` streams had their first token after `first_seconds` in all.
    `repeats` are long prompts that continue an earlier one; the next three say how many of them were read again, by
    cause. `alike_bytes` is how much of the start was the same at the last change.
    """

    client: str
    engine: str
    path: str = ""
    requests: int = 0
    counted_prompts: int = 0
    prompt_tokens: int = 0
    cache_known_tokens: int = 0
    cached_tokens: int = 0
    timed: int = 0
    first_seconds: float = 0.0
    repeats: int = 0
    changed: int = 0
    crowded: int = 0
    evicted: int = 0
    alike_bytes: int = 0

    @property
    def prompt_mean(self) -> float | None:
        """Tokens of a prompt; None: not reported."""
        return self.prompt_tokens / self.counted_prompts if self.counted_prompts else None

    @property
    def hits(self) -> float | None:
        """The share of prompt tokens from the cache, 0 to 1; None: not reported."""
        return self.cached_tokens / self.cache_known_tokens if self.cache_known_tokens else None

    @property
    def first_mean(self) -> float | None:
        """Seconds to the first token of a stream; None without one."""
        return self.first_seconds / self.timed if self.timed else None

    def joined(self, other: ClientCosts) -> ClientCosts:
        """Both in one, under this one's name. What each repeats is no matter of the other."""
        names = (
            "requests",
            "counted_prompts",
            "prompt_tokens",
            "cache_known_tokens",
            "cached_tokens",
            "timed",
            "first_seconds",
        )
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in names})


class GatewayEngine(Struct, frozen=True):
    """An engine behind the gateway: the names that it is reached by, and requests under way and answered."""

    name: str
    names: tuple[str, ...]
    in_flight: int
    answered: int
    pinned: bool


class GatewaySwap(Struct, frozen=True):
    """A launch on request. `phase` is the step, `waiting` the clients that wait, `stopped` the engines ended for it.
    `ready_at` is its estimated end in seconds since the epoch; None: unknown."""

    target: str
    phase: str
    detail: str
    waiting: int
    stopped: tuple[str, ...] = ()
    ready_at: float | None = None


class GatewayPeer(Struct, frozen=True):
    """A gateway of another machine: what it serves now, requests passed to it, and why it cannot be asked."""

    name: str
    address: str
    serves: tuple[str, ...]
    in_flight: int
    answered: int
    problem: str


class GatewayStatus(Struct, frozen=True):
    """A running gateway. `failures` are pairs of a preset and why its last launch failed; `clients` has who asked which
    engine, the most active first."""

    address: str
    since: float
    keyed: bool
    engines: tuple[GatewayEngine, ...] = ()
    swaps: tuple[GatewaySwap, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    peers: tuple[GatewayPeer, ...] = ()
    clients: tuple[ClientCosts, ...] = ()

    @property
    def local_address(self) -> str:
        """Its address for clients of this machine: one that stands for all addresses is none to connect to."""
        return self.address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


class GatewayKey(Struct, frozen=True):
    """A client's key: its SHA-256 in hexadecimal, never itself. `at` is seconds since the epoch."""

    client: str
    digest: str
    at: float
