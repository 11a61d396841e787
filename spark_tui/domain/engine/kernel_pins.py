"""Settings that choose a weight-only FP4 kernel: in the command, in the variables, or as the log repeats them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from spark_tui.domain.engine.timeline import EngineFacts

WEIGHT_ONLY: Final = re.compile(r"MARLIN|HUMMING|W4A16|A16W", re.IGNORECASE)
"""Names of kernels that take activations in 16 bit (vLLM 0.14 to 0.33, `a16_kernels`)."""


class Pins:
    """Settings that choose kernels: from the command, from the variables, and as the log repeats them."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], facts: EngineFacts) -> None:
        text = " ".join(argv)[:20_000]
        self._environment = {**dict(_INLINE.findall(text)), **environment}
        self.moe = _flag(text, "moe") or facts.moe_backend
        self.linear = _flag(text, "linear") or facts.linear_backend

    def of(self, part: str) -> tuple[str, bool]:
        """The setting that asks for a weight-only kernel in that part and whether its value is known; or nothing."""
        flag, name = (self.linear, "linear_backend") if part == "linear" else (self.moe, "moe_backend")
        if WEIGHT_ONLY.search(flag):
            return f"{name}={flag}", True
        if flag and flag != "auto":
            return "", True
        for variable, part_of, pattern in _VARIABLES:
            value = self._environment.get(variable)
            if value is None or part_of not in (part, "both"):
                continue
            if value == "":
                return f"{variable} is set", False
            if re.search(pattern, value, re.IGNORECASE):
                return f"{variable}={value[:60]}", True
        return "", True


_INLINE: Final = re.compile(r"\b(VLLM_[A-Z0-9_]{1,60})=[\"']?([\w.,:\-]{1,120})")
# Variable, the part it rules, and the values that mean weight-only.
_VARIABLES: Final = (
    ("VLLM_NVFP4_GEMM_BACKEND", "linear", r"^marlin"),
    ("VLLM_TEST_FORCE_FP8_MARLIN", "both", r"^(?:1|true)"),
    ("VLLM_USE_FLASHINFER_MOE_FP4", "moe", r"^(?:0|false)"),
    ("VLLM_B12X_MOE_FP4_FORCE_A16", "moe", r"^(?:1|true)"),
    ("VLLM_MXFP4_USE_MARLIN", "both", r"^(?:1|true)"),
    ("VLLM_DISABLED_KERNELS", "linear", r"NvFp4"),
)


def _flag(text: str, part: str) -> str:
    match = re.search(rf"(?<![\w'\"])--(?:kernel[-_]config\.)?{part}[-_]backend[= ]+[\"']?([\w\-]{{1,60}})", text)
    return match[1] if match else ""
