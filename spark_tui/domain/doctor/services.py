"""Checks of what serving needs around the machine: Docker, models, network, terminal."""

from __future__ import annotations

from typing import Final

from spark_tui.domain.doctor.check import Outcome, Readings, StoreState, failed, passed, skipped, warned
from spark_tui.domain.quantities import GIB, human_bytes
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
