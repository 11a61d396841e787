"""The host as the kernel tells it: real samples of a Spark under an injected root, and this very machine."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import time
import timeit
from pathlib import Path

import pytest

from spark_tui.base.errors import NoSpaceLeft, SparkError
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.host.vitals import HostIdentity, parse_release, product_label
from spark_tui.machine.procfs import ProcfsHost, folder_error
from tests import TESTS
from tests.ordinary_user import ordinary_user

GB10 = TESTS / "fixtures" / "gb10"
THIS = Path("/proc/meminfo").exists()
IDENTITY = "ab" * 32


def put(root: Path, path: str, text: str) -> None:
    """A file under the injected root."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


def release(maker: str) -> str:
    """One maker's `/etc/dgx-release` of the captures."""
    blocks = (GB10 / "dgx-release_variants.txt").read_text(encoding="utf-8").split("\n--- ")
    return next(block.partition("\n")[2] for block in blocks if block.startswith(maker))


# --- memory ---------------------------------------------------------------------------------------------


def test_memory_and_time_of_reading(tmp_path: Path) -> None:
    put(tmp_path, "proc/meminfo", "MemTotal: 127535224 kB\nMemFree: 4510768 kB\nMemAvailable: 23135528 kB\n")
    reading = ProcfsHost(tmp_path, now=lambda: 7.0).memory()
    assert isinstance(reading, Ok)
    assert reading.value.total == 127_535_224 * 1024
    assert reading.at == 7.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "/proc/meminfo: no such file or directory"),
        ("", "/proc/meminfo has no MemTotal"),
        ("MemTotal: 5 kB\n", "/proc/meminfo has no MemFree"),
        ("MemTotal: 5\nMemFree: 5 kB\nMemAvailable: 5 kB\n", "/proc/meminfo has no MemTotal"),
        ("\x00\x01\x02", "/proc/meminfo has no MemTotal"),
        ("folder", "/proc/meminfo: is a directory"),
    ],
)
def test_memory_that_cannot_be_read_says_why_and_is_never_zero(tmp_path: Path, text: str | None, why: str) -> None:
    if text == "folder":
        (tmp_path / "proc/meminfo").mkdir(parents=True)
    elif text is not None:
        put(tmp_path, "proc/meminfo", text)
    assert ProcfsHost(tmp_path).memory() == Missing(why)


@pytest.mark.skipif(not THIS, reason="no /proc here")
def test_this_kernels_memory_is_parsed_in_a_few_times_the_reading_of_its_file() -> None:
    host = ProcfsHost()
    reading = host.memory()
    assert isinstance(reading, Ok)
    assert 0 < reading.value.free <= reading.value.total
    ours = min(timeit.repeat(host.memory, timer=time.process_time, number=200, repeat=5))
    bare = min(timeit.repeat(Path("/proc/meminfo").read_bytes, timer=time.process_time, number=200, repeat=5))
    assert ours < 12 * bare, f"{ours / bare:.1f} times"


# --- pressure and uptime --------------------------------------------------------------------------------


def test_pressure_is_the_share_of_waiting_in_the_last_ten_seconds(tmp_path: Path) -> None:
    idle, busy = re.findall(r"some .*\nfull .*\n", (GB10 / "psi_memory.txt").read_text(encoding="utf-8"))
    put(tmp_path, "proc/pressure/memory", idle)
    assert ProcfsHost(tmp_path).memory_pressure() == Ok(0.0)
    put(tmp_path, "proc/pressure/memory", busy)
    assert ProcfsHost(tmp_path).memory_pressure() == Ok(1.5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "CONFIG_PSI"),
        *((odd, "avg10") for odd in ("", "some\n", "some avg10=x\n", "full avg10=1.00\n", "some avg10=nan\n")),
    ],
)
def test_pressure_that_is_absent_or_makes_no_sense_is_missing(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        put(tmp_path, "proc/pressure/memory", text)
    reading = ProcfsHost(tmp_path).memory_pressure()
    assert isinstance(reading, Missing)
    assert why in reading.reason


def test_uptime(tmp_path: Path) -> None:
    put(tmp_path, "proc/uptime", "173886.48 3446568.81\n")
    assert ProcfsHost(tmp_path).uptime() == Ok(173_886.48)
    put(tmp_path, "proc/uptime", "\n")
    assert isinstance(ProcfsHost(tmp_path).uptime(), Missing)


# --- identity -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("maker", "product_name", "label"),
    [
        ("NVIDIA Founders Edition", "NVIDIA_DGX_Spark", "DGX Spark"),
        ("ASUS Ascent GX10", "", "ASUS Ascent GX10"),
        ("Dell Pro Max with GB10", "Dell Pro Max with GB10 FCM1253", "Dell Pro Max with GB10"),
        ("HP ZGX Nano", "HP ZGX Nano G1n AI Station", "HP ZGX Nano"),
    ],
)
def test_each_makers_spark_is_known_by_its_own_name(maker: str, product_name: str, label: str) -> None:
    assert product_label(parse_release(release(maker)), (product_name,)) == (label, True)


