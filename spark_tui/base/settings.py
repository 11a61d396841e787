"""Settings: what they mean, their defaults, where files are; a person's own keys."""

from __future__ import annotations

import difflib
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.errors import UsageError
from spark_tui.base.remote import Clusters, Hosts, read_clusters, read_hosts, server_address

Keymap = tuple[tuple[str, tuple[str, ...]], ...]
"""Action id -> keys by their names, the first of them shown."""

MOST_KEYS: Final = 4
FIXED: Final = ("tab", "shift+tab", "ctrl+c")
"""They move between panes, and copy or leave: no action can have them."""
_WORDS: Final = "enter escape space backspace delete insert home end pageup pagedown up down left right"
_NAMED: Final = frozenset((*_WORDS.split(" "), *(f"f{number}" for number in range(1, 13))))
_FRIENDLY: Final = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
_MODIFIERS: Final = ("ctrl", "alt", "shift")
_ACTION: Final = re.compile(r"[a-z][a-z_]{0,39}")


def key_name(text: str) -> str:
    """`?` -> `question_mark`, `Ctrl+X` -> `ctrl+x`, `G` stays `G`. Raises ValueError for what is no key."""
    given = text.strip()
    if len(given) == 1 and given.isprintable():
        return _of_character(given)
    *modifiers, base = given.lower().replace("page_", "page").split("+")
    name = "+".join([*(word for word in _MODIFIERS if word in modifiers), base])
    if name in FIXED:
        raise ValueError(f"must leave {name} alone, which always does the same")
    known = base in _NAMED or base in _CHARACTERS or (len(base) == 1 and base.isalnum() and bool(modifiers))
    if not known or set(modifiers) - set(_MODIFIERS):
        raise ValueError(f"must name keys such as x, ?, f5, ctrl+x or pageup; {text[:40]!r} is none")
    return name


def _of_character(character: str) -> str:
    """The name under which a terminal library reports a character."""
    if character.isalnum():
        return character
    if character == " ":
        return "space"
    name = unicodedata.name(character, character).lower().replace("-", "_").replace(" ", "_")
    return _FRIENDLY.get(name, name)


_CHARACTERS: Final = frozenset(_of_character(chr(code)) for code in range(33, 127) if not chr(code).isalnum())


def read_keymap(value: object) -> Keymap:
    """A keymap from a TOML table (`stop = "X"`, `stop = ["X", "ctrl+x"]`), from text (`stop=X,ctrl+x restart=R`), or
    from one that was read. Ids and clashes are for the registry of actions to judge. Raises ValueError."""
    if isinstance(value, str):
        pairs = []
        for word in value.split():
            action, equals, keys = word.partition("=")
            if not equals:
                raise ValueError(f"must be keys by action, such as stop=X restart=R; it is {value[:80]!r}")
            pairs.append((action, [","] if keys == "," else keys.split(",")))
        return _read(pairs)
    if isinstance(value, Mapping):
        return _read(value.items())
    if isinstance(value, tuple) and all(isinstance(each, tuple) and len(each) == 2 for each in value):
        return _read(value)
    raise ValueError(f'must be a table of keys, such as stop = "X"; it is {value!r}')


def keymap_text(keymap: Keymap) -> str:
    """As text that reads back: `stop=X,ctrl+x restart=R`."""
    return " ".join(f"{action}={','.join(keys)}" for action, keys in keymap)


def _read(pairs: Iterable[tuple[object, object]]) -> Keymap:
    found: dict[str, tuple[str, ...]] = {}
    for action, keys in pairs:
        if not isinstance(action, str) or not _ACTION.fullmatch(action) or action in found:
            raise ValueError(f"must name each action once, by its id; it has {str(action)[:40]!r}")
        try:
            found[action] = _keys(keys)
        except ValueError as error:
            raise ValueError(f"{error} (for {action})") from None
    return tuple(sorted(found.items()))


def _keys(value: object) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError(f'must be a key such as "X", or a list of them; it is {value!r}')
    if not 1 <= len(words) <= MOST_KEYS:
        raise ValueError(f"must be 1 to {MOST_KEYS} keys; it is {len(words)}")
    return tuple(dict.fromkeys(key_name(word) for word in words))


# --- settings --------------------------------------------------------------------------------------------


