"""The cases: what is asked, and what a right answer is. A case that cannot be judged is skipped, with its reason."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from operator import mul
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json
from spark_tui.observe.results.model.proof import CALL_ID, Api, Area, Call, Question, Tool, Verdict
from spark_tui.use.prove.model.answer import ProveAnswer


class SkippedCase(Exception):
    """The engine cannot be judged by this case, and why."""


class Target(Struct, frozen=True):
    """What cases have to know of the engine. `baseline` is the answer to `chat.repeat` of a kept run whose speculation
    was the other way round, empty without one."""

    model: str
    context_tokens: int | None = None
    reasoning_parser: str = ""
    speculates: bool = False
    baseline: str = ""
    full: bool = False


Check: TypeAlias = "Callable[[Target, ProveAnswer], str]"
"""What is wrong with an answer; empty where it is right. Raises SkippedCase."""


class Case(Struct, frozen=True):
    """`full`: only with --full. `twice`: asked two times, and both answers must be the same."""

    id: str
    area: Area
    question: Question
    checks: tuple[Check, ...]
    full: bool = False
    twice: bool = False

    @property
    def may_compile(self) -> bool:
        """Whether an engine may have to compile for it what it had no use for so far: a grammar, the log probabilities,
        kernels for long prompts."""
        asked = self.question
        return bool(asked.schema or asked.choice not in ("", "none") or asked.logprobs or self.area is Area.DEPTH)


def judge(case: Case, target: Target, answers: tuple[ProveAnswer, ...]) -> tuple[Verdict, str]:
    """The verdict, and its evidence: what is wrong, or what came."""
    for answer in answers:
        asked = case.question
        for check in (_measured if asked.texts else _faultless if asked.clip else _sound, *case.checks):
            try:
                wrong = check(target, answer)
            except SkippedCase as skipped:
                return Verdict.SKIP, str(skipped)
            if wrong:
                return Verdict.FAIL, truncate(clean_line(wrong), 300)
    if len({answer.text for answer in answers}) > 1:
        texts = " / ".join(quote(answer.text) for answer in answers)
        return Verdict.FAIL, truncate(f"two answers at temperature 0 differ: {texts}", 300)
    return Verdict.PASS, shown(answers[-1])


def shown(answer: ProveAnswer) -> str:
    """An answer in a line: its calls, else its text."""
    calls = " ".join(f"{call.name}({call.arguments})" for call in answer.calls)
    if answer.vectors and not answer.text:
        calls = f"{len(answer.vectors)} vectors of {len(answer.vectors[0]):,} dimensions"
        if len(answer.vectors[0]) == 1:
            calls = "scores " + ", ".join(f"{score:.3g}" for (score,) in answer.vectors)
    return truncate(clean_line(calls or " ".join(answer.text.split())), 300)


def quote(text: str) -> str:
    return repr(truncate(clean_line(text), 80)) if text else "no text"


# --- what every answer must be ------------------------------------------------------------------------------

TOOL_MARKUP: Final = re.compile(
    r"</?tool_call>|<function=|<parameter=|</function>|\[TOOL_CALLS\]|\[ARGS\]|<\|python_tag\|>|<\|?tool_calls?[_|>]"
    r"|<\|tool\u2581|<arg_key>|<minimax:tool_call>|<invoke name=|<start_function_call>|call:\w+\{"
    r"|<\|(?:call|recipient)\|>"
)
THINK_MARKUP: Final = re.compile(r"</?think(?:ing)?>|\[/?THINK\]|\u25c1/?think\u25b7|<\|?channel\|?>|<seed:think>")
_TURN_MARKUP: Final = re.compile(r"<\|im_(?:start|end)\|>|<\|(?:start|end|message|return|eot_id|endoftext)\|>|</s>")


def _sound(_: Target, answer: ProveAnswer) -> str:
    """The API's own rules, and nothing of the model's template in the text."""
    if answer.faults:
        return "; ".join(answer.faults)
    for pattern, what in ((TOOL_MARKUP, "tool"), (THINK_MARKUP, "reasoning"), (_TURN_MARKUP, "template")):
        if found := pattern.search(answer.text):
            return f"{what} markup in the text: {quote(answer.text[max(0, found.start() - 20) :])}"
    if found := TOOL_MARKUP.search("".join(call.arguments for call in answer.calls)):
        return f"tool markup in the arguments: {quote(found[0])}"
    if answer.prompt_tokens is None or answer.completion_tokens is None:
        return "no usage"
    return "usage counts no tokens" if not answer.prompt_tokens or not answer.completion_tokens else ""


# --- checks -------------------------------------------------------------------------------------------------


def says(wanted: str) -> Check:
    return lambda _, answer: "" if wanted.lower() in answer.text.lower() else f"no {wanted}: {shown(answer) or 'empty'}"


def finishes(*reasons: str) -> Check:
    def check(_: Target, answer: ProveAnswer) -> str:
        return "" if answer.finish in reasons else f"finish reason {answer.finish}, expected {reasons[0]}"

    return check


def no_calls(_: Target, answer: ProveAnswer) -> str:
    return f"a call that was not wanted: {shown(answer)}" if answer.calls else ""


def calls(*wanted: tuple[str, Mapping[str, Any]]) -> Check:
    """Exactly these calls, in any order, with exactly these arguments and types. Texts are compared without the white
    space around them."""

    def check(_: Target, answer: ProveAnswer) -> str:
        if not answer.calls:
            return f"no call: {quote(answer.text)}"
        found = []
        for call in answer.calls:
            try:
                found.append(_canonical(call.name, load_json(call.arguments)))
            except ValueError:
                return f"arguments of {call.name} are not JSON: {quote(call.arguments)}"
        if len(found) != len(wanted):
            return f"{len(found)} calls, expected {len(wanted)}: {shown(answer)}"
        for name, arguments in wanted:
            if _canonical(name, arguments) not in found:
                return f"expected {name}({truncate(json.dumps(arguments), 90)}), got {shown(answer)}"
        return ""

    return check


def _canonical(name: str, arguments: Any) -> str:
    """A call as text in which True is not 1."""
    return json.dumps([name, _stripped(arguments)], sort_keys=True)


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_stripped(item) for item in value]
    return value.strip() if isinstance(value, str) else value


def some_call(name: str) -> Check:
    """A call of that tool at the least, with an object of arguments."""

    def check(_: Target, answer: ProveAnswer) -> str:
        if not any(call.name == name for call in answer.calls):
            return f"no call of {name}: {shown(answer) or 'empty'}"
        try:
            whole = all(isinstance(load_json(call.arguments), dict) for call in answer.calls)
        except ValueError:
            whole = False
        return "" if whole else f"arguments are not a JSON object: {shown(answer)}"

    return check


def _reasons(target: Target, answer: ProveAnswer) -> str:
    if answer.reasoning:
        return ""
    if target.reasoning_parser:
        return f"no reasoning, although the reasoning parser {target.reasoning_parser} is set: {quote(answer.text)}"
    raise SkippedCase("the engine sends no reasoning, and has no reasoning parser")


def _reasons_not(_: Target, answer: ProveAnswer) -> str:
    return f"reasoning although it is off: {quote(answer.reasoning)}" if answer.reasoning.strip() else ""


def _valid_person(_: Target, answer: ProveAnswer) -> str:
    try:
        found = load_json(answer.text)
    except ValueError:
        return f"not JSON: {quote(answer.text)}"
    right = isinstance(found, dict) and sorted(found) == ["age", "languages", "name"]
    if right and isinstance(found["name"], str) and type(found["age"]) is int and isinstance(found["languages"], list):
        return ""
    return f"does not follow the schema: {quote(answer.text)}"


def _at_most(tokens: int) -> Check:
    def check(_: Target, answer: ProveAnswer) -> str:
        count = answer.completion_tokens or 0
        return f"{count} tokens counted, {tokens} allowed" if count > tokens else ""

    return check


def _stopped_before(word: str) -> Check:
    return lambda _, answer: f"the stop word is in the answer: {quote(answer.text)}" if word in answer.text else ""


def _has_logprobs(_: Target, answer: ProveAnswer) -> str:
    return "" if answer.logprobs else "no log probabilities"


LEAST_WORDS: Final = 40
MOST_REPEATED: Final = 0.35
"""Share of four-word sequences that were there before. Prose has 0 to 5 %, a loop nears 100 %."""


def _readable(_: Target, answer: ProveAnswer) -> str:
    """Prose of some length, without loops and foreign signs."""
    text, words = answer.text, answer.text.lower().split()
    invalid = [char for char in text if char == "\ufffd" or unicodedata.category(char) in ("Cc", "Cn", "Co")]
    strange = sum(char.isalpha() and not char.isascii() for char in text)
    if any(char not in "\n\t\r" for char in invalid):
        return f"{len(invalid)} invalid characters: {quote(text)}"
    if strange > max(10, 0.1 * len(text)):
        return f"{strange} letters of other scripts: {quote(text)}"
    if len(words) < LEAST_WORDS:
        return f"only {len(words)} words: {quote(text)}"
    grams = list(zip(words, words[1:], words[2:], words[3:], strict=False))
    repeated = 1 - len(set(grams)) / len(grams)
    return f"{repeated:.0%} of four-word sequences repeat: {quote(text[-80:])}" if repeated > MOST_REPEATED else ""


def _as_without_speculation(target: Target, answer: ProveAnswer) -> str:
    if not target.baseline:
        raise SkippedCase("no kept run of this model with the other speculation setting to compare with")
    if shown(answer) == target.baseline:
        return ""
    here, there = ("with", "without") if target.speculates else ("without", "with")
    return f"{here} speculation {quote(shown(answer))}, {there} {quote(target.baseline)}"


# --- what is asked ------------------------------------------------------------------------------------------


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_TEXT: Final = {"type": "string"}
WEATHER: Final = Tool("get_weather", "The weather in a city now.", _object(city=_TEXT))
_WRITE: Final = Tool("write_file", "Writes a text file.", _object(path=_TEXT, content=_TEXT))
_ORDER: Final = Tool(
    "place_order",
    "Places an order.",
    _object(
        customer=_object(name=_TEXT, address=_object(city=_TEXT, zip=_TEXT)),
        items={"type": "array", "items": _object(sku=_TEXT, count={"type": "integer"})},
        express={"type": "boolean"},
        budget={"type": "number"},
    ),
)
_THINGS: Final = ("light", "door", "window", "heater", "fan", "lamp", "camera", "printer", "router", "valve")
_VERBS: Final = ("check", "start", "stop", "reset")
OTHERS: Final = tuple(
    Tool(f"{verb}_{thing}", f"{verb.capitalize()} a {thing} by its number.", _object(number={"type": "integer"}))
    for verb in _VERBS
    for thing in _THINGS
)
_PERSON: Final = _object(name=_TEXT, age={"type": "integer"}, languages={"type": "array", "items": _TEXT})
_PARIS: Final = ("get_weather", {"city": "Paris"})
_ASK_WEATHER: Final = "What is the weather in Paris now? Use the tool."
_ASK_BOTH: Final = "What is the weather in Paris and in Oslo now? Call the tool once for each city, in one answer."
_FIXED: Final = {
    "quotes": 'He said "stop", then \'go\' \\ and {"a": "b"} was the end.',
    "newlines": 'def add(a, b):\n    """Sum."""\n\n    return a + b\n\nprint(add(1, 2))',
    "unicode": "Grüße, naïve café: 東京 → Привет, 🚀 ½ €",
    "long": " ".join(f"line{number}" for number in range(1, 121)),
    "markup": "<a href='x'>1 < 2 && 3 > 2</a> </parameter> &amp; <!-- note -->",
}
"""Contents of a file, which must arrive character by character."""
_ORDERED: Final = {
    "customer": {"name": "Ada", "address": {"city": "Oslo", "zip": "0150"}},
    "items": [{"sku": "A-1", "count": 2}, {"sku": "B-2", "count": 1}],
    "express": True,
    "budget": 99.5,
}
NEEDLE: Final = "KESTREL-7316"
_PROSE: Final = "Describe in about 120 words how a river changes from its spring to the sea."


def filler_text(words: int, needle: str = "") -> str:
    """That many words of numbered notes, all different and of equal length; the needle stands after a tenth of them."""
    lines = [
        f"Note {number}: shelf {number * 7 % 90 + 10} holds part {number * 13 % 900 + 100}."
        for number in range(10_000, 10_000 + words // 6)
    ]
    if needle:
        lines.insert(len(lines) // 10, needle)
    return "\n".join(lines)


def _written(content: str) -> Question:
    prompt = 'Call write_file with path "notes.txt" and as content exactly what stands between the two lines of ===.'
    return Question(
        f"{prompt}\n===\n{content}\n===", tools=(_WRITE,), temperature=0.0, thinking=False, most_tokens=1024
    )


def _basics(api: Api, stream: bool) -> Iterator[Case]:
    """What every API must do, as a stream and as one answer."""
    result = Call(CALL_ID, "get_weather", '{"city": "Paris"}')
    own: dict[str, Any] = {"thinking": False, "temperature": 0.0} if api is Api.CHAT else {"most_tokens": 1536}
    end, base = ".stream" if stream else "", Question("", api=api, stream=stream, **own)
    yield Case(
        f"{api}.text{end}",
        Area.TEXT,
        replace(base, prompt="Reply with exactly this word: pelican"),
        (says("pelican"), no_calls, finishes("stop")),
    )
    weather = replace(base, prompt=_ASK_WEATHER, tools=(WEATHER,))
    yield Case(f"{api}.tool{end}", Area.TOOLS, weather, (calls(_PARIS), finishes("tool_calls")))
    yield Case(
        f"{api}.tool.result{end}",
        Area.TOOLS,
        replace(weather, called=result, result='{"celsius": 17.3, "sky": "hail"}'),
        (says("17.3"), no_calls, finishes("stop")),
    )
    yield Case(
        f"{api}.tool.parallel{end}",
        Area.TOOLS,
        replace(weather, prompt=_ASK_BOTH),
        (calls(_PARIS, ("get_weather", {"city": "Oslo"})), finishes("tool_calls")),
        full=api is not Api.CHAT and not stream,
    )
    required = replace(weather, prompt="I am in Paris. Say hello.", choice="required")
    yield Case(
        f"{api}.tool.required{end}",
        Area.TOOLS,
        required,
        (some_call("get_weather"), finishes("tool_calls", "stop")),
        full=stream and api is not Api.CHAT,
    )
    named = replace(required, choice="check_door", tools=(WEATHER, OTHERS[1]), prompt="Say hello to door 4.")
    yield Case(
        f"{api}.tool.named{end}",
        Area.TOOLS,
        named,
        (some_call("check_door"), finishes("tool_calls", "stop")),
        full=stream and api is not Api.CHAT,
    )
    yield Case(
        f"{api}.length{end}",
        Area.LIMITS,
        replace(base, prompt="Count from 1 to 200 in words.", most_tokens=16),
        (finishes("length"), _at_most(16)),
        full=stream,
    )
    if api is not Api.MESSAGES:
        person = "Ada is 36 and speaks French and Greek. Give her as JSON: name, age, languages."
        yield Case(
            f"{api}.schema{end}",
            Area.STRUCTURE,
            replace(base, prompt=person, schema=_PERSON),
            (_valid_person, finishes("stop")),
        )


def _chat_only() -> Iterator[Case]:
    plain = Question("", temperature=0.0, thinking=False)
    for stream in (False, True):
        end = ".stream" if stream else ""
        for name, content in _FIXED.items():
            wanted = ("write_file", {"path": "notes.txt", "content": content})
            yield Case(
                f"chat.arguments.{name}{end}",
                Area.ARGUMENTS,
                replace(_written(content), stream=stream),
                (calls(wanted),),
                full=not stream,
            )
        order = f"Call place_order with exactly these arguments: {json.dumps(_ORDERED)}"
        yield Case(
            f"chat.arguments.nested{end}",
            Area.ARGUMENTS,
            replace(plain, prompt=order, tools=(_ORDER,), stream=stream),
            (calls(("place_order", _ORDERED)),),
        )
        think = replace(plain, prompt="What is 17 times 23? Think first.", thinking=True, temperature=0.6)
        think = replace(think, stream=stream, most_tokens=4096)
        yield Case(f"chat.reasoning{end}", Area.REASONING, think, (_reasons, says("391"), finishes("stop")))
        think_tool = replace(think, prompt=_ASK_WEATHER, tools=(WEATHER,))
        yield Case(f"chat.reasoning.tool{end}", Area.REASONING, think_tool, (_reasons, calls(_PARIS)))
        off = replace(plain, prompt="What is 17 times 23?", stream=stream)
        yield Case(f"chat.reasoning.off{end}", Area.REASONING, off, (_reasons_not, says("391")), full=not stream)
    for count in (10, 40):
        many = replace(
            plain, prompt=_ASK_WEATHER, tools=(*OTHERS[: count // 2], WEATHER, *OTHERS[count // 2 : count - 1])
        )
        yield Case(f"chat.tools.{count}", Area.TOOLS, replace(many, stream=True), (calls(_PARIS),))
    none = replace(plain, prompt=_ASK_WEATHER, tools=(WEATHER,), choice="none", most_tokens=128)
    yield Case("chat.tool.none", Area.TOOLS, none, (no_calls,))
    stopping = replace(plain, prompt="Count from 1 to 9 in words, one after the other: one, two, ...", stop="five")
    for api in (Api.CHAT, Api.MESSAGES):
        thinking = False if api is Api.CHAT else None
        yield Case(
            f"{api}.stop",
            Area.LIMITS,
            replace(stopping, api=api, thinking=thinking),
            (says("four"), _stopped_before("five"), finishes("stop")),
        )
    yield Case("chat.logprobs", Area.LIMITS, replace(plain, prompt="Say hello.", logprobs=2), (_has_logprobs,))
    prose = replace(plain, prompt=_PROSE, most_tokens=400)
    for name, heat in (("chat.prose", 0.0), ("chat.prose.warm", 0.7)):
        yield Case(name, Area.QUALITY, replace(prose, temperature=heat), (_readable,))
    squares = replace(plain, prompt="List the squares of 1 to 12, separated by commas, and nothing else.")
    yield Case("chat.repeat", Area.QUALITY, squares, (says("144"),), twice=True)
    yield Case("chat.speculation", Area.QUALITY, squares, (_as_without_speculation,))
    needle = "Which code word is in the note about the vault? Reply with the code word only."
    for share in (0.25, 0.5, 0.9):
        asked = replace(plain, prompt=needle, filler_share=share, most_tokens=64)
        yield Case(f"chat.needle.{share * 100:.0f}", Area.DEPTH, asked, (says(NEEDLE),))
    for size in (8, 32, 64):
        asked = replace(plain, prompt=_ASK_WEATHER, tools=(WEATHER,), filler_tokens=size * 1000)
        yield Case(f"chat.tool.{size}k", Area.DEPTH, asked, (calls(_PARIS),), full=size > 8)


# --- vectors and scores --------------------------------------------------------------------------------------

_PAIRS: Final = (
    ("How do I bake bread at home?", "Mix flour, water, yeast and salt, let the dough rise, then bake it."),
    ("What is the capital of France?", "Paris is the capital and the largest city of France."),
    ("Why does a ship of steel float?", "A hull displaces water that weighs as much as the whole ship."),
)
"""Three questions with their answers: each is nearer to its own than to the next one's."""


