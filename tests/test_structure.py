"""The shape of the package: few top-level entries, no import cycle, small files, unique class names."""

from collections import defaultdict

import grimp
from tests.support.parsing import source_facts
from tests.support.paths import ROOT

PACKAGE = ROOT / "src" / "forebay"
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_ENTRIES, MAX_LINES, MAX_PARAMETERS = 13, 350, 6
FAMILIES = {"HostCopier"}  # the same role, once for each framework


def test_the_top_level_has_few_entries():
    entries = {path.name for path in PACKAGE.iterdir() if not path.name.startswith("__")} - {"py.typed"}
    assert len(entries) <= MAX_ENTRIES, sorted(entries)


def test_no_file_is_long():
    lines = {path.relative_to(PACKAGE).as_posix(): len(path.read_text().splitlines()) for path in FILES}
    assert {file: count for file, count in lines.items() if count > MAX_LINES} == {}


def test_class_names_are_unique():
    places = defaultdict(list)
    for path in FILES:
        for name in source_facts(path).classes:
            places[name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in FAMILIES} == {}


def test_functions_have_few_positional_parameters():
    found = {path.relative_to(PACKAGE).as_posix(): source_facts(path).positional_parameters for path in FILES}
    many = {f"{file}: {name}" for file, counts in found.items() for name in counts if counts[name] > MAX_PARAMETERS}
    assert many == set()


def test_no_modules_import_each_other():
    """Imports inside functions count too."""
    graph = grimp.build_graph("forebay", exclude_type_checking_imports=True, cache_dir=None)
    left = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    while free := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported for module, imported in left.items() if module not in free}
    assert sorted(left) == []
