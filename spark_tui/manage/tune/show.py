"""What `tune` shows: the question before it, how far it is, its trials, and what won."""

from __future__ import annotations

import shlex
from typing import Any

from spark_tui.base.page import Cell, Column, Row, Section, Table, Tone
from spark_tui.base.quantities import human_count, human_duration
from spark_tui.base.text import clean_line
from spark_tui.manage.tune.model import Gain, Trial, TrialOutcome, TuneGoal, best_settings, gain_of
from spark_tui.manage.tune.use import TuneProgress, TuneRecord
from spark_tui.use.bench.show.bench import progress_text, rate

_TONES = {
    TrialOutcome.BETTER: Tone.GOOD,
    TrialOutcome.WORSE: Tone.QUIET,
    TrialOutcome.SAME: Tone.QUIET,
    TrialOutcome.FAILED: Tone.BAD,
    TrialOutcome.REFUSED: Tone.WARNING,
}


def goal_text(record: TuneRecord) -> str:
    """`throughput at 8 streams`."""
    streams = {TuneGoal.LATENCY: " at 1 stream", TuneGoal.THROUGHPUT: f" at {record.streams} streams"}
    return record.goal.value + streams.get(record.goal, "")


def question(record: TuneRecord) -> tuple[str, str]:
    """What is asked before an engine is stopped, and what will happen."""
    searched = ", ".join(ladder.key for ladder in record.searched)
    stops = f" Stops meanwhile: {', '.join(record.stopped)}." if record.stopped else ""
    after = "restored" if record.ran else "stopped again"
    return (
        f"Tune {record.preset} for {goal_text(record)}?",
        f"Tries {searched}, for up to {human_duration(record.limit)}. Each trial restarts {record.engine} twice; it is "
        f"unavailable meanwhile and {after} at the end, also after Ctrl-C.{stops}",
    )


def setting_text(key: str, value: str) -> str:
    """`max_num_seqs=8`."""
    return f"{key}={shlex.quote(clean_line(value))}"


def progress_line(progress: TuneProgress) -> str:
    """`trial 3  max_num_seqs=8  qwen  pass 2  8 streams  120 tok/s   12m of 2h`."""
    record = progress.record
    number = f"trial {len(record.trials) + 1}" if progress.trial else ""
    trial = setting_text(*progress.trial) if progress.trial else ""
    what = progress.detail or (progress_text(progress.bench) if progress.bench is not None else "")
    time = f"{human_duration(progress.spent)} of {human_duration(record.limit)}"
    return "  ".join(part for part in (number, trial, what, f" {time}") if part)


def ratio_text(ratio: float | None, low: float | None, high: float | None) -> str:
    """`1.12x (1.08 to 1.16)`; empty where nothing was measured."""
    if ratio is None:
        return ""
    return f"{ratio:.2f}x" + (f" ({low:.2f} to {high:.2f})" if low is not None and high is not None else "")


def trial_line(trial: Trial) -> str:
    """`max_num_seqs=8  better  1.12x (1.08 to 1.16)`."""
    figures = ratio_text(trial.ratio, trial.low, trial.high)
    parts = (setting_text(trial.key, trial.value), trial.outcome.value, figures, clean_line(trial.reason))
    return "  ".join(part for part in parts if part)


def trial_table(record: TuneRecord) -> Table:
    """A row for each trial, in their order."""
    context = record.goal is TuneGoal.CONTEXT
    rows = [
        (
            Cell(setting_text(trial.key, trial.value)),
            Cell(trial.outcome.value, _TONES[trial.outcome]),
            Cell(ratio_text(trial.ratio, trial.low, trial.high)),
            Cell(_tokens(trial.context_after) if context else rate(trial.after) if trial.after is not None else ""),
            Cell(clean_line(trial.reason)),
        )
        for trial in record.trials
    ]
    titles = ("SETTING", "RESULT", "SPEED (95 %)", "CONTEXT" if context else "TOK/S", "REASON")
    return Table(tuple(Column(title) for title in titles), tuple(rows))


def _tokens(count: int | None) -> str:
    return "" if count is None else human_count(count)


def winner_text(record: TuneRecord) -> str:
    """The settings that won with their gain; or that none did."""
    changes, gain = best_settings(record.trials), gain_of(record.trials)
    if not changes:
        return f"No other setting was better for {goal_text(record)}."
    settings = " ".join(setting_text(key, value) for key, value in changes.items())
    figures = f"speed {ratio_text(gain.ratio, gain.low, gain.high)}" if gain is not None else ""
    if record.goal is TuneGoal.CONTEXT:
        won = [trial for trial in record.trials if trial.outcome is TrialOutcome.BETTER]
        figures = f"{_tokens(won[0].context_before)} -> {_tokens(won[-1].context_after)} tokens, {figures}"
    return f"{settings}: {goal_text(record)}, {figures}".rstrip(", ")


def winner_page(record: TuneRecord) -> tuple[Section, ...]:
    won = bool(best_settings(record.trials))
    label = "best" if won else "result"
    return (Section(rows=(Row(label, winner_text(record), Tone.GOOD if won else Tone.QUIET),)),)


def tune_object(record: TuneRecord, saved: str = "") -> dict[str, Any]:
    """For `--json`. Speeds are the trial's over its baseline's; null: not measured."""
    gain: Gain | None = gain_of(record.trials)
    return {
        "preset": record.preset,
        "engine": record.engine,
        "goal": record.goal.value,
        "streams": record.streams if record.goal is TuneGoal.THROUGHPUT else 1,
        "finished": record.finished,
        "ended": record.ended,
        "seconds": round(record.spent, 1),
        "limit_seconds": record.limit,
        "settings": best_settings(record.trials),
        "speed": None if gain is None else {"ratio": gain.ratio, "low": gain.low, "high": gain.high},
        "saved": saved or None,
        "trials": [
            {
                "key": trial.key,
                "value": trial.value,
                "base": dict(trial.base),
                "outcome": trial.outcome.name.lower(),
                "reason": trial.reason,
                "ratio": trial.ratio,
                "low": trial.low,
                "high": trial.high,
                "tokens_per_second": trial.after,
                "context_tokens": trial.context_after,
                "results": list(trial.runs),
                "seconds": round(trial.seconds, 1),
            }
            for trial in record.trials
        ],
    }
