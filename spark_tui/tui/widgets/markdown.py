"""Markdown as lines of Content: what a model writes, laid out for a width, with nothing in it that can be clicked.

Textual's own Markdown is a widget per paragraph with links that run actions. A transcript needs neither: text is parsed
once into blocks that know no width, and laid out again when the width changes. Text here is hostile: control codes
are removed before parsing, and again after it, because entities (`&#x202e;`) bring characters back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from textual.content import Content

from spark_tui.base.text import cells_left, clean, clean_line, truncate
from spark_tui.tui.format import Glyphs

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token


PROSE_CELLS = 120
"""Longer lines tire the eye; code and tables use the whole width."""
CODE_STYLE = "$foreground on $panel"
VERBATIM = "$secondary"
"""Code and formulas within a text."""
HIGHLIGHT_CHARS = 40_000
HIGHLIGHT_LINE_CHARS = 2_000
"""Above these a lexer's regular expressions cost more than colours are worth (10,000 characters take 25 ms)."""
INLINE_CHARS = 20_000
INLINE_BRACKETS = 500
"""Above these a paragraph is shown as it is: open brackets and line breaks cost the square of their number to parse."""
DEEPEST = 18
"""Levels of nesting. The parser stops at 20, and the text that is nested deeper would vanish."""
LANGUAGE_CHARS = 30
TABLE_COLUMNS = 24
CELL_CELLS = 6
COLUMN_GAP = 2


class Paragraph(Struct, frozen=True):
    """Running text; `\\n` is a line break. `tight` in a list without blank lines."""

    content: Content
    tight: bool = False


class Code(Struct, frozen=True):
    """A code block, highlighted; `continued` when its beginning was laid out before."""

    language: str
    content: Content
    continued: bool = False


class Quote(Struct, frozen=True):
    blocks: tuple[Block, ...]


class ListItem(Struct, frozen=True):
    """`marker` is empty for bullets, else the number with its point."""

    marker: str
    blocks: tuple[Block, ...]


class ListBlock(Struct, frozen=True):
    """A list; `tight` without blank lines between its items."""

    items: tuple[ListItem, ...]
    tight: bool


class TableBlock(Struct, frozen=True):
    """The header is the first row. `right` says which columns are aligned to the right."""

    rows: tuple[tuple[Content, ...], ...]
    right: tuple[bool, ...] = ()


class RuleBlock(Struct, frozen=True):
    """A thematic break."""


Block: TypeAlias = Paragraph | Code | Quote | ListBlock | TableBlock | RuleBlock


# --- parse ----------------------------------------------------------------------------------------------


