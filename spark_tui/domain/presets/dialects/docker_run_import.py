"""A `docker run` command as a recipe of ours: every part of it kept, told as changed, or refused by name.

Mounts of a model cache become the model store's, compile caches spark-tui's own, and keys are taken out: they never
stand in a preset.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_tui.domain.engine.runtimes import KeyWay
from spark_tui.domain.engine.secrets import mask_secrets
from spark_tui.domain.errors import UsageError
from spark_tui.domain.host.paths import HostPaths
from spark_tui.domain.presets.container_spec import LABEL_PREFIX, LABEL_PRESET, ContainerSpec, PublishedPort
from spark_tui.domain.presets.dialects.docker_run_command import Served, served
from spark_tui.domain.presets.dialects.docker_run_mounts import CACHE_VARIABLES, HUB_CACHE, sorted_mounts
from spark_tui.domain.presets.dialects.docker_run_text import HOME, unknown_variable, with_home
from spark_tui.domain.presets.dialects.nodes import Value, table_of
from spark_tui.domain.presets.docker_run import gpus_value, restart_value, ulimit_value
from spark_tui.domain.presets.docker_run_parser import read_argv, split_text
from spark_tui.domain.presets.host_paths import STORE_TARGET
from spark_tui.domain.presets.image_reference import is_image_reference
from spark_tui.domain.presets.located import Table
from spark_tui.domain.presets.preset import NO_GPU
from spark_tui.domain.presets.secret_names import holds_secret, is_secret_name
from spark_tui.domain.quantities import docker_size
from spark_tui.domain.text import clean_line, truncate

HOST: Final = "host"
_HUB_TOKENS: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "HUGGINGFACE_HUB_TOKEN")
_OOM_SCORE_ADJ: Final = 800  # what every launch sets
_GPU_DEVICE: Final = "nvidia.com/gpu="
_LEFT_TO_FILL = re.compile(r"<[A-Za-z][A-Za-z0-9_ -]*>")
_TYPESET = re.compile("(?:^|\\s)[\u2012-\u2015]+[A-Za-z]|(?:^|[\\s=])[\u2018\u2019\u201c\u201d]")


@dataclass(frozen=True, slots=True)
class CommandRecipe:
    """A command as a recipe of version 2. `name` is what its container or model is called."""

    document: Table
    name: str
    changes: tuple[str, ...]


@dataclass(slots=True)
class _Work:
    """One import. `paths` None: where the store lies is not known, and mounts are not held against it."""

    spec: ContainerSpec
    paths: HostPaths | None
    changes: list[str] = field(default_factory=list)
    keyed: bool = False

    @property
    def ours(self) -> bool:
        """Made by spark-tui: what it adds to every launch is no news."""
        return bool(self.spec.label(LABEL_PRESET))

    def tell(self, change: str) -> None:
        if not self.ours:
            self.changes.append(truncate(clean_line(change), 300))


def from_docker_run(text: str, paths: HostPaths | None = None) -> CommandRecipe:
    """The recipe of one command, as `find_commands` gives it. Raises UsageError for what a preset cannot hold."""
    read = read_argv(_words(text))
    work = _Work(read.spec, paths)
    for why in read.left_out:
        work.tell(why)
    return _recipe(work)


def _words(text: str) -> tuple[str, ...]:
    """The words of a command. Raises UsageError, with what posts and guides do to commands in words of its own."""
    text = with_home(text)
    if unknown := unknown_variable(text):
        above = "" if unknown.startswith("$(") else f", or put {unknown.strip('${}')}=VALUE on a line above the command"
        raise UsageError(
            f"The command uses {unknown}, which only your shell can fill in.", f"Write its value out{above}."
        )
    if _TYPESET.search(text):
        raise UsageError(
            "The command has long dashes or curly quotes, which a post made of -- and of straight quotes.",
            "Write them as they were: -- before an option, ' and \" around words.",
        )
    try:
        return split_text(text, home=HOME)
    except UsageError:
        if left := _LEFT_TO_FILL.search(text):
            raise UsageError(f"The command still has {left[0]} to be filled in.", "Write what it stands for.") from None
        raise


def _recipe(work: _Work) -> CommandRecipe:
    spec = work.spec
    if not is_image_reference(spec.image):
        raise UsageError(
            f"{_clip(spec.image)} is not the name of an image.",
            "The image stands after the options: docker run -d ... IMAGE",
        )
    every = {variable.name: variable.value for variable in spec.env}
    start = served(spec, every)
    env = _env(work, every, start)
    if start.opened:
        work.tell("--host {host} is added to its script: a launch says there how far the server can be reached.")
    for option in start.keys:
        _tell_key(work, option, start)
    network = _network(work, start)
    defaults = {"port": _port(work, start, every), **{k: v for k, v in start.defaults.items() if k != "port"}}
    found = sorted_mounts(spec, start.model, every, work.paths)
    for change in found.changes:
        work.tell(change)
    _tell_the_rest(work)
    own: dict[str, Value] = {"source": "a docker run command"}
    if not start.template:
        own["runs_as_is"] = True
    if (work.keyed or start.keyed) and start.runtime.key_way is not KeyWay.NONE:
        own["wants_key"] = True
    made: dict[str, Value] = {
        "recipe_version": "2",
        "model": found.model,
        "runtime": start.runtime.id,
        "container": spec.image,
        "executor_config": _options(work, network, found.volumes),
        "metadata": {"spark_tui": own},
        "defaults": defaults,
        "env": env,
        "command": start.template,
    }
    kept = {key: value for key, value in made.items() if value not in ("", {})}
    name = spec.name or posixpath.basename(found.model.rstrip("/")).lower().removesuffix(".gguf")
    return CommandRecipe(table_of(kept), name, tuple(dict.fromkeys(work.changes)))


# --- environment --------------------------------------------------------------------------------------


def _env(work: _Work, every: Mapping[str, str], start: Served) -> dict[str, Value]:
    """The variables that may stand in a file; the store's place and the server's address are a launch's to say."""
    kept: dict[str, Value] = {}
    for name, text in every.items():
        if _is_secret(name, text):
            _tell_key(work, name, start)
        elif name in CACHE_VARIABLES and posixpath.normpath(text).startswith((STORE_TARGET, HUB_CACHE)):
            if text != STORE_TARGET:
                work.tell(f"{name} is left out: models lie in spark-tui's store, which is {STORE_TARGET} there.")
        elif name == start.runtime.host_variable and not start.runtime.host_option:
            work.tell(f"{name} is left out: a launch sets it from its port.")
        else:
            kept[name] = text
    return kept


