"""What a benchmark asks of an engine, the reasons not to ask it, and the conditions that it was measured under."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct

from spark_tui.base.engine.container import LABEL_NODES, LABEL_RAILS, ImageFacts
from spark_tui.base.engine.invocation import parse
from spark_tui.base.errors import ContextOverflow, UsageError
from spark_tui.base.host.vitals import GpuReading, HostIdentity
from spark_tui.base.quantities import human_count
from spark_tui.base.secret import mask_secrets
from spark_tui.observe.explain.model.view import EngineView

_ADDRESS: Final = ("--host", "--port", "--served-model-name", "--api-key", "--uvicorn-log-level")
"""Options that decide no number."""


class Conditions(Struct, frozen=True):
    """The engine and the host as they were. Empty or None: not known. Lengths in tokens.

    `flags` are the engine's options, one `--name value` each, keys masked. `image_id` names the image exactly,
    `image_digest` what its registry calls it. `engine_seconds` is how long it had served. `prefix_caching` is the
    engine's own setting. `nodes` are those of an engine on several, the head first; `rails` the head's devices between
    them, `nccl` the image's version, `bandwidth` what was measured between them last. `simulated` results come from the
    demo and are compared with nothing.
    """

    engine: str
    model: str
    served_name: str = ""
    revision: str = ""
    quantization: str = ""
    runtime: str = ""
    version: str = ""
    image: str = ""
    image_id: str = ""
    image_digest: str = ""
    preset: str = ""
    flags: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    context_tokens: int | None = None
    most_sequences: int | None = None
    kv_tokens: int | None = None
    kv_cache_dtype: str = ""
    speculation: str = ""
    attention: str = ""
    linear_kernel: str = ""
    moe_kernel: str = ""
    eager: bool | None = None
    prefix_caching: bool | None = None
    engine_seconds: float | None = None
    platform: str = ""
    hostname: str = ""
    is_spark: bool = False
    kernel: str = ""
    gpu: str = ""
    driver: str = ""
    tool_version: str = ""
    python: str = ""
    simulated: bool = False
    nodes: tuple[str, ...] = ()
    rails: tuple[str, ...] = ()
    nccl: str = ""
    bandwidth: str = ""


def conditions_of(
    view: EngineView,
    *,
    host: HostIdentity,
    image: ImageFacts | None,
    gpu: GpuReading | None,
    now: float,
    tool_version: str,
    python: str = "",
    context: int | None = None,
    bandwidth: str = "",
    simulated: bool = False,
) -> Conditions:
    """What is known of an engine that serves. `now` is seconds since the epoch, `context` its context length where the
    server reports it, `bandwidth` what was measured between its nodes."""
    container, facts = view.container, view.timeline.facts
    command = parse(container.argv, view.runtime)
    sequences = command.value("max_num_seqs") or ""
    return Conditions(
        engine=view.name,
        model=view.model,
        served_name=view.served_name,
        revision=command.value("revision") or "",
        quantization=facts.quantization or ("none" if facts.unquantized else ""),
        runtime=view.runtime,
        version=view.version or facts.version,
        image=container.image,
        image_id=container.image_id,
        image_digest=image.digest if image else "",
        preset=container.preset,
        flags=flags_of(command.words),
        environment=tuple(sorted(container.environment)),
        context_tokens=context or facts.max_model_len,
        most_sequences=int(sequences) if sequences.isdecimal() and len(sequences) < 10 else None,
        kv_tokens=facts.kv_tokens,
        kv_cache_dtype=facts.kv_cache_dtype or command.value("kv_cache_dtype") or "",
        speculation=facts.speculation,
        attention=facts.attention,
        linear_kernel=facts.fp4_linear,
        moe_kernel=facts.fp4_moe,
        eager=facts.eager or None,
        prefix_caching=facts.prefix_caching,
        engine_seconds=None if container.started_at is None else max(0.0, now - container.started_at),
        platform=host.product,
        hostname=host.hostname,
        is_spark=host.is_spark,
        kernel=host.kernel,
        gpu=gpu.name if gpu else "",
        driver=gpu.driver if gpu else "",
        tool_version=tool_version,
        python=python,
        simulated=simulated,
        nodes=(nodes := container.listed(LABEL_NODES)),
        rails=container.listed(LABEL_RAILS),
        nccl=image.nccl if image and nodes else "",
        bandwidth=bandwidth,
    )


def flags_of(words: Sequence[str]) -> tuple[str, ...]:
    """The options in a command, sorted, each with its values and with keys masked; those of the address left out."""
    found: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found.append([name, value] if equals else [name])
        elif found:
            found[-1].append(word)
    kept = [" ".join(each) for each in found if each[0] not in _ADDRESS]
    return tuple(sorted(mask_secrets(text) for text in kept))


# --- plan ------------------------------------------------------------------------------------------------


LevelKey: TypeAlias = tuple[bool, int, int]
"""Whether it is a prefill depth, how many streams, how many prompt tokens."""
MOST_CONCURRENCY: Final = 1024
MOST_REQUESTS: Final = 100_000
MOST_TOKENS: Final = 4_000_000


class Content(StrEnum):
    """What the prompts are made of.

    Random tokens defeat every cache and every guess; prose lets speculative decoding guess as it does in real use.
    """

    RANDOM = "random"
    PROSE = "prose"


class PromptCache(StrEnum):
    """Whether prompts may be found in the engine's prefix cache."""

    COLD = "cold"
    WARM = "warm"


