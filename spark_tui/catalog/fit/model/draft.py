"""A preset for a model that has none: each value with its source, and what is uncertain."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from spark_tui.base.checkpoint import (
    PLAIN_THINK_PARSER,
    CheckpointFacts,
    KvSettings,
    ModelKind,
    WeightFormat,
    kv_layout,
)
from spark_tui.base.engine.container import ALL_INTERFACES
from spark_tui.base.engine.invocation import TOKENS, compact_json, parse
from spark_tui.base.engine.runtimes import format_readers, parsers_of, runtime_named
from spark_tui.base.errors import PresetError, RefusedError
from spark_tui.base.finding import NOT_READ_YET, Reading, reason_of, value_of
from spark_tui.base.host.memory import RESERVE_BYTES
from spark_tui.base.quantities import GIB, human_bytes
from spark_tui.base.shell import split_words
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.fit.model.fit import FEW_SEQUENCES, HOST_BYTES, RUNTIME_BYTES, SHORTEST
from spark_tui.catalog.models.model.config import facts_of, known_model
from spark_tui.catalog.models.model.gguf import PART
from spark_tui.catalog.models.model.inspection import SPARK_MEMORY
from spark_tui.catalog.models.model.store import is_gguf
from spark_tui.catalog.models.model.weights import format_in
from spark_tui.catalog.presets.model.dialects.importing import plain_name
from spark_tui.catalog.presets.model.dialects.recipe_files import Value, comment, node_of, yaml_text
from spark_tui.catalog.presets.model.overrides import speculation_of
from spark_tui.catalog.presets.model.preset import Origin, Preset
from spark_tui.catalog.presets.model.recipe import preset_from

CAUTIOUS_CONTEXT: Final = 32768
"""The context where it is unknown what fits."""
SHARE: Final = 0.85
"""In the file, for other tools: a launch works out its own."""
_OFFICIAL: Final = ("vllm/", "nvcr.io/nvidia/vllm")
"""Images that anyone can pull, and that serve more than one model."""
_QUANTS: Final = ("q4_k_m", "q4_k_xl", "mxfp4", "iq4", "q4", "q5", "q6", "q8")
"""GGUF quantizations by how well they suit one Spark, the best first."""

# What is no text model, where its own files do not say so: the card's tasks, architectures, files and names that do.
_OTHER_KINDS: Final = (
    (ModelKind.RERANKER, "text-ranking", "", "", r"rerank"),
    (ModelKind.EMBEDDING, "feature-extraction sentence-similarity", "", "modules.json",
     r"embed(?:ding)?s?\b|/(?:bge|e5|gte)-"),
    (ModelKind.SPEECH, "", "", "", r"\bwhisper-|-asr\b"),
    (ModelKind.DRAFTER, "", "", "", r"dflash|eagle3?\b|speculator|medusa"),
    ("a text classifier", "text-classification zero-shot-classification", r"ForSequenceClassification", "", ""),
    ("an encoder without text output", "fill-mask token-classification question-answering",
     r"For(?:MaskedLM|TokenClassification|QuestionAnswering)$", "", ""),
    ("an image or video generator", "text-to-image image-to-image text-to-video image-to-video", "", "model_index.json",
     ""),
    ("a speech model", "automatic-speech-recognition text-to-speech text-to-audio", r"^(?:Wav2Vec|Vits)", "",
     ""),
    ("an adapter (LoRA) without its base model", "", "", "adapter_config.json", ""),
    ("in MLX format, for Apple computers", "", "", "", r"^mlx-community/|-mlx(?:-|$)"),
)  # fmt: skip


_QWEN3_RERANKER: Final = compact_json(
    {
        "architectures": ["Qwen3ForSequenceClassification"],
        "classifier_from_token": ["no", "yes"],
        "is_original_qwen3_reranker": True,
    }
)


class DraftRefused(RefusedError, id="no_draft"):
    """No preset can be drafted."""


class DraftBasis(StrEnum):
    """Where a value is from."""

    CHECKPOINT = "checkpoint"
    CARD = "model card"
    FAMILY = "family"
    COMMAND = "container"
    DEFAULT = "default"


class DraftValue(Struct, frozen=True):
    """One value of a draft. `source` says more about its basis: the preset that it is taken from, the numbers behind
    it. `doubt` is why it is uncertain, empty where it is not."""

    key: str
    label: str
    text: str
    basis: DraftBasis
    source: str = ""
    doubt: str = ""


class DraftSource(Struct, frozen=True):
    """What is known of a model without a preset.

    `model` is what recipes call it. `folder` is where its files are within a container (those of another tool: on this
    machine), empty while it is not downloaded; `files` are relative to it, with their sizes. `file` is the GGUF file
    that was chosen. `task`, `base_models` and `weights` are the card's. `memory` is the machine's, in bytes.
    """

    model: str
    facts: Reading[CheckpointFacts] = NOT_READ_YET
    folder: str = ""
    files: Mapping[str, int | None] = field(default_factory=dict)
    file: str = ""
    task: str = ""
    base_models: tuple[str, ...] = ()
    weights: int | None = None
    licence: str = ""
    memory: int = SPARK_MEMORY

    @property
    def names(self) -> str:
        """All that it is called, for looking it up."""
        return " ".join((self.model, *self.base_models))


class Draft(Struct, frozen=True):
    """A preset that is not saved. `text` is its file; `notes` what a person should know before the launch."""

    preset: Preset
    text: str
    values: tuple[DraftValue, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.preset.name

    @property
    def doubts(self) -> tuple[DraftValue, ...]:
        return tuple(each for each in self.values if each.doubt)


def draft_of(source: DraftSource, presets: Sequence[Preset]) -> Draft:
    """A preset for a model, with what `presets` know of its family. Raises DraftRefused, whatever its files hold."""
    kind = kind_of(source)
    gguf, facts = gguf_file(source), value_of(source.facts)
    name = free_name(gguf if gguf.endswith(".gguf") else source.model, source.model, [each.name for each in presets])
    drafting = _Drafting(source, facts, presets, name, source.weights)
    if gguf and kind is not ModelKind.TEXT:
        raise DraftRefused(
            f"{clean_line(source.model)}: no preset for the kind {kind} in GGUF.",
            "Choose its safetensors for vLLM: spark-tui models search NAME",
        )
    if gguf:
        return drafting.gguf(gguf)
    if facts is None and (known := known_model(source.names)) is not None:
        return drafting.vllm(facts_of(known), f"{reason_of(source.facts)}: values by its name", kind)
    if facts is None or not facts.architecture:
        why = reason_of(source.facts) if facts is None else "its config.json names no architecture"
        raise DraftRefused(f"{clean_line(source.model)}: {why}.", "Download the model again, or choose another one.")
    check_format(source.model, facts)
    return drafting.vllm(facts, kind=kind)


def check_format(model: str, facts: CheckpointFacts) -> None:
    """Raises DraftRefused for weights in a format that vLLM does not read, and names what does."""
    method = facts.quant_method
    readers = format_readers(method) if method else None
    if not method or (readers is not None and "vllm" in readers.engines):
        return
    name, word = clean_line(model), clean_line(method)
    engines = [*(runtime_named(each).title for each in readers.engines), readers.others] if readers is not None else []
    by = " or ".join(filter(None, engines))
    why = f"vLLM does not read it; {by} does" if by else "no known engine reads it"
    family = posixpath.basename(name).partition("-")[0]
    raise DraftRefused(
        f"{name} is in the format {word}: {why}.",
        f"Choose another quantization of the model: spark-tui models search {shlex.quote(family)}",
    )


def kind_of(source: DraftSource) -> ModelKind:
    """What it gives back: by its own files, else by its card and name. Raises DraftRefused for what no engine here
    serves alone."""
    facts = value_of(source.facts)
    if facts is not None and facts.kind is not ModelKind.TEXT:
        return _servable(source.model, facts.kind, facts.kind_sign)
    architecture, files = facts.architecture if facts is not None else "", set(source.files)
    for what, tasks, architectures, marks, names in _OTHER_KINDS:
        signs = (
            ("task", source.task if source.task in tasks.split() else ""),
            ("architecture", architecture if architectures and re.search(architectures, architecture) else ""),
            (
                "file",
                next((mark for mark in marks.split() if mark in files and "config.json" not in files - {mark}), "")
                if marks == "adapter_config.json"
                else next((mark for mark in marks.split() if mark in files), ""),
            ),
            ("name", source.model if names and re.search(names, source.model, re.IGNORECASE) else ""),
        )
        sign = next(((label, text) for label, text in signs if text), None)
        if sign is not None:
            return _servable(source.model, what, f"{sign[0]} {truncate(clean_line(sign[1]), 80)}")
    return ModelKind.TEXT


def _servable(model: str, what: str, evidence: str) -> ModelKind:
    """An embedding model, a reranker or a speech-to-text model. Raises DraftRefused for anything else."""
    name = clean_line(model)
    if isinstance(what, ModelKind) and what is not ModelKind.DRAFTER:
        return what
    if what is ModelKind.DRAFTER:
        config = compact_json({"model": name, TOKENS: 4})
        raise DraftRefused(
            f"{name} is a drafter for speculative decoding ({evidence}).",
            f"Use it as the draft model of its target: spark-tui up PRESET --set speculative_config='{config}'",
        )
    raise DraftRefused(f"{name} is {what} ({evidence}).", "Choose a text or chat model.")


def gguf_file(source: DraftSource) -> str:
    """The GGUF file to serve: the chosen one, else the one that suits a Spark best; empty for other checkpoints."""
    if is_gguf(source.file):
        found = [name for name in source.files if name == source.file or fits_pattern(name, source.file)]
        return min(found, default=source.file)
    if any(name.endswith(".safetensors") and "/" not in name for name in source.files):
        return ""
    found = [name for name in source.files if name.endswith(".gguf") and "mmproj" not in name.lower()]
    firsts = [name for name in found if PART.search(name) is None or "-00001-of-" in name]

    def rank(name: str) -> tuple[int, str]:
        return next((at for at, quant in enumerate(_QUANTS) if quant in name.lower()), len(_QUANTS)), name

    return min(firsts, key=rank, default="")


def fits_pattern(name: str, pattern: str) -> bool:
    """Whether a part of a split file is meant: `MODEL-*.gguf`."""
    head, star, tail = pattern.partition("*")
    return bool(star) and name.startswith(head) and name.endswith(tail)


def free_name(text: str, model: str, taken: Iterable[str]) -> str:
    """A preset's name for a model: its own, then with its publisher, then with a number."""
    names = set(taken)
    own = plain_name(PART.sub("", posixpath.basename(text)).removesuffix(".gguf")).lower()
    owner = plain_name(model.split("/")[0]).lower() if "/" in model.lstrip("/") else "2"
    for candidate in (own, f"{own[: 62 - len(owner)]}-{owner}", *(f"{own[:58]}-{number}" for number in range(2, 1000))):
        if candidate not in names:
            return candidate
    return own


