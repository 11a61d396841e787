"""Settings files of other programs: single keys are changed in their text, everything else stays as it is written."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as FilePath
from typing import Any, Final, TypeAlias

from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.files import write_whole
from spark_tui.base.quantities import human_bytes
from spark_tui.base.secret import Secret
from spark_tui.base.settings import DEMO_HOME
from spark_tui.base.untrusted import load_json, load_toml
from spark_tui.base.yaml_nodes import YamlProblem, compose_yaml
from spark_tui.use.connect.model import ClientFile, FileFormat, Keys, Named, Path, SettingsText

MOST_BYTES: Final = 256 * 1024
MOST_DEPTH: Final = 60
_DECODER: Final = json.JSONDecoder()
_Member: TypeAlias = tuple[int, int, int]


class ClientFileUnreadable(ValueError):
    """Text that does not parse; `line` counts from 1, 0 where it is not known."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class ClientFileNotEditable(ValueError):
    """Text that is written in a way that cannot be changed safely."""


# --- the files --------------------------------------------------------------------------------------------


class HomeFiles:
    """The SettingsFiles port. `environ` may move a client's folder."""

    def __init__(self, home: FilePath, environ: Mapping[str, str]) -> None:
        self._home, self._environ = home, environ

    def read(self, file: ClientFile) -> SettingsText:
        folder = self._environ.get(file.variable, "") if file.variable else ""
        base = self._environ.get("XDG_CONFIG_HOME", "")
        if file.folder.startswith(".config/") and base.startswith("/"):
            folder = f"{base}/{file.folder.removeprefix('.config/')}"
        place = FilePath(folder) if folder.startswith("/") else self._home / file.folder
        path = next((p for name in reversed(file.names) if (p := place / name).exists()), place / file.names[0])
        text, mode = self._text(path)
        if text is not None:
            _checked(path, text, file.format)
        return SettingsText(str(path), text, mode, str(path.resolve()) if path.is_symlink() else "")

    def edit(self, old: SettingsText, kind: FileFormat, keys: Keys) -> str:
        try:
            return edited(old.text or "", kind, keys)
        except ClientFileNotEditable:
            raise RefusedError(
                f"{old.path} is written in a way that cannot be changed safely.", "Change it by hand, as shown."
            ) from None

    def value(self, text: str, kind: FileFormat, path: Path) -> Any:
        return value_at(parsed(text, kind), path)

    def write(self, path: str, text: str | None, mode: int) -> None:
        """Through a link to what it leads to. Owner and group stay; what is new has those of the folder around it where
        root writes, so that a file in a person's home is theirs."""
        place = FilePath(path).resolve()
        try:
            around = next(each for each in (place, *place.parents) if each.exists())
            status = around.stat()
            owner = (status.st_uid, status.st_gid) if around == place or os.geteuid() == 0 else None
            if around == place:
                _check_writable(path, place, status)
            if text is None:
                place.unlink(missing_ok=True)
                return
            new = [folder for folder in place.parents if not folder.exists()]
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in new if owner else ():
                os.chown(folder, status.st_uid, status.st_gid, follow_symlinks=False)
            write_whole(place, (text.encode(),), mode=mode, owner=owner)
        except OSError as error:
            raise SparkError(
                f"Cannot write {path}: {error.strerror or error}.", "Check its folder, and that it is yours."
            ) from error

    def _text(self, path: FilePath) -> tuple[str | None, int]:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(file.fileno())
                data = file.read(MOST_BYTES + 1) if stat.S_ISREG(status.st_mode) else b"\0"
            if len(data) > MOST_BYTES:
                raise RefusedError(
                    f"{path} is larger than {human_bytes(MOST_BYTES)}.",
                    "Make it smaller, or enter the settings in the client.",
                )
            if b"\0" in data:
                raise RefusedError(f"{path} is not a settings file.", "Move it away.")
            return data.decode(), stat.S_IMODE(status.st_mode)
        except FileNotFoundError:
            return None, 0o600
        except UnicodeDecodeError:
            raise RefusedError(f"{path} is not UTF-8 text.", "Save it as UTF-8.") from None
        except OSError as error:
            raise SparkError(f"Cannot read {path}: {error.strerror or error}.", "Check its permissions.") from error


