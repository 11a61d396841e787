r"""LaTeX in Markdown stays as the model wrote it: Markdown would eat its backslashes, stars and underscores.

`\(...\)`, `\[...\]`, `$...$` and `$$...$$` are kept, alone on their lines and within a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

INLINE: Final = "math_inline"
BLOCK: Final = "math_block"
_MARKS: Final = (("\\[", "\\]"), ("\\(", "\\)"), ("$$", "$$"), ("$", "$"))
_DISPLAYED: Final = (("\\[", "\\]"), ("$$", "$$"))
_DEEPEST_INDENT: Final = 4


def with_inline_math(parser: MarkdownIt) -> MarkdownIt:
    """Makes `math_inline` tokens of formulas within a text; their content has its marks."""
    parser.inline.ruler.before("escape", INLINE, _inline_rule)
    return parser


def with_block_math(parser: MarkdownIt) -> MarkdownIt:
    """Makes `math_block` tokens of formulas that stand alone on their lines; their content has its marks."""
    parser.block.ruler.before("fence", BLOCK, _block_rule, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    return parser


def _inline_rule(state: StateInline, silent: bool) -> bool:
    opener, closer = next((each for each in _MARKS if state.src.startswith(each[0], state.pos)), ("", ""))
    if not opener:
        return False
    begin = state.pos + len(opener)
    end = state.src.find(closer, begin, state.posMax)
    if opener == "$" and not _is_formula(state.src, begin, end):
        return False
    if end < 0 and opener == "$$":
        return False
    # A formula that has not ended yet, or never does, keeps its first mark: `[` would be another text.
    until = begin if end < 0 else end + len(closer)
    if not silent:
        state.push(INLINE, "", 0).content = state.src[state.pos : until]
    state.pos = until
    return True


def _is_formula(text: str, begin: int, end: int) -> bool:
    """Dollars are money more often: no space within the marks, no digit after them (the rule of pandoc)."""
    if end <= begin or "\n\n" in text[begin:end]:
        return False
    return not (text[begin].isspace() or text[end - 1].isspace() or text[end + 1 : end + 2].isdigit())


def _block_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if state.sCount[start] - state.blkIndent >= _DEEPEST_INDENT:
        return False
    first = _line(state, start)
    opener, closer = next((each for each in _DISPLAYED if first.startswith(each[0])), ("", ""))
    if not opener:
        return False
    last = _last_line(state, start, end, first.removeprefix(opener), closer)
    if last is None:
        return False
    if silent:
        return True
    state.line = last + 1
    token = state.push(BLOCK, "", 0)
    token.content = "\n".join(_line(state, line) for line in range(start, last + 1))
    token.map = [start, state.line]
    return True


def _last_line(state: StateBlock, start: int, end: int, first: str, closer: str) -> int | None:
    """The line on which the formula ends. None where it is none: it has a blank line, or text follows it on its line.
    One that has no end is still coming."""
    for line in range(start, end):
        text = first if line == start else _line(state, line)
        if line > start and (not text or state.sCount[line] < state.blkIndent):
            return None
        if closer in text:
            return line if text.endswith(closer) and text.index(closer) == len(text) - len(closer) else None
    return end - 1


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].strip()
