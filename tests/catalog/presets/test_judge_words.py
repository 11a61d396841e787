"""No rule is against a setting that a remedy names in words alone: nothing judges it where it is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import Formatter
from typing import Any

from spark_tui.base.finding import Change
from spark_tui.catalog.presets.model.rules.check import SLOWER_ALONE, changed, check
from spark_tui.manage.cluster.model.blame import NOTES, SIGNATURES
from spark_tui.observe.explain.model.causes.cause import Names
from spark_tui.observe.explain.model.causes.table import read_parts, read_table, rules
from spark_tui.observe.explain.model.explain import LogExplainer
from tests.cases import all_cases
from tests.catalog.presets.test_judge import LAUNCHES, is_worse
from tests.catalog.presets.test_rules import A_SPARK, CAUTIONS, Caution, situation
from tests.failure_logs import cases

PAIR = re.compile(r"(?<![\w.=/-])((?:env\.)?[A-Za-z_]\w*)=((?:\{[^}]*\}|[^\s,;:)`(])+)")
FLAG = re.compile(r"--([a-z][\w-]*)[ =]([^\s`]+)")
GONE = re.compile(r"\b(?:remove|unset|without) ((?:`?(?:--)?[a-z][a-z_-]*`?(?:,? (?:and|or) |, )?)+)", re.IGNORECASE)
REMOVES = re.compile(r"\b(?:remove|unset|without) `?$", re.IGNORECASE)


def settings_in(text: str) -> Iterator[Change]:
    """Each setting that a text proposes: `KEY=VALUE`, also of a variable, a flag with its value in backticks, and what
    it says to remove."""
    for pair in PAIR.finditer(text):
        if not REMOVES.search(text[: pair.start()]):
            key = f"env.{pair[1]}" if pair[1].isupper() else pair[1]
            yield ((key, pair[2].rstrip(".?")),)
    for quoted in re.findall(r"`([^`]*)`", text):
        for key, value in FLAG.findall(quoted):
            yield ((key.replace("-", "_"), value),)
    for gone in GONE.finditer(text):
        for name in set(re.findall(r"\b[a-z][a-z_-]*", gone[1])) - {"and", "or"}:
            yield (("without", name.replace("-", "_")),)


def test_what_a_text_proposes_is_read() -> None:
    text = "Set env.A=1, or B=2 or `--b-c 2 --d=3`, {'x'=y}. Remove e=4, or start without `f_g` and --h-i: j=off?"
    read = {("env.A", "1"), ("env.B", "2"), ("b_c", "2"), ("d", "3"), ("j", "off")} | {
        ("without", each) for each in ("e", "f_g", "h_i")
    }
    assert {pair for change in settings_in(text) for pair in change} == read


class Filled(Formatter):
    """The sentences of a table as they are for vLLM, with a word in place of what a log says."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[object, str]:
        return getattr(Names(), field_name, "x"), field_name


def remedies() -> Iterator[tuple[str, Change]]:
    """With what is applied: of all tables, and of the recorded failures, which functions compute."""
    rows = [*(rule for _, rule in rules()), *read_parts().places]
    rows += [row for each in read_parts().advice.values() for row in each]  # type: ignore[misc]
    found = [(row.remedy, tuple(row.change.items())) for row in rows]
    for remedy, change in (*found, *((each.remedy, each.change) for each in (*SIGNATURES, *NOTES))):
        yield Filled().format(read_table().phrased(remedy)), change
    for case in cases():
        explainer = LogExplainer()
        explainer.feed_many(("", line) for line in case.log)
        told = explainer.explanation()
        if told.engine in ("", "vllm"):
            yield from ((each.remedy, each.change) for each in (told.cause, *told.findings) if each is not None)


def in_words(remedy: str, change: Change) -> Iterator[Change]:
    """What it proposes beside its change: that alone is judged where it is shown."""
    applied = {key for key, _ in change} | set(dict(change).get("without", "").split(","))
    for key, value in (pair for each in settings_in(remedy) for pair in each):
        if (value if key == "without" else key) not in applied:
            yield ((key, value),)


WORDS = sorted({(words, "slower" in remedy) for remedy, change in remedies() for words in in_words(remedy, change)})
"""What remedies propose in words alone, and whether they say that it is slower."""


@all_cases("name", LAUNCHES)
def test_no_rule_is_against_what_a_remedy_proposes_in_words(name: str) -> None:
    launch = LAUNCHES[name]
    before = changed(launch, ()) or launch
    for words, slower in WORDS:
        after = changed(launch, words)
        aside = SLOWER_ALONE if slower else ()
        assert after is None or not set(is_worse(before, after)) - set(aside), (name, words)


def test_what_is_proposed_in_words_was_judged() -> None:
    assert len(WORDS) > 60
    assert ((("enforce_eager", "true"),), True) in WORDS and ((("enforce_eager", "true"),), False) not in WORDS


@all_cases("caution", CAUTIONS, ids=[f"{each.id} {each.preset.name}" for each in CAUTIONS])
def test_what_a_rule_proposes_in_words_brings_no_other_finding(caution: Caution) -> None:
    launch = situation(caution.preset, caution.pairs, {**A_SPARK, **caution.facts})
    for found in check(launch):
        for words in in_words(found.remedy, found.change):
            after = changed(launch, words)
            assert after is None or not is_worse(launch, after), (found.id, words)
