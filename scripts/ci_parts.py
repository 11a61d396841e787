#!/usr/bin/env python3
"""Chooses the heavy parts of .ci/run, and notes those that passed.

A part runs when it is new, when a file that it can reach differs from when it last passed whole, and, one in each run,
when no other has waited longer.

python3 -m scripts.ci_parts choose FOLDER [--all]     prints what runs and why; the files `runs` and `skipped` in the
                                                      folder get the paths of the tests, one a line
python3 -m scripts.ci_parts passed FOLDER REPORT      notes the parts of which every test passed, by pytest's JUnit XML,
                                                      and forgets those that failed
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple
from xml.etree import ElementTree

from scripts.changed_tests import ROOT, imports_of, module_of

PASSED: Final = ROOT / ".ci/passed.toml"

PARTS: Final = ROOT / ".ci/parts.toml"

# --- what a part can reach --------------------------------------------------------------------------------

NAMED: Final = re.compile(r"\b(?:spark_tui|tests)(?:\.\w+)+")
"""A module by its name in any text: behind `python -m`, or in a program that a test writes."""
QUOTED: Final = re.compile(r"[\"']([\w./-]+)[\"']")
ROOM: Final = re.compile(r"spark_tui/(?:observe|catalog|run|use|manage)/\w+/")
TABLES: Final = ("app/main.py", "app/rooms.py", "app/wiring.py", "/feature.py")
"""They name all that anybody may ask for: a part names the rooms that it asks for, and what these import counts."""


class Tree(NamedTuple):
    """Files below a folder, by their paths from there."""

    root: Path
    files: frozenset[str]


def tree_of(root: Path) -> Tree:
    """The working tree with new files, without ignored ones. Raises OSError or CalledProcessError without git."""
    words = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    return Tree(root, frozenset(each for each in listed if each and (root / each).is_file()))


def below(paths: Iterable[str], tree: Tree) -> set[str]:
    """The files at these paths and in these folders. Raises KeyError for one that is not there."""
    found = {path: {each for each in tree.files if f"{each}/".startswith(f"{path}/")} for path in paths}
    if missing := [path for path in found if not found[path]]:
        raise KeyError(*missing)
    return set().union(*found.values())


def _file_of(module: str, tree: Tree) -> str | None:
    """The file of a module, or of the module that a name stands in."""
    path = PurePosixPath(module.replace(".", "/"))
    files = (file for each in (path, *path.parents) for file in (f"{each}.py", f"{each}/__init__.py"))
    return next((file for file in files if file in tree.files), None)


@cache
def reached(path: str, tree: Tree) -> frozenset[str]:
    """What a file needs beside itself: modules that it imports or names, its packages and their fixtures, data beside
    it, and of a room the adapters. Of a test also files and folders of fixtures that it names."""
    if not path.endswith(".py") or path.endswith(TABLES):
        return frozenset()
    folder, text = PurePosixPath(path).parent, (tree.root / path).read_text(encoding="utf-8")
    found = {_file_of(module, tree) for module in (*imports_of(tree.root / path), *NAMED.findall(text))}
    found |= {f"{above}/{name}.py" for above in (folder, *folder.parents) for name in ("__init__", "conftest")}
    if path.startswith("tests/"):
        words = QUOTED.findall(text)
        pieces = {piece for word in words if "fixtures" in text for piece in word.split("/")}
        found |= {each for each in tree.files if each.startswith("tests/fixtures/") and each.split("/")[2] in pieces}
        found |= {*words, *(f"{folder}/{word}" for word in words)}
    else:
        data = re.compile(rf"{folder}/(?:data/.+|[^/]+(?<!\.py))")
        found |= {each for each in tree.files if data.fullmatch(each)}
    if (room := ROOM.match(path)) and "@port_named" in text:
        found |= {each for each in tree.files if each.startswith(f"{room[0]}adapter")}
    return frozenset(found) & tree.files


def closure(entries: Iterable[str], tree: Tree) -> set[str]:
    """Entries and everything that they reach, through any number of files."""
    found: set[str] = set()
    left = set(entries)
    while left:
        found |= left
        left = {each for path in left for each in reached(path, tree)} - found
    return found


def hashes(entries: Mapping[str, Iterable[str]], tree: Tree) -> dict[str, str]:
    """For each part, which files its entries reach and what is in them, as Git would keep it, in 16 digits."""
    files = {part: sorted(closure(paths, tree)) for part, paths in entries.items()}
    every = sorted({path for paths in files.values() for path in paths})
    words = ("git", "hash-object", "--stdin-paths")
    done = subprocess.run(words, cwd=tree.root, input="\n".join(every), capture_output=True, text=True, check=True)
    blobs = dict(zip(every, done.stdout.split(), strict=True))
    texts = {part: "".join(f"{blobs[path]} {path}\n" for path in paths) for part, paths in files.items()}
    return {part: hashlib.sha256(text.encode()).hexdigest()[:16] for part, text in texts.items()}


# --- what runs --------------------------------------------------------------------------------------------


class Passed(NamedTuple):
    """With which files a part last passed, and when."""

    files: str
    at: datetime


class Choice(NamedTuple):
    """Whether a part runs, and why."""

    runs: bool
    why: str


def choose(now: Mapping[str, str], passed: Mapping[str, Passed], *, everything: bool = False) -> dict[str, Choice]:
    """For each part with its hash now. Of the parts that need not run, the one that passed longest ago runs."""
    same = [part for part, files in now.items() if part in passed and passed[part].files == files]
    turn = min(same, key=lambda part: passed[part].at, default="")
    chosen = {}
    for part, files in now.items():
        at = f"{passed[part].at:%Y-%m-%d %H:%M}" if part in passed else ""
        if not at:
            chosen[part] = Choice(True, "has not passed yet, or failed since")
        elif part not in same:
            chosen[part] = Choice(True, f"files differ from those with which it passed on {at}")
        elif part == turn or everything:
            chosen[part] = Choice(True, f"passed on {at}: {'all were asked for' if everything else 'its turn'}")
        else:
            chosen[part] = Choice(False, f"passed on {at} with the same files: {files}")
    return chosen


def read_passed(text: str) -> dict[str, Passed]:
    """What `written` wrote. Raises ValueError, KeyError or TypeError for anything else."""
    return {part: Passed(each["files"], each["at"]) for part, each in tomllib.loads(text).items()}


def written(passed: Mapping[str, Passed]) -> str:
    """The file of what passed, in TOML."""
    text = "# Written by .ci/run and committed: when each heavy part passed last, and with which files.\n"
    for part, (files, at) in sorted(passed.items()):
        text += f'\n[{part}]\nat = {at:%Y-%m-%dT%H:%M:%SZ}\nfiles = "{files}"\n'
    return text


def outcome(tests: Iterable[str], report: ElementTree.Element) -> bool | None:
    """Whether tests of each file were run and all passed; None when none was run. The report is pytest's, of a run that
    came to its end."""
    cases = [(f"{case.get('classname')}.", case) for case in report.iter("testcase")]
    names = [f"{module_of(Path(path))}." for path in tests]
    own = [[case for name, case in cases if name.startswith(module)] for module in names]
    bad = any(case.find(each) is not None for ran in own for case in ran for each in ("failure", "error", "skipped"))
    return all(own) and not bad if any(own) else None


# --- the program ------------------------------------------------------------------------------------------


def parts_in(tree: Tree) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """For each part its test files, and with them the files that it starts from."""
    table = tomllib.loads(PARTS.read_text(encoding="utf-8"))
    tests, entries = {}, {}
    for part, each in table["parts"].items():
        tests[part] = sorted(below(each["tests"], tree))
        drives = [path for word in ("every", *each["drives"]) for path in table["groups"].get(word, (word,))]
        entries[part] = below((*each["tests"], *drives), tree)
    return tests, entries


def _passed() -> dict[str, Passed]:
    return read_passed(PASSED.read_text(encoding="utf-8")) if PASSED.exists() else {}


def _choose(folder: Path, *, everything: bool) -> None:
    tree = tree_of(ROOT)
    tests, entries = parts_in(tree)
    now = hashes(entries, tree)
    choices = choose(now, _passed(), everything=everything)
    for runs, name in ((True, "runs"), (False, "skipped")):
        paths = [path for part, choice in choices.items() if choice.runs == runs for path in tests[part]]
        (folder / name).write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    (folder / "hashes.json").write_text(json.dumps(now), encoding="utf-8")
    for part, choice in choices.items():
        print(f"{'runs' if choice.runs else 'skipped':<8} {part:<14} {choice.why}")


def _note(folder: Path, report: Path) -> None:
    tree = tree_of(ROOT)
    tests, entries = parts_in(tree)
    before, now = json.loads((folder / "hashes.json").read_bytes()), hashes(entries, tree)
    results = ElementTree.parse(report).getroot()
    kept = {part: each for part, each in _passed().items() if part in now}
    for part, result in ((part, outcome(tests[part], results)) for part in now):
        if result and before.get(part) == now[part]:
            kept[part] = Passed(now[part], datetime.now(UTC))
        elif result is False:
            kept.pop(part, None)  # it runs until it passes, though nothing changed
        if result is not None:
            changed = ", but changed while it ran" if before.get(part) != now[part] else ""
            print(f"{part}: {'passed' if result else 'did not pass whole'}{changed}")
    PASSED.write_text(written(kept), encoding="utf-8")


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 failed, and nothing is chosen or noted."""
    parser = argparse.ArgumentParser(prog="python3 -m scripts.ci_parts")
    parser.add_argument("command", choices=("choose", "passed"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("report", type=Path, nargs="?")
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    if given.command == "choose":
        _choose(given.folder, everything=given.all)
    else:
        _note(given.folder, given.report)


if __name__ == "__main__":
    main()
