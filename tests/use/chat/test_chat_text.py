"""Answers as lines: Markdown is shown, what grows is laid out in pieces, and hostile text stays text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from textual.content import Content

from spark_tui.base.engine.message import Answer, ToolCall, Usage
from spark_tui.base.errors import ContextOverflow
from spark_tui.tui.format import UNICODE
from spark_tui.tui.widgets.markdown import LiveMarkdown, LivePlain, lay_out, parse, share
from spark_tui.use.chat.model.conversation import AnswerOutcome, Exchange
from spark_tui.use.chat.screen.turn import Turn, TurnLines, error_lines, figures, reasoning_headline

WIDTH = 60

DOCUMENT = """# Plan

A **bold** word, `code`, and a [link](https://example.org/a).

1. one

2. two

   still two

- a
- b
  - c

```python
def f(x):
    return x  # comment

print(f(1))
```

| name | tok/s |
|------|-------|
| a    | 41.8  |

> quoted

---

The end.
"""


def lines_of(text: str, width: int = WIDTH) -> list[Content]:
    return lay_out(parse(text), width, UNICODE)


def plain_of(text: str, width: int = WIDTH) -> str:
    return "\n".join(line.plain.rstrip() for line in lines_of(text, width))


def test_markdown_is_laid_out() -> None:
    assert plain_of(DOCUMENT) == (
        "Plan\n\nA bold word, code, and a link (https://example.org/a).\n\n"
        "1. one\n\n2. two\n\n   still two\n\n• a\n• b\n  • c\n\n"
        " python\n def f(x):\n     return x  # comment\n\n print(f(1))\n\n"
        "name  tok/s\n────  ─────\na     41.8\n\n│ quoted\n\n" + "─" * WIDTH + "\n\nThe end."
    )


FORMULAS = r"""It is \(a_1 * b_2 * c\) and $x_{i} * y_{j}$, or \[ \int_0^1 x\,dx = \tfrac{1}{2} \] in a line.

\[
\begin{pmatrix} 1 & 2 \\
- 3 & 4
\end{pmatrix}
\]

$$\sum_{i=1}^{n} i = \frac{n(n+1)}{2}$$

1. as an item: $$e^{i\pi} + 1 = 0$$
2. $\{a, b\}$"""


def test_latex_stays_as_the_model_wrote_it() -> None:
    assert plain_of(FORMULAS, 100) == FORMULAS


def test_columns_aligned_to_the_right_are() -> None:
    table = "| model | tok/s |\n|:--|--:|\n| a | 9.5 |\n| b | 141.8 |"
    assert plain_of(table) == "model  tok/s\n─────  ─────\na        9.5\nb      141.8"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It costs $5 to $10, *really*.", "It costs $5 to $10, really."),
        ("$HOME and $PATH are *set*", "$HOME and $PATH are set"),
        ("so \\[ not closed *yet*", "so \\[ not closed yet"),
        ("$$\n\nno formula *here*", "$$\n\nno formula here"),
        ("`$x$` is code", "$x$ is code"),
        ("$$ a $$ and text after it *it*", "$$ a $$ and text after it it"),
    ],
)
def test_what_is_no_formula_is_markdown(text: str, shown: str) -> None:
    assert plain_of(text) == shown


@pytest.mark.parametrize("step", [1, 7, 64, 4096])
def test_an_answer_looks_the_same_however_it_was_cut_into_pieces(step: int) -> None:
    text = f"{DOCUMENT}\n{FORMULAS}\n\n" * 3
    live = LiveMarkdown(WIDTH, UNICODE)
    shown: list[Content] = []
    for end in range(step, len(text) + step, step):
        shown = live.lines(text[:end])
    assert [line.plain.rstrip() for line in shown] == [line.plain.rstrip() for line in lines_of(text)]


def test_what_is_closed_is_not_laid_out_again() -> None:
    live = LiveMarkdown(WIDTH, UNICODE)
    first = live.lines("one\n\ntwo\n\nthree\n")
    second = live.lines("one\n\ntwo\n\nthree\nand more")
    assert second[0] is first[0]
    assert second[2] is first[2]
    assert [line.plain for line in second[-2:]] == ["three", "and more"]


def test_a_long_code_block_stays_code_while_it_grows() -> None:
    code = "# not a heading\n" * 1_000
    live = LiveMarkdown(WIDTH, UNICODE)
    text = "```python\n" + code
    for end in range(500, len(text) + 500, 500):
        shown = live.lines(text[:end])
    assert {line.plain.rstrip() for line in shown} == {" python", " # not a heading"}
    assert len(shown) == 1_001


def test_links_are_text_that_shows_where_it_leads() -> None:
    text = "[ok](javascript:run) ![pic](http://x/p.png) [@click=app.quit]here[/] <http://x/>"
    lines = lines_of(text, 200)
    assert "ok (javascript:run)" in lines[0].plain or "[ok](javascript:run)" in lines[0].plain
    assert "image pic (http://x/p.png)" in lines[0].plain
    assert "[@click=app.quit]here[/]" in lines[0].plain
    assert not [span for line in lines for span in line.spans if "@click" in str(span.style)]
    assert all(isinstance(span.style, str) for line in lines for span in line.spans)


@pytest.mark.parametrize(
    "text",
    [
        "[/red] text",
        "[@click=app.quit]x[/]",
        "<script>alert(1)</script>",
        "<!-- hidden -->",
        "[1]: http://example.org/vanishes",
        "> " * 40 + "deep",
        "- " * 9 + "deep item",
        "".join("  " * depth + "- deep\n" for depth in range(40)),
    ],
)
def test_nothing_that_was_said_vanishes(text: str) -> None:
    shown = plain_of(text, 200)
    for word in ("text", "x", "alert", "hidden", "vanishes", "deep"):
        assert (word in text) <= (word in shown), word


def is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs") or character in "\u202e\u2066\u200b\u2028"


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mred\x1b[0m",
        "\x1b]52;c;ZXZpbA==\x07shown",
        "\x9b31mred",
        "a\rb",
        "&#x1b;[31m &#x202e;evil &#155;31m",
        "```\x1b]0;t\x07py\n\x1b[2Jcode\n```",
        "[a](http://x/\u202eb)",
        "\ud800 half",
    ],
)
def test_no_control_code_reaches_the_screen(text: str) -> None:
    for lines in (lines_of(text), LiveMarkdown(WIDTH, UNICODE).lines(text), LivePlain(WIDTH).lines(text)):
        assert not [c for line in lines for c in line.plain if is_control(c)]


@settings(max_examples=150, deadline=None)
@given(
    st.text(alphabet=st.sampled_from("ab `*_[]()#>-|\n\t1.~:!\\<&;é漢🚀\u0301\x1b\x9b\u202e"), max_size=300),
    st.integers(8, 90),
)
def test_any_text_is_shown_within_its_width(text: str, width: int) -> None:
    live = LiveMarkdown(width, UNICODE)
    for end in range(0, len(text) + 7, 7):
        lines = live.lines(text[:end])
        assert all(line.cell_length <= width for line in lines)
    lines = lines_of(text, width)
    assert all(line.cell_length <= width for line in lines)
    assert not [c for line in lines for c in line.plain if is_control(c)]


@pytest.mark.parametrize(
    "text",
    ["w" * 100_000, "漢" * 100_000, "[" * 100_000, "*a " * 30_000, "|" * 100_000 + "\n" + "|-" * 50_000, "`" * 99_999],
)
def test_a_hundred_thousand_characters_in_one_line_are_shown(text: str) -> None:
    live = LiveMarkdown(WIDTH, UNICODE)
    for end in range(2_000, len(text) + 2_000, 2_000):
        live.lines(text[:end])
    assert all(line.cell_length <= WIDTH for line in live.lines(text))


@given(st.lists(st.integers(1, 200), min_size=1, max_size=8), st.integers(60, 200))
def test_columns_never_take_more_than_there_is(wanted: list[int], room: int) -> None:
    widths = share(wanted, room)
    assert sum(widths) <= max(room, 0) or sum(wanted) <= room
    assert all(0 < width <= want for width, want in zip(widths, wanted, strict=True))


# --- figures ----------------------------------------------------------------------------------------------


def turn(answer: Answer, outcome: AnswerOutcome = AnswerOutcome.COMPLETE) -> Turn:
    return Turn(Exchange(1, "Why?", "e", "qwen", 1.0, answer, outcome), True)


TIMED = Answer(10.0, "Yes", first_token_at=10.41, last_token_at=17.85, finish_reason="stop")


@pytest.mark.parametrize(
    ("answer", "outcome", "line"),
    [
        (replace(TIMED, usage=Usage(100, 312, None, 88)), AnswerOutcome.COMPLETE,
         "ttft 0.41 s   41.8 tok/s   312 tokens   prompt 100 (88 cached)"),
        (TIMED, AnswerOutcome.COMPLETE, "ttft 0.41 s   tokens not reported"),
        (Answer(0.0, "Yes", finish_reason="length", usage=Usage(1, 5)), AnswerOutcome.COMPLETE,
         "cut at the token limit   5 tokens   prompt 1   F4 continue"),
        (TIMED, AnswerOutcome.STOPPED, "stopped   ttft 0.41 s   ^g retry   F4 continue"),
    ],
    ids=["complete", "not counted", "cut", "stopped"],
)  # fmt: skip
def test_figures_follow_how_the_answer_ended(answer: Answer, outcome: AnswerOutcome, line: str) -> None:
    assert "   ".join(part.plain for part in figures(turn(answer, outcome).exchange)) == line


def test_the_headline_of_reasoning_shows_only_known_figures() -> None:
    answer = Answer(0.0, "Yes", "hm", usage=Usage(1, 500, 412), first_token_at=1.0, answer_at=10.8, last_token_at=12.0)
    assert reasoning_headline(turn(answer), open_=False).plain == "+ reasoned for 9.8 s, 412 tokens  ^t show"
    assert reasoning_headline(turn(replace(answer, usage=None)), open_=True).plain == "- reasoned for 9.8 s  ^t hide"


def test_an_error_says_what_to_do_and_shows_a_little_evidence() -> None:
    error = ContextOverflow("The prompt is too long.", "Start anew: ^n.", detail="evidence " * 500)
    lines = [line.plain for line in error_lines(error, WIDTH)]
    assert lines[:2] == ["error  The prompt is too long.", "Start anew: ^n."]
    assert len(lines) == 6


def test_a_tool_call_is_shown_with_its_arguments_and_nothing_in_them_is_interpreted() -> None:
    call = ToolCall("1", "rm[/]\x1b[2J", '{"path": "\\u009b31m[/red]", "flags": ["' + "f" * 60 + '"]}')
    laid = TurnLines(WIDTH, UNICODE).lay(turn(Answer(0.0, tool_calls=(call,), finish_reason="tool_calls")), open_=False)
    text = "\n".join(line.plain.rstrip() for line in laid.lines)
    assert "asks for tool rm[/]" in text
    assert '"path": "[/red]"' in text
    assert not [c for c in text.replace("\n", "") if is_control(c)]
