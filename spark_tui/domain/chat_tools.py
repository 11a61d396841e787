"""Tools that a model may ask for, as people keep them in files. Nothing here runs one: a person types the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from spark_tui.domain.chat import ToolSpec
from spark_tui.domain.errors import UsageError
from spark_tui.domain.text import clean_line, truncate

MOST_TOOLS: Final = 128
MOST_CHARS: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_REMEDY: Final = (
    'Write a JSON list of {"type": "function", "function": {"name": ..., "description": ..., "parameters": {...}}}.'
)


def tools_from(text: str, source: str = "") -> tuple[ToolSpec, ...]:
    """The tools in a JSON file: a list of them, `{"tools": [...]}` as in a request, or a single one.

    Both the API's `{"type": "function", "function": {...}}` and the bare `{"name": ..., "parameters": ...}` are read.
    Raises UsageError that names the tool and what is wrong with it; `source` is the file's name.
    """
    place = f"{source}: " if source else ""
    if len(text) > MOST_CHARS:
        raise UsageError(f"{place}the tools are far too long.", _REMEDY)
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}this is not JSON.", _REMEDY, detail=str(error)) from None
    if isinstance(told, Mapping):
        told = told.get("tools", [told])
    if not isinstance(told, list) or not told:
        raise UsageError(f"{place}there are no tools in it.", _REMEDY)
    if len(told) > MOST_TOOLS:
        raise UsageError(f"{place}there are {len(told)} tools; {MOST_TOOLS} are the most.", "Keep those that are used.")
    tools = tuple(_tool(entry, f"{place}tool {number}") for number, entry in enumerate(told, 1))
    names = [tool.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise UsageError(f"{place}two tools are called {twice}.", "Give each a name of its own.")
    return tools


def _tool(told: object, place: str) -> ToolSpec:
    if not isinstance(told, Mapping):
        raise UsageError(f"{place} is not an object.", _REMEDY)
    function: Any = told.get("function", told)
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


def tools_text(tools: tuple[ToolSpec, ...]) -> str:
    """The tools as the JSON that `tools_from` reads."""
    return json.dumps(
        [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": json.loads(t.parameters)},
            }
            for t in tools
        ],
        ensure_ascii=False,
    )
