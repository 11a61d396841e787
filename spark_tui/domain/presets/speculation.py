"""Speculative decoding as a command asks for it, and a command's other method or number of drafted tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets import vllm_command as vllm
from spark_tui.domain.presets.json_option import json_parts

CONFIG: Final = "--speculative-config"
OFF: Final = "off"
"""In place of a method: without drafting."""
METHOD: Final = "speculation"
"""The override that names the method; the number of drafted tokens is vLLM's own word."""
TOKENS: Final = "num_speculative_tokens"
KEYS: Final = ("speculative_config", "spec_method", "spec_model", "spec_tokens")
"""The recipe keys that ask for drafting, in each of vLLM's spellings."""

# vLLM 0.19 to 0.33 (config/speculative.py). The first draft with what the checkpoint or the prompt holds already.
ALONE: Final = ("mtp", "ngram", "suffix")
WITH_DRAFTER: Final = ("dflash", "eagle3", "eagle", "draft_model", "medusa", "mlp_speculator")
_SPELLINGS: Final = (
    ("method", "--spec-method"),
    ("model", "--spec-model"),
    (TOKENS, "--spec-tokens"),
)
_MTP_TOKENS: Final = 1


@dataclass(frozen=True, slots=True)
class Speculation:
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
        """By a block-diffusion drafter."""
        return self.method == "dflash"


def speculation_of(words: tuple[str, ...], env: Mapping[str, str]) -> Speculation | None:
    """What a command and its environment ask for; None: no drafting, or nothing that can be read."""
    config = dict(json_parts(words, CONFIG))
    for key, name in _SPELLINGS:
        value = vllm.option(words, name)
        if value is not None:
            config[key] = value
    if env.get("DFLASH_DRAFTER"):
        config = {
            "method": "dflash",
            "model": env["DFLASH_DRAFTER"],
            TOKENS: env.get("DFLASH_NUM_SPEC_TOKENS"),
            **config,
        }
    if not config:
        return None
    drafter = str(config.get("model") or "")
    method = str(config.get("method") or _method_of(drafter)).lower()
    tokens = str(config.get(TOKENS) or "")
    return Speculation(method, drafter, int(tokens) if re.fullmatch(r"\d{1,6}", tokens) else None, config)


def _method_of(drafter: str) -> str:
    """vLLM tells the method by the drafter's name where none is given."""
    return next((word for word in ("dflash", "eagle3", "eagle", "mtp") if word in drafter.lower()), "draft_model")


def changed(asked: Speculation | None, method: str | None, tokens: int | None) -> dict[str, Any]:
    """The config that drafts by another method (None: the same) or another number of tokens (None: as many).

    Another method keeps the number alone: the drafter and the kernels of the old one are not its own. Raises
    UsageError for what vLLM would refuse: no method at all, one without its drafter, or without a number of tokens.
    """
    config = dict(asked.config) if asked is not None else {}
    if method is not None and (asked is None or method != asked.method):
        _check_method(method)
        config = {"method": method, **({TOKENS: asked.tokens} if asked is not None and asked.tokens else {})}
    elif asked is None:
        raise UsageError(
            "This preset drafts nothing: a number of drafted tokens has no method to go with.",
            "Choose a method too, for example: speculation=mtp",
        )
    if tokens is not None:
        config[TOKENS] = tokens
    elif method == "mtp":
        config.setdefault(TOKENS, _MTP_TOKENS)
    if method is not None and TOKENS not in config:
        raise UsageError(
            f"Drafting by {method} needs the number of tokens to draft.",
            "Say how many, for example: num_speculative_tokens=3",
        )
    return config


def _check_method(method: str) -> None:
    if method in ALONE or method.endswith("_mtp"):
        return
    raise UsageError(
        f"Drafting by {method} needs a drafter that was trained for this model, and the preset names none.",
        f'Name it: speculative_config={{"method":"{method}","model":"...","num_speculative_tokens":3}}',
    )
