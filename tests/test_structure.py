"""The shape of the package: few entries, no cycles, small files, unique names."""

import re
from collections import defaultdict
from itertools import takewhile

import grimp
import pytest
from tests.support.parsing import source_facts
from tests.support.paths import ROOT, TESTS

from forebay.core import registry

PACKAGE = ROOT / "src" / "forebay"
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_ENTRIES, MAX_LINES, MAX_PARAMETERS = 13, 350, 6
MIN_LINES = 60  # of a module that only one other module imports
FAMILIES = {"HostCopier"}  # class names that may occur several times: the same role, once for each framework
# Packages with one module for each member of a family. Most families are tables of the registry.
FAMILY_PACKAGES = {"forebay.measure.bench.cases"}


def test_the_top_level_has_few_entries():
    entries = {path.name for path in PACKAGE.iterdir() if not path.name.startswith("__")} - {"py.typed"}
    assert len(entries) <= MAX_ENTRIES, sorted(entries)


def test_no_file_is_long():
    files = [*FILES, *PACKAGE.rglob("*.cu"), *TESTS.rglob("*.py")]
    lines = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in files}
    assert {file: count for file, count in lines.items() if count > MAX_LINES} == {}


def test_a_small_module_has_several_importers(imports):
    """A small module that only one other module imports belongs in that module."""
    loaded_by_name = {target.partition(":")[0] for target in registry.all_targets()}
    paths = [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("examples/*.py")]
    scripts = set(re.findall(r"^from (forebay[\w.]+) import", "".join(path.read_text() for path in paths), re.M))
    small = {
        module: sorted(importers)
        for module in imports.modules - loaded_by_name
        if len(importers := imports.find_modules_that_directly_import(module)) == 1
        and not _is_in_family(module)
        and module not in scripts
        and _count_lines(module) < MIN_LINES
    }
    assert small == {}


def _is_in_family(module):
    return any(module.startswith(f"{package}.") for package in FAMILY_PACKAGES)


def _count_lines(module):
    """Return the number of lines of a module. A package counts as long, because the test checks modules only."""
    path = PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
    return len(path.read_text().splitlines()) if path.exists() else MIN_LINES


def test_the_number_of_examples_comes_from_the_profiles():
    literal = re.compile(r"max_examples\s*=\s*[0-9]")
    files = [path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py") if literal.search(path.read_text())]
    assert files == ["support/profiles.py"]


def test_class_names_are_unique():
    places = defaultdict(list)
    for path in FILES:
        for name in source_facts(path).classes:
            places[name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in FAMILIES} == {}


def test_functions_have_few_parameters():
    found = {path.relative_to(PACKAGE).as_posix(): source_facts(path).parameters for path in FILES}
    many = {f"{file}: {name}" for file, counts in found.items() for name in counts if counts[name] > MAX_PARAMETERS}
    assert many == {"adapters/keras/keras_feed.py: KerasFeed.__init__"}  # the options of feed("keras")


def test_no_modules_import_each_other(imports):
    """Imports inside functions count too."""
    assert (
        _members_of_cycles({module: imports.find_modules_directly_imported_by(module) for module in imports.modules})
        == []
    )


def test_no_sibling_packages_import_each_other(imports):
    """An import of a module counts as an import of each package around it."""
    siblings = defaultdict(lambda: defaultdict(set))  # package -> its member -> the members that this member imports
    for importer in imports.modules:
        for imported in imports.find_modules_directly_imported_by(importer):
            parent, *members = _siblings_of(importer, imported)
            if len(members) == 2:
                siblings[parent][members[0]].add(members[1])
    cycles = {parent: _members_of_cycles(members) for parent, members in siblings.items()}
    assert {parent: members for parent, members in cycles.items() if members} == {}


def test_no_rule_imports_the_table_of_rules(imports):
    """The table loads the rules by name. If a rule imported the table, the graph would not show the cycle."""
    table = "forebay.doctor.rules.registry"
    importers = imports.find_modules_that_directly_import(table)
    assert sorted(module for module in importers if module.startswith("forebay.doctor.rules.")) == []


@pytest.fixture(scope="module")
def imports():
    return grimp.build_graph("forebay", exclude_type_checking_imports=True, cache_dir=None)


def _siblings_of(importer, imported):
    """Return the innermost common package of two modules, and its members with these modules."""
    names = [importer.split("."), imported.split(".")]
    depth = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*names, strict=False)))
    return [".".join(names[0][:depth]), *(name[depth] for name in names if len(name) > depth)]


def _members_of_cycles(imported_by_member):
    """Return the members of cycles, and the members that import a cycle."""
    left = {member: set(imported) for member, imported in imported_by_member.items()}
    while free := {member for member, imported in left.items() if not imported & left.keys()}:
        left = {member: imported for member, imported in left.items() if member not in free}
    return sorted(left)
