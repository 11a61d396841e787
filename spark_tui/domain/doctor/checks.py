"""Checks of what serving needs around the machine: Docker, models, network, terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from spark_tui.domain.doctor.check import (
    Check,
    Group,
    Outcome,
    Readings,
    Result,
    StoreState,
    Verdict,
    failed,
    passed,
    skipped,
    warned,
)
from spark_tui.domain.host.detectors import STUCK_MHZ, STUCK_WATTS, leaked, watch_power
from spark_tui.domain.host.detectors import LowPowerState as _LowPower
from spark_tui.domain.quantities import GIB, MIB, human_bytes
from spark_tui.domain.reading import Missing, reason_of, value_of
from spark_tui.domain.text import clean_line, truncate

ROOM_FAIL: Final = 5 * GIB
ROOM_WARN: Final = 50 * GIB
"""The models of the guide are 10 to 70 GB each."""
NGC: Final = "nvcr.io"
NARROW, SHORT = 80, 24
OLD_DOCKER: Final = 25
"""Its major version; 28.3 is the first that serves --gpus through CDI."""


# --- Docker -----------------------------------------------------------------------------------------------


def docker(seen: Readings) -> Outcome:
    """The daemon answers, and this user may talk to it."""
    state = seen.docker
    if state.reachable:
        major = state.version.partition(".")[0]
        if major.isdigit() and int(major) < OLD_DOCKER:
            return warned(
                f"Docker {state.version} is old.", "DGX OS 7 brings version 28 or later: update.", state.socket
            )
        return passed(f"Docker {state.version} answers.", state.socket)
    if state.error_id == "socket_permission_denied" or "permission" in state.error.lower():
        again = " You are in the group already: log out and in." if state.relogin else ""
        return failed(
            "You may not talk to Docker.",
            again.strip() or f"sudo usermod -aG docker {seen.user or '$USER'}, then log out and in.",
            state.error or state.socket,
        )
    return failed("Docker does not answer.", state.remedy or "sudo systemctl start docker", state.error or state.socket)


def toolkit(seen: Readings) -> Outcome:
    """Containers can get the GPU: the toolkit, or CDI specifications."""
    path, specs = value_of(seen.toolkit), value_of(seen.cdi) or ()
    if path is None:
        return skipped("Not looked at.", reason_of(seen.toolkit))
    if path or specs:
        return passed("The NVIDIA container toolkit is installed.", ", ".join(filter(None, (path, *specs[:2]))))
    if not seen.identity.is_spark and value_of(seen.gpu) is None:
        return skipped("No GPU, and no NVIDIA container toolkit.")
    return failed(
        "The NVIDIA container toolkit is missing: no container can use the GPU.",
        "sudo apt install nvidia-container-toolkit, then sudo systemctl restart docker",
    )


def gpu_container(seen: Readings) -> Outcome:
    """A real container with the GPU; only when asked for."""
    match seen.gpu_container:
        case Missing(reason):
            return skipped("Not tried: spark-tui doctor --gpu-container starts one.", reason)
        case found if found.value:
            return failed(
                "A container with the GPU cannot be started.",
                "See the evidence; after a driver update a reboot is needed.",
                found.value,
            )
        case _:
            return passed("A container with the GPU starts.")


def registry(seen: Readings) -> Outcome:
    """Some images of NVIDIA's registry want a login."""
    logins = value_of(seen.registries)
    if logins is None:
        return skipped("Docker's settings cannot be read.", reason_of(seen.registries))
    if NGC in logins:
        return passed("There is a login for NVIDIA's registry.", ", ".join(logins))
    return skipped(
        "No login for NVIDIA's registry; its public images need none.", f"docker login {NGC} when a pull is refused"
    )


# --- models -----------------------------------------------------------------------------------------------


