"""A container as the `docker run` command that a person can read, copy and run by hand.

Rendering loses nothing: the text, split as a shell splits it and parsed again, gives the same spec
(`docker_run_parser`), and the container that it makes is the one that the adapter makes through the Engine API.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets.container_spec import ContainerSpec, Gpus, Mount, PublishedPort, RestartPolicy, Ulimit
from spark_tui.domain.quantities import docker_size

_INDENT = "  "
_CSV_SPECIAL = re.compile('[,"\r\n]')


def canonical(spec: ContainerSpec) -> ContainerSpec:
    """The same container, spelt in the one way that `docker run` can spell it.

    `--entrypoint` takes a single word, so further words of an entrypoint stand before the command: Docker runs
    the two one after the other. A count of GPUs beside named ones has no meaning.
    """
    entrypoint, command = spec.entrypoint, spec.command
    if entrypoint and not entrypoint[0]:
        entrypoint, command = (), (*entrypoint[1:], *command)
    elif entrypoint and len(entrypoint) > 1:
        entrypoint, command = entrypoint[:1], (*entrypoint[1:], *command)
    gpus = Gpus(device_ids=spec.gpus.device_ids) if spec.gpus and spec.gpus.device_ids else spec.gpus
    return replace(spec, entrypoint=entrypoint, command=command, gpus=gpus)


def render_argv(spec: ContainerSpec) -> tuple[str, ...]:
    """The words of `docker run -d ...`. Raises UsageError where a word holds a NUL, which no command can carry."""
    return tuple(word for line in render_lines(spec) for word in line)


def render_lines(spec: ContainerSpec) -> tuple[tuple[str, ...], ...]:
    """The same words, each option with its value by itself. Raises like `render_argv`."""
    return tuple(_lines(canonical(spec)))


def render_text(spec: ContainerSpec) -> str:
    """The same for a POSIX shell: quoted where needed, one option a line, ready to be pasted."""
    lines = [" ".join(shlex.quote(word) for word in line) for line in render_lines(spec)]
    return f" \\\n{_INDENT}".join(lines)


def _lines(spec: ContainerSpec) -> Iterator[tuple[str, ...]]:
    for line in _words(spec):
        if any("\0" in word for word in line):
            raise UsageError(
                f"{line[0]} has a NUL character in its value.", "Remove it: neither a shell nor Docker can take it."
            )
        yield line


def _words(spec: ContainerSpec) -> Iterator[tuple[str, ...]]:
    yield ("docker", "run", "-d")
    if spec.name:
        yield ("--name", spec.name)
    if spec.gpus is not None:
        yield ("--gpus", gpus_value(spec.gpus))
    if spec.network:
        yield ("--network", spec.network)
    for port in spec.ports:
        yield ("-p", port_value(port))
    if spec.ipc:
        yield ("--ipc", spec.ipc)
    if spec.shm_size:
        yield ("--shm-size", docker_size(spec.shm_size))
    for limit in spec.ulimits:
        yield ("--ulimit", ulimit_value(limit))
    if spec.restart != RestartPolicy():
        yield ("--restart", restart_value(spec.restart))
    for mount in spec.mounts:
        yield mount_words(mount)
    for path in spec.env_files:
        yield ("--env-file", path)
    for variable in spec.env:
        yield ("-e", f"{variable.name}={variable.value}")
    for key, value in spec.labels:
        yield ("--label", f"{key}={value}")
    yield from _privileges(spec)
    if spec.entrypoint is not None:
        yield ("--entrypoint", "".join(spec.entrypoint))
    yield ("--", spec.image) if spec.image.startswith("-") else (spec.image,)
    yield from _command_lines(spec.command)


def _privileges(spec: ContainerSpec) -> Iterator[tuple[str, ...]]:
    if spec.user:
        yield ("--user", spec.user)
    if spec.oom_score_adj:
        yield ("--oom-score-adj", str(spec.oom_score_adj))
    for capability in spec.cap_add:
        yield ("--cap-add", capability)
    for device in spec.devices:
        yield ("--device", device)
    for option in spec.security_opt:
        yield ("--security-opt", option)
    if spec.privileged:
        yield ("--privileged",)
    if spec.init:
        yield ("--init",)


def _command_lines(command: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The command with each of its options on a line of its own."""
    line: list[str] = []
    for word in command:
        if line and word.startswith("-"):
            yield tuple(line)
            line = []
        line.append(word)
    if line:
        yield tuple(line)


def gpus_value(gpus: Gpus) -> str:
    """`all`, `2`, `device=0`, `"device=0,1"`: a comma separates options of `--gpus` unless it is quoted."""
    if gpus.device_ids:
        value = f"device={','.join(gpus.device_ids)}"
        return f'"{value}"' if "," in value else value
    return "all" if gpus.count == -1 else str(gpus.count)


def port_value(port: PublishedPort) -> str:
    """`127.0.0.1:8000:8000`, `[::1]:8000:8000/udp`; without a host port Docker picks one."""
    host = f"{port.host_port or ''}:"
    if port.host_ip:
        host = f"[{port.host_ip}]:{host}" if ":" in port.host_ip else f"{port.host_ip}:{host}"
    protocol = "" if port.protocol == "tcp" else f"/{port.protocol}"
    return f"{'' if host == ':' else host}{port.container_port}{protocol}"


def ulimit_value(limit: Ulimit) -> str:
    """`memlock=-1:-1`."""
    return f"{limit.name}={limit.soft}:{limit.hard}"


def restart_value(restart: RestartPolicy) -> str:
    """`unless-stopped`, `on-failure:3`."""
    return f"{restart.name}:{restart.maximum_retries}" if restart.maximum_retries else restart.name


def needs_mount_option(mount: Mount) -> bool:
    """Whether a path has the colon that separates the parts of `-v`, so that `--mount` has to carry it."""
    return ":" in mount.source or ":" in mount.target


def mount_words(mount: Mount) -> tuple[str, str]:
    """`-v source:target:ro`, or `--mount type=bind,...`, whose fields are quoted as in a CSV file."""
    if not needs_mount_option(mount):
        return ("-v", f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}")
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    if mount.read_only:
        fields.append("readonly")
    return ("--mount", ",".join(map(_csv_field, fields)))


def _csv_field(text: str) -> str:
    """A field as Go's CSV reader takes it: in quotes where it has a separator or a quote of its own."""
    return '"' + text.replace('"', '""') + '"' if _CSV_SPECIAL.search(text) else text
