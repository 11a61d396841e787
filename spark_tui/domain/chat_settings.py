"""Everything that holds for the next question: system prompt, sampling, tools. Defaults come from the preset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any, Final

from spark_tui.domain.chat import ToolSpec
from spark_tui.domain.chat_parameters import (
    SERVER_DEFAULTS,
    ChatParameters,
    ParameterError,
    changed,
    known_parameters,
    parameters_from,
)
from spark_tui.domain.chat_tools import tools_from, tools_text
from spark_tui.domain.presets.preset import Preset

MOST_SYSTEM_CHARS: Final = 400_000
TOOL_CHOICES: Final = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What a conversation sends with each question. `tool_choice` is `auto`, `none`, `required` or a tool's name."""

    system: str = ""
    parameters: ChatParameters = SERVER_DEFAULTS
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = ""

    def with_setting(self, name: str, told: object) -> ChatSettings:
        """With one setting changed by its name: `system`, `tool_choice`, or a parameter.

        Raises ParameterError, which names the setting and what it may be.
        """
        if name == "system":
            return replace(self, system=_system(told))
        if name == "tool_choice":
            return replace(self, tool_choice=_choice(told, self.tools))
        return replace(self, parameters=changed(self.parameters, name, told))

    def over(self, defaults: ChatSettings) -> ChatSettings:
        """These, and what is not set here from `defaults`."""
        return ChatSettings(
            self.system or defaults.system,
            self.parameters.over(defaults.parameters),
            self.tools or defaults.tools,
            self.tool_choice or defaults.tool_choice,
        )


NO_SETTINGS: Final = ChatSettings()


def _system(told: object) -> str:
    text = "" if told is None else told
    if not isinstance(text, str) or len(text) > MOST_SYSTEM_CHARS:
        raise ParameterError("system", "The system prompt must be a text, and not endless.", "Shorten it.")
    return text


def _choice(told: object, tools: tuple[ToolSpec, ...]) -> str:
    names = tuple(tool.name for tool in tools)
    if told in (None, "", "default"):
        return ""
    if isinstance(told, str) and told in (*TOOL_CHOICES, *names):
        return told
    raise ParameterError(
        "tool_choice",
        f"tool_choice must be one of {', '.join((*TOOL_CHOICES, *names))}.",
        "Correct it, or say `default`.",
    )


# --- as JSON ------------------------------------------------------------------------------------------------


def settings_json(settings: ChatSettings) -> dict[str, Any]:
    """Only what is set, for a file."""
    told: dict[str, Any] = {}
    if settings.system:
        told["system"] = settings.system
    for name, value in settings.parameters.told().items():
        told[name] = list(value) if isinstance(value, tuple) else value
    if settings.tools:
        told["tools"] = tools_text(settings.tools)
    if settings.tool_choice:
        told["tool_choice"] = settings.tool_choice
    return told


def settings_from(told: Mapping[str, Any]) -> ChatSettings:
    """Settings of a file. Raises ParameterError, or UsageError for its tools."""
    rest = {name: value for name, value in told.items() if name not in ("system", "tools", "tool_choice")}
    tools = told.get("tools")
    found = ChatSettings(
        _system(told.get("system")),
        parameters_from(rest),
        tools_from(tools, "tools") if isinstance(tools, str) and tools else (),
    )
    return found.with_setting("tool_choice", told.get("tool_choice"))


# --- of a preset --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a preset's chats begin with, and what the model takes; `problems` are sentences for the person.

    `prompt_file` is the system prompt of the recipe, a path below the store's root, where it names one.
    """

    settings: ChatSettings = NO_SETTINGS
    modalities: tuple[str, ...] = ()
    prompt_file: str = ""
    problems: tuple[str, ...] = field(default=())


NO_DEFAULTS: Final = Defaults()


def defaults_of(preset: Preset) -> Defaults:
    """The sampling that the model's makers recommend, and where its system prompt is."""
    parameters, problems = known_parameters(preset.facts.sampling)
    prompt = next((each.target for each in preset.facts.required_files if each.for_chat), "")
    return Defaults(ChatSettings(parameters=parameters), preset.facts.modalities, prompt, problems)


def filled_prompt(text: str, *, name: str, today: date) -> str:
    """A recipe's system prompt with its blanks filled, as Mistral's card does: `{name}`, `{today}`, `{yesterday}`."""
    blanks = {"{name}": name, "{today}": today.isoformat(), "{yesterday}": (today - timedelta(days=1)).isoformat()}
    for blank, value in blanks.items():
        text = text.replace(blank, value)
    return text.strip("\n")
