"""What the Chat screen says around the transcript: to whom one talks, what the model does, which keys work now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textual.content import Content

from spark_tui.core.actions import Action, Scope, action, key_of, of_scope, screen_keys
from spark_tui.domain.chat.conversation import ContextUse, Exchange, Room
from spark_tui.domain.chat.message import Answer, ToolCall
from spark_tui.domain.chat.request import ChatSettings
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.errors import EngineUnreachable, ModelNotServed, SparkError
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.quantities import human_count, short_tokens
from spark_tui.domain.reading import NOT_READ_YET
from spark_tui.domain.text import truncate
from spark_tui.tui import format as fmt
from spark_tui.tui.widgets.line import Line, spread
from spark_tui.tui.widgets.turn import Turn, answers, tokens

KEY = "bold $footer-key-foreground"


class ChatStatus(Line):
    """Between transcript and prompt: what the model does, and what lies below."""

    def __init__(self) -> None:
        super().__init__(id="chat-status")
        self.left = Content("")
        self.right = Content("")

    def say(self, width: int) -> Content:
        """One line."""
        return spread(self.left, self.right, width)


def turns(exchanges: Sequence[Exchange], sent_from: int = 0) -> tuple[Turn, ...]:
    """The transcript: two turns for each exchange. A change of the engine is noted where it happened."""
    told: list[Turn] = []
    before = ""
    for place, said in enumerate(exchanges, 1):
        told += _turns_of(said, before, sent_from, last=place == len(exchanges))
        before = said.engine
    return tuple(told)


def _turns_of(said: Exchange, before: str, sent_from: int, *, last: bool) -> tuple[Turn, Turn]:
    """A question and its answer; `before` is the engine that answered the one before."""
    unsent = said.number < sent_from
    question = Turn(
        2 * said.number,
        "you",
        said.question,
        files=tuple(f"{each.kind.value} {each.name}" for each in said.attachments),
        results=tuple((each.name, each.content) for each in said.tool_answers),
        unsent=unsent,
    )
    answer = Turn(
        2 * said.number + 1,
        said.model,
        note=f"on {said.engine}, before on {before}" if before and before != said.engine else "",
        answer=said.answer,
        live=said.live,
        stopped=said.stopped,
        error=said.error,
        waits=last and bool(said.open_calls),
        unsent=unsent,
        side=said.engine_side,
        limit=said.limit,
    )
    return question, answer


class KeptTurns:
    """`turns` for somebody who asks ten times a second: what lies before the last exchange is made once."""

    def __init__(self) -> None:
        self._of: tuple[Exchange, ...] = ()
        self._sent_from = 0
        self._turns: tuple[Turn, ...] = ()

    def of(self, exchanges: tuple[Exchange, ...], sent_from: int = 0) -> tuple[Turn, ...]:
        """The transcript; turns of exchanges that are over are the same objects each time."""
        past = exchanges[:-1]
        if past != self._of or sent_from != self._sent_from:
            self._of, self._sent_from = past, sent_from
            self._turns = turns(exchanges, sent_from)[:-2]
        if not exchanges:
            return ()
        before = past[-1].engine if past else ""
        return (*self._turns, *_turns_of(exchanges[-1], before, sent_from, last=True))


def _out_to_presets() -> str:
    return f"{key_of('stop_answer')}, then {key_of('show_presets')}"


def problem_with(view: EngineView | None) -> SparkError | None:
    """Why an engine cannot be asked now; None when it can."""
    if view is None:
        return EngineUnreachable("No engine serves here.", f"{_out_to_presets()} to launch one.")
    if view.state in (EngineState.CREATED, EngineState.STARTING, EngineState.RESTARTING):
        return EngineUnreachable(f"{view.name} does not serve yet: {fmt.state_word(view)}.", "Wait until it serves.")
    if view.state not in (EngineState.SERVING, EngineState.NOT_ANSWERING):
        return EngineUnreachable(
            f"{view.name} does not serve: {fmt.state_word(view)}.", "Select another engine on Home, or start this one."
        )
    if not view.base_url:
        return EngineUnreachable(f"{view.name} publishes no port.", "Start it with a published port.")
    if not view.served_name:
        return ModelNotServed(
            f"The model name that {view.name} serves is not known.",
            "Its API wants a key that spark-tui does not have, or it has just started.",
        )
    return None


def brief(question: str) -> str:
    """A question on one short line."""
    return truncate(" ".join(question.split()), 60)


def asked(exchange: Exchange) -> str:
    """What was asked, on one short line; for results of tools the tools."""
    return brief(exchange.question or ", ".join(f"the result of {each.name}" for each in exchange.tool_answers))


def edits(exchanges: tuple[Exchange, ...], number: int) -> str:
    """Which question is edited, and what that does."""
    questions = [each.number for each in exchanges if not each.tool_answers]
    place = f" {questions.index(number) + 1} of {len(questions)}" if number in questions and len(questions) > 1 else ""
    return f"edits your question{place}: what followed it is taken back"


def name_of(view: EngineView | None) -> str:
    """What the model is called."""
    return (view.served_name or view.name) if view is not None else "the model"


def title(view: EngineView | None) -> Content:
    """To whom one talks: `to qwen36-35b`, with the container's name and the state where they say more."""
    if view is None:
        return Content("no engine")
    name = view.served_name or view.name
    parts = [Content("to "), fmt.safe(name, "bold")]
    if name != view.name:
        parts.append(fmt.safe(f" on {view.name}"))
    if view.state is not EngineState.SERVING:
        parts += [Content("  "), fmt.state(view)]
    return Content.assemble(*parts)


