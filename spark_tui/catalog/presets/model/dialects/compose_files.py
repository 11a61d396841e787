"""Compose files as launches, by the Compose specification: interpolation, `.env`, `env_file`, `extends`, `include`."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from spark_tui.base.engine.container import LABEL_PREFIX, LABEL_PRESET
from spark_tui.base.engine.invocation import TRUE
from spark_tui.base.engine.runtimes import recognised
from spark_tui.base.errors import PresetError
from spark_tui.base.secret import is_secret_name
from spark_tui.base.shell import join_lines
from spark_tui.base.text import clean_line
from spark_tui.base.variables import Variables, read_env
from spark_tui.catalog.presets.model.dialects.launchers import Beside, Launch, joined
from spark_tui.catalog.presets.model.dialects.recipe_files import scalar
from spark_tui.catalog.presets.model.preset import ListValue, MappingValue, plain

_Table: TypeAlias = dict[str, Any]
_OPTION_NAMES: Final = {
    **{each: each for each in ("ipc", "user", "restart", "runtime", "platform")},
    **{each: each.replace("_", "-") for each in ("shm_size", "cap_add", "security_opt", "oom_score_adj")},
    "network_mode": "network",
    "devices": "device",
}
_SWITCHES: Final = ("privileged", "init")
_OTHERS: Final = ("image", "command", "entrypoint", "container_name", "env_file", "volumes", "ports", "gpus", "deploy")
_READ: Final = (*_OPTION_NAMES, *_SWITCHES, *_OTHERS, "ulimits")
_UNHEARD: Final = re.compile(
    "depends_on|healthcheck|networks|logging|profiles|pull_policy|hostname|stdin_open|tty|expose|labels|annotations|"
    "stop_grace_period|stop_signal|attach|scale|extends|build|environment|x-.*"
)
"""What a single server does without, and what is read apart."""
_MOST_FILES: Final = 40
_PASSED = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_VOLUME = re.compile(r"(?:(?P<source>[^:]+):)?(?P<target>/[^:]*)(?::(?P<mode>[\w,]+))?")


class _Service(Struct):
    """A service as it is written, with its parents merged in. `line` is 0 in another file than the one asked for."""

    table: _Table
    volumes: _Table
    variables: Variables
    line: int = 0


def is_compose(document: object) -> bool:
    """Whether a YAML file is one of Compose: services that are mappings, or files to include, and nothing of a
    recipe."""
    if not isinstance(document, MappingValue) or document.get("model") is not None:
        return False
    services = document.get("services")
    tables = services.node.entries if services is not None and isinstance(services.node, MappingValue) else ()
    if not tables:
        include = document.get("include")
        return include is not None and isinstance(include.node, ListValue)
    return all(isinstance(each.node, MappingValue) for each in tables)


def has_engine(document: MappingValue) -> bool:
    """Whether a service of the file itself names an engine: of a folder only such Compose files count."""
    services = table_in(plain(document), "services").values()
    return any(recognised(text_of(each.get("image")), _words(each.get("command"))) for each in services)


def compose_launches(
    document: MappingValue, file: str, beside: Beside, values: Mapping[str, str]
) -> tuple[Launch, ...]:
    """The launch of each service with an engine. `values` count more than those of `.env`; a launch with a problem is
    one that Docker could not start either. Raises PresetError for a file that cannot be read."""
    project = _Project(file, beside, values)
    project.name = text_of(scalar(document, "name")) or project.name
    project.load(document, file, posixpath.dirname(file), project.environment({}, posixpath.dirname(file)))
    tables = [(key, each.table, each.variables) for key, each in project.services.items()]
    project.names = [known.compose(text_of(table.get("container_name"))) or key for key, table, known in tables]
    launches = {key: project.launch(key, service) for key, service in project.services.items()}
    engines = [each for each in launches.values() if isinstance(each, Launch)]
    engines = [each for each in engines if each.words or each.problem] or engines
    others = ", ".join(f"{key} ({each})" for key, each in launches.items() if isinstance(each, str))
    said = (f"Services that are no engines are not imported: {others}.",) if others and engines else ()
    return tuple(Launch(e.name, e.line, e.words, (*said, *e.changes), e.missing, problem=e.problem) for e in engines)


class _Project:
    """One Compose file, with those that it includes and extends."""

    def __init__(self, file: str, beside: Beside, values: Mapping[str, str]) -> None:
        self.file, self.beside, self.given = file, beside, values
        self.name = re.sub(r"[^a-z0-9_-]", "", posixpath.basename(posixpath.dirname(file)).lower()).lstrip("_-")
        self.services: dict[str, _Service] = {}
        self.names: list[str] = []
        self.read = 0

    def environment(self, above: Mapping[str, str], folder: str, *files: str) -> Variables:
        """The variables of a folder: its `.env`, or `files`, below those of the including file and those given."""
        found: dict[str, str] = {}
        for path in files or (joined(folder, ".env"),):
            known = Variables({**found, **above, **self.given})
            found |= read_env(self.beside.text(path) or "", known)
        return Variables({"PWD": folder, "COMPOSE_PROJECT_NAME": self.name, **found, **above, **self.given})

    def document(self, path: str, what: str) -> MappingValue:
        self.read += 1
        found = self.beside.document(path) if self.read <= _MOST_FILES else None
        if not isinstance(found, MappingValue):
            raise self.error(f"{what} names {clean_line(path)}, which is not there, or outside its folder.")
        return found

    def error(self, summary: str, remedy: str = "Correct it, and import the file again.", line: int = 0) -> PresetError:
        return PresetError(summary, remedy, file=self.file, line=line)

    def load(self, document: MappingValue, file: str, folder: str, variables: Variables) -> None:
        """Adds the services of a file, after those of the files that it includes. `folder` is the project's."""
        table: Any = plain(document, words=True)
        for item in listed(table.get("include")):
            asked: _Table = item if isinstance(item, dict) else {"path": item}
            paths = [joined(folder, variables.compose(text_of(each))) for each in listed(asked.get("path"))]
            below = joined(folder, text_of(asked.get("project_directory")) or posixpath.dirname(paths[0]))
            files = [joined(folder, variables.compose(text_of(each))) for each in listed(asked.get("env_file"))]
            inner = self.environment(variables.values | {"PWD": below}, below, *files)
            for path in paths:
                self.load(self.document(path, "include"), path, below, inner)
        lines = document.get("services")
        at = {e.key: e.line for e in lines.node.entries} if lines and isinstance(lines.node, MappingValue) else {}
        services = table_in(table, "services")
        for key, own in services.items():
            whole = self.extended(own if isinstance(own, dict) else {}, services, folder, variables)
            earlier = self.services.get(key)
            whole = _merged(earlier.table, whole) if earlier else whole
            line = at.get(key, 0) if file == self.file else 0
            self.services[key] = _Service(whole, table_in(table, "volumes"), variables, line)

    def extended(self, own: _Table, services: _Table, folder: str, variables: Variables) -> _Table:
        """A service with what it extends merged in; paths keep the folder of their file."""
        parent, found = own.get("extends"), _placed(own, folder)
        if parent is None:
            return found
        asked = parent if isinstance(parent, dict) else {"service": parent}
        name, file = variables.compose(text_of(asked.get("service"))), variables.compose(text_of(asked.get("file")))
        self.read += 1
        if file:
            path = joined(folder, file)
            document = self.document(path, "extends")
            services, folder = table_in(plain(document, words=True), "services"), posixpath.dirname(path)
        base = services.get(name)
        if not isinstance(base, dict) or base is own or self.read > _MOST_FILES:
            raise self.error(f"extends names the service {clean_line(name)}, which cannot be extended.")
        return _merged(self.extended(base, services, folder, variables), found)

    # --- one service --------------------------------------------------------------------------------------

    def launch(self, key: str, service: _Service) -> Launch | str:
        """The launch of a service with an engine; for any other service its image, or what it is."""
        variables, table = service.variables, service.table
        variables.take_missing()
        changes: list[str] = []
        found = {name: _filled(table[name], variables) for name in _READ if name in table}
        image, build = text_of(found.get("image")), table.get("build")
        entrypoint, command = _words(found.get("entrypoint")), _words(found.get("command"))
        name = text_of(found.get("container_name")) or key
        name = key if self.names.count(name) > 1 else name
        if not recognised(image, (*entrypoint, *command)):
            if image or build or not variables.missing:
                return image or ("built here" if build else "no image")
            return Launch(name, service.line, missing=variables.take_missing())
        if not image and build:
            context = clean_line(build if isinstance(build, str) else text_of(table_in(table, "build").get("context")))
            said = f"The service {clean_line(key)} builds its image (build: {context}) and gives it no name."
            remedy = f"Add a line to it, image: {key}:local, then: docker compose build {key}"
            return Launch(name, service.line, problem=self.error(said, remedy, service.line))
        if build:
            changes.append(f"{image} is built here: docker compose build {key}. No registry has it.")
        left = sorted(each for each in {*table} - {*_READ} if not _UNHEARD.fullmatch(each))
        if left:
            changes.append(f"Left out, as a preset has no place for it: {', '.join(left)}.")
        words = ["docker", "run", "-d", "--name", name]
        if found.get("entrypoint") is not None:
            words += ["--entrypoint", *(entrypoint[:1] or [""])]
        own = {each: value for each, value in table_in(table, "labels").items() if each.startswith(LABEL_PREFIX)}
        words += [f"--label={each}={variables.compose(text_of(value))}" for each, value in own.items()]
        files = None if LABEL_PRESET in own else found.get("env_file")  # in one of ours the keys, which a launch has
        try:
            words += self._environment(files, table.get("environment"), variables, changes)
        except PresetError as problem:
            return Launch(name, service.line, problem=problem)
        words += _volumes(found.get("volumes"), _filled(service.volumes, variables), changes)
        words += [word for port in listed(found.get("ports")) for word in ("-p", _port(port))]
        words += _gpus(found)
        for each, option in _OPTION_NAMES.items():
            words += [word for value in listed(found.get(each)) for word in (f"--{option}", text_of(value))]
        for limit, value in table_in(found, "ulimits").items():
            bounds = (value.get("soft"), value.get("hard")) if isinstance(value, dict) else (value,)
            words += ["--ulimit", f"{limit}={':'.join(map(text_of, bounds))}"]
        words += [f"--{each}" for each in _SWITCHES if text_of(found.get(each)).lower() in TRUE]
        words += [image, *entrypoint[1:], *command]
        return Launch(name, service.line, tuple(words), tuple(changes), variables.take_missing())

    def _environment(self, files: Any, table: Any, variables: Variables, changes: list[str]) -> list[str]:
        """`-e NAME=VALUE` of its files, and of its own variables, which count more. One that takes its value from a
        shell, where there is none, is not set, as in Compose."""
        found: dict[str, str] = {}
        for folder, item in listed(files):
            asked = item if isinstance(item, dict) else {"path": item}
            path = joined(folder, text_of(asked.get("path")))
            text = self.beside.text(path)
            if text is None and asked.get("required") is not False:
                summary = f"env_file names {clean_line(path)}, which is not there, or outside its folder."
                raise self.error(summary, "Put it there, or add to its entry: required: false")
            known = Variables({**variables.values, **found})
            found |= read_env(text or "", known if asked.get("format") != "raw" else None)
        for name, value in (table if isinstance(table, dict) else {}).items():
            text = f"${name}" if value is None else text_of(value)
            passed = _PASSED.fullmatch(text)
            source = (passed[1] or passed[2]) if passed else ""
            if source and source not in variables.values and not is_secret_name(source):
                changes.append(f"{name} is left out: its value comes from a shell.")
            else:
                found[variables.compose(name)] = variables.compose(text)
        return [word for name, value in found.items() for word in ("-e", f"{name}={value}")]


