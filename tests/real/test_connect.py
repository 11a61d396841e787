"""The clients' own programs with the files that `connect` writes: each sends its requests, and the answer comes back.

A recording server, which speaks all three APIs, looks at what they send.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from spark_tui.base.engine.container import ALL_INTERFACES, LABEL_API_KEY_FILE
from spark_tui.base.engine.state import ServedModel
from spark_tui.base.secret import Secret
from spark_tui.observe.results.model.proof import PATHS
from spark_tui.use.connect.adapter import HomeFiles
from spark_tui.use.connect.model import CLIENTS
from tests.api_recorder import ANSWER, recording
from tests.cli.world import World
from tests.real.lab.clients import ensure_clients
from tests.real.lab.lab import default_root

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

SAY = "Say hello."
AGENTS: Mapping[str, tuple[str, ...]] = {
    "claude-code": ("claude", "-p", SAY),
    "codex": ("codex", "exec", "--skip-git-repo-check", SAY),
    "opencode": ("opencode", "run", SAY),
    "qwen-code": ("qwen", "-p", SAY),
    "aider": (
        "aider", "--no-check-update", "--no-show-release-notes", "--analytics-disable", "--yes-always", "--no-git",
        "-m", SAY,
    ),
}  # fmt: skip
"""What a person types to ask one question."""
CLIENT_SECONDS = 400
KEY = "0123456789abcdef" * 3
TOOLS = ("vllm", "serve", "m", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the clients' programs."""
    return ensure_clients(default_root())


def ask(client: str, home: Path, programs: Path, *options: str) -> str:
    """One question to a client as its own user, in the folder `work` of its home; what it prints."""
    work = home / "work"
    work.mkdir(exist_ok=True)
    env = {"HOME": str(home), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb", "LANG": "C.UTF-8"}
    done = subprocess.run(
        (*AGENTS[client], *options), cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=CLIENT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{client}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.parametrize("client", AGENTS)
def test_a_client_asks_as_its_files_say(client: str, programs: Path, tmp_path: Path) -> None:
    world, home = World(client_files=HomeFiles(tmp_path / "home", {})), tmp_path / "home"
    with recording("local-model", 65536, key=KEY) as server:
        port = int(server.url.rpartition(":")[2])
        path = world.secrets.env_file("agent", {"VLLM_API_KEY": Secret(KEY)})
        world.engine(
            "agent", port=port, argv=TOOLS, host_ip=ALL_INTERFACES, more_labels=((LABEL_API_KEY_FILE, str(path)),)
        )
        world.api.models_at[server.url] = (ServedModel("local-model", "", 65536),)
        written = world.run("connect", client, "agent", "--write")
        assert written.code == 0, written.err
        assert ANSWER in ask(client, home, programs)
        requests = server.asked(PATHS[CLIENTS[client].api])
    assert requests, [each.path for each in server.requests]
    assert {each.authorization for each in server.requests} == {f"Bearer {KEY}"}
    assert {each.body["model"] for each in requests} == {"local-model"}
    limits = [each.body.get("max_tokens") or each.body.get("max_output_tokens") or 0 for each in requests]
    assert max(limits) <= 16_384, "a request for more than the context is refused"
    if CLIENTS[client].agent:
        assert any(each.body.get("tools") for each in requests)
    assert world.run("connect", client, "--undo").code == 0
    files = [
        path for file in CLIENTS[client].files for name in file.names if (path := home / file.folder / name).exists()
    ]
    assert not any(KEY in path.read_text() or server.url in path.read_text() for path in files)
