"""Recipe files of other tools, and their YAML."""

from __future__ import annotations

import math
import re
import shlex
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.engine.container import STORE_TARGET
from spark_tui.base.engine.invocation import OPTIONS, Invocation, spellings
from spark_tui.base.engine.runtimes import Scalar
from spark_tui.base.errors import PresetError, UsageError
from spark_tui.base.secret import SECRET_MASK, is_secret_name
from spark_tui.base.shell import join_lines, shell_construct
from spark_tui.base.text import clean_line, lazy_pattern, truncate
from spark_tui.catalog.presets.model.command import (
    command_of,
    missing_values,
    placeholders,
    placeholders_in_value,
    render,
    settled,
)
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import (
    Entry,
    ListValue,
    MappingValue,
    Node,
    Preset,
    ScalarValue,
    compact,
    describe,
    masked,
    plain,
)
from spark_tui.catalog.presets.model.recipe import IMPORTED_KEY, OWN_KEY

_INDENT: Final = "  "
_PLAIN = lazy_pattern(r"(?:--?)?[A-Za-z_/](?:[A-Za-z0-9_./@+()%=,-]|:(?=[A-Za-z0-9_./@+-])| (?=[A-Za-z0-9_./@+(%=-]))*")
# Words that YAML 1.1 reads as something else than text.
_WORDS: Final = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"))
_READABLE = lazy_pattern("[\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")
_IN_BLOCK = lazy_pattern("[\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff\n]*")
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_MAX_IMPLICIT_KEY: Final = 1000
"""YAML ends a key without its question mark at 1,024 characters."""


def yaml_text(document: Node) -> str:
    """The whole document, with an end of line."""
    if isinstance(document, ScalarValue):
        return _scalar(document.value) + "\n"
    return "".join(f"{line}\n" for line in _lines(document, ""))


def comment(lines: Iterator[str] | tuple[str, ...]) -> str:
    """Lines of comment, cleaned of whatever could end one."""
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def _lines(node: MappingValue | ListValue, indent: str) -> Iterator[str]:
    if isinstance(node, MappingValue):
        if not node.entries:
            yield indent + "{}"
        for entry in node.entries:
            key = _text(entry.key)
            if len(key) > _MAX_IMPLICIT_KEY:
                yield f"{indent}? {key}"
                key = ""
            yield from _after(f"{indent}{key}:", entry.node, indent)
        return
    if not node.items:
        yield indent + "[]"
    for item in node.items:
        yield from _item(item, indent)


def _after(head: str, node: Node, indent: str) -> Iterator[str]:
    """A value after its key or dash: on the same line, or below it."""
    if isinstance(node, ScalarValue):
        if isinstance(node.value, str) and _is_block(node.value):
            yield from _block(head, node.value, indent + _INDENT)
        else:
            yield f"{head} {_scalar(node.value)}"
    elif (node.entries if isinstance(node, MappingValue) else node.items) == ():
        yield f"{head} {'{}' if isinstance(node, MappingValue) else '[]'}"
    else:
        yield head
        yield from _lines(node, indent + _INDENT)


def _item(item: Node, indent: str) -> Iterator[str]:
    if isinstance(item, ScalarValue):
        yield from _after(f"{indent}-", item, indent)
        return
    first, *rest = _lines(item, indent + _INDENT)
    yield f"{indent}- {first[len(indent) + len(_INDENT) :]}"
    yield from rest


def _scalar(value: Scalar) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    return str(value) if isinstance(value, int) else _text(value)


def _float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    if not e:
        return text
    # YAML 1.1 wants a dot before the exponent and a sign within it: 1e-05 would be a text.
    sign = "" if exponent.startswith("-") else "+"
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{sign}{exponent.lstrip('+')}"


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    if _READABLE.fullmatch(text):
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if _READABLE.fullmatch(char):
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_block(text: str) -> bool:
    """Whether a text reads well, and back the same, as a block of lines."""
    body = text.rstrip("\n")
    return "\n" in text and bool(body) and not body.startswith((" ", "\n")) and _IN_BLOCK.fullmatch(text) is not None


def _block(head: str, text: str, indent: str) -> Iterator[str]:
    body = text.rstrip("\n")
    ends = len(text) - len(body)
    yield f"{head} |{'-' if ends == 0 else '' if ends == 1 else '+'}"
    for line in body.split("\n"):
        yield indent + line if line else ""
    for _ in range(ends - 1):
        yield ""


Value: TypeAlias = "Scalar | Node | Sequence[Value] | Mapping[str, Value]"
"""What a node can be made of; nodes that stand in it stay as they are."""

EMPTY: Final = MappingValue((), 0)


def node_of(value: Value, line: int = 0) -> Node:
    """Plain values as a document. `line` is where they stand, as far as they stand anywhere."""
    if isinstance(value, (ScalarValue, ListValue, MappingValue)):
        return value
    if isinstance(value, Mapping):
        return MappingValue(tuple(Entry(key, line, node_of(item, line)) for key, item in value.items()), line)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ListValue(tuple(node_of(item, line) for item in value), line)
    return ScalarValue(value, line)


def table_of(values: Mapping[str, Value], like: MappingValue = EMPTY) -> MappingValue:
    """Plain values as a mapping; a key that `like` has too keeps its line, so that mistakes are found there."""
    lines = {entry.key: (entry.line, entry.node.line) for entry in like.entries}
    found = ((key, *lines.get(key, (0, 0)), item) for key, item in values.items())
    return MappingValue(tuple(Entry(key, line, node_of(item, below)) for key, line, below, item in found), like.line)