def _placed(table: _Table, folder: str) -> _Table:
    """A service whose paths come with the folder that they start at, and whose variables are a mapping."""
    found = dict(table)
    for key in ("volumes", "env_file"):
        if key in table:
            found[key] = [(folder, each) for each in listed(table[key])]
    if isinstance(table.get("environment"), list):
        pairs = (text_of(each).partition("=") for each in table["environment"])
        found["environment"] = {name: value if equals else None for name, equals, value in pairs}
    return found


def _merged(base: _Table, own: _Table) -> _Table:
    """By the rules of merging: mappings key by key, lists one behind the other, commands replaced."""
    found = dict(base)
    for key, value in own.items():
        earlier = found.get(key)
        if isinstance(earlier, dict) and isinstance(value, dict):
            found[key] = _merged(earlier, value)
        elif isinstance(earlier, list) and isinstance(value, list) and key not in ("command", "entrypoint"):
            found[key] = [*earlier, *(each for each in value if each not in earlier)]
        else:
            found[key] = value
    return found


def _filled(value: Any, variables: Variables) -> Any:
    if isinstance(value, str):
        return variables.compose(value)
    if isinstance(value, dict):
        return {key: _filled(item, variables) for key, item in value.items()}
    if isinstance(value, tuple):  # a path with its folder
        return value[0], _filled(value[1], variables)
    return [_filled(item, variables) for item in value] if isinstance(value, list) else value


