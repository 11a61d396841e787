"""What a person changes about a preset for one launch: typed, ranged, and refused with the right spelling."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from spark_tui.domain.engine.state import Reach
from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets.options import KNOBS
from spark_tui.domain.presets.preset import Scalar
from spark_tui.domain.secret import holds_secret, is_secret_name
from spark_tui.domain.text import clean_line, truncate

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
__all__ = ["Overrides", "Reach", "overrides_from_pairs", "pairs_from", "pairs_of", "unknown_key"]

_CONTROL = re.compile("[\x00-\x1f\x7f]")
_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")
_ENV_PREFIX: Final = "env."
_ELSEWHERE: Final = {
    "host": "Say who may reach the port: exposure=local or exposure=lan.",
    "model": "The model is what a preset is about: choose another preset, or copy this file to your preset folder.",
    "container": "To use another image, copy this file to your preset folder and change `container` there.",
    "image": "To use another image, copy this file to your preset folder and change `container` there.",
}


@dataclass(frozen=True, slots=True)
class Overrides:
    """Changes for one launch. None: as the preset has it. `port` is the host's port, `kv_cache_memory_bytes` the KV
    cache's fixed size. `speculation` is the method of drafting (`off`: none), `num_speculative_tokens` its K.

    `values` are further template values or vLLM options by their recipe key; `extra_args` go to the end of the
    command; `without` are options by their recipe key that the command loses, whoever gave them. Raises UsageError
    when it is made with a value outside its range.
    """

    port: int | None = None
    exposure: Reach = Reach.LOCAL
    api_key: bool = False
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_dtype: str | None = None
    speculation: str | None = None
    num_speculative_tokens: int | None = None
    served_model_name: str | None = None
    name: str | None = None
    values: tuple[tuple[str, str], ...] = ()
    extra_args: tuple[str, ...] = ()
    extra_env: tuple[tuple[str, str], ...] = ()
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in KNOBS:
            value = getattr(self, key)
            if value is not None:
                _read(key, value)
        for key, text in self.extra_env:
            _check_variable(key, text)
        if any(word.replace("_", "-").partition("=")[0] == "--api-key" for word in self.extra_args):
            raise UsageError(
                "An API key in the arguments would stand in every process list.",
                "Ask for one with api_key=true: it is kept in a private file.",
            )

    def template_values(self) -> dict[str, Scalar]:
        """The values that go into the command, by recipe key. How to draft is no value of its own: it becomes part of
        one."""
        found: dict[str, Scalar] = {key: getattr(self, key) for key in _VALUES if getattr(self, key) is not None}
        return {**found, **dict(self.values)}


_VALUES: Final = (
    "max_model_len",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_dtype",
    "served_model_name",
)
TYPED_KEYS: Final = tuple(
    field.name for field in fields(Overrides) if field.name not in ("values", "extra_args", "extra_env")
)


def pairs_from(texts: Iterable[str]) -> dict[str, str]:
    """`key=value` words as a mapping; of a key that comes twice the last one counts. Raises UsageError."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            shown = truncate(clean_line(text), 40)
            raise UsageError(f"`{shown}` is not of the form key=value.", "Write for example: max_model_len=65536")
        pairs[key.strip()] = value.strip()
    return pairs


def overrides_from_pairs(pairs: Mapping[str, str]) -> Overrides:
    """Reads what a person wrote: typed keys, `extra_args`, `without`, `env.NAME` (or several of them as `extra_env`:
    `A=1 B='2 3'`), and any other template value.

    Exposure to the LAN brings an API key unless `api_key=no` says otherwise. Raises UsageError. Whether the
    preset has a use for the other values is checked by `plan`, which knows it.
    """
    typed: dict[str, object] = {}
    values: list[tuple[str, str]] = []
    env: list[tuple[str, str]] = []
    for key, text in pairs.items():
        if key in KNOBS:
            typed[key] = _read(key, text)
        elif key == "exposure":
            typed[key] = _reach(text)
        elif key == "api_key":
            typed[key] = _boolean(key, text)
        elif key == "extra_args":
            typed[key] = _words(key, text)
        elif key == "without":
            typed[key] = _options(text)
        elif key == "extra_env":
            env += _variables(text)
        elif key.startswith(_ENV_PREFIX):
            env.append((key.removeprefix(_ENV_PREFIX), text))
        else:
            values.append((key, _value(key, text)))
    if typed.get("exposure") is Reach.LAN:
        typed.setdefault("api_key", True)
    return Overrides(**typed, values=tuple(values), extra_env=tuple(dict(env).items()))  # type: ignore[arg-type]


