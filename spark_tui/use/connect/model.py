"""Clients of a served model: the keys that are ours in each one's files, and what each needs of the engine.

Formats and traps: Claude Code 2.1, Codex 0.169, OpenCode 1.18, Qwen Code 0.24, Continue 1, aider 0.86, Open WebUI 0.6.
"""

from __future__ import annotations

import ipaddress
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias

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


class ClientFile(Struct, frozen=True):
    """A settings file below the home, or below the folder that `variable` names. `names` are its possible names, the
    first one to create. `keys` are ours in it, `fresh` those that only a new file gets."""

    folder: str
    names: tuple[str, ...]
    format: FileFormat
    keys: Callable[[Served], Mapping[str, Any] | Secret]
    variable: str = ""
    fresh: Mapping[str, Any] = field(default_factory=dict)


class SettingsText(Struct, frozen=True):
    """A settings file of another program: its path, its text (None where there is none), and its mode. `target`: where
    a symbolic link leads, which is what is written; empty for a plain file."""

    path: str
    text: str | None
    mode: int
    target: str = ""


class Client(Struct, frozen=True):
    """A program that talks to an engine. `agent`: it needs tool calls and a long context. `start` runs it once its
    files are written; `steps` are what a person does, as `(label, text)`, and `commands` what they can run."""

    id: str
    title: str
    api: Api
    agent: bool = True
    files: tuple[ClientFile, ...] = ()
    start: str = ""
    steps: Callable[[Served], Sequence[tuple[str, str]]] = lambda _: ()
    command: Callable[[Served], str] = lambda _: ""


# --- keys by client ---------------------------------------------------------------------------------------


def given(**values: Any) -> dict[str, Any]:
    """Those that are known."""
    return {key: value for key, value in values.items() if value is not None}


def _claude(served: Served) -> Mapping[str, Any]:
    """No /v1 in the URL. The attribution header changes with every turn, and would defeat the prefix cache."""
    limits = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": served.output, "CLAUDE_CODE_AUTO_COMPACT_WINDOW": served.context}
    models = ("ANTHROPIC_MODEL", *(f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("OPUS", "SONNET", "HAIKU")))
    return {
        "env": {
            "ANTHROPIC_BASE_URL": served.base_url,
            "ANTHROPIC_AUTH_TOKEN": served.sent_key,
            "ANTHROPIC_API_KEY": "",
            **dict.fromkeys(models, served.name),
            "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
            **{name: str(tokens) for name, tokens in limits.items() if tokens is not None},
        }
    }


def _codex(served: Served) -> Mapping[str, Any]:
    provider = {"name": "DGX Spark", "base_url": served.api_url, "wire_api": "responses"}
    return {
        "model": served.name,
        "model_provider": "spark",
        **given(model_context_window=served.context),
        "model_providers": {"spark": provider | ({"env_key": KEY_VARIABLE} if served.key else {})},
    }


def _opencode(served: Served) -> Mapping[str, Any]:
    limit = {"limit": {"context": served.context, "output": served.output}} if served.context else {}
    options = {"baseURL": served.api_url, "apiKey": "{file:./spark-tui.key}"}
    return {
        "model": f"spark/{served.name}",
        "provider": {
            "spark": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "DGX Spark",
                "options": options,
                "models": {served.name: {"name": served.name, **limit}},
            }
        },
    }


def _continue(served: Served) -> Mapping[str, Any]:
    limits = given(contextLength=served.context, maxTokens=served.output)
    return {
        "models": [
            {
                "name": "DGX Spark",
                "provider": "openai",
                "model": served.name,
                "apiBase": served.api_url,
                "apiKey": f"${{{{ secrets.{KEY_VARIABLE} }}}}",
                "roles": ["chat", "edit", "apply"],
                **({"defaultCompletionOptions": limits} if limits else {}),
            }
        ]
    }


def _aider(served: Served) -> Mapping[str, Any]:
    return {
        "model": f"openai/{served.name}",
        "openai-api-base": served.api_url,
        "openai-api-key": served.sent_key,
    }


def _aider_model(served: Served) -> Mapping[str, Any]:
    limits = given(max_input_tokens=served.context, max_output_tokens=served.output)
    return {f"openai/{served.name}": {**limits, "litellm_provider": "openai", "mode": "chat"}}


def _qwen(served: Served) -> Mapping[str, Any]:
    limits = given(contextWindowSize=served.context)
    sampling = {"samplingParams": {"max_tokens": served.output}} if served.output else {}
    return {
        "security": {"auth": {"selectedType": "openai"}},
        "model": {"name": served.name, "generationConfig": limits | sampling},
    }


def _openai_variables(served: Served) -> Mapping[str, Any]:
    return {"OPENAI_API_KEY": served.sent_key, "OPENAI_BASE_URL": served.api_url, "OPENAI_MODEL": served.name}


def _webui(served: Served) -> Mapping[str, Any]:
    """Its database keeps what it read at its first start, unless persistent settings are off."""
    return {
        "OPENAI_API_BASE_URL": served.api_url,
        "OPENAI_API_KEY": served.sent_key,
        "ENABLE_OLLAMA_API": "false",
        "ENABLE_PERSISTENT_CONFIG": "false",
        "PORT": "3000",
    }


