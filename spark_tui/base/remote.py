"""Other machines, each with its own spark-tui: their settings, and their status through ssh."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from spark_tui.base.errors import SparkError, UnreachableError, UsageError
from spark_tui.base.quantities import gib, human_bytes
from spark_tui.base.reading import Missing, Ok, Reading, reason_of, value_of
from spark_tui.base.text import clean, clean_line, truncate

DEFAULT_COMMAND: Final = "spark-tui"
MOST_HOSTS: Final = 32
"""All are asked at once."""
MOST_CHARACTERS: Final = 500
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SCHEME: Final = "ssh://"
_OTHER_KEY: Final = re.compile(r"ssh-keygen .*-R |HOST IDENTIFICATION HAS CHANGED")
"""What ssh says where a host has another key than before. A banner can say it too: nothing else is taken of it."""
_ADDRESS: Final = re.compile(r"\[?([^\]]*?)\]?(?::(\d+))?")
_SHELLS_OWN: Final = frozenset("'\"`$\\;&<>|(){}*?!#,/")
"""ssh itself refuses most of them in a name: they could reach a shell through its ProxyCommand. The comma is ours."""
_PARTS: Final = ("ssh", "command")
_HERE: Final = ("localhost", "127.0.0.1")
_NEEDS_QUOTES: Final = re.compile(r"[\s'\"\\]")


class RemoteHost(Struct, frozen=True):
    """A machine that ssh reaches as `destination` (`nv@spark-2`), where `command` starts spark-tui. `localhost` is this
    machine itself, which needs no ssh."""

    name: str
    destination: str
    command: str = DEFAULT_COMMAND

    @property
    def here(self) -> bool:
        """It is this machine."""
        return self.destination in _HERE

    @property
    def known_name(self) -> str:
        """Its name in ssh's known_hosts, where ~/.ssh/config gives it no other."""
        address = self.destination.removeprefix(_SCHEME).rpartition("@")[2]
        found = _ADDRESS.fullmatch(address) if self.destination.startswith(_SCHEME) else None
        name, port = found.groups() if found is not None else (address, None)
        return name if port in (None, "22") else f"[{name}]:{port}"

    def line(self, arguments: Sequence[str]) -> str:
        """What the shell there runs: command and arguments, quoted; a leading `~/` is left to that shell."""
        return " ".join([*map(_quoted, shlex.split(self.command)), *map(shlex.quote, arguments)])

    def ssh(self, arguments: Sequence[str], *options: str) -> tuple[str, ...]:
        """The whole ssh command, with options of ssh's own before the destination."""
        return ("ssh", *options, self.destination, "--", self.line(arguments))


Hosts: TypeAlias = tuple[RemoteHost, ...]
"""By name, in the order of their names."""


def read_hosts(value: object) -> Hosts:
    """Hosts from a TOML table (`lab = "nv@spark-2"`, `lab = { ssh = "nv@spark-2", command = "~/bin/spark-tui" }`), from
    text (`lab=nv@spark-2 attic=nv@10.0.0.7,~/bin/spark-tui`), or as they were read. Raises ValueError."""
    found: list[RemoteHost] = []
    if isinstance(value, str):
        for word in _words(value):
            name, equals, given = word.partition("=")
            if not equals:
                raise ValueError(f"must be hosts by name, such as lab=nv@spark-2; it has {word[:80]!r}")
            found.append(read_host(name, given))
    elif isinstance(value, Mapping):
        found = [_of_entry(name, given) for name, given in value.items()]
    elif isinstance(value, tuple) and all(isinstance(each, RemoteHost) for each in value):
        found = list(value)
    else:
        raise ValueError(f'must be a table of hosts, such as lab = "nv@spark-2"; it is {value!r}')
    if len({each.name for each in found}) < len(found):
        raise ValueError("must name each host once")
    if len(found) > MOST_HOSTS:
        raise ValueError(f"must be at most {MOST_HOSTS} hosts; it is {len(found)}")
    return tuple(sorted(found, key=lambda each: each.name))


