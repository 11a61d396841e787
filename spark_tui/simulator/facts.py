"""What the simulation knows of models: a shelf of the Hub, and the checkpoints that it can look into."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias

from msgspec.json import decode

from spark_tui.base.checkpoint import CheckpointFacts, WeightFormat

RECORDED_MODEL: Final = "rdtand/Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"

_BF16, _FP8, _NVFP4, _MXFP4 = WeightFormat.BF16, WeightFormat.FP8, WeightFormat.NVFP4, WeightFormat.MXFP4
_NEMOTRON: Final = "nvidia-open-model-license"

Card: TypeAlias = tuple[str, float, int, WeightFormat, str, int, int]
"""Repository, GiB of weights, shards, format, licence, thousands of downloads, days since it changed."""

SHELF: Final[tuple[Card, ...]] = (
    ("nvidia/Qwen3.6-35B-A3B-NVFP4", 21.4, 5, _NVFP4, "apache-2.0", 412, 34),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", 17.9, 4, _NVFP4, _NEMOTRON, 268, 58),
    ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", 70.2, 17, _NVFP4, _NEMOTRON, 143, 44),
    ("chankhavu/Nemotron-Cascade-2-30B-A3B-NVFP4", 17.9, 4, _NVFP4, _NEMOTRON, 6, 52),
    ("cybermotaz/nemotron3-nano-nvfp4-w4a16", 17.6, 4, WeightFormat.NVFP4_W4A16, "other", 9, 63),
    ("unsloth/Qwen3.6-27B-NVFP4", 18.6, 4, _NVFP4, "apache-2.0", 77, 40),
    ("openai/gpt-oss-120b", 60.8, 15, _MXFP4, "apache-2.0", 2_910, 410),
    ("openai/gpt-oss-20b", 12.8, 3, _MXFP4, "apache-2.0", 5_630, 410),
    ("nvidia/Llama-3.3-70B-Instruct-NVFP4", 39.8, 9, _NVFP4, "llama3.3", 96, 301),
    ("Qwen/Qwen3.5-35B-A3B", 67.0, 14, _BF16, "apache-2.0", 1_204, 180),
    ("Qwen/Qwen3.6-27B", 51.8, 12, _BF16, "apache-2.0", 890, 71),
    ("Qwen/Qwen3.6-35B-A3B-FP8", 34.9, 8, _FP8, "apache-2.0", 655, 70),
    ("nvidia/Qwen3-8B-NVFP4", 6.5, 2, _NVFP4, "other", 58, 240),
    ("nvidia/Qwen3-30B-A3B-NVFP4", 15.7, 4, _NVFP4, "other", 84, 240),
    ("nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4", 43.9, 10, _NVFP4, "other", 71, 190),
    ("AEON-7/DFlash-Qwen3.5-27B-Uncensored-NVFP4", 18.6, 4, _NVFP4, "other", 4, 120),
    ("z-lab/Qwen3.5-27B-DFlash", 3.3, 1, _BF16, "mit", 12, 125),
    ("sakamakismile/gemma-4-12B-coder-fable5-composer2.5-MTP-NVFP4", 7.7, 2, _NVFP4, "other", 3, 48),
    ("nvidia/diffusiongemma-26B-A4B-it-NVFP4", 13.0, 3, _NVFP4, "other", 21, 30),
    ("nvidia/Gemma-4-26B-A4B-NVFP4", 13.0, 3, _NVFP4, "other", 132, 82),
    ("nvidia/Gemma-4-31B-IT-NVFP4", 19.6, 5, _NVFP4, "other", 118, 82),
    ("google/gemma-4-31B-it", 58.3, 13, _BF16, "apache-2.0", 740, 96),
    ("google/gemma-3-27b-it", 51.1, 12, _BF16, "gemma", 1_310, 560),
    ("RedHatAI/gemma-4-31B-it-speculator.dflash", 2.9, 1, _BF16, "apache-2.0", 15, 60),
    ("poolside/Laguna-XS.2", 61.5, 14, _BF16, "apache-2.0", 39, 65),
    ("poolside/Laguna-XS.2-speculator.dflash", 1.1, 1, _BF16, "apache-2.0", 7, 64),
    ("mistralai/Mistral-Small-4-119B-2603-NVFP4", 55.9, 13, _NVFP4, "apache-2.0", 88, 105),
    ("nvidia/Phi-4-multimodal-instruct-NVFP4", 4.6, 1, _NVFP4, "other", 18, 250),
    ("unsloth/Qwen3.8-27B-NVFP4", 21.8, 5, _NVFP4, "apache-2.0", 64, 26),
    ("nvidia/Qwen3.8-27B-NVFP4", 20.4, 5, _NVFP4, "apache-2.0", 91, 24),
    ("z-lab/Qwen3.8-27B-DFlash2", 3.3, 1, _BF16, "mit", 8, 18),
    ("Qwen/Qwen3.8-27B-FP8", 28.7, 7, _FP8, "apache-2.0", 388, 33),
    ("local-inference-lab/Qwen3.8-Flash-Next-NVFP4", 98.6, 24, _NVFP4, "other", 17, 15),
    ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", 18.2, 4, _NVFP4, _NEMOTRON, 55, 29),
    ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4-DSpark", 1.4, 1, _NVFP4, _NEMOTRON, 11, 29),
    ("poolside/Laguna-XS-2.1", 61.5, 14, _BF16, "other", 22, 31),
    ("poolside/Laguna-XS-2.1-DFlash", 1.1, 1, _BF16, "other", 5, 30),
    ("turboderp/GLM-5.3-Flash-exl3", 79.4, 10, WeightFormat.OTHER, "mit", 13, 22),
    ("incoai/GLM-5.3-Flash-DFlash2", 2.6, 1, _BF16, "other", 6, 20),
    ("Qwen/Qwen3-Embedding-8B", 14.1, 4, _BF16, "apache-2.0", 2_240, 540),
    ("Qwen/Qwen3-Reranker-8B", 15.3, 5, _BF16, "apache-2.0", 310, 540),
    ("mistralai/Voxtral-Mini-4B-Realtime-2602", 8.3, 1, _BF16, "other", 41, 270),
    ("deepseek-ai/DeepSeek-V3.2", 641.0, 163, _FP8, "mit", 1_480, 330),
)  # fmt: skip

FACTS: Final = decode((Path(__file__).parent / "data/facts.json").read_bytes(), type=dict[str, CheckpointFacts])
"""Checkpoints by repository, or by path within the store: what the readers find in the files of `shelf`, kept because
each command of the demo needs some of it."""
SIZES: Final = {card[0]: card[1] for card in SHELF} | {
    RECORDED_MODEL: 21.3,
    "/models/Qwen3-30B-A3B-Q4_K_M.gguf": 17.3,
    "qwen3:32b": 18.6,
    "/models/smollm2": 0.3,
    "/models/gemma4-coder": 7.7,
    "/models/DFlash-Qwen3.5-27B-Uncensored-NVFP4": 18.6,
    "google/gemma-4-31B-it": 58.3,
}
"""GiB of the files."""
