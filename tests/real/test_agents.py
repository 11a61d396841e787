"""Coding agents' own programs at work on a real vLLM, with the files that `connect` writes.

The model says what its scripts say, so that an answer can be told from an agent's own words.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_tui.observe.results.model.proof import PATHS, Api
from spark_tui.use.connect.model import CLIENTS
from tests.pty_app import spark_tui
from tests.real.lab.clients import ensure_clients
from tests.real.lab.lab import Lab
from tests.real.lab.scripted import make_scripted
from tests.real.lab.support import wait_until
from tests.real.lab.vllm_image import SERVE_TAG
from tests.real.test_connect import AGENTS, ask

pytestmark = pytest.mark.real

ENGINE, OTHER = f"agents-{os.getpid()}", f"others-{os.getpid()}"
"""Of this run alone: others use the lab too."""
CHAT = (Api.CHAT, Api.RESPONSES, Api.MESSAGES)
ANSWER = ("A ", "real ", "pelican ", "at ", "17.3 ", "degrees.")
"""What `prove` wants to hear, too."""
PROOF, COMMAND = "proof.txt", "pwd > proof.txt"
CALLS: Mapping[str, Mapping[str, object]] = {
    "Bash": {"command": COMMAND, "description": "Writes a file."},
    "exec_command": {"cmd": COMMAND},
    "bash": {"command": COMMAND, "description": "Writes a file."},
    "run_shell_command": {"command": COMMAND, "is_background": False},
    "get_weather": {"city": "Paris"},
    "check_door": {"number": 4},
}
"""The shells of these agents, and the tools of `prove`, as the model calls them."""
SCRIPTS = {
    "<|answer|>": ANSWER,
    **{
        f"<|{name}|>": (f'<tool_call>{{"name": "{name}", ', f'"arguments": {json.dumps(words)}}}', "</tool_call>")
        for name, words in CALLS.items()
    },
}
TEMPLATE = """\
{%- for message in messages %}{{ '<|im_start|>' ~ message.role ~ ' ' ~ message.content ~ '<|im_end|>' }}{% endfor %}
{%- set script = namespace(name='answer') %}
{%- for tool in tools or [] %}
{{- tool | tojson }}
{%- set asked = (tool.function.name == 'check_door') == ('to door 4' in messages[-1].content | string) %}
{%- if tool.function.name in CALLS and asked and not messages | selectattr('role', 'equalto', 'tool') | list %}
{%- set script.name = tool.function.name %}
{%- endif %}
{%- endfor %}
{{- '<|' ~ script.name ~ '|>' }}""".replace("CALLS", str(list(CALLS)))
"""Who offers one of these tools gets one call of it, of the door's only when asked for it; then comes the answer.

A call that the server forces is thus one that the model wants. Other tokens would be drawn at random, and on
/v1/messages vLLM refuses a call whose arguments are no object (400), one in six of those.
"""
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "claude-code": ("--allowedTools", "Bash"),
    "codex": ("--dangerously-bypass-approvals-and-sandbox",),
    "qwen-code": ("--yolo",),
}
"""What lets an agent use its shell unasked."""
PRESET = f"""\
recipe_version: "2"
model: /models/scripted
runtime: vllm
container: {SERVE_TAG}
executor_config:
  accelerator_vendor: cpu
metadata:
  category: cpu
defaults: {{port: 8000, max_model_len: 65536}}
env:
  HF_HUB_OFFLINE: "1"
  VLLM_NO_USAGE_STATS: "1"
command: >-
  vllm serve {{model}} --port {{port}} --served-model-name NAME --max-model-len {{max_model_len}} --max-num-seqs 4
  --enforce-eager --kv-cache-memory-bytes 64M --enable-auto-tool-choice --tool-call-parser hermes
"""
POSTED = re.compile(r'"POST (/v1/\S+) HTTP/1.1" (\d+)')


@dataclass(frozen=True)
class Desk:
    """A person with spark-tui and a home of their own, on the lab's engine."""

    lab: Lab
    home: Path
    environ: Mapping[str, str]

    def call(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        words = spark_tui(*arguments)
        done = subprocess.run(words, env=dict(self.environ), capture_output=True, text=True, input="")
        assert done.returncode in codes, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def posts(self, name: str) -> list[tuple[str, int]]:
        """The requests that this engine's own log shows: path and status."""
        log = self.lab.engine.try_docker("logs", name)
        return [(path, int(status)) for path, status in POSTED.findall(log.stdout + log.stderr)]


@pytest.fixture(scope="module")
def programs(lab: Lab) -> Path:
    """The folder of the agents' programs."""
    return ensure_clients(lab.root)


@pytest.fixture(scope="module")
def desk(vllm_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    home = tmp_path_factory.mktemp("desk")
    make_scripted(home / "store/scripted", SCRIPTS, TEMPLATE)
    presets = home / ".config/spark-tui/presets"
    presets.mkdir(parents=True)
    for name in (ENGINE, OTHER):
        (presets / f"{name}.yaml").write_text(PRESET.replace("NAME", name), encoding="utf-8")
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("XDG_")},
        **vllm_lab.variables(),
        "HOME": str(home),
        "SPARK_TUI_STORE": str(home / "store"),
    }
    yield Desk(vllm_lab, home, environ)
    vllm_lab.engine.try_docker("rm", "--force", "--volumes", ENGINE, OTHER)


