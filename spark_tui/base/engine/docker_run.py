"""`docker run` commands: a container as the text that a person can read, copy and run, and such a text as a container.

Rendering loses nothing: the text, split as a shell splits it and read again, gives the same spec, and the container
that it makes is the one that the adapter makes through the Engine API.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from spark_tui.base.engine.container import (
    LABEL_SPEC_HASH,
    ContainerSpec,
    EnvVar,
    Gpus,
    Mount,
    PublishedPort,
    RestartPolicy,
    Ulimit,
)
from spark_tui.base.errors import UsageError
from spark_tui.base.quantities import docker_size, parse_bytes
from spark_tui.base.secret import is_secret_name
from spark_tui.base.shell import shell_construct, split_words

_PORT = re.compile(r"(?:(?:\[(?P<ip6>[^\]]*)\]|(?P<ip>[^:\[\]]*)):)?(?:(?P<host>\d{0,5}):)?(?P<container>\d{1,5})")
_CSV_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^,]*))(,|\Z)')
_CSV_SPECIAL = re.compile('[,"\r\n]')
_PIECE = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\\r?\n|\\.|(?<!\S)~(?=[/\s]|$)""", re.DOTALL)
_CONTINUATION = re.compile(r"\\\r?\n")
MAX_PORT = 65_535
_PROTOCOLS: Final = ("tcp", "udp", "sctp")
_DEVICES = re.compile(r"device=([A-Za-z0-9-]+(?:,[A-Za-z0-9-]+)*)")
_ULIMIT = re.compile(r"([a-z]+)=(-?[0-9]{1,19})(?::(-?[0-9]{1,19}))?")
_RESTART = re.compile(r"(no|always|unless-stopped|on-failure)(?:(?<=on-failure):([0-9]{1,9}))?")


# --- values of options, read: ValueError for one that the option cannot have, UsageError with its own remedy ------


def _env(value: str) -> EnvVar:
    name, equals, text = value.partition("=")
    if not name:
        raise UsageError(f"-e {value!r} has no name.", "Write: -e NAME=VALUE")
    if not equals and is_secret_name(name):
        return EnvVar(name, f"${name}")  # only its name is given, as is good practice
    if not equals:
        raise UsageError(
            f"-e {name} takes its value from your shell, which is not read here.",
            f"Write -e {name}=VALUE, or --env-file PATH for a key.",
        )
    return EnvVar(name, text)


def _volume(value: str) -> Mount:
    source, *others = value.split(":")
    # z and Z are for SELinux, which a Spark does not have; podman's commands carry them.
    modes = set(others[1].split(",")) - {"z", "Z"} if others[1:] else set[str]()
    if not 1 <= len(others) <= 2 or len(modes) > 1 or modes - {"ro", "rw"}:
        raise ValueError(value)
    return _bind(source, others[0], f"-v {value}", read_only=modes == {"ro"})


def _mount(value: str) -> Mount:
    given: dict[str, str] = {}
    for quoted, plain, separator in _CSV_FIELD.findall(value):
        key, equals, text = (quoted.replace('""', '"') or plain).partition("=")
        key = {"src": "source", "dst": "target", "destination": "target", "ro": "readonly"}.get(key, key)
        given[key] = text if equals else "true"
        if not separator:
            break
    read_only = given.pop("readonly", "false") in ("true", "1")
    kind, source, target = given.pop("type", ""), given.pop("source", ""), given.pop("target", "")
    if kind != "bind" or given:
        raise ValueError(value)
    return _bind(source, target, f"--mount {value}", read_only=read_only)


def _bind(source: str, target: str, written: str, *, read_only: bool) -> Mount:
    if not target.startswith("/"):
        raise UsageError(f"{written}: the path in the container is not absolute.", "It has to begin with a slash.")
    return Mount(_absolute(source, written), target, read_only)


def _absolute(path: str, written: str) -> str:
    if path.startswith("/"):
        return path
    if path and "/" not in path:
        raise UsageError(f"{written}: {path} is a named volume.", "Mount a folder instead: -v /host/path:/there")
    raise UsageError(f"{written}: {path or 'nothing'} is not an absolute path.", "Write the whole path.")


def _port(value: str) -> PublishedPort:
    numbers, _, protocol = value.partition("/")
    match = _PORT.fullmatch(numbers)
    protocol = protocol.lower() or "tcp"
    if match is None or protocol not in _PROTOCOLS:
        raise ValueError(value)
    ip, host, container = match["ip6"] or match["ip"] or "", match["host"], int(match["container"])
    if host is None and ip.isdigit():  # `8000:8000`: the first number is the port, not an address
        ip, host = "", ip
    port = int(host or 0)
    if not 1 <= container <= MAX_PORT or port > MAX_PORT:
        raise UsageError(f"-p {value}: no such port.", f"Ports go from 1 to {MAX_PORT}.")
    return PublishedPort(container, port, ip, protocol)


