"""What will be launched: preset, changes, host paths and image become one ContainerSpec. Nothing is touched here."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass, replace
from typing import Final

from spark_tui.domain.engine.container import (
    ALL_INTERFACES,
    LABEL_API_KEY_FILE,
    LABEL_MODEL,
    LABEL_OVERRIDES,
    LABEL_PORT,
    LABEL_PRESET,
    LABEL_RUNTIME,
    LABEL_SERVED_NAME,
    LABEL_SPEC_HASH,
    LOOPBACK,
    ContainerSpec,
    EnvVar,
    Gpus,
    ImageFacts,
    Mount,
    PublishedPort,
    RestartPolicy,
    Ulimit,
)
from spark_tui.domain.engine.docker_run import spec_hash
from spark_tui.domain.engine.runtimes import KeyWay, ModelName, is_known
from spark_tui.domain.errors import PresetError, RefusedError, UsageError
from spark_tui.domain.host.identity import HostPaths
from spark_tui.domain.presets.image import Arranged, arrange, assumed_entrypoint, repository
from spark_tui.domain.presets.invocation import HOST_NETWORK, Command, command_of, missing_values, render_env
from spark_tui.domain.presets.options import option_value
from spark_tui.domain.presets.overrides import Overrides, Reach, overrides_from_pairs, pairs_from, pairs_of
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.presets.recipe import parse_gpus, parse_mount, parse_restart, parse_ulimit
from spark_tui.domain.quantities import GIB
from spark_tui.domain.secret import secret_variables
from spark_tui.domain.shell import is_shell

__all__ = [
    "STORE_TARGET",
    "HostPaths",
    "LaunchPlan",
    "Overrides",
    "Reach",
    "key_wanted",
    "local_model_path",
    "missing_values",
    "model_in_container",
    "mounts_of",
    "overrides_from_pairs",
    "pairs_from",
    "plan",
]


STORE_TARGET: Final = "/models"

# Compiled kernels by library, each where it looks for them when it runs as root. They are keyed by content, so that
# one set serves all engines of an image; a set per image can be cleared by itself after an upgrade.
_CACHES: Final = (
    ("vllm", "/root/.cache/vllm"),
    ("flashinfer", "/root/.cache/flashinfer"),
    ("triton", "/root/.triton"),
    ("tilelang", "/root/.tilelang"),
)
COMPILE_CACHES: Final = tuple(target for _, target in _CACHES)
_ROOT_USERS: Final = (None, "", "0", "root", "0:0", "root:root")


def local_model_path(model: str) -> str | None:
    """The folder within the store of a model given by path: `/models/smollm2` -> `smollm2`; None for a Hub name."""
    if model != STORE_TARGET and not model.startswith(STORE_TARGET + "/"):
        return None
    return posixpath.normpath(model.removeprefix(STORE_TARGET).strip("/") or ".")


def model_in_container(preset: Preset, paths: HostPaths) -> str:
    """The model as the container sees it: a path within the store becomes one below /models, a Hub name stays.

    Raises RefusedError for a path elsewhere on the host.
    """
    if local_model_path(preset.model) is not None or not preset.model.startswith(("/", "~")):
        return preset.model
    host = _absolute(preset.model, paths)
    inside = _within(host, paths.store)
    if inside is None:
        raise RefusedError(
            f"The model {preset.model} lies outside the model store ({paths.store}).",
            "Move it into the store and name it as /models/FOLDER in the recipe.",
        )
    return posixpath.join(STORE_TARGET, inside)


def mounts_of(preset: Preset, paths: HostPaths) -> tuple[Mount, ...]:
    """The store, the caches, and what the recipe adds; of two mounts with one target the recipe's counts.

    Raises PresetError for a mount that leaves the store: a recipe may come from a stranger.
    """
    extra = tuple(_extra(preset, text, paths) for text in preset.mounts)
    taken = {mount.target for mount in extra}
    own = (Mount(posixpath.normpath(paths.store), STORE_TARGET), *_caches(preset, paths))
    return (*(mount for mount in own if mount.target not in taken), *extra)


def _caches(preset: Preset, paths: HostPaths) -> tuple[Mount, ...]:
    if preset.options.user not in _ROOT_USERS:
        return ()
    image = re.sub(r"[^a-z0-9.]+", "-", repository(preset.image).lower()).strip("-.")
    filled = preset.server.caches[:1] if preset.cpu_only else preset.server.caches
    wanted = [(name, target) for name, target in _CACHES if name in filled]
    return tuple(Mount(posixpath.join(paths.caches, image, name), target) for name, target in wanted)


def _extra(preset: Preset, text: str, paths: HostPaths) -> Mount:
    """`source:target[:ro]`: a relative source is a folder of the store."""
    try:
        source, target, read_only = parse_mount(text)
    except ValueError:
        raise PresetError(
            f"The mount {text!r} cannot be used.", "Write for example: notes:/notes:ro", file=preset.file
        ) from None
    host = _absolute(source, paths)
    if _within(host, paths.store) is None and _within(host, paths.caches) is None:
        raise PresetError(
            f"The mount {source} lies outside the model store ({paths.store}).",
            "Put those files into the store, or take the mount out of the recipe.",
            file=preset.file,
        )
    return Mount(host, posixpath.normpath(target), read_only)


def _absolute(path: str, paths: HostPaths) -> str:
    if path == "~" or path.startswith("~/"):
        path = (paths.home or "/nowhere") + path[1:]
    return posixpath.normpath(posixpath.join(paths.store, path))


def _within(path: str, root: str) -> str | None:
    """`path` relative to `root`, None when it lies outside."""
    root = posixpath.normpath(root)
    if path == root:
        return "."
    return path[len(root) + 1 :] if path.startswith(root.rstrip("/") + "/") else None


SHM_SIZE: Final = 10 * GIB
OOM_SCORE_ADJ: Final = 800
"""When memory runs out, the kernel ends the engine before the desktop, the SSH session and Docker itself."""

# Where the recipe is silent. Ten minutes, the engine's own limit, is too short for a 120B model (vllm#48031).
_GPU_ENV: Final = (
    ("VLLM_ENGINE_READY_TIMEOUT_S", "3600"),
    ("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "1800"),
)
_ULIMITS: Final = (Ulimit("memlock", -1, -1), Ulimit("stack", 67108864, 67108864))
# Within the container, for its own user alone; "$@" is the server's command.
_KEY_FILE: Final = "/tmp/spark-tui-key.yaml"  # noqa: S108 - a fresh container's own folder, nobody else writes there
_KEY_SCRIPT: Final = f"""umask 077 && printf 'api-key: "%%s"\\n' "$%s" > {_KEY_FILE} && exec "$@\""""
_NOT_FOLLOWED: Final = ("overrides", "builder", "runtime_config", "layout")


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One launch, decided. `directories` are host folders that must exist.

    `notes` say what was assumed, changed or left out; what speaks against the launch is the rules' to say.
    `model` is what the engine is told: a Hub name, or a path below /models.
    """

    spec: ContainerSpec
    preset: Preset
    model: str
    served_name: str
    host_port: int
    notes: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()

    @property
    def base_url(self) -> str:
        """Where this host reaches the API."""
        return f"http://{LOOPBACK}:{self.host_port}"


def plan(
    preset: Preset,
    overrides: Overrides,
    paths: HostPaths,
    *,
    image: ImageFacts | None = None,
    env_file: str | None = None,
) -> LaunchPlan:
    """The container for one launch of a preset.

    `image` None: it is not here yet, and its entrypoint is assumed from its name. `env_file` is the host path of the
    private file with the Hugging Face token and the API key, or None when neither is used.
    Raises PresetError (the recipe), UsageError (the overrides) or RefusedError (not on this machine, not like this).
    """
    _check(preset, overrides)
    model = model_in_container(preset, paths)
    command = command_of(preset, overrides, model)
    arranged = _arranged(preset, _keyed(preset, overrides, command), image)
    host_port = _host_port(preset, overrides, command)
    env, env_notes = _environment(preset, overrides, command, model)
    mounts = mounts_of(preset, paths)
    options = preset.options
    spec = ContainerSpec(
        name=overrides.name or preset.name,
        image=preset.reference,
        command=arranged.command,
        entrypoint=arranged.entrypoint,
        env=env,
        env_files=(env_file,) if env_file else (),
        mounts=mounts,
        ports=_ports(preset, overrides, command, host_port),
        gpus=Gpus() if options.gpus is None else parse_gpus(options.gpus),
        ipc=options.ipc or "",
        shm_size=_shm_size(preset),
        network="" if options.network in (None, "bridge") else options.network,
        user=options.user or "",
        ulimits=_ulimits(preset),
        restart=RestartPolicy() if options.restart_policy is None else parse_restart(options.restart_policy),
        labels=_labels(preset, overrides, command, model, host_port, env_file),
        oom_score_adj=OOM_SCORE_ADJ,
        cap_add=options.cap_add,
        devices=options.devices,
        security_opt=options.security_opt,
        privileged=bool(options.privileged),
    )
    spec = replace(spec, labels=(*spec.labels, (LABEL_SPEC_HASH, spec_hash(spec))))
    notes = (*_recipe_notes(preset), *command.notes, *env_notes, arranged.note)
    directories = tuple(mount.source for mount in mounts)
    return LaunchPlan(spec, preset, model, command.served_name, host_port, tuple(filter(None, notes)), directories)


def _check(preset: Preset, overrides: Overrides) -> None:
    if preset.min_nodes > 1:
        raise RefusedError(
            f"{preset.name} needs {preset.min_nodes} Sparks; spark-tui launches on this one.",
            "Choose a preset for a single Spark.",
        )
    if not key_wanted(preset, overrides):
        return
    if not is_known(preset.engine):
        raise UsageError(
            f"spark-tui knows no safe way to give {preset.engine} an API key.",
            "Launch it with api_key=no, and with exposure=local if nobody else is to use it.",
        )
    if preset.server.key_way is KeyWay.NONE:
        raise UsageError(
            f"{preset.server.title} knows no API keys.",
            "Launch it with api_key=no. To let others use it, put a proxy in front of it that asks for a key.",
        )


def key_wanted(preset: Preset, overrides: Overrides) -> bool:
    """Whether the engine is started with an API key: the person or the preset asks for one."""
    return overrides.api_key or preset.facts.wants_key


def _keyed(preset: Preset, overrides: Overrides, command: Command) -> tuple[str, ...]:
    """The command's words; for a server that takes a key by its options alone, behind a shell that writes the key
    from its variable into a file of the container. The key itself stands in no process's arguments."""
    argv = command.argv
    if not key_wanted(preset, overrides) or preset.server.key_way is not KeyWay.CONFIG_FILE:
        return argv
    if is_shell(argv) or option_value(argv, "--config") is not None:
        raise UsageError(
            f"{preset.server.title} takes its key from a --config file, and this command has no place for one.",
            "Launch it with api_key=no, or simplify the command in a copy of the preset.",
        )
    return ("sh", "-c", _KEY_SCRIPT % preset.server.key_variable, "sh", *argv, "--config", _KEY_FILE)


