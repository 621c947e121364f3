"""Actions run once, right after a module was imported."""

import importlib
import importlib.util
import sys

import pytest

from forebay.doctor.capture.post_import import PostImportActions

NAME = "a_library"


@pytest.fixture
def library(tmp_path, monkeypatch):
    (tmp_path / f"{NAME}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop(NAME, None)


@pytest.fixture
def actions_run():
    """Return a list. Each run of the action appends the `value` of the library's module."""
    seen = []
    finder = PostImportActions({NAME: lambda: seen.append(sys.modules[NAME].value)})
    finder.install()
    yield seen
    finder.remove()


def test_the_action_runs_after_the_module(library, actions_run):
    module = importlib.import_module(NAME)
    assert actions_run == [1]
    assert module.__spec__.loader.__class__.__name__ == "SourceFileLoader"


def test_the_action_runs_once(library, actions_run):
    importlib.import_module(NAME)
    importlib.reload(sys.modules[NAME])
    assert actions_run == [1]


def test_finding_a_module_runs_no_action(library, actions_run):
    assert importlib.util.find_spec(NAME) is not None
    assert actions_run == []


def test_the_action_of_a_loaded_module_runs_immediately(library):
    importlib.import_module(NAME)
    seen = []
    finder = PostImportActions({NAME: lambda: seen.append(1)})
    finder.install()
    finder.remove()
    assert seen == [1]


def test_a_missing_module_raises_as_usual(actions_run):
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        importlib.import_module("no_such_library")


def test_remove_restores_the_finders(actions_run):
    before = [finder for finder in sys.meta_path if not isinstance(finder, PostImportActions)]
    finder = PostImportActions({})
    finder.install()
    finder.remove()
    assert [found for found in sys.meta_path if not isinstance(found, PostImportActions)] == before
