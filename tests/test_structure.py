"""The shape of the package: few top-level entries, no import cycle, small files, unique class names."""

from collections import defaultdict

import grimp
import pytest
from tests.support.parsing import source_facts
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
        for name in source_facts(path).classes:
            places[name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in FAMILIES} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_functions_have_few_positional_parameters(path):
    found = source_facts(path).positional_parameters
    assert {name: count for name, count in found.items() if count > MAX_PARAMETERS} == {}


def test_no_modules_import_each_other():
    """Imports inside functions count too."""
    graph = grimp.build_graph("forebay", exclude_type_checking_imports=True, cache_dir=None)
    left = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    while free := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported for module, imported in left.items() if module not in free}
    assert sorted(left) == []
