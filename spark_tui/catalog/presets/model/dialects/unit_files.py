"""Units of systemd and Podman's Quadlets as launches.

Sources: systemd.syntax, systemd.unit (specifiers), systemd.service (command lines), podman-systemd.unit.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_PRESET
from spark_tui.base.engine.runtimes import server_of
from spark_tui.base.errors import PresetError
from spark_tui.base.secret import is_secret_name
from spark_tui.base.shell import SHELLS, is_shell
from spark_tui.base.variables import read_env
from spark_tui.catalog.presets.model.dialects.docker_run import HOME
from spark_tui.catalog.presets.model.dialects.launchers import Beside, Launch, bare_server, joined, starts_another
from spark_tui.catalog.presets.model.dialects.scripts import script_launches

_SECTION = re.compile(r"\[([A-Za-z-]+)\]")
_CONTINUED = re.compile(r"\\\n(?:[ \t]*[#;][^\n]*\n)*")
_WORD = re.compile(r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\\.|[^\s\"'\\])+", re.DOTALL)
_PIECE = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|((?:\\.|[^\"'\\])+)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "s": " "}
_VARIABLE = re.compile(r"\$(?:\$|\{(\w+)\})")
_QUADLET: Final = {
    **{each: f"--{each.lower()}" for each in ("Volume", "Mount", "Network", "Ulimit", "Label", "Entrypoint")},
    "ContainerName": "--name",
    "PublishPort": "-p",
    "ShmSize": "--shm-size",
    "AddCapability": "--cap-add",
}


class _Setting(Struct, frozen=True):
    line: int
    section: str
    key: str
    value: str


class _Unit:
    """One unit: its settings, and what its command lines may name."""

    def __init__(self, text: str, file: str, beside: Beside, values: Mapping[str, str]) -> None:
        self.file, self.folder, self.beside = file, posixpath.dirname(file), beside
        self.settings = tuple(_settings(text))
        name = posixpath.basename(file)
        prefix, _, instance = name.rpartition(".")[0].partition("@")
        of_user = "default.target" in self.all("Install", "WantedBy") or "/user/" in file
        home, user = (HOME, posixpath.basename(values.get("HOME", ""))) if of_user else ("/root", "root")
        known = {"n": name, "N": name.rpartition(".")[0], "p": prefix, "h": home, "u": user, "i": instance, "%": "%"}
        self.specifiers = {**{key: value for key, value in known.items() if value}, "I": instance}
        self.values, self.missing, self.absent = dict(values), dict[str, str](), list[str]()

    def all(self, section: str, key: str) -> list[str]:
        """The values of a key, in order; an empty one forgets those before."""
        found: list[str] = []
        for each in self.settings:
            if (each.section, each.key) == (section, key):
                found = [*found, each.value] if each.value else []
        return found

    def environment(self, section: str) -> dict[str, str]:
        """The variables of a section, its files' after its own."""
        words = [word for value in self.all(section, "Environment") for word in self.words(value, {})]
        found = dict(word.split("=", 1) for word in words if "=" in word)
        for value in self.all(section, "EnvironmentFile"):
            path = joined(self.folder, "".join(self.words(value.removeprefix("-"), {})))
            text = self.beside.text(path)
            found |= read_env(text or "")
            self.absent += [path] if text is None else []
        return {**found, **self.values}

    def words(self, text: str, env: Mapping[str, str]) -> list[str]:
        """The words of a value: specifiers, quotes and escapes, then variables."""
        words: list[str] = []
        for match in _WORD.finditer(text):
            found = _PIECE.finditer(re.sub("%(.)", self.specified, match[0]))
            raw = "".join(_ESCAPE.sub(_unescaped, "".join(filter(None, each.groups()))) for each in found)
            alone = re.fullmatch(r"\$(\w+)", raw)
            if alone and alone[1] in env and not is_secret_name(alone[1]):
                words += env[alone[1]].split()
            else:
                raw = f"${{{alone[1]}}}" if alone else raw
                words.append(_VARIABLE.sub(lambda found: self.filled(found[1], env), raw))
        return words

    def specified(self, found: re.Match[str]) -> str:
        if found[1] not in self.specifiers and found[1] not in self.values:
            self.missing[found[0]] = "a specifier of systemd"
        return self.specifiers.get(found[1]) or self.values.get(found[1], "")

    def filled(self, name: str | None, env: Mapping[str, str]) -> str:
        if name is None:
            return "$"
        if is_secret_name(name):
            return f"${name}"
        if name not in env:
            self.missing[name] = f"EnvironmentFile={self.absent[0]} cannot be read" if self.absent else ""
        return env.get(name, "")