def store(seen: Readings) -> Outcome:
    """The store exists and can be written to."""
    state = value_of(seen.store)
    if state is None:
        return skipped("Not looked at.", reason_of(seen.store))
    if not state.exists:
        return warned(
            "The model store does not exist yet.", f"mkdir -p {state.path} (a launch makes it too)", state.path
        )
    if not state.writable:
        return failed(
            "The model store cannot be written to.", f"sudo chown -R {seen.user or '$USER'}: {state.path}", state.path
        )
    return passed("The model store can be written to.", state.path)


def ownership(seen: Readings) -> Outcome:
    """Files of root, left by a container, block downloads and deletions."""
    return _ownership(seen, value_of(seen.store), "model store", reason_of(seen.store))


def caches(seen: Readings) -> Outcome:
    """The compile caches can be written to: with cold ones each start takes minutes longer."""
    state = value_of(seen.caches)
    if state is None:
        return skipped("Not looked at.", reason_of(seen.caches))
    if not state.exists:
        return skipped("No compile cache yet: the first start compiles, and fills it.", state.path)
    if not state.writable:
        return (
            _ownership(seen, state, "compile caches", "")
            if state.foreign
            else failed(
                "The compile caches cannot be written to: every start compiles anew.",
                f"sudo chown -R {seen.user or '$USER'}: {state.path}",
                state.path,
            )
        )
    return passed("The compile caches are kept.", state.path)


def _ownership(seen: Readings, state: StoreState | None, what: str, why: str) -> Outcome:
    if state is None:
        return skipped("Not looked at.", why)
    if not state.exists:
        return skipped(f"There is no {what} yet.", state.path)
    if state.foreign and not seen.root:
        return warned(
            f"{state.foreign} entries of the {what} belong to somebody else, root most likely.",
            f"sudo chown -R {seen.user or '$USER'}: {state.path}",
            truncate(clean_line(state.foreign_example), 200),
        )
    return passed(f"The {what} is yours.", state.path)


def room(seen: Readings) -> Outcome:
    """Models are large."""
    state = value_of(seen.store)
    if state is None or state.free is None:
        return skipped("Free space is not known.", reason_of(seen.store))
    words = f"{human_bytes(state.free)} free" + (f" of {human_bytes(state.total)}" if state.total else "")
    remedy = "Remove models that you do not use: spark-tui models list, spark-tui models rm NAME"
    if state.free < ROOM_FAIL:
        return failed("The model store's disk is full.", remedy, words)
    if state.free < ROOM_WARN:
        return warned("There is room for one small model at most.", remedy, words)
    return passed("There is room for models.", words)


def token(seen: Readings) -> Outcome:
    """A token is needed for gated models, and makes downloads faster."""
    gated = f"Gated here: {', '.join(seen.gated[:4])}" if seen.gated else ""
    match seen.token:
        case Missing(reason):
            return warned(
                "There is no Hugging Face token: gated models cannot be fetched.",
                "Make one on the Hub's settings page, then: hf auth login",
                gated or reason,
            )
        case found if not found.value:
            return warned("The Hugging Face token does not look like one: they begin with hf_.", "hf auth login", gated)
        case _:
            return passed("A Hugging Face token is there. Whether it opens a gated model, the Hub alone knows.", gated)


# --- network and terminal ---------------------------------------------------------------------------------


def ports(seen: Readings) -> Outcome:
    """The ports that presets want are free."""
    if not seen.ports:
        return passed("The presets' ports are free.")
    words = ", ".join(f"{port}: {clean_line(owner)}" for port, owner in seen.ports[:4])
    return warned("A port that presets want is taken.", "Launch with another one: --port 8001", words)


def link(seen: Readings) -> Outcome:
    """Wi-Fi where a cable could be makes large downloads slow."""
    links = value_of(seen.links)
    if links is None:
        return skipped("Network interfaces cannot be read.", reason_of(seen.links))
    own = next((each for each in links if each.name == seen.default_link), None)
    if own is None:
        return skipped("There is no default route.", ", ".join(each.name for each in links))
    speed = f", {own.speed:,} Mbit/s" if own.speed else ""
    if own.wireless:
        return warned(
            "The way out is Wi-Fi: a model of 70 GB takes hours.", "Plug a cable into the 10 GbE port.", own.name
        )
    return passed("The way out is a cable.", f"{own.name}{speed}")


