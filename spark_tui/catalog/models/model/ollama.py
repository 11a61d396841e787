"""Models that Ollama has, as its API lists them (`/api/tags`), and whether a checkpoint is the same model."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from msgspec import Struct

from spark_tui.base.text import clean_line, truncate

MAX_MODELS: Final = 500
PORT: Final = 11434
_TOKENS: Final = re.compile(r"[a-z]+|\d+(?:\.\d+)*")
_PARAMETERS: Final = re.compile(r"(\d{1,5}(?:\.\d{1,5})?)\s*([KMBT])", re.IGNORECASE)
_FACTORS: Final = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_SIZES: Final = ("b", "m", "t")
_FORMATS: Final = ("gguf", "nvfp", "mxfp", "fp", "bf", "awq", "gptq", "int", "q", "instruct", "it")
_ALIKE: Final = 0.1
"""How far two statements of one model's parameters differ: 116.8B and 120B."""


class OllamaModel(Struct, frozen=True):
    """A model by its tag. `size` is in bytes on disk, `parameters` None where neither its facts nor its tag say."""

    name: str
    size: int = 0
    parameters: float | None = None
    quantization: str = ""


class OllamaModels(Struct, frozen=True):
    """What an Ollama at `address` has; `left_out` counts those beyond MAX_MODELS and those that cannot be read."""

    address: str
    models: tuple[OllamaModel, ...] = ()
    left_out: int = 0


def models_in(answer: Any, address: str) -> OllamaModels:
    """The answer of `/api/tags`. Raises ValueError for what lists no models."""
    if not isinstance(answer, dict) or not isinstance(answer.get("models"), list | None):
        raise ValueError("no list of models")
    entries = answer.get("models") or []
    found = [model for entry in entries[:MAX_MODELS] if (model := _model(entry)) is not None]
    return OllamaModels(address, tuple(found), len(entries) - len(found))


def _model(entry: Any) -> OllamaModel | None:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not clean_line(name).strip():
        return None
    size, details = entry.get("size"), entry.get("details")
    details = details if isinstance(details, dict) else {}
    quantization, tag = details.get("quantization_level"), name.rpartition(":")[2]
    return OllamaModel(
        truncate(clean_line(name), 120),
        size if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 1 << 50 else 0,
        _parameters(details.get("parameter_size")) or _parameters(tag),
        truncate(clean_line(quantization), 20) if isinstance(quantization, str) else "",
    )


def _parameters(text: Any) -> float | None:
    match = _PARAMETERS.match(text) if isinstance(text, str) else None
    count = float(match[1]) * _FACTORS[match[2].upper()] if match else 0.0
    return count if 0 < count < math.inf else None


def same_model(model: OllamaModel, checkpoint: str, parameters: float | None) -> bool:
    """Whether a checkpoint (a repository's or file's name) is that model in any format: the same name up to its size or
    format, and as many parameters."""
    if model.parameters is None or parameters is None or abs(model.parameters / parameters - 1) > _ALIKE:
        return False
    wanted = _words(model.name.partition(":")[0])
    wanted = wanted[: next((at for at in range(1, len(wanted)) if _ends(wanted[at:])), len(wanted))]
    words = _words(checkpoint)
    return bool(wanted) and any(
        words[at : at + len(wanted)] == wanted and _ends(words[at + len(wanted) :]) for at in range(len(words))
    )


def _words(name: str) -> list[str]:
    """Without the owner: `Llama-3.3-70B` and `llama3.3` begin with the same words."""
    return _TOKENS.findall(name.rpartition("/")[2].lower())


def _ends(rest: list[str]) -> bool:
    """Whether a model's name ends before these words: a size or a format follows, or nothing."""
    sized = len(rest) > 1 and rest[0][0].isdigit() and rest[1] in _SIZES
    return not rest or sized or rest[0] in _FORMATS
