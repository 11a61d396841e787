"""What a launch changes of a preset, speculation among it."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.invocation import (
    ALONE,
    FALSE,
    METHOD,
    OPTIONS,
    SETTABLE,
    TOKENS,
    TOOLS,
    TRUE,
    Invocation,
    boolean,
    parse,
)
from spark_tui.base.engine.runtimes import Scalar
from spark_tui.base.errors import UsageError
from spark_tui.base.finding import Change
from spark_tui.base.secret import holds_secret, is_secret_name
from spark_tui.base.settings import ExposureChoice
from spark_tui.base.text import clean_line, truncate

CONFIG: Final = "speculative_config"
SPELLED: Final = {"spec_method": "method", "spec_model": "model", "spec_tokens": TOKENS}
"""vLLM's options for single values of the config."""
_MTP_TOKENS: Final = 1


class Speculation(Struct, frozen=True):
    """Speculative decoding as asked for. `tokens` is K, None where the engine decides; `config` is all of it."""

    method: str
    drafter: str
    tokens: int | None
    config: Mapping[str, Any]

    @property
    def is_mtp(self) -> bool:
        """By the model's own prediction layers, or a small model paired with it: vLLM has a name per family."""
        return self.method.endswith("mtp")

    @property
    def is_dflash(self) -> bool:
        return self.method == "dflash"


def speculation_of(invocation: Invocation, env: Mapping[str, str]) -> Speculation | None:
    """What a command and its environment ask for; None: no drafting, or nothing that can be read."""
    config = dict(invocation.json(CONFIG))
    config |= {name: value for key, name in SPELLED.items() if (value := invocation.value(key)) is not None}
    if env.get("DFLASH_DRAFTER"):
        drafts = {"method": "dflash", "model": env["DFLASH_DRAFTER"], TOKENS: env.get("DFLASH_NUM_SPEC_TOKENS")}
        config = drafts | config
    if not config:
        return None
    drafter = str(config.get("model") or "")
    # vLLM derives the method from the drafter's name where none is given.
    named = next((word for word in ("dflash", "eagle3", "eagle", "mtp") if word in drafter.lower()), "draft_model")
    tokens = str(config.get(TOKENS) or "")
    number = int(tokens) if re.fullmatch(r"\d{1,6}", tokens) else None
    return Speculation(str(config.get("method") or named).lower(), drafter, number, config)


def changed(asked: Speculation | None, method: str | None, tokens: int | None) -> dict[str, Any]:
    """The config for another method (None: the same) or another number of tokens (None: the same).

    Another method keeps the number alone: the drafter and the kernels of the old one are not its own. Raises
    UsageError for what vLLM would refuse: no method at all, one without its drafter, or without a number of tokens.
    """
    config = dict(asked.config) if asked is not None else {}
    if method is not None and (asked is None or method != asked.method):
        if method not in ALONE and not method.endswith("_mtp"):
            raise UsageError(
                f"Speculation by {method} needs a drafter trained for this model, and the preset names none.",
                f'Set speculative_config={{"method":"{method}","model":"...","num_speculative_tokens":3}}',
            )
        config = {"method": method, **({TOKENS: asked.tokens} if asked is not None and asked.tokens else {})}
    elif asked is None:
        raise UsageError(
            "This preset does not use speculation: a number of drafted tokens has no method.",
            "Set a method too, for example: speculation=mtp",
        )
    if tokens is not None:
        config[TOKENS] = tokens
    elif method == "mtp":
        config.setdefault(TOKENS, _MTP_TOKENS)
    if method is not None and TOKENS not in config:
        raise UsageError(
            f"Speculation by {method} needs the number of tokens to draft.", "For example: num_speculative_tokens=3"
        )
    return config


# --- overrides -------------------------------------------------------------------------------------------


_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_ENV_PREFIX: Final = "env."
SHARE: Final = "gpu_memory_utilization"
AUTO: Final = "auto"
SHARE_ALONE: Final = 0.85
"""The guide's value for one engine on 128 GB; 0.80 to 0.87 serve alone without starving the machine."""
_COPY_IT: Final = "To use another image, copy this file to your preset folder and change `container`."
_NOT_SETTABLE: Final = {
    "host": "Set who may reach the port: exposure=local or exposure=lan.",
    "model": "Choose another preset, or copy this file to your preset folder.",
    "container": _COPY_IT,
    "image": _COPY_IT,
}
_PRIVATE_FILE: Final = (
    "Put the Hugging Face token into HF_TOKEN or log in with hf; ask for an API key with api_key=true. "
    "spark-tui passes both from a private file."
)


