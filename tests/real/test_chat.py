"""Conversations with a real vLLM, by keys alone: answers, reasoning, tools, stop, overflow, and a server that dies.

One small server serves all of them: SmolLM2 that thinks aloud, with a context that two long questions fill.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_tui.domain.chat.parameters import SETTINGS
from tests.pty_app import PtyApp, spark_tui
from tests.real.lab.engine import PrivateEngine
from tests.real.lab.lab import Lab
from tests.real.lab.models import SMOLLM2_THINK
from tests.real.lab.serving import READY_SECONDS, Served, healthy, serve
from tests.real.lab.support import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

NAME = f"test-chat-{os.getpid()}"
"""Of this run alone: others use the lab too."""
MODEL = "smol"
CONTEXT = 640
FLAGS = (
    *("--max-model-len", str(CONTEXT), "--max-num-seqs", "2", "--kv-cache-memory-bytes", "64M", "--enforce-eager"),
    *("--reasoning-parser", "qwen3", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
)
ANSWER_SECONDS = 90
"""A token takes 40 ms on two quiet cores, and much longer on busy ones."""
FREED_SECONDS = 6
FRANCE = "What is the capital of France?"
LONG = "List one thousand animals, one on each line."
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture(scope="module")
def server(vllm_lab: Lab, take_port: Callable[[], int]) -> Iterator[Served]:
    """The one server of this file."""
    engine = vllm_lab.engine
    engine.try_docker("rm", "--force", NAME)
    try:
        yield serve(
            engine, vllm_lab.model(SMOLLM2_THINK), name=NAME, port=take_port(), served_as=MODEL, flags=FLAGS
        )  # fmt: skip
    finally:
        engine.try_docker("rm", "--force", "--volumes", NAME)


class Talk:
    """A person at the Chat screen."""

    def __init__(self, app: PtyApp) -> None:
        self.app = app

    def ask(self, question: str) -> None:
        """Types a question and sends it; a long one is pasted."""
        if len(question) > 80:
            self.app.send(f"\x1b[200~{question}\x1b[201~", "enter")
        else:
            self.app.send(question)
            self.app.wait_for(question)
            self.app.send("enter")

    def answered(self, *texts: str) -> str:
        """The screen once the answer is over and these texts are there."""
        self.app.wait_gone("Esc stop", timeout=ANSWER_SECONDS)
        return self.app.wait_for("ttft", *texts, timeout=ANSWER_SECONDS)

    def set(self, **settings: str) -> None:
        """Sets these in the settings panel, walking from the first field to the last."""
        order = [*(setting.name for setting in SETTINGS), "tools", "tool_choice"]
        self.app.send("ctrl+o")
        self.app.wait_for("For the next question", "temperature")
        at = order.index("temperature")
        for name in sorted(settings, key=order.index):
            self.app.send(*["down"] * (order.index(name) - at), settings[name])
            at = order.index(name)
        self.app.send("ctrl+o")
        self.app.wait_for("Changed settings for the next question")


@pytest.fixture
def environment(vllm_lab: Lab, tmp_path: Path) -> Mapping[str, str]:
    """A new user's home on the lab's engine."""
    return {
        **os.environ,
        **vllm_lab.variables(),
        "HOME": str(tmp_path),
        **{f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")},
    }


@pytest.fixture
def talk(server: Served, environment: Mapping[str, str]) -> Iterator[Talk]:
    """The Chat screen, with the real server to talk to."""
    with talking(environment) as found:
        yield found


@contextmanager
def talking(environment: Mapping[str, str]) -> Iterator[Talk]:
    """The program, started anew, at its Chat screen."""
    with PtyApp(spark_tui(), rows=40, env=environment) as app:
        app.wait_for("1 Home", "docker OK", NAME, "ready", timeout=60)
        app.send("6")
        app.wait_for("Leave prompt", timeout=60)
        for _ in range(10):  # an engine of others may be selected
            if f"to {MODEL} on {NAME}" in app.text():
                break
            app.send("esc")
            app.wait_for("Enter Write")
            app.send("]", "enter")
            app.wait_for("Leave prompt")
        app.wait_for(f"to {MODEL} on {NAME}", f"Message to {MODEL}")
        yield Talk(app)


def gauge(server: Served, name: str) -> float:
    """The sum of a metric's series on the server's own page."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as response:
        page = response.read().decode()
    return sum(float(v) for v in re.findall(rf"^vllm:{name}{{[^}}]*}} (\S+)$", page, re.MULTILINE))