@pytest.mark.parametrize(
    ("dmi", "label", "is_spark"),
    [
        (("30KL0004FC", "ThinkStation PGX"), "Lenovo ThinkStation PGX", True),
        (("AI TOP ATOM",), "Gigabyte AI TOP ATOM", True),
        (("System Product Name", "ROG STRIX"), "ROG STRIX", False),
        (("Default string", "", "To Be Filled By O.E.M."), "", False),
        (("NVIDIA DGX GB100",), "NVIDIA DGX GB100", False),
    ],
)
def test_without_a_release_file_the_firmware_names_the_machine(
    dmi: tuple[str, ...], label: str, is_spark: bool
) -> None:
    assert product_label({}, dmi) == (label, is_spark)


def test_of_repeated_keys_the_last_counts_and_odd_lines_are_skipped() -> None:
    found = parse_release(release("ASUS Ascent GX10"))
    assert (found["DGX_OTA_VERSION"], found["DGX_NAME"]) == ("7.6.0", "DGX Spark")
    text = "#comment=1\n\nno equals\n=5\nA=\"one\nB='two'\nC= three \n 9X=4\n"
    assert parse_release(text) == {"A": "one", "B": "two", "C": "three"}


def test_a_spark_under_an_injected_root(tmp_path: Path) -> None:
    put(tmp_path, "proc/sys/kernel/hostname", "spark-7f3a\n")
    put(tmp_path, "proc/sys/kernel/osrelease", "6.17.0-1014-nvidia\n")
    put(tmp_path, "proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\n")
    put(tmp_path, "sys/devices/system/cpu/online", "0-9,12,14-19\n")
    put(tmp_path, "etc/dgx-release", release("NVIDIA Founders Edition"))
    put(tmp_path, "sys/class/dmi/id/product_name", "NVIDIA_DGX_Spark\n")
    assert ProcfsHost(tmp_path).identity() == HostIdentity(
        "spark-7f3a", "DGX Spark", "6.17.0-1014-nvidia", "aarch64", 17, is_spark=True, has_gpu=True
    )


@pytest.mark.parametrize(("device", "is_spark"), [("0x2e12", True), ("0x2e03", False), ("0x2e06", False), ("", False)])
def test_an_unknown_sibling_is_known_by_its_gpu(tmp_path: Path, device: str, is_spark: bool) -> None:
    put(tmp_path, "sys/bus/pci/devices/000f:01:00.0/vendor", "0x10de\n")
    put(tmp_path, "sys/bus/pci/devices/000f:01:00.0/device", device + "\n")
    put(tmp_path, "sys/bus/pci/devices/0000:01:00.0/vendor", "0x15b3\n")
    put(tmp_path, "sys/class/dmi/id/product_name", "EdgeBox 9\n")
    found = ProcfsHost(tmp_path).identity()
    assert (found.is_spark, found.product, found.has_gpu) == (is_spark, "EdgeBox 9", True)


@pytest.mark.parametrize(
    ("vendor", "driver", "has_gpu"),
    [
        ("0x15b3", "", False),
        ("", "", None),  # no list of devices is no proof
        ("0x15b3", "proc/driver/nvidia/version", True),
        ("", "dev/dxg", True),
    ],
)
def test_a_machine_is_known_to_have_no_gpu(tmp_path: Path, vendor: str, driver: str, has_gpu: bool | None) -> None:
    if vendor:
        put(tmp_path, "sys/bus/pci/devices/0000:01:00.0/vendor", vendor + "\n")
    if driver:
        put(tmp_path, driver, "")
    assert ProcfsHost(tmp_path).identity().has_gpu is has_gpu


def test_a_machine_that_says_nothing_has_an_empty_identity_and_a_hostname_cannot_draw(tmp_path: Path) -> None:
    assert ProcfsHost(tmp_path).identity() == HostIdentity("")
    put(tmp_path, "proc/sys/kernel/hostname", "evil\x1b[31m\x07box\n")
    assert ProcfsHost(tmp_path).identity().hostname == "evilbox"


@pytest.mark.skipif(not THIS, reason="no /proc here")
def test_this_machine() -> None:
    found = ProcfsHost().identity()
    assert found.hostname == socket.gethostname()
    assert found.architecture == os.uname().machine
    assert found.kernel == os.uname().release
    assert found.cpu_count >= len(os.sched_getaffinity(0))


# --- ports ----------------------------------------------------------------------------------------------

