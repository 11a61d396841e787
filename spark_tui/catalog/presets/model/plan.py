"""What will be launched: preset, changes, host paths and image become one ContainerSpec. Nothing is touched here."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.engine.container import (
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
    STORE_TARGET,
    ContainerSpec,
    EnvVar,
    Gpus,
    ImageFacts,
    Mount,
    PublishedPort,
    RestartPolicy,
    Ulimit,
    hub_environment,
    hub_of,
    local_model_path,
    repository_in,
)
from spark_tui.base.engine.docker_run import read_restart, read_ulimit, spec_hash
from spark_tui.base.engine.image import (
    ContainerStart,
    arrange,
    assumed_entrypoint,
    mod_words,
    repository,
    start_script,
)
from spark_tui.base.engine.runtimes import KeyDelivery, ModelName, is_known
from spark_tui.base.errors import PresetError, RefusedError, UsageError
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.quantities import GIB
from spark_tui.base.secret import secret_variables
from spark_tui.base.settings import ExposureChoice
from spark_tui.catalog.presets.model.command import HOST_NETWORK, Command, command_of, render_env
from spark_tui.catalog.presets.model.overrides import Overrides, pairs_of
from spark_tui.catalog.presets.model.preset import Origin, Preset
from spark_tui.catalog.presets.model.recipe import is_system_folder, parse_gpus, parse_mount

SHM_SIZE: Final = 10 * GIB
OOM_SCORE_ADJ: Final = 800
"""When memory runs out, the kernel ends the engine before the desktop, the SSH session and Docker itself."""

# Compiled kernels by library, each where it looks for them when it runs as root. They are keyed by content, so that
# one set serves all engines of an image; a set per image can be cleared by itself after an upgrade.
_CACHES: Final = {
    "vllm": "/root/.cache/vllm",
    "flashinfer": "/root/.cache/flashinfer",
    "triton": "/root/.triton",
    "tilelang": "/root/.tilelang",
}
COMPILE_CACHES: Final = tuple(_CACHES.values())
_ROOT_USERS: Final = (None, "", "0", "root", "0:0", "root:root")
# Where the recipe is silent. Ten minutes, the engine's own limit, is too short for a 120B model (vllm#48031).
_GPU_ENV: Final = {"VLLM_ENGINE_READY_TIMEOUT_S": "3600", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800"}
_ULIMITS: Final = (Ulimit("memlock", -1, -1), Ulimit("stack", 67108864, 67108864))
# Within the container, for its own user alone; "$@" is the server's command.
KEY_FILE: Final = "/tmp/spark-tui-key.yaml"  # noqa: S108 - a fresh container's own folder, private to it
_KEY_SCRIPT: Final = f"""umask 077 && printf 'api-key: "%%s"\\n' "$%s" > {KEY_FILE} && exec "$@\""""
_NOT_FOLLOWED: Final = ("overrides", "builder", "runtime_config", "layout")


class LaunchPlan(Struct, frozen=True):
    """One launch, decided. `directories` are host folders that must exist, `overrides` the changes behind it.

    `notes` say what was assumed, changed or left out; what counts against the launch is the rules' to say.
    `model` is the name that the engine gets: a Hub name, or a path below /models. `image` is what it was planned with,
    None: not downloaded, and its entrypoint is assumed from its name. `store` is the store on this machine, `mounts`
    are those that do not depend on the environment. `repositories` are mounts of single repositories of the Hub, where
    one of them lies in another cache than the store's; read-only ones are not the store's.
    """

    spec: ContainerSpec
    preset: Preset
    model: str
    served_name: str
    host_port: int
    store: str = ""
    mounts: tuple[Mount, ...] = ()
    notes: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    overrides: Overrides = field(default_factory=Overrides)
    image: ImageFacts | None = None
    repositories: tuple[Mount, ...] = ()

    @property
    def base_url(self) -> str:
        return f"http://{LOOPBACK}:{self.host_port}"


class Placement(Struct, frozen=True):
    """The place of a container in a launch over several nodes. `before` are words put before the server's command;
    `instead`, when not empty, is the whole command."""

    nodes: int = 1
    rank: int = 0
    address: str = LOOPBACK
    before: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()


ALONE: Final = Placement()


