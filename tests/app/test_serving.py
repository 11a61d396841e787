"""serve: refused to the network unless it is meant, and a clear word where its part is missing."""

from __future__ import annotations

import gc
import os
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from spark_tui.app.serve import control_centre
from spark_tui.cli.session import Options
from tests.cli.world import World

BLOCKED = """
import sys
sys.modules["textual_serve"] = None  # as where it is not installed
from spark_tui.app.main import run
sys.exit(run(["serve", "--port", "0"]))
"""


@pytest.fixture(autouse=True)
def programs_that_were_served_are_let_go() -> Iterator[None]:
    """textual-serve does not wait for the end of what it has started; the interpreter says so whenever it notices."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        noticed, sys.unraisablehook = sys.unraisablehook, lambda _: None
        gc.collect()
        sys.unraisablehook = noticed


def test_an_address_that_others_reach_is_refused_with_the_way_out() -> None:
    for host in ("0.0.0.0", "192.168.1.5", "::"):
        result = World().run("serve", "--host", host)
        assert result.code == 4
        assert "ssh -L 8765:127.0.0.1:8765" in result.err
        assert "--to-network" in result.err
        assert result.out == ""


def test_where_the_part_is_not_installed_it_says_how_to_get_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED], env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    command = shlex.split(done.stderr.partition("Install it: ")[2])
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert Requirement(command[4]).name == "textual-serve", "named as an index has it"


def test_the_served_control_centre_has_the_options_that_were_typed() -> None:
    options = Options(demo=True, read_only=True, store="/a b", config="/c")
    assert shlex.split(control_centre(options))[1:] == [
        "-m", "spark_tui", "--demo", "--read-only", "--store", "/a b", "--config", "/c",
    ]  # fmt: skip
