"""Copies between nodes: what is asked of which node, what is refused before anything is sent, what is verified."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import ImageFacts
from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.base.ports import ShellResult
from spark_tui.base.protocol import Hello, NodeError, NodeFailed
from spark_tui.base.quantities import GIB
from spark_tui.base.remote import Cluster, ClusterNode, RemoteHost, Topology
from spark_tui.base.untrusted import decode, encode
from spark_tui.machine.nodes import Nodes
from spark_tui.manage.cluster.model.copying import (
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
    fabric_address,
    other_file,
    same_image,
)
from spark_tui.manage.cluster.use.copying import ClusterCopier, Copied
from tests.fakes_host import FakeHost

NODES = tuple(ClusterNode(f"nv@spark-{at}", (f"192.168.100.{at}",), (f"enp{at}s0",)) for at in (1, 2, 3))
TRIO = Cluster("trio", NODES, Topology.SWITCH)
LAYERS = ("sha256:a", "sha256:b")
DIGESTS = ("repo/engine@sha256:d",)
IMAGE = ImageFacts("sha256:1", "repo/engine:1", ("serve",), size=10 * GIB, digests=DIGESTS, layers=LAYERS)
FILES = (ModelFile("blobs/" + "a" * 64, 5 * GIB), ModelFile("refs/main", 40, digest="b" * 64))
ROOM = Inventory("nv", "/place", 100 * GIB, rsync=True)
ASKED_IMAGE = InventoryRequest(image="repo/engine:1")
ASKED_MODEL = InventoryRequest(model="acme/big")
HAS_MODEL = replace(ROOM, folder="hub/models--acme--big", files=FILES)


class FakeNodes:
    """A RemoteShell behind which are nodes: `have` by name; a send makes the receiver have what the sender has."""

    def __init__(self, **have: Inventory) -> None:
        self.have = {f"nv@spark-{name[-1]}": each for name, each in have.items()}
        self.sent: list[tuple[str, SendRequest]] = []
        self.arrives = True
        self.damaged: tuple[str, ...] = ()
        self.fails: NodeError | None = None

    async def ask(
        self, host: RemoteHost, arguments: Sequence[str], *, given: str = "", seconds: float | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> ShellResult:  # fmt: skip
        assert on_line is not None
        on_line("motd of the login shell\n")
        on_line(encode(Hello()))
        if self.fails is not None and arguments[1] == "send":
            on_line(encode({"error": self.fails}))
            return ShellResult(1, "", "")
        on_line(encode({"result": self._answer(host.destination, arguments[1], given, on_line)}))
        return ShellResult(0, "", "")

    def _answer(self, host: str, verb: str, given: str, on_line: Callable[[str], None]) -> Any:
        if verb == "send":
            request = decode(given, SendRequest)
            self.sent.append((host, request))
            on_line(encode({"progress": CopyProgress(CopyPhase.SENDING, 1, request.size, 2.0, 3.0)}))
            receiver = f"nv@spark-{request.to[-1]}"
            if self.arrives:
                self.have[receiver] = self.have[host]
            return Sent(request.size, 4.0)
        if verb == "check":
            return Checked(self.damaged, sum(file.size for file in decode(given, CheckRequest).files))
        have = self.have[host]
        asked = decode(given, InventoryRequest)
        return have if asked.image or have.folder in (asked.folder, "") or asked.model else replace(have, folder="")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not used")


async def copy(
    nodes: FakeNodes, request: InventoryRequest, names: Sequence[str] = ("trio",), source: str = "",
    reports: list[tuple[str, CopyProgress]] | None = None,
) -> tuple[Copied, ...]:  # fmt: skip
    copier = ClusterCopier((TRIO,), Nodes((), nodes, FakeHost()))
    kept = [] if reports is None else reports
    return await copier.copy(request, names, source, lambda *report: kept.append(report))


# --- images -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"id": "sha256:2"}, True),
        ({"digests": ()}, True),
        ({"digests": ("mirror/engine@sha256:d",), "layers": ("sha256:z",)}, True),
        ({"digests": ("repo/engine@sha256:e",)}, True),
        ({"digests": (), "layers": ("sha256:a",)}, False),
        ({"digests": (), "entrypoint": ("other",)}, False),
        ({"digests": (), "layers": ()}, False),
    ],
)
def test_images_are_the_same_by_a_digest_or_by_layers_and_never_by_id(other: dict[str, Any], same: bool) -> None:
    assert same_image(IMAGE, replace(IMAGE, **other)) is same
    assert same_image(replace(IMAGE, **other), IMAGE) is same


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ({"config.json": (7, ""), "a.safetensors": (50, "b1")}, None),
        ({"config.json": (7, ""), "a.safetensors": (51, "b1"), "README.md": (1, "")}, ("a.safetensors", 50, 51)),
        ({"config.json": (7, ""), "a.safetensors": (50, "b2")}, ("a.safetensors", 50, 50)),
        ({"config.json": (7, "")}, ("a.safetensors", 50, None)),
        ({"config.json": (7, "x"), "a.safetensors": (50, ""), "original/b.pth": (9, ""), "fox.png": (3, "")}, None),
    ],
    ids=["same", "a byte longer", "other content", "absent", "what no engine reads"],
)
def test_a_model_is_the_same_where_an_engine_reads_the_same(
    other: dict[str, tuple[int, str]], found: tuple[str, int, int | None] | None
) -> None:
    one = (("config.json", 7, ""), ("a.safetensors", 50, "b1"))
    assert other_file(one, [(name, *rest) for name, rest in other.items()]) == found


async def test_an_image_goes_to_the_nodes_that_need_it_in_their_order() -> None:
    loaded = replace(IMAGE, id="sha256:3", digests=())
    nodes = FakeNodes(n1=replace(ROOM, image=IMAGE), n2=replace(ROOM, image=loaded), n3=ROOM)
    reports: list[tuple[str, CopyProgress]] = []
    two, three = await copy(nodes, ASKED_IMAGE, reports=reports)
    assert (two.node, two.had) == ("spark-2", True)
    assert (three.node, three.had, three.bytes) == ("spark-3", False, 10 * GIB)
    [(giver, request)] = nodes.sent
    assert (giver, request.to, request.image) == ("nv@spark-1", "nv@192.168.100.3", "repo/engine:1")
    assert ("spark-3", CopyProgress(CopyPhase.SENDING, 1, 10 * GIB, 2.0, 3.0)) in reports


async def test_an_image_that_does_not_arrive_as_it_was_is_a_failure() -> None:
    nodes = FakeNodes(n1=replace(ROOM, image=IMAGE), n2=ROOM)
    nodes.arrives = False
    with pytest.raises(CopyFailed, match="spark-2"):
        await copy(nodes, ASKED_IMAGE, ("spark-1", "spark-2"))


# --- models -----------------------------------------------------------------------------------------------


async def test_only_missing_files_go_and_only_those_are_checked() -> None:
    partly = replace(HAS_MODEL, files=(FILES[0], replace(FILES[1], digest="c" * 64)))
    nodes = FakeNodes(n1=HAS_MODEL, n2=partly, n3=HAS_MODEL)
    two, three = await copy(nodes, ASKED_MODEL)
    [(_, request)] = nodes.sent
    assert (request.files, request.folder, request.place) == (("refs/main",), HAS_MODEL.folder, "/place")
    assert (two.files, two.hashed, three.had) == (1, 40, True)


async def test_damaged_files_are_a_failure_that_names_them() -> None:
    nodes = FakeNodes(n1=HAS_MODEL, n2=ROOM)
    nodes.damaged = ("blobs/x\x1b[31m",)
    with pytest.raises(CopyFailed, match="blobs/x") as caught:
        await copy(nodes, ASKED_MODEL, ("spark-1", "spark-2"))
    assert "\x1b" not in caught.value.summary


@pytest.mark.parametrize(
    ("request_", "source", "target", "says"),
    [
        (ASKED_MODEL, HAS_MODEL, replace(ROOM, free=3 * GIB), "6.0 GiB needed"),
        (ASKED_IMAGE, replace(ROOM, image=IMAGE), replace(ROOM, free=20 * GIB), "21.0 GiB needed"),
        (ASKED_MODEL, HAS_MODEL, replace(ROOM, rsync=False), "rsync not found on spark-2"),
        (ASKED_MODEL, replace(HAS_MODEL, rsync=False), ROOM, "rsync not found on spark-1"),
        (ASKED_MODEL, replace(HAS_MODEL, problem="1 of 2 shards"), ROOM, "not complete on spark-1"),
    ],
)
async def test_what_would_fail_is_refused_with_figures_before_anything_is_sent(
    request_: InventoryRequest, source: Inventory, target: Inventory, says: str
) -> None:
    nodes = FakeNodes(n1=source, n2=target)
    with pytest.raises(RefusedError, match=says) as caught:
        await copy(nodes, request_, ("spark-1", "spark-2"))
    assert (bool(caught.value.remedy), nodes.sent) == (True, [])


async def test_an_unknown_disk_is_no_reason_to_refuse() -> None:
    nodes = FakeNodes(n1=HAS_MODEL, n2=replace(ROOM, free=None))
    assert (await copy(nodes, ASKED_MODEL, ("spark-1", "spark-2")))[0].files == 2


async def test_a_source_without_it_names_a_node_with_it_or_how_to_fetch_it() -> None:
    nodes = FakeNodes(n1=ROOM, n2=ROOM, n3=replace(ROOM, image=IMAGE))
    with pytest.raises(UsageError) as caught:
        await copy(nodes, ASKED_IMAGE)
    assert caught.value.remedy.endswith("--from spark-3")
    nodes.have["nv@spark-3"] = ROOM
    with pytest.raises(UsageError) as caught:
        await copy(nodes, ASKED_IMAGE)
    assert caught.value.remedy.endswith("docker pull repo/engine:1")


async def test_a_source_with_the_model_in_another_cache_says_how_it_comes_into_the_store() -> None:
    elsewhere = replace(ROOM, problem="/home/nv/.cache/huggingface/hub has it")
    nodes = FakeNodes(n1=elsewhere, n2=ROOM, n3=ROOM)
    with pytest.raises(RefusedError) as refused:
        await copy(nodes, ASKED_MODEL)
    assert refused.value.remedy.endswith("spark-tui --host nv@spark-1 models move acme/big"), "and no second download"
    nodes = FakeNodes(n1=ROOM, n2=elsewhere, n3=ROOM)
    with pytest.raises(UsageError) as caught:
        await copy(nodes, ASKED_MODEL)
    assert caught.value.remedy.endswith("--from spark-2")
    assert nodes.sent == []


async def test_what_fails_on_a_node_is_reported_with_its_name() -> None:
    nodes = FakeNodes(n1=HAS_MODEL, n2=ROOM)
    nodes.fails = NodeError("No ssh to nv@192.168.100.2: denied.", "Run: ssh-copy-id nv@192.168.100.2")
    with pytest.raises(NodeFailed, match="spark-1: No ssh") as caught:
        await copy(nodes, ASKED_MODEL, ("spark-1", "spark-2"))
    assert "ssh-copy-id nv@192.168.100.2" in caught.value.detail
    assert "ssh-copy-id" not in caught.value.remedy and "nv@spark-1" in caught.value.remedy


def test_the_address_is_the_one_on_the_cable_between_the_two() -> None:
    one = ClusterNode("a", ("10.0.12.1", "10.0.31.1"))
    two, three = ClusterNode("b", ("10.0.23.2", "10.0.12.2")), ClusterNode("c", ("10.0.31.3", "10.0.23.3"))
    assert fabric_address(one, two) == "10.0.12.2"
    assert fabric_address(one, three) == "10.0.31.3"
    assert fabric_address(three, two) == "10.0.23.2"
    assert fabric_address(one, ClusterNode("d")) == ""


def test_progress_is_a_line_of_the_protocol() -> None:
    line = encode({"progress": CopyProgress(CopyPhase.SENDING, 1)})
    assert json.loads(line)["progress"]["phase"] == "sending"
    assert line.startswith('{"progress"')
