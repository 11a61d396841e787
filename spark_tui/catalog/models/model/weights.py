"""Where a checkpoint's bytes are, what one decoded token reads of them, and how fast that can be at most."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Protocol

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from spark_tui.base.checkpoint import (
    CheckpointFacts,
    CheckpointProblem,
    ModuleBytes,
    ModuleClass,
    Quantization,
    WeightFormat,
    WeightSummary,
    abilities_of,
    template_in,
)
from spark_tui.base.errors import UsageError
from spark_tui.base.finding import Missing, Ok, Reading
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.models.model.config import MOST_BYTES, BadJson, facts_from, is_draft_tensor, read_object

LENGTH_BYTES: Final = 8
MOST_HEADER_BYTES: Final = MOST_BYTES
"""The library allows 100 MB; the headers of real files have 0.1 to 10 MB."""
_METADATA: Final = "__metadata__"

BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


class Tensor(Struct, frozen=True):
    """One tensor as its header has it. `size` in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int

    @property
    def elements(self) -> int:
        """How many elements are stored; of packed 4-bit weights, two in each."""
        return math.prod(self.shape)


_Count = Annotated[int, Meta(ge=0, le=2**62)]


class _Entry(Struct, frozen=True):
    """A tensor in the JSON of a header."""

    dtype: Annotated[str, Meta(pattern="^[A-Z0-9_]{1,16}$")]
    shape: Annotated[tuple[_Count, ...], Meta(max_length=16)]
    data_offsets: tuple[_Count, _Count]


class SafetensorsHeader(Struct, frozen=True):
    """The tensors in file order."""

    tensors: tuple[Tensor, ...]

    @property
    def size(self) -> int:
        return sum(tensor.size for tensor in self.tensors)


def header_length(first: bytes, file: str = "") -> int | CheckpointProblem:
    """The length of the JSON that follows, from the first eight bytes of a file."""
    if len(first) < LENGTH_BYTES:
        return CheckpointProblem(file, "shorter than the eight bytes that every safetensors file begins with")
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if length > MOST_HEADER_BYTES:
        return CheckpointProblem(file, f"its header claims {length:,} bytes: not a safetensors file, or damaged")
    if length < 2:
        return CheckpointProblem(file, "its header is empty")
    return length


def parse_header(data: bytes, *, file: str = "", file_size: int | None = None) -> SafetensorsHeader | CheckpointProblem:
    """The beginning of a file (at least its whole header) -> its tensors, or what is wrong with it.

    `file_size` is the size of the whole file in bytes; when given, the tensors must fill it exactly.
    """
    length = header_length(data, file)
    if isinstance(length, CheckpointProblem):
        return length
    body = data[LENGTH_BYTES : LENGTH_BYTES + length]
    if len(body) < length:
        return CheckpointProblem(file, f"truncated: {len(body):,} of {length:,} bytes of its header are there")
    try:
        tensors = _parsed(read_object(body))
    except BadJson as error:
        return CheckpointProblem(file, f"its header is wrong: {error}")
    end = sum(tensor.size for tensor in tensors)
    if file_size is not None and LENGTH_BYTES + length + end != file_size:
        have = max(0, file_size - LENGTH_BYTES - length)
        words = "truncated" if have < end else "longer than its header says"
        return CheckpointProblem(file, f"{words}: {have:,} of {end:,} bytes of tensors are there")
    return SafetensorsHeader(tensors)


def _parsed(found: dict[str, Any]) -> tuple[Tensor, ...]:
    """The tensors in file order, without gaps. Raises BadJson."""
    extra = found.pop(_METADATA, None)
    if extra is not None and not (isinstance(extra, dict) and all(isinstance(text, str) for text in extra.values())):
        raise BadJson("its metadata is not an object of texts")
    placed = sorted((_tensor(name, entry) for name, entry in found.items()), key=lambda item: item[0])
    at = 0
    for (begin, end), tensor in placed:
        if begin != at:
            words = "overlaps the tensor before it" if begin < at else "leaves a gap before it"
            raise BadJson(f"{truncate(clean_line(tensor.name), 80)} {words}")
        at = end
    return tuple(tensor for _, tensor in placed)


