"""Each fault, planted in the readings of a healthy Spark, is found, named and given its remedy."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from spark_tui.base.errors import UsageError
from spark_tui.base.finding import Finding, Missing, Ok, Severity, worst
from spark_tui.base.host.detectors import EngineProcess, Link, SharedFile, StoreState
from spark_tui.base.host.memory import TEE_DROP, Access, MemInfo
from spark_tui.base.host.vitals import GpuReading, HostIdentity
from spark_tui.base.quantities import GIB, MIB
from spark_tui.catalog.models.model.store import Layout, OtherCache, StoreContents, StoredModel
from spark_tui.manage.doctor.model import (
    CHECKS,
    DockerState,
    Readings,
    TerminalState,
    examine,
)
from tests.cases import all_cases

STORE = StoreState("/home/u/vllm", exists=True, writable=True, free=900 * GIB, total=3700 * GIB)
SWAP = 16 * GIB
MEMORY = MemInfo(121 * GIB, 100 * GIB, 110 * GIB, cached=8 * GIB, swap_total=SWAP, swap_free=SWAP)
DOCKER = DockerState(reachable=True, version="29.2.1", socket="/var/run/docker.sock")
HEALTHY = Readings(
    identity=HostIdentity("spark-7f3a", "DGX Spark", "6.14.0-1015-nvidia", "aarch64", 20, is_spark=True),
    user="u",
    themes=Ok(()),
    copies=Ok(()),
    places=Ok(StoreContents("/home/u/vllm")),
    driver=Ok("580.142"),
    gpu=Ok(GpuReading("NVIDIA GB10", 3, 5.1, 41, 208, unified=True, driver="580.142")),
    memory=Ok(MEMORY),
    min_free_bytes=Ok(90 * MIB),
    watermark_boost=Ok(15000),
    earlyoom=Ok(""),
    drop=Ok(Access(sudo=TEE_DROP)),
    shared=Ok(()),
    orphans=Ok(()),
    guarded=Ok(True),
    clock_synchronised=Ok(True),
    kernel_log=Ok(("2026-11-20T03:12:40+01:00 spark kernel: mlx5_core 0000:01:00.0: Link up",)),
    docker=DOCKER,
    toolkit=Ok("/usr/bin/nvidia-ctk"),
    cdi=Ok(()),
    registries=Ok(("nvcr.io",)),
    gpu_container=Ok(""),
    store=Ok(STORE),
    caches=Ok(replace(STORE, path="/home/u/.cache/spark-tui/engines")),
    token=Ok(True),
    links=Ok((Link("enP7s7", wireless=False, speed=10_000),)),
    default_link="enP7s7",
    terminal=TerminalState("xterm-256color", "truecolor", "UTF-8", 120, 36),
)


def finding(seen: Readings, check: str) -> Finding:
    return next(found for found in examine(seen) if found.id == check)


def test_a_healthy_spark_passes_everything() -> None:
    assert [(each.id, each.summary) for each in examine(HEALTHY) if each.severity is not Severity.OK] == []


W, F = Severity.WARNING, Severity.ERROR
DOWN = DockerState(reachable=False, error="Docker is not running")
FORBIDDEN = DockerState(reachable=False, error_id="docker_socket_permission", error="permission denied")
RELOGIN = DockerState(reachable=False, error="permission denied", relogin=True)
TWICE = StoreContents("/home/u/vllm", findings=(Finding("lies_twice", W, "org/m lies in 2 places"),))
FOREIGN = replace(STORE, foreign=3, foreign_example="/home/u/vllm/hub")

FAULTS: list[tuple[str, dict[str, Any], Severity, str]] = [
    ("machine", {"identity": HostIdentity("pc", "", "6.1", "x86_64")}, W, "--demo"),
    ("driver", {"driver": Missing("the NVIDIA kernel module is not loaded")}, F, "nvidia-smi"),
    ("driver", {"driver": Ok("570.86.10")}, W, "full-upgrade"),
    ("guard", {"guarded": Ok(False)}, W, "spark-tui guard --install"),
    ("gpu", {"gpu": Missing("no answer within 1 s")}, F, "unplugged"),
    ("power_state", {"gpu": Ok(GpuReading("NVIDIA GB10", 96, 17.0, 50, 650))}, W, "unplug"),
    ("clock", {"clock_synchronised": Ok(False)}, W, "timedatectl"),
    ("kernel_log", {"kernel_log": Ok(("spark kernel: NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.",))},
     W, "unplug it"),
    ("orphans", {"orphans": Ok((EngineProcess(4242, "VLLM::EngineCor", 8 * GIB),))}, W, "kill 4242"),
    ("page_cache", {"memory": Ok(replace(MEMORY, free=20 * GIB, cached=80 * GIB))}, W, "drop-caches"),
    ("drop_route", {"drop": Ok(Access(has_sudo=True))}, W, "--install"),
    ("swap", {"memory": Ok(replace(MEMORY, swap_free=4 * GIB))}, W, "swapoff"),
    ("min_free", {"min_free_bytes": Ok(6 * GIB)}, W, "vm.min_free_kbytes=90112"),
    ("earlyoom", {"earlyoom": Ok("earlyoom -m 2 --prefer (vllm|ray|python3)")}, W, "--avoid"),
    ("docker", {"docker": DOWN}, F, "systemctl start docker"),
    ("docker", {"docker": FORBIDDEN}, F, "usermod -aG docker u"),
    ("docker", {"docker": RELOGIN}, F, "og out and in"),
    ("docker", {"docker": replace(DOCKER, version="20.10.5")}, W, "Update"),
    ("toolkit", {"toolkit": Ok("")}, F, "nvidia-container-toolkit"),
    ("gpu_container", {"gpu_container": Ok("could not select device driver")}, F, "reboot"),
    ("store", {"store": Ok(replace(STORE, exists=False))}, W, "mkdir -p /home/u/vllm"),
    ("store", {"store": Ok(replace(STORE, writable=False))}, F, "chown -R u"),
    ("ownership", {"store": Ok(FOREIGN)}, W, "chown -R u"),
    ("room", {"store": Ok(replace(STORE, free=GIB))}, F, "models rm"),
    ("room", {"store": Ok(replace(STORE, free=30 * GIB))}, W, "models rm"),
    ("caches", {"caches": Ok(replace(STORE, writable=False))}, F, "chown -R u"),
    ("token", {"token": Missing("neither in the environment nor in a token file")}, W, "hf auth login"),
    ("token", {"token": Ok(False)}, W, "hf auth login"),
    ("copies", {"copies": Ok((Finding("copy_outdated", W, "It changed.", (), "import it"),))}, W, "import it"),
    ("places", {"places": Ok(TWICE)}, W, "models list"),
    ("ports", {"ports": ((8000, "nginx (88)"),)}, W, "another port"),
    ("link", {"links": Ok((Link("wlP9s9", wireless=True),)), "default_link": "wlP9s9"}, W, "cable"),
    ("themes", {"themes": Ok((UsageError("mine.toml, line 2: no such colour.", "Write #rrggbb."),))}, W, "#rrggbb"),
    ("terminal", {"terminal": TerminalState("linux", "", "ASCII", 120, 36)}, W, "LANG"),
    ("terminal", {"terminal": TerminalState("xterm", "", "UTF-8", 70, 20)}, W, "Enlarge"),
]  # fmt: skip


@all_cases(("check", "planted", "severity", "remedy"), FAULTS)
def test_a_fault_is_named_with_its_remedy(check: str, planted: dict[str, Any], severity: Severity, remedy: str) -> None:
    found = finding(replace(HEALTHY, **planted), check)
    assert found.severity is severity
    assert remedy in found.remedy
    assert found.summary.endswith(".")


def test_what_only_another_user_has_is_named() -> None:
    models = tuple(StoredModel(id_, Layout.CACHE, f"/x/{id_}") for id_ in ("org/mine", "org/theirs"))
    others = (OtherCache("/home/u/.cache/hub", models[:1], 1), OtherCache("/home/v/hub", models, 2, mine=False))
    found = finding(replace(HEALTHY, places=Ok(StoreContents("/home/u/vllm", others=others))), "places")
    assert found.severity is Severity.OK
    assert "/home/u/.cache/hub: 1" in found.evidence[0]
    assert "only another user's: org/theirs in /home/v/hub" in found.evidence[0]
    assert "org/mine" not in found.evidence[0]


def test_only_the_check_that_a_fault_concerns_changes() -> None:
    sick = examine(replace(HEALTHY, clock_synchronised=Ok(False)))
    assert [each.id for each in sick if each.severity is not Severity.OK] == ["clock"]


def test_leaked_shared_memory_is_found_and_named() -> None:
    leak = SharedFile("psm_1a2b3c4d", 2 * GIB, 7200.0, open=False)
    found = finding(replace(HEALTHY, shared=Ok((leak,))), "shm_leaks")
    assert found.severity is Severity.WARNING
    assert "/dev/shm/psm_1a2b3c4d" in found.remedy


def test_what_could_not_be_read_is_skipped_with_its_reason_and_never_passed() -> None:
    blind = Readings(identity=HEALTHY.identity, docker=DOCKER)
    for result in examine(blind):
        if result.id in ("machine", "docker", "ports"):
            continue
        assert result.severity is not Severity.OK, result.id
        assert result.evidence or result.severity is not Severity.UNKNOWN or result.id == "terminal"


def test_a_machine_without_a_gpu_is_no_failure_of_a_machine_that_never_had_one() -> None:
    plain = replace(
        HEALTHY, identity=HostIdentity("pc", "", "6.1", "x86_64"), gpu=Missing("none"), driver=Missing("none"),
        toolkit=Ok(""),
    )  # fmt: skip
    assert worst(examine(plain)) is Severity.WARNING


def test_without_a_gpu_no_page_cache_is_to_be_freed() -> None:
    full = replace(HEALTHY, memory=Ok(replace(MEMORY, free=20 * GIB, cached=80 * GIB)))
    assert finding(full, "page_cache").severity is Severity.WARNING
    plain = replace(full, identity=replace(HEALTHY.identity, has_gpu=False))
    assert finding(plain, "page_cache").severity is Severity.OK


def test_ids_are_unique() -> None:
    assert len({entry.id for entry in CHECKS}) == len(CHECKS)


def test_what_a_terminal_says_of_itself_is_in_its_evidence() -> None:
    seen = replace(HEALTHY, terminal=TerminalState("xterm", "truecolor", "UTF-8", 120, 36, multiplexer="tmux"))
    assert finding(seen, "terminal").evidence == ("TERM=xterm, 120x36, UTF-8, truecolor, tmux",)
