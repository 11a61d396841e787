"""Shell scripts as launches. Nothing is run: assignments are followed, tests on texts are decided, and what only a
shell could know stays open.

Source: POSIX shell command language, and bash's manual.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.runtimes import server_of
from spark_tui.base.errors import PresetError
from spark_tui.base.secret import is_secret_name
from spark_tui.base.variables import BLANK, BREAK, Variables, pieces, read_env
from spark_tui.catalog.presets.model.dialects.launchers import Beside, Launch, bare_server, joined, starts_another

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_DECLARATIONS: Final = frozenset(("export", "local", "declare", "readonly", "typeset"))
_WRAPPERS: Final = frozenset(("sudo", "exec", "nohup", "time", "command", "env", "nice", "stdbuf"))
_OPENING: Final = frozenset(("while", "until", "for", "select", "case"))
_TURNS: Final = frozenset(("then", "else", "elif", "do", "{", "!", "fi", "done", "esac", "}"))
_FUNCTION = re.compile(r"(?:function\s+[\w-]+(?:\s*\(\))?|[\w-]+\s*\(\))\s*\{?\s*")
_ENGINES: Final = frozenset(("docker", "podman", "nerdctl"))
_OWN_FOLDER = re.compile(r"\$(?:\{?BASH_SOURCE|\{?0|\{0:a)|^pwd\b")
_ENV_FILE = re.compile(r"(?:grep|cat|sed|xargs)\b.*?([\w./~-]*\.?env[\w.-]*)", re.DOTALL)
_NAMES = re.compile(r"\$\{?(\w+)")
_PATH_OF = re.compile(r"\s*(?:basename|dirname)\s+[^\s|&;<>-][^|&;<>\n]*")
_MOST_WITHIN: Final = 10
_MOST_OPEN: Final = 100
_MOST_TEXTS: Final = 40
"""Texts within texts: sourced files, `eval`, `$(docker run ...)`."""


class _Frame(Struct):
    """An open `if`, `case`, loop, function or group. `runs`: whether what follows is reached, None where only a shell
    knows. `taken`: whether an earlier branch was. `value` is what a case looks at, None where it is not known, `asks`
    the variable that would decide, `labels` its branches."""

    kind: str
    runs: bool | None = True
    taken: bool | None = False
    value: str | None = None
    asks: str = ""
    labels: tuple[str, ...] = ()
    patterns: tuple[str, ...] | None = None


class _ShellVariables(Variables):
    """Variables of a script, with the outputs that need no shell: its own folder, the person's ids."""

    def __init__(self, values: Mapping[str, str], folder: str) -> None:
        super().__init__({"PWD": folder, **values})
        self.given, self.folder = values, folder
        self.commands: list[str] = []

    def output(self, command: str) -> str:
        ids = {"id -u": "UID", "id -g": "GID"}
        if (name := ids.get(command.strip(), "")) in self.values:
            return self.values[name]
        if _OWN_FOLDER.search(command):
            return self.folder
        if re.search(r"\b(?:docker|podman)[ \t]+(?:container[ \t]+)?(?:run|create)\b", command):
            self.commands.append(command)
        if _PATH_OF.fullmatch(command) and command.count("$") < _MOST_WITHIN:
            words = [*self.words(command), "", ""]
            part = posixpath.dirname if words[0] == "dirname" else posixpath.basename
            return part(words[1].rstrip("/")).removesuffix(words[2])
        return super().output(command)


def script_launches(text: str, file: str, beside: Beside, values: Mapping[str, str]) -> tuple[Launch, ...]:
    """Each `docker run` of a script, or, where it has none, each server that it starts. `values` are given from
    outside, and count more than what the script assigns by default. Raises PresetError for a script that starts a
    Compose file."""
    script = _Script(file, beside, values)
    script.run(text)
    if script.elsewhere is not None and not script.launches:
        raise script.elsewhere
    whole = tuple(replace(each, choices={c.asks: c.labels for c in cases}) for each, cases in script.launches)
    return tuple(each for each in whole if not each.changes) or whole


