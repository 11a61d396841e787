"""connect: a diff, files that go back byte for byte, refusals with the launch change, and a key that nobody sees."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.engine.container import ALL_INTERFACES, LABEL_API_KEY_FILE, ContainerFacts
from spark_tui.base.engine.state import ServedModel
from spark_tui.base.gateway import GatewayStatus
from spark_tui.base.secret import Secret
from spark_tui.base.untrusted import encode
from spark_tui.machine.gateway import GatewayKeys
from spark_tui.use.connect.adapter import HomeFiles
from spark_tui.use.connect.model import CLIENTS
from tests.api_recorder import chat, message, response
from tests.cli.world import World

KEY = "fedcba9876543210" * 3
TOOLS = ("vllm", "serve", "acme/tiny-1b", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
OURS = [client for client in CLIENTS.values() if client.files]
BEFORE = {
    "settings.json": '{\n  "model": "opus", // mine\n  "env": {"X": "1"}\n}\n',
    "config.toml": '# mine\nmodel = "gpt-5" # old\n\n[mcp_servers.x]\ncommand = "y"\n',
    "opencode.json": '{"theme": "dark", "provider": {"spark": {"name": "Old"}}}\n',
    "config.yaml": "name: Mine\nmodels:\n  - name: Other # c\n    provider: ollama\n",
    ".aider.conf.yml": "# mine\ndark-mode: true\nmodel: gpt\n",
    ".env": "A=1\n",
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(client_files=HomeFiles(tmp_path / "home", {}))


def engine(
    world: World, name: str = "agent", *, key: bool = False, context: int = 65536, **more: Any
) -> ContainerFacts:
    """An engine that agents can use."""
    labels: tuple[tuple[str, str], ...] = ()
    if key:
        labels = ((LABEL_API_KEY_FILE, str(world.secrets.env_file(name, {"VLLM_API_KEY": Secret(KEY)}))),)
        more = {"host_ip": ALL_INTERFACES} | more
    found = world.engine(name, **{"argv": TOOLS, "more_labels": labels} | more)
    for address in world.api.models_at:
        world.api.models_at[address] = (ServedModel(found.served_name or "tiny", "acme/tiny-1b", context),)
    return found


def tree(home: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder, with its mode."""
    return {
        str(path.relative_to(home)): (path.read_bytes(), path.stat().st_mode & 0o777)
        for path in sorted(home.rglob("*")) if path.is_file()
    }  # fmt: skip


def prepare(home: Path, client: str) -> None:
    """A person's own settings in each file of the client that they may have."""
    for file in CLIENTS[client].files:
        if (text := BEFORE.get(file.names[0])) is not None:
            place = home / file.folder / file.names[0]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            place.chmod(0o644)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("client", OURS, ids=lambda each: each.id)
def test_write_then_undo_leaves_every_byte_and_mode(world: World, tmp_path: Path, client: Any, own: bool) -> None:
    engine(world, key=True)
    home = tmp_path / "home"
    if own:
        prepare(home, client.id)
    before = tree(home)
    assert KEY not in world.run("connect", client.id).out
    assert tree(home) == before, "a diff writes nothing"
    result = world.run("connect", client.id, "--write")
    assert result.code == 0, result.err
    after = tree(home)
    assert after != before
    assert any(KEY.encode() in data for data, _ in after.values())
    assert all(mode == 0o600 for data, mode in after.values() if KEY.encode() in data)
    assert KEY not in result.out + result.err
    assert world.run("connect", client.id, "--write").code == 0
    assert tree(home) == after, "once more changes nothing"
    assert world.run("connect", client.id, "--undo").code == 0
    assert tree(home) == before
    assert world.run("connect", client.id, "--undo").code == 2


