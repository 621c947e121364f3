"""Parsing of Python source in tests."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from forebay.core.parsing import parse_with_retries

__all__ = ["SourceFacts", "parse", "source_facts"]


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What the tests of the whole package need to know about one source file."""

    docstring: str | None
    classes: tuple[str, ...]
    positional_parameters: dict[str, int]  # by function, without `self` and `cls`
    strings: frozenset[str]


def parse(source: str) -> ast.Module:
    """Parse a source as `ast.parse` does, which may fail on Python 3.11 while another thread parses."""
    return parse_with_retries(lambda: ast.parse(source))


@cache
def source_facts(path: Path) -> SourceFacts:
    """Parse a file once for all tests. The syntax trees of the whole package would slow down garbage collections."""
    tree = parse(path.read_text())
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return SourceFacts(
        docstring=ast.get_docstring(tree),
        classes=tuple(node.name for node in nodes if isinstance(node, ast.ClassDef)),
        positional_parameters={node.name: _count_positional(node.args) for node in functions},
        strings=frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is str),
    )


def _count_positional(arguments: ast.arguments) -> int:
    return len([each for each in [*arguments.posonlyargs, *arguments.args] if each.arg not in ("self", "cls")])