def _is_secret(name: str, text: str) -> bool:
    reference = text[1:] if text.startswith("$") else ""
    return is_secret_name(name) or holds_secret(text) or mask_secrets(text) != text or is_secret_name(reference)


def _tell_key(work: _Work, name: str, start: Served) -> None:
    """Says where a key belongs that was taken out."""
    way = start.runtime.key_way
    if name in _HUB_TOKENS or name.lstrip("-").replace("-", "_").lower() in ("hf_token", "hft"):
        work.tell(
            f"`{name}` is not kept in the file: set HF_TOKEN in your shell or log in with `hf auth login`; spark-tui "
            "passes it on from a private file."
        )
    elif name == start.runtime.key_variable or name.endswith(("api-key", "api_key")):
        if way is KeyWay.NONE:
            work.tell(f"`{name}` is left out: {start.runtime.title} knows no keys.")
            return
        work.keyed = True
        work.tell(
            f"`{name}` is not kept in the file: spark-tui makes a key of its own at the first launch, "
            "and keeps it in a private file."
        )
    else:
        work.tell(f"`{name}` is left out: a preset holds no keys; the Hub's token and the API key alone are passed on.")


# --- network ------------------------------------------------------------------------------------------


def _network(work: _Work, start: Served) -> str:
    network = {"bridge": "", "default": ""}.get(work.spec.network, work.spec.network)
    if network == HOST and not start.template:
        work.tell("--network host is left out: this image runs as it is, and its port is published instead.")
        return ""
    if network == HOST:
        work.tell("On the host's network it listens to this machine alone; launch it with exposure=lan to open it.")
    return network


