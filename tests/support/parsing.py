"""Parsing of Python source in tests."""

import ast
from collections.abc import Iterator
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
    parameters: dict[str, int]  # by function; see `_count_parameters`
    strings: frozenset[str]


def parse(source: str) -> ast.Module:
    """Parse a source. On Python 3.11, plain `ast.parse` may fail while another thread parses."""
    return parse_with_retries(lambda: ast.parse(source))


@cache
def source_facts(path: Path) -> SourceFacts:
    """Return the facts of a file, and parse it only once.

    The cache keeps no syntax trees. Those of the whole package would slow down garbage collections.
    """
    tree = parse(path.read_text())
    nodes = list(ast.walk(tree))
    return SourceFacts(
        docstring=ast.get_docstring(tree),
        classes=tuple(node.name for node in nodes if isinstance(node, ast.ClassDef)),
        parameters=dict(_count_parameters(tree, "")),
        strings=frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is str),
    )


def _count_parameters(node: ast.AST, owner: str) -> Iterator[tuple[str, int]]:
    """Yield the qualified name of each function, and how many parameters it has besides `self` and `cls`.

    Keyword-only parameters of public functions do not count, because they are the options of the user. Those of
    constructors and of private functions count.
    """
    for child in ast.iter_child_nodes(node):
        name = f"{owner}.{getattr(child, 'name', '')}".strip(".")
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = child.args
            parameters = [*arguments.posonlyargs, *arguments.args]
            parameters += arguments.kwonlyargs if child.name.startswith("_") else ()
            yield name, len([each for each in parameters if each.arg not in ("self", "cls")])
        yield from _count_parameters(child, name)
