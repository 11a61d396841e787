"""Copies of images and models between the nodes of a cluster: the controller, and each node's own part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.base.executors import end_tasks, in_thread
from spark_tui.base.finding import value_of
from spark_tui.base.ports import Clock, ContainerEngine, HostProbe, port_named
from spark_tui.base.remote import Cluster, ClusterNode, Clusters, check_destination, find_nodes
from spark_tui.base.text import clean_line, quoted
from spark_tui.base.untrusted import decode
from spark_tui.catalog.models.model.download import SpeedMeter
from spark_tui.catalog.models.model.store import Completeness
from spark_tui.catalog.models.use.ports import ModelStore
from spark_tui.machine.nodes import Nodes
from spark_tui.manage.cluster.model.copying import (
    RSYNC_INSTALL,
    Checked,
    CheckRequest,
    CopyFailed,
    CopyPhase,
    CopyProgress,
    Inventory,
    InventoryRequest,
    ModelFile,
    SendRequest,
    Sent,
    TransferCount,
    fabric_address,
    missing_files,
    room_needed,
    room_sentence,
    same_image,
)

T = TypeVar("T")
Say = Callable[[CopyProgress], None]

INVENTORY_SECONDS: Final = 120.0
"""A large store takes its time when it is scanned for the first time."""
REPORT_SECONDS: Final = 0.5
_REVISIONS: Final = ("refs/", "snapshots/")


# --- a node -----------------------------------------------------------------------------------------------


@port_named("transfers")
class Transfers(Protocol):
    """Sends to another machine through this user's own ssh, which must not ask anything. Raises CopyFailed,
    FabricUnreachable, ReceiverFull; when it is cancelled, all its processes end."""

    def user(self) -> str:
        """Who this program runs as."""

    def has_rsync(self) -> bool: ...

    def files(self, folder: Path, only: Collection[str] = ()) -> tuple[ModelFile, ...]:
        """Everything below a folder that is whole, or what of `only` there is; empty without the folder. Reads small
        files: for a thread. Raises SparkError."""

    async def damaged(self, folder: Path, files: Sequence[ModelFile], count: TransferCount) -> tuple[str, ...]:
        """Those of these files that are not as expected; by SHA-256 where it is their name. They are removed."""

    async def send_image(self, reference: str, to: str, port: int, count: TransferCount) -> None:
        """From Docker here into Docker there, in one stream."""

    async def send_files(
        self, folder: Path, files: Sequence[str], to: str, port: int, place: str, count: TransferCount
    ) -> None:
        """Files and links below `folder` to the same names below `place` there. Interrupted files are continued."""


class NodeCopier(Struct, eq=False):
    """This machine as a node that gives or receives."""

    _docker: ContainerEngine
    _host: HostProbe
    _models: ModelStore
    _transfers: Transfers
    _clock: Clock
    _store: Path

    @classmethod
    def from_context(cls, context: Context) -> NodeCopier:
        return cls(
            context.docker,
            context.host,
            context[ModelStore],
            context[Transfers],
            context.clock,
            Path(context.paths.store),
        )

    def verbs(self, say: Say) -> dict[str, tuple[type[Any], Callable[[Any], Awaitable[object]]]]:
        """As `Node.verbs`; `say` gets the progress of what takes long."""
        return {
            "inventory": (InventoryRequest, self.inventory),
            "send": (SendRequest, lambda request: self.send(request, say)),
            "check": (CheckRequest, lambda request: self.check(request, say)),
        }

    async def inventory(self, request: InventoryRequest) -> Inventory:
        """What is here of it, and how much room there is for it. Raises SparkError."""
        have = Inventory(self._transfers.user(), str(self._store), rsync=self._transfers.has_rsync())
        if request.image:
            place = (await self._docker.daemon()).root
            have = replace(have, place=place, image=await self._docker.image(request.image))
        elif request.model:
            other = await in_thread(self._models.elsewhere, request.model, "")
            if other is not None:  # what is copied goes from store to store
                return replace(have, problem=f"{Path(other.path).parent} has it")
            model = (await self._models.scan(others=False)).find(request.model)
            if model is None:
                return have
            whole = model.completeness in (Completeness.COMPLETE, Completeness.UNREFERENCED)
            why = "" if whole else "; ".join(model.reasons) or model.completeness.value
            folder = str(Path(model.path).relative_to(self._store.resolve()))  # models are named by the store resolved
            have = replace(await self._below(have, folder), problem=why)
        else:
            have = await self._below(have, request.folder)
        return replace(have, free=value_of(await in_thread(self._host.free_disk, Path(have.place))))

    async def send(self, request: SendRequest, say: Say) -> Sent:
        """Sends, and says how far it is. Raises CopyFailed, FabricUnreachable, ReceiverFull."""
        try:
            check_destination(request.to)
        except ValueError as error:
            raise UsageError(f"The receiving node {error}.", "Use the same version on both.") from None
        count, began = TransferCount(), self._clock.monotonic()
        if request.image:
            work = self._transfers.send_image(request.image, request.to, request.port, count)
        else:
            base, _ = self._base(request.folder)
            work = self._send_files(base, request, count)
        await self._reported(work, count, request.size, CopyPhase.SENDING, say)
        return Sent(count.done, self._clock.monotonic() - began)

    async def check(self, request: CheckRequest, say: Say) -> Checked:
        """Compares what was copied; damaged files are removed."""
        base, _ = self._base(request.folder)
        count, size = TransferCount(), sum(file.size for file in request.files)
        work = self._transfers.damaged(base, request.files, count)
        return Checked(await self._reported(work, count, size, CopyPhase.CHECKING, say), count.done)

    # --- parts ----------------------------------------------------------------------------------------

    async def _send_files(self, base: Path, request: SendRequest, count: TransferCount) -> None:
        """What names a revision of the Hub's cache comes last: until then the receiver has none that is not whole."""
        for last in (False, True):
            files = [name for name in request.files if name.startswith(_REVISIONS) is last]
            if files:
                part = TransferCount() if last else count
                await self._transfers.send_files(base, files, request.to, request.port, request.place, part)

    async def _below(self, have: Inventory, folder: str) -> Inventory:
        base, only = self._base(folder)
        files = await in_thread(self._transfers.files, base, only)
        return replace(have, place=str(base), folder=folder if files else "", files=files)

    def _base(self, folder: str) -> tuple[Path, tuple[str, ...]]:
        """The folder below the store, and the file of it that is the whole model (GGUF). Raises UsageError."""
        path = Path(folder)
        if not folder or path.is_absolute() or ".." in path.parts:
            raise UsageError(f"{clean_line(folder)!r} is not below the store.", "Use the same version on both.")
        inside = self._store / path
        return (inside.parent, (inside.name,)) if inside.suffix == ".gguf" and not inside.is_dir() else (inside, ())

    async def _reported(
        self, work: Coroutine[Any, Any, T], count: TransferCount, size: int, phase: CopyPhase, say: Say
    ) -> T:
        """The result of `work`; meanwhile `say` gets its progress twice a second."""
        meter, task = SpeedMeter(), asyncio.ensure_future(work)

        async def report() -> None:
            while True:
                now = self._clock.monotonic()
                meter.feed(now, count.done)
                speed = meter.speed(now)
                total = size if size >= count.done else None
                left = (total - count.done) / speed if speed and total is not None else None
                ended = count.ended and phase is CopyPhase.SENDING
                progress = CopyProgress(phase, count.done, total, speed, left)
                say(CopyProgress(CopyPhase.LOADING, count.done) if ended else progress)
                await self._clock.sleep(REPORT_SECONDS)

        reports = asyncio.ensure_future(report())
        try:
            await asyncio.wait((task, reports), return_when=asyncio.FIRST_COMPLETED)
            if reports.done() and not task.done():  # the reader of the progress has gone
                reports.result()
            return await task
        finally:
            await end_tasks(task, reports)