ENV_PREFIX: Final = "SPARK_TUI_"
REFRESH_RANGE: Final = (0.2, 60.0)
GUARD_RANGE: Final = (0.5, 64.0)
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")
AUTO: Final = "auto"
THEME_NAMES: Final = (
    AUTO,
    "spark-dark",
    "spark-light",
    "spark-contrast",
    "spark-nord",
    "spark-gruvbox",
    "spark-paper",
    "spark-ansi",
)
THEME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
"""The name of a theme; which ones there are besides ours is for their files to say."""
GLYPH_NAMES: Final = (AUTO, "unicode", "console", "ascii")
SHARE_NAMES: Final = (AUTO, "preset")
NOTICES: Final = ("title", "bell", "osc9", "osc777")
"""Signals for the terminal: its window's title, a bell, desktop notices of two kinds."""
OFF: Final = "off"
LOOKS: Final = ("theme", "glyphs", "keymap", "notify")
"""Settings of the screen alone, which apply to the demo too."""
_DOCKER_SCHEMES: Final = ("unix://", "tcp://", "http://", "https://")
DEMO_HOME: Final = Path("/home/spark")
"""The home of the simulated Spark's user: nothing is there."""


class ExposureChoice(StrEnum):
    LOCAL = "local"
    LAN = "lan"


class SettingsError(UsageError, id="settings_invalid"):
    """An invalid setting, with its file and line, or its variable."""


class Folders(Struct, frozen=True):
    """This program's own directories, and the user's home. All absolute."""

    home: Path
    config: Path
    state: Path
    cache: Path
    data: Path

    @property
    def conversations(self) -> Path:
        """Conversations of Chat, each with its images."""
        return self.data / "conversations"

    @property
    def history(self) -> Path:
        """Samples, starts and records."""
        return self.data / "history"

    @property
    def benchmarks(self) -> Path:
        """Benchmark results and verdicts on models."""
        return self.data / "benchmarks"

    @property
    def registries(self) -> Path:
        """Recipes of git repositories, and their pins."""
        return self.data / "registries"

    @property
    def chat_history(self) -> Path:
        """The prompt history of `spark-tui chat`."""
        return self.state / "chat" / "history"

    @property
    def settings_file(self) -> Path:
        """The settings file; it may be absent."""
        return self.config / "settings.toml"

    @property
    def themes(self) -> Path:
        """The user's own themes, `*.toml`."""
        return self.config / "themes"

    @property
    def secrets(self) -> Path:
        """The private env files of containers."""
        return self.config / "secrets"

    @property
    def guard(self) -> Path:
        """The memory guard's journal and lock."""
        return self.state / "guard"

    @property
    def downloads(self) -> Path:
        """The state of downloads, running and ended."""
        return self.state / "downloads"

    @property
    def logs(self) -> Path:
        """Dumped and rescued logs."""
        return self.state / "logs"


def folders_of(environ: Mapping[str, str], home: Path) -> Folders:
    """By the XDG Base Directory Specification: a relative path in a variable is invalid and ignored."""

    def base(variable: str, default: str) -> Path:
        given = environ.get(variable, "")
        return (Path(given) if given.startswith("/") else home / default) / "spark-tui"

    return Folders(
        home=home,
        config=base("XDG_CONFIG_HOME", ".config"),
        state=base("XDG_STATE_HOME", ".local/state"),
        cache=base("XDG_CACHE_HOME", ".cache"),
        data=base("XDG_DATA_HOME", ".local/share"),
    )


def folders_for(config: str, environ: Mapping[str, str]) -> Folders:
    """Of this user, with the folder of settings that was typed, if one was."""
    home = Path(environ.get("HOME") or Path.home())
    folders = folders_of(environ, home)
    return replace(folders, config=typed_path(config, home)) if config else folders


def typed_path(text: str, home: Path) -> Path:
    path = Path(text)
    inside = path.parts[1:] if path.parts[:1] == ("~",) else None  # `--store=~/x`: no shell expands that
    return Path.cwd() / path if inside is None else home.joinpath(*inside)


class SettingSource(StrEnum):
    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    OPTION = "option"


class SettingOrigin(Struct, frozen=True):
    """The origin of a value: `~/.config/spark-tui/settings.toml:3`, `SPARK_TUI_STORE`, `--read-only`."""

    source: SettingSource
    where: str = ""


