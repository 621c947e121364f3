"""`watch()` in a program or a notebook cell: its report during and after the run."""

import gc
from weakref import ref

import pytest

from forebay.doctor import watch
from forebay.doctor.capture.post_import import PostImportActions
from forebay.doctor.capture.session import RunningSessionError
from forebay.doctor.report.html import render_card
from forebay.errors import CaptureError


@pytest.fixture
def watched():
    with watch() as found:
        pass
    return found


def test_a_running_watch_has_no_report():
    with watch() as watching:
        assert repr(watching) == "<Watch: no capture yet>"
        assert watching._repr_html_() is None
        with pytest.raises(CaptureError, match="Read it after its `with` block has ended"):
            watching.show()


def test_a_notebook_shows_the_report_of_an_ended_watch(watched):
    assert repr(watched) == "<Watch: No training loop was found, so there is no step time to report>"
    assert watched._repr_html_() == watched.diagnosis._repr_html_() == render_card(watched.diagnosis)


def test_verdict_is_a_deprecated_name_of_diagnosis(watched):
    with pytest.warns(DeprecationWarning, match="Use Watch.diagnosis"):
        assert watched.verdict is watched.diagnosis


def test_a_second_use_of_a_watch_raises(watched):
    with pytest.raises(CaptureError, match="Call watch\\(\\) again"), watched:
        pass


def test_an_interrupted_cell_has_an_interrupted_capture():
    watching = watch()
    with pytest.raises(KeyboardInterrupt), watching:
        raise KeyboardInterrupt
    assert watching.capture.ended == "interrupted"


def test_a_watch_is_freed_with_its_last_reference():
    with watch() as watching:
        pass
    left = ref(watching._session)
    del watching
    gc.collect()
    assert left() is None


def test_show_prints_the_report(watched, capsys):
    watched.show()
    assert "No training loop was found" in capsys.readouterr().out


def test_save_html_writes_the_report(watched, tmp_path):
    watched.save_html(tmp_path / "report.html")
    assert "No training loop was found" in (tmp_path / "report.html").read_text()


def test_only_one_watch_can_run():
    with watch(), pytest.raises(RunningSessionError, match="another watch is running"), watch():
        pass


def test_a_watch_that_cannot_start_does_not_block_the_next_watch(monkeypatch):
    def refuse(*_):
        raise RuntimeError("no more memory")

    with monkeypatch.context() as patched:
        patched.setattr(PostImportActions, "install", refuse)
        with pytest.raises(RuntimeError, match="no more memory"), watch():
            pass
    with watch():
        pass