def plan(
    preset: Preset,
    overrides: Overrides,
    paths: HostPaths,
    *,
    image: ImageFacts | None = None,
    env_file: str | None = None,
    place: Placement = ALONE,
) -> LaunchPlan:
    """The container for one launch of a preset.

    `image` None: not downloaded, and its entrypoint is assumed from its name. `env_file` is the host path of the
    private file with the Hugging Face token and the API key, or None when neither is used. `place`: one rank of
    several.
    Raises PresetError (the recipe), UsageError (the overrides) or RefusedError (not on this machine, not like this).
    """
    if preset.min_nodes > 1:
        raise RefusedError(
            f"{preset.name} needs {preset.min_nodes} nodes.",
            f"Plan it on a cluster: spark-tui up {preset.name} --nodes CLUSTER --dry-run",
        )
    model = preset.model if preset.mounted_model else model_in_container(preset.model, paths)
    command = command_of(preset, overrides, model)
    options, on_host = preset.options, preset.options.network == HOST_NETWORK
    default_port = preset.default("port")
    host_port = overrides.port or (default_port if isinstance(default_port, int) else command.port)
    host_port = command.port if on_host else host_port
    host_ip = ALL_INTERFACES if overrides.exposure is ExposureChoice.LAN else LOOPBACK
    mounts = mounts_of(preset, paths)
    limits = () if preset.cpu_only else _ULIMITS  # pinned memory is for the GPU
    shared = 0 if options.ipc == "host" else SHM_SIZE  # the host's /dev/shm has its own size
    spec = ContainerSpec(
        name=overrides.name or preset.name,
        image=preset.reference,
        env_files=(env_file,) if env_file else (),
        ports=() if on_host else (PublishedPort(command.port, host_port, host_ip),),
        gpus=Gpus() if options.gpus is None else parse_gpus(options.gpus),
        ipc=options.ipc or "",
        shm_size=shared if options.shm_size is None else options.shm_size,
        network="" if options.network in (None, "bridge") else options.network,
        user=options.user or "",
        ulimits=tuple({limit.name: limit for limit in (*limits, *map(read_ulimit, options.ulimits))}.values()),
        restart=RestartPolicy() if options.restart_policy is None else read_restart(options.restart_policy),
        oom_score_adj=OOM_SCORE_ADJ,
        cap_add=options.cap_add,
        devices=options.devices,
        security_opt=options.security_opt,
        privileged=bool(options.privileged),
    )
    found = LaunchPlan(
        spec,
        preset,
        model,
        command.served_name,
        host_port,
        posixpath.normpath(paths.store),
        mounts,
        overrides=overrides,
        image=image,
    )
    return _commanded(found, command, place)


def with_repositories(found: LaunchPlan, repositories: tuple[Mount, ...]) -> LaunchPlan:
    """The same launch on one machine, with these repositories as all of its Hub cache: the engine fetches nothing, and
    writes nothing where a mount is read-only. Docker makes the cache's own folder in the container, not on the host."""
    return _commanded(
        replace(found, repositories=repositories), command_of(found.preset, found.overrides, found.model), ALONE
    )


def with_share(found: LaunchPlan, share: float | None) -> LaunchPlan:
    """The same launch on one machine with that number of its automatic memory share, None where it has none: its
    command, environment and labels differ. Raises UsageError where the command has no place for it."""
    return with_overrides(found, replace(found.overrides, auto_share=True, gpu_memory_utilization=share))


def with_overrides(found: LaunchPlan, overrides: Overrides) -> LaunchPlan:
    """The same container on one machine with other changes of its command and environment. Raises UsageError for what
    the command has no place for."""
    command = command_of(found.preset, overrides, found.model)
    return _commanded(replace(found, overrides=overrides), command, ALONE)


def _commanded(found: LaunchPlan, command: Command, place: Placement) -> LaunchPlan:
    """With its command, environment and labels, whatever it had before."""
    preset, overrides, spec = found.preset, found.overrides, found.spec
    keyed = key_wanted(preset, overrides)
    argv = _with_key(command, preset) if keyed else command.argv
    arranged = _arranged(preset, place.instead or (*place.before, *argv), found.image)
    env, env_notes = _environment(preset, overrides, command, found.model, place)
    mounts = (*found.mounts, *_hub_mounts(found, env))
    if found.repositories:
        env = hub_environment(env, command.invocation.value)
        mounts += found.repositories
    elif "HF_HOME" in env and hub_source(mounts, env) != hub_of(found.store):
        env_notes = (*env_notes, f"The Hub cache is {hub_target(env)}: weights are not read from the store.")
    changes = pairs_of(overrides)
    labels = (
        (LABEL_PRESET, preset.name),
        (LABEL_MODEL, found.model),
        (LABEL_SERVED_NAME, command.served_name),
        (LABEL_RUNTIME, preset.engine),
        (LABEL_PORT, str(found.host_port)),
        *(((LABEL_OVERRIDES, json.dumps(changes)),) if changes else ()),
        *((LABEL_API_KEY_FILE, file) for file in spec.env_files if keyed),
    )
    spec = replace(
        spec,
        command=arranged.command,
        entrypoint=arranged.entrypoint,
        env=tuple(EnvVar(name, text) for name, text in env.items()),
        mounts=mounts,
        labels=labels,
    )
    named = replace(spec, image=replace(preset, trial="").reference)  # on trial it has the settings of its preset
    return replace(
        found,
        spec=replace(spec, labels=(*labels, (LABEL_SPEC_HASH, spec_hash(named)))),
        directories=tuple(
            mount.source
            for mount in mounts
            if mount.target != TOOL_TARGET and (mount not in found.repositories or not mount.read_only)
        ),
        notes=(
            *_recipe_notes(preset),
            *command.notes,
            *env_notes,
            *filter(None, (arranged.note,)),
            *read_elsewhere(found),
        ),
    )


