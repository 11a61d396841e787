"""YAML from outside as PyYAML's nodes, with bounds on what a text can cost.

Nothing is composed before its events have been counted: `compose` recurses, and an alias stands for more than it is.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from spark_tui.base.text import clean_line, truncate

MAX_DEPTH: Final = 24
MAX_NODES: Final = 20_000
"""Counted with aliases expanded. The largest published recipe has some hundred."""
_MAX_NUMBER: Final = 400
"""Characters. The time to read a number grows with the square of its length."""
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class YamlProblem(ValueError):
    """Why a text is not used, with its line (0 where unknown)."""

    def __init__(self, line: int, summary: str, remedy: str, detail: str = "") -> None:
        super().__init__(summary)
        self.line, self.summary, self.remedy, self.detail = line, summary, remedy, detail


class _Open(Struct):
    """A collection that has not ended: its values and levels so far, itself among them."""

    anchor: str | None
    values: int = 1
    levels: int = 1


def compose_yaml(text: str, *, pure: bool = False) -> Any:
    """The root node, None for an empty text. `pure`: with the marks of PyYAML's own parser, which is ten times slower.

    Raises YamlProblem for anything that is not one sound document: bad syntax, deep nesting, aliases of nothing, of
    themselves, or for more than MAX_NODES values.
    """
    import yaml

    loader: Any = yaml.SafeLoader if pure else getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_events(text, loader)
        return yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        raise _syntax(error, text) from None
    except yaml.reader.ReaderError:
        found = yaml.reader.Reader.NON_PRINTABLE.search(text)
        which = f"the control character {ord(found[0]):#06x}" if found else "a control character"
        raise YamlProblem(
            text.count("\n", 0, found.start()) + 1 if found else 0,
            f"The file holds {which}, which YAML does not allow.",
            "Remove it, or write it as an escape within double quotes.",
        ) from None
    except UnicodeError:
        raise YamlProblem(0, "The file holds half a character.", "Save it as UTF-8.") from None


def _check_events(text: str, loader: Any) -> None:
    import yaml

    opened: list[_Open] = []
    anchors: dict[str | None, _Open] = {}
    documents = total = 0
    event: Any
    for event in yaml.parse(text, Loader=loader):
        line, done = int(event.start_mark.line) + 1, None
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise YamlProblem(line, "The file holds more than one document.", "Keep one document in one file.")
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append(_Open(event.anchor))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            done = opened.pop()
        elif isinstance(event, yaml.AliasEvent):
            if any(each.anchor == event.anchor for each in opened):
                raise YamlProblem(line, f"The alias *{event.anchor} is part of what it names.", "Write the values out.")
            done = anchors.get(event.anchor)
            if done is None:
                summary = f"The alias *{event.anchor} names nothing above it."
                raise YamlProblem(line, summary, f"Define it first: &{event.anchor}")
            total += done.values
        elif isinstance(event, yaml.ScalarEvent):
            _check_number(event, line)
            done = _Open(event.anchor, levels=0)
            total += 1
        if done is not None:
            if done.anchor:
                anchors[done.anchor] = done
            if opened:
                opened[-1].values += done.values
                opened[-1].levels = max(opened[-1].levels, done.levels + 1)
        if len(opened) + (done.levels if done is not None else 0) > MAX_DEPTH:
            raise YamlProblem(line, f"The file is nested deeper than {MAX_DEPTH} levels.", "Use fewer levels.")
        if total > MAX_NODES:
            summary = f"The file holds more than {MAX_NODES:,} values, aliases counted in full."
            raise YamlProblem(line, summary, "Remove what is not needed.")


def _check_number(event: Any, line: int) -> None:
    import yaml

    if len(event.value) > _MAX_NUMBER:
        resolver: Any = yaml.resolver.Resolver()
        if (event.tag or resolver.resolve(yaml.ScalarNode, event.value, event.implicit)) in _NUMBERS:
            raise not_of_its_kind(event.value, line)


def not_of_its_kind(value: str, line: int) -> YamlProblem:
    summary = f"`{truncate(clean_line(value), 40)}` is not a value of its kind."
    return YamlProblem(line, summary, "Put quotes around a text.")


def _syntax(error: Any, text: str) -> YamlProblem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 0
    lines = text.splitlines()
    excerpt = lines[line - 1] if 0 < line <= len(lines) else ""
    problem = clean_line(str(error.problem or error.context or "unreadable"))
    indented_by_tab = "\t" in excerpt[: len(excerpt) - len(excerpt.lstrip())]
    remedy = "Indent with spaces: YAML allows no tabs." if indented_by_tab else "Correct it there, or just above."
    return YamlProblem(line, f"The file is not valid YAML: {problem}.", remedy, truncate(clean_line(excerpt), 200))
