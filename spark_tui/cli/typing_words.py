"""Settings as a person types them after a command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def set_words(pairs: Iterable[tuple[str, str]]) -> str:
    """`--set port=8001 --set max_model_len=65536`, quoted for the shell; empty without pairs."""
    return shlex.join(word for key, value in pairs for word in ("--set", f"{key}={value}"))
