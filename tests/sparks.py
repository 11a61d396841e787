"""Two nodes, each a whole core on fakes that is asked by the protocol: nothing half-dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.engine.state import ServedModel
from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.finding import Ok, Reading, value_of
from spark_tui.base.launches import ClusterRecord
from spark_tui.base.ports import ShellResult
from spark_tui.base.protocol import FabricLink
from spark_tui.base.remote import QUESTION, RemoteHost, Spread
from spark_tui.base.untrusted import decode, encode
from spark_tui.catalog.models.model.store import Payload, StoredFile, StoredModel
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.machine.nodes import Nodes
from spark_tui.manage.cluster.model.plan import plan_cluster, record_of
from spark_tui.manage.cluster.use.launch import ClusterLauncher
from spark_tui.manage.cluster.use.monitor import ClusterMonitor
from spark_tui.manage.cluster.use.node import Node
from tests.fakes_files import MemoryState
from tests.fakes_host import FakeArchive, FakeClock
from tests.fakes_ports import Ports
from tests.kit import Kit
from tests.manage.cluster.test_cluster_plan import PATHS, cluster_of, preset

HEAD, WORKER = "nv@spark-1", "nv@spark-2"


class Killed(BaseException):
    """This program is gone: from here on it does nothing any more."""


class FakeLinks:
    """The part of a FabricProbe that a launch looks at: two rails, all well."""

    def __init__(self) -> None:
        self.found = {name: FabricLink(name, True, mtu=9000) for name in cluster_of(2).nodes[0].interfaces}

    def links(self) -> Reading[tuple[FabricLink, ...]]:
        return Ok(tuple(self.found.values()))

    def change(self, name: str, **how: Any) -> None:
        self.found[name] = replace(self.found[name], **how)


class FakeModel:
    """The part of a ModelStore that a launch looks at: the bytes of a model's files. Without any there is none."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def elsewhere(self, repo: str, revision: str) -> StoredModel | None:
        return None

    async def files(self, model: str, revision: str = "", *, anywhere: bool = False) -> tuple[StoredFile, ...]:
        if not self.sizes:
            raise UsageError(f"There is no model {model}.", "")
        return tuple(StoredFile(name, Payload(name, size, size)) for name, size in self.sizes.items())


class Sparks:
    """Two nodes, the ssh that reaches them, and what a controller keeps."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kits: dict[str, Kit] = {}
        for destination in (HEAD, WORKER):
            kit = Kit(preset())
            kit.clock = self.clock
            kit.api.clock = self.clock
            kit.context = kit.opened()
            kit.docker.add_image("org/vllm:1", layers=("a",))
            kit.api.served = (ServedModel("org/m"),)
            self.kits[destination] = kit
        self.links = {destination: FakeLinks() for destination in self.kits}
        self.models = {destination: FakeModel() for destination in self.kits}
        self.kits[WORKER].docker.on_start = None  # a headless rank has no API
        self.cut: dict[str, SparkError] = {}
        self.late: dict[str, asyncio.Event] = {}
        """Verbs that no node does before their event."""
        self.state = KillableState(self)
        self.calls: list[tuple[str, str]] = []
        self.kill_at: int | None = None
        self.greeting = ""
        self.version = 1
        self.watched: list[str] = []

    def __getitem__(self, destination: str) -> Kit:
        return self.kits[destination]

    def launcher(self, state: MemoryState | None = None) -> ClusterLauncher:
        """A program that is opened, with files of its own where they are given."""
        self.kill_at, self.state.dead = None, False
        return ClusterLauncher(
            Nodes((), self, self[HEAD].host),
            state or self.state,
            FakeArchive(),
            None,
            self.clock,  # type: ignore[arg-type]
            "nv on desk",
        )

    def record(self, spread: Spread | None = None) -> ClusterRecord:
        plan = plan_cluster(preset(), Overrides(), PATHS, cluster_of(2), launch_id="l1", spread=spread)
        return record_of(plan, patience=600)

    def controller(self) -> Kit:
        """The head with the cluster `lab` in its settings, and with ssh to both nodes; itself the Watchers port."""
        kit = self[HEAD]
        ports = kit.context.ports
        assert isinstance(ports, Ports)
        ports = ports.changed(remote_shell=self, launches=ClusterMonitor, state=self.state, watchers=self)
        settings = replace(kit.context.settings, clusters=(cluster_of(2),))
        kit.context = Context(settings, ports, kit.context.paths)
        return kit

    def start(self, name: str) -> Path:
        """Watches nothing, but remembers that it was asked to."""
        self.watched.append(name)
        return Path("/state") / f"{name}.log"

    def keep(self, record: ClusterRecord) -> None:
        """Writes a launch down, as another program would."""
        self.state.write(f"cluster-{record.name}", encode(record).encode())

    def containers(self) -> list[tuple[str, str]]:
        """Node and name of every container that is anywhere."""
        return [(node, one.facts.name) for node, kit in self.kits.items() for one in kit.docker.all_containers.values()]

    def count(self) -> None:
        self.calls.append(("", ""))
        if self.kill_at is not None and len(self.calls) >= self.kill_at:
            self.state.dead = True
        if self.state.dead:
            raise Killed

    async def ask(
        self, host: RemoteHost, arguments: Sequence[str], *, given: str = "", seconds: float | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> ShellResult:  # fmt: skip
        """The RemoteShell port; what a node answers is its own core's doing."""
        self.count()
        await asyncio.sleep(0)
        if host.destination in self.cut:
            raise self.cut[host.destination]
        kit = self[host.destination]
        if tuple(arguments) == QUESTION:
            memory = value_of(kit.host.memory())
            sizes = {"total_bytes": memory.total, "available_bytes": memory.available} if memory is not None else {}
            return ShellResult(0, json.dumps({"memory": sizes, "engines": []}), "")
        assert on_line is not None
        if arguments[0] == "logs":
            async for batch in kit.docker.logs(arguments[1], follow="-f" in arguments):
                for line in batch:
                    on_line(encode(line._asdict()))
            return ShellResult(0, "", "")
        if arguments[1] in self.late:
            await self.late[arguments[1]].wait()
        kit.context[Node]._fabric = self.links[host.destination]  # type: ignore[assignment]
        kit.context[Node]._models = partial(self.models.__getitem__, host.destination)  # type: ignore[arg-type]
        kind, work = kit.context[Node].verbs()[arguments[1]]
        for line in filter(None, (self.greeting, encode({"protocol": self.version, "version": "0.1"}))):
            on_line(line)
        try:
            answer: dict[str, Any] = {"result": await work(decode(given, kind))}
        except SparkError as error:
            answer = {"error": {"summary": error.summary, "remedy": error.remedy, "exit_code": int(error.exit_code)}}
        self.count()
        on_line(encode(answer))
        return ShellResult(0, "", "")


class KillableState(MemoryState):
    """Files that a killed program does not write any more; its claims are gone."""

    def __init__(self, sparks: Sparks) -> None:
        super().__init__()
        self._sparks = sparks
        self.dead = False

    def write(self, name: str, data: bytes) -> None:
        if self.dead:
            raise Killed
        super().write(name, data)

    def remove(self, name: str) -> None:
        if self.dead:
            raise Killed
        super().remove(name)