def _commonmark() -> MarkdownIt:
    """No HTML, no typographer, no reference definitions (their lines vanish): what is not shown as Markdown is text."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False})


@cache
def _parser() -> MarkdownIt:
    parser = _commonmark().enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", MATH_INLINE, _inline_rule)
    return parser


@cache
def _block_parser() -> MarkdownIt:
    parser = _commonmark().enable("table").disable("reference")
    parser.core.ruler.disable(["inline", "text_join"])
    parser.block.ruler.before(
        "fence", MATH_BLOCK, _block_rule, {"alt": ["paragraph", "reference", "blockquote", "list"]}
    )
    return parser


def block_tokens(text: str) -> list[Token]:
    """Block tokens of cleaned text, `map` in its lines; `inline` tokens keep their source as it is."""
    return _block_parser().parse(text)


def parse(text: str, *, highlighted: bool = True) -> tuple[Block, ...]:
    """The blocks of a Markdown text. Never raises, drops nothing: what is not Markdown is a paragraph."""
    cleaned = clean(text)
    found = block_tokens(cleaned)
    if any(token.level >= DEEPEST for token in found):
        return (Paragraph(Content(cleaned)),)
    return tuple(_blocks(iter(found), "", highlighted))


def code_blocks(text: str) -> list[str]:
    if "```" not in text and "~~~" not in text and "    " not in text:
        return []
    return [
        token.content.removesuffix("\n") for token in block_tokens(clean(text)) if token.type in ("fence", "code_block")
    ]


def _blocks(stream: Iterator[Token], until: str, highlighted: bool) -> Iterator[Block]:
    for token in stream:
        if token.type == until:
            return
        match token.type:
            case "paragraph_open":
                yield Paragraph(_inline(next(stream)), tight=token.hidden)
            case "heading_open":
                style = "bold $primary" if token.tag in ("h1", "h2") else "bold"
                yield Paragraph(_inline(next(stream)).stylize_before(style))
            case "fence" | "code_block":
                yield _code(token, highlighted)
            case "blockquote_open":
                yield Quote(tuple(_blocks(stream, "blockquote_close", highlighted)))
            case "bullet_list_open" | "ordered_list_open":
                yield _items(stream, token, highlighted)
            case "table_open":
                yield _table(stream)
            case "hr":
                yield RuleBlock()
            case "math_block":
                yield Paragraph(Content.styled(token.content, VERBATIM))
            case _:  # the closing half of what was handled above
                continue


def _items(stream: Iterator[Token], opened: Token, highlighted: bool) -> ListBlock:
    items: list[ListItem] = []
    for token in stream:
        if token.type == opened.type.replace("_open", "_close"):
            break
        marker = f"{token.info}{token.markup}" if opened.type == "ordered_list_open" else ""
        items.append(ListItem(marker, tuple(_blocks(stream, "list_item_close", highlighted))))
    paragraphs = [block for item in items for block in item.blocks if isinstance(block, Paragraph)]
    return ListBlock(tuple(items), all(paragraph.tight for paragraph in paragraphs))


def _table(stream: Iterator[Token]) -> TableBlock:
    rows: list[tuple[Content, ...]] = []
    row: list[Content] = []
    right: list[bool] = []
    for token in stream:
        if token.type == "table_close":
            break
        if token.type == "inline":
            row.append(_inline(token))
        elif token.type == "th_open":
            right.append(token.attrs.get("style") == "text-align:right")
        elif token.type == "tr_close":
            rows.append(tuple(row))
            row = []
    return TableBlock(tuple(rows), tuple(right))


def _code(token: Token, highlighted: bool) -> Code:
    words = clean_line(token.info).split()
    language = truncate(words[0], LANGUAGE_CHARS) if words else ""
    code = token.content.removesuffix("\n").expandtabs(4)
    return Code(language, _highlight(code, language) if highlighted else Content(code))


def _highlight(code: str, language: str) -> Content:
    longest = max(map(len, code.split("\n")))
    if not language or len(code) > HIGHLIGHT_CHARS or longest > HIGHLIGHT_LINE_CHARS:
        return Content(code)
    return _highlighter()(code, language=language)


@cache
def _highlighter() -> Callable[..., Content]:
    """Textual's, imported with the first code."""
    from textual.highlight import HighlightTheme, highlight

    class Quiet(HighlightTheme):
        STYLES = {token: style.replace(" underline", "") for token, style in HighlightTheme.STYLES.items()}  # noqa: RUF012

    return partial(highlight, theme=Quiet)


_STYLES = {"strong": "bold", "em": "italic", "s": "strike"}


def _inline(token: Token) -> Content:
    """Inline source as Content. Links show where they lead, and lead nowhere by themselves."""
    source = token.content
    if len(source) > INLINE_CHARS or source.count("[") > INLINE_BRACKETS:
        return Content(source)
    parts: list[Content] = []
    opened: list[tuple[int, str, str]] = []
    children = _parser().parseInline(source)[0].children
    for child in children or ():
        name = child.type.removesuffix("_open").removesuffix("_close")
        if child.type.endswith("_open"):
            opened.append((len(parts), name, clean_line(str(child.attrs.get("href", "")))))
        elif child.type.endswith("_close") and opened:
            start, name, href = opened.pop()
            inner = Content("").join(parts[start:])
            parts[start:] = [_link(inner, href) if name == "link" else inner.stylize_before(_STYLES.get(name, ""))]
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(Content("\n"))
        elif child.type in ("code_inline", MATH_INLINE):
            parts.append(Content.styled(clean_line(child.content), VERBATIM))
        elif child.type == "image":
            source = clean_line(str(child.attrs.get("src", "")))
            parts.append(_link(Content(f"image {clean_line(child.content)}".rstrip()), source))
        else:
            parts.append(Content(clean_line(child.content)))
    return Content("").join(parts)


def _link(text: Content, href: str) -> Content:
    shown = text.stylize_before("underline")
    if not href or text.plain == href or text.plain == href.removeprefix("mailto:"):
        return shown
    return Content.assemble(shown, (f" ({href})", "$dim"))


# --- formulas -------------------------------------------------------------------------------------------

# LaTeX stays as the model wrote it: Markdown would eat its backslashes, stars and underscores. `\(...\)`,
# `\[...\]`, `$...$` and `$$...$$` become tokens with their marks, alone on their lines and within a text.
MATH_INLINE: Final = "math_inline"
MATH_BLOCK: Final = "math_block"
_MARKS: Final = (("\\[", "\\]"), ("\\(", "\\)"), ("$$", "$$"), ("$", "$"))
_DISPLAYED: Final = (("\\[", "\\]"), ("$$", "$$"))
_DEEPEST_INDENT: Final = 4


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
        state.push(MATH_INLINE, "", 0).content = state.src[state.pos : until]
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
    token = state.push(MATH_BLOCK, "", 0)
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


