"""Recipes of other tools: presets as sparkrun recipes (version 2), and eugr's recipes (version 1), read and written.

eugr's become the same launch on one Spark, with nothing dropped; what an import changed is put back by the export.
"""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.domain.engine.container import ALL_INTERFACES
from spark_tui.domain.errors import PresetError, UsageError
from spark_tui.domain.presets.command import (
    command_of,
    missing_values,
    parts,
    placeholders,
    placeholders_in_value,
    render,
    render_env,
    settled,
)
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
from spark_tui.domain.presets.located import Entry, MappingValue, Node, ScalarValue, compact, describe, masked, plain
from spark_tui.domain.presets.options import OPTIONS, VLLM_KEYS, spellings
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.preset import Preset, Scalar
from spark_tui.domain.presets.recipe import IMPORTED_KEY, OWN_KEY
from spark_tui.domain.secret import SECRET_MASK, is_secret_name
from spark_tui.domain.shell import join_lines, shell_construct
from spark_tui.domain.text import clean_line, truncate

SHARE, GIGABYTES = "gpu_memory_utilization", "gpu_memory_gb"
PULLED_INSTEAD: Final = "ghcr.io/spark-arena/dgx-vllm-eugr-nightly:latest"
"""What sparkrun 0.4.2 pulls for `vllm-node`."""

_BACKEND = re.compile(r"[ \t]*--distributed-executor-backend(?:[ =]|[ \t]*\\\n\s*)(\S+)")
_BARE_LINES = re.compile(r"\n[ \t]*\\?[ \t]*(?=\n)")
_SERVED_MODEL = re.compile(r"\bvllm\s+serve\s+(?:\\\n\s*)?([A-Za-z0-9/~][^\s\\'\"{}]*)")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_PLACEHOLDER = re.compile(rf"\{{{_KEY.pattern}\}}")
_JSON_OBJECT = re.compile(r'\{\s*"[^"\n]*"\s*:')
_SPECIAL_IN_EXPORT = re.compile(r"""([\\$`"])""")
_ESCAPED_IN_EXPORT = re.compile(r"""\\([\\$`"])""")
_SHELL_VARIABLE = re.compile(r"(?<!\\)(?:\$[A-Za-z_{(]|`)")
_OWN_REFERENCE = re.compile(r"\$\{?[A-Za-z_][A-Za-z0-9_]*(?::-)?\}?")
_CLUSTER_FOLDER = re.compile(r"(?:^|[/-])(\d{1,2})x(?:[/-]|$)")
# Names that eugr's build script gives to the images that it builds on the machine.
_BUILT_HERE = re.compile(r"vllm-node(?:-[a-z0-9.-]+)?(?::[\w.-]+)?")

# What sparkrun's launcher fills in by itself where a recipe is silent, and eugr's does not.
_LAUNCHER_VALUES: Final[Mapping[str, Scalar]] = {
    "host": ALL_INTERFACES,
    "port": 8000,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "gpu_memory_utilization": 0.8,
}
# What version 1 knows, in the order in which its recipes are written.
_VERSION_1: Final = (
    "recipe_version", "name", "description", "model", "container", "cluster_only", "solo_only",
    "build_args", "mods", "defaults", "env", "command", "benchmark",
)  # fmt: skip
# What version 2 adds. Other keys are ignored by that tool: they are carried over.
_VERSION_2: Final = frozenset(
    ("min_sparkrun_version", "sparkrun_version", "model_revision", "runtime", "runtime_version", "mode", "min_nodes",
     "max_nodes", "containers", "runtime_config", "metadata", "pre_exec", "post_exec", "post_commands",
     "stop_after_post", "builder", "builder_config", "executor", "executor_config", "scheduler",
     "distribution_config", "layout", "cluster_config", "runtime_cache", "readiness", "capabilities",
     "unsupported_capabilities", "include", "overrides")
)  # fmt: skip
# Said by others of its keys, or by nothing that a launch depends on.
_IMPLIED: Final = ("runtime", "mode", "min_nodes", "max_nodes", "metadata", "sparkrun_version", "min_sparkrun_version")


# --- to sparkrun ------------------------------------------------------------------------------------------


class ExportedRecipe(Struct, frozen=True):
    """A recipe for another tool, and what a person should know about it."""

    document: MappingValue
    notes: tuple[str, ...] = ()


