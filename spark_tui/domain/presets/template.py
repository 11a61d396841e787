"""Templates of sparkrun recipes (version 2), by that tool's rules.

`{key}` is a placeholder only when nothing but its name stands between the braces; every other brace is text, so
that JSON needs no escapes. Values may hold placeholders themselves, though not within JSON: they are resolved in
passes, a bounded number of times. A key without a value stays as it is written. `{{` anywhere in the template says
that it uses the older doubled spelling: then `{{` and `}}` mean single braces. `str.format` does none of this and
fails on JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from spark_tui.domain.presets.preset import Scalar

MAX_DEPTH = 10
"""Nesting of values in one another; sparkrun 0.4.2 makes as many passes. Two or three is normal."""
MAX_CHARS = 262_144
MAX_VALUES = 10_000
"""Values that multiply each other are cut off there; Linux allows 128 KiB a word."""

_SPAN = re.compile(r"\{([^{}]*)\}")
# Within a value a span ends at the first closing brace, wherever it begins: a name within JSON stays text there.
_SPAN_IN_VALUE = re.compile(r"\{.*?\}")
_PLAIN = re.compile(r"[^{}]+")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_ENV_TOKEN = re.compile(r"(?<![{$])\{(config|launch)\.([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered template. `missing` are placeholders without a value, in order; `settled` is False when values refer
    to each other in a circle, or multiply beyond `MAX_CHARS`."""

    text: str
    missing: tuple[str, ...] = ()
    settled: bool = True


def render(template: str, values: Mapping[str, Scalar]) -> Rendered:
    """Fills in `values`, literally: nothing is quoted. A value of None counts as absent."""
    filling = _Filling(values)
    text = "".join(filling.key(part[1:-1]) if placeholder else part for part, placeholder in parts(template))
    return Rendered(text, tuple(dict.fromkeys(filling.missing)), filling.settled)


def render_env(value: str, values: Mapping[str, Scalar], launch: Mapping[str, Scalar]) -> Rendered:
    """An environment value: literal, except `{config.NAME}` (a template value) and `{launch.NAME}`."""
    missing: list[str] = []

    def fill(match: re.Match[str]) -> str:
        found = (values if match[1] == "config" else launch).get(match[2])
        if found is None:
            missing.append(f"{match[1]}.{match[2]}")
        return match[0] if found is None else str(found)

    return Rendered(_ENV_TOKEN.sub(fill, value), tuple(dict.fromkeys(missing)))


def collapse_doubled(value: str) -> str:
    """A value (not a template) in the older doubled spelling, with single braces; other values stay as they are."""
    return value.replace("{{", "{").replace("}}", "}") if "{{" in value else value


def placeholders(template: str) -> tuple[str, ...]:
    """The keys that a template names, each once, in order. Keys inside its values are not followed."""
    keys = (part[1:-1] for part, placeholder in parts(template) if placeholder)
    return tuple(dict.fromkeys(key for key in keys if _KEY.fullmatch(key)))


def placeholders_in_value(value: str) -> tuple[str, ...]:
    """The keys that a value names, each once, in order; names within JSON are none."""
    keys = (span.strip("{}") for span in _SPAN_IN_VALUE.findall(value))
    return tuple(dict.fromkeys(key for key in keys if _KEY.fullmatch(key)))


@dataclass(slots=True)
class _Filling:
    """One rendering: what is missing so far, and what is left of its bounds."""

    values: Mapping[str, Scalar]
    missing: list[str] = field(default_factory=list)
    settled: bool = True
    chars_left: int = MAX_CHARS
    values_left: int = MAX_VALUES

    def key(self, key: str, depth: int = 0) -> str:
        """What stands for `{key}`."""
        span = "{" + key + "}"
        value = self.values.get(key)
        if value is None:
            self.missing += [key] if _KEY.fullmatch(key) else []
            return span
        text = str(value)
        if text == span:
            return span
        self.chars_left -= len(text)
        self.values_left -= 1
        if depth >= MAX_DEPTH or self.chars_left < 0 or self.values_left < 0:
            self.settled = False
            return span
        return _SPAN_IN_VALUE.sub(lambda match: self._within_value(match[0], depth + 1), text)

    def _within_value(self, span: str, depth: int) -> str:
        key = span.strip("{}")
        return span if self.values.get(key) is None and _KEY.fullmatch(key) is None else self.key(key, depth)


def parts(template: str) -> Iterator[tuple[str, bool]]:
    """What a template is made of, in order: text, and `{...}` spans without inner braces (True).

    Doubled braces come as the text that they mean.
    """
    doubled = "{{" in template
    at = 0
    while at < len(template):
        pair = template[at : at + 2]
        span = _SPAN.match(template, at)
        if pair in ("{{", "}}"):
            yield (pair[0] if doubled else pair), False
            at += 2
        elif span is not None:
            yield span[0], True
            at = span.end()
        else:
            plain = _PLAIN.match(template, at)
            text = plain[0] if plain else template[at]
            yield text, False
            at += len(text)