class PromptForm(StrEnum):
    """How prompts are sent: as token ids, whose number is exact and which the server need not tokenize; or as text."""

    TOKENS = "tokens"
    TEXT = "text"


class BenchPlan(Struct, frozen=True):
    """The load. All lengths in tokens.

    Each of `concurrency` is a level: that number of streams, each sending its next request as soon as its last one has
    ended (a closed loop, like `vllm bench serve --max-concurrency`). A level is measured in `passes`, and in every pass
    each stream sends `rounds` requests; the passes of all levels are interleaved, so that a machine that grows hot, or
    slow, does so for all levels alike. `depths` are prompt lengths at which prefill and decode of one stream are
    measured.
    `temperature` None leaves sampling to the server.
    """

    input_tokens: int = 1024
    output_tokens: int = 128
    concurrency: tuple[int, ...] = (1, 2, 4, 8)
    depths: tuple[int, ...] = ()
    passes: int = 3
    rounds: int = 2
    warmup: int = 2
    content: Content = Content.RANDOM
    prompt_cache: PromptCache = PromptCache.COLD
    form: PromptForm = PromptForm.TOKENS
    temperature: float | None = 0.0
    seed: int = 1

    def requests(self, streams: int) -> int:
        """Requests of one pass at that level."""
        return streams * self.rounds

    @property
    def total_requests(self) -> int:
        """All that are measured, without the warm-up."""
        return self.passes * (sum(self.requests(streams) for streams in self.concurrency) + len(self.depths))

    @property
    def longest(self) -> int:
        """The longest prompt with its answer."""
        return max((self.input_tokens, *self.depths)) + self.output_tokens


class PlanError(UsageError):
    """A load that makes no sense. `fields` are the plan's fields concerned: an option, or a field of a form."""

    def __init__(self, summary: str, remedy: str, *fields: str) -> None:
        super().__init__(summary, remedy)
        self.fields = fields


def check_plan(plan: BenchPlan) -> None:
    if not plan.concurrency and not plan.depths:
        raise PlanError(
            "There is nothing to measure.", "Give streams, prefill depths, or both.", "concurrency", "depths"
        )
    for field, words, values, most in (
        ("input_tokens", "Prompt tokens", (plan.input_tokens,), MOST_TOKENS),
        ("output_tokens", "Answer tokens", (plan.output_tokens,), MOST_TOKENS),
        ("passes", "Passes", (plan.passes,), 100),
        ("rounds", "Rounds", (plan.rounds,), 1000),
        ("concurrency", "Streams", plan.concurrency, MOST_CONCURRENCY),
        ("depths", "A prefill depth", plan.depths, MOST_TOKENS),
    ):
        for value in values:
            if not 1 <= value <= most:
                raise PlanError(f"{words} must be 1 to {human_count(most)}, not {value}.", "Change it.", field)
    if plan.output_tokens < 2:
        raise PlanError(
            "An answer needs at least 2 tokens.", "One token has no time between tokens to measure.", "output_tokens"
        )
    if plan.warmup < 0:
        raise PlanError("Warm-up requests cannot be negative.", "0 leaves them out.", "warmup")
    for field, listed in (("concurrency", plan.concurrency), ("depths", plan.depths)):
        if len(set(listed)) < len(listed):
            raise PlanError("A level or a depth is given twice.", "Give each once; more passes repeat them.", field)
    if plan.total_requests > MOST_REQUESTS:
        raise PlanError(
            f"That would be {human_count(plan.total_requests)} requests.",
            "Take fewer levels, passes or rounds.",
            "concurrency",
            "passes",
            "rounds",
        )


def check_context(plan: BenchPlan, context: int | None) -> None:
    """Raises ContextOverflow where a prompt with its answer is longer than the engine's context; nothing is sent."""
    if context is None or plan.longest <= context:
        return
    room = context - plan.output_tokens
    most = f"At most {human_count(room)} prompt tokens fit beside {plan.output_tokens}" if room > 0 else "Shorten both"
    raise ContextOverflow(
        f"The longest request is {human_count(plan.longest)} tokens, the engine's context {human_count(context)}.",
        f"{most}: change prompt tokens, answer tokens or prefill depths, or launch it with a larger max_model_len.",
        limit=context,
        answer_tokens=plan.output_tokens,
    )


class Segment(Struct, frozen=True):
    """One uninterrupted measurement: `streams` streams with prompts of `input_tokens`, `requests` altogether.

    `number` counts the passes from 1; `depth` says that it belongs to a prefill depth and not to the sweep.
    """

    number: int
    streams: int
    requests: int
    input_tokens: int
    output_tokens: int
    depth: bool = False

    @property
    def key(self) -> LevelKey:
        """Its level. Sorted, those of the sweep come first by streams, then depths by length."""
        return (self.depth, self.streams, self.input_tokens)