def to_sparkrun(preset: Preset, recipe: MappingValue, overrides: Overrides) -> ExportedRecipe:
    """The preset's recipe, every key of its own file kept, with one launch's changes in their places. `recipe` is its
    file, as it is written.

    Raises UsageError for a change that a recipe has no place for, and what planning the launch would raise.
    """
    if overrides != Overrides():
        # The same errors as a launch for changes that cannot be; what the recipe leaves open stays open.
        opened = tuple((key, "x") for key in missing_values(preset))
        whole = replace(preset, defaults=(*preset.defaults, *opened))
        command_of(whole, overrides, preset.model)
        overrides = settled(whole, overrides, preset.model)
    if overrides.without:
        raise UsageError("A recipe file cannot remove options from its command.", f"Edit a copy of {preset.file}.")
    document = _with_changes(preset, recipe, overrides)
    if overrides.extra_env:
        env = sub_table(document, "env")
        for name, text in overrides.extra_env:
            env = with_value(env, name, text)
        document = with_value(document, "env", env)
    notes = []
    if overrides.api_key or overrides.name or overrides.exposure.value != "local":
        notes.append(
            "Who may reach the port, its API key and the container's name are said at launch: not in a recipe."
        )
    hidden = masked("", document)
    if isinstance(hidden, MappingValue) and plain(hidden) != plain(document):
        document = hidden
        notes.append(f"Keys and tokens are left out: {SECRET_MASK} marks their places.")
    return ExportedRecipe(document, tuple(notes))


def _with_changes(preset: Preset, document: MappingValue, overrides: Overrides) -> MappingValue:
    changes = dict(overrides.template_values())
    if overrides.port is not None:
        changes["port"] = overrides.port
    if changes:
        defaults = sub_table(document, "defaults")
        for key, value in changes.items():
            defaults = with_value(defaults, key, value)
        document = with_value(document, "defaults", defaults)
    command = scalar(document, "command")
    template = command if isinstance(command, str) else ""
    if not template and overrides.extra_args:
        raise UsageError(
            "`extra_args` have no place in this recipe: it has no command of its own.",
            "Set them by name instead: KEY=VALUE",
        )
    # Options for what the template has no placeholder for; of one that comes twice vLLM takes the last.
    inner = (key for _, value in preset.defaults for key in placeholders_in_value(value))
    named = {*placeholders(template), *inner}
    words: list[str] = []
    for key, value in changes.items():
        option = next(iter(spellings(key, "vllm")), "")
        if key in named or not option:
            continue
        if OPTIONS[key].switch:
            words += Invocation().with_option(key, value).words
        else:
            words += [option, f"'{{{key}}}'" if set(str(value)) & set(' {}"') else f"{{{key}}}"]
    # A word for the shell, with its braces spelt as the template spells its own.
    words += [_doubled(shlex.quote(word)) if "{{" in template else shlex.quote(word) for word in overrides.extra_args]
    if not template or not words:
        return document
    if shell_construct(join_lines(template)):
        raise UsageError(
            "The preset's command is a shell script, with no place for further options.",
            f"Edit a copy of {preset.file}.",
        )
    return with_value(document, "command", template.rstrip().rstrip("\\").rstrip() + f" \\\n  {' '.join(words)}\n")


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


# --- from eugr --------------------------------------------------------------------------------------------


class ConvertedRecipe(Struct, frozen=True):
    """A recipe in our dialect, and what was changed on the way, in words. `name` is what a container that has no file
    is called, or its model."""

    document: MappingValue
    changes: tuple[str, ...] = ()
    name: str = ""


def from_eugr(document: MappingValue, *, file: str, folder: str = "") -> ConvertedRecipe:
    """The recipe as version 2. `folder` is where it lies within its registry (`recipes/4x-spark-cluster`).

    Raises PresetError, with the line, for what that tool would not run either: a field of `str.format` that is none
    of its placeholders, an unmatched brace, no command.
    """
    return _EugrImport(document, file).converted(folder)


