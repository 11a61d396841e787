"""Clients of a served model (`clients.toml`): the keys that are ours in each one's files, and what each needs of the
engine."""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.engine.runtimes import parsers_of
from spark_tui.base.engine.state import Exposure
from spark_tui.base.finding import Change, Finding, Severity
from spark_tui.base.secret import Secret
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.results.model.proof import PATHS, Api, Question
from spark_tui.use.prove.model.answer import ProveAnswer
from spark_tui.use.prove.model.cases import WEATHER, shown

LEAST_CONTEXT: Final = 32_768
"""An agent's own prompt and tools take 14k to 20k tokens."""
GOOD_CONTEXT: Final = 65_536
MOST_OUTPUT: Final = 16_384
KEY_VARIABLE: Final = "SPARK_API_KEY"
NO_KEY: Final = "none"
"""For clients that refuse an empty key; a server without one ignores it."""
TAILSCALE: Final = ipaddress.ip_network("100.64.0.0/10")


class FileFormat(StrEnum):
    """How a client writes its settings. TEXT: the whole file is one value."""

    JSON = "json"
    TOML = "toml"
    YAML = "yaml"
    ENV = "env"
    TEXT = "text"


class Named(Struct, frozen=True):
    """A step of a path into a list: its entry with that `name`."""

    name: str


Path: TypeAlias = tuple["str | Named", ...]
Keys: TypeAlias = tuple[tuple[Path, Any], ...]
"""Places in a settings file with their values, a Secret among them; None removes."""


