"""Pinning: an image by its digest, written into a recipe's text without touching anything else in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from spark_tui.base.engine.image import repository, tag_of
from spark_tui.catalog.presets.model.located import MappingValue, Node, plain

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_LINE: Final = re.compile(
    r"""((?:container|"container"|'container')[ \t]*:[ \t]+)"""
    r"""("[^"\\]*"|'[^']*'|[A-Za-z0-9][^\s#]*)([ \t]*(?:[ \t]#.*)?)"""
)
"""A plain entry of the top level: key, value, comment."""


def digest_of(reference: str) -> str:
    """`sha256:...` of `NAME@sha256:...`; empty where a reference has none."""
    return reference.partition("@")[2]


def short_digest(reference: str) -> str:
    """Its first 12 digits: `sha256:0123456789ab`; of an image's id alike."""
    return (digest_of(reference) or reference)[: len("sha256:") + 12]


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def pinned_reference(image: str, digest: str) -> str:
    """`NAME:TAG@sha256:...`. Docker goes by the digest alone; the tag says what it was, and is the way back."""
    tag = tag_of(image)
    return f"{repository(image)}{f':{tag}' if tag else ''}@{digest}"


def with_image(text: str, document: Node | None, image: str, read: Callable[[str], Node | None]) -> str | None:
    """A recipe's text with another image; None where its `container` is not a plain line of the top level. `document`
    is what the text holds, `read` reads a text again: nothing but the image may differ then."""
    if not isinstance(document, MappingValue):
        return None
    lines, entry = text.splitlines(keepends=True), document.get("container")
    if entry is not None:
        at = entry.line - 1
        line = lines[at].rstrip("\r\n") if at < len(lines) else ""
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        lines[at] = match[1] + image + match[3] + lines[at][len(line) :]
    else:  # what it includes names the image
        first = document.entries[0].line - 1 if document.entries else 0
        lines.insert(first, f"container: {image}\n")
    changed = "".join(lines)
    wanted = {each.key: plain(each.node) for each in document.entries} | {"container": image}
    return changed if _holds(read(changed), wanted) else None


def _holds(document: Node | None, wanted: dict[str, object]) -> bool:
    return isinstance(document, MappingValue) and plain(document) == wanted