@pytest.mark.parametrize("client", OURS, ids=lambda each: each.id)
def test_a_file_that_changed_since_loses_our_keys_alone(world: World, tmp_path: Path, client: Any) -> None:
    engine(world, key=True)
    home = tmp_path / "home"
    prepare(home, client.id)
    own = {name: data for name, (data, _) in tree(home).items()}
    assert world.run("connect", client.id, "--write").code == 0
    for file in client.files:
        place = home / file.folder / file.names[0]
        comment = {"json": "// later\n", "text": ""}.get(file.format, "# later\n")
        if place.exists():
            place.write_text(place.read_text() + comment)
        if (name := str(place.relative_to(home))) in own:
            own[name] += comment.encode()
    assert world.run("connect", client.id, "--undo").code == 0
    left = tree(home)
    assert not any(KEY.encode() in data or b"127.0.0.1" in data for data, _ in left.values())
    assert {name: data for name, (data, _) in left.items() if name in own} == own


def test_another_engine_takes_the_place_and_undo_goes_back_to_the_person_s_own(world: World, tmp_path: Path) -> None:
    home = tmp_path / "home"
    prepare(home, "codex")
    before = tree(home)
    engine(world, "one")
    assert world.run("connect", "codex", "one", "--write").code == 0
    place = home / ".codex/config.toml"
    engine(world, "two", port=8002)
    assert world.run("connect", "codex", "--write").code == 2, "which one?"
    assert world.run("connect", "codex", "two", "--write").code == 0
    assert "8002" in place.read_text() and "8000" not in place.read_text()
    assert world.run("connect", "codex", "--undo").code == 0
    assert tree(home) == before


def test_the_list_names_the_engine_of_each_client_also_where_several_serve(world: World, tmp_path: Path) -> None:
    engine(world, "one")
    engine(world, "two", port=8002)
    assert world.run("connect", "codex", "two", "--write").code == 0
    listed = world.run("connect", "--json")
    assert listed.code == 0
    clients = {each["id"]: each for each in listed.json}
    assert list(clients) == list(CLIENTS)
    assert (clients["codex"]["engine"], clients["codex"]["state"]) == ("two", "connected")
    assert clients["aider"]["state"] != "connected"
    row = next(line for line in world.run("connect").out.splitlines() if line.startswith(CLIENTS["codex"].title))
    assert "two" in row.split()


def test_two_engines_with_one_served_name_must_be_named_by_container(world: World) -> None:
    engine(world, "one")
    engine(world, "two", port=8002)
    assert world.run("connect", "codex", "tiny").code == 2
    assert world.run("connect", "codex", "two").code == 0
    assert world.run("connect", "codex", "three").code == 2


@pytest.mark.parametrize(
    ("id_", "change", "made"),
    [
        ("client_no_tool_parser", {"tool_calls": "on"}, {"argv": ("vllm", "serve", "m"), "served": "qwen3.6"}),
        ("client_slash_in_name", {"served_model_name": "tiny"}, {"served": "acme/tiny"}),
        ("client_short_context", {"max_model_len": "65536"}, {"context": 8192}),
        ("client_no_key", {"exposure": "lan", "api_key": "yes"}, {"host_ip": ALL_INTERFACES}),
    ],
)
def test_what_an_agent_cannot_use_is_refused_with_the_change(
    world: World, tmp_path: Path, id_: str, change: dict[str, str], made: dict[str, Any]
) -> None:
    if served := made.pop("served", ""):
        names = {"preset": "agent", "served-name": served, "runtime": "vllm", "port": "8000"}
        made["labels"] = tuple((f"io.spark-tui.{name}", value) for name, value in names.items())
    engine(world, **made)
    result = world.run("connect", "claude-code", "agent", "--json")
    assert result.code == 0
    assert {each["id"]: each["change"] for each in result.json["findings"]} == {id_: change}
    refused = world.run("connect", "claude-code", "agent", "--write", "--json")
    assert refused.code == 4
    for key, value in change.items():
        assert f"--set {key}={value}" in refused.error["remedy"]
    assert tree(tmp_path / "home") == {}
    assert world.run("connect", "claude-code", "agent", "--write", "--force").code == 0
    assert tree(tmp_path / "home")


def test_a_front_end_for_chats_needs_no_tools(world: World, tmp_path: Path) -> None:
    engine(world, argv=("vllm", "serve", "m"), context=8192)
    assert world.run("connect", "open-webui", "--write").code == 0
    assert "OPENAI_API_BASE_URL" in next(iter(tree(tmp_path / "home").values()))[0].decode()


