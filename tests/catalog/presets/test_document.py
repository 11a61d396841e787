"""Documents from a parser's events: what a stranger's file may cost."""

from __future__ import annotations

import pytest

from spark_tui.base.errors import PresetError
from spark_tui.base.yaml_nodes import MAX_DEPTH, MAX_NODES
from spark_tui.catalog.presets.adapter.store import parse
from spark_tui.catalog.presets.model.preset import Entry, MappingValue, ScalarValue, plain
from tests.cases import all_cases


def value(text: str) -> object:
    return plain(parse(text, "r.yaml"))


def test_lines_are_kept() -> None:
    document = parse("a: 1\n\nb:\n  c: x\n", "r.yaml")
    assert document == MappingValue(
        (Entry("a", 1, ScalarValue(1, 1)), Entry("b", 3, MappingValue((Entry("c", 4, ScalarValue("x", 4)),), 4))),
        1,
    )


def test_scalars_are_those_of_the_safe_loader() -> None:
    text = "{a: 1_000, b: 0.85, c: yes, d: ~, e: '1', f: 1e3, g: 2026-01-02, h: 0x10, i: 1:30, 8000: x, no: y}"
    expected = {"a": 1000, "b": 0.85, "c": True, "d": None, "e": "1", "f": "1e3", "g": "2026-01-02", "h": 16, "i": 90}
    assert value(text) == expected | {"8000": "x", "no": "y"}


def test_aliases_and_merge_keys() -> None:
    text = "base: &b {x: 1, y: 2}\nother: &o {y: 9, z: 9}\nlist: [*b]\nmerged: {<<: [*b, *o], y: 3}\n'<<': text\n"
    assert value(text) == {
        "base": {"x": 1, "y": 2},
        "other": {"y": 9, "z": 9},
        "list": [{"x": 1, "y": 2}],
        "merged": {"y": 3, "x": 1, "z": 9},
        "<<": "text",
    }


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)


@all_cases(
    ("text", "line", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "`a` is given twice (first on line 1)"),
        ("a: &x {b: *x}\n", 1, "part of what it names"),
        ("a: 1\nb: *nope\n", 2, "names nothing"),
        (BOMB, 5, f"more than {MAX_NODES:,} values"),
        ("a: " + "[" * 100_000, 1, f"deeper than {MAX_DEPTH}"),
        ("\n".join("  " * i + "k:" for i in range(MAX_DEPTH + 5)), MAX_DEPTH + 1, "deeper than"),
        ("a: !!python/object:os.system x\n", 1, "tag"),
        ("a: !include x\n", 1, "tag !include"),
        ("? [a]\n: 1\n", 1, "A key must be a word"),
        ("a: 1\n---\nb: 2\n", 2, "more than one document"),
        ("a: 1\n<<: 5\n", 2, "`<<` takes a mapping"),
        ("a: " + "9" * 5000, 1, "not a value of its kind"),
        ("a: 1" + ":1" * 200_000, 1, "not a value of its kind"),
        ("a: 1" + ":1" * 190 + ".5", 1, "not a value of its kind"),
        ("", 1, "empty"),
        ("# only a comment\n", 1, "empty"),
    ],
)
def test_what_no_recipe_holds_is_refused_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(PresetError) as raised:
        parse(text, "r.yaml")
    assert says in raised.value.summary
    assert (raised.value.file, raised.value.line) == ("r.yaml", line)
    assert len(str(raised.value)) < 400


def test_deep_aliases_count_with_their_depth() -> None:
    levels = "".join(f"l{i}: &l{i} {{x: *l{i - 1}}}\n" for i in range(1, 40))
    with pytest.raises(PresetError, match="deeper than"):
        parse("l0: &l0 {x: 1}\n" + levels, "r.yaml")
