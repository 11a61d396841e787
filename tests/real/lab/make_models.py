"""Makes the lab's models as local Hugging Face folders. Runs inside the vLLM image, whose packages it uses:

make_models.py TARGET GGUF NAME...    NAME: tiny, smollm2, smollm2-think
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch  # type: ignore[import-not-found, unused-ignore]
from tokenizers import (  # type: ignore[import-not-found, unused-ignore]
    AddedToken,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    trainers,
)
from transformers import (  # type: ignore[import-not-found, unused-ignore]
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

TINY_CONTEXT = 512
TINY_VOCABULARY = 2048
END_OF_TURN = "<|im_end|>"

CHATML = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

THINKING = (
    "{%- if add_generation_prompt %}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}"
    "{%- else %}{{- '<think>\\n' }}{%- endif %}"
    "{%- endif %}"
)
"""Qwen3's habit: the prompt itself opens the reasoning, or closes it at once."""

THINK, THINK_END = 5, 6
"""Ids of SmolLM2's vocabulary that chat never uses (<file_sep>, <filename>) and that become the reasoning tags."""


def training_text() -> Iterator[str]:
    """Some English and some Python that every such image holds."""
    roots = (Path("/usr/share/common-licenses"), Path(json.__file__).parent)
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix in ("", ".py"):
                yield path.read_text(errors="replace")


def byte_level_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A small BPE with ChatML's special tokens, and with Qwen's tags as ordinary tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TINY_VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", END_OF_TURN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    tags = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    bpe.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END_OF_TURN,
        pad_token="<|endoftext|>",
        model_max_length=TINY_CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHATML + THINKING
    return tokenizer


def make_tiny(target: Path) -> None:
    """A Qwen3 of a quarter million random parameters: nonsense, at hundreds of tokens a second."""
    tokenizer = byte_level_tokenizer(training_text())
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = Qwen3Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=TINY_CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        **ends,
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.generation_config = GenerationConfig(**ends)
    tokenizer.save_pretrained(target)
    model.save_pretrained(target)


def make_smollm2(target: Path, gguf: Path) -> None:
    """SmolLM2-135M-Instruct in bfloat16 out of its 4-bit file: short questions get sensible answers."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # or the saved folder would claim to be GGUF still
    config.tie_word_embeddings = True
    plain = type(loaded)(config).to(torch.bfloat16)
    weights = {name: tensor for name, tensor in loaded.state_dict().items() if name != "lm_head.weight"}
    outcome = plain.load_state_dict(weights, strict=False)
    if outcome.unexpected_keys or set(outcome.missing_keys) - {"lm_head.weight"}:
        raise SystemExit(f"the weights of {gguf.name} do not fit: {outcome}")
    plain.tie_weights()
    plain.generation_config = loaded.generation_config
    plain.generation_config.eos_token_id = tokenizer.eos_token_id
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)


def make_thinking(target: Path, smollm2: Path) -> None:
    """SmolLM2 that thinks aloud first.

    Where it would end its turn, `</think>` is exactly as likely as the end: its row of the output matrix is that of
    <|im_end|>. Read back, both tags count as a line break. So some answers have reasoning and text, some only one.
    """
    shutil.copytree(smollm2, target, dirs_exist_ok=True)
    newline = rename_tokens(target / "tokenizer.json", {THINK: "<think>", THINK_END: "</think>"})
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.bfloat16)
    end_of_turn = model.generation_config.eos_token_id
    read = model.model.embed_tokens.weight.data
    write = read.clone()
    write[THINK] = 0
    write[THINK_END] = read[end_of_turn]
    read[THINK] = read[newline]
    read[THINK_END] = read[newline]
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(write)
    model.save_pretrained(target)
    template = target / "chat_template.jinja"
    template.write_text(template.read_text() + THINKING)


def rename_tokens(path: Path, names: dict[int, str]) -> int:
    """Gives ids of a tokenizer.json new names, as ordinary tokens. Returns the id of a line break."""
    data = json.loads(path.read_text())
    vocabulary = data["model"]["vocab"]
    for token in data["added_tokens"]:
        if token["id"] in names:
            vocabulary[names[token["id"]]] = vocabulary.pop(token["content"])
            token.update(content=names[token["id"]], special=False)
    path.write_text(json.dumps(data, ensure_ascii=False))
    return int(vocabulary["Ċ"])


def main() -> None:
    target, gguf, *names = sys.argv[1:]
    store = Path(target)
    for name in names:
        print(f"making {name}", flush=True)
        if name == "tiny":
            make_tiny(store / name)
        elif name == "smollm2":
            make_smollm2(store / name, Path(gguf))
        elif name == "smollm2-think":
            make_thinking(store / name, store / "smollm2")


if __name__ == "__main__":
    main()