def _tensor(name: str, entry: Any) -> tuple[tuple[int, int], Tensor]:
    """((begin, end), tensor). The name is kept as it is, so that it can be looked up: clean it where it is shown."""
    shown = truncate(clean_line(name), 80)
    try:
        found = convert(entry, _Entry)
    except ValidationError as error:
        raise BadJson(f"{shown} is no tensor: {clean_line(str(error))}") from None
    begin, end = found.data_offsets
    bits = BITS.get(found.dtype)
    if begin > end or (bits is not None and math.prod(found.shape) * bits != (end - begin) * 8):
        raise BadJson(f"{shown} has data_offsets {begin:,} to {end:,}, which its shape and dtype do not give")
    return (begin, end), Tensor(name, found.dtype, found.shape, end - begin)


PAPER_BANDWIDTH: Final = 273e9
"""Bytes per second of a DGX Spark's memory by its data sheet."""
MEASURED_BANDWIDTH: Final = 228e9
"""What was measured of it."""
ENGINE_SHARE: Final = 0.8
"""What engines reach of that when they decode."""
LISTED_ERROR: Final = 0.1
"""How far a ceiling may be off that is from a list of layers: published speeds of Nemotron-3-Super and gpt-oss-120b
lie 7 and 8 % above it, because an image may narrow 16-bit weights as it loads them."""

MUCH_TABLE: Final = 0.05
"""The share of a checkpoint from which its lookup tables are worth a word."""
_MATRIX_SLACK: Final = 0.1
"""Of the matrices of an expert: biases, padding."""
_WIDE: Final = ("BF16", "F16", "F32", "F64")
_TOKENS: Final = r"(?:(?:tok(?:en)?_|word_)?embed(?:ding)?s?(?:_tokens|_in)?|wte)"
_CLASSES: Final = tuple(
    (re.compile(pattern), module)
    for pattern, module in (
        (
            r"(?:^|\.)(?:visual|vision\w*|vit|image_\w+|multi_modal_projector|embed_vision|img_\w+)\.",
            ModuleClass.VISION,
        ),
        (r"(?:^|\.)(?:audio\w*|speech\w*|embed_audio|sound\w*)\.", ModuleClass.AUDIO),
        (r"norm(?:\.|$)|layernorm|norm_f(?:\.|$)", ModuleClass.NORM),
        (r"(?:^|\.)(?:lm_head\.|output\.weight|head\.weight)", ModuleClass.HEAD),
        # All that is looked up but the tokens' own embedding: by n-grams, by layer, by position.
        (
            r"^(?!.*(?:proj|norm|gate|linear|conv))(?=.*(?:embed|table|lookup|n_?gram|wpe\.))"
            r"(?:.*(?:n_?gram|per_layer|ple\.|lookup|layers\.\d)"
            rf"|(?!.*(?:^|\.){_TOKENS}\.(?:\d+\.|weight\.)?[^.]*$))",
            ModuleClass.TABLE,
        ),
        (rf"(?:^|\.){_TOKENS}\b", ModuleClass.EMBEDDING),
        (r"\.shared_experts?[._]|\.shared_mlp\.", ModuleClass.SHARED_EXPERT),
        (r"\.experts\.|\.experts_", ModuleClass.EXPERTS),
        (r"\.(?:router|gate)\.(?!proj)|\.e_score_correction_bias|\.shared_expert_gate", ModuleClass.ROUTER),
        (r"\.(?:linear_attn|mamba|ssm|conv1d|A_log|dt_bias|in_proj|out_proj)\b|\.mixer\.D$", ModuleClass.STATE),
        (r"\.(?:self_attn|attn|attention|[qkvo]_proj|qkv_proj|wq|wk|wv|wo)\b", ModuleClass.ATTENTION),
        (r"\.(?:mlp|feed_forward|up_proj|down_proj|gate_proj|gate_up_proj|ffn|fc[12]_latent_proj)\b", ModuleClass.MLP),
    )
)
_NO_WEIGHT: Final = re.compile(
    r"scale|zero_point|zeros|g_idx|input_min|input_max|weight_shape|absmax|quant_map|quant_state|codebook|perm$|q_groups"
    r"|\.(?:suh|svh|su|sv|mcg|mul1)$"
)
_NOT_READ: Final = (ModuleClass.VISION, ModuleClass.AUDIO, ModuleClass.DRAFT, ModuleClass.TABLE)
_INTEGERS: Final = ("I8", "U8", "I16", "U16", "I32", "U32", "I64")
_FOUR_BITS: Final = {
    WeightFormat.NVFP4,
    WeightFormat.NVFP4_W4A16,
    WeightFormat.MXFP4,
    WeightFormat.FP4,
    WeightFormat.INT4,
}
_FORMAT_BITS: Final = {  # with their scales: one of 8 bits per 16 weights (NVFP4), per 32 (MX formats)
    WeightFormat.BF16: 16.0, WeightFormat.FP16: 16.0, WeightFormat.FP8: 8.0, WeightFormat.MXFP8: 8.25,
    WeightFormat.NVFP4: 4.5, WeightFormat.NVFP4_W4A16: 4.5, WeightFormat.MXFP4: 4.25, WeightFormat.INT8: 8.0,
    WeightFormat.INT4: 4.15, WeightFormat.FP4: 4.25,
}  # fmt: skip