def _arranged(preset: Preset, argv: tuple[str, ...], image: ImageFacts | None) -> Arranged:
    if preset.facts.runs_as_is:
        stated = preset.options.entrypoint
        return Arranged((), None if stated is None else (stated,) if stated else ())
    if image is not None or preset.options.entrypoint is not None:
        return arrange(argv, preset.options.entrypoint, image.entrypoint if image else ())
    assumed = assumed_entrypoint(preset.image)
    arranged = arrange(argv, None, assumed)
    words = f"starts with {' '.join(assumed)}" if assumed else "runs its arguments"
    return replace(arranged, note=f"The image is not here yet: by its name, it {words}. {arranged.note}".strip())


def _host_port(preset: Preset, overrides: Overrides, command: Command) -> int:
    if preset.options.network == HOST_NETWORK:
        return command.port
    stated = preset.default("port")
    return overrides.port or (stated if isinstance(stated, int) else command.port)


def _ports(preset: Preset, overrides: Overrides, command: Command, host_port: int) -> tuple[PublishedPort, ...]:
    if preset.options.network == HOST_NETWORK:
        return ()
    host_ip = ALL_INTERFACES if overrides.exposure is Reach.LAN else LOOPBACK
    return (PublishedPort(command.port, host_port, host_ip),)


