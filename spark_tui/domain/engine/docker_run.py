"""A container as the `docker run` command that a person can read, copy and run by hand.

Rendering loses nothing: the text, split as a shell splits it and parsed again, gives the same spec
(`docker_run_parser`), and the container that it makes is the one that the adapter makes through the Engine API.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Final

from spark_tui.domain.engine.container import (
    LABEL_SPEC_HASH,
    ContainerSpec,
    EnvVar,
    Gpus,
    Mount,
    PublishedPort,
    RestartPolicy,
    Ulimit,
)
from spark_tui.domain.errors import UsageError
from spark_tui.domain.quantities import docker_size, parse_bytes
from spark_tui.domain.secret import is_secret_name
from spark_tui.domain.shell import shell_construct, split_words

_PORT = re.compile(r"(?:(?:\[(?P<ip6>[^\]]*)\]|(?P<ip>[^:\[\]]*)):)?(?:(?P<host>\d{0,5}):)?(?P<container>\d{1,5})")
_CSV_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^,]*))(,|\Z)')
MAX_PORT = 65_535
RESTART_POLICIES: Final = ("no", "always", "unless-stopped", "on-failure")
PROTOCOLS: Final = ("tcp", "udp", "sctp")


@dataclass
class Draft:
    """What has been read so far. A later value of a single option wins, as it does for Docker."""

    one: dict[str, str] = field(default_factory=dict)
    switches: dict[str, bool] = field(default_factory=dict)
    env: list[EnvVar] = field(default_factory=list)
    labels: list[tuple[str, str]] = field(default_factory=list)
    mounts: list[Mount] = field(default_factory=list)
    ports: list[PublishedPort] = field(default_factory=list)
    ulimits: list[Ulimit] = field(default_factory=list)
    words: dict[str, list[str]] = field(default_factory=dict)
    gpus: Gpus | None = None
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    shm_size: int = 0
    oom_score_adj: int = 0
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, why: str) -> None:
        """Notes what has no place in a spec and needs none."""
        if why not in self.left_out:
            self.left_out.append(why)

    def switch(self, name: str, value: str | None) -> None:
        """`--NAME` or `--NAME=true`. Raises UsageError for another value."""
        if value is not None and value.lower() not in ("true", "false", "1", "0"):
            raise UsageError(f"--{name} is a switch, not {value!r}.", f"Write --{name} alone.")
        self.switches[name] = value is None or value.lower() in ("true", "1")

    def every(self, name: str) -> tuple[str, ...]:
        """All values of an option that may be given several times."""
        return tuple(self.words.get(name, ()))

    def spec(self, image: str, command: tuple[str, ...]) -> ContainerSpec:
        """The container that these options describe."""
        entrypoint = self.one.get("entrypoint")
        return ContainerSpec(
            name=self.one.get("name", ""),
            image=image,
            command=command,
            entrypoint=None if entrypoint is None else (entrypoint,) if entrypoint else (),
            env=tuple(self.env),
            env_files=self.every("env_files"),
            mounts=tuple(self.mounts),
            ports=tuple(self.ports),
            gpus=self.gpus,
            ipc=self.one.get("ipc", ""),
            shm_size=self.shm_size,
            network=self.one.get("network", ""),
            user=self.one.get("user", ""),
            ulimits=tuple(self.ulimits),
            restart=self.restart,
            labels=tuple(self.labels),
            oom_score_adj=self.oom_score_adj,
            cap_add=self.every("cap_add"),
            devices=self.every("devices"),
            security_opt=self.every("security_opt"),
            privileged=self.switches.get("privileged", False),
            init=self.switches.get("init", False),
        )


def _set(name: str, draft: Draft, value: str) -> None:
    draft.one[name] = value


def _append(name: str, draft: Draft, value: str) -> None:
    draft.words.setdefault(name, []).append(value)


def _env_file(draft: Draft, value: str) -> None:
    _append("env_files", draft, _absolute(value, "--env-file"))


def _env(draft: Draft, value: str) -> None:
    name, equals, text = value.partition("=")
    if not name:
        raise UsageError(f"-e {value!r} has no name.", "Write: -e NAME=VALUE")
    if not equals and is_secret_name(name):
        equals, text = "=", f"${name}"  # only its name is given, as is good practice
    if not equals:
        raise UsageError(
            f"-e {name} takes its value from your shell, which is not read here.",
            f"Write -e {name}=VALUE, or --env-file PATH for a key.",
        )
    draft.env.append(EnvVar(name, text))


def _label(draft: Draft, value: str) -> None:
    key, _, text = value.partition("=")
    draft.labels.append((key, text))


def _volume(draft: Draft, value: str) -> None:
    source, *others = value.split(":")
    if not 1 <= len(others) <= 2 or (others[1:] and others[1] not in ("ro", "rw")):
        raise UsageError(
            f"-v {value} is not a bind mount.",
            "Write -v /host/path:/container/path or -v /host/path:/container/path:ro (--mount for paths with a colon).",
        )
    read_only = others[1:] == ["ro"]
    draft.mounts.append(_bind(source, others[0], f"-v {value}", read_only=read_only))


def _mount(draft: Draft, value: str) -> None:
    fields: dict[str, str] = {}
    for word in _csv_fields(value):
        key, equals, text = word.partition("=")
        fields[{"src": "source", "dst": "target", "destination": "target", "ro": "readonly"}.get(key, key)] = (
            text if equals else "true"
        )
    read_only = fields.pop("readonly", "false") in ("true", "1")
    kind, source, target = fields.pop("type", ""), fields.pop("source", ""), fields.pop("target", "")
    if kind != "bind" or fields:
        raise UsageError(
            f"--mount {value} is not a plain bind mount.",
            "Write --mount type=bind,source=/host,target=/there[,readonly]",
        )
    draft.mounts.append(_bind(source, target, f"--mount {value}", read_only=read_only))


def _csv_fields(row: str) -> list[str]:
    """The fields of one CSV row; a quote that opens nothing stands for itself."""
    fields = []
    for quoted, plain, separator in _CSV_FIELD.findall(row):
        fields.append(quoted.replace('""', '"') or plain)
        if not separator:
            break
    return fields


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


def _publish(draft: Draft, value: str) -> None:
    numbers, _, protocol = value.partition("/")
    match = _PORT.fullmatch(numbers)
    protocol = protocol.lower() or "tcp"
    if match is None or protocol not in PROTOCOLS:
        raise UsageError(
            f"-p {value} is not a published port.", "Write -p 127.0.0.1:8000:8000, one port each (ranges are not read)."
        )
    ip, host, container = match["ip6"] or match["ip"] or "", match["host"], int(match["container"])
    if match["host"] is None and ip.isdigit():  # `8000:8000`: what stands first is the port, not an address
        ip, host = "", ip
    port = int(host or 0)
    if not 1 <= container <= MAX_PORT or port > MAX_PORT:
        raise UsageError(f"-p {value}: no such port.", f"Ports go from 1 to {MAX_PORT}.")
    draft.ports.append(PublishedPort(container, port, ip, protocol))


def _gpus(draft: Draft, value: str) -> None:
    text = value.strip('"')
    kind, equals, ids = text.partition("=")
    if text == "all":
        draft.gpus = Gpus()
    elif re.fullmatch(r"\d{1,4}|-1", text):
        draft.gpus = Gpus(int(text))
    elif equals and kind == "device" and ids and "=" not in ids:
        draft.gpus = Gpus(device_ids=tuple(part for part in ids.split(",") if part))
    else:
        raise UsageError(f"--gpus {value} is not understood.", "Write --gpus all, --gpus 1, or --gpus device=0.")


def _shm_size(draft: Draft, value: str) -> None:
    try:
        draft.shm_size = parse_bytes(value)
    except ValueError as error:
        raise UsageError(f"--shm-size {value} is not a size.", "Write for example --shm-size 10g.") from error


def _ulimit(draft: Draft, value: str) -> None:
    match = re.fullmatch(r"([a-z]+)=(-?\d{1,19})(?::(-?\d{1,19}))?", value)
    if match is None:
        raise UsageError(f"--ulimit {value} is not understood.", "Write for example --ulimit memlock=-1.")
    soft = int(match[2])
    draft.ulimits.append(Ulimit(match[1], soft, soft if match[3] is None else int(match[3])))


def _restart(draft: Draft, value: str) -> None:
    name, colon, retries = value.partition(":")
    counted = name == "on-failure" and re.fullmatch(r"\d{1,6}", retries)
    if name not in RESTART_POLICIES or (colon and not counted):
        raise UsageError(
            f"--restart {value} is not a restart policy.", f"Docker knows {', '.join(RESTART_POLICIES)}[:N]."
        )
    draft.restart = RestartPolicy(name, int(retries or 0))


def _oom_score_adj(draft: Draft, value: str) -> None:
    if not re.fullmatch(r"-?\d{1,4}", value) or abs(int(value)) > 1000:
        raise UsageError(f"--oom-score-adj {value} is not possible.", "It goes from -1000 to 1000.")
    draft.oom_score_adj = int(value)


_MEMORY: Final = "Remove it: it does not bound what the GPU takes from a Spark's memory."
REFUSED: Final = {"m": _MEMORY, "memory": _MEMORY}

_KEEPS_LOG: Final = "--rm is left out: an ended container is kept here, because its log says why it ended."
_NO_TERMINAL: Final = (
    "A terminal (-it) is left out: a server needs none, and without one its log keeps stdout and stderr."
)
LEFT_OUT: Final = {
    "rm": _KEEPS_LOG,
    "i": _NO_TERMINAL,
    "t": _NO_TERMINAL,
    "interactive": _NO_TERMINAL,
    "tty": _NO_TERMINAL,
}
"""Switches that a server does without, and why."""


def _runtime(draft: Draft, value: str) -> None:
    # facts: a stock DGX OS lists no runtime of that name, and the daemon refuses it.
    if value != "nvidia":
        raise UsageError(f"--runtime {value} is not supported here.", "Remove it.")
    draft.gpus = draft.gpus or Gpus()
    draft.leave_out("--runtime nvidia is --gpus all here: that asks Docker for the GPU on every Spark.")


def _pull(draft: Draft, value: str) -> None:
    draft.leave_out(f"--pull {value} is left out: a missing image is pulled, a present one is used.")


def _platform(draft: Draft, value: str) -> None:
    if not value.startswith("linux/arm64"):
        raise UsageError(
            f"--platform {value} is another machine's.", "Remove it, and name an image that is built for arm64."
        )
    draft.leave_out(f"--platform {value} is left out: that is what a Spark is.")


SWITCHES: Final = {"d": "detach", "detach": "detach", "privileged": "privileged", "init": "init"}
VALUES: Final[dict[str, Callable[[Draft, str], None]]] = {
    **dict.fromkeys(("e", "env"), _env),
    **dict.fromkeys(("v", "volume"), _volume),
    **dict.fromkeys(("p", "publish"), _publish),
    **dict.fromkeys(("l", "label"), _label),
    **dict.fromkeys(("u", "user"), partial(_set, "user")),
    **dict.fromkeys(("network", "net"), partial(_set, "network")),
    **{name: partial(_set, name) for name in ("name", "ipc", "entrypoint")},
    "env-file": _env_file,
    "cap-add": partial(_append, "cap_add"),
    "device": partial(_append, "devices"),
    "security-opt": partial(_append, "security_opt"),
    "mount": _mount,
    "gpus": _gpus,
    "shm-size": _shm_size,
    "ulimit": _ulimit,
    "restart": _restart,
    "oom-score-adj": _oom_score_adj,
    "runtime": _runtime,
    "pull": _pull,
    "platform": _platform,
}


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


_PIECE = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\\r?\n|\\.|(?<!\S)~(?=[/\s]|$)""", re.DOTALL)
_CONTINUATION = re.compile(r"\\\r?\n")


