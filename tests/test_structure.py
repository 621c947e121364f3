"""The shape of the package: few top-level entries, no import cycle, small files, unique class names."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import grimp
import pytest
from tests.support.parsing import parse
from tests.support.paths import ROOT

PACKAGE = ROOT / "src" / "forebay"
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_ENTRIES, MAX_LINES, MAX_PARAMETERS = 13, 350, 6
FAMILIES = {"HostCopier"}  # the same role, once for each framework


def test_the_top_level_has_few_entries():
    entries = {path.name for path in PACKAGE.iterdir() if not path.name.startswith("__")} - {"py.typed"}
    assert len(entries) <= MAX_ENTRIES, sorted(entries)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_file_is_long(path):
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_class_names_are_unique():
    places = defaultdict(list)
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in FAMILIES} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_functions_have_few_positional_parameters(path):
    found = {node.name: positional(node) for node in nodes_of(path) if is_function(node)}
    assert {name: count for name, count in found.items() if count > MAX_PARAMETERS} == {}


def test_no_modules_import_each_other():
    """Imports inside functions count too."""
    graph = grimp.build_graph("forebay", exclude_type_checking_imports=True, cache_dir=None)
    left = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    while free := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported for module, imported in left.items() if module not in free}
    assert sorted(left) == []


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(parse(path.read_text())))


def is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def positional(node: ast.FunctionDef) -> int:
    return len([each for each in [*node.args.posonlyargs, *node.args.args] if each.arg not in ("self", "cls")])
