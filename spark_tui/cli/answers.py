"""An answer as it grows: its text to standard output, all about it to standard error; as JSON one object per piece."""

from __future__ import annotations

import math

from spark_tui.cli import chat_shapes, shapes
from spark_tui.cli.session import Session
from spark_tui.domain.chat import Answer
from spark_tui.domain.conversation import Exchange
from spark_tui.domain.quantities import human_duration
from spark_tui.domain.text import clean

UNSURE_TOKENS = 5


class AnswerWriter:
    """Writes one answer. It is shown snapshots, and writes what is new in each."""

    def __init__(self, session: Session, *, show_reasoning: bool, carried: Answer | None = None) -> None:
        """`carried` is an answer that goes on: what it has by now was written before."""
        self._session = session
        self._show_reasoning = show_reasoning
        self._content = len(carried.content) if carried is not None else 0
        self._reasoning = len(carried.reasoning) if carried is not None else 0
        self._last = carried.content[-1:] if carried is not None else ""
        self._thinking = False

    # --- while it grows -------------------------------------------------------------------------------

    def show(self, answer: Answer) -> None:
        """What has come since the last time."""
        reasoning, content = answer.reasoning[self._reasoning :], answer.content[self._content :]
        self._reasoning, self._content = len(answer.reasoning), len(answer.content)
        if reasoning:
            self._write_reasoning(reasoning, answer)
        if content:
            self._write_content(content, answer)

    def _write_reasoning(self, text: str, answer: Answer) -> None:
        if self._session.as_json:
            self._session.out.json_line({"type": "reasoning", "text": text})
            return
        self._thinking = True
        if self._show_reasoning:
            self._session.err.stream(clean(text), "dim")
        else:
            self._session.err.standing(f"reasoning ... {len(answer.reasoning):,} characters")

    def _write_content(self, text: str, answer: Answer) -> None:
        if self._session.as_json:
            self._session.out.json_line({"type": "content", "text": text})
            return
        self._end_reasoning(answer)
        # A model's habit of opening with blank lines would push the answer down.
        shown = clean(text) if self._last else clean(text).lstrip("\n")
        self._session.out.write(shown)
        self._last = shown or self._last

    def _end_reasoning(self, answer: Answer) -> None:
        if not self._thinking:
            return
        self._thinking = False
        self._session.err.settle()
        if self._show_reasoning:
            self._session.err.say()
        if answer.reasoning_seconds is not None and self._session.err.interactive:
            self._session.err.say(f"(reasoned for {human_duration(answer.reasoning_seconds)})", "dim")

    # --- its end --------------------------------------------------------------------------------------

    def end(self) -> None:
        """No more comes, for whatever reason: the line is closed."""
        self._session.err.settle()
        if self._last and not self._last.endswith("\n"):
            self._session.out.line()

    def result(self, exchange: Exchange, conversation: str = "") -> None:
        """What came, and how fast; `conversation` is the id under which it is kept."""
        answer, err = exchange.answer, self._session.err
        if self._session.as_json:
            for call in answer.tool_calls:
                self._session.out.json_line({"type": "tool_call", **shapes.tool_call(call)})
            self._session.out.json_line({"type": "answer", **chat_shapes.answered(exchange, conversation)})
            return
        self._end_reasoning(answer)
        for call in answer.tool_calls:
            err.say(f"tool call: {call.name}({call.arguments})")
        err.say(figures(exchange), "dim")
        for line in unsure(answer):
            err.say(line, "dim")
        if answer.finish_reason == "length":
            err.note("The answer was cut off at the token limit; raise it with --max-tokens, or /continue.")
        elif not answer.content and not answer.tool_calls:
            err.note("The model gave no answer" + (", only reasoning." if answer.reasoning else "."))


def figures(exchange: Exchange) -> str:
    """`ttft 0.41 s   41.8 tok/s   312 tokens   prompt 20`: what the server and the clock told."""
    answer, side = exchange.answer, exchange.engine_side
    prefill, speed, usage = answer.prefill_tokens_per_second, answer.decode_tokens_per_second, answer.usage
    used = None if usage is None else usage.prompt_tokens + usage.completion_tokens
    parts = [
        "stopped" if exchange.stopped else "",
        "" if answer.ttft is None else f"ttft {answer.ttft:.2f} s",
        "" if side is None or side.queued is None else f"queued {side.queued:.2f} s",
        "" if prefill is None else f"prefill {prefill:,.0f} tok/s",
        "" if speed is None else f"{speed:.1f} tok/s",
        "" if usage is None else f"{usage.completion_tokens} tokens",
        "" if usage is None or usage.reasoning_tokens is None else f"{usage.reasoning_tokens} of them reasoning",
        "" if usage is None else f"prompt {usage.prompt_tokens}",
        "" if usage is None or usage.cached_tokens is None else f"{usage.cached_tokens} of it cached",
        "" if side is None or side.acceptance is None else f"drafts {side.acceptance:.0%} accepted",
        "" if used is None or not exchange.limit else f"context {used / exchange.limit:.0%}",
    ]
    return "   ".join(filter(None, parts))


def unsure(answer: Answer) -> list[str]:
    """The tokens of which the model was least sure, with what else was likely; empty without log probabilities."""
    tokens = sorted(answer.chances, key=lambda each: each.logprob)[:UNSURE_TOKENS]
    lines = []
    for each in tokens:
        others = ", ".join(f"{_quoted(name)} {_percent(at)}" for name, at in each.likeliest if name != each.token)
        lines.append(f"  {_quoted(each.token)} {_percent(each.logprob)}{f'   else {others}' if others else ''}")
    return ["least sure of:", *lines] if lines else []


def _quoted(token: str) -> str:
    return repr(clean(token))


def _percent(logprob: float) -> str:
    return f"{math.exp(min(0.0, logprob)):.0%}"