def placeholder(view: EngineView | None, engines_reason: str) -> Content:
    """What stands in an empty prompt."""
    problem = problem_with(view)
    if view is None:
        known = engines_reason != NOT_READ_YET.reason
        return Content(f"No engine serves: {_out_to_presets()} to launch one" if known else "Looking for engines ...")
    if problem is None:
        return fmt.safe(f"Message to {view.served_name}")
    return fmt.safe(f"{problem.summary} What you write stays here.")


def empty(view: EngineView | None, engines_reason: str, *, has_previous: bool) -> Content:
    """What an empty transcript says. `engines_reason` is why engines are not known, if they are not."""
    problem = problem_with(view)
    if view is None and engines_reason == NOT_READ_YET.reason:
        said = Content.styled("Looking for engines ...", "$dim")
    elif view is None and engines_reason:
        said = Content.assemble(("Engines are not known.", "bold $error"), "\n\n", fmt.safe(engines_reason))
    elif view is None:
        said = Content.assemble(
            ("No engine serves here yet.", "bold"), "\n\n",
            (key_of("show_presets"), KEY), "  choose a preset and launch it\n",
            (key_of("show_home"), KEY), "  what runs on this box\n\n",
            (f"In the prompt digits are text: {key_of('stop_answer')} leaves it.", "$dim"),
        )  # fmt: skip
    elif problem is not None:
        said = Content.assemble(
            fmt.safe(problem.summary, "bold"), "\n", fmt.safe(problem.remedy), "\n\n",
            (key_of("show_home"), KEY), "  how far it is\n", (key_of("show_logs"), KEY), "  its log",
        )  # fmt: skip
    else:
        said = _hello(view)
    if not has_previous:
        return said
    return Content.assemble(said, "\n\n", (key_of("new_chat"), KEY), ("  brings the last conversation back", "$dim"))


def _hello(view: EngineView | None) -> Content:
    window = view.models[0].max_model_len if view is not None and view.models else None
    room = f"   {short_tokens(window)} tokens of context" if window else ""
    return Content.assemble(
        "You talk to ", fmt.safe(view.served_name if view else "", "bold"), fmt.safe(room, "$dim"), "\n\n",
        ("Enter", KEY), "  sends\n",
        ("^j   ", KEY), "  new line ", ("(in some terminals shift+enter and alt+enter too)\n", "$dim"),
        (f"{key_of('stop_answer'):5}", KEY), "  stops an answer; else leaves the prompt, then ",
        (screen_keys(), KEY), " change the screen\n",
        (f"{key_of('chat_settings'):5}", KEY), "  system prompt, sampling, reasoning, tools\n",
        (f"{key_of('open_conversation'):5}", KEY), "  conversations that are kept",
    )  # fmt: skip


