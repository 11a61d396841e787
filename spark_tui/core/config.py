"""The settings as a person looks at them and changes them: each with where it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from spark_tui.core.actions import ACTIONS, action, check_keymap
from spark_tui.domain.keymap import Keymap, keymap_text, read_keymap
from spark_tui.domain.remote import check_name, host_plain, host_text, hosts_text, read_host, read_hosts
from spark_tui.domain.settings import (
    KEYS,
    Origin,
    Settings,
    SettingsError,
    Source,
    read_value,
    suggestion,
    variable_of,
)

T = TypeVar("T")

KEYMAP = "keymap"
_IN_TABLE = f"{KEYMAP}."
HOSTS = "hosts"
_IN_HOSTS = f"{HOSTS}."


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting. `value` and `default` are bools, numbers, texts; a keymap is text too."""

    key: str
    value: bool | float | str
    default: bool | float | str
    origin: Origin
    variable: str


def checked_keys(settings: Settings) -> None:
    """Raises SettingsError, with the place, for keys that the registry of actions does not allow."""
    try:
        check_keymap(settings.keymap)
    except ValueError as error:
        where = settings.origin(KEYMAP).where
        raise SettingsError(f"{where}: {KEYMAP} {error}.", "Correct it, or remove it.") from None


class SettingsFile(Protocol):
    """The file, as `services.settings.SettingsFile` keeps it."""

    path: Path

    def read(self) -> str:
        """Its text; empty when there is none. Raises SettingsError."""

    def parsed(self, text: str) -> Settings:
        """The settings of a file with that text. Raises SettingsError."""

    def edited(self, text: str, key: str, value: object) -> str:
        """`text` with `key` set to `value`; None removes it. Raises SettingsError."""

    def save(self, text: str) -> None:
        """Puts the text in place. Raises SettingsError."""


class Config:
    """The settings of one person. `current` reads all that counts, `usual` are the defaults."""

    def __init__(self, file: SettingsFile, current: Callable[[], Settings], usual: Settings) -> None:
        self._file = file
        self._current = current
        self._usual = usual

    @property
    def path(self) -> Path:
        """Where the file is, or would be."""
        return self._file.path

    @property
    def keymap(self) -> Keymap:
        """The person's own keys. Raises SettingsError."""
        return self._current().keymap

    def entries(self) -> tuple[Entry, ...]:
        """All of them. Raises SettingsError for a file or variable that is wrong."""
        settings = self._current()
        return tuple(
            Entry(
                key, plain(key, getattr(settings, key)), plain(key, getattr(self._usual, key)),
                settings.origin(key), variable_of(key),
            )
            for key in KEYS
        )  # fmt: skip

    def entry(self, key: str) -> Entry:
        """One of them; `keymap.stop` is one action's keys, `hosts.lab` one host. Raises SettingsError for one that does
        not exist."""
        found = self._entry(key)
        if key.startswith(_IN_HOSTS) and not found.value:
            names = [each.name for each in self._current().hosts]
            near = suggestion(key.removeprefix(_IN_HOSTS), names)
            add = f"Add it: spark-tui config set {key} USER@ADDRESS"
            remedy = f"Did you mean `{_IN_HOSTS}{near}`?" if near else add
            raise SettingsError(f"There is no host `{key.removeprefix(_IN_HOSTS)}`.", remedy)
        return found

    def _entry(self, key: str) -> Entry:
        """The same; a host that does not exist has an empty value."""
        known_key(key)
        name, _, id_ = key.partition(".")
        found = next(entry for entry in self.entries() if entry.key == name)
        if not id_:
            return found
        if name == HOSTS:
            raw = next((host_text(each) for each in self._current().hosts if each.name == id_), "")
            return Entry(key, raw, "", found.origin if raw else Origin(Source.DEFAULT), found.variable)
        own, usual = dict(self._current().keymap), ",".join(action(id_).default_keys)
        origin = found.origin if id_ in own else Origin(Source.DEFAULT)
        return Entry(key, ",".join(own.get(id_, ())) or usual, usual, origin, found.variable)

    def change(self, key: str, text: str | None) -> Entry:
        """Writes a value into the file, or takes it out (None), and returns what counts then: a variable may still be
        stronger. Raises SettingsError for what would not be a valid file; nothing has changed then."""
        known_key(key)
        written = self._file.read()
        for name, value in self._targets(key, text, written):
            written = self._file.edited(written, name, value)
        checked_keys(self._file.parsed(written))
        self._file.save(written)
        return self._entry(key)

    def _targets(self, key: str, text: str | None, before: str) -> list[tuple[str, object]]:
        """The values to write. A whole table takes the place of the one that is there, entry by entry."""
        if key == KEYMAP:
            own = dict(self._file.parsed(before).keymap)
            new: Keymap = () if text is None else _read(key, lambda: read_keymap(text))
            return [(_IN_TABLE + each, dict(new).get(each)) for each in sorted(own.keys() | dict(new).keys())]
        if key.startswith(_IN_TABLE):
            if text is None:
                return [(key, None)]
            id_ = key.removeprefix(_IN_TABLE)
            keys = dict(_read(key, lambda: read_keymap({id_: "," if text == "," else text.split(",")})))[id_]
            return [(key, keys[0] if len(keys) == 1 else keys)]
        if key == HOSTS or key.startswith(_IN_HOSTS):
            return self._host_targets(key, text, before)
        return [(key, None if text is None else toml_plain(key, text))]

    def _host_targets(self, key: str, text: str | None, before: str) -> list[tuple[str, object]]:
        name = key.removeprefix(_IN_HOSTS)
        if name != key:
            return [(key, None if text is None else _read(HOSTS, lambda: host_plain(read_host(name, text))))]
        gone: dict[str, object] = {each.name: None for each in self._file.parsed(before).hosts}
        new = {} if text is None else {each.name: host_plain(each) for each in _read(key, lambda: read_hosts(text))}
        return [(_IN_HOSTS + each, value) for each, value in sorted((gone | new).items())]


def known_key(key: str) -> None:
    """Raises SettingsError, with what was probably meant, for a setting that does not exist."""
    if key in KEYS:
        return
    if key.startswith(_IN_TABLE):
        known = {each.id for each in ACTIONS}
        given = key.removeprefix(_IN_TABLE)
        if given in known:
            return
        near = suggestion(given, known)
        remedy = f"Did you mean `{_IN_TABLE}{near}`?" if near else "See the ids with: spark-tui config keys"
        raise SettingsError(f"There is no action `{given[:60]}`.", remedy)
    if key.startswith(_IN_HOSTS):
        _read(HOSTS, lambda: check_name(key.removeprefix(_IN_HOSTS)))
        return
    near = suggestion(key)
    raise SettingsError(
        f"There is no setting `{key[:60]}`.", f"Did you mean `{near}`?" if near else f"They are: {', '.join(KEYS)}."
    )


def toml_plain(key: str, text: str) -> bool | float | str:
    """A typed text as its setting's own kind. Raises SettingsError."""
    value = _read(key, lambda: read_value(key, text))
    return value if isinstance(value, bool | float) else text


def plain(key: str, value: Any) -> bool | float | str:
    """A setting's value for people and for JSON."""
    if isinstance(value, bool | float):
        return value
    in_tables: Mapping[str, Callable[[Any], str]] = {KEYMAP: keymap_text, HOSTS: hosts_text}
    return in_tables.get(key, str)(value)


def _read(key: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except ValueError as error:
        raise SettingsError(f"{key} {error}.", "Nothing was changed.") from None
