"""Something done right after a module was imported, once, whoever imports it and however."""

import importlib
import importlib.util
import sys

import pytest

from forebay.doctor.capture.after_import import AfterImport

NAME = "somebodys_library"


@pytest.fixture
def library(tmp_path, monkeypatch):
    (tmp_path / f"{NAME}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop(NAME, None)


@pytest.fixture
def done():
    seen = []
    finder = AfterImport({NAME: lambda: seen.append(sys.modules[NAME].value)})
    finder.install()
    yield seen
    finder.remove()


def test_it_is_done_after_the_module_has_run(library, done):
    module = importlib.import_module(NAME)
    assert done == [1]
    assert module.__spec__.loader.__class__.__name__ == "SourceFileLoader"


def test_it_is_done_once(library, done):
    importlib.import_module(NAME)
    importlib.reload(sys.modules[NAME])
    assert done == [1]


def test_looking_for_a_module_does_nothing(library, done):
    assert importlib.util.find_spec(NAME) is not None
    assert done == []


def test_a_module_that_is_there_already_is_not_waited_for(library):
    importlib.import_module(NAME)
    seen = []
    finder = AfterImport({NAME: lambda: seen.append(1)})
    finder.install()
    finder.remove()
    assert seen == [1]


def test_a_missing_module_is_missed_as_ever(done):
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        importlib.import_module("no_such_library")


def test_it_goes_without_a_trace(done):
    before = [finder for finder in sys.meta_path if not isinstance(finder, AfterImport)]
    finder = AfterImport({})
    finder.install()
    finder.remove()
    assert [found for found in sys.meta_path if not isinstance(found, AfterImport)] == before
