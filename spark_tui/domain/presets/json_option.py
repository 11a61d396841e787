"""Options whose value is JSON, as vLLM takes them: whole, or in dotted parts (`--name.key value`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from spark_tui.domain.presets import vllm_command as vllm

MAX_JSON_CHARS: Final = 65_536
_MAX_DEPTH: Final = 8


def json_parts(words: tuple[str, ...], name: str) -> Mapping[str, Any]:
    """A JSON option of a command as a mapping, its dotted parts included. Empty for what is no object."""
    found = dict(json_object(vllm.option(words, name) or ""))
    for at, word in enumerate(words):
        head, equals, value = word.partition("=")
        option, dot, path = head.partition(".")
        if dot and vllm.is_spelling(option, name):
            text = value if equals else words[at + 1] if at + 1 < len(words) else ""
            _put(found, path.split(".")[:_MAX_DEPTH], text)
    return found


def _put(into: dict[str, Any], path: list[str], text: str) -> None:
    *folders, last = path
    for folder in folders:
        inner = into.get(folder)
        into[folder] = dict(inner) if isinstance(inner, dict) else {}
        into = into[folder]
    into[last] = text


def json_object(text: str) -> Mapping[str, Any]:
    """A JSON object, empty for anything else."""
    if len(text) > MAX_JSON_CHARS:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def mappings_in(tree: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """A mapping and those within it, bounded in depth."""
    yield tree
    for value in tree.values():
        if isinstance(value, dict) and depth < _MAX_DEPTH:
            yield from mappings_in(value, depth + 1)


def compact(config: Mapping[str, Any]) -> str:
    """A mapping as the JSON that recipes write."""
    return json.dumps(config, separators=(",", ":"))
