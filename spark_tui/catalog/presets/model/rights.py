"""What a recipe asks of the machine beyond what an engine needs. Each right has a name, by which a person allows it.

The names are those of the recipe's own keys (`volumes`: folders outside the model store), and `preload` (LD_PRELOAD),
`piped_shell` (a shell that runs what comes from the network) and `image` (one of an unknown publisher).
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec.structs import asdict

from spark_tui.base.engine.image import registry_of, repository
from spark_tui.base.errors import RefusedError
from spark_tui.base.finding import Change, Finding, Severity
from spark_tui.base.text import clean_line, lazy_pattern, truncate
from spark_tui.catalog.presets.model.command import render
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.model.recipe import is_system_folder

# Severity, summary and remedy by id, the worst first.
_FINDINGS: Final = {
    "takes_host": (
        Severity.ERROR, "The recipe asks for more rights than an engine needs",
        "Read the recipe. To allow it: launch it on Presets, or spark-tui presets allow {preset} {rights}",
    ),
    "system_mounts": (
        Severity.ERROR, "The recipe mounts folders of the system", "Remove the mounts: a launch refuses them.",
    ),
    "shares_host": (
        Severity.WARNING, "The container shares the machine's network or IPC",
        "Read the recipe. To end this warning: spark-tui presets allow {preset} {rights}",
    ),
    "unknown_publisher": (
        Severity.WARNING, "The image is from an unknown publisher",
        "Check who builds it. To end this warning: spark-tui presets allow {preset} {rights}",
    ),
    "unsafe_script": (
        Severity.WARNING, "A hook or mod runs what comes from the network", "spark-tui runs neither. Read them first.",
    ),
    "allowed_rights": (
        Severity.INFO, "You allowed more rights than an engine needs",
        "To take it back: spark-tui presets allow {preset} --revoke",
    ),
}  # fmt: skip
RULES: Final = ("takes_host", "shares_host", "unknown_publisher", "allowed_rights")
# The finding of a right by its name, where it is not `takes_host`: none of them refuses a launch.
_OTHERS: Final = {
    "mounts": "system_mounts",
    "network": "shares_host",
    "ipc": "shares_host",
    "image": "unknown_publisher",
    "script": "unsafe_script",
}

_NAMESPACE: Final = lazy_pattern("(cgroup|cgroupns|ipc|network|pid|userns|uts)=(host|container:.*)")
# For pinned memory and CPU affinity; Docker's own set, which every container has, takes nothing more.
_CAPABILITY: Final = lazy_pattern(
    "(CAP_)?(IPC_LOCK|SYS_NICE|AUDIT_WRITE|CHOWN|DAC_OVERRIDE|FOWNER|FSETID|KILL|MKNOD|NET_BIND_SERVICE|NET_RAW|SETFCAP"
    "|SETGID|SETPCAP|SETUID|SYS_CHROOT)",
    re.IGNORECASE,
)
_DEVICE: Final = lazy_pattern(r"/dev/(infiniband|nvidia[\w-]*|dri|gdrdrv)(/.*)?|nvidia\.com/gpu=.*")
# An image of docker.io without an owner was built on this machine, or is one of Docker's own.
_PUBLISHER: Final = lazy_pattern(
    r"docker\.io/(avarok|eugr|lmsysorg|ollama|scitrera|spark-tui|sparkarena|vllm)/.*|nvcr\.io/nvidia/.*"
    r"|ghcr\.io/(aeon-7|ggml-org|huggingface|spark-arena|z-lab)/.*|(localhost|127\.0\.0\.1)(:\d+)?/.*|docker\.io/[^/]+"
)

_SHELL: Final = r"(?:(?:ba|da|k|z)?sh|python[\d.]*|perl|ruby|node|php)\b"
_FETCH: Final = r"(?:curl|wget|aria2c)\b"
_PIPE: Final = lazy_pattern(r"(?<!\|)\|(?!\|)&?")
_SOURCE: Final = lazy_pattern(rf"\b{_FETCH}|\bbase64\s+(?:-\w*[dD]|--decode)")
# A shell that reads its program from the pipe: none that has one of its own (-c, -m, a file).
_RUNS_PIPE: Final = lazy_pattern(
    rf"\s*(?:(?:sudo|env|exec|nohup)\s+(?:-\S+\s+|\w+=\S*\s+)*)?(?:[\w./-]*/)?{_SHELL}"
    r"(?:\s*(?:$|[;&)\"'`}]|\d?>)|\s+-(?!\w*[cem]\b))"
)
_RUNS_FETCHED: Final = lazy_pattern(
    rf"(?:\b{_SHELL}|\bsource|(?:^|[\s;&(])\.)\s+(?:-\S+\s+)*(?:<\s*)?<\(\s*{_FETCH}"
    rf"|(?:\beval|\s-\w*c|<<<)\s+[\"']?(?:\$\(|`)\s*{_FETCH}"
    r"|\b(?:exec|eval)\s*\(.{0,200}?(?:urlopen|requests\.get|httpx\.get)"
)


class NotAllowed(RefusedError, id="rights_not_allowed"):
    """A recipe asks for rights over the machine that the person has not allowed it."""


@lru_cache(64)  # each of its rules asks
def rights_of(preset: Preset) -> Change:
    """The rights that a launch asks for, as pairs of name and value, without what an engine on a Spark needs."""
    options = preset.options
    command = render(preset.command, dict(preset.defaults)).text  # values may hold parts of a command
    code = "\n".join((command, options.entrypoint or "", *map("=".join, preset.env)))
    image = repository(preset.image).lower()
    place = f"{registry_of(image)}/{image.removeprefix(registry_of(image) + '/')}"
    return tuple(
        dict.fromkeys(
            (
                *((("privileged", "true"),) if options.privileged else ()),
                *(("cap_add", each) for each in options.cap_add if not _CAPABILITY.fullmatch(each)),
                *(("devices", each) for each in options.devices if not _DEVICE.fullmatch(_path(each))),
                *(("security_opt", each) for each in options.security_opt if not each.startswith("no-new-privileges")),
                *(
                    (found[1], found[2])
                    for key, value in (*preset.unknown, ("network", options.network), ("ipc", options.ipc))
                    if (found := _NAMESPACE.fullmatch(f"{key.rpartition('.')[2]}={value}"))
                ),
                *(
                    ("volumes", each)
                    for each in preset.mounts
                    if each.startswith(("/", "~")) and not is_system_folder(_path(each))
                ),
                *(("preload", each) for each in re.findall(r"\bLD_(?:PRELOAD|AUDIT)=\S+", code)),
                *(("piped_shell", line) for line in piped_shells(code)),
                *((("image", image),) if not _PUBLISHER.fullmatch(place) else ()),
            )
        )
    )


def _path(text: str) -> str:
    """The machine's side of a device or mount."""
    return posixpath.normpath(re.sub("^/+", "/", text.partition(":")[0]))


