"""All checks, in the order in which they are shown, and what they say together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from spark_tui.domain.doctor import machine, services
from spark_tui.domain.doctor.check import Check, Group, Readings, Result, Verdict


class Entry(NamedTuple):
    """A check with its stable id and its title."""

    id: str
    group: Group
    title: str
    check: Check


CHECKS: Final = (
    Entry("machine", Group.MACHINE, "Machine", machine.which_machine),
    Entry("driver", Group.MACHINE, "NVIDIA driver", machine.driver),
    Entry("gpu", Group.MACHINE, "GPU", machine.gpu),
    Entry("power_state", Group.MACHINE, "Clocks and power", machine.power_state),
    Entry("clock", Group.MACHINE, "Time", machine.clock),
    Entry("orphans", Group.MACHINE, "Orphaned engines", machine.orphans),
    Entry("page_cache", Group.MEMORY, "Page cache", machine.page_cache),
    Entry("drop_route", Group.MEMORY, "Freeing the cache", machine.drop_route),
    Entry("swap", Group.MEMORY, "Swap", machine.swap),
    Entry("min_free", Group.MEMORY, "Kernel reserve", machine.min_free),
    Entry("earlyoom", Group.MEMORY, "earlyoom", machine.earlyoom),
    Entry("shm_leaks", Group.MEMORY, "Shared memory", machine.leaks),
    Entry("docker", Group.DOCKER, "Docker", services.docker),
    Entry("toolkit", Group.DOCKER, "Container toolkit", services.toolkit),
    Entry("gpu_container", Group.DOCKER, "GPU in a container", services.gpu_container),
    Entry("registry", Group.DOCKER, "Registry login", services.registry),
    Entry("store", Group.STORE, "Model store", services.store),
    Entry("ownership", Group.STORE, "Ownership", services.ownership),
    Entry("room", Group.STORE, "Disk space", services.room),
    Entry("caches", Group.STORE, "Compile caches", services.caches),
    Entry("token", Group.STORE, "Hub token", services.token),
    Entry("ports", Group.NETWORK, "Ports", services.ports),
    Entry("link", Group.NETWORK, "Network", services.link),
    Entry("terminal", Group.TERMINAL, "Terminal", services.terminal),
)


def examine(seen: Readings) -> tuple[Result, ...]:
    """Every check's outcome. Never raises."""
    return tuple(Result(entry.id, entry.group, entry.title, entry.check(seen)) for entry in CHECKS)


def worst(results: Iterable[Result]) -> Verdict:
    """The gravest verdict; PASS when there is none but SKIP."""
    order = (Verdict.FAIL, Verdict.WARN)
    verdicts = {result.outcome.verdict for result in results}
    return next((verdict for verdict in order if verdict in verdicts), Verdict.PASS)


def summary(results: Iterable[Result]) -> str:
    """`2 fail, 1 warn, 18 pass, 3 skipped`."""
    found = list(results)
    counts = [(verdict, sum(result.outcome.verdict is verdict for result in found)) for verdict in Verdict]
    words = {Verdict.SKIP: "skipped"}
    return ", ".join(f"{count} {words.get(verdict, verdict.value.lower())}" for verdict, count in counts if count)