def _measured(_: Target, answer: ProveAnswer) -> str:
    """The API's own rules; vectors of one length, of finite numbers, none of zeros."""
    if answer.faults:
        return "; ".join(answer.faults)
    lengths = {len(vector) for vector in answer.vectors}
    if len(lengths) != 1:
        return f"vectors of different lengths: {', '.join(map(str, sorted(lengths)))}"
    if not all(math.isfinite(number) for vector in answer.vectors for number in vector):
        return "a vector or score holds no finite number"
    return "" if len(answer.vectors[0]) == 1 or all(map(any, answer.vectors)) else "a vector of zeros"


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(map(mul, one, other)) / (math.hypot(*one) * math.hypot(*other))


def _pairs_in_order(_: Target, answer: ProveAnswer) -> str:
    questions, answers = answer.vectors[: len(_PAIRS)], answer.vectors[len(_PAIRS) :]
    for at, question in enumerate(questions):
        own, other = _cosine(question, answers[at]), _cosine(question, answers[(at + 1) % len(_PAIRS)])
        if own <= other:
            return f"{quote(_PAIRS[at][0])} is nearer to another answer: {own:.3f}, {other:.3f}"
    return ""


def _own_first(_: Target, answer: ProveAnswer) -> str:
    scores = [vector[0] for vector in answer.vectors]
    return "" if scores[0] > scores[1] else f"the answer scores {scores[0]:.3g}, another text {scores[1]:.3g}"