def running(server: Served) -> float:
    return gauge(server, "num_requests_running")


def test_an_answer_comes_with_what_the_engine_did_and_is_kept(talk: Talk, environment: Mapping[str, str]) -> None:
    talk.set(temperature="0", thinking="off")
    talk.ask(FRANCE)
    talk.answered("The capital of France is Paris.", " tok/s", "9 tokens", f" of {CONTEXT} tokens")

    talk.ask("And what is its largest river?")
    assert "The capital of France is Paris." in talk.answered("And what is its largest river?")
    talk.app.send("esc")
    time.sleep(1.2)  # so long an Esc may be meant for the answer
    talk.app.send("esc", "q")
    talk.app.wait_end()

    with talking(environment) as later:
        later.app.send("ctrl+l")
        later.app.wait_for("Saved conversations", FRANCE, MODEL)
        later.app.send("enter")
        later.app.wait_for("The capital of France is Paris.", "tok/s", "And what is its largest river?")


def test_reasoning_has_its_block_and_again_replaces_the_answer(talk: Talk) -> None:
    talk.set(max_tokens="60")
    talk.ask(FRANCE)
    shown = talk.answered("reasoned")
    for _ in range(12):  # of two answers one ends with its reasoning: so the model was made
        if "The answer is empty." not in shown:
            break
        talk.app.send("ctrl+g")
        talk.app.wait_gone("ttft", timeout=ANSWER_SECONDS)
        shown = talk.answered("reasoned")
        assert shown.count(FRANCE) == 1, "it was asked once"
    [headline] = [line for line in shown.split("\n") if "reasoned" in line]
    assert re.search(r"\+ reasoned for \d+\.\d s, \d+ tokens?  \^t show", headline)
    talk.app.send("ctrl+t")
    opened = talk.app.wait_for("- reasoned", "^t hide")
    assert len(_spoken(opened)) > len(_spoken(shown)), "the reasoning is there to be read"
    talk.app.send("ctrl+t")
    talk.app.wait_for("+ reasoned")


def _spoken(screen: str) -> list[str]:
    """The lines of the transcript that say something."""
    return [line for line in screen.split("\n") if line[1:2] in "│|" and line[3:].strip()]


def test_a_tool_is_asked_for_and_the_conversation_continues(talk: Talk, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"type": "function", "function": WEATHER}]), encoding="utf-8")
    talk.set(temperature="0", max_tokens="120", thinking="off", tools=str(file), tool_choice="required")
    talk.ask("How is the weather in Paris?")
    talk.app.wait_for("asks for tool get_weather", "not run", timeout=ANSWER_SECONDS)

    talk.app.send("ctrl+o")
    talk.app.wait_for("tool choice")
    talk.app.send("up", "up", "end", "ctrl+u", "none", "ctrl+o")
    talk.app.wait_for("Changed settings for the next question")
    talk.app.send("It is 18 degrees and sunny", "enter")
    talk.answered("It is 18 degrees and sunny")
    assert "error" not in talk.app.text()


def test_stop_is_immediate_and_frees_the_slot_and_the_answer_goes_on(talk: Talk, server: Served) -> None:
    talk.set(temperature="0", thinking="off")
    talk.ask(LONG)
    talk.app.wait_for("answering", " tok/s", timeout=ANSWER_SECONDS)
    assert wait_until(lambda: running(server) == 1, 30)
    talk.app.send("esc")
    assert wait_until(lambda: running(server) == 0, FREED_SECONDS), "the slot is free at once"
    talk.app.wait_for("stopped", "^g retry", "F4 continue")
    made = gauge(server, "generation_tokens_total")
    before = _spoken(talk.app.text())
    assert gauge(server, "generation_tokens_total") == made, "nothing is made that nobody reads"

    talk.app.send("\x1bOS")  # F4
    talk.app.wait_for("answering", timeout=ANSWER_SECONDS)
    talk.app.wait_for(" tok/s", timeout=ANSWER_SECONDS)
    talk.app.send("esc")
    shown = talk.app.wait_for("F4 continue")
    assert shown.count(LONG) == 1
    assert _spoken(shown)[:3] == before[:3], "what had come stays"
    assert wait_until(lambda: running(server) == 0, FREED_SECONDS)


