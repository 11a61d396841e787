"""The doctor's readings from a tree of files that stands for a machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from spark_tui.base.finding import Missing, Ok
from spark_tui.base.host.detectors import Link
from spark_tui.base.ports import DoctorProbe
from spark_tui.manage.doctor.adapter import FileDoctorProbe
from tests.programs import program

PAGE = os.sysconf("SC_PAGE_SIZE")
ROUTE = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
TCP = """  sl  local_address rem_address   st
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 11 1
   1: 0100007F:1F41 00000000:0000 01 00000000:00000000 00:00000000 00000000 1000 0 12 1
"""
MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.142  Release Build\n"
IN_DOCKER = f"0::/system.slice/docker-{'a' * 64}.scope\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "proc/driver/nvidia/version": MODULE,
        "proc/sys/vm/min_free_kbytes": "90112\n",
        "proc/net/route": ROUTE + "wlP9s9\t00000000\tFE\t3\t0\t0\t600\t0\nenP7s7\t00000000\tFE\t3\t0\t0\t100\t0\n",
        "proc/net/tcp": TCP,
        "proc/7/cmdline": "/usr/bin/earlyoom\0-m\0002\0--prefer\0(sglang|python)\0",
        "proc/7/cgroup": "0::/system.slice/earlyoom.service\n",
        "proc/7/statm": "1000 700 0 0 0 0 0\n",
        "proc/8/cmdline": "VLLM::EngineCore\0",
        "proc/8/comm": "VLLM::EngineCor\n",
        "proc/8/cgroup": "0::/user.slice\n",
        "proc/8/statm": f"1000 {2048 * 1024 // PAGE} 0 0 0 0 0\n",
        "proc/10/cmdline": "/usr/bin/python3\0/opt/vllm/bin/vllm\0serve\0org/m\0",
        "proc/10/cgroup": "0::/user.slice\n",
        "proc/11/cmdline": "VLLM::EngineCore\0",
        "proc/11/cgroup": "0::/user.slice\n",
        "proc/9/cmdline": "python3\0-m\0vllm.entrypoints.openai.api_server\0",
        "proc/9/cgroup": IN_DOCKER,
        "sys/class/net/enP7s7/operstate": "up\n",
        "sys/class/net/enP7s7/speed": "10000\n",
        "sys/class/net/wlP9s9/operstate": "up\n",
        "sys/class/net/wlP9s9/wireless/x": "",
        "sys/class/net/enp1s0f0np0/operstate": "down\n",
        "run/systemd/timesync/synchronized": "",
        "etc/cdi/nvidia.yaml": "",
    }
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for pid, parent in ((7, 1), (8, 1), (9, 1), (10, 1), (11, 10)):
        (tmp_path / f"root/proc/{pid}/stat").write_text(f"{pid} (x) S {parent} " + "0 " * 48)
    return tmp_path / "root"


def probe(root: Path, **environ: str) -> DoctorProbe:
    return FileDoctorProbe(environ, root)


def test_the_kernels_log_is_the_journals_and_without_one_it_says_why(root: Path, programs: Path) -> None:
    program(programs, "journalctl", 'echo "spark kernel: NVRM: Xid (PCI:000f:01:00): 79, gone"')
    assert probe(root, PATH=str(programs)).kernel_log() == Ok(("spark kernel: NVRM: Xid (PCI:000f:01:00): 79, gone",))
    program(programs, "journalctl", "true")
    assert isinstance(probe(root, PATH=str(programs)).kernel_log(), Missing)
    program(programs, "journalctl", "exit 1")
    assert isinstance(probe(root, PATH=str(programs)).kernel_log(), Missing)
    assert isinstance(probe(root, PATH="/nowhere").kernel_log(), Missing)


def test_a_spark_is_read(root: Path) -> None:
    found = probe(root)
    assert found.driver() == Ok("580.142")
    assert found.kernel_number("vm/min_free_kbytes") == Ok(90112)
    assert found.earlyoom() == Ok("/usr/bin/earlyoom -m 2 --prefer (sglang|python)")
    assert found.clock_synchronised() == Ok(True)
    assert found.cdi() == Ok(("/etc/cdi/nvidia.yaml",))
    assert found.taken((8000, 8001, 9000)) == (8000,), "8001 is connected, not listening"


def test_only_engine_processes_whose_server_is_gone_are_orphans(root: Path) -> None:
    orphans = probe(root).engine_processes()
    assert isinstance(orphans, Ok)
    assert [(process.pid, process.memory) for process in orphans.value] == [(8, 2048 * 1024)]


def test_the_way_out_is_the_route_with_the_smallest_metric(root: Path) -> None:
    links, default = probe(root).links()
    assert links == Ok((Link("enP7s7", wireless=False, speed=10000), Link("wlP9s9", wireless=True)))
    assert default == "enP7s7"


def test_names_of_registries_and_never_what_is_behind_them(root: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"auths": {"nvcr.io": {"auth": "c2VjcmV0"}}, "credHelpers": {"example.org": "x"}})
    )
    found = probe(root, DOCKER_CONFIG=str(tmp_path)).registries()
    assert found == Ok(("example.org", "nvcr.io"))
    (tmp_path / "config.json").write_text("{")
    assert isinstance(probe(root, DOCKER_CONFIG=str(tmp_path)).registries(), Missing)


def test_an_empty_machine_is_read_without_an_error(tmp_path: Path) -> None:
    found = probe(tmp_path)
    assert isinstance(found.driver(), Missing)
    assert isinstance(found.kernel_number("vm/min_free_kbytes"), Missing)
    assert isinstance(found.clock_synchronised(), Missing)
    assert isinstance(found.links()[0], Missing)
    assert found.earlyoom() == Ok("")
    assert found.taken((8000,)) == ()
    assert found.toolkit() == Ok("")


def test_a_folder_with_files_of_others_counts_them(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make files of others")
    (tmp_path / "store" / "hub").mkdir(parents=True)
    (tmp_path / "store" / "hub" / "theirs").touch()
    os.chown(tmp_path / "store" / "hub" / "theirs", 65534, 65534)
    found = probe(tmp_path).folder(tmp_path / "store")
    assert isinstance(found, Ok)
    assert (found.value.exists, found.value.writable, found.value.foreign) == (True, True, 1)
    assert found.value.foreign_example.endswith("theirs")
    absent = probe(tmp_path).folder(tmp_path / "not" / "there")
    assert isinstance(absent, Ok)
    assert not absent.value.exists
    assert absent.value.free
