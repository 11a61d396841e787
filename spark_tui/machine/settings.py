"""Settings from a TOML file and from the environment, each with its origin: read, shown and changed. Every mistake is
named with its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from spark_tui.base.actions import action, check_keymap, known_actions
from spark_tui.base.context import Context
from spark_tui.base.files import FILE_MODE, FOLDER_MODE, read_plain, write_whole
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
    ENV_PREFIX,
    KEYS,
    THEME_NAMES,
    Folders,
    SettingOrigin,
    Settings,
    SettingsError,
    SettingSource,
    defaults,
    keymap_text,
    read_keymap,
    read_value,
    suggestion,
    variable_of,
)
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_toml

if TYPE_CHECKING:
    from spark_tui.base.theme import UserTheme

T = TypeVar("T")

KEYMAP: Final = "keymap"
_IN_TABLE: Final = f"{KEYMAP}."
_MOST_BYTES: Final = 256 * 1024
_MOST_THEMES: Final = 100
_TYPO: Final = 0.85
"""Other programs may have variables of our prefix: only a near miss is a mistake."""
_AT_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$")


def load_settings(environ: Mapping[str, str], folders: Folders) -> Settings:
    """Defaults, then the settings file, then `SPARK_TUI_*` variables; the last one wins.

    Raises SettingsError for unreadable, unknown and out-of-range settings: a misspelt `read_only` must not be ignored.
    """
    settings, path = usual(environ, folders), folders.settings_file
    text = _text(path)
    if text is not None:
        settings = _from_text(settings, text, folders)
    known = {variable_of(key): key for key in KEYS}
    for name in sorted(environ):
        key = known.get(name)
        if key is not None:
            origin = SettingOrigin(SettingSource.ENVIRONMENT, name)
            settings = _changed(settings, origin, name, key, environ[name], folders)
        elif name.startswith(ENV_PREFIX):
            near = suggestion(name.removeprefix(ENV_PREFIX).lower(), likeness=_TYPO)
            if near:
                raise SettingsError(f"There is no setting {clean_line(name)}.", f"Did you mean {variable_of(near)}?")
    settings = settings.resolved(folders.home)
    checked_keys(settings)
    return settings


def usual(environ: Mapping[str, str], folders: Folders) -> Settings:
    """Where nothing is set: models lie where the Hub's own tools keep them, if HF_HOME says where that is."""
    settings, home = defaults(folders), environ.get("HF_HOME", "")
    if not home.startswith(("/", "~/")) or ":" in home or not home.isprintable():
        return settings
    origin = SettingOrigin(SettingSource.ENVIRONMENT, "HF_HOME")
    return settings.changed(origin, store=home).resolved(folders.home)


def checked_keys(settings: Settings) -> None:
    """Raises SettingsError, with the place, for keys that the registry of actions does not allow."""
    try:
        check_keymap(settings.keymap)
    except ValueError as error:
        where = settings.origin(KEYMAP).where
        raise SettingsError(f"{where}: {KEYMAP} {error}.", "Correct it, or remove it.") from None


class NotEditable(ValueError):
    """The text is written in a way that cannot be changed safely."""


def with_value(text: str, key: str, value: object) -> str:
    """`text` with `key` (`theme`, or `keymap.stop`) set to a bool, number, text, list or table; None removes it.

    Comments, order and spacing stay. Raises NotEditable, and KeyError for removing what is absent.
    """
    import tomlkit

    table, _, name = key.rpartition(".")
    plain = list(value) if isinstance(value, tuple) else value
    text += "\n" if text and not text.endswith("\n") else ""
    try:
        document, wanted = tomlkit.parse(text), load_toml(text)
        if table and table not in document and value is not None:
            if text.strip():
                document.add(tomlkit.nl())
            document.add(table, tomlkit.table())
        inside: Any = document[table] if table else document
        part = wanted.setdefault(table, {}) if table else wanted
        if not isinstance(inside, dict):
            raise NotEditable(key)
        if plain is None:
            del inside[name], part[name]
        else:
            part[name] = plain
            item: Any = tomlkit.inline_table() if isinstance(plain, dict) else tomlkit.item(plain)
            if isinstance(plain, dict):
                item.update(plain)
            if name in inside:
                old = inside[name].trivia
                item.trivia.comment_ws, item.trivia.comment = old.comment_ws, old.comment
            inside[name] = item
        changed = tomlkit.dumps(document)
    except (tomlkit.exceptions.TOMLKitError, ValueError, RecursionError, AttributeError) as error:
        if isinstance(error, KeyError):  # tomlkit's own for an absent key
            raise KeyError(key) from None
        raise NotEditable(str(error)) from None
    if load_toml(changed) != wanted:
        raise NotEditable(key)
    return changed