def read_gpus(text: str) -> Gpus:
    """`all`, `2`, `device=0,1`, as for `--gpus`. Raises ValueError."""
    text = text.strip("\"'")
    if text == "all":
        return Gpus()
    if re.fullmatch("[0-9]{1,4}|-1", text):
        return Gpus(int(text))
    return Gpus(device_ids=tuple(_matched(_DEVICES, text)[1].split(",")))


def read_ulimit(text: str) -> Ulimit:
    """`nofile=1024`, `nofile=1024:2048`, `memlock=-1`. Raises ValueError."""
    name, soft, hard = _matched(_ULIMIT, text).groups()
    return Ulimit(name, int(soft), int(hard or soft))


def read_restart(text: str) -> RestartPolicy:
    """`no`, `always`, `unless-stopped`, `on-failure`, `on-failure:3`. Raises ValueError."""
    name, retries = _matched(_RESTART, text).groups()
    return RestartPolicy(name, int(retries or 0))


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return match


def _oom_score_adj(value: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,4}", value) or abs(int(value)) > 1000:
        raise ValueError(value)
    return int(value)


# --- and written ------------------------------------------------------------------------------------------


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


def volume_value(mount: Mount) -> str:
    """`/host:/container:ro`."""
    return f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"


def needs_mount_option(mount: Mount) -> bool:
    """Whether a path has the colon that separates the parts of `-v`, so that `--mount` has to carry it."""
    return ":" in mount.source or ":" in mount.target


def _mount_words(mount: Mount) -> tuple[str, str]:
    """`-v source:target:ro`, or `--mount type=bind,...` with its fields quoted as Go's CSV reader takes them."""
    if not needs_mount_option(mount):
        return "-v", volume_value(mount)
    given = ["type=bind", f"source={mount.source}", f"target={mount.target}", *(["readonly"] * mount.read_only)]
    quoted = ('"' + text.replace('"', '""') + '"' if _CSV_SPECIAL.search(text) else text for text in given)
    return "--mount", ",".join(quoted)


# --- the options ------------------------------------------------------------------------------------------


class RunOption(Struct, frozen=True):
    """An option of `docker run` and the field of ContainerSpec that it sets. Its first name is the one that is written.

    `read` raises ValueError for a bad value. With `many` every occurrence adds a value, else the last one counts.
    """

    field: str
    names: tuple[str, ...]
    read: Callable[[str], Any] = str
    write: Callable[[Any], str] = str
    many: bool = False


_OPTIONS: Final = (
    RunOption("name", ("name",)),
    RunOption("gpus", ("gpus",), read_gpus, gpus_value),
    RunOption("network", ("network", "net")),
    RunOption("ports", ("p", "publish"), _port, port_value, many=True),
    RunOption("ipc", ("ipc",)),
    RunOption("shm_size", ("shm-size",), parse_bytes, docker_size),
    RunOption("ulimits", ("ulimit",), read_ulimit, ulimit_value, many=True),
    RunOption("restart", ("restart",), read_restart, restart_value),
    RunOption("mounts", ("v", "volume"), _volume, volume_value, many=True),
    RunOption("env_files", ("env-file",), lambda value: _absolute(value, "--env-file"), many=True),
    RunOption("env", ("e", "env"), _env, lambda variable: f"{variable.name}={variable.value}", many=True),
    RunOption("labels", ("label", "l"), lambda value: tuple(value.partition("=")[::2]), "=".join, many=True),
    RunOption("user", ("user", "u")),
    RunOption("oom_score_adj", ("oom-score-adj",), _oom_score_adj),
    RunOption("cap_add", ("cap-add",), many=True),
    RunOption("devices", ("device",), many=True),
    RunOption("security_opt", ("security-opt",), many=True),
)
_ENTRYPOINT: Final = RunOption("entrypoint", ("entrypoint",), lambda value: (value,) if value else (), "".join)
_BY_NAME: Final = {name: option for option in (*_OPTIONS, _ENTRYPOINT) for name in option.names} | {
    "mount": RunOption("mounts", ("mount",), _mount, many=True)
}
_BAD_VALUE: Final = {
    "gpus": ("is not understood", "Write --gpus all, --gpus 1, or --gpus device=0."),
    "p": ("is not a published port", "Write -p 127.0.0.1:8000:8000, one port each (ranges are not read)."),
    "shm-size": ("is not a size", "Write for example --shm-size 10g."),
    "ulimit": ("is not understood", "Write for example --ulimit memlock=-1."),
    "restart": ("is not a restart policy", "Docker knows no, always, unless-stopped, on-failure[:N]."),
    "v": ("is not a bind mount", "Write -v /host/path:/container/path[:ro] (--mount for paths with a colon)."),
    "mount": ("is not a plain bind mount", "Write --mount type=bind,source=/host,target=/there[,readonly]"),
    "oom-score-adj": ("is not possible", "It goes from -1000 to 1000."),
}
"""What is wrong with a value that the option of this first name cannot read, and the remedy."""
_SWITCHES: Final = {"d": "detach", "detach": "detach", "privileged": "privileged", "init": "init"}

