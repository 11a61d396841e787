"""The messages of a chat with an engine, and the parameters of an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.errors import UsageError
from spark_tui.base.settings import read_flag, suggestion
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json

Value: TypeAlias = "float | int | bool | str | tuple[str, ...] | None"

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""vLLM 0.32; up to 0.19 only low, medium and high."""
MOST_STOPS: Final = 16
MOST_STOP_CHARS: Final = 200
MOST_SCHEMA_CHARS: Final = 200_000


class ParameterError(UsageError, id="chat_parameter_invalid"):
    """A setting of the chat that cannot be used; `field` is its name."""

    def __init__(self, field: str, summary: str, remedy: str) -> None:
        super().__init__(summary, remedy)
        self.field = field


class ChatParameters(Struct, frozen=True):
    """Sampling and template settings; None, an empty text and an empty tuple leave the server's default.

    `thinking` and `preserve_thinking` go to the chat template (`enable_thinking`, `preserve_thinking`);
    `thinking_budget` limits the tokens of reasoning (vLLM from 0.19, `thinking_token_budget`); `schema` is a JSON
    schema, as JSON text, that the answer must follow.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    thinking: bool | None = None
    reasoning_effort: str = ""
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    stop: tuple[str, ...] = ()
    preserve_thinking: bool | None = None
    thinking_budget: int | None = None
    schema: str = ""

    def given(self) -> dict[str, Value]:
        """The settings that are set, by name."""
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in values if value is not None and value not in ("", ())}

    def over(self, defaults: ChatParameters) -> ChatParameters:
        """These, and where nothing is set those of `defaults`."""
        return replace(defaults, **self.given())


SERVER_DEFAULTS: Final = ChatParameters()


class Setting(NamedTuple):
    """`read` turns what was typed, or a JSON value, into the value; ValueError where it is outside of `range`."""

    name: str
    label: str
    help: str
    range: str
    read: Callable[[object], Value]


def _number(low: float, high: float, *, open_low: bool = False) -> Callable[[object], Value]:
    def read(given: object) -> Value:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise ValueError
        value = float(str(given))
        if not (low <= value <= high) or (open_low and value == low):
            raise ValueError
        return value

    return read


def _whole(low: int, high: int) -> Callable[[object], Value]:
    def read(given: object) -> Value:
        if isinstance(given, str) and re.fullmatch(r"[+-]?[\d,_]{1,25}", given.strip()):
            given = int(given.strip().replace(",", "").replace("_", ""))
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool) or not low <= given <= high:
            raise ValueError
        return given

    return read


def _effort(given: object) -> Value:
    word = given.strip().lower() if isinstance(given, str) else ""
    if word not in EFFORTS:
        raise ValueError
    return word


def _stops(given: object) -> Value:
    """One text, or a JSON list of texts; `\\n` in one is a line end."""
    if isinstance(given, str):
        parsed = load_json(given) if given.strip().startswith(("[", '"')) else given
        given = [parsed] if isinstance(parsed, str) else parsed
    if not isinstance(given, list | tuple) or len(given) > MOST_STOPS:
        raise ValueError
    texts = tuple(text.replace("\\n", "\n") for text in given if isinstance(text, str) and text)
    if len(texts) != len(given) or any(len(text) > MOST_STOP_CHARS for text in texts):
        raise ValueError
    return texts


def _schema(given: object) -> Value:
    """A JSON schema as text or as an object; kept as text."""
    value = load_json(given) if isinstance(given, str) else given
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, Mapping) else ""
    if not 0 < len(text) <= MOST_SCHEMA_CHARS:
        raise ValueError
    return text


SETTINGS: Final = (
    Setting("temperature", "temperature", "higher is more varied, 0 always takes the likeliest token",
            "a number from 0 to 2", _number(0, 2)),
    Setting("top_p", "top p", "only the likeliest tokens that together have this probability",
            "a number above 0, at most 1", _number(0, 1, open_low=True)),
    Setting("top_k", "top k", "limit to this many of the likeliest tokens; 0 means all", "a whole number, 0 or more",
            _whole(0, 10_000_000)),
    Setting("min_p", "min p", "only tokens with this share of the likeliest one's probability",
            "a number from 0 to 1", _number(0, 1)),
    Setting("max_tokens", "max tokens", "the longest answer, reasoning included", "a whole number, 1 or more",
            _whole(1, 100_000_000)),
    Setting("thinking", "thinking", "whether a reasoning model reasons (enable_thinking of its template)",
            "on or off", read_flag),
    Setting("reasoning_effort", "effort", "how long it reasons (gpt-oss, Mistral and others)",
            f"one of {', '.join(EFFORTS)}", _effort),
    Setting("thinking_budget", "budget", "the most tokens of reasoning (vLLM from 0.19)", "a whole number, 0 or more",
            _whole(0, 100_000_000)),
    Setting("preserve_thinking", "keep reasoning", "send the reasoning of earlier answers too", "on or off", read_flag),
    Setting("presence_penalty", "presence", "above 0 encourages new topics", "a number from -2 to 2", _number(-2, 2)),
    Setting("frequency_penalty", "frequency", "above 0 repeats words less", "a number from -2 to 2", _number(-2, 2)),
    Setting("repetition_penalty", "repetition", "above 1 repeats less, of the prompt too",
            "a number above 0, at most 10", _number(0, 10, open_low=True)),
    Setting("seed", "seed", "the same seed, the same answer, as far as the engine can", "a whole number",
            _whole(-(2**63), 2**63 - 1)),
    Setting("stop", "stop", "the answer ends before this text; a JSON list for several",
            f"a text of up to {MOST_STOP_CHARS} characters, or a JSON list of up to {MOST_STOPS}", _stops),
    Setting("schema", "schema", "the answer is JSON of this schema", "a JSON schema, as a JSON object", _schema),
)  # fmt: skip
NAMES: Final = tuple(setting.name for setting in SETTINGS)
_ALIASES: Final = {
    "effort": "reasoning_effort",
    "think": "thinking",
    "enable_thinking": "thinking",
    "budget": "thinking_budget",
    "reasoning_budget": "thinking_budget",
    "thinking_token_budget": "thinking_budget",
    "max_completion_tokens": "max_tokens",
    "json_schema": "schema",
    "response_schema": "schema",
}


def changed(parameters: ChatParameters, name: str, given: object) -> ChatParameters:
    """With the setting of that name or alias read from text or from a JSON value; None, an empty text, `default` and
    `auto` leave it to the server.

    Raises ParameterError, which names the setting and its range.
    """
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    plain = _ALIASES.get(plain, plain)
    found = next((each for each in SETTINGS if each.name == plain), None)
    if found is None:
        near = suggestion(plain, (*NAMES, *_ALIASES))
        remedy = f"Did you mean {near}?" if near else f"The settings are: {', '.join(NAMES)}."
        raise ParameterError(name, f"There is no chat setting {_short(name)}.", remedy)
    unset = given is None or (isinstance(given, str) and given.strip().lower() in ("", "default", "auto"))
    try:
        value: Any = getattr(SERVER_DEFAULTS, plain) if unset else found.read(given)
    except ValueError:
        raise ParameterError(
            plain,
            f"{plain} must be {found.range}; it is {_short(str(given))}.",
            "Correct it, or use `default` for the server default.",
        ) from None
    return replace(parameters, **{plain: value})


def known_parameters(pairs: Iterable[tuple[str, object]]) -> tuple[ChatParameters, tuple[str, ...]]:
    """The pairs that can be used, and a sentence for each that cannot: recipes hold what they like."""
    parameters, problems = SERVER_DEFAULTS, []
    for name, value in pairs:
        try:
            parameters = changed(parameters, name, value)
        except ParameterError as error:
            problems.append(error.summary)
    return parameters, tuple(problems)


def written(value: Value) -> str:
    """A setting's value as it is typed: `on`, `0.6`, `["a", "b"]`; empty when it is not set."""
    match value:
        case None | "" | ():
            return ""
        case bool():
            return "on" if value else "off"
        case tuple():
            return json.dumps(list(value), ensure_ascii=False)
        case float():
            return text if float(text := f"{value:g}") == value else repr(value)
        case _:
            return str(value)


