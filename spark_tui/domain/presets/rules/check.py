"""What is wrong with a launch before it happens: one entry, `check`, over the groups of rules.

A rule is a pure function of a case. It says nothing where it does not know; an error needs certainty. "The guide" that
rules cite is vlaicu.io/posts/dgx-vllm (2026-06).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from spark_tui.domain.engine.container import EnvVar
from spark_tui.domain.errors import SparkError
from spark_tui.domain.presets import options as vllm
from spark_tui.domain.presets.invocation import command_of
from spark_tui.domain.presets.overrides import TYPED_KEYS, Overrides, overrides_from_pairs
from spark_tui.domain.presets.rules import image, memory, serving, speculation
from spark_tui.domain.presets.rules import model as rules_model
from spark_tui.domain.presets.rules import model as rules_quantization
from spark_tui.domain.presets.rules.context import Advice, Fix, Rule, Severity, Situation, case_of
from spark_tui.domain.text import clean_line, truncate

__all__ = ("RULES", "Finding", "Fix", "Severity", "Situation", "check", "with_fix")

EVIDENCE_CELLS: Final = 200
SENTENCE_CELLS: Final = 400

RULES: Final[Mapping[str, Rule]] = {
    **serving.ACCESS,
    **rules_quantization.RULES_QUANTIZATION_RULES,
    **speculation.RULES_SPECULATION_RULES,
    **speculation.RULES_DFLASH_RULES,
    **speculation.RULES,
    **rules_model.RULES,
    **memory.RULES,
    **serving.RULES,
    **image.RULES,
}
"""Every rule by its id: scripts may rely on the names. Of findings of one severity the earlier rule's comes first."""

_ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about a launch that a person should know, in text that is safe to show.

    `fix` is what `with_fix` applies to end it, as pairs of `overrides_from_pairs`; it was tried, and it is empty where
    no override helps.
    """

    id: str
    severity: Severity
    summary: str
    evidence: str
    remedy: str
    fix: Fix = ()

    @property
    def fix_text(self) -> str:
        """The fix as a person types it after `--set`: `kv_cache_dtype=auto`."""
        return " ".join(f"{key}={value}" for key, value in self.fix)


def check(situation: Situation) -> tuple[Finding, ...]:
    """All findings of a launch, the worst first."""
    case = case_of(situation)
    found = [_finding(name, advice, situation) for name, rule in RULES.items() if (advice := rule(case)) is not None]
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity)))


def with_fix(overrides: Overrides, fix: Fix) -> Overrides:
    """The overrides with a fix applied: it wins over what they said of the same option, extra arguments included.

    Raises UsageError for pairs that are none.
    """
    changes = overrides_from_pairs(dict(fix))
    keys = {key for key, _ in fix}
    gone = set(changes.without)
    extra = overrides.extra_args
    for key in sorted(keys | gone):
        extra = vllm.without_key(extra, key)
    without = (*(key for key in overrides.without if key not in keys), *changes.without)
    return replace(
        overrides,
        **{key: getattr(changes, key) for key in keys & set(TYPED_KEYS) - {"without"}},
        values=_merged((pair for pair in overrides.values if pair[0] not in gone), changes.values),
        extra_env=_merged(overrides.extra_env, changes.extra_env),
        extra_args=extra,
        without=tuple(dict.fromkeys(without)),
    )


def _merged(old: Iterable[tuple[str, str]], new: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple({**dict(old), **dict(new)}.items())


def _finding(name: str, advice: Advice, situation: Situation) -> Finding:
    return Finding(
        name,
        advice.severity,
        truncate(clean_line(advice.summary), SENTENCE_CELLS),
        truncate(clean_line(advice.evidence), EVIDENCE_CELLS),
        truncate(clean_line(advice.remedy), SENTENCE_CELLS),
        advice.fix if advice.fix and _ends(RULES[name], advice.fix, situation) else (),
    )


def _ends(rule: Rule, fix: Fix, situation: Situation) -> bool:
    """Whether a fix is taken and ends the finding: a shell script, for one, has no place for unforeseen options."""
    plan = situation.plan
    try:
        overrides = with_fix(situation.overrides, fix)
        command = command_of(plan.preset, overrides, plan.model)
    except SparkError:
        return False
    env = _merged(((variable.name, variable.value) for variable in plan.spec.env), overrides.extra_env)
    spec = replace(plan.spec, entrypoint=None, command=command.argv, env=tuple(EnvVar(*pair) for pair in env))
    return rule(case_of(replace(situation, overrides=overrides, plan=replace(plan, spec=spec)))) is None