_MEMORY: Final = "Remove it: it does not bound what the GPU takes from a Spark's memory."
_REFUSED: Final = {"m": _MEMORY, "memory": _MEMORY}
_KEEPS_LOG: Final = "--rm is left out: an ended container is kept here, because its log says why it ended."
_NO_TERMINAL: Final = (
    "A terminal (-it) is left out: a server needs none, and without one its log keeps stdout and stderr."
)
_LEFT_OUT: Final = {
    "rm": _KEEPS_LOG,
    "replace": "--replace is left out: a launch asks.",
    **dict.fromkeys(("i", "t", "interactive", "tty"), _NO_TERMINAL),
}
"""Switches that a server does without, and why."""
_UNHEARD: Final = re.compile(r"log-(?:driver|opt)|health-[a-z-]+|stop-(?:signal|timeout)|network-alias|annotation")
"""Options with a value that a single server does without."""


def _without(name: str, value: str) -> str:
    """Why an option is left out. Raises UsageError for a value that is not possible."""
    if _UNHEARD.fullmatch(name):
        return f"--{name} is left out: a single server does without it."
    if name == "runtime":
        # facts: a stock DGX OS lists no runtime of that name, and the daemon refuses it.
        if value != "nvidia":
            raise UsageError(f"--runtime {value} is not supported here.", "Remove it.")
        return "--runtime nvidia is --gpus all here: that asks Docker for the GPU on every Spark."
    if name == "pull":
        return f"--pull {value} is left out: a missing image is pulled, a present one is used."
    if not value.startswith("linux/arm64"):
        raise UsageError(
            f"--platform {value} is another machine's.", "Remove it, and name an image that is built for arm64."
        )
    return f"--platform {value} is left out: that is what a Spark is."


# --- from a spec ------------------------------------------------------------------------------------------


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


def render_text(spec: ContainerSpec) -> str:
    """The same for a POSIX shell: quoted where needed, one option a line, ready to be pasted."""
    return " \\\n  ".join(shlex.join(line) for line in render_lines(spec))


def render_lines(spec: ContainerSpec) -> tuple[tuple[str, ...], ...]:
    """The same words, each option with its value by itself. Raises like `render_argv`."""
    lines = tuple(_lines(canonical(spec)))
    for line in lines:
        if any("\0" in word for word in line):
            raise UsageError(
                f"{line[0]} has a NUL character in its value.", "Remove it: neither a shell nor Docker can take it."
            )
    return lines


_EMPTY: Final = ContainerSpec(name="", image="")


def option_values(spec: ContainerSpec) -> Iterator[tuple[RunOption, Any]]:
    """Every option with a value that a spec sets, in a command's order; each of several by itself."""
    for option in _OPTIONS:
        value = getattr(spec, option.field)
        if value != getattr(_EMPTY, option.field):
            yield from ((option, each) for each in (value if option.many else (value,)))


def _lines(spec: ContainerSpec) -> Iterator[tuple[str, ...]]:
    yield ("docker", "run", "-d")
    for option, value in option_values(spec):
        yield _mount_words(value) if option.field == "mounts" else (_dashed(option.names[0]), option.write(value))
    for switch in ("privileged", "init"):
        if getattr(spec, switch):
            yield (f"--{switch}",)
    if spec.entrypoint is not None:
        yield ("--entrypoint", _ENTRYPOINT.write(spec.entrypoint))
    yield ("--", spec.image) if spec.image.startswith("-") else (spec.image,)
    line: list[str] = []
    for word in spec.command:
        if line and word.startswith("-"):
            yield tuple(line)
            line = []
        line.append(word)
    if line:
        yield tuple(line)


