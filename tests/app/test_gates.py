"""What must not grow: own modules that a command imports, imports that hide in functions, plans and fits of one launch,
statements."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import spark_tui
from spark_tui.app.rooms import ROOMS
from tests.launch_counts import OPENED, TYPED, Calls

# Every figure here is only ever lowered: what a change has brought down stays down. A new name gets what it measures.

OWN_MODULES: Final = {
    "--help": 11,
    "ps": 65,
    "status": 66,
    "presets list": 109,
    "fit gpt-oss-20b": 96,
    "models list": 90,
    "explain qwen3.6-35b": 81,
    "up gpt-oss-20b --dry-run": 111,
    "connect opencode qwen3.6-35b": 77,
    "logs qwen3.6-35b": 46,
    "config list": 25,
    "metrics qwen3.6-35b": 87,
    "doctor": 57,
}
"""Modules of spark_tui that a command has imported when it ends. Left out: those of the simulated Spark, packages
without code, what rooms declare (names alone, which import nothing: `test_rooms` holds that), and the list of them."""
SIMULATION: Final = (
    "spark_tui.simulator", "spark_tui.machine.docker", "spark_tui.machine.procfs", "spark_tui.machine.vitals",
    "spark_tui.machine.nvml", "spark_tui.machine.engine_api", "spark_tui.machine.engine_http",
    "spark_tui.machine.secrets", "spark_tui.base.files", "spark_tui.observe.metrics.adapter",
    "spark_tui.observe.memory.adapter.drop_caches", "spark_tui.manage.doctor.adapter",
    "spark_tui.manage.cluster.adapter.fabric", "spark_tui.catalog.models.adapter.hub_client",
    "spark_tui.catalog.models.adapter.downloads", "spark_tui.catalog.models.adapter.transfer",
    "spark_tui.catalog.models.adapter.worker",
)  # fmt: skip
"""With the adapters of a real machine that it runs where it had its own, which were left out."""

SOURCE: Final = {
    "statements": 73_217,
    "imports in functions": 87,
    "import_module": 2,  # the same by another name
    "if TYPE_CHECKING": 36,
    "left unformatted": 90,  # tables alone
}
"""Of all files of spark_tui."""

PLANS_AND_FITS: Final = {
    "up gpt-oss-20b --dry-run": (1, 1),
    "up gpt-oss-20b --no-fetch": (2, 1),  # once more with the image that was pulled: its entrypoint is known then
    "up gpt-oss-20b --no-fetch --set gpu_memory_utilization=0.35": (2, 1),
    "fit gpt-oss-20b": (1, 1),
    "presets list": (48, 42),  # of 48 presets
    OPENED: (2, 1),  # before and after the image is known
    TYPED: (5, 5),
}

ROOT: Final = Path(spark_tui.__file__).parents[1]
RUN: Final = "from spark_tui.app.main import run; code = run({words!r}); assert code == 0, code"
MARK: Final = "modules: "
STARTER: Final = f"""
import asyncio, json, os, sys, traceback
import click, httpx2, msgspec, yaml
for program in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        try:
            exec(program, {{}})
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        print("\\n{MARK}" + json.dumps(sorted(sys.modules)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


CHECKING: Final = re.compile(r"(\w+\.)?TYPE_CHECKING")
HOLDERS: Final = (ast.stmt, ast.excepthandler, ast.match_case)
"""What can have a statement in it."""


def over(bounds: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """What has grown, or has no bound."""
    return [
        f"{name}: {found[name]}, at most {bounds.get(name)}" for name in found if found[name] > bounds.get(name, -1)
    ]


# --- own modules ------------------------------------------------------------------------------------------


def modules_after(programs: Sequence[str], package: str, root: Path, home: Path) -> list[set[str]]:
    """Modules of a package below `root` that are imported at the end of each program. Each starts in a copy of a new
    interpreter that has imported the libraries, and nothing of the package."""
    done = subprocess.run(
        [sys.executable, "-c", STARTER],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(root)},
        input=json.dumps(programs), capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line.removeprefix(MARK)) for line in done.stdout.splitlines() if line.startswith(MARK)]
    assert len(reports) == len(programs), done.stderr
    return [{name for name in report if f"{name}.".startswith(f"{package}.")} for report in reports]


def test_no_command_imports_more_modules_of_our_own(tmp_path: Path) -> None:
    lines = [["--demo"] * (line != "--help") + line.split() for line in OWN_MODULES]
    modules = modules_after([RUN.format(words=words) for words in lines], "spark_tui", ROOT, tmp_path)
    empty = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "spark_tui").rglob("__init__.py")
        if not ast.parse(path.read_text("utf-8")).body[1:]
    }
    declared = {"spark_tui.app.rooms", *(f"{room}.feature" for room in ROOMS)}
    counts = [sum(not name.startswith(SIMULATION) for name in each - empty - declared) for each in modules]
    found = dict(zip(OWN_MODULES, counts, strict=True))
    assert over(OWN_MODULES, found) == []
    hub = [
        line
        for line, each in zip(OWN_MODULES, modules, strict=True)
        if "spark_tui.catalog.models.adapter.hub_client" in each
    ]
    assert hub == ["up gpt-oss-20b --dry-run"], "what does not ask the Hub does not import its client"


