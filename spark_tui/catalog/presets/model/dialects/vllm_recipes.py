"""vLLM's own recipes (vllm-project/recipes): the YAML of its repository, and the JSON that is published from it.

The JSON has a whole command as words, with its environment and image, for one hardware. The YAML has the parts that
such a command is put together from, for each variant of a model. Both become a container's words: no shell text is
read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from spark_tui.base.engine.container import ContainerSpec, EnvVar, Gpus, PublishedPort
from spark_tui.base.engine.invocation import parse
from spark_tui.base.errors import UsageError
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.presets.model.dialects.docker_run import from_spec
from spark_tui.catalog.presets.model.dialects.recipe_files import (
    EMPTY,
    ConvertedRecipe,
    Value,
    scalar,
    sub_table,
    with_value,
)
from spark_tui.catalog.presets.model.preset import ListValue, MappingValue, Node, ScalarValue
from spark_tui.catalog.presets.model.recipe import OWN_KEY

HARDWARE: Final = "dgx_spark_gb10"
"""The DGX Spark's profile in `taxonomy.yaml`, and the kinds of hardware that it is, the narrowest first."""
_KINDS: Final = ("blackwell", "nvidia")
MEMORY_GB: Final = 128
_STRATEGY: Final = "single_node_tp"
"""The only one for a single GPU."""
_DEFAULT: Final = "default"
_IMAGE: Final = "vllm/vllm-openai"
_CUDA: Final = ("cu130", "cu129")
_COUNT: Final = re.compile(r"\d+(\.\d+)?[KMBT]")
_LOCAL: Final = "127.0.0.1"


def names_spark(document: MappingValue) -> bool:
    """Whether a recipe of that repository names the DGX Spark, or a published command is for it."""
    if document.get("variants") is not None:
        listed = scalar(sub_table(sub_table(document, "meta"), "hardware"), HARDWARE)
        return listed is not None and listed != "unsupported"
    return scalar(document, "hardware") == HARDWARE


def variants_of(document: MappingValue) -> tuple[str, ...]:
    """The variants that one Spark can hold, the recipe's own first; none for a published command."""
    return tuple(
        entry.key
        for entry in sub_table(document, "variants").entries
        if isinstance(entry.node, MappingValue) and not _why_not(entry.node)
    )


def from_vllm(document: MappingValue, variant: str = "") -> ConvertedRecipe:
    """The recipe of a published command, or of one variant of a recipe. Raises UsageError for what one Spark cannot
    run."""
    command = sub_table(document, "recommended_command") if document.get("recommended_command") else document
    if command is document and document.get("variants") is not None:
        return _from_parts(document, variant)
    hardware = clean_line(str(scalar(command, "hardware") or "an unknown machine"))[:40]
    if hardware != HARDWARE:
        raise UsageError(
            f"This command is for {hardware}, not for the DGX Spark ({HARDWARE}).",
            f"Use the published file hw/{HARDWARE}.json of that model.",
        )
    nodes = scalar(command, "node_count")
    argv = _texts(command, "argv")
    if not argv or (isinstance(nodes, int) and nodes > 1):
        kind = clean_line(str(scalar(command, "deploy_type") or ""))[:40]
        raise UsageError(
            f"This command is for {nodes or 'several'} nodes ({kind or 'unknown kind'}).",
            "Use one with deploy_type single_node.",
        )
    env = {entry.key: entry.node for entry in sub_table(command, "env").entries}
    image = scalar(command, "docker_image")
    model = clean_line(str(scalar(document, "hf_id") or (argv[2:3] or ("",))[0]))
    return _made(document, argv, env, str(image or ""), model, str(scalar(command, "variant") or ""))