class DecodeRead(Struct, frozen=True):
    """Bytes of weights that one decoded token reads, alone in its batch. `wide` of them are 16 bits or more, which
    quantization left as they were; `experts` of them are the routed experts that run."""

    size: int
    wide: int
    experts: int


class DecodeCeiling(Struct, frozen=True):
    """Tokens per second that the memory allows one stream without speculation: by the data sheet, and as measured.
    `reads` is what a token reads, in bytes; `bound` says that it reads at least that, so that it is slower rather.
    `source`: whose list of 16-bit layers it is taken from, where the checkpoint itself is not here."""

    reads: int
    paper: float
    measured: float
    bound: bool = False
    source: str = ""

    def span(self, published: float = 0.0) -> tuple[float, float]:
        """What to expect, from what engines reach to what the data sheet allows. A higher `published` speed counts: an
        image may read less than is stored, since it narrows weights of 16 bits as it loads them."""
        return (0.0 if self.bound else self.measured * ENGINE_SHARE), max(self.paper, published)

    def text(self, published: float = 0.0) -> str:
        """`37-59 tok/s`."""
        low, high = (f"{each:.0f}" if each >= 10 else f"{each:.1f}" for each in self.span(published))
        return f"up to {high} tok/s" if self.bound else f"{low}-{high} tok/s"


def class_of(name: str, layers: int | None) -> ModuleClass:
    """What a tensor is for, by its name. `layers` is the model's count: what comes after them drafts."""
    if is_draft_tensor(name, layers):
        return ModuleClass.DRAFT
    return next((module for pattern, module in _CLASSES if pattern.search(name)), ModuleClass.OTHER)


def _bits(tensor: Tensor, module: ModuleClass, form: Quantization | None) -> float | None:
    """Bits that one weight takes in a tensor, by the declared format; None where packed weights have no known width."""
    name, dtype = tensor.name, tensor.dtype
    if name.endswith(".trellis") and len(tensor.shape) == 3:  # EXL3: 16 x 16 weights in 16 words for each bit
        return tensor.shape[-1] / 16
    if dtype not in _INTEGERS:
        return BITS.get(dtype)
    formats = set(form.formats) if form is not None else set()
    if WeightFormat.OTHER in formats:
        return form.bits if form is not None else None
    four = bool(formats & _FOUR_BITS)
    if dtype == "I8":
        experts = form is not None and form.experts is not None and module is ModuleClass.EXPERTS
        return 4 if experts or name.endswith(("_packed", "_blocks")) or (four and formats <= _FOUR_BITS) else 8
    return 4 if four or not formats else 8


def summarise(
    tensors: Iterable[Tensor], *, layers: int | None = None, complete: bool = True, form: Quantization | None = None
) -> WeightSummary:
    """Adds up tensors, of all files of a checkpoint, in its declared format. Scales of narrow weights are no weights,
    whatever their dtype."""
    dtypes: Counter[str] = Counter()
    sizes: Counter[ModuleClass] = Counter()
    wide: Counter[ModuleClass] = Counter()
    weights: Counter[ModuleClass] = Counter()
    count, counted = 0, True
    for tensor in tensors:
        module, name, dtype = class_of(tensor.name, layers), tensor.name, tensor.dtype
        dtypes[dtype] += tensor.size
        sizes[module] += tensor.size
        count += 1
        if _NO_WEIGHT.search(name):
            continue
        wide[module] += tensor.size if dtype in _WIDE else 0
        bits = _bits(tensor, module, form)
        counted = counted and (bits is not None or dtype not in _INTEGERS)
        weights[module] += round(tensor.size * 8 / bits) if bits else tensor.elements
    modules = tuple(ModuleBytes(module, size, wide[module], weights[module]) for module, size in sizes.most_common())
    return WeightSummary(tuple(dtypes.most_common()), modules, weights.total(), count, complete, counted)


