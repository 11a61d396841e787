"""How an answer is made: sampling, reasoning and form. Each setting has a name, a range and a way to be written.

Ranges are those of vLLM 0.32 (`SamplingParams._verify_args`, `ChatCompletionRequest`), which refuses the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct
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