def pairs_of(overrides: Overrides) -> dict[str, str]:
    """What `overrides_from_pairs` reads back as the same changes of the command and the environment.

    Without name, port, exposure and key: those a container tells itself.
    """
    own = (key for key in KNOBS if key not in ("name", "port"))
    pairs = {key: str(value) for key in own if (value := getattr(overrides, key)) is not None}
    pairs |= dict(overrides.values)
    if overrides.extra_args:
        pairs["extra_args"] = shlex.join(overrides.extra_args)
    if overrides.without:
        pairs["without"] = ",".join(overrides.without)
    return pairs | {_ENV_PREFIX + name: text for name, text in overrides.extra_env}


def unknown_key(key: str, known: Iterable[str], preset: str) -> UsageError:
    """The error for a key that the preset of that name has no use for, with near spellings."""
    near = difflib.get_close_matches(key, sorted(set(known) | set(TYPED_KEYS)), n=3, cutoff=0.6)
    shown = f"See its values: spark-tui presets show {clean_line(preset)}"
    hint = f"Did you mean {' or '.join(near)}?" if near else shown
    return UsageError(f"`{truncate(clean_line(key), 40)}` is nothing that this preset takes.", hint)


def _read(key: str, value: Scalar) -> int | float | str:
    knob = KNOBS[key]
    try:
        return knob.read(value)
    except ValueError:
        raise UsageError(
            f"`{key}` must be {knob.what}; you gave {truncate(clean_line(str(value)), 40)!r}.",
            f"Write for example: {key}={knob.example}",
        ) from None


def _reach(text: str) -> Reach:
    try:
        return Reach(text.lower())
    except ValueError:
        raise UsageError(
            f"`exposure` must be local or lan; you gave {truncate(clean_line(text), 40)!r}.",
            "local: this machine only. lan: everyone in the network, with an API key.",
        ) from None


def _boolean(key: str, text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise UsageError(f"`{key}` must be yes or no; you gave {truncate(clean_line(text), 40)!r}.", f"Write: {key}=yes")


def _words(key: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        raise UsageError(f"A quote in `{key}` is not closed.", "Close it, as in a shell.") from None


def _variables(text: str) -> list[tuple[str, str]]:
    pairs = [word.partition("=") for word in _words("extra_env", text)]
    wrong = next((name for name, equals, _ in pairs if not equals), None)
    if wrong is not None:
        raise UsageError(
            f"`{truncate(clean_line(wrong), 40)}` in `extra_env` is not of the form NAME=value.",
            "Write for example: VLLM_LOGGING_LEVEL=DEBUG OTHER='two words'",
        )
    return [(name, value) for name, _, value in pairs]


def _options(text: str) -> tuple[str, ...]:
    """`quantization, --speculative-config` -> recipe keys."""
    keys = tuple(word.lstrip("-").replace("-", "_") for word in re.split(r"[,\s]+", text) if word)
    wrong = next((key for key in keys if _KEY.fullmatch(key) is None or key in ("host", "port")), None)
    if wrong is not None:
        raise UsageError(
            f"`without` takes options of the command; `{truncate(clean_line(wrong), 40)}` is none to leave out.",
            "Write for example: without=quantization,speculative_config",
        )
    return keys


def _value(key: str, text: str) -> str:
    if key in _ELSEWHERE:
        raise UsageError(f"`{key}` cannot be set for a launch.", _ELSEWHERE[key])
    if _KEY.fullmatch(key) is None:
        raise UsageError(
            f"`{truncate(clean_line(key), 40)}` is not the name of a setting.", "Names hold letters, digits and `_`."
        )
    if _CONTROL.search(text):
        raise UsageError(f"The value of `{key}` holds control characters.", "Write it on one line, without them.")
    if is_secret_name(key) or holds_secret(text):
        raise UsageError(f"`{key}` looks like a key: it would stand in the command.", _PRIVATE_FILE_REMEDY)
    return text


_PRIVATE_FILE_REMEDY: Final = (
    "Put the Hugging Face token into HF_TOKEN or log in with hf; ask for an API key with api_key=true. "
    "spark-tui passes both from a private file."
)


def _check_variable(name: str, text: str) -> None:
    if _KEY.fullmatch(name) is None:
        raise UsageError(
            f"`{truncate(clean_line(name), 40)}` is not the name of an environment variable.", "Write: env.NAME=value"
        )
    if is_secret_name(name) or holds_secret(text):
        raise UsageError(f"`{name}` would stand in the command and in docker inspect.", _PRIVATE_FILE_REMEDY)
    if _CONTROL.search(text):
        raise UsageError(f"The value of `{name}` holds control characters.", "Write it on one line, without them.")