_NUMBERED: Final = re.compile(r"(?:^|\.)(?:layers|blocks|h)\.(\d{1,5})\.")


def contradiction(facts: CheckpointFacts, tensors: Iterable[Tensor]) -> str:
    """Where the weights of the routed experts are not as many as the configuration makes them: two or three matrices
    for each. Empty where they are, or where one side is unknown."""
    summary, experts, each = facts.weights, facts.experts, facts.expert_weights
    if summary is None or not summary.complete or not summary.counted or experts is None or each is None:
        return ""
    names = (tensor.name for tensor in tensors if class_of(tensor.name, facts.layers) is ModuleClass.EXPERTS)
    layers = len({found[1] for name in names if (found := _NUMBERED.search(name))})
    stored = sum(part.parameters for part in summary.by_module if part.module is ModuleClass.EXPERTS)
    one = each * experts.routed * layers
    if not one or any(abs(stored / one - matrices) < _MATRIX_SLACK for matrices in (2, 3)):
        return ""
    return f"routed experts: {stored / 1e9:.3g} B weights in the headers, {3 * one / 1e9:.3g} B by the configuration"


def decode_read(facts: CheckpointFacts) -> DecodeRead | None:
    """What one token reads of the weights; None without the headers, or where it is unknown how many experts run.

    Of the embedding one row is read, all of it where it is the output head too; of routed experts those that run;
    of towers and layers for drafting nothing.
    """
    summary = facts.weights
    if summary is None or not summary.complete:
        return None
    size = wide = expert_bytes = 0.0
    for part in summary.by_module:
        share = read_share(part.module, facts)
        if share is None:
            return None
        if part.module is ModuleClass.EXPERTS:
            expert_bytes = part.size * share
        size += part.size * share
        wide += part.wide * share
    return DecodeRead(round(size), round(wide), round(expert_bytes))


def read_share(module: ModuleClass, facts: CheckpointFacts) -> float | None:
    """The share of a class of weights that one token reads; None for experts of which it is unknown how many run."""
    parts = facts.weights.by_module if facts.weights is not None else ()
    heads = any(part.module is ModuleClass.HEAD for part in parts)
    if module in _NOT_READ or (module is ModuleClass.EMBEDDING and heads):
        return 0.0
    if module is not ModuleClass.EXPERTS:
        return 1.0
    return None if facts.experts is None else facts.experts.per_token / facts.experts.routed


def ceiling_of(reads: int, *, bound: bool = False, source: str = "") -> DecodeCeiling | None:
    """The decode ceiling for a number of bytes per token; None for none."""
    if reads <= 0:
        return None
    return DecodeCeiling(reads, PAPER_BANDWIDTH / reads, MEASURED_BANDWIDTH / reads, bound, source)


def bytes_of(parameters: float, form: WeightFormat) -> int | None:
    """Bytes of a number of weights in a format, scales included; None for a format without a known width."""
    bits = _FORMAT_BITS.get(form)
    return None if bits is None else round(parameters * bits / 8)


_WORDS: Final = (
    (r"mxfp4", WeightFormat.MXFP4), (r"w4a16", WeightFormat.NVFP4_W4A16), (r"nvfp4|\bfp4", WeightFormat.NVFP4),
    (r"mxfp8", WeightFormat.MXFP8), (r"fp8", WeightFormat.FP8), (r"bf16|bfloat16", WeightFormat.BF16),
    (r"fp16|float16", WeightFormat.FP16), (r"int8|w8a8", WeightFormat.INT8), (r"int4|awq|gptq", WeightFormat.INT4),
)  # fmt: skip


def format_in(words: str) -> WeightFormat | None:
    """The format that a recipe's words name: `NVFP4 (ModelOpt)` -> NVFP4."""
    return next((form for pattern, form in _WORDS if re.search(pattern, words.lower())), None)


def formats_typed(words: Iterable[str]) -> tuple[WeightFormat, ...]:
    """The formats that a person has typed, each once. Raises UsageError."""
    found: dict[WeightFormat, None] = {}
    for word in words:
        form = format_in(word)
        if form is None:
            raise UsageError(f"{word!r} is not a weight format.", "Examples: nvfp4, fp8, mxfp4, bf16, int4")
        found[form] = None
    return tuple(found)


