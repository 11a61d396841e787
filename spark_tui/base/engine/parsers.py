"""Which parsers read the tool calls and the reasoning of a model family, by server and version.

Sources: the guide (vlaicu.io/posts/dgx-vllm, section 7), the model cards, vLLM 0.14 to 0.33 (`tool_parsers`,
`reasoning`), SGLang 0.5 (its page on tool parsers), TensorRT-LLM 1.2. A family is recognised by its name: a Hub name,
a family of a recipe, an architecture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct, field


class Parsers(NamedTuple):
    """The names as a server's options take them; an empty one is not needed."""

    tool: str
    reasoning: str = ""


class ModelFamily(Struct, frozen=True):
    """One way to write calls and thoughts; a maker may have several. The parsers are vLLM's; `others` are those of
    other servers, by runtime. `implied`: vLLM sets the reasoning parser by itself. `since` is the first vLLM that has
    both.
    """

    name: str
    pattern: str
    tool: str
    reasoning: str = ""
    implied: bool = False
    since: tuple[int, int] = (0, 14)
    others: Mapping[str, Parsers] = field(default_factory=dict)


_QWEN: Final = {"sglang": Parsers("qwen", "qwen3"), "trtllm": Parsers("qwen3", "qwen3")}
_QWEN_CODER: Final = {"sglang": Parsers("qwen3_coder", "qwen3"), "trtllm": Parsers("qwen3_coder", "qwen3")}
FAMILIES: Final = (
    # The newer Qwen write calls as XML; Qwen3 and the Instruct models without thoughts as JSON.
    ModelFamily("Qwen", r"qwen-?3\.[5-9]", "qwen3_coder", "qwen3", others=_QWEN_CODER),
    ModelFamily("Qwen", r"qwen-?3-?coder", "qwen3_coder", others={"sglang": Parsers("qwen3_coder")}),
    ModelFamily("Qwen", r"qwen-?3.*(?<!thinking-)instruct", "hermes", others={"sglang": Parsers("qwen")}),
    ModelFamily("Qwen", r"qwen-?3", "hermes", "qwen3", others=_QWEN),
    ModelFamily("Qwen", r"qwen-?2", "hermes", others={"sglang": Parsers("qwen")}),
    ModelFamily("Gemma 4", r"gemma-?4|diffusiongemma", "gemma4", "gemma4", since=(0, 19)),
    ModelFamily("Nemotron 3", r"nemotron-?3|nemotron-cascade", "qwen3_coder", "nemotron_v3"),
    ModelFamily("Mistral", r"mistral|devstral|magistral", "mistral", "mistral"),
    ModelFamily("Laguna", r"laguna", "poolside_v1", "poolside_v1", since=(0, 20)),
    ModelFamily(
        "gpt-oss", r"gpt-?oss", "openai", "openai_gptoss", implied=True,
        others={"sglang": Parsers("gpt-oss", "gpt-oss")},
    ),
    ModelFamily("Llama 3", r"llama-?3", "llama3_json", others={"sglang": Parsers("llama3")}),
    ModelFamily("GLM", r"glm-?(?:4\.[7-9]|5)", "glm47", "glm45", since=(0, 15)),
    ModelFamily("GLM", r"glm-?4", "glm45", "glm45", others={"sglang": Parsers("glm45", "glm45")}),
    ModelFamily("MiniMax M2", r"minimax-?m2", "minimax_m2", "minimax_m2"),
    ModelFamily("Kimi K2", r"kimi-?k2", "kimi_k2", "kimi_k2", others={"sglang": Parsers("kimi_k2", "kimi_k2")}),
)  # fmt: skip


@lru_cache(maxsize=1024)
def family_of(name: str) -> ModelFamily | None:
    """The first family that the name fits, in any case and with `-` for `_`."""
    text = name.lower().replace("_", "-")
    return next((family for family in FAMILIES if re.search(family.pattern, text)), None)


def makers_of(parser: str) -> tuple[str, ...]:
    """The families that have a vLLM parser of that name; none where it is not known."""
    return tuple(dict.fromkeys(each.name for each in FAMILIES if parser and parser in (each.tool, each.reasoning)))


def parsers_of(name: str, runtime: str = "vllm") -> Parsers | None:
    """What to write into a command of that server for a model of that name; None where no parser is known."""
    family = family_of(name)
    if family is None:
        return None
    if runtime == "vllm":
        return Parsers(family.tool, "" if family.implied else family.reasoning)
    return family.others.get(runtime)
