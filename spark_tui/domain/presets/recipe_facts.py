"""The `metadata` of a recipe: sparkrun's own keys, and ours under `metadata.spark_tui`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.presets.located import Leaf, Reader, compact
from spark_tui.domain.presets.preset import PresetFacts, PublishedSpeed, RequiredFile, RequiredStep, Scalar
from spark_tui.domain.text import clean

OWN_KEY: Final = "spark_tui"
IMPORTED_KEY: Final = "imported"
"""What an imported recipe was before, for the way back."""

_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMBT]?)", re.IGNORECASE)
_COUNT_FACTORS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_FILE = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9._/+-]*")
_URL = re.compile(r"https://[A-Za-z0-9.-]+/[A-Za-z0-9._~/%+-]+")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|[KMGT]i?B)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The facts, the extra mounts that the same block states, and the keys that we do not use."""

    facts: PresetFacts
    mounts: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()


def metadata_from(metadata: Reader, description: str, name: str) -> Metadata:
    """Reads the block. `name` and `description` are the recipe's own top-level keys, empty when absent."""
    own = metadata.sub(OWN_KEY)
    own.entry(IMPORTED_KEY)
    quantization, dtype = _label(metadata, "quantization"), _label(metadata, "model_dtype")
    facts = PresetFacts(
        title=_text(own, "title") or clean(name),
        description=clean(description) or _label(metadata, "description"),
        category=_label(metadata, "category"),
        family=_text(own, "family"),
        publisher=_text(own, "publisher"),
        licence=_text(own, "licence"),
        gated=own.boolean("gated"),
        architecture=_text(own, "architecture"),
        total_parameters=_first(_count(own, "total_parameters"), parse_count(_label(metadata, "model_params"))),
        active_parameters=_count(own, "active_parameters"),
        weights_bytes=_size(own, "weights"),
        context_tokens=own.integer("context", 1, 1_000_000_000),
        modalities=_texts(own, "modalities"),
        quantization=_text(own, "quantization") or quantization or dtype,
        source=_text(own, "source"),
        notes=_texts(own, "notes"),
        cautions=_texts(own, "cautions"),
        sampling=_scalars(own.sub("sampling")),
        published=tuple(filter(None, map(_published, own.subs("published")))),
        required_files=tuple(filter(None, map(_required_file, own.subs("required_files")))),
        required_steps=tuple(filter(None, map(_required_step, own.subs("required_steps")))),
        image_digest=_digest(own),
        runs_as_is=bool(own.boolean("runs_as_is")),
        wants_key=bool(own.boolean("wants_key")),
    )
    mounts = own.texts("mounts")
    return Metadata(facts, mounts, (*metadata.unused(), *own.unused()))


def parse_count(text: str) -> float | None:
    """Parameter counts as people write them: `35B`, `0.26 M`. None when it is none."""
    match = _COUNT.fullmatch(text.strip())
    return float(round(float(match[1]) * _COUNT_FACTORS[match[2].upper()])) if match else None


def parse_size(text: str) -> int | None:
    """Sizes as model cards write them: `19GB` is 19 * 1000^3 bytes, `18 GiB` is 18 * 1024^3. None when it is none."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    unit = match[2].upper()
    power = " KMGT".index(unit[0]) if len(unit) > 1 else 0
    return int(float(match[1]) * float((1024 if "I" in unit else 1000) ** power))


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _label(metadata: Reader, key: str) -> str:
    """A key of sparkrun's. Published recipes hold prose in them: what cannot be read is absent, never a mistake."""
    entry = metadata.entry(key)
    return clean(compact(entry.node)) if entry is not None and isinstance(entry.node, Leaf) else ""


def _text(reader: Reader, key: str) -> str:
    return clean(reader.text(key, numbers=True))


def _texts(reader: Reader, key: str) -> tuple[str, ...]:
    return tuple(clean(text) for text in reader.texts(key))


def _count(reader: Reader, key: str) -> float | None:
    text = reader.text(key, numbers=True, example=f"{key}: 35B")
    if not text:
        return None
    count = parse_count(text)
    if count is None:
        reader.complain(
            reader.line(key), f"`{reader.name(key)}` is not a parameter count.", f"Write for example: {key}: 35B"
        )
    return count


def _size(reader: Reader, key: str) -> int | None:
    text = reader.text(key, example=f"{key}: 19GB")
    if not text:
        return None
    size = parse_size(text)
    if size is None:
        reader.complain(reader.line(key), f"`{reader.name(key)}` is not a size.", f"Write for example: {key}: 19GB")
    return size


def _scalars(reader: Reader) -> tuple[tuple[str, Scalar], ...]:
    pairs: list[tuple[str, Scalar]] = []
    for entry in reader.table.entries:
        if isinstance(entry.node, Leaf):
            pairs.append((entry.key, entry.node.value))
        else:
            reader.expected(entry.key, entry, "a plain value", f"{entry.key}: 1.0")
    return tuple(pairs)


def _published(reader: Reader) -> PublishedSpeed | None:
    speed = reader.number("tokens_per_second", positive=True)
    conditions, source = _text(reader, "conditions"), _text(reader, "source")
    if speed is None or not source:
        _needs(reader, "tokens_per_second", "source")
        return None
    return PublishedSpeed(speed, conditions, source)


def _required_file(reader: Reader) -> RequiredFile | None:
    target, repo, file, url = (_text(reader, key) for key in ("target", "repo", "file", "url"))
    for_chat = bool(reader.boolean("for_chat"))
    if not target or bool(repo) == bool(url):
        _needs(reader, "target", *(() if url else ("repo",)))
        if repo and url:
            reader.complain(reader.line("url"), "A required file is on the Hub or elsewhere, not both.", "Keep one.")
        return None
    if target.startswith("/") or ".." in target.split("/"):
        reader.complain(
            reader.line("target"),
            f"`{reader.name('target')}` leaves the model store.",
            "Name a place below the store's root.",
        )
        return None
    named = (("repo", repo, _REPO), ("file", file, _FILE), ("target", target, _FILE), ("url", url, _URL))
    wrong = next((key for key, text, pattern in named if text and pattern.fullmatch(text) is None), "")
    if wrong:
        reader.complain(
            reader.line(wrong),
            f"`{reader.name(wrong)}` cannot be used in the command that fetches it.",
            "Write a plain name, or an https address, without blanks or shell characters.",
        )
        return None
    return RequiredFile(target, repo, file, url, for_chat)


def _required_step(reader: Reader) -> RequiredStep | None:
    summary, command = _text(reader, "summary"), _text(reader, "command")
    if not (summary and command):
        _needs(reader, "summary", "command")
        return None
    return RequiredStep(summary, command)


def _digest(reader: Reader) -> str:
    digest = _text(reader, "image_digest")
    if digest and _DIGEST.fullmatch(digest) is None:
        reader.complain(
            reader.line("image_digest"),
            f"`{reader.name('image_digest')}` is not a digest.",
            "Write sha256: and 64 hexadecimal digits, as docker images --digests shows it.",
        )
        return ""
    return digest


def _needs(reader: Reader, *keys: str) -> None:
    for key in keys:
        if reader.table.get(key) is None:
            reader.complain(
                reader.table.line, f"`{reader.name(key)}` is missing.", "Add it, or remove the whole entry."
            )
