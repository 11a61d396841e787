"""The doctor: readings of a machine, and checks that each make one Finding of them. Absent readings are Missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.errors import SparkError
from spark_tui.base.finding import NOT_READ_YET, Finding, Missing, Reading, Severity, reason_of, value_of
from spark_tui.base.host.detectors import (
    STUCK_MHZ,
    STUCK_SECONDS,
    STUCK_WATTS,
    EngineProcess,
    Link,
    LowPowerState,
    SharedFile,
    StoreState,
    kernel_events,
    leaked,
    watch_power,
)
from spark_tui.base.host.memory import Access, MemInfo
from spark_tui.base.host.vitals import GpuReading, HostIdentity
from spark_tui.base.quantities import GIB, KIB, MIB, human_bytes
from spark_tui.base.text import clean_line, quoted, truncate
from spark_tui.catalog.models.model.store import StoreContents


class TerminalState(Struct, frozen=True):
    """The terminal by its environment and size in cells."""

    term: str = ""
    colours: str = ""
    encoding: str = ""
    width: int = 0
    height: int = 0
    ssh: bool = False
    multiplexer: str = ""
    interactive: bool = True


class DockerState(Struct, frozen=True):
    """Whether Docker answers, or why not. `relogin`: only a new login sees that this user is in the group `docker`."""

    reachable: bool
    version: str = ""
    socket: str = ""
    error_id: str = ""
    error: str = ""
    remedy: str = ""
    relogin: bool = False


class Readings(Struct, frozen=True):
    """Everything the checks look at.

    `earlyoom` is its command line (empty: not running), `toolkit` the path of the NVIDIA container toolkit (empty: not
    installed), `registries` those with a login, `gpu_container` the error of a container with the GPU (empty: it
    started), `token` whether the Hugging Face token has the form of one, `gated` presets with a gated model, `ports`
    the taken ports of presets, each with its owner.
    """

    identity: HostIdentity
    user: str = ""
    root: bool = False
    driver: Reading[str] = NOT_READ_YET
    gpu: Reading[GpuReading] = NOT_READ_YET
    memory: Reading[MemInfo] = NOT_READ_YET
    min_free_bytes: Reading[int] = NOT_READ_YET
    watermark_boost: Reading[int] = NOT_READ_YET
    earlyoom: Reading[str] = NOT_READ_YET
    drop: Reading[Access] = NOT_READ_YET
    shared: Reading[tuple[SharedFile, ...]] = NOT_READ_YET
    orphans: Reading[tuple[EngineProcess, ...]] = NOT_READ_YET
    engines_run: bool = False
    guarded: Reading[bool] = NOT_READ_YET
    """Whether a memory guard runs; read where an engine of ours does."""
    clock_synchronised: Reading[bool] = NOT_READ_YET
    kernel_log: Reading[tuple[str, ...]] = NOT_READ_YET
    docker: DockerState = DockerState(reachable=False)
    toolkit: Reading[str] = NOT_READ_YET
    cdi: Reading[tuple[str, ...]] = NOT_READ_YET
    registries: Reading[tuple[str, ...]] = NOT_READ_YET
    gpu_container: Reading[str] = NOT_READ_YET
    store: Reading[StoreState] = NOT_READ_YET
    caches: Reading[StoreState] = NOT_READ_YET
    token: Reading[bool] = NOT_READ_YET
    gated: tuple[str, ...] = ()
    ports: tuple[tuple[int, str], ...] = ()
    links: Reading[tuple[Link, ...]] = NOT_READ_YET
    default_link: str = ""
    terminal: TerminalState = TerminalState()
    themes: Reading[tuple[SparkError, ...]] = NOT_READ_YET
    """What is wrong with files of the user's own themes."""
    copies: Reading[tuple[Finding, ...]] = NOT_READ_YET
    """Presets that were copied from a registry whose recipe is another one now, or is unknown."""
    places: Reading[StoreContents] = NOT_READ_YET
    """The model store, and other Hub caches of this machine."""


# --- the checks -------------------------------------------------------------------------------------------

