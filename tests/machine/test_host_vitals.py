"""Vital signs of a GB10 under an injected root, of one that shows nothing, and of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.finding import Missing, Ok, value_of
from spark_tui.base.host import vitals as parse
from spark_tui.base.host.vitals import GpuProcess, LinkRate, Temperature, parse_cgroup_memory, per_second
from spark_tui.base.quantities import GIB, KIB, MIB
from spark_tui.machine.vitals import HostVitals
from tests.gb10_fixtures import GB10

ID = "ab" * 32
PAGE = os.sysconf("SC_PAGE_SIZE")
A725 = (0, 1, 2, 3, 4, 10, 11, 12, 13, 14)


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def fixture(name: str) -> str:
    """A captured file without its source line."""
    return (GB10 / name).read_text(encoding="utf-8").partition("\n")[2]


def stat(busy: dict[int, int], idle: int = 1000) -> str:
    lines = [f"cpu{cpu} {busy.get(cpu, 0)} 0 0 {idle} 5 0 0 0 0 0" for cpu in range(20)]
    return "cpu 1 2 3 4 5 6 7 8 9 0\n" + "\n".join(lines) + "\nintr 12 3\n"


def gb10(root: Path) -> None:
    """A Spark as it was captured: chips and names of corpus files, counters of a quiet moment."""
    put(root, "proc/cpuinfo", fixture("cpuinfo_gb10.txt"))
    put(root, "proc/stat", stat({}))
    for number, line in enumerate(line for line in fixture("sensors.txt").splitlines() if line[:1] not in ("#", "")):
        chip, label, value = line.split("#")[0].strip().split("|")
        folder = f"sys/class/hwmon/hwmon{number}"
        put(root, f"{folder}/name", chip)
        put(root, f"{folder}/temp1_input", value)
        if label:
            put(root, f"{folder}/temp1_label", label)
    put(root, "sys/class/thermal/thermal_zone0/trip_point_0_type", "critical")
    put(root, "sys/class/thermal/thermal_zone0/trip_point_0_temp", "104800")
    put(root, "proc/diskstats", "   7 0 loop0 1 0 8 0 0 0 0 0 0 0 0\n" + disk("nvme0n1") + disk("nvme0n1p2"))
    links = [line.split() for line in fixture("net_ip_br_link.txt").splitlines() if "<" in line]
    put(root, "proc/net/dev", HEAD + "".join(link(words[0]) for words in links))
    for words in links:
        put(root, f"sys/class/net/{words[0]}/operstate", words[1].lower())
        put(root, f"sys/class/net/{words[0]}/speed", "10000" if words[1] == "UP" else "-1")
    put(root, "proc/vmstat", "pgfault 9\npgmajfault 100\npswpin 0\npswpout 0\noom_kill 1\ncompact_stall 7\n")


def disk(name: str, sectors: int = 0, busy_ms: int = 0) -> str:
    return f" 259 0 {name} 10 0 {2048 + sectors} 5 20 0 4096 9 0 {50 + busy_ms} 14\n"


def link(name: str, received: int = 1000, sent: int = 500) -> str:
    return f"{name}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n"


HEAD = "Inter-|\n face |\n"


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_a_gb10_has_two_kinds_of_processors_the_strong_ones_first(tmp_path: Path) -> None:
    gb10(tmp_path)
    probe = HostVitals(tmp_path)
    probe.look()
    loads = value_of(probe.look().clusters)
    assert loads is not None
    assert [(each.name, each.cpus) for each in loads] == [("X925", 10), ("A725", 10)]


def test_the_kind_is_read_from_sysfs_where_it_is_there(tmp_path: Path) -> None:
    put(tmp_path, "proc/stat", stat({}))
    for cpu in range(20):
        midr = 0x410FD871 if cpu in A725 else 0x410FD851
        put(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/regs/identification/midr_el1", f"{midr:#018x}\n")
    probe = HostVitals(tmp_path)
    probe.look()
    assert [each.name for each in value_of(probe.look().clusters) or ()] == ["X925", "A725"]


def test_unknown_parts_are_reported_apart_by_number_and_else_by_capacity() -> None:
    assert [c.name for c in parse.clusters_of([0, 1], {0: 0xD4F, 1: 0xD85})] == ["X925", "part 0xd4f"]
    assert [c.name for c in parse.clusters_of([0, 1], {}, {0: 1024, 1: 400})] == ["big", "little"]
    assert [c.name for c in parse.clusters_of([0, 1], {0: 0xD85})] == ["CPU"], "half known is not known"
    assert parse.clusters_of([]) == ()


def test_rates_between_two_looks(tmp_path: Path) -> None:
    gb10(tmp_path)
    clock = Seconds()
    probe = HostVitals(tmp_path, monotonic=clock)
    first = probe.look()
    assert isinstance(first.clusters, Missing)
    assert "two readings" in first.clusters.reason
    assert isinstance(first.temperatures, Ok), "one look is enough for these"
    clock.at += 2.0
    put(tmp_path, "proc/stat", stat({0: 100, 5: 200, 6: 200}, idle=1100))
    put(tmp_path, "proc/diskstats", disk("loop0", 99) + disk("nvme0n1", 4_000_000, 1000) + disk("nvme0n1p2", 99))
    put(
        tmp_path,
        "proc/net/dev",
        HEAD + link("enP7s7", 3000, 700) + link("wlP9s9") + link("docker0", 9, 9) + link("veth1a2b", 9, 9),
    )
    put(tmp_path, "proc/vmstat", "pgmajfault 300\npswpin 0\npswpout 50\noom_kill 1\n")
    found = probe.look()
    loads = {each.name: each.percent for each in value_of(found.clusters) or ()}
    assert loads["X925"] == pytest.approx(100 * 400 / 1400)
    assert loads["A725"] == pytest.approx(100 * 100 / 1100)
    [rate] = value_of(found.disks) or ()
    assert (rate.name, rate.read, rate.busy_percent) == ("nvme0n1", 4_000_000 * 512 / 2, 50.0)
    assert value_of(found.links) == (LinkRate("enP7s7", 1000.0, 100.0, True, 10_000), LinkRate("wlP9s9", 0, 0, False))
    faults = value_of(found.faults)
    assert faults is not None
    assert (faults.major, faults.swapped_out, faults.oom_kills) == (100.0, 25.0, 1)


def test_the_load_of_a_machine_with_a_processor_offline_is_of_the_right_kind(tmp_path: Path) -> None:
    gb10(tmp_path)
    put(tmp_path, "sys/devices/system/cpu/online", "1-19\n")
    clock = Seconds()
    probe = HostVitals(tmp_path, monotonic=clock)
    put(tmp_path, "proc/stat", "".join(stat({}).splitlines(keepends=True)[:1] + stat({}).splitlines(keepends=True)[2:]))
    probe.look()
    clock.at += 1.0
    busy = stat({5: 200}, idle=1100).splitlines(keepends=True)
    put(tmp_path, "proc/stat", "".join(busy[:1] + busy[2:]))
    loads = {each.name: (each.cpus, each.percent > 0) for each in value_of(probe.look().clusters) or ()}
    assert loads["X925"] == (10, True)
    assert loads["A725"][0] == 9


def test_temperatures_are_the_hottest_of_each_kind_and_a_card_that_is_down_has_none(tmp_path: Path) -> None:
    gb10(tmp_path)
    assert value_of(HostVitals(tmp_path).look().temperatures) == (
        Temperature("SoC", 46.3, 104.8),
        Temperature("NVMe", 40.85),
        Temperature("ConnectX", 50.0),
    )


def test_without_hwmon_the_thermal_zones_count(tmp_path: Path) -> None:
    for number, value in enumerate((46300, 72000, 51000)):
        put(tmp_path, f"sys/class/thermal/thermal_zone{number}/type", "acpitz")
        put(tmp_path, f"sys/class/thermal/thermal_zone{number}/temp", str(value))
    assert value_of(HostVitals(tmp_path).look().temperatures) == (Temperature("SoC", 72.0),)


def test_what_a_machine_does_not_show_is_missing_with_its_reason(tmp_path: Path) -> None:
    put(tmp_path, "proc/diskstats", "")
    probe = HostVitals(tmp_path)
    probe.look()
    found = probe.look()
    for part in (found.clusters, found.temperatures, found.disks, found.links, found.faults):
        assert isinstance(part, Missing)
        assert part.reason
        assert "two readings" not in part.reason


def test_counters_that_fall_count_as_standing_still() -> None:
    assert per_second({"sda": (500.0, 10.0)}, {"sda": (100.0, 30.0), "new": (1.0, 1.0)}, 2.0) == {"sda": (0.0, 10.0)}


@given(st.text(max_size=400))
def test_no_text_breaks_a_parser(text: str) -> None:
    parse.parse_faults(text)
    parse.parse_parts(text)
    parse_cgroup_memory(text, text, text, text)


def test_this_machine_has_processors_and_faults() -> None:
    probe = HostVitals()
    probe.look()
    found = probe.look()
    assert isinstance(found.clusters, Ok)
    assert isinstance(found.faults, Ok)


# --- processes ------------------------------------------------------------------------------------------


def process(root: Path, pid: int, name: str, rss: int, pss: int | None = None, cgroup: str = "0::/user.slice") -> None:
    put(root, f"proc/{pid}/statm", f"{rss // PAGE * 3} {rss // PAGE} 10 1 0 5 0\n")
    put(root, f"proc/{pid}/stat", f"{pid} ({name}) S 1 " + "0 " * 48)
    put(root, f"proc/{pid}/cmdline", "")
    put(root, f"proc/{pid}/cgroup", f"{cgroup}\n")
    if pss is not None:
        put(root, f"proc/{pid}/smaps_rollup", f"00-ff ---p 0 [rollup]\nPss: {pss // KIB} kB\nSwap: 4 kB\n")


def test_processes_are_ranked_by_what_they_hold_of_the_pool_cuda_included(tmp_path: Path) -> None:
    process(tmp_path, 5190, "VLLM::EngineCor", 6 * GIB, 5 * GIB, f"0::/system.slice/docker-{ID}.scope")
    process(tmp_path, 12, "\x1b[31mgnome-shell\x07", 800 * MIB, 500 * MIB)
    process(tmp_path, 13, "other-user", 900 * MIB)
    process(tmp_path, 14, "small", 1 * MIB, 1 * MIB)
    process(tmp_path, 2, "kthreadd", 0)
    gpu = (GpuProcess(5190, 70 * GIB), GpuProcess(12, 18 * MIB, compute=False))
    found = value_of(HostVitals(tmp_path).processes(gpu, 10))
    assert found is not None
    assert [(each.pid, each.name) for each in found] == [
        (5190, "VLLM::EngineCor"),
        (13, "other-user"),
        (12, "gnome-shell"),
    ]
    engine, other, _ = found
    assert (engine.pss, engine.gpu, engine.swap, engine.container) == (5 * GIB, 70 * GIB, 4 * KIB, ID)
    assert (other.pss, other.rss) == (None, 900 * MIB), "what may not be read is not known, and not zero"


def test_what_the_kernel_charges_to_a_container(tmp_path: Path) -> None:
    path = f"system.slice/docker-{ID}.scope"
    process(tmp_path, 77, "vllm", GIB, cgroup=f"0::/{path}")
    folder = f"sys/fs/cgroup/{path}"
    put(tmp_path, f"{folder}/memory.current", f"{8 * GIB}\n")
    put(tmp_path, f"{folder}/memory.stat", f"anon {5 * GIB}\nfile {3 * GIB}\nshmem {MIB}\n")
    put(tmp_path, f"{folder}/memory.swap.current", "0\n")
    put(tmp_path, f"{folder}/memory.max", "max\n")
    found = value_of(HostVitals(tmp_path).container_memory(77))
    assert found is not None
    assert (found.current, found.anon, found.file, found.swap, found.limit) == (8 * GIB, 5 * GIB, 3 * GIB, 0, None)


@pytest.mark.parametrize("cgroup", ["12:memory:/docker/x", "0::/gone"])
def test_a_container_that_cannot_be_looked_into_says_why(tmp_path: Path, cgroup: str) -> None:
    process(tmp_path, 77, "vllm", GIB, cgroup=cgroup)
    assert isinstance(HostVitals(tmp_path).container_memory(77), Missing)
    assert isinstance(HostVitals(tmp_path).container_memory(78), Missing)


def test_this_process_is_seen_with_its_own_share() -> None:
    ballast = bytearray(64 * MIB)
    found = value_of(HostVitals().processes((GpuProcess(os.getpid(), None),), 400))
    assert found is not None
    own = next(each for each in found if each.pid == os.getpid())
    assert own.rss >= len(ballast)


def test_rdma_counts_as_traffic_of_its_interface(tmp_path: Path) -> None:
    """The kernel's counters leave it out; the card counts words of four bytes."""
    name, card = "enp1s0f0np0", "sys/class/net/enp1s0f0np0/device/infiniband/rocep1s0f0/ports/1/counters"
    clock = Seconds()
    probe = HostVitals(tmp_path, monotonic=clock)
    for words in (1000, 251000):
        put(tmp_path, "proc/net/dev", HEAD + link(name))
        put(tmp_path, f"{card}/port_rcv_data", f"{words}\n")
        put(tmp_path, f"{card}/port_xmit_data", f"{words // 2}\n")
        clock.at += 1.0
        found = probe.look()
    (rate,) = value_of(found.links) or ()
    assert (rate.received, rate.sent) == (1_000_000.0, 500_000.0)
