"""What scripts rely on is as it was recorded: commands and options, JSON and exit codes, and every shipped launch."""

from __future__ import annotations

from difflib import unified_diff

import pytest

from tests.golden.record import AGAIN, GOLDEN, RECORDS, values_of

LINES = 60


@pytest.mark.parametrize("file", RECORDS)
def test_it_is_as_recorded(file: str) -> None:
    recorded, now = (GOLDEN / file).read_text(encoding="utf-8").splitlines(), RECORDS[file]().splitlines()
    changed = list(unified_diff(recorded, now, f"recorded/{file}", "now", n=1, lineterm=""))
    if changed:
        more = [f"... and {len(changed) - LINES} lines"] * (len(changed) > LINES)
        pytest.fail("\n".join([AGAIN, *changed[:LINES], *more]), pytrace=False)


def test_every_file_belongs_to_a_record() -> None:
    assert {str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*.txt")} == set(RECORDS)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ('{"summary": "Fits."}', '{"summary": "It fits."}', True),
        ('{"state": "two words"}', '{"state": "other words"}', True),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', True),
        ('{"x": null, "x_reason": "off"}', '{"x": null, "x_reason": "not on"}', True),
        ('{"x": null, "x_reason": "off"}', '{"x": null}', False),
        ('{"summary": "Fits."}', '{"summary": ""}', False),
        ('{"state": "ready"}', '{"state": "busy"}', False),
        ('{"argv": ["a b"]}', '{"argv": ["a c"]}', False),
        ('{"a": 1}', '{"a": 1.0}', False),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": 1}', '{"a": [1]}', False),
        ('{"a": {}}', '{"a": []}', False),
        ('{"a": null}', "{}", False),
        ('{"a": [{"id": "x"}, {"id": "y"}]}', '{"a": [{"id": "y"}, {"id": "x"}]}', False),
        ('{"error": {"id": "refused"}}', '{"error": {"id": "failed"}}', False),
        ('{"type": "result"}\n{"type": "phase"}', '{"type": "phase"}\n{"type": "result"}', False),
    ],
)
def test_the_words_may_change_and_nothing_else(before: str, after: str, same: bool) -> None:
    assert (list(values_of("out", before)) == list(values_of("out", after))) == same