class _EugrImport:
    """One conversion. `before` is what the export puts back."""

    def __init__(self, document: MappingValue, file: str) -> None:
        self.document = document
        self.file = file
        self.changes: list[str] = []
        self.cautions: list[str] = []
        self.before: dict[str, Value] = {}
        self.defaults = sub_table(document, "defaults")
        self.command = self._command()

    def error(self, summary: str, remedy: str) -> PresetError:
        """For what is wrong with the command, with its line."""
        entry = self.document.get("command")
        line = entry.node.line if entry else self.document.line
        return PresetError(summary, remedy, file=self.file, line=line)

    def converted(self, folder: str) -> ConvertedRecipe:
        """The whole recipe."""
        document = self.document
        self._memory_in_gigabytes()
        nodes = self._nodes(folder)
        if nodes == 1:
            self._solo()
        self._executor(nodes)
        made: dict[str, Value] = {"recipe_version": "2"}
        for entry in document.entries:
            if entry.key != "recipe_version":
                made[entry.key] = entry.node
        made["command"] = self.command
        if "defaults" in made:
            made["defaults"] = self.defaults
        if "env" in made:
            made["env"] = self._env(made["env"])
        if document.get("model") is None:
            found = _SERVED_MODEL.search(join_lines(self.command))
            if found is None:
                raise self.error("`model` is missing, and the command names none.", "Add: model: OWNER/NAME")
            made["model"] = found[1]
            self.before["model"] = None
            self.changes.append(f"model is {found[1]}, from the command.")
        image = scalar(document, "container")
        if isinstance(image, str) and _BUILT_HERE.fullmatch(image):
            arguments = document.get("build_args")
            how = f" ({compact(arguments.node)})" if arguments else ""
            said = f"{image} is built on the machine by eugr's build-and-copy.sh{how}; no registry has it."
            self.cautions.append(f"{truncate(clean_line(said), 300)} A ready one for plain vllm-node: {PULLED_INSTEAD}")
        if nodes > 1:
            made["min_nodes"] = nodes
        table = table_of(made, document)
        metadata = sub_table(table, "metadata")
        own = sub_table(metadata, OWN_KEY)
        if self.cautions:
            own = with_value(own, "cautions", self.cautions)
        own = with_value(own, IMPORTED_KEY, {"dialect": "eugr", "version": "1", **self.before})
        table = with_value(table, "metadata", with_value(metadata, OWN_KEY, own))
        return ConvertedRecipe(table, tuple(self.changes))

    def _command(self) -> str:
        """The template of `str.format` as one of version 2, with single braces where that means the same."""
        value, entry = scalar(self.document, "command"), self.document.get("command")
        if not isinstance(value, str) or not value.strip():
            found = f"; found {describe(entry.node)}" if entry else ""
            raise self.error(f"`command` must be text{found}.", "Write for example: command: vllm serve MODEL")
        written, value = value, with_json_doubled(value)
        if value != written:
            self.changes.append("Single braces around JSON in the command are text, as if they were doubled.")
        pieces: list[tuple[str, str | None]] = []
        try:
            for text, name, form, conversion in string.Formatter().parse(value):
                if name is not None and (_KEY.fullmatch(name) is None or form or conversion):
                    shown = truncate(clean_line(name + (f":{form}" if form else "")), 40)
                    raise self.error(
                        f"`command` has the braces {{{shown}}}, which name no value.",
                        "Double the braces of JSON: {{ and }}.",
                    )
                pieces.append((text, name))
        except ValueError as error:
            raise self.error(
                f"`command` has a brace without its other half ({error}).", "Double the braces of JSON: {{ }}."
            ) from None
        names = sorted({name for _, name in pieces if name is not None})
        values: dict[str, Scalar] = {name: f"<{at}>" for at, name in enumerate(names)}
        meant = "".join(text + ("" if name is None else str(values[name])) for text, name in pieces)
        single = "".join(text + ("" if name is None else f"{{{name}}}") for text, name in pieces)
        # A literal {word} would be taken as a placeholder: then the doubled spelling stays, which version 2 reads too.
        every_word = re.findall(r"\{([^{}\s\"':,]+)\}", single)
        return single if render(single, {**dict.fromkeys(every_word, "<x>"), **values}).text == meant else value

    def _memory_in_gigabytes(self) -> None:
        """A mod of that tool takes gigabytes for the share of memory: such a number gets a name of its own."""
        share = scalar(self.defaults, SHARE)
        if not isinstance(share, (int, float)) or isinstance(share, bool) or share <= 1:
            return
        if f"--gpu-memory-utilization-gb {{{SHARE}}}" not in self.command:
            return
        entries = (Entry(GIGABYTES, e.line, e.node) if e.key == SHARE else e for e in self.defaults.entries)
        self.defaults = MappingValue(tuple(entries), self.defaults.line)
        self.command = self.command.replace(f"{{{SHARE}}}", f"{{{GIGABYTES}}}")
        self.before["renamed"] = {GIGABYTES: SHARE}
        self.changes.append(f"{SHARE} is a number of gigabytes here: it is called {GIGABYTES}.")

    def _nodes(self, folder: str) -> int:
        """How many Sparks it needs: a recipe that may run solo does, unless its parallelism says more than two."""
        if is_true(self.document, "solo_only"):
            return 1
        ways = _ways(self.defaults, "tensor_parallel") * _ways(self.defaults, "pipeline_parallel")
        named = _CLUSTER_FOLDER.search(folder)
        machines = int(named[1]) if named else 0
        if is_true(self.document, "cluster_only"):
            return max(2, ways, machines)
        if machines > 1:
            return max(machines, ways)
        return ways if ways > 2 else 1

    def _solo(self) -> None:
        """eugr's solo mode: one-way tensor parallelism."""
        ways = _ways(self.defaults, "tensor_parallel")
        if ways > 1:
            self.before["tensor_parallel"] = ways
            self.changes.append(f"tensor_parallel is 1 instead of {ways}, as in eugr's solo mode.")
            self.defaults = with_value(self.defaults, "tensor_parallel", 1)

    def _executor(self, nodes: int) -> None:
        """No executor: solo mode has none, and for several machines eugr's launcher replaces it by vLLM's own."""
        if found := _BACKEND.search(self.command):
            self.before["executor_backend"] = found[1]
            why = "is for a cluster: left out, as in eugr's solo mode" if nodes == 1 else "is left out, as eugr does"
            self.changes.append(f"{' '.join(found[0].split())} {why}.")
            rest = _BARE_LINES.sub("", _BACKEND.sub("", self.command)).rstrip().removesuffix("\\")
            self.command = rest.rstrip() + "\n"

    def _env(self, env: Value) -> Value:
        """Literal, where eugr's shell would have filled in variables; keys that come from the shell are left out."""
        if not isinstance(env, MappingValue):
            return env
        kept = env
        for entry in env.entries:
            text = compact(entry.node)
            if is_secret_name(entry.key) and _OWN_REFERENCE.fullmatch(text):
                kept = without_keys(kept, entry.key)
                self.changes.append(f"env.{entry.key} comes from spark-tui's private file, not from the shell.")
            elif _SHELL_VARIABLE.search(text):
                said = f"env.{entry.key} holds a variable of the shell, which is not filled in here."
                self.changes.append(said)
                self.cautions.append(f"{said} Write its value out.")
            elif "\\" in text:
                # eugr writes `export NAME="value"` into a script: a backslash hides what means something there.
                kept = with_value(kept, entry.key, _ESCAPED_IN_EXPORT.sub(r"\1", text))
        return kept