@dataclass(frozen=True, slots=True)
class ReadCommand:
    """What a command makes. `left_out` says what it does without, and why."""

    spec: ContainerSpec
    left_out: tuple[str, ...] = ()


def split_text(text: str, *, home: str = "") -> tuple[str, ...]:
    """The words of a command text, as a POSIX shell without variables sees them; lines joined at their backslashes.

    `home` is what `~/` stands for.
    Raises UsageError where a shell would do more than split: variables, pipes, several commands, an open quote.
    """
    joined = _PIECE.sub(partial(_joined, home), text).strip()
    construct = shell_construct(joined)
    if construct:
        raise UsageError(
            f"The command uses the shell: {construct}.",
            "Write values out, as one `docker run` command without variables, comments or further commands.",
        )
    try:
        return split_words(joined)
    except ValueError as error:
        raise UsageError("The command has a quote that is never closed.", "Close it.", detail=str(error)) from error


def _joined(home: str, match: re.Match[str]) -> str:
    piece = match.group()
    if piece == "~" and home:
        return shlex.quote(home)
    if piece[0] == '"':
        return _CONTINUATION.sub("", piece)
    return "" if _CONTINUATION.fullmatch(piece) else piece


def parse_text(text: str, *, home: str = "") -> ContainerSpec:
    """The spec of a command text. `home` is what `~/` stands for; without it such a path is refused."""
    return parse_argv(split_text(text, home=home))


