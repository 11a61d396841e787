"""Conversations as files: our own JSON, the API's list of messages, and Markdown with a heading for each speaker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from spark_tui.base.engine.message import Answer
from spark_tui.base.engine.request import ChatSettings
from spark_tui.base.errors import UsageError
from spark_tui.base.quantities import human_count
from spark_tui.base.text import clean, clean_line
from spark_tui.base.untrusted import load_json
from spark_tui.use.chat.model.conversation import AnswerOutcome, ChatThread, Exchange, title_of
from spark_tui.use.chat.model.records import FORMAT, thread_json, thread_of_json

HEADING = re.compile(r"\\*## (?:(System)|(You|User|Human)|(Assistant)|`([^`]*)`) *")
"""The headings of a document: system prompt, user, model; a backslash in front makes one text."""
NO_ANSWER = "*(no answer)*"
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")


def to_markdown(exchanges: Sequence[Exchange], *, system: str = "", title: str = "") -> str:
    """The exchanges in order, each with its times and counts; unknown ones are left out or called unknown."""
    models = ", ".join(dict.fromkeys(f"{_code(e.model)} on {_code(e.engine)}" for e in exchanges)) or "no model"
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
    yield _body(exchange.question)


def _answer(exchange: Exchange) -> Iterator[str]:
    answer = exchange.answer
    if answer.reasoning.strip():
        quoted = f"*{reasoned(answer)}*\n\n{_body(answer.reasoning)}"
        yield "\n".join(f"> {line}".rstrip() for line in quoted.split("\n"))
    if answer.content.strip():
        yield _body(answer.content)
    for call in answer.tool_calls:
        yield f"Asks for tool {_code(call.name or '(no name)')}:"
        try:
            arguments = json.dumps(load_json(call.arguments), ensure_ascii=False, indent=2)
        except ValueError:
            arguments = call.arguments
        yield _fenced(clean(arguments), "json")
    if exchange.error is not None:
        yield f"**Error:** {clean_line(exchange.error.summary)} {clean_line(exchange.error.remedy)}".rstrip()
    elif not answer.content.strip() and not answer.tool_calls:
        yield NO_ANSWER
    if words := [*filter(None, [ending(exchange)]), *figures(exchange)]:
        yield f"*{', '.join(words)}*"


def ending(exchange: Exchange) -> str:
    """How the answer ended: `stopped`, `cut at the token limit`; empty for a usual end."""
    reason = exchange.answer.finish_reason
    if exchange.outcome in (AnswerOutcome.STOPPED, AnswerOutcome.FAILED):
        return exchange.outcome.value
    if reason in ("", "stop", "tool_calls"):
        return ""
    return "cut at the token limit" if reason == "length" else f"ended: {clean_line(reason)}"


def figures(exchange: Exchange) -> list[str]:
    """Times and counts: `ttft 0.41 s`, `41.8 tok/s`, `312 tokens (40 reasoning)`, `prompt 100 (88 cached)`."""
    answer, usage, side = exchange.answer, exchange.answer.usage, exchange.engine_side
    measured = (
        ("ttft {:.2f} s", answer.ttft),
        ("queued {:.2f} s", side.queued if side is not None else None),
        ("prefill {:,.0f} tok/s", answer.prefill_tokens_per_second),
        ("{:.1f} tok/s", answer.decode_tokens_per_second),
    )
    words = [form.format(value) for form, value in measured if value is not None]
    if usage is not None:
        reasoning = f" ({human_count(usage.reasoning_tokens)} reasoning)" if usage.reasoning_tokens else ""
        cached = "" if usage.cached_tokens is None else f" ({human_count(usage.cached_tokens)} cached)"
        words += [tokens(usage.completion_tokens) + reasoning, f"prompt {human_count(usage.prompt_tokens)}{cached}"]
    elif exchange.outcome is AnswerOutcome.COMPLETE:
        words.append("tokens not reported")
    if side is not None and side.acceptance is not None:
        words.append(f"drafts {100 * side.acceptance:.0f} % accepted")
    return words


def tokens(count: int) -> str:
    """`1 token`, `1,312 tokens`."""
    return f"{human_count(count)} token{'' if count == 1 else 's'}"


def reasoned(answer: Answer) -> str:
    """`Reasoned for 9.8 s, 412 tokens`."""
    seconds = answer.reasoning_seconds
    words = ["Reasoned" if seconds is None else f"Reasoned for {seconds:.1f} s"]
    if answer.usage is not None and answer.usage.reasoning_tokens:
        words.append(tokens(answer.usage.reasoning_tokens))
    return ", ".join(words)


def _fenced(text: str, language: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _code(text: str) -> str:
    return f"`{clean_line(text).replace('`', chr(39))}`"


def _body(text: str) -> str:
    """Cleaned, with its last code fence closed: a broken-off answer must not swallow the next heading. A line that
    looks like one of our headings gets a backslash, which Markdown does not show."""
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


# --- import -------------------------------------------------------------------------------------------------

ELSEWHERE: Final = "imported"
"""The engine of an answer whose origin is unknown."""
_FIGURES: Final = re.compile(r"\*[^*]*(?:tokens|ttft|stopped|failed)[^*]*\*")
_ERROR: Final = re.compile(r"\*\*Error:\*\* .*")
_REASONED: Final = re.compile(r"> \*Reasoned[^*]*\*")


def exported(thread: ChatThread, form: str) -> str:
    """The conversation as `json` (complete, for an import) or `markdown` (to read)."""
    if form == "json":
        return json.dumps(thread_json(thread), ensure_ascii=False, indent=1) + "\n"
    return to_markdown(thread.exchanges, system=thread.settings.system, title=thread.title)


def imported(text: str, name: str, at: float) -> ChatThread:
    """A conversation from a file's text; `name` is the file's, `at` dates exchanges without a date.

    Raises UsageError for any other text.
    """
    text = text.lstrip("\ufeff")
    thread = _of_json(text, at) if text.lstrip()[:1] in ("{", "[") else _of_markdown(text, at)
    if not thread.exchanges:
        raise UsageError(
            f"There is no conversation in {name}.",
            "Import our own JSON or Markdown, or a JSON list of messages with role and content.",
        )
    return replace(thread, title=thread.title or title_of(thread.exchanges[0].question))


def _of_json(text: str, at: float) -> ChatThread:
    try:
        given = load_json(text)
    except ValueError as error:
        raise UsageError("This is not JSON.", "Import a file as it was exported.", detail=str(error)) from None
    if isinstance(given, Mapping) and given.get("format") == FORMAT:
        return thread_of_json(given)
    messages = given.get("messages") if isinstance(given, Mapping) else given
    if not isinstance(messages, list):
        raise UsageError("This JSON is no conversation.", "Import our own export, or a list of messages.")
    model = str(given.get("model") or "") if isinstance(given, Mapping) else ""

    def text_of(content: Any) -> str:
        if isinstance(content, list):  # parts, as in a request
            return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping)).strip("\n")
        return content if isinstance(content, str) else ""

    spoken = (
        (str(each.get("role")), text_of(each.get("content")), text_of(each.get("reasoning_content")))
        for each in messages
        if isinstance(each, Mapping)
    )
    return _thread(spoken, model, at)


def _thread(messages: Iterable[tuple[str, str, str]], model: str, at: float) -> ChatThread:
    """Exchanges from messages in order: role or model, text, reasoning. A question without an answer stands alone."""
    system = ""
    question: str | None = None
    exchanges: list[Exchange] = []

    def close(answer: Answer, who: str) -> None:
        exchanges.append(
            Exchange(len(exchanges) + 1, question or "", ELSEWHERE, who, at, answer, AnswerOutcome.COMPLETE)
        )

    for role, text, reasoning in messages:
        if role in ("system", "developer"):
            system = f"{system}\n\n{text}".strip()
        elif role == "user":
            if question is not None:
                close(Answer(0.0), model or "assistant")
            question = text
        elif role not in ("tool", "function"):
            close(Answer(0.0, text, reasoning), model if role == "assistant" and model else role)
            question = None
    if question is not None:
        close(Answer(0.0), model or "assistant")
    return ChatThread(settings=ChatSettings(system), exchanges=tuple(exchanges), last_number=len(exchanges))


def _of_markdown(text: str, at: float) -> ChatThread:
    title, messages = "", list[tuple[str, str, str]]()
    for heading, body in _sections(text.replace("\r\n", "\n")):
        if heading is None:
            found = re.match(r"# (.+)", body.lstrip())
            title = found[1].strip() if found and not found[1].startswith("Conversation with") else ""
            continue
        system, user, _, model = heading.groups()
        if system or user:
            messages.append(("system" if system else "user", body, ""))
            continue
        lines = body.split("\n")
        while lines and (not lines[-1].strip() or _FIGURES.fullmatch(lines[-1]) or _ERROR.fullmatch(lines[-1])):
            lines.pop()
        quoted: list[str] = []
        if lines and _REASONED.match(lines[0]):
            while lines and lines[0].startswith(">"):
                quoted.append(lines.pop(0).removeprefix(">").removeprefix(" "))
        answer = "\n".join(lines).strip("\n")
        reasoning = "\n".join(quoted[1:]).strip("\n")
        messages.append((model or "assistant", "" if answer == NO_ANSWER else answer, reasoning))
    return replace(_thread(messages, "", at), title=title)


def _sections(text: str) -> Iterator[tuple[re.Match[str] | None, str]]:
    """Each heading of ours with the text below it; the text before the first one has none. Headings in code are code;
    a backslash before one makes it text."""
    heading: re.Match[str] | None = None
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        found = HEADING.fullmatch(line) if not fence else None
        fence = fence_after(line, fence)
        if found is not None and not line.startswith("\\"):
            yield heading, "\n".join(lines).strip("\n")
            heading, lines = found, []
        else:
            lines.append(line[1:] if found is not None else line)
    yield heading, "\n".join(lines).strip("\n")