class Settings(Struct, frozen=True):
    """All settings. Paths are absolute once `resolved`; `~` is the user's home until then.

    `store` holds the models (downloads go there), `model_roots` are more folders with models, `caches` holds the
    engines' compiled kernels, `presets` the user's own recipes. An empty
    `docker_host` leaves the choice to Docker's own rules. `exposure` is the launch form's default.
    Below `guard_serving_gib` of usable memory the memory guard ends an engine, below `guard_loading_gib` while one
    loads; with `guard_auto` a launch starts a guard where none runs. `stop_crash_loops` lets the control centre and
    the guard stop an engine of ours that Docker restarts again and again. `memory_share` is a launch's share of the
    memory where it names none: what it needs, or the preset's. `auto` as `theme` or `glyphs` follows the terminal;
    `notify` are the signals for the terminal when a start, a download or a benchmark ends; `keymap` has the user's own
    keys by action id. `hosts` are other machines with a spark-tui, `engines` addresses of servers that are engines too,
    with their names: `lab=http://192.168.1.7:8000`; a gateway is none.
    """

    store: Path = Path("~/vllm")
    model_roots: tuple[Path, ...] = ()
    presets: Path = Path("~/.config/spark-tui/presets")
    caches: Path = Path("~/.cache/spark-tui/kernels")
    docker_host: str = ""
    refresh_seconds: float = 1.0
    exposure: ExposureChoice = ExposureChoice.LOCAL
    read_only: bool = False
    guard_serving_gib: float = 2.0
    guard_loading_gib: float = 3.0
    guard_auto: bool = True
    stop_crash_loops: bool = True
    memory_share: str = AUTO
    theme: str = AUTO
    glyphs: str = AUTO
    notify: str = "title,bell"
    keymap: Keymap = ()
    hosts: Hosts = ()
    clusters: Clusters = ()
    engines: str = ""
    origins: tuple[tuple[str, SettingOrigin], ...] = ()

    def origin(self, key: str) -> SettingOrigin:
        return dict(self.origins).get(key, SettingOrigin(SettingSource.DEFAULT))

    def changed(self, origin: SettingOrigin, **values: Any) -> Settings:
        """With other values, which come from `origin`. Raises ValueError for one outside its range."""
        read: dict[str, Any] = {key: read_value(key, value) for key, value in values.items()}
        origins = {**dict(self.origins), **dict.fromkeys(read, origin)}
        return replace(self, **read, origins=tuple(origins.items()))

    def resolved(self, home: Path) -> Settings:
        """With absolute paths: `~` is `home`, and a relative path starts there too."""
        paths: dict[str, Any] = {key: _absolute(getattr(self, key), home) for key in ("store", "presets", "caches")}
        return replace(self, **paths, model_roots=tuple(_absolute(each, home) for each in self.model_roots))


KEYS: Final = tuple(name for name in Settings.__struct_fields__ if name != "origins")


def defaults(folders: Folders) -> Settings:
    return Settings(presets=folders.config / "presets", caches=folders.cache / "kernels").resolved(folders.home)


def hub_caches(settings: Settings, environ: Mapping[str, str], home: Path) -> tuple[str, ...]:
    """Where this person's Hub caches may be besides the store's, in the order in which they are searched: those that
    the environment names (huggingface_hub's constants.py), its default, the guide's folder, those of the settings.
    Absolute paths; none has to exist."""
    base = environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
    named = (environ.get("HF_HUB_CACHE", ""), environ.get("HUGGINGFACE_HUB_CACHE", ""))
    homes = (environ.get("HF_HOME", ""), f"{base}/huggingface", f"{home}/vllm", *map(str, settings.model_roots))
    found = (*named, *(f"{each}/hub" for each in homes if each), *map(str, settings.model_roots))
    absolute = (f"{home}{path[1:]}" if path.startswith("~/") else path for path in found)
    usable = (os.path.normpath(path) for path in absolute if path.startswith("/") and ":" not in path)
    return tuple(path for path in dict.fromkeys(usable) if path != f"{settings.store}/hub")


LM_STUDIO: Final = "LM Studio"
OLLAMA: Final = "Ollama"


def gguf_folders(environ: Mapping[str, str], home: Path) -> Mapping[str, str]:
    """Where other tools keep GGUF files, each with the tool's name. Absolute paths; none has to exist."""
    found = {f"{home}/{each}/models": LM_STUDIO for each in (".lmstudio", ".cache/lm-studio")}
    places = (environ.get("OLLAMA_MODELS", ""), f"{home}/.ollama/models", "/usr/share/ollama/.ollama/models")
    found |= dict.fromkeys(places, OLLAMA)
    return {os.path.normpath(path): tool for path, tool in found.items() if path.startswith("/") and ":" not in path}


def variable_of(key: str) -> str:
    """`read_only` -> `SPARK_TUI_READ_ONLY`."""
    return ENV_PREFIX + key.upper()


def suggestion(word: str, known: Iterable[str] = KEYS, *, likeness: float = 0.6) -> str:
    """The known word closest to `word`, or an empty string."""
    return next(iter(difflib.get_close_matches(word, tuple(known), 1, likeness)), "")


def read_value(key: str, value: object) -> object:
    """A value from TOML, from the environment (text) or from an option, as its setting wants it.

    Raises ValueError with what it must be: `must be true or false; it is 3`.
    """
    return _READERS[key](value)