_MOST_THEIRS: Final = 4
OLDEST_DRIVER: Final = (580, 95)
"""DGX OS 7.2.3, the oldest that Sparks were seen with."""
MIN_FREE_BYTES: Final = 2 * GIB
"""A larger vm.min_free_kbytes takes so much from MemAvailable that vLLM's start check fails."""
SWAP_USED: Final = 2 * GIB
CACHE_SHARE: Final = 0.25
ORPHAN_BYTES: Final = 64 * MIB
ROOM_FAIL: Final = 5 * GIB
ROOM_WARN: Final = 50 * GIB
"""The models of the guide are 10 to 70 GB each."""
NGC: Final = "nvcr.io"
NARROW, SHORT = 80, 24
OLD_DOCKER: Final = 25
"""Its major version; 28.3 is the first that serves --gpus through CDI."""
SHM: Final = "/dev/shm"  # noqa: S108 - the place itself is looked at


class Group(StrEnum):
    """What a check is about, in display order."""

    MACHINE = "Machine"
    MEMORY = "Memory"
    DOCKER = "Docker"
    STORE = "Models"
    NETWORK = "Network"
    TERMINAL = "Terminal"


class Check(Struct, frozen=True):
    """`needs` names the reading that the rule takes as its second argument; where that is Missing, the check's finding
    is UNKNOWN with the reason. Scripts rely on `id`."""

    id: str
    group: Group
    title: str
    needs: str
    rule: Callable[[Readings, Any], Finding]

    def run(self, seen: Readings) -> Finding:
        """The finding, with this check's id. OK and UNKNOWN need no remedy."""
        reading = getattr(seen, self.needs) if self.needs else None
        if isinstance(reading, Missing):
            found = _unknown(f"{self.title}: not available.", reading.reason)
        else:
            found = self.rule(seen, None if reading is None else getattr(reading, "value", reading))
        return replace(found, id=self.id)


def _found(severity: Severity, summary: str, remedy: str = "", evidence: str = "") -> Finding:
    return Finding("", severity, summary, (evidence,) if evidence else (), remedy)


def _ok(summary: str, evidence: str = "") -> Finding:
    return _found(Severity.OK, summary, "", evidence)


def _unknown(summary: str, evidence: str = "") -> Finding:
    return _found(Severity.UNKNOWN, summary, "", evidence)


_warning, _error = partial(_found, Severity.WARNING), partial(_found, Severity.ERROR)


# --- machine ----------------------------------------------------------------------------------------------


def _machine(seen: Readings, _: None) -> Finding:
    host = seen.identity
    evidence = f"{host.product or 'unknown product'}, {host.architecture or '?'}, kernel {host.kernel or '?'}"
    if host.is_spark:
        return _ok(f"{host.product or 'DGX Spark'}.", evidence)
    return _warning(
        "Not a DGX Spark: sizes, speeds and some checks assume one.",
        "Continue if you know the difference; `--demo` shows a simulated Spark.",
        evidence,
    )


def _driver(seen: Readings, _: None) -> Finding:
    found = value_of(seen.driver)
    if not found:
        why = reason_of(seen.driver) or "no version"
        if seen.identity.is_spark:
            return _error("The NVIDIA driver does not answer.", "Run nvidia-smi; reboot after an update.", why)
        return _unknown("No NVIDIA driver.", why)
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if len(numbers) == 2 and numbers < OLDEST_DRIVER and seen.identity.is_spark:
        return _warning(
            f"Driver {found} is older than DGX OS 7.2.",
            "Update in the DGX dashboard or: sudo apt update && sudo apt full-upgrade",
            found,
        )
    return _ok(f"NVIDIA driver {found}.", found)


def _gpu(seen: Readings, _: None) -> Finding:
    gpu = value_of(seen.gpu)
    if gpu is not None:
        return _ok(f"{gpu.name} answers.", f"driver {gpu.driver}" if gpu.driver else "")
    if not seen.identity.is_spark:
        return _unknown("No GPU found.", reason_of(seen.gpu))
    return _error(
        "The GPU does not answer.",
        "Reboot. If that does not help, leave the power supply unplugged for a minute.",
        reason_of(seen.gpu),
    )