def test_a_module_that_is_imported_late_counts(tmp_path: Path) -> None:
    package = tmp_path / "made_up"
    package.mkdir()
    (package / "__init__.py").write_text("def use():\n    import made_up.late\n")
    (package / "late.py").write_text("")
    (tmp_path / "made_up_other.py").write_text("")
    programs = {
        "import made_up, made_up_other; made_up.use()": {"made_up", "made_up.late"},
        "import made_up_other": set(),
        "import made_up": {"made_up"},
    }
    assert modules_after(list(programs), "made_up", tmp_path, tmp_path) == list(programs.values())


# --- source -----------------------------------------------------------------------------------------------


def figures_of(folder: Path) -> Counter[str]:
    """The figures of SOURCE, of all Python files below a folder."""
    found = Counter(dict.fromkeys(SOURCE, 0))
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found["import_module"] += text.count("import_module(")
        found["left unformatted"] += text.count("# fmt: skip")
        left: list[tuple[ast.AST, bool]] = [(ast.parse(text), False)]
        while left:
            node, within = left.pop()  # within a function
            found["statements"] += isinstance(node, ast.stmt)
            found["imports in functions"] += within and isinstance(node, ast.Import | ast.ImportFrom)
            found["if TYPE_CHECKING"] += isinstance(node, ast.If) and bool(CHECKING.fullmatch(ast.unparse(node.test)))
            within = within or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            left += ((each, within) for each in ast.iter_child_nodes(node) if isinstance(each, HOLDERS))
    return found


def test_the_source_does_not_grow() -> None:
    assert over(SOURCE, figures_of(ROOT / "spark_tui")) == []


def test_growth_of_the_source_is_seen(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    file = tmp_path / "below/made_up.py"
    file.write_text("import ast\nfrom typing import TYPE_CHECKING\n\nclass A:\n    import json\n")
    before = figures_of(tmp_path)
    assert before == dict.fromkeys(SOURCE, 0) | {"statements": 4}
    for more, grown in (
        ("x = 1; y = 2\n", {"statements": 2}),
        ("def f():\n    import a\n", {"statements": 2, "imports in functions": 1}),
        ("class B:\n    async def f(self):\n        if self:\n            from a import b, c\n",
         {"statements": 4, "imports in functions": 1}),
        ("if TYPE_CHECKING:\n    import a\n", {"statements": 2, "if TYPE_CHECKING": 1}),
        ("if not TYPE_CHECKING:\n    a = 1\n", {"statements": 2}),
        ("import typing as t\nif t.TYPE_CHECKING:\n    import a\n", {"statements": 3, "if TYPE_CHECKING": 1}),
        ("x = [\n    1, 2,\n]  # fmt: skip\n", {"statements": 1, "left unformatted": 1}),
        ("f = lambda: importlib.import_module('a')\n", {"statements": 1, "import_module": 1}),
    ):  # fmt: skip
        (tmp_path / "more.py").write_text(more)
        found = figures_of(tmp_path)
        assert found - before == grown
        assert [line.partition(":")[0] for line in over(before, found)] == list(grown)


# --- plans and fits ---------------------------------------------------------------------------------------


def test_a_launch_is_not_planned_and_measured_more_often() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.launch_counts"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == PLANS_AND_FITS.keys()
    more = {name: (each, PLANS_AND_FITS[name]) for name, each in found.items()}
    assert {name: pair for name, pair in more.items() if any(map(int.__gt__, *pair))} == {}, "now, and at most"
    assert min(min(each) for each in found.values()) > 0, "the functions that are counted are not those that are used"


def test_every_call_is_counted_on_threads_too() -> None:
    def first() -> int:
        return second() + 1

    def second() -> int:
        return 1

    with Calls(first, second) as calls:
        first()
        assert calls.take() == [1, 1]
        thread = threading.Thread(target=lambda: (first(), second()))
        thread.start()
        thread.join()
        assert calls.take() == [1, 2]
    first()
    assert calls.take() == [0, 0]
