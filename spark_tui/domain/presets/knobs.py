"""The settings that have a type and a range wherever they are written: in a recipe, in a form, after `--set`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.presets.preset import Scalar
from spark_tui.domain.presets.speculation import ALONE, OFF, WITH_DRAFTER
from spark_tui.domain.quantities import MIB, parse_bytes


@dataclass(frozen=True, slots=True)
class Knob:
    """A number with its range (both ends included unless `above`), or a word with its pattern. A `size` is in bytes,
    and may be written with a unit."""

    kind: type[int] | type[float] | type[str]
    what: str
    example: str
    low: float = 0
    high: float = 0
    above: bool = False
    pattern: str = ""
    size: bool = False

    def read(self, value: Scalar) -> int | float | str:
        """The value in its own type. Raises ValueError, without a sentence, for anything else."""
        if value is None or isinstance(value, bool):
            raise ValueError
        if self.kind is str:
            return self._word(str(value))
        if self.kind is int and isinstance(value, float):
            raise ValueError
        number = self._number(value.strip().replace("_", "") if isinstance(value, str) else value)
        if not isinstance(number, (int, float)) or not self._holds(number):
            raise ValueError
        return number

    def _number(self, value: str | int | float) -> int | float | str:
        return parse_bytes(value) if self.size else self.kind(value)

    def _word(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise ValueError
        return text

    def _holds(self, number: float) -> bool:
        return (number > self.low if self.above else number >= self.low) and number <= self.high


def _integer(low: int, high: int, example: int) -> Knob:
    return Knob(int, f"a whole number from {low:,} to {high:,}", str(example), low, high)


KNOBS: Final[Mapping[str, Knob]] = {
    "port": _integer(1, 65535, 8000),
    "max_model_len": _integer(1, 100_000_000, 65536),
    "gpu_memory_utilization": Knob(float, "a fraction above 0 and up to 1", "0.85", 0, 1, above=True),
    # vLLM has its own units for it, which change with capital letters: the command gets bytes.
    "kv_cache_memory_bytes": Knob(int, "a size from 1MiB to 1TiB", "12GiB", MIB, 1024**4, size=True),
    "max_num_seqs": _integer(1, 65536, 4),
    "max_num_batched_tokens": _integer(1, 100_000_000, 8192),
    "kv_cache_dtype": Knob(str, "a KV cache type of the engine", "fp8", pattern=r"[A-Za-z0-9_]{1,40}"),
    "speculation": Knob(
        str,
        f"{OFF}, {', '.join(ALONE)}, or the method of the preset's own drafter",
        "mtp",
        pattern="|".join((OFF, *ALONE, *WITH_DRAFTER, "[a-z0-9_]{1,30}_mtp")),  # a name per family, all of them MTP
    ),
    "num_speculative_tokens": _integer(1, 64, 3),
    "served_model_name": Knob(
        str, "a name without blanks or shell characters", "qwen36", pattern=r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,199}"
    ),
    # Docker's rule for container names; 63 so that it also works as a host name.
    "name": Knob(
        str,
        "a container name of letters, digits, `_`, `.` and `-`",
        "qwen36-test",
        pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}",
    ),
}

IN_RECIPES: Final = ("port", "gpu_memory_utilization", "max_num_seqs")
"""Checked in a recipe's `defaults` too. The others may hold there what only the engine understands (`auto`, `128k`)."""
