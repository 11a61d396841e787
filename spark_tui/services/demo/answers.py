"""What the simulated chat says. Written for this program; every answer says that no model is behind it."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Final

_PIECE: Final = re.compile(r"\s?[^\W\d_]{1,6}|\s?\d{1,3}|\s+|.", re.DOTALL)
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class CannedAnswer:
    """An answer and the reasoning before it. `about` are words of a question that it fits."""

    about: frozenset[str]
    reasoning: str
    content: str


def canned_answer(prompt: str) -> CannedAnswer:
    """The answer that fits the question's words best; without any such word, one chosen by the prompt alone."""
    words = frozenset(_WORD.findall(prompt.lower()))
    best = max(_ANSWERS, key=lambda answer: len(answer.about & words))
    return best if best.about & words else _ANSWERS[zlib.crc32(prompt.encode("utf-8", "replace")) % len(_ANSWERS)]


def tokens_of(text: str) -> list[str]:
    """The text in pieces of about a token each; joined they are the text."""
    return _PIECE.findall(text)


_ANSWERS: Final = (
    CannedAnswer(
        frozenset(("memory", "pool", "unified", "ram", "oom", "gib", "spark")),
        "The question is about memory on a machine where CPU and GPU share it. I should say what that means for "
        "serving a model, name the three users of the pool, and end with something to do. I am a demo, so I had "
        "better say that first.",
        "*This is a demo: the answer is canned, no model is running.*\n\n"
        "On a DGX Spark the CPU and the GPU draw from **one pool**. Three things compete for it:\n\n"
        "| who | what it holds | can it be had back? |\n"
        "|---|---|---|\n"
        "| the engine | weights, KV cache, CUDA graphs | by stopping it |\n"
        "| applications | everything else that runs | by closing them |\n"
        "| page cache | files read lately, such as a checkpoint | at once |\n\n"
        "So a checkpoint that was just downloaded can make the pool look full although nothing is lost. "
        "The strip at the top of this screen keeps the three apart:\n\n"
        "1. Look at **available**, not at free.\n"
        "2. Leave some of the pool to the system: a utilization of 0.80 to 0.87 is kinder than the default.\n"
        "3. Drop the cache before a large model is loaded, rather than after it has failed.\n",
    ),
    CannedAnswer(
        frozenset(("code", "python", "function", "write", "script", "program", "curl", "api", "openai")),
        "They want code. A short client that streams is useful and small enough to read: an OpenAI-compatible server, "
        "the address of the engine, one loop. I must say that this comes from the demo.",
        "*This is a demo: the answer is canned, no model is running.*\n\n"
        "The engine speaks the OpenAI API, so any client of it will do:\n\n"
        "```python\n"
        "from openai import OpenAI\n\n"
        'client = OpenAI(base_url="http://127.0.0.1:8001/v1", api_key="unused")\n'
        "stream = client.chat.completions.create(\n"
        '    model="qwen3.6-35b",\n'
        '    messages=[{"role": "user", "content": "Hello"}],\n'
        "    stream=True,\n"
        ")\n"
        "for chunk in stream:\n"
        '    print(chunk.choices[0].delta.content or "", end="", flush=True)\n'
        "```\n\n"
        "The port is bound to this machine only. To reach it from your laptop, forward it over SSH: "
        "`ssh -L 8001:127.0.0.1:8001 spark`.\n",
    ),
    CannedAnswer(
        frozenset(("fast", "faster", "slow", "speed", "tokens", "tok", "decode", "prefill", "latency", "throughput")),
        "Speed. Decode on this machine is bound by memory bandwidth, so bytes read per token decide; prefill is bound "
        "by arithmetic. Mention active parameters, quantization and speculation, briefly. Say that I am a demo.",
        "*This is a demo: the answer is canned, no model is running.*\n\n"
        "Two speeds matter, and they have different causes:\n\n"
        "- **Prefill** reads your prompt. It is bound by arithmetic, and the prefix cache skips what was read before.\n"
        "- **Decode** writes the answer. Each token reads all *active* weights once, so memory bandwidth sets the "
        "ceiling: 273 GB/s by specification, rather less in practice.\n\n"
        "That is why a mixture of experts with 3B active parameters writes several times faster than a dense 27B "
        "model. What helps decode, in this order:\n\n"
        "1. fewer active parameters,\n"
        "2. fewer bits per weight, as long as the kernel is a native one,\n"
        "3. a drafter: several tokens are proposed at once and checked in one pass.\n",
    ),
    CannedAnswer(
        frozenset(("hello", "hi", "hey", "who", "what", "are", "you", "help", "test", "ping")),
        "A greeting, or a test. Answer briefly, say honestly what this is, and point to what can be tried.",
        "Hello! *This is a demo: no model is running, and this answer is canned.*\n\n"
        "It streams at the pace of a real one, so that you can see how the chat behaves:\n\n"
        "- `esc` stops an answer, and what has arrived stays;\n"
        "- the line below each answer shows the time to its first token and its tokens per second;\n"
        "- reasoning, when a model shows some, is folded above the answer.\n\n"
        "Launch a preset on the **Presets** screen and watch its start: that log was recorded on a real Spark.\n",
    ),
)