def _power_state(_: Readings, gpu: GpuReading) -> Finding:
    """One reading only raises suspicion: it is judged as if it lasted."""
    state = watch_power(watch_power(LowPowerState(), gpu, 0.0), gpu, STUCK_SECONDS)
    figures = ((gpu.sm_clock_mhz, "MHz"), (gpu.power_watts, "W"), (gpu.utilization_percent, "% busy"))
    evidence = ", ".join(f"{'?' if value is None else f'{value:.0f}'} {unit}" for value, unit in figures)
    if not state.stuck:
        return _ok("Clocks and power fit the load.", evidence)
    return _warning(
        f"The GPU is busy below {STUCK_MHZ} MHz and {STUCK_WATTS:g} W: possibly stuck in its low-power state.",
        "If it lasts: unplug the power supply from the wall and from the Spark for a minute. A reboot does not help.",
        evidence,
    )


def _clock(_: Readings, synchronised: bool) -> Finding:
    """A wrong clock breaks TLS to the Hub and the registries."""
    if synchronised:
        return _ok("The clock is synchronised.")
    return _warning("The clock is not synchronised.", "sudo timedatectl set-ntp true")


def _kernel_log(_: Readings, lines: tuple[str, ...]) -> Finding:
    """What has happened since the start: the gravest kind of event, with its latest line."""
    events = kernel_events(enumerate(lines))
    if not events:
        return _ok("The kernel reports no trouble since the machine started.")
    gravest, *others = events
    more = f" Further kinds of events: {len(others)}, see journalctl -kb." if others else ""
    return _warning(f"Since the machine started: {gravest.summary}{more}", gravest.remedy, *gravest.evidence)


def _orphans(_: Readings, found: tuple[EngineProcess, ...]) -> Finding:
    """Processes outside containers whose server is gone hold memory that stopping a container does not free."""
    large = [process for process in found if process.memory >= ORPHAN_BYTES]
    if not large:
        return _ok("No engine's process is left over.")
    return _warning(
        f"{len(large)} engine process{'es are' if len(large) > 1 else ' is'} left over outside a container and may "
        "hold GPU memory.",
        f"kill {' '.join(str(process.pid) for process in large[:4])}",
        ", ".join(f"{each.name} (pid {each.pid}, {human_bytes(each.memory)})" for each in large[:4]),
    )


# --- memory -----------------------------------------------------------------------------------------------


def _guard(_: Readings, guarded: bool) -> Finding:
    """It is started with the first engine and ends after the last: where one runs without it, it was killed."""
    if guarded:
        return _ok("The memory guard watches the engines.")
    return _warning(
        "An engine runs without the memory guard: the guard was killed, or never started.",
        "Start it: spark-tui guard --install, or open spark-tui, which starts one.",
    )


def _page_cache(seen: Readings, memory: MemInfo) -> Finding:
    evidence = f"cache {human_bytes(memory.cache)}, free {human_bytes(memory.free)} of {human_bytes(memory.total)}"
    if memory.cache <= CACHE_SHARE * memory.total or seen.engines_run or seen.identity.has_gpu is False:
        return _ok("Page cache is fine.", evidence)
    return _warning(
        "Large page cache. CUDA counts it as used, so a launch may fail.",
        "Free it before a launch: spark-tui drop-caches",
        evidence,
    )


def _drop_route(_: Readings, access: Access) -> Finding:
    if access.root or access.sudo or access.unit:
        how = "as root" if access.root else " ".join(("sudo -n", *access.sudo)) if access.sudo else "by a systemd unit"
        return _ok("The page cache can be freed without a password.", how)
    return _warning(
        "Freeing the page cache asks for a password each time.",
        "Once: spark-tui drop-caches --install (shows the rule before writing it)",
    )


def _swap(_: Readings, memory: MemInfo) -> Finding:
    evidence = f"{human_bytes(memory.swap_used)} of {human_bytes(memory.swap_total)}"
    if memory.swap_used <= SWAP_USED:
        return _ok("Swap is almost unused." if memory.swap_total else "No swap.", evidence)
    return _warning(
        "Swap is in use: engines need more memory than the machine has.",
        "Lower gpu_memory_utilization, or stop an engine; then: sudo swapoff -a && sudo swapon -a",
        evidence,
    )


