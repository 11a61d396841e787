"""A sparkrun recipe (version 2) as an eugr recipe (version 1), as far as that one can say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets import vllm_command as vllm
from spark_tui.domain.presets.container_spec import ALL_INTERFACES
from spark_tui.domain.presets.dialects.export_sparkrun import ExportedRecipe
from spark_tui.domain.presets.dialects.nodes import (
    Value,
    is_true,
    scalar,
    sub_table,
    table_of,
    with_value,
    without_keys,
)
from spark_tui.domain.presets.located import Leaf, Node, Table, compact
from spark_tui.domain.presets.preset import Preset, Scalar
from spark_tui.domain.presets.recipe_facts import IMPORTED_KEY, OWN_KEY
from spark_tui.domain.presets.template import parts, render, render_env

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
# What version 2 adds. Other keys are nobody's, and that tool ignores them: they are carried over.
_NOT_EXPRESSIBLE: Final = frozenset(
    ("min_sparkrun_version", "sparkrun_version", "model_revision", "runtime", "runtime_version", "mode", "min_nodes",
     "max_nodes", "containers", "runtime_config", "metadata", "pre_exec", "post_exec", "post_commands",
     "stop_after_post", "builder", "builder_config", "executor", "executor_config", "scheduler",
     "distribution_config", "layout", "cluster_config", "runtime_cache", "readiness", "capabilities",
     "unsupported_capabilities", "include", "overrides")
)  # fmt: skip
# Said by others of its keys, or by nothing that a launch depends on.
_IMPLIED: Final = ("runtime", "mode", "min_nodes", "max_nodes", "metadata", "sparkrun_version", "min_sparkrun_version")
_IN_EXPORT = re.compile(r"""([\\$`"])""")


def to_eugr(preset: Preset, exported: ExportedRecipe) -> ExportedRecipe:
    """The recipe in version 1; `exported` is the preset in version 2. What was changed by an import is put back.

    The notes name what version 1 cannot say. Raises UsageError for a value that its template would need and that the
    recipe leaves open.
    """
    document = exported.document
    before = sub_table(sub_table(sub_table(document, "metadata"), OWN_KEY), IMPORTED_KEY)
    values = _values(preset, document)
    command = _command(preset, document, values)
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
        made["env"] = _env(env.node, values)
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


def _command(preset: Preset, document: Table, values: Mapping[str, Scalar]) -> str:
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
    for key in vllm.KEYS:
        entry, option = defaults.get(key), vllm.option_of(key)
        if entry is None or option is None:
            continue
        if vllm.is_switch(key):
            lines += vllm.with_option((), key, entry.node.value if isinstance(entry.node, Leaf) else None)
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


def _env(node: Node, values: Mapping[str, Scalar]) -> Node:
    """Values as that tool's `export NAME="value"` passes them on untouched."""
    if not isinstance(node, Table):
        return node
    env = node
    for entry in node.entries:
        text = render_env(compact(entry.node), values, {}).text
        escaped = _IN_EXPORT.sub(r"\\\1", text)
        if isinstance(entry.node, Leaf) and isinstance(entry.node.value, str) and escaped != entry.node.value:
            env = with_value(env, entry.key, escaped)
    return env
