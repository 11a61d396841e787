"""Which parts of .ci/run a change can reach, and which of them run."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.ci_parts import (
    Choice,
    Passed,
    Tree,
    below,
    choose,
    closure,
    hashes,
    outcome,
    parts_in,
    read_passed,
    tree_of,
    written,
)  # fmt: skip
from tests.pty_app import REPOSITORY

SOURCES = {
    "tests/conftest.py": "",
    "tests/real/__init__.py": "",
    "tests/real/conftest.py": "from tests.real.lab import engine\n",
    "tests/real/test_up.py": "def test_up():\n    import subprocess\n    subprocess.run(['-m', 'tests.real.client'])\n",
    "tests/real/client.py": "FOLDER = 'fixtures' + 'gb10'; OTHER = 'script.sh'\n",
    "tests/real/script.sh": "",
    "tests/real/lab/engine.py": "",
    "tests/real/test_other.py": "from tests.unread import x\n",
    "tests/unread.py": "",
    "tests/fixtures/gb10/meminfo": "",
    "tests/fixtures/logs/a.log": "",
    "spark_tui/__init__.py": "",
    "spark_tui/app/main.py": "COMMANDS = {'chat': 'spark_tui.use.chat.command'}\n",
    "spark_tui/run/launch/command.py": "from spark_tui.catalog.fit.use import Hub\nimport spark_tui.app.main\n",
    "spark_tui/run/launch/screen.tcss": "",
    "spark_tui/catalog/fit/__init__.py": "",
    "spark_tui/catalog/fit/use.py": "@port_named('hub')\nclass Hub(Protocol): ...\n",
    "spark_tui/catalog/fit/adapter/hub.py": "def f():\n    from spark_tui.base.text import clean\n",
    "spark_tui/catalog/fit/screen.py": "",
    "spark_tui/base/text.py": "from spark_tui.catalog.fit.adapter import hub\n",
    "spark_tui/base/data/words.toml": "",
    "spark_tui/base/far/other.toml": "",
    "spark_tui/use/chat/command.py": "",
}
REACHED = SOURCES.keys() - {
    "tests/real/test_other.py", "tests/unread.py", "tests/fixtures/logs/a.log", "spark_tui/catalog/fit/screen.py",
    "spark_tui/base/far/other.toml", "spark_tui/use/chat/command.py",
}  # fmt: skip
ENTRIES = ("tests/real/test_up.py", "spark_tui/run/launch")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A small checkout: nothing of it is committed."""
    for path, text in SOURCES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tree_of(tmp_path)


def test_a_part_reaches_imports_named_modules_fixtures_data_and_adapters(tree: Tree) -> None:
    assert closure(below(ENTRIES, tree), tree) == REACHED


def test_a_hash_changes_with_what_is_reached_alone(tree: Tree) -> None:
    def now() -> str:
        return hashes({"up": below(ENTRIES, tree)}, tree_of(tree.root))["up"]

    before = now()
    for path in SOURCES:
        file = tree.root / path
        file.write_text(f"{SOURCES[path]}# changed\n")
        assert (now() != before) == (path in REACHED), path
        file.write_text(SOURCES[path])
    assert now() == before
    (tree.root / "spark_tui/run/launch/adapter.py").write_text("")
    assert hashes({"up": below(ENTRIES, tree_of(tree.root))}, tree_of(tree.root))["up"] != before, "a new file"


def test_without_git_or_a_file_there_is_an_error(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError, match="test_gone"):
        below(("tests/real/test_gone.py",), tree)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    with pytest.raises(subprocess.CalledProcessError):
        tree_of(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for ask in (lambda: tree_of(tmp_path), lambda: hashes({"up": ENTRIES[:1]}, tree)):
        with pytest.raises(FileNotFoundError):
            ask()


def at(day: int) -> datetime:
    return datetime(2026, 11, day, 16, 5, tzinfo=UTC)


PASSED = {
    "old": Passed("aa", at(1)),
    "new": Passed("bb", at(20)),
    "other": Passed("cc", at(2)),
    "gone": Passed("dd", at(1)),
}


def test_what_differs_runs_and_one_more_in_turn() -> None:
    now = {"new": "bb", "old": "aa", "other": "c1", "first": "ee"}
    chosen = choose(now, PASSED)
    assert {part: choice.runs for part, choice in chosen.items()} == {
        "new": False, "old": True, "other": True, "first": True,
    }  # fmt: skip
    assert chosen["new"] == Choice(False, "passed on 2026-11-20 16:05 with the same files: bb")
    turns = choose({**now, "old": "a1"}, PASSED)
    assert turns["new"].runs, "of those that are the same the oldest, though another that differs is older"
    assert all(choice.runs for choice in choose(now, PASSED, everything=True).values())
    assert all(choice.runs for choice in choose(now, {}).values())


def test_what_passed_is_read_as_it_was_written() -> None:
    assert read_passed(written(PASSED)) == PASSED
    assert read_passed(written({})) == {}
    for damaged in ("<<<<<<< ours\n", "[old]\nat = 2026-11-01T16:05:00Z\n", "old = 1\n"):
        with pytest.raises((ValueError, KeyError, TypeError)):
            read_passed(damaged)


REPORT = """<testsuites><testsuite>
<testcase classname="tests.real.test_up" name="test_a"/>
<testcase classname="tests.real.test_up.TestB" name="test_b"/>
<testcase classname="tests.real.test_upper" name="test_c"><failure message="no"/></testcase>
<testcase classname="tests.real.test_late" name="test_d"/>
<testcase classname="tests.real.test_late" name="test_e"><skipped message="no Docker"/></testcase>
<testcase classname="tests.real.test_torn" name="test_f"><error message="teardown"/></testcase>
</testsuite></testsuites>"""


def test_a_part_passed_when_all_tests_of_all_its_files_did() -> None:
    report = ElementTree.fromstring(REPORT)
    results = {
        names: outcome([f"tests/real/test_{name}.py" for name in names.split()], report)
        for names in ("up", "upper", "late", "torn", "up upper", "up missing", "missing")
    }
    assert [names for names, result in results.items() if result] == ["up"]
    assert [names for names, result in results.items() if result is None] == ["missing"]


def test_every_benchmark_is_in_a_part_and_no_test_in_two() -> None:
    tree = tree_of(REPOSITORY)
    tests, entries = parts_in(tree)  # raises for a path that names nothing
    each = [path for paths in tests.values() for path in paths]
    assert len(each) == len({*each})
    assert {path for path in tree.files if path.startswith("tests/perf/test_")} <= {*each}
    assert all(path.startswith(("tests/real/", "tests/perf/")) for path in each)
    assert all({"pyproject.toml", ".ci/run", *tests[part]} <= entries[part] for part in tests)
