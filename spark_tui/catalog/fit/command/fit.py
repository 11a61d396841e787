"""fit."""

from __future__ import annotations

from spark_tui.base.context import Context
from spark_tui.base.engine.runtimes import published_words
from spark_tui.base.finding import set_options
from spark_tui.base.page import titled
from spark_tui.catalog.fit.model.fit import Fit
from spark_tui.catalog.fit.show.launch import fit_figures, fit_object, fit_verdict
from spark_tui.catalog.fit.use.fit import LaunchChecks, observe
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs, pairs_from
from spark_tui.catalog.presets.use.rights import find_preset
from spark_tui.cli.command import command, preset_argument, settings_option
from spark_tui.cli.session import Session

_FIT_EXAMPLES = """\
  spark-tui fit gpt-oss-120b
  spark-tui fit gpt-oss-120b --set max_model_len=65536 --json | jq .verdict
"""


@command("fit", _FIT_EXAMPLES)
@preset_argument
@settings_option("A value of the preset; may be repeated.")
def fit(session: Session, name: str, settings: tuple[str, ...]) -> None:
    """Check whether a preset fits in the memory that is free now.

    Weights, KV cache, state and the rest; measured where the checkpoint is downloaded. Changes nothing.
    """
    typed = pairs_from(settings)
    overrides = overrides_from_pairs(typed)

    async def work(context: Context) -> tuple[str, Fit]:
        preset = find_preset(context, name)
        await observe(context, session.err.note)
        return preset.model, (await context[LaunchChecks].judge(preset, overrides)).fit

    model, found = session.run(work)
    published = titled("Published of this model", published_words(model))
    session.out.answer(fit_object(name, found), (*fit_verdict(found), *fit_figures(found), *published))
    for change in found.changes:
        if change.pairs:
            words = set_options(tuple((typed | dict(change.pairs)).items()))
            session.err.say(f"{change.summary.rstrip('.')}: spark-tui fit {name} {words}")
