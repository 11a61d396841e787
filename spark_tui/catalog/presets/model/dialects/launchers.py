"""What starts an engine on an owner's machine: the launches that a file of it holds, as words of `docker run`."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Final, Protocol

from msgspec import Struct, field

from spark_tui.base.actions import by_front_end
from spark_tui.base.errors import PresetError
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.presets.model.preset import Node

HOME: Final = "/~"
"""What `~` and `$HOME` stand for in a launch that was found: a folder of no machine."""


class Beside(Protocol):
    """The files that a file may name: those of its own folder, or of the checkout that it is part of."""

    def text(self, path: str) -> str | None:
        """A file's text, None where there is none; PresetError for a link, for one that is too large, and outside."""

    def document(self, path: str) -> Node | None:
        """A file's YAML likewise."""


class NothingBeside:
    """The files that a pasted text may name: none."""

    def text(self, path: str) -> str | None:
        del path
        return None

    def document(self, path: str) -> Node | None:
        del path
        return None


class Launch(Struct, frozen=True):
    """One launch. `changes` say in words what it does without, `missing` the variables that have no value, each with
    why, `choices` the branches that an argument chooses from, by the argument."""

    name: str = ""
    line: int = 0
    words: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problem: PresetError | None = None


def joined(folder: str, path: str) -> str:
    """A path that a file names, seen from its folder. `~` is HOME."""
    path = HOME + path[1:] if path == "~" or path.startswith("~/") else path
    return posixpath.normpath(posixpath.join(folder, path))


def open_values(launch: Launch, what: str, file: str) -> PresetError:
    """The refusal of a launch with variables that have no value: all of them in one message."""
    named = (f"{name} ({truncate(clean_line(why), 120)})" if why else name for name, why in launch.missing.items())
    said = f"{what} needs values that stand nowhere: {', '.join(named)}."
    names = launch.missing
    ways = "Write them into a .env beside the file"
    if launch.choices:
        branches = "; ".join(f"${name}: {', '.join(each)}" for name, each in launch.choices.items())
        said = f"{what} chooses by a case of {branches}." + (f" It sets {', '.join(names)}." if names else "")
        names = dict.fromkeys(launch.choices, "")
        ways = "Name one of them"
    typed = " ".join(f"--set {name}={_example(launch, name)}" for name in names)
    typed = f"spark-tui presets import {clean_line(file)} {typed}"
    ways = by_front_end(f"{ways}, or in a shell: {typed}", f"{ways}, or: {typed}" if not launch.choices else typed)
    return PresetError(said, ways, file=file, line=launch.line)


def _example(launch: Launch, name: str) -> str:
    return launch.choices.get(name, ("VALUE",))[0]