def read_host(name: str, text: str) -> RemoteHost:
    """One host from `nv@spark-2`, or `nv@spark-2,COMMAND`. Raises ValueError."""
    where, comma, command = text.partition(",")
    return _host(name, where, command if comma else DEFAULT_COMMAND)


def host_text(host: RemoteHost) -> str:
    """As text that `read_host` reads back."""
    return host.destination if host.command == DEFAULT_COMMAND else f"{host.destination},{host.command}"


def hosts_text(hosts: Hosts) -> str:
    """As text that `read_hosts` reads back."""
    words = (f"{each.name}={host_text(each)}" for each in hosts)
    return " ".join(shlex.quote(word) if _NEEDS_QUOTES.search(word) else word for word in words)


def host_plain(host: RemoteHost) -> str | dict[str, str]:
    """As written in the settings file: a text, or a table where the command is another."""
    own = host.command != DEFAULT_COMMAND
    return {"ssh": host.destination, "command": host.command} if own else host.destination


def find_host(hosts: Hosts, name: str) -> RemoteHost:
    """The host of that name, else of that address (`nv@spark-2`, `10.0.0.7`). Raises UsageError, with a suggestion."""
    known = {each.name: each for each in hosts}
    if name in known:
        return known[name]
    if any(sign in name for sign in "@.:"):
        try:
            return RemoteHost(name, check_destination(name))
        except ValueError as error:
            raise UsageError(f"--host {error}.", "Write it as for ssh: spark-tui --host nv@spark-2") from None
    near = next(iter(difflib.get_close_matches(name, known, 1)), "")
    there = f" Known: {', '.join(known)}." if known else ""
    add = "Use an ssh address (--host USER@ADDRESS), or add it: spark-tui config set hosts.NAME USER@ADDRESS"
    raise UsageError(f"Unknown host {name[:60]!r}.{there}", f"Did you mean `{near}`?" if near else add)


def check_name(name: str) -> str:
    """A name that needs no quotes anywhere. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"must have names of letters, digits, - and _; it has {name[:60]!r}")
    return name


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        raise ValueError(f"must have its quotes closed; it is {text[:80]!r}") from None


def _of_entry(name: object, given: object) -> RemoteHost:
    if isinstance(given, str):
        return _host(name, given, DEFAULT_COMMAND)
    if not isinstance(given, Mapping) or "ssh" not in given:
        raise ValueError(f'must be an address such as "nv@spark-2", or {{ ssh = ..., command = ... }} (for {name})')
    for part in given:
        if part not in _PARTS:
            near = next(iter(difflib.get_close_matches(str(part), _PARTS, 1)), "")
            hint = f"did you mean {near}?" if near else f"there are {' and '.join(_PARTS)}"
            raise ValueError(f"must have known parts; {str(part)[:40]!r} is none: {hint} (for {name})")
    return _host(name, given["ssh"], given.get("command", DEFAULT_COMMAND))


def _host(name: object, where: object, command: object) -> RemoteHost:
    named = check_name(name if isinstance(name, str) else repr(name))
    try:
        return RemoteHost(named, check_destination(where), _command(command))
    except ValueError as error:
        raise ValueError(f"{error} (for {named})") from None


def check_destination(value: object) -> str:
    """What ssh takes as a destination and for nothing else. Raises ValueError."""
    example = "must be an address as for ssh, such as nv@spark-2"
    if not isinstance(value, str) or not value or len(value) > MOST_CHARACTERS:
        raise ValueError(f"{example}; it is {str(value)[:60]!r}")
    user, at, host = value.removeprefix(_SCHEME).rpartition("@")
    if not host or (at and not user) or user.startswith("-") or host.startswith("-"):
        raise ValueError(f"{example}; it is {value[:60]!r}")
    strange = next(
        (each for each in user + host if not each.isprintable() or each.isspace() or each in _SHELLS_OWN), ""
    )
    if strange:
        raise ValueError(f"{example}; {value[:60]!r} has {strange!r}")
    bare, colon, port = host.partition(":")
    if colon and port.isdigit() and bare and not value.startswith(_SCHEME):
        raise ValueError(f"{example}; a port is written so: {_SCHEME}{value[:60]}")
    return value


def _command(value: object) -> str:
    example = "must have a command such as ~/spark-tui/.venv/bin/spark-tui"
    if not isinstance(value, str) or not value.isprintable() or len(value) > MOST_CHARACTERS:
        raise ValueError(f"{example}; it is {str(value)[:60]!r}")
    words = _words(value)
    if not words or not words[0] or words[0].startswith("-"):
        raise ValueError(f"{example}; it is {value[:60]!r}")
    return value.strip()


def _quoted(word: str) -> str:
    """Quoted for a shell, but for `~/`, which the shell there is to make its home."""
    return f"~/{shlex.quote(word[2:])}" if word.startswith("~/") and len(word) > 2 else shlex.quote(word)


QUESTION: Final = ("status", "--json")
SSH_FAILED: Final = 255
"""ssh's own exit code when it could not connect; every other one is that of the command there."""
NOT_FOUND: Final = (126, 127)
"""POSIX shells: found and cannot be run, not found."""
_MOST: Final = 300
_MOST_ENGINES: Final = 100
_NOT_REPORTED: Final = "not reported"


