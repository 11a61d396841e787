"""Where engines are: containers of Docker, processes outside it, servers at an address that a person names.

One resolver for every command and screen: an engine is an endpoint that may have a container.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from spark_tui.base.context import Context, Ports
from spark_tui.base.engine.container import ADDRESS_ID, LABEL_API_KEY_FILE, PROCESS_ID, ContainerFacts
from spark_tui.base.engine.runtimes import ANY, is_proxy
from spark_tui.base.engine.state import ServedModel, endpoint_of, proven, runtime_of, server_at
from spark_tui.base.errors import (
    ApiKeyRejected,
    ContainerNotFound,
    EngineUnreachable,
    RefusedError,
    SparkError,
    UsageError,
)
from spark_tui.base.executors import in_thread
from spark_tui.base.settings import read_engines
from spark_tui.base.text import clean_line, same_name, truncate

ASK_SECONDS: Final = 2.0
"""For the models of a server of an unknown kind: the list of engines waits for it."""
_SHORT_ID: Final = 12
_SCHEMES: Final = ("http://", "https://")


class EngineFinder:
    """Finds engines. What was asked for by its address is known from then on."""

    @classmethod
    def from_context(cls, context: Context) -> EngineFinder:
        return cls(context.ports, context.settings.engines)

    def __init__(self, ports: Ports, addresses: str = "") -> None:
        self._ports = ports
        self._addresses = {each.id: each for each in (server_at(url, name) for name, url in read_engines(addresses))}
        self._asked: dict[str, ContainerFacts] = {}
        """Servers of an unknown kind that have listed their models, by their id."""
        self._gateways: set[str] = set()

    async def outside(self) -> tuple[ContainerFacts, ...]:
        """Engines without a container: processes by their command line or by the GPU, then addresses of none of them,
        whether they answer or not. Never Docker's error; a gateway, and a process that lists no models, is none."""
        processes = await self._processes()
        known = {_url(each) for each in processes}
        places = [each for each in self._addresses.values() if each.address not in known]
        found = await asyncio.gather(*map(self._proven, places))
        addresses = (proof or each for each, proof in zip(places, found, strict=True) if each.id not in self._gateways)
        return (*processes, *map(self._keyed, addresses))

    def _keyed(self, engine: ContainerFacts) -> ContainerFacts:
        """With the file that has its key, where the person wrote one: no launch of ours made it."""
        path = str(self._ports.secrets.path(engine.name))
        with suppress(SparkError):  # one that cannot be read is none
            if self._ports.secrets.api_key(path) is not None:
                return replace(engine, labels=(*engine.labels, (LABEL_API_KEY_FILE, path)))
        return engine

    async def _processes(self) -> tuple[ContainerFacts, ...]:
        found = [each for each in await in_thread(self._ports.host.bare_engines) if not is_proxy(each.argv)]
        proofs = await asyncio.gather(*(self._proven(each) for each in found if runtime_of(each) == ANY.id))
        named = [each for each in found if runtime_of(each) != ANY.id]
        own = map(self._keyed, (*named, *filter(None, proofs)))
        return tuple(sorted(own, key=lambda each: (each.name, each.pid)))

    async def _proven(self, server: ContainerFacts) -> ContainerFacts | None:
        """A server with the kind that it says it is; None for one that lists no models, in time, and for a gateway."""
        key_file = self._keyed(server).api_key_file
        endpoint = endpoint_of(server, self._ports.secrets.api_key(key_file) if key_file else None)
        if server.id in self._asked or endpoint is None:
            return self._asked.get(server.id)
        models: tuple[ServedModel, ...] = ()
        try:
            async with asyncio.timeout(ASK_SECONDS):
                models = await self._ports.api.models(endpoint)
        except ApiKeyRejected:
            pass  # it serves; without its key we cannot ask what
        except (SparkError, TimeoutError):
            return None
        found = proven(server, models)
        if found is None:
            self._gateways.add(server.id)
        else:
            self._asked[server.id] = found
        return found

    async def all(self, name: str = "") -> tuple[ContainerFacts, ...]:
        """Every container, and every engine outside Docker. Raises Docker's error unless what is asked for, or
        anything, is outside it."""
        outside = await self.outside()
        if name.startswith((PROCESS_ID, ADDRESS_ID)):
            return outside
        try:
            return (*await self._ports.docker.containers(), *outside)
        except SparkError:
            if not outside or (name and not same_name(name, [each.name for each in outside])):
                raise
            return outside

    async def _at(self, url: str) -> ContainerFacts:
        """The engine at an address that was typed: one of this machine's, else a server that is asked at once. Raises
        UsageError for a bad address, EngineUnreachable where none answers, RefusedError for a gateway."""
        try:
            server = server_at(url)
        except ValueError as error:
            raise UsageError(f"The address {error}.", "Write it as http://192.168.1.7:8000.") from None
        containers: Sequence[ContainerFacts] = ()
        with suppress(SparkError):  # a server needs no Docker
            containers = await self._ports.docker.containers()
        for each in (*await self._processes(), *containers):
            if each.running and runtime_of(each) and _url(each) == server.address:
                return each
        found = await self._proven(server)
        if server.id in self._gateways:
            raise RefusedError(f"{server.address} is a gateway, no engine.", "Name the address of an engine behind it.")
        if found is None:
            raise EngineUnreachable(
                f"No engine answers at {server.address}.", f"Does it list models? curl {server.address}/v1/models"
            )
        self._addresses.setdefault(server.id, server)
        return self._keyed(found)

    async def find(self, name: str) -> tuple[ContainerFacts | None, tuple[ContainerFacts, ...]]:
        """What a name, an address or the beginning of an id means, None for nothing; and all that there is."""
        if name.startswith(_SCHEMES):
            found = await self._at(name)
            return found, (found,)
        known = await self.all(name)
        meant = same_name(name, [each.name for each in known])
        exact = [each for each in known if each.name == meant] or [each for each in known if each.id == name]
        short = [each for each in known if len(name) >= _SHORT_ID and not each.bare and each.id.startswith(name)]
        return next(iter(exact), short[0] if len(short) == 1 else None), known

    async def inspect(self, name: str) -> ContainerFacts:
        """One by its exact name or id, as it is now. Raises ContainerNotFound, and Docker's errors for what may be a
        container."""
        if not name.startswith((PROCESS_ID, ADDRESS_ID)):
            try:
                return await self._ports.docker.inspect(name)
            except SparkError:
                outside = [each for each in await self.outside() if each.name == name]
                if not outside:
                    raise
                return outside[0]
        found, _ = await self.find(name)
        if found is None:
            raise ContainerNotFound(f"{truncate(clean_line(name), 60)} has ended.", "See: spark-tui ps")
        return found


def _url(engine: ContainerFacts) -> str:
    endpoint = endpoint_of(engine, None)
    return "" if endpoint is None else endpoint.base_url