def _from_parts(document: MappingValue, variant: str) -> ConvertedRecipe:
    if not names_spark(document):
        raise UsageError(f"This recipe does not name the DGX Spark ({HARDWARE}).", "Use another model's recipe.")
    if "omni" in _texts(sub_table(document, "meta"), "tasks"):
        raise UsageError("This recipe is for vLLM-Omni, which makes images and sound.", "Use a recipe of a text model.")
    fitting = variants_of(document)
    variant = variant or (fitting[0] if fitting else _DEFAULT)
    chosen = sub_table(sub_table(document, "variants"), variant)
    if why := _why_not(chosen):
        raise UsageError(f"One Spark cannot hold this model: {why}.", "Use a recipe of a smaller model.")
    model, here = sub_table(document, "model"), _for(chosen, HARDWARE)
    strategy = sub_table(sub_table(document, "strategy_overrides"), _STRATEGY)
    kind = _for(strategy, *_KINDS)
    layers = (
        chosen,
        here,
        strategy,
        *((kind,) if kind.entries else (_for(document, *_KINDS), _for(chosen, *_KINDS))),
        _for(strategy, HARDWARE),
    )
    words = list(_texts(model, "base_args"))
    for layer in layers:
        words += (*_texts(layer, "extra_args"), *_texts(layer, "vllm_args"))
    for feature in _features(document, variant, chosen):
        words += feature
    tables = (sub_table(model, "base_env"), *(sub_table(each, key) for each in layers for key in ("extra_env", "env")))
    env = {entry.key: entry.node for table in tables for entry in table.entries}
    name = str(scalar(chosen, "model_id") or scalar(model, "model_id") or "")
    argv = ("vllm", "serve", name, *_last_of_each(tuple(words)))
    return _made(document, argv, env, _image(model, chosen, here), name, variant)


def _why_not(variant: MappingValue) -> str:
    """Why one Spark cannot run a variant; empty where it can."""
    needed = scalar(variant, "vram_minimum_gb")
    only, precision = _texts(variant, "supported_hardware"), sub_table(variant, "precision_hardware")
    if isinstance(needed, (int, float)) and needed > MEMORY_GB:
        return f"it needs {needed:g} GB"
    if only and HARDWARE not in only:
        return "it is for other hardware"
    brand, generation = (scalar(precision, key) for key in ("brand", "generation"))
    return "it is for other hardware" if (brand or "NVIDIA", generation or _KINDS[0]) != ("NVIDIA", _KINDS[0]) else ""


def _features(document: MappingValue, variant: str, chosen: MappingValue) -> Iterator[tuple[str, ...]]:
    """The words of each feature that is on without being asked for."""
    asked = (*_texts(document, "opt_in_features"), *_texts(sub_table(document, "hardware_opt_in_features"), HARDWARE))
    forced = {entry.key for entry in sub_table(chosen, "default_modes").entries}
    for entry in sub_table(document, "features").entries:
        feature = entry.node if isinstance(entry.node, MappingValue) else EMPTY
        strategies = _texts(feature, "strategies")
        off = scalar(sub_table(feature, "hardware"), HARDWARE) == "unsupported"
        if off or (entry.key in asked and entry.key not in forced) or (strategies and _STRATEGY not in strategies):
            continue
        modes = {
            each.key: each.node
            for each in sub_table(feature, "modes").entries
            if isinstance(each.node, MappingValue) and _allowed(each.node, variant)
        }
        if modes:
            wanted = (scalar(sub_table(chosen, "default_modes"), entry.key), scalar(feature, "default_mode"))
            feature = next((modes[str(key)] for key in wanted if key in modes), next(iter(modes.values())))
        over = _for(feature, HARDWARE, *_KINDS)
        yield _texts(over if over.get("args") else feature, "args")


def _allowed(mode: MappingValue, variant: str) -> bool:
    of, hardware = _texts(mode, "variants"), sub_table(mode, "hardware")
    return (not of or variant in of) and all(scalar(hardware, key) != "unsupported" for key in (HARDWARE, *_KINDS))


def _for(table: MappingValue, *kinds: str) -> MappingValue:
    """What a part says for the first of these kinds of hardware; empty where it says nothing."""
    overrides = sub_table(table, "hardware_overrides")
    return next((sub_table(overrides, kind) for kind in kinds if sub_table(overrides, kind).entries), EMPTY)