def _port(work: _Work, start: Served, env: Mapping[str, str]) -> int:
    """The port on this machine. Raises UsageError for ports that a preset has no place for."""
    port = start.port
    if not start.runtime.host_option:
        stated = env.get(start.runtime.host_variable, "").rpartition(":")[2]
        port = int(stated) if stated.isascii() and stated.isdigit() else port
    if work.spec.network == HOST:
        return port
    chosen: PublishedPort | None = None
    for published in work.spec.ports:
        if published.container_port != port or published.protocol != "tcp" or chosen:
            raise UsageError(
                f"-p {published.host_port or ''}:{published.container_port} is not the server's port, which is {port}.",
                f"A preset publishes one port. Leave it out, or let the server listen there: --port "
                f"{published.container_port}",
            )
        chosen = published
    if chosen is None:
        work.tell(f"It publishes no port: a launch publishes {port} on this machine.")
        return port
    if not chosen.host_ip.startswith("127."):
        work.tell(
            f"Port {chosen.host_port or port} is open to this machine alone; launch it with exposure=lan to open it."
        )
    if not start.template and chosen.host_port not in (0, port):
        raise UsageError(
            f"-p {chosen.host_port}:{port}: this image runs as it is, with one port on both sides.",
            f"Write -p {port}:{port}, and change the port at the launch.",
        )
    return chosen.host_port or port


def _clip(text: str) -> str:
    return truncate(clean_line(text), 60)


# --- the rest -----------------------------------------------------------------------------------------


def _options(work: _Work, network: str, volumes: tuple[str, ...]) -> dict[str, Value]:
    """`executor_config`: what the container is made with, in the words of Docker."""
    spec = work.spec
    on_gpu = tuple(device for device in spec.devices if device.startswith(_GPU_DEVICE))
    if on_gpu:
        work.tell(f"--device {on_gpu[0]} is --gpus all here.")
    if spec.gpus is None and not on_gpu:
        work.tell("It asks for no GPU (--gpus all), so its preset runs on the CPU.")
    options: dict[str, Value] = {
        "entrypoint": None if spec.entrypoint is None else "".join(spec.entrypoint[:1]),
        "gpus": gpus_value(spec.gpus).strip('"') if spec.gpus else "all" if on_gpu else NO_GPU,
        "ipc": spec.ipc,
        "shm_size": docker_size(spec.shm_size) if spec.shm_size else None,
        "network": network,
        "user": spec.user,
        "restart_policy": restart_value(spec.restart) if spec.restart.name != "no" else None,
        "ulimit": [ulimit_value(limit) for limit in spec.ulimits],
        "cap_add": list(spec.cap_add),
        "devices": [device for device in spec.devices if device not in on_gpu],
        "security_opt": list(spec.security_opt),
        "privileged": True if spec.privileged else None,
        "volumes": list(volumes),
    }
    usual = {"gpus": "all"}
    return {
        key: value
        for key, value in options.items()
        if value not in (None, []) and (value != "" or key == "entrypoint") and usual.get(key) != value
    }


def _tell_the_rest(work: _Work) -> None:
    """What every launch decides, and what a preset has no place for. Raises UsageError for files of variables."""
    spec = work.spec
    if spec.env_files and not work.ours:
        raise UsageError(
            f"--env-file {spec.env_files[0].replace(HOME, '~')} is not read by a preset.",
            "Write its variables out with -e NAME=VALUE, but no keys: spark-tui passes the Hub's token and an API key.",
        )
    labels = [key for key, _ in spec.labels if not key.startswith(LABEL_PREFIX)]
    if labels:
        work.tell(f"Labels are left out: {', '.join(labels)}.")
    if spec.init:
        work.tell("--init is left out: the server is the container's first process, and gets the signal that stops it.")
    if spec.oom_score_adj not in (0, _OOM_SCORE_ADJ):
        work.tell(f"--oom-score-adj {spec.oom_score_adj} is left out: every launch has {_OOM_SCORE_ADJ}.")