def parse_argv(argv: Sequence[str]) -> ContainerSpec:
    """The spec of a command. Raises like `read_argv`."""
    return read_argv(argv).spec


def read_argv(argv: Sequence[str]) -> ReadCommand:
    """What `docker run ...` makes; `sudo`, `$` and `docker container run` are understood as well.

    Raises UsageError for what is no such command, for options that a spec cannot hold, and for bad values.
    """
    words = list(argv)
    while words and words[0] in ("sudo", "$"):
        del words[0]
    if words[1:2] == ["container"]:
        del words[1]
    if len(words) < 2 or words[0].rpartition("/")[2] != "docker" or words[1] != "run":
        raise UsageError("This is not a docker run command.", "It has to begin with: docker run")
    draft = Draft()
    rest = _read_options(words[2:], draft)
    if not rest:
        raise UsageError("The command names no image.", "The image stands after the options: docker run -d ... IMAGE")
    return ReadCommand(draft.spec(rest[0], tuple(rest[1:])), tuple(draft.left_out))


def _read_options(words: list[str], draft: Draft) -> list[str]:
    """Takes the options off and returns image and command."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            return words[at:]
        if not word.startswith("-") or word == "-":
            return words[at - 1 :]
        for name, attached in _options_of(word):
            if name in LEFT_OUT:
                draft.leave_out(LEFT_OUT[name])
                continue
            if name in SWITCHES:
                draft.switch(SWITCHES[name], attached)
                continue
            _refuse_unknown(name)
            value = attached
            if value is None:
                if at == len(words):
                    raise UsageError(f"{_dashed(name)} has no value.", f"Write: {_dashed(name)} VALUE")
                value = words[at]
                at += 1
            VALUES[name](draft, value)
    return []


def _options_of(word: str) -> Iterator[tuple[str, str | None]]:
    """`--name=value`, `--name`, `-p8000:8000`, `-e=A=B` and clusters such as `-dit` as names with attached values."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        yield name, value if equals else None
        return
    letters = word[1:]
    for index, letter in enumerate(letters):
        rest = letters[index + 1 :]
        if letter not in SWITCHES and letter not in LEFT_OUT:
            yield letter, rest.removeprefix("=") if rest else None
            return
        if rest.startswith("="):
            yield letter, rest[1:]
            return
        yield letter, None


def _dashed(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name}"


def _refuse_unknown(name: str) -> None:
    if name in VALUES:
        return
    remedy = REFUSED.get(name, "Remove it: a preset has no place for it.")
    raise UsageError(f"{_dashed(name)} is not supported here.", remedy)


_DIGITS = 16


def spec_hash(spec: ContainerSpec) -> str:
    """16 hex digits that depend on the settings alone.

    Left out: the label that carries the fingerprint itself, the order of labels, and fields at their defaults, so
    that a field which a later version adds does not change the fingerprint of what runs already.
    """
    spec = canonical(spec)
    empty = ContainerSpec(name="", image="")
    given = {f.name: value for f in fields(spec) if (value := getattr(spec, f.name)) != getattr(empty, f.name)}
    given["labels"] = sorted(pair for pair in spec.labels if pair[0] != LABEL_SPEC_HASH)
    text = json.dumps(given, sort_keys=True, default=asdict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