def _volumes(items: Any, named: _Table, changes: list[str]) -> Iterator[str]:
    """`-v` of each mount; of two at one place the last one counts. A named volume keeps its name."""
    found: dict[str, tuple[str, bool]] = {}
    for folder, item in listed(items):
        short = None if isinstance(item, dict) else _VOLUME.fullmatch(text_of(item))
        long = item if isinstance(item, dict) else {}
        kind, source, target = (text_of(long.get(key)) for key in ("type", "source", "target"))
        read_only = text_of(long.get("read_only")).lower() in TRUE
        if short is not None:
            source, target = short["source"] or "", short["target"]
            read_only = "ro" in (short["mode"] or "").split(",")
        if not target or not source or kind not in ("", "bind", "volume"):
            what = target or clean_line(text_of(item))
            changes.append(f"The mount {what} is left out: it is no folder of this machine.")
            continue
        if not source.startswith((".", "~", "/")):
            options = table_in(table_in(named, source), "driver_opts")
            bound = text_of(options.get("device")) if "bind" in text_of(options.get("o")) else ""
            source = bound or text_of(table_in(named, source).get("name")) or source
        if source.startswith(("~", "/")) or (source.startswith(".") and folder):
            source = joined(folder, source)
        found[target] = source, read_only
    for target, (source, read_only) in found.items():
        yield from ("-v", f"{source}:{target}{':ro' if read_only else ''}")


