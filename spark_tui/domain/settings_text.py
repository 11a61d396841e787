"""Changing one value in the text of a settings file, with everything else left as the person wrote it.

The text is changed line by line; whether that did what was meant is proven by reading the whole of it again.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

_TABLE: Final = re.compile(r"\s*\[")
_MOST_LINES: Final = 200
"""A value of more lines is nobody's setting."""


class NotEditable(ValueError):
    """The text is written in a way that cannot be changed safely."""


def with_value(text: str, key: str, value: object) -> str:
    """`text` with `key` (`theme`, or `keymap.stop`) set to a value that `toml_value` can write; None takes it out.

    Comments, order and spacing stay. Raises NotEditable where the outcome would not be just that.
    """
    table, _, name = key.rpartition(".")
    wanted = _set(_read(text), table, name, value)
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    start, end = _part(lines, table)
    at = _entry(lines, start, end, name)
    if at is not None:
        first, after = at
        lines[first:after] = [] if value is None else [_line(name, value, _tail(lines[first:after]))]
    elif value is not None:
        if start > len(lines):
            lines += (["\n"] if lines else []) + [f"[{table}]\n"]
            end = len(lines)
        lines.insert(end, _line(name, value))
    changed = "".join(lines)
    if _read(changed) != wanted:
        raise NotEditable(key)
    return changed


def toml_value(value: object) -> str:
    """A bool, number, text, list of texts, or table of texts by plain words, as TOML."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {toml_value(each)}' for name, each in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(each) for each in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:g}" if value == int(value) else repr(value)
    return json.dumps(str(value), ensure_ascii=False)


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise NotEditable(str(error)) from None


def _set(read: dict[str, Any], table: str, name: str, value: object) -> dict[str, Any]:
    """What the changed text must read as."""
    inside = read.get(table, {}) if table else read
    if not isinstance(inside, dict):
        raise NotEditable(table)
    changed = {**inside, name: list(value) if isinstance(value, tuple) else value}
    if value is None:
        del changed[name]
    return (
        {**read, table: changed} if table and (value is not None or table in read) else changed if not table else read
    )


def _part(lines: list[str], table: str) -> tuple[int, int]:
    """First line of a table's entries and the line after its last one; of what stands before all tables where `table`
    is empty. The start lies beyond the text where there is no such table."""
    start = 0
    if table:
        heading = re.compile(rf"\s*\[\s*[\"']?{re.escape(table)}[\"']?\s*\]")
        start = next((at + 1 for at, line in enumerate(lines) if heading.match(line)), len(lines) + 1)
    end = next((at for at in range(start, len(lines)) if _TABLE.match(lines[at])), max(start, len(lines)))
    while start < end <= len(lines) and _attached(lines, end - 1, last=end == len(lines)):
        end -= 1
    return start, end


def _attached(lines: list[str], at: int, *, last: bool) -> bool:
    """Blank lines at the end, and comments that belong to the heading below."""
    word = lines[at].strip()
    return not word or (word.startswith("#") and not last)


def _entry(lines: list[str], start: int, end: int, name: str) -> tuple[int, int] | None:
    """The lines of an entry: as many as make a whole one."""
    begins = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=")
    for first in range(start, min(end, len(lines))):
        if not begins.match(lines[first]):
            continue
        for after in range(first + 1, min(len(lines), first + _MOST_LINES) + 1):
            if _reads("".join(lines[first:after])):
                return first, after
        raise NotEditable(name)
    return None


def _tail(entry: list[str]) -> str:
    """The comment behind a value, with the space before it."""
    last = entry[-1].rstrip("\r\n")
    for at in (match.start() for match in re.finditer(r"\s*#", last)):
        if _reads("".join([*entry[:-1], last[:at]])):
            return last[at:]
    return ""


def _reads(text: str) -> bool:
    try:
        tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return False
    return True


def _line(name: str, value: object, tail: str = "") -> str:
    return f"{name} = {toml_value(value)}{tail}\n"
