"""Connect on screen: states and diffs, writing and undoing by one key, the fix, the proof, and the layout."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.app.home.screen import HomeScreen
from spark_tui.base.actions import key_of
from spark_tui.base.engine.container import ALL_INTERFACES, PublishedPort
from spark_tui.base.engine.state import ServedModel
from spark_tui.base.finding import Severity
from spark_tui.base.gateway import GatewayStatus
from spark_tui.base.secret import Secret
from spark_tui.base.untrusted import encode
from spark_tui.machine.gateway import GatewayKeys
from spark_tui.run.launch.screen import LaunchForm
from spark_tui.tui.modals import YankMenu
from spark_tui.tui.widgets.bars import KeyBar
from spark_tui.use.connect.adapter import MemoryFiles
from spark_tui.use.connect.model import CLIENTS
from spark_tui.use.connect.screen import ConnectScreen
from tests.api_recorder import message
from tests.kit import Kit
from tests.tui.kit import QWEN, Sight, kit_of, seen

SIZES = ((80, 24), (120, 36), (160, 50), (200, 50))
KEY = "0123456789abcdef" * 3
AGENT = ("vllm", "serve", "m", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
SETTINGS = "/home/spark/.claude/settings.json"
START = "spark-tui gateway"
"""The command that starts a gateway."""


def engine(kit: Kit, *, argv: tuple[str, ...] = AGENT, context: int = 131072) -> MemoryFiles:
    """An engine of ours with a key, and the person's files."""
    files = MemoryFiles()
    files.files[SETTINGS] = ('{\n  "model": "opus",\n  "env": {"X": "1"}\n}\n', 0o644)
    vars(kit.context.ports)["client_files"] = files
    path = kit.secrets.env_file("qwen", {"VLLM_API_KEY": Secret(KEY)})
    labels = {"preset": "qwen", "served-name": "qwen3.6", "port": "8000", "api-key-file": str(path)}
    kit.docker.add_container(
        "qwen", argv=argv, labels=tuple((f"io.spark-tui.{name}", value) for name, value in labels.items()),
        ports=(PublishedPort(8000, 8000, ALL_INTERFACES),),
    )  # fmt: skip
    kit.api.served = (ServedModel("qwen3.6", "org/qwen", context),)
    kit.api.serve()
    return files


@asynccontextmanager
async def connecting(
    size: tuple[int, int] = (120, 36), *, gateway: GatewayStatus | None = None, **made: Any
) -> AsyncIterator[tuple[Sight, ConnectScreen, MemoryFiles]]:
    """The Connect page, opened from Home."""
    kit = kit_of(QWEN)
    files = engine(kit, **made)
    if gateway is not None:
        assert kit.state.claim("gateway")
        kit.state.write("gateway", encode(gateway).encode())
    async with seen(kit, size, "1") as sight:
        await sight.until(lambda: sight.app.selected_engine is not None and bool(sight.app.selected_engine.models))
        await sight.press(key_of("open_connect"))
        screen = sight.on(ConnectScreen)
        await sight.until(lambda: screen.plan is not None)
        yield sight, screen, files


def offered(screen: ConnectScreen) -> set[str]:
    return {action.id for action in screen.query_one(KeyBar).actions}


async def test_every_client_is_listed_and_escape_goes_back() -> None:
    async with connecting() as (sight, screen, _):
        assert list(screen._plans) == list(CLIENTS)
        await sight.press("escape")
        sight.on(HomeScreen)


async def test_one_key_writes_and_one_undoes() -> None:
    async with connecting() as (sight, screen, files):
        before = dict(files.files)
        assert "undo_client" not in offered(screen)
        await sight.press(key_of("write_client"))
        await sight.until(lambda: screen.plan is not None and screen.plan.written)
        assert KEY in files.files[SETTINGS][0] and '"X": "1"' in files.files[SETTINGS][0]
        assert files.files[SETTINGS][1] == 0o600
        assert KEY not in sight.text
        assert "write_client" not in offered(screen)
        await sight.press("delete")
        await sight.until(lambda: screen.plan is not None and not screen.plan.written)
        assert files.files == before


async def test_a_client_that_the_engine_does_not_suit_is_not_written_and_one_key_opens_the_fix() -> None:
    async with connecting(argv=("vllm", "serve", "m"), context=8192) as (sight, screen, files):
        before = dict(files.files)
        await sight.press(key_of("write_client"))
        assert files.files == before and "write_client" not in offered(screen)
        await sight.press(key_of("fix_engine"))
        await sight.until(lambda: isinstance(sight.app.screen, LaunchForm))
        form = sight.on(LaunchForm)
        assert {key: form.texts[key] for key in ("tool_calls", "max_model_len")} == {
            "tool_calls": "on", "max_model_len": "65536",
        }  # fmt: skip