# --- the controller ---------------------------------------------------------------------------------------


class Copied(Struct, frozen=True):
    """What a node has received: `files` and links of a model, `bytes` on the wire, within `seconds`. Nothing of it
    where it `had` all before. `hashed` bytes were compared by SHA-256 afterwards."""

    node: str
    had: bool = False
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    hashed: int = 0


class _Delivery(Struct, frozen=True):
    """What one node receives: the image, or these files."""

    node: ClusterNode
    have: Inventory
    files: tuple[ModelFile, ...] = ()


class ClusterCopier(Struct, eq=False):
    """Copies from one node of a cluster to the others, over the fabric. Nothing passes through this machine."""

    _clusters: Clusters
    _nodes: Nodes

    @classmethod
    def from_context(cls, context: Context) -> ClusterCopier:
        return cls(context.settings.clusters, context[Nodes])

    async def copy(
        self, request: InventoryRequest, names: Sequence[str], source: str, report: Callable[[str, CopyProgress], None]
    ) -> tuple[Copied, ...]:
        """Copies the image or model to the nodes of those names that need it, one after the other. `source` is the node
        that has it; empty: the head. `report` gets the receiving node's name and its progress.

        Raises UsageError for what the source does not have, RefusedError before anything is sent where it does not fit,
        and what a node answers.
        """
        if "@" in request.image:  # docker save keeps tags alone
            raise UsageError(f"{request.image} is a digest, which a copy does not keep.", "Name the image by its tag.")
        cluster = find_nodes(self._clusters, names)
        giver = _find(cluster, source)
        given = await self._inventory(giver, request)
        if given.problem and not given.found:
            raise RefusedError(
                f"{request.model} is not in the model store of {giver.name}: {clean_line(given.problem)}.",
                f"Move it there: spark-tui --host {giver.host} models move {quoted(request.model)}",
            )
        if not given.found:
            raise await self._absent(cluster, giver, request)
        if given.problem:
            raise RefusedError(
                f"{request.model} is not complete on {giver.name}: {clean_line(given.problem)}.",
                f"Complete it: spark-tui --host {giver.host} models pull {quoted(request.model)}",
            )
        there = request if request.image else InventoryRequest(folder=given.folder)
        others = [node for node in cluster.nodes if node is not giver]
        found = await asyncio.gather(*(self._inventory(node, there) for node in others))
        needs, done = list[_Delivery](), dict[str, Copied]()
        for node, have in zip(others, found, strict=True):
            files = missing_files(given, have)
            if files or (given.image and not (have.image and same_image(given.image, have.image))):
                needs.append(_Delivery(node, have, files))
            else:
                done[node.name] = Copied(node.name, had=True)
        for delivery in needs:
            _check(giver, given, delivery)
        for delivery in needs:
            done[delivery.node.name] = await self._deliver(giver, given, delivery, request, report)
        return tuple(done[node.name] for node in others)

    async def _deliver(
        self,
        giver: ClusterNode,
        given: Inventory,
        delivery: _Delivery,
        request: InventoryRequest,
        report: Callable[[str, CopyProgress], None],
    ) -> Copied:
        node, have, files = delivery.node, delivery.have, delivery.files

        def progress(line: str) -> None:
            report(node.name, decode(line, dict[str, CopyProgress])["progress"])

        send = SendRequest(
            f"{have.user}@{fabric_address(giver, node)}",
            urlsplit(self._nodes.reach(node).destination).port or 0,
            request.image,
            given.folder,
            have.place,
            tuple(file.path for file in files),
            given.image.size if given.image else sum(file.size for file in files),
        )
        sent = await self._nodes.ask(giver, "send", send, Sent, seconds=0, on_progress=progress)
        report(node.name, CopyProgress(CopyPhase.CHECKING))
        copied = Copied(node.name, files=len(files), bytes=sent.bytes, seconds=sent.seconds)
        if given.image:
            now = (await self._inventory(node, request)).image
            if now is None or not same_image(given.image, now):
                raise CopyFailed(
                    f"{request.image} on {node.name} is not the image of {giver.name}.",
                    f"By hand: ssh {giver.host} docker save {quoted(request.image)} | ssh {node.host} docker load",
                )
            return copied
        check = CheckRequest(given.folder, files)
        checked = await self._nodes.ask(node, "check", check, Checked, seconds=0, on_progress=progress)
        if checked.damaged:
            names = ", ".join(clean_line(name) for name in checked.damaged[:3])
            raise CopyFailed(
                f"{len(checked.damaged)} copied files are damaged on {node.name} and were removed: {names}.",
                f"Check the source: spark-tui --host {giver.host} models verify {quoted(request.model)}. Then repeat.",
            )
        return replace(copied, hashed=checked.hashed)

    async def _inventory(self, node: ClusterNode, request: InventoryRequest) -> Inventory:
        return await self._nodes.ask(node, "inventory", request, Inventory, seconds=INVENTORY_SECONDS)

    async def _absent(self, cluster: Cluster, giver: ClusterNode, request: InventoryRequest) -> UsageError:
        others = [node for node in cluster.nodes if node is not giver]
        found = await asyncio.gather(*(self._inventory(node, request) for node in others), return_exceptions=True)
        known = [(node, each) for node, each in zip(others, found, strict=True) if isinstance(each, Inventory)]
        having = [node for node, each in known if each.found or each.problem]
        what, name = ("image", request.image) if request.image else ("model", request.model)
        way = (
            f"ssh {giver.host} docker pull {quoted(name)}"
            if request.image
            else (f"spark-tui --host {giver.host} models pull {quoted(name)}")
        )
        remedy = f"Copy it from {having[0].name}: --from {having[0].name}" if having else f"Fetch it there: {way}"
        return UsageError(f"{giver.name} does not have the {what} {clean_line(name)}.", remedy)


def _find(cluster: Cluster, name: str) -> ClusterNode:
    """The node of that name; empty is the head. Raises UsageError."""
    found = next((node for node in cluster.nodes if not name or name in (node.name, node.host)), None)
    if found is None:
        known = ", ".join(node.name for node in cluster.nodes)
        raise UsageError(f"{cluster.name} has no node {clean_line(name)[:60]}.", f"Name one of: {known}")
    return found


def _check(giver: ClusterNode, given: Inventory, delivery: _Delivery) -> None:
    """Raises RefusedError for what cannot be sent."""
    node, have = delivery.node, delivery.have
    if not fabric_address(giver, node):
        raise RefusedError(
            f"The fabric address of {node.name} is unknown.",
            f"Add the cluster again: spark-tui cluster add NAME --node {node.host},fabric=IP,if=NAME ...",
        )
    for each, inventory in ((giver, given), (node, have)) if delivery.files else ():
        if not inventory.rsync:
            raise RefusedError(f"rsync not found on {each.name}.", f"Install it: ssh -t {each.host} {RSYNC_INSTALL}")
    need = room_needed(given, delivery.files)
    if have.free is not None and have.free < need:
        raise RefusedError(room_sentence(node.name, have, need), f"Make room there: ssh {node.host}")