def _pooling() -> Iterator[Case]:
    """What a model without text is asked."""
    texts = tuple(question for question, _ in _PAIRS) + tuple(answer for _, answer in _PAIRS)
    asked = Question("", api=Api.EMBEDDINGS, texts=texts)
    yield Case("embeddings.dimension", Area.VECTORS, asked, ())
    yield Case("embeddings.order", Area.VECTORS, asked, (_pairs_in_order,))
    for at, (question, own) in enumerate(_PAIRS):
        other = _PAIRS[(at + 1) % len(_PAIRS)][1]
        scored = Question(question, api=Api.RERANK, texts=(own, other))
        yield Case(f"rerank.order.{at + 1}", Area.VECTORS, scored, (_own_first,))


POOLING_CASES: Final = tuple(_pooling())

CLIP_WORDS: Final = ("yellow", "boats", "passed", "lighthouse", "tuesday", "morning")
"""Of the sentence in clip.wav: "Yellow boats passed the old lighthouse on Tuesday morning." Spoken by eSpeak NG 1.51
(en-us, 165 words a minute, gap 1), then 16 kHz, mono, 8 bits, without the silence around it."""
MOST_MISSED: Final = 2


def _faultless(_: Target, answer: ProveAnswer) -> str:
    return "; ".join(answer.faults)