def read_elsewhere(found: LaunchPlan) -> Iterator[str]:
    """Where each model is read that the store has not."""
    for mount in found.repositories:
        if mount.read_only and (repo := repository_in(mount.target)):
            yield f"{repo} is complete in {posixpath.dirname(mount.source)} and is read there, without a download."


def key_wanted(preset: Preset, overrides: Overrides) -> bool:
    """Whether the engine is started with an API key: the person or the preset asks for one."""
    return overrides.api_key or preset.facts.wants_key


def _with_key(command: Command, preset: Preset) -> tuple[str, ...]:
    """The command's words; for a server that takes a key by its options alone, behind a shell that writes the key
    from its variable into a file of the container. The key itself is in no process's arguments."""
    server, argv = preset.server, command.argv
    if not is_known(preset.engine):
        raise UsageError(
            f"No safe way is known to give {preset.engine} an API key.",
            "Launch it with api_key=no, and with exposure=local to keep others out.",
        )
    if server.key_way is KeyDelivery.NONE:
        raise UsageError(
            f"{server.title} has no API keys.",
            "Launch it with api_key=no. To share it, put a proxy with a key in front of it.",
        )
    if server.key_way is not KeyDelivery.CONFIG_FILE:
        return argv
    if command.invocation.script or command.invocation.has("config"):
        raise UsageError(
            f"{server.title} takes its key from a --config file, and this command has no place for one.",
            "Launch it with api_key=no, or simplify the command in a copy of the preset.",
        )
    return ("sh", "-c", _KEY_SCRIPT % server.key_variable, "sh", *argv, "--config", KEY_FILE)


def _arranged(preset: Preset, argv: tuple[str, ...], image: ImageFacts | None) -> ContainerStart:
    given = preset.options.entrypoint
    if preset.facts.runs_as_is:
        return ContainerStart((), None if given is None else (given,) if given else ())
    script = start_script(preset.image)
    if given is None and script is not None and script.words:
        taken = ", ".join(script.words)
        return ContainerStart(argv, (), f"The image's start script takes only {taken}: it is cleared.")
    if image is not None or given is not None:
        return arrange(argv, given, image.entrypoint if image else ())
    assumed = assumed_entrypoint(preset.image)
    arranged = arrange(argv, None, assumed)
    name = f"the entrypoint {' '.join(assumed)}" if assumed else "an entrypoint that runs its arguments"
    return replace(arranged, note=f"Image not downloaded; assuming {name}. {arranged.note}".strip())