def test_limits_are_those_that_the_engine_serves(world: World, tmp_path: Path) -> None:
    engine(world, context=40_000)
    assert world.run("connect", "opencode", "--write").code == 0
    found = json.loads((tmp_path / "home/.config/opencode/opencode.json").read_text())
    assert found["provider"]["spark"]["models"]["tiny"]["limit"] == {"context": 40_000, "output": 10_000}


def test_a_file_that_does_not_parse_stops_everything(world: World, tmp_path: Path) -> None:
    engine(world)
    place = tmp_path / "home/.codex/config.toml"
    place.parent.mkdir(parents=True)
    place.write_text("a = 1\nb = = 2\n")
    result = world.run("connect", "codex", "--write", "--json")
    assert result.code == 4
    assert f"{place}:2" in result.error["summary"]
    assert tree(tmp_path / "home") == {".codex/config.toml": (b"a = 1\nb = = 2\n", place.stat().st_mode & 0o777)}


@pytest.mark.parametrize(
    "damage",
    ["[" * 100_000, "[" * 900 + "]" * 900, '{"a":' * 5000, "{}", "[1]", '[{"path": 1}]', '[{"path": "/x"}]',
     '[{"path": "/x", "before": null, "mode": 384, "after": "", "served": ["m", "u", "many", "k"]}]'],
)  # fmt: skip
@pytest.mark.parametrize("arguments", [("--undo",), ("--write",), ()])
def test_a_damaged_backup_stops_everything_and_is_named(
    world: World, tmp_path: Path, damage: str, arguments: tuple[str, ...]
) -> None:
    engine(world)
    home = tmp_path / "home"
    prepare(home, "codex")
    before = tree(home)
    world.state.write("connect-codex", damage.encode())
    result = world.run("connect", "codex", *arguments, "--json")
    assert result.code == 4
    assert world.state.path("connect-codex") in result.error["summary"] + result.error["remedy"]
    assert tree(home) == before


def test_when_one_file_cannot_be_written_none_is(world: World, tmp_path: Path) -> None:
    engine(world, key=True)
    home = tmp_path / "home"
    prepare(home, "codex")
    (home / ".codex/.env").chmod(0o444)
    before = tree(home)
    result = world.run("connect", "codex", "--write", "--json")
    assert result.code == 4 and "chmod u+w" in result.error["remedy"]
    assert tree(home) == before
    assert world.run("connect", "codex", "--undo").code == 2, "there is nothing to undo"


def test_a_link_stays_one(world: World, tmp_path: Path) -> None:
    engine(world)
    (tmp_path / "dotfiles").write_text(BEFORE["settings.json"])
    link = tmp_path / "home/.claude/settings.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "dotfiles")
    assert str(tmp_path / "dotfiles") in world.run("connect", "claude-code").out
    assert world.run("connect", "claude-code", "--write").code == 0
    assert link.is_symlink() and "ANTHROPIC_BASE_URL" in (tmp_path / "dotfiles").read_text()
    assert world.run("connect", "claude-code", "--undo").code == 0
    assert (tmp_path / "dotfiles").read_text() == BEFORE["settings.json"]


def test_keys_that_are_there_are_in_the_diff_and_other_secrets_are_masked(world: World, tmp_path: Path) -> None:
    engine(world, key=True)
    place = tmp_path / "home/.claude/settings.json"
    place.parent.mkdir(parents=True)
    place.write_text(
        '{"env": {\n  "ANTHROPIC_BASE_URL": "http://other",\n  "MY_API_KEY": "sk-1234567890abcdef1234"\n}}\n'
    )
    result = world.run("connect", "claude-code")
    lines = result.out.splitlines()
    assert any(line.startswith("-") and "http://other" in line for line in lines)
    assert any(line.startswith("+") and "http://127.0.0.1:8000" in line for line in lines)
    assert "sk-1234567890abcdef1234" not in result.out
    shown = world.run("connect", "claude-code", "--show-key").out
    assert KEY in shown and "sk-1234567890abcdef1234" not in shown