def _heard(_: Target, answer: ProveAnswer) -> str:
    """Most of the words, in any spelling around them."""
    missed = [word for word in CLIP_WORDS if word not in answer.text.lower()]
    return f"not heard: {', '.join(missed)}: {quote(answer.text)}" if len(missed) > MOST_MISSED else ""


def speech_cases() -> tuple[Case, ...]:
    """What a model that writes down speech is asked, with the clip as it ships."""
    clip = Path(__file__).with_name("clip.wav").read_bytes()
    return (Case("transcription.words", Area.SPEECH, Question("", api=Api.TRANSCRIPTIONS, clip=clip), (_heard,)),)


_CHAT_APIS: Final = (Api.CHAT, Api.RESPONSES, Api.MESSAGES)
_GROUPS: Final = zip_longest(*(_basics(api, stream) for api in _CHAT_APIS for stream in (False, True)))
_ALL: Final = (*(case for row in _GROUPS for case in row if case is not None), *_chat_only())
CASES: Final = tuple(sorted(_ALL, key=lambda case: case.may_compile))
"""In the order in which they are asked: each API has its turn early; what may make an engine compile comes last, and of
that the long ones."""
VAULT: Final = f"Note about the vault: its code word is {NEEDLE}."
QUICK_TOKENS: Final = 20_000
"""The longest prompt without --full: about half a minute of prefill on one Spark."""
ROOM_TOKENS: Final = 1_200
"""What a long prompt leaves free: the question, the tools and the answer."""


def filler_tokens(question: Question, target: Target) -> int:
    """How many tokens of text come before the question. Raises SkippedCase where they do not fit."""
    context = target.context_tokens
    wanted = question.filler_tokens
    if question.filler_share:
        if context is None:
            raise SkippedCase("context length unknown")
        wanted = int(min(context * question.filler_share, context - ROOM_TOKENS))
    if context is not None and wanted and not 0 < wanted <= context - ROOM_TOKENS:
        needed = max(wanted, 0) + ROOM_TOKENS
        raise SkippedCase(f"needs {needed:,} tokens of context, the engine has {context:,}")
    if wanted > QUICK_TOKENS and not target.full:
        raise SkippedCase(f"{wanted:,} tokens: only in a full run")
    return wanted