_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def listener(port: int, inode: int, state: str = "0A", address: str = "0100007F") -> str:
    """One line of `/proc/net/tcp`."""
    return (
        f"   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000 0 {inode} 1\n"
    )


def test_the_owner_of_a_port_is_named_with_its_pid(tmp_path: Path) -> None:
    put(tmp_path, "proc/net/tcp", _HEAD + listener(22, 1) + listener(8000, 4711))
    put(tmp_path, "proc/812/comm", "python3\n")
    (tmp_path / "proc/812/fd").mkdir()
    (tmp_path / "proc/812/fd/5").symlink_to("socket:[4711]")
    host = ProcfsHost(tmp_path)
    assert host.port_owner(8000) == "python3 (pid 812)"
    assert host.port_owner(22) == "another process"
    assert host.port_owner(8001) is None


def test_a_port_on_ipv6_alone_is_taken_and_a_connection_or_a_remote_port_takes_none(tmp_path: Path) -> None:
    lines = listener(8001, 9, state="01") + listener(40000, 10).replace("00000000:0000", "0100007F:1F40")
    put(tmp_path, "proc/net/tcp", _HEAD + lines)
    put(tmp_path, "proc/net/tcp6", _HEAD + listener(8002, 9, address="0" * 32))
    owners = [ProcfsHost(tmp_path).port_owner(port) for port in (8000, 8001, 8002)]
    assert owners == [None, None, "another process"]


@pytest.mark.skipif(not THIS, reason="no /proc here")
def test_a_real_listener_is_found() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        owner = ProcfsHost().port_owner(port)
    assert owner is not None
    assert owner.endswith(f"(pid {os.getpid()})")
    assert ProcfsHost().port_owner(port) is None


# --- disk -----------------------------------------------------------------------------------------------


def test_free_disk_of_a_folder_that_is_yet_to_be_made(tmp_path: Path) -> None:
    reading = ProcfsHost().free_disk(tmp_path / "not" / "there" / "yet")
    assert isinstance(reading, Ok)
    status = os.statvfs(tmp_path)
    assert reading.value == pytest.approx(status.f_bavail * status.f_frsize, rel=0.05)


def test_folders_are_made_with_their_parents_and_a_file_of_that_name_is_an_error(tmp_path: Path) -> None:
    host, wanted = ProcfsHost(), [tmp_path / "a" / "b", tmp_path / "a"]
    assert not host.has_folder(wanted[0])
    host.make_folders(wanted)
    host.make_folders(wanted)
    assert host.has_folder(wanted[0])
    put(tmp_path, "store", "")
    for path in (tmp_path / "store", tmp_path / "store" / "below"):
        with pytest.raises(SparkError, match="A file has that name"):
            host.make_folders([path])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_that_may_not_be_made_says_how_to_make_it(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=stat.S_IRWXU)
    with ordinary_user(tmp_path), pytest.raises(SparkError) as caught:
        ProcfsHost().make_folders([locked / "store"])
    assert "permission denied" in caught.value.summary
    assert f"sudo mkdir -p {locked / 'store'}" in caught.value.remedy


def test_a_full_disk_is_its_own_error() -> None:
    error = folder_error(Path("/store"), OSError(errno.ENOSPC, "No space left on device"))
    assert isinstance(error, NoSpaceLeft)


# --- shared memory ----------------------------------------------------------------------------------------


def test_shared_files_show_who_has_them_open(tmp_path: Path) -> None:
    shm = tmp_path / "dev/shm"
    shm.mkdir(parents=True)
    (shm / "psm_aa").write_bytes(b"x" * 8192)
    (shm / "psm_bb").write_bytes(b"x" * 8192)
    (shm / "folder").mkdir()
    for kind in ("fd", "map_files"):
        (tmp_path / "proc/7" / kind).mkdir(parents=True)
    reading = ProcfsHost(tmp_path).shared_files()
    assert isinstance(reading, Ok)
    assert [(file.name, file.open) for file in reading.value] == [("psm_aa", False), ("psm_bb", False)]
    assert all(file.size >= 4096 for file in reading.value)
    assert isinstance(ProcfsHost(tmp_path / "nowhere").shared_files(), Missing)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no shared memory here")
def test_a_file_that_this_very_process_maps_is_in_use() -> None:
    path = Path(f"/dev/shm/psm_{os.getpid():08x}")
    try:
        with path.open("wb") as file:
            file.write(b"x" * 8192)
            file.flush()
            reading = ProcfsHost().shared_files()
            assert isinstance(reading, Ok)
            assert {each.name: each.open for each in reading.value}[path.name] is True
    finally:
        path.unlink()


