"""A model that says what its scripts say, made by hand: an agent's request gets a known answer from a real server.

Each word of a script is a token, and the weights are one chain: a token is followed by its successor, whatever came
before. The chat template picks the script by the token that it ends with. Unknown words of a prompt count as one token
each, as about as many words of a real tokenizer would.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

CONTEXT = 131_072
_UNKNOWN, _TURN, _END = "<unk>", "<|im_start|>", "<|im_end|>"
_HEADS, _HEAD_SIZE, _INNER = 1, 32, 64
_CERTAIN = 8.0
"""Weight of a successor; that of every other token is 0."""
_CHARACTERS = dict.fromkeys('"}],' + "".join(map(chr, range(32, 127))) + "\n")
"""What a JSON schema makes it say: any token that is allowed, the first of them at temperature 0."""


def make_scripted(target: Path, scripts: Mapping[str, Sequence[str]], template: str) -> None:
    """Writes a Hugging Face folder. A script's name is the token after which it is said, its value the pieces of text;
    a piece in two scripts is followed by the same one. `template` is the chat template, and ends with such a name."""
    spoken = dict.fromkeys((_UNKNOWN, _TURN, _END, *(piece for name in scripts for piece in (name, *scripts[name]))))
    numbers = {piece: number for number, piece in enumerate((*_CHARACTERS, *spoken))}
    size = -(-len(numbers) // 64) * 64
    chain = {
        numbers[first]: numbers[then] for name in scripts for first, then in pairwise((name, *scripts[name], _END))
    }
    ends = {"eos_token_id": numbers[_END], "pad_token_id": numbers[_UNKNOWN]}
    target.mkdir(parents=True)
    _write_json(target / "generation_config.json", ends)
    _write_json(
        target / "config.json",
        {
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", **ends,
            "vocab_size": size, "hidden_size": size, "intermediate_size": _INNER, "num_hidden_layers": 1,
            "num_attention_heads": _HEADS, "num_key_value_heads": _HEADS, "head_dim": _HEAD_SIZE, "hidden_act": "silu",
            "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-06, "tie_word_embeddings": False,
            "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        },
    )  # fmt: skip
    _write_tokenizer(target, numbers)
    (target / "chat_template.jinja").write_text(template, encoding="utf-8")
    _write_weights(target / "model.safetensors", size, chain)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def _write_tokenizer(target: Path, numbers: Mapping[str, int]) -> None:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": number, "content": piece, **flags, "special": piece in (_UNKNOWN, _TURN, _END)}
        for piece, number in numbers.items()
        if piece not in _CHARACTERS
    ]
    _write_json(
        target / "tokenizer.json",
        {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": dict(numbers), "unk_token": _UNKNOWN},
        },
    )  # fmt: skip
    special = {"eos_token": _END, "pad_token": _UNKNOWN, "unk_token": _UNKNOWN}
    _write_json(target / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **special})


def _write_weights(path: Path, size: int, chain: Mapping[int, int]) -> None:
    """A token's embedding is a unit vector; the one layer adds nothing; the head leads to the successor."""
    heads, layer = _HEADS * _HEAD_SIZE, "model.layers.0"
    tensors = {
        "model.embed_tokens.weight": _sparse(size, {(number, number): 1.0 for number in range(size)}),
        "lm_head.weight": _sparse(size, {(then, first): _CERTAIN for first, then in chain.items()}),
        "model.norm.weight": ((size,), _bfloat16(1.0) * size),
        **{
            f"{layer}.{name}_layernorm.weight": ((size,), _bfloat16(1.0) * size) for name in ("input", "post_attention")
        },
        **{f"{layer}.self_attn.{name}_norm.weight": ((_HEAD_SIZE,), _bfloat16(1.0) * _HEAD_SIZE) for name in "qk"},
        **{f"{layer}.self_attn.{name}_proj.weight": _zeros(heads, size) for name in "qkv"},
        f"{layer}.self_attn.o_proj.weight": _zeros(size, heads),
        **{f"{layer}.mlp.{name}_proj.weight": _zeros(_INNER, size) for name in ("gate", "up")},
        f"{layer}.mlp.down_proj.weight": _zeros(size, _INNER),
    }
    header, data = {}, bytearray()
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


_Tensor = tuple[tuple[int, ...], bytes]


def _zeros(rows: int, columns: int) -> _Tensor:
    return (rows, columns), bytes(2 * rows * columns)


def _sparse(size: int, values: Mapping[tuple[int, int], float]) -> _Tensor:
    data = bytearray(2 * size * size)
    for (row, column), value in values.items():
        at = 2 * (row * size + column)
        data[at : at + 2] = _bfloat16(value)
    return (size, size), bytes(data)


def _bfloat16(value: float) -> bytes:
    return struct.pack("<f", value)[2:]
