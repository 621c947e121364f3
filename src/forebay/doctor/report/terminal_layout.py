"""Text layout for a terminal. Every line fits the width, and none ends with a space."""

import re
from collections.abc import Iterable, Iterator

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from forebay.doctor.model.formatting import replace_control_characters

__all__ = ["bar", "code_lines", "fit_width", "fit_width_left", "join_lines", "place_left_and_right", "wrap_lines"]

_CHAIN_DOT = re.compile(r"(?<=\))\.(?=\w+\()")  # the dot between two calls of a method chain
_EIGHTHS = " ▏▎▍▌▋▊▉"
_MEASURING_CONSOLE = Console(width=200, color_system=None)  # measures text; the caller's console prints


def join_lines(lines: Iterable[Text]) -> Text:
    """Join lines into one text to print."""
    return Text("\n", no_wrap=True).join(lines)


def wrap_lines(text: Text, width: int, *, indent: int = 0, hang: int = 0) -> Iterator[Text]:
    """Wrap a text into lines of about equal length; `hang` indents all lines but the first."""
    room = width - indent - (hang if text.cell_len > width - indent else 0)
    lines = _wrap(text, room)
    narrower = room
    while len(lines) > 1 and narrower > room * 2 // 3 and len(_wrap(text, narrower - 1)) == len(lines):
        narrower -= 1
    for number, line in enumerate(_wrap(text, narrower)):
        line.rstrip()
        yield Text(" " * (indent + (hang if number else 0))) + line


def code_lines(source: str, width: int, *, indent: int) -> Iterator[Text]:
    """Wrap source code. In long lines the comment moves up, and method chains are split."""
    columns = width - indent - 4
    for line in source.splitlines():
        for part in _comment_first(replace_control_characters(line), columns):
            for link in _split_chain(part, columns):
                for number, piece in enumerate(_wrap(Text(link), columns) or [Text()]):
                    piece.rstrip()
                    yield Text(" " * (indent + (4 if number else 0))) + piece if piece else Text()


def _comment_first(line: str, columns: int) -> list[str]:
    statement, mark, comment = line.partition("   # ")
    if not mark or len(line) <= columns:
        return [line]
    indentation = len(line) - len(line.lstrip())
    return [f"{' ' * indentation}# {comment.strip()}", statement.rstrip()]


def _split_chain(line: str, columns: int) -> list[str]:
    name, equals, chain = line.partition(" = ")
    first, *rest = _CHAIN_DOT.split(chain)
    if not equals or not rest or len(line) <= columns:
        return [line]
    return [f"{name} = (", f"    {first}", *(f"    .{link}" for link in rest), ")"]


def place_left_and_right(left: Text, right: Text, width: int, *, indent: int = 0, hang: int = 0) -> Iterator[Text]:
    """Put one text at the left edge and another at the right of its first line."""
    if not right:
        yield from wrap_lines(left, width, indent=indent, hang=hang)
        return
    lines = wrap_lines(left, width - right.cell_len - 2, indent=indent, hang=hang)
    first = next(lines)
    yield first + " " * (width - first.cell_len - right.cell_len) + right
    yield from lines


def bar(share: float, columns: int) -> str:
    """Draw a bar in eighths of a column, padded to `columns`; it is never empty."""
    eighths = min(columns * 8, max(1, round(share * columns * 8)))
    drawn = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return set_cell_size(drawn, columns)


def fit_width(text: str, width: int) -> str:
    """Shorten a text to a width: keep its beginning, and add three dots."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 3).rstrip() + "..."


def fit_width_left(text: str, width: int) -> str:
    """Shorten a path to a width: keep its end, which says more."""
    return text if cell_len(text) <= width else "..." + set_cell_size(text[::-1], width - 3)[::-1].lstrip()


def _wrap(text: Text, width: int) -> list[Text]:
    return list(text.wrap(_MEASURING_CONSOLE, width)) if text else []
