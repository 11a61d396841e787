"""What an import may bring along: proven in fresh interpreters, by `sys.modules`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.test_rooms import modules, place_of

SDKS = frozenset(("docker", "httpx2", "requests", "urllib3", "huggingface_hub", "pynvml", "psutil", "yaml"))
FRONT_END = frozenset(("textual", "rich"))
HEAVY = frozenset(("asyncio", "concurrent", "ssl", "multiprocessing", "sqlite3", "http"))

REPORT = "import json, sys; print('\\n' + json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
COMMAND = """
import sys
from spark_tui.app.main import run
code = run({arguments!r})
"""


def _modules(program: str, tmp_path: Path) -> tuple[frozenset[str], str]:
    """Top-level modules after a program has run, and what it wrote on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{REPORT}"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return frozenset(json.loads(done.stdout.splitlines()[-1])), done.stderr


GROUND = [
    name for name in modules() if place_of(name).wing == "base" or place_of(name).layer in ("model", "use", "show")
]
OUTSIDE = [name for name in modules() if place_of(name).wing == "machine" or place_of(name).layer == "adapter"]


def test_ground_floor_models_use_cases_and_what_is_shown_need_the_value_type_alone(tmp_path: Path) -> None:
    assert len(GROUND) > 200
    found, _ = _modules("\n".join(f"import {name}" for name in GROUND), tmp_path)
    foreign = found - sys.stdlib_module_names - {"spark_tui", "__main__"}
    installed = _modules("import msgspec", tmp_path)[0]  # with what the interpreter brings: .pth files and the like
    assert foreign - installed == set()


def test_adapters_import_their_sdks_only_when_they_are_used(tmp_path: Path) -> None:
    on_use = (".nvml_child", ".docker.client")  # imported with the first use themselves
    names = [name for name in OUTSIDE if not name.endswith(on_use)]
    assert len(names) > 40
    found, _ = _modules("\n".join(f"import {name}" for name in names), tmp_path)
    assert found & (SDKS | FRONT_END) == set()


@pytest.mark.parametrize(
    ("commands", "absent"),
    [
        ([["--help"], ["--version"], ["frob"]], SDKS | FRONT_END | HEAVY),
        ([["up", "--help"], ["chat", "--help"], ["models", "--help"], ["serve", "--help"]], SDKS | FRONT_END),
        ([["status"], ["ps"], ["down", "x"]], FRONT_END),
    ],
    ids=["help and usage", "help of a command", "commands"],
)
def test_no_command_imports_what_it_does_not_need(
    commands: list[list[str]], absent: frozenset[str], tmp_path: Path
) -> None:
    """One after the other in one interpreter: what none of them imports none of them imports."""
    modules, told = _modules("".join(COMMAND.format(arguments=each) for each in commands), tmp_path)
    assert modules & absent == set(), told


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["presets", "list"], {"yaml", "docker", "requests", "urllib3", "psutil", "pynvml"}),
        (["presets", "show", "gpt-oss-120b"], {"yaml", "docker", "requests", "urllib3", "psutil", "pynvml"}),
        (["memory"], {"pynvml", "psutil"}),
    ],
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], allowed: set[str], tmp_path: Path) -> None:
    modules, told = _modules(COMMAND.format(arguments=arguments) + "assert code == 0", tmp_path)
    assert modules & (SDKS | FRONT_END) <= allowed, told


def test_a_look_at_a_node_imports_nothing_that_plans_or_starts_containers(tmp_path: Path) -> None:
    """Each is a Python that starts on the node, every ten seconds while a screen is open."""
    program = f"""
import io, sys
sys.stdin = io.StringIO("{{}}")
{COMMAND.format(arguments=["node", "look"])}
assert code == 0
from importlib.util import find_spec
absent = ("run.launch.use.launch", "observe.engines.use.engines", "observe.memory.use.guard",
          "catalog.presets.model.plan", "observe.explain.model.explain")
found = [name for name in absent if "spark_tui." + name in sys.modules]
assert not found and all(find_spec("spark_tui." + name) for name in absent), found
"""
    _modules(program, tmp_path)