# --- lay out --------------------------------------------------------------------------------------------


def lay_out(blocks: Sequence[Block], width: int, glyphs: Glyphs, *, tight: bool = False) -> list[Content]:
    """Lines of at most `width` cells; a blank one between blocks unless `tight`."""
    lines: list[Content] = []
    for block in blocks:
        if lines and not tight:
            lines.append(_BLANK)
        lines.extend(_lay_out_one(block, max(width, 2), glyphs))
    return lines


_BLANK = Content("")


def _lay_out_one(block: Block, width: int, glyphs: Glyphs) -> list[Content]:
    match block:
        case Paragraph(content):
            return content.wrap(min(width, PROSE_CELLS))
        case Code():
            return _lay_out_code(block, width)
        case Quote(blocks):
            bar = Content.styled(f"{glyphs.separator} ", "$dim")
            return [Content.assemble(bar, line.stylize_before("$dim")) for line in lay_out(blocks, width - 2, glyphs)]
        case ListBlock():
            return _lay_out_items(block, width, glyphs)
        case TableBlock():
            return _lay_out_table(block, width, glyphs)
        case RuleBlock():
            return [Content.styled(glyphs.rule * min(width, PROSE_CELLS), "$rule")]


def _lay_out_code(block: Code, width: int) -> list[Content]:
    room = max(width - 2, 2)
    lines = [piece for line in block.content.split("\n", allow_blank=True) for piece in line.fold(room)]
    if block.language and not block.continued:
        lines.insert(0, Content.styled(truncate(block.language, room), "$dim"))
    padded = [line.pad_left(1) for line in lines]
    return [line.pad_right(cells_left(width, line.cell_length)).stylize_before(CODE_STYLE) for line in padded]


def _lay_out_items(block: ListBlock, width: int, glyphs: Glyphs) -> list[Content]:
    lines: list[Content] = []
    hang = max((len(item.marker) for item in block.items), default=0) + 1 if block.items[0].marker else 2
    for item in block.items:
        if lines and not block.tight:
            lines.append(_BLANK)
        marker = Content.styled(f"{item.marker or glyphs.bullet:<{hang}}", "$primary")
        inner = lay_out(item.blocks, width - hang, glyphs, tight=block.tight) or [_BLANK]
        pad = " " * hang
        lines.append(Content.assemble(marker, inner[0]))
        lines.extend(Content.assemble(pad, line) if line else line for line in inner[1:])
    return lines


def _lay_out_table(table: TableBlock, width: int, glyphs: Glyphs) -> list[Content]:
    rows, columns = table.rows, len(table.rows[0])
    right = (*table.right, *(False,) * columns)
    room = width - COLUMN_GAP * (columns - 1)
    if columns > TABLE_COLUMNS or room < columns * CELL_CELLS:
        return _lay_out_records(rows, width, glyphs)
    widths = share([max(1, *(row[i].cell_length for row in rows if i < len(row))) for i in range(columns)], room)
    lines: list[Content] = []
    for number, row in enumerate(rows):
        cells = [cell.wrap(widths[i]) for i, cell in enumerate(row)]
        for y in range(max(map(len, cells))):
            parts = []
            for i, cell in enumerate(cells):
                text = cell[y] if y < len(cell) else _BLANK
                rest = cells_left(widths[i], text.cell_length)
                parts.append(text.pad_left(rest) if right[i] else text.pad_right(rest))
            line = Content(" " * COLUMN_GAP).join(parts)
            lines.append(line.stylize_before("bold") if number == 0 else line)
        if number == 0:
            lines.append(Content.styled((" " * COLUMN_GAP).join(glyphs.rule * size for size in widths), "$rule"))
    return lines


def _lay_out_records(rows: tuple[tuple[Content, ...], ...], width: int, glyphs: Glyphs) -> list[Content]:
    """A table too wide for its place: each row as `header: value` lines."""
    header, *body = rows
    lines: list[Content] = []
    for row in body or [header]:
        if lines:
            lines.append(Content.styled(glyphs.rule * min(width, 8), "$rule"))
        for title, value in zip(header, row, strict=False):
            lines.extend(Content.assemble(title.stylize_before("bold"), ": ", value).wrap(width))
    return lines