@pytest.mark.parametrize("client", OURS, ids=lambda each: each.id)
def test_the_line_for_another_machine_writes_the_same_settings_there(world: World, tmp_path: Path, client: Any) -> None:
    engine(world, key=True)
    world.host.identity_value = world.host.identity_value.__class__("spark", lan_address="192.168.1.40")
    asked = world.run("connect", client.id, "--for", "laptop")
    assert asked.code == 0, asked.err
    assert KEY not in asked.out and asked.out.count("\n") == 1
    laptop = tmp_path / "laptop"
    laptop.mkdir()
    run = {"env": {**os.environ, "HOME": str(laptop)}, "input": f"{KEY}\n", "text": True, "capture_output": True}
    assert subprocess.run(["sh", "-c", asked.out], check=False, **run).returncode == 0
    there = tree(laptop)
    assert any(KEY.encode() in data and mode == 0o600 for data, mode in there.values())
    assert any(b"192.168.1.40" in data for data, _ in there.values())
    assert subprocess.run(["sh", "-c", asked.out], check=False, **run).returncode == 0
    assert {name: each for name, each in tree(laptop).items() if not name.endswith(".spark")} == there
    assert KEY in world.run("connect", client.id, "--for", "laptop", "--show-key").out


def test_an_engine_that_only_this_machine_reaches_is_not_for_a_laptop(world: World) -> None:
    engine(world)
    world.host.identity_value = world.host.identity_value.__class__("spark", lan_address="192.168.1.40")
    refused = world.run("connect", "codex", "--for", "laptop", "--json")
    assert refused.code == 4 and "--set exposure=lan --set api_key=yes" in refused.error["remedy"]
    assert world.run("connect", "codex", "--for", "tailscale").code == 2, "it has no such address"


@pytest.mark.parametrize(
    ("client", "path", "answer"),
    [
        ("opencode", "/v1/chat/completions", chat),
        ("claude-code", "/v1/messages", message),
        ("codex", "/v1/responses", response),
    ],
)
def test_a_check_asks_as_the_client_does_and_wants_a_tool_call(
    world: World, client: str, path: str, answer: Any
) -> None:
    engine(world, key=True)
    world.api.reply = answer({}, "get_weather")
    result = world.run("connect", client, "--check", "--write", "--json")
    assert result.code == 0, result.err
    assert world.api.posts[0][0] == path and world.api.keys == [KEY]
    assert world.api.posts[0][1]["tools"]
    for reply in (answer({}, ""), {}, [], None, {"choices": [None], "content": 3, "output": [{"content": "x"}]}):
        world.api.reply = reply
        assert world.run("connect", client, "--check").code == 1


def test_a_client_of_the_gateway_gets_its_address_and_no_key_of_the_engine(world: World, tmp_path: Path) -> None:
    engine(world, key=True)
    assert world.run("connect", "codex", "--gateway").code == 2, "none runs"
    assert world.state.claim("gateway")
    world.state.write("gateway", encode(GatewayStatus("http://0.0.0.0:8080", 0.0, keyed=False)).encode())
    world.api.reply = response({}, "get_weather")
    result = world.run("connect", "codex", "--gateway", "--write", "--check", "--json")
    assert result.code == 0, result.err
    assert "http://127.0.0.1:8080/v1" in (tmp_path / "home/.codex/config.toml").read_text()
    assert not any(KEY.encode() in data for data, _ in tree(tmp_path / "home").values())
    assert world.api.keys == [""]

    def listed() -> tuple[str, str]:
        found = next(each for each in world.run("connect", "--json").json if each["id"] == "codex")
        return found["state"], found["base_url"]

    assert listed() == ("connected", "http://127.0.0.1:8080")
    assert world.run("connect", "codex", "--write").code == 0
    assert listed() == ("connected", "http://127.0.0.1:8000")
    for other in ("--undo", "--for=laptop"):
        assert world.run("connect", "codex", "--gateway", other).code == 2


