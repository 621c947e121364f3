"""`watch()` in a program or a cell: what it says before, after, and as the last value of a cell."""

import gc
from weakref import ref

import pytest

from forebay.doctor import watch
from forebay.doctor.report.html import card
from forebay.errors import CaptureError


@pytest.fixture
def watched():
    with watch() as found:
        pass
    return found


def test_a_watch_that_goes_on_says_so():
    with watch() as watching:
        assert repr(watching) == "<Watch: it goes on>"
        assert watching._repr_html_() is None
        with pytest.raises(CaptureError, match="leave its `with` block first"):
            watching.show()


def test_a_watch_that_ended_is_its_report(watched):
    assert repr(watched) == "<Watch: No loop was found, so there is no step to judge>"
    assert watched._repr_html_() == card(watched.verdict)


def test_a_watch_is_used_once(watched):
    with pytest.raises(CaptureError, match="call watch\\(\\) again"), watched:
        pass


def test_an_interrupted_cell_is_called_so():
    watching = watch()
    with pytest.raises(KeyboardInterrupt), watching:
        raise KeyboardInterrupt
    assert watching.capture.ended == "interrupted"


def test_a_watch_is_forgotten_with_its_name():
    with watch() as watching:
        pass
    left = ref(watching._session)
    del watching
    gc.collect()
    assert left() is None


def test_a_report_is_printed(watched, capsys):
    watched.show()
    assert "No loop was found" in capsys.readouterr().out


def test_a_report_is_saved(watched, tmp_path):
    watched.save_html(tmp_path / "report.html")
    assert "No loop was found" in (tmp_path / "report.html").read_text()