def _path(value: object) -> Path:
    text = str(value) if isinstance(value, Path) else value
    if not isinstance(text, str) or not text.strip() or not text.isprintable():
        raise ValueError(f"must be a path; it is {value!r}")
    if ":" in text:
        raise ValueError(f"must be a path without a colon, which Docker cannot mount; it is {text!r}")
    if text.startswith("~") and text != "~" and not text.startswith("~/"):
        raise ValueError(f"must begin with / or ~/; it is {text!r}")
    return Path(text)


def _paths(value: object) -> tuple[Path, ...]:
    """A list of paths, or their text with commas between."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise ValueError(f"must be paths, with commas between; it is {value!r}")
    return tuple(_path(each.strip() if isinstance(each, str) else each) for each in given if each != "")


def _docker_host(value: object) -> str:
    if isinstance(value, str) and (not value or value.startswith(_DOCKER_SCHEMES)) and value.isprintable():
        return value
    hint = ""
    if isinstance(value, str) and value.startswith("/"):
        hint = f" (write unix://{value})"
    elif isinstance(value, str) and value.startswith("ssh://"):  # memory and GPU would be this machine's
        hint = f" (another machine: spark-tui --host {value.removeprefix('ssh://')})"
    raise ValueError(
        f"must be an address such as unix:///var/run/docker.sock or tcp://127.0.0.1:2375; it is {value!r}{hint}"
    )


def _within(bounds: tuple[float, float], unit: str) -> Callable[[object], float]:
    def read(value: object) -> float:
        low, high = bounds
        try:
            number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or not low <= number <= high:
            raise ValueError(f"must be a number of {unit} from {low:g} to {high:g}; it is {value!r}")
        return number

    return read


def _one_of(names: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if isinstance(value, str) and value in names:
            return value
        raise ValueError(f"must be {', '.join(names[:-1])} or {names[-1]}; it is {value!r}")

    return read


def _notices(value: object) -> str:
    """`bell,osc9`, or a list of those words, in one order."""
    words = value if isinstance(value, list) else value.split(",") if isinstance(value, str) else [None]
    given = [word.strip() if isinstance(word, str) else "" for word in words]
    if given == [OFF]:
        return OFF
    if not given or not all(word in NOTICES for word in given):
        raise ValueError(f"must be {OFF}, or of {', '.join(NOTICES)}, with commas; it is {value!r}")
    return ",".join(word for word in NOTICES if word in given)


def read_engines(text: str) -> tuple[tuple[str, str], ...]:
    """The names, which may be empty, and the addresses of the setting `engines`."""
    pairs = (word.rpartition("=") for word in text.replace(",", " ").split())
    return tuple((name, url) for name, _, url in pairs)


def _engines(value: object) -> str:
    """`lab=http://192.168.1.7:8000 http://10.0.0.9:30000`, or a list of such words."""
    text = " ".join(map(str, value)) if isinstance(value, list) else value
    if not isinstance(text, str):
        raise ValueError(f"must be addresses such as lab=http://192.168.1.7:8000; it is {value!r}")
    for _, url in read_engines(text):
        server_address(url)
    return text


def _theme(value: object) -> str:
    """One of ours, or a name that a theme of the user's own may have: names that begin as ours do are ours."""
    if isinstance(value, str) and THEME.fullmatch(value) and not value.startswith("spark-"):
        return value
    return _one_of(THEME_NAMES)(value)


def read_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in _TRUE + _FALSE:
        raise ValueError(f"must be true or false; it is {value!r}")
    return word in _TRUE


_READERS: Final[Mapping[str, Callable[[object], object]]] = {
    "store": _path,
    "model_roots": _paths,
    "presets": _path,
    "caches": _path,
    "docker_host": _docker_host,
    "refresh_seconds": _within(REFRESH_RANGE, "seconds"),
    "exposure": lambda value: ExposureChoice(_one_of(tuple(ExposureChoice))(value)),
    "read_only": read_flag,
    "guard_serving_gib": _within(GUARD_RANGE, "GiB"),
    "guard_loading_gib": _within(GUARD_RANGE, "GiB"),
    "guard_auto": read_flag,
    "stop_crash_loops": read_flag,
    "memory_share": _one_of(SHARE_NAMES),
    "theme": _theme,
    "glyphs": _one_of(GLYPH_NAMES),
    "notify": _notices,
    "keymap": read_keymap,
    "hosts": read_hosts,
    "clusters": read_clusters,
    "engines": _engines,
}


def _absolute(path: Path, home: Path) -> Path:
    inside = path.parts[1:] if path.parts[:1] == ("~",) else path.parts
    return home.joinpath(*inside)