def _check_writable(path: str, place: FilePath, status: os.stat_result) -> None:
    """Raises RefusedError for a file that writing would change in more than its text. `place`: without links."""
    if not status.st_mode & stat.S_IWUSR:
        raise RefusedError(f"{path} is read-only.", f"Make it writable: chmod u+w {shlex.quote(path)}")
    if status.st_nlink > 1:
        old, copy = shlex.quote(str(place)), shlex.quote(f"{place}.copy")
        raise RefusedError(
            f"{path} is one of {status.st_nlink} hard links to one file; writing would separate it.",
            f"Separate it first: cp -p {old} {copy} && mv {copy} {old}",
        )


def _checked(path: FilePath, text: str, kind: FileFormat) -> None:
    try:
        found = parsed(text, kind)
    except ClientFileUnreadable as error:
        where = f"{path}:{error.line}" if error.line else str(path)
        raise RefusedError(f"{where} does not parse: {error}. Nothing was written.", "Correct that line.") from None
    if kind not in (FileFormat.ENV, FileFormat.TEXT) and not isinstance(found, dict):
        raise RefusedError(f"{path} holds no settings.", "Correct it, or move it away.")


@dataclass
class MemoryFiles(HomeFiles):
    """The SettingsFiles port of the demo: files of a home that is nowhere."""

    files: dict[str, tuple[str, int]] = field(default_factory=dict)
    home: FilePath = DEMO_HOME

    def __post_init__(self) -> None:
        super().__init__(self.home, {})

    def _text(self, path: FilePath) -> tuple[str | None, int]:
        return self.files.get(str(path), (None, 0o600))

    def write(self, path: str, text: str | None, mode: int) -> None:
        self.files.pop(path, None)
        if text is not None:
            self.files[path] = (text, mode)


# --- one text ---------------------------------------------------------------------------------------------


def parsed(text: str, kind: FileFormat) -> Any:
    """The text's values, an empty mapping for an empty text. Raises Unreadable."""
    match kind:
        case FileFormat.JSON:
            return JsonText(text).value if text.strip("\ufeff \t\r\n") else {}
        case FileFormat.TOML:
            try:
                return load_toml(text)
            except ValueError as error:
                line = re.search(r"line (\d+)", str(error))
                raise ClientFileUnreadable(int(line[1]) if line else 0, "invalid TOML") from None
        case FileFormat.YAML:
            import yaml

            constructor: Any = yaml.constructor.SafeConstructor()
            try:
                root = compose_yaml(text)
                return {} if root is None else constructor.construct_document(root)
            except YamlProblem as error:
                raise ClientFileUnreadable(error.line, error.summary.rstrip(".")) from None
            except (yaml.MarkedYAMLError, ArithmeticError, ValueError) as error:
                mark = getattr(error, "problem_mark", None)
                raise ClientFileUnreadable(mark.line + 1 if mark else 0, "invalid YAML") from None
        case FileFormat.ENV:
            return {found[2]: found[3] or found[4] or found[5] or "" for found in _ENV_LINE.finditer(text)}
        case FileFormat.TEXT:
            return text.rstrip("\n") or None


def value_at(values: Any, path: Path) -> Any:
    """The value at a place; None where there is none."""
    for step in path:
        if isinstance(step, Named):
            found = values if isinstance(values, list) else []
            values = next((each for each in found if isinstance(each, dict) and each.get("name") == step.name), None)
        else:
            values = values.get(step) if isinstance(values, dict) else None
    return values