def _image(model: MappingValue, variant: MappingValue, here: MappingValue) -> str:
    for table in (here, variant, model):
        entry = table.get("docker_image")
        node = entry.node if entry is not None else None
        if isinstance(node, MappingValue):
            node = (node.get("nvidia") or entry).node if entry is not None else node
        if isinstance(node, MappingValue):
            node = next((found.node for key in _CUDA if (found := node.get(key)) is not None), None)
        if isinstance(node, ScalarValue) and node.value:
            return str(node.value)
    return f"{_IMAGE}:{'nightly' if scalar(model, 'nightly_required') is True else 'latest'}"


def _last_of_each(words: tuple[str, ...]) -> tuple[str, ...]:
    """Of an option that is given several times the last, as vLLM takes it."""
    arguments = parse(words).arguments
    last = {(each.key, each.path): at for at, each in enumerate(arguments)}
    kept = (each for at, each in enumerate(arguments) if not each.key or last[each.key, each.path] == at)
    return tuple(word for each in kept for word in each.words)


def _texts(table: MappingValue, key: str) -> tuple[str, ...]:
    entry = table.get(key)
    items = entry.node.items if entry is not None and isinstance(entry.node, ListValue) else ()
    return tuple(str(item.value) for item in items if isinstance(item, ScalarValue) and item.value is not None)


def _made(
    document: MappingValue, argv: tuple[str, ...], env: Mapping[str, Node], image: str, model: str, variant: str
) -> ConvertedRecipe:
    """The recipe of a command, with what the file says of the model."""
    values = {key: str(node.value) for key, node in env.items() if isinstance(node, ScalarValue)}
    for key, value in values.items():
        if value.startswith("$"):
            raise UsageError(
                f"{clean_line(key)} is {clean_line(value)[:60]}, which only your network can say.",
                "Write its value into the file.",
            )
    port = int(parse(argv).number("port") or 8000)
    spec = ContainerSpec(
        "",
        image,
        argv,
        env=tuple(EnvVar(key, value) for key, value in values.items()),
        ports=(PublishedPort(port, port, _LOCAL),),
        gpus=Gpus(),
    )
    converted = from_spec(spec)
    meta, about = sub_table(document, "meta"), sub_table(document, "model")
    chosen = sub_table(sub_table(document, "variants"), variant)
    table = converted.document
    metadata = sub_table(table, "metadata")
    own = sub_table(metadata, OWN_KEY)
    counts = (
        (key, str(scalar(about, of) or ""))
        for key, of in (("total_parameters", "parameter_count"), ("active_parameters", "active_parameters"))
    )
    context = scalar(about, "context_length")
    needs = scalar(chosen, "min_vllm_version") or scalar(about, "min_vllm_version")
    facts: dict[str, Value] = {
        "publisher": str(scalar(meta, "provider") or ""),
        **{key: text for key, text in counts if _COUNT.fullmatch(text)},
        "context": context if isinstance(context, int) and context > 0 else None,
        "quantization": str(scalar(chosen, "precision") or ""),
        "modalities": ["text", "image"] if "multimodal" in _texts(meta, "tasks") else [],
        "source": "vLLM's recipes (vllm-project/recipes)",
        "notes": [f"Needs vLLM {needs} or newer."] if needs else [],
    }
    for key, fact in facts.items():
        own = with_value(own, key, fact) if fact else own
    table = with_value(table, "metadata", with_value(metadata, OWN_KEY, own))
    title = " ".join(filter(None, (str(scalar(meta, "title") or ""), variant if variant != _DEFAULT else "")))
    for key, text in (("name", title), ("description", str(scalar(meta, "description") or ""))):
        table = with_value(table, key, truncate(clean_line(text), 300)) if scalar(meta, "title") and text else table
    return replace(converted, document=table, name=posixpath.basename(model.rstrip("/")))
