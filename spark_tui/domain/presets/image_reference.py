"""Image names, by the grammar of Docker references: `[registry[:port]/]path[:tag][@digest]`."""

from __future__ import annotations

import re

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_HOST}/)?{_PART}(?:/{_PART})*)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?"
)
MAX_NAME_CHARS = 255


def is_image_reference(text: str) -> bool:
    """Whether Docker would take `text` as the name of an image."""
    if len(text) > 2 * MAX_NAME_CHARS:
        return False
    match = _REFERENCE.fullmatch(text)
    return match is not None and len(match["name"]) <= MAX_NAME_CHARS


def repository(reference: str) -> str:
    """The name without tag and digest: `nvcr.io/nvidia/vllm`. The text itself when it is no reference."""
    match = _REFERENCE.fullmatch(reference) if len(reference) <= 2 * MAX_NAME_CHARS else None
    return match["name"] if match else reference