# --- the family -------------------------------------------------------------------------------------------


def _plain(text: str) -> str:
    return re.sub(r"[\s_.-]", "", text.lower())


def _format(words: str | CheckpointFacts | None) -> WeightFormat | None:
    """The main format; NVFP4 with and without quantized activations are one here."""
    found: WeightFormat | None
    if isinstance(words, CheckpointFacts):
        formats = words.quantization.formats if words.quantization is not None else ()
        found = formats[0] if formats else format_in(words.dtype)
    else:
        found = format_in(words) if words else None
    return WeightFormat.NVFP4 if found is WeightFormat.NVFP4_W4A16 else found


def relative_of(source: DraftSource, facts: CheckpointFacts | None, presets: Iterable[Preset]) -> Preset | None:
    """The vLLM preset that is nearest: the same model in another build, else one of its family, the same format
    first."""
    known, form = known_model(source.names), _format(facts) or format_in(source.model)
    called = _plain(f"{source.names} {facts.model_type if facts is not None else ''}")
    short = _plain(posixpath.basename(source.model))
    best: tuple[tuple[bool, bool, int], Preset] | None = None
    for preset in presets:
        family = _plain(preset.facts.family)
        same = known is not None and known_model(f"{preset.model} {preset.facts.title}") is known
        if preset.engine != "vllm" or preset.hooks or preset.mods or not preset.image.startswith(_OFFICIAL):
            continue
        if not same and (not family or family not in called):
            continue
        near = len(posixpath.commonprefix((_plain(posixpath.basename(preset.model)), short)))
        score = (same, form is not None and _format(preset.facts.quantization) is form, near)
        if best is None or score > best[0]:
            best = score, preset
    return best[1] if best is not None else None