def test_a_full_context_is_told_and_a_person_makes_room(talk: Talk) -> None:
    talk.set(temperature="0", max_tokens="24", thinking="off")
    first = f"Say yes. {'one two three ' * 100}"
    talk.ask(first)
    talk.answered(" tok/s")
    second = f"Say no. {'four five six ' * 100}"
    talk.ask(second)
    talk.app.wait_for(f"maximum context length is {CONTEXT} tokens", "F7", timeout=ANSWER_SECONDS)
    talk.app.send("\x1b[18~")  # F7
    talk.app.wait_for("Make room", "leave out the oldest exchange")
    talk.app.send("enter")
    talk.app.wait_gone("Make room")
    talk.app.send("ctrl+g")
    talk.app.wait_gone("maximum context length")
    talk.app.wait_for(f" of {CONTEXT} tokens", timeout=ANSWER_SECONDS)  # it is over
    assert "error" not in talk.app.text()
    talk.app.send("\x1b[H")  # Home
    talk.app.wait_for("Say yes.", "no longer sent")


def test_a_server_killed_in_mid_answer_leaves_what_came_and_the_talk_goes_on_with_the_next_one(
    talk: Talk, server: Served, vllm_lab: Lab
) -> None:
    engine = vllm_lab.engine
    talk.set(temperature="0", thinking="off")
    talk.ask(LONG)
    talk.app.wait_for("answering", " tok/s", timeout=ANSWER_SECONDS)
    os.kill(int(engine.docker("inspect", "--format", "{{.State.Pid}}", NAME)), signal.SIGKILL)  # as the kernel does
    shown = talk.app.wait_for("error", "^g retry", "F4 continue", timeout=60)
    assert _spoken(shown)[3:], "what had come is there"
    talk.app.wait_for("failed (exit 137)", timeout=60)
    talk.set(max_tokens="16")  # a model that goes on for a page would move the question off the screen
    talk.ask("Are you there?")
    talk.app.wait_for("is not serving", "Are you there?")

    engine.docker("start", NAME)
    assert wait_until(lambda: healthy(server.port), READY_SECONDS), _log(engine)
    talk.app.wait_gone("failed (exit 137)", timeout=60)
    talk.app.wait_for("Enter send ", timeout=60)  # with other engines the bar above does not name this one
    talk.app.send("enter")
    talk.answered(" tok/s", "Are you there?")
    sent_once = wait_until(lambda: talk.app.text().count("Are you there?") == 1, 10)
    assert sent_once, talk.app.text()


def _log(engine: PrivateEngine) -> str:
    log = engine.try_docker("logs", "--tail", "40", NAME)
    return log.stdout + log.stderr


def test_prove_judges_the_real_engine(server: Served, environment: Mapping[str, str]) -> None:
    """A tiny model fails many cases. What the engine itself answers for passes."""
    wanted = ("chat.length", "chat.schema", "responses.text")
    words = [word for id_ in wanted for word in ("--case", id_)]
    command = [sys.executable, "-m", "spark_tui", "prove", NAME, *words, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode in (0, 1), done.stderr
    proof = json.loads(done.stdout)
    cases = {case["id"]: case for case in proof["cases"]}
    assert proof["outcome"] == "completed"
    for id_ in ("chat.length", "chat.schema", "chat.schema.stream"):
        assert cases[id_]["verdict"] == "pass", cases[id_]
    assert cases["responses.text"]["verdict"] != "skip", cases["responses.text"]