class Overrides(Struct, frozen=True):
    """Changes for one launch. None: as the preset has it. `port` is the host's port, `kv_cache_memory_bytes` the KV
    cache's fixed size. `speculation` is the drafting method (`off`: none), `num_speculative_tokens` its K.
    `auto_share`: the memory share follows from what the launch needs; its number, once resolved, is
    `gpu_memory_utilization`.
    `tool_calls` is `on` or `off`.

    `values` are further template values or server options by their key; `extra_args` go to the end of the command;
    `without` are options, by key, that are removed from it. Raises UsageError for a value outside its range.
    """

    port: int | None = None
    exposure: ExposureChoice = ExposureChoice.LOCAL
    api_key: bool = False
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_dtype: str | None = None
    speculation: str | None = None
    num_speculative_tokens: int | None = None
    tool_calls: str | None = None
    served_model_name: str | None = None
    name: str | None = None
    values: tuple[tuple[str, str], ...] = ()
    extra_args: tuple[str, ...] = ()
    extra_env: tuple[tuple[str, str], ...] = ()
    without: tuple[str, ...] = ()
    auto_share: bool = False

    def __post_init__(self) -> None:
        for key in SETTABLE:
            if getattr(self, key) is not None:
                _read(key, getattr(self, key))
        for name, text in self.extra_env:
            _check_variable(name, text)
        if any(word.replace("_", "-").partition("=")[0] == "--api-key" for word in self.extra_args):
            raise UsageError(
                "An API key in the arguments is visible in every process list.",
                "Ask for one with api_key=true: it is kept in a private file.",
            )

    def template_values(self) -> dict[str, Scalar]:
        """The values that go into the command, by key; speculation becomes part of one."""
        typed = (key for key in SETTABLE if key not in ("name", "port", METHOD, TOKENS, TOOLS))
        given: dict[str, Scalar] = {key: getattr(self, key) for key in typed if getattr(self, key) is not None}
        return given | dict(self.values)


TYPED_KEYS: Final = tuple(
    name for name in Overrides.__struct_fields__ if name not in ("values", "extra_args", "extra_env", "auto_share")
)

_EVERYWHERE: Final = ("name", "port", *(key for key in TYPED_KEYS if key not in SETTABLE))


def pairs_from(texts: Iterable[str]) -> dict[str, str]:
    """`key=value` words as a mapping; the last of a repeated key counts. Raises UsageError."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"`{_shown(text)}` is not of the form key=value.", "For example: max_model_len=65536")
        pairs[key.strip()] = value.strip()
    return pairs


def overrides_from_pairs(pairs: Mapping[str, str]) -> Overrides:
    """Reads what a person wrote: typed keys, `extra_args`, `without`, `env.NAME` (or several of them as `extra_env`:
    `A=1 B='2 3'`), and any other template value.

    Exposure to the LAN brings an API key unless `api_key=no`. Raises UsageError. Whether the preset takes the other
    values is checked by `plan`.
    """
    typed: dict[str, object] = {}
    values: list[tuple[str, str]] = []
    env: list[tuple[str, str]] = []
    for key, text in pairs.items():
        if key == SHARE and text.strip().lower() == AUTO:
            typed["auto_share"] = True
        elif key in SETTABLE:
            typed[key] = _read(key, text)
        elif key == "exposure":
            if text.lower() not in tuple(ExposureChoice):
                raise UsageError(
                    f"`exposure` must be local or lan; got {_shown(text)!r}.",
                    "local: this machine only. lan: the network, with an API key.",
                )
            typed[key] = ExposureChoice(text.lower())
        elif key == "api_key":
            if text.lower() not in (*TRUE, *FALSE):
                raise UsageError(f"`{key}` must be yes or no; got {_shown(text)!r}.", f"For example: {key}=yes")
            typed[key] = boolean(text)
        elif key == "extra_args":
            typed[key] = _words(key, text)
        elif key == "without":
            typed[key] = _options(text)
        elif key == "extra_env":
            env += _variables(text)
        elif key.startswith(_ENV_PREFIX):
            env.append((key.removeprefix(_ENV_PREFIX), text))
        else:
            _check_value(key, text)
            values.append((key, text))
    if typed.get("exposure") is ExposureChoice.LAN:
        typed.setdefault("api_key", True)
    return Overrides(**typed, values=tuple(values), extra_env=tuple(dict(env).items()))  # type: ignore[arg-type]


def pairs_of(overrides: Overrides) -> dict[str, str]:
    """The pairs that `overrides_from_pairs` reads back as the same changes of the command and the environment.
    Without name, port, exposure and key: a container has those itself."""
    own = (key for key in SETTABLE if key not in ("name", "port"))
    pairs = {key: str(value) for key in own if (value := getattr(overrides, key)) is not None}
    if overrides.auto_share:
        pairs[SHARE] = AUTO
    pairs |= dict(overrides.values)
    if overrides.extra_args:
        pairs["extra_args"] = shlex.join(overrides.extra_args)
    if overrides.without:
        pairs["without"] = ",".join(overrides.without)
    return pairs | {_ENV_PREFIX + name: text for name, text in overrides.extra_env}


def all_pairs(overrides: Overrides) -> dict[str, str]:
    """Like `pairs_of`, with name, port, exposure and key, and the environment in one text: what a form shows."""
    pairs = {key: str(value) for key in ("name", "port") if (value := getattr(overrides, key)) is not None}
    lan = overrides.exposure is ExposureChoice.LAN
    pairs |= {"exposure": overrides.exposure.value} if lan else {}
    pairs |= {"api_key": "yes" if overrides.api_key else "no"} if overrides.api_key is not lan else {}
    pairs |= {key: value for key, value in pairs_of(overrides).items() if not key.startswith(_ENV_PREFIX)}
    env = shlex.join(f"{name}={text}" for name, text in overrides.extra_env)
    return pairs | ({"extra_env": env} if env else {})


def with_change(overrides: Overrides, change: Change) -> Overrides:
    """The overrides with a finding's change applied: it wins over what they said of the same option, extra arguments
    included. Raises UsageError for pairs that are none."""
    new = overrides_from_pairs(dict(change))
    keys, gone = {key for key, _ in change}, set(new.without)
    extra = parse(overrides.extra_args)
    for key in keys | gone:
        extra = extra.without(key)
    removed = (*(key for key in overrides.without if key not in keys), *new.without)
    kept = (pair for pair in overrides.values if pair[0] not in gone)
    return replace(
        overrides,
        **{key: getattr(new, key) for key in keys & set(TYPED_KEYS) - {"without"}},
        values=tuple((dict(kept) | dict(new.values)).items()),
        extra_env=tuple((dict(overrides.extra_env) | dict(new.extra_env)).items()),
        extra_args=extra.argv,
        without=tuple(dict.fromkeys(removed)),
        auto_share=new.auto_share if SHARE in keys else overrides.auto_share,
    )


def names_share(overrides: Overrides) -> bool:
    """Whether they say what share of the memory the engine gets: a number, `auto`, or the engine's own option."""
    given = (*overrides.without, *dict(overrides.values))
    arguments = parse(overrides.extra_args, "vllm")
    return (
        overrides.auto_share or overrides.gpu_memory_utilization is not None or SHARE in given or arguments.has(SHARE)
    )


