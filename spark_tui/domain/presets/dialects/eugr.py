"""eugr recipes (version 1) as sparkrun recipes (version 2): the same launch on one Spark, and nothing dropped."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_tui.domain.engine.container import ALL_INTERFACES
from spark_tui.domain.errors import PresetError, UsageError
from spark_tui.domain.presets.dialects.sparkrun import ExportedRecipe
from spark_tui.domain.presets.dialects.yaml_text import (
    Value,
    is_true,
    scalar,
    sub_table,
    table_of,
    with_value,
    without_keys,
)
from spark_tui.domain.presets.invocation import Invocation
from spark_tui.domain.presets.located import Entry, Leaf, Node, Table, compact, describe
from spark_tui.domain.presets.options import OPTIONS, VLLM_KEYS, spellings
from spark_tui.domain.presets.preset import Preset, Scalar
from spark_tui.domain.presets.recipe import IMPORTED_KEY, OWN_KEY
from spark_tui.domain.presets.template import parts, render, render_env
from spark_tui.domain.secret import is_secret_name
from spark_tui.domain.shell import join_lines
from spark_tui.domain.text import clean_line, truncate

SHARE, GIGABYTES = "gpu_memory_utilization", "gpu_memory_gb"

_BACKEND = re.compile(r"[ \t]*--distributed-executor-backend(?:[ =]|[ \t]*\\\n\s*)(\S+)")
_BARE_LINES = re.compile(r"\n[ \t]*\\?[ \t]*(?=\n)")
_SERVED_MODEL = re.compile(r"\bvllm\s+serve\s+(?:\\\n\s*)?([A-Za-z0-9/~][^\s\\'\"{}]*)")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_IN_EXPORT = re.compile(r"""\\([\\$`"])""")
_SHELL_VARIABLE = re.compile(r"(?<!\\)(?:\$[A-Za-z_{(]|`)")
_OWN_REFERENCE = re.compile(r"\$\{?[A-Za-z_][A-Za-z0-9_]*(?::-)?\}?")
_CLUSTER_FOLDER = re.compile(r"(?:^|[/-])(\d{1,2})x(?:[/-]|$)")
# Names that eugr's build script gives to the images that it builds on the machine.
_BUILT_HERE = re.compile(r"vllm-node(?:-[a-z0-9.-]+)?(?::[\w.-]+)?")
PULLED_INSTEAD: Final = "ghcr.io/spark-arena/dgx-vllm-eugr-nightly:latest"
"""What sparkrun 0.4.2 pulls for `vllm-node`."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A recipe in our dialect, and what was changed on the way, in words."""

    document: Table
    changes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Work:
    """One conversion."""

    document: Table
    file: str
    folder: str
    changes: list[str] = field(default_factory=list)
    before: dict[str, Value] = field(default_factory=dict)
    cautions: list[str] = field(default_factory=list)

    def line(self, key: str) -> int:
        entry = self.document.get(key)
        return entry.node.line if entry else self.document.line

    def error(self, key: str, summary: str, remedy: str) -> PresetError:
        return PresetError(summary, remedy, file=self.file, line=self.line(key))


def from_eugr(document: Table, *, file: str, folder: str = "") -> Converted:
    """The recipe as version 2. `folder` is where it lies within its registry (`recipes/4x-spark-cluster`).

    Raises PresetError, with the line, for what that tool would not run either: a field of `str.format` that is none
    of its placeholders, an unmatched brace, no command.
    """
    work = _Work(document, file, folder)
    command = _command(work)
    defaults = sub_table(document, "defaults")
    command, defaults = _memory_in_gigabytes(work, command, defaults)
    nodes = _nodes(work, defaults)
    if nodes == 1:
        command, defaults = _solo(work, command, defaults)
    made: dict[str, Value] = {"recipe_version": "2"}
    for entry in document.entries:
        match entry.key:
            case "recipe_version":
                continue
            case "command":
                made["command"] = command
            case "defaults":
                made["defaults"] = defaults
            case "env":
                made["env"] = _env(work, sub_table(document, "env"), entry.node)
            case _:
                made[entry.key] = entry.node
    _name_model(work, made, command)
    _note_image(work)
    if nodes > 1:
        made["min_nodes"] = nodes
    converted = _with_own_metadata(table_of(made, document), work)
    return Converted(converted, tuple(work.changes))


# --- command ----------------------------------------------------------------------------------------------


def _command(work: _Work) -> str:
    value = scalar(work.document, "command")
    if not isinstance(value, str) or not value.strip():
        entry = work.document.get("command")
        found = f"; found {describe(entry.node)}" if entry else ""
        raise work.error("command", f"`command` must be text{found}.", "Write for example: command: vllm serve MODEL")
    return command_from_format(value, work)


def command_from_format(command: str, work: _Work) -> str:
    """A template of `str.format` as one of version 2, spelt with single braces where that means the same."""
    pieces = _pieces(command, work)
    names = {name for _, name in pieces if name is not None}
    values: dict[str, Scalar] = {name: f"<{at}>" for at, name in enumerate(sorted(names))}
    meant = "".join(text + ("" if name is None else str(values[name])) for text, name in pieces)
    single = "".join(text + ("" if name is None else f"{{{name}}}") for text, name in pieces)
    # A literal {word} would be taken as a placeholder: then the doubled spelling stays, which version 2 reads too.
    rendered = render(single, {**dict.fromkeys(_every_word(single), "<x>"), **values})
    return single if rendered.text == meant else command


def _every_word(template: str) -> set[str]:
    return set(re.findall(r"\{([^{}\s\"':,]+)\}", template))


def _pieces(command: str, work: _Work) -> list[tuple[str, str | None]]:
    """Text and the placeholder after it, by the rules of `str.format`."""
    pieces: list[tuple[str, str | None]] = []
    try:
        for text, name, form, conversion in string.Formatter().parse(command):
            if name is not None and (_KEY.fullmatch(name) is None or form or conversion):
                shown = truncate(clean_line(name + (f":{form}" if form else "")), 40)
                raise work.error(
                    "command",
                    f"`command` has the braces {{{shown}}}, which name no value.",
                    "Double the braces of JSON: {{ and }}.",
                )
            pieces.append((text, name))
    except ValueError as error:
        raise work.error(
            "command", f"`command` has a brace without its other half ({error}).", "Double the braces of JSON: {{ }}."
        ) from None
    return pieces


def _memory_in_gigabytes(work: _Work, command: str, defaults: Table) -> tuple[str, Table]:
    """A mod of that tool takes gigabytes for the share of memory: such a number gets a name of its own."""
    share = scalar(defaults, SHARE)
    if not isinstance(share, (int, float)) or isinstance(share, bool) or share <= 1:
        return command, defaults
    if f"--gpu-memory-utilization-gb {{{SHARE}}}" not in command:
        return command, defaults
    renamed = Table(
        tuple(Entry(GIGABYTES, e.line, e.node) if e.key == SHARE else e for e in defaults.entries), defaults.line
    )
    work.before["renamed"] = {GIGABYTES: SHARE}
    work.changes.append(f"{SHARE} is a number of gigabytes here: it is called {GIGABYTES}.")
    return command.replace(f"{{{SHARE}}}", f"{{{GIGABYTES}}}"), renamed


# --- one Spark or several ---------------------------------------------------------------------------------


def _nodes(work: _Work, defaults: Table) -> int:
    """How many Sparks it needs: a recipe that may run solo does, unless its parallelism says more than two."""
    if is_true(work.document, "solo_only"):
        return 1
    ways = _count(defaults, "tensor_parallel") * _count(defaults, "pipeline_parallel")
    folder = _CLUSTER_FOLDER.search(work.folder)
    if is_true(work.document, "cluster_only"):
        return max(2, ways, int(folder[1]) if folder else 0)
    if folder and int(folder[1]) > 1:
        return max(int(folder[1]), ways)
    return ways if ways > 2 else 1


def _count(defaults: Table, key: str) -> int:
    value = scalar(defaults, key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 64 else 1


def _solo(work: _Work, command: str, defaults: Table) -> tuple[str, Table]:
    """eugr's solo mode: one-way tensor parallelism, and no executor for several machines."""
    ways = _count(defaults, "tensor_parallel")
    if ways > 1:
        work.before["tensor_parallel"] = ways
        work.changes.append(f"tensor_parallel is 1 instead of {ways}, as in eugr's solo mode.")
        defaults = with_value(defaults, "tensor_parallel", 1)
    found = _BACKEND.search(command)
    if found is None:
        return command, defaults
    work.before["executor_backend"] = found[1]
    work.changes.append(f"{' '.join(found[0].split())} is for a cluster: left out, as in eugr's solo mode.")
    return _BARE_LINES.sub("", _BACKEND.sub("", command)), defaults


# --- environment, model, image ----------------------------------------------------------------------------


def _env(work: _Work, env: Table, node: Node) -> Node:
    """Literal, where eugr's shell would have filled in variables; keys that come from the shell are left to us."""
    if not isinstance(node, Table):
        return node
    kept = env
    for entry in env.entries:
        text = compact(entry.node)
        if is_secret_name(entry.key) and _OWN_REFERENCE.fullmatch(text):
            kept = without_keys(kept, entry.key)
            work.changes.append(f"env.{entry.key} comes from spark-tui's private file, not from the shell.")
        elif _SHELL_VARIABLE.search(text):
            said = f"env.{entry.key} holds a variable of the shell, which is not filled in here."
            work.changes.append(said)
            work.cautions.append(f"{said} Write its value out.")
        elif "\\" in text:
            # eugr writes `export NAME="value"` into a script: a backslash hides what means something there.
            kept = with_value(kept, entry.key, _IN_EXPORT.sub(r"\1", text))
    return kept


def _name_model(work: _Work, made: dict[str, Value], command: str) -> None:
    if work.document.get("model") is not None:
        return
    found = _SERVED_MODEL.search(join_lines(command))
    if found is None:
        raise work.error("command", "`model` is missing, and the command names none.", "Add: model: OWNER/NAME")
    made["model"] = found[1]
    work.before["model"] = None
    work.changes.append(f"model is {found[1]}, from the command.")


def _note_image(work: _Work) -> None:
    image = scalar(work.document, "container")
    if isinstance(image, str) and _BUILT_HERE.fullmatch(image):
        arguments = work.document.get("build_args")
        how = f" ({compact(arguments.node)})" if arguments else ""
        said = f"{image} is built on the machine by eugr's build-and-copy.sh{how}; no registry has it."
        work.cautions.append(f"{truncate(clean_line(said), 300)} A ready one for plain vllm-node: {PULLED_INSTEAD}")


def _with_own_metadata(document: Table, work: _Work) -> Table:
    metadata = sub_table(document, "metadata")
    own = sub_table(metadata, OWN_KEY)
    if work.cautions:
        own = with_value(own, "cautions", work.cautions)
    own = with_value(own, IMPORTED_KEY, {"dialect": "eugr", "version": "1", **work.before})
    return with_value(document, "metadata", with_value(metadata, OWN_KEY, own))


# What sparkrun's launcher fills in by itself where a recipe is silent, and eugr's does not.
_LAUNCHER_VALUES: Final[Mapping[str, Scalar]] = {
    "host": ALL_INTERFACES,
    "port": 8000,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "gpu_memory_utilization": 0.8,
}
# What version 1 knows, in the order in which its recipes are written.
_OWN: Final = ("recipe_version", "name", "description", "model", "container", "cluster_only", "solo_only",
               "build_args", "mods", "defaults", "env", "command", "benchmark")  # fmt: skip
# What version 2 adds. Other keys are ignored by that tool: they are carried over.
_NOT_EXPRESSIBLE: Final = frozenset(
    ("min_sparkrun_version", "sparkrun_version", "model_revision", "runtime", "runtime_version", "mode", "min_nodes",
     "max_nodes", "containers", "runtime_config", "metadata", "pre_exec", "post_exec", "post_commands",
     "stop_after_post", "builder", "builder_config", "executor", "executor_config", "scheduler",
     "distribution_config", "layout", "cluster_config", "runtime_cache", "readiness", "capabilities",
     "unsupported_capabilities", "include", "overrides")
)  # fmt: skip
# Said by others of its keys, or by nothing that a launch depends on.
_IMPLIED: Final = ("runtime", "mode", "min_nodes", "max_nodes", "metadata", "sparkrun_version", "min_sparkrun_version")
_EXPORT_EUGR_IN_EXPORT = re.compile(r"""([\\$`"])""")


def to_eugr(preset: Preset, exported: ExportedRecipe) -> ExportedRecipe:
    """The recipe in version 1; `exported` is the preset in version 2. What was changed by an import is put back.

    The notes name what version 1 cannot say. Raises UsageError for a value that its template would need and that the
    recipe leaves open.
    """
    document = exported.document
    before = sub_table(sub_table(sub_table(document, "metadata"), OWN_KEY), IMPORTED_KEY)
    values = _values(preset, document)
    command = _export_eugr_command(preset, document, values)
    defaults = _defaults(document, values, command)
    command, defaults = _as_before(before, command, defaults)
    made: dict[str, Value] = {
        "recipe_version": "1",
        "name": _or(scalar(document, "name"), preset.facts.title or preset.name),
        "description": _or(scalar(document, "description"), preset.facts.description),
        "model": preset.model,
        "container": preset.image,
        "defaults": defaults,
        "command": command,
    }
    if (env := document.get("env")) is not None:
        made["env"] = _export_eugr_env(env.node, values)
    if preset.min_nodes > 1 and not is_true(document, "cluster_only") and not before.entries:
        made["cluster_only"] = True
    carried = {e.key: e.node for e in document.entries if e.key not in made and e.key not in _NOT_EXPRESSIBLE}
    everything = {**made, **carried}
    if "model" in _keys(before):
        del everything["model"]
    ordered = [key for key in _OWN if everything.get(key) not in (None, "")]
    others = [key for key in carried if key not in _OWN]
    return ExportedRecipe(
        table_of({key: everything[key] for key in (*ordered, *others)}), (*exported.notes, *_lost(document))
    )


def _or(value: Scalar, otherwise: str) -> Scalar:
    return value if value not in (None, "") else otherwise


def _keys(table: Table) -> set[str]:
    return {entry.key for entry in table.entries}


def _lost(document: Table) -> tuple[str, ...]:
    lost = [e.key for e in document.entries if e.key in _NOT_EXPRESSIBLE and e.key not in _IMPLIED]
    return (f"Version 1 has no word for: {', '.join(lost)}.",) if lost else ()


def _values(preset: Preset, document: Table) -> dict[str, Scalar]:
    """Every template value as text of its own: that tool does not look for names within values."""
    own = {
        e.key: e.node.value if isinstance(e.node, Leaf) else compact(e.node)
        for e in sub_table(document, "defaults").entries
    }
    inlined: dict[str, Scalar] = {"model": preset.model, "resolved_model_path": preset.model}
    if preset.model_revision:
        inlined["model_revision"] = preset.model_revision
    known: dict[str, Scalar] = {
        **_LAUNCHER_VALUES,
        **{key: value for key, value in own.items() if value is not None},
        **inlined,
    }
    return {k: render(f"{{{k}}}", known).text if isinstance(v, str) and "{" in v else v for k, v in known.items()}


# --- command ----------------------------------------------------------------------------------------------


def _export_eugr_command(preset: Preset, document: Table, values: Mapping[str, Scalar]) -> str:
    stated = scalar(document, "command")
    if preset.facts.runs_as_is:
        raise UsageError(
            "This image starts its server by itself, and an eugr recipe needs a command.", "Export it as docker-run."
        )
    template = stated if isinstance(stated, str) and stated.strip() else _built(document)
    inlined = ("model", "resolved_model_path", "model_revision")
    out: list[str] = []
    for text, placeholder in parts(template):
        key = text[1:-1]
        if placeholder and key in values:
            out.append(_doubled(str(values[key])) if key in inlined else text)
        elif placeholder and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", key):
            raise UsageError(
                f"The command needs a value for {key}, and the recipe has none.", f"Give it: --set {key}=..."
            )
        else:
            out.append(_doubled(text))
    return "".join(out)


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _built(document: Table) -> str:
    """vLLM's command from the values alone, each option on a line."""
    lines = ["vllm serve {model}"]
    defaults = sub_table(document, "defaults")
    for key in VLLM_KEYS:
        entry, option = defaults.get(key), spellings(key, "vllm")[0]
        if entry is None:
            continue
        if OPTIONS[key].switch:
            value = entry.node.value if isinstance(entry.node, Leaf) else None
            lines += Invocation().with_option(key, value).words
        else:
            lines.append(f"{option} '{{{key}}}'" if "{" in compact(entry.node) else f"{option} {{{key}}}")
    return " \\\n  ".join(lines) + "\n"


def _defaults(document: Table, values: Mapping[str, Scalar], command: str) -> Table:
    """The recipe's own values, and ours for those that its command names and that it leaves to the launcher."""
    defaults = sub_table(document, "defaults")
    for entry in defaults.entries:
        node, text = entry.node, values.get(entry.key)
        if isinstance(node, Leaf) and isinstance(node.value, str) and text != node.value:
            defaults = with_value(defaults, entry.key, text)
        elif not isinstance(node, Leaf):
            defaults = with_value(defaults, entry.key, compact(node))
    for key, value in _LAUNCHER_VALUES.items():
        if defaults.get(key) is None and f"{{{key}}}" in command:
            defaults = with_value(defaults, key, value)
    return defaults


def _as_before(before: Table, command: str, defaults: Table) -> tuple[str, Table]:
    """What the import changed, as it was: names of values, parallelism over two machines, the executor."""
    for entry in sub_table(before, "renamed").entries:
        earlier, node = compact(entry.node), defaults.get(entry.key)
        command = command.replace(f"{{{entry.key}}}", f"{{{earlier}}}")
        if node is not None:
            defaults = with_value(without_keys(defaults, entry.key), earlier, node.node)
    ways = scalar(before, "tensor_parallel")
    if ways is not None and scalar(defaults, "tensor_parallel") == 1:
        defaults = with_value(defaults, "tensor_parallel", ways)
    backend = scalar(before, "executor_backend")
    if backend is not None:
        command = f"{command.rstrip()} \\\n  --distributed-executor-backend {backend}\n"
    return command, defaults


def _export_eugr_env(node: Node, values: Mapping[str, Scalar]) -> Node:
    """Values as that tool's `export NAME="value"` passes them on untouched."""
    if not isinstance(node, Table):
        return node
    env = node
    for entry in node.entries:
        text = render_env(compact(entry.node), values, {}).text
        escaped = _EXPORT_EUGR_IN_EXPORT.sub(r"\\\1", text)
        if isinstance(entry.node, Leaf) and isinstance(entry.node.value, str) and escaped != entry.node.value:
            env = with_value(env, entry.key, escaped)
    return env
