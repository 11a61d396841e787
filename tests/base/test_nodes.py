"""Clusters in the settings: what a node may be, and how nodes are found for a launch."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.errors import UsageError
from spark_tui.base.remote import (
    ClusterNode,
    NodeUnreadable,
    RemoteHost,
    Topology,
    cluster_plain,
    clusters_text,
    find_machines,
    find_nodes,
    read_clusters,
    read_node,
    ssh_host,
    with_addresses,
)
from tests.cases import all_cases

DUO = (
    "duo=nv@spark-1,fabric=192.168.100.1,192.168.101.1,if=enp1s0f0np0,enP2p1s0f0np0;"
    "spark-2,fabric=192.168.100.2,if=enP2p1s0f1np1,hca=mlx5_0"
)
TRIO = "trio=a,fabric=10.0.0.1;b,fabric=10.0.0.2;c,fabric=10.0.0.3;ring"


def test_a_cluster_reads_back_from_its_text_and_from_the_file() -> None:
    clusters = read_clusters(f"{TRIO} {DUO}")
    assert [(each.name, each.topology) for each in clusters] == [("duo", Topology.DIRECT), ("trio", Topology.RING)]
    assert read_clusters(clusters_text(clusters)) == clusters
    assert read_clusters({each.name: cluster_plain(each) for each in clusters}) == clusters
    assert read_clusters(clusters) == clusters


def test_rdma_devices_follow_from_the_names_of_a_connectx_unless_given() -> None:
    first, second = read_clusters(DUO)[0].nodes
    assert (first.name, first.hca, first.complete) == ("spark-1", ("rocep1s0f0", "roceP2p1s0f0"), True)
    assert (second.name, second.hca) == ("spark-2", ("mlx5_0",)), "interface names are a per-node value"
    other = read_node("nv@spark-3,fabric=10.0.0.3,if=eth0")
    assert (other.hca, other.complete) == ((), False), "unknown, never guessed"


MISTAKES = {
    "one node": "x=a",
    "nine nodes": "x=" + ";".join("abcdefghi"),
    "no nodes": "x",
    "a host twice": "x=a;a",
    "an address twice": "x=a,fabric=10.0.0.1;b,fabric=10.0.0.1",
    "no address": "x=a,fabric=spark-1;b",
    "loopback": "x=a,fabric=127.0.0.1;b",
    "an interface more": "x=a,fabric=10.0.0.1,if=e0,e1;b",
    "a strange interface": "x=a,fabric=10.0.0.1,if=$(id);b",
    "a strange device": "x=a,fabric=10.0.0.1,hca=a/b;b",
    "an option of ssh": "x=-oProxyCommand=id;b",
    "an unknown part": "x=a,gid=3;b",
    "a strange name": "x.y=a;b",
    "three on one cable": "x=a;b;c;direct",
    "one name twice": "x=a;b x=c;d",
}


@all_cases("text", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must "):
        read_clusters(text)


@given(st.text(max_size=60) | st.dictionaries(st.text(max_size=5), st.dictionaries(st.text(max_size=5), st.integers())))
def test_any_setting_is_read_or_refused(value: object) -> None:
    try:
        read_clusters(value)
    except ValueError as error:
        assert str(error).startswith("must ")


def test_nodes_are_found_by_cluster_or_by_name_in_the_order_given() -> None:
    clusters = read_clusters(f"{DUO} {TRIO}")
    assert [node.name for node in find_nodes(clusters, ["trio"]).nodes] == ["a", "b", "c"]
    assert [node.name for node in find_nodes(clusters, ["c", "a"]).nodes] == ["c", "a"], "the first is the head"
    assert find_nodes(clusters, ["nv@spark-1", "spark-2"]).name == "duo"


@pytest.mark.parametrize(("names", "hint"), [(["a"], "list"), (["a", "spark-2"], "list"), (["a", "a"], "once"),
                                             (["duoo"], "duo"), (["zebra"], "list")])  # fmt: skip
def test_other_names_are_refused(names: list[str], hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_nodes(read_clusters(f"{DUO} {TRIO}"), names)
    assert hint in caught.value.remedy
    with pytest.raises(UsageError) as caught:
        find_nodes((), names)
    assert "cluster add" in caught.value.remedy


def test_a_node_may_be_a_host_of_the_settings() -> None:
    lab = RemoteHost("lab", "nv@spark-2", "~/bin/spark-tui")
    assert ssh_host(ClusterNode("lab"), (lab,)) == lab
    assert ssh_host(ClusterNode("nv@spark-2"), (lab,)) == lab, "a host is known by its address too"
    assert ssh_host(ClusterNode("nv@spark-3"), (lab,)) == RemoteHost("spark-3", "nv@spark-3")


def test_machines_are_named_by_cluster_node_host_or_address() -> None:
    hosts = (RemoteHost("lab", "nv@spark-2"), RemoteHost("attic", "nv@10.0.0.7"))
    clusters = read_clusters("duo=nv@spark-1;lab quad=lab;nv@spark-3")

    def found(*names: str) -> list[str]:
        return [node.host for node in find_machines(clusters, hosts, names)]

    assert found() == ["nv@spark-1", "lab", "nv@spark-3"], "each once"
    assert found("duo") == ["nv@spark-1", "lab"]
    assert found("spark-3", "attic", "nv@new") == ["nv@spark-3", "attic", "nv@new"]
    assert found("lab", "nv@spark-2") == ["nv@spark-2"], "the same machine"
    for known, names in ((clusters, ("spark-9",)), ((), ())):
        with pytest.raises(UsageError):
            find_machines(known, (), names)


def answer(**addresses: str) -> str:
    """`ip -j -4 addr` for interfaces with one address each."""
    links = [{"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1"}]}]
    links += [{"ifname": name, "addr_info": [{"family": "inet", "local": ip}]} for name, ip in addresses.items()]
    return json.dumps([*links, {"ifname": "docker0"}])


SPARK = answer(enP7s7="10.77.0.11", enp1s0f0np0="192.168.100.1", enP2p1s0f0np0="192.168.101.1", wlP9s9="10.88.0.11")


def test_the_fabric_is_read_from_the_node() -> None:
    found = with_addresses(ClusterNode("spark-1"), SPARK)
    assert found.fabric == ("192.168.100.1", "192.168.101.1"), "neither the LAN nor Wi-Fi"
    assert found.interfaces == ("enp1s0f0np0", "enP2p1s0f0np0")
    lan = with_addresses(ClusterNode("spark-1", ("10.77.0.11",)), SPARK)
    assert lan.interfaces == ("enP7s7",), "what was given is kept"


@pytest.mark.parametrize(
    "text", ["", "[", "{}", "[1]", '[{"addr_info": [{"family": "inet"}]}]', answer(eth0="10.0.0.1")]
)
def test_a_node_without_a_fabric_says_what_to_do(text: str) -> None:
    with pytest.raises(NodeUnreadable) as caught:
        with_addresses(ClusterNode("nv@spark-1"), text)
    assert "--node nv@spark-1,fabric=IP,if=NAME" in caught.value.remedy
