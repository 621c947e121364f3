"""Text set in columns for a terminal: every line fits, none ends in a space."""

import re
from collections.abc import Iterable, Iterator

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from forebay.doctor.model.formatting import printable

__all__ = ["bar", "between", "code", "cut", "cut_left", "joined", "wrapped"]

_LINK = re.compile(r"(?<=\))\.(?=\w+\()")  # between two calls of a chain
_EIGHTHS = " ▏▎▍▌▋▊▉"
_RULER = Console(width=200, color_system=None)  # only measures; what is printed goes through the caller's


def joined(lines: Iterable[Text]) -> Text:
    """All lines as one text to print."""
    return Text("\n", no_wrap=True).join(lines)


def wrapped(text: Text, width: int, *, indent: int = 0, hang: int = 0) -> Iterator[Text]:
    """Lines of about equal length, so that no word stands alone on the last; those after the first hang in."""
    room = width - indent - (hang if text.cell_len > width - indent else 0)
    lines = _wrap(text, room)
    narrower = room
    while len(lines) > 1 and narrower > room * 2 // 3 and len(_wrap(text, narrower - 1)) == len(lines):
        narrower -= 1
    for number, line in enumerate(_wrap(text, narrower)):
        line.rstrip()
        yield Text(" " * (indent + (hang if number else 0))) + line


def code(source: str, width: int, *, indent: int) -> Iterator[Text]:
    """Source as it stands; of a line too long the remark goes in front, and a chain of calls is set in brackets."""
    columns = width - indent - 4
    for line in source.splitlines():
        for part in _remark_first(printable(line), columns):
            for link in _links(part, columns):
                for number, piece in enumerate(_wrap(Text(link), columns) or [Text()]):
                    piece.rstrip()
                    yield Text(" " * (indent + (4 if number else 0))) + piece if piece else Text()


def _remark_first(line: str, columns: int) -> list[str]:
    statement, mark, remark = line.partition("   # ")
    if not mark or len(line) <= columns:
        return [line]
    inward = len(line) - len(line.lstrip())
    return [f"{' ' * inward}# {remark.strip()}", statement.rstrip()]


def _links(line: str, columns: int) -> list[str]:
    name, equals, chain = line.partition(" = ")
    first, *rest = _LINK.split(chain)
    if not equals or not rest or len(line) <= columns:
        return [line]
    return [f"{name} = (", f"    {first}", *(f"    .{link}" for link in rest), ")"]


def between(left: Text, right: Text, width: int, *, indent: int = 0, hang: int = 0) -> Iterator[Text]:
    """Something at the left edge, on as many lines as it needs, and something at the right of the first."""
    if not right:
        yield from wrapped(left, width, indent=indent, hang=hang)
        return
    lines = wrapped(left, width - right.cell_len - 2, indent=indent, hang=hang)
    first = next(lines)
    yield first + " " * (width - first.cell_len - right.cell_len) + right
    yield from lines


def bar(share: float, columns: int) -> str:
    """A bar, to an eighth of a column, padded to its columns; what is there at all is seen."""
    eighths = min(columns * 8, max(1, round(share * columns * 8)))
    drawn = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return set_cell_size(drawn, columns)


def cut(text: str, width: int) -> str:
    """The text, or its beginning and three dots."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 3).rstrip() + "..."


def cut_left(text: str, width: int) -> str:
    """The same for a path, whose end says more."""
    return text if cell_len(text) <= width else "..." + set_cell_size(text[::-1], width - 3)[::-1].lstrip()


def _wrap(text: Text, width: int) -> list[Text]:
    return list(text.wrap(_RULER, width)) if text else []