def _environment(
    preset: Preset, overrides: Overrides, command: Command, model: str, place: Placement
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The store first, then the recipe's own, the person's, and our defaults for what none of them sets."""
    launch = {
        "model_path": model,
        "model_revision": preset.model_revision or None,
        "num_nodes": place.nodes,
        "node_rank": place.rank,
        "node_host": place.address,
        "cluster_id": overrides.name or preset.name,
    }
    hub = preset.server.model_name is not ModelName.TAG
    given: dict[str, str] = {"HF_HOME": STORE_TARGET} if hub else {}
    private = secret_variables(preset.env)
    rendered = {name: render_env(text, command.values, launch) for name, text in preset.env if name not in private}
    given |= {name: each.text for name, each in rendered.items()} | dict(overrides.extra_env)
    if preset.engine == "vllm" and not preset.cpu_only:
        given = {**given, **{name: text for name, text in _GPU_ENV.items() if name not in given}}
    if not preset.server.host_option:
        given[preset.server.host_variable] = f"{command.values['host']}:{command.port}"
    missing = [name for each in rendered.values() for name in each.missing]
    notes = [f"The environment names {', '.join(missing)}, which has no value."] if missing else []
    if private:
        notes.append(f"The recipe holds keys ({', '.join(private)}): passed in the private file.")
    return given, tuple(notes)


def _recipe_notes(preset: Preset) -> Iterator[str]:
    for step in preset.facts.required_steps:
        yield f"At each start, {step.summary}: {step.command}"
    if preset.hooks:
        yield f"The recipe has hooks ({len(preset.hooks)}): spark-tui shows them and does not run them."
    if preset.mods:
        mods = "; ".join(mod_words(each, preset.reference) for each in preset.mods)
        yield f"Mods of the recipe are not applied: {mods}."
    unused = [key for key, _ in preset.unknown if key in _NOT_FOLLOWED]
    if unused:
        yield f"Ignored keys of the recipe: {', '.join(unused)}."
    options = preset.options
    if options.restart_policy in ("always", "unless-stopped", "on-failure", "on-failure:0"):
        yield f"Restarts without end ({options.restart_policy}): a crash loop can take a Spark down."


# --- host paths -------------------------------------------------------------------------------------------


def model_in_container(model: str, paths: HostPaths) -> str:
    """The model as the container sees it: a path within the store becomes one below /models, a file of another tool
    lies in TOOL_TARGET, a Hub name stays.

    Raises RefusedError for a path elsewhere on the host.
    """
    if local_model_path(model) is not None or not model.startswith(("/", "~")):
        return model
    if file := _file_of_tool(model, paths):
        return posixpath.join(TOOL_TARGET, posixpath.basename(file))
    inside = _within(_absolute(model, paths), paths.store)
    if inside is None:
        raise RefusedError(
            f"The model {model} lies outside the model store ({paths.store}).",
            "Move it into the store and name it as /models/FOLDER in the recipe.",
        )
    return posixpath.join(STORE_TARGET, inside)


TOOL_TARGET: Final = "/tool-models"
"""The folder of a GGUF file that another tool has downloaded, in the container."""


def _file_of_tool(model: str, paths: HostPaths) -> str:
    """The path on this machine of a model that another tool has; empty for any other."""
    path = _absolute(model, paths) if model.startswith(("/", "~")) else ""
    return path if any(_within(path, each) for each in paths.tools) else ""


def mounts_of(preset: Preset, paths: HostPaths) -> tuple[Mount, ...]:
    """The store, the compile caches, and what the recipe adds; of two mounts with one target the recipe's counts.

    Raises PresetError for a mount that leaves the store, as a recipe may come from a stranger: of the person's own
    recipes for folders of the system alone. Others are a right that the person allows.
    """
    found = {STORE_TARGET: Mount(posixpath.normpath(paths.store), STORE_TARGET)}
    if file := _file_of_tool(preset.model, paths):
        found[TOOL_TARGET] = Mount(posixpath.dirname(file), TOOL_TARGET, True)
    if preset.options.user in _ROOT_USERS:
        image = re.sub(r"[^a-z0-9.]+", "-", repository(preset.image).lower()).strip("-.")
        filled = preset.server.caches[:1] if preset.cpu_only else preset.server.caches
        for name, target in _CACHES.items():
            if name in filled:
                found[target] = Mount(posixpath.join(paths.caches, image, name), target)
    extra = []
    for text in preset.mounts:
        try:
            source, target, read_only = parse_mount(text)
        except ValueError:
            summary = f"The mount {text!r} cannot be used."
            raise PresetError(summary, "For example: notes:/notes:ro", file=preset.file) from None
        host, target = _absolute(source, paths), posixpath.normpath(target)
        inside = _within(host, paths.store) or _within(host, paths.caches)
        if inside is None and (preset.origin is not Origin.USER or is_system_folder(host)):
            raise PresetError(
                f"The mount {source} lies outside the model store ({paths.store}).",
                "Put those files into the store, or remove the mount from the recipe.",
                file=preset.file,
            )
        found.pop(target, None)
        extra.append(Mount(host, target, read_only))
    return (*found.values(), *extra)


HUB_VARIABLES: Final = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
"""They name the Hub's cache, and count before HF_HOME (huggingface_hub's constants.py)."""


def hub_target(env: Mapping[str, str]) -> str:
    """Where an engine with this environment looks for models of the Hub, in its container."""
    named = next((env[name] for name in HUB_VARIABLES if env.get(name)), "")
    return posixpath.normpath(named or hub_of(env.get("HF_HOME", "")))


def hub_source(mounts: Iterable[Mount], env: Mapping[str, str]) -> str:
    """The folder of this machine behind that place; empty where nothing is mounted."""
    return on_host(mounts, hub_target(env))


def on_host(mounts: Iterable[Mount], path: str) -> str:
    """The place on this machine of a container's path; empty where nothing is mounted, and for a name of the Hub."""
    found = [mount for mount in mounts if _within(path, mount.target) is not None]
    if not found:
        return ""
    mount = max(found, key=lambda each: len(each.target))
    return posixpath.normpath(posixpath.join(mount.source, _within(path, mount.target) or "."))


def _hub_mounts(found: LaunchPlan, env: Mapping[str, str]) -> tuple[Mount, ...]:
    """The store once more, where the environment has the engine look for models and nothing else is mounted."""
    target = hub_target(env)
    if "HF_HOME" not in env or not target.startswith("/") or hub_source(found.mounts, env):
        return ()
    home = posixpath.normpath(env["HF_HOME"])
    if target == hub_of(home):
        return (Mount(found.store, home),)
    return (Mount(hub_of(found.store), target),)


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
