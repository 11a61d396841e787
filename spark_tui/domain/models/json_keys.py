"""JSON that strangers wrote, read without trust: bounded, by type, and what has the wrong shape becomes a finding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from spark_tui.domain.text import clean_line, truncate

MOST_BYTES: Final = 64 * 1024 * 1024
"""The index of a model of a trillion parameters has some 20 MB."""
_LARGEST: Final = 10**15
_MOST_FINDINGS: Final = 20


class BadJson(ValueError):
    """Bytes that are no JSON object; the message says why, in words for the screen."""


def read_object(data: bytes, *, unique: bool = False) -> dict[str, Any]:
    """Bytes -> a JSON object. With `unique`, a key that comes twice is an error. Raises BadJson and nothing else."""
    if len(data) > MOST_BYTES:
        raise BadJson(f"larger than {MOST_BYTES >> 20} MiB")
    try:
        found = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique if unique else None,
            parse_constant=_no_constant,
        )
    except UnicodeDecodeError:
        raise BadJson("not UTF-8 text") from None
    except BadJson:
        raise
    except RecursionError:
        raise BadJson("nested too deeply") from None
    except ValueError as error:
        raise BadJson(f"not JSON: {truncate(clean_line(str(error)), 80)}") from None
    if not isinstance(found, dict):
        raise BadJson("not a JSON object")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise BadJson(f"the key {truncate(clean_line(twice), 60)!r} comes twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise BadJson(f"{name} is no JSON number")


class Keys:
    """A JSON object asked by key and type. A value of another type counts as absent, and is told in `findings`."""

    def __init__(self, found: Mapping[str, Any], findings: list[str], path: str = "") -> None:
        self._found = found
        self.findings = findings
        self._path = path

    def __contains__(self, name: str) -> bool:
        return self._found.get(name) is not None

    def integer(self, *names: str) -> int | None:
        """The first of these keys that holds a whole number from 0 on; `4096.0` is one."""
        for name in names:
            value = self._found.get(name)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST:
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
                return value
            self._wrong(name, "a whole number")
        return None

    def positive(self, *names: str) -> int | None:
        """Like `integer`; zero counts as absent."""
        return self.integer(*names) or None

    def number(self, name: str) -> float | None:
        """A finite number."""
        value = self._found.get(name)
        if value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST:
            return float(value)
        self._wrong(name, "a number")
        return None

    def text(self, name: str) -> str:
        """A text, cleaned and cut; empty when there is none."""
        value = self._found.get(name)
        if isinstance(value, str):
            return truncate(clean_line(value), 200)
        if value is not None:
            self._wrong(name, "a text")
        return ""

    def flag(self, name: str) -> bool | None:
        """True, false, or None."""
        value = self._found.get(name)
        if value is None or isinstance(value, bool):
            return value
        self._wrong(name, "true or false")
        return None

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of texts; None when there is none."""
        value = self._found.get(name)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(truncate(clean_line(item), 200) for item in value)
        self._wrong(name, "a list of texts")
        return None

    def inner(self, name: str) -> Keys | None:
        """An object within; None when there is none."""
        value = self._found.get(name)
        if isinstance(value, dict):
            return Keys(value, self.findings, f"{self._path}{name}.")
        if value is not None:
            self._wrong(name, "an object")
        return None

    def inners(self, name: str) -> tuple[Keys, ...]:
        """The objects within an object: `{"group_0": {...}, ...}`."""
        value = self._found.get(name)
        if not isinstance(value, dict):
            if value is not None:
                self._wrong(name, "an object")
            return ()
        items = list(value.items())
        return tuple(
            Keys(item, self.findings, f"{self._path}{name}.{key}.") for key, item in items if isinstance(item, dict)
        )

    def _wrong(self, name: str, expected: str) -> None:
        words = f"{truncate(clean_line(self._path + name), 80)} is not {expected}"
        if words not in self.findings and len(self.findings) < _MOST_FINDINGS:
            self.findings.append(words)