def terminal(seen: Readings) -> Outcome:
    """The terminal can show the screens."""
    own = seen.terminal
    if not own.interactive:
        return skipped("Not run in a terminal.")
    known = (own.colours, own.multiplexer)
    words = ", ".join((f"TERM={own.term}", f"{own.width}x{own.height}", own.encoding or "?", *filter(None, known)))
    if own.width < NARROW or own.height < SHORT:
        return warned(f"The terminal is smaller than {NARROW}x{SHORT}.", "Enlarge it.", words)
    if "utf" not in own.encoding.lower():
        return warned("The locale is not UTF-8: the screens fall back to ASCII.", "export LANG=C.UTF-8", words)
    if own.ssh and not own.multiplexer:
        return skipped("Over SSH without tmux: a lost connection ends the screen, never an engine.", words)
    return passed("The terminal can show everything.", words)


OLDEST_DRIVER: Final = (580, 95)
"""DGX OS 7.2.3, the oldest that Sparks were seen with."""
MIN_FREE_BYTES: Final = 2 * GIB
"""A larger vm.min_free_kbytes takes so much from MemAvailable that vLLM's start check fails."""
SWAP_USED: Final = 2 * GIB
CACHE_SHARE: Final = 0.25
SHM: Final = "/dev/shm"  # noqa: S108 - the place itself is looked at


def which_machine(seen: Readings) -> Outcome:
    """A Spark or not, and which."""
    box = seen.identity
    words = f"{box.product or 'unknown product'}, {box.architecture or '?'}, kernel {box.kernel or '?'}"
    if box.is_spark:
        return passed(f"This is a {box.product or 'DGX Spark'}.", words)
    return warned(
        "This machine is not a DGX Spark: sizes, speeds and some checks are made for one.",
        "Go on if you know the difference; `--demo` shows a simulated Spark.",
        words,
    )


def driver(seen: Readings) -> Outcome:
    """The NVIDIA driver is there, and not older than any that a Spark shipped with."""
    found = value_of(seen.driver)
    if not found:
        why = reason_of(seen.driver) or "no version"
        if seen.identity.is_spark:
            return failed("The NVIDIA driver does not answer.", "Run nvidia-smi; reboot after an update.", why)
        return skipped("There is no NVIDIA driver here.", why)
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if len(numbers) == 2 and numbers < OLDEST_DRIVER and seen.identity.is_spark:
        return warned(
            f"The driver {found} is older than any that DGX OS 7.2 ships.",
            "Update by the DGX dashboard or: sudo apt update && sudo apt full-upgrade",
            found,
        )
    return passed(f"NVIDIA driver {found}.", found)


def gpu(seen: Readings) -> Outcome:
    """NVML answers."""
    reading = value_of(seen.gpu)
    if reading is None:
        why = reason_of(seen.gpu)
        if not seen.identity.is_spark:
            return skipped("No GPU can be read here.", why)
        return failed(
            "The GPU cannot be read.",
            "A wedged driver answers after a reboot, or after the power supply was unplugged for a minute.",
            why,
        )
    return passed(f"{reading.name} answers.", f"driver {reading.driver}" if reading.driver else "")


def power_state(seen: Readings) -> Outcome:
    """The GPU is not stuck at its lowest clocks. One reading only raises suspicion."""
    reading = value_of(seen.gpu)
    if reading is None:
        return skipped("Clocks cannot be read.", reason_of(seen.gpu))
    state = watch_power(watch_power(_LowPower(), reading, 0.0), reading, 60.0)
    words = f"{_or(reading.sm_clock_mhz, 'MHz')}, {_or(reading.power_watts, 'W')}, " + _or(
        reading.utilization_percent, "% busy"
    )
    if state.stuck:
        return warned(
            f"The GPU works hard below {STUCK_MHZ} MHz and {STUCK_WATTS} W: it may be in its stuck power state.",
            "If it stays so: unplug the power supply from the wall and from the Spark for a minute. A reboot does "
            "not help.",
            words,
        )
    return passed("Clocks and power fit the load.", words)