# --- steps ------------------------------------------------------------------------------------------------


def _editor_steps(served: Served) -> Sequence[tuple[str, str]]:
    made = f"printed once by: {served.key_command}" if served.key_command else "any word"
    kept = f"in {served.key_file}{' on the Spark' * served.elsewhere}"
    return (
        ("provider", "OpenAI Compatible"),
        ("base URL", served.api_url),
        ("model ID", served.name),
        ("context", f"{served.context} tokens" if served.context else "as the engine serves"),
        ("API key", kept if served.key_file else made),
    )


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


def _curl(served: Served) -> str:
    body = json.dumps({"model": served.name, "messages": [{"role": "user", "content": "Hello"}]})
    return _with_key(
        served,
        f'curl {served.api_url}/chat/completions \\\n  -H "Authorization: Bearer ${KEY_VARIABLE}" '
        f"-H 'Content-Type: application/json' \\\n  -d {shlex.quote(body)}",
    )


def _python(make: str, ask: str) -> Callable[[Served], str]:
    """A script that makes a client and prints the answer to a question."""

    def script(served: Served) -> str:
        client = make.format(url=served.base_url, key=f'os.environ["{KEY_VARIABLE}"]')
        asked = ask.format(name=json.dumps(served.name), ask='[{"role": "user", "content": "Hello"}]')
        return _with_key(served, f"python3 - <<'END'\nimport os\n{client}\nprint({asked})\nEND")

    return script


_OPENAI: Final = _python(
    'from openai import OpenAI\nclient = OpenAI(base_url="{url}/v1", api_key={key})',
    "client.chat.completions.create(model={name}, messages={ask}).choices[0].message.content",
)
_ANTHROPIC: Final = _python(
    'from anthropic import Anthropic\nclient = Anthropic(base_url="{url}", auth_token={key})',
    "client.messages.create(model={name}, max_tokens=512, messages={ask}).content",
)
_WEBUI_ENV: Final = ".config/spark-tui/clients/open-webui.env"
_WEBUI: Final = (
    f"docker run -d --name open-webui --network host --env-file ~/{_WEBUI_ENV} "
    "-v open-webui:/app/backend/data ghcr.io/open-webui/open-webui:main"
)
_JSON, _ENV = FileFormat.JSON, FileFormat.ENV
_CLIENTS: Final = (
    Client(
        "claude-code", "Claude Code", Api.MESSAGES, start="claude",
        files=(ClientFile(".claude", ("settings.json",), _JSON, _claude, "CLAUDE_CONFIG_DIR"),),
    ),
    Client(
        "codex", "Codex", Api.RESPONSES, start="codex",
        files=(
            ClientFile(".codex", ("config.toml",), FileFormat.TOML, _codex, "CODEX_HOME"),
            ClientFile(".codex", (".env",), _ENV, lambda s: {KEY_VARIABLE: s.key} if s.key else {}, "CODEX_HOME"),
        ),
    ),
    Client(
        "opencode", "OpenCode", Api.CHAT, start="opencode",
        files=(
            ClientFile(".config/opencode", ("opencode.json", "opencode.jsonc"), _JSON, _opencode,
                       fresh={"$schema": "https://opencode.ai/config.json"}),
            ClientFile(".config/opencode", ("spark-tui.key",), FileFormat.TEXT, lambda s: s.sent_key),
        ),
    ),
    Client(
        "continue", "Continue", Api.CHAT, agent=False, start="cn",
        files=(
            ClientFile(".continue", ("config.yaml",), FileFormat.YAML, _continue,
                       fresh={"name": "Local", "version": "1.0.0", "schema": "v1"}),
            ClientFile(".continue", (".env",), _ENV, lambda s: {KEY_VARIABLE: s.sent_key}),
        ),
    ),
    Client(
        "aider", "aider", Api.CHAT, agent=False, start="aider",
        files=(
            ClientFile("", (".aider.conf.yml",), FileFormat.YAML, _aider),
            ClientFile("", (".aider.model.metadata.json",), _JSON, _aider_model),
        ),
    ),
    Client(
        "qwen-code", "Qwen Code", Api.CHAT, start="qwen",
        files=(
            ClientFile(".qwen", ("settings.json",), _JSON, _qwen),
            ClientFile(".qwen", (".env",), _ENV, _openai_variables),
        ),
    ),
    Client(
        "open-webui", "Open WebUI", Api.CHAT, agent=False, start=_WEBUI,
        files=(ClientFile(".config/spark-tui/clients", ("open-webui.env",), _ENV, _webui),),
    ),
    Client("cline", "Cline", Api.CHAT, steps=_editor_steps),
    Client("roo", "Roo Code", Api.CHAT, steps=_editor_steps),
    Client("curl", "curl", Api.CHAT, agent=False, command=_curl),
    Client("openai-sdk", "OpenAI SDK", Api.CHAT, agent=False, command=_OPENAI),
    Client("anthropic-sdk", "Anthropic SDK", Api.MESSAGES, agent=False, command=_ANTHROPIC),
)  # fmt: skip


CLIENTS: Final[Mapping[str, Client]] = {client.id: client for client in _CLIENTS}
"""By id, in the order of the list."""


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
