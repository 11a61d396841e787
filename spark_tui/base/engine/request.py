"""A question as the chat API wants it, the files and tools that go with it, and a conversation's settings."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.message import (
    SERVER_DEFAULTS,
    Attachment,
    ChatParameters,
    ChatRequest,
    MediaKind,
    Message,
    ParameterError,
    ToolSpec,
    changed,
)
from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.base.quantities import MIB, human_bytes
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json

TOOL_CHOICES: Final = ("auto", "none", "required")
_NUMBERS: Final = (
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed",
    "presence_penalty", "frequency_penalty", "repetition_penalty",
)  # fmt: skip


def request_body(request: ChatRequest) -> dict[str, Any]:
    """The body for `/v1/chat/completions`: only what was set. Raises UsageError for what JSON cannot carry.

    Usage is requested on every chunk (vLLM, SGLang and TensorRT-LLM send it; others once, at the end): an answer that
    is stopped or breaks off still has its counts.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message) for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        **_parameters(request.parameters),
    }
    if request.go_on:  # vLLM and SGLang; llama.cpp continues a last message of the assistant by itself
        body |= {"add_generation_prompt": False, "continue_final_message": True}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if choice := request.tool_choice:
            named = {"type": "function", "function": {"name": choice}}
            body["tool_choice"] = choice if choice in TOOL_CHOICES else named
    return body