def _or(value: float | None, unit: str) -> str:
    return f"? {unit}" if value is None else f"{value:.0f} {unit}"


def page_cache(seen: Readings) -> Outcome:
    """CUDA counts cached pages as used: much of it makes a start fail."""
    memory = value_of(seen.memory)
    if memory is None:
        return skipped("Memory cannot be read.", reason_of(seen.memory))
    words = f"cache {human_bytes(memory.cache)}, free {human_bytes(memory.free)} of {human_bytes(memory.total)}"
    if memory.cache > CACHE_SHARE * memory.total and not seen.engines_run:
        return warned(
            "Much of the pool is page cache, which CUDA counts as used.",
            "Before a launch, free it: spark-tui drop-caches",
            words,
        )
    return passed("The page cache is no hindrance.", words)


def swap(seen: Readings) -> Outcome:
    """Swap in use slows everything on a unified pool."""
    memory = value_of(seen.memory)
    if memory is None:
        return skipped("Memory cannot be read.", reason_of(seen.memory))
    used = memory.swap_total - memory.swap_free
    words = f"{human_bytes(used)} of {human_bytes(memory.swap_total)}"
    if used > SWAP_USED:
        return warned(
            "Much swap is in use: an engine has taken more than the box has.",
            "Lower gpu_memory_utilization, or stop an engine; then: sudo swapoff -a && sudo swapon -a",
            words,
        )
    return passed("Swap is all but unused." if memory.swap_total else "There is no swap.", words)


def min_free(seen: Readings) -> Outcome:
    """`vm.min_free_kbytes` and the watermark boost leave MemAvailable alone."""
    value, boost = value_of(seen.min_free_bytes), value_of(seen.watermark_boost)
    if value is None:
        return skipped("vm.min_free_kbytes cannot be read.", reason_of(seen.min_free_bytes))
    words = f"vm.min_free_kbytes {value // 1024:,}" + (f", watermark_boost_factor {boost:,}" if boost else "")
    if value > MIN_FREE_BYTES:
        return warned(
            f"vm.min_free_kbytes keeps {human_bytes(value)} away from every engine, and vLLM's start check may fail.",
            "Set it back: sudo sysctl -w vm.min_free_kbytes=90112, and remove it from /etc/sysctl.d",
            words,
        )
    return passed("The kernel keeps no unusual reserve.", words)


def drop_route(seen: Readings) -> Outcome:
    """The page cache can be freed without a password."""
    access = value_of(seen.drop)
    if access is None:
        return skipped("Not looked at.", reason_of(seen.drop))
    if access.root or access.sudo or access.unit:
        how = "as root" if access.root else " ".join(("sudo -n", *access.sudo)) if access.sudo else "by a systemd unit"
        return passed("The page cache can be freed with one key.", how)
    return warned(
        "Freeing the page cache would ask for a password each time.",
        "Once: spark-tui drop-caches --install (it shows what it writes first)",
    )


def earlyoom(seen: Readings) -> Outcome:
    """An earlyoom that prefers python would end this program first."""
    line = value_of(seen.earlyoom)
    if line is None:
        return skipped("Not looked at.", reason_of(seen.earlyoom))
    if not line:
        return passed("No earlyoom runs.")
    prefer = re.search(r"--prefer[= ](\S+)", line)
    if prefer and "python" in prefer[1]:
        return warned(
            "earlyoom ends processes named python first. This program's guard is named otherwise; your own scripts "
            "are not.",
            "Add to /etc/default/earlyoom: --avoid '(^|/)(spark-tui|sshd|systemd)$'",
            line,
        )
    return passed("earlyoom runs, and does not aim at this program.", line)