def edited(text: str, kind: FileFormat, keys: Keys) -> str:
    """`text` with these values; None removes one, and mappings around it that are left empty. Raises NotEditable."""
    editor = _EDITORS[kind]
    crlf = "\r\n" in text and not re.search(r"(?<!\r)\n", text)
    text = text.replace("\r\n", "\n") if crlf else text
    before = parsed(text, kind)
    for path, value in keys:
        wanted = plain(value)
        if value_at(before, path) == wanted:
            continue
        changed = editor(text, path, wanted)
        with suppress(ClientFileUnreadable):
            after = parsed(changed, kind)
            if value_at(after, path) == wanted and _without(before, path) == _without(after, path):
                text, before = changed, after
                continue
        raise ClientFileNotEditable(str(path))
    return text.replace("\n", "\r\n") if crlf else text


def plain(value: Any) -> Any:
    """With keys revealed: this is written to their file."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return value


def _without(values: Any, path: Path) -> Any:
    """What must stay as it is: the values without that place, and without what is empty around it."""
    if not path:
        return None
    step, rest = path[0], path[1:]
    if isinstance(values, dict) and isinstance(step, str):
        inner = _without(values.get(step), rest)
        others = {key: value for key, value in values.items() if key != step}
        return others | ({step: inner} if inner else {}) or None
    if isinstance(values, list) and isinstance(step, Named):
        return [each for each in values if not isinstance(each, dict) or each.get("name") != step.name] or None
    return None


def _env(text: str, path: Path, value: Any) -> str:
    name = str(path[0])
    line = "" if value is None else f"{name}={_env_value(str(value))}"
    for found in _ENV_LINE.finditer(text):
        if found[2] == name:
            end = found.end() + (value is None and text[found.end() : found.end() + 1] == "\n")
            new = f"{found[1]}{line}{found[6] or ''}" if line else ""
            return text[: found.start()] + new + text[end:]
    return text if value is None else text + "\n" * bool(text and not text.endswith("\n")) + f"{line}\n"


def _env_value(text: str) -> str:
    if re.search(r"[\n\r'\"]", text):
        raise ClientFileNotEditable(text)
    return text if re.fullmatch(r"[\w./:@+-]*", text) else f"'{text}'"


_ENV_LINE: Final = re.compile(
    r"""^([ \t]*(?:export[ \t]+)?)(\w+)[ \t]*=[ \t]*(?:'([^'\n]*)'|"([^"\n]*)"|"""
    r"((?:(?<==)\#|[^#\s])[^ \t\r\n]*(?:[ \t]+[^# \t\r\n][^ \t\r\n]*)*)?)([ \t]+\#[^\r\n]*)?[ \t]*(?=\r?$)",
    re.MULTILINE,
)
"""What leads, the name, the value in either quotes or in none, and the remark."""


def _toml(text: str, path: Path, value: Any) -> str:
    import tomlkit

    *tables, name = map(str, path)
    try:
        document = tomlkit.parse(text + "\n" * bool(text and not text.endswith("\n")))
        inside: Any = document
        for at, step in enumerate(tables):
            if step not in inside and value is not None:
                if inside is document and document:
                    document.add(tomlkit.nl())
                inside[step] = tomlkit.table(at + 1 < len(tables))
            inside = inside.get(step, {})
        if value is None:
            inside.pop(name, None)
        else:
            item = tomlkit.item(value)
            if name in inside:
                old = inside[name].trivia
                item.trivia.comment_ws, item.trivia.comment = old.comment_ws, old.comment
            inside[name] = item
        changed = tomlkit.dumps(document)
    except (tomlkit.exceptions.TOMLKitError, RecursionError, AttributeError, TypeError, KeyError, ValueError) as error:
        raise ClientFileNotEditable(str(error)) from None
    if value is not None or inside or not tables:
        return changed
    # of a table that is left empty the heading alone goes, with the blank line before it: comments below it stay
    heading = rf"(?:^\r?\n)?^\[{re.escape('.'.join(tables))}\][ \t]*\r?\n"
    shorter, count = re.subn(heading, "", changed, flags=re.MULTILINE)
    return shorter if count == 1 else _toml(changed, path[:-1], None)