def _environment(
    preset: Preset, overrides: Overrides, command: Command, model: str
) -> tuple[tuple[EnvVar, ...], tuple[str, ...]]:
    """The store first, then the recipe's own, the person's, and our defaults for what nobody states."""
    launch = {
        "model_path": model,
        "model_revision": preset.model_revision or None,
        "num_nodes": 1,
        "node_rank": 0,
        "node_host": LOOPBACK,
        "cluster_id": overrides.name or preset.name,
    }
    hub = preset.server.model_name is not ModelName.TAG
    stated: dict[str, str] = {"HF_HOME": STORE_TARGET} if hub else {}
    missing: list[str] = []
    private = secret_variables(preset.env)
    for name, text in preset.env:
        if name in private:
            continue
        rendered = render_env(text, command.values, launch)
        stated[name] = rendered.text
        missing += rendered.missing
    stated |= dict(overrides.extra_env)
    for name, text in _GPU_ENV if preset.engine == "vllm" and not preset.cpu_only else ():
        stated.setdefault(name, text)
    if not preset.server.host_option:
        stated[preset.server.host_variable] = f"{command.values['host']}:{command.port}"
    notes = [f"The environment names {', '.join(missing)}, which has no value here."] if missing else []
    if private:
        notes.append(f"The recipe holds keys ({', '.join(private)}): they go through the private file.")
    if hub and stated["HF_HOME"] != STORE_TARGET:
        notes.append(f"HF_HOME is {stated['HF_HOME']}: weights are not read from the store.")
    return tuple(EnvVar(name, text) for name, text in stated.items()), tuple(notes)


