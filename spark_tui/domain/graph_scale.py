"""The value axis of a graph: bounds and ticks at round numbers, and how a number is written in few cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LABEL_CELLS: Final = 6
"""The widest tick label."""

LARGEST: Final = 1e300
"""Beyond it a scale no longer reaches."""

KEEP_SHARE: Final = 0.4
"""A scale shrinks only when less than this share of it is used: what moves up and down does not make it jump."""

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_COUNTED: Final = frozenset(("", "req"))
"""Units of whole things: an axis of them has no halves."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From `low` to `high`, a tick every `step`."""

    low: float
    high: float
    step: float

    def share(self, value: float) -> float:
        """Where `value` lies: 0 at the foot, 1 at the top, never outside. Not a number lies at the foot."""
        if math.isnan(value):
            return 0.0
        span = self.high - self.low
        return min(1.0, max(0.0, (value - self.low) / span))

    def ticks(self) -> tuple[float, ...]:
        """Round values from foot to top."""
        count = min(50, round((self.high - self.low) / self.step))
        return tuple(_tidy(self.low + number * self.step, self.step) for number in range(count + 1))


def nice_scale(
    low: float, high: float, *, domain: tuple[float, float | None] = (0.0, None), unit: str = "", ticks: int = 4
) -> Scale:
    """The round scale that holds `low` and `high` and its domain: fixed where the domain has both ends.

    `ticks` is the greatest number of steps. A value below the domain's foot widens the scale; one above its top is
    drawn at the top.
    """
    foot, top = domain
    low, high = _finite(low), _finite(high)
    if top is not None:
        return Scale(foot, top, _step(top - foot, ticks, unit))
    bottom = min(foot, low)
    top = max(high, bottom + _least_span(unit, bottom))
    step = _step(top - bottom, ticks, unit)
    bottom = math.floor(bottom / step) * step if bottom < foot else foot
    count = max(1, math.ceil((top - bottom) / step - 1e-9))
    return Scale(bottom, bottom + count * step, step)


def next_scale(previous: Scale | None, wanted: Scale) -> Scale:
    """`wanted`, or `previous` while that still holds it and is used enough: the picture keeps still."""
    if previous is None or wanted.low < previous.low or wanted.high > previous.high or wanted.low > previous.low:
        return wanted
    used = (wanted.high - wanted.low) / (previous.high - previous.low)
    return previous if used >= KEEP_SHARE else wanted


def _step(span: float, ticks: int, unit: str) -> float:
    """The least round step that crosses `span` in at most `ticks`."""
    rough = span / max(1, ticks)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((size * power for size in _STEPS if size * power >= rough * (1 - 1e-9)), 10.0 * power)
    return max(1.0, float(math.ceil(step))) if unit in _COUNTED else step


def _least_span(unit: str, low: float) -> float:
    """A flat line at zero gets a scale too; near a large number the span grows with it, for rounding's sake."""
    span = {"s": 0.001, "req": 4.0, "": 4.0, "tok/s": 1.0, "C": 100.0, "W": 10.0, "GiB": 1.0}.get(unit, 1.0)
    return max(span, abs(low) * 1e-6)


def _finite(value: float) -> float:
    return 0.0 if math.isnan(value) else min(LARGEST, max(-LARGEST, value))


def _tidy(value: float, step: float) -> float:
    """Without the dust of binary fractions: 0.30000000000000004 -> 0.3."""
    if step <= 0 or abs(value) < step * 1e-9:
        return 0.0
    return float(f"{value:.12g}")


# --- words ------------------------------------------------------------------------------------------------


def value_text(value: float, unit: str, decimals: int = 1) -> str:
    """A value with its unit: `41.8 tok/s`, `420 ms`, `3 %`; a count of requests is a number alone."""
    if not math.isfinite(value):
        return "n/a"
    if unit == "s":
        return seconds_text(value)
    number = _number(value, decimals)
    return number if unit in _COUNTED else f"{number} {unit}"


def seconds_text(value: float) -> str:
    """Three telling figures: `0.8 ms`, `42 ms`, `420 ms`, `1.84 s`, `74 s`."""
    size = abs(value)
    if size >= 100_000:
        return f"{value:.3g} s"
    if size >= 100:
        return f"{value:.0f} s"
    if size >= 1:
        return f"{value:.3g} s"
    if size >= 0.1 or value == 0:
        return f"{value * 1000:.0f} ms"
    return f"{value * 1000:.3g} ms" if size >= 1e-6 else f"{value * 1000:.1g} ms"


def _number(value: float, decimals: int) -> str:
    size = abs(value)
    if size >= 1_000_000:
        return f"{value:.3g}"
    if size >= 10_000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.0f}"
    text = f"{value:.{decimals}f}"
    return text if float(text) or not value else f"{value:.1g}"


def tick_texts(ticks: Sequence[float], unit: str) -> tuple[str, ...]:
    """Labels of an axis, of one kind and at most LABEL_CELLS wide; seconds as `ms` when all are below one."""
    largest = max((abs(tick) for tick in ticks), default=0.0)
    if unit == "s" and largest < 1:
        return tuple("0" if not tick else f"{_short(tick * 1000)}ms"[:LABEL_CELLS] for tick in ticks)
    suffix = {"s": "s", "%": "%"}.get(unit, "")
    return tuple(f"{_short(tick)}{suffix if tick else ''}"[:LABEL_CELLS] for tick in ticks)


def _short(value: float) -> str:
    """At most five cells: `0`, `2.5`, `1500`, `12k`, `3.5M`, `1e300`."""
    size = abs(value)
    if size >= 1e9:
        return f"{value:.0e}".replace("e+", "e")
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 10_000:
        return f"{value / 1e3:.3g}k"
    text = f"{value:.4g}"
    return text if len(text) <= 5 else f"{value:.0e}".replace("e-0", "e-")
