"""Show and change the settings, each with its origin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from spark_tui.base.actions import action, check_keymap, known_actions
from spark_tui.base.context import Context
from spark_tui.base.keymap import Keymap, keymap_text, read_keymap
from spark_tui.base.remote import (
    check_name,
    cluster_plain,
    cluster_text,
    clusters_text,
    host_plain,
    host_text,
    hosts_text,
    read_cluster,
    read_clusters,
    read_host,
    read_hosts,
)
from spark_tui.base.settings import (
    KEYS,
    Folders,
    SettingOrigin,
    Settings,
    SettingsError,
    SettingSource,
    defaults,
    read_value,
    suggestion,
    variable_of,
)

if TYPE_CHECKING:
    from spark_tui.machine.settings import SettingsFile, UserThemes

T = TypeVar("T")

KEYMAP = "keymap"
_IN_TABLE = f"{KEYMAP}."


class _NamedTable(Struct, frozen=True):
    """A setting of named entries: how all of them and one are read from text, and written as text and as TOML."""

    noun: str
    add: str
    read: Callable[[object], tuple[Any, ...]]
    read_one: Callable[[str, str], Any]
    text: Callable[[Any], str]
    text_one: Callable[[Any], str]
    plain_one: Callable[[Any], object]


_TABLES: Mapping[str, _NamedTable] = {
    "hosts": _NamedTable(
        "host", "spark-tui config set hosts.{} USER@ADDRESS", read_hosts, read_host, hosts_text, host_text, host_plain
    ),
    "clusters": _NamedTable(
        "cluster", "spark-tui cluster add {} --node ADDRESS --node ADDRESS", read_clusters, read_cluster,
        clusters_text, cluster_text, cluster_plain,
    ),
}  # fmt: skip


class SettingEntry(Struct, frozen=True):
    """One setting. `value` and `default` are bools, numbers, texts; a keymap is text too."""

    key: str
    value: bool | float | str
    default: bool | float | str
    origin: SettingOrigin
    variable: str


def checked_keys(settings: Settings) -> None:
    """Raises SettingsError, with the place, for keys that the registry of actions does not allow."""
    try:
        check_keymap(settings.keymap)
    except ValueError as error:
        where = settings.origin(KEYMAP).where
        raise SettingsError(f"{where}: {KEYMAP} {error}.", "Correct it, or remove it.") from None


class Config(Struct, eq=False):
    """The settings of one user. `current` reads them all, `usual` are the defaults."""

    _file: SettingsFile
    _current: Callable[[], Settings]
    _usual: Settings

    @property
    def path(self) -> Path:
        """The settings file, which may be absent."""
        return self._file.path

    @property
    def keymap(self) -> Keymap:
        """The user's own keys. Raises SettingsError."""
        return self._current().keymap

    def entries(self) -> tuple[SettingEntry, ...]:
        settings = self._current()
        return tuple(
            SettingEntry(
                key, plain(key, getattr(settings, key)), plain(key, getattr(self._usual, key)),
                settings.origin(key), variable_of(key),
            )
            for key in KEYS
        )  # fmt: skip

    def entry(self, key: str) -> SettingEntry:
        """One setting; `keymap.stop` is one action's keys, `hosts.lab` one host, `clusters.duo` one cluster. Raises
        SettingsError for an unknown one."""
        found = self._entry(key)
        table, _, name = key.partition(".")
        if name and table in _TABLES and not found.value:
            near = suggestion(name, [each.name for each in getattr(self._current(), table)])
            remedy = f"Did you mean `{table}.{near}`?" if near else f"Add it: {_TABLES[table].add.format(name)}"
            raise SettingsError(f"There is no {_TABLES[table].noun} `{name}`.", remedy)
        return found

    def _entry(self, key: str) -> SettingEntry:
        """The same; an unknown host or cluster has an empty value."""
        known_key(key)
        name, _, id_ = key.partition(".")
        found = next(entry for entry in self.entries() if entry.key == name)
        if not id_:
            return found
        settings = self._current()
        if name in _TABLES:
            own, usual = {each.name: _TABLES[name].text_one(each) for each in getattr(settings, name)}, ""
        else:
            own = {each: ",".join(keys) for each, keys in settings.keymap}
            usual = ",".join(action(id_).default_keys)
        origin = found.origin if id_ in own else SettingOrigin(SettingSource.DEFAULT)
        return SettingEntry(key, own.get(id_) or usual, usual, origin, found.variable)

    def change(self, key: str, text: str | None) -> SettingEntry:
        """Writes a value into the file, or removes it (None), and returns the effective one: a variable may still be
        stronger. Raises SettingsError, and changes nothing, where the file would not be valid."""
        known_key(key)
        written = self._file.read()
        for name, value in self._targets(key, text, written):
            written = self._file.edited(written, name, value)
        checked_keys(self._file.parsed(written))
        self._file.save(written)
        return self._entry(key)

    def _targets(self, key: str, text: str | None, before: str) -> list[tuple[str, object]]:
        """The values to write. A whole table replaces the one in the file, entry by entry."""
        table, _, name = key.partition(".")
        new: dict[str, object] = {}
        if name and text is None:
            return [(key, None)]
        if table == KEYMAP:
            given = text or ""
            if name:
                keys = dict(_read(key, lambda: read_keymap({name: "," if given == "," else given.split(",")})))[name]
                return [(key, keys[0] if len(keys) == 1 else keys)]
            new = dict(_read(key, lambda: read_keymap(given))) if text is not None else {}
            old: Iterable[str] = dict(self._file.parsed(before).keymap)
        elif table in _TABLES:
            given, kind = text or "", _TABLES[table]
            if name:
                return [(key, _read(table, lambda: kind.plain_one(kind.read_one(name, given))))]
            if text is not None:
                new = {each.name: kind.plain_one(each) for each in _read(key, lambda: kind.read(given))}
            old = [each.name for each in getattr(self._file.parsed(before), table)]
        else:
            return [(key, None if text is None else toml_plain(key, text))]
        return [(f"{table}.{each}", new.get(each)) for each in sorted({*old, *new})]