@pytest.mark.parametrize(
    ("cgroup", "expected"), [(f"0::/system.slice/docker-{IDENTITY}.scope\n", IDENTITY), ("0::/\n", "")]
)
def test_a_process_knows_its_container(tmp_path: Path, cgroup: str, expected: str) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text(cgroup)
    assert ProcfsHost(tmp_path).container_of(7) == expected
    assert ProcfsHost(tmp_path).container_of(8) == ""


def test_the_kernels_lines_are_empty_where_the_journal_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ProcfsHost(tmp_path).kernel_lines(1.0) == ()
    journal = tmp_path / "journalctl"
    journal.write_text('#!/bin/sh\necho "$*"\n')
    journal.chmod(0o755)
    (line,) = ProcfsHost(tmp_path).kernel_lines(1000.0)
    assert "--since=@940 --until=@1005" in line
    journal.write_text("#!/bin/sh\necho no; exit 1\n")
    assert ProcfsHost(tmp_path).kernel_lines(1.0) == ()


# --- engines outside containers -----------------------------------------------------------------------------

SERVE = ("/opt/venv/bin/python3", "/opt/venv/bin/vllm", "serve", "acme/tiny-1b", "--port", "8011")


def process(root: Path, pid: int, argv: tuple[str, ...], *, parent: int = 1, cgroup: str = "0::/user.slice\n") -> Path:
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    (folder / "cmdline").write_text("".join(f"{word}\0" for word in argv))
    (folder / "cgroup").write_text(cgroup)
    (folder / "stat").write_text(f"{pid} (py) thon) S {parent} " + "0 " * 17 + "5000 0 0\n")
    (folder / "environ").write_text("PATH=/bin\0VLLM_API_KEY=secret\0")
    (root / "proc/stat").write_text("cpu 1 2\nbtime 1700000000\n")
    return folder


def test_a_server_outside_containers_is_an_engine_and_what_it_forked_is_none(tmp_path: Path) -> None:
    process(tmp_path, 40, SERVE)
    process(tmp_path, 41, SERVE, parent=40)
    process(tmp_path, 42, SERVE, cgroup=f"0::/system.slice/docker-{IDENTITY}.scope\n")
    process(tmp_path, 43, ("VLLM::EngineCore",), parent=40)
    process(tmp_path, 44, ("bash", "-c", "vllm serve acme/tiny-1b"))
    process(tmp_path, 45, ())
    (engine,) = ProcfsHost(tmp_path).bare_engines()
    assert (engine.name, engine.pid, engine.bare, engine.running) == ("vllm-8011", 40, True, True)
    assert engine.started_at == 1_700_000_000 + 5000 / os.sysconf("SC_CLK_TCK")
    assert engine.environment == ("PATH", "VLLM_API_KEY")
    assert "secret" not in repr(engine)


def test_a_server_in_another_network_namespace_is_not_of_this_machine(tmp_path: Path) -> None:
    for pid, network in ((40, "net:[1]"), (41, "net:[2]")):
        folder = process(tmp_path, pid, (*SERVE[:-1], f"80{pid}")) / "ns"
        folder.mkdir()
        (folder / "net").symlink_to(network)
    (tmp_path / "proc/self").symlink_to("40")
    assert [engine.pid for engine in ProcfsHost(tmp_path).bare_engines()] == [40]


def test_a_machine_without_processes_has_no_engine(tmp_path: Path) -> None:
    assert ProcfsHost(tmp_path).bare_engines() == ()


def test_a_process_that_computes_on_the_gpu_and_listens_may_be_an_engine(tmp_path: Path) -> None:
    put(tmp_path, "dev/nvidia-uvm", "")
    process(tmp_path, 50, ("/opt/ninfer/ninfer", "--model", "q"))
    process(tmp_path, 51, ("worker",), parent=50)
    process(tmp_path, 52, ("python3", "train.py"))
    process(tmp_path, 40, SERVE)
    for pid, links in ((50, ["socket:[900]"]), (51, ["/dev/nvidia-uvm"]), (52, ["/dev/nvidia-uvm"]),
                       (40, ["/dev/nvidia-uvm", "socket:[901]"])):  # fmt: skip
        (tmp_path / f"proc/{pid}/fd").mkdir()
        for number, link in enumerate(links):
            (tmp_path / f"proc/{pid}/fd/{number}").symlink_to(link)
    put(tmp_path, "proc/net/tcp", _HEAD + listener(8080, 900) + listener(8011, 901))
    host = ProcfsHost(tmp_path)
    assert [(each.name, each.pid) for each in host.bare_engines()] == [("ninfer-8080", 50), ("vllm-8011", 40)]
    assert host.lineage(51) == (51, 50)
    (tmp_path / "dev/nvidia-uvm").unlink()
    assert [each.name for each in host.bare_engines()] == ["vllm-8011"]