def usual_preset(presets: Iterable[Preset]) -> Preset | None:
    """One with the vLLM image that most presets use."""
    found = [each for each in presets if each.engine == "vllm" and each.image.startswith(_OFFICIAL)]
    images = Counter(each.image for each in found)
    return max(found, key=lambda each: images[each.image], default=None)


# --- the draft --------------------------------------------------------------------------------------------


class _Drafting(Struct):
    """One draft on its way: values as they are found, then the file."""

    source: DraftSource
    facts: CheckpointFacts | None
    presets: Sequence[Preset]
    name: str
    weights: int | None
    values: list[DraftValue] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def say(
        self,
        key: str,
        label: str,
        text: str,
        basis: DraftBasis = DraftBasis.CHECKPOINT,
        source: str = "",
        doubt: str = "",
    ) -> None:
        self.values.append(DraftValue(key, label, text, basis, source, doubt))

    def vllm(self, facts: CheckpointFacts, unread: str = "", kind: ModelKind = ModelKind.TEXT) -> Draft:
        """`unread` is why the facts are not the checkpoint's own."""
        relative = relative_of(self.source, facts, self.presets)
        same = (
            relative is not None
            and known_model(self.source.names) is not None
            and (known_model(f"{relative.model} {relative.facts.title}") is known_model(self.source.names))
        )
        pattern = relative or usual_preset(self.presets)
        if pattern is None:
            raise DraftRefused("No vLLM preset is readable: the image is unknown.", "Check: spark-tui presets list")
        basis = DraftBasis.FAMILY if relative is not None else DraftBasis.DEFAULT
        doubt = "" if relative is not None else "no preset of this family: the image may not know the architecture"
        self.say("runtime", "engine", "vLLM", source=facts.architecture or facts.model_type, doubt=unread)
        self.say("container", "image", pattern.image, basis, pattern.name if relative is not None else "", doubt)
        defaults: dict[str, Value] = {"port": 8000, "host": ALL_INTERFACES, "gpu_memory_utilization": SHARE}
        words = ["--host {host} --port {port}", "--gpu-memory-utilization {gpu_memory_utilization}"]
        for key, option, value in self._sizes(facts, FEW_SEQUENCES if kind is ModelKind.TEXT else None):
            defaults[key] = value
            words.append(f"--{option} {{{key}}}")
        self._quantization(facts, words)
        if kind is ModelKind.SPEECH:
            doubt = "the image may be without vLLM's packages for sound: vllm[audio]"
            self.say("runner", "serves", "transcriptions", source=facts.kind_sign, doubt=doubt)
        elif kind is not ModelKind.TEXT:
            self._pooling(facts, kind, words)
        else:
            self._parsers(facts, words)
            if config := self._speculation(facts, relative if same else None):
                defaults["speculative_config"] = config
                words.append("--speculative-config '{speculative_config}'")
        if facts.custom_code:
            words.append("--trust-remote-code")
            self.say("trust_remote_code", "custom code", "on", doubt="runs Python code from the model's repository")
        env: dict[str, Value] = {}
        if same and relative is not None and _format(relative.facts.quantization) is _format(facts):
            env = dict(relative.env)
            if env:
                self.say("env", "environment", f"{len(env)} variables", DraftBasis.FAMILY, relative.name)
        return self._built(
            "vllm",
            pattern.image,
            self.source.model,
            defaults,
            "vllm serve {model} \\\n  " + " \\\n  ".join(words),
            env=env,
            entrypoint=pattern.options.entrypoint,
        )

    def gguf(self, file: str) -> Draft:
        """For llama.cpp, as the preset that serves one."""
        pattern = next((each for each in self.presets if each.engine == "llama-cpp"), None)
        if pattern is None:
            raise DraftRefused(
                "No llama.cpp preset is readable: the image is unknown.", "Check: spark-tui presets list"
            )
        source = self.source
        others = [each for each in source.files if each.endswith(".gguf") and "mmproj" not in each.lower()]
        parts = [each for each in others if PART.sub("", each) == PART.sub("", file)] or [file]
        sizes = [source.files.get(each) for each in parts]
        self.weights = None if None in sizes else sum(size or 0 for size in sizes)
        more = len(others) - len(parts)
        doubt = f"{more} more GGUF files in this model" if more > 0 and not source.file else ""
        self.say("runtime", "engine", "llama.cpp", DraftBasis.CHECKPOINT, "GGUF")
        self.say("container", "image", pattern.image, DraftBasis.FAMILY, pattern.name)
        self.say("file", "file", posixpath.basename(file), DraftBasis.CHECKPOINT, doubt=doubt)
        known = known_model(f"{source.names} {file}")
        facts = self.facts or (facts_of(known) if known is not None else CheckpointFacts())
        if facts.quantization is not None and self.facts is not None:
            self.say("quantization", "weights", facts.quantization.words)
        defaults: dict[str, Value] = {
            "port": 8080,
            "host": ALL_INTERFACES,
            "served_model_name": self.name,
            "n_gpu_layers": 99,
            "threads": 8,
        }
        words = ["--alias {served_model_name} --host {host} --port {port}", "--n-gpu-layers {n_gpu_layers}"]
        spelled = {"max_model_len": "ctx-size", "max_num_seqs": "parallel"}
        for key, option, value in self._sizes(facts, 1):
            defaults[key] = value
            words.append(f"--{spelled.get(key, option)} {{{key}}}")
        words.append("--threads {threads} --jinja --metrics")
        required: list[Value] = []
        model = f"{source.folder}/{file}"
        if not source.folder:
            model = f"/models/{posixpath.basename(file)}"
            required = [
                {"target": posixpath.basename(each), "repo": source.model, "file": each} for each in sorted(parts)
            ]
        command = "llama-server --model {model} \\\n  " + " \\\n  ".join(words)
        return self._built("llama-cpp", pattern.image, model, defaults, command, required=required)

    def _sizes(self, facts: CheckpointFacts, named: int | None) -> Iterator[tuple[str, str, int]]:
        """Context and concurrent requests: the config's own length, or what fits into an idle machine. `named` None
        leaves the requests to the engine."""
        sequences = named or 1
        most, kv = facts.max_position_embeddings, kv_layout(facts, KvSettings())
        whole = facts.weights is not None and facts.weights.complete
        weights = facts.weights.size if facts.weights is not None and whole else self.weights
        context, source, doubt = most, "the config's maximum", ""
        if most is None:
            doubt = "the config names no maximum"
            context = None if self.facts is not None else CAUTIOUS_CONTEXT
        elif kv is None or weights is None:
            context, source = min(most, CAUTIOUS_CONTEXT), f"of {most:,}"
            doubt = "KV cache size unknown" if kv is None else "size of the weights unknown"
        else:
            room = self.source.memory - weights - RESERVE_BYTES - RUNTIME_BYTES - HOST_BYTES
            fits = kv.longest(max(0, room) // sequences, most)
            if fits < most:
                context = min(most, max(SHORTEST, fits // 1024 * 1024))
                source = f"of {most:,}: {sequences} of it fit beside {human_bytes(weights)} of weights"
            if room <= 0:
                doubt = f"{human_bytes(weights)} of weights do not fit in {human_bytes(self.source.memory)}"
        text = "the model's own" if context is None else f"{context:,} tokens"
        self.say(
            "max_model_len",
            "context",
            text,
            DraftBasis.CHECKPOINT if most else DraftBasis.DEFAULT,
            source if most else "",
            doubt,
        )
        if context is not None:
            yield "max_model_len", "max-model-len", context
        if named is not None:
            self.say("max_num_seqs", "streams", str(named), DraftBasis.DEFAULT)
        self.say("gpu_memory_utilization", "memory share", "auto", DraftBasis.DEFAULT, "from context and streams")
        if named is not None:
            yield "max_num_seqs", "max-num-seqs", named

    def _pooling(self, facts: CheckpointFacts, kind: ModelKind, words: list[str]) -> None:
        """Vectors or scores instead of text (vLLM 0.10.1: --runner and --convert). A reranker that is a language model
        answers by two of its tokens, which vLLM is given: those of Qwen3 are published."""
        language = facts.architecture.endswith(("ForCausalLM", "ForConditionalGeneration"))
        words.append("--runner pooling")
        source = facts.kind_sign or "card or name"
        if language and kind is ModelKind.EMBEDDING:
            words.append("--convert embed")
        elif language and facts.model_type == "qwen3":
            words.append(f"--hf-overrides '{_QWEN3_RERANKER}'")
        elif language:
            raise DraftRefused(
                f"{clean_line(self.source.model)} is a reranker whose yes and no tokens are unknown.",
                "Choose a reranker with a classification head, or Qwen3-Reranker: spark-tui models search reranker",
            )
        self.say("runner", "serves", "vectors" if kind is ModelKind.EMBEDDING else "scores", source=source)

    def _quantization(self, facts: CheckpointFacts, words: list[str]) -> None:
        """The flag for ModelOpt's formats only, which some images misread without it; vLLM finds all others."""
        form = facts.quantization
        if form is None or not form.method:
            named = format_in(self.source.model)
            if form is None and named is not None:
                self.say("quantization", "weights", named.value, DraftBasis.CARD, "its name", "the config was not read")
            else:
                doubt = "" if form is not None else "the checkpoint does not say"
                text = facts.dtype or "not quantized" if self.facts is not None else "unknown"
                self.say("quantization", "weights", text, doubt=doubt)
            return
        modelopt = form.method.startswith("modelopt")
        mixed = modelopt or form.method == "compressed-tensors"
        unread = mixed and (WeightFormat.OTHER in form.formats or not form.formats)
        doubt = "format unknown to spark-tui" if unread else ""
        if modelopt:
            words.append("--quantization modelopt")
        flag = "--quantization modelopt" if modelopt else "" if unread else "no flag needed"
        self.say("quantization", "weights", form.words, source=flag, doubt=doubt)

    def _parsers(self, facts: CheckpointFacts, words: list[str]) -> None:
        """By the chat template's own markers, else by the family."""
        chat = facts.chat
        family = parsers_of(self.source.names) or parsers_of(facts.architecture) or (None, None)
        found = (
            (
                "tool_calls",
                "tool calls",
                chat.tool_parser if chat is not None else "",
                family[0],
                "--enable-auto-tool-choice --tool-call-parser",
                chat is None or chat.tools,
            ),
            (
                "reasoning_parser",
                "reasoning",
                chat.reasoning_parser if chat is not None else "",
                family[1],
                "--reasoning-parser",
                chat is None or chat.thinking,
            ),
        )
        for key, label, own, usual, option, able in found:
            # The family's parser is nearer than one that reads the tags of any model.
            seen = bool(own) and not (own == PLAIN_THINK_PARSER and usual)
            parser = own if seen else (usual or "" if able else "")
            if parser:
                words.append(f"{option} {parser}")
                basis = DraftBasis.CHECKPOINT if seen else DraftBasis.FAMILY
                doubt = "" if own else "not seen in a chat template"
                self.say(key, label, parser, basis, "chat template" if seen else "", doubt)
            elif chat is not None and able:
                self.say(key, label, "off", source="chat template", doubt="parser unknown")
            elif chat is not None:
                self.say(key, label, "off", source="not in the chat template")
        if chat is None and self.facts is not None:
            self.say("chat_template", "chat template", "none", doubt="a base model, or the template is missing")

    def _speculation(self, facts: CheckpointFacts, relative: Preset | None) -> str:
        """The model's own MTP layers where their weights are there; a known drafter is only named."""
        if facts.mtp_layers:
            own = dict(relative.defaults).get("speculative_config") if relative is not None else None
            if isinstance(own, str) and '"mtp"' in own and relative is not None:
                self.say("speculation", "drafting", "MTP", DraftBasis.FAMILY, relative.name)
                return own
            self.say("speculation", "drafting", "MTP, 1 token", source=f"{facts.mtp_layers} MTP layers")
            return compact_json({"method": "mtp", TOKENS: 1})
        if facts.mtp_declared and facts.mtp_layers is None:
            self.say("speculation", "drafting", "off", doubt="MTP layers declared, their weights are unknown")
        known = known_model(self.source.names)
        for preset in self.presets if known is not None else ():
            if known_model(f"{preset.model} {preset.facts.title}") is known and (drafter := _drafter(preset)):
                self.notes.append(f"A drafter for this model is known: {drafter} (preset {preset.name}).")
                break
        return ""

    def _built(
        self,
        runtime: str,
        image: str,
        model: str,
        defaults: Mapping[str, Value],
        command: str,
        *,
        env: Mapping[str, Value] | None = None,
        entrypoint: str | None = None,
        required: Sequence[Value] = (),
    ) -> Draft:
        """The file, and the preset that it reads as."""
        facts, source = self.facts or CheckpointFacts(), self.source
        form = facts.quantization.words if facts.quantization is not None and facts.quantization.method else facts.dtype
        weights = facts.weights.size if facts.weights is not None and facts.weights.complete else self.weights
        title, owner = clean_line(posixpath.basename(source.model)), source.model.strip("/").split("/")[0]
        cautions: list[Value] = [f"{each.label}: {each.doubt}" for each in self.values if each.doubt]
        own: dict[str, Value] = {
            "title": title,
            "publisher": "" if source.model.startswith("/") or ":" in source.model else clean_line(owner),
            "licence": clean_line(facts.licence or source.licence),
            "architecture": clean_line(facts.architecture),
            "weights": f"{weights / GIB:.2f}GiB" if weights else "",
            "context": facts.max_position_embeddings or "",
            "modalities": list(facts.modalities),
            "quantization": clean_line(form),
            "source": "drafted by spark-tui from the checkpoint's own files",
            "notes": list(self.notes),
            "cautions": cautions,
            "required_files": list(required),
            "sampling": dict(facts.sampling),
        }
        document: dict[str, Value] = {"recipe_version": "2", "model": model, "runtime": runtime, "container": image}
        if entrypoint is not None:
            document["executor_config"] = {"entrypoint": entrypoint}
        document["metadata"] = {
            "description": f"Drafted from {clean_line(source.model)}; not measured.",
            "spark_tui": {key: value for key, value in own.items() if value not in ("", [], {})},
        }
        document["defaults"] = dict(defaults)
        if env:
            document["env"] = dict(env)
        document["command"] = command + "\n"
        node = node_of(document)
        try:
            preset = preset_from(node, name=self.name, origin=Origin.USER, file="")
        except PresetError as error:
            raise DraftRefused(f"{clean_line(source.model)}: {error.summary}", error.remedy) from None
        return Draft(preset, header(source.model, self.values) + yaml_text(node), tuple(self.values), tuple(self.notes))


def header(model: str, values: Iterable[DraftValue]) -> str:
    """The file's comment: where it is from, and the source of each value."""
    lines = [f"Drafted by spark-tui for {model}. Values and their sources:"]
    for each in values:
        source = f" ({each.source})" if each.source else ""
        doubt = f"; uncertain: {each.doubt}" if each.doubt else ""
        lines.append(f"  {each.label}: {each.text}, {each.basis}{source}{doubt}")
    return comment(tuple(truncate(clean_line(line), 300) for line in lines))


def _drafter(preset: Preset) -> str:
    """The second checkpoint that a preset drafts with; empty without one."""
    config = dict(preset.defaults).get("speculative_config")
    words = split_words(preset.command) if preset.command else ()
    argv = (*words, *(("--speculative-config", config) if isinstance(config, str) else ()))
    found = speculation_of(parse(argv, preset.engine), dict(preset.env))
    return clean_line(found.drafter) if found is not None else ""