def settings_text(change: Change) -> str:
    """A change as it is typed after `--set`: `kv_cache_dtype=auto`."""
    return " ".join(f"{key}={value}" for key, value in change)


def unknown_key(key: str, known: Iterable[str], preset: str) -> UsageError:
    """The error for a key that the preset does not take, with near ones of the `known`, which it takes, and of what
    every launch takes; a setting of other presets is no misspelling."""
    listed = f"spark-tui presets show {clean_line(preset)}"
    if key in TYPED_KEYS:
        return UsageError(f"`{key}` cannot be set for this preset.", f"Its settings: {listed}")
    near = difflib.get_close_matches(key, sorted({*known, *_EVERYWHERE}), n=3, cutoff=0.6)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {listed}"
    return UsageError(f"Unknown parameter {_shown(key)}.", hint)


def _shown(text: str) -> str:
    return truncate(clean_line(text), 40)


def _read(key: str, value: Scalar) -> Scalar:
    option = OPTIONS[key]
    try:
        return option.read(value)
    except ValueError:
        raise UsageError(
            f"`{key}` must be {option.expected}; got {_shown(str(value))!r}.", f"For example: {key}={option.example}"
        ) from None


def _words(key: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        raise UsageError(f"A quote in `{key}` is not closed.", "Close it, as in a shell.") from None


def _variables(text: str) -> list[tuple[str, str]]:
    pairs = []
    for word in _words("extra_env", text):
        name, equals, value = word.partition("=")
        if not equals:
            summary = f"`{_shown(name)}` in `extra_env` is not of the form NAME=value."
            raise UsageError(summary, "For example: VLLM_LOGGING_LEVEL=DEBUG OTHER='two words'")
        pairs.append((name, value))
    return pairs


def _options(text: str) -> tuple[str, ...]:
    """`quantization, --speculative-config` -> keys."""
    keys = tuple(word.lstrip("-").replace("-", "_") for word in re.split(r"[,\s]+", text) if word)
    for key in keys:
        if _KEY.fullmatch(key) is None or key in ("host", "port"):
            summary = f"`{_shown(key)}` is not an option that `without` can remove."
            raise UsageError(summary, "For example: without=quantization,speculative_config")
    return keys


def _check_value(key: str, text: str) -> None:
    if key in _NOT_SETTABLE:
        raise UsageError(f"`{key}` cannot be set for a launch.", _NOT_SETTABLE[key])
    if _KEY.fullmatch(key) is None:
        raise UsageError(f"`{_shown(key)}` is not the name of a setting.", "Names hold letters, digits and `_`.")
    _check_text(key, text, f"`{key}` looks like a key: it would be visible in the command.")


def _check_variable(name: str, text: str) -> None:
    if _KEY.fullmatch(name) is None:
        raise UsageError(f"`{_shown(name)}` is not the name of an environment variable.", "Write: env.NAME=value")
    _check_text(name, text, f"`{name}` would be visible in the command and in docker inspect.")


def _check_text(key: str, text: str, visible: str) -> None:
    if is_secret_name(key) or holds_secret(text):
        raise UsageError(visible, _PRIVATE_FILE)
    if _CONTROL.search(text):
        raise UsageError(f"The value of `{key}` holds control characters.", "Write it on one line, without them.")
