"""`gateway`: what it refuses, its keys, its status and the configurations that it writes."""

from __future__ import annotations

import json

import pytest
import yaml

from spark_tui.base.gateway import ClientCosts, GatewayEngine, GatewayStatus, GatewaySwap
from spark_tui.base.untrusted import encode
from spark_tui.manage.gateway.command import _policy, _words
from spark_tui.manage.gateway.model import GatewayPolicy
from spark_tui.manage.gateway.use.gateway import key_name
from tests.cli.world import World
from tests.use.bench.test_bench import nulls_without_reason

STATUS = GatewayStatus(
    "http://127.0.0.1:8080", 0.0, True,
    (GatewayEngine("tiny-1b", ("tiny-1b", "tiny"), 2, 7, True),),
    (GatewaySwap("big-70b", "Boot", "weights", 3, ("other",), None),),
    (("third", "It ended."),), (),
    (
        ClientCosts("claude-cli", "tiny-1b", "/v1/messages", 12, 12, 240_000, 240_000, 2_400, 12, 24.0, 11, changed=11),
        ClientCosts("aider", "tiny-1b", "/v1/chat/completions", 3),
    ),
)  # fmt: skip


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.5"])
def test_an_open_address_needs_a_key(address: str) -> None:
    result = World().run("gateway", "--address", address)
    assert result.code == 4
    assert "gateway keys add" in result.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--alias", "gpt"), 2),
        (("--peer", "spark-2"), 2),
        (("--peer", "spark-2=spark-2:8080"), 2),
        (("--preset", "nope"), 2),
        (("--install", "--uninstall"), 2),
        (("--demo",), 4),
        (("--read-only",), 4),
    ],
)
def test_what_it_does_not_start_with(words: tuple[str, ...], code: int) -> None:
    assert World().run("gateway", *words).code == code


def test_a_key_is_printed_once_and_never_again() -> None:
    world = World()
    key = world.run("gateway", "keys", "add", "laptop").out.strip()
    assert key
    assert world.run("gateway", "keys", "add", "laptop").code == 4
    for words in (["list"], []):
        listed = world.run("gateway", "keys", *words, "--json")
        assert [each["id"] for each in listed.json] == ["laptop"]
        assert key not in listed.out
    assert world.run("gateway", "keys", "revoke", "laptop").code == 0
    assert world.run("gateway", "keys", "revoke", "laptop").code == 2


def test_the_key_of_another_machine_is_read_from_standard_input_and_kept_for_its_gateway() -> None:
    world = World()
    assert world.run("gateway", "keys", "use", "spark-2", stdin="").code == 2
    result = world.run("gateway", "keys", "use", "spark-2", stdin="secret-of-spark-2\n")
    assert result.code == 0
    assert "secret" not in result.out + result.err
    kept = world.secrets.api_key(str(world.secrets.path(key_name("spark-2"))))
    assert kept is not None
    assert kept.reveal() == "secret-of-spark-2"


@pytest.mark.parametrize("name", ["", "a\x1b[2J", "x" * 65])
def test_a_client_s_name_is_one_plain_line(name: str) -> None:
    assert World().run("gateway", "keys", "add", name).code == 2


def test_without_a_gateway_the_status_says_so() -> None:
    result = World().run("gateway", "status", "--json")
    assert result.json == {"id": "gateway", "running": False}


def test_the_status_of_a_gateway_in_another_process() -> None:
    world = World()
    assert world.state.claim("gateway")
    world.state.write("gateway", encode(STATUS).encode())
    found = world.run("gateway", "status", "--json").json
    assert found["url"] == "http://127.0.0.1:8080/v1"
    assert found["engines"][0]["requests_running"] == 2
    assert found["swaps"][0]["waiting"] == 3
    assert found["swaps"][0]["ready_at"] is None
    assert found["swaps"][0]["ready_at_reason"]
    text = world.run("gateway", "status").out
    for word in ("tiny-1b", "big-70b", "third", "claude-cli", "20k", "1%", "2 s", "first 256 bytes"):
        assert word in text
    agent, unknown = found["clients"]
    assert (agent["requests"], agent["prompt_tokens"], agent["prefix_hit_percent"]) == (12, 240_000, 1.0)
    assert "CLAUDE_CODE_ATTRIBUTION_HEADER" in agent["remedy"]
    assert unknown["prompt_tokens"] is None
    assert nulls_without_reason(found["clients"]) == []


def test_a_gateway_of_an_earlier_version_has_no_clients() -> None:
    world = World()
    assert world.state.claim("gateway")
    former = {name: value for name, value in json.loads(encode(STATUS)).items() if name != "clients"}
    world.state.write("gateway", json.dumps(former).encode())
    assert world.run("gateway", "status", "--json").json["clients"] == []


def test_the_unit_has_the_options_that_were_typed() -> None:
    typed = {"presets": ("a",), "aliases": ("x=a", "y=b"), "pinned": ("p",), "together": ("b,a",),
             "peers": ("spark-2=http://10.0.0.2:8080/v1",)}  # fmt: skip
    policy = _policy(**typed, alone=True, ttl=30.0, stay=5.0, failures=2)
    assert policy == GatewayPolicy(("a",), (("x", "a"), ("y", "b")), ("p",), (frozenset("ab"),), True, 1800.0, 5.0, 2,
                                   (("spark-2", "http://10.0.0.2:8080"),))  # fmt: skip
    assert " ".join(_words(policy, "0.0.0.0", 9000)) == (
        "gateway --address 0.0.0.0 --port 9000 --ttl 30 --stay 5 --failures 2 --alone"
        " --preset a --alias x=a --alias y=b --pin p --together a,b --peer spark-2=http://10.0.0.2:8080"
    )


def test_llama_swap_launches_through_spark_tui() -> None:
    found = yaml.safe_load(World().run("gateway", "export", "llama-swap", "--preset", "tiny-1b").out)
    model = found["models"]["tiny-1b"]
    assert model["cmd"] == "spark-tui up tiny-1b --service --set port=${PORT}"
    assert model["cmdStop"] == "spark-tui down tiny-1b"
    assert model["useModelName"] == "tiny"
    assert found["healthCheckTimeout"] >= 1800
    assert found["groups"]["spark"]["members"] == ["tiny-1b"]


def test_litellm_gets_addresses_and_patience() -> None:
    result = World().run("gateway", "export", "litellm", "--preset", "tiny-1b", "--json")
    [model] = yaml.safe_load(json.loads(result.out)["text"])["model_list"]
    assert model["model_name"] == "tiny-1b"
    assert model["litellm_params"]["model"] == "hosted_vllm/tiny"
    assert model["litellm_params"]["api_base"] == "http://127.0.0.1:8000/v1"
    assert model["litellm_params"]["timeout"] >= 1800