class HostUnreachable(UnreachableError, id="host_unreachable"):
    """ssh does not connect."""


class HostNotReady(SparkError, id="host_not_ready"):
    """ssh connects, but no spark-tui answers."""


class RemoteEngine(Struct, frozen=True):
    """An engine of another machine. `model` is empty and `port` None where unknown."""

    name: str
    state: str
    model: str = ""
    port: int | None = None

    @property
    def serving(self) -> bool:
        return self.state in ("ready", "busy", "SERVING")


class RemoteStatus(Struct, frozen=True):
    """Another machine, by its own spark-tui. `available` of `total` bytes of memory are usable."""

    hostname: str
    available: Reading[int]
    total: Reading[int]
    engines: Reading[tuple[RemoteEngine, ...]]


def read_status(out: str) -> RemoteStatus | None:
    """The answer to `status --json`, which may follow other lines of that shell; None for any other text."""
    starts = [0, *(at + 1 for at, char in enumerate(out) if char == "\n" and out.startswith("{", at + 1))]
    for start in starts[:_MOST_ENGINES]:
        try:
            given, _ = json.JSONDecoder().raw_decode(out[start:].lstrip())
        except (ValueError, RecursionError):
            continue
        if isinstance(given, Mapping):
            return _status(given) if "memory" in given and "engines" in given else None
    return None


