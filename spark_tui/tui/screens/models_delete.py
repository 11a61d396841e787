"""Deleting from the store: how much, what comes free, and the name typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_tui.core.library import LibraryEntry, LibraryView
from spark_tui.domain.errors import RefusedError, SparkError
from spark_tui.domain.models.store_delete import DeletePlan, Extent
from spark_tui.domain.quantities import human_bytes
from spark_tui.domain.text import clean_line

if TYPE_CHECKING:
    from spark_tui.tui.screens.models_ground import ModelsGround

MOST_REVISIONS = 20
_NO_WAY_BACK = "There is no way back."


async def delete_model(screen: ModelsGround, entry: LibraryEntry, view: LibraryView) -> None:
    """Asks how much of it where there is a choice, shows what comes free, and does it when the name was typed."""
    unchecked = bool(view.engines_unknown)
    try:
        plan = await _chosen(screen, entry, unchecked=unchecked)
        if plan is not None and await _confirmed(screen, plan, view.engines_unknown):
            done = await screen.context.library.delete(plan, plan.name, unchecked=unchecked)
            screen.notify(f"{clean_line(plan.model)}: {human_bytes(done.freed)} freed.", markup=False)
    except SparkError as error:
        screen.spark.report(error)


async def _chosen(screen: ModelsGround, entry: LibraryEntry, *, unchecked: bool) -> DeletePlan | None:
    """All of it, one of its revisions, or what interrupted downloads have left: a question only when there are two."""
    from spark_tui.tui.screens.chat_dialogs import ChoiceDialog

    model, library = entry.model, screen.context.library
    wanted = [(Extent.MODEL, "")]
    if len(model.revisions) > 1:
        wanted += [(Extent.REVISION, each.commit) for each in model.revisions[:MOST_REVISIONS]]
    if model.partials or model.loose:
        wanted.append((Extent.LEFTOVERS, ""))
    plans = [await library.plan_delete(model.id, extent, revision, unchecked=unchecked) for extent, revision in wanted]
    if len(plans) == 1:
        return plans[0]
    choices = [(str(number), _words(plan)) for number, plan in enumerate(plans)]
    answer = await screen.app.push_screen_wait(ChoiceDialog(f"Delete how much of {model.id}?", choices))
    return plans[int(answer)] if answer is not None else None


def _words(plan: DeletePlan) -> str:
    what = {
        Extent.MODEL: "all of it",
        Extent.REVISION: " ".join(("revision", plan.revision[:7], *plan.refs)),
        Extent.LEFTOVERS: "leftovers of downloads, and data without a use",
    }[plan.extent]
    return f"{human_bytes(plan.freed):>9} freed   {what}"


async def _confirmed(screen: ModelsGround, plan: DeletePlan, unknown: str) -> bool:
    """Raises RefusedError when something stands in its way."""
    from spark_tui.tui.screens.modals import ConfirmScreen

    if plan.obstacles:
        first = plan.obstacles[0]
        raise RefusedError(f"{plan.model} is not deleted: {first.what}.", first.remedy or "Nothing was changed.")
    engines = f" Which engines use it is not known: {unknown}" if unknown else ""
    question = f"Delete {plan.model}: {human_bytes(plan.freed)} come free?"
    text = f"{plan.sentence}{engines}"
    confirm = ConfirmScreen(question, text, verb="Delete", type_to_confirm=clean_line(plan.name), because=_NO_WAY_BACK)
    return await screen.app.push_screen_wait(confirm) is True
