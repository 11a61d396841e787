"""`executor_config` of a recipe: what of it a container can carry."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.presets.container_spec import Gpus, RestartPolicy, Ulimit
from spark_tui.domain.presets.located import Leaf, Reader
from spark_tui.domain.presets.preset import NO_GPU, ContainerOptions
from spark_tui.domain.quantities import parse_bytes
from spark_tui.domain.text import clean_line, truncate

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/=-]*")
_MOUNT = re.compile(r"(?P<source>[^:\s]+):(?P<target>/[^:\s]*)(?::(?P<mode>ro|rw))?")
_CONTROL_OR_BLANK = re.compile("[\x00-\x20\x7f]")
_DEVICE_ID = re.compile(r"[A-Za-z0-9-]+")
_RESTART_NAMES: Final = ("no", "always", "unless-stopped", "on-failure")


@dataclass(frozen=True, slots=True)
class Options:
    """The options, the volumes, and the keys that we do not use."""

    container: ContainerOptions
    volumes: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()


def options_from(reader: Reader) -> Options:
    """Reads the block; complaints go to the reader."""
    container = ContainerOptions(
        entrypoint=_entrypoint(reader),
        shm_size=_shm_size(reader),
        ipc=_word(reader, "ipc", "host"),
        network=_word(reader, "network", "host"),
        gpus=_gpus(reader),
        user=_word(reader, "user", '"1000:1000"'),
        privileged=reader.boolean("privileged"),
        restart_policy=_checked(reader, "restart_policy", parse_restart, "no, on-failure:3, unless-stopped or always"),
        ulimits=_checked_list(reader, "ulimit", parse_ulimit, "memlock=-1"),
        cap_add=_words(reader, "cap_add", "IPC_LOCK"),
        devices=_words(reader, "devices", "/dev/infiniband"),
        security_opt=_words(reader, "security_opt", "seccomp=unconfined"),
    )
    volumes = _checked_list(reader, "volumes", lambda text: parse_mount(_both_sides(text)), "notes:/notes:ro")
    return Options(container, tuple(map(_both_sides, volumes)), reader.unused())


def parse_gpus(text: str) -> Gpus | None:
    """`all`, `2`, `device=0,1`, or `none`. Raises ValueError."""
    if text in (NO_GPU, ""):
        return None
    if text == "all":
        return Gpus()
    if text.isascii() and text.isdigit() and int(text) > 0:
        return Gpus(count=int(text))
    kind, _, ids = text.strip("'\"").partition("=")
    names = tuple(ids.split(","))
    if kind == "device" and all(_DEVICE_ID.fullmatch(name) for name in names):
        return Gpus(count=0, device_ids=names)
    raise ValueError(text)


def parse_restart(text: str) -> RestartPolicy:
    """`no`, `always`, `unless-stopped`, `on-failure`, `on-failure:3`. Raises ValueError."""
    name, colon, retries = text.partition(":")
    if name not in _RESTART_NAMES or (
        colon and (name != "on-failure" or not retries.isascii() or not retries.isdigit())
    ):
        raise ValueError(text)
    return RestartPolicy(name, int(retries) if retries else 0)


def parse_ulimit(text: str) -> Ulimit:
    """`nofile=1024`, `nofile=1024:2048`, `memlock=-1`. Raises ValueError."""
    name, _, limits = text.partition("=")
    soft, _, hard = limits.partition(":")
    if not re.fullmatch(r"[a-z]+", name):
        raise ValueError(text)
    return Ulimit(name, int(soft), int(hard or soft))


def parse_mount(text: str) -> tuple[str, str, bool]:
    """`source:target[:ro]` -> source, target, read only. Raises ValueError."""
    match = _MOUNT.fullmatch(text)
    if match is None or ".." in (match["source"] + "/" + match["target"]).split("/"):
        raise ValueError(text)
    return match["source"], match["target"], match["mode"] == "ro"


def _both_sides(text: str) -> str:
    """sparkrun takes a path alone as the same path on both sides."""
    return f"{text}:{text}" if ":" not in text else text


def _entrypoint(reader: Reader) -> str | None:
    entry = reader.entry("entrypoint")
    return None if entry is None else reader.text("entrypoint", example='entrypoint: ""')


def _shm_size(reader: Reader) -> int | None:
    entry = reader.entry("shm_size")
    if entry is None:
        return None
    value = entry.node.value if isinstance(entry.node, Leaf) else None
    try:
        if isinstance(value, (str, int, float)):
            return parse_bytes(value)
    except (ValueError, OverflowError):
        pass
    reader.expected("shm_size", entry, "a size", "shm_size: 10g")
    return None


def _gpus(reader: Reader) -> str | None:
    if reader.text("accelerator_vendor", example="accelerator_vendor: cpu") == "cpu":
        reader.text("gpus", numbers=True)
        return NO_GPU
    entry = reader.entry("gpus")
    text = _checked(reader, "gpus", parse_gpus, "all, none, a number of GPUs, or device=0")
    return NO_GPU if entry is not None and text == "" else text


def _word(reader: Reader, key: str, example: str) -> str | None:
    text = reader.text(key, numbers=True, example=f"{key}: {example}")
    entry = reader.entry(key)
    if entry is None or not text:
        return None
    if _WORD.fullmatch(text) is None:
        reader.expected(key, entry, "one word", f"{key}: {example}")
        return None
    return text


def _words(reader: Reader, key: str, example: str) -> tuple[str, ...]:
    texts = reader.texts(key)
    entry = reader.entry(key)
    if entry is not None and any(not text or _CONTROL_OR_BLANK.search(text) for text in texts):
        reader.expected(key, entry, "a list of words", f"{key}: [{example}]")
        return ()
    return texts


def _checked(reader: Reader, key: str, parse: Callable[[str], object], what: str) -> str | None:
    entry = reader.entry(key)
    if entry is None:
        return None
    value = entry.node.value if isinstance(entry.node, Leaf) else None
    # YAML reads a bare `no` as false: in a restart policy it is the word.
    text = "no" if value is False else reader.text(key, numbers=True)
    try:
        parse(text)
    except ValueError:
        reader.expected(key, entry, what, f"{key}: {what.partition(',')[0]}")
        return None
    return text


def _checked_list(reader: Reader, key: str, parse: Callable[[str], object], example: str) -> tuple[str, ...]:
    texts = reader.texts(key)
    for text in texts:
        try:
            parse(text)
        except ValueError:
            reader.complain(
                reader.line(key),
                f'`{reader.name(key)}` holds "{truncate(clean_line(text), 40)}", which cannot be used.',
                f"Write for example: {key}: [{example}]",
            )
            return ()
    return texts