def _status(given: Mapping[str, Any]) -> RemoteStatus:
    host, memory, listed = given.get("host"), given.get("memory"), given.get("engines")
    reason = _text(given.get("memory_reason")) or _NOT_REPORTED

    def count(key: str) -> Reading[int]:
        value = memory.get(key) if isinstance(memory, Mapping) else None
        return Ok(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else Missing(reason)

    def engine(each: Mapping[str, Any]) -> RemoteEngine:
        port = each.get("port")
        known = isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536
        model = _text(each.get("served_name")) or _text(each.get("model"))
        return RemoteEngine(_text(each.get("id")), _text(each.get("state")), model, port if known else None)

    engines: Reading[tuple[RemoteEngine, ...]] = Missing(_text(given.get("engines_reason")) or _NOT_REPORTED)
    if isinstance(listed, list):
        engines = Ok(tuple(engine(each) for each in listed[:_MOST_ENGINES] if isinstance(each, Mapping)))
    hostname = _text(host.get("id")) if isinstance(host, Mapping) else ""
    return RemoteStatus(hostname, count("available_bytes"), count("total_bytes"), engines)


def no_answer(host: RemoteHost, code: int, out: str, err: str) -> SparkError:
    """Why `host` gave no status: by ssh's exit code, standard output and standard error."""
    message = last_line(err)
    if code == SSH_FAILED:
        return HostUnreachable(
            f"{host.name} is unreachable: {message or 'no message from ssh'}.",
            _ssh_remedy(host, err),
            detail=clean(err),
        )
    if code in NOT_FOUND:
        return not_installed(host, clean(err))
    return HostNotReady(
        f"{host.name} reports no status: {message or last_line(out) or f'exit code {code}'}.",
        f"Its spark-tui is probably older: update it. See: ssh {host.destination} -- {host.line(QUESTION)}",
        detail=clean(err) or clean(out[:_MOST]),
    )


def not_installed(host: RemoteHost, detail: str = "") -> SparkError:
    usual = host.command == DEFAULT_COMMAND
    where = "not on the PATH of ssh" if usual else f"no {host.command}"
    return HostNotReady(
        f"{host.name}: spark-tui is not installed ({where}).",
        "Install it on that machine, or set its path: "
        f"spark-tui config set hosts.{_settings_name(host)} '{host.destination},~/.local/bin/spark-tui'",
        detail=detail,
    )


def too_slow(host: RemoteHost, seconds: float) -> SparkError:
    return HostUnreachable(
        f"{host.name} has not answered for {seconds:g} s.",
        f"Check that it is on and reachable: ssh {host.destination}",
    )


def too_long(host: RemoteHost, most: int) -> SparkError:
    """`most` in bytes: of its whole answer, or of one line."""
    return HostNotReady(
        f"{host.name} sent more than {human_bytes(most)} as one answer.",
        f"Check what its login shell prints: ssh {host.destination} true",
    )


def memory_words(status: RemoteStatus) -> str:
    """`96.3 of 119.7 GiB`, or why it is unknown."""
    available, total = value_of(status.available), value_of(status.total)
    if available is None:
        return f"n/a: {reason_of(status.available)}"
    return f"{gib(available)} GiB" if total is None else f"{gib(available)} of {gib(total)} GiB"


def serving_words(status: RemoteStatus) -> str:
    """`qwen3 :8000, gemma :8001; 1 not serving`, or why the engines are unknown."""
    engines = value_of(status.engines)
    if engines is None:
        return f"n/a: {reason_of(status.engines)}"
    serving = [each.name if each.port is None else f"{each.name} :{each.port}" for each in engines if each.serving]
    others = len(engines) - len(serving)
    more = f"{others} not serving" if others else ""
    return "; ".join(filter(None, (", ".join(serving) or "none", more)))


def last_line(text: str) -> str:
    """The last line that is not blank, cleaned, without its full stop."""
    lines = [line for line in (clean_line(each).strip() for each in text.splitlines()) if line]
    return truncate(lines[-1], _MOST).rstrip(".") if lines else ""


def _settings_name(host: RemoteHost) -> str:
    return host.name if host.name != host.destination else "NAME"


def _ssh_remedy(host: RemoteHost, err: str) -> str:
    by_hand = f"ssh {host.destination}"
    if "Permission denied" in err:
        return f"Copy your key: ssh-copy-id {host.destination}. With a password: spark-tui --host {host.name}"
    if _OTHER_KEY.search(err):
        remove = f"ssh-keygen -R {shlex.quote(host.known_name)}"
        return (
            f"Do not log in, unless it was newly installed: then remove its old key ({remove}), by its HostName where "
            "~/.ssh/config has one."
        )
    if "Host key verification failed" in err:
        return f"Log in once and check the key it shows: {by_hand}"
    if "Could not resolve hostname" in err:
        return f"Correct its address: spark-tui config set hosts.{_settings_name(host)} USER@ADDRESS"
    return f"See the message of ssh: {by_hand}"


def _text(value: object) -> str:
    return truncate(clean_line(value), _MOST) if isinstance(value, str) else ""
