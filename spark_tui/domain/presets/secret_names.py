"""Names under which keys and tokens travel: their values never stand in a recipe, a command or a label."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(
    r"(?:.*_)?(?:API_?KEY|SECRET(?:_KEY)?|ACCESS_KEY|PASSWORD|PASSWD|PRIVATE_KEY)"
    r"|(?:.*_)?(?:HF|HUB|HUGGINGFACE|AUTH|ACCESS|API|BEARER|GITHUB|GH|GITLAB|NGC|WANDB|REGISTRY)_TOKEN"
    r"|TOKEN",
    re.IGNORECASE,
)
# Hugging Face and NVIDIA tokens have a shape of their own.
_VALUE = re.compile(r"\b(?:hf_[A-Za-z0-9]{20,}|nvapi-[A-Za-z0-9_-]{20,})")


def is_secret_name(name: str) -> bool:
    """Whether a variable or key of that name holds a key: `HF_TOKEN`, `VLLM_API_KEY`; not `eos_token`."""
    return _NAME.fullmatch(name.replace("-", "_")) is not None


def holds_secret(text: str) -> bool:
    """Whether a text contains something with the shape of a known token."""
    return _VALUE.search(text) is not None


def secret_variables(env: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Those of a recipe's variables that hold a key or token themselves; `$HF_TOKEN` and `{api_key}` only name one."""
    return {
        name: text
        for name, text in env
        if text.strip() and not text.startswith(("$", "{")) and (is_secret_name(name) or holds_secret(text))
    }
