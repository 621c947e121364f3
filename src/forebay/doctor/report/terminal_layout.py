"""Text layout for a terminal: wrapped lines that fit the width, bars and code."""

import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from forebay.doctor.model.formatting import replace_control_characters

__all__ = ["draw_bar", "fit_width", "fit_width_left", "join_lines", "place_left_and_right", "wrap_code", "wrap_lines"]

_CHAIN_DOT = re.compile(r"(?<=\))\.(?=\w+\()")  # the dot between two calls of a chain of method calls
_COMMENT_MARK = re.compile(r" *# ")  # the start of a comment line
_OPENING, _CLOSING = re.compile(r"[(\[{]"), re.compile(r"[)\]}]")
_CONTINUED = " \\"  # at the end of a line of Python that continues outside of brackets
_EIGHTHS = " ▏▎▍▌▋▊▉"  # the end of a bar, by the number of eighths of a column
_MEASURING_CONSOLE = Console(width=200, color_system=None)  # Rich needs a console to wrap text; this one prints nothing


def join_lines(lines: Iterable[Text]) -> Text:
    """Return the lines as one text that Rich does not wrap."""
    return Text("\n", no_wrap=True).join(lines)


def wrap_lines(text: Text, width: int, *, indent: int = 0, hang: int = 0) -> Iterator[Text]:
    """Wrap a text into lines of similar length, without spaces at their ends.

    `indent` applies to all lines, `hang` to all lines except the first. Both are numbers of columns.
    """
    columns = width - indent - (hang if text.cell_len > width - indent else 0)
    line_count = len(_wrap(text, columns))
    # For lines of similar length, reduce the width while the text needs no more lines, but not below two thirds.
    narrowest = columns
    while line_count > 1 and narrowest > columns * 2 // 3 and len(_wrap(text, narrowest - 1)) == line_count:
        narrowest -= 1
    for index, line in enumerate(_wrap(text, narrowest)):
        line.rstrip()
        yield Text(" " * (indent + (hang if index else 0))) + line


def wrap_code(source: str, width: int, *, indent: int) -> Iterator[Text]:
    """Wrap source code.

    If a line is too long, its comment moves to the line above, and each call in a chain of method calls gets its own
    line. Each line of a wrapped comment begins with a comment mark. Continuation lines have the indentation of the next
    line of the same call. If there is no next line, they are indented by four more columns than their first line. A
    line that is wrapped outside of brackets ends with a backslash, so that the code stays valid.
    """
    columns = width - indent - 4
    depth = 0  # number of open brackets
    lines_of_source = [replace_control_characters(line) for line in source.splitlines()]
    for line, line_hang in zip(lines_of_source, _hangs(lines_of_source), strict=True):
        for part in _move_comment_up(line, columns):
            for code in _split_chain(part, columns):
                comment = _COMMENT_MARK.match(code)
                first = comment[0] if comment and len(comment[0]) <= columns // 2 else ""
                spaces = line_hang if code == line else _indentation(code) + 4
                hang = first or " " * (spaces if spaces <= columns // 2 else 4)
                text, limit = Text(code.removeprefix(first)), width - indent - max(4, len(hang))
                lines = _wrap(text, limit)
                if not first and 0 in _open_brackets(lines, depth)[:-1]:
                    lines = _wrap(text, limit - len(_CONTINUED))
                depths = [1] * len(lines) if first else _open_brackets(lines, depth)
                for index, piece in enumerate(lines or [Text()]):
                    piece.rstrip()
                    end = _CONTINUED if index + 1 < len(lines) and not depths[index] else ""
                    yield Text(" " * indent + (hang if index else first)) + piece + end if piece else Text()
                depth = depth if first or not depths else depths[-1]


def _open_brackets(lines: Sequence[Text], depth: int) -> list[int]:
    """Return the number of open brackets after each line; before the first, `depth` are open."""
    found: list[int] = []
    for line in lines:
        depth = max(0, depth + len(_OPENING.findall(line.plain)) - len(_CLOSING.findall(line.plain)))
        found.append(depth)
    return found


def _hangs(lines: list[str]) -> Iterator[int]:
    """Yield for each line of code the indentation of its continuation lines."""
    depth = 0  # number of open brackets
    for number, line in enumerate(lines):
        before, depth = depth, max(0, depth + len(_OPENING.findall(line)) - len(_CLOSING.findall(line)))
        if depth and number + 1 < len(lines):
            yield _indentation(lines[number + 1])
        else:
            yield _indentation(line) + (0 if before else 4)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _move_comment_up(line: str, columns: int) -> list[str]:
    """Split a line that is too long into two lines: its comment, and its statement.

    In the code of cures, three spaces come before a comment.
    """
    statement, separator, comment = line.partition("   # ")
    if not statement.strip() or not separator or len(line) <= columns:
        return [line]
    return [f"{' ' * _indentation(line)}# {comment.strip()}", statement.rstrip()]


def _split_chain(line: str, columns: int) -> list[str]:
    """Split an assignment into one line per method call if it is too long."""
    name, equals, chain = line.partition(" = ")
    first_call, *other_calls = _CHAIN_DOT.split(chain)
    if not equals or not other_calls or len(line) <= columns or _COMMENT_MARK.match(line):
        return [line]
    return [f"{name} = (", f"    {first_call}", *(f"    .{call}" for call in other_calls), ")"]


def place_left_and_right(left: Text, right: Text, width: int, *, indent: int = 0, hang: int = 0) -> Iterator[Text]:
    """Yield the lines of `left`, with `right` at the right edge of the first line."""
    if not right:
        yield from wrap_lines(left, width, indent=indent, hang=hang)
        return
    lines = wrap_lines(left, width - right.cell_len - 2, indent=indent, hang=hang)
    first = next(lines)
    yield first + " " * (width - first.cell_len - right.cell_len) + right
    yield from lines


def draw_bar(share: float, columns: int) -> str:
    """Return a bar that fills `share` of the columns, padded with spaces.

    The bar is at least an eighth of a column long.
    """
    eighths = min(columns * 8, max(1, round(share * columns * 8)))
    drawn = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return set_cell_size(drawn, columns)


def fit_width(text: str, width: int) -> str:
    """Shorten a text to `width` columns: keep its beginning, and end it with three dots."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 3).rstrip() + "..."


def fit_width_left(text: str, width: int) -> str:
    """Shorten a path to `width` columns: keep its end, and begin it with three dots."""
    return text if cell_len(text) <= width else "..." + set_cell_size(text[::-1], width - 3)[::-1].lstrip()


def _wrap(text: Text, width: int) -> list[Text]:
    """Return the lines of a text that is wrapped between words."""
    return list(text.wrap(_MEASURING_CONSOLE, width)) if text else []