def note(text: str) -> Content:
    """A short word about what was just done, or why nothing was."""
    return Content(f" {text}")


def phase(answer: Answer) -> str:
    """What the model does."""
    if answer.first_token_at is None:
        return "waiting for the first token"
    return "answering" if answers(answer) else "reasoning"


def doing(live: Exchange, now: float) -> Content:
    """What the model does, for how long, and how fast where the server counts on the way."""
    answer = live.answer
    figures = [f"{int(now - answer.started_at)} s"]
    if answer.usage is not None:
        figures.append(tokens(answer.usage.completion_tokens))
    if answer.decode_tokens_per_second is not None:
        figures.append(f"{answer.decode_tokens_per_second:.1f} tok/s")
    figures_text = "   ".join(figures)
    return Content.assemble(
        (f" {phase(answer)}", "$warning"), (f"  {figures_text}   ", "$dim"),
        (key_of("stop_answer"), KEY), (" stops", "$dim"),
    )  # fmt: skip


def room_used(use: ContextUse | None) -> Content:
    """How much of the context the next request takes; empty while that is not known. Near the end it says the key."""
    if use is None or not use.tokens:
        return Content("")
    of = f" of {human_count(use.limit)}" if use.limit else ""
    text = f" context {'' if use.counted else 'about '}{human_count(use.tokens)}{of} tokens"
    if use.room not in (Room.NEAR, Room.OVER):
        return Content.styled(text, "$dim")
    word = "does not fit" if use.room is Room.OVER else "nearly full"
    return Content.assemble((f"{text}: {word}   ", "$warning"), (key_of("make_room"), KEY), (" makes room", "$dim"))


def hint(*, writing: bool, files: tuple[str, ...], call: bool) -> Content:
    """What stands at the foot of the prompt: what Enter does, and what goes with it."""
    if call:
        return Content(f"Enter gives the result  {key_of('stop_answer')} leaves it out")
    keys = "Enter sends  ^j new line" if writing else f"{key_of('write')} or Tab to write"
    return (
        Content.assemble(("with ", "$dim"), fmt.safe(", ".join(files), "$secondary"), f"   {keys}")
        if files
        else Content(keys)
    )


def result_title(call: ToolCall, number: int, count: int) -> Content:
    """Whose result is typed: `result of weather({"city": "Bern"})  1 of 2`."""
    which = f"  {number} of {count}" if count > 1 else ""
    return Content.assemble(
        "result of ", fmt.safe(call.name or "the tool", "bold"), fmt.safe(truncate(f"({call.arguments})", 60)), which
    )


def no_chances(settings: ChatSettings) -> str:
    """Why there is nothing to see of an answer's tokens, and what brings it."""
    if settings.parameters.logprobs is not None:
        return "No answer here was told with its probabilities: ask something."
    return f"Probabilities come with answers when logprobs is set: {key_of('chat_settings')}."


def below(lines: int, key: str) -> Content:
    """`42 lines below   End follows`; empty when there is nothing below."""
    if not lines:
        return Content("")
    count = f"{lines:,} line{'s' if lines > 1 else ''} below   "
    return Content.assemble((count, "$warning"), (key, KEY), (" follows ", "$dim"))


def footer(*, live: bool, writing: bool, started: bool) -> tuple[Action, ...]:
    """The keys that do something now. In the prompt it says how to leave it: digits and `?` are text there."""
    stop, write = action("stop_answer"), action("write")
    first: list[Action] = []
    if live:
        first.append(stop)
    elif writing:
        first.append(replace(stop, label=f"Leave prompt, then {screen_keys()}"))
    if not writing:
        first.append(write)
    here = [entry for entry in of_scope(Scope.CHAT) if started and entry.footer and entry not in (stop, write)]
    everywhere = [entry for entry in of_scope(Scope.GLOBAL) if entry.footer and not (writing and entry.id == "help")]
    return (*first, *here, *everywhere)
