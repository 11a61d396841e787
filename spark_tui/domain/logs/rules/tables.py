"""Which rules read the log of which runtime."""

from __future__ import annotations

from typing import Final

from spark_tui.domain.logs.rules.common import COMMON, PYTHON_ENGINE
from spark_tui.domain.logs.rules.llama_cpp import LLAMA_CPP
from spark_tui.domain.logs.rules.ollama import OLLAMA
from spark_tui.domain.logs.rules.rule import Table, joined
from spark_tui.domain.logs.rules.sglang import SGLANG
from spark_tui.domain.logs.rules.trtllm import TRTLLM
from spark_tui.domain.logs.rules.vllm import VLLM

TABLES: Final[dict[str, Table]] = {
    "vllm": joined(COMMON, PYTHON_ENGINE, VLLM),
    "sglang": joined(COMMON, PYTHON_ENGINE, SGLANG),
    "trtllm": joined(COMMON, PYTHON_ENGINE, TRTLLM),
    "llama-cpp": joined(COMMON, LLAMA_CPP),
    "ollama": joined(COMMON, OLLAMA, LLAMA_CPP),
}
"""By the id of a runtime. Ollama's log holds its runner's lines, which are llama.cpp's."""
UNKNOWN: Final = joined(COMMON, PYTHON_ENGINE, VLLM, SGLANG, TRTLLM, LLAMA_CPP, OLLAMA)
"""For a log whose runtime is not known yet: a line that an engine prints once per start tells."""
