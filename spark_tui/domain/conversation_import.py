"""Conversations from files: our own JSON, the API's list of messages, and Markdown with a heading for each speaker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from spark_tui.domain.chat import Answer
from spark_tui.domain.chat_reader import thread_of_json
from spark_tui.domain.chat_records import FORMAT, thread_json
from spark_tui.domain.chat_settings import ChatSettings
from spark_tui.domain.conversation import ChatThread, Exchange, Outcome, title_of
from spark_tui.domain.conversation_markdown import HEADING, NO_ANSWER, fence_after, to_markdown
from spark_tui.domain.errors import UsageError

ELSEWHERE: Final = "imported"
"""The engine of an answer of which nobody knows where it came from."""
_FIGURES: Final = re.compile(r"\*[^*]*(?:tokens|ttft|stopped|failed)[^*]*\*")
_ERROR: Final = re.compile(r"\*\*Error:\*\* .*")
_REASONED: Final = re.compile(r"> \*Reasoned[^*]*\*")


def exported(thread: ChatThread, form: str) -> str:
    """The conversation as `json` (all of it, to be imported again) or `markdown` (to be read)."""
    if form == "json":
        return json.dumps(thread_json(thread), ensure_ascii=False, indent=1) + "\n"
    return to_markdown(thread.exchanges, system=thread.settings.system, title=thread.title)


def imported(text: str, name: str, at: float) -> ChatThread:
    """A conversation from a file's text; `name` is the file's, `at` dates what has no date.

    Raises UsageError when it is none of the kinds that can be read.
    """
    start = text.lstrip("\ufeff \t\r\n")[:1]
    thread = _of_json(text, at) if start in ("{", "[") else _of_markdown(text, at)
    if not thread.exchanges:
        raise UsageError(
            f"There is no conversation in {name}.",
            "Import our own JSON or Markdown, or a JSON list of messages with role and content.",
        )
    return replace(thread, title=thread.title or title_of(thread.exchanges[0].question))


# --- JSON ---------------------------------------------------------------------------------------------------


def _of_json(text: str, at: float) -> ChatThread:
    try:
        told = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise UsageError("This is not JSON.", "Import a file as it was exported.", detail=str(error)) from None
    if isinstance(told, Mapping) and told.get("format") == FORMAT:
        return thread_of_json(told)
    messages = told.get("messages") if isinstance(told, Mapping) else told
    if not isinstance(messages, list):
        raise UsageError("This JSON is no conversation.", "Import our own export, or a list of messages.")
    model = str(told.get("model") or "") if isinstance(told, Mapping) else ""
    said = (
        (str(each.get("role")), _text_of(each.get("content")), _text_of(each.get("reasoning_content")))
        for each in messages
        if isinstance(each, Mapping)
    )
    return _thread(said, model, at)


def _text_of(content: Any) -> str:
    """A message's text; of a list of parts the texts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping)).strip("\n")
    return content if isinstance(content, str) else ""


def _thread(said: Iterable[tuple[str, str, str]], model: str, at: float) -> ChatThread:
    """Exchanges from what was said in order: who, text, reasoning. A question without an answer stands alone."""
    system = ""
    question: str | None = None
    exchanges: list[Exchange] = []

    def close(answer: Answer, who: str) -> None:
        exchanges.append(Exchange(len(exchanges) + 1, question or "", ELSEWHERE, who, at, answer, Outcome.COMPLETE))

    for role, text, reasoning in said:
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


# --- Markdown -----------------------------------------------------------------------------------------------


def _of_markdown(text: str, at: float) -> ChatThread:
    title, said = "", list[tuple[str, str, str]]()
    for heading, body in _sections(text.replace("\r\n", "\n")):
        if heading is None:
            found = re.match(r"# (.+)", body.lstrip())
            title = found[1].strip() if found and not found[1].startswith("Conversation with") else ""
            continue
        system, person, _, model = heading.groups()
        if system or person:
            said.append(("system" if system else "user", body, ""))
        else:
            reasoning, answer = _answer(body)
            said.append((model or "assistant", answer, reasoning))
    return replace(_thread(said, "", at), title=title)


def _sections(text: str) -> Iterator[tuple[re.Match[str] | None, str]]:
    """Each heading of ours with the text below it; what stands before the first one has none. Headings in code are
    code; a backslash before one makes it text."""
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


def _answer(body: str) -> tuple[str, str]:
    """Reasoning and text of an answer, without what `to_markdown` says about it."""
    lines = body.split("\n")
    while lines and (not lines[-1].strip() or _FIGURES.fullmatch(lines[-1]) or _ERROR.fullmatch(lines[-1])):
        lines.pop()
    quoted: list[str] = []
    if lines and _REASONED.match(lines[0]):
        while lines and lines[0].startswith(">"):
            quoted.append(lines.pop(0).removeprefix(">").removeprefix(" "))
    text = "\n".join(lines).strip("\n")
    return "\n".join(quoted[1:]).strip("\n"), "" if text == NO_ANSWER else text
