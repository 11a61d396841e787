"""Kubernetes manifests and llama-swap's configuration as launches.

Sources: the Kubernetes API (pods: containers, volumes), llama-swap's configuration (macros, ports).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from spark_tui.base.engine.runtimes import recognised
from spark_tui.base.errors import PresetError
from spark_tui.base.secret import is_secret_name
from spark_tui.base.text import clean_line
from spark_tui.catalog.presets.model.dialects.compose_files import listed, table_in, text_of
from spark_tui.catalog.presets.model.dialects.launchers import Beside, Launch
from spark_tui.catalog.presets.model.dialects.scripts import script_launches
from spark_tui.catalog.presets.model.preset import MappingValue, plain

_Table: TypeAlias = dict[str, Any]
_REFERENCE = re.compile(r"\$\((\w+)\)")
_SIZE = re.compile(r"(\d+)([KMG])i?")
_MACRO = re.compile(r"\$\{([\w.-]+)\}")
_FIRST_PORT: Final = 5800


def manifest_launches(documents: object, file: str) -> tuple[Launch, ...]:
    """The launch of the one container with an engine among the pods of a manifest. Raises PresetError for none, and for
    several: they are a deployment over machines."""
    tables = [each for each in listed(documents) if isinstance(each, dict)]
    tables += [item for each in tables for item in listed(each.get("items")) if isinstance(item, dict)]
    found = [launch for each in tables for launch in _of_pod(each)]
    if len(found) != 1:
        kinds = ", ".join(dict.fromkeys(clean_line(text_of(each.get("kind"))) for each in tables))
        raise PresetError(
            f"This is a Kubernetes manifest ({kinds}) with {len(found) or 'no'} containers that run an engine.",
            "Import one with a single engine, or its docker run command.",
            file=file,
        )
    return tuple(found)


def _of_pod(table: _Table) -> Iterator[Launch]:
    spec = table_in(table, "spec")
    pod = table_in(table_in(spec, "template"), "spec") or spec
    name = text_of(table_in(table, "metadata").get("name"))
    volumes = {text_of(each.get("name")): each for each in listed(pod.get("volumes")) if isinstance(each, dict)}
    for each in listed(pod.get("containers")):
        if isinstance(each, dict):
            image, command = text_of(each.get("image")), [*map(text_of, listed(each.get("command")))]
            args = [*map(text_of, listed(each.get("args")))]
            if recognised(image, (*command, *args)):
                others = len(listed(pod.get("containers"))) + len(listed(pod.get("initContainers"))) - 1
                changes = [f"{others} other containers of the pod are not imported."] if others else []
                words = ["docker", "run", "--name", name, *_options(pod, each, volumes, changes)]
                words += ["--entrypoint", command[0]] if command else []
                env = {text_of(pair.get("name")): text_of(pair.get("value")) for pair in listed(each.get("env"))}
                filled = [_REFERENCE.sub(lambda r: env.get(r[1], r[0]), word) for word in (*command[1:], *args)]  # noqa: B023
                yield Launch(name, 0, (*words, image, *filled), tuple(changes))


def _options(
    pod: dict[str, Any], container: dict[str, Any], volumes: dict[str, Any], changes: list[str]
) -> Iterator[str]:
    """What the container is made with, in the words of Docker."""
    if any(key.startswith("nvidia.com/") for key in table_in(table_in(container, "resources"), "limits")):
        yield from ("--gpus", "all")
    for key, option in (("hostNetwork", "--network"), ("hostIPC", "--ipc")):
        if pod.get(key) is True:
            yield from (option, "host")
    for port in listed(container.get("ports")):
        if len(listed(container.get("ports"))) == 1:
            number = text_of(port.get("containerPort"))
            yield from ("-p", f"{text_of(port.get('hostPort')) or number}:{number}")
    for pair in listed(container.get("env")):
        name, value = text_of(pair.get("name")), pair.get("value")
        if value is not None or is_secret_name(name):
            yield from ("-e", f"{name}={text_of(value) if value is not None else f'${name}'}")
        else:
            changes.append(f"{name} is left out: its value comes from the cluster.")
    for mount in listed(container.get("volumeMounts")):
        volume, target = volumes.get(text_of(mount.get("name")), {}), text_of(mount.get("mountPath"))
        host, claim = table_in(volume, "hostPath").get("path"), table_in(volume, "persistentVolumeClaim")
        size = _SIZE.match(text_of(table_in(volume, "emptyDir").get("sizeLimit")))
        if target == "/dev/shm":  # noqa: S108 - a mount point in the container
            yield from ("--shm-size", f"{size[1]}{size[2].lower()}" if size else "10g")
        elif host or claim:
            source = text_of(host or claim.get("claimName"))
            yield from ("-v", f"{source}:{target}{':ro' if mount.get('readOnly') is True else ''}")
        else:
            changes.append(f"The mount {clean_line(target)} is left out: it is no folder of this machine.")


def is_llama_swap(document: object) -> bool:
    """Whether a YAML file is llama-swap's: models, each with a command."""
    models = table_in(plain(document), "models") if isinstance(document, MappingValue) else {}
    return bool(models) and all(text_of(table_in(models, name).get("cmd")) for name in models)


def llama_swap_launches(
    document: MappingValue, file: str, beside: Beside, values: Mapping[str, str]
) -> tuple[Launch, ...]:
    """The launch of each model, with its macros and its port."""
    table: Any = plain(document)
    launches: list[Launch] = []
    first = table.get("startPort")
    for at, (name, model) in enumerate(sorted(table_in(table, "models").items())):
        macros = {**table_in(table, "macros"), **table_in(model, "macros"), "MODEL_ID": name}
        macros |= {"PORT": (first if isinstance(first, int) else _FIRST_PORT) + at, **values}
        command = re.sub(r"(?m)^\s*#.*$|\\$", "", text_of(model.get("cmd"))).replace("\n", " ")
        for _ in macros:  # a macro may name others
            command = _MACRO.sub(lambda found: text_of(macros.get(found[1], found[0])), command)  # noqa: B023
        env = dict(text_of(each).split("=", 1) for each in listed(model.get("env")) if "=" in text_of(each))
        script = "".join(f"export {key}='{value}'\n" for key, value in env.items()) + command
        called = re.sub(r"[^\w.-]+", "-", posixpath.basename(name)).strip("-.") or "model"
        for each in script_launches(script, file, beside, values):
            words = ("docker", "run", "--name", called, *each.words[2:])
            launches.append(replace(each, name=called, words=words, line=0))
    return tuple(launches)