def _min_free(seen: Readings, reserve: int) -> Finding:
    boost = value_of(seen.watermark_boost)
    evidence = f"vm.min_free_kbytes {reserve // KIB:,}" + (f", watermark_boost_factor {boost:,}" if boost else "")
    if reserve <= MIN_FREE_BYTES:
        return _ok("Kernel reserve is normal.", evidence)
    return _warning(
        f"vm.min_free_kbytes reserves {human_bytes(reserve)}; vLLM's start check may fail.",
        "Reset it: sudo sysctl -w vm.min_free_kbytes=90112, and remove it from /etc/sysctl.d",
        evidence,
    )


def _earlyoom(_: Readings, line: str) -> Finding:
    prefer = re.search(r"--prefer[= ](\S+)", line)
    if prefer and "python" in prefer[1]:
        return _warning(
            "earlyoom kills python processes first; your scripts may be hit (our guard is not).",
            "Add to /etc/default/earlyoom: --avoid '(^|/)(spark-tui|sshd|systemd)$'",
            line,
        )
    return _ok("earlyoom runs and does not target python." if line else "earlyoom does not run.", line)


def _shm_leaks(seen: Readings, files: tuple[SharedFile, ...]) -> Finding:
    leak = leaked(files, engines_run=seen.engines_run)
    if not leak.files:
        return _ok("No leaked shared memory.", SHM)
    names = " ".join(quoted(f"{SHM}/{file.name}") for file in leak.files[:3])
    return _warning(
        f"{human_bytes(leak.size)} of leaked shared memory in {len(leak.files)} files.",
        f"Remove them: rm {names}{' ...' if len(leak.files) > 3 else ''}",
        names,
    )


# --- Docker -----------------------------------------------------------------------------------------------


def _docker(seen: Readings, _: None) -> Finding:
    state = seen.docker
    evidence = state.error or state.socket
    if state.reachable:
        major = state.version.partition(".")[0]
        if major.isdigit() and int(major) < OLD_DOCKER:
            return _warning(
                f"Docker {state.version} is old.", "Update: DGX OS 7 has version 28 or later.", state.socket
            )
        return _ok(f"Docker {state.version} answers.", state.socket)
    if state.error_id == "socket_permission_denied" or "permission" in state.error.lower():
        join = f"sudo usermod -aG docker {seen.user or '$USER'}, then log out and in."
        again = "Log out and in: you are in the group docker, but not in this session."
        return _error("No permission to use Docker.", again if state.relogin else join, evidence)
    return _error("Docker does not answer.", state.remedy or "sudo systemctl start docker", evidence)


def _toolkit(seen: Readings, path: str) -> Finding:
    specs = value_of(seen.cdi) or ()
    if path or specs:
        return _ok("NVIDIA container toolkit installed.", ", ".join(filter(None, (path, *specs[:2]))))
    if not seen.identity.is_spark and value_of(seen.gpu) is None:
        return _unknown("No GPU, and no NVIDIA container toolkit.")
    return _error(
        "NVIDIA container toolkit missing: containers cannot use the GPU.",
        "sudo apt install nvidia-container-toolkit, then sudo systemctl restart docker",
    )


def _gpu_container(seen: Readings, _: None) -> Finding:
    if isinstance(seen.gpu_container, Missing):
        return _unknown("Not tested: that starts a container.", seen.gpu_container.reason)
    if error := seen.gpu_container.value:
        return _error("A container with the GPU fails to start.", "After a driver update: reboot.", error)
    return _ok("A container with the GPU starts.")


def _registry(_: Readings, logins: tuple[str, ...]) -> Finding:
    if NGC in logins:
        return _ok("Logged in to NVIDIA's registry.", ", ".join(logins))
    return _unknown("Not logged in to NVIDIA's registry; public images need no login.", f"docker login {NGC}")


# --- models -----------------------------------------------------------------------------------------------


def _chown(seen: Readings, state: StoreState) -> str:
    return f"sudo chown -R {seen.user or '$USER'}: {quoted(state.path)}"


def _store(seen: Readings, state: StoreState) -> Finding:
    if not state.exists:
        return _warning("The model store does not exist.", f"mkdir -p {state.path} (a launch creates it)", state.path)
    if not state.writable:
        return _error("The model store is not writable.", _chown(seen, state), state.path)
    return _ok("The model store is writable.", state.path)