# --- a whole checkpoint ---------------------------------------------------------------------------------------

CONFIG: Final = "config.json"
INDEX: Final = "model.safetensors.index.json"
MOST_CONFIG_BYTES: Final = 16 * 1024 * 1024
_TEMPLATE: Final = "chat_template.jinja"
_MOST_TEMPLATE_BYTES: Final = 4 * 1024 * 1024
_MOST_PROBLEMS: Final = 10


class CheckpointFiles(Protocol):
    """The files of one checkpoint, on the disk or on the Hub."""

    def names(self) -> Iterable[str]:
        """The files that are there, in no order."""

    def head(self, path: str, most: int) -> bytes | CheckpointProblem | None:
        """The first `most` bytes of a file; None when there is no such file."""

    def headers(self, paths: Sequence[str]) -> Sequence[SafetensorsHeader | CheckpointProblem]:
        """The headers of safetensors files, in that order."""


def read_checkpoint(
    files: CheckpointFiles, source: str, *, licence: str = "", most_files: int = 4_000
) -> Reading[CheckpointFacts]:
    """All that a checkpoint's configs and headers say. Missing without a readable config; any other damaged file is a
    finding, and `weights.complete` is false where it holds weights."""
    problems: list[CheckpointProblem] = []

    def json_of(path: str, most: int = MOST_CONFIG_BYTES) -> dict[str, Any] | None:
        data = files.head(path, most + 1)
        if data is None:
            return None
        if isinstance(data, CheckpointProblem):
            problems.append(data)
        elif len(data) > most:
            problems.append(CheckpointProblem(path, f"larger than {most >> 20} MiB"))
        else:
            try:
                return read_object(data)
            except BadJson as error:
                problems.append(CheckpointProblem(path, str(error)))
        return None

    config = json_of(CONFIG)
    if config is None:
        return Missing(f"{problems[0].file}: {problems[0].reason}" if problems else f"it has no {CONFIG}")
    index = json_of(INDEX, MOST_BYTES)
    headers = files.headers(weight_files(index, files.names(), most_files))
    hf_quant, generation = json_of("hf_quant_config.json"), json_of("generation_config.json")
    # The template has a file of its own in newer checkpoints, and is part of the tokenizer's config in older ones.
    found = files.head(_TEMPLATE, _MOST_TEMPLATE_BYTES)
    template = found.decode("utf-8", "replace") if isinstance(found, bytes) else None
    for name in ("chat_template.json", "tokenizer_config.json"):
        if template is None and (tokenizer := json_of(name)) is not None:
            template = template_in(tokenizer)

    whole = [header for header in headers if isinstance(header, SafetensorsHeader)]
    problems += [header for header in headers if isinstance(header, CheckpointProblem)]
    complete = bool(headers) and len(whole) == len(headers)
    tensors = [tensor for header in whole for tensor in header.tensors]
    weight_map = index.get("weight_map") if index else None
    named = list(map(str, weight_map)) if isinstance(weight_map, dict) and weight_map else None
    if named is None and complete:
        named = [tensor.name for tensor in tensors]
    beside = frozenset(files.names())
    facts = facts_from(
        config, hf_quant=hf_quant, generation=generation, tensor_names=named, files=beside, source=source
    )
    findings = [f"{problem.file}: {problem.reason}" for problem in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        findings.append(f"and {len(problems) - _MOST_PROBLEMS} more files")
    chat = None if template is None else abilities_of(template, facts.model_type)
    if tensors:
        weights = summarise(tensors, layers=facts.layers, complete=complete, form=facts.quantization)
        facts = replace(facts, weights=weights)
        findings += filter(None, (contradiction(facts, tensors),))
    return Ok(replace(facts, chat=chat, licence=licence, findings=(*facts.findings, *findings)))


def weight_files(index: Mapping[str, Any] | None, names: Iterable[str], most: int) -> list[str]:
    """The safetensors files that make up a checkpoint: those of the index, else those in its folder (`names`)."""
    found = index.get("weight_map") if index else None
    if isinstance(found, dict):
        named = {name for name in found.values() if isinstance(name, str)}
        return sorted(name for name in named if name and "/" not in name and name not in (".", ".."))[:most]
    plain = sorted(name for name in names if name.endswith(".safetensors") and "/" not in name)
    # A second, consolidated copy of the same weights (Mistral) is not counted.
    return ([name for name in plain if not name.startswith("consolidated")] or plain)[:most]