def unit_launches(text: str, file: str, beside: Beside, values: Mapping[str, str]) -> tuple[Launch, ...]:
    """The launch of each `ExecStart=` that starts a container, a server, or a script that does. Raises PresetError for
    a unit that starts another file, with its name."""
    unit = _Unit(text, file, beside, values)
    launches: list[Launch] = []
    for each in unit.settings:
        if (each.section, each.key) != ("Service", "ExecStart") or not each.value:
            continue
        env = unit.environment("Service")
        unit.missing = {}
        words = unit.words(each.value.lstrip("-@:+!|"), env)
        while words and posixpath.basename(words[0]) in ("env", "sudo", "nohup"):
            del words[0]
        while words[1:] and posixpath.basename(words[0]) in SHELLS and not words[1].startswith("-"):
            del words[0]
        program = posixpath.basename(words[0]) if words else ""
        script = beside.text(joined(unit.folder, words[0])) if program.endswith((".sh", ".bash")) else None
        if is_shell(tuple(words)):
            inner = script_launches(words[2], file, beside, env)
            launches += (replace(found, line=each.line) for found in inner)
        elif script is not None:
            given = {str(at): word for at, word in enumerate(words) if at}
            launches += script_launches(script, joined(unit.folder, words[0]), beside, {**env, **given})
        elif program in ("docker", "podman") and words[1:2] != ["compose"] and {"run", "create"} & {*words[1:3]}:
            command = ("docker", "run", *words[3 if words[1] == "container" else 2 :])
            launches.append(Launch("", each.line, command, missing=unit.missing))
        elif server_of(tuple(words)) is not None:
            bare = bare_server(tuple(words), {name: text for name, text in env.items() if name not in unit.values})
            launches.append(replace(bare, line=each.line, missing=unit.missing))
        elif program.endswith((".sh", "compose")) or words[1:2] == ["compose"]:
            raise starts_another("systemd unit", words, file, each.line)
    return tuple(launches)


def quadlet_launches(text: str, file: str, beside: Beside, values: Mapping[str, str]) -> tuple[Launch, ...]:
    """The launch of a Quadlet's container. Raises PresetError for one that names another unit's image."""
    unit = _Unit(text, file, beside, values)
    words, changes, command = ["docker", "run", "-d"], [], list[str]()
    image, user, known = "", list[str](), unit.environment("Service")
    for each in (each for each in unit.settings if each.section == "Container" and each.key != "Environment"):
        found = unit.words(each.value, known)
        value = " ".join(found)
        if each.key == "Image":
            image = re.sub(r"^docker\.io/(?:library/)?", "", value)
        elif each.key == "Exec":
            command = found
        elif each.key in ("User", "Group"):
            user.append(value)
        elif each.key == "AddDevice":
            gpu = value.removeprefix("nvidia.com/gpu=")
            words += ["--device", value] if gpu == value else ["--gpus", gpu if gpu == "all" else f"device={gpu}"]
        elif each.key == "PodmanArgs":
            words += found
        elif each.key == "RunInit":
            words += ["--init"] if value == "true" else []
        elif each.key in _QUADLET:
            value = value.replace(".volume:", ":", 1) if each.key == "Volume" else value
            words += [_QUADLET[each.key], value]
        elif each.key not in ("EnvironmentFile", "AutoUpdate", "Pull", "Notify", "HealthCmd"):
            changes.append(f"{each.key}={value} is left out: a preset has no place for it.")
    if image.endswith((".image", ".build")):
        raise PresetError(f"The Quadlet takes its image from {image}.", "Write its name: Image=NAME", file=file)
    environment = {**unit.environment("Container")}
    words += [each for name, text in environment.items() if name not in values for each in ("-e", f"{name}={text}")]
    words += ["--user", ":".join(user)] if user else []
    own = any(LABEL_PRESET in word for word in words)  # the file of an export has the keys, which a launch has itself
    unit.missing |= {} if own else dict.fromkeys(unit.absent, "an EnvironmentFile that cannot be read")
    return (Launch("", 0, (*words, image, *command), tuple(changes), unit.missing),)


def _settings(text: str) -> Iterator[_Setting]:
    """The settings of a unit, each with its line; a backslash at the end of a line joins it with the next one that is
    no comment."""
    section = ""
    lines = text.replace("\r\n", "\n")
    joined_text = _CONTINUED.sub(lambda found: " " + "\0" * found[0].count("\n"), lines)
    number = 1
    for line in joined_text.split("\n"):
        plain = line.replace("\0", "").strip()
        key, equals, value = plain.partition("=")
        if found := _SECTION.fullmatch(plain):
            section = found[1]
        elif equals and not plain.startswith(("#", ";")):
            yield _Setting(number, section, key.strip(), value.strip())
        number += 1 + line.count("\0")


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _ESCAPES.get(found[2], found[2])