def _port(item: Any) -> str:
    if not isinstance(item, dict):
        return text_of(item)
    address = ":".join(filter(None, (text_of(item.get(key)) for key in ("host_ip", "published", "target"))))
    return f"{address}/{text_of(item['protocol'])}" if item.get("protocol") else address


def _gpus(found: _Table) -> tuple[str, ...]:
    """`--gpus` of `gpus`, in its short or long form, or of the reserved devices."""
    devices = listed(table_in(table_in(table_in(found, "deploy"), "resources"), "reservations").get("devices"))
    reserved = [each for each in devices if isinstance(each, dict)]
    asked = [each for each in listed(reserved) if isinstance(each, dict) and "gpu" in listed(each.get("capabilities"))]
    for each in (*listed(found.get("gpus")), *asked):
        if not isinstance(each, dict):
            return ("--gpus", text_of(each))
        chosen = ",".join(map(text_of, listed(each.get("device_ids"))))
        return ("--gpus", f"device={chosen}" if chosen else text_of(each.get("count")) or "all")
    return ()


def _words(value: Any) -> tuple[str, ...]:
    """A command: the items of a list, or the words of a text, by a shell's quotes alone."""
    if isinstance(value, list):
        return tuple(map(text_of, value))
    text = join_lines(text_of(value))
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return (text,)


def text_of(value: Any) -> str:
    """A scalar as Compose reads it: `true`, not `True`; anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def table_in(value: Any, key: str) -> _Table:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
