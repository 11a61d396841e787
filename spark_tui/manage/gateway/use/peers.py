"""Gateways of other machines behind this one: which of their models serve, and which is least busy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from spark_tui.base.engine.state import Endpoint, ServedModel
from spark_tui.base.errors import ModelNotServed, SparkError
from spark_tui.base.gateway import PEER_MARK, GatewayPeer
from spark_tui.base.ports import Clock, EngineApi, SecretStore
from spark_tui.base.text import clean_line, truncate
from spark_tui.manage.gateway.model import GatewayModel, Upstream

LOOK_SECONDS: Final = 3.0


def key_name(peer: str) -> str:
    """The private file that holds the key for a peer."""
    return f"gateway-peer-{peer}"


class _Peer(Struct):
    """`models` are its own: those of gateways behind it are left out, so that no request goes in circles."""

    name: str
    endpoint: Endpoint
    models: tuple[ServedModel, ...] = ()
    in_flight: int = 0
    answered: int = 0
    problem: str = "not asked yet"


class Peers:
    """Asks every peer for its models, again and again. Their engines' keys stay with them."""

    def __init__(self, api: EngineApi, secrets: SecretStore, clock: Clock, peers: Sequence[tuple[str, str]]) -> None:
        self._api = api
        self._clock = clock
        keys = {name: secrets.api_key(str(secrets.path(key_name(name)))) for name, _ in peers}
        self._peers = [_Peer(name, Endpoint(url.rstrip("/"), keys[name])) for name, url in peers]

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.gather(*map(self._look, self._peers))
            await self._clock.sleep(LOOK_SECONDS)

    async def _look(self, peer: _Peer) -> None:
        try:
            listed = await self._api.models(peer.endpoint)
            peer.models = tuple(each for each in listed if not each.root.startswith(PEER_MARK))
            peer.problem = ""
        except SparkError as error:
            peer.models, peer.problem = (), error.summary

    def busy(self, model: str) -> int | None:
        """Requests under way at the least busy peer that serves a model; None where none does."""
        found = self._found(model, serving=True)
        return None if found is None else found.in_flight

    def offers(self, model: str) -> bool:
        """Whether a peer serves or would launch it."""
        return self._found(model, serving=False) is not None

    def models(self) -> Iterator[GatewayModel]:
        for peer in self._peers:
            for each in peer.models:
                yield GatewayModel(each.id, PEER_MARK + peer.name, each.serving, each.max_model_len)

    @contextmanager
    def lease(self, model: str) -> Iterator[Upstream]:
        """The peer for one request, one that serves before one that would launch. Raises ModelNotServed."""
        peer = self._found(model, serving=True) or self._found(model, serving=False)
        if peer is None:
            raise ModelNotServed(f"No other machine serves {truncate(clean_line(model), 120)}.", "See GET /v1/models.")
        peer.in_flight += 1
        try:
            yield Upstream(PEER_MARK + peer.name, peer.endpoint, model)
            peer.answered += 1
        finally:
            peer.in_flight -= 1

    def lost(self, engine: str) -> bool:
        """Whether that names a peer, which then counts as away until it answers again."""
        peer = next((each for each in self._peers if PEER_MARK + each.name == engine), None)
        if peer is not None:
            peer.models, peer.problem = (), "it did not answer a request"
        return peer is not None

    def status(self) -> tuple[GatewayPeer, ...]:
        return tuple(
            GatewayPeer(
                each.name, each.endpoint.base_url, tuple(model.id for model in each.models if model.serving),
                each.in_flight, each.answered, each.problem,
            )
            for each in self._peers
        )  # fmt: skip

    def _found(self, model: str, *, serving: bool) -> _Peer | None:
        able = (
            each for each in self._peers if any(one.id == model and (one.serving or not serving) for one in each.models)
        )
        return min(able, key=lambda each: (each.in_flight, each.name), default=None)