def _foreign(seen: Readings, state: StoreState, *, what: str) -> Finding:
    """Files of root, left by a container, block downloads and deletions."""
    if not state.exists:
        return _unknown(f"No {what}.", state.path)
    if not state.foreign or seen.root:
        return _ok(f"The {what} is yours.", state.path)
    count = "1 file" if state.foreign == 1 else f"{state.foreign} files"
    return _warning(
        f"{count} in the {what} belong to another user (probably root).",
        _chown(seen, state),
        truncate(clean_line(state.foreign_example), 200),
    )


def _caches(seen: Readings, state: StoreState) -> Finding:
    """With cold caches each start takes minutes longer."""
    if not state.exists:
        return _unknown("No compile cache yet. The first start fills it.", state.path)
    if state.writable:
        return _ok("Compile caches are writable.", state.path)
    if state.foreign:
        return _foreign(seen, state, what="compile cache")
    return _error("Compile caches are not writable: every start compiles again.", _chown(seen, state), state.path)


def _room(_: Readings, state: StoreState) -> Finding:
    if state.free is None:
        return _unknown("Free disk space is unknown.", state.path)
    evidence = f"{human_bytes(state.free)} free" + (f" of {human_bytes(state.total)}" if state.total else "")
    remedy = "Remove unused models: spark-tui models list, spark-tui models rm NAME"
    if state.free < ROOM_FAIL:
        return _error("The disk of the model store is full.", remedy, evidence)
    if state.free < ROOM_WARN:
        return _warning("Disk space for one small model at most.", remedy, evidence)
    return _ok("Enough disk space for models.", evidence)


def _token(seen: Readings, _: None) -> Finding:
    gated = f"gated presets: {', '.join(seen.gated[:4])}" if seen.gated else ""
    if isinstance(seen.token, Missing):
        return _warning(
            "No Hugging Face token: gated models cannot be downloaded.",
            "Create one in the Hub's settings, then: hf auth login",
            gated or seen.token.reason,
        )
    if not seen.token.value:
        return _warning("The Hugging Face token does not start with hf_.", "hf auth login", gated)
    return _ok("Hugging Face token found (gated access not tested).", gated)


def _copies(_: Readings, found: tuple[Finding, ...]) -> Finding:
    """The worst, and how many more there are."""
    if not found:
        return _ok("No copied recipe is outdated.")
    first = min(found, key=lambda each: each.severity.rank)
    more = f" {len(found) - 1} more." if len(found) > 1 else ""
    return replace(first, summary=first.summary + more, evidence=tuple(each.subject for each in found[:8]))


def _places(_: Readings, found: StoreContents) -> Finding:
    """What lies twice takes its room twice; what only another user has is downloaded again."""
    mine = [(found.root, found.models), *((each.path, each.models) for each in found.others if each.mine)]
    known = {model.id for _, models in mine for model in models}
    theirs = [(each.path, model.id) for each in found.others if not each.mine for model in each.models]
    lines = [f"{path}: {len(models)}" for path, models in mine]
    lines += [f"only another user's: {id_} in {path}" for path, id_ in theirs if id_ not in known][:_MOST_THEIRS]
    twice = [each.summary for each in found.findings if each.id == "lies_twice"]
    if twice:
        words = "1 model lies" if len(twice) == 1 else f"{len(twice)} models lie"
        return _warning(f"{words} in several places.", "Keep one of each: spark-tui models list", "; ".join(twice))
    return _ok("No model lies twice.", "; ".join(lines))


# --- network and terminal ---------------------------------------------------------------------------------


def _ports(seen: Readings, _: None) -> Finding:
    if not seen.ports:
        return _ok("The ports of the presets are free.")
    taken = ", ".join(f"{port}: {clean_line(owner)}" for port, owner in seen.ports[:4])
    return _warning("A port of a preset is taken.", "Launch with another port, such as 8001.", taken)


