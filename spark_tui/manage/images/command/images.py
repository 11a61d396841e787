"""images: the container images of engines."""

from __future__ import annotations

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import ExitCode, RefusedError, SparkError
from spark_tui.base.quantities import human_bytes
from spark_tui.cli.command import complete, group, yes_option
from spark_tui.cli.output import bulleted
from spark_tui.cli.session import Session, confirm
from spark_tui.manage.images.model import ImagesView, TagState
from spark_tui.manage.images.show import images as show
from spark_tui.manage.images.use.images import Images, find


@group("images")
@click.option("--check", "check", is_flag=True, help="Ask the registries whether tags have moved.")
@click.option(
    "--inspect",
    "inspected",
    metavar="NAME",
    default="",
    shell_complete=complete("images"),
    help="Read versions and patches inside this image, in a container without network.",
)
def images(session: Session, check: bool, inspected: str) -> int:
    """List container images: disk, versions inside, used by, moved tags.

    Covers images that presets name or engines use, and images of engines on disk.
    """
    if inspected:
        return _inspect(session, inspected, check=check)

    async def look(context: Context) -> tuple[ImagesView, float]:
        found = await (context[Images].check() if check else context[Images].refresh())
        return found, context.clock.now()

    view, now = session.run(look)
    session.out.json(show.images_object(view))
    if view.entries:
        session.out.table(show.images_table(view, now))
    session.err.say(show.images_summary(view))
    failed: dict[str, SparkError] = {}
    for entry in view.entries:
        if entry.state in (TagState.GONE, TagState.FAILED) and isinstance(entry.remote, SparkError):
            failed.setdefault(entry.remote.summary, entry.remote)
        elif entry.state is TagState.MOVED:
            session.err.note(f"{entry.name} has moved. Get the new image: {show.update_command(entry)}")
    session.err.note(*(f"{error.summary} {error.remedy}" for error in failed.values()))
    if view.starts_unknown:
        session.err.note(f"Last good starts unknown: {view.starts_unknown}.")
    if view.unused:
        session.err.say(
            f"Delete one that nothing uses: spark-tui images delete {show.short_name(view.names_of(view.unused[0])[0])}"
        )
    return ExitCode.FAILED if failed else ExitCode.DONE


def _inspect(session: Session, name: str, *, check: bool) -> int:
    async def look(context: Context) -> tuple[ImagesView, str, float]:
        entry = await context[Images].inspect(name)
        view = await (context[Images].check() if check else context[Images].refresh())
        return view, entry.name, context.clock.now()

    view, found, now = session.run(look, changes=True)
    entry = find(view, found)
    session.out.answer(show.image_object(entry), show.image_page(entry, view, now))
    return ExitCode.FAILED if entry.state in (TagState.GONE, TagState.FAILED) else ExitCode.DONE


_DELETE_EXAMPLES = """\
  spark-tui images delete vllm/vllm-openai:v0.19.0 --dry-run
  spark-tui images delete 4f1c2d9a07be
"""


@images.sub("delete", _DELETE_EXAMPLES)
@click.argument("name", shell_complete=complete("images"))
@click.option("--dry-run", is_flag=True, help="Print what would be deleted and what that frees.")
@click.option("--unchecked", is_flag=True, help="Even if the history does not say which images served last.")
@yes_option
def delete_image(session: Session, name: str, dry_run: bool, unchecked: bool, yes: bool) -> None:
    """Delete an image. Refused while a container, a pin or the last good start of a preset uses it."""

    plan = session.run(lambda context: context[Images].plan_delete(name, unchecked=unchecked), changes=not dry_run)
    if dry_run:
        session.out.answer({**show.deletion_object(plan), "deleted": False}, show.deletion_text(plan))
        if plan.obstacles:
            session.out.line("Would be refused:")
            reasons = [f"{each.summary}. {each.remedy}" for each in plan.obstacles]
            session.out.lines(bulleted(reasons, session.out.terminal.width))
        return
    plan.check()
    if not confirm(session, show.deletion_text(plan), yes=yes):
        raise RefusedError(f"{plan.entry.name} was not deleted.", "Answer y when asked, or use --yes.")
    freed = session.run(lambda context: context[Images].delete(plan, unchecked=unchecked))
    session.out.answer(
        {
            **show.deletion_object(plan),
            "deleted": True,
            "freed_bytes": freed,
            **({"freed_bytes_reason": "Docker did not measure"} if freed is None else {}),
        },
        f"{plan.entry.name}: deleted, {'size unknown' if freed is None else human_bytes(freed)} freed.",
    )
