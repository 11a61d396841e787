"""`The conversation is too long`, in every wording that servers have for it, with the numbers that they give.

Wordings: vLLM 0.14-0.33 (`renderers/params.py`, `input_processor.py`), the OpenAI one that SGLang and older vLLM use,
and llama.cpp, which since September 2025 gives the counts as keys of the error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spark_tui.domain.errors import ContextOverflow
from spark_tui.domain.quantities import human_count

_OVERFLOW = re.compile(
    r"(?:maximum|model's|available) context (?:length|size)|max_model_len|maximum model length"
    r"|context (?:window|length).{0,40}exceed|exceed.{0,40}context (?:window|length|size)|prompt is too long",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"(?:context (?:length|size|window)|model length|max_model_len)(?: is only| is| of)?[ =:(]{1,3}(\d[\d,]*)",
    re.IGNORECASE,
)
_PROMPT = re.compile(
    r"(?:contains|passed|has)(?P<least> at least)? (?P<a>\d[\d,]*) (?:input )?tokens"
    r"|\((?P<b>\d[\d,]*) in the messages"
    r"|(?P<c>\d[\d,]*) tokens from the input"
    r"|prompt \(length (?P<d>\d[\d,]*)\)"
    r"|input length \((?P<e>\d[\d,]*)\)"
    r"|request \((?P<f>\d[\d,]*) tokens\)",
    re.IGNORECASE,
)
_ANSWER = re.compile(
    r"max_tokens=(?P<a>\d[\d,]*)"
    r"|is too large: (?P<b>\d[\d,]*)"
    r"|requested (?P<c>\d[\d,]*) output tokens"
    r"|(?P<d>\d[\d,]*) (?:in|tokens for) the completion",
    re.IGNORECASE,
)
_LONGER = "or launch the model with a longer context (--max-model-len)."


def is_overflow(message: str, kind: str = "") -> bool:
    """Whether an error of that message and type says that something does not fit into the context."""
    return kind == "exceed_context_size_error" or bool(_OVERFLOW.search(message))


def context_overflow(message: str, told: Mapping[str, Any] | None = None) -> ContextOverflow:
    """The error with its numbers, as far as the message or the keys of the error object give them."""
    prompt_found, answer_found, limit_found = _PROMPT.search(message), _ANSWER.search(message), _LIMIT.search(message)
    limit = _key(told, "n_ctx") or _number(limit_found)
    prompt = _key(told, "n_prompt_tokens") or _number(prompt_found)
    answer = _number(answer_found)
    least = "at least " if prompt_found is not None and prompt_found["least"] else ""
    room = f"the engine's context of {human_count(limit)} tokens" if limit else "the engine's context"
    if prompt and answer:
        summary = (
            f"The conversation ({least}{human_count(prompt)} tokens) and an answer of up to {human_count(answer)} "
            f"do not fit into {room}."
        )
        remedy = f"Lower max tokens, begin a new conversation, {_LONGER}"
    elif answer:
        summary = f"An answer of up to {human_count(answer)} tokens does not fit into {room}."
        remedy = f"Lower max tokens, {_LONGER}"
    else:
        size = f" has {least}{human_count(prompt)} tokens: it" if prompt else ""
        summary = f"The conversation{size} does not fit into {room}."
        remedy = f"Begin a new conversation, {_LONGER}"
    return ContextOverflow(summary, remedy, detail=message, limit=limit, prompt_tokens=prompt, answer_tokens=answer)


def _key(told: Mapping[str, Any] | None, name: str) -> int | None:
    value = told.get(name) if told is not None else None
    return value if isinstance(value, int) and value > 0 else None


def _number(found: re.Match[str] | None) -> int | None:
    """The one group of digits that matched."""
    if found is None:
        return None
    digits = next((group for group in found.groups() if group and group[0].isdigit()), "")
    return int(digits.replace(",", "")[:12]) or None
