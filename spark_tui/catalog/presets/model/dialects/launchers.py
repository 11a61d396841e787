"""What starts an engine on an owner's machine: the launches that a file of it holds, as words of `docker run`."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.actions import by_front_end
from spark_tui.base.engine.container import LABEL_PRESET
from spark_tui.base.engine.runtimes import server_of
from spark_tui.base.errors import PresetError
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.variables import read_env
from spark_tui.catalog.presets.model.dialects.docker_run import HOME, SNAPSHOT_PATH
from spark_tui.catalog.presets.model.preset import MappingValue, Node, plain
from spark_tui.catalog.presets.model.recipe import is_system_folder

_FILE = re.compile(r"\.(?:jinja2?|py|json|ya?ml|gguf)\Z")


class Beside(Protocol):
    """The files that a file may name: those of its own folder, or of the checkout that it is part of."""

    def text(self, path: str) -> str | None:
        """A file's text, None where there is none, or outside; PresetError for a link, and one that is too large."""

    def document(self, path: str) -> Node | None:
        """A file's YAML likewise."""


class NothingBeside:
    """The files that a pasted text may name: none."""

    def text(self, path: str) -> str | None:
        del path
        return None

    def document(self, path: str) -> Node | None:
        del path
        return None


class Launch(Struct, frozen=True):
    """One launch. `changes` say in words what it does without, `missing` the variables that have no value, each with
    why, `choices` the branches that an argument chooses from, by the argument."""

    name: str = ""
    line: int = 0
    words: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problem: PresetError | None = None


OUR_IMAGES: Final = {
    "vllm": "vllm/vllm-openai:nightly",
    "sglang": "lmsysorg/sglang:latest-cu130",
    "trtllm": "nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc6",
    "llama-cpp": "ghcr.io/ggml-org/llama.cpp:server-cuda13",
    "ollama": "ollama/ollama:latest",
}
"""The images of our own presets, for servers that run without a container."""
_OF_THE_HOST: Final = frozenset(("PATH", "HOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "PYTHONPATH"))


def bare_server(words: tuple[str, ...], env: Mapping[str, str]) -> Launch:
    """The launch of a server that runs without a container, in an image of ours, which is said. Its model and the
    files that it reads are mounted where they lie."""
    runtime = server_of(words)
    image = OUR_IMAGES[runtime.id if runtime is not None else "vllm"]
    pairs = [word for name, value in env.items() if name not in _OF_THE_HOST for word in ("-e", f"{name}={value}")]
    spread = [part for word in words for part in (word.split("=", 1) if word[:2] == "--" else [word])]
    named = ("serve", *(runtime.model_options if runtime is not None else ()))
    read = [path for before, path in pairwise(spread) if path[:1] == "/" and (before in named or _FILE.search(path))]
    places = dict.fromkeys(posixpath.dirname(path) if path.endswith(".gguf") else path for path in read)
    own = [path for path in places if not (SNAPSHOT_PATH.fullmatch(path) or is_system_folder(path))]
    pairs += [word for path in own for word in ("-v", f"{path}:{path}:ro")]
    program = "python3" if "python" in posixpath.basename(words[0]) else posixpath.basename(words[0])
    said = f"It starts {program} without a container. spark-tui chose the image {image}: change it to yours."
    command = ("docker", "run", "-d", "--gpus", "all", *pairs, image, program, *words[1:])
    return Launch(words=command, changes=(said,))


def starts_another(what: str, words: Iterable[str], file: str, line: int) -> PresetError:
    """The refusal of what only starts another file."""
    summary = f"This {what} starts another file: {clean_line(' '.join(words))}."
    return PresetError(summary, "Import that file: the Compose file, or the script.", file=file, line=line)


def joined(folder: str, path: str) -> str:
    """A path that a file names, seen from its folder. `~` is HOME."""
    path = HOME + path[1:] if path == "~" or path.startswith("~/") else path
    return posixpath.normpath(posixpath.join(folder, path))


def with_files(launch: Launch, folder: str, beside: Beside) -> Launch:
    """A launch with its relative folders seen from that of its file, the variables of its `--env-file`, and the options
    of its `--config`."""
    words: list[str] = []
    missing, own = dict(launch.missing), any(LABEL_PRESET in word for word in launch.words)
    given = (part for word in launch.words for part in (word.split("=", 1) if word[:11] == "--env-file=" else [word]))
    for word in given:
        before = words[-1] if words else ""
        if before == "--env-file" and not own:
            text = beside.text(joined(folder, word))
            missing |= {word: "an --env-file that cannot be read"} if text is None else {}
            pairs = read_env(text or "").items()
            words[-1:] = [each for name, value in pairs for each in ("-e", f"{name}={value}")]
        elif before in ("-v", "--volume") and word.startswith(("./", "../")) and folder:
            words.append(joined(folder, word))
        else:
            words.append(word)
    return replace(launch, words=tuple(_with_config(words, folder, beside)), missing=missing)


def _with_config(words: list[str], folder: str, beside: Beside) -> list[str]:
    """A command with the options of its `--config` file written out; those of the command itself count more (vLLM's
    and SGLang's documentation). TensorRT-LLM's file of that name is another one."""
    spread = [part for word in words for part in (word.split("=", 1) if word[:9] == "--config=" else [word])]
    if "--config" not in spread[:-1] or "trtllm-serve" in spread:
        return words
    at = spread.index("--config")
    path, volumes = spread[at + 1], [each.split(":") for each in spread if ":/" in each]
    source = next((each[0] + path[len(each[1]) :] for each in volumes if f"{path}/".startswith(f"{each[1]}/")), path)
    document = beside.document(joined(folder, source))
    table: Any = plain(document) if isinstance(document, MappingValue) else {}
    if not table:
        return words
    given = {word.partition("=")[0].replace("_", "-") for word in words}
    options: list[str] = []
    for key, value in table.items():
        option = f"--{key.replace('_', '-')}"
        if option not in given and value is not None and value is not False:
            items = value if isinstance(value, list) else [] if value is True else [value]
            options += [option, *(each if isinstance(each, str) else json.dumps(each) for each in items)]
    return [*spread[:at], *options, *spread[at + 2 :]]


def open_values(launch: Launch, what: str, file: str, *, env: bool) -> PresetError:
    """The refusal of a launch with variables that have no value: all of them in one message."""
    named = (f"{name} ({truncate(clean_line(why), 120)})" if why else name for name, why in launch.missing.items())
    said = f"{what} has no value for {', '.join(named)}."
    names: Iterable[str] = [name for name in launch.missing if re.fullmatch(r"\w+", name)]
    ways = "Write them into a .env beside the file" if env else "Write them into the file"
    if launch.choices:
        sets = [name for name in names if name not in launch.choices]
        branches = "; ".join(f"${name}: {', '.join(each)}" for name, each in launch.choices.items())
        said = f"{what} chooses by a case of {branches}." + (f" It sets {', '.join(sets)}." if sets else "")
        names = launch.choices
        ways = "Name one of them"
    typed = " ".join(f"--set {name}={_example(launch, name)}" for name in names)
    typed = f"spark-tui presets import {clean_line(file)} {typed}"
    ways = by_front_end(f"{ways}, or in a shell: {typed}", f"{ways}, or: {typed}" if names else f"{ways}.")
    return PresetError(said, ways, file=file, line=launch.line)


def _example(launch: Launch, name: str) -> str:
    return next(iter(launch.choices.get(name, ())), "VALUE")