def _shm_size(preset: Preset) -> int:
    """10 GiB, unless the recipe says otherwise or shares the host's /dev/shm."""
    if preset.options.shm_size is not None:
        return preset.options.shm_size
    return 0 if preset.options.ipc == "host" else SHM_SIZE


def _ulimits(preset: Preset) -> tuple[Ulimit, ...]:
    own = () if preset.cpu_only else _ULIMITS  # pinned memory is for the GPU
    limits = {limit.name: limit for limit in (*own, *map(parse_ulimit, preset.options.ulimits))}
    return tuple(limits.values())


def _labels(
    preset: Preset, overrides: Overrides, command: Command, model: str, host_port: int, env_file: str | None
) -> tuple[tuple[str, str], ...]:
    labels: tuple[tuple[str, str], ...] = (
        (LABEL_PRESET, preset.name),
        (LABEL_MODEL, model),
        (LABEL_SERVED_NAME, command.served_name),
        (LABEL_RUNTIME, preset.engine),
        (LABEL_PORT, str(host_port)),
    )
    changes = pairs_of(overrides)
    if changes:
        labels = (*labels, (LABEL_OVERRIDES, json.dumps(changes)))
    return (*labels, (LABEL_API_KEY_FILE, env_file)) if key_wanted(preset, overrides) and env_file else labels


def _recipe_notes(preset: Preset) -> tuple[str, ...]:
    """What the recipe asks for, and what of it is not done."""
    notes: list[str] = []
    notes += [f"At each start, {step.summary}: {step.command}" for step in preset.facts.required_steps]
    if preset.hooks:
        notes.append(f"The recipe has hooks ({len(preset.hooks)}): spark-tui shows them and does not run them.")
    if preset.mods:
        notes.append(f"The recipe wants mods that are not applied: {', '.join(preset.mods)}.")
    unused = [key for key, _ in preset.unknown if key in _NOT_FOLLOWED]
    if unused:
        notes.append(f"Not followed from the recipe: {', '.join(unused)}.")
    restart = preset.options.restart_policy
    if restart in ("always", "unless-stopped", "on-failure", "on-failure:0"):
        notes.append(f"Restarts without end ({restart}): a crash loop on a Spark can take the machine down.")
    rights = _rights(preset)
    if rights:
        notes.append(f"The recipe asks for more rights than an engine needs: {', '.join(rights)}.")
    return tuple(notes)


def _rights(preset: Preset) -> tuple[str, ...]:
    options = preset.options
    return (*(("privileged",) if options.privileged else ()), *options.cap_add, *options.devices, *options.security_opt)
