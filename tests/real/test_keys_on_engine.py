"""By keys alone on a real engine: a launch with typed changes, an answer of a set length, an A/B by turns.

One program and one preset go through all three. The engine starts three times: for the launch, as the other side of
the A/B, and as it was before.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.engine.message import SETTINGS
from spark_tui.use.chat.screen.chat import LATE_ESC_SECONDS
from tests.pty_app import PtyApp, spark_tui
from tests.real.lab.engine import PrivateEngine
from tests.real.lab.lab import Lab

pytestmark = pytest.mark.timeout(1200)

NAME = f"keys-tiny-{os.getpid()}"
"""Of this run alone: others use the lab too."""
RECIPE = """\
recipe_version: "2"
model: /models/tiny
runtime: vllm
container: spark-tui/vllm-cpu:0.32.0
executor_config:
  accelerator_vendor: cpu
metadata:
  category: cpu
defaults:
  port: 8000
env:
  HF_HUB_OFFLINE: "1"
  VLLM_NO_USAGE_STATS: "1"
  # Ranks of tokens are counted by a compiled function, and the image has no compiler.
  TORCHDYNAMO_DISABLE: "1"
command: |
  vllm serve {model} --port {port} --served-model-name tiny --max-model-len 512 --max-num-seqs 2 \\
    --enforce-eager --kv-cache-memory-bytes 16M
"""
TYPED = {"batched tokens": "256", "KV cache size": "24MiB", "speculation": "ngram", "drafted tokens": "3"}
LOAD = {
    "A/B with": "speculation=off", "prompt tokens": "32", "answer tokens": "16", "streams": "1", "passes": "1",
    "rounds": "2",
}  # fmt: skip
BOOT_SECONDS = 300.0
ANSWER_SECONDS = 120.0
TOKENS = 12
FIELD = re.compile(r"^[│╭ ]{0,4}│   ([A-Za-z].*?) {2,}", re.MULTILINE)
"""A field's label on screen; what is wrong with one stands farther to the right."""


@pytest.fixture
def environment(vllm_lab: Lab, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """A new user's home with one preset, on the lab's engine and store; the container is removed at the end."""
    presets = tmp_path / "config" / "spark-tui" / "presets"
    presets.mkdir(parents=True)
    (presets / f"{NAME}.yaml").write_text(RECIPE, encoding="utf-8")
    variables = {
        **os.environ,
        **vllm_lab.variables(),
        "HOME": str(tmp_path),
        **{f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")},
        "SPARK_TUI_STORE": str(vllm_lab.store),
    }
    yield variables
    vllm_lab.engine.try_docker("rm", "--force", "--volumes", NAME)


@dataclass(frozen=True)
class Container:
    """What Docker says of it: which one it is, and the words that it runs."""

    id: str
    words: tuple[str, ...]

    def value(self, option: str) -> str:
        """What stands behind an option; empty without it."""
        return self.words[self.words.index(option) + 1] if option in self.words else ""


def container(engine: PrivateEngine) -> Container:
    facts: dict[str, Any] = engine.api("GET", f"/containers/{NAME}/json")
    return Container(facts["Id"], (*(facts["Config"]["Entrypoint"] or ()), *(facts["Config"]["Cmd"] or ())))


def type_into(app: PtyApp, here: str, texts: Mapping[str, str]) -> None:
    """Goes from the field `here` down to each of these, and types what belongs there."""
    for label, text in texts.items():
        labels = FIELD.findall(app.text())
        app.send(*["down"] * (labels.index(label) - labels.index(here)))
        app.wait_for(f"{label}: ")  # the form's foot speaks of it
        app.send(*text)
        app.wait_for(text)
        here = label


def test_typed_changes_an_answer_of_a_set_length_and_an_ab_by_turns(
    environment: Mapping[str, str], vllm_lab: Lab, free_port: int
) -> None:
    engine = vllm_lab.engine
    with PtyApp(spark_tui(), env=environment, rows=40) as app:
        app.wait_for("1 Home", "docker OK", timeout=60)
        _launch(app, free_port)
        launched = container(engine)
        assert launched.value("--kv-cache-memory-bytes") == str(24 * 1024**2)
        assert launched.value("--max-num-batched-tokens") == "256"
        drafting = json.loads(launched.value("--speculative-config"))
        assert drafting == {"method": "ngram", "num_speculative_tokens": 3}
        assert "--max-num-seqs" in launched.words, "what nobody changed is as the preset has it"

        _ask_for_few_tokens(app)

        _compare(app)
        app.send("1")
        app.wait_for(f"{NAME} ready", "drafting", "ngram 3", timeout=BOOT_SECONDS)
        back = container(engine)
        assert back.id != launched.id
        assert back.words == launched.words, "in the end it runs as before"

        app.send("q")
        assert app.wait_end(timeout=60) == 0
    _both_are_kept(environment)


def _launch(app: PtyApp, port: int) -> None:
    app.send("3")
    app.wait_for("gpt-oss-120b")
    app.send("/", *NAME, "enter")
    app.wait_for("1 of", NAME)
    app.send("enter")
    app.wait_for("docker run", "^l launch")
    app.send("ctrl+o", "down")
    app.wait_for("port: ")
    app.send(*str(port))
    app.wait_for(f"127.0.0.1:{port}:")
    type_into(app, "port", TYPED)
    app.wait_for("Launch", "changed")
    app.send("ctrl+l")
    app.wait_for(f"{NAME} ready", "drafting", "ngram 3", timeout=BOOT_SECONDS)


def _ask_for_few_tokens(app: PtyApp) -> None:
    app.send("6")
    app.wait_for("Message to tiny")
    app.send("ctrl+o")
    app.wait_for("For the next question", "temperature")
    order = [setting.name for setting in SETTINGS]
    app.send(*["down"] * (order.index("max_tokens") - order.index("temperature")), *str(TOKENS))
    app.send("ctrl+o")
    app.wait_for("Changed settings for the next question")
    app.send(*"Hello", "enter")
    app.wait_for("ttft", " tok/s", f"{TOKENS} tokens", timeout=ANSWER_SECONDS)
    time.sleep(2 * LATE_ESC_SECONDS)  # one pressed to stop an answer that has just ended must not leave the prompt
    app.send("esc")
    app.wait_for("Enter Write")


def _compare(app: PtyApp) -> None:
    app.send("7")
    app.wait_for("No runs yet", "to start a benchmark of", NAME)
    app.send("b")
    app.wait_for("A/B with", "^l measure")
    type_into(app, "engine", LOAD)
    app.wait_for("speculation=off", "2; ", "is unavailable meanwhile")
    app.send("ctrl+l")
    app.wait_for("Run an A/B?")
    app.send("y")
    app.wait_for(
        "speculation: ngram 3 -> not set", "B/A", "Alternated pass by pass", timeout=BOOT_SECONDS + ANSWER_SECONDS
    )
    app.wait_gone("measuring", timeout=60)


def _both_are_kept(environment: Mapping[str, str]) -> None:
    """The two runs, told apart by what was changed, each the other's pair."""
    done = subprocess.run(
        spark_tui("results", "list", "--json"), env=dict(environment), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    runs = [run for run in json.loads(done.stdout) if run["engine"] == NAME]
    assert len(runs) == 2
