"""Where a server listens: within its container, or on the host's network as far as the exposure allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_tui.domain.errors import PresetError, UsageError
from spark_tui.domain.presets import vllm_command as vllm
from spark_tui.domain.presets.container_spec import ALL_INTERFACES, LOOPBACK
from spark_tui.domain.presets.overrides import Overrides, Reach
from spark_tui.domain.presets.preset import Preset, Scalar
from spark_tui.domain.presets.shell_words import is_shell, words_of

HOST_NETWORK: Final = "host"
LOOPBACK_NAMES: Final = (LOOPBACK, "localhost", "::1")


def refuse_shell(argv: tuple[str, ...], preset: Preset, key: str) -> None:
    """Raises UsageError where a setting would have to go into a script."""
    if is_shell(argv):
        raise UsageError(
            f"`{key}` cannot be set: this preset's command is a shell script with no place for it.",
            f"Copy {preset.file} to your preset folder and add the option to its command.",
        )


def with_address(argv: tuple[str, ...], preset: Preset, overrides: Overrides, notes: list[str]) -> tuple[str, ...]:
    """The address that the server listens on: all of the container's, or just what the exposure allows."""
    if not preset.server.host_option:
        return argv  # the plan says it in a variable
    host = vllm.option(words_of(argv), "--host")
    if preset.options.network != HOST_NETWORK:
        if host is None and preset.server.loopback and not preset.server.host_variable:
            return _opened(argv, preset, notes)
        if host not in LOOPBACK_NAMES:
            return argv
        notes.append(f"--host {host} within the container would not be reached: it becomes {ALL_INTERFACES}.")
        return _with_host(argv, ALL_INTERFACES, preset)
    wanted = ALL_INTERFACES if overrides.exposure is Reach.LAN else LOOPBACK
    if host != wanted:
        argv = _with_host(argv, wanted, preset)
    if overrides.port and vllm.option(words_of(argv), "--port") != str(overrides.port):
        refuse_shell(argv, preset, "port")
        argv = vllm.with_option(argv, "port", overrides.port)
    return argv


def _opened(argv: tuple[str, ...], preset: Preset, notes: list[str]) -> tuple[str, ...]:
    """A server that would listen within its container alone, opened; a script is left, and that is said."""
    if is_shell(argv):
        notes.append(
            f"{preset.server.title} listens within its container alone unless its command has --host {{host}}."
        )
        return argv
    return vllm.with_option(argv, "host", ALL_INTERFACES)


def _with_host(argv: tuple[str, ...], host: str, preset: Preset) -> tuple[str, ...]:
    if is_shell(argv):
        raise PresetError(
            f"The server must listen on {host}, and the command is a shell script that says otherwise.",
            f"Write --host {host} in its `command`, or --host {{host}}.",
            file=preset.file,
        )
    return vllm.with_option(argv, "host", host)


def port_of(text: str | None, preset: Preset, values: Mapping[str, Scalar]) -> int:
    """The port that the server listens on. `text` is what the command says, None when it says nothing.

    Raises PresetError for what is none.
    """
    if text is None:
        wanted = values["port"]
        # Where the address goes into a variable, the plan passes the wanted port on.
        return wanted if isinstance(wanted, int) and not preset.server.host_option else preset.server.port
    if text.isascii() and text.isdigit() and 0 < int(text) < 65536:
        return int(text)
    raise PresetError(f"--port {text[:40]} is not a port.", "Correct it in the recipe.", file=preset.file)