def with_value(table: MappingValue, key: str, value: Value) -> MappingValue:
    """The mapping with a key set: in its place, and on its line, where it is there, else at the end."""
    earlier = next((each for each in table.entries if each.key == key), None)
    if earlier is None:
        return MappingValue((*table.entries, Entry(key, table.line, node_of(value, table.line))), table.line)
    entry = Entry(key, earlier.line, node_of(value, earlier.node.line))
    return MappingValue(tuple(entry if each is earlier else each for each in table.entries), table.line)


def without_keys(table: MappingValue, *keys: str) -> MappingValue:
    return MappingValue(tuple(entry for entry in table.entries if entry.key not in keys), table.line)


def sub_table(table: MappingValue, key: str) -> MappingValue:
    """The mapping under a key, an empty one where there is none."""
    entry = table.get(key)
    return entry.node if entry is not None and isinstance(entry.node, MappingValue) else EMPTY


def scalar(table: MappingValue, key: str) -> Scalar:
    """The plain value under a key, None where there is none."""
    entry = table.get(key)
    return entry.node.value if entry is not None and isinstance(entry.node, ScalarValue) else None


def is_true(table: MappingValue, key: str) -> bool:
    return scalar(table, key) is True


# --- recipe files ----------------------------------------------------------------------------------------


SHARE, GIGABYTES = "gpu_memory_utilization", "gpu_memory_gb"
PULLED_INSTEAD: Final = "ghcr.io/spark-arena/dgx-vllm-eugr-nightly:latest"
"""What sparkrun 0.4.2 pulls for `vllm-node`."""

_BACKEND = re.compile(r"[ \t]*--distributed-executor-backend(?:[ =]|[ \t]*\\\n\s*)\S+")
_BARE_LINES = re.compile(r"\n[ \t]*\\?[ \t]*(?=\n)")
_SERVED_MODEL = re.compile(r"\bvllm\s+serve\s+(?:\\\n\s*)?([A-Za-z0-9/~][^\s\\'\"{}]*)")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_PLACEHOLDER = re.compile(rf"\{{{_KEY.pattern}\}}")
_JSON_OBJECT = re.compile(r'\{\s*"[^"\n]*"\s*:')
_ESCAPED_IN_EXPORT = re.compile(r"""\\([\\$`"])""")
_SHELL_VARIABLE = re.compile(r"(?<!\\)(?:\$[A-Za-z_{(]|`)")
_OWN_REFERENCE = re.compile(r"\$\{?[A-Za-z_][A-Za-z0-9_]*(?::-)?\}?")
_CLUSTER_FOLDER = re.compile(r"(?:^|[/-])(\d{1,2})x(?:[/-]|$)")
# Names that eugr's build script gives to the images that it builds on the machine.
_BUILT_HERE = re.compile(r"vllm-node(?:-[a-z0-9.-]+)?(?::[\w.-]+)?")


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
    document = _with_changes(preset, _in_present_words(preset, recipe), overrides)
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


def _in_present_words(preset: Preset, document: MappingValue) -> MappingValue:
    """Without a name, which is the file's, and with a range of nodes for what older recipes say in three other keys
    (sparkrun 0.4: `recipe validate` calls them deprecated)."""
    ranges = ("mode", "solo_only", "cluster_only")
    if not any(document.get(key) for key in ("name", *ranges)):
        return document
    present = without_keys(document, "name", *ranges)
    if not any(document.get(key) for key in ranges):
        return present
    present = with_value(present, "min_nodes", preset.min_nodes)
    return present if preset.max_nodes is None else with_value(present, "max_nodes", preset.max_nodes)


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
    quoted = shlex.join(overrides.extra_args)
    words += [quoted.replace("{", "{{").replace("}", "}}") if "{{" in template else quoted] if quoted else []
    if not template or not words:
        return document
    if shell_construct(join_lines(template)):
        raise UsageError(
            "The preset's command is a shell script, with no place for further options.",
            f"Edit a copy of {preset.file}.",
        )
    return with_value(document, "command", template.rstrip().rstrip("\\").rstrip() + f" \\\n  {' '.join(words)}\n")


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
    """One conversion."""

    def __init__(self, document: MappingValue, file: str) -> None:
        self.document = document
        self.file = file
        self.changes: list[str] = []
        self.cautions: list[str] = []
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
        own = with_value(own, IMPORTED_KEY, {"dialect": "eugr", "version": "1"})
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
            self.changes.append(f"tensor_parallel is 1 instead of {ways}, as in eugr's solo mode.")
            self.defaults = with_value(self.defaults, "tensor_parallel", 1)

    def _executor(self, nodes: int) -> None:
        """No executor: solo mode has none, and for several machines eugr's launcher replaces it by vLLM's own."""
        if found := _BACKEND.search(self.command):
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


_CACHE_THERE: Final = "/cache/huggingface/"
"""Where sparkrun mounts the Hub's cache."""
_SNAPSHOT_SERVED = re.compile(
    rf"(\bserve\s+(?:\\\n\s*)?|--model(?:-path)?(?:=|\s+)){_CACHE_THERE}hub/models--([^/\s]+?)--([^/\s]+)/snapshots/"
    r"([0-9a-f]{7,40})/?(?=\s|\Z)"
)


def with_store(text: str) -> tuple[str, tuple[str, ...]]:
    """A sparkrun recipe's text with the paths of its mounted cache as they are here, and what was changed: a snapshot
    that is served is named as on the Hub, with its revision; anything else lies in the model store."""
    named = _SNAPSHOT_SERVED.sub(r"\1\2/\3 --revision \4", text)
    placed = named.replace(_CACHE_THERE, f"{STORE_TARGET}/")
    said = ("The snapshot that it serves is named as on the Hub, with --revision.",) if named != text else ()
    return placed, (*said, f"{_CACHE_THERE} is {STORE_TARGET}/ here.") if placed != named else said


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