def leaks(seen: Readings) -> Outcome:
    """Files in /dev/shm of engines that are gone are memory that nothing gives back."""
    files = value_of(seen.shared)
    if files is None:
        return skipped(f"{SHM} cannot be read.", reason_of(seen.shared))
    leak = leaked(files, engines_run=seen.engines_run)
    if not leak.files:
        return passed("No dead engine has left shared memory behind.", SHM)
    names = ", ".join(f"{SHM}/{file.name}" for file in leak.files[:3])
    return warned(
        f"{len(leak.files)} files of dead engines hold {human_bytes(leak.size)} of memory.",
        f"Remove them: rm {names}{' ...' if len(leak.files) > 3 else ''}",
        names,
    )


def orphans(seen: Readings) -> Outcome:
    """Engine processes outside containers hold memory, and no container's end frees it."""
    found = value_of(seen.orphans)
    if found is None:
        return skipped("Processes cannot be read.", reason_of(seen.orphans))
    large = [process for process in found if process.memory >= 64 * MIB]
    if not large:
        return passed("No engine runs outside a container.")
    names = ", ".join(f"{process.name} (pid {process.pid}, {human_bytes(process.memory)})" for process in large[:4])
    return warned(
        f"{len(large)} engine process{'es run' if len(large) > 1 else ' runs'} outside any container and may hold "
        "GPU memory.",
        f"If it is a leftover: kill {' '.join(str(process.pid) for process in large[:4])}",
        names,
    )


def clock(seen: Readings) -> Outcome:
    """A wrong clock breaks TLS to the Hub and the registries."""
    synchronised = value_of(seen.clock_synchronised)
    if synchronised is None:
        return skipped("Not known.", reason_of(seen.clock_synchronised))
    if not synchronised:
        return warned("The clock is not synchronised.", "sudo timedatectl set-ntp true")
    return passed("The clock is synchronised.")


class Entry(NamedTuple):
    """A check with its stable id and its title."""

    id: str
    group: Group
    title: str
    check: Check


CHECKS: Final = (
    Entry("machine", Group.MACHINE, "Machine", which_machine),
    Entry("driver", Group.MACHINE, "NVIDIA driver", driver),
    Entry("gpu", Group.MACHINE, "GPU", gpu),
    Entry("power_state", Group.MACHINE, "Clocks and power", power_state),
    Entry("clock", Group.MACHINE, "Time", clock),
    Entry("orphans", Group.MACHINE, "Orphaned engines", orphans),
    Entry("page_cache", Group.MEMORY, "Page cache", page_cache),
    Entry("drop_route", Group.MEMORY, "Freeing the cache", drop_route),
    Entry("swap", Group.MEMORY, "Swap", swap),
    Entry("min_free", Group.MEMORY, "Kernel reserve", min_free),
    Entry("earlyoom", Group.MEMORY, "earlyoom", earlyoom),
    Entry("shm_leaks", Group.MEMORY, "Shared memory", leaks),
    Entry("docker", Group.DOCKER, "Docker", docker),
    Entry("toolkit", Group.DOCKER, "Container toolkit", toolkit),
    Entry("gpu_container", Group.DOCKER, "GPU in a container", gpu_container),
    Entry("registry", Group.DOCKER, "Registry login", registry),
    Entry("store", Group.STORE, "Model store", store),
    Entry("ownership", Group.STORE, "Ownership", ownership),
    Entry("room", Group.STORE, "Disk space", room),
    Entry("caches", Group.STORE, "Compile caches", caches),
    Entry("token", Group.STORE, "Hub token", token),
    Entry("ports", Group.NETWORK, "Ports", ports),
    Entry("link", Group.NETWORK, "Network", link),
    Entry("terminal", Group.TERMINAL, "Terminal", terminal),
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