@pytest.fixture(scope="module")
def url(desk: Desk, take_port: Callable[[], int]) -> str:
    """The one engine of this file."""
    port = take_port()
    desk.call("up", ENGINE, "--port", str(port), "--wait")
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def gateway(desk: Desk, url: str, take_port: Callable[[], int]) -> Iterator[str]:
    """A gateway that runs one engine at a time, in front of the one that serves."""
    words = ("--preset", ENGINE, "--preset", OTHER, "--alone", "--stay", "0", "--json")
    command = spark_tui("gateway", "--port", str(take_port()), *words)
    with subprocess.Popen(command, env=dict(desk.environ), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def generated(url: str) -> float:
    """Tokens that the engine has counted since its start."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:
        text = page.read().decode()
    return sum(map(float, re.findall(r"^vllm:generation_tokens_total\{.*\} (\S+)$", text, re.MULTILINE)))


@pytest.mark.parametrize("client", AGENTS)
def test_an_agent_works_with_a_real_engine(client: str, desk: Desk, url: str, programs: Path) -> None:
    before, tokens, proof = len(desk.posts(ENGINE)), generated(url), desk.home / "work" / PROOF
    proof.unlink(missing_ok=True)
    desk.call("connect", client, ENGINE, "--write")
    assert "".join(ANSWER) in ask(client, desk.home, programs, *ALLOWED.get(client, ()))
    posts = desk.posts(ENGINE)[before:]
    assert PATHS[CLIENTS[client].api] in {path.partition("?")[0] for path, _ in posts}
    assert {status for _, status in posts} == {200}, posts
    assert generated(url) - tokens >= len(ANSWER)
    assert not CLIENTS[client].agent or proof.read_text().strip() == str(proof.parent)
    desk.call("connect", client, "--undo")


def test_prove_judges_all_three_apis_of_a_real_engine(desk: Desk, url: str) -> None:
    """The model answers some cases rightly by design: their verdict is that of the engine's API and tool parser."""
    before = len(desk.posts(ENGINE))
    asked = [f"{api}.{case}" for api in CHAT for case in ("text", "tool", "length")]
    words = [word for case in asked for word in ("--case", case)]
    proof = json.loads(desk.call("prove", ENGINE, *words, "--json", codes=(1,)))
    verdicts = {case["id"]: case["verdict"] for case in proof["cases"]}
    right = [
        f"{api}.{case}{end}" for api in CHAT for case in ("text", "tool", "tool.result") for end in ("", ".stream")
    ]
    right += [f"{api}.tool.{choice}" for api in CHAT for choice in ("required", "named")]
    assert {case: verdicts[case] for case in right} == dict.fromkeys(right, "pass"), proof["cases"]
    wrong = [f"{api}.{case}" for api in CHAT for case in ("tool.parallel", "length")]
    assert {verdicts[case] for case in wrong} <= {"fail", "skip"}, "one call, and an answer that ends early"
    posts = desk.posts(ENGINE)[before:]
    assert {path for path, _ in posts} == {PATHS[api] for api in CHAT}
    assert {status for _, status in posts} == {200}, posts


def test_agents_work_through_the_gateway_and_their_request_swaps_the_engine(
    desk: Desk, gateway: str, programs: Path
) -> None:
    for client, *options in (("claude-code",), ("opencode",), ("codex", "--model", OTHER)):
        proof = desk.home / "work" / PROOF
        proof.unlink(missing_ok=True)
        desk.call("connect", client, ENGINE, "--gateway", "--write", "--check")
        assert "".join(ANSWER) in ask(client, desk.home, programs, *ALLOWED.get(client, ()), *options)
        assert proof.exists(), "the tool call came through"
        desk.call("connect", client, "--undo")
    found = json.loads(desk.call("ps", "--json"))  # with engines of this machine that are none of ours
    assert [each["id"] for each in found if not each["container_id"].startswith("process-")] == [OTHER]
    paths = {path.partition("?")[0]: status for path, status in desk.posts(OTHER)}
    assert paths["/v1/responses"] == 200

    def came_through() -> set[str]:
        status = json.loads(desk.call("gateway", "status", "--json"))
        assert status["url"] == gateway
        return {each["path"] for each in status["clients"]}

    assert wait_until(lambda: came_through() == {PATHS[api] for api in CHAT}, 30), (
        "the status follows after two seconds"
    )
