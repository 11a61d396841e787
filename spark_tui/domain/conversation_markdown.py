"""A conversation as a Markdown document. Model text is cleaned of control codes: such a file ends up in a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from spark_tui.domain.chat import Answer, ToolCall
from spark_tui.domain.conversation import Exchange, Outcome
from spark_tui.domain.quantities import human_count
from spark_tui.domain.text import clean, clean_line

HEADING = re.compile(r"\\*## (?:(System)|(You|User|Human)|(Assistant)|`([^`]*)`) *")
"""The headings of a document: system prompt, person, model; backslashes in front mean the text itself."""
NO_ANSWER = "*(no answer)*"
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")


def to_markdown(exchanges: Sequence[Exchange], *, system: str = "", title: str = "") -> str:
    """The exchanges in order, each with its times and counts; what is not known is left out or said to be unknown."""
    models = ", ".join(dict.fromkeys(f"{_code(e.model)} on {_code(e.engine)}" for e in exchanges)) or "nobody"
    parts = [f"# {clean_line(title)}", f"With {models}."] if title else [f"# Conversation with {models}"]
    if exchanges:
        parts.append(f"Begun {datetime.fromtimestamp(exchanges[0].asked_at, UTC):%Y-%m-%d %H:%M} UTC.")
    if system.strip():
        parts += ["## System", _body(system)]
    for exchange in exchanges:
        parts += ["## You", *_question(exchange), f"## {_code(exchange.model)}", *_answer(exchange)]
    return "\n\n".join(parts) + "\n"


def _question(exchange: Exchange) -> Iterator[str]:
    for attachment in exchange.attachments:
        yield f"*({attachment.kind.value} {_code(attachment.name)})*"
    for result in exchange.tool_answers:
        yield f"Result of tool {_code(result.name)}:"
        yield _fenced(clean(result.content), "")
    if not exchange.tool_answers:
        yield _body(exchange.question)


def _answer(exchange: Exchange) -> Iterator[str]:
    answer = exchange.answer
    if answer.reasoning.strip():
        yield _quoted(f"*{_reasoned(answer)}*\n\n{_body(answer.reasoning)}")
    if answer.content.strip():
        yield _body(answer.content)
    for call in answer.tool_calls:
        yield from _tool_call(call)
    if exchange.error is not None:
        yield f"**Error:** {clean_line(exchange.error.summary)} {clean_line(exchange.error.remedy)}".rstrip()
    elif not answer.content.strip() and not answer.tool_calls:
        yield NO_ANSWER
    yield f"*{', '.join(figures(exchange))}*"


def figures(exchange: Exchange) -> list[str]:
    """How the answer ended and what it cost: `stopped`, `ttft 0.41 s`, `41.8 tok/s`, `312 tokens`."""
    answer, usage = exchange.answer, exchange.answer.usage
    words = [] if exchange.outcome is Outcome.COMPLETE else [exchange.outcome.value]
    if answer.finish_reason not in ("", "stop", "tool_calls"):
        words.append("cut at the token limit" if answer.finish_reason == "length" else clean_line(answer.finish_reason))
    if answer.ttft is not None:
        words.append(f"ttft {answer.ttft:.2f} s")
    if answer.decode_tokens_per_second is not None:
        words.append(f"{answer.decode_tokens_per_second:.1f} tok/s")
    if usage is None:
        return [*words, "tokens not reported"]
    words += [f"{human_count(usage.completion_tokens)} tokens", f"prompt {human_count(usage.prompt_tokens)}"]
    if usage.cached_tokens is not None:
        words.append(f"{human_count(usage.cached_tokens)} of it cached")
    return words


def _reasoned(answer: Answer) -> str:
    tokens = answer.usage.reasoning_tokens if answer.usage is not None else None
    words = [f"{human_count(tokens)} tokens"] if tokens else []
    if answer.reasoning_seconds is not None:
        words.append(f"{answer.reasoning_seconds:.1f} s")
    return f"Reasoned {', '.join(words)}".rstrip()


def _tool_call(call: ToolCall) -> Iterator[str]:
    yield f"Asks for tool {_code(call.name or '(no name)')}:"
    try:
        arguments = json.dumps(json.loads(call.arguments), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        arguments = call.arguments
    yield _fenced(clean(arguments), "json")


def _fenced(text: str, language: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _code(text: str) -> str:
    return f"`{clean_line(text).replace('`', chr(39))}`"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _body(text: str) -> str:
    """Cleaned, with its last code fence closed: an answer that broke off must not swallow what follows. A line that
    would be taken for one of our headings gets a backslash, which Markdown does not show."""
    lines: list[str] = []
    fence = ""
    for line in clean(text).strip("\n").split("\n"):
        before, fence = fence, fence_after(line, fence)
        lines.append(f"\\{line}" if not before and not fence and HEADING.fullmatch(line) else line)
    return "\n".join([*lines, fence] if fence else lines)


def fence_after(line: str, fence: str) -> str:
    """The code fence that is open after `line`; `fence` is the one before it, empty outside of code."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    mark, rest = found.groups()
    if not fence:
        return "" if mark[0] == "`" and "`" in rest else str(mark)
    closes = mark[0] == fence[0] and len(mark) >= len(fence) and not rest.strip()
    return "" if closes else fence