def _short(text: str) -> str:
    return truncate(clean_line(text), 60) or "empty"


# --- message ---------------------------------------------------------------------------------------------


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class MediaKind(StrEnum):
    IMAGE = "image"
    AUDIO = "audio"


class ToolCall(Struct, frozen=True):
    """A call that the model asks for. `arguments` is JSON text as it came, possibly incomplete."""

    id: str = ""
    name: str = ""
    arguments: str = ""


class Attachment(Struct, frozen=True):
    """An image or audio sent with a question. `media_type` is read from its bytes: `image/png`, `audio/wav`."""

    kind: MediaKind
    media_type: str
    name: str
    data: bytes

    def __repr__(self) -> str:
        return f"Attachment({self.name!r})"


class Message(Struct, frozen=True):
    """One message of a request. `reasoning` is sent where it is not empty."""

    role: Role
    content: str
    reasoning: str = ""
    attachments: tuple[Attachment, ...] = ()


class ToolSpec(Struct, frozen=True):
    """A function that the model may ask for. `parameters` is a JSON schema, as JSON text."""

    name: str
    description: str = ""
    parameters: str = '{"type": "object", "properties": {}}'


class ChatRequest(Struct, frozen=True):
    """`model` is a served name; `tool_choice` is `auto`, `none`, `required`, or a tool's name. With `go_on` the answer
    continues the last message, which is the assistant's."""

    model: str
    messages: tuple[Message, ...]
    parameters: ChatParameters = SERVER_DEFAULTS
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = ""
    go_on: bool = False


