"""Answers and conversations, for both front ends."""

from __future__ import annotations

from spark_tui.domain.chat.message import Answer, ToolCall, Usage
from spark_tui.present.json import Object, maybe, rounded


def tool_call_object(call: ToolCall) -> Object:
    """A call that the model asks for; `arguments` is JSON text as it came."""
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def usage_object(found: Usage) -> Object:
    """Token counts."""
    silent = "the server did not report it"
    return {
        "prompt_tokens": found.prompt_tokens,
        "completion_tokens": found.completion_tokens,
        **maybe("reasoning_tokens", found.reasoning_tokens, silent),
        **maybe("cached_tokens", found.cached_tokens, silent),
    }


def answer_object(found: Answer, engine_name: str, model: str) -> Object:
    """A whole answer with its timings."""
    silent = "the server did not report it"
    counts = (
        usage_object(found.usage)
        if found.usage
        else {
            key: value
            for name in ("prompt", "completion", "reasoning", "cached")
            for key, value in maybe(f"{name}_tokens", None, silent).items()
        }
    )
    return {
        "id": engine_name,
        "model": model,
        "content": found.content,
        "reasoning": found.reasoning,
        "tool_calls": [tool_call_object(call) for call in found.tool_calls],
        **maybe("finish_reason", found.finish_reason, silent),
        **maybe("ttft_seconds", rounded(found.ttft, 4), "no token came"),
        **maybe(
            "decode_tokens_per_second", rounded(found.decode_tokens_per_second, 2), "too few tokens, or not reported"
        ),
        **maybe("reasoning_seconds", rounded(found.reasoning_seconds, 3), "there was no reasoning"),
        **counts,
    }
