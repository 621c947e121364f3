"""Progress lines: in a terminal only, after two seconds, one at a time."""

import io
import threading
from types import SimpleNamespace

import pytest
from tests.support.terminals import show_progress_at_once

from forebay.core import progress_line
from forebay.core.progress_line import BackgroundLine, ProgressLine


@pytest.fixture
def terminal(monkeypatch):
    return show_progress_at_once(monkeypatch)


def test_a_line_shows_the_share_and_is_erased_at_its_end(terminal):
    line = ProgressLine("indexing a.tar", 4)
    line.done = 1
    with line:
        assert terminal.drawn.wait(10)
    assert "\r\x1b[Kforebay: indexing a.tar (25%, 0 s)" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_short_work_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress_line, "SHOW_AFTER_SECONDS", 60.0)
    with ProgressLine("indexing a.tar"):
        pass
    assert terminal.getvalue() == ""


def test_an_inner_line_is_not_shown(terminal):
    with ProgressLine("opening files"), ProgressLine("indexing a.tar"):
        assert terminal.drawn.wait(10)
    assert "opening files" in terminal.getvalue()
    assert "indexing" not in terminal.getvalue()


def test_only_the_main_thread_shows_a_line(terminal):
    def work():
        with ProgressLine("indexing a.tar") as line:
            assert line._thread is None

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert terminal.getvalue() == ""


def test_a_waiting_thread_does_not_show_the_line_of_another_waiting_thread(terminal):
    def wait():
        with BackgroundLine():
            terminal.drawn.wait(0.2)

    thread = threading.Thread(target=wait)
    with BackgroundLine() as line:
        thread.start()
        assert line.render(1.0, 80) == ""
        thread.join()
    assert terminal.getvalue() == ""


def test_the_line_of_another_thread_is_shown_while_the_main_thread_waits_for_it(terminal):
    def work():
        line = ProgressLine("uploading 9 GiB", 4)
        line.done = 2
        with line:
            terminal.drawn.wait(10)

    thread = threading.Thread(target=work)
    with BackgroundLine():
        thread.start()
        thread.join()
    assert "\r\x1b[Kforebay: uploading 9 GiB (50%, 0 s)" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_wait_without_work_in_other_threads_draws_nothing(terminal):
    with BackgroundLine() as line:
        assert not terminal.drawn.wait(0.05)
        assert line.render(3.0, 80) == ""
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("stderr", [io.StringIO(), None])
def test_nothing_is_shown_without_a_terminal(monkeypatch, stderr):
    monkeypatch.setattr(progress_line, "sys", SimpleNamespace(stderr=stderr))
    with ProgressLine("indexing a.tar") as line:
        assert line._thread is None


def test_a_second_line_is_shown_after_an_error_in_the_first(terminal):
    with pytest.raises(ValueError, match="damaged"), ProgressLine("first"):
        raise ValueError("damaged")
    with ProgressLine("second"):
        terminal.drawn.clear()
        assert terminal.drawn.wait(10)
    assert "second" in terminal.getvalue()


def test_a_line_fits_into_the_terminal_and_has_no_control_characters():
    line = ProgressLine("indexing \x1b[31m" + "x" * 100 + "\n.tar", 10).render(3.4, 80)
    assert len(line) < 80
    assert line.isprintable()
    assert line.startswith("forebay: indexing \\x1b[31m")
