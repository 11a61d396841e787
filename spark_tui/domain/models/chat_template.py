"""What a chat template can do, by its own text: it is a program of the publisher's, and is never run here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_tui.domain.text import clean_line, truncate

# What a model writes -> vLLM's parser for it; the first that fits (the markers of vLLM 0.33's own parsers).
_TOOL_PARSERS: Final = (
    (r"<minimax:tool_call>", "minimax_m2"),
    (r"<\|tool_calls_section_begin\|>", "kimi_k2"),
    (r"<｜tool▁calls▁begin｜>", "deepseek_v3"),
    (r"<\|tool_call>|<tool_call\|>", "gemma4"),
    (r"\[TOOL_CALLS\]", "mistral"),
    (r"<\|channel\|>", "openai"),
    (r"<arg_key>", "glm45"),
    (r"<function=", "qwen3_coder"),
    (r"<tool_call>", "hermes"),
    (r"<\|python_tag\|>", "llama3_json"),
)
_REASONING_PARSERS: Final = (
    (r"<minimax:tool_call>", "minimax_m2"),
    (r"<\|channel\|>", "openai_gptoss"),
    (r"<\|channel>", "gemma4"),
    (r"\[THINK\]", "mistral"),
    (r"◁think▷", "kimi_k2"),
)
# Families that write plain <think> tags and have a parser of their own, by model_type.
_BY_FAMILY: Final = (
    (r"qwen3", "qwen3", ""),
    (r"nemotron", "nemotron_v3", "qwen3_coder"),
    (r"glm4", "glm45", "glm45"),
    (r"kimi", "kimi_k2", "kimi_k2"),
    (r"laguna|poolside", "poolside_v1", "poolside_v1"),
    (r"deepseek_v3|deepseek_v32", "deepseek_v3", ""),
)
_THINKS: Final = re.compile(r"</?think>|\[THINK\]|◁think▷|<\|channel\|?>|enable_thinking|reasoning_content|thinking")
_THINK_TAGS: Final = re.compile(r"</?think>")
_TOOLS: Final = re.compile(r"\btools\b")
_SWITCHES: Final = ("enable_thinking", "thinking", "reasoning_effort", "thinking_budget", "low_effort")
_IMAGES: Final = re.compile(r"image_url|<image>|<\|image|vision_start|image_pad|\[IMG\]")
_FRONT: Final = re.compile(r"\A\ufeff?---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_KEY: Final = re.compile(r"^(license|license_name|license_link)[ \t]*:[ \t]*(.*?)[ \t]*(?:#.*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ChatAbilities:
    """What a chat template takes and produces. `switches` are the template's own arguments that steer thinking, as
    `chat_template_kwargs` takes them. The parsers are vLLM's names for the way in which this model writes thoughts and
    calls, empty where the text does not tell."""

    thinking: bool = False
    tools: bool = False
    images: bool = False
    switches: tuple[str, ...] = ()
    reasoning_parser: str = ""
    tool_parser: str = ""


def abilities_of(template: str, model_type: str = "") -> ChatAbilities:
    """From the template's text and the model's type."""
    thinking = _THINKS.search(template) is not None
    tools = _TOOLS.search(template) is not None
    family = next((each for each in _BY_FAMILY if re.search(each[0], model_type.lower())), ("", "", ""))
    reasoning = _first(_REASONING_PARSERS, template) or family[1]
    if not reasoning and _THINK_TAGS.search(template):
        reasoning = "deepseek_r1"  # it reads plain <think> tags, whoever writes them
    return ChatAbilities(
        thinking=thinking,
        tools=tools,
        images=_IMAGES.search(template) is not None,
        switches=tuple(word for word in _SWITCHES if re.search(rf"\b{word}\b", template)) if thinking else (),
        reasoning_parser=reasoning if thinking else "",
        tool_parser=(_first(_TOOL_PARSERS, template) or family[2]) if tools else "",
    )


def _first(table: tuple[tuple[str, str], ...], text: str) -> str:
    return next((parser for pattern, parser in table if re.search(pattern, text)), "")


def template_in(tokenizer: Mapping[str, Any]) -> str | None:
    """The template in `tokenizer_config.json` or `chat_template.json`: a text, or several by name (the default one,
    and the one for tools with it)."""
    found = tokenizer.get("chat_template")
    if isinstance(found, str):
        return found
    if not isinstance(found, list):
        return None
    texts = [each.get("template") for each in found if isinstance(each, dict)]
    named = [text for text in texts if isinstance(text, str)]
    return "\n".join(named) or None


def licence_in(readme: str) -> str:
    """The licence that a model card names in its first lines: `apache-2.0`, `nvidia-open-model-license`; empty when it
    names none."""
    front = _FRONT.match(readme.replace("\r\n", "\n"))
    if front is None:
        return ""
    found = {key: truncate(clean_line(value).strip("\"' "), 120) for key, value in _KEY.findall(front[1])}
    name = found.get("license", "")
    if name in ("", "other"):
        return found.get("license_name", "") or found.get("license_link", "") or name
    return name