def known_key(key: str) -> None:
    """Raises SettingsError, with a suggestion, for an unknown setting."""
    table, dot, name = key.partition(".")
    if dot and table in _TABLES:
        _read(table, lambda: check_name(name))
    elif key.startswith(_IN_TABLE):
        known = {each.id for each in known_actions()}
        given = key.removeprefix(_IN_TABLE)
        if given not in known:
            near = suggestion(given, known)
            remedy = f"Did you mean `{_IN_TABLE}{near}`?" if near else "See the ids with: spark-tui config keys"
            raise SettingsError(f"There is no action `{given[:60]}`.", remedy)
    elif key not in KEYS:
        near = suggestion(key)
        remedy = f"Did you mean `{near}`?" if near else f"They are: {', '.join(KEYS)}."
        raise SettingsError(f"There is no setting `{key[:60]}`.", remedy)


def toml_plain(key: str, text: str) -> bool | float | str:
    """A typed text as its setting's own type. Raises SettingsError."""
    value = _read(key, lambda: read_value(key, text))
    return value if isinstance(value, bool | float) else text


def plain(key: str, value: Any) -> bool | float | str:
    """A setting's value for display and for JSON."""
    if isinstance(value, bool | float):
        return value
    if key in _TABLES:
        return _TABLES[key].text(value)
    return keymap_text(value) if key == KEYMAP else str(value)


def _read(key: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except ValueError as error:
        raise SettingsError(f"{key} {error}.", "Nothing was changed.") from None


def read_settings(folders: Folders, environ: Mapping[str, str]) -> Settings:
    """Defaults, the settings file, the environment. Raises SettingsError."""
    from spark_tui.machine.settings import load_settings

    settings = load_settings(environ, folders)
    if settings.keymap:
        checked_keys(settings)
    return settings


def open_config(folders: Folders, environ: Mapping[str, str]) -> Config:
    """The settings, to look at and to change."""
    from spark_tui.machine.settings import SettingsFile

    return Config(SettingsFile(folders), lambda: read_settings(folders, environ), defaults(folders))


def config_of(context: Context) -> Config | None:
    """The settings, to change them; None in a demo."""
    folders = context.ports.get("folders")
    return None if context.demo or folders is None else open_config(folders, context.ports.get("environ") or {})


def user_themes(context: Context) -> UserThemes:
    """The user's own themes, read now: call it in a thread."""
    from spark_tui.machine.settings import UserThemes, read_themes

    folders = context.ports.get("folders")
    return UserThemes() if folders is None else read_themes(folders.themes)