def with_json_doubled(template: str) -> str:
    """A template of `str.format` whose JSON objects with single braces (`{"a": 1}`) have doubled ones. Placeholders
    within them stay; a template with an open object stays as it is."""
    out: list[str] = []
    depth = at = 0
    while at < len(template):
        piece = template[at]
        if placeholder := _PLACEHOLDER.match(template, at):
            out.append(piece := placeholder[0])
        elif depth == 0 and template[at : at + 2] in ("{{", "}}"):
            out.append(piece := template[at : at + 2])
        elif piece == "{" and (depth or _JSON_OBJECT.match(template, at)):
            depth += 1
            out.append("{{")
        elif piece == "}" and depth:
            depth -= 1
            out.append("}}")
        else:
            out.append(piece)
        at += len(piece)
    return template if depth else "".join(out)


def _ways(defaults: MappingValue, key: str) -> int:
    value = scalar(defaults, key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 64 else 1


# --- to eugr ----------------------------------------------------------------------------------------------


def to_eugr(preset: Preset, exported: ExportedRecipe) -> ExportedRecipe:
    """The recipe in version 1; `exported` is the preset in version 2. What was changed by an import is put back.

    The notes name what version 1 cannot say. Raises UsageError for a value that its template would need and that the
    recipe leaves open.
    """
    document = exported.document
    before = sub_table(sub_table(sub_table(document, "metadata"), OWN_KEY), IMPORTED_KEY)
    values = _template_values(preset, document)
    command = _eugr_command(preset, document, values)
    command, defaults = _as_before(before, command, _eugr_defaults(document, values, command))
    made: dict[str, Value] = {
        "recipe_version": "1",
        "name": scalar(document, "name") or preset.facts.title or preset.name,
        "description": scalar(document, "description") or preset.facts.description,
        "model": preset.model,
        "container": preset.image,
        "defaults": defaults,
        "command": command,
    }
    if (env := document.get("env")) is not None:
        made["env"] = _eugr_env(env.node, values)
    if preset.min_nodes > 1 and not is_true(document, "cluster_only") and not before.entries:
        made["cluster_only"] = True
    carried = {e.key: e.node for e in document.entries if e.key not in made and e.key not in _VERSION_2}
    everything = {**made, **carried}
    if any(entry.key == "model" for entry in before.entries):
        del everything["model"]
    ordered = [key for key in _VERSION_1 if everything.get(key) not in (None, "")]
    others = [key for key in carried if key not in _VERSION_1]
    lost = [e.key for e in document.entries if e.key in _VERSION_2 and e.key not in _IMPLIED]
    notes = (*exported.notes, f"Version 1 has no word for: {', '.join(lost)}.") if lost else exported.notes
    return ExportedRecipe(table_of({key: everything[key] for key in (*ordered, *others)}), notes)


def _template_values(preset: Preset, document: MappingValue) -> dict[str, Scalar]:
    """Every template value as text of its own: that tool does not look for names within values."""
    known = dict(_LAUNCHER_VALUES)
    for entry in sub_table(document, "defaults").entries:
        value = entry.node.value if isinstance(entry.node, ScalarValue) else compact(entry.node)
        if value is not None:
            known[entry.key] = value
    known |= {"model": preset.model, "resolved_model_path": preset.model}
    if preset.model_revision:
        known["model_revision"] = preset.model_revision
    return {k: render(f"{{{k}}}", known).text if isinstance(v, str) and "{" in v else v for k, v in known.items()}


def _eugr_command(preset: Preset, document: MappingValue, values: Mapping[str, Scalar]) -> str:
    if preset.facts.runs_as_is:
        raise UsageError(
            "This image starts its server by itself, and an eugr recipe needs a command.", "Export it as docker-run."
        )
    template = scalar(document, "command")
    if not isinstance(template, str) or not template.strip():
        template = _command_from_values(document)
    out: list[str] = []
    for text, placeholder in parts(template):
        key = text[1:-1]
        if placeholder and key in values:
            inlined = key in ("model", "resolved_model_path", "model_revision")
            out.append(_doubled(str(values[key])) if inlined else text)
        elif placeholder and _KEY.fullmatch(key):
            raise UsageError(f"The command needs a value for {key}, and the recipe has none.", f"Set it: {key}=...")
        else:
            out.append(_doubled(text))
    return "".join(out)


def _command_from_values(document: MappingValue) -> str:
    """vLLM's command from the values alone, each option on a line."""
    lines = ["vllm serve {model}"]
    defaults = sub_table(document, "defaults")
    for key in VLLM_KEYS:
        entry, option = defaults.get(key), spellings(key, "vllm")[0]
        if entry is None:
            continue
        if OPTIONS[key].switch:
            value = entry.node.value if isinstance(entry.node, ScalarValue) else None
            lines += Invocation().with_option(key, value).words
        else:
            lines.append(f"{option} '{{{key}}}'" if "{" in compact(entry.node) else f"{option} {{{key}}}")
    return " \\\n  ".join(lines) + "\n"


def _eugr_defaults(document: MappingValue, values: Mapping[str, Scalar], command: str) -> MappingValue:
    """The recipe's own values, and ours for those that its command names and that it leaves to the launcher."""
    defaults = sub_table(document, "defaults")
    for entry in defaults.entries:
        node, text = entry.node, values.get(entry.key)
        if not isinstance(node, ScalarValue):
            defaults = with_value(defaults, entry.key, compact(node))
        elif isinstance(node.value, str) and text != node.value:
            defaults = with_value(defaults, entry.key, text)
    for key, value in _LAUNCHER_VALUES.items():
        if defaults.get(key) is None and f"{{{key}}}" in command:
            defaults = with_value(defaults, key, value)
    return defaults


def _as_before(before: MappingValue, command: str, defaults: MappingValue) -> tuple[str, MappingValue]:
    """What the import changed, as it was: names of values, parallelism over two machines, the executor."""
    for entry in sub_table(before, "renamed").entries:
        earlier, node = compact(entry.node), defaults.get(entry.key)
        command = command.replace(f"{{{entry.key}}}", f"{{{earlier}}}")
        if node is not None:
            defaults = with_value(without_keys(defaults, entry.key), earlier, node.node)
    ways, backend = scalar(before, "tensor_parallel"), scalar(before, "executor_backend")
    if ways is not None and scalar(defaults, "tensor_parallel") == 1:
        defaults = with_value(defaults, "tensor_parallel", ways)
    if backend is not None:
        command = f"{command.rstrip()} \\\n  --distributed-executor-backend {backend}\n"
    return command, defaults


def _eugr_env(node: Node, values: Mapping[str, Scalar]) -> Node:
    """Values as that tool's `export NAME="value"` passes them on untouched."""
    if not isinstance(node, MappingValue):
        return node
    env = node
    for entry in node.entries:
        escaped = _SPECIAL_IN_EXPORT.sub(r"\\\1", render_env(compact(entry.node), values, {}).text)
        if isinstance(entry.node, ScalarValue) and isinstance(entry.node.value, str) and escaped != entry.node.value:
            env = with_value(env, entry.key, escaped)
    return env