def share(wanted: Sequence[int], room: int) -> list[int]:
    if sum(wanted) <= room:
        return list(wanted)
    widths = [0] * len(wanted)
    left, columns = room, len(wanted)
    for index in sorted(range(len(wanted)), key=lambda i: wanted[i]):
        widths[index] = min(wanted[index], left // columns)
        left, columns = left - widths[index], columns - 1
    return widths


OPEN_CHARS = 4_000
"""An open end longer than this is closed by force: a frame costs 5 ms at most."""


class SplitPoint(NamedTuple):
    """Where to close: after `chars`; `gap` puts a blank line there; `opener` begins what is left of a code block."""

    chars: int = 0
    gap: bool = False
    opener: str = ""


def normal(text: str) -> str:
    """Text with `\\n` line ends only. Half of a `\\r\\n` at the end waits for its other half."""
    return text.removesuffix("\r").replace("\r\n", "\n") if "\r" in text else text


def plain_lines(text: str, width: int) -> list[Content]:
    """Text from outside as it is: cleaned, wrapped, its line breaks kept."""
    return Content(clean(text).expandtabs(4)).wrap(min(width, PROSE_CELLS))


class LivePlain:
    """Text as it is. Call `lines` with ever longer versions of one text; `dress` is done to each line, once."""

    def __init__(self, width: int, dress: Callable[[Content], Content] | None = None) -> None:
        self._width = width
        self._dress = dress
        self._closed: list[Content] = []
        self._done = 0
        self._opener = ""

    def lines(self, text: str) -> list[Content]:
        text = normal(text)
        while (cut := self._cut(text[self._done :])).chars:
            piece = text[self._done : self._done + cut.chars]
            self._closed.extend(self._lay(piece, closed=True))
            if cut.gap:
                self._closed.append(_BLANK)
            self._done += cut.chars
            self._opener = cut.opener
        tail = text[self._done :]
        return [*self._closed, *self._lay(tail, closed=False)] if tail else list(self._closed)

    def _cut(self, tail: str) -> SplitPoint:
        return SplitPoint(tail.rfind("\n") + 1) if "\n" in tail else _forced(tail)

    def _lay(self, piece: str, *, closed: bool) -> list[Content]:
        lines = plain_lines(piece.removesuffix("\n") if closed else piece, self._width)
        return lines if self._dress is None else [self._dress(line) for line in lines]


class LiveMarkdown(LivePlain):
    """Markdown: a top-level block is closed when the next one has a complete line."""

    def __init__(self, width: int, glyphs: Glyphs) -> None:
        super().__init__(width)
        self._glyphs = glyphs
        self._looked = 0

    def _cut(self, tail: str) -> SplitPoint:
        ready = tail[: tail.rfind("\n") + 1]
        if self._done + len(ready) <= self._looked:  # no new complete line
            return _forced(tail)
        self._looked = self._done + len(ready)
        if clean(ready) != ready:  # the parser counts lines of the cleaned text, which may have fewer
            return _forced(tail)
        found = [token for token in block_tokens(self._opener + ready) if token.map and token.nesting >= 0]
        starts = [token.map[0] for token in found if token.level == 0 and token.map]
        if len(starts) > 1:
            return SplitPoint(self._chars(ready, starts[-1]), gap=True)
        if len(tail) <= OPEN_CHARS:
            return SplitPoint()
        if found and found[0].type == "fence":
            return SplitPoint(len(ready), opener=self._opener or f"{found[0].markup}{found[0].info}\n")
        items = [token.map[0] for token in found if token.type == "list_item_open" and token.level == 1 and token.map]
        return SplitPoint(self._chars(ready, items[-1])) if len(items) > 1 else _forced(tail)

    def _chars(self, text: str, line: int) -> int:
        """Characters before a line of `opener + text`."""
        lines = text.split("\n")[: line - bool(self._opener)]
        return sum(len(line) + 1 for line in lines)

    def _lay(self, piece: str, *, closed: bool) -> list[Content]:
        blocks = parse(self._opener + clean(piece), highlighted=closed)
        if self._opener and blocks and isinstance(first := blocks[0], Code):
            blocks = (replace(first, continued=True), *blocks[1:])
        return lay_out(blocks, self._width, self._glyphs)


def _forced(tail: str) -> SplitPoint:
    """A long open end is cut at a space, or anywhere."""
    if len(tail) <= OPEN_CHARS:
        return SplitPoint()
    return SplitPoint(tail.rfind(" ", OPEN_CHARS // 2, OPEN_CHARS) + 1 or OPEN_CHARS)
