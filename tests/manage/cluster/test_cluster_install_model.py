"""Which Python of a node runs the copied program, and what is said where none does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spark_tui.base.remote import RemoteHost
from spark_tui.base.untrusted import decode, encode
from spark_tui.manage.cluster.use.install import InstallFailed, NodePython, ProgramBundle, ProgramPart, choose_python
from tests.cases import all_cases

HOST = RemoteHost("spark-2", "nv@spark-2")
SPARK = NodePython("/usr/bin/python3", (3, 12), "aarch64", free=10**12)
PURE = ProgramPart("click", "8.5.1", ("py3-none-any",))
COMPILED = ProgramPart("msgspec", "0.22.0", ("cp312-cp312-manylinux_2_17_aarch64", "cp312-cp312-manylinux2014_aarch64"))
STABLE = ProgramPart("psutil", "7.2.2", ("cp36-abi3-manylinux2014_aarch64",))
BUNDLE = ProgramBundle("0.1.0", (PURE, COMPILED, STABLE), 50_000_000, b"")


@all_cases(
    ("tag", "runs"),
    [
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        ("py2-none-any", False),
        ("cp312-cp312-manylinux_2_17_aarch64", True),
        ("cp311-cp311-manylinux_2_17_aarch64", False),
        ("cp312-cp312-manylinux_2_17_x86_64", False),
        ("cp312-cp312-macosx_11_0_aarch64", False),
        ("cp38-abi3-manylinux2014_aarch64", True),
        ("cp313-abi3-manylinux2014_aarch64", False),
        ("py3-none-manylinux2014_aarch64", True),
        ("cp312-none-any", True),
        ("", False),
    ],
)
def test_a_part_runs_where_one_of_its_tags_fits(tag: str, runs: bool) -> None:
    assert ProgramPart("x", "1", (tag,)).runs_on(SPARK) is runs


def test_the_first_python_that_runs_every_part_is_taken() -> None:
    found = [replace(SPARK, executable=name, version=version) for name, version in (
        ("old", (3, 10)), ("other", (3, 13)), ("same", (3, 12)), ("again", (3, 12)),
    )]  # fmt: skip
    assert choose_python(HOST, found, BUNDLE).executable == "same"
    assert choose_python(HOST, found, replace(BUNDLE, parts=(PURE, STABLE))).executable == "other"


@pytest.mark.parametrize(
    ("found", "summary", "remedy"),
    [
        ([], "no python3", "ssh -t nv@spark-2 sudo apt install python3 python3-venv"),
        ([replace(SPARK, version=(3, 10))], "Python 3.10", "uv python install"),
        ([replace(SPARK, venv="No module named 'venv'")], "venv", "sudo apt install python3-venv"),
        ([replace(SPARK, free=1_000_000)], "no space left", "df -h"),
        ([replace(SPARK, version=(3, 13))], "msgspec", "--python-version 3.13 --platform manylinux_2_28_aarch64"),
        ([replace(SPARK, machine="x86_64")], "msgspec, psutil", "manylinux_2_28_x86_64"),
    ],
)
def test_a_node_that_cannot_run_it_says_what_to_do(found: list[NodePython], summary: str, remedy: str) -> None:
    with pytest.raises(InstallFailed) as error:
        choose_python(HOST, found, BUNDLE)
    assert summary in error.value.summary
    assert remedy in error.value.remedy


@pytest.mark.parametrize("machine", ["", "\x1b[2J", "x;reboot", "x" * 30])
def test_a_processor_with_a_strange_name_is_none(machine: str) -> None:
    with pytest.raises(ValueError, match="name of a processor"):
        decode(encode({"executable": "/p", "version": [3, 12], "machine": machine, "free": 1}), NodePython)
