"""pyproject.toml, the list of oldest versions and the registry name the same versions."""

import re
import tomllib

import pytest
from tests.support.paths import ROOT

from forebay.core import registry

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MINIMUM = re.compile(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)")
MODULES = {"cupy": "cupy-cuda12x"}  # module: its package, if the names differ


def declared_minimums(requirements):
    return {match.groups() for match in map(MINIMUM.match, requirements) if match}


def listed_versions():
    lines = (ROOT / ".ci" / "minimum-versions.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def numbers(version):
    return [int(number) for number in version.split(".")]


def is_release_of(release, minimum):
    """Return whether a release is in the series of a minimum: 3.12.1 for 3.12, 16.0.2 for 16."""
    padded = [*numbers(minimum), 0, 0]
    return numbers(release)[: len(numbers(minimum))] == numbers(minimum) and numbers(release)[:2] == padded[:2]


# Extras whose oldest versions are not tested: tools, and CUDA 13, which cannot be installed together with CUDA 12.
UNTESTED = ("test", "trainers", "docs", "lint", "cu13", "images-cu13")
RUNTIME = declared_minimums(
    [
        *PROJECT["dependencies"],
        *(line for name, lines in EXTRAS.items() if name not in UNTESTED for line in lines),
    ]
)


@pytest.mark.parametrize(("package", "minimum"), sorted(RUNTIME))
def test_each_declared_minimum_is_tested(package, minimum):
    assert is_release_of(listed_versions()[package], minimum)


def test_only_declared_packages_are_listed():
    assert set(listed_versions()) == {package for package, _ in RUNTIME}


def test_all_extras_declare_the_same_minimum_of_a_package():
    # cu13 is left out, because it needs a newer version of cuda-bindings than cu12.
    lines = [line for name, lines in EXTRAS.items() if name != "cu13" for line in lines]
    minimums = declared_minimums([*PROJECT["dependencies"], *lines])
    assert len(minimums) == len({package for package, _ in minimums}), sorted(minimums)


@pytest.mark.parametrize("module", sorted(registry._MINIMUM_VERSIONS))
def test_the_registry_has_the_declared_minimum_versions(module):
    assert (MODULES.get(module, module), registry._MINIMUM_VERSIONS[module]) in RUNTIME
