"""causes.toml: each rule can be told for each engine, and what it names is there."""

from __future__ import annotations

import re

import pytest

from spark_tui.base.finding import Finding, Severity
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.observe.explain.model.causes.cause import FailureContext
from spark_tui.observe.explain.model.causes.table import advised, read_parts, rules

ENGINES = ("", "vllm", "sglang", "trtllm", "llama-cpp", "ollama")
FIELD = re.compile(r"\{(\d+)\}")


def test_a_pattern_has_the_groups_that_its_words_name() -> None:
    for lazy, rule in rules():
        pattern = re.compile(str(lazy.pattern))
        named = {int(number) for number in FIELD.findall(rule.summary + rule.remedy)}
        assert max(named, default=-1) < pattern.groups, pattern.pattern
        assert rule.explain or (rule.summary and rule.remedy), pattern.pattern
        assert "{any}" not in rule.summary or pattern.groups, pattern.pattern


@pytest.mark.parametrize("engine", ENGINES)
def test_each_rule_fills_in_its_words(engine: str) -> None:
    for pattern, rule in rules():
        if rule.explain:
            continue
        match = re.compile(f"(?:{pattern.pattern})|").search("")  # no group is there
        assert match is not None
        told = rule.told(match, FailureContext(engine=engine))
        assert not re.search(r"[{}]", told.summary + told.remedy), pattern.pattern
        assert [key for key, _ in told.change] == list(rule.change)
        assert not re.search(r"[{}]", " ".join(map("=".join, told.change))), pattern.pattern


def test_advice_is_for_components_that_are_there_and_can_be_applied() -> None:
    parts = read_parts()
    components = {row.id for row in parts.components}
    for engine, rows in parts.advice.items():
        assert engine in ("any", *ENGINES)
        for row in rows:
            assert row.when.get("component", "")[1:-1] in ("", *components)
            assert row.when and row.remedy
            for pattern in row.when.values():
                re.compile(pattern)
            if "without" not in row.change:
                overrides_from_pairs(row.change)


@pytest.mark.parametrize("component", [row.id for row in read_parts().components])
@pytest.mark.parametrize("asked", [{}, {"linear_backend": "marlin", "moe_backend": "marlin", "attention_backend": "X"}])
def test_advice_is_never_what_is_on_already(component: str, asked: dict[str, str]) -> None:
    for engine in ENGINES:
        told = Finding("kernel_failure", Severity.ERROR, "", remedy="own", subject=component)
        found = advised(told, FailureContext(engine=engine, asked=asked))
        assert not set(found.change) & set(asked.items())
        assert not re.search(r"[{}]", found.remedy)