def _text(path: Path) -> str | None:
    """The file's text; None when there is none."""
    try:
        raw = read_plain(path, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read: {error.strerror or error}.", "Repair it or its rights, or remove it."
        ) from error
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}:{line} is not UTF-8 text.", "Save it as UTF-8.") from None


def _from_text(settings: Settings, text: str, folders: Folders) -> Settings:
    path = folders.settings_file
    for key, value in _values(text, path).items():
        place = f"{path}:{_line_of(key, text)}".removesuffix(":0")
        if key not in KEYS:
            near = suggestion(key)
            remedy = f"Did you mean `{near}`?" if near else f"The settings are: {', '.join(KEYS)}."
            raise SettingsError(f"{place}: there is no setting `{truncate(clean_line(key), 60)}`.", remedy)
        origin = SettingOrigin(SettingSource.FILE, place)
        settings = _changed(settings, origin, f"{place}: {key}", key, value, folders)
    return settings


def _values(text: str, path: Path) -> dict[str, Any]:
    """The file's values. Raises SettingsError with the line where it is not TOML."""
    try:
        return load_toml(text)
    except ValueError as error:
        at = _AT_LINE.search(str(error))
        place = f"{path}:{at[1]}" if at else f"{path}"
        problem = clean_line(_AT_LINE.sub("", str(error)))
        raise SettingsError(
            f"{place} is not valid TOML: {problem}.", "Write one `name = value` a line, texts in quotes."
        ) from None


def _line_of(key: str, text: str) -> int:
    """The line of `key` at the top level; 0 when unknown."""
    wanted = re.compile(rf"\s*(?:\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*(?:[=.\]])")
    return next((number for number, line in enumerate(text.splitlines(), 1) if wanted.match(line)), 0)


def _changed(
    settings: Settings, origin: SettingOrigin, what: str, key: str, value: object, folders: Folders
) -> Settings:
    try:
        changed = settings.changed(origin, **{key: value})
    except ValueError as error:
        raise SettingsError(f"{what} {truncate(clean_line(str(error)), 300)}.", "Correct it, or remove it.") from None
    if key == "theme" and changed.theme not in THEME_NAMES:
        own = read_themes(folders.themes)
        known = (*THEME_NAMES, *(theme.name for theme in own.themes))
        if own.broken is not None and changed.theme not in (*known, *own.broken):  # the screen reports a broken one
            must = f"must be {', '.join(known[:-1])} or {known[-1]}; it is {changed.theme!r}"
            raise SettingsError(f"{what} {must}.", f"Correct it, or add {folders.themes}/{changed.theme}.toml.")
    return changed


# --- the user's own themes --------------------------------------------------------------------------------


class UserThemes(Struct, frozen=True):
    """The themes that can be used, what is wrong with every other file, and the names of those files; None: the folder
    cannot be read."""

    themes: tuple[UserTheme, ...] = ()
    problems: tuple[SettingsError, ...] = ()
    broken: tuple[str, ...] | None = ()


def read_themes(folder: Path) -> UserThemes:
    """Every `*.toml` in the folder, in the order of their names. A file with a mistake is left out. Never raises."""
    from spark_tui.base.theme import ThemeError, read_theme

    found: dict[str, UserTheme] = {}
    problems, broken = [], []
    try:
        files = sorted(each for each in folder.iterdir() if each.suffix == ".toml" and not each.is_fifo())
    except FileNotFoundError:
        return UserThemes()
    except OSError as error:
        remedy = "Make it a folder that you may read, or remove it."
        problem = SettingsError(f"{folder} cannot be read: {error.strerror or error}.", remedy)
        return UserThemes(problems=(problem,), broken=None)
    for path in files[:_MOST_THEMES]:
        text, values = "", dict[str, Any]()
        try:
            text = _text(path) or ""
            values = _values(text, path)
            theme = read_theme(values, path.stem, found)
        except SettingsError as error:
            problems.append(error)
        except ThemeError as error:
            place = f"{path}:{_line_of(error.key, text)}".removesuffix(":0")
            summary = f"{place}: {truncate(clean_line(str(error)), 200)}."
            problems.append(SettingsError(summary, truncate(clean_line(error.remedy), 200)))
        else:
            found[theme.name] = theme
            continue
        broken += [path.stem, str(values.get("name", ""))]
    return UserThemes(tuple(found.values()), tuple(problems), tuple(broken))