def _yaml(text: str, path: Path, value: Any) -> str:
    """A key of the top mapping, or an entry of a list there, in block style."""
    import yaml

    top = compose_yaml(text, pure=True)
    pairs = top.value if isinstance(top, yaml.MappingNode) and not top.flow_style else []
    if top is not None and not pairs:
        raise ClientFileNotEditable(text)
    dump: Any = partial(yaml.safe_dump, sort_keys=False, allow_unicode=True, width=1000)
    step = path[-1] if isinstance(path[-1], Named) else None
    key, node = next((pair for pair in pairs if pair[0].value == path[0]), (None, None))
    if key is None:
        line_end = "\n" if text and not text.endswith("\n") else ""
        return f"{text}{line_end}{dump({path[0]: [value] if step else value})}"
    start, new = key.start_mark.index, dump([value] if step else {path[0]: value}).rstrip("\n")
    if step:
        if not isinstance(node, yaml.SequenceNode) or node.flow_style or not node.value:
            raise ClientFileNotEditable(text)
        if value is None and len(node.value) == 1:
            return _yaml(text, path[:1], None)
        last, entries = node.value[-1], (each for each in node.value if isinstance(each, yaml.MappingNode))
        name = ("name", step.name)
        node = next((each for each in entries if any((k.value, v.value) == name for k, v in each.value)), None)
        start = text.rindex("-", 0, (node or last).start_mark.index)
        indent = " " * (start - text.rindex("\n", 0, start) - 1)
        new = new.replace("\n", f"\n{indent}")
        if node is None:
            end = text.find("\n", _yaml_end(last) - 1)  # behind a comment on its line
            end = len(text) if end < 0 else end
            return f"{text[:end]}\n{indent}{new}{text[end:]}"
    end = _yaml_end(node)
    if value is None:
        return text[: text.rfind("\n", 0, start) + 1] + text[text.find("\n", end) + 1 or len(text) :]
    return f"{text[:start]}{new}{text[end:]}"


def _yaml_end(node: Any) -> int:
    """Where a node's own text ends: the mark of a block is at the next token, behind comments."""
    while isinstance(node.value, list) and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)


# --- JSON with comments -----------------------------------------------------------------------------------


