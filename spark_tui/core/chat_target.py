"""Whom a question goes to, and what to do when it cannot be answered there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spark_tui.core.key_words import key_of
from spark_tui.domain.api_errors import model_not_served
from spark_tui.domain.engine.endpoint import Endpoint
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.errors import ApiKeyRejected, ContextOverflow, EngineUnreachable, ModelNotServed, SparkError
from spark_tui.domain.text import clean_line


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """Whom a question goes to: the engine's name for people, its address, and the served name of the model.

    `limit` is its context in tokens, `modalities` what it takes (`text`, `image`, `audio`); None and empty: not known.
    """

    engine: str
    endpoint: Endpoint
    model: str
    limit: int | None = None
    modalities: tuple[str, ...] = ()


def target_of(view: EngineView, endpoint: Endpoint, *, model: str = "", modalities: tuple[str, ...] = ()) -> ChatTarget:
    """The target that an engine is; `model` is one of the names that it serves, empty for its own.

    Raises ModelNotServed for a name that it does not serve.
    """
    wanted = model or view.served_name
    served = next((each for each in view.models if each.id == wanted), None)
    if model and served is None and view.models:
        raise model_not_served(model, tuple(each.id for each in view.models))
    return ChatTarget(view.name, endpoint, wanted, served.max_model_len if served else None, modalities)


def advised(error: SparkError, target: ChatTarget, key_file: Path, views: Iterable[EngineView] = ()) -> SparkError:
    """The error of a chat with what can be done about it here: where the key is set, what serves, how to make room."""
    match error:
        case ApiKeyRejected():
            return ApiKeyRejected(error.summary, _key_remedy(target, key_file), detail=error.detail)
        case ModelNotServed():
            others = [view for view in views if view.state is EngineState.SERVING and view.name != target.engine]
            if error.served or not others:
                return error
            names = ", ".join(f"{clean_line(view.served_name)} on {view.name}" for view in others)
            return ModelNotServed(error.summary, f"These serve: {names}.", detail=error.detail, served=error.served)
        case ContextOverflow():
            return ContextOverflow(
                error.summary,
                f"Leave out older exchanges (/trim at the prompt, {key_of('make_room')} on the screen). {error.remedy}",
                detail=error.detail,
                limit=error.limit,
                prompt_tokens=error.prompt_tokens,
                answer_tokens=error.answer_tokens,
            )
        case EngineUnreachable():
            return EngineUnreachable(
                error.summary, f"{error.remedy} What was asked is kept: ask it again then.", detail=error.detail
            )
    return error


def _key_remedy(target: ChatTarget, key_file: Path) -> str:
    if target.endpoint.api_key:
        return (
            f"The key that was sent is the one in {key_file}. If {target.engine} was started anew with another one, "
            "write that into the file."
        )
    return (
        f"spark-tui has no key for {target.engine}: it was launched elsewhere. Launch it from a preset with "
        "--api-key, and the key is made and kept for you."
    )