class _Script:
    """One script, followed line by line."""

    def __init__(self, file: str, beside: Beside, values: Mapping[str, str]) -> None:
        self.file, self.folder, self.beside = file, posixpath.dirname(file), beside
        self.variables = _ShellVariables({"#": "0", **values}, self.folder)
        self.elsewhere: PresetError | None = None
        self.frames: list[_Frame] = []
        self.launches: list[tuple[Launch, list[_Frame]]] = []
        self.exported: set[str] = set()
        self.cases: dict[str, _Frame] = {}
        self.result: bool | None = None
        self.read = 0

    def run(self, text: str) -> None:
        """Follows a text, in the state that the one before left."""
        before = "\n"
        self.read += 1
        if self.read > _MOST_TEXTS:
            return
        for line, statement, ended in pieces(text, BREAK):
            if statement:
                self.step(statement, before, ended, line)
            if ended.startswith(";;") and self.frames and self.frames[-1].kind == "case":
                self.frames[-1].patterns = ()
            before = ended

    def reached(self) -> bool | None:
        """Whether the present place is reached, None where only a shell knows."""
        states = [frame.runs for frame in self.frames]
        return False if False in states else None if None in states else True

    def step(self, text: str, before: str, ended: str, line: int) -> None:
        """One statement, or one pattern of a case."""
        del self.frames[:-_MOST_OPEN]
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.patterns is not None and text != "esac":
            frame.patterns = (*frame.patterns, text.strip("\"'"))
            if ended == ")":
                self.branch(frame)
            return
        negated = False
        while text:  # keywords stand before a statement
            keyword, _, rest = f"{text} ".partition(" ")
            rest = rest.strip()
            negated ^= keyword == "!"
            if keyword in _TURNS:
                self.turn(keyword)
            elif keyword == "if":
                self.frames.append(_Frame("if"))
            elif found := _FUNCTION.match(text):
                self.frames.append(_Frame("function"))
                rest = text[found.end() :]
            elif keyword in _OPENING:
                self.open(keyword, rest)
                if self.frames[-1].patterns and ended == ")":
                    self.branch(self.frames[-1])
                return
            else:
                break
            text, before = rest, "\n"
        runs = self.reached()
        decided = True if before not in ("&&", "||") else self.result if before == "&&" else _opposite(self.result)
        if text and decided is not False and runs is not False:
            found_out = self.statement(text, decided if runs else None, line)
            self.result = _opposite(found_out) if negated else found_out

    def open(self, keyword: str, rest: str) -> None:
        """A loop or case begins."""
        if keyword == "case":
            subject, _, pattern = f"{rest} ".replace("\n", " ").partition(" in ")
            value = "".join(self.variables.words(subject, split=False))
            missing = self.variables.take_missing()
            asks = next((name for name in (*missing, *_NAMES.findall(subject))), "")
            known = None if missing or (not value and asks not in self.variables.given) else value
            first = (pattern.strip().strip("\"'"),) if pattern.strip() else ()
            self.frames.append(_Frame("case", value=known, asks=asks, patterns=first))
        else:
            arguments = re.search(r"\$#|\$1|\$@|getopts|\$\{1", rest) is not None  # it is started without any
            self.frames.append(_Frame("loop", False if arguments else None))
            if keyword in ("for", "select"):
                name = rest.split()[0] if rest.split() else ""
                self.variables.unknown[name] = {name: "set by a loop"}

    def turn(self, keyword: str) -> None:
        """A keyword within what is open."""
        frame = self.frames[-1] if self.frames else _Frame("")
        if keyword in ("fi", "done", "esac", "}"):
            del self.frames[-1:]
        elif keyword == "{":
            self.frames.append(_Frame("group"))
        elif keyword == "then":
            frame.runs = False if frame.taken else self.result if self.result is False or frame.taken is False else None
            frame.taken = frame.taken if frame.runs is False else frame.runs
        elif keyword in ("else", "elif"):
            frame.runs = _opposite(frame.taken) if keyword == "else" else not frame.taken

    def branch(self, frame: _Frame) -> None:
        """The patterns of a branch are whole: whether it is taken."""
        patterns, frame.patterns = frame.patterns or (), None
        if frame.value is None:
            named = tuple(each for each in patterns if not each.startswith("-") and not set('*?["$') & set(each))
            frame.labels, frame.runs = (*frame.labels, *named[:1]), None
            return
        frame.runs = not frame.taken and any(fnmatchcase(frame.value, each) for each in patterns)
        frame.taken = frame.taken or frame.runs

    def statement(self, text: str, runs: bool | None, line: int) -> bool | None:
        """A simple command: whether it succeeds, as far as that is known."""
        words = [piece for _, piece, _ in pieces(text, BLANK) if piece]
        declared = not _DECLARATIONS.isdisjoint(words[:1])
        if declared and (file := _ENV_FILE.search(text)):
            self.source(file[1], env=True)
            return True
        words = [each for each in words[declared:] if not (declared and each.startswith("-"))]
        exports = text.startswith("export ")
        while words and (assigned := _ASSIGNMENT.fullmatch(words[0])):
            self.assign(assigned[1], assigned[2], assigned[3], runs)
            del words[0]
            self.exported |= {assigned[1]} if exports or (words and not declared) else set()
        if not words or declared:
            return True
        if words[0] in ("[", "[[", "test"):
            return self.test(" ".join(words[1:]))
        found = self.variables.words(" ".join(words))
        missing = self.variables.take_missing()
        self.within()
        while found and (posixpath.basename(found[0]) in _WRAPPERS or re.match(r"-|\w+=", found[0])):
            del found[0]
        program = posixpath.basename(found[0]) if found else ""
        if program in (".", "source") and found[1:]:
            self.source(found[1])
        elif program in ("eval", "ssh"):
            inner = " ".join(found[1:])
            self.run(inner[inner.find("docker run") :] if "docker run" in inner else "")
        elif program in _ENGINES:
            verb = found[2:] if found[1:2] == ["container"] else found[1:]
            if verb[:1] in (["run"], ["create"]):
                self.add(Launch("", line, ("docker", "run", *verb[1:]), missing=missing))
            elif verb[:1] == ["compose"]:
                self.elsewhere = self.elsewhere or starts_another("shell script", found, self.file, line)
        elif (at := next((at for at in range(min(len(found), 4)) if server_of(tuple(found[at:]))), None)) is not None:
            env = {name: self.variables.values[name] for name in sorted(self.exported) if name in self.variables.values}
            self.add(replace(bare_server(tuple(found[at:]), env), line=line, missing=missing))
        return True if program in (":", "true", "set", "cd", "echo") else False if program == "false" else None

    def within(self) -> None:
        """The commands that stood in the last words as `$(docker run ...)`."""
        commands, self.variables.commands = self.variables.commands, []
        for command in commands:
            self.run(command)

    def assign(self, name: str, more: str, text: str, runs: bool | None) -> None:
        variables = self.variables
        if name in variables.given:
            return
        value: str | list[str]
        if text.startswith("("):
            value = [*(variables.arrays.get(name, []) if more else []), *variables.words(text[1:-1])]
        else:
            value = "".join(variables.words(text, split=False))
            value = variables.values.get(name, "") + value if more else value
            value = f"${name}" if is_secret_name(name) else value
        variables.assign(name, value)
        self.within()
        if runs is None and not is_secret_name(name):
            case = next((each for each in reversed(self.frames) if each.kind == "case" and each.runs is None), None)
            where = "set by a case" if case else "set where only a shell knows whether it gets there"
            variables.unknown[name] = {name: where}
            if case is not None:
                self.cases[name] = case

    def test(self, text: str) -> bool | None:
        """`[ ... ]`: of texts, and of files beside. None where only a shell knows."""
        if any(map(self.variables.undecided, _NAMES.findall(text))):
            return None
        raw = [piece for _, piece, _ in pieces(text.rstrip("] "), BLANK) if piece]
        if raw[:1] == ["!"]:
            return _opposite(self.test(" ".join(raw[1:])))
        words = ["".join(self.variables.words(each, split=False)) for each in raw]
        self.variables.take_missing()
        match words:
            case ["-z", value]:
                return value == ""
            case ["-n", value]:
                return value != ""
            case [value, "=" | "==", pattern]:
                return fnmatchcase(value, pattern)
            case [value, "!=", pattern]:
                return not fnmatchcase(value, pattern)
            case ["-f" | "-e" | "-r" | "-s", path]:
                return True if self.beside.text(joined(self.folder, path)) is not None else None
        return None

    def source(self, path: str, *, env: bool = False) -> None:
        """Another file's assignments; one that is not there leaves its variables open."""
        text = self.beside.text(joined(self.folder, path))
        if text is not None and env:
            self.variables.values |= {**read_env(text, self.variables), **self.variables.given}
        elif text is not None:
            self.run(text)

    def add(self, launch: Launch) -> None:
        """A launch, with the branches that decide about it."""
        frames = [*(self.cases[each] for each in launch.missing if each in self.cases), *self.frames]
        cases = [each for each in frames if each.kind == "case" and each.value is None and each.asks]
        self.launches.append((launch, cases))


def _opposite(value: bool | None) -> bool | None:
    return None if value is None else not value