# --- stream events ------------------------------------------------------------------------------------


class ContentDelta(Struct, frozen=True):
    text: str


class ReasoningDelta(Struct, frozen=True):
    """`reasoning`, or `reasoning_content` of older and other servers."""

    text: str


class ToolCallDelta(Struct, frozen=True):
    """A piece of tool call number `index`, counted from 0 in the order in which they began; arguments grow."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class AnswerFinished(Struct, frozen=True):
    """`stop`, `length`, `tool_calls`, `abort` ..."""

    reason: str


class Usage(Struct, frozen=True):
    """Token counts as the server reports them, so far or at the end; None where it does not."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


ChatEvent: TypeAlias = ContentDelta | ReasoningDelta | ToolCallDelta | AnswerFinished | Usage


PREFILL_TOKENS = 256
"""A prompt of fewer tokens says nothing about how fast prompts are read."""

# --- the answer ---------------------------------------------------------------------------------------


class Answer(Struct, frozen=True):
    """An answer so far. Times are seconds on one monotonic clock. The text is raw: clean it before it is shown."""

    started_at: float
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    usage: Usage | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    answer_at: float | None = None
    """Time of the first token that is not reasoning."""
    first_tokens: int | None = None
    """Tokens made by `first_token_at`: parsers hold `<think>` and tool call marks back. None when the server counts
    only at the end."""
    carried: int = 0
    """Characters at the start of the content that came with an earlier request, which this one continues."""

    @property
    def ttft(self) -> float | None:
        """Seconds from sending the request to the first token; None before it came."""
        return None if self.first_token_at is None else self.first_token_at - self.started_at

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Tokens after the first, over the time after the first; None until both are known from the server's usage.

        That is 1 / TPOT as `vllm bench serve` defines it: (output tokens - 1) / (latency - TTFT).
        """
        if self.usage is None or self.first_token_at is None or self.last_token_at is None:
            return None
        seconds = self.last_token_at - self.first_token_at
        tokens = self.usage.completion_tokens - (1 if self.first_tokens is None else self.first_tokens)
        return tokens / seconds if tokens > 0 and seconds > 0 else None

    @property
    def prefill_tokens_per_second(self) -> float | None:
        """Prompt tokens that were not cached, over the time to the first token; None until both are known, and for
        fewer than PREFILL_TOKENS, whose time is all latency.

        A lower bound: the time includes the network, the queue and the first decoded token. Where the server does not
        report its prefix cache, all of the prompt counts.
        """
        if self.usage is None or self.ttft is None or self.ttft <= 0:
            return None
        read = self.usage.prompt_tokens - (self.usage.cached_tokens or 0)
        return read / self.ttft if read >= PREFILL_TOKENS else None

    @property
    def reasoning_seconds(self) -> float | None:
        """Seconds from the first token to the answer proper, or to the last token so far; None without reasoning."""
        until = self.last_token_at if self.answer_at is None else self.answer_at
        if not self.reasoning or self.first_token_at is None or until is None:
            return None
        return max(0.0, until - self.first_token_at)


class _GrowingCall(Struct):
    """Some servers repeat id and name with every piece, and some make up a new id each time: the first ones stay."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class AnswerBuilder:
    """Collects the pieces of one answer; joins them when a snapshot is taken.

    Growing strings in a frozen value copies all of them with each token: 7.2 s for 100,000 tokens, here 0.1 s.
    """

    def __init__(self, started_at: float, *, content: str = "", reasoning: str = "") -> None:
        """`content` and `reasoning` came with an earlier request, which this one continues."""
        self._started_at = started_at
        self._carried = len(content)
        self._content = [content]
        self._reasoning = [reasoning]
        self._calls: list[_GrowingCall] = []
        self._finish_reason = ""
        self._usage: Usage | None = None
        self._first_token_at: float | None = None
        self._last_token_at: float | None = None
        self._answer_at: float | None = None
        self._first_tokens: int | None = None
        self._snapshot: Answer | None = None
        self.size = len(content) + len(reasoning)
        """Characters collected, of text, reasoning and tool calls together."""

    def add(self, event: ChatEvent, at: float) -> None:
        """One more event, which arrived at `at`."""
        self._snapshot = None
        match event:
            case ContentDelta(text):
                self._token(text, at, answering=True)
                self._content.append(text)
                self.size += len(text)
            case ReasoningDelta(text):
                self._token(text, at, answering=False)
                self._reasoning.append(text)
                self.size += len(text)
            case ToolCallDelta(index, id_, name, arguments):
                self._token(name or arguments, at, answering=True)
                index = max(0, min(index, len(self._calls)))
                if index == len(self._calls):
                    self._calls.append(_GrowingCall())
                call = self._calls[index]
                call.id, call.name = call.id or id_, call.name or name
                call.arguments.append(arguments)
                self.size += len(id_) + len(name) + len(arguments)
            case AnswerFinished(reason):
                self._finish_reason = reason
                if self._first_token_at is not None:
                    self._last_token_at = at  # the end-of-text token has no text, and is counted
            case Usage():
                self._usage = event
                first, last = self._first_token_at, self._last_token_at
                if self._first_tokens is None and first is not None and first == last and not self._finish_reason:
                    self._first_tokens = event.completion_tokens

    def _token(self, text: str, at: float, *, answering: bool) -> None:
        if not text:  # the opening delta has a role and an empty content: no token yet
            return
        if self._first_token_at is None:
            self._first_token_at = at
        self._last_token_at = at
        if answering and self._answer_at is None:
            self._answer_at = at

    def snapshot(self) -> Answer:
        """The answer so far; the same object until the next event."""
        if self._snapshot is None:
            self._snapshot = Answer(
                self._started_at,
                _joined(self._content),
                _joined(self._reasoning),
                tuple(ToolCall(call.id, call.name, _joined(call.arguments)) for call in self._calls),
                self._finish_reason,
                self._usage,
                self._first_token_at,
                self._last_token_at,
                self._answer_at,
                self._first_tokens,
                self._carried,
            )
        return self._snapshot


def _joined(parts: list[str]) -> str:
    """The parts as one string, which replaces them: the next snapshot joins only what is new."""
    parts[:] = ["".join(parts)]
    return parts[0]
