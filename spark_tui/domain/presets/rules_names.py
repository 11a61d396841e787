"""How the models of the guide are recognised: patterns over `Case.model`, in lower case and with `-` for `_`."""

from __future__ import annotations

from typing import Final

QWEN3_5: Final = r"qwen-?3\.5"
QWEN3_6: Final = r"qwen-?3\.6"
"""Its config bears the architecture of Qwen3.5: only the name tells them apart."""
GEMMA_26B: Final = r"(?<!diffusion)gemma-4-26b-a4b\S*nvfp4"
"""The limits are those of the NVFP4 checkpoint; the BF16 one is served on several Sparks."""
GEMMA_CODER: Final = r"gemma-?4-12b-coder|gemma4-coder"
"""The one with a paired draft model in its folder."""
