"""causes.toml: each rule can be told for each engine, and what it names is there."""

from __future__ import annotations

import re

import pytest

from spark_tui.observe.explain.model.causes.cause import FailureContext
from spark_tui.observe.explain.model.causes.table import rules

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
        assert told.change == tuple(rule.change.items())