def request_bytes(request: ChatRequest) -> bytes:
    """The body as UTF-8. A model's escapes or a terminal can bring in half surrogate pairs: two halves become the
    character, a single one U+FFFD."""
    text = json.dumps(request_body(request), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if text.isascii():
        return text.encode()
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _parameters(parameters: ChatParameters) -> dict[str, Any]:
    """What was set, by the API's names."""
    body: dict[str, Any] = {}
    given = parameters.given()
    for name in _NUMBERS:
        value: Any = given.get(name)
        if value is not None and not math.isfinite(value):
            raise UsageError(f"{name} cannot be {value}.", "Give a number, or leave it out for the model's default.")
        if value is not None:
            body[name] = value
    if parameters.stop:
        body["stop"] = list(parameters.stop)
    template = {"enable_thinking": parameters.thinking, "preserve_thinking": parameters.preserve_thinking}
    if chosen := {name: value for name, value in template.items() if value is not None}:
        body["chat_template_kwargs"] = chosen
    if parameters.reasoning_effort:
        body["reasoning_effort"] = parameters.reasoning_effort
    if parameters.thinking_budget is not None:
        body["thinking_token_budget"] = parameters.thinking_budget
    if parameters.schema:
        schema = _read_json(parameters.schema, "The schema of the answer is not JSON.")
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return body


def _message(message: Message) -> dict[str, Any]:
    content: str | list[dict[str, Any]] = message.content
    if message.attachments:  # images and audio first, as most templates want them
        text = [{"type": "text", "text": message.content}] if message.content else []
        content = [*(_part(attachment) for attachment in message.attachments), *text]
    body: dict[str, Any] = {"role": message.role.value, "content": content}
    if message.reasoning:  # every server reads this name: vLLM's own `reasoning` is younger
        body["reasoning_content"] = message.reasoning
    return body


def _part(attachment: Attachment) -> dict[str, Any]:
    data = base64.b64encode(attachment.data).decode("ascii")
    if attachment.kind is MediaKind.AUDIO:
        form = attachment.media_type.partition("/")[2]
        return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
    return {"type": "image_url", "image_url": {"url": f"data:{attachment.media_type};base64,{data}"}}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    parameters = _read_json(tool.parameters, f"The parameters of tool {tool.name} are not JSON.")
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def _read_json(text: str, problem: str, remedy: str = "Write it as a JSON schema.") -> Any:
    try:
        return load_json(text)
    except ValueError as error:
        raise UsageError(problem, remedy, detail=str(error)) from None


# --- attachments --------------------------------------------------------------------------------------------

MOST_BYTES: Final = {MediaKind.IMAGE: 20 * MIB, MediaKind.AUDIO: 25 * MIB}
"""Of one file: what the hosted APIs allow. A larger image is scaled down by the model's processor anyway."""
MOST_OF_A_QUESTION: Final = 64 * MIB
MOST_FILES: Final = 16

_STARTS: Final = (
    (b"\x89PNG\r\n\x1a\n", MediaKind.IMAGE, "image/png"),
    (b"\xff\xd8\xff", MediaKind.IMAGE, "image/jpeg"),
    (b"GIF87a", MediaKind.IMAGE, "image/gif"),
    (b"GIF89a", MediaKind.IMAGE, "image/gif"),
    (b"fLaC", MediaKind.AUDIO, "audio/flac"),
    (b"OggS", MediaKind.AUDIO, "audio/ogg"),
    (b"ID3", MediaKind.AUDIO, "audio/mp3"),
    (b"\xff\xfb", MediaKind.AUDIO, "audio/mp3"),
    (b"\xff\xf3", MediaKind.AUDIO, "audio/mp3"),
    (b"\xff\xf2", MediaKind.AUDIO, "audio/mp3"),
)
_RIFF: Final = {b"WEBP": (MediaKind.IMAGE, "image/webp"), b"WAVE": (MediaKind.AUDIO, "audio/wav")}
READABLE: Final = "PNG, JPEG, GIF and WebP images, and WAV, MP3, FLAC and Ogg sounds"


def kind_of(data: bytes) -> tuple[MediaKind, str] | None:
    """Kind and media type by the first bytes; None for anything else."""
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    return next(((kind, name) for start, kind, name in _STARTS if data.startswith(start)), None)


def attachment_of(data: bytes, name: str) -> Attachment:
    """A file's bytes as an attachment. Raises UsageError for another kind of file, RefusedError for its size."""
    shown, found = truncate(clean_line(name), 80), kind_of(data)
    if not data:
        raise UsageError(f"{shown} is empty.", f"Choose another: {READABLE}.")
    if found is None:
        raise UsageError(f"{shown} is neither an image nor a sound that can be sent.", f"These can: {READABLE}.")
    kind, media_type = found
    if len(data) > MOST_BYTES[kind]:
        image = kind is MediaKind.IMAGE
        raise RefusedError(
            f"{shown} has {human_bytes(len(data))}; {human_bytes(MOST_BYTES[kind])} are the most for "
            f"{'an image' if image else 'a sound'}.",
            "Make it smaller: the model sees far fewer pixels than that." if image else "Shorten it.",
        )
    return Attachment(kind, media_type, shown, data)


def check_together(attachments: tuple[Attachment, ...]) -> None:
    """Raises RefusedError when they are too many, or too large together, for one question."""
    total = sum(len(each.data) for each in attachments)
    if len(attachments) > MOST_FILES:
        raise RefusedError(f"{len(attachments)} files are too many for one question.", f"Send at most {MOST_FILES}.")
    if total > MOST_OF_A_QUESTION:
        raise RefusedError(
            f"The files have {human_bytes(total)} together; {human_bytes(MOST_OF_A_QUESTION)} are the most.",
            "Send them with several questions, or make them smaller.",
        )


def check_taken(attachments: tuple[Attachment, ...], modalities: tuple[str, ...], model: str) -> None:
    """Raises RefusedError when the model is known not to take one of these. `modalities` are the preset's (`text`,
    `image`, `video`, `audio`); empty is unknown, and everything is tried."""
    for kind in dict.fromkeys(each.kind for each in attachments):
        if modalities and kind.value not in modalities:
            raise RefusedError(
                f"{model} does not take {'images' if kind is MediaKind.IMAGE else 'sounds'}: it takes "
                f"{', '.join(modalities)}.",
                "Ask without them, or choose another model. Nothing was sent.",
            )


# --- tools --------------------------------------------------------------------------------------------------

MOST_TOOLS: Final = 128
MOST_CHARS: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_REMEDY: Final = (
    'Write a JSON list of {"type": "function", "function": {"name": ..., "description": ..., "parameters": {...}}}.'
)


def tools_from(text: str, source: str = "") -> tuple[ToolSpec, ...]:
    """The tools in a JSON file: a list of them, `{"tools": [...]}` as in a request, or a single one.

    Both the API's `{"type": "function", "function": {...}}` and the bare `{"name": ..., "parameters": ...}` are read.
    Raises UsageError that names the tool and its fault; `source` is the file's name.
    """
    place = f"{source}: " if source else ""
    if len(text) > MOST_CHARS:
        raise UsageError(f"{place}the tools are far too long.", _REMEDY)
    given = _read_json(text, f"{place}this is not JSON.", _REMEDY)
    if isinstance(given, Mapping):
        given = given.get("tools", [given])
    if not isinstance(given, list) or not given:
        raise UsageError(f"{place}there are no tools in it.", _REMEDY)
    if len(given) > MOST_TOOLS:
        raise UsageError(f"{place}there are {len(given)} tools; {MOST_TOOLS} are the most.", "Keep the used ones.")
    tools = tuple(_tool_spec(entry, f"{place}tool {number}") for number, entry in enumerate(given, 1))
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(f"{place}two tools are called {twice}.", "Give each a name of its own.")
    return tools


def _tool_spec(given: object, place: str) -> ToolSpec:
    if not isinstance(given, Mapping):
        raise UsageError(f"{place} is not an object.", _REMEDY)
    function: Any = given.get("function", given)
    if not isinstance(function, Mapping):
        raise UsageError(f"{place}: `function` is not an object.", _REMEDY)
    name, description = function.get("name"), function.get("description", "")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        shown = truncate(clean_line(str(name)), 40)
        raise UsageError(f"{place}: {shown} is no name of a tool.", "Use letters, digits, `_` and `-`, at most 64.")
    if not isinstance(description, str):
        raise UsageError(f"{place} ({name}): `description` is not a text.", _REMEDY)
    parameters = function.get("parameters") or function.get("input_schema") or {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        raise UsageError(f"{place} ({name}): `parameters` is not a JSON schema.", _REMEDY)
    return ToolSpec(name, description, json.dumps(parameters, ensure_ascii=False))


# --- settings -----------------------------------------------------------------------------------------------

MOST_SYSTEM_CHARS: Final = 400_000


class ChatSettings(Struct, frozen=True):
    """What a conversation sends with each question. `tool_choice` is `auto`, `none`, `required` or a tool's name."""

    system: str = ""
    parameters: ChatParameters = SERVER_DEFAULTS
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = ""

    def with_setting(self, name: str, given: object) -> ChatSettings:
        """With `system`, `tool_choice` or a parameter changed. Raises ParameterError, which names the setting and its
        range."""
        if name == "system":
            text = "" if given is None else given
            if not isinstance(text, str) or len(text) > MOST_SYSTEM_CHARS:
                raise ParameterError("system", "The system prompt must be a text, and not endless.", "Shorten it.")
            return replace(self, system=text)
        if name == "tool_choice":
            choices = (*TOOL_CHOICES, *(tool.name for tool in self.tools))
            choice = "" if given in (None, "", "default") else given
            if not isinstance(choice, str) or (choice and choice not in choices):
                raise ParameterError(
                    name, f"tool_choice must be one of {', '.join(choices)}.", "Correct it, or set `default`."
                )
            return replace(self, tool_choice=choice)
        return replace(self, parameters=changed(self.parameters, name, given))

    def over(self, defaults: ChatSettings) -> ChatSettings:
        """These, and what is not set here from `defaults`."""
        return ChatSettings(
            self.system or defaults.system,
            self.parameters.over(defaults.parameters),
            self.tools or defaults.tools,
            self.tool_choice or defaults.tool_choice,
        )


NO_SETTINGS: Final = ChatSettings()


def settings_json(settings: ChatSettings) -> dict[str, Any]:
    """Only what is set, for a file; the tools as the JSON text that `tools_from` reads."""
    given: dict[str, Any] = {"system": settings.system} if settings.system else {}
    for name, value in settings.parameters.given().items():
        given[name] = list(value) if isinstance(value, tuple) else value
    if settings.tools:
        given["tools"] = json.dumps([_tool(tool) for tool in settings.tools], ensure_ascii=False)
    if settings.tool_choice:
        given["tool_choice"] = settings.tool_choice
    return given


def settings_from(given: Mapping[str, Any]) -> ChatSettings:
    """Settings of a file. Raises ParameterError, or UsageError for its tools."""
    rest = dict(given)
    rest.pop("logprobs", None)  # a setting of earlier versions
    tools, choice = rest.pop("tools", None), rest.pop("tool_choice", None)
    settings = ChatSettings(tools=tools_from(tools, "tools") if isinstance(tools, str) and tools else ())
    for name, value in rest.items():
        settings = settings.with_setting(str(name), value)
    return settings.with_setting("tool_choice", choice)


# --- of a preset --------------------------------------------------------------------------------------------


class Defaults(Struct, frozen=True):
    """The settings with which a preset's chats begin, and what the model takes; `problems` are sentences to show.

    `prompt_file` is the system prompt of the recipe, a path below the store's root, where it names one.
    """

    settings: ChatSettings = NO_SETTINGS
    modalities: tuple[str, ...] = ()
    prompt_file: str = ""
    problems: tuple[str, ...] = ()


NO_DEFAULTS: Final = Defaults()