class JsonText:
    """JSON, with comments and trailing commas where a program allows them. Raises Unreadable.

    What JSON does not have is blanked, for the standard library to read the rest: every place stays where it is.
    """

    _COMMENT: Final = re.compile(r'(//[^\n]*|/\*.*?\*/|\ufeff)|"(?:[^"\\]|\\.)*"?|/\*.*', re.DOTALL)
    _COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[{\[:,]\s*,|(,)(?=\s*[}\]])', re.DOTALL)
    _BOUNDED: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\]]|(\d{4301})', re.DOTALL)  # Python reads no longer number
    _TOKEN: Final = re.compile(r"\S|\Z")
    _REMARK: Final = re.compile(r"(?:[ \t]*(?://[^\n]*|/\*[^\n]*?\*/))?")

    def __init__(self, text: str) -> None:
        self.text, depth = text, 0
        self._bare = self._COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]) if found[1] else found[0], text)
        for found in self._BOUNDED.finditer(self._bare):
            depth += (found[0] in "{[") - (found[0] in "]}")
            if depth > MOST_DEPTH or found[1]:
                raise ClientFileUnreadable(text.count("\n", 0, found.start()) + 1, "invalid JSON")
        self._json = self._COMMA.sub(lambda found: " " if found[1] else found[0], self._bare)
        try:
            self.value = load_json(self._json)
        except ValueError as error:
            raise ClientFileUnreadable(getattr(error, "lineno", 0), "invalid JSON") from None

    def with_value(self, path: Path, value: Any) -> str:
        """The text with that value; without one its member is removed, and objects that would be left empty."""
        start = self._next(0)
        end, inside = self._end(start), list[dict[str, _Member]]()
        for at, step in enumerate(path):
            if self._json[start] != "{":  # something else is in its place
                value = _nested(path[at:], value)
                break
            members = self._members(start)
            if step not in members:
                return self._added(start, end, members, _nested(path[at:], value))
            inside.append(members)
            _, start, end = members[str(step)]
        if value is not None:
            shown = json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{self._indent(start)}")
            return self.text[:start] + shown + self.text[end:]
        while len(inside) > 1 and len(inside[-1]) == 1:
            inside.pop()
        return self._removed(inside[-1], str(path[len(inside) - 1]))

    def _end(self, start: int) -> int:
        return _DECODER.raw_decode(self._json, start)[1]

    def _next(self, at: int) -> int:
        """Where the next token starts, or the text ends."""
        return next(self._TOKEN.finditer(self._bare, at)).start()

    def _comma(self, end: int) -> int:
        """Where the comma behind a value ends; 0 without one."""
        at = self._next(end)
        return at + 1 if self._bare[at : at + 1] == "," else 0

    def _members(self, start: int) -> dict[str, _Member]:
        """Of the object that starts there: where each key starts, and where its value starts and ends."""
        members, at = dict[str, _Member](), self._next(start + 1)
        while self._json[at] == '"':
            key, colon = _DECODER.raw_decode(self._json, at)
            value = self._next(self._json.index(":", colon) + 1)
            members[key] = at, value, (end := self._end(value))
            at = self._next(self._comma(end) or end)
        return members

    def _added(self, start: int, end: int, members: Mapping[str, _Member], new: Mapping[str, Any]) -> str:
        text, shown = self.text, json.dumps(new, indent=2, ensure_ascii=False)[1:-2]
        if not members:
            place, indent = len(text[: end - 1].rstrip()), self._indent(start)
            rest = text[place:] if "\n" in text[place:end] else f"\n{indent}{text[end - 1 :]}"
            return text[:place] + shown.replace("\n", f"\n{indent}") + rest
        at, _, last = max(members.values())
        shown = shown.replace("\n  ", f"\n{self._indent(at)}")
        comma = self._comma(last)
        place = next(self._REMARK.finditer(text, comma or last)).end()  # a remark belongs to the value before it
        shown = f" {shown.lstrip()}" if self._line(at).strip() else shown
        return text[:last] + "," * (not comma) + text[last:place] + shown + "," * bool(comma) + text[place:]

    def _removed(self, members: Mapping[str, _Member], key: str) -> str:
        text, (at, _, end) = self.text, members[key]
        comma, before = self._comma(end), [last for _, _, last in members.values() if last < at]
        if before and not comma:  # the comma before it goes, comments between them stay
            mark = self._comma(max(before))
            return text[: mark - 1] + text[mark:at].rstrip() + text[end:]
        start = at if self._line(at).strip() else len(text[:at].rstrip(" \t").removesuffix("\n").removesuffix("\r"))
        return text[:start] + text[comma or end :]

    def _line(self, at: int) -> str:
        """What is before a place on its line."""
        return self.text[self.text.rfind("\n", 0, at) + 1 : at]

    def _indent(self, at: int) -> str:
        line = self._line(at)
        return line[: len(line) - len(line.lstrip())]


def _nested(path: Path, value: Any) -> Any:
    for step in reversed(path):
        value = {step: value}
    return value


def _json(text: str, path: Path, value: Any) -> str:
    return JsonText(text if text.strip("\ufeff \t\r\n") else "{}\n").with_value(path, value)


def _text(_: str, __: Path, value: Any) -> str:
    return "" if value is None else f"{value}\n"


_EDITORS: Final = {
    FileFormat.JSON: _json,
    FileFormat.TOML: _toml,
    FileFormat.YAML: _yaml,
    FileFormat.ENV: _env,
    FileFormat.TEXT: _text,
}
