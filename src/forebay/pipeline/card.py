"""Descriptions of objects: short lines for a terminal, and HTML cards for a notebook."""

from collections.abc import Iterable, Sequence
from html import escape

from forebay.core.decision import Decision
from forebay.core.spec import ArraySpec
from forebay.errors import escape_control_characters

__all__ = ["Explanation", "fit_lines", "list_fields", "render_card"]

COLUMNS = 80  # largest width of a line of `repr`, so that it fits a usual terminal
MAX_CARD_TEXT_LENGTH = 400  # characters; a card shows only the beginning of a longer text
# The gray is semi-transparent and the text color is inherited, so a card is readable in light and dark notebooks.
_CARD = (
    "display:inline-block;max-width:60rem;padding:0.6rem 0.9rem;border:1px solid rgba(128,128,128,0.4);"
    "border-radius:8px;background:rgba(128,128,128,0.06);color:inherit;"
    "font:13px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif"
)
_TITLE = "font-size:1.15em;font-weight:650;overflow-wrap:anywhere"
_QUIET = "opacity:0.75;overflow-wrap:anywhere"
_TABLE = "border-collapse:collapse;margin:0.4rem 0 0;background:none;color:inherit;font-size:1em"
_CELL = "text-align:left;vertical-align:top;padding:0.15rem 1rem 0.15rem 0;border:0;background:none;color:inherit"


class Explanation(str):
    """A str whose `repr` is the text itself.

    So a REPL and a notebook show its lines without `print`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def fit_lines(lines: Iterable[str]) -> str:
    """Return the lines as one text, each escaped and cut to COLUMNS characters."""
    safe = (escape_control_characters(line).replace("\n", "\\n").rstrip() for line in lines)
    return "\n".join(line if len(line) <= COLUMNS else line[: COLUMNS - 3] + "..." for line in safe)


def list_fields(paths: Sequence[str], specs: Sequence[ArraySpec]) -> str:
    """Return the names, shapes and dtypes of fields as one text."""
    return ", ".join(f"{name} {spec}".strip() for name, spec in zip(paths, specs, strict=True))


def render_card(title: str, subtitle: str, rows: Iterable[Decision], notes: Iterable[str] = ()) -> str:
    """Return an HTML card: title, subtitle, a table of decisions, and notes below.

    The function escapes all texts, because names of fields and files may contain HTML.
    """
    cells = "".join(
        f'<tr style="background:none"><td style="{_CELL};{_QUIET};white-space:nowrap">{_text(row.name)}</td>'
        f'<td style="{_CELL};font-weight:600;overflow-wrap:anywhere">{_text(row.choice)}</td>'
        f'<td style="{_CELL};{_QUIET}">{_text(row.why)}</td></tr>'
        for row in rows
    )
    lines = "".join(f'<div style="{_QUIET};margin-top:0.4rem">{_text(note)}</div>' for note in notes)
    return (
        f'<div style="{_CARD}"><div style="{_TITLE}">{_text(title)}</div><div style="{_QUIET}">{_text(subtitle)}</div>'
        f'<table style="{_TABLE}"><tbody>{cells}</tbody></table>{lines}</div>'
    )


def _text(text: str) -> str:
    """Return the text with control characters and HTML escaped, cut to MAX_CARD_TEXT_LENGTH characters."""
    safe = escape_control_characters(text)
    return escape(safe if len(safe) <= MAX_CARD_TEXT_LENGTH else safe[: MAX_CARD_TEXT_LENGTH - 3] + "...")