def piped_shells(text: str) -> tuple[str, ...]:
    """The lines of a script that give a shell what comes from the network or is hidden in base64."""
    lines = "\n".join(line.strip() for line in text.replace("\\\n", " ").splitlines())
    return tuple(
        line
        for line in lines.replace("|\n", "| ").replace("\n|", " |").splitlines()
        if _RUNS_FETCHED.search(line) or (_SOURCE.search(line) and any(map(_RUNS_PIPE.match, _PIPE.split(line)[1:])))
    )


def fingerprint(preset: Preset) -> str:
    """SHA-256 of all that a launch of the recipe runs: what was allowed is allowed to this alone. The digest that pins
    the image is no part of it."""
    text = json.dumps(
        (
            preset.image.partition("@")[0],
            preset.model,
            preset.runtime,
            preset.command,
            preset.defaults,
            preset.env,
            preset.mounts,
            {key: value for key, value in asdict(preset.options).items() if value},
        )
    )
    return hashlib.sha256(text.encode()).hexdigest()


def findings_of(preset: Preset, scripts: Iterable[str] | None = None) -> tuple[Finding, ...]:
    """What a launch asks for and was allowed, the worst first. With `scripts`, the texts of its mods: for a person who
    reads the recipe, also what a launch refuses or does not run."""
    asked = rights_of(preset)
    if scripts is not None:
        asked += tuple(("mounts", each) for each in preset.mounts if is_system_folder(_path(each)))
        asked += tuple(("script", line) for text in (*preset.hooks, *scripts) for line in piped_shells(text))
    group = {name: "allowed_rights" if name in preset.allowed else _OTHERS.get(name, "takes_host") for name, _ in asked}
    found = ((id_, tuple(each for each in asked if group[each[0]] == id_)) for id_ in _FINDINGS)
    return tuple(_finding(preset, id_, rights) for id_, rights in found if rights)


def _finding(preset: Preset, id_: str, rights: Change) -> Finding:
    severity, summary, remedy = _FINDINGS[id_]
    values = tuple(truncate(clean_line(f"{name}={value}"), 200) for name, value in rights)
    remedy = remedy.format(preset=clean_line(preset.name), rights=" ".join(dict.fromkeys(name for name, _ in rights)))
    return Finding(id_, severity, f"{summary}: {truncate(', '.join(values), 300)}.", values, remedy)


def unallowed(preset: Preset) -> tuple[str, ...]:
    """The names of the rights for which a launch is refused until the person allows them."""
    return tuple(dict.fromkeys(name for name, _ in rights_of(preset) if name not in (*preset.allowed, *_OTHERS)))


def require_allowed(preset: Preset) -> None:
    """Raises NotAllowed for a recipe that takes the machine without the person's word."""
    if unallowed(preset):
        found = findings_of(preset)[0]
        raise NotAllowed(f"{preset.name} was not launched. {found.summary}", found.remedy)