def test_a_client_of_a_gateway_with_keys_has_a_key_of_its_own(world: World, tmp_path: Path) -> None:
    engine(world, key=True)
    assert world.state.claim("gateway")
    world.state.write("gateway", encode(GatewayStatus("http://0.0.0.0:8080", 0.0, keyed=True)).encode())
    keys = GatewayKeys(world.state, world.clock)
    gateway = ("connect", "codex", "--gateway")
    assert world.run(*gateway).code == 0 and not keys.all(), "a diff makes no key"
    assert world.run(*gateway, "--check").code == 4, "its key is made when its files are written"
    world.api.reply = response({}, "get_weather")
    world.drive = True
    world.api.rejects = 1  # a gateway that runs knows a new key after a moment
    result = world.run(*gateway, "--write", "--check", "--json")
    assert result.code == 0, result.err
    (own,) = set(world.api.keys)
    assert own not in ("", KEY) and keys.client_of(own) == "codex-local"
    world.api.rejects = 2
    assert world.run(*gateway, "--check").code == 1
    files = tree(tmp_path / "home")
    assert files[".codex/.env"] == (f"SPARK_API_KEY={own}\n".encode(), 0o600)
    assert not any(KEY.encode() in data for data, _ in files.values())
    assert own not in result.out + result.err
    assert world.run(*gateway, "--write").code == 0
    assert tree(tmp_path / "home") == files and len(keys.all()) == 1, "once more changes nothing"
    found = next(each for each in world.run("connect", "--json").json if each["id"] == "codex")
    assert found["state"] == "connected"
    assert world.run("connect", "codex", "--undo").code == 0
    assert tree(tmp_path / "home") == {} and not keys.all(), "the gateway refuses it from now on"
    for client in ("cline", "curl"):
        result = world.run("connect", client, "--gateway")
        assert result.code == 0 and f"spark-tui gateway keys add {client}" in result.out


def test_the_list_has_every_client_and_its_state(world: World) -> None:
    engine(world)
    assert world.run("connect", "aider", "--write").code == 0
    states = {each["id"]: each["state"] for each in world.run("connect", "--json").json}
    assert list(states) == list(CLIENTS)
    assert states["aider"] == "connected" and states["codex"] == "-" and states["cline"] == "by hand"


@pytest.mark.parametrize("client", [each for each in CLIENTS.values() if not each.files], ids=lambda each: each.id)
def test_others_have_steps_or_a_command(world: World, client: Any) -> None:
    engine(world, key=True)
    result = world.run("connect", client.id)
    assert result.code == 0 and "127.0.0.1:8000" in result.out and KEY not in result.out
    assert world.run("connect", client.id, "--write").code == 2


@pytest.mark.parametrize("place", ["here", "laptop"])
@pytest.mark.parametrize("client", [each for each in CLIENTS.values() if not each.agent and not each.files],
                         ids=lambda each: each.id)  # fmt: skip
def test_a_printed_command_runs_with_the_key_where_the_client_is(
    world: World, tmp_path: Path, client: Any, place: str
) -> None:
    engine(world, key=True)
    world.host.identity_value = world.host.identity_value.__class__("spark", lan_address="192.168.1.40")
    command = world.run("connect", client.id, "--for", place, "--json").json["command"]
    for name in ("curl", "python3"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\necho "$SPARK_API_KEY" "$@"; cat\n')
        program.chmod(0o755)
    (tmp_path / "key.env").write_text(f"VLLM_API_KEY={KEY}\n")
    command = command.replace(str(world.secrets.path("agent")), str(tmp_path / "key.env"))
    env = {"HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    typed = "" if place == "here" else f"{KEY}\n"
    done = subprocess.run(["sh", "-c", command], check=True, env=env, input=typed, text=True, capture_output=True)
    assert KEY in done.stdout and KEY not in command
    assert ("127.0.0.1:8000" if place == "here" else "192.168.1.40:8000") in done.stdout


def test_nothing_is_written_in_read_only_mode_or_for_an_engine_that_does_not_serve(
    world: World, tmp_path: Path
) -> None:
    engine(world, serving=False)
    assert world.run("connect", "codex").code == 2
    assert world.run("connect", "codex", "agent", "--write").code == 4
    assert world.run("connect", "codex", "agent", "--write", "--read-only").code == 4
    assert world.run("connect", "codex", "agent", "--write", "--undo").code == 2
    assert tree(tmp_path / "home") == {}
