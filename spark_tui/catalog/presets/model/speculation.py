"""Speculative decoding: what a command asks for, and its config with another method or number of drafted tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from spark_tui.base.engine.invocation import ALONE, TOKENS, Invocation
from spark_tui.base.errors import UsageError

CONFIG: Final = "speculative_config"
SPELLED: Final = {"spec_method": "method", "spec_model": "model", "spec_tokens": TOKENS}
"""vLLM's options for single values of the config."""
_MTP_TOKENS: Final = 1


class Speculation(Struct, frozen=True):
    """Speculative decoding as asked for. `tokens` is K, None where the engine decides; `config` is all of it."""

    method: str
    drafter: str
    tokens: int | None
    config: Mapping[str, Any]

    @property
    def is_mtp(self) -> bool:
        """By the model's own prediction layers, or a small model paired with it: vLLM has a name per family."""
        return self.method.endswith("mtp")

    @property
    def is_dflash(self) -> bool:
        return self.method == "dflash"


def speculation_of(invocation: Invocation, env: Mapping[str, str]) -> Speculation | None:
    """What a command and its environment ask for; None: no drafting, or nothing that can be read."""
    config = dict(invocation.json(CONFIG))
    config |= {name: value for key, name in SPELLED.items() if (value := invocation.value(key)) is not None}
    if env.get("DFLASH_DRAFTER"):
        drafts = {"method": "dflash", "model": env["DFLASH_DRAFTER"], TOKENS: env.get("DFLASH_NUM_SPEC_TOKENS")}
        config = drafts | config
    if not config:
        return None
    drafter = str(config.get("model") or "")
    # vLLM derives the method from the drafter's name where none is given.
    named = next((word for word in ("dflash", "eagle3", "eagle", "mtp") if word in drafter.lower()), "draft_model")
    tokens = str(config.get(TOKENS) or "")
    number = int(tokens) if re.fullmatch(r"\d{1,6}", tokens) else None
    return Speculation(str(config.get("method") or named).lower(), drafter, number, config)


def changed(asked: Speculation | None, method: str | None, tokens: int | None) -> dict[str, Any]:
    """The config for another method (None: the same) or another number of tokens (None: the same).

    Another method keeps the number alone: the drafter and the kernels of the old one are not its own. Raises
    UsageError for what vLLM would refuse: no method at all, one without its drafter, or without a number of tokens.
    """
    config = dict(asked.config) if asked is not None else {}
    if method is not None and (asked is None or method != asked.method):
        if method not in ALONE and not method.endswith("_mtp"):
            raise UsageError(
                f"Speculation by {method} needs a drafter trained for this model, and the preset names none.",
                f'Set speculative_config={{"method":"{method}","model":"...","num_speculative_tokens":3}}',
            )
        config = {"method": method, **({TOKENS: asked.tokens} if asked is not None and asked.tokens else {})}
    elif asked is None:
        raise UsageError(
            "This preset does not use speculation: a number of drafted tokens has no method.",
            "Set a method too, for example: speculation=mtp",
        )
    if tokens is not None:
        config[TOKENS] = tokens
    elif method == "mtp":
        config.setdefault(TOKENS, _MTP_TOKENS)
    if method is not None and TOKENS not in config:
        raise UsageError(
            f"Speculation by {method} needs the number of tokens to draft.", "For example: num_speculative_tokens=3"
        )
    return config