@pytest.mark.parametrize(("tool", "severity"), [("get_weather", Severity.OK), ("", Severity.WARNING)])
async def test_the_proof_is_one_request_on_the_client_s_api(tool: str, severity: Severity) -> None:
    async with connecting() as (sight, screen, _):
        sight.kit.api.reply = message({}, tool)
        await sight.press(key_of("check_client"))
        await sight.until(lambda: bool(screen._checks))
        assert [path for path, _ in sight.kit.api.posts] == ["/v1/messages"]
        assert screen._checks["qwen", "claude-code"].severity is severity


async def test_y_copies_the_line_for_another_machine() -> None:
    async with connecting() as (sight, _, __):
        sight.kit.host.identity_value = sight.kit.host.identity_value.__class__("spark", lan_address="192.168.1.40")
        await sight.press("y")
        sight.on(YankMenu)
        await sight.press("l")
        assert sight.app.clipboard.startswith("umask 077")
        assert "192.168.1.40" in sight.app.clipboard and KEY not in sight.app.clipboard


async def test_a_wide_window_shows_how_another_machine_connects() -> None:
    async with connecting((200, 50)) as (sight, screen, _):
        await sight.until_seen("This machine has no network address.")
        sight.kit.host.identity_value = sight.kit.host.identity_value.__class__("spark", lan_address="192.168.1.40")
        screen.on_screen_resume()
        await sight.until_seen("Paste into its shell", "umask 077")
        assert KEY not in sight.text
    async with connecting((120, 36)) as (_, screen, __):
        assert not screen.query_one("#rail").display


async def test_an_engine_that_only_this_machine_reaches_is_reached_through_ssh() -> None:
    kit = kit_of(QWEN)
    engine(kit)
    [one] = kit.docker.all_containers.values()
    one.facts = replace(one.facts, ports=(PublishedPort(8000, 8000, "127.0.0.1"),))
    kit.host.identity_value = kit.host.identity_value.__class__("spark", lan_address="192.168.1.40")
    async with seen(kit, (200, 50), "1") as sight:
        await sight.until(lambda: sight.app.selected_engine is not None and bool(sight.app.selected_engine.models))
        await sight.press(key_of("open_connect"))
        await sight.until_seen("ssh -N -L 8000:127.0.0.1:8000", f"{key_of('secure_engine')} on Home")


async def test_a_file_that_does_not_parse_is_named_and_nothing_is_written() -> None:
    async with connecting() as (sight, screen, files):
        files.files["/home/spark/.codex/config.toml"] = ("a = = 1\n", 0o600)
        before = dict(files.files)
        await sight.press("escape", key_of("open_connect"))
        await sight.until(lambda: screen._plans["codex"].problem is not None)
        await sight.press("down", key_of("write_client"))
        assert files.files == before
        await sight.until_seen("config.toml:1")


@pytest.mark.parametrize("keyed", [True, False])
async def test_one_key_changes_between_the_engine_and_the_gateway(keyed: bool) -> None:
    async with connecting(gateway=GatewayStatus("http://0.0.0.0:8080", 0.0, keyed)) as (sight, screen, files):
        before = dict(files.files)
        await sight.until(lambda: "toggle_gateway" in offered(screen))
        assert screen.plan is not None and not screen.plan.gateway
        await sight.press(key_of("toggle_gateway"))
        await sight.until(lambda: screen.plan is not None and screen.plan.gateway)
        await sight.press(key_of("write_client"))
        await sight.until(lambda: screen.plan is not None and screen.plan.written)
        text = files.files[SETTINGS][0]
        assert "http://127.0.0.1:8080" in text and KEY not in text
        own = json.loads(text)["env"]["ANTHROPIC_AUTH_TOKEN"]
        keys = GatewayKeys(sight.kit.state, sight.kit.clock)
        assert keys.client_of(own) == ("claude-code-local" if keyed else None)
        assert not keyed or own not in sight.text
        await sight.press(key_of("toggle_gateway"))
        await sight.until(lambda: screen.plan is not None and not screen.plan.gateway)
        assert "write_client" in offered(screen)
        await sight.press("delete")
        await sight.until(lambda: screen.plan is not None and not screen.plan.written)
        assert files.files == before and not keys.all()


async def test_without_a_gateway_the_page_says_how_to_start_one() -> None:
    async with connecting() as (sight, screen, _):
        assert "toggle_gateway" not in offered(screen)
        await sight.press(key_of("toggle_gateway"))
        assert screen.plan is not None and not screen.plan.gateway
        await sight.until_seen(START)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("suits", [True, False])
async def test_layout(size: tuple[int, int], suits: bool, snapshot: Any) -> None:
    from pytest_textual_snapshot import SVGImageExtension

    made: dict[str, Any] = {} if suits else {"argv": ("vllm", "serve", "m"), "context": 8192}
    async with connecting(size, **made) as (sight, _, __):
        for _ in range(8):
            await sight.kit.clock.advance(0.25)
            await sight.pilot.pause()
        picture = sight.app.export_screenshot(title="connect", simplify=True)
    assert picture == snapshot.use_extension(SVGImageExtension)