class Served(Struct, frozen=True):
    """What a client is given: the served name, the base URL without /v1, limits in tokens (None where unknown), and the
    key. `key_file` holds it on the engine's machine, where the client is too unless it is `elsewhere`; without a key,
    `key_command` makes and prints one."""

    name: str
    base_url: str
    context: int | None = None
    key: Secret | None = None
    key_file: str = ""
    key_command: str = ""
    elsewhere: bool = False

    @property
    def api_url(self) -> str:
        return f"{self.base_url}/v1"

    @property
    def output(self) -> int | None:
        """Tokens of one answer: the context is shared, and a request that asks for all of it is refused."""
        return None if self.context is None else min(self.context // 4, MOST_OUTPUT)

    @property
    def sent_key(self) -> Secret:
        return self.key or Secret(NO_KEY)

    def values(self) -> dict[str, Any]:
        """What templates of `clients.toml` name; None where it is unknown."""
        made = f"printed once by: {self.key_command}" if self.key_command else "any word"
        kept = f"in {self.key_file}{' on the Spark' * self.elsewhere}"
        body = {"model": self.name, "messages": [{"role": "user", "content": "Hello"}]}
        return {
            "name": self.name,
            "base_url": self.base_url,
            "api_url": self.api_url,
            "context": self.context,
            "output": self.output,
            "key": self.key,
            "sent_key": self.sent_key,
            "key_variable": KEY_VARIABLE if self.key else None,
            "context_words": f"{self.context} tokens" if self.context else "as the engine serves",
            "key_words": kept if self.key_file else made,
            "quoted_name": json.dumps(self.name),
            "request": shlex.quote(json.dumps(body)),
        }


class ClientFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A settings file below the home, or below the folder that `variable` names. `names` are its possible names, the
    first one to create. `keys` are ours in it, as a template, `fresh` those that only a new file gets."""

    names: tuple[str, ...]
    format: FileFormat
    keys: dict[str, Any] | str
    folder: str = ""
    variable: str = ""
    fresh: Mapping[str, Any] = field(default_factory=dict)

    def keys_for(self, served: Served) -> Mapping[str, Any] | Secret:
        """Our keys in it with their values; of a text file its whole text."""
        keys: Mapping[str, Any] | Secret = filled(self.keys, served.values()) or {}
        return keys


class SettingsText(Struct, frozen=True):
    """A settings file of another program: its path, its text (None where there is none), and its mode. `target`: where
    a symbolic link leads, which is what is written; empty for a plain file."""

    path: str
    text: str | None
    mode: int
    target: str = ""


class Client(Struct, frozen=True, forbid_unknown_fields=True):
    """A program that talks to an engine. `agent`: it needs tool calls and a long context. `start` runs it once its
    files are written; `steps` are what a person does, as `(label, text)`, and `command` what they can run, both as
    templates."""

    id: str
    title: str
    api: Api
    agent: bool = False
    files: tuple[ClientFile, ...] = ()
    start: str = ""
    steps: tuple[tuple[str, str], ...] = ()
    command: str = ""

    def steps_for(self, served: Served) -> Sequence[tuple[str, str]]:
        """What a person does, as `(label, text)`."""
        return [(label, filled(text, served.values())) for label, text in self.steps]

    def command_for(self, served: Served) -> str:
        """What a person can run in a shell, the key put into its environment first; empty for most clients."""
        return _with_key(served, filled(self.command, served.values())) if self.command else ""


# --- what is known of clients -----------------------------------------------------------------------------


class Clients(Struct, frozen=True, forbid_unknown_fields=True):
    """What `clients.toml` holds."""

    client: tuple[Client, ...]


CLIENTS: Final[Mapping[str, Client]] = {
    client.id: client
    for client in msgspec.toml.decode(FilePath(__file__).with_name("clients.toml").read_bytes(), type=Clients).client
}
"""By id, in the order of the list."""
_FIELD: Final = re.compile(r"\{(\w+)(?:!s)?\}")
_WHOLE: Final = re.compile(r"\{(\w+)\}")


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """A template with the values put in; None where one is unknown, or where nothing is left of a table. Only a value
    of its own can be a secret."""
    if isinstance(template, str):
        if whole := _WHOLE.fullmatch(template):
            return values[whole[1]]
        known = all(values[name] is not None for name in _FIELD.findall(template))
        return template.format_map(values) if known else None
    if isinstance(template, list):
        return [filled(each, values) for each in template]
    pairs = ((filled(key, values), filled(value, values)) for key, value in template.items())
    return {key: value for key, value in pairs if value is not None} or None


ASK_KEY: Final = "printf 'API key: '; stty -echo; read -r KEY; stty echo; echo"
"""Shell commands that read a key into KEY without showing it."""


def _with_key(served: Served, command: str) -> str:
    """A shell's command, with the key put into its environment first, without showing it. Where the key has to be typed
    all is one group: pasted lines are not taken for the key."""
    if served.key_command:
        return f'export {KEY_VARIABLE}="${{{KEY_VARIABLE}:-$({served.key_command})}}"\n{command}'
    if served.key_file and served.elsewhere:
        return f'{{\n{ASK_KEY}; export {KEY_VARIABLE}="$KEY"\n{command}\n}}'
    if served.key_file:
        read = f"sed -n 's/^[A-Z_]*API_KEY=//p' {shlex.quote(served.key_file)}"
        return f'export {KEY_VARIABLE}="$({read})"\n{command}'
    return f"export {KEY_VARIABLE}={NO_KEY}\n{command}"


def keys_of(tree: Mapping[str, Any] | Secret, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The places of a tree of keys with their values; an entry of a list is one value."""
    if not isinstance(tree, Mapping):
        yield path, tree
        return
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from keys_of(value, (*path, key))
        elif isinstance(value, list):
            yield from (((*path, key, Named(entry["name"])), entry) for entry in value)
        else:
            yield (*path, key), value


# --- what it needs of the engine --------------------------------------------------------------------------


def findings_of(view: EngineView, client: Client, *, key: bool, elsewhere: bool) -> tuple[Finding, ...]:
    """What keeps the client from using the engine well, the launch change with it: an error for an agent that would
    fail, a warning for others. `key`: its key is known; `elsewhere`: the client is on another machine."""
    severity = Severity.ERROR if client.agent else Severity.WARNING
    found = [*_reach(view, key, elsewhere), *_needs(view, severity)]
    return tuple(replace(each, subject=view.name) for each in found)


def _reach(view: EngineView, key: bool, elsewhere: bool) -> Iterator[Finding]:
    if not view.word.serves or not view.served_name:
        yield Finding(
            "client_not_serving",
            Severity.ERROR,
            f"{view.name} is {view.word.value}, not ready.",
            remedy="Wait until it serves, or start it.",
        )
    secured: Change = (("exposure", "lan"), ("api_key", "yes"))
    if view.exposure is Exposure.LAN_NO_KEY:
        yield Finding(
            "client_no_key",
            Severity.ERROR,
            "The port is open to the network, and has no API key.",
            remedy="Set api_key=yes, or exposure=local.",
            change=secured,
        )
    elif elsewhere and view.exposure is not Exposure.LAN:
        yield Finding(
            "client_local_only",
            Severity.ERROR,
            "Only this machine reaches the engine.",
            remedy="Set exposure=lan and api_key=yes.",
            change=secured,
        )
    elif view.exposure is Exposure.LAN and not key:
        yield Finding(
            "client_key_unknown",
            Severity.ERROR,
            "The engine's API key is not known to spark-tui.",
            remedy="Start it from a preset with api_key=yes.",
        )


def _needs(view: EngineView, severity: Severity) -> Iterator[Finding]:
    argv, name = view.container.argv, view.served_name
    words = {word.partition("=")[0].replace("_", "-") for word in argv}
    chat = view.checkpoint.chat if view.checkpoint is not None else None
    if view.checkpoint is not None and "--chat-template" not in words and (chat is None or not chat.tools):
        yield Finding(
            "client_no_tools",
            severity,
            "The chat template has no tools.",
            (view.model,),
            "Choose a preset whose model calls tools.",
        )
    elif view.runtime in ("vllm", "sglang") and not _calls_tools(view.runtime, words):
        known = parsers_of(view.model, view.runtime) or parsers_of(name, view.runtime)
        yield Finding(
            "client_no_tool_parser",
            severity,
            "The engine was started without a tool parser.",
            remedy="Set tool_calls=on." if known else "Set the tool_call_parser that the model's card names.",
            change=(("tool_calls", "on"),) if known else (),
        )
    if "/" in name:
        short = name.rstrip("/").rpartition("/")[2]
        yield Finding(
            "client_slash_in_name",
            severity,
            'The served name contains "/", which clients split.',
            (name,),
            f"Set served_model_name={short}.",
            (("served_model_name", short),),
        )
    context = context_of(view)
    if context is not None and context < LEAST_CONTEXT:
        most = view.checkpoint.max_position_embeddings if view.checkpoint is not None else None
        wanted = min(GOOD_CONTEXT, most or GOOD_CONTEXT)
        able = wanted >= LEAST_CONTEXT
        yield Finding(
            "client_short_context",
            severity,
            "The context is too short for agents.",
            (f"{context} tokens; agents need {LEAST_CONTEXT}",),
            f"Set max_model_len={wanted}." if able else f"Choose another model: this one ends at {most} tokens.",
            (("max_model_len", str(wanted)),) if able else (),
        )


def _calls_tools(runtime: str, words: set[str]) -> bool:
    parser = "--tool-call-parser" in words
    return parser and (runtime != "vllm" or "--enable-auto-tool-choice" in words)


def context_of(view: EngineView) -> int | None:
    """The context that the engine serves, in tokens; None where it does not say."""
    return next((model.max_model_len for model in view.models if model.id == view.served_name), None)


def change_of(findings: Iterable[Finding]) -> Change:
    """The launch change that all of them ask for together."""
    return tuple(dict(pair for finding in findings for pair in finding.change).items())


def tailscale_address(addresses: Iterable[str]) -> str:
    """The first Tailscale address; empty without one."""
    return next((each for each in addresses if ipaddress.ip_address(each) in TAILSCALE), "")


# --- another machine --------------------------------------------------------------------------------------

SCRIPT_KEY: Final = "SPARKTUIKEY"
"""Stands in the texts of a script for the key that the script asks for."""


def script_of(texts: Sequence[tuple[str, str]], start: str, *, key: Secret | None, asks: bool) -> str:
    """One line for a POSIX shell that writes `(path below the home, text)`; a file that is there stays, and the text is
    put beside it. The key is `key`, or is asked for if `asks`."""
    words = ["umask 077"]
    if asks and key is None:
        words.append(ASK_KEY)
    elif asks and key is not None:
        words.append(f"KEY={shlex.quote(key.reveal())}")
    for path, text in texts:
        quoted = (line.replace("'", "'\"'\"'").replace(SCRIPT_KEY, "'\"$KEY\"'") for line in text.splitlines())
        lines = (f"'{line}'" for line in quoted)
        words.append(
            f'f=~/{shlex.quote(path)}; mkdir -p "${{f%/*}}"; [ -e "$f" ] && echo "$f exists: merge $f.spark" '
            f'&& f="$f.spark"; printf \'%s\\n\' {" ".join(lines)} > "$f"; echo "Wrote $f"'
        )
    return "; ".join([*words, *([f"echo {shlex.quote('Start: ' + start)}"] if start else [])])


# --- proof ------------------------------------------------------------------------------------------------


def question_of(client: Client) -> Question:
    """A question that needs a tool, on the API that the client uses."""
    return Question("What is the weather in Paris now? Use the tool.", client.api, tools=(WEATHER,))


def checked(client: Client, answer: ProveAnswer) -> Finding:
    """What the answer proves: OK with a call of the tool, a warning without one."""
    evidence, path = (shown(answer),), PATHS[client.api]
    if any(call.name == WEATHER.name for call in answer.calls):
        return Finding("client_check", Severity.OK, f"The engine answered on {path} and called the tool.", evidence)
    remedy = "Check the tool parser, or try a model that is trained for tools."
    text = f"The engine answered on {path}, but called no tool."
    return Finding("client_check", Severity.WARNING, text, evidence, remedy)
