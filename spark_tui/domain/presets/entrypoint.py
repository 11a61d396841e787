"""Which words of a command the image already says: a server must not be told its own name twice.

`vllm/vllm-openai` images start `vllm serve` by themselves, llama.cpp's and Ollama's their program; NVIDIA's and
SGLang's start a script that runs its arguments. The image's own configuration decides; its name only where the image
is not here yet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from spark_tui.domain.engine.runtimes import is_server_program
from spark_tui.domain.presets.image_reference import repository
from spark_tui.domain.presets.shell_words import SHELLS

_SERVE: Final = ("vllm", "serve")
_API_SERVER: Final = ("-m", "vllm.entrypoints.openai.api_server")
_PYTHON = re.compile(r"python[0-9.]*")
# Programs that run the words after them: init processes and set-up scripts that end in `exec "$@"`.
_LAUNCHERS: Final = frozenset(
    ("tini", "dumb-init", "docker-init", "catatonit", "s6-overlay", "entrypoint", "env", "nice")
)
_NVIDIA_SCRIPT: Final = ("/opt/nvidia/nvidia_entrypoint.sh",)
_BY_NAME: Final = (
    (re.compile(r"(?:docker\.io/)?vllm/vllm-openai(?:-[a-z]+)?"), _SERVE),
    (re.compile(r"(?:.*/)?vllm-cpu"), _SERVE),
    (re.compile(r"nvcr\.io/nvidia/.+"), _NVIDIA_SCRIPT),
    (re.compile(r"(?:docker\.io/)?lmsysorg/sglang"), _NVIDIA_SCRIPT),
    (re.compile(r"ghcr\.io/ggml-org/llama\.cpp"), ("/app/llama-server",)),
    (re.compile(r"(?:docker\.io/)?ollama/ollama"), ("/bin/ollama",)),
)


@dataclass(frozen=True, slots=True)
class Arranged:
    """How the container is started. `entrypoint` None keeps the image's own, an empty tuple clears it."""

    command: tuple[str, ...]
    entrypoint: tuple[str, ...] | None = None
    note: str = ""


def assumed_entrypoint(image: str) -> tuple[str, ...]:
    """The entrypoint that images of that name have; empty for unknown names."""
    name = repository(image)
    return next((words for pattern, words in _BY_NAME if pattern.fullmatch(name)), ())


def whole(argv: tuple[str, ...], model: str) -> tuple[str, ...]:
    """A vLLM command that begins with the program: recipes may give the model or the options alone."""
    if argv and (argv[0] == model or argv[0].startswith("-")):
        return (*_SERVE, *argv)
    return argv


def arrange(argv: tuple[str, ...], option: str | None, image_entrypoint: tuple[str, ...]) -> Arranged:
    """Fits a whole command to an image.

    `option` is the recipe's `entrypoint`: "" clears the image's, a word replaces it, None leaves it.
    """
    if option is not None:
        entrypoint = (option,) if option else ()
        return Arranged(argv[len(entrypoint) :] if _begins(argv, entrypoint) else argv, entrypoint)
    if not image_entrypoint or _runs_its_arguments(image_entrypoint):
        return Arranged(argv)
    arguments = _server_arguments(argv)
    starts = _server_arguments(image_entrypoint)
    if starts is not None and arguments is not None:
        return Arranged(_with_model(arguments, named=not _is_serve(image_entrypoint)))
    if _begins(argv, image_entrypoint):
        return Arranged(argv[len(image_entrypoint) :])
    shown = " ".join(image_entrypoint)
    if starts is not None or is_server_program(image_entrypoint[0]) or _interprets(image_entrypoint):
        return Arranged(
            argv, (), f"The image's entrypoint ({shown}) would take the command as its own words: it is cleared."
        )
    return Arranged(
        argv,
        None,
        f"The image's entrypoint ({shown}) is not one that we know. If it does not run its arguments, "
        'set executor_config.entrypoint: "" in the recipe.',
    )


def _base(word: str) -> str:
    return PurePosixPath(word).name


def _is_serve(words: tuple[str, ...]) -> bool:
    return len(words) > 1 and (_base(words[0]), words[1]) == _SERVE


def _server_arguments(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """What follows `vllm serve` or `python3 -m vllm.entrypoints.openai.api_server`; None for other programs."""
    if _is_serve(words):
        return words[2:]
    if len(words) > 2 and _PYTHON.fullmatch(_base(words[0])) and words[1:3] == _API_SERVER:
        return words[3:]
    return None


def _with_model(arguments: tuple[str, ...], *, named: bool) -> tuple[str, ...]:
    """The module takes the model as `--model`; `vllm serve` wants it first, and warns about `--model`."""
    if arguments and not arguments[0].startswith("-"):
        return ("--model", *arguments) if named else arguments
    if named or "--model" not in arguments[:-1]:
        return arguments
    at = arguments.index("--model")
    return (arguments[at + 1], *arguments[:at], *arguments[at + 2 :])


def _begins(argv: tuple[str, ...], words: tuple[str, ...]) -> bool:
    head = argv[: len(words)]
    return bool(words) and len(head) == len(words) and _base(head[0]) == _base(words[0]) and head[1:] == words[1:]


def _runs_its_arguments(entrypoint: tuple[str, ...]) -> bool:
    name = _base(entrypoint[0])
    script = name.endswith(".sh") or name.removesuffix(".sh") in _LAUNCHERS or "entrypoint" in name
    if name in SHELLS and len(entrypoint) == 2:
        return entrypoint[1].endswith(".sh")
    return script


def _interprets(entrypoint: tuple[str, ...]) -> bool:
    """A shell or an interpreter by itself would take the first word of the command as a file to run."""
    name = _base(entrypoint[0])
    return name in SHELLS or _PYTHON.fullmatch(name) is not None
