"""Conversations with a real vLLM, by keys alone: answers, reasoning, tools, stop, overflow."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.real.lab.serving import Served
from tests.real.lab.support import wait_until
from tests.real.serving.conftest import CONTEXT, MODEL
from tests.real.talk import ANSWER_SECONDS, LONG, Talk, spoken, talking

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

FREED_SECONDS = 6
FRANCE = "What is the capital of France?"
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture
def talk(server: Served, environment: Mapping[str, str]) -> Iterator[Talk]:
    """The Chat screen, with the real server to talk to."""
    with talking(environment, server.name, MODEL) as found:
        yield found


def gauge(server: Served, name: str) -> float:
    """The sum of a metric's series on the server's own page."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as response:
        page = response.read().decode()
    return sum(float(v) for v in re.findall(rf"^vllm:{name}{{[^}}]*}} (\S+)$", page, re.MULTILINE))


def figures_of(shown: str) -> str:
    """The line below an answer that is over: no two have the same times."""
    return next((line for line in shown.split("\n") if "ttft" in line), "")


def running(server: Served) -> float:
    return gauge(server, "num_requests_running")


def test_an_answer_comes_with_what_the_engine_did_and_is_kept(
    talk: Talk, server: Served, environment: Mapping[str, str]
) -> None:
    talk.set(temperature="0", thinking="off")
    talk.ask(FRANCE)
    talk.answered("The capital of France is Paris.", " tok/s", "9 tokens", f" of {CONTEXT} tokens")

    talk.ask("And what is its largest river?")
    assert "The capital of France is Paris." in talk.answered("And what is its largest river?")
    talk.app.send("esc")
    time.sleep(1.2)  # so long an Esc may be meant for the answer
    talk.app.send("esc", "q")
    talk.app.wait_end()

    with talking(environment, server.name, MODEL) as later:
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
        before = figures_of(shown)
        talk.app.send("ctrl+g")
        talk.app.wait_until(lambda app, before=before: figures_of(app.text()) != before, timeout=ANSWER_SECONDS)
        shown = talk.answered("reasoned")
        assert shown.count(FRANCE) == 1, "it was asked once"
    [headline] = [line for line in shown.split("\n") if "reasoned" in line]
    assert re.search(r"\+ reasoned for \d+\.\d s, \d+ tokens?  \^t show", headline)
    talk.app.send("ctrl+t")
    opened = talk.app.wait_for("- reasoned", "^t hide")
    assert len(spoken(opened)) > len(spoken(shown)), "the reasoning is there to be read"
    talk.app.send("ctrl+t")
    talk.app.wait_for("+ reasoned")


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
    talk.app.send("esc")  # at once: a fast machine is soon done
    talk.app.wait_for("stopped", "^g retry", "F4 continue")
    assert wait_until(lambda: running(server) == 0, FREED_SECONDS), "the slot is free at once"
    made = gauge(server, "generation_tokens_total")
    talk.app.send("\x1b[H")  # Home
    before = spoken(talk.app.wait_for(LONG))
    assert gauge(server, "generation_tokens_total") == made, "nothing is made that nobody reads"

    talk.app.send("\x1bOS")  # F4
    talk.app.wait_for("answering", timeout=ANSWER_SECONDS)
    talk.app.wait_for(" tok/s", timeout=ANSWER_SECONDS)
    talk.app.send("esc")
    talk.app.wait_for("F4 continue")
    talk.app.send("\x1b[H")
    shown = talk.app.wait_for(LONG)
    assert shown.count(LONG) == 1
    assert spoken(shown)[:3] == before[:3], "what had come stays"
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


def test_prove_judges_the_real_engine(server: Served, environment: Mapping[str, str]) -> None:
    """A tiny model fails many cases. What the engine itself answers for passes."""
    wanted = ("chat.length", "chat.schema", "responses.text")
    words = [word for id_ in wanted for word in ("--case", id_)]
    command = [sys.executable, "-m", "spark_tui", "prove", server.name, *words, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode in (0, 1), done.stderr
    proof = json.loads(done.stdout)
    cases = {case["id"]: case for case in proof["cases"]}
    assert proof["outcome"] == "completed"
    for id_ in ("chat.length", "chat.schema", "chat.schema.stream"):
        assert cases[id_]["verdict"] == "pass", cases[id_]
    assert cases["responses.text"]["verdict"] != "skip", cases["responses.text"]
