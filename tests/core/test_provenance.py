"""A results file says when it was measured and with which commit of Forebay."""

import re
import subprocess

import pytest

from forebay.core.provenance import package_commit, provenance, utc_date


@pytest.fixture
def checkout(tmp_path):
    """A git checkout with a package at src/forebay, and one commit."""
    package = tmp_path / "src" / "forebay"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "Add a package"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_the_date_is_in_utc():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", utc_date())


def test_a_checkout_has_a_commit(checkout):
    assert re.fullmatch("[0-9a-f]{40}", package_commit(checkout / "src" / "forebay"))


def test_local_changes_are_marked(checkout):
    package = checkout / "src" / "forebay"
    (package / "__init__.py").write_text("x = 1")
    assert re.fullmatch("[0-9a-f]{40}-dirty", package_commit(package))


def test_a_package_in_the_environment_of_another_project_has_no_commit(checkout):
    package = checkout / ".venv" / "site-packages" / "forebay"
    package.mkdir(parents=True)
    assert package_commit(package) is None


def test_a_package_outside_of_a_checkout_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert package_commit(tmp_path) is None


def test_without_git_there_is_no_commit(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert package_commit(checkout / "src" / "forebay") is None
    assert list(provenance()) == ["date", "commit"]