def spec_hash(spec: ContainerSpec) -> str:
    """16 hex digits that depend on the settings alone.

    Left out: the label that carries the fingerprint itself, the order of labels, and fields at their defaults, so
    that a field which a later version adds does not change the fingerprint of what runs already.
    """
    spec = canonical(spec)
    given = {name: value for name in spec.__struct_fields__ if (value := getattr(spec, name)) != getattr(_EMPTY, name)}
    given["labels"] = sorted(pair for pair in spec.labels if pair[0] != LABEL_SPEC_HASH)
    text = json.dumps(given, sort_keys=True, default=asdict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# --- to a spec --------------------------------------------------------------------------------------------


def split_text(text: str, *, home: str = "") -> tuple[str, ...]:
    """The words of a command text, as a POSIX shell without variables sees them; lines joined at their backslashes.

    `home` is what `~/` stands for; without it such a path is refused.
    Raises UsageError where a shell would do more than split: variables, pipes, several commands, an open quote.
    """

    def joined(match: re.Match[str]) -> str:
        piece = match.group()
        if piece == "~" and home:
            return shlex.quote(home)
        if piece[0] == '"':
            return _CONTINUATION.sub("", piece)
        return "" if _CONTINUATION.fullmatch(piece) else piece

    command = _PIECE.sub(joined, text).strip()
    construct = shell_construct(command)
    if construct:
        raise UsageError(
            f"The command uses the shell: {construct}.",
            "Write values out, as one `docker run` command without variables, comments or further commands.",
        )
    try:
        return split_words(command)
    except ValueError as error:
        raise UsageError("The command has a quote that is never closed.", "Close it.", detail=str(error)) from error


def read_argv(argv: Sequence[str]) -> tuple[ContainerSpec, tuple[str, ...]]:
    """What `docker run ...` makes, and what it does without and why; `sudo`, `$`, `docker container run` and `create`
    are understood as well.

    Raises UsageError for what is no such command, for options that a spec cannot hold, and for bad values.
    """
    words = list(argv)
    while words and words[0] in ("sudo", "$"):
        del words[0]
    if words[1:2] == ["container"]:
        del words[1]
    if len(words) < 2 or words[0].rpartition("/")[2] != "docker" or words[1] not in ("run", "create"):
        raise UsageError("This is not a docker run command.", "It has to begin with: docker run")
    found: dict[str, Any] = {}
    left_out: list[str] = []
    del words[:2]
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        for name, attached in _options_of(words.pop(0)):
            if name in _LEFT_OUT:
                left_out.append(_LEFT_OUT[name])
            elif name in _SWITCHES:
                if attached is not None and attached.lower() not in ("true", "false", "1", "0"):
                    raise UsageError(
                        f"--{_SWITCHES[name]} is a switch, not {attached!r}.", f"Write --{_SWITCHES[name]} alone."
                    )
                found[_SWITCHES[name]] = attached is None or attached.lower() in ("true", "1")
            else:
                _read_option(name, attached, words, found, left_out)
    if words[:1] == ["--"]:
        del words[0]
    if not words:
        raise UsageError("The command names no image.", "The image comes after the options: docker run -d ... IMAGE")
    found.pop("detach", None)
    found = {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}
    spec = ContainerSpec(**{"name": "", **found}, image=words[0], command=tuple(words[1:]))
    return spec, tuple(dict.fromkeys(left_out))


def _read_option(name: str, value: str | None, words: list[str], found: dict[str, Any], left_out: list[str]) -> None:
    """Reads an option with a value: its own, or the next word."""
    option = _BY_NAME.get(name)
    if option is None and name not in ("runtime", "pull", "platform") and not _UNHEARD.fullmatch(name):
        remedy = _REFUSED.get(name, "Remove it: a preset has no place for it.")
        raise UsageError(f"{_dashed(name)} is not supported here.", remedy)
    if value is None:
        if not words:
            raise UsageError(f"{_dashed(name)} has no value.", f"Write: {_dashed(name)} VALUE")
        value = words.pop(0)
    if option is None:
        left_out.append(_without(name, value))
        if name == "runtime":
            found.setdefault("gpus", Gpus())
        return
    try:
        read = option.read(value)
    except ValueError:
        wrong, remedy = _BAD_VALUE[option.names[0]]
        raise UsageError(f"{_dashed(option.names[0])} {value} {wrong}.", remedy) from None
    if option.many:
        found.setdefault(option.field, []).append(read)
    else:
        found[option.field] = read


def _options_of(word: str) -> Iterator[tuple[str, str | None]]:
    """`--name=value`, `--name`, `-p8000:8000`, `-e=A=B` and clusters such as `-dit` as names with attached values."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        yield name, value if equals else None
        return
    letters = word[1:]
    for index, letter in enumerate(letters):
        rest = letters[index + 1 :]
        if letter not in _SWITCHES and letter not in _LEFT_OUT:
            yield letter, rest.removeprefix("=") if rest else None
            return
        if rest.startswith("="):
            yield letter, rest[1:]
            return
        yield letter, None


def _dashed(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name}"
