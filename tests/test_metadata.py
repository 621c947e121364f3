"""The metadata of the package and of its citation agree with the package."""

import re
import tomllib

from tests.support.paths import ROOT

import forebay

CITATION = (ROOT / "CITATION.cff").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_has_the_version_of_the_package():
    assert re.findall(r"^version: (.*)$", CITATION, re.MULTILINE) == [forebay.__version__]


def test_the_citation_and_the_package_have_the_same_authors():
    names = re.findall(r"^  - name: (.*)$", CITATION, re.MULTILINE)
    assert names == [author["name"] for author in PROJECT["authors"]]