def segments(plan: BenchPlan) -> tuple[Segment, ...]:
    """All measurements in their order. Every second pass goes the other way round (1 2 4, 4 2 1, 1 2 4): what drifts
    in one direction then favours no level."""
    found: list[Segment] = []
    for number in range(1, plan.passes + 1):
        levels = [
            Segment(number, streams, plan.requests(streams), plan.input_tokens, plan.output_tokens)
            for streams in plan.concurrency
        ]
        depths = [Segment(number, 1, 1, depth, plan.output_tokens, depth=True) for depth in plan.depths]
        one_pass = levels + depths
        found += one_pass if number % 2 else reversed(one_pass)
    return tuple(found)


LEAST_POOL: Final = 64
"""Fewer different ids than this would make prompts that resemble each other."""

PROSE: Final = (
    "The lamp at the end of the pier had been lit for an hour when the ferry turned into the wind and began to slow. "
    "On deck the passengers gathered their bags, counted their children, and looked for the faces of those who had "
    "come to meet them. An old carpenter, who had crossed this water every Friday for thirty years, stayed on his "
    "bench and finished his letter. He described the new roof of the school, the price of oak, and the storm that had "
    "taken the orchard's fence; then he asked whether the workshop in the city still needed a man with patience. "
    "A memory bus moves a fixed number of bytes in a second, and a model that reads all of its weights for every word "
    "cannot speak faster than that. Engineers therefore make the weights smaller, read them once for many readers, or "
    "guess several words ahead and check the guess in one go. Each of these tricks has its price, and only a "
    "measurement under known conditions can say whether it was worth paying. In the morning the baker measures flour, "
    "water and salt by weight, because a cup is never the same cup twice. He writes down the temperature of the room, "
    "the hour at which the dough was folded, and how long it rested, and when a loaf fails he can say why. The river "
    "rose in March, fell in April, and by June one could walk across it on stones that nobody had seen for a decade. "
    "Seven boys found an anchor there, green with age, and carried it to the museum, where a clerk gave it a number "
    "and a shelf. Letters to the council followed: some wanted it polished, others wanted it left exactly as it was."
)
"""What prose prompts are cut from, and what the pool of ordinary ids comes from."""


def pool_text() -> str:
    """A text whose tokens are ordinary words, numbers and signs of any vocabulary."""
    numbers = " ".join(str(number) for number in range(0, 2000, 7))
    pairs = [f"{chr(97 + first)}{chr(97 + second)}" for first in range(26) for second in range(26)]
    words = sorted(set(PROSE.replace(",", "").replace(".", "").replace(";", "").split()))
    return f"{PROSE} {' '.join(words)} {numbers} {' '.join(pairs)} {' '.join(pair.upper() for pair in pairs[::5])}"


class Vocabulary(Struct, frozen=True):
    """Token ids of one model: `pool` those of ordinary text, each once; `prose` those of a text in its order."""

    pool: tuple[int, ...]
    prose: tuple[int, ...]


def prompt_ids(plan: BenchPlan, salt: int, segment: Segment, request: int, words: Vocabulary) -> list[int]:
    """The token ids of one request's prompt, exactly as many as the segment asks for.

    The same plan and salt give the same prompts; a salt of its own keeps a run's prompts out of what an earlier run
    left in the prefix cache. Cold prompts share no first token block: each begins with a draw of its own. Warm ones
    of one length are all the same.
    """
    draw = _draw(plan, salt, segment, request)
    if plan.content is Content.RANDOM:
        return draw.choices(words.pool, k=segment.input_tokens)
    mark = draw.choices(words.pool, k=min(8, segment.input_tokens))
    begin = draw.randrange(len(words.prose))
    turned = [*words.prose[begin:], *words.prose[:begin]]
    repeated = turned * (segment.input_tokens // len(turned) + 1)
    return (mark + repeated)[: segment.input_tokens]


def prompt_text(plan: BenchPlan, salt: int, segment: Segment, request: int, words_per_token: float) -> str:
    """A prompt of about as many tokens, for a server that takes no token ids; cold and warm as above."""
    draw = _draw(plan, salt, segment, request)
    words, count = PROSE.split(), max(1, round(segment.input_tokens * words_per_token))
    if plan.content is Content.RANDOM:
        return " ".join(draw.choices(words, k=count))
    begin = draw.randrange(len(words))
    turned = (words[begin:] + words[:begin]) * (count // len(words) + 1)
    return " ".join([str(draw.randrange(10**6)), *turned][:count])


def _draw(plan: BenchPlan, salt: int, segment: Segment, request: int) -> random.Random:
    warm = plan.prompt_cache is PromptCache.WARM
    place = (segment.input_tokens,) if warm else (segment.number, segment.streams, segment.input_tokens, request)
    seed = hashlib.sha256(repr((plan.seed, salt, *place)).encode()).digest()[:8]
    return random.Random(int.from_bytes(seed, "big"))  # noqa: S311 - repeatable on purpose
