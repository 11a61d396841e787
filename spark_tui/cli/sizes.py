"""Sizes and rates as a person types them."""

from __future__ import annotations

from spark_tui.domain.errors import UsageError
from spark_tui.domain.quantities import parse_bytes
from spark_tui.domain.text import clean_line, truncate


def size_typed(text: str, option: str) -> int | None:
    """`70g` -> bytes; None for nothing. Raises UsageError, which names the option."""
    if not text:
        return None
    try:
        return parse_bytes(text)
    except ValueError:
        shown = truncate(clean_line(text), 40)
        raise UsageError(f"{option}: {shown!r} is not a size.", "Write for example 70g or 500m.") from None


def rate_typed(text: str) -> float | None:
    """`50m` -> bytes per second; `none` and `0` take a cap away (0.0), nothing leaves it as it is (None)."""
    if not text:
        return None
    return 0.0 if text.lower() in ("none", "off", "0") else float(size_typed(text, "--limit") or 0)
