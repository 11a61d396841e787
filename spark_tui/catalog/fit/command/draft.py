"""`draft`: a preset for a model that has none."""

from __future__ import annotations

import shlex

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError
from spark_tui.base.text import clean_line
from spark_tui.catalog.fit.model.draft import Draft
from spark_tui.catalog.fit.model.verdict import LaunchVerdict
from spark_tui.catalog.fit.show.draft import draft_object, draft_page
from spark_tui.catalog.fit.use.draft import Drafts
from spark_tui.catalog.fit.use.fit import LaunchChecks
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.cli.command import command, complete, run_command
from spark_tui.cli.session import Session
from spark_tui.observe.engines.use.collectors import Collectors
from spark_tui.observe.engines.use.engines import EngineSupervisor

_DRAFT_EXAMPLES = """\
  spark-tui draft RedHatAI/Qwen3.6-35B-A3B-NVFP4
  spark-tui draft RedHatAI/Qwen3.6-35B-A3B-NVFP4 --save qwen36 --launch
  spark-tui draft my-container --save mine
"""


@command("draft", _DRAFT_EXAMPLES)
@click.argument("name", metavar="MODEL|CONTAINER", shell_complete=complete("models"))
@click.option("--save", "saved", metavar="NAME", default="", help="Save it as your preset of that name.")
@click.option("--launch", is_flag=True, help="Save and launch it; as `up` does.")
def draft(session: Session, name: str, saved: str, launch: bool) -> None:
    """Draft a preset for a model that has none.

    A stored model, one on the Hub, or a container that was started by hand. Prints each value with its source, and
    marks uncertain ones with `?`. Without --save nothing is changed.
    """

    async def work(context: Context) -> tuple[Draft, LaunchVerdict | None, Preset | None]:
        found = await context[Drafts].of(name)
        kept = context[Drafts].save(found, saved) if saved or launch else None
        verdict = None
        if not launch:
            await context[Collectors].collect_once()
            try:
                await context[EngineSupervisor].look()
                verdict = await context[LaunchChecks].judge(kept or found.preset, Overrides(auto_share=True))
            except SparkError as error:
                session.err.note(f"Fit unknown: {error.summary}")
        return found, verdict, kept

    found, verdict, kept = session.run(work, changes=bool(saved or launch))
    file = kept.file if kept is not None else ""
    if launch and kept is not None:
        session.err.say(f"Saved: {file}")
        run_command("up", kept.name)
        return
    session.out.answer(draft_object(found, verdict, file), draft_page(found, verdict))
    if file:
        session.err.say(f"Saved: {file}. Launch it: spark-tui up {kept.name if kept is not None else ''}")
    else:
        session.err.say(f"Save it: spark-tui draft {shlex.quote(clean_line(name))} --save {found.name}")