# --- show and change ---------------------------------------------------------------------------------------


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
        "cluster",
        "spark-tui cluster add {} --node ADDRESS --node ADDRESS",
        read_clusters,
        read_cluster,
        clusters_text,
        cluster_text,
        cluster_plain,
    ),
}


class SettingEntry(Struct, frozen=True):
    """One setting. `value` and `default` are bools, numbers, texts; a keymap is text too."""

    key: str
    value: bool | float | str
    default: bool | float | str
    origin: SettingOrigin
    variable: str


class Config(Struct, eq=False):
    """The settings of one user, to look at and to change."""

    folders: Folders
    environ: Mapping[str, str]

    @property
    def path(self) -> Path:
        """The settings file, which may be absent."""
        return self.folders.settings_file

    def current(self) -> Settings:
        """All of them. Raises SettingsError."""
        return load_settings(self.environ, self.folders)

    def entries(self) -> tuple[SettingEntry, ...]:
        settings, default = self.current(), usual(self.environ, self.folders)
        return tuple(
            SettingEntry(
                key,
                plain(key, getattr(settings, key)),
                plain(key, getattr(default, key)),
                settings.origin(key),
                variable_of(key),
            )
            for key in KEYS
        )

    def entry(self, key: str) -> SettingEntry:
        """One setting; `keymap.stop` is one action's keys, `hosts.lab` one host, `clusters.duo` one cluster. Raises
        SettingsError for an unknown one."""
        found = self._entry(key)
        table, _, name = key.partition(".")
        if name and table in _TABLES and not found.value:
            near = suggestion(name, [each.name for each in getattr(self.current(), table)])
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
        settings = self.current()
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
        written = _text(self.path) or ""
        for name, value in self._targets(key, text, written):
            written = self._edited(written, name, value)
        checked_keys(self._parsed(written))
        self._save(written)
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
            old: Iterable[str] = dict(self._parsed(before).keymap)
        elif table in _TABLES:
            given, kind = text or "", _TABLES[table]
            if name:
                return [(key, _read(table, lambda: kind.plain_one(kind.read_one(name, given))))]
            if text is not None:
                new = {each.name: kind.plain_one(each) for each in _read(key, lambda: kind.read(given))}
            old = [each.name for each in getattr(self._parsed(before), table)]
        else:
            return [(key, None if text is None else toml_plain(key, text))]
        return [(f"{table}.{each}", new.get(each)) for each in sorted({*old, *new})]

    def _parsed(self, text: str) -> Settings:
        """The settings of a file with that text. Raises SettingsError as `load_settings` does."""
        return _from_text(defaults(self.folders), text, self.folders)

    def _edited(self, text: str, key: str, value: object) -> str:
        """`text` with `key` set to `value`; None removes it. Raises SettingsError."""
        try:
            return with_value(text, key, value)
        except KeyError:
            return text  # it was absent
        except NotEditable:
            self._parsed(text)  # an invalid file reports its own line
            raise SettingsError(f"{key} in {self.path} cannot be changed safely.", "Change it in an editor.") from None

    def _save(self, text: str) -> None:
        """Puts it in place in one step; a link stays a link, and the file keeps its mode: a new one is private. Raises
        SettingsError."""
        target = self.path.resolve()
        try:
            target.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            mode = target.stat().st_mode & 0o777 if target.exists() else FILE_MODE
            write_whole(target, (text.encode(),), mode=mode)
        except OSError as error:
            raise SettingsError(
                f"{self.path} cannot be written: {error.strerror or error}.", f"Make {target.parent} a folder of yours."
            ) from error


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
    if isinstance(value, tuple) and key != KEYMAP:
        return ",".join(map(str, value))
    return keymap_text(value) if key == KEYMAP else str(value)


def _read(key: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except ValueError as error:
        raise SettingsError(f"{key} {error}.", "Nothing was changed.") from None


def config_of(context: Context) -> Config | None:
    """The settings, to change them; None in a demo."""
    folders = context.ports.get("folders")
    return None if context.demo or folders is None else Config(folders, context.ports.get("environ") or {})


def user_themes(context: Context) -> UserThemes:
    """The user's own themes, read now: call it in a thread."""
    folders = context.ports.get("folders")
    return UserThemes() if folders is None else read_themes(folders.themes)