def _link(seen: Readings, links: tuple[Link, ...]) -> Finding:
    own = next((each for each in links if each.name == seen.default_link), None)
    if own is None:
        return _unknown("No default route.", ", ".join(each.name for each in links))
    if own.wireless:
        return _warning("Wi-Fi: downloading a 70 GB model takes hours.", "Plug a cable into the 10 GbE port.", own.name)
    return _ok("Wired network.", own.name + (f", {own.speed:,} Mbit/s" if own.speed else ""))


def _terminal(seen: Readings, _: None) -> Finding:
    own = seen.terminal
    if not own.interactive:
        return _unknown("Not run in a terminal.")
    known = (own.colours, own.multiplexer)
    evidence = ", ".join((f"TERM={own.term}", f"{own.width}x{own.height}", own.encoding or "?", *filter(None, known)))
    if own.width < NARROW or own.height < SHORT:
        return _warning(f"The terminal is smaller than {NARROW}x{SHORT}.", "Enlarge it.", evidence)
    if "utf" not in own.encoding.lower():
        return _warning("The locale is not UTF-8; screens use ASCII.", "export LANG=C.UTF-8", evidence)
    if own.ssh and not own.multiplexer:
        return _unknown("SSH without tmux: a lost connection closes the screen. Engines keep running.", evidence)
    return _ok("The terminal supports everything.", evidence)


def _themes(_: Readings, problems: tuple[SparkError, ...]) -> Finding:
    if not problems:
        return _ok("User themes can be read.")
    first, more = problems[0], len(problems) - 1
    return _warning(f"{first.summary}{f' {more} more.' if more else ''}", first.remedy, first.detail)


CHECKS: Final = (
    Check("machine", Group.MACHINE, "Machine", "", _machine),
    Check("driver", Group.MACHINE, "NVIDIA driver", "", _driver),
    Check("gpu", Group.MACHINE, "GPU", "", _gpu),
    Check("power_state", Group.MACHINE, "Clocks and power", "gpu", _power_state),
    Check("clock", Group.MACHINE, "Time", "clock_synchronised", _clock),
    Check("kernel_log", Group.MACHINE, "Kernel log", "kernel_log", _kernel_log),
    Check("orphans", Group.MACHINE, "Orphaned engines", "orphans", _orphans),
    Check("page_cache", Group.MEMORY, "Page cache", "memory", _page_cache),
    Check("guard", Group.MEMORY, "Memory guard", "guarded", _guard),
    Check("drop_route", Group.MEMORY, "Freeing the cache", "drop", _drop_route),
    Check("swap", Group.MEMORY, "Swap", "memory", _swap),
    Check("min_free", Group.MEMORY, "Kernel reserve", "min_free_bytes", _min_free),
    Check("earlyoom", Group.MEMORY, "earlyoom", "earlyoom", _earlyoom),
    Check("shm_leaks", Group.MEMORY, "Shared memory", "shared", _shm_leaks),
    Check("docker", Group.DOCKER, "Docker", "", _docker),
    Check("toolkit", Group.DOCKER, "Container toolkit", "toolkit", _toolkit),
    Check("gpu_container", Group.DOCKER, "GPU in a container", "", _gpu_container),
    Check("registry", Group.DOCKER, "Registry login", "registries", _registry),
    Check("store", Group.STORE, "Model store", "store", _store),
    Check("ownership", Group.STORE, "Ownership", "store", partial(_foreign, what="model store")),
    Check("room", Group.STORE, "Disk space", "store", _room),
    Check("caches", Group.STORE, "Compile caches", "caches", _caches),
    Check("token", Group.STORE, "Hub token", "", _token),
    Check("places", Group.STORE, "Places of models", "places", _places),
    Check("copies", Group.STORE, "Copied recipes", "copies", _copies),
    Check("ports", Group.NETWORK, "Ports", "", _ports),
    Check("link", Group.NETWORK, "Network", "links", _link),
    Check("terminal", Group.TERMINAL, "Terminal", "", _terminal),
    Check("themes", Group.TERMINAL, "Themes", "themes", _themes),
)
"""All checks in display order."""
CHECK_BY_ID: Final = {check.id: check for check in CHECKS}


def examine(seen: Readings) -> tuple[Finding, ...]:
    """The finding of every check, in the order of CHECKS. Never raises."""
    return tuple(check.run(seen) for check in CHECKS)
